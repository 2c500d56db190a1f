//! A running transaction: reads, savepoints, and how it ends. `writes.rs` changes records, `entries.rs` makes rows of them and keeps
//! secondary indexes up; `commit.rs` validates and commits.

use polychron_base::error::KeyPreview;
use polychron_base::key::{EncodedKey, MAX_KEY_BYTES};
use polychron_base::{Error, Reason, TableId};
use polychron_engine::mutations::left_out;
use polychron_engine::rows::Primitives;
use polychron_engine::stores::{Batch, Both, IndexRef, words_of};
use polychron_engine::{Commit, Projection};
use polychron_memory::Guard;
use polychron_schema::{ColumnSet, RowBuffer};

use super::clock::Clock;
use super::columns::ColumnBuffers;
use super::protocol::Shared;
use super::rows::Record;
use super::steps::Step;
use super::table::Relation;
use super::undo::{FIRST_ID, Kind};
use super::view::{SNAPSHOT, Shown, view};
use super::worker::{Met, State};
use super::writes::Conflict;

/// Memory that operations use one after the other.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// The row that is read.
    pub(super) row: Box<RowBuffer>,
    /// Handles of a scan.
    pub(super) batch: Batch,
    /// The same of a snapshot's, where some have been displaced.
    pub(super) both: Both,
    /// Rows of a scan that are rebuilt.
    pub(super) columns: ColumnBuffers,
}

/// A running transaction.
#[derive(Debug)]
pub struct HyperTransaction<'w> {
    pub(super) shared: &'w Shared,
    pub(super) state: &'w mut State,
    pub(super) guard: Guard<'w>,
    pub(super) id: u64,
    /// The timestamp at which it reads.
    pub(super) start: u64,
    pub(super) snapshot: bool,
    /// Whether reads are logged even if the level does not validate them.
    pub(super) protects: bool,
    /// While an operation logs by itself what it asks, the scans that it makes do not.
    pub(super) silent: bool,
    /// After a conflict every call conflicts.
    pub(super) doomed: bool,
}

impl<'w> HyperTransaction<'w> {
    /// A transaction that has begun to read at a timestamp.
    #[inline]
    pub(super) fn new(shared: &'w Shared, state: &'w mut State, guard: Guard<'w>, start: u64, snapshot: bool) -> Self {
        debug_assert!(state.writing.len() == 0, "the transaction before left something behind");
        if snapshot {
            state.base.counters.snapshot(0);
        }
        state.known = start;
        state.generation += 1;
        state.base.begin_logged(&shared.base.common.journal);
        state.base.nested.begin();
        let id = if snapshot { SNAPSHOT } else { Clock::id(state.base.slot, state.generation) };
        let mut transaction =
            Self { shared, state, guard, id, start, snapshot, protects: false, silent: false, doomed: false };
        transaction.rest();
        transaction
    }

    /// The worker's transaction that was leaked, to be dropped.
    pub(super) fn taken_over(shared: &'w Shared, state: &'w mut State, guard: Guard<'w>) -> Self {
        let id = Clock::id(state.base.slot, state.generation);
        let start = state.known;
        Self { shared, state, guard, id, start, snapshot: false, protects: false, silent: false, doomed: true }
    }

    /// Called at the start of every operation, and between the parts of a long one: conflicts stick. A snapshot enters the present epoch,
    /// and one that may write comes back into its own, or into the present one where it was asked to leave that.
    #[inline]
    pub(super) fn step(&mut self) -> Result<(), Error> {
        self.flags().check()?;
        if !self.snapshot {
            self.come_back();
        } else if !(self.guard.resume() && self.guard.epochs().current() == self.guard.epoch()) {
            self.renew();
        }
        Ok(())
    }

    /// A thread that may write is in an epoch from now on.
    #[inline]
    pub(super) fn come_back(&mut self) {
        if !self.guard.come_back() {
            self.state.base.forget_found();
        }
    }

    /// What was found in another epoch is not looked at in this one.
    #[cold]
    fn renew(&mut self) {
        self.state.base.leave_epoch();
        self.guard.refresh();
    }

    /// Called at the end of every operation, and of the beginning: between two of them a transaction holds back no epoch, so one whose
    /// client does nothing holds back nothing but the before-images that it undoes or compares. Its worker keeps its list of tables.
    #[inline]
    pub(super) fn rest(&mut self) {
        if self.snapshot {
            self.guard.rest();
        } else {
            self.guard.stand_aside();
        }
    }

    /// Whether there is anything to validate.
    #[inline]
    pub(super) fn has_logged(&self) -> bool {
        self.shared.options.level.validates() || !self.state.log.touched().is_empty()
    }

    /// Whether what is read is logged.
    #[inline]
    pub(super) fn logs(&self) -> bool {
        (self.shared.options.level.validates() || self.protects) && !self.snapshot && !self.silent
    }

    /// Logs that a key was looked up in a primary index.
    #[inline]
    pub(super) fn log_point<K: EncodedKey>(&mut self, table: TableId, key: K, columns: ColumnSet) {
        if self.logs() && !left_out(Step::LogPoints) {
            self.state.log.point(table, key, columns);
        }
    }

    /// The record of a key. No observation is logged.
    #[inline]
    pub(super) fn lookup<K: EncodedKey>(&mut self, store: &'w Relation, key: K) -> Option<Record<'w>> {
        if self.state.base.hints.any() {
            self.state.base.answer_hints(&self.guard);
            let index_ref = store.index_ref();
            if index_ref.index == polychron_base::IndexId::PRIMARY
                && let Some(handle) = self.state.base.hints.find(index_ref.table, key)
            {
                // The handle was found under this transaction's guard, or under that of its batch.
                let record = store.record(handle);
                // One that has left the index since may have been followed by another one.
                if record.is_in_index() || left_out(Step::PassOverDisplaced) {
                    return Some(record);
                }
            }
        }
        // SAFETY: fingers are cleared when the transaction begins and when its guard is renewed.
        let handle = unsafe { self.state.base.fingers.find(store, key, &self.guard) }?;
        Some(store.record(handle))
    }

    /// Brings what a record shows of some columns into the row buffer.
    #[inline]
    pub(super) fn see(&mut self, record: Record<'_>, projection: &Projection) -> Shown {
        let words = record.rows().words();
        let wanted = words_of(projection);
        let range = wanted.start.min(words)..wanted.end.min(words);
        let row = &mut self.state.buffers.row;
        let seen = view(record, range, row.overwrite_words(words), (self.start, self.id), &self.guard);
        if wanted.end > words
            && let Some(out_of_line) = seen.out_of_line
        {
            // It does not change, and the guard keeps it.
            let out_of_line = out_of_line.words();
            row.overwrite_words(words + out_of_line.len())[words..].copy_from_slice(out_of_line);
        }
        seen.shown()
    }

    /// A row's newest before-image is another transaction's. If that is open on this very thread, it cannot end before the procedure that
    /// conflicts: an attempt that follows would find it again, and is refused ([`State::met`]).
    #[cold]
    pub(super) fn refuse<K: EncodedKey>(&mut self, conflict: Conflict, store: &Relation, key: K) -> Error {
        let mut bytes = [0; MAX_KEY_BYTES];
        let length = key.write_to(&mut bytes);
        let (index_ref, key) = (store.index_ref(), &bytes[..length]);
        if conflict.stamp >= FIRST_ID {
            self.state.base.nested.is_beside(conflict.stamp);
        }
        if conflict.stamp >= FIRST_ID && self.shared.clock.is_open_here(conflict.stamp) {
            let error = Error::waits_in_index(index_ref.table, index_ref.index, Some(KeyPreview::new(key)));
            self.state.met = Some(Met { id: conflict.stamp, error, again: false });
        } else if conflict.stamp > 0 && conflict.stamp < FIRST_ID {
            self.state.base.nested.is_behind(conflict.stamp);
        }
        self.conflict(conflict.reason, index_ref, Some(key))
    }

    /// Keeps why the transaction conflicts.
    #[cold]
    pub(super) fn conflict(&mut self, reason: Reason, index_ref: IndexRef, key: Option<&[u8]>) -> Error {
        let key = key.map(KeyPreview::new);
        let database = self.database();
        self.state.base.keep_abort(database, reason, index_ref, key);
        self.doomed = !left_out(Step::StayDoomed);
        Error::Conflict
    }

    /// What tells this database from others while it is open.
    pub(super) fn database(&self) -> u32 {
        self.shared.base.catalog.number()
    }

    /// Nothing of it commits. It waits for what it has read, unless it is run again.
    fn leave_journal(&mut self) {
        let (journal, base) = (&self.shared.base.common.journal, &mut self.state.base);
        if self.state.writing.len() > 0 {
            journal.discard(base.slot);
        }
        if !self.doomed {
            base.ticket.raise(journal.ticket_of(&base.rows.watch, || self.start.into()));
        }
    }

    pub(super) fn end(&mut self) {
        self.state.base.is_open = false;
        self.state.log.clear();
        if self.state.validation.end() {
            self.shared.clock.forget_listed(self.state.base.slot);
        }
        self.shared.clock.end(self.state.base.slot);
        self.state.base.contested.end_attempt(&self.shared.base.favour, self.doomed);
        self.shared.kept.let_old_go(self.state.base.slot, &mut self.state.base.tables, &self.shared.base.catalog);
    }
}

impl Commit for HyperTransaction<'_> {
    fn commit(mut self) -> Result<(), Error> {
        self.flags().check()?;
        if self.state.writing.len() == 0 {
            // It has read one timestamp, at which it stands.
            return Ok(());
        }
        self.come_back();
        self.commit_writes()?;
        // A worker whose transaction has ended may lose its list of tables.
        self.collect();
        self.end();
        Ok(())
    }

    fn roll_back(self) -> bool {
        // Reads are of one timestamp, and so always consistent.
        !self.doomed
    }
}

impl Drop for HyperTransaction<'_> {
    fn drop(&mut self) {
        if self.state.base.is_open {
            self.come_back();
            self.leave_journal();
            self.undo_before_images(0);
            if let Some(buffer) = self.state.writing.leave() {
                // SAFETY: all before-images were undone, so none is in a chain.
                unsafe { buffer.retire(&self.guard) };
            }
            self.end();
        }
    }
}

impl<'w> HyperTransaction<'w> {
    /// Finds the record of a key that shows a row, and brings its columns.
    #[inline]
    pub(super) fn read<K: EncodedKey>(
        &mut self,
        store: &'w Relation,
        key: K,
        projection: &Projection,
    ) -> Result<Option<Record<'w>>, Error> {
        let Some((record, seen)) = self.find_seen(store, key, projection) else { return Ok(None) };
        if self.protects
            // SAFETY: the before-image was found in this operation, under the guard.
            && let Some(before_image) = seen.version.map(|before_image| unsafe { before_image.under(&self.guard) })
            && before_image.kind() == Kind::Delete
            && let Err(conflict) = self.check_version(Some(before_image), seen.all_visible)
        {
            // Another transaction is about to delete the parent of a row, and will hardly be undone (§2.5 of the paper).
            self.state.base.contested.note(record);
            return Err(self.refuse(conflict, store, key));
        }
        Ok(Some(record))
    }
}
