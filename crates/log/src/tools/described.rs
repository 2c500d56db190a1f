//! Changes in words.

use std::fmt::Write as _;

use polychron_base::line::OneLine;
use polychron_schema::{KeyScratch, LayoutColumn, RowRef, ValueRef};

use crate::catalog::StoredCatalog;
use crate::error::Error;
use crate::frame::{Change, Order};
use crate::read::Logged;
use crate::recover::{Table, Tables};

/// A change of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// The log epoch that it became durable with, or that of the checkpoint that carries it.
    pub epoch: u64,
    /// The opening of the database.
    pub incarnation: u64,
    /// The order of the transaction within it.
    pub order: Order,
    /// The table's name; its position in brackets if it was dropped.
    pub table: String,
    /// The values of the key, with commas between them; its bytes if they are none, and nothing where it is not known because the table was dropped.
    pub key: String,
    /// The change: `put`, `patch` or `delete`, and columns with their values. Words of a patch that are no whole columns stand with their numbers.
    pub change: String,
}

/// Tells of changes by the definitions of their tables.
pub(super) struct Describer {
    tables: Tables,
}

impl Describer {
    pub(super) fn new(catalog: &StoredCatalog) -> Result<Self, Error> {
        Ok(Self { tables: Tables::new(catalog)? })
    }

    pub(super) fn describe(
        &self,
        epoch: u64,
        logged: Logged<'_>,
        visit: &mut dyn FnMut(&Described),
    ) -> Result<(), Error> {
        let Logged { incarnation, record } = logged;
        for change in record.changes() {
            let change = change.map_err(|_| Error::Record)?;
            let (Change::Put { table, .. } | Change::Patch { table, .. } | Change::Delete { table, .. }) = change;
            let known = self.tables.number(table).map(|number| self.tables.get(number));
            let (key, text) = match known {
                Some(table) => of_table(table, change)?,
                None => of_dropped(change),
            };
            let table = known.map_or_else(|| format!("[{table}]"), |table| table.definition.name.clone());
            visit(&Described { epoch, incarnation, order: record.order, table, key, change: text });
        }
        Ok(())
    }
}

fn of_table(table: &Table, change: Change<'_>) -> Result<(String, String), Error> {
    match change {
        Change::Put { row, .. } => {
            let mut words = Vec::new();
            row.append_to(&mut words);
            let mut scratch = KeyScratch::new();
            let key = table.key_of(&words, &mut scratch)?;
            table.check(key, &words)?;
            let columns = 0..table.layout.columns().len();
            let text = columns.fold("put".to_owned(), |text, column| with(text, table, column, &words));
            Ok((table.describe_key(key), text))
        }
        Change::Patch { key, ranges, .. } => {
            let text = ranges.fold("patch".to_owned(), |text, (first, words)| {
                with_range(text, table, first, &words.collect::<Vec<_>>())
            });
            Ok((table.describe_key(key), text))
        }
        Change::Delete { key, .. } => Ok((table.describe_key(key), "delete".to_owned())),
    }
}

fn of_dropped(change: Change<'_>) -> (String, String) {
    match change {
        Change::Put { row, .. } => (String::new(), with_words("put".to_owned(), 0, row)),
        Change::Patch { key, ranges, .. } => {
            let text = ranges.fold("patch".to_owned(), |text, (first, words)| with_words(text, first, words));
            (crate::recover::hexadecimal(key), text)
        }
        Change::Delete { key, .. } => (crate::recover::hexadecimal(key), "delete".to_owned()),
    }
}

/// Adds a column of a row.
fn with(mut text: String, table: &Table, column: usize, row: &[u64]) -> String {
    let name = OneLine(&table.layout.columns()[column].name);
    // Writing to a text does not fail.
    let _ = match RowRef::from_words(row).value_ref(&table.layout, column) {
        ValueRef::String(value) => write!(text, " {name}={value:?}"),
        ValueRef::Bytes(value) => write!(text, " {name}={}", crate::recover::hexadecimal(value)),
        value => write!(text, " {name}={}", OneLine(value)),
    };
    text
}

/// Adds the columns that words of a row have as a whole, and the other words as numbers.
fn with_range(text: String, table: &Table, first: usize, words: &[u64]) -> String {
    let (begin, end) = (8 * first, 8 * (first + words.len()));
    // Where others lie, and whether they are NULL, is not known.
    let is_whole = |column: &LayoutColumn| {
        let (offset, width) = (column.slot.offset as usize, column.slot.width as usize);
        !column.slot.variable && !column.slot.is_nullable() && begin <= offset && offset + width <= end
    };
    let all = table.layout.columns();
    let columns: Vec<usize> = (0..all.len()).filter(|&column| is_whole(&all[column])).collect();
    let mut row = vec![0; first];
    row.extend_from_slice(words);
    let text = columns.iter().fold(text, |text, &column| with(text, table, column, &row));
    (first..).zip(words).fold(text, |text, (at, word)| {
        let covered: usize = columns.iter().map(|&column| bytes_within(&all[column], 8 * at)).sum();
        // What is between columns is zero.
        let is_shown = covered > 0 && (covered == 8 || table.bytes_of_word(at) == covered);
        if is_shown { text } else { with_words(text, at, std::iter::once(*word)) }
    })
}

/// How many bytes of the word at this offset a column has.
fn bytes_within(column: &LayoutColumn, offset: usize) -> usize {
    let (begin, end) = (column.slot.offset as usize, (column.slot.offset + column.slot.width) as usize);
    end.min(offset + 8).saturating_sub(begin.max(offset))
}

impl Table {
    /// How many bytes of a word columns have.
    fn bytes_of_word(&self, at: usize) -> usize {
        let shape = self.layout.shape();
        let nulls = (shape.null_bytes as usize).saturating_sub(8 * at).min(8);
        let is_fixed = 8 * at < shape.fixed_bytes as usize;
        if !is_fixed {
            return 8;
        }
        nulls + self.layout.columns().iter().map(|column| bytes_within(column, 8 * at)).sum::<usize>()
    }
}

fn with_words(mut text: String, first: usize, words: impl Iterator<Item = u64>) -> String {
    for (at, word) in (first..).zip(words) {
        let _ = write!(text, " [{at}]={word:#x}");
    }
    text
}
