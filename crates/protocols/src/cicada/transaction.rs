//! A running transaction: reads, writes, savepoints (§3.2).
//!
//! This file knows records and indexes; `rows.rs` makes rows of them and keeps secondary indexes up; `commit.rs` ends it.

use polychron_base::key::EncodedKey;
use polychron_base::room::KeptList;
use polychron_base::{Error, Reason};
use polychron_engine::midway::Midway;
use polychron_engine::mutations::left_out;
use polychron_engine::nested;
use polychron_engine::rows::Primitives;
use polychron_engine::stores::IndexRef;
use polychron_engine::{Commit, Mode};
use polychron_memory::Guard;
use polychron_schema::{RowBuffer, RowRef};

use super::clocks::{Held, Span};
use super::find::Missed;
use super::gaps::KeyPartition;
use super::installation::Pending;
use super::kept::{Kept, KeptRow, OwnGuard, Range};
use super::protocol::Shared;
use super::record::{Seen, Status, Version};
use super::sets::{Kind, NewRow, Target, Write};
use super::steps::Step;
use super::table::Store;
use super::timestamp::Timestamp;
use super::versioned::{Changing, Planned, Scanning};
use super::worker::State;

/// Memory that operations use one after the other.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// A row that is moved to its head.
    pub(super) row: RowBuffer,
    pub(super) pending: Vec<Pending>,
    /// Entries of a range.
    pub(super) batch: Range,
    /// Own keys in a range that is scanned.
    pub(super) own_keys: Vec<u32>,
    /// Timestamps at which others read.
    pub(super) spans: Vec<Span>,
    /// The key at which a scan was stopped.
    pub(super) last_key: Vec<u8>,
    /// The key up to which a snapshot has visited a range.
    pub(super) come_to: Vec<u8>,
    pub(super) changing: Changing,
    pub(super) scanning: Scanning,
    pub(super) planned: Planned,
}

/// A running transaction.
#[derive(Debug)]
pub struct CicadaTransaction<'w> {
    pub(super) shared: &'w Shared,
    pub(super) state: &'w mut State,
    /// Its guard, and its timestamp.
    pub(super) guard: OwnGuard<'w>,
    /// Whether it reads what is stable, and nothing else.
    pub(super) snapshot: bool,
    /// After a conflict every call conflicts.
    pub(super) doomed: bool,
    pub(super) committed: bool,
    /// Whether its changes are part of the log.
    pub(super) has_sealed: bool,
    pub(super) midway: Midway,
    /// Whether it leaves its epoch between two operations, in which its client may do nothing for long.
    pub(super) stands_aside: bool,
}

/// Where a row lies that the transaction sees.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// In a version.
    Version(KeptRow),
    /// In an own write.
    Own(u32),
}

/// What a lookup came to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    /// A row. What a write of it goes to is [`CicadaTransaction::target`].
    Row(Source),
    /// None. A write of the key goes to the target.
    Absent(Target),
}

impl<'w> CicadaTransaction<'w> {
    /// The row at a source.
    #[inline]
    pub(super) fn row_at(&self, source: Source) -> RowRef<'_> {
        match source {
            Source::Version(row) => row.version().under(&self.guard).row(),
            Source::Own(position) => self.state.sets.writes.row(position).as_row(),
        }
    }

    /// What a write of the row at a source goes to.
    #[inline]
    pub(super) fn target(&self, source: Source) -> Target {
        match source {
            Source::Version(row) => Target::Record(row.record()),
            Source::Own(position) => self.state.sets.writes.get(position).target,
        }
    }

    #[inline]
    pub(super) fn own(&self, position: u32) -> Found {
        let write = self.state.sets.writes.get(position);
        match write.kind {
            Kind::Put => Found::Row(Source::Own(position)),
            Kind::Delete => Found::Absent(write.target),
        }
    }

    /// The timestamp.
    #[inline]
    pub(super) fn timestamp(&self) -> Timestamp {
        self.guard.timestamp()
    }

    /// Finds the version of a record that is visible ([`Reader::search`](super::record::Reader::search)).
    #[inline]
    pub(super) fn search(&self, record: Kept, wait: bool) -> Seen<Version<'_>> {
        self.guard.search(record.under(&self.guard), None, wait)
    }

    /// Reads a record as this transaction sees it, and remembers what was visible.
    pub(super) fn read_record(&mut self, record: Kept, place: IndexRef) -> Found {
        self.read_next(record, place)
    }

    /// The same of one of many records, without a call.
    #[inline(always)]
    pub(super) fn read_next(&mut self, record: Kept, place: IndexRef) -> Found {
        if self.reads_own()
            && let Some(position) = self.state.sets.writes.latest(record.address())
        {
            return self.own(position);
        }
        let found = record.under(&self.guard);
        let seen = self.guard.search(found, None, self.shared.options.parts().wait_for_pending);
        if !self.snapshot {
            self.state.sets.reads.push(&self.guard, found, &seen, (place, false));
        }
        match self.guard.row_in(found, &seen) {
            Some(row) => Found::Row(Source::Version(self.guard.keep_row(row))),
            None => Found::Absent(Target::Key),
        }
    }

    /// Ends the transaction early when a write on what it just read can hardly pass (§3.2).
    #[inline]
    pub(super) fn check_early(&mut self, source: Source, place: IndexRef) -> Result<(), Error> {
        let Source::Version(row) = source else { return Ok(()) };
        let (record, version) = row.under(&self.guard);
        let (rts, is_latest) = (version.rts(), record.leads_to(version.address()));
        if is_latest && !rts.is_after(self.timestamp()) { Ok(()) } else { self.check_row(row, (rts, is_latest), place) }
    }

    /// The same of a row that has been read by a later transaction, or is not the latest version.
    #[cold]
    fn check_row(&mut self, row: KeptRow, (rts, is_latest): (Timestamp, bool), place: IndexRef) -> Result<(), Error> {
        let (record, version) = (row.record(), row.version());
        if rts.is_after(self.timestamp()) && !self.is_overtaken() {
            return Err(self.conflict_at(record, Some(rts), Reason::ReadLater, (place, Some(version))));
        }
        if self.shared.options.parts().write_latest_only
            && !is_latest
            && let Some(other) = self.superseded_by(record)
        {
            return Err(self.conflict_at(record, Some(other), Reason::WrittenLater, (place, Some(version))));
        }
        Ok(())
    }

    /// Whether the transaction will write at a later timestamp than the one at which it reads: then a later reader is none.
    #[cold]
    pub(super) fn is_overtaken(&self) -> bool {
        self.shared.clocks.is_overtaken(self.state.base.slot, self.timestamp())
    }

    /// When a version later than this transaction is there or may come to be.
    #[inline]
    fn superseded_by(&self, record: Kept) -> Option<Timestamp> {
        for version in self.guard.reader().versions(record.under(&self.guard)) {
            if !version.wts().is_after(self.timestamp()) {
                return None;
            }
            if version.status() != Status::Aborted {
                return Some(version.wts());
            }
        }
        None
    }

    /// Inserts an entry whose key is absent. `false`: the key has a row.
    #[inline]
    pub(super) fn insert_record<K: EncodedKey>(&mut self, store: &Store, key: K, row: &[u64]) -> Result<bool, Error> {
        if let Some(nodes) = &store.versioned {
            return self.insert_versioned(store, nodes, key, row);
        }
        let (Found::Absent(target), missed) = self.look_up(store, key)? else { return Ok(false) };
        let mut write = Write::new(target, store.place(), Kind::Put);
        if let Some(Missed { stamp, has_record }) = missed {
            if !left_out(Step::PartsOfInsertions) {
                self.state.sets.gaps.push(KeyPartition::key(store.place(), key));
            }
            self.state.sets.searches.add_key(store.place(), key);
            (write.stamp, write.has_record) = (Some(stamp), has_record);
        }
        self.state.sets.writes.push(write, Some(key), NewRow::Of(row));
        Ok(true)
    }

    /// Writes an entry whatever is there.
    pub(super) fn put_record<K: EncodedKey>(&mut self, store: &Store, key: K, row: &[u64]) -> Result<(), Error> {
        if let Some(nodes) = &store.versioned {
            return self.put_versioned(store, nodes, key, row);
        }
        let place = store.place();
        let target = if self.state.sets.writes.latest_of_key(place, key).is_some() {
            Target::Key
        } else {
            match self.guard.find_anew(store, key) {
                None => Target::Key,
                Some(record) => {
                    // A record that shows a row, or has been written by this transaction, is not closed while this transaction
                    // runs; a tombstone may be.
                    let writes = &self.state.sets.writes;
                    let written = writes.latest(record.address()).and_then(|position| writes.get(position).record());
                    let found = record.under(&self.guard);
                    let shown = || self.guard.row_in(found, &self.guard.search(found, None, false));
                    let stays = written.or_else(|| shown().map(|row| self.guard.keep_row(row).record()));
                    stays.map_or(Target::Key, Target::Record)
                }
            }
        };
        let write = Write { blind: true, has_record: true, ..Write::new(target, place, Kind::Put) };
        self.state.sets.writes.push(write, Some(key), NewRow::Of(row));
        Ok(())
    }

    pub(super) fn end(&mut self) {
        self.state.base.is_open = false;
        self.leave_journal();
        if !self.state.buffers.pending.is_empty() {
            // A panic between the installation and the end, such as one of the log.
            self.abort_installed();
        }
        if !self.state.sets.fresh.is_empty() {
            self.free_fresh();
        }
        self.state.sets.clear();
        self.state.buffers.pending.give_back_room();
        self.guard.end();
        self.state.base.contested.end_attempt(&self.shared.base.favour, self.doomed);
        if !self.state.garbage.is_empty() {
            self.shared.bins.of(self.state.base.slot).put(&mut self.state.garbage);
        }
    }
}

impl CicadaTransaction<'_> {
    /// Whether, since there were so many reads, a version was read that snapshots which begin now might miss.
    pub(super) fn has_seen_news(&self, since: usize) -> bool {
        let min_wts = self.shared.clocks.min_wts();
        let is_news = |version: Version<'_>| !min_wts.is_after(version.wts());
        self.state.sets.reads.from(since, &self.guard).any(|read| read.version.is_some_and(is_news))
    }

    /// Notes what the transaction has read, if it wrote nothing that is committed.
    fn note_news(&mut self) {
        if std::mem::take(&mut self.state.saw_unprotected) || self.has_seen_news(0) {
            self.note_seen();
        }
    }

    /// The session's snapshots, and those of the calling thread, contain from now on what is older than the clock.
    pub(super) fn note_seen(&mut self) {
        let reading = self.state.clock.adjusted;
        self.state.last_seen = Some(reading);
        nested::note_seen(self.database(), reading, self.state.base.slot);
    }
}

impl Commit for CicadaTransaction<'_> {
    fn commit(mut self) -> Result<(), Error> {
        self.flags().check()?;
        self.come_back();
        if !self.snapshot {
            self.validate_and_write()?;
            if !self.state.sets.writes.is_empty() {
                self.state.last_commit = Some(self.state.clock.adjusted);
                self.note_seen();
            } else {
                self.note_news();
            }
            self.note_commit();
        }
        self.end();
        if !self.snapshot {
            self.acknowledge();
            // A list of tables that is not the present one may go now that no timestamp is held; this one waits for the guard.
            if !self.state.promotions.is_empty() && self.state.base.tables.is_present(&self.shared.base.catalog) {
                self.promote();
            }
        }
        Ok(())
    }

    fn roll_back(mut self) -> bool {
        self.come_back();
        // What a transaction that is rolled back returns is an answer, too, so its reads are protected like any other's.
        if !left_out(Step::ProtectRolledBack) {
            self.state.sets.undo_writes(0);
        }
        !self.doomed && (self.snapshot || left_out(Step::ValidateRollBack) || self.validate_reads().is_ok())
    }
}

impl Drop for CicadaTransaction<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.state.base.is_open {
            self.come_back();
            if !self.snapshot {
                self.note_news();
            }
            self.end();
        }
    }
}

impl<'w> CicadaTransaction<'w> {
    /// One that is not a client's, and stays in its epoch.
    pub(super) fn new(shared: &'w Shared, state: &'w mut State, guard: OwnGuard<'w>) -> Self {
        state.begin(&shared.base.common.journal);
        Self::made(shared, state, guard, (Mode::ReadWrite, false, Midway::new(shared.options.check_every, false)))
    }

    /// One of a client, to which it is left between its operations if it does not stay in its epoch. It is put together at the end, and once: it has
    /// many words.
    #[inline(always)]
    pub(super) fn begin(
        shared: &'w Shared,
        state: &'w mut State,
        (mut guard, held): (Guard<'w>, Held<'w>),
        mode: Mode,
        stays: bool,
    ) -> Self {
        let stands_aside = mode == Mode::ReadWrite && !stays;
        if mode == Mode::Snapshot {
            state.base.counters.snapshot(shared.clocks.staleness_ns(held.timestamp()) / 1000);
            guard.rest();
        } else if stands_aside {
            state.sets.searches.begin();
            guard.stand_aside();
        }
        let is_here = mode == Mode::ReadWrite && stays;
        // A snapshot enters an epoch with its first step.
        let midway =
            if mode == Mode::Snapshot { Midway::at_once() } else { Midway::new(shared.options.check_every, false) };
        state.begin(&shared.base.common.journal);
        let guard = OwnGuard::new(guard, held, &mut state.stays, is_here);
        Self::made(shared, state, guard, (mode, stands_aside, midway))
    }

    /// A transaction with what its worker's sets hold, that of one that was leaked.
    pub(super) fn taken_over(shared: &'w Shared, state: &'w mut State, guard: OwnGuard<'w>) -> Self {
        Self::made(shared, state, guard, (Mode::ReadWrite, false, Midway::at_once()))
    }

    #[inline(always)]
    fn made(
        shared: &'w Shared,
        state: &'w mut State,
        guard: OwnGuard<'w>,
        (mode, stands_aside, midway): (Mode, bool, Midway),
    ) -> Self {
        Self {
            shared,
            state,
            guard,
            snapshot: mode == Mode::Snapshot,
            doomed: false,
            committed: false,
            has_sealed: false,
            midway,
            stands_aside,
        }
    }
}
