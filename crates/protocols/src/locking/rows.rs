//! Records as the row layer of the engine wants them: locked and written in place, each change noted in the undo log.

use std::ops::ControlFlow;
use std::sync::Arc;

use polychron_base::error::KeyPreview;
use polychron_base::key::EncodedKey;
use polychron_base::{Abort, Error, Reason, TableId};
use polychron_engine::catalog::Seen;
use polychron_engine::mutations::left_out;
use polychron_engine::rows::{At, Buffers, Intent, Primitives, Visit};
use polychron_engine::stores::{IndexRef, Record, Undoable, WorkerBase, key_in_entry};
use polychron_engine::{LazyFutures, Prefetch, Projection, Queries, limits};
use polychron_index::{AnyIndex, Inserted};
use polychron_memory::Guard;
use polychron_schema::{Changes, RowBuffer, RowRef};

use super::held::{Lock, Taken};
use super::locks::Answer;
use super::steps::Step;
use super::table::{Index, Table, index_at};
use super::transaction::LockingTransaction;
use super::worker::State;
use super::wounds::Wounds;

/// A record whose key is locked, or a copy of one whose lock was given back, in the row buffer. The row layer gives it back to the transaction
/// that found it, and to no other ([`Primitives::Found`]).
#[derive(Clone, Copy, Debug)]
pub struct FoundRow(pub(super) Option<Record>);

impl FoundRow {
    #[inline]
    fn locked(self) -> Record {
        self.0.expect("what is written is locked")
    }
}

/// The tables as the undo log sees them.
pub(super) struct Undone<'t>(pub(super) &'t [Option<Arc<Table>>]);

impl Undoable for Undone<'_> {
    type At = IndexRef;

    #[inline]
    fn index(&self, at: IndexRef) -> &AnyIndex {
        index_at(self.0, at).store.index()
    }

    unsafe fn give_back(&self, record: Record, guard: &Guard<'_>) {
        // Whoever has collected its handle finds it deleted, and looks again.
        record.set_deleted(true);
        // SAFETY: the index has forgotten it, as the caller promises.
        unsafe { record.retire(guard) };
    }
}

pub(super) fn bytes_of<K: EncodedKey>(key: K) -> Vec<u8> {
    let mut bytes = vec![0; key.len()];
    key.write_to(&mut bytes);
    bytes
}

/// A wait for another transaction of the same thread would not end.
#[cold]
pub(super) fn own_wait<K: EncodedKey>(own: &Wounds, place: IndexRef, key: K) -> Error {
    let (IndexRef { table, index }, key, opponent) = (place, KeyPreview::new(key), own.opponent());
    match limits::check() {
        Ok(()) => Error::waits_in_index(table, index, Some(key)),
        // A caller that waits no longer has ended the wait.
        Err(error) => error.waiting_at(table, index, Some(&key)).waiting_for(opponent),
    }
}

impl LockingTransaction<'_> {
    /// The transaction is over: somebody else holds what it wants.
    #[cold]
    pub(super) fn conflict(
        &mut self,
        reason: Reason,
        place: IndexRef,
        key: Option<KeyPreview>,
        missing: Option<Lock>,
    ) -> Error {
        let opponent = self.state.held.own.opponent();
        self.state.base.last_abort = Some(Abort { reason, table: place.table, index: place.index, key, opponent });
        if self.shared.policy.is_in_order() && !self.doomed {
            self.state.wanted.remember(&self.state.held, missing);
        }
        self.doomed = true;
        Error::Conflict
    }

    /// After a conflict there are only conflicts.
    #[inline]
    pub(super) fn alive(&self) -> Result<(), Error> {
        if self.doomed && !left_out(Step::StayDoomed) { Err(Error::Conflict) } else { Ok(()) }
    }

    /// Whether an older transaction wants what this one has.
    #[inline]
    pub(super) fn is_wounded(&self) -> bool {
        self.state.held.own.wounded() && !left_out(Step::GiveWay)
    }

    /// Why a lock could not be had.
    #[cold]
    pub(super) fn reason(&self) -> Reason {
        if self.is_wounded() { Reason::Wounded } else { Reason::Locked }
    }

    /// Locks a key of an index, present or not, and waits for it by age if at all.
    #[inline]
    pub(super) fn lock<K: EncodedKey>(&mut self, index: &Index, key: K, exclusive: bool) -> Result<(), Error> {
        self.alive()?;
        let lock = Lock { name: index.name_of(key), exclusive };
        let left_alone = match exclusive {
            false => left_out(Step::LockReads),
            true => left_out(Step::LockWrites) || left_out(Step::Upgrade) && self.state.held.has(lock.name),
        };
        if left_alone {
            return Ok(());
        }
        if left_out(Step::HoldLocks) {
            self.state.held.release();
        }
        if !self.is_wounded() {
            let (State { base: WorkerBase { fingers, .. }, held, .. }, guard) = (&mut *self.state, &mut self.guard);
            // A wait may last as long as a client does nothing.
            let aside = |wait: &mut dyn FnMut()| {
                guard.stand_aside();
                wait();
                if !guard.come_back() {
                    fingers.clear();
                }
            };
            match held.take(lock, held.own.spin_budget(), aside) {
                Taken::Held => return Ok(()),
                Taken::Own => return Err(own_wait(&self.state.held.own, index.store.index_ref, key)),
                Taken::Refused => {}
            }
        }
        Err(self.conflict(self.reason(), index.store.index_ref, Some(KeyPreview::new(key)), Some(lock)))
    }

    /// The record of a key that is locked, unless it is deleted.
    ///
    /// # Safety
    /// The key is locked, and what the caller does with the record is what the lock is for.
    #[inline]
    pub(super) unsafe fn lookup<K: EncodedKey>(&mut self, index: &Index, key: K) -> Option<Record> {
        // SAFETY: the fingers were cleared when the transaction took its guard, and whenever it had left its epoch. The handle is of
        // this index, and the caller has locked the key.
        let record = unsafe { Record::from_handle(self.state.base.fingers.find(&index.store, key, &self.guard)?) };
        (!record.is_deleted()).then_some(record)
    }

    /// Locks a key and finds its record.
    #[inline]
    fn lock_and_find<K: EncodedKey>(
        &mut self,
        index: &Index,
        key: K,
        exclusive: bool,
    ) -> Result<Option<Record>, Error> {
        self.lock(index, key, exclusive)?;
        // SAFETY: the key is locked just above, until the transaction ends.
        Ok(unsafe { self.lookup(index, key) })
    }

    pub(super) fn undo_log_to(&mut self, position: usize) {
        let state = &mut *self.state;
        state.log.undo_to(position, &Undone(&state.base.tables), &self.guard);
    }

    /// Locks a key exclusively and inserts it, if it is absent. `false`: it is present.
    #[inline]
    fn insert_record<K: EncodedKey>(&mut self, index: &Index, key: K, row: &[u64]) -> Result<bool, Error> {
        self.lock(index, key, true)?;
        let place = index.store.index_ref;
        let state = &mut *self.state;
        let record = Record::new(row, &self.guard).map_err(Error::from)?;
        // SAFETY: as in `lookup`.
        let inserted = unsafe { state.base.fingers.insert(&index.store, key, record.handle(), &mut (), &self.guard) };
        match inserted {
            Ok(Inserted::New) => {
                let before = state.log.len();
                state.log.inserted(place, key, record);
                let admitted = self.respect_ranges(index, key);
                if admitted.is_err() && !self.doomed {
                    self.undo_log_to(before);
                }
                return admitted.map(|()| true);
            }
            Ok(Inserted::Existing(found)) => {
                let handle = found.handle.expect("an existing key has a handle");
                // SAFETY: the handle is of this index, and the key is locked.
                let old = unsafe { Record::from_handle(handle) };
                if old.is_deleted() && index.store.index().replace(key, handle, record.handle(), &self.guard) {
                    state.log.replaced(place, key, old, record);
                    return Ok(true);
                }
            }
            Err(_) => {}
        }
        // SAFETY: the index did not take the record.
        unsafe { record.free(&self.guard) };
        inserted.map_err(Error::from)?;
        Ok(false)
    }

    /// A key that has just come into the index must be in no range that another transaction has locked.
    #[inline]
    fn respect_ranges<K: EncodedKey>(&mut self, index: &Index, key: K) -> Result<(), Error> {
        if !index.ranges.are_there() {
            return Ok(());
        }
        // As in `lock`.
        self.guard.stand_aside();
        let state = &mut *self.state;
        let answer = index.ranges.admit(&state.held.own, self.owner, &mut state.in_the_way, bytes_of(key));
        self.come_back();
        match answer {
            Answer::Granted => Ok(()),
            _ if left_out(Step::RespectRanges) => Ok(()),
            Answer::Own => Err(own_wait(&self.state.held.own, index.store.index_ref, key)),
            _ => Err(self.conflict(self.reason(), index.store.index_ref, Some(KeyPreview::new(key)), None)),
        }
    }

    /// Writes a row whose key is locked exclusively.
    #[inline]
    fn write_row<K: EncodedKey>(
        &mut self,
        table: &Table,
        key: K,
        record: Record,
        row: &[u64],
        changes: Changes,
    ) -> Result<(), Error> {
        let place = table.primary.store.index_ref;
        let (index, log) = (table.primary.store.index(), &mut self.state.log);
        // SAFETY: the key is locked exclusively, and led to the record.
        let written = unsafe { log.overwrite(place, (index, key), record, (row, changes), &self.guard) };
        written.map_err(Error::from)
    }
}

impl<'w> Primitives<'w> for LockingTransaction<'w> {
    type Store = Index;
    type Found = FoundRow;
    type Link = ();

    const OVERWRITES_COLUMNS: bool = true;

    #[inline]
    fn tables(&self) -> &Seen<Table> {
        &self.state.base.tables
    }

    #[inline(always)]
    fn operate<O>(&mut self, operation: impl FnOnce(&mut Self) -> Result<O, Error>) -> Result<O, Error> {
        self.alive()?;
        self.work(operation)
    }

    #[inline]
    fn is_read_only(&self) -> bool {
        self.read_only && !left_out(Step::RefuseSnapshotWrites)
    }

    #[inline]
    fn is_doomed(&self) -> bool {
        self.doomed
    }

    #[inline(always)]
    fn find<K: EncodedKey>(&mut self, at: At<'w, Index, K>, _: &Projection) -> Result<Option<FoundRow>, Error> {
        Ok(self.lock_and_find(at.store, at.key, false)?.map(|record| FoundRow(Some(record))))
    }

    fn find_unprotected<K: EncodedKey>(
        &mut self,
        at: At<'w, Index, K>,
        projection: &Projection,
    ) -> Result<Option<FoundRow>, Error> {
        if !self.shared.policy.wounds() || self.state.held.has(at.store.name_of(at.key)) {
            return self.find(at, projection);
        }
        // Rows are written in place, so nobody writes this one while it is copied; who waits by age may give the lock back at once.
        let before = self.state.held.locks().len();
        let found = self.lock_and_find(at.store, at.key, false)?;
        let state = &mut *self.state;
        if let Some(record) = found {
            // SAFETY: the lock is held.
            let words = unsafe { record.words() };
            state.buffers.row.overwrite_words(words.len()).copy_from_slice(words);
        }
        if state.held.locks().len() > before {
            state.held.give_back_latest();
        }
        Ok(found.map(|_| FoundRow(None)))
    }

    #[inline(always)]
    fn find_to_write<K: EncodedKey>(
        &mut self,
        at: At<'w, Index, K>,
        _: &Projection,
        _: Intent,
    ) -> Result<Option<FoundRow>, Error> {
        Ok(self.lock_and_find(at.store, at.key, true)?.map(|record| FoundRow(Some(record))))
    }

    #[inline]
    fn row(&self, found: FoundRow) -> RowRef<'_> {
        match found.0 {
            // SAFETY: the lock is held as long as the transaction lives, which writes nothing while the row is borrowed.
            Some(record) => RowRef::from_words(unsafe { record.words() }),
            None => self.state.buffers.row.as_row(),
        }
    }

    #[inline(always)]
    fn overwrite<K: EncodedKey>(
        &mut self,
        at: At<'w, Index, K>,
        found: FoundRow,
        row: &mut RowBuffer,
        changes: Changes,
    ) -> Result<(), Error> {
        self.write_row(at.table, at.key, found.locked(), row.as_words(), changes)
    }

    #[inline(always)]
    fn insert<K: EncodedKey>(&mut self, at: At<'w, Index, K>, words: &[u64]) -> Result<Option<()>, Error> {
        Ok(self.insert_record(at.store, at.key, words)?.then_some(()))
    }

    #[inline]
    fn link(&self, _: FoundRow) {}

    #[inline(always)]
    fn put<K: EncodedKey>(&mut self, at: At<'w, Index, K>, words: &[u64]) -> Result<(), Error> {
        match self.lock_and_find(at.store, at.key, true)? {
            Some(record) => self.write_row(at.table, at.key, record, words, Changes::ALL),
            None => self.insert_record(at.store, at.key, words).map(drop),
        }
    }

    #[inline(always)]
    fn delete<K: EncodedKey>(&mut self, at: At<'w, Index, K>, found: FoundRow) -> Result<(), Error> {
        let record = found.locked();
        record.set_deleted(true);
        self.state.log.deleted(at.store.store.index_ref, at.key, record);
        Ok(())
    }

    /// That it is taken is an answer of the index.
    fn check_taken(&mut self, _: At<'w, Index, &[u8]>, _: &[u8]) -> Result<(), Error> {
        self.asks_secondary = true;
        Ok(())
    }

    #[inline]
    fn follow(
        &mut self,
        table: &'w Table,
        entry: FoundRow,
        projection: &Projection,
    ) -> Result<Option<FoundRow>, Error> {
        // SAFETY: the entry is locked, and nothing is written here.
        let primary = key_in_entry(unsafe { entry.locked().words() });
        self.find(At::row(table, primary), projection)
    }

    fn scan<V: FnMut(RowRef<'_>) -> ControlFlow<()>>(
        &mut self,
        visit: &mut Visit<'_, 'w, Index, V>,
    ) -> Result<(), Error> {
        self.visit_rows(visit)
    }

    fn set_mark(&mut self) -> usize {
        self.state.log.len()
    }

    fn undo_to(&mut self, mark: usize) -> Result<(), Error> {
        self.undo_log_to(mark);
        Ok(())
    }

    fn buffers(&mut self) -> &mut Buffers {
        &mut self.state.base.rows
    }
}

impl Queries for LockingTransaction<'_> {}

impl LazyFutures for LockingTransaction<'_> {}

impl Prefetch for LockingTransaction<'_> {
    #[inline]
    fn prefetch_row<K: EncodedKey>(&mut self, table: TableId, key: K) {
        if let Ok(table) = self.table(table) {
            self.work(|this| table.primary.store.index().prefetch(key, &this.guard));
        }
    }
}
