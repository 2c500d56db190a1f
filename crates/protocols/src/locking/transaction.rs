//! What a procedure may ask for.

use std::marker::PhantomData;
use std::ops::ControlFlow;

use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId, Reason, Stop, TableId};
use polychron_engine::mutations::left_out;
use polychron_engine::stores::{Batch, Place, check_key, check_row, has_dropped};
use polychron_engine::{Commit, Constraints, Insertion, Projection, Savepoints, Scan, TableDefinition, Transaction};
use polychron_memory::Guard;
use polychron_schema::{RowBuffer, RowMut, RowRef};

use super::options::Policy;
use super::protocol::Shared;
use super::steps::Step;
use super::table::{Table, Undone, name_of};
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

/// A running transaction: it holds its locks, and is rolled back when it is dropped.
#[derive(Debug)]
pub struct LockingTransaction<'w, P: Policy> {
    pub(super) shared: &'w Shared,
    pub(super) state: &'w mut State,
    pub(super) guard: Guard<'w>,
    /// The worker's number, in the queues of ranges.
    pub(super) owner: u64,
    pub(super) read_only: bool,
    /// It has conflicted.
    pub(super) doomed: bool,
    /// It has been told something by a secondary index.
    pub(super) asks_secondary: bool,
    pub(super) policy: PhantomData<P>,
}

impl<'w, P: Policy> LockingTransaction<'w, P> {
    #[inline]
    pub(super) fn table(&self, id: TableId) -> Result<&'w Table, Error> {
        let table = polychron_engine::catalog::get(&self.state.tables, id)?;
        // SAFETY: the worker's list of tables changes only between transactions, and is kept until the transaction has ended.
        Ok(unsafe { &*std::sync::Arc::as_ptr(table) })
    }

    /// Runs an operation. Between two of them the transaction stands aside: one whose client does nothing holds back no epoch. What it will look
    /// at again is locked, so that nobody else takes it away, or is its own, and its list of tables is kept. Only fingers are forgotten.
    #[inline]
    pub(super) fn operate<O>(&mut self, operation: impl FnOnce(&mut Self) -> O) -> O {
        self.come_back();
        let outcome = operation(self);
        self.guard.stand_aside();
        outcome
    }

    /// The transaction is in an epoch from now on.
    #[inline]
    pub(super) fn come_back(&mut self) {
        if !self.guard.come_back() {
            self.state.fingers.clear();
        }
    }

    /// A table that is to be written.
    #[inline]
    fn writable(&self, id: TableId) -> Result<&'w Table, Error> {
        if self.read_only && !left_out(Step::RefuseSnapshotWrites) {
            return Err(Error::ReadOnly);
        }
        self.table(id)
    }

    /// An index was added to a table that was written: its entries are not kept up.
    #[cold]
    fn compare_catalogs(&mut self) -> Result<(), Stop> {
        let place = self.state.tables.outdated(&self.shared.catalog, self.state.log.places());
        place.map_or(Ok(()), |place| Err(self.conflict(Reason::Inconsistent, place, None, None)))
    }

    /// No index was dropped that may have been asked. Who leaves it alone locks nothing there; but whoever locks what it has written, or writes
    /// what it has read, does so behind it, and sees here that its catalog has another version.
    #[inline]
    fn know_dropped(&mut self) -> Result<(), Stop> {
        let known = !self.asks_secondary || self.state.tables.is_present(&self.shared.catalog);
        if known || left_out(Step::KnowDropped) { Ok(()) } else { self.look_for_dropped() }
    }

    #[cold]
    fn look_for_dropped(&mut self) -> Result<(), Stop> {
        let Some(table) = has_dropped(&self.state.tables) else { return Ok(()) };
        Err(self.conflict(Reason::Inconsistent, Place { table, index: IndexId::PRIMARY }, None, None))
    }

    /// Gives back all that is locked.
    fn release(&mut self) {
        self.state.release::<P>(self.shared);
    }
}

impl<P: Policy> Drop for LockingTransaction<'_, P> {
    fn drop(&mut self) {
        self.come_back();
        if left_out(Step::UndoTransactions) {
            self.state.log.commit(&Undone(&self.state.tables), &self.guard);
        }
        self.undo_to(0);
        self.release();
        self.shared.kept.let_old_go(self.owner as usize, &mut self.state.tables, &self.shared.catalog);
    }
}

impl<P: Policy> Commit for LockingTransaction<'_, P> {
    #[inline]
    fn commit(mut self) -> Result<(), Stop> {
        self.alive()?;
        if !self.state.tables.is_present(&self.shared.catalog) && !left_out(Step::KnowAllIndexes) {
            self.compare_catalogs()?;
        }
        self.know_dropped()?;
        if P::CONDITIONS {
            self.respect_conditions()?;
        }
        self.come_back();
        let state = &mut *self.state;
        state.log.commit(&Undone(&state.tables), &self.guard);
        if self.read_only {
            state.counters.snapshot(0);
        }
        // The locks go with the transaction, which has nothing left to undo.
        Ok(())
    }

    fn roll_back(mut self) -> bool {
        !self.doomed && self.know_dropped().is_ok()
    }
}

impl<P: Policy> Transaction for LockingTransaction<'_, P> {
    #[inline]
    fn read_row<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        _projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Stop> {
        let table = self.table(table)?;
        let found = self.operate(|this| {
            this.lock(&table.primary, key, false)?;
            Ok::<_, Stop>(this.find(&table.primary, key))
        })?;
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
        let index = &self.table(table)?.primary;
        if !P::WOUNDS || self.state.held.has(name_of(index.store.place, key)) {
            return self.read_row(table, key, projection);
        }
        // Rows are written in place, so nobody writes this one while it is copied; who waits by age may give the lock back at once.
        let is_there = self.operate(|this| {
            let before = this.state.held.locks().len();
            this.lock(index, key, false)?;
            let found = this.find(index, key);
            let state = &mut *this.state;
            if let Some(record) = found {
                // SAFETY: the lock is held.
                let words = unsafe { record.words() };
                state.buffers.row.overwrite_words(words.len()).copy_from_slice(words);
            }
            if state.held.locks().len() > before {
                state.held.give_back_latest(&this.shared.locks);
            }
            Ok::<_, Stop>(found.is_some())
        })?;
        Ok(is_there.then(|| self.state.buffers.row.as_row()))
    }

    #[inline]
    fn update_unchecked<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<bool, Stop> {
        let table = self.writable(table)?;
        let mut found = true;
        let changed = self.whole_or_not(|this| {
            let changed = this.change_row(table, key, projection, change)?;
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
        let table = self.writable(table)?;
        check_row(table, row)?;
        self.whole_or_not(|this| this.add_row(table, key, row))
    }

    #[inline]
    fn put_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Stop> {
        check_key(key)?;
        let table = self.writable(table)?;
        check_row(table, row)?;
        self.whole_or_not(|this| this.overwrite_row(table, key, row))
    }

    #[inline]
    fn delete_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K) -> Result<bool, Stop> {
        let table = self.writable(table)?;
        let mut found = false;
        let _ = self.whole_or_not(|this| {
            found = this.remove_row(table, key)?;
            Ok(Insertion::Inserted)
        })?;
        Ok(found)
    }

    fn scan_unchecked(
        &mut self,
        scan: &Scan<'_>,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        let table = self.table(scan.table)?;
        self.operate(|this| this.visit_rows(scan, table, visitor))
    }

    fn mark(&mut self) -> Result<usize, Stop> {
        self.alive()?;
        Ok(self.state.log.len())
    }

    fn undo_unchecked(&mut self, position: usize) -> Result<(), Stop> {
        self.alive()?;
        self.operate(|this| this.undo_to(position));
        Ok(())
    }

    fn savepoints(&mut self) -> &mut Savepoints {
        &mut self.state.savepoints
    }

    #[inline]
    fn prefetch_row<K: EncodedKey>(&mut self, table: TableId, key: K) {
        if let Ok(table) = self.table(table) {
            self.operate(|this| table.primary.store.index().prefetch(key, &this.guard));
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
