//! What the executor asks of a transaction, without its type: so that this crate is compiled once for all protocols.

use std::ops::ControlFlow;

use polychron_base::{Error, TableId};
use polychron_engine::{Insertion, Operations, Scan, Transaction};
use polychron_schema::{Projection, RowMut, RowRef, SchemaError};

/// A running transaction of any protocol.
pub(crate) trait Access {
    /// Shows the row of a key to `found`, if there is one.
    fn get(
        &mut self,
        table: TableId,
        key: &[u8],
        projection: &Projection,
        found: &mut dyn FnMut(RowRef<'_>),
    ) -> Result<(), Error>;

    /// Shows the rows of a range to `visit`, until it has enough.
    fn scan(&mut self, scan: &Scan<'_>, visit: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>) -> Result<(), Error>;

    fn insert(&mut self, table: TableId, key: &[u8], row: RowRef<'_>) -> Result<Insertion, Error>;

    /// Changes the row of a key, and tells whether there was one.
    fn update(
        &mut self,
        table: TableId,
        key: &[u8],
        projection: &Projection,
        change: &mut dyn FnMut(&mut RowMut<'_>) -> Result<(), SchemaError>,
    ) -> Result<bool, Error>;

    fn delete(&mut self, table: TableId, key: &[u8]) -> Result<bool, Error>;
}

impl<T: Transaction> Access for T {
    fn get(
        &mut self,
        table: TableId,
        key: &[u8],
        projection: &Projection,
        found: &mut dyn FnMut(RowRef<'_>),
    ) -> Result<(), Error> {
        self.read_row(table, key, projection)?.map(found);
        Ok(())
    }

    fn scan(&mut self, scan: &Scan<'_>, visit: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>) -> Result<(), Error> {
        self.scan_rows(scan, &mut |row| visit(row))
    }

    fn insert(&mut self, table: TableId, key: &[u8], row: RowRef<'_>) -> Result<Insertion, Error> {
        self.insert_row(table, key, row)
    }

    fn update(
        &mut self,
        table: TableId,
        key: &[u8],
        projection: &Projection,
        change: &mut dyn FnMut(&mut RowMut<'_>) -> Result<(), SchemaError>,
    ) -> Result<bool, Error> {
        self.update_row(table, key, projection, |row| change(row).map_err(Error::from))
    }

    fn delete(&mut self, table: TableId, key: &[u8]) -> Result<bool, Error> {
        self.delete_row(table, key)
    }
}
