//! `polychron import`.
//!
//! All rows are read and checked before the first one is inserted. What fits one transaction is one; otherwise all rows are inserted and taken back first, so
//! that nothing but the disk can refuse one of them when they are inserted for good, in several transactions.

use std::fs::File;
use std::io;
use std::sync::Arc;

use polychron::schema::{KeyExtractor, KeyScratch, RowBuffer, TableDefinition, build_row};
use polychron::{Database, Error, Insertion, Operations as _, TableId, Transaction as _};

#[cfg(feature = "parquet")]
use super::exchange::parquet;
use super::exchange::{Source, csv, format_of};
use super::export::find;
use crate::arguments::{Format, Import};
use crate::output::print_output;
use crate::progress::opening;

/// How many bytes of rows one transaction has: what the log takes at once is more.
const AT_ONCE: usize = 4 << 20;

pub(super) fn run(given: &Import) -> Result<(), String> {
    let name = given.input.as_ref().map_or("the standard input".to_owned(), |path| path.display().to_string());
    let at = |line: String| format!("{name}{line}");
    let format = format_of(given.format, given.input.as_deref())?;
    let file = given.input.as_ref().map(File::open).transpose().map_err(|error| at(format!(": {error}")))?;
    let opened = Database::builder().on_event(opening()).open_existing(&given.directory);
    let database = opened.map_err(|error| error.to_string())?;
    let table = find(&database, &given.table)?;
    let definition = database.definition(table).map_err(|error| error.to_string())?;
    let rows = read(definition, format, file).map_err(at)?;
    rows.insert(&database, table).map_err(|refused| match refused {
        Refused::Row(line) => at(line),
        Refused::Other(error) => error.to_string(),
        Refused::Tried => "the rows were not inserted".to_owned(),
    })?;
    database.close().map_err(|error| error.to_string())?;
    print_output(format_args!("{} rows inserted", rows.all.len()));
    Ok(())
}

fn read(definition: Arc<TableDefinition>, format: Format, file: Option<File>) -> Result<Rows, String> {
    match (format, file) {
        (Format::Csv, Some(file)) => Rows::read(&definition, csv::Records::open(definition.clone(), file)?),
        (Format::Csv, None) => Rows::read(&definition, csv::Records::open(definition.clone(), io::stdin())?),
        #[cfg(feature = "parquet")]
        (Format::Parquet, Some(file)) => Rows::read(&definition, parquet::Columns::open(&definition, file)?),
        #[cfg(feature = "parquet")]
        (Format::Parquet, None) => Rows::read(&definition, parquet::Columns::of_input(&definition, io::stdin())?),
    }
}

/// Rows of a file, each with its number there, and its key.
struct Rows {
    /// What the numbers count.
    unit: &'static str,
    all: Vec<(u64, RowBuffer, Vec<u8>)>,
}

/// Why rows were not inserted.
enum Refused {
    /// Where it was, and what is wrong with it.
    Row(String),
    Other(Error),
    /// All could be, and were taken back.
    Tried,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl Rows {
    /// # Errors
    /// Where something is wrong, and what.
    fn read<S: Source>(definition: &TableDefinition, mut source: S) -> Result<Self, String> {
        let layout = definition.layout().map_err(|error| format!(": {error}"))?;
        let keys = KeyExtractor::primary(definition).map_err(|error| format!(": {error}"))?;
        let (mut all, mut values) = (Vec::new(), Vec::new());
        while let Some(number) = source.next(&mut values)? {
            let at = |error| format!(", {} {number}: {error}", S::UNIT);
            let mut row = RowBuffer::new();
            build_row(&layout, &values, &mut row).map_err(at)?;
            let mut scratch = KeyScratch::new();
            let key = keys.extract(row.as_row(), &mut scratch).map_err(at)?;
            all.push((number, row, key.to_vec()));
        }
        Ok(Self { unit: S::UNIT, all })
    }

    fn insert(&self, database: &Database, table: TableId) -> Result<(), Refused> {
        let mut parts = vec![0];
        let mut bytes = 0;
        for (number, (_, row, _)) in self.all.iter().enumerate() {
            bytes += size_of_val(row.as_row().as_words());
            if bytes > AT_ONCE && parts.last() != Some(&number) {
                parts.push(number);
                bytes = 0;
            }
        }
        parts.push(self.all.len());
        if parts.len() > 2 {
            match self.insert_part(database, table, 0..self.all.len(), true) {
                Err(Refused::Tried) | Ok(()) => {}
                refused => return refused,
            }
        }
        parts.windows(2).try_for_each(|part| self.insert_part(database, table, part[0]..part[1], false))
    }

    fn insert_part(
        &self,
        database: &Database,
        table: TableId,
        part: std::ops::Range<usize>,
        is_trial: bool,
    ) -> Result<(), Refused> {
        database.transact(|transaction| {
            for (number, row, key) in &self.all[part.clone()] {
                let row = row.as_row();
                let refused = match transaction.insert_row(table, key.as_slice(), row) {
                    Ok(Insertion::Duplicate(index)) => transaction.constraints(table)?.duplicate(table, index, row),
                    Ok(_) => continue,
                    Err(error) => error,
                };
                let is_of_row = matches!(refused, Error::Duplicate(_) | Error::NoParent(_) | Error::KeyTooLong(_));
                return Err(if is_of_row {
                    Refused::Row(format!(", {} {number}: {refused}", self.unit))
                } else {
                    Refused::Other(refused)
                });
            }
            if is_trial { Err(Refused::Tried) } else { Ok(()) }
        })
    }
}
