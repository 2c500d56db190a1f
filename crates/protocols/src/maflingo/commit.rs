//! Commit (Figure 4-1) and roll-back.
//!
//! 1. Latch the written records in the order of their addresses. Records that this transaction inserted are latched since
//!    their birth. Then read the epoch: this is the serialization point. Reading it here, and not at the transaction's
//!    start as the thesis does, means that no transaction aborts because an epoch began, and that whoever comes later in
//!    the serial order never has the earlier epoch: a transaction that overwrites what we read latches it after we
//!    validated, hence reads its epoch after we read ours.
//! 2. Check that every record read has the id it had and is not latched by another, and that every node's stamp holds.
//!    An *unlinked* record passes when it was absent: its node's stamp is in the node set too, so if the key had come back
//!    on another record, the stamp would have told.
//! 3. Make what memory the writes need (older versions, records that must grow). Only now can nothing fail any more.
//! 4. Write: each record in place between `begin_write` and `publish`, which also gives its latch back.
//!
//! Why two transactions that each read what the other writes cannot both pass: latching is sequentially consistent and so
//! are the loads of validation, so in their single order one transaction's latch comes before the other's check (§4.2.1).
//! The same holds for insertions, whose node latches come before the inserter's own validation.

use polychron_base::error::KeyPreview;
use polychron_base::{Abort, Error, IndexId, Reason, Stop};
use polychron_engine::redo::{self, Redo};

use super::reclaim::Tombstone;
use super::record::{Record, Tid};
use super::sets::{Kind, Place, Write};
use super::tid::TidSource;
use super::transaction::MaflingoTransaction;

/// The writes of one record: positions `first .. end` of the latching order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    record: Record,
    first: u32,
    end: u32,
    own_record: bool,
    /// Where the row goes when it has outgrown its record.
    replacement: Option<Record>,
    /// The copy for snapshots.
    version: Option<Record>,
}

impl<T: TidSource, R: Redo> MaflingoTransaction<'_, T, R> {
    /// Commits a transaction that wrote.
    pub(super) fn commit_writes(&mut self) -> Result<(), Stop> {
        self.build_groups();
        if let Err(stop) = self.latch_all() {
            return Err(self.undo_after(stop));
        }
        let tid = match self.validate_and_draw() {
            Ok(tid) => tid,
            Err(stop) => {
                self.unlatch(self.state.buffers.groups.len());
                return Err(self.undo_after(stop));
            }
        };
        if let Err(error) = self.prepare(tid) {
            self.unlatch(self.state.buffers.groups.len());
            return Err(self.undo_after(error.into()));
        }
        T::ticket(&self.shared.ticket);
        self.log(tid);
        for position in 0..self.state.buffers.groups.len() {
            self.apply(self.state.buffers.groups[position], tid);
        }
        self.state.last_tid = tid;
        self.state.sets.clear();
        Ok(())
    }

    /// Sorts the writes by record, and by age within a record.
    fn build_groups(&mut self) {
        let sets = &mut self.state.sets;
        let groups = &mut self.state.buffers.groups;
        groups.clear();
        sets.order.clear();
        sets.order.extend(0..sets.writes.len() as u32);
        sets.order.sort_unstable_by_key(|&position| (sets.writes.get(position).record, position));
        for (at, &position) in sets.order.iter().enumerate() {
            let write = sets.writes.get(position);
            match groups.last_mut() {
                Some(group) if group.record == write.record => group.end += 1,
                _ => groups.push(Group {
                    record: write.record,
                    first: at as u32,
                    end: at as u32 + 1,
                    own_record: write.own_record,
                    replacement: None,
                    version: None,
                }),
            }
        }
    }

    /// Phase 1.
    fn latch_all(&mut self) -> Result<(), Stop> {
        for position in 0..self.state.buffers.groups.len() {
            let group = self.state.buffers.groups[position];
            if group.own_record {
                continue;
            }
            let place = self.write_at(group.first).place;
            let Some(state) = group.record.latch(self.state.worker) else {
                self.unlatch(position);
                return Err(self.conflict(Reason::Latched, place, Some(group.record)));
            };
            if state.unlinked() {
                group.record.unlatch();
                let come_back = if state.absent() { self.insert_again(position) } else { Ok(false) };
                if !matches!(come_back, Ok(true)) {
                    self.unlatch(position);
                    return Err(match come_back {
                        Err(error) => error.into(),
                        Ok(_) => self.conflict(Reason::StaleRead, place, Some(group.record)),
                    });
                }
            }
        }
        Ok(())
    }

    /// The tombstone on which a row was to be written has left the index meanwhile. That was background work and must not
    /// abort anybody: the key is inserted anew. `false`: another transaction was faster.
    fn insert_again(&mut self, position: usize) -> Result<bool, Error> {
        let group = self.state.buffers.groups[position];
        let first = *self.write_at(group.first);
        let (tables, sets) = (&self.state.tables, &mut self.state.sets);
        let store = tables[first.place.table.position()].as_ref().and_then(|table| table.store(first.place.index));
        let (Some(store), Kind::Put) = (store, first.kind) else { return Ok(false) };
        let record = Record::latched(self.state.worker, sets.writes.words(first.data), &self.guard)?;
        let inserted = store.index.insert(sets.writes.key_bytes(&first), record.handle(), &mut sets.nodes, &self.guard);
        if !matches!(inserted, Ok(polychron_index::Inserted::New)) {
            // SAFETY: the index did not take the record, so it is still ours alone.
            unsafe { self.guard.free(record.memory(), record.bytes()) };
            inserted?;
            return Ok(false);
        }
        for at in group.first..group.end {
            let position = sets.order[at as usize];
            sets.writes.move_to(position, record);
        }
        self.state.buffers.groups[position] = Group { record, own_record: true, ..group };
        Ok(true)
    }

    /// Gives back the latches of the first `groups` groups; own records keep theirs until they are taken out.
    fn unlatch(&mut self, groups: usize) {
        for group in &self.state.buffers.groups[..groups] {
            if !group.own_record {
                group.record.unlatch();
            }
        }
    }

    /// Phase 2 and the id (§4.1). Runs again when the epoch's counter is used up and a new epoch had to begin, because
    /// the epoch must have been read before validation.
    fn validate_and_draw(&mut self) -> Result<Tid, Stop> {
        loop {
            let epoch = self.guard.epochs().current();
            self.validate()?;
            let mut floor = self.state.last_tid;
            for read in &self.state.sets.reads {
                floor = floor.max(read.tid);
            }
            for group in &self.state.buffers.groups {
                floor = floor.max(group.record.tid());
            }
            if let Some(tid) = Tid::after(floor, epoch, self.state.worker) {
                return Ok(tid);
            }
            self.guard.epochs().advance();
        }
    }

    /// Whether everything that was read is still as it was (phase 2).
    pub(super) fn validate(&mut self) -> Result<(), Stop> {
        let worker = self.state.worker;
        for at in 0..self.state.sets.reads.len() {
            let read = self.state.sets.reads[at];
            let state = read.record.state();
            if state.latched_by_other(worker) {
                return Err(self.conflict(Reason::BeingWritten, read.place, Some(read.record)));
            }
            if read.record.tid() != read.tid || (state.unlinked() && !state.absent()) {
                return Err(self.conflict(Reason::StaleRead, read.place, Some(read.record)));
            }
        }
        if !self.shared.options.validate_nodes {
            return Ok(());
        }
        // SAFETY: the stamps were taken under this transaction's guard.
        match unsafe { self.state.sets.nodes.first_broken() } {
            None => Ok(()),
            Some(place) => Err(self.conflict(Reason::Phantom, place, None)),
        }
    }

    /// Makes the memory that writing needs.
    fn prepare(&mut self, tid: Tid) -> Result<(), Error> {
        for position in 0..self.state.buffers.groups.len() {
            let mut group = self.state.buffers.groups[position];
            let longest = (group.first..group.end)
                .map(|at| self.write_at(at))
                .filter(|write| write.kind == Kind::Put)
                .map(|write| write.data.words as usize)
                .max();
            let made = self.prepare_group(&mut group, longest.unwrap_or(0), tid);
            self.state.buffers.groups[position] = group;
            if let Err(error) = made {
                self.discard_prepared();
                return Err(error);
            }
        }
        Ok(())
    }

    #[inline]
    fn prepare_group(&self, group: &mut Group, longest: usize, tid: Tid) -> Result<(), Error> {
        if longest > group.record.capacity() {
            group.replacement = Some(Record::latched_empty(self.state.worker, longest, &self.guard)?);
        } else if !group.own_record && self.keeps_version(group.record, tid) {
            group.version = Some(group.record.copy_as_version(&self.guard)?);
        }
        Ok(())
    }

    /// Whether the record as it is must stay for snapshots: its epoch has ended or may end before this write's (§4.7).
    #[inline]
    fn keeps_version(&self, record: Record, tid: Tid) -> bool {
        let old = record.tid();
        self.shared.options.snapshots && old != Tid::ZERO && old.epoch() < tid.epoch()
    }

    fn discard_prepared(&mut self) {
        for group in &mut self.state.buffers.groups {
            for record in group.version.take().into_iter().chain(group.replacement.take()) {
                // SAFETY: the record was made by `prepare` and never linked.
                unsafe { self.guard.free(record.memory(), record.bytes()) };
            }
        }
    }

    /// Phase 3 for one record.
    #[inline]
    fn apply(&mut self, group: Group, tid: Tid) {
        let target = group.replacement.unwrap_or(group.record);
        let mut present = !target_is_absent(group);
        target.begin_write();
        for at in group.first..group.end {
            let write = self.write_at(at);
            match write.kind {
                Kind::Insert => present = true,
                Kind::Put => {
                    let row = self.state.sets.writes.words(write.data);
                    target.write_words(0, row);
                    target.set_length(row.len());
                    present = true;
                }
                Kind::Patch => target.write_words(write.start as usize, self.state.sets.writes.words(write.data)),
                Kind::Delete => present = false,
            }
        }
        if let Some(version) = group.version {
            target.set_previous(Some(version));
        } else if group.replacement.is_some() {
            let chain = self.keeps_version(group.record, tid);
            target.set_previous(if chain { Some(group.record) } else { group.record.previous() });
        }
        let chained = group.replacement.is_some() && self.keeps_version(group.record, tid);
        target.publish(tid, present);
        if let Some(version) = group.version {
            // SAFETY: only snapshots older than this epoch follow the link to the version.
            unsafe { self.guard.retire_versions(version.memory(), version.bytes(), tid.epoch()) };
        }
        if group.replacement.is_some() {
            self.move_record(group, target, tid, chained);
        }
        if !present {
            let write = *self.write_at(group.end - 1);
            let tombstone = Tombstone::new(write.place, self.state.sets.writes.key_bytes(&write), target, tid);
            self.state.reclaimer.push(tombstone);
        }
    }

    /// The index leads to the larger record from now on (§5, updates that do not fit).
    fn move_record(&mut self, group: Group, target: Record, tid: Tid, chained: bool) {
        let put = (group.first..group.end).map(|at| *self.write_at(at)).find(|write| write.kind == Kind::Put);
        let put = put.expect("only a whole row outgrows its record");
        let store =
            self.state.tables[put.place.table.position()].as_ref().and_then(|table| table.store(put.place.index));
        if let Some(store) = store {
            let key = self.state.sets.writes.key_bytes(&put);
            let replaced = store.index.replace(key, group.record.handle(), target.handle(), &self.guard);
            debug_assert!(replaced, "the record was linked and latched");
        }
        group.record.unlink();
        let (memory, bytes) = (group.record.memory(), group.record.bytes());
        if chained {
            // SAFETY: snapshots reach it through the new record's chain, others not any more.
            unsafe { self.guard.retire_versions(memory, bytes, tid.epoch()) };
        } else {
            // SAFETY: the index has forgotten the record and no chain leads to it.
            unsafe { self.guard.retire(memory, bytes) };
        }
    }

    /// Hands the changes of rows to the log.
    fn log(&self, tid: Tid) {
        if !R::ENABLED {
            return;
        }
        let (redo, worker) = (&self.shared.redo, self.state.worker);
        for &position in &self.state.sets.order {
            let write = self.state.sets.writes.get(position);
            if write.place.index != IndexId::PRIMARY {
                continue;
            }
            let data = self.state.sets.writes.words(write.data);
            let change = match write.kind {
                Kind::Insert | Kind::Put => redo::Change::Put(data),
                Kind::Patch => redo::Change::Patch { word: write.start as usize, words: data },
                Kind::Delete => redo::Change::Delete,
            };
            redo.change(worker, tid.0, write.place.table, self.state.sets.writes.key_bytes(write), change);
        }
        redo.committed(worker, tid.0);
    }

    #[inline]
    fn write_at(&self, order: u32) -> &Write {
        self.state.sets.writes.get(self.state.sets.order[order as usize])
    }

    /// Takes the transaction's own records out of the indexes again, from the given write on, and forgets the writes.
    pub(super) fn undo_writes(&mut self, from: usize) {
        let (tables, sets, guard) = (&self.state.tables, &mut self.state.sets, &self.guard);
        sets.writes.truncate(from, |writes, write| {
            if !write.own_record || write.prior.is_some() {
                return;
            }
            let store = tables[write.place.table.position()].as_ref().and_then(|table| table.store(write.place.index));
            if let Some(store) = store {
                let removed = store.index.remove(writes.key_bytes(write), write.record.handle(), guard);
                debug_assert!(removed, "an own record stays linked until it is taken out here");
            }
            write.record.unlink();
            // SAFETY: the index has forgotten the record.
            unsafe { guard.retire(write.record.memory(), write.record.bytes()) };
        });
    }

    /// Undoes everything and passes the reason on.
    #[cold]
    fn undo_after(&mut self, stop: Stop) -> Stop {
        self.undo_writes(0);
        self.state.sets.clear();
        stop
    }

    /// Keeps why the transaction conflicts. The key is taken from the record where it is a row.
    #[cold]
    pub(super) fn conflict(&mut self, reason: Reason, place: Place, record: Option<Record>) -> Stop {
        let key = record.and_then(|record| self.key_of(place, record));
        self.state.last_abort = Some(Abort { reason, table: place.table, index: place.index, key });
        self.doomed = true;
        Stop::conflict()
    }

    /// The key of a row, best effort: the record may be changing.
    fn key_of(&self, place: Place, record: Record) -> Option<KeyPreview> {
        let table = self.state.tables.get(place.table.position())?.as_ref()?;
        let mut row = vec![0; record.capacity()];
        record.read(0..record.capacity(), &mut row);
        self.key_in(table, place.index, &row)
    }
}

#[inline]
fn target_is_absent(group: Group) -> bool {
    group.replacement.is_some() || group.record.state().absent()
}
