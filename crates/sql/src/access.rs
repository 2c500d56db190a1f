//! What the executor asks of a transaction, without its type: so that this crate is compiled once for all protocols.

use std::cell::RefCell;
use std::ops::ControlFlow;

use polychron_base::{Error, TableId};
use polychron_engine::futures::{Expression, Operand, combine};
use polychron_engine::write_rules::obeying;
use polychron_engine::{Insertion, Operations, Scan, Transaction};
use polychron_schema::{Projection, RowMut, RowRef};

use crate::exec::Failure;
use crate::exec::futures::Stepped;

/// A running transaction of any protocol.
pub(crate) trait Access {
    /// Shows the row of a key to `found`, if there is one.
    fn get(
        &self,
        table: TableId,
        key: &[u8],
        projection: &Projection,
        found: &mut dyn FnMut(RowRef<'_>),
    ) -> Result<(), Error>;

    /// Shows the rows of a range to `visit`, until it has enough.
    fn scan(&self, scan: &Scan<'_>, visit: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>) -> Result<(), Error>;

    fn insert(&self, table: TableId, key: &[u8], row: RowRef<'_>) -> Result<Insertion, Error>;

    /// Changes the row of a key, and tells whether there was one.
    fn update(
        &self,
        table: TableId,
        key: &[u8],
        projection: &Projection,
        change: &mut dyn FnMut(&mut RowMut<'_>) -> Result<(), Failure>,
    ) -> Result<bool, Failure>;

    fn delete(&self, table: TableId, key: &[u8]) -> Result<bool, Error>;

    /// Whether futures may stay open up to the commit.
    fn leaves_futures_open(&self) -> bool;

    /// Makes a step of the row of a key without learning it, and tells whether its bound holds. That there is a row shows at the commit.
    fn step(&self, table: TableId, key: &[u8], step: &Stepped) -> Result<bool, Error>;
}

/// It is lent for one operation at a time: between two of them a subquery may ask for rows, too.
impl<T: Transaction> Access for RefCell<&mut T> {
    fn get(
        &self,
        table: TableId,
        key: &[u8],
        projection: &Projection,
        found: &mut dyn FnMut(RowRef<'_>),
    ) -> Result<(), Error> {
        self.borrow_mut().read_row(table, key, projection)?.map(found);
        Ok(())
    }

    fn scan(&self, scan: &Scan<'_>, visit: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>) -> Result<(), Error> {
        self.borrow_mut().scan_rows(scan, &mut |row| visit(row))
    }

    fn insert(&self, table: TableId, key: &[u8], row: RowRef<'_>) -> Result<Insertion, Error> {
        obeying(|| self.borrow_mut().insert_row(table, key, row))
    }

    fn update(
        &self,
        table: TableId,
        key: &[u8],
        projection: &Projection,
        change: &mut dyn FnMut(&mut RowMut<'_>) -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        obeying(|| self.borrow_mut().update_row(table, key, projection, |row| change(row)))
    }

    fn delete(&self, table: TableId, key: &[u8]) -> Result<bool, Error> {
        obeying(|| self.borrow_mut().delete_row(table, key))
    }

    fn leaves_futures_open(&self) -> bool {
        self.borrow_mut().leaves_futures_open()
    }

    fn step(&self, table: TableId, key: &[u8], step: &Stepped) -> Result<bool, Error> {
        let Stepped { column, operation, by, bound } = *step;
        let mut transaction = self.borrow_mut();
        let (column_type, mut value) = (column.column_type, [Operand::of(0)]);
        transaction.read_futures(table, key, &[column], &mut value)?;
        let [before] = value;
        if let Some((comparison, value)) = bound {
            let value = Operand::of(value as u64);
            let condition = combine(&mut **transaction, &before, &value, |left, right| Expression::Compare {
                comparison,
                column_type,
                left,
                right,
            })?;
            if !transaction.test_future(condition)? {
                return Ok(false);
            }
        }
        let by = Operand::of(by as u64);
        let sum = combine(&mut **transaction, &before, &by, |left, right| Expression::Arithmetic {
            operation,
            column_type,
            left,
            right,
        })?;
        obeying(|| transaction.write_futures(table, key, &[(column, sum)]))?;
        Ok(true)
    }
}
