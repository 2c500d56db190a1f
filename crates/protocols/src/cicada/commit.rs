//! Validation (§3.4, 3.5), the write phase, and rollback.
//!
//! 0. Unless the worker's last transactions have all committed: bring the most contended writes to the front, and check the
//!    reads, so that a conflict is found before anything is installed.
//! 1. **Install** a pending version for each write, in its place by timestamp. A key that leads to no record gets one, with the pending
//!    version in it, and its index entry now: no index is touched before.
//! 2. **Raise** the read timestamp of every version that was read, and of every part of the key space that was found empty.
//! 3. **Check** that (a) what was visible still is, and no stamp is broken; (b) what is visible below each installed version was not
//!    read by a later transaction, and where there is no row below, no part that holds the key was found empty by one. Below an
//!    insertion there must be none.
//! 4. Hand the changes to the log, and say of each version that it is committed, or a deletion.
//!
//! Why one of two conflicting transactions fails, R with timestamp *r* having read what W with *w* < *r* changes: R raises, and then looks
//! at the list; W installs, and then looks at the read timestamp. All four are sequentially consistent. If R's look comes after W's
//! installation, R finds it (and waits for its end). Otherwise W's look comes after R's raising, and finds *r* > *w*. Where R
//! need not raise because it finds a timestamp late enough, its load stands for the store that it reads from. The same holds for an absent
//! key, with the index's latch as W's installation, the stamp as R's look, and the part's word for the read timestamp.
//!
//! Nobody waits in a cycle: who waits for a pending version has a later timestamp than its writer. And none is given up for
//! what runs in the background: a tombstone that was closed meanwhile was read as absent and still is, and a key whose record
//! was closed gets a new one.

use polychron_base::{Error, Reason};
use polychron_engine::mutations::{left_out, pass};
use polychron_engine::redo::Redo;
use polychron_engine::stores::{IndexRef, OwnedKey, WorkerBase};
use polychron_index::Inserted;
use polychron_sync::Backoff;

use super::counts::Stage;
use super::marks::Queued;
use super::options::Consistency;
use super::reclaim::{Entry, Garbage};
use super::record::{Link, Record, Status, Version, search};
use super::sets::{Fresh, Kind, Sets, Target, Write};
use super::steps::{Point, Step};
use super::table::Store;
use super::timestamp::Timestamp;
use super::transaction::CicadaTransaction;
use super::worker::State;

/// How many writes are sorted by contention (§3.5).
const SORTED: usize = 8;

/// A write that counts, on its way into the database.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) write: u32,
    /// How long ago, in timestamps, the record was written last.
    age: i64,
    /// Where it was installed, as what.
    installed: Option<(Record, Version)>,
}

/// What came of putting a version into a list.
enum Linked {
    Done,
    /// The record is closed.
    Closed,
    /// With the other one that stands at this moment.
    Conflict(Reason, Timestamp),
}

/// Whether the write is the insertion of a key that must have no row.
#[inline]
fn refuses_rows(write: &Write) -> bool {
    write.target == Target::Key && !write.blind && !left_out(Step::RefuseInsertedFirst)
}

impl<R: Redo> CicadaTransaction<'_, R> {
    /// Validates, and makes the writes part of the database.
    pub(super) fn validate_and_write(&mut self) -> Result<(), Error> {
        self.make_way()?;
        if self.state.sets.writes.is_empty() {
            if !left_out(Step::ValidateReaders) {
                self.validate_reads()?;
            }
        } else {
            self.hold_timestamp()?;
            self.know_all_indexes()?;
            self.gather();
            if self.state.commits_in_row < self.shared.options.calm_after {
                if self.shared.options.parts().sort_by_contention {
                    self.sort_by_contention();
                }
                if self.shared.options.parts().check_early {
                    self.enter(Stage::CheckingEarly);
                    self.check_reads(false)?;
                }
            }
            if let Err(error) = self.install_and_check() {
                self.abort_installed();
                return Err(error);
            }
            if left_out(Step::EndLast) {
                self.shared.clocks.end(self.state.base.slot);
            }
            pass(Point::Validated);
            self.log();
            self.commit_installed();
        }
        self.committed = true;
        self.state.commits_in_row = self.state.commits_in_row.saturating_add(1);
        self.shared.clocks.calm(&mut self.state.clock);
        Ok(())
    }

    /// From here on the horizons wait for the transaction. If they have passed it, it gets another timestamp, at which the validation compares
    /// what it read with what is visible.
    #[inline]
    fn hold_timestamp(&mut self) -> Result<(), Error> {
        let stands = self.shared.clocks.stand(self.state.base.slot, self.timestamp);
        if stands { Ok(()) } else { self.draw_again() }
    }

    /// The floor stays, and so does every version that was read: none can be taken for another one.
    #[cold]
    fn draw_again(&mut self) -> Result<(), Error> {
        let clocks = &self.shared.clocks;
        if self.state.stage != Stage::Rewriting {
            // A round of renewal takes place where everybody can be by now, not where time has gone on to.
            clocks.advance(&mut self.state.clock, self.state.base.slot);
        }
        let Some(timestamp) = clocks.draw_again(self.state.base.slot, &mut self.state.clock) else {
            let place = self.state.sets.writes.get(0).place;
            return Err(self.conflict(Reason::Inconsistent, place, None));
        };
        self.timestamp = timestamp;
        // What was later than the old timestamp may be before this one.
        self.state.sets.reads.iter_mut().for_each(|read| read.later = None);
        Ok(())
    }

    /// Validates a transaction that changes nothing.
    pub(super) fn validate_reads(&mut self) -> Result<(), Error> {
        self.enter(Stage::Checking);
        self.raise_and_check()?;
        self.check_stamps()
    }

    /// Steps 2 and 3 (a) for records. A word that is raised before the look keeps earlier writers out behind it.
    fn raise_and_check(&mut self) -> Result<(), Error> {
        let late = left_out(Step::RaiseFirst);
        if !late {
            self.raise();
        }
        self.check_reads(true)?;
        pass(Point::Checked);
        if late {
            self.raise();
        }
        Ok(())
    }

    /// No index was added to a table that is written since this transaction began: it has made no entries in it. Who began
    /// before the index was known and passes here has a timestamp that `create_index` sees, and everybody who makes entries has a
    /// later one (`follows_unknowing`).
    #[inline]
    fn know_all_indexes(&mut self) -> Result<(), Error> {
        if left_out(Step::KnowAllIndexes) {
            return Ok(());
        }
        // A row that is written once more as it is keeps its entries.
        let written = || self.state.sets.writes.iter().filter(|write| !write.unlogged).map(|write| write.place);
        let outdated = self.state.base.tables.outdated(&self.shared.catalog, written);
        outdated.map_or(Ok(()), |place| Err(self.conflict(Reason::Inconsistent, place, None)))
    }

    /// Notes where the transaction is, in case it conflicts there.
    #[inline]
    fn enter(&mut self, stage: Stage) {
        if self.state.stage != Stage::Rewriting {
            self.state.stage = stage;
        }
    }

    /// Collects the writes that count. A key that had no row and has none in the end is left alone; that it was absent is then
    /// guarded by its stamp.
    fn gather(&mut self) {
        let pending = &mut self.state.buffers.pending;
        pending.clear();
        let Sets { writes, nodes, .. } = &mut self.state.sets;
        for position in writes.latest_ones() {
            let write = writes.get(position);
            if write.is_fresh && write.kind == Kind::Delete {
                // What the transaction had made itself is gone before anybody knows it.
            } else if write.target != Target::Key || write.kind != Kind::Delete {
                pending.push(Pending { write: position, age: 0, installed: None });
            } else if let Some(stamp) = writes.first_stamp(position).filter(|_| !left_out(Step::NodesOfDeleted)) {
                nodes.add(stamp, write.place);
            }
        }
    }

    /// Brings those records to the front that were written last: they are probably written most often.
    fn sort_by_contention(&mut self) {
        let timestamp = self.timestamp;
        let (pending, writes) = (&mut self.state.buffers.pending, &self.state.sets.writes);
        if pending.len() < 2 {
            return;
        }
        for entry in pending.iter_mut() {
            let latest = match writes.get(entry.write).target {
                Target::Record(record) => record.latest().link(),
                Target::Key => Link::End,
            };
            entry.age = match latest {
                Link::To(version) => timestamp.0.wrapping_sub(version.wts().0) as i64,
                _ => i64::MAX,
            };
        }
        if pending.len() > SORTED {
            pending.select_nth_unstable_by_key(SORTED - 1, |entry| entry.age);
        }
        let front = SORTED.min(pending.len());
        pending[..front].sort_unstable_by_key(|entry| entry.age);
    }

    fn install_and_check(&mut self) -> Result<(), Error> {
        self.enter(Stage::Installing);
        for position in 0..self.state.buffers.pending.len() {
            self.install(position)?;
        }
        pass(Point::Installed);
        self.enter(Stage::Checking);
        self.raise_and_check()?;
        self.check_writes()?;
        self.check_stamps()
    }

    #[inline]
    pub(super) fn store(&self, place: IndexRef) -> Result<&Store, Error> {
        let table = polychron_engine::catalog::get(&self.state.base.tables, place.table)?;
        table.store(place.index).map(|store| &**store)
    }

    /// Step 1 for one write.
    fn install(&mut self, position: usize) -> Result<(), Error> {
        let write = *self.state.sets.writes.get(self.state.buffers.pending[position].write);
        let (mut backoff, mut has_record) = (Backoff::new(), write.has_record);
        loop {
            let record = match write.target {
                Target::Record(record) => Some(record),
                Target::Key if has_record => self.record_of_key(&write)?,
                Target::Key => None,
            };
            let Some(record) = record else {
                if self.install_new(position, &write)? {
                    return Ok(());
                }
                has_record = true;
                continue;
            };
            if self.is_barred(record) {
                return Err(self.conflict_at(record, None, Reason::BeingWritten, (write.place, None)));
            }
            let version = self.make_version(record, position, &write)?;
            match self.link(record, version, &write) {
                Linked::Done => {
                    self.state.buffers.pending[position].installed = Some((record, version));
                    return Ok(());
                }
                // Its key is about to leave the index, or has left it.
                Linked::Closed if write.target == Target::Key && !left_out(Step::ReplaceClosed) => {
                    self.discard(record, version);
                    backoff.wait();
                }
                // An earlier transaction has deleted since what was found there, and no reader needed the record any more.
                Linked::Closed => {
                    self.discard(record, version);
                    return Err(self.conflict(Reason::StaleRead, write.place, None));
                }
                Linked::Conflict(reason, other) => {
                    self.discard(record, version);
                    return Err(self.conflict_at(record, Some(other), reason, (write.place, None)));
                }
            }
        }
    }

    fn record_of_key(&self, write: &Write) -> Result<Option<Record>, Error> {
        let key = self.state.sets.writes.key(write);
        let handle = self.store(write.place)?.index().get(key, &self.guard).handle;
        // SAFETY: the handle was found under this transaction's guard.
        Ok(handle.map(|handle| unsafe { Record::from_handle(handle) }))
    }

    /// Installs a version in a new record, and its key in the index. `false`: the key has a record by now.
    fn install_new(&mut self, position: usize, write: &Write) -> Result<bool, Error> {
        let store: *const Store = self.store(write.place)?;
        // SAFETY: the worker's list of tables keeps the store until the transaction has ended.
        let store = unsafe { &*store };
        let record = store.records.take(self.state.base.slot, &self.guard).map_err(Error::from)?;
        let version = match self.make_version(record, position, write) {
            Ok(version) => version,
            Err(error) => {
                // SAFETY: nobody has seen the record.
                unsafe { store.records.give(record, self.state.base.slot) };
                return Err(error);
            }
        };
        let linked = record.latest().install(None, version);
        debug_assert!(linked, "nobody knows the record");
        let State { base: WorkerBase { fingers, .. }, sets, .. } = &mut *self.state;
        let (key, nodes) = (sets.writes.key(write), &mut sets.nodes);
        // SAFETY: fingers are cleared when the transaction begins and when it leaves its epoch.
        let inserted = unsafe { fingers.insert(&store.entries, key, record.handle(), nodes, &self.guard) };
        if matches!(inserted, Ok(Inserted::New)) {
            self.state.buffers.pending[position].installed = Some((record, version));
            return Ok(true);
        }
        if record.is_inline(version) {
            version.end(Status::Unused);
        } else {
            // A collector with an outdated item for whatever lay in this place before may be looking.
            let (memory, bytes) = version.memory();
            // SAFETY: the record is given back below, so nobody finds the version from now on.
            unsafe { self.guard.retire(memory, bytes) };
        }
        // SAFETY: the index did not take the record, so no transaction has seen it.
        unsafe { store.records.give(record, self.state.base.slot) };
        inserted.map_err(Error::from)?;
        Ok(false)
    }

    /// A version for a write: the head's if it is free and large enough, else one of its own (§3.3).
    #[inline]
    fn make_version(&self, record: Record, position: usize, write: &Write) -> Result<Version, Error> {
        let row: &[u64] = match write.kind {
            Kind::Put => self.state.sets.writes.row(self.state.buffers.pending[position].write).as_words(),
            Kind::Delete => &[],
        };
        let fits = self.shared.options.parts().inlining
            && self.store(write.place)?.records_of(write.is_node).inline_words() >= row.len();
        let inline = if fits { record.claim_version() } else { None };
        let version = match inline {
            Some(version) => version,
            // At the memory limit deletions go on, with the nodes of multi-version indexes that they change.
            None if write.makes_room => self.allocate_for_deletion(row.len())?,
            None => Version::allocate(row.len(), &self.guard)?,
        };
        // SAFETY: the version was claimed or allocated just now, with room for the row.
        unsafe { version.fill(self.timestamp, row) };
        Ok(version)
    }

    /// Gives a version back that nobody has seen.
    fn discard(&self, record: Record, version: Version) {
        if record.is_inline(version) {
            version.end(Status::Unused);
        } else {
            let (memory, bytes) = version.memory();
            // SAFETY: the version was allocated for this write and never installed.
            unsafe { self.guard.free(memory, bytes) };
        }
    }

    /// Puts a version into its place in a list, unless it is plain already that it would not pass.
    fn link(&self, record: Record, version: Version, write: &Write) -> Linked {
        let (timestamp, options) = (self.timestamp, &self.shared.options);
        let latest_only = options.parts().write_latest_only && !write.blind && write.target != Target::Key;
        loop {
            let mut place = record.latest();
            let below = loop {
                match place.link() {
                    Link::To(other) if other.wts().is_after(timestamp) && !left_out(Step::InstallInOrder) => {
                        if latest_only && other.status() != Status::Aborted {
                            return Linked::Conflict(Reason::WrittenLater, other.wts());
                        }
                        place = other.next();
                    }
                    Link::To(other) => break Some(other),
                    Link::End => break None,
                    Link::Closed => return Linked::Closed,
                }
            };
            if let Some((reason, other)) = below.and_then(|below| self.refuse_early(below, write)) {
                return Linked::Conflict(reason, other);
            }
            pass(Point::Linking);
            if place.install(below, version) {
                if left_out(Step::InstallPending) {
                    version.end(Status::Committed);
                }
                return Linked::Done;
            }
            if record.latest().is_sealed() {
                return Linked::Closed;
            }
        }
    }

    /// Why a version cannot be installed above `below`, as far as one look tells.
    #[inline]
    fn refuse_early(&self, below: Version, write: &Write) -> Option<(Reason, Timestamp)> {
        match below.status() {
            Status::Committed if refuses_rows(write) => Some((Reason::InsertedFirst, below.wts())),
            Status::Committed | Status::Deleted => {
                Some((Reason::ReadLater, below.rts())).filter(|(_, rts)| rts.is_after(self.timestamp))
            }
            _ => None,
        }
    }

    /// Step 2.
    fn raise(&self) {
        let timestamp = self.timestamp;
        for read in &self.state.sets.reads {
            if let Some(version) = read.version
                && !left_out(Step::RaiseVersions)
            {
                version.raise_rts(timestamp);
            }
        }
        for &part in self.state.sets.gaps.iter().filter(|_| !left_out(Step::RaiseAbsences)) {
            self.shared.gaps.raise(part, timestamp);
        }
    }

    /// Step 3 (a) for records. `wait`: whether pending versions are waited for whatever the options say.
    pub(super) fn check_reads(&mut self, wait: bool) -> Result<(), Error> {
        if left_out(Step::CompareVersions) {
            return Ok(());
        }
        let timestamp = self.timestamp;
        let wait = (wait || self.shared.options.parts().wait_for_pending) && !left_out(Step::AwaitPendingReads);
        let mut at = 0;
        while let Some(passed) = self.state.sets.reads[at..].iter().position(|read| !read.is_latest()) {
            at += passed;
            let read = self.state.sets.reads[at];
            let seen = search(read.record, timestamp, read.later, wait);
            // A record that was closed meanwhile and showed no row shows none.
            let tolerated = seen.closed && !read.is_row && !left_out(Step::TolerateClosed);
            if seen.version != read.version && !tolerated {
                let (reason, version) = match read.is_node {
                    true => (Reason::Phantom, None),
                    false => (Reason::StaleRead, read.version),
                };
                let other = seen.version.map(|other| other.wts());
                return Err(self.conflict_at(read.record, other, reason, (read.place, version)));
            }
            self.state.sets.set_later(at, seen.later);
            at += 1;
        }
        Ok(())
    }

    /// Step 3 (a) for what was not there.
    fn check_stamps(&mut self) -> Result<(), Error> {
        if !left_out(Step::CompareNodes) {
            self.search_again()?;
            // SAFETY: the stamps were taken under this transaction's guard, in the epoch in which it is.
            if let Some(place) = unsafe { self.state.sets.nodes.first_broken() } {
                return Err(self.conflict(Reason::Phantom, place, None));
            }
        }
        self.know_dropped()
    }

    /// No index that was asked was dropped. Who does not see here that one was has an earlier timestamp than all who leave it alone
    /// (`drop_index`), one that was drawn again aside: that comes behind the drop, and then sees it.
    #[inline]
    fn know_dropped(&mut self) -> Result<(), Error> {
        let State { base, sets, .. } = &*self.state;
        let asked = || sets.reads.iter().map(|read| read.place).chain(sets.nodes.index_refs());
        let dropped = base.dropped(&self.shared.catalog, asked);
        dropped.map_or(Ok(()), |place| Err(self.conflict(Reason::Inconsistent, place, None)))
    }

    /// Step 3 (b).
    fn check_writes(&mut self) -> Result<(), Error> {
        let timestamp = self.timestamp;
        for position in 0..self.state.buffers.pending.len() {
            let Pending { write, installed, .. } = self.state.buffers.pending[position];
            let Some((record, version)) = installed else { continue };
            let write = *self.state.sets.writes.get(write);
            let below = search(record, timestamp, Some(version), !left_out(Step::AwaitPendingBelow));
            if below.is_row && refuses_rows(&write) {
                return Err(self.conflict_at(record, None, Reason::InsertedFirst, (write.place, below.version)));
            }
            if let Some(below) = below.version
                && below.rts().is_after(timestamp)
                && !left_out(Step::RefuseReadLater)
            {
                let version = Some(below).filter(|_| !write.is_node);
                return Err(self.conflict_at(record, Some(below.rts()), Reason::ReadLater, (write.place, version)));
            }
            if !below.is_row && write.kind == Kind::Put && !self.admits(&write)? {
                return Err(self.conflict(Reason::ReadLater, write.place, None));
            }
        }
        Ok(())
    }

    /// Whether the key of a write may come into being now.
    fn admits(&self, write: &Write) -> Result<bool, Error> {
        let (store, key) = (self.store(write.place)?, self.state.sets.writes.key(write));
        // Nodes of multi-version indexes have read timestamps of their own.
        Ok(store.versioned.is_some() || self.shared.gaps.admit(write.place, key, &store.lengths, self.timestamp))
    }

    /// Step 4: from here on the versions are visible, and those below them are garbage soon.
    fn commit_installed(&mut self) {
        let wts = self.timestamp;
        for pending in &self.state.buffers.pending {
            let Some((record, version)) = pending.installed else { continue };
            let write = self.state.sets.writes.get(pending.write);
            let deleted = write.kind == Kind::Delete;
            version.end(if deleted { Status::Deleted } else { Status::Committed });
            pass(Point::Ended);
            let kind = if deleted { Queued::Leaving } else { Queued::Versions };
            if (deleted || version.next().link() != Link::End) && record.marks().note_queued(kind) {
                let entry = if deleted { self.entry_of_deleted(write) } else { Entry::Stays };
                self.state.garbage.push_back(Garbage { place: write.place, record, wts, entry });
            }
        }
        self.state.buffers.pending.clear();
    }

    fn entry_of_deleted(&self, write: &Write) -> Entry {
        match self.store(write.place) {
            Ok(store) if store.versioned.is_some() => Entry::Unlinked { is_node: write.is_node },
            _ => Entry::Key(OwnedKey::new(self.state.sets.writes.key(write))),
        }
    }

    /// Gives back the records that were taken and of which nobody came to know: all of them, or those that were not written in
    /// the end. The transaction still holds its moment.
    #[cold]
    pub(super) fn give_back_fresh(&mut self) {
        for position in 0..self.state.sets.fresh.len() {
            let Fresh { record, place, is_node } = self.state.sets.fresh[position];
            let Ok(store) = self.store(place) else { continue };
            let store: *const Store = store;
            // SAFETY: the worker's list of tables keeps the store until the transaction has ended.
            let store = unsafe { &*store };
            match record.latest().link() {
                Link::To(_) if self.committed => {}
                // The node that names it was not committed, so nobody but collectors comes here.
                Link::To(version) => {
                    let closed = record.latest().close(Some(version));
                    debug_assert!(closed, "nobody else writes the record");
                    let mut reclaimer = self.shared.bins.of(self.state.base.slot).wait();
                    reclaimer.defer_record(record, version, store, is_node, &self.guard);
                }
                // SAFETY: the record was never written, so no transaction has seen it.
                _ => unsafe { store.records_of(is_node).give(record, self.state.base.slot) },
            }
        }
    }

    /// What was installed counts for nothing. It is taken out when nobody can stand on it any more.
    #[cold]
    pub(super) fn abort_installed(&mut self) {
        self.look_after_shortage();
        let wts = self.timestamp;
        for pending in &self.state.buffers.pending {
            let Some((record, version)) = pending.installed else { continue };
            version.end(Status::Aborted);
            let write = self.state.sets.writes.get(pending.write);
            if write.is_fresh {
                // It is given back as a whole.
                continue;
            }
            let entry = match write.target {
                Target::Key => Entry::Key(OwnedKey::new(self.state.sets.writes.key(write))),
                Target::Record(_) => Entry::Stays,
            };
            if record.marks().note_queued(entry.kind()) {
                self.state.garbage.push_back(Garbage { place: write.place, record, wts, entry });
            }
        }
        self.state.buffers.pending.clear();
    }

    /// Holds a commit back until nobody can come to stand before it any more who begins after it was acknowledged (§3.1).
    pub(super) fn acknowledge(&mut self) {
        let (clocks, options) = (&self.shared.clocks, &self.shared.options);
        match options.consistency {
            Consistency::Loose => {}
            Consistency::Clock if left_out(Step::AwaitClock) => {}
            Consistency::External if left_out(Step::AwaitHorizon) => {}
            Consistency::Clock => {
                // A counter has no time to wait for, and is strict by itself.
                if options.central_clock || self.state.clock.adjusted <= self.state.clock.now_ns {
                    return;
                }
                let mut backoff = Backoff::new();
                while clocks.now_ns() < self.state.clock.adjusted {
                    backoff.wait();
                }
            }
            Consistency::External => clocks.await_horizon(self.timestamp),
        }
    }
}
