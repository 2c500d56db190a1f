//! Commit (Figure 4-1) and rollback.
//!
//! 0. Stage the changes for the log.
//! 1. Latch the written records in the order of their addresses; last those that it inserted and no other thread has claimed, in any order.
//!    An insertion must be as it was put into the index. Then read the epoch: this is the serialization point. Reading it here, and not at
//!    the transaction's start as the thesis does, means that no transaction aborts because an epoch began, and that any thread that comes
//!    later in the serial order never has the earlier epoch: a transaction that overwrites what we read latches it after we validated, hence
//!    reads its epoch after we read ours.
//! 2. Check that every record read has the id it had and is not latched by another, and that every node's stamp holds.
//!    An *unlinked* record passes unless it *moved*: it was absent, and its node's stamp is in the node set too, so if the
//!    key had come back on another record, the stamp would have told. A record that moved tells by itself, because giving
//!    a key another handle leaves the stamps as they are.
//! 3. Make what memory the writes need (older versions, records that must grow). From here on nothing can fail.
//!    Seal the changes.
//! 4. Write: each record in place between `begin_write` and `publish`, which also gives its latch back.
//!
//! Why two transactions that each read what the other writes cannot both pass: latching is sequentially consistent and so
//! are the loads of validation, so in their single order one transaction's latch comes before the other's check (§4.2.1).
//! The same holds for insertions, whose node latches come before the inserter's own validation.

use polychron_base::key::EncodedKey;
use polychron_base::{Error, Reason};
use polychron_engine::mutations::{left_out, pass};
use polychron_engine::redo;
use polychron_engine::stores::WorkerBase;
use polychron_memory::Guard;
use polychron_sync::atomic::Ordering;

use super::aside::OwnGuard;
use super::options::Counter;
use super::reclaim::Tombstone;
use super::record::{Record, Tid};
use super::sets::{Read, Sets};
use super::steps::{Point, Step};
use super::table::{self, MaflingoTable, Store};
use super::transaction::{Buffers, Found, MaflingoTransaction};
use super::versions::store_at;
use super::worker::State;
use super::writing::Group;

impl MaflingoTransaction<'_> {
    /// Commits a transaction that wrote.
    pub(super) fn commit_writes(&mut self) -> Result<(), Error> {
        self.build_groups();
        let early = left_out(Step::EpochAfterLatches).then(|| self.guard.epochs().current());
        pass(Point::Committing);
        if let Err(error) = self.stage_changes() {
            return Err(self.undo_after(error));
        }
        if let Err(error) = self.latch_all() {
            return Err(self.undo_after(error));
        }
        if let Err(error) = self.know_all_indexes() {
            self.unlatch(self.state.buffers.groups.len());
            return Err(self.undo_after(error));
        }
        // Until the end of this the epoch does not become the past of snapshots.
        let _announced = self.guard.begin_commit();
        let tid = match self.validate_and_draw(early) {
            Ok(tid) => tid,
            Err(error) => {
                self.unlatch(self.state.buffers.groups.len());
                return Err(self.undo_after(error));
            }
        };
        // Behind the look at the epoch, see `keeping.rs`.
        let keeps = self.shared.options.snapshots && self.shared.keeping.is_needed();
        if let Err(error) = self.prepare(tid, keeps) {
            self.unlatch(self.state.buffers.groups.len());
            return Err(self.undo_after(error));
        }
        self.draw_ticket();
        let seals_late = left_out(redo::Step::SealFirst);
        if !seals_late {
            self.seal(tid);
        }
        let (groups, prepared) = {
            let Buffers { groups, prepared, .. } = &mut self.state.buffers;
            (std::mem::take(groups), std::mem::take(prepared))
        };
        let mut prepared_left = prepared.iter();
        let mut next = prepared_left.next();
        for (position, &group) in groups.iter().enumerate() {
            match next.filter(|prepared| prepared.position == position) {
                None => self.apply(group, tid),
                Some(prepared) => {
                    self.apply_prepared(group, prepared, (tid, keeps));
                    next = prepared_left.next();
                }
            }
        }
        (self.state.buffers.groups, self.state.buffers.prepared) = (groups, prepared);
        if seals_late {
            self.seal(tid);
        }
        self.state.last_tid = tid;
        let database = self.shared.base.catalog.number();
        self.state.known.note(database, tid.epoch());
        self.state.base.nested.committed(database, tid.0);
        self.state.sets.clear();
        Ok(())
    }

    /// With a shared counter, as designs with a central one have it (§6.4): changes it, and reads no meaning into it.
    #[inline]
    fn draw_ticket(&self) {
        if self.shared.options.counter == Counter::Shared {
            let ticket = &self.shared.ticket;
            // A compare-and-swap loop rather than an addition, as in the thesis.
            let mut seen = ticket.load(Ordering::Relaxed);
            // AcqRel: so that commits are ordered by it, as with a counter that means something.
            while let Err(now) = ticket.compare_exchange_weak(seen, seen + 1, Ordering::AcqRel, Ordering::Relaxed) {
                seen = now;
            }
        }
    }

    /// Gathers the writes by record: first those that others may want, in the order of their addresses, then the own ones.
    fn build_groups(&mut self) {
        let State { sets, buffers: Buffers { groups, .. }, .. } = &mut *self.state;
        let guard = &self.guard;
        groups.clear();
        let mut contended = 0;
        for (write, latest) in sets.writes.firsts() {
            let (record, own_record) = (write.record, write.own_record);
            groups.push(Group { record, latest, own_record });
            // A thread that claims it from now on meets it in another order; then one of the two gives up.
            if !own_record || record.under(guard).state().claimed() {
                let last = groups.len() - 1;
                if contended < last {
                    groups.swap(contended, last);
                }
                contended += 1;
            }
        }
        groups[..contended].sort_unstable_by_key(|group| group.record);
    }

    /// Phase 1.
    fn latch_all(&mut self) -> Result<(), Error> {
        self.latch_groups().map_err(|(position, reason)| self.give_way(position, reason))
    }

    /// Latches the groups up to the first one that cannot be written, and tells why.
    #[inline]
    fn latch_groups(&self) -> Result<(), (usize, Reason)> {
        let State { base: WorkerBase { slot, contested, .. }, sets, buffers, .. } = &*self.state;
        let (favour, guard) = (&self.shared.base.favour, &self.guard);
        let is_here = |other| guard.epochs().is_here(other);
        let has_latched = !sets.latched.is_empty();
        for (position, group) in buffers.groups.iter().enumerate() {
            if left_out(Step::LatchWrites) || group.own_record && left_out(Step::LatchInsertions) {
                continue;
            }
            let record = group.record.under(guard);
            let state = match contested.is_barred(favour, group.record, *slot, is_here) {
                true => None,
                // It may have been latched before the commit.
                false if has_latched && record.state().latched_by(*slot) => Some(record.state()),
                false => record.latch(*slot),
            };
            let Some(state) = state else { return Err((position, Reason::Latched)) };
            let is_overtaken = group.own_record && record.is_overtaken();
            if state.unlinked() && !left_out(Step::RefuseUnlinkedWrites) || is_overtaken {
                // The row moved, or was deleted in an earlier epoch after it was found here, and left the index. A tombstone that was found
                // would have stayed: it was claimed when it was written on. Or another one has inserted the key on this transaction's
                // record.
                record.unlatch();
                return Err((position, Reason::StaleRead));
            }
        }
        Ok(())
    }

    /// Conflicts at a group, before which all are latched.
    #[cold]
    fn give_way(&mut self, position: usize, reason: Reason) -> Error {
        self.unlatch(position);
        let Group { record, latest, .. } = self.state.buffers.groups[position];
        let index_ref = self.state.sets.writes.get(latest).index_ref;
        self.conflict_at(reason, index_ref, record)
    }

    /// Latches the row of a key before the commit begins, so that what is read of it then is what will be validated. The
    /// transaction is to commit right after, for readers that validate give up meanwhile.
    pub(super) fn latch_row<K: EncodedKey>(&mut self, table: &MaflingoTable, key: K) -> Result<(), Error> {
        let index_ref = table.primary.index_ref;
        loop {
            let (reads, nodes) = (self.state.sets.reads.len(), self.state.sets.nodes.len());
            let (reader, state) = self.reader();
            let found = state.find(reader, &table.primary, key, 0..0);
            state.sets.reads.truncate(reads);
            state.sets.nodes.truncate(nodes);
            // Where there is no row, any thread that reads it next finds out, under protection.
            let Found::Row(record) = found else { return Ok(()) };
            if record.state().latched_by(state.base.slot) {
                return Ok(());
            }
            let Some(latched) = record.latch(state.base.slot) else {
                let met = state.meet(index_ref, record);
                return Err(self.conflict(Reason::Latched, index_ref, Some(met)));
            };
            if latched.unlinked() {
                record.unlatch();
                continue;
            }
            state.sets.latched.push(record.into());
            return Ok(());
        }
    }

    /// A transaction that began before an index was added keeps no entries of it up, so it must not change a row whose
    /// entry was made by one that began later. The writer of that entry knew the catalog's new version and gave the row's
    /// latch back, which this transaction has taken since; so it sees the version here.
    #[inline]
    fn know_all_indexes(&mut self) -> Result<(), Error> {
        if left_out(Step::KnowAllIndexes) {
            return Ok(());
        }
        let written = || self.state.sets.writes.iter().map(|write| write.index_ref);
        let outdated = self.state.base.tables.outdated(&self.shared.base.catalog, written);
        outdated.map_or(Ok(()), |index_ref| Err(self.conflict(Reason::Inconsistent, index_ref, None)))
    }

    /// Gives back the latches of the first `groups` groups.
    fn unlatch(&mut self, groups: usize) {
        self.state.buffers.groups[..groups].iter().for_each(|group| group.record.under(&self.guard).unlatch());
    }

    /// Phase 2 and the id (§4.1). Runs again when the epoch's counter is used up and a new epoch had to begin, because
    /// the epoch must have been read before validation.
    ///
    /// `early` is an epoch that was read before the latches; only tests have it.
    fn validate_and_draw(&mut self, early: Option<u64>) -> Result<Tid, Error> {
        loop {
            // Behind the announcement, so no snapshot at this epoch begins before the commit's end.
            let mut epoch = early.unwrap_or_else(|| self.guard.epochs().current());
            let newest_read = self.validate()?;
            pass(Point::Validated);
            if left_out(Step::EpochBeforeChecks) {
                epoch = self.guard.epochs().current();
            }
            let State { base, buffers, last_tid, .. } = &*self.state;
            let mut floor = if left_out(Step::ExceedLast) { Tid::ZERO } else { *last_tid };
            if !left_out(Step::ExceedReads) {
                floor = floor.max(newest_read);
            }
            for group in buffers.groups.iter().filter(|_| !left_out(Step::ExceedWrites)) {
                floor = floor.max(group.record.under(&self.guard).tid());
            }
            if let Some(tid) = Tid::after(floor, epoch, base.slot) {
                return Ok(tid);
            }
            self.guard.epochs().advance();
        }
    }

    /// Whether everything that was read is still as it was (phase 2). Answers the newest id among that.
    pub(super) fn validate(&mut self) -> Result<Tid, Error> {
        let newest = match self.newest_unchanged() {
            Ok(newest) => newest,
            Err((reason, Read { record, index_ref, .. })) => return Err(self.conflict_at(reason, index_ref, record)),
        };
        if !left_out(Step::CompareNodes) {
            // SAFETY: the stamps were taken under this transaction's guard.
            if let Some(index_ref) = unsafe { self.state.sets.nodes.first_broken() } {
                return Err(self.conflict(Reason::Phantom, index_ref, None));
            }
        }
        self.know_dropped()?;
        Ok(newest)
    }

    /// The newest id that was read, or the first record that was read and is not as it was, or is being written.
    #[inline]
    fn newest_unchanged(&self) -> Result<Tid, (Reason, Read)> {
        let State { base: WorkerBase { slot, .. }, sets, .. } = &*self.state;
        let mut newest = Tid::ZERO;
        for read in &sets.reads {
            let record = read.record.under(&self.guard);
            let state = record.state();
            let changed = record.tid() != read.tid;
            if changed || !state.is_undisturbed() {
                if state.latched_by_other(*slot) && !left_out(Step::RefuseLatched) {
                    return Err((Reason::BeingWritten, *read));
                }
                if changed && !left_out(Step::CompareIds) || state.moved() && !left_out(Step::RefuseMoved) {
                    return Err((Reason::StaleRead, *read));
                }
            }
            newest = newest.max(read.tid);
        }
        Ok(newest)
    }

    /// No index that was asked was dropped. A thread that leaves it alone has begun behind the drop, so where the entries that it does not
    /// make would have been seen just above, its catalog's version is seen here.
    #[inline]
    fn know_dropped(&mut self) -> Result<(), Error> {
        if left_out(Step::KnowDropped) {
            return Ok(());
        }
        let State { base, sets, .. } = &*self.state;
        let asked = || sets.reads.iter().map(|read| read.index_ref).chain(sets.nodes.index_refs());
        let dropped = base.dropped(&self.shared.base.catalog, asked);
        dropped.map_or(Ok(()), |index_ref| Err(self.conflict(Reason::Inconsistent, index_ref, None)))
    }

    /// As [`State::undo_writes`].
    pub(super) fn undo_writes(&mut self, from: usize) {
        self.state.undo_writes(from, &self.guard);
    }
    /// Undoes everything and passes the reason on.
    #[cold]
    fn undo_after(&mut self, error: Error) -> Error {
        self.shared.base.common.journal.discard(self.state.base.slot);
        self.undo_writes(0);
        self.state.sets.clear();
        error
    }
}

impl State {
    /// Takes the transaction's own records out of the indexes again, from the given write on, and forgets the writes.
    ///
    /// That a key could be inserted told that it was absent, and the transaction may go on. The node's stamp, taken while
    /// the record keeps others from putting another one there, goes on guarding that, and where the record stays, its id does, too.
    pub(super) fn undo_writes(&mut self, from: usize, guard: &OwnGuard<'_>) {
        // They are for commits, which this no longer is.
        self.unlatch_rows(guard);
        let Self { base: WorkerBase { tables, .. }, sets, reclaimer, .. } = self;
        let Sets { writes, nodes, reads, .. } = &mut **sets;
        writes.truncate(from, |writes, write| {
            if !write.own_record || write.prior.is_some() || left_out(Step::UndoInsertions) {
                return;
            }
            // A dropped table or index gives its records back as a whole.
            let Some(store) = store_at(tables, write.index_ref) else { return };
            let (key, index_ref, record) = (writes.key_bytes(write), write.index_ref, write.record.under(guard));
            if !left_out(Step::NodesOfUndone) {
                nodes.add(store.index().get(key, guard).stamp, index_ref);
            }
            if !take_back(record, store, key, guard) {
                if !left_out(Step::ReadsOfUndone) {
                    reads.push(Read { record: write.record, tid: Tid::ZERO, index_ref });
                }
                // Any thread that has written it by now has seen to it, and it is left alone.
                record.give_up();
                reclaimer.push(Tombstone::new(index_ref, key, record, Tid::ZERO));
            }
        });
    }

    /// Gives back the latches that [`MaflingoTransaction::latch_row`] took and no write has given back.
    #[inline]
    pub(super) fn unlatch_rows(&mut self, guard: &OwnGuard<'_>) {
        let Self { base: WorkerBase { slot, .. }, sets, .. } = self;
        for record in sets.latched.drain(..).map(|record| record.under(guard)) {
            if record.state().latched_by(*slot) {
                record.unlatch();
            }
        }
    }
}

/// Takes an insertion that is given up out of its index. `false`: others have claimed it, or written it.
fn take_back(record: Record<'_>, store: &Store, key: &[u8], guard: &Guard<'_>) -> bool {
    let Some(state) = record.latch_in_background() else { return false };
    if state.claimed() && !left_out(Step::RespectClaims) || record.tid() != Tid::ZERO {
        record.unlatch();
        return false;
    }
    // An own record stays linked until it is unlinked here.
    table::remove(store, key, record, guard, Record::unlink);
    true
}
