//! What a procedure may ask for, once it holds its partitions.

use std::ops::ControlFlow;

use polychron_base::key::EncodedKey;
use polychron_base::{Error, Stop, TableId};
use polychron_engine::mutations::left_out;
use polychron_engine::stores::{Batch, check_key, check_row};
use polychron_engine::{
    Commit, Constraints, Insertion, Mode, Projection, Savepoints, Scan, TableDefinition, Transaction,
};
use polychron_memory::Guard;
use polychron_schema::{RowBuffer, RowMut, RowRef};

use super::locks::Locks;
use super::rows::find;
use super::steps::Step;
use super::table::{Table, Undone, partition_of};
use super::worker::State;

/// Memory that operations use one after the other.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// The row that is being changed.
    pub(super) row: RowBuffer,
    /// A secondary entry's words.
    pub(super) entry: RowBuffer,
    pub(super) batch: Batch,
}

/// A running transaction: it holds its partitions' locks, and is rolled back when it is dropped.
#[derive(Debug)]
pub struct PartitionedTransaction<'w> {
    pub(super) locks: &'w Locks,
    pub(super) state: &'w mut State,
    pub(super) guard: Guard<'w>,
    pub(super) read_only: bool,
}

impl<'w> PartitionedTransaction<'w> {
    /// The locks of `state.partitions` are held.
    pub(super) fn new(locks: &'w Locks, state: &'w mut State, guard: Guard<'w>, mode: Mode) -> Self {
        Self { locks, state, guard, read_only: mode == Mode::Snapshot }
    }

    #[inline]
    fn table(&self, id: TableId) -> Result<&'w Table, Error> {
        let table = polychron_engine::catalog::get(&self.state.tables, id)?;
        // SAFETY: the worker's list of tables changes only between transactions, and stays for the guard's time, so the table
        // outlives the transaction.
        Ok(unsafe { &*std::sync::Arc::as_ptr(table) })
    }
}

impl Drop for PartitionedTransaction<'_> {
    fn drop(&mut self) {
        if left_out(Step::UndoTransactions) {
            self.state.log.commit(&Undone(&self.state.tables), &self.guard);
        }
        self.undo_to(0);
        self.state.partitions.unlock(self.locks);
        self.state.partitions.clear();
    }
}

impl Commit for PartitionedTransaction<'_> {
    #[inline]
    fn commit(self) -> Result<(), Stop> {
        let state = &mut *self.state;
        state.log.commit(&Undone(&state.tables), &self.guard);
        // The locks go with the transaction, which has nothing left to undo.
        Ok(())
    }

    fn roll_back(self) -> bool {
        true
    }
}

impl Transaction for PartitionedTransaction<'_> {
    #[inline]
    fn read_row<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        _projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Stop> {
        let table = self.table(table)?;
        let partition = self.readable(table, key)?;
        let found = find(&table.primary.stores[partition], key, &self.guard);
        // SAFETY: the lock is held as long as the transaction lives, which writes nothing while the row is borrowed.
        Ok(found.map(|record| RowRef::from_words(unsafe { record.words() })))
    }

    #[inline]
    fn read_row_unvalidated<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Stop> {
        self.read_row(table, key, projection)
    }

    #[inline]
    fn update_unchecked<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<bool, Stop> {
        let table = self.table(table)?;
        let partition = self.writable(table, key)?;
        let mut found = true;
        let changed = self.whole_or_not(|this| {
            let changed = this.change_row(table, partition, key, projection, change)?;
            found = changed.is_some();
            Ok(changed.unwrap_or(Insertion::Inserted))
        })?;
        match changed {
            Insertion::Inserted => Ok(found),
            Insertion::Duplicate(index) => Err(Error::Duplicate { table: table.id, index }.into()),
        }
    }

    #[inline]
    fn insert_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Stop> {
        check_key(key)?;
        let table = self.table(table)?;
        check_row(table, row)?;
        let partition = self.writable(table, key)?;
        Ok(self.whole_or_not(|this| this.add_row(table, partition, key, row))?)
    }

    #[inline]
    fn put_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Stop> {
        check_key(key)?;
        let table = self.table(table)?;
        check_row(table, row)?;
        let partition = self.writable(table, key)?;
        Ok(self.whole_or_not(|this| this.overwrite_row(table, partition, key, row))?)
    }

    #[inline]
    fn delete_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K) -> Result<bool, Stop> {
        let table = self.table(table)?;
        let partition = self.writable(table, key)?;
        Ok(self.remove_row(table, partition, key)?)
    }

    fn scan_unchecked(
        &mut self,
        scan: &Scan<'_>,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        let table = self.table(scan.table)?;
        self.visit_rows(scan, table, visitor)
    }

    fn mark(&mut self) -> Result<usize, Stop> {
        Ok(self.state.log.len())
    }

    fn undo_unchecked(&mut self, position: usize) -> Result<(), Stop> {
        self.undo_to(position);
        Ok(())
    }

    fn savepoints(&mut self) -> &mut Savepoints {
        &mut self.state.savepoints
    }

    #[inline]
    fn prefetch_row<K: EncodedKey>(&mut self, table: TableId, key: K) {
        if let Ok(table) = self.table(table) {
            let partition = partition_of(table, key, self.locks).unwrap_or(0);
            table.primary.stores[partition].index().prefetch(key, &self.guard);
        }
    }

    fn definition(&self, table: TableId) -> Result<&TableDefinition, Stop> {
        Ok(&self.table(table)?.definition)
    }

    #[inline]
    fn constraints(&self, table: TableId) -> Result<&Constraints, Stop> {
        Ok(&self.table(table)?.constraints)
    }
}
