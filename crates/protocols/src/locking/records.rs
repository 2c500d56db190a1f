//! The records of a transaction: it locks their keys before it looks at them, writes them in place, and logs each change to undo it.
//!
//! All access to records is here. A record is read under a lock of its key, and written under an exclusive one. It stays as long as its key is
//! locked: a transaction that unlinks it from its index has the key exclusively, and frees it behind the guards when it ends. So a record may be
//! kept beyond the epoch in which it was found, for as long as the lock is held ([`LockedRecord`]). Fingers and handles may not.

use std::marker::PhantomData;

use polychron_base::Error;
use polychron_base::error::KeyPreview;
use polychron_base::key::EncodedKey;
use polychron_engine::RowVisitor;
use polychron_engine::catalog::Seen;
use polychron_engine::mutations::{left_out, pass};
use polychron_engine::redo::Journal;
use polychron_engine::rows::Visit;
use polychron_engine::stores::{
    Batch, Fingers, InPlace, IndexRef, Placed, Record, Records as _, RowRecords, UndoLog, WorkerBase, words_of,
};
use polychron_memory::{Guard, Local};
use polychron_schema::Changes;

use super::held::{Held, Lock, Taken};
use super::locks::{Answer, LockTable};
use super::protocol::Shared;
use super::rows::{FoundRow, bytes_of, own_wait};
use super::steps::{Point, Step};
use super::table::{Index, Table};
use super::transaction::LockingTransaction;
use super::wounds::SpinBudget;

/// A record whose key is locked by the transaction that has found it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockedRecord<'w> {
    record: Record,
    _locked: PhantomData<&'w ()>,
}

impl LockedRecord<'_> {
    fn new(record: Record) -> Self {
        Self { record, _locked: PhantomData }
    }
}

/// The locks and the changes of a worker's running transaction.
#[derive(Debug)]
pub(super) struct WorkerRecords {
    held: Held,
    /// Of the guard of the running transaction, in the epoch in which that is.
    fingers: Fingers,
    log: UndoLog<IndexRef>,
}

/// The records of a running transaction, and its guard.
#[derive(Debug)]
pub(super) struct Records<'w> {
    kept: &'w mut WorkerRecords,
    guard: Guard<'w>,
}

impl WorkerRecords {
    /// No locks of a table.
    pub(super) fn new(locks: &LockTable, local: &Local) -> Self {
        let mut held = Held::new(locks);
        held.own.belong_to(local);
        Self { held, fingers: Fingers::default(), log: UndoLog::default() }
    }

    /// What is locked.
    #[inline]
    pub(super) fn held(&self) -> &Held {
        &self.held
    }

    /// Begins a transaction with the present list of tables. It is in no epoch before its first operation.
    #[inline]
    pub(super) fn begin<'w>(
        &'w mut self,
        local: &'w Local,
        base: &mut WorkerBase<Index>,
        shared: &Shared,
    ) -> Records<'w> {
        // Pinned first: what frees a list of tables waits for the epochs of the transactions that know it.
        let mut guard = local.pin();
        // SAFETY: of the transaction, which leaves its epoch, the list is kept below, until it has ended.
        unsafe { base.tables.renew(&shared.base.catalog) };
        shared.kept.keep(base.slot, &mut base.tables);
        guard.stand_aside();
        debug_assert!(self.log.is_empty(), "the transaction before left something behind");
        self.fingers.clear();
        base.begin_logged(&shared.base.common.journal);
        Records { kept: self, guard }
    }

    /// Undoes the changes of a transaction that was leaked, which holds its locks.
    pub(super) fn undo_leaked(&mut self, local: &Local, tables: &Seen<Table>) {
        // The tables are those that the leaked transaction has seen: they are kept as long as its guard is.
        self.log.undo_to(0, &InPlace(tables), &local.pin());
    }

    /// Releases all locks, when there is nothing left to undo under them.
    #[inline]
    pub(super) fn release(&mut self) {
        assert!(self.log.is_empty(), "changes are undone, or committed, under their locks");
        self.held.release();
    }
}

impl<'w> Records<'w> {
    /// What is locked.
    #[inline]
    pub(super) fn held(&self) -> &Held {
        &self.kept.held
    }

    /// The guard.
    #[inline]
    pub(super) fn guard(&self) -> &Guard<'w> {
        &self.guard
    }

    /// A transaction of this age begins, in this thread.
    pub(super) fn begin_aged(&mut self, age: u64) {
        self.kept.held.begin(age);
    }

    /// The transaction is in an epoch from now on.
    #[inline]
    pub(super) fn come_back(&mut self) {
        if !self.guard.come_back() {
            self.kept.fingers.clear();
        }
    }

    /// The transaction is in no epoch from now on. Only fingers are forgotten.
    #[inline]
    pub(super) fn stand_aside(&mut self) {
        self.guard.stand_aside();
    }

    /// Acquires a lock. A transaction that waits stands aside: it may have to wait for as long as a client does nothing.
    #[inline(always)]
    pub(super) fn acquire(&mut self, lock: Lock) -> Taken {
        let (WorkerRecords { held, fingers, .. }, guard) = (&mut *self.kept, &mut self.guard);
        let aside = |wait: &mut dyn FnMut()| {
            guard.stand_aside();
            wait();
            if !guard.come_back() {
                fingers.clear();
            }
        };
        held.acquire(lock, held.own.spin_budget(), aside)
    }

    /// As [`Records::acquire`], of a transaction that stands aside already.
    #[inline(always)]
    pub(super) fn acquire_aside(&mut self, lock: Lock, spin_budget: SpinBudget) -> Taken {
        self.kept.held.acquire(lock, spin_budget, |wait| wait())
    }

    /// Releases all locks in the midst of the transaction, where a test leaves [`Step::HoldLocks`] out.
    #[cold]
    pub(super) fn release_early(&mut self) {
        self.kept.held.release();
    }

    /// As [`WorkerRecords::release`].
    #[inline]
    pub(super) fn release(&mut self) {
        self.kept.release();
    }

    /// How many changes there are.
    #[inline]
    pub(super) fn changes(&self) -> usize {
        self.kept.log.len()
    }

    /// The indexes of the changes.
    pub(super) fn changed(&self) -> impl Iterator<Item = IndexRef> {
        self.kept.log.index_refs()
    }

    /// Stages the changes: see [`UndoLog::stage`]. What the transaction has changed is locked until it ends.
    pub(super) fn stage(&self, journal: &Journal, slot: usize, tables: &Seen<Table>) -> Result<(), Error> {
        self.kept.log.stage(journal, slot, tables, |record| self.words(LockedRecord::new(record)))
    }

    /// Undoes the changes from this one on.
    pub(super) fn undo_to(&mut self, position: usize, tables: &Seen<Table>) {
        self.kept.log.undo_to(position, &InPlace(tables), &self.guard);
    }

    /// Makes the changes final.
    #[inline]
    pub(super) fn commit(&mut self, tables: &Seen<Table>) {
        self.kept.log.commit(&InPlace(tables), &self.guard);
    }

    /// The record of a key, unless it is deleted.
    ///
    /// # Safety
    /// The key is locked, and the transaction is in an epoch.
    #[inline]
    unsafe fn find<K: EncodedKey>(&mut self, index: &Index, key: K) -> Option<LockedRecord<'w>> {
        // SAFETY: the fingers were cleared when the transaction took its guard, and whenever it had left its epoch. The handle is of this index, and
        // the caller has locked the key.
        let record = unsafe { Record::from_handle(self.kept.fingers.find(&index.store, key, &self.guard)?) };
        (!record.is_deleted()).then_some(LockedRecord::new(record))
    }

    /// The row of a key that is locked, by the transaction or by one of these shared locks of it.
    pub(super) fn look(&mut self, index: &Index, key: &[u8], shared_locks: &[Lock]) -> Option<&[u64]> {
        let name = index.name_of(key);
        let locked = shared_locks.iter().any(|lock| lock.name == name) || self.kept.held.has(name);
        assert!(locked || left_out(Step::LockOperands), "the rows of a condition are locked before it is evaluated");
        // SAFETY: the key is locked.
        let found = unsafe { self.find(index, key) }?;
        Some(self.words(found))
    }

    /// The row of a record that was found.
    #[inline]
    fn words(&self, found: LockedRecord<'w>) -> &[u64] {
        // SAFETY: the row layer alone has what was found, and hands it back to this transaction, which holds the lock, and writes nothing while the
        // row is borrowed.
        unsafe { found.record.words() }
    }
}

impl<'w> LockingTransaction<'w> {
    /// Locks a key and finds its record.
    #[inline]
    pub(super) fn lock_and_find<K: EncodedKey>(
        &mut self,
        index: &Index,
        key: K,
        exclusive: bool,
    ) -> Result<Option<LockedRecord<'w>>, Error> {
        self.lock(index, key, exclusive)?;
        // SAFETY: the key is locked just above, until the transaction ends.
        Ok(unsafe { self.records.find(index, key) })
    }

    /// The row of a record that was found.
    #[inline]
    pub(super) fn words(&self, found: LockedRecord<'w>) -> &[u64] {
        self.records.words(found)
    }

    /// Copies the row of a key, which need not stay as it is: a lock that was acquired for it is released.
    pub(super) fn copy_unprotected<K: EncodedKey>(&mut self, index: &Index, key: K) -> Result<bool, Error> {
        let before = self.records.held().locks().len();
        let found = self.lock_and_find(index, key, false)?;
        if let Some(found) = found {
            let words = self.records.words(found);
            self.state.buffers.row.overwrite_words(words.len()).copy_from_slice(words);
        }
        // The record is not looked at again.
        if self.records.held().locks().len() > before {
            self.records.kept.held.release_latest();
        }
        Ok(found.is_some())
    }

    /// Locks a key exclusively and inserts it, if it is absent. `false`: it is present.
    #[inline]
    pub(super) fn lock_and_insert<K: EncodedKey>(&mut self, index: &Index, key: K, row: &[u64]) -> Result<bool, Error> {
        self.lock(index, key, true)?;
        let Records { kept: WorkerRecords { fingers, log, .. }, guard } = &mut self.records;
        let (before, place) = (log.len(), (index.store.index(), key));
        // SAFETY: as in `Records::find`.
        let link = |handle| unsafe { fingers.insert(&index.store, key, handle, &mut (), guard) };
        // SAFETY: the key is locked.
        let placed = unsafe { log.insert(index.store.index_ref, place, row, guard, link) }?;
        if placed == Placed::New {
            let admitted = self.respect_ranges(index, key);
            if admitted.is_err() && !self.doomed {
                self.undo_log_to(before);
            }
            admitted?;
        }
        Ok(placed != Placed::Taken)
    }

    /// A key that has just come into the index must be in no range that another transaction has locked.
    #[inline]
    fn respect_ranges<K: EncodedKey>(&mut self, index: &Index, key: K) -> Result<(), Error> {
        if !index.ranges.are_there() {
            return Ok(());
        }
        // As in `Records::acquire`.
        self.records.stand_aside();
        let own = &self.records.held().own;
        let answer = index.ranges.admit(own, self.owner, &mut self.state.conflicting, bytes_of(key));
        self.records.come_back();
        match answer {
            Answer::Granted => Ok(()),
            _ if left_out(Step::RespectRanges) => Ok(()),
            Answer::Own => Err(own_wait(&self.records.held().own, index.store.index_ref, key)),
            _ => Err(self.conflict(self.reason(), index.store.index_ref, Some(KeyPreview::new(key)), None)),
        }
    }

    /// Writes a row that was found to be written.
    #[inline]
    pub(super) fn write_row<K: EncodedKey>(
        &mut self,
        index: &Index,
        key: K,
        found: LockedRecord<'w>,
        row: &[u64],
        changes: Changes,
    ) -> Result<(), Error> {
        let Records { kept: WorkerRecords { log, .. }, guard } = &mut self.records;
        let (at, index) = (index.store.index_ref, index.store.index());
        // SAFETY: the row layer alone has what was found, and hands it back with its key, which this transaction has locked exclusively.
        let written = unsafe { log.overwrite(at, (index, key), found.record, (row, changes), guard) };
        written.map_err(Error::from)
    }

    /// Deletes a row that was found to be deleted.
    #[inline]
    pub(super) fn delete_row<K: EncodedKey>(
        &mut self,
        index: &Index,
        key: K,
        LockedRecord { record, .. }: LockedRecord<'w>,
    ) {
        // As in `write_row`.
        record.set_deleted(true);
        self.records.kept.log.deleted(index.store.index_ref, key, record);
    }

    /// Visits the entries of a scan, each of which is locked. Returns the position in the batch at which the visit stopped early.
    pub(super) fn visit_batches<V: RowVisitor>(
        &mut self,
        batch: &mut Batch,
        visit: &mut Visit<'_, 'w, Index, V>,
        index: &Index,
    ) -> Result<Option<usize>, Error> {
        let scan = visit.scan;
        let ordered = index.store.scanned(scan)?;
        let lines = (words_of(&scan.projection).end.min(56) * 8 + RowRecords::HEADER_BYTES).div_ceil(64);
        batch.begin(scan.limit, true);
        while batch.fill(ordered, scan, &self.records.guard) {
            let epoch = self.records.guard.epoch();
            pass(Point::Collected);
            for position in 0..batch.len() + Batch::AHEAD {
                if let Some(ahead) = batch.get(position) {
                    Record::prefetch_behind(ahead, lines);
                }
                let Some(visited) = position.checked_sub(Batch::AHEAD) else { continue };
                let Some(handle) = batch.get(visited) else { continue };
                let key = batch.key(visited);
                if !left_out(Step::LockScanned) {
                    self.lock(index, key, false)?;
                }
                // SAFETY: the batch was filled in this epoch, and the key is locked since.
                let Some(found) = (unsafe { self.collected(epoch, index, key, handle) }) else { continue };
                if visit.record(self, FoundRow::locked(found))?.is_break() {
                    return Ok(Some(visited));
                }
            }
        }
        pass(Point::Collected);
        Ok(None)
    }

    /// The record of an entry that was collected in this epoch, and is locked since, unless it is deleted.
    ///
    /// # Safety
    /// The handle was collected from this index when the guard was in that epoch; its key is locked.
    #[inline]
    unsafe fn collected(
        &mut self,
        epoch: u64,
        index: &Index,
        key: &[u8],
        handle: polychron_index::Handle,
    ) -> Option<LockedRecord<'w>> {
        // SAFETY: the key is locked. A handle that was collected in the epoch in which the transaction is leads to a record that is there; where the
        // transaction has waited for a lock since, the record may be freed.
        unsafe {
            if self.records.guard.epoch() == epoch {
                let record = Record::from_handle(handle);
                if !record.is_deleted() {
                    return Some(LockedRecord::new(record));
                }
                // It was replaced, or unlinked, before the key was locked.
                if left_out(Step::LookAgain) {
                    return None;
                }
            }
            self.records.find(index, key)
        }
    }
}
