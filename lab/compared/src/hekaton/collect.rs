//! Collection: frees what no transaction sees, now or later.
//!
//! A committed write leaves an item, its record with the end of the transaction. When every transaction that may write reads at that
//! timestamp or later, the record's list is gone through, under its collection latch, and every version is unlinked that is visible at
//! no timestamp that is held. So a long snapshot holds what it sees, and nothing more; what a collector leaves for its sake is looked at
//! again when it has ended.
//!
//! * The first finished version stays, and so does what lies directly under one that is not finished: any thread that aborts puts that on top.
//! * What is older than a version that began before all timestamps held is unreachable: no thread goes past that one. It is
//!   freed at once. Everything else that is unlinked may still be stood on, and waits for the epochs.
//! * A record whose only version is a deletion that all sees is closed, and its key leaves the index.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::{Arc, PoisonError};

use polychron_engine::catalog;
use polychron_engine::mutations::left_out;
use polychron_engine::stores::{IndexRef, OwnedKey};
use polychron_index::Handle;
use polychron_memory::Guard;
use polychron_sync::Mutex;
use polychron_sync::atomic::{AtomicBool, Ordering};

use super::steps::Step;
use super::table::HekatonTable;
use super::transactions::{Held, Transactions};
use super::version::{Record, Version};

/// How many transactions begin before the timestamps that are held are looked up again: a look at every worker's slot.
const LOOK_EVERY: u32 = 16;

/// The same while something waits for a snapshot to end: what is unlinked from under it comes back when the reader leaves its epoch.
const LOOK_EVERY_BEHIND: u32 = 2;

/// Items that are worked off at most when a transaction begins, or, if the worker has added many since, so many times as many: a backlog
/// shrinks, and no thread is held up by all of it at once. Of versions that an item cuts off so many are freed.
const AT_ONCE: usize = 256;
const TIMES_AS_MANY: usize = 4;

/// A list of more versions is gone through again only after so many more of its items: else each item of a hot row, behind a transaction
/// that is open for long, would pass by all that the row has become since.
const LONG: usize = 64;

/// The key of a record that was deleted.
#[derive(Debug)]
pub(super) struct Tombstone {
    pub(super) index_ref: IndexRef,
    pub(super) key: OwnedKey,
}

/// A record that has something to be collected. It holds a share of the record.
#[derive(Debug)]
pub(super) struct Item {
    record: Record,
    /// Since when what is to be collected is over.
    over_at: u64,
    tombstone: Option<Tombstone>,
}

/// An item that waits for a snapshot to end; ordered by when it is looked at again.
#[derive(Debug)]
struct Kept(Item);

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.0.over_at == other.0.over_at
    }
}

impl Eq for Kept {}

impl PartialOrd for Kept {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Kept {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.over_at.cmp(&other.0.over_at)
    }
}

/// A record with a long list.
#[derive(Debug, Default)]
struct Long {
    /// Items that are passed over before the list is gone through again.
    left: usize,
    /// The last one that was passed over.
    item: Option<Item>,
}

/// Items of workers that left, or had too many.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    any: AtomicBool,
    items: Mutex<VecDeque<Item>>,
}

/// What is left of a record.
pub(super) enum Left {
    /// Nothing to collect.
    Clean,
    /// Something that is over at this timestamp and still seen.
    Seen(u64),
    /// Nothing at all: the key is to leave the index.
    Closed,
    /// Another collector is at it.
    Busy,
}

/// A worker's queues.
#[derive(Debug, Default)]
pub(super) struct Collector {
    items: VecDeque<Item>,
    kept: BinaryHeap<Reverse<Kept>>,
    /// By their handles.
    long: HashMap<Handle, Long>,
    /// Lists of versions that no thread sees, to be freed some at a time.
    tails: Vec<Version>,
    held: Held,
    since_look: u32,
    /// Items that were added since.
    added: usize,
    /// Items that were added since such were left to all, and the bytes of the versions that they cut off.
    own: usize,
    own_bytes: usize,
    /// Versions that were looked at, for tests.
    #[cfg(test)]
    pub(super) looked_at: usize,
}

impl Collector {
    /// Adds an item; the caller keeps the record until then.
    #[inline]
    pub(super) fn push(&mut self, record: Record, over_at: u64, tombstone: Option<Tombstone>, bytes: usize) {
        record.share();
        self.own += 1;
        self.own_bytes += bytes;
        self.push_shared(record, over_at, tombstone);
    }

    /// Leaves the latest items to any thread that comes by, if the worker has more waiting than that: it may do nothing for long.
    #[inline]
    pub(super) fn share_surplus(&mut self, orphans: &Orphans, most_bytes: usize) {
        if self.own_bytes > most_bytes {
            let first = self.items.len().saturating_sub(self.own);
            orphans.take_in(&mut self.items.split_off(first));
            (self.own, self.own_bytes) = (0, 0);
        }
    }

    /// As [`Self::push`], of a record of which the caller has a share to give.
    pub(super) fn push_shared(&mut self, record: Record, over_at: u64, tombstone: Option<Tombstone>) {
        self.added += 1;
        self.items.push_back(Item { record, over_at, tombstone });
    }

    /// A transaction is about to begin.
    #[inline]
    pub(super) fn step(
        &mut self,
        transactions: &Transactions,
        orphans: &Orphans,
        tables: &[Option<Arc<HekatonTable>>],
        guard: &Guard<'_>,
    ) {
        self.since_look += 1;
        if self.since_look >= if self.kept.is_empty() { LOOK_EVERY } else { LOOK_EVERY_BEHIND } {
            self.since_look = 0;
            let added = std::mem::take(&mut self.added);
            self.work(AT_ONCE.max(TIMES_AS_MANY * added), transactions, orphans, tables, guard);
        }
    }

    /// Works off up to `limit` items, those of workers that left included.
    #[inline(never)]
    pub(super) fn work(
        &mut self,
        limit: usize,
        transactions: &Transactions,
        orphans: &Orphans,
        tables: &[Option<Arc<HekatonTable>>],
        guard: &Guard<'_>,
    ) {
        self.free_tails(limit, guard);
        if self.items.is_empty() && self.kept.is_empty() && self.long.is_empty() && !orphans.are_there() {
            return;
        }
        transactions.held(&mut self.held);
        if left_out(Step::AwaitReaders) {
            self.held = Held { from: transactions.latest(), single: Vec::new() };
        }
        orphans.move_ready(&mut self.items, limit, self.held.from);
        let oldest = self.held.oldest();
        for _ in 0..limit {
            if self.items.is_empty() {
                self.take_up();
            }
            let item = match (self.items.front(), self.kept.peek()) {
                (_, Some(Reverse(Kept(kept)))) if kept.over_at <= oldest => {
                    let Some(Reverse(Kept(item))) = self.kept.pop() else { return };
                    item.record.let_item_go(item.tombstone.is_some());
                    item
                }
                (Some(front), _) if front.over_at <= self.held.from => {
                    let Some(item) = self.items.pop_front() else { return };
                    item
                }
                _ => return,
            };
            if let Some(item) = self.pass_over(item, guard) {
                self.see_to(item, tables, guard);
            }
        }
    }

    /// Frees up to `limit` versions to which no record still leads.
    pub(super) fn free_tails(&mut self, limit: usize, guard: &Guard<'_>) {
        for _ in 0..limit {
            let Some(tail) = self.tails.pop() else { return };
            self.tails.extend(tail.next());
            // SAFETY: `prune` has cut it off, because every timestamp that is read from then on, or has been, sees a later one.
            unsafe { tail.free(guard) };
        }
    }

    /// How many items wait.
    pub(super) fn len(&self) -> usize {
        self.items.len() + self.kept.len() + self.long.values().filter(|long| long.item.is_some()).count()
    }

    /// Puts an item aside whose record's list is long and was gone through not long ago; answers it otherwise.
    #[inline]
    fn pass_over(&mut self, item: Item, guard: &Guard<'_>) -> Option<Item> {
        if self.long.is_empty() || item.tombstone.is_some() {
            return Some(item);
        }
        let long = self.long.get_mut(&item.record.handle()).filter(|long| long.left > 0);
        let Some(long) = long else { return Some(item) };
        long.left -= 1;
        if let Some(before) = long.item.replace(item) {
            // SAFETY: the item's share; the other one stands for both.
            unsafe { before.record.release(guard) };
        }
        None
    }

    /// Takes up what was put aside, once there is nothing else.
    fn take_up(&mut self) {
        if !self.long.is_empty() {
            let long = std::mem::take(&mut self.long);
            self.items.extend(long.into_values().filter_map(|long| long.item));
        }
    }

    /// A record's list was gone through, and had so many versions.
    fn note_length(&mut self, record: Record, versions: usize, guard: &Guard<'_>) {
        #[cfg(test)]
        {
            self.looked_at += versions;
        }
        if versions <= LONG && self.long.is_empty() {
            return;
        }
        let before = match versions {
            ..=LONG => self.long.remove(&record.handle()),
            _ => self.long.insert(record.handle(), Long { left: versions, item: None }),
        };
        if let Some(item) = before.and_then(|long| long.item) {
            // SAFETY: the item's share. What it stood for is done.
            unsafe { item.record.release(guard) };
        }
    }

    fn see_to(&mut self, item: Item, tables: &[Option<Arc<HekatonTable>>], guard: &Guard<'_>) {
        let record = item.record;
        let (left, versions) = collect(record, item.tombstone.is_some(), &self.held, &mut self.tails, guard);
        self.note_length(record, versions, guard);
        match left {
            Left::Clean => {}
            Left::Busy => {
                self.items.push_back(item);
                return;
            }
            Left::Seen(over_at) => {
                if record.keep_item(item.tombstone.is_some()) {
                    self.kept.push(Reverse(Kept(Item { over_at, ..item })));
                    return;
                }
            }
            Left::Closed => {
                if let Some(tombstone) = &item.tombstone {
                    unlink(record, tombstone, tables, guard);
                }
            }
        }
        // SAFETY: the item's share.
        unsafe { record.release(guard) };
    }

    /// The worker leaves: others see to what it had not collected.
    pub(super) fn leave(&mut self, orphans: &Orphans, guard: &Guard<'_>) {
        self.free_tails(usize::MAX, guard);
        self.take_up();
        let kept = std::mem::take(&mut self.kept);
        self.items.extend(kept.into_iter().map(|Reverse(Kept(item))| {
            item.record.let_item_go(item.tombstone.is_some());
            item
        }));
        orphans.take_in(&mut self.items);
    }
}

impl Orphans {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.items.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn are_there(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    fn take_in(&self, items: &mut VecDeque<Item>) {
        if !items.is_empty() {
            self.items.lock().unwrap_or_else(PoisonError::into_inner).append(items);
            // A hint only: the lock carries the items.
            self.any.store(true, Ordering::Relaxed);
        }
    }

    /// Moves up to `limit` items to the front that all reads behind, if it reads from this timestamp on; what must wait stays here, for
    /// any thread that takes it may do nothing for long.
    fn move_ready(&self, items: &mut VecDeque<Item>, limit: usize, from: u64) {
        if !self.are_there() {
            return;
        }
        let mut orphans = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..limit {
            let Some(item) = orphans.pop_front_if(|item| item.over_at <= from) else { break };
            items.push_front(item);
        }
        self.any.store(!orphans.is_empty(), Ordering::Relaxed);
    }
}

/// Takes the key of a closed record out of its index.
fn unlink(record: Record, tombstone: &Tombstone, tables: &[Option<Arc<HekatonTable>>], guard: &Guard<'_>) {
    let IndexRef { table, index } = tombstone.index_ref;
    let table = catalog::known(tables, table);
    // A dropped table or index gives its records back as a whole, with the index's share of each.
    let Some(store) = table.and_then(|table| table.store(index).ok()) else { return };
    match &tombstone.key {
        OwnedKey::Short(key) => store.index().remove(*key, record.handle(), guard),
        OwnedKey::Long(key) => store.index().remove(&**key, record.handle(), guard),
    };
    // SAFETY: the share of the index, which has forgotten the record.
    unsafe { record.release(guard) };
}

/// Collects one record, and answers with how many versions were looked at.
pub(super) fn collect(
    record: Record,
    is_tombstone: bool,
    held: &Held,
    tails: &mut Vec<Version>,
    guard: &Guard<'_>,
) -> (Left, usize) {
    if !record.try_collect() {
        return (Left::Busy, 0);
    }
    let left = collect_latched(record, is_tombstone, held, tails, guard);
    record.end_collection();
    left
}

fn collect_latched(
    record: Record,
    is_tombstone: bool,
    held: &Held,
    tails: &mut Vec<Version>,
    guard: &Guard<'_>,
) -> (Left, usize) {
    let Some(latest) = record.latest() else { return (Left::Clean, 0) };
    let mut first = latest;
    while first.begin().finished().is_none() {
        let Some(next) = first.next() else { return (Left::Clean, 0) };
        first = next;
    }
    let (older, versions) = prune(first, held, tails, guard);
    let over = first.begin().finished().zip(first.end().finished()).filter(|_| is_tombstone && first == latest);
    let left = match (older, over) {
        (None, None) => Left::Clean,
        (None, Some((begin, end))) if held.sees(begin, end) => Left::Seen(end),
        (None, Some(_)) => {
            if !record.replace_top(first, None) {
                // The key was inserted again just now.
                return (Left::Clean, versions);
            }
            // SAFETY: the record is closed, so no thread finds the version from now on; a thread that stands on it has a guard.
            unsafe { first.retire(guard) };
            Left::Closed
        }
        (Some(older), over) => Left::Seen(over.map_or(older, |(_, end)| older.min(end))),
    };
    (left, versions)
}

/// Takes versions under the first finished one out. Answers the earliest timestamp at which one that stays is over, and how many
/// were looked at.
fn prune(first: Version, held: &Held, tails: &mut Vec<Version>, guard: &Guard<'_>) -> (Option<u64>, usize) {
    let oldest = held.oldest();
    let (mut above, mut earliest, mut versions) = (first, None, 0);
    while let Some(version) = above.next() {
        versions += 1;
        let over_at = above.begin().finished();
        if over_at.is_some_and(|over_at| over_at <= oldest) {
            above.set_next(None);
            // Every timestamp that is read from now on, or has been, sees the version above or a later one.
            tails.push(version);
            break;
        }
        let lived = version.begin().finished().zip(version.end().finished());
        match lived {
            Some((begin, end)) if over_at.is_some() && !held.sees(begin, end) => {
                above.set_next(version.next());
                // SAFETY: it has left the list, so only a thread that is at it, or at another one that has left, can reach it: under a
                // guard of now.
                unsafe { version.retire(guard) };
            }
            _ => {
                // What is not finished yet is looked at again soon.
                let over_at = over_at.unwrap_or(held.from + 1);
                earliest = Some(earliest.map_or(over_at, |earliest: u64| earliest.min(over_at)));
                above = version;
            }
        }
    }
    (earliest, versions)
}
