//! The write phase of a commit (`commit.rs`): pending versions are installed, and become rows and deletions, or count for nothing.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use polychron_base::{Error, Reason};
use polychron_engine::mutations::{left_out, pass};
use polychron_engine::stores::{OwnedKey, WorkerBase};
use polychron_sync::Backoff;

use super::commit::store_in;
use super::garbage::{Entry, Garbage, Item};
use super::kept::{Kept, KeptInstalled};
use super::promotion::allocate;
use super::reads::Reading;
use super::record::{Installed, Link, NewVersion, Queued, Record, Status, Version};
use super::sets::{Fresh, Kind, Sets, Target, Write, WriteSet};
use super::steps::{Point, Step};
use super::timestamp::Timestamp;
use super::transaction::CicadaTransaction;
use super::worker::State;

/// A write that counts, on its way into the database.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) write: u32,
    /// How long ago, in timestamps, the record was written last.
    pub(super) age: i64,
    /// Where it was installed, as what.
    pub(super) installed: Option<KeptInstalled>,
}

/// What came of putting a version into a list.
enum Linked<'g> {
    Done(Installed<'g>),
    /// The record is closed.
    Closed(NewVersion<'g>),
    /// With the other one that has this timestamp.
    Conflict(NewVersion<'g>, Reason, Timestamp),
}

/// Whether the write is the insertion of a key that must have no row.
#[inline]
pub(super) fn refuses_rows(write: &Write) -> bool {
    write.target == Target::Key && !write.blind && !left_out(Step::RefuseInsertedFirst)
}

/// The words that a write puts there; none for a deletion.
#[inline]
fn row_of(writes: &WriteSet, position: u32) -> &[u64] {
    match writes.get(position).kind {
        Kind::Put => writes.row(position).as_words(),
        Kind::Delete => &[],
    }
}

impl CicadaTransaction<'_> {
    /// Step 1.
    pub(super) fn install_all(&mut self) -> Result<(), Error> {
        let (mut next, count) = (0, self.state.buffers.pending.len());
        loop {
            next = self.install_at_once(next)?;
            if next == count {
                return Ok(());
            }
            let write = self.state.sets.writes.get(self.state.buffers.pending[next].write);
            let is_new = write.target == Target::Key && !write.has_record;
            if !is_new || !self.install_new(next)? {
                self.install_by_search(next)?;
            }
            next += 1;
        }
    }

    /// Installs versions of rows that were read, from a write on, as long as each is the latest one still and nothing is in the way. Answers which
    /// write must be searched for.
    #[inline]
    fn install_at_once(&mut self, first: usize) -> Result<usize, Error> {
        let (guard, timestamp, inlines) = (&self.guard, self.guard.timestamp(), self.inlines());
        let (State { base, sets: Sets { reads, writes, .. }, buffers, is_short, .. }, reader) =
            (&mut *self.state, guard.reader());
        if self.shared.base.favour.other(base.slot).is_some() {
            return Ok(first);
        }
        for (position, pending) in buffers.pending.iter_mut().enumerate().skip(first) {
            let write = writes.get(pending.write);
            let (Target::Record(_), Some(on_read)) = (write.target, write.on_read) else { return Ok(position) };
            let Reading { record, version: Some(below), .. } = reads.get(on_read as usize, guard) else {
                return Ok(position);
            };
            if below.rts().is_after(timestamp) {
                return Ok(position);
            }
            let Some(above) = reader.position_above(record, below) else { return Ok(position) };
            let row = row_of(writes, pending.write);
            let version = allocate(guard, write, is_short, |of| record.new_version(timestamp, row, inlines, of))?;
            pass(Point::Linking);
            match above.install(version) {
                Ok(installed) => {
                    // The row that was read is looked for again right behind it.
                    reads.set_later(on_read as usize, Some(installed.version()), guard);
                    pending.installed = Some(guard.keep_installed(record, installed));
                }
                Err(version) => {
                    version.discard(guard);
                    return Ok(position);
                }
            }
        }
        Ok(buffers.pending.len())
    }

    /// Keeps what was installed. The row that was read below is looked for again right behind it.
    #[inline]
    fn note_installed(&mut self, position: usize, installed: KeptInstalled, on_read: Option<u32>) {
        if let Some(read) = on_read {
            let (_, version) = installed.parts(&self.guard);
            self.state.sets.reads.set_later(read as usize, Some(version), &self.guard);
        }
        self.state.buffers.pending[position].installed = Some(installed);
    }

    fn install_by_search(&mut self, position: usize) -> Result<(), Error> {
        let write = *self.state.sets.writes.get(self.state.buffers.pending[position].write);
        let mut backoff = Backoff::new();
        loop {
            let record = match write.target {
                Target::Record(record) => Some(record),
                Target::Key => self.record_of_key(&write)?,
            };
            let Some(kept) = record else {
                if self.install_new(position)? {
                    return Ok(());
                }
                continue;
            };
            if self.is_barred(kept) {
                return Err(self.conflict_at(kept, None, Reason::BeingWritten, (write.place, None)));
            }
            let record = kept.under(&self.guard);
            let version = self.make_version(record, position, &write)?;
            match self.link(record, version, &write) {
                Linked::Done(installed) => {
                    let installed = self.guard.keep_installed(record, installed);
                    self.note_installed(position, installed, write.on_read);
                    return Ok(());
                }
                // Its key is about to leave the index, or has left it.
                Linked::Closed(version) if write.target == Target::Key && !left_out(Step::ReplaceClosed) => {
                    version.discard(&self.guard);
                    backoff.wait();
                }
                // An earlier transaction has deleted since what was found there, and no reader still needed the record.
                Linked::Closed(version) => {
                    version.discard(&self.guard);
                    return Err(self.conflict(Reason::StaleRead, write.place, None));
                }
                Linked::Conflict(version, reason, other) => {
                    version.discard(&self.guard);
                    return Err(self.conflict_at(kept, Some(other), reason, (write.place, None)));
                }
            }
        }
    }

    fn record_of_key(&self, write: &Write) -> Result<Option<Kept>, Error> {
        let key = self.state.sets.writes.key(write);
        Ok(self.guard.find_anew(self.store(write.place)?, key))
    }

    /// Installs a version in a new record, and its key in the index. `false`: the key has a record by now.
    fn install_new(&mut self, position: usize) -> Result<bool, Error> {
        let inlines = self.inlines();
        let (State { base, sets: Sets { writes, nodes, .. }, buffers, is_short, .. }, guard) =
            (&mut *self.state, &self.guard);
        let WorkerBase { fingers, tables, slot, .. } = base;
        let pending = &mut buffers.pending[position];
        let (write, row) = (writes.get(pending.write), row_of(writes, pending.write));
        let (slot, store) = (*slot, store_in(tables, write.place)?);
        let record = store.records.take(slot, guard).map_err(Error::from)?;
        let made = allocate(guard, write, is_short, |of| record.version(guard.timestamp(), row, inlines, of));
        let version = match made.map(|version| version.install_first().keep()) {
            Ok(version) => version,
            Err(error) => {
                record.give_back(slot, guard);
                return Err(error);
            }
        };
        pending.installed = match writes.short_key(write) {
            Some(key) => guard.insert(fingers, store, (key, record, version), nodes),
            None => guard.insert(fingers, store, (writes.key(write), record, version), nodes),
        }?;
        Ok(pending.installed.is_some())
    }

    /// Whether versions may lie in heads.
    #[inline]
    pub(super) fn inlines(&self) -> bool {
        self.shared.options.parts().inlining
    }

    /// A version for a write: the head's if it is free and large enough, else one of its own (§3.3).
    #[inline]
    fn make_version<'g>(&'g self, record: Record<'g>, position: usize, write: &Write) -> Result<NewVersion<'g>, Error> {
        let State { sets, buffers, is_short, .. } = &*self.state;
        let (row, timestamp) = (row_of(&sets.writes, buffers.pending[position].write), self.timestamp());
        let inlines = self.inlines();
        allocate(&self.guard, write, is_short, |of| record.new_version(timestamp, row, inlines, of))
    }

    /// Puts a version into a list by its timestamp, unless it is plain already that it would not pass.
    fn link<'g>(&'g self, record: Record<'g>, version: NewVersion<'g>, write: &Write) -> Linked<'g> {
        let (reader, options) = (self.guard.reader(), &self.shared.options);
        let latest_only = options.parts().write_latest_only && !write.blind && write.target != Target::Key;
        let mut version = version;
        loop {
            let position = reader.position(record, |later| match latest_only && later.status() != Status::Aborted {
                true => ControlFlow::Break(later.wts()),
                false => ControlFlow::Continue(()),
            });
            let position = match position {
                ControlFlow::Break(later) => return Linked::Conflict(version, Reason::WrittenLater, later),
                ControlFlow::Continue(None) => return Linked::Closed(version),
                ControlFlow::Continue(Some(position)) => position,
            };
            if let Some((reason, other)) = position.below().and_then(|below| self.refuse_early(below, write)) {
                return Linked::Conflict(version, reason, other);
            }
            pass(Point::Linking);
            version = match position.install(version) {
                Ok(installed) => return Linked::Done(installed),
                Err(version) => version,
            };
            if record.is_sealed() {
                return Linked::Closed(version);
            }
        }
    }

    /// Why a version cannot be installed above `below`, as far as one look tells.
    #[inline]
    fn refuse_early(&self, below: Version<'_>, write: &Write) -> Option<(Reason, Timestamp)> {
        match below.status() {
            Status::Committed if refuses_rows(write) => Some((Reason::InsertedFirst, below.wts())),
            Status::Committed | Status::Deleted => {
                Some((Reason::ReadLater, below.rts())).filter(|(_, rts)| rts.is_after(self.timestamp()))
            }
            _ => None,
        }
    }

    /// Step 4: from here on the versions are visible, and those below them are garbage soon.
    pub(super) fn commit_installed(&mut self) {
        self.state.pay_for_writes(self.state.buffers.pending.len());
        let State { base, buffers, sets, garbage, .. } = &mut *self.state;
        let (guard, wts) = (&self.guard, self.guard.timestamp());
        for Pending { write, installed, .. } in &mut buffers.pending {
            let Some(kept) = installed.take() else { continue };
            let write = sets.writes.get(*write);
            let (record, installed) = kept.under(guard);
            let version = installed.version();
            if write.kind == Kind::Delete {
                installed.delete();
                pass(Point::Ended);
                queue(garbage, (record, wts), write, Queued::Leaving, || match store_in(&base.tables, write.place) {
                    Ok(store) if store.versioned.is_some() => Entry::Unlinked,
                    _ => Entry::Key(OwnedKey::new(sets.writes.key(write))),
                });
            } else {
                installed.commit();
                pass(Point::Ended);
                if version.has_older() {
                    queue(garbage, (record, wts), write, Queued::Versions, || Entry::Stays);
                }
            }
        }
        buffers.pending.clear();
    }

    /// Gives back the records that were taken and of which nobody came to know: all of them, or those that were not written in
    /// the end. The transaction still holds its timestamp.
    #[cold]
    pub(super) fn free_fresh(&mut self) {
        let slot = self.state.base.slot;
        let State { base, sets, .. } = &mut *self.state;
        for Fresh { record, place, is_node } in sets.fresh.drain(..) {
            let Ok(store) = store_in(&base.tables, place) else { continue };
            let at = record.under(&self.guard);
            match self.guard.reader().latest(at) {
                Link::To(_) if self.committed => {}
                // The node that names it was not committed, so nobody but collectors comes here.
                Link::To(_) => {
                    // SAFETY: it was taken from that store.
                    let item = unsafe { Item::new(place, is_node, at) };
                    let mut reclaimer = self.shared.bins.of(slot).wait();
                    let latched = at.latch();
                    let closed = latched.close_aborted();
                    debug_assert!(closed.is_some(), "nobody else writes the record");
                    if let Some(closed) = closed {
                        reclaimer.defer_record(closed, item, &self.guard);
                    }
                }
                Link::End | Link::Closed => store.records_of(is_node).give_unwritten(record, slot, &self.guard),
            }
        }
    }

    /// What was installed counts for nothing. It is unlinked once nobody can still hold it.
    #[cold]
    pub(super) fn abort_installed(&mut self) {
        self.look_after_shortage();
        self.state.pay_for_writes(self.state.buffers.pending.len());
        let State { buffers, sets, garbage, .. } = &mut *self.state;
        let (guard, wts) = (&self.guard, self.guard.timestamp());
        for Pending { write, installed, .. } in &mut buffers.pending {
            let Some(kept) = installed.take() else { continue };
            let write = sets.writes.get(*write);
            let (record, installed) = kept.under(guard);
            installed.abort();
            match write.target {
                // It is given back as a whole.
                _ if write.is_fresh => {}
                Target::Record(_) => queue(garbage, (record, wts), write, Queued::Versions, || Entry::Stays),
                Target::Key => queue(garbage, (record, wts), write, Queued::Leaving, || {
                    Entry::Key(OwnedKey::new(sets.writes.key(write)))
                }),
            }
        }
        buffers.pending.clear();
    }
}

/// Queues a record that was written for collection, unless it is queued. The version that was written has ended.
#[inline]
fn queue(
    garbage: &mut VecDeque<Garbage>,
    (record, wts): (Record<'_>, Timestamp),
    write: &Write,
    kind: Queued,
    entry: impl FnOnce() -> Entry,
) {
    if record.marks().note_queued(kind) {
        // SAFETY: the record lies in the store in which it was found or made for the write.
        let item = unsafe { Item::new(write.place, write.is_node, record) };
        garbage.push_back(Garbage { item, wts, entry: entry() });
    }
}
