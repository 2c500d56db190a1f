//! Validation (§3.4, 3.5), the write phase, and rollback.
//!
//! 0. Unless the worker's last transactions have all committed: bring the most contended writes to the front, and check the
//!    reads, so that a conflict is found before anything is installed.
//! 1. **Install** a pending version for each write, where its timestamp belongs in the list. A key that leads to no record gets one, with the pending
//!    version in it, and its index entry now: no index is touched before.
//! 2. **Raise** the read timestamp of every version that was read, and of every part of the key space that was found empty.
//! 3. **Check** that (a) what was visible still is, and no stamp is broken; (b) what is visible below each installed version was not
//!    read by a later transaction, and where there is no row below, no part that holds the key was found empty by one. Below an
//!    insertion there must be none.
//! 4. Seal the changes, which were staged for the log before step 1, and say of each version that it is committed, or a deletion.
//!
//! Why one of two conflicting transactions fails, R with timestamp *r* having read what W with *w* < *r* changes: R raises, and then looks
//! at the list; W installs, and then looks at the read timestamp. All four are sequentially consistent. If R's look comes after W's
//! installation, R finds it (and waits for its end). Otherwise W's look comes after R's raising, and finds *r* > *w*. Where R
//! need not raise because it finds a timestamp late enough, its load stands for the store that it reads from. The same holds for an absent
//! key, with the index's latch as W's installation, the stamp as R's look, and the part's word for the read timestamp.
//!
//! No transaction waits in a cycle: a transaction that waits for a pending version has a later timestamp than its writer. And none is given up for
//! what runs in the background: a tombstone that was closed meanwhile was read as absent and still is, and a key whose record
//! was closed gets a new one.

use polychron_base::{Error, Reason};
use polychron_engine::catalog::{self, Seen};
use polychron_engine::mutations::{left_out, pass};
use polychron_engine::redo;
use polychron_engine::stores::IndexRef;
use polychron_sync::Backoff;

use super::counts::Stage;
use super::installation::{Pending, refuses_rows};
use super::options::Consistency;
use super::record::{Link, Version};
use super::sets::{Kind, Sets, Target, Write};
use super::steps::{Point, Step};
use super::table::{CicadaTable, Store};
use super::transaction::CicadaTransaction;
use super::worker::State;

/// How many writes are sorted by contention (§3.5).
const SORTED: usize = 8;

/// What stands for an index in the running transaction's list of tables.
#[inline]
pub(super) fn store_in(tables: &Seen<CicadaTable>, place: IndexRef) -> Result<&Store, Error> {
    let table = catalog::get(tables, place.table)?;
    table.store(place.index).map(|store| &**store)
}

impl CicadaTransaction<'_> {
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
            self.stage_changes()?;
            if let Err(error) = self.install_and_check() {
                self.abort_installed();
                return Err(error);
            }
            self.guard.end_too_early();
            pass(Point::Validated);
            let seals_late = left_out(redo::Step::SealFirst);
            if !seals_late {
                self.seal();
            }
            self.commit_installed();
            if seals_late {
                self.seal();
            }
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
        let stands = self.shared.clocks.stand(self.state.base.slot, self.timestamp());
        if stands { Ok(()) } else { self.draw_again() }
    }

    /// Another timestamp is drawn.
    #[cold]
    fn draw_again(&mut self) -> Result<(), Error> {
        let clocks = &self.shared.clocks;
        if self.state.stage != Stage::Rewriting {
            // A round of renewal is made where everybody can be by now, not where time has gone on to.
            clocks.advance(&mut self.state.clock, self.state.base.slot);
        }
        if !self.draw_timestamp_again() {
            let place = self.state.sets.writes.get(0).place;
            return Err(self.conflict(Reason::Inconsistent, place, None));
        }
        // What was later than the old timestamp may be before this one.
        self.state.sets.reads.clear_later();
        Ok(())
    }

    /// Validates a transaction that changes nothing.
    pub(super) fn validate_reads(&mut self) -> Result<(), Error> {
        self.enter(Stage::Checking);
        self.raise_and_check()?;
        self.check_stamps()
    }

    /// Steps 2 and 3 (a) for records. A word that is raised before the look keeps earlier writers out behind it.
    #[inline]
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

    /// No index was added to a table that is written since this transaction began: it has made no entries in it. One that began
    /// before the index was known and passes here has a timestamp that `create_index` sees, and each that makes entries has a
    /// later one (`follows_unknowing`).
    #[inline]
    fn know_all_indexes(&mut self) -> Result<(), Error> {
        if left_out(Step::KnowAllIndexes) {
            return Ok(());
        }
        // A row that is written once more as it is keeps its entries.
        let written = || self.state.sets.writes.iter().filter(|write| !write.unlogged).map(|write| write.place);
        let outdated = self.state.base.tables.outdated(&self.shared.base.catalog, written);
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
        let (guard, reader) = (&self.guard, self.guard.reader());
        let (pending, writes) = (&mut self.state.buffers.pending, &self.state.sets.writes);
        if pending.len() < 2 {
            return;
        }
        for entry in pending.iter_mut() {
            let latest = match writes.get(entry.write).target {
                Target::Record(record) => reader.latest(record.under(guard)),
                Target::Key => Link::End,
            };
            entry.age = match latest {
                Link::To(version) => reader.timestamp().0.wrapping_sub(version.wts().0) as i64,
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
        self.install_all()?;
        pass(Point::Installed);
        self.enter(Stage::Checking);
        self.raise_and_check()?;
        self.check_writes()?;
        self.check_stamps()
    }

    #[inline]
    pub(super) fn store(&self, place: IndexRef) -> Result<&Store, Error> {
        store_in(&self.state.base.tables, place)
    }

    /// Step 2.
    fn raise(&self) {
        let timestamp = self.timestamp();
        for read in self.state.sets.reads.iter(&self.guard) {
            if let Some(version) = read.version
                && !left_out(Step::RaiseVersions)
            {
                version.raise_rts(timestamp);
            }
        }
        for &part in self.state.sets.gaps.iter().filter(|_| !left_out(Step::RaiseGaps)) {
            self.shared.gaps.raise(part, timestamp);
        }
    }

    /// Step 3 (a) for records. `wait`: whether pending versions are waited for whatever the options say.
    #[inline]
    pub(super) fn check_reads(&mut self, wait: bool) -> Result<(), Error> {
        match self.state.sets.reads.first_doubtful(0, &self.guard) {
            Some(doubtful) if !left_out(Step::CompareVersions) => self.check_doubtful(doubtful, wait),
            _ => Ok(()),
        }
    }

    /// Searches for what was read, from a read on of which nothing else tells whether it would be read again.
    fn check_doubtful(&mut self, mut at: usize, wait: bool) -> Result<(), Error> {
        let wait = (wait || self.shared.options.parts().wait_for_pending) && !left_out(Step::AwaitPendingReads);
        loop {
            let read = self.state.sets.reads.get(at, &self.guard);
            let seen = self.guard.search(read.record, read.later, wait);
            // A record that was closed meanwhile and showed no row shows none.
            let tolerated = seen.closed && !read.is_row && !left_out(Step::TolerateClosed);
            if seen.version != read.version && !tolerated {
                let (reason, version) = match read.is_node {
                    true => (Reason::Phantom, None),
                    false => (Reason::StaleRead, read.version),
                };
                let version = version.map(|version| self.guard.keep(version));
                let (record, other) = (read.record.address(), seen.version.map(Version::wts));
                return Err(self.conflict_at(record, other, reason, (read.place, version)));
            }
            self.state.sets.reads.set_later(at, seen.later, &self.guard);
            match self.state.sets.reads.first_doubtful(at + 1, &self.guard) {
                Some(doubtful) => at = doubtful,
                None => return Ok(()),
            }
        }
    }

    /// Step 3 (a) for what was not there.
    #[inline]
    fn check_stamps(&mut self) -> Result<(), Error> {
        if !left_out(Step::CompareNodes) {
            self.search_again()?;
            if let Some(place) = self.guard.first_broken(&self.state.sets.nodes) {
                return Err(self.conflict(Reason::Phantom, place, None));
            }
        }
        self.know_dropped()
    }

    /// No index that was asked was dropped. A transaction that does not see here that one was has an earlier timestamp than all that leave it alone
    /// (`drop_index`), one that was drawn again aside: that comes behind the drop, and then sees it.
    #[inline]
    fn know_dropped(&mut self) -> Result<(), Error> {
        let State { base, sets, .. } = &*self.state;
        let asked = || sets.reads.places().chain(sets.nodes.index_refs());
        let dropped = base.dropped(&self.shared.base.catalog, asked);
        dropped.map_or(Ok(()), |place| Err(self.conflict(Reason::Inconsistent, place, None)))
    }

    /// Step 3 (b).
    fn check_writes(&mut self) -> Result<(), Error> {
        let mut next = 0;
        while let Some(doubtful) = self.first_doubtful_write(next) {
            self.check_write(doubtful)?;
            next = doubtful + 1;
        }
        Ok(())
    }

    /// The first write, from a position on, that was made on no row that was read, or on one that was read later as well.
    #[inline]
    fn first_doubtful_write(&self, from: usize) -> Option<usize> {
        let (State { buffers, sets, .. }, timestamp) = (&*self.state, self.timestamp());
        let is_doubtful = |pending: &Pending| {
            // That what was read is what is visible below was checked with the reads.
            let below = sets.version_below(sets.writes.get(pending.write), &self.guard);
            below.is_none_or(|read| read.rts().is_after(timestamp))
        };
        buffers.pending[from..].iter().position(is_doubtful).map(|passed| from + passed)
    }

    fn check_write(&mut self, position: usize) -> Result<(), Error> {
        let timestamp = self.timestamp();
        let Pending { write, installed, .. } = &self.state.buffers.pending[position];
        let Some((record, own)) = installed.as_ref().map(|own| own.parts(&self.guard)) else { return Ok(()) };
        let address = record.address();
        let write = *self.state.sets.writes.get(*write);
        if let Some(read) = self.state.sets.version_below(&write, &self.guard) {
            let rts = read.rts();
            if rts.is_after(timestamp) && !left_out(Step::RefuseReadLater) {
                let (place, read) = (write.place, self.guard.keep(read));
                return Err(self.conflict_at(address, Some(rts), Reason::ReadLater, (place, Some(read))));
            }
            return Ok(());
        }
        let below = self.guard.search(record, Some(own), !left_out(Step::AwaitPendingBelow));
        let (rts, is_row) = (below.version.map(Version::rts), below.is_row);
        let version = below.version.map(|version| self.guard.keep(version));
        if is_row && refuses_rows(&write) {
            return Err(self.conflict_at(address, None, Reason::InsertedFirst, (write.place, version)));
        }
        if let Some(rts) = rts.filter(|rts| rts.is_after(timestamp) && !left_out(Step::RefuseReadLater)) {
            let version = version.filter(|_| !write.is_node);
            return Err(self.conflict_at(address, Some(rts), Reason::ReadLater, (write.place, version)));
        }
        if !is_row && write.kind == Kind::Put && !self.admits(&write)? {
            return Err(self.conflict(Reason::ReadLater, write.place, None));
        }
        Ok(())
    }

    /// Whether the key of a write may come into being now.
    fn admits(&self, write: &Write) -> Result<bool, Error> {
        let (store, writes) = (self.store(write.place)?, &self.state.sets.writes);
        if store.versioned.is_some() {
            // Nodes of multi-version indexes have read timestamps of their own.
            return Ok(true);
        }
        let (place, lengths, timestamp) = (write.place, &store.lengths, self.timestamp());
        Ok(match writes.short_key(write) {
            Some(key) => self.shared.gaps.admit(place, key, lengths, timestamp),
            None => self.shared.gaps.admit(place, writes.key(write), lengths, timestamp),
        })
    }

    /// Delays the acknowledgement until no later transaction can be ordered before this one (§3.1).
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
            Consistency::External => clocks.await_horizon(self.timestamp()),
        }
    }
}
