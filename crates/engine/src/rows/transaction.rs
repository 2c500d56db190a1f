//! Records as a [`Transaction`].

use polychron_base::key::EncodedKey;
use polychron_base::{Error, TableId};
use polychron_schema::{Projection, RowMut, RowRef, TableDefinition};

use super::change::{add_row, change_row, delete_row, put_row};
use super::{At, Lookup, Primitives, Visit};
use crate::stores::{Keyed, StoreTable, check_row};
use crate::{Constraints, Insertion, LazyFutures, Prefetch, RowVisitor, Savepoints, Scan, Transaction, steady};

/// An operation that writes.
#[inline]
pub(super) fn alter<'t, P: Primitives<'t>, O>(
    transaction: &mut P,
    operation: impl FnOnce(&mut P) -> Result<O, Error>,
) -> Result<O, Error> {
    transaction.operate(|this| if this.flags().read_only { Err(Error::ReadOnly) } else { operation(this) })
}

/// The table of this id, for the operation that the row layer runs. It must not outlast that: so only the row layer may ask, which hands the table
/// to the protocol's own primitives and to nobody else.
///
/// # Errors
/// As [`Seen::table`](crate::catalog::Seen::table).
#[inline]
pub(super) fn table_of<'t, P: Primitives<'t>>(transaction: &P, id: TableId) -> Result<&'t StoreTable<P::Store>, Error> {
    // SAFETY: the transaction runs an operation, and looks at its list of tables at least until that ends.
    unsafe { transaction.tables().table_during(id) }
}

impl<'t, P: Primitives<'t>> Transaction for P {
    #[inline]
    fn read_row<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Error> {
        steady!(table, key => self.read_row(table, key, projection));
        let found =
            self.operate(|this| this.find(At::row(table_of(this, table)?, key), Lookup::to_read(projection)))?;
        Ok(found.map(|found| self.row(found)))
    }

    #[inline]
    fn read_row_unvalidated<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Error> {
        steady!(table, key => self.read_row_unvalidated(table, key, projection));
        let found =
            self.operate(|this| this.find(At::row(table_of(this, table)?, key), Lookup::unprotected(projection)))?;
        Ok(found.map(|found| self.row(found)))
    }

    #[inline]
    fn update_unchecked<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<bool, Error> {
        steady!(table, key => self.update_unchecked(table, key, projection, change));
        alter(self, |this| change_row(this, At::row(table_of(this, table)?, key), projection, change))
    }

    #[inline]
    fn insert_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Error> {
        steady!(table, key => self.insert_unchecked(table, key, row));
        alter(self, |this| {
            let table = table_of(this, table)?;
            check_row(table, row)?;
            add_row(this, At::row(table, key), row)
        })
    }

    #[inline]
    fn put_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Error> {
        steady!(table, key => self.put_unchecked(table, key, row));
        alter(self, |this| {
            let table = table_of(this, table)?;
            check_row(table, row)?;
            put_row(this, At::row(table, key), row)
        })
    }

    #[inline]
    fn delete_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K) -> Result<bool, Error> {
        steady!(table, key => self.delete_unchecked(table, key));
        alter(self, |this| delete_row(this, At::row(table_of(this, table)?, key)))
    }

    #[inline]
    fn scan_unchecked(&mut self, scan: &Scan<'_>, visitor: &mut impl RowVisitor) -> Result<(), Error> {
        self.operate(|this| {
            let table = table_of(this, scan.table)?;
            if scan.limit == 0 {
                return table.store(scan.index)?.check_scan(scan);
            }
            this.scan(&mut Visit::new(scan, table, visitor))
        })
    }

    fn mark(&mut self) -> Result<usize, Error> {
        self.flags().check()?;
        Ok(self.set_savepoint())
    }

    fn undo_unchecked(&mut self, position: usize) -> Result<(), Error> {
        self.operate(|this| this.undo_to(position))
    }

    #[inline]
    fn savepoints(&mut self) -> &mut Savepoints {
        self.saved()
    }

    #[inline]
    fn is_reconnaissance(&self) -> bool {
        self.only_plans()
    }

    #[inline]
    fn definition(&self, table: TableId) -> Result<&TableDefinition, Error> {
        Ok(&self.tables().table(table)?.definition)
    }

    #[inline]
    fn constraints(&self, table: TableId) -> Result<&Constraints, Error> {
        Ok(&self.tables().table(table)?.constraints)
    }

    #[inline]
    fn protect_reads(&mut self, protect: bool) {
        self.protect_all_reads(protect);
    }
}

/// Futures are resolved at once.
impl<'t, P: Primitives<'t>> LazyFutures for P {}

impl<'t, P: Primitives<'t>> Prefetch for P {
    #[inline]
    fn prefetch_row<K: EncodedKey>(&mut self, table: TableId, key: K) {
        self.fetch(table, key);
    }

    #[inline]
    fn has_prefetched(&self) -> bool {
        self.are_on_their_way()
    }
}
