//! The writes of a commit (`commit.rs`): what memory they need, and writing.

use polychron_base::Error;
use polychron_engine::catalog;
use polychron_engine::mutations::{left_out, pass};
use polychron_engine::stores::{IndexRef, OwnedKey, WorkerBase, is_too_roomy};
use polychron_memory::Guard;
use polychron_schema::KeyScratch;

use super::aside::{Kept, OwnGuard};
use super::reclaim::Tombstone;
use super::record::{Older, Record, Tid};
use super::sets::{Kind, Sets, Write, WriteSet};
use super::steps::{Point, Step};
use super::transaction::{Buffers, MaflingoTransaction};
use super::versions::{Superseded, store_at};
use super::worker::State;

/// The writes of one record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) record: Kept,
    /// The latest of them; the others are linked from it.
    pub(super) latest: u32,
    pub(super) own_record: bool,
}

/// The memory that writing a record needs, where it needs some.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prepared {
    /// Which of the groups it is for.
    pub(super) position: usize,
    memory: Made,
}

#[derive(Clone, Copy, Debug)]
enum Made {
    /// Where the row goes when it has outgrown its record.
    Replacement(Kept),
    /// The copy for snapshots.
    Version(Kept),
}

impl MaflingoTransaction<'_> {
    /// Makes the memory that writing needs.
    pub(super) fn prepare(&mut self, tid: Tid, keeps: bool) -> Result<(), Error> {
        let State { base, sets, buffers: Buffers { groups, prepared, .. }, .. } = &mut *self.state;
        prepared.clear();
        if !keeps && !sets.writes.has_rows() {
            return Ok(());
        }
        for (position, &group) in groups.iter().enumerate() {
            match prepare_group((&sets.writes, &self.guard, base.slot), group, tid, keeps) {
                Ok(None) => {}
                Ok(Some(memory)) => prepared.push(Prepared { position, memory }),
                Err(error) => {
                    self.discard_prepared();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn discard_prepared(&mut self) {
        for Prepared { memory: Made::Replacement(record) | Made::Version(record), .. } in
            self.state.buffers.prepared.drain(..)
        {
            // SAFETY: the record was made by `prepare` and never linked.
            unsafe { record.under(&self.guard).free(&self.guard) };
        }
    }

    /// Phase 3 for one record, where it lies.
    #[inline]
    pub(super) fn apply(&mut self, group: Group, tid: Tid) {
        let record = group.record.under(&self.guard);
        let Sets { writes, order, .. } = &mut *self.state.sets;
        record.begin_write();
        if writes.get(group.latest).kind == Kind::Insert {
            // The row lies there already, and nothing was changed since.
            pass(Point::Writing);
            record.publish(tid, true);
            return;
        }
        let was_present = !record.state().absent();
        let present = write_record((writes, order), group.latest, record, was_present);
        pass(Point::Writing);
        if is_due(record, tid) {
            // What is behind was superseded in an earlier epoch than the record will have, and may be freed.
            record.set_previous(None);
        }
        record.publish(tid, present);
        if !present {
            self.state.leave_tombstone(group, record, tid);
        }
    }

    /// The same with memory that was prepared.
    pub(super) fn apply_prepared(&mut self, group: Group, prepared: &Prepared, (tid, keeps): (Tid, bool)) {
        let guard = &self.guard;
        let record = group.record.under(guard);
        let Sets { writes, order, .. } = &mut *self.state.sets;
        let target = match prepared.memory {
            Made::Replacement(replacement) => replacement.under(guard),
            Made::Version(_) => record,
        };
        target.begin_write();
        let was_present = target == record && !record.state().absent();
        let present = write_record((writes, order), group.latest, target, was_present);
        pass(Point::Writing);
        match prepared.memory {
            Made::Version(version) => {
                let version = version.under(guard);
                target.set_previous(Some(version.address()));
                target.publish(tid, present);
                // SAFETY: the link to the copy was just made known with this id, and no other thread knows of it.
                let version = unsafe { Older::new(version, tid.epoch()) };
                self.state.supersede(group, version, guard);
            }
            Made::Replacement(_) => {
                let due = is_due(record, tid);
                let chained = keeps && due && !left_out(Step::KeepVersions) && !left_out(Step::KeepMoved);
                if chained {
                    target.set_previous(Some(record.address()));
                } else {
                    // As in `apply`.
                    target.set_previous(if due { None } else { record.previous() });
                }
                target.publish(tid, present);
                self.state.move_record(group, target, (tid, chained), guard);
            }
        }
        if !present {
            self.state.leave_tombstone(group, target, tid);
        }
    }
}

/// The memory that writing a record needs.
#[inline]
fn prepare_group(
    (writes, guard, worker): (&WriteSet, &OwnGuard<'_>, usize),
    group: Group,
    tid: Tid,
    keeps: bool,
) -> Result<Option<Made>, Error> {
    let (record, write) = (group.record.under(guard), writes.get(group.latest));
    let deleted = write.kind == Kind::Delete;
    let longest = if deleted { 0 } else { writes.longest_put(group.latest) };
    let fits = longest <= record.capacity();
    if !fits || longest > 0 && !group.own_record && is_too_roomy(record.capacity(), longest) {
        match Record::latched_empty(worker, longest, guard) {
            Ok(other) => return Ok(Some(Made::Replacement(other.into()))),
            Err(refused) if !fits => return Err(refused.into()),
            Err(_) => {}
        }
    }
    if group.own_record || !keeps || !is_due(record, tid) || left_out(Step::KeepVersions) {
        return Ok(None);
    }
    match record.copy_as_version(guard) {
        Ok(version) => Ok(Some(Made::Version(version.into()))),
        // At the memory limit deletions must go on: the row stays where it is as the older version, and a record
        // of a few words takes its place.
        Err(_) if deleted => {
            let empty = |guard: &Guard<'_>| Record::latched_empty(worker, 0, guard).map(Kept::from);
            Ok(Some(Made::Replacement(guard.with_reserve(empty)?)))
        }
        Err(refused) => Err(refused.into()),
    }
}

/// Writes what is to be written of a record, whose latch is held and which is marked, into its place. Whether it has a row then.
#[inline(always)]
fn write_record(
    (writes, order): (&WriteSet, &mut Vec<u32>),
    latest: u32,
    target: Record<'_>,
    was_present: bool,
) -> bool {
    let write = writes.get(latest);
    // What is deleted in the end need not be written first, and may have no room.
    if write.prior.is_none() || write.kind == Kind::Delete {
        return write_one(writes, write, target, was_present);
    }
    write_all((writes, order), latest, target, was_present)
}

#[cold]
fn write_all((writes, order): (&WriteSet, &mut Vec<u32>), latest: u32, target: Record<'_>, was_present: bool) -> bool {
    writes.chain(latest, order);
    order.iter().rev().fold(was_present, |present, &position| write_one(writes, writes.get(position), target, present))
}

#[inline(always)]
fn write_one(writes: &WriteSet, write: &Write, target: Record<'_>, was_present: bool) -> bool {
    match write.kind {
        Kind::Insert => true,
        Kind::Put => {
            let row = writes.words(write.data);
            target.write_words(0, row);
            target.set_length(row.len());
            true
        }
        Kind::Patch => {
            target.write_words(write.start as usize, writes.words(write.data));
            was_present
        }
        Kind::Delete => false,
    }
}

impl State {
    /// The record has no row from now on, and leaves its index in time.
    fn leave_tombstone(&mut self, group: Group, record: Record<'_>, tid: Tid) {
        let write = self.sets.writes.get(group.latest);
        self.reclaimer.push(Tombstone::new(write.index_ref, self.sets.writes.key_bytes(write), record, tid));
    }

    /// Has an older version freed once no snapshot sees it.
    #[inline]
    fn supersede(&mut self, group: Group, version: Older, guard: &Guard<'_>) {
        if self.pruner.is_active()
            && let Some((index_ref, key)) = self.superseded_key(group, version.under(guard))
        {
            self.pruner.push(Superseded { index_ref, key, version });
            return;
        }
        version.retire(guard);
    }

    /// The key whose record the older version belongs to.
    #[cold]
    fn superseded_key(&mut self, group: Group, version: Record<'_>) -> Option<(IndexRef, OwnedKey)> {
        let State { base: WorkerBase { tables, .. }, sets, buffers, .. } = self;
        let Sets { writes, order, .. } = &mut **sets;
        writes.chain(group.latest, order);
        let kept = order.iter().map(|&position| writes.get(position)).find(|write| write.kind != Kind::Patch);
        if let Some(write) = kept {
            return Some((write.index_ref, OwnedKey::new(writes.key_bytes(write))));
        }
        // Patches keep no key, but the row has it.
        let index_ref = writes.get(group.latest).index_ref;
        let length = version.length();
        polychron_sync::load_words(&version.words()[..length], buffers.old.overwrite_words(length));
        let mut scratch = KeyScratch::new();
        let key = store_at(tables, index_ref)?.extractor.extract(buffers.old.as_row(), &mut scratch).ok()?;
        Some((index_ref, OwnedKey::new(key)))
    }

    /// The index leads to the larger record from now on (§5, updates that do not fit).
    fn move_record(&mut self, group: Group, target: Record<'_>, (tid, chained): (Tid, bool), guard: &OwnGuard<'_>) {
        let record = group.record.under(guard);
        let Sets { writes, order, .. } = &mut *self.sets;
        writes.chain(group.latest, order);
        // A whole row, which had no room, or a deletion, which wanted none: both keep their key.
        let moves = |write: &Write| matches!(write.kind, Kind::Put | Kind::Delete);
        let write = order.iter().rev().map(|&position| *writes.get(position)).find(moves);
        let write = write.expect("patches fit where the row is");
        let table = catalog::known(&self.base.tables, write.index_ref.table);
        let store = table.and_then(|table| table.store(write.index_ref.index).ok());
        if let Some(store) = store {
            let key = self.sets.writes.key_bytes(&write);
            let replaced = store.index().replace(key, record.handle(), target.handle(), guard);
            debug_assert!(replaced, "the record was linked and latched");
        }
        record.move_away();
        if chained {
            // SAFETY: the index leads to the larger record, which leads here with this id.
            let version = unsafe { Older::new(record, tid.epoch()) };
            self.supersede(group, version, guard);
        } else {
            // SAFETY: the index has forgotten the record and no chain leads to it.
            unsafe { record.retire(guard) };
        }
    }
}

/// Whether the record as it is is of an epoch that has ended, or may end before this write's: snapshots may be to see it (§4.7).
#[inline]
fn is_due(record: Record<'_>, tid: Tid) -> bool {
    let old = record.tid();
    old != Tid::ZERO && old.epoch() < tid.epoch()
}
