//! Commit and rollback.
//!
//! 1. Draw the end: from now on others may read what was written, on condition.
//! 2. Validate: what was read is visible at the end, too.
//! 3. Wait until all have committed on which this one depends.
//! 4. Commit: one store, with which all versions begin and all locked ones are over.
//! 5. Write the end into the versions, in place of the id.

use polychron_base::error::KeyPreview;
use polychron_base::{Error, Reason};
use polychron_engine::Commit;
use polychron_engine::catalog;
use polychron_engine::mutations::{left_out, pass};
use polychron_engine::stores::{IndexRef, OwnedKey};

use super::collect::Tombstone;
use super::sets::{Kind, Read, Target, Write};
use super::steps::{Point, Step};
use super::transaction::HekatonTransaction;
use super::transactions::{Basis, End, Look};
use super::version::{INFINITY, Stamp, TransactionId, Version};

impl Commit for HekatonTransaction<'_> {
    fn commit(mut self) -> Result<(), Error> {
        if self.doomed {
            return Err(Error::Conflict);
        }
        if !self.state.sets.writes().is_empty() {
            self.commit_writes()?;
        } else if self.depends_on.is_some() && !self.await_others() {
            return Err(self.cascade());
        }
        self.end();
        Ok(())
    }

    fn roll_back(self) -> bool {
        !self.doomed && (self.depends_on.is_none() || left_out(Step::AwaitRollBack) || self.await_others())
    }
}

impl HekatonTransaction<'_> {
    /// Commits a transaction that wrote. After an error the transaction is undone when it is dropped.
    pub(super) fn commit_writes(&mut self) -> Result<(), Error> {
        pass(Point::Committing);
        self.know_all_indexes()?;
        let transactions = &self.shared.transactions;
        let end = transactions.prepare(self.id, || pass(Point::Drawn));
        self.state.known = end;
        pass(Point::Preparing);
        if self.shared.options.level.validates() || self.has_protected {
            self.validate(end)?;
        }
        pass(Point::Validated);
        if !self.await_others() {
            return Err(self.cascade());
        }
        transactions.decide(self.id, true);
        self.finish(end);
        let database = self.database();
        self.state.base.nested.committed(database, end);
        Ok(())
    }

    #[inline]
    pub(super) fn await_others(&self) -> bool {
        left_out(Step::AwaitOthers) || self.shared.transactions.await_others(self.id)
    }

    /// A transaction that began before an index was added keeps no entries of it up, so it must not change a row whose
    /// entry was made by one that began later. The writer of that entry knew the catalog's new version and ended before this
    /// transaction could write the row; so it sees the version here.
    #[inline]
    fn know_all_indexes(&mut self) -> Result<(), Error> {
        if left_out(Step::KnowAllIndexes) {
            return Ok(());
        }
        let written = || self.state.sets.writes().iter().map(|write| write.index_ref);
        let outdated = self.state.base.tables.outdated(&self.shared.base.catalog, written);
        outdated.map_or(Ok(()), |index_ref| Err(self.conflict(Reason::Inconsistent, index_ref, None)))
    }

    /// Whether everything that was read is the same at the end.
    fn validate(&mut self, end: u64) -> Result<(), Error> {
        for at in 0..self.state.sets.reads.len() {
            let Read { target, index_ref } = self.state.sets.reads[at];
            let holds = match target {
                Target::Version(version) => self.is_still_visible(version, end),
                Target::Record(record) => self.shows_nothing(record, end),
            };
            if !holds {
                let (reason, version) = match target {
                    Target::Version(version) => (Reason::StaleRead, Some(version)),
                    Target::Record(record) => (Reason::Phantom, record.latest()),
                };
                let other = match target {
                    Target::Version(version) => Some(version.end()),
                    Target::Record(record) => record.latest().map(|latest| latest.begin()),
                };
                match other {
                    Some(Stamp::At(timestamp)) => self.state.base.nested.is_behind(timestamp),
                    Some(Stamp::By(id)) if id != self.id => self.state.base.nested.is_beside(id.0),
                    _ => {}
                }
                return Err(self.conflict(reason, index_ref, version));
            }
        }
        if !left_out(Step::CompareNodes) {
            // SAFETY: the stamps were taken under this transaction's guard.
            if let Some(index_ref) = unsafe { self.state.sets.nodes.first_broken() } {
                return Err(self.conflict(Reason::Phantom, index_ref, None));
            }
        }
        self.know_dropped()
    }

    /// No index that was asked was dropped. A thread that leaves it alone has begun behind the drop, so where the entries that it does not
    /// make would have been seen just above, its catalog's version is seen here.
    #[inline]
    fn know_dropped(&mut self) -> Result<(), Error> {
        if left_out(Step::KnowDropped) {
            return Ok(());
        }
        let super::worker::State { base, sets, .. } = &*self.state;
        let asked = || sets.reads.iter().map(|read| read.index_ref).chain(sets.nodes.index_refs());
        let dropped = base.dropped(&self.shared.base.catalog, asked);
        dropped.map_or(Ok(()), |index_ref| Err(self.conflict(Reason::Inconsistent, index_ref, None)))
    }

    /// A version that was visible at the beginning still is, unless some thread ended it. What a preparing transaction ends before counts
    /// as ended.
    #[inline]
    fn is_still_visible(&self, version: Version, end: u64) -> bool {
        let state = self.shared.transactions.end_at(version, end, self.id);
        matches!(state, End::Open | End::Over(Basis::Own)) || left_out(Step::CompareVersions)
    }

    /// A record that showed no row shows none, or one of this transaction's own.
    #[inline]
    fn shows_nothing(&self, record: super::version::Record, end: u64) -> bool {
        let look = self.shared.transactions.look(record, end, self.id);
        let nothing = match look {
            Look::Row(_, basis) => basis == Basis::Own,
            // What a preparing transaction deletes may come back.
            Look::Nothing(basis, _) => !matches!(basis, Basis::On(_)),
        };
        nothing || left_out(Step::CompareRecords)
    }

    /// Writes the end in place of the id, and leaves what is over to the collector.
    fn finish(&mut self, end: u64) {
        for write in self.state.sets.writes() {
            if let Some(made) = write.made {
                made.set_begin(end);
            }
            if let Some(replaced) = write.replaced {
                replaced.set_begin(INFINITY);
                // SAFETY: it has left the list, and is this transaction's.
                unsafe { replaced.retire(&self.guard) };
            }
            if let Some(locked) = write.locked {
                locked.set_end(end);
            }
        }
        let super::worker::State { sets, collector, .. } = &mut *self.state;
        for write in sets.writes() {
            let tombstone = (write.kind == Kind::Delete)
                .then(|| Tombstone { index_ref: write.index_ref, key: OwnedKey::new(sets.key(write)) });
            let covers = write.locked.is_some() || write.made.is_some_and(|made| made.next().is_some());
            if covers {
                let bytes = write.locked.map_or(0, |version| version.memory().1);
                collector.push(write.record, end, tombstone, bytes);
            }
        }
        collector.share_surplus(&self.shared.orphans, self.shared.base.memory.most_waiting());
    }

    /// Undoes the whole transaction.
    #[cold]
    pub(super) fn abort(&mut self) {
        self.shared.transactions.decide(self.id, false);
        self.undo_writes(0);
    }

    /// Undoes the writes from `from` on, newest first. What they told of the present goes on being protected, for the transaction
    /// may go on.
    pub(super) fn undo_writes(&mut self, from: usize) {
        while let Some(write) = self.state.sets.pop(from) {
            if self.shared.options.level.validates() && !self.doomed {
                self.remember_undone(&write);
            }
            if let Some(made) = write.made {
                self.unlink(&write, made);
            }
            if let Some(locked) = write.locked {
                // What was locked on top of an own version is free again, and so is another's.
                locked.set_end(INFINITY);
            }
        }
    }

    /// A version that was locked was read, and a key that was inserted was seen to be absent.
    fn remember_undone(&mut self, write: &Write) {
        let index_ref = write.index_ref;
        if let Some(locked) = write.locked
            && !self.is_own(locked)
            && !left_out(Step::ReadsOfUndone)
        {
            self.state.sets.reads.push(Read { target: Target::Version(locked), index_ref });
        }
        if write.kind == Kind::Insert {
            // What the transaction had deleted itself comes back.
            let below = write.made.and_then(Version::next);
            let was_own = below.is_some_and(|below| below.end() == Stamp::By(self.id));
            if !was_own && !left_out(Step::ReadsOfUndone) {
                self.state.sets.reads.push(Read { target: Target::Record(write.record), index_ref });
            }
            let store = self.state.base.tables.table(index_ref.table).and_then(|table| table.store(index_ref.index));
            if let Ok(store) = store
                && !left_out(Step::NodesOfUndone)
            {
                let stamp = store.index().get(self.state.sets.key(write), &self.guard).stamp;
                self.state.sets.nodes.add(stamp, index_ref);
            }
        }
    }

    /// Takes an own version off its record.
    fn unlink(&mut self, write: &Write, made: Version) {
        let (record, guard) = (write.record, &self.guard);
        made.set_begin(INFINITY);
        if let Some(replaced) = write.replaced {
            let restored = record.replace_top(made, Some(replaced));
            debug_assert!(restored, "no other transaction puts anything on an own version");
            // SAFETY: it has left the list; a thread that stands on it has a guard.
            unsafe { made.retire(guard) };
            return;
        }
        // Until the version is off, the record cannot be closed; from then on the share keeps it.
        record.share();
        let mut state = std::mem::take(&mut self.state.collector);
        // SAFETY: as above.
        let closed = record.pop(made, |popped| unsafe { popped.retire(guard) });
        let over = record.latest().filter(|_| write.kind == Kind::Insert).and_then(|top| top.end().finished());
        if closed {
            let store = self
                .state
                .base
                .tables
                .table(write.index_ref.table)
                .and_then(|table| table.store(write.index_ref.index));
            if let Ok(store) = store {
                store.index().remove(self.state.sets.key(write), record.handle(), guard);
            }
            // SAFETY: the share of the index, which has forgotten the record, and the one that was taken above.
            unsafe {
                record.release(guard);
                record.release(guard);
            }
        } else if let Some(end) = over {
            // A deleted row is on top again, whose tombstone may have been passed over meanwhile.
            let tombstone = Tombstone { index_ref: write.index_ref, key: OwnedKey::new(self.state.sets.key(write)) };
            state.push_shared(record, end, Some(tombstone));
        } else {
            // SAFETY: the share that was taken above.
            unsafe { record.release(guard) };
        }
        self.state.collector = state;
    }

    /// Keeps why the transaction conflicts. The key is taken from a version.
    #[cold]
    pub(super) fn conflict(&mut self, reason: Reason, index_ref: IndexRef, version: Option<Version>) -> Error {
        let key = version.filter(|&version| self.is_readable(version)).and_then(|version| {
            let table = catalog::known(&self.state.base.tables, index_ref.table);
            table.and_then(|table| table.key_in(index_ref.index, version.row().as_words()))
        });
        self.conflict_over(reason, index_ref, key)
    }

    /// As [`Self::conflict`], where the key is known.
    #[cold]
    pub(super) fn conflict_over(&mut self, reason: Reason, index_ref: IndexRef, key: Option<KeyPreview>) -> Error {
        let database = self.database();
        self.state.base.keep_abort(database, reason, index_ref, key);
        self.doomed = !left_out(Step::StayDoomed);
        Error::Conflict
    }

    /// Whether no thread still changes the version's row.
    fn is_readable(&self, version: Version) -> bool {
        match version.begin() {
            Stamp::At(_) => true,
            Stamp::By(id) => id == self.id && id != TransactionId::NONE,
        }
    }
}
