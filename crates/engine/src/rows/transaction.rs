//! Records as a [`Transaction`].

use std::ops::ControlFlow;

use polychron_base::key::EncodedKey;
use polychron_base::{Error, TableId};
use polychron_schema::{Projection, RowMut, RowRef, TableDefinition};

use super::change::{add_row, change_row, delete_row, put_row};
use super::{At, Finding, Lookup, Primitives, Visit};
use crate::redo::{Watch, visit_to_stop};
use crate::stores::{Keyed, StoreTable, check_row};
use crate::{Constraints, Insertion, LazyFutures, Prefetch, RowVisitor, Savepoints, Scan, Transaction, steady};

/// Runs an operation that writes. Its reads are not checked against a stopped log, which takes no changes anyway.
#[inline]
pub(super) fn alter<'t, P: Primitives<'t>, O>(
    transaction: &mut P,
    operation: impl FnOnce(&mut P) -> Result<O, Error>,
) -> Result<O, Error> {
    if transaction.watch().is_on() {
        transaction.watch().give_up();
    }
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

/// Finds a row, and checks that it is durable if the log has stopped.
#[inline(always)]
fn find<'t, P: Primitives<'t>, K: EncodedKey>(
    transaction: &mut P,
    table: TableId,
    key: K,
    lookup: Lookup<'_>,
) -> Finding<P::Found> {
    let table = table_of(transaction, table)?;
    let found = transaction.find(At::row(table, key), lookup)?;
    if transaction.watch().is_on() {
        watch_key(transaction.watch(), table, key);
    }
    Ok(found)
}

#[cold]
fn watch_key<S: Keyed, K: EncodedKey>(watch: &mut Watch, table: &StoreTable<S>, key: K) {
    watch.read_key(table.id, table.primary.extractor(), key);
}

/// Checks that a range is durable which the protocol has read without the row layer, if the log has stopped.
///
/// # Errors
/// [`Error::NoSuchTable`].
#[inline]
pub fn watch_scan<'t, P: Primitives<'t>>(transaction: &mut P, scan: &Scan<'_>) -> Result<(), Error> {
    if transaction.watch().is_on() {
        let table = table_of(transaction, scan.table)?;
        transaction.watch().read_range(table.primary.extractor(), scan, None);
    }
    Ok(())
}

/// Visits a range, and checks that the visited part is durable.
#[cold]
fn scan_watched<'t, P: Primitives<'t>>(
    transaction: &mut P,
    scan: &Scan<'_>,
    table: &'t StoreTable<P::Store>,
    visitor: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
) -> Result<(), Error> {
    let extractor = table.primary.extractor();
    let stopped_at =
        visit_to_stop(scan, extractor, visitor, |scan, look| transaction.scan(&mut Visit::new(scan, table, look)))?;
    transaction.watch().read_range(extractor, scan, stopped_at.as_deref());
    Ok(())
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
        let found = self.operate(|this| find(this, table, key, Lookup::to_read(projection)))?;
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
        let found = self.operate(|this| find(this, table, key, Lookup::unprotected(projection)))?;
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
            if this.watch().is_on() {
                return scan_watched(this, scan, table, visitor);
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
