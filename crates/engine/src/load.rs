//! Rows that are put into a database which nobody else uses yet: see [`Worker::load`].

use polychron_base::{Error, TableId};
use polychron_schema::RowRef;

use crate::{Access, Declare, Insertion, Procedure, Transaction, Worker};

/// A row that is loaded.
#[derive(Clone, Copy, Debug)]
pub struct LoadedRow<'r> {
    /// The encoded primary key.
    pub key: &'r [u8],
    /// The row, which has that key.
    pub row: RowRef<'r>,
}

/// Loads rows by a transaction: what a protocol does that has no other way.
///
/// # Errors
/// As [`Worker::load`].
pub fn by_transaction<W: Worker>(worker: &mut W, table: TableId, rows: &[LoadedRow<'_>]) -> Result<(), Error> {
    worker.execute(&mut Insertions { table, rows })
}

/// Inserts rows of one table. Their parents are there, or will be.
struct Insertions<'r> {
    table: TableId,
    rows: &'r [LoadedRow<'r>],
}

impl Procedure for Insertions<'_> {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        for &LoadedRow { key, row } in self.rows {
            if let Insertion::Duplicate(index) = transaction.insert_unchecked(self.table, key, row)? {
                return Err(transaction.constraints(self.table)?.duplicate(self.table, index, row));
            }
        }
        Ok(())
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.rows.iter().for_each(|row| declaration.key(self.table, row.key, Access::Insert));
    }
}
