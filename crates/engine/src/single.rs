//! One read as a transaction of its own: what [`crate::Worker::read_one`] does where a protocol knows nothing better.

use polychron_base::key::EncodedKey;
use polychron_base::{Error, TableId};
use polychron_schema::{Projection, RowRef};

use crate::{Access, Declare, Procedure, Transaction};

/// Reads one row.
pub(crate) struct ReadOne<'p, K, F> {
    pub(crate) table: TableId,
    pub(crate) key: K,
    pub(crate) projection: &'p Projection,
    pub(crate) read: F,
}

impl<K: EncodedKey, O: Send, F: FnMut(Option<RowRef<'_>>) -> O + Send> Procedure for ReadOne<'_, K, F> {
    type Output = O;
    type Error = Error;

    #[inline]
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<O, Error> {
        let row = transaction.read_row(self.table, self.key, self.projection)?;
        Ok((self.read)(row))
    }

    #[inline]
    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.key(self.table, self.key, Access::Read);
    }
}
