//! Garbage collection by timestamps (§3.8), and deleted keys leave the indexes.
//!
//! A record of which a version is committed before another one, deleted or aborted is queued, unless it is queued already. When nobody
//! can look behind the timestamp of the item any more (`min_rts`), the record is collected, by one thread at a time:
//!
//! * What lies behind the latest version of that moment is cut off and serves again **at once**. All who run began when that
//!   version was settled, so they stop there and cannot even hold what lies behind.
//! * Aborted versions of that moment and before are taken out. Readers may stand on them, so their memory waits for the epochs.
//! * A record that is deleted since then, and nothing newer, is closed: nobody installs a version any more. Then its key leaves the
//!   index, and when the epochs say that nobody holds the record, its place serves another key.
//!
//! A record that has later versions by then is queued again, for the latest of them: when their time has come, all those before it are cut off
//! at once. So a version is passed by at most twice before it is collected, however many there are.
//!
//! Only versions before `min_rts` are touched, and every version that is still to be installed is later than `min_wts`; so
//! a change here never meets an installation, except at the one link above, where one of the two compare-and-swaps fails.

use std::collections::VecDeque;

use polychron_base::key::EncodedKey;
use polychron_base::room::KeptList;
use polychron_engine::catalog::{self, TableList};
use polychron_engine::mutations::left_out;
use polychron_engine::stores::{IndexRef, OwnedKey};
use polychron_memory::Guard;
use polychron_sync::atomic::{Ordering, fence};

use super::clocks::Clocks;
use super::marks::Queued;
use super::record::{Link, Record, Status, Version};
use super::steps::Step;
use super::table::{CicadaTable, Store};
use super::timestamp::Timestamp;

/// Items that wait for the oldest reader and are looked at in vain, in one go.
const LOOKED_AT_IN_VAIN: usize = 32;
/// Versions of one record that are freed in one go: more would keep a client, or what it holds, for long.
pub(super) const SLICE: u64 = 2048;
/// Items whose marks are taken away behind one barrier.
const MARKS_AT_ONCE: usize = 16;

/// A record that has garbage.
#[derive(Debug)]
pub(super) struct Garbage {
    pub(super) place: IndexRef,
    pub(super) record: Record,
    /// What lies behind a version of this moment is garbage.
    pub(super) wts: Timestamp,
    /// What the index has to do with it.
    pub(super) entry: Entry,
}

/// What an index has to do with garbage of a record.
#[derive(Debug)]
pub(super) enum Entry {
    /// Nothing: the record stays.
    Stays,
    /// The record may have to leave the index, where it stands under this key.
    Key(OwnedKey),
    /// The deletion that made the garbage has unlinked the record, a row's or a node's of a multi-version index.
    Unlinked { is_node: bool },
}

impl Entry {
    /// What the record's mark says of an item with this entry.
    #[inline]
    pub(super) fn kind(&self) -> Queued {
        if matches!(self, Self::Stays) { Queued::Versions } else { Queued::Leaving }
    }
}

/// What waits until no guard is left that could hold it.
#[derive(Debug)]
pub(super) struct DeferredFree {
    pub(super) place: IndexRef,
    pub(super) record: Record,
    /// The whole record, or only the version in its head.
    pub(super) whole: bool,
    pub(super) is_node: bool,
    /// The epoch behind the barrier that came after the unlinking.
    pub(super) epoch: Option<u64>,
}

/// Garbage whose record was pruned: what is left of it somebody sees.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) garbage: Garbage,
    /// The moment of the latest one who sees it and has read for long.
    pub(super) by: Timestamp,
}

/// A record whose versions are freed in slices, because there are many. Nobody else frees any of it meanwhile (`Marks::is_sliced`), so the record
/// and the version above them stay.
#[derive(Debug)]
struct Sliced {
    place: IndexRef,
    record: Record,
    /// The latest version that is settled for everybody. What lies below nobody looks at.
    bottom: Version,
}

/// One worker's queues.
#[derive(Debug, Default)]
pub(super) struct Reclaimer {
    pub(super) garbage: VecDeque<Garbage>,
    /// Garbage whose records were pruned: what is left waits for those who see it.
    pub(super) held: VecDeque<Waiting>,
    /// The horizon up to which `held` was looked through, and how many are still to be looked at.
    held_until: Timestamp,
    pub(super) held_left: usize,
    /// Records of which many versions are freed.
    sliced: VecDeque<Sliced>,
    deferred_frees: VecDeque<DeferredFree>,
    /// Whether there are deferred frees without an epoch.
    fresh_deferred_frees: bool,
    pub(super) collected: Collected,
}

/// What was collected, and how far the horizon had passed it by then, as timestamps' distances.
#[derive(Debug, Default)]
pub(super) struct Collected {
    records: u64,
    /// Versions that were collected, and those that were looked at for it.
    pub(super) versions: u64,
    pub(super) steps: u64,
    waited: u128,
    longest: u64,
}

/// Where collecting works.
#[derive(Clone, Copy)]
pub(super) struct Site<'s> {
    pub(super) tables: &'s TableList<CicadaTable>,
    pub(super) min_rts: Timestamp,
    pub(super) worker: usize,
    pub(super) guard: &'s Guard<'s>,
}

impl<'s> Site<'s> {
    /// Whether nobody looks behind this moment any more.
    #[inline]
    fn is_past(&self, moment: Timestamp) -> bool {
        !moment.is_after(self.min_rts) || left_out(Step::CollectSuperseded)
    }

    /// Whether the list of tables is older than a store that it does not have. Otherwise that was dropped.
    #[cold]
    pub(super) fn comes_later(&self, place: IndexRef) -> bool {
        match catalog::known(self.tables, place.table) {
            Some(table) => table.is_older_than(place.index),
            None => self.tables.is_older_than(place.table),
        }
    }

    /// A dropped table or index gives its records back as a whole: without it they are not looked at.
    #[inline]
    pub(super) fn store(&self, place: IndexRef) -> Option<&'s Store> {
        let table = catalog::known(self.tables, place.table)?;
        table.store(place.index).ok().map(|store| &**store)
    }
}

/// What came of collecting a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    /// Somebody else collects there just now, or holds the head's version.
    Later,
    /// There are later versions: it is queued for the latest of them.
    For(Timestamp),
    /// The store is younger than the list of tables; nothing of the record was touched.
    Unknown,
}

/// A record that is collected, and of which kind the item was if it has waited for the oldest reader.
#[derive(Clone, Copy)]
struct Work<'s> {
    record: Record,
    store: &'s Store,
    waited: Option<Queued>,
}

/// Whether a record leaves its index when it is found to be deleted, and how.
#[derive(Clone, Copy, Debug)]
enum Leaving<K> {
    No,
    /// By this key.
    Key(K),
    /// It has left already.
    Unlinked {
        is_node: bool,
    },
}

impl Reclaimer {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.garbage.is_empty() && self.held.is_empty() && self.deferred_frees.is_empty() && self.sliced.is_empty()
    }

    /// Tells the counts of a worker what was collected since the last time, and how long that had waited.
    pub(super) fn tell(&mut self, clocks: &Clocks, worker: usize) {
        let Collected { records, versions, steps, waited, longest } = std::mem::take(&mut self.collected);
        clocks.counts(worker).collected_versions.add(versions);
        clocks.counts(worker).collection_steps.add(steps);
        if records > 0 {
            // They are counted from the horizon on; the clocks are ahead of that.
            let lag = clocks.lag();
            let waited = clocks.shape.in_clock(waited) + records * lag;
            clocks.counts(worker).lag.note_many(records, waited, clocks.shape.in_clock(longest.into()) + lag);
        }
    }

    /// Collects up to `limit` records whose time has come, and what has waited for the epochs. Answers how many.
    #[inline]
    pub(super) fn step(&mut self, limit: usize, site: &Site<'_>) -> usize {
        if self.is_empty() {
            return 0;
        }
        self.free_slice(site);
        let mut again = Vec::new();
        let (mut done, mut marked) = (0, 0);
        while done < limit {
            let held = if marked == 0 { self.next_held(site) } else { None };
            let waited = held.is_some();
            if !waited && marked == 0 {
                marked = self.take_marks(limit - done, site);
            }
            let by = held.as_ref().map_or(Timestamp::default(), |held| held.by);
            let next = held.map(|held| held.garbage).or_else(|| self.garbage.pop_front_if(|_| marked > 0));
            let Some(garbage) = next else { break };
            marked -= usize::from(!waited);
            done += 1;
            let (record, kind) = (garbage.record, garbage.entry.kind());
            match self.collect(&garbage, waited, site) {
                Outcome::Later | Outcome::Unknown if waited => self.held.push_back(Waiting { garbage, by }),
                Outcome::Unknown => again.push(garbage),
                Outcome::Later if record.marks().note_queued(kind) => again.push(garbage),
                Outcome::For(wts) if record.marks().note_queued(kind) => {
                    self.garbage.push_back(Garbage { wts, ..garbage })
                }
                // There is another item of the record.
                Outcome::Later => {}
                Outcome::Done | Outcome::For(_) => {
                    let waited = site.min_rts.0.wrapping_sub(garbage.wts.0);
                    self.collected.records += 1;
                    self.collected.waited += u128::from(waited);
                    self.collected.longest = self.collected.longest.max(waited);
                }
            }
        }
        debug_assert_eq!(marked, 0, "what lost its mark is looked at");
        self.garbage.extend(again);
        if !self.deferred_frees.is_empty() {
            self.free_deferred(site);
        }
        self.give_back_room();
        done
    }

    /// Gives back the room of a backlog that is gone.
    pub(super) fn give_back_room(&mut self) {
        let Self { garbage, held, sliced, deferred_frees, .. } = self;
        garbage.give_back_room();
        held.give_back_room();
        sliced.give_back_room();
        deferred_frees.give_back_room();
    }

    /// Entries that the list has room for which has room for most.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        let Self { garbage, held, sliced, deferred_frees, .. } = self;
        garbage.room().max(held.room()).max(sliced.room()).max(deferred_frees.room())
    }

    /// Takes away the marks of the next items whose time has come, up to `limit` and a few at a time, behind one barrier for all of them.
    /// Answers how many: they must be collected, or be marked again.
    fn take_marks(&mut self, limit: usize, site: &Site<'_>) -> usize {
        let due = self.garbage.iter().take(limit.min(MARKS_AT_ONCE)).take_while(|garbage| site.is_past(garbage.wts));
        let clear = |garbage: &Garbage| {
            // Where the store has gone, so has the record.
            if site.store(garbage.place).is_some() {
                garbage.record.marks().clear_queued(garbage.entry.kind());
            }
        };
        let marked = due.map(clear).count();
        if marked > 0 {
            // SeqCst: the barrier between the marks and the looks at the lists; pairs with the load in `note_queued`.
            fence(Ordering::SeqCst);
        }
        marked
    }

    /// Takes an item that has waited for the oldest reader, if its time has come. They are in no order, so all are looked at when the horizon has
    /// moved, a few at a time.
    fn next_held(&mut self, site: &Site<'_>) -> Option<Waiting> {
        if self.held_left == 0 {
            if self.held_until == site.min_rts {
                return None;
            }
            (self.held_until, self.held_left) = (site.min_rts, self.held.len());
        }
        for _ in 0..LOOKED_AT_IN_VAIN.min(self.held_left) {
            self.held_left -= 1;
            let held = self.held.pop_front()?;
            if site.is_past(held.garbage.wts) {
                return Some(held);
            }
            self.held.push_back(held);
        }
        None
    }

    /// Works off all that is there, as far as readers allow.
    pub(super) fn drain(&mut self, site: &Site<'_>) {
        (self.held_until, self.held_left) = (site.min_rts, self.held.len());
        loop {
            self.step(self.garbage.len() + self.held.len(), site);
            if self.held_left == 0 && self.sliced.is_empty() {
                return;
            }
        }
    }

    /// `waited`: whether the item has waited for the oldest reader.
    fn collect(&mut self, garbage: &Garbage, waited: bool, site: &Site<'_>) -> Outcome {
        let Some(store) = site.store(garbage.place) else {
            return if site.comes_later(garbage.place) { Outcome::Unknown } else { Outcome::Done };
        };
        let (record, kind) = (garbage.record, garbage.entry.kind());
        let work = Work { record, store, waited: waited.then_some(kind) };
        match &garbage.entry {
            Entry::Stays => self.collect_latched(work, site, Leaving::No::<&[u8]>),
            Entry::Unlinked { is_node } => {
                self.collect_latched(work, site, Leaving::Unlinked::<&[u8]> { is_node: *is_node })
            }
            Entry::Key(OwnedKey::Short(key)) => self.collect_key(work, site, *key),
            Entry::Key(OwnedKey::Long(key)) => self.collect_key(work, site, &**key),
        }
    }

    /// Collects a record that stays, and waits for whoever does just now.
    pub(super) fn collect_in_place(&mut self, record: Record, store: &Store, site: &Site<'_>) {
        self.collect_behind_others(record, store, site, Leaving::No::<&[u8]>);
    }

    /// The same with a record that a key of the index leads to, queued or not.
    pub(super) fn collect_now<K: EncodedKey>(&mut self, record: Record, store: &Store, site: &Site<'_>, key: K) {
        if store.leads_to(key, record, site.guard) {
            self.collect_behind_others(record, store, site, Leaving::Key(key));
        }
    }

    fn collect_behind_others<K: EncodedKey>(
        &mut self,
        record: Record,
        store: &Store,
        site: &Site<'_>,
        leaving: Leaving<K>,
    ) {
        record.marks().latch();
        // What stays now is renewed as soon as it is old, and what is queued stays queued.
        let _ = self.clean(record, store, site, leaving);
        record.marks().unlatch();
    }

    fn collect_key<K: EncodedKey>(&mut self, work: Work<'_>, site: &Site<'_>, key: K) -> Outcome {
        if !work.store.leads_to(key, work.record, site.guard) {
            return Outcome::Done;
        }
        self.collect_latched(work, site, Leaving::Key(key))
    }

    fn collect_latched<K: EncodedKey>(&mut self, work: Work<'_>, site: &Site<'_>, leaving: Leaving<K>) -> Outcome {
        let Work { record, store, waited } = work;
        if !record.marks().try_latch() {
            return Outcome::Later;
        }
        if let Some(kind) = waited {
            record.marks().clear_waiting(kind);
        }
        let outcome = self.clean(record, store, site, leaving);
        if let (Outcome::Later, Some(kind)) = (outcome, waited) {
            record.marks().note_waiting(kind);
        }
        record.marks().unlatch();
        outcome
    }

    /// Collects a record; the caller has its latch.
    fn clean<K: EncodedKey>(&mut self, record: Record, store: &Store, site: &Site<'_>, leaving: Leaving<K>) -> Outcome {
        if record.marks().is_sliced() {
            return Outcome::Later;
        }
        let (mut place, mut newer) = (record.latest(), Newer::default());
        let bottom = loop {
            let version = match place.link() {
                Link::Closed => return Outcome::Done,
                Link::End => break None,
                Link::To(version) => version,
            };
            self.collected.steps += 1;
            let status = version.status();
            if !site.is_past(version.wts()) {
                newer.count += 1;
                newer.latest.get_or_insert((version.wts(), status));
                place = version.next();
                continue;
            }
            match status {
                Status::Aborted if place.take_out(version) => {
                    self.collected.versions += 1;
                    self.defer_version(record, version, store, site);
                }
                // Something was installed above it just now.
                Status::Aborted => (place, newer) = (record.latest(), Newer::default()),
                _ => break Some(version),
            }
        };
        if let Some(version) = bottom
            && !self.free_below(record, version, store.place(), site)
        {
            return Outcome::Later;
        }
        if let Some((latest, status)) = newer.latest {
            let is_all = bottom.is_none() && newer.count == 1 && status == Status::Committed;
            return if is_all { Outcome::Done } else { Outcome::For(latest) };
        }
        let is_deleted = bottom.is_none_or(|version| version.status() == Status::Deleted);
        if matches!(leaving, Leaving::No) || !is_deleted && !left_out(Step::CloseOnlyDeleted) {
            return Outcome::Done;
        }
        if record.inline_status() == Status::Retired {
            return Outcome::Later;
        }
        if !left_out(Step::CloseRecords) && !record.latest().close(bottom) {
            return Outcome::Later;
        }
        let is_node = match leaving {
            Leaving::Key(key) => {
                store.take_out(key, record, site.guard);
                false
            }
            Leaving::Unlinked { is_node } => is_node,
            Leaving::No => false,
        };
        match bottom {
            Some(version) => self.defer_record(record, version, store, is_node, site.guard),
            None => self.defer(DeferredFree { place: store.place(), record, whole: true, is_node, epoch: None }),
        }
        Outcome::Done
    }

    /// Frees what lies below the latest version that is settled for everybody, a slice of it now where that is much. `false`: there is more.
    /// The caller has the record's latch.
    pub(super) fn free_below(&mut self, record: Record, bottom: Version, place: IndexRef, site: &Site<'_>) -> bool {
        let (freed, is_all) = free_below(record, bottom, SLICE, site.guard);
        self.collected.versions += freed;
        self.collected.steps += freed;
        if !is_all {
            record.marks().set_sliced(true);
            self.sliced.push_back(Sliced { place, record, bottom });
        }
        is_all
    }

    /// Frees the next slice of the first record that has many.
    fn free_slice(&mut self, site: &Site<'_>) {
        let Some(&Sliced { place, record, bottom }) = self.sliced.front() else { return };
        if site.store(place).is_none() && !site.comes_later(place) {
            // Where the store has gone, so has all of the record.
            self.sliced.pop_front();
            return;
        }
        if !record.marks().try_latch() {
            return;
        }
        let (freed, is_all) = free_below(record, bottom, SLICE, site.guard);
        self.collected.versions += freed;
        self.collected.steps += freed;
        record.marks().set_sliced(!is_all);
        record.marks().unlatch();
        if is_all {
            self.sliced.pop_front();
        }
    }

    /// A record was closed above its latest version, and nobody finds it any more; somebody may still hold it, or stand on a
    /// version.
    pub(super) fn defer_record(
        &mut self,
        record: Record,
        latest: Version,
        store: &Store,
        is_node: bool,
        guard: &Guard<'_>,
    ) {
        let mut link = Link::To(latest);
        while let Link::To(version) = link {
            link = version.next().link();
            if !record.is_inline(version) {
                let (memory, bytes) = version.memory();
                // SAFETY: the record is closed, so nobody who pins from now on finds the version.
                unsafe { guard.retire(memory, bytes) };
            }
        }
        self.defer(DeferredFree { place: store.place(), record, whole: true, is_node, epoch: None });
    }

    /// An aborted version was taken out; somebody may still stand on it.
    pub(super) fn defer_version(&mut self, record: Record, version: Version, store: &Store, site: &Site<'_>) {
        if record.is_inline(version) {
            version.end(Status::Retired);
            self.defer(DeferredFree { place: store.place(), record, whole: false, is_node: false, epoch: None });
        } else {
            let (memory, bytes) = version.memory();
            // SAFETY: the version was taken out of the list, so nobody who pins from now on finds it.
            unsafe { site.guard.retire(memory, bytes) };
        }
    }

    pub(super) fn defer(&mut self, deferred_free: DeferredFree) {
        self.deferred_frees.push_back(deferred_free);
        self.fresh_deferred_frees = true;
    }

    /// Gives back what no guard can hold any more (`docs/memory.md`, claim 4).
    pub(super) fn free_deferred(&mut self, site: &Site<'_>) {
        let epochs = site.guard.epochs();
        if std::mem::take(&mut self.fresh_deferred_frees) {
            // SeqCst: the barrier between the unlinking and the look at the epoch; pairs with that of every pin.
            fence(Ordering::SeqCst);
            let epoch = epochs.current();
            // Those without an epoch are the last ones, and few, however many wait before them.
            let fresh = self.deferred_frees.iter_mut().rev().take_while(|deferred_free| deferred_free.epoch.is_none());
            for deferred_free in fresh {
                deferred_free.epoch = Some(epoch);
                self.collected.steps += 1;
            }
        }
        let readonly = epochs.readonly();
        while let Some(deferred_free) =
            self.deferred_frees.pop_front_if(|deferred_free| deferred_free.epoch.is_some_and(|epoch| epoch <= readonly))
        {
            let Some(store) = site.store(deferred_free.place) else { continue };
            if deferred_free.whole {
                // SAFETY: the index has forgotten the record, and every guard that could hold it has gone.
                unsafe { store.records_of(deferred_free.is_node).give(deferred_free.record, site.worker) };
            } else {
                deferred_free.record.free_inline();
            }
        }
    }
}

/// Versions of a record that are later than the horizon.
#[derive(Clone, Copy, Default)]
struct Newer {
    count: usize,
    latest: Option<(Timestamp, Status)>,
}

/// Frees versions below the latest one that is settled for everybody, up to `limit` of them: nobody can hold them. Answers how many, and
/// whether these were all.
pub(super) fn free_below(record: Record, bottom: Version, limit: u64, guard: &Guard<'_>) -> (u64, bool) {
    let (mut first, mut freed) = (bottom.next().cut(), 0);
    while let Some(version) = first {
        if freed == limit {
            bottom.next().put_back(version);
            return (freed, false);
        }
        freed += 1;
        first = match version.next().link() {
            Link::To(next) => Some(next),
            Link::End | Link::Closed => None,
        };
        if record.is_inline(version) {
            version.end(Status::Unused);
        } else {
            let (memory, bytes) = version.memory();
            // SAFETY: all transactions that run began when a later version was settled, and stop there.
            unsafe { guard.free(memory, bytes) };
        }
    }
    (freed, true)
}
