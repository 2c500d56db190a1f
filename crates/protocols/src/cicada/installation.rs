//! The write phase of a commit (`commit.rs`): pending versions are installed, and become rows and deletions, or count for nothing.

use polychron_base::{Error, Reason};
use polychron_engine::mutations::{left_out, pass};
use polychron_engine::redo::Redo;
use polychron_engine::stores::{OwnedKey, WorkerBase};
use polychron_index::Inserted;
use polychron_sync::Backoff;

use super::kept::{Kept, KeptVersion};
use super::marks::Queued;
use super::reclaim::{Entry, Garbage, Item};
use super::record::{Link, NewVersion, Record, Status, Version};
use super::sets::{Fresh, Kind, Target, Write};
use super::steps::{Point, Step};
use super::timestamp::Timestamp;
use super::transaction::CicadaTransaction;
use super::worker::State;

/// A write that counts, on its way into the database.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) write: u32,
    /// How long ago, in timestamps, the record was written last.
    pub(super) age: i64,
    /// Where it was installed, as what.
    pub(super) installed: Option<(Kept, KeptVersion)>,
}

/// What came of putting a version into a list.
enum Linked<'g> {
    Done(Version<'g>),
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

/// What is collected of a record that was written.
#[inline]
fn item(write: &Write, record: Record<'_>) -> Item {
    // SAFETY: the record lies in the store in which it was found or made for the write.
    unsafe { Item::new(write.place, record) }
}

impl<R: Redo> CicadaTransaction<'_, R> {
    /// Step 1 for one write.
    pub(super) fn install(&mut self, position: usize) -> Result<(), Error> {
        let write = *self.state.sets.writes.get(self.state.buffers.pending[position].write);
        let (mut backoff, mut has_record) = (Backoff::new(), write.has_record);
        loop {
            let record = match write.target {
                Target::Record(record) => Some(record),
                Target::Key if has_record => self.record_of_key(&write)?,
                Target::Key => None,
            };
            let Some(kept) = record else {
                if self.install_new(position, &write)? {
                    return Ok(());
                }
                has_record = true;
                continue;
            };
            if self.is_barred(kept) {
                return Err(self.conflict_at(kept, None, Reason::BeingWritten, (write.place, None)));
            }
            let record = kept.under(&self.guard);
            let version = self.make_version(record, position, &write)?;
            match self.link(record, version, &write) {
                Linked::Done(version) => {
                    self.state.buffers.pending[position].installed = Some((kept, version.into()));
                    return Ok(());
                }
                // Its key is about to leave the index, or has left it.
                Linked::Closed(version) if write.target == Target::Key && !left_out(Step::ReplaceClosed) => {
                    version.discard(&self.guard);
                    backoff.wait();
                }
                // An earlier transaction has deleted since what was found there, and no reader needed the record any more.
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
    fn install_new(&mut self, position: usize, write: &Write) -> Result<bool, Error> {
        let (slot, store) = (self.state.base.slot, self.kept_store(write.place)?);
        let record = store.records.take(slot, &self.guard).map_err(Error::from)?;
        let version = match self.make_version(record, position, write) {
            Ok(version) => version,
            Err(error) => {
                // SAFETY: nobody has seen the record.
                unsafe { store.records.give(record, slot) };
                return Err(error);
            }
        };
        let version = record.install_first(version);
        let (kept, kept_version) = (Kept::from(record), KeptVersion::from(version));
        let State { base: WorkerBase { fingers, .. }, sets, buffers, .. } = &mut *self.state;
        let (key, nodes) = (sets.writes.key(write), &mut sets.nodes);
        let inserted = self.guard.insert(fingers, store, (key, record), nodes);
        if matches!(inserted, Ok(Inserted::New)) {
            buffers.pending[position].installed = Some((kept, kept_version));
            return Ok(true);
        }
        // SAFETY: the index did not take the record, so no transaction has seen it.
        unsafe {
            // A collector with an outdated item for whatever lay there before may be looking.
            if let Some(closed) = record.latch().close(Some(kept_version.under(&self.guard))) {
                closed.retire(&self.guard);
            }
            store.records.give(record, slot);
        }
        inserted.map_err(Error::from)?;
        Ok(false)
    }

    /// A version for a write: the head's if it is free and large enough, else one of its own (§3.3).
    #[inline]
    fn make_version<'g>(&'g self, record: Record<'g>, position: usize, write: &Write) -> Result<NewVersion<'g>, Error> {
        let row: &[u64] = match write.kind {
            Kind::Put => self.state.sets.writes.row(self.state.buffers.pending[position].write).as_words(),
            Kind::Delete => &[],
        };
        let reader = self.guard.reader();
        let fits = self.shared.options.parts().inlining
            && self.store(write.place)?.records_of(write.is_node).inline_words() >= row.len();
        // SAFETY: the record lies in the array of what the write is done to, whose heads have room for the row.
        let inline = if fits { unsafe { record.claim_version(reader, row) } } else { None };
        match inline {
            Some(version) => Ok(version),
            // At the memory limit deletions go on, with the nodes of multi-version indexes that they change.
            None if write.makes_room => self.allocate_for_deletion(row),
            None => Ok(NewVersion::allocate(reader, row, &self.guard)?),
        }
    }

    /// Puts a version into a list by its timestamp, unless it is plain already that it would not pass.
    fn link<'g>(&'g self, record: Record<'g>, version: NewVersion<'g>, write: &Write) -> Linked<'g> {
        let (reader, options) = (self.guard.reader(), &self.shared.options);
        let timestamp = reader.timestamp();
        let latest_only = options.parts().write_latest_only && !write.blind && write.target != Target::Key;
        let mut version = version;
        loop {
            let mut walk = reader.walk(record);
            let below = loop {
                match walk.link() {
                    Link::To(other) if other.wts().is_after(timestamp) && !left_out(Step::InstallInOrder) => {
                        if latest_only && other.status() != Status::Aborted {
                            return Linked::Conflict(version, Reason::WrittenLater, other.wts());
                        }
                        walk.pass(other);
                    }
                    Link::To(other) => break Some(other),
                    Link::End => break None,
                    Link::Closed => return Linked::Closed(version),
                }
            };
            if let Some((reason, other)) = below.and_then(|below| self.refuse_early(below, write)) {
                return Linked::Conflict(version, reason, other);
            }
            pass(Point::Linking);
            version = match walk.install(below, version) {
                Ok(installed) => {
                    if left_out(Step::InstallPending) {
                        // SAFETY: it is this transaction's.
                        unsafe { installed.end(Status::Committed) };
                    }
                    return Linked::Done(installed);
                }
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
        let wts = self.timestamp();
        for pending in &self.state.buffers.pending {
            let Some((record, version)) = pending.installed else { continue };
            let (record, version) = (record.under(&self.guard), version.under(&self.guard));
            let write = self.state.sets.writes.get(pending.write);
            let deleted = write.kind == Kind::Delete;
            // SAFETY: this transaction has installed it, and it is pending.
            unsafe { version.end(if deleted { Status::Deleted } else { Status::Committed }) };
            pass(Point::Ended);
            let kind = if deleted { Queued::Leaving } else { Queued::Versions };
            if (deleted || version.has_older()) && record.marks().note_queued(kind) {
                let entry = if deleted { self.entry_of_deleted(write) } else { Entry::Stays };
                self.state.garbage.push_back(Garbage { item: item(write, record), wts, entry });
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
    /// the end. The transaction still holds its timestamp.
    #[cold]
    pub(super) fn free_fresh(&mut self) {
        let slot = self.state.base.slot;
        for position in 0..self.state.sets.fresh.len() {
            let Fresh { record, place, is_node } = self.state.sets.fresh[position];
            let Ok(store) = self.kept_store(place) else { continue };
            let record = record.under(&self.guard);
            match self.guard.reader().latest(record) {
                Link::To(_) if self.committed => {}
                // The node that names it was not committed, so nobody but collectors comes here.
                Link::To(version) => {
                    let mut reclaimer = self.shared.bins.of(slot).wait();
                    let latched = record.latch();
                    // SAFETY: the version is the only one, and was aborted; nobody else writes the record, which lies in this store.
                    let (closed, item) = unsafe { (latched.close(Some(version)), Item::new(place, record)) };
                    debug_assert!(closed.is_some(), "nobody else writes the record");
                    if let Some(closed) = closed {
                        reclaimer.defer_record(closed, item, is_node, &self.guard);
                    }
                }
                // SAFETY: the record was never written, so no transaction has seen it.
                _ => unsafe { store.records_of(is_node).give(record, slot) },
            }
        }
    }

    /// What was installed counts for nothing. It is unlinked when nobody can stand on it any more.
    #[cold]
    pub(super) fn abort_installed(&mut self) {
        self.look_after_shortage();
        let wts = self.timestamp();
        for pending in &self.state.buffers.pending {
            let Some((record, version)) = pending.installed else { continue };
            let (record, version) = (record.under(&self.guard), version.under(&self.guard));
            // SAFETY: this transaction has installed it, and it is pending.
            unsafe { version.end(Status::Aborted) };
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
                self.state.garbage.push_back(Garbage { item: item(write, record), wts, entry });
            }
        }
        self.state.buffers.pending.clear();
    }
}
