//! Garbage collection by timestamps (§3.8), and deleted keys leave the indexes.
//!
//! A record of which a version is committed before another one, deleted or aborted is queued, unless it is queued already. Once nobody
//! can still look behind the timestamp of the item (`min_rts`), the record is collected, by one thread at a time:
//!
//! * What lies behind the latest version of that timestamp is cut off and serves again **at once**. All that run began when that
//!   version was stable, so they stop there and cannot even hold what lies behind.
//! * Aborted versions of that timestamp and before are unlinked. Readers may hold them, so their memory waits for the epochs.
//! * A record that is deleted since then, and nothing newer, is closed: nobody installs a version from now on. Then its key leaves the
//!   index, and when the epochs say that nobody holds the record, its slot is reused for another key.
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

use super::clocks::{Clocks, Horizon};
use super::garbage::{DeferredFrees, Entry, Found, Garbage, Item};
use super::record::{Closed, Cursor, Latched, Link, Queued, Record, Status, Unlinked};
use super::steps::Step;
use super::table::{CicadaTable, Store};
use super::timestamp::Timestamp;

/// Items that wait for the oldest reader and are looked at in vain, in one go.
const LOOKED_AT_IN_VAIN: usize = 32;
/// Versions of one record that are freed in one go: more would keep a client, or what it holds, for long.
pub(super) const SLICE: u64 = 2048;
/// Items whose marks are taken away behind one barrier.
const MARKS_AT_ONCE: usize = 16;

/// Garbage whose record was pruned: what is left of it somebody sees.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) garbage: Garbage,
    /// The timestamp of the latest one who sees it and has read for long.
    pub(super) by: Timestamp,
}

/// A record whose versions are freed in slices, because there are many. Nobody else frees any of it meanwhile (`Marks::is_sliced`), so the record
/// stays.
#[derive(Debug)]
struct Sliced(Item);

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
    deferred_frees: DeferredFrees,
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
    pub(super) horizon: Horizon,
    pub(super) worker: usize,
    pub(super) guard: &'s Guard<'s>,
}

impl<'s> Site<'s> {
    /// Collects as a worker, up to the horizon.
    #[inline]
    pub(super) fn new(
        tables: &'s TableList<CicadaTable>,
        clocks: &Clocks,
        worker: usize,
        guard: &'s Guard<'s>,
    ) -> Self {
        Self { tables, horizon: clocks.horizon(), worker, guard }
    }

    /// The horizon's timestamp: nobody looks behind a version of it.
    #[inline]
    pub(super) fn min_rts(&self) -> Timestamp {
        self.horizon.timestamp()
    }

    /// Whether nobody still looks behind a version of this timestamp.
    #[inline]
    fn is_past(&self, timestamp: Timestamp) -> bool {
        !timestamp.is_after(self.min_rts()) || left_out(Step::CollectSuperseded)
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

/// A record that is collected, and of which kind its item was if that has waited for the oldest reader.
#[derive(Clone, Copy)]
struct Work<'s> {
    item: Item,
    record: Record<'s>,
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
    Unlinked,
}

impl Reclaimer {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.garbage.is_empty() && self.held.is_empty() && self.deferred_frees.is_empty() && self.sliced.is_empty()
    }

    /// Tells the counts of a worker what was collected since the last time, and how long that had waited.
    pub(super) fn report(&mut self, clocks: &Clocks, worker: usize) {
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

    /// Collects records whose time has come, and what has waited for the epochs, in about `limit` steps: an item is one, and each version that is
    /// passed or freed. Answers how many it took.
    #[inline]
    pub(super) fn step(&mut self, limit: usize, site: &Site<'_>) -> usize {
        if self.is_empty() {
            return 0;
        }
        let begun = self.collected.steps;
        let spent = |this: &Self| (this.collected.steps - begun) as usize;
        self.free_slice(limit, site);
        let (mut again, mut found) = (Vec::new(), [None; MARKS_AT_ONCE]);
        while spent(self) < limit {
            if let Some(held) = self.next_held(site) {
                let found = held.garbage.item.found(site);
                self.collect_item(held.garbage, Some(held.by), found, &mut again, site);
                continue;
            }
            // What lost its mark is looked at, whatever it takes.
            let marked = self.take_marks(limit - spent(self), &mut found, site);
            for &found in &found[..marked] {
                self.collect_front(found, &mut again, site);
            }
            if marked == 0 {
                break;
            }
        }
        self.garbage.extend(again);
        if !self.deferred_frees.is_empty() {
            self.free_deferred(limit, site);
        }
        self.give_back_room();
        spent(self)
    }

    /// Collects the first item of the queue, whose mark was taken: at once where that can be, as most often.
    #[inline]
    fn collect_front(&mut self, found: Found<'_>, again: &mut Vec<Garbage>, site: &Site<'_>) {
        let Some(front) = self.garbage.front() else { return };
        let (item, wts, stays) = (front.item, front.wts, matches!(front.entry, Entry::Stays));
        if let Some((_, record)) = found.filter(|_| stays)
            && self.collect_at_once(item, record, site)
        {
            self.garbage.pop_front();
            self.note_collected(wts, site);
        } else if let Some(garbage) = self.garbage.pop_front() {
            self.collect_item(garbage, None, found, again, site);
        }
    }

    /// Collects an item whose mark was taken, or one that has waited for the oldest reader, by whom it was held.
    fn collect_item(
        &mut self,
        garbage: Garbage,
        by: Option<Timestamp>,
        found: Found<'_>,
        again: &mut Vec<Garbage>,
        site: &Site<'_>,
    ) {
        self.collected.steps += 1;
        let queues_again = || found.is_some_and(|(_, record)| record.marks().note_queued(garbage.entry.kind()));
        match (self.collect(&garbage, by.is_some(), found, site), by) {
            (Outcome::Later | Outcome::Unknown, Some(by)) => self.held.push_back(Waiting { garbage, by }),
            (Outcome::Unknown, None) => again.push(garbage),
            (Outcome::Later, None) if queues_again() => again.push(garbage),
            // There is another item of the record.
            (Outcome::Later, None) => {}
            (Outcome::For(wts), _) if queues_again() => self.garbage.push_back(Garbage { wts, ..garbage }),
            (Outcome::Done | Outcome::For(_), _) => self.note_collected(garbage.wts, site),
        }
    }

    #[inline]
    fn note_collected(&mut self, wts: Timestamp, site: &Site<'_>) {
        let waited = site.min_rts().0.wrapping_sub(wts.0);
        self.collected.records += 1;
        self.collected.waited += u128::from(waited);
        self.collected.longest = self.collected.longest.max(waited);
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
    /// Answers how many they are, and notes where: they must be collected, or be marked again.
    fn take_marks<'s>(&self, limit: usize, found: &mut [Found<'s>; MARKS_AT_ONCE], site: &Site<'s>) -> usize {
        let due = self.garbage.iter().take(limit).take_while(|garbage| site.is_past(garbage.wts));
        let mut marked = 0;
        for (garbage, found) in due.zip(found) {
            // Where the store has gone, so has the record.
            *found = garbage.item.found(site);
            if let Some((_, record)) = found {
                record.marks().clear_queued(garbage.entry.kind());
            }
            marked += 1;
        }
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
            if self.held_until == site.min_rts() {
                return None;
            }
            (self.held_until, self.held_left) = (site.min_rts(), self.held.len());
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
        (self.held_until, self.held_left) = (site.min_rts(), self.held.len());
        loop {
            self.step(usize::MAX, site);
            if self.held_left == 0 && self.sliced.is_empty() {
                return;
            }
        }
    }

    /// `waited`: whether the item has waited for the oldest reader.
    fn collect(&mut self, garbage: &Garbage, waited: bool, found: Found<'_>, site: &Site<'_>) -> Outcome {
        let Some((store, record)) = found else {
            return if site.comes_later(garbage.item.place) { Outcome::Unknown } else { Outcome::Done };
        };
        let waited = waited.then_some(garbage.entry.kind());
        let work = Work { item: garbage.item, record, store, waited };
        match &garbage.entry {
            Entry::Stays => self.collect_latched(work, site, Leaving::No::<&[u8]>),
            Entry::Unlinked => self.collect_latched(work, site, Leaving::Unlinked::<&[u8]>),
            Entry::Key(OwnedKey::Short(key)) => self.collect_key(work, site, *key),
            Entry::Key(OwnedKey::Long(key)) => self.collect_key(work, site, &**key),
        }
    }

    /// Collects a record whose latest version is a row that everybody sees: all below goes. `false`: it must be looked through.
    #[inline]
    fn collect_at_once(&mut self, item: Item, record: Record<'_>, site: &Site<'_>) -> bool {
        let Some(mut latched) = record.try_latch() else { return false };
        let mut top = latched.cursor();
        let is_bottom = matches!(top.link(), Link::To(_)) && top.is_bottom(site.horizon);
        if !is_bottom || top.status() != Some(Status::Committed) || record.marks().is_sliced() {
            return false;
        }
        self.collected.steps += 2;
        self.free_below(top, record, item, site)
    }

    /// Collects all records of rows, or of nodes, which stay, and waits for a worker that does just now.
    pub(super) fn collect_in_place(&mut self, store: &Store, is_node: bool, site: &Site<'_>) {
        store.for_each_record(is_node, site.guard, |record| {
            self.collect_behind_others((record, is_node), store, site, Leaving::No::<&[u8]>);
        });
    }

    /// Collects a record that a key of the index leads to, queued or not.
    pub(super) fn collect_now<K: EncodedKey>(&mut self, record: Record<'_>, store: &Store, site: &Site<'_>, key: K) {
        if store.leads_to(key, record, site.guard) {
            self.collect_behind_others((record, false), store, site, Leaving::Key(key));
        }
    }

    fn collect_behind_others<K: EncodedKey>(
        &mut self,
        (record, is_node): (Record<'_>, bool),
        store: &Store,
        site: &Site<'_>,
        leaving: Leaving<K>,
    ) {
        // SAFETY: both callers have found the record there.
        let item = unsafe { Item::new(store.place(), is_node, record) };
        let mut latched = record.latch();
        // What stays now is renewed as soon as it is old, and what is queued stays queued.
        let _ = self.clean(&mut latched, item, store, site, leaving);
    }

    fn collect_key<K: EncodedKey>(&mut self, work: Work<'_>, site: &Site<'_>, key: K) -> Outcome {
        if !work.store.leads_to(key, work.record, site.guard) {
            return Outcome::Done;
        }
        self.collect_latched(work, site, Leaving::Key(key))
    }

    fn collect_latched<K: EncodedKey>(&mut self, work: Work<'_>, site: &Site<'_>, leaving: Leaving<K>) -> Outcome {
        let Some(mut latched) = work.record.try_latch() else { return Outcome::Later };
        let marks = work.record.marks();
        if let Some(kind) = work.waited {
            marks.clear_waiting(kind);
        }
        let outcome = self.clean(&mut latched, work.item, work.store, site, leaving);
        if let (Outcome::Later, Some(kind)) = (outcome, work.waited) {
            marks.note_waiting(kind);
        }
        outcome
    }

    /// Collects a latched record, which is the item's.
    fn clean<K: EncodedKey>(
        &mut self,
        latched: &mut Latched<'_>,
        item: Item,
        store: &Store,
        site: &Site<'_>,
        leaving: Leaving<K>,
    ) -> Outcome {
        let record = latched.record();
        if record.marks().is_sliced() {
            return Outcome::Later;
        }
        let (mut cursor, mut newer) = (latched.cursor(), Newer::default());
        let bottom = loop {
            let version = match cursor.link() {
                Link::Closed => return Outcome::Done,
                Link::End => break None,
                Link::To(version) => version,
            };
            self.collected.steps += 1;
            let status = cursor.status();
            if !site.is_past(version.wts()) {
                newer.count += 1;
                newer.latest = newer.latest.or(Some(version.wts()).zip(status));
                cursor.pass();
                continue;
            }
            if status != Some(Status::Aborted) {
                break status.filter(|_| cursor.is_bottom(site.horizon));
            }
            match cursor.unlink_aborted(site.guard) {
                // Something was installed above it just now.
                Unlinked::Not => (cursor, newer) = (latched.cursor(), Newer::default()),
                unlinked => self.defer_version(unlinked, item),
            }
        };
        if bottom.is_some() && !self.free_below(cursor, record, item, site) {
            return Outcome::Later;
        }
        if let Some((latest, status)) = newer.latest {
            let is_all = bottom.is_none() && newer.count == 1 && status == Status::Committed;
            return if is_all { Outcome::Done } else { Outcome::For(latest) };
        }
        let is_deleted = bottom.is_none_or(|status| status == Status::Deleted);
        if matches!(leaving, Leaving::No) || !is_deleted && !left_out(Step::CloseOnlyDeleted) {
            return Outcome::Done;
        }
        if record.inline_status() == Status::Retired {
            return Outcome::Later;
        }
        let Some(closed) = latched.close(site.horizon) else { return Outcome::Later };
        if let Leaving::Key(key) = leaving {
            store.remove_key(key, &closed, site.guard);
        }
        self.defer_record(closed, item, site.guard);
        Outcome::Done
    }

    /// Frees what lies below a bottom version of a record, a slice of it now where that is much. `false`: there is more.
    #[inline]
    pub(super) fn free_below(&mut self, bottom: Cursor<'_>, record: Record<'_>, item: Item, site: &Site<'_>) -> bool {
        let (freed, is_all) = bottom.free_below(site.horizon, SLICE, site.guard);
        self.collected.versions += freed;
        self.collected.steps += freed;
        if !is_all {
            record.marks().set_sliced(true);
            self.sliced.push_back(Sliced(item));
        }
        is_all
    }

    /// Frees the next slice, of `limit` versions at most, of the first record that has many.
    fn free_slice(&mut self, limit: usize, site: &Site<'_>) {
        let Some(&Sliced(item)) = self.sliced.front() else { return };
        let Some((_, record)) = item.found(site) else {
            if !site.comes_later(item.place) {
                // Where the store has gone, so has all of the record.
                self.sliced.pop_front();
            }
            return;
        };
        let Some(mut latched) = record.try_latch() else { return };
        // A later version may be the bottom by now. Then what lies between goes, too.
        let (freed, is_all) = match latched.bottom(site.horizon) {
            Some((bottom, above)) => {
                self.collected.steps += above;
                bottom.free_below(site.horizon, SLICE.min(limit as u64), site.guard)
            }
            None => (0, true),
        };
        self.collected.versions += freed;
        self.collected.steps += freed;
        record.marks().set_sliced(!is_all);
        drop(latched);
        if is_all {
            self.sliced.pop_front();
        }
    }

    /// The item's record was closed, and nobody still finds it; a guard may still hold it, or one of its versions.
    pub(super) fn defer_record(&mut self, closed: Closed<'_>, item: Item, guard: &Guard<'_>) {
        self.deferred_frees.put_record(closed, item, guard);
    }

    /// A version of the item's record was unlinked; a guard may still hold it.
    pub(super) fn defer_version(&mut self, unlinked: Unlinked, item: Item) {
        self.collected.versions += 1;
        self.deferred_frees.put_version(unlinked, item);
    }

    /// Gives back what no guard can still hold, up to `limit` records and versions, for many may have waited for one guard.
    pub(super) fn free_deferred(&mut self, limit: usize, site: &Site<'_>) {
        self.collected.steps += self.deferred_frees.free_some(limit, site);
    }
}

/// Versions of a record that are later than the horizon.
#[derive(Clone, Copy, Default)]
struct Newer {
    count: usize,
    latest: Option<(Timestamp, Status)>,
}
