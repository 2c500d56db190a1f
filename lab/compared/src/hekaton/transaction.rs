//! A running transaction: reads and writes on records, savepoints. `rows.rs` makes rows of them and keeps secondary indexes up;
//! `commit.rs` ends it.

use polychron_base::error::KeyPreview;
use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId, Reason, TableId};
use polychron_engine::Mode;
use polychron_engine::catalog::Tables;
use polychron_engine::mutations::left_out;
use polychron_engine::stores::{Batch, IndexRef, WorkerBase};
use polychron_index::{Inserted, Lookup};
use polychron_memory::Guard;
use polychron_sync::Backoff;

use super::protocol::Shared;
use super::sets::{Kind, Read, Target, Write};
use super::steps::Step;
use super::table::{HekatonTable, Store};
use super::transactions::{Basis, Blank, Look};
use super::version::{Record, Stamp, TransactionId, Version};
use super::worker::State;

/// Memory that operations use one after the other.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// Handles of a scan.
    pub(super) batch: Batch,
}

/// After how many operations a snapshot leaves its epoch for the present one: often enough that a slow reader does not hold
/// up the clock, seldom enough that the barrier costs nothing.
const RENEW_EVERY: u32 = 64;

/// A running transaction.
#[derive(Debug)]
pub struct HekatonTransaction<'w> {
    pub(super) shared: &'w Shared,
    pub(super) state: &'w mut State,
    pub(super) guard: Guard<'w>,
    pub(super) id: TransactionId,
    /// The timestamp at which it reads.
    pub(super) timestamp: u64,
    pub(super) snapshot: bool,
    /// Whether reads are protected even if the level does not, now and before.
    pub(super) protects: bool,
    pub(super) has_protected: bool,
    /// The transaction on which this one was made to depend last.
    pub(super) depends_on: Option<TransactionId>,
    /// The tables, once a snapshot has left the epoch in which it found them.
    kept: Option<Tables<HekatonTable>>,
    /// After a conflict every call conflicts.
    pub(super) doomed: bool,
    ended: bool,
    pub(super) until_renewal: u32,
}

/// What a lookup came to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    /// The key shows no row.
    Nothing,
    /// The version that the transaction sees.
    Row(Record, Version),
}

/// Whether a row that is found is remembered. A row that is going to be locked need not be: no other thread can end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remember {
    Rows,
    Nothing,
}

impl<'w> HekatonTransaction<'w> {
    pub(super) fn new(shared: &'w Shared, state: &'w mut State, guard: Guard<'w>, mode: Mode) -> Self {
        debug_assert!(!state.base.is_open, "the transaction before left something behind");
        let snapshot = mode == Mode::Snapshot;
        let (id, timestamp) = if snapshot {
            state.base.counters.snapshot(0);
            (TransactionId::NONE, shared.transactions.begin_snapshot(state.base.slot, state.known))
        } else {
            shared.transactions.begin(state.base.slot, state.known)
        };
        state.known = timestamp;
        state.base.begin();
        state.id = id;
        Self::over(shared, state, guard, id, timestamp)
    }

    /// The transaction that a worker has open.
    pub(super) fn over(
        shared: &'w Shared,
        state: &'w mut State,
        guard: Guard<'w>,
        id: TransactionId,
        timestamp: u64,
    ) -> Self {
        Self {
            shared,
            state,
            guard,
            id,
            timestamp,
            snapshot: id == TransactionId::NONE,
            protects: false,
            has_protected: false,
            depends_on: None,
            kept: None,
            doomed: false,
            ended: false,
            until_renewal: RENEW_EVERY,
        }
    }

    /// Called at the start of every operation: conflicts stick, and a transaction that has read what was undone since is stopped.
    #[inline]
    pub(super) fn step(&mut self) -> Result<(), Error> {
        if self.doomed {
            return Err(Error::Conflict);
        }
        if self.snapshot {
            self.until_renewal -= 1;
            if self.until_renewal == 0 {
                self.renew();
            }
        } else if self.depends_on.is_some() && self.shared.transactions.pending(self.id).is_none() {
            return Err(self.cascade());
        }
        Ok(())
    }

    /// A snapshot leaves its epoch for the present one, so that it holds back nothing but the versions it can see.
    #[cold]
    fn renew(&mut self) {
        self.until_renewal = RENEW_EVERY;
        self.state.base.leave_epoch();
        self.kept.get_or_insert_with(|| self.state.base.tables.keep());
        self.guard.refresh();
    }

    /// A transaction on which this one depends was undone.
    #[cold]
    pub(super) fn cascade(&mut self) -> Error {
        let index_ref = self.state.sets.reads.first().map(|read| read.index_ref);
        let index_ref = index_ref.or_else(|| self.state.sets.writes().first().map(|write| write.index_ref));
        self.conflict(
            Reason::StaleRead,
            index_ref.unwrap_or(IndexRef { table: TableId::default(), index: IndexId::PRIMARY }),
            None,
        )
    }

    /// What a record shows, once it is clear on what that rests.
    #[inline]
    pub(super) fn look(&mut self, record: Record) -> Look {
        let transactions = &self.shared.transactions;
        loop {
            let look = transactions.look(record, self.timestamp, self.id);
            let (Look::Row(_, basis) | Look::Nothing(basis, _)) = look;
            let Basis::On(other) = basis else { return look };
            if self.snapshot {
                transactions.await_outcome(other);
            } else if self.depends_on == Some(other)
                || left_out(Step::DependOnOthers)
                || transactions.depend(self.id, other)
            {
                self.depends_on = Some(other);
                return look;
            }
        }
    }

    #[inline]
    pub(super) fn tracks(&self) -> bool {
        (self.shared.options.level.validates() || self.protects) && !self.snapshot
    }

    #[inline]
    fn remember(&mut self, target: Target, index_ref: IndexRef, basis: Basis) {
        if self.tracks() && basis != Basis::Own {
            self.state.sets.reads.push(Read { target, index_ref });
        }
    }

    /// Finds the row of a key; that there is none is protected, and if asked for, the row.
    #[inline]
    pub(super) fn find<K: EncodedKey>(&mut self, store: &Store, key: K, remember: Remember) -> Result<Found, Error> {
        if self.state.base.hints.any()
            && let Some(found) = self.find_hinted(store, key, remember)
        {
            return Ok(found);
        }
        let Lookup { handle, stamp } = self.look_up(store, key);
        let Some(handle) = handle else {
            if self.tracks() && !left_out(Step::NodesOfMisses) {
                self.state.sets.nodes.add(stamp, store.index_ref);
            }
            return Ok(Found::Nothing);
        };
        // SAFETY: the handle was found under this transaction's guard.
        let record = unsafe { Record::from_handle(handle) };
        Ok(self.read_record(record, stamp, store.index_ref, remember))
    }

    /// Reads a record that was found where the stamp stands.
    #[inline]
    pub(super) fn read_record(
        &mut self,
        record: Record,
        stamp: polychron_index::Stamp,
        index_ref: IndexRef,
        remember: Remember,
    ) -> Found {
        match self.look(record) {
            Look::Row(version, basis) => {
                if remember == Remember::Rows {
                    self.remember(Target::Version(version), index_ref, basis);
                }
                Found::Row(record, version)
            }
            Look::Nothing(basis, _) => {
                self.remember(Target::Record(record), index_ref, basis);
                if self.tracks() && !left_out(Step::NodesOfBlanks) {
                    self.state.sets.nodes.add(stamp, index_ref);
                }
                Found::Nothing
            }
        }
    }

    /// Asks an index; an ordered one near where its last key was.
    #[inline]
    fn look_up<K: EncodedKey>(&mut self, store: &Store, key: K) -> Lookup {
        // SAFETY: fingers are cleared when the transaction begins and when its guard is renewed.
        unsafe { self.state.base.fingers.get(store, key, &self.guard) }
    }

    /// As [`Self::find`], by a hint of the batch; `None` when there is none or it does not lead to a row. A record serves its key
    /// until it is closed, and one that shows a row is not closed before the transaction ends.
    #[inline]
    fn find_hinted<K: EncodedKey>(&mut self, store: &Store, key: K, remember: Remember) -> Option<Found> {
        if store.index_ref.index != IndexId::PRIMARY || self.snapshot {
            return None;
        }
        self.state.base.answer_hints(&self.guard);
        let handle = self.state.base.hints.find(store.index_ref.table, key)?;
        // SAFETY: the handle was found under this transaction's guard, or under that of its batch.
        let record = unsafe { Record::from_handle(handle) };
        let Look::Row(version, basis) = self.look(record) else {
            return left_out(Step::RefuseEmptyHints).then_some(Found::Nothing);
        };
        if remember == Remember::Rows {
            self.remember(Target::Version(version), store.index_ref, basis);
        }
        Some(Found::Row(record, version))
    }

    /// Whether a version is this transaction's own.
    #[inline]
    pub(super) fn is_own(&self, version: Version) -> bool {
        version.begin() == Stamp::By(self.id)
    }

    /// A version may be written if no other thread has written it.
    #[inline]
    pub(super) fn check_unwritten(&mut self, version: Version, index_ref: IndexRef) -> Result<(), Error> {
        match version.end() {
            Stamp::At(super::version::INFINITY) => Ok(()),
            Stamp::By(other) if other == self.id => Ok(()),
            end => Err(self.write_conflict(version, end, index_ref)),
        }
    }

    /// Makes a version, or refuses.
    #[inline]
    fn make(&self, row: &[u64], next: Option<Version>) -> Result<Version, Error> {
        Ok(Version::new(self.id, row, next, &self.guard)?)
    }

    /// The version to lock in place of the one that was read, when a test leaves the refusal out.
    fn latest_instead(record: Record, version: Version) -> Version {
        if left_out(Step::RefuseOverwritten) { record.latest().unwrap_or(version) } else { version }
    }

    /// Writes a row in the place of the version that the transaction sees.
    #[inline]
    pub(super) fn write_version<K: EncodedKey>(
        &mut self,
        index_ref: IndexRef,
        (record, version): (Record, Version),
        key: K,
        row: &[u64],
    ) -> Result<(), Error> {
        if self.is_own(version) {
            return self.rewrite(index_ref, (record, version), row);
        }
        let version = Self::latest_instead(record, version);
        let made = self.make(row, Some(version))?;
        if !version.lock(self.id) {
            // SAFETY: it was made just now, and no thread has seen it.
            unsafe { made.free(&self.guard) };
            return Err(self.write_conflict(version, version.end(), index_ref));
        }
        // An insertion that is undone takes its key out; so does one that has written on top of it, if that comes last.
        let keep = version.begin().finished().is_none();
        if !record.replace_top(version, Some(made)) {
            // The version was its writer's, which has been undone.
            version.set_end(super::version::INFINITY);
            // SAFETY: as above.
            unsafe { made.free(&self.guard) };
            return Err(self.conflict_over(Reason::StaleRead, index_ref, Some(KeyPreview::new(key))));
        }
        let key = if keep { self.state.sets.keep_key(key) } else { Default::default() };
        let (locked, made) = (Some(version), Some(made));
        self.state.sets.push(Write { record, index_ref, kind: Kind::Update, locked, made, replaced: None, key });
        Ok(())
    }

    /// Writes a row that the transaction has written before.
    fn rewrite(&mut self, index_ref: IndexRef, (record, own): (Record, Version), row: &[u64]) -> Result<(), Error> {
        if !self.state.sets.has_savepoint && own.overwrite(row) {
            return Ok(());
        }
        let made = self.make(row, own.next())?;
        let replaced = record.replace_top(own, Some(made));
        debug_assert!(replaced, "no other transaction puts anything on an own version before the commit");
        let (made, replaced) = (Some(made), Some(own));
        let key = Default::default();
        self.state.sets.push(Write { record, index_ref, kind: Kind::Update, locked: None, made, replaced, key });
        Ok(())
    }

    /// Ends the version that the transaction sees.
    #[inline]
    pub(super) fn end_version<K: EncodedKey>(
        &mut self,
        index_ref: IndexRef,
        (record, version): (Record, Version),
        key: K,
    ) -> Result<(), Error> {
        let version = if self.is_own(version) { version } else { Self::latest_instead(record, version) };
        if !version.lock(self.id) && !left_out(Step::RefuseLocked) {
            return Err(self.write_conflict(version, version.end(), index_ref));
        }
        let key = self.state.sets.keep_key(key);
        let write =
            Write { record, index_ref, kind: Kind::Delete, locked: Some(version), made: None, replaced: None, key };
        self.state.sets.push(write);
        Ok(())
    }

    /// Inserts an entry whose key shows no row. `false`: it shows one.
    #[inline]
    pub(super) fn insert_record<K: EncodedKey>(&mut self, store: &Store, key: K, row: &[u64]) -> Result<bool, Error> {
        let made = self.make(row, None)?;
        let outcome = self.insert_version(store, key, made);
        match outcome {
            Ok(Some(record)) => {
                let key = self.state.sets.keep_key(key);
                let (kind, made) = (Kind::Insert, Some(made));
                let write = Write { record, index_ref: store.index_ref, kind, locked: None, made, replaced: None, key };
                self.state.sets.push(write);
                Ok(true)
            }
            other => {
                // SAFETY: no thread has seen it.
                unsafe { made.free(&self.guard) };
                other.map(|_| false)
            }
        }
    }

    /// Puts a version under a key that shows no row, and answers with its record.
    #[inline]
    fn insert_version<K: EncodedKey>(&mut self, store: &Store, key: K, made: Version) -> Result<Option<Record>, Error> {
        let mut backoff = Backoff::new();
        loop {
            let fresh = Record::new(made, &self.guard).map_err(Error::from)?;
            let State { base: WorkerBase { fingers, .. }, sets, .. } = &mut *self.state;
            // SAFETY: as in `look_up`.
            let inserted = unsafe { fingers.insert(store, key, fresh.handle(), &mut sets.nodes, &self.guard) };
            if matches!(inserted, Ok(Inserted::New)) {
                return Ok(Some(fresh));
            }
            // SAFETY: the index did not take it.
            unsafe { fresh.free(&self.guard) };
            let Inserted::Existing(Lookup { handle: Some(handle), stamp }) = inserted.map_err(Error::from)? else {
                continue;
            };
            // SAFETY: the handle was found under this transaction's guard.
            let record = unsafe { Record::from_handle(handle) };
            match self.look(record) {
                Look::Row(version, basis) => {
                    self.remember(Target::Version(version), store.index_ref, basis);
                    return Ok(None);
                }
                Look::Nothing(_, Blank::Over(top)) => {
                    made.set_next(Some(top));
                    if record.replace_top(top, Some(made)) {
                        if self.tracks() && !left_out(Step::NodesOfBlanks) {
                            self.state.sets.nodes.add(stamp, store.index_ref);
                        }
                        return Ok(Some(record));
                    }
                    made.set_next(None);
                }
                // A thread that closed it is about to take it out; either may come first.
                Look::Nothing(_, Blank::Closed) => _ = store.index().remove(key, handle, &self.guard),
                Look::Nothing(_, Blank::Unseen) => {
                    let latest = record.latest();
                    if let Some(latest) = latest.filter(|&latest| !self.shared.transactions.is_undone(latest)) {
                        return Err(self.inserted_first(latest, key, store.index_ref));
                    }
                    // Its writer is taking it off.
                    backoff.wait();
                }
            }
        }
    }

    /// Writes an entry whatever is there.
    pub(super) fn put_record<K: EncodedKey>(&mut self, store: &Store, key: K, row: &[u64]) -> Result<(), Error> {
        loop {
            if let Found::Row(record, version) = self.find(store, key, Remember::Nothing)? {
                return self.write_version(store.index_ref, (record, version), key, row);
            }
            if self.insert_record(store, key, row)? {
                return Ok(());
            }
        }
    }

    pub(super) fn end(&mut self) {
        self.ended = true;
        self.state.base.is_open = false;
        self.state.sets.clear();
        self.shared.transactions.end(self.state.base.slot);
    }
}

impl Drop for HekatonTransaction<'_> {
    fn drop(&mut self) {
        if !self.ended {
            if !self.state.sets.writes().is_empty() {
                self.abort();
            }
            self.end();
        }
    }
}
