//! Records that have garbage, as they wait to be collected (`reclaim.rs`), and what was collected there until no guard can hold it.

use std::collections::VecDeque;

use polychron_base::room::KeptList;
use polychron_engine::stores::{IndexRef, OwnedKey};
use polychron_memory::Guard;
use polychron_sync::atomic::{Ordering, fence};

use super::reclaim::Site;
use super::record::{Closed, OfRecord, Queued, Record, Tagged, Unlinked};
use super::table::Store;
use super::timestamp::Timestamp;

/// The store and the record of an item, unless the store has gone.
pub(super) type Found<'s> = Option<(&'s Store, Record<'s>)>;

/// A record that is collected: the address, and the store in which it lies, as one of a row or of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) place: IndexRef,
    /// With whether it is a node. A flag of its own would make each entry of a queue 8 bytes longer, and a backlog has an entry for each record.
    pub(super) record: Tagged<OfRecord>,
}

impl Item {
    /// # Safety
    /// The record lies in that store, as one of a row or of a node as is said. The item goes into a bin, where it keeps the record's page ([`Bins::are_empty`]),
    /// or is used under the guard under which the record was found.
    ///
    /// [`Bins::are_empty`]: super::bins::Bins::are_empty
    #[inline]
    pub(super) unsafe fn new(place: IndexRef, is_node: bool, record: Record<'_>) -> Self {
        Self { place, record: Tagged::new(record.address(), is_node) }
    }

    #[inline]
    pub(super) fn place(self) -> IndexRef {
        self.place
    }

    /// The store and the record. A dropped table or index gives its records back as a whole: without it they are not looked at.
    #[inline]
    pub(super) fn found<'s>(self, site: &Site<'s>) -> Found<'s> {
        let store = site.store(self.place)?;
        // SAFETY: the record lies in the store, and its page stays while the item waits in a bin, or under the site's guard.
        Some((store, unsafe { self.record.address().under(site.guard) }))
    }
}

// A backlog has an entry for each record that was written, beside the memory limit.
const _: () = assert!(size_of::<Garbage>() <= 56);

/// A record that has garbage.
#[derive(Debug)]
pub(super) struct Garbage {
    pub(super) item: Item,
    /// What lies behind a version of this timestamp is garbage.
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
    /// The deletion that made the garbage has unlinked the record from a multi-version index.
    Unlinked,
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
struct DeferredFree {
    item: Item,
    /// The whole record, or only the version in its head.
    whole: bool,
    /// The epoch behind the barrier that came after the unlinking.
    epoch: Option<u64>,
}

/// Records that were closed and versions in heads that were unlinked, until no guard is left that could hold them (`docs/memory.md`, claim 4).
#[derive(Debug, Default)]
pub(super) struct DeferredFrees {
    list: VecDeque<DeferredFree>,
    /// Whether there are some without an epoch.
    has_fresh: bool,
}

impl DeferredFrees {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Gives back the room of a backlog that is gone.
    pub(super) fn give_back_room(&mut self) {
        self.list.give_back_room();
    }

    /// Entries that there is room for.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.list.room()
    }

    /// The item's record was closed, and nobody finds it.
    pub(super) fn put_record(&mut self, closed: Closed<'_>, item: Item, guard: &Guard<'_>) {
        assert!(closed.retire(guard) == item.record.address(), "the item is the record's");
        self.put(item, true);
    }

    /// A version of the item's record was unlinked. Elsewhere than in its head it was retired.
    pub(super) fn put_version(&mut self, unlinked: Unlinked, item: Item) {
        if let Unlinked::Inline(record) = unlinked {
            assert!(record == item.record.address(), "the item is the record's");
            self.put(item, false);
        }
    }

    fn put(&mut self, item: Item, whole: bool) {
        self.list.push_back(DeferredFree { item, whole, epoch: None });
        self.has_fresh = true;
    }

    /// Gives back up to `limit` of those that no guard can still hold. Answers how many were looked at.
    pub(super) fn free_some(&mut self, limit: usize, site: &Site<'_>) -> u64 {
        let (epochs, mut steps) = (site.guard.epochs(), 0);
        if std::mem::take(&mut self.has_fresh) {
            // SeqCst: the barrier between the unlinking and the look at the epoch; pairs with that of every pin.
            fence(Ordering::SeqCst);
            let epoch = epochs.current();
            // Those without an epoch are the last ones, and few, however many wait before them.
            for fresh in self.list.iter_mut().rev().take_while(|deferred| deferred.epoch.is_none()) {
                fresh.epoch = Some(epoch);
                steps += 1;
            }
        }
        let readonly = epochs.readonly();
        let is_free = |deferred: &mut DeferredFree| deferred.epoch.is_some_and(|epoch| epoch <= readonly);
        for _ in 0..limit {
            let Some(DeferredFree { item, whole, .. }) = self.list.pop_front_if(is_free) else { break };
            steps += 1;
            let Some((store, record)) = item.found(site) else { continue };
            // SAFETY: the index has forgotten the record, or its list the version, and every guard that could hold it has gone.
            unsafe {
                if whole {
                    store.records_of(item.record.flag()).give(record, site.worker, site.guard);
                } else {
                    record.free_inline();
                }
            }
        }
        steps
    }
}
