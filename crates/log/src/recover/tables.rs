//! What recovery knows of tables.

use std::fmt::Write as _;
use std::sync::Arc;

use polychron_engine::mutations::left_out;
use polychron_schema::{KeyExtractor, KeyScratch, Layout, RowRef, SchemaError, TableDefinition};

use crate::catalog::StoredCatalog;
use crate::error::{Error, RowFault};
use crate::steps::RecoveryStep;

/// A table of the catalog.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) position: u32,
    pub(crate) definition: Arc<TableDefinition>,
    pub(crate) layout: Layout,
    key: KeyExtractor,
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
            Ok(Table {
                position: *position,
                layout: stored.definition.layout().map_err(refused)?,
                key: KeyExtractor::primary(&stored.definition).map_err(refused)?,
                definition: Arc::clone(&stored.definition),
            })
        };
        let tables: Vec<Table> = catalog.tables().iter().map(made).collect::<Result<_, Error>>()?;
        let positions = tables.iter().map(|table| table.position).collect();
        Ok(Self { tables, positions })
    }

    /// The number of the table at a position; `None` if it is gone.
    pub(crate) fn number(&self, position: u32) -> Option<usize> {
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

    /// Checks that a patched row still has its key.
    pub(crate) fn check_same(&self, key: &[u8], row: &[u64], scratch: &mut KeyScratch) -> Result<(), Error> {
        match self.extract(row, scratch) {
            Err(error) => Err(self.fault(key, RowFault::Layout(error))),
            Ok(found) if found == key || left_out(RecoveryStep::RefuseOtherKey) => Ok(()),
            Ok(_) => Err(self.fault(key, RowFault::OtherKey)),
        }
    }

    fn extract<'s>(&self, row: &[u64], scratch: &'s mut KeyScratch) -> Result<&'s [u8], SchemaError> {
        let row = RowRef::from_words(row);
        let (bytes, expected) = (row.as_bytes().len(), self.layout.shape().fixed_bytes as usize);
        if bytes < expected {
            return Err(SchemaError::RowLength { bytes, expected });
        }
        self.definition.key.iter().try_for_each(|&column| self.layout.check_column(row, column))?;
        self.key.extract(row, scratch)
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
