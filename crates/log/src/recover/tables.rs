//! Tables, as recovery knows them.

use std::fmt::Write as _;
use std::sync::Arc;

use polychron_engine::mutations::left_out;
use polychron_schema::{KeyExtractor, KeyScratch, Layout, RowRef, SchemaError, TableDefinition};

use crate::catalog::StoredCatalog;
use crate::error::{Error, RowFault};
use crate::frame::Words;
use crate::steps::RecoveryStep;

/// A table of the catalog.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) position: u32,
    pub(crate) definition: Arc<TableDefinition>,
    pub(crate) layout: Layout,
    key: KeyExtractor,
    /// Columns of the key in which not everything is a value.
    checked: Vec<usize>,
    /// In how many words of a row these columns lie, if that does not depend on the row.
    key_words: Option<usize>,
}

/// The tables of a catalog, each with a small number.
#[derive(Debug)]
pub(crate) struct Tables {
    /// By their positions.
    tables: Vec<Table>,
    positions: Vec<u32>,
}

impl Tables {
    pub(crate) fn new(catalog: &StoredCatalog) -> Result<Self, Error> {
        let made = |(position, stored): (&u32, &crate::catalog::StoredTable)| {
            let refused = |error| Error::Definition { table: stored.definition.name.clone(), error };
            let layout = stored.definition.layout().map_err(refused)?;
            let key = &stored.definition.key;
            let ends = key.iter().map(|&column| layout.columns()[column].slot).map(|slot| {
                let is_fixed = !slot.variable && !slot.is_nullable();
                is_fixed.then_some((slot.offset + slot.width).div_ceil(8) as usize)
            });
            Ok(Table {
                position: *position,
                checked: key.iter().copied().filter(|&column| !layout.columns()[column].holds_anything()).collect(),
                key_words: ends.collect::<Option<Vec<_>>>().and_then(|ends| ends.into_iter().max()),
                layout,
                key: KeyExtractor::primary(&stored.definition).map_err(refused)?,
                definition: Arc::clone(&stored.definition),
            })
        };
        let tables: Vec<Table> = catalog.tables().iter().map(made).collect::<Result<_, Error>>()?;
        let positions = tables.iter().map(|table| table.position).collect();
        Ok(Self { tables, positions })
    }

    /// The number of the table at a position; `None` if it is gone.
    #[inline]
    pub(crate) fn number(&self, position: u32) -> Option<usize> {
        // Unless tables were dropped.
        if self.positions.get(position as usize) == Some(&position) {
            return Some(position as usize);
        }
        let number = self.positions.binary_search(&position).ok();
        number.or_else(|| (left_out(RecoveryStep::SkipDropped) && !self.tables.is_empty()).then_some(0))
    }

    pub(crate) fn get(&self, number: usize) -> &Table {
        &self.tables[number]
    }

    pub(crate) fn all(&self) -> &[Table] {
        &self.tables
    }
}

impl Table {
    /// The key of a row, of which nothing is known.
    pub(crate) fn key_of<'s>(&self, row: &[u64], scratch: &'s mut KeyScratch) -> Result<&'s [u8], Error> {
        self.extract(row, scratch).map_err(|error| self.fault_of_row(row, RowFault::Layout(error)))
    }

    /// The same of a row that is encoded, of which no more is decoded than that takes.
    #[inline]
    pub(crate) fn key_of_encoded<'s>(
        &self,
        words: Words<'_>,
        row: &mut Vec<u64>,
        scratch: &'s mut KeyScratch,
    ) -> Result<&'s [u8], Error> {
        row.clear();
        let is_long_enough = 8 * words.len() >= self.layout.shape().fixed_bytes as usize;
        match self.key_words.filter(|_| is_long_enough) {
            Some(count) => {
                words.append_front_to(count, row);
                self.extract_front(row, scratch).map_err(|error| self.fault_of_row(row, RowFault::Layout(error)))
            }
            None => {
                words.append_to(row);
                self.key_of(row, scratch)
            }
        }
    }

    /// Checks that a patched row still has its key.
    pub(crate) fn check_same(&self, key: &[u8], row: &[u64], scratch: &mut KeyScratch) -> Result<(), Error> {
        match self.extract(row, scratch) {
            Err(error) => Err(self.fault(key, RowFault::Layout(error))),
            Ok(found) if found == key || left_out(RecoveryStep::RefuseOtherKey) => Ok(()),
            Ok(_) => Err(self.fault(key, RowFault::OtherKey)),
        }
    }

    fn extract<'s>(&self, row: &[u64], scratch: &'s mut KeyScratch) -> Result<&'s [u8], SchemaError> {
        let (bytes, expected) = (8 * row.len(), self.layout.shape().fixed_bytes as usize);
        if bytes < expected {
            return Err(SchemaError::RowLength { bytes, expected });
        }
        self.extract_front(row, scratch)
    }

    /// The key of a row that is long enough, of its first words.
    #[inline]
    fn extract_front<'s>(&self, front: &[u64], scratch: &'s mut KeyScratch) -> Result<&'s [u8], SchemaError> {
        let front = RowRef::from_words(front);
        self.checked.iter().try_for_each(|&column| self.layout.check_column(front, column))?;
        self.key.extract(front, scratch)
    }

    /// Checks that a row is one of the table.
    pub(crate) fn check(&self, key: &[u8], row: &[u64]) -> Result<(), Error> {
        if left_out(RecoveryStep::CheckRows) {
            return Ok(());
        }
        self.layout.check_row(RowRef::from_words(row)).map_err(|error| self.fault(key, RowFault::Layout(error)))
    }

    /// Checks that these bytes are a key of the table.
    pub(crate) fn check_key(&self, key: &[u8]) -> Result<(), Error> {
        self.key.decode_key(key).map(|_| ()).map_err(|error| self.fault(key, RowFault::Key(error)))
    }

    #[cold]
    pub(crate) fn fault(&self, key: &[u8], fault: RowFault) -> Error {
        Error::Row { table: self.definition.name.clone(), key: self.describe_key(key), fault }
    }

    #[cold]
    fn fault_of_row(&self, row: &[u64], fault: RowFault) -> Error {
        let row = RowRef::from_words(row);
        // As much of the key as there is.
        let values = self.definition.key.iter().map(|&column| row.value(&self.layout, column).to_string());
        Error::Row { table: self.definition.name.clone(), key: values.collect::<Vec<_>>().join(","), fault }
    }

    /// A key in words: its values, or its bytes if it has none.
    pub(crate) fn describe_key(&self, key: &[u8]) -> String {
        match self.key.decode_key(key) {
            Ok(values) => values.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            Err(_) => hexadecimal(key),
        }
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
