//! Collection (§3.3.2): versions that were superseded in a batch are freed when that batch is finished, except those that open snapshots see.
//!
//! `docs/protocols/bohm.md` has the invariants. The thread that plans a partition collects it, so one thread at a time collects a chain.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use polychron_base::key::EncodedKey;
use polychron_engine::stores::OwnedKey;
use polychron_index::Handle;
use polychron_memory::Guard;

use super::chain::{Chain, Readers, Superseded};
use super::entry::Known;
use super::table::BohmStore;
use super::timestamp::Timestamp;
use super::version::{Free, RawVersion, State, Version};

/// How many versions and keys of closed snapshots are examined in one batch.
const EXAMINED_AT_ONCE: usize = if polychron_sync::MODELLED { 2 } else { 1024 };

/// A key whose newest version says that it is absent.
#[derive(Debug)]
pub(super) struct Deleted {
    store: Arc<BohmStore>,
    key: OwnedKey,
    chain: Handle,
    version: RawVersion,
    begin: Timestamp,
    /// It was examined before: what it says may have changed since.
    waited: bool,
}

impl Deleted {
    /// The key of an entry whose version, of this chain, has just become absent.
    pub(super) fn new(entry: Known<'_>, chain: Chain<'_>, version: Version<'_>) -> Self {
        Self {
            store: entry.keep_store(),
            key: owned_key(entry),
            chain: chain.handle(),
            version: version.raw(),
            begin: version.begin(),
            waited: false,
        }
    }

    fn batch(&self) -> u64 {
        self.begin.batch()
    }

    /// The chain and the version, if that is still the newest of its key.
    fn newest<'g>(&self, guard: &'g Guard<'_>) -> Option<(Chain<'g>, Version<'g>)> {
        // One that has waited may be gone, and so may its chain; the same memory may be another one's.
        if self.waited && !self.store.leads_to(&self.key, self.chain, guard) {
            return None;
        }
        // SAFETY: the index leads to the chain, or the chain was not removed since the version was put there. Its newest version is freed behind the
        // guards, once the thread that plans for the key removes it, which is the caller.
        let (chain, version): (Chain<'g>, Version<'g>) = unsafe {
            let chain = Chain::from_handle(self.chain);
            (chain, chain.head().newest().filter(|newest| *newest == self.version)?.get())
        };
        (version.begin() == self.begin).then_some((chain, version))
    }
}

pub(super) fn owned_key(entry: Known<'_>) -> OwnedKey {
    let mut bytes = vec![0; entry.key().len()];
    entry.key().write_to(&mut bytes);
    OwnedKey::new(&bytes)
}

/// What may be freed: the last batch up to which all are finished, and the snapshots that are older.
#[derive(Debug, Default)]
pub(super) struct Horizon {
    pub(super) finished: u64,
    /// The batches of open snapshots, in order, each once.
    pub(super) open: Vec<u64>,
}

impl Horizon {
    fn oldest(&self) -> u64 {
        self.open.first().copied().unwrap_or(self.finished)
    }

    /// The newest snapshot of a batch before this one.
    fn newest_before(&self, batch: u64) -> Option<u64> {
        let count = self.open.partition_point(|&snapshot| snapshot < batch);
        count.checked_sub(1).map(|last| self.open[last])
    }
}

/// The version, which collection comes to from one that is not freed yet: it stays while this thread collects the chain.
fn reached<'g>(version: RawVersion) -> Version<'g> {
    // SAFETY: `Garbage` calls this alone. It has each superseded version until it frees that; whatever it follows from there is linked, and by the
    // invariants 11 to 14 such a version is freed later, or unlinked first.
    unsafe { version.get() }
}

/// What a snapshot holds.
#[derive(Debug, Default)]
struct Held {
    versions: Vec<Superseded>,
    deleted: Vec<Deleted>,
}

/// What there is to collect in a partition.
#[derive(Debug, Default)]
pub(super) struct Garbage {
    /// In the order of batches, more or less.
    pub(super) superseded: VecDeque<Superseded>,
    pub(super) deleted: VecDeque<Deleted>,
    /// What open snapshots see, by the newest snapshot that sees it.
    held: BTreeMap<u64, Held>,
    pub(super) horizon: Horizon,
    /// Stores that nothing here needs any more.
    pub(super) unused: Vec<Arc<BohmStore>>,
    /// Versions and keys that were examined, for tests.
    #[cfg(test)]
    pub(super) steps: usize,
}

impl Garbage {
    pub(super) fn is_empty(&self) -> bool {
        self.superseded.is_empty() && self.deleted.is_empty() && self.held.is_empty()
    }

    /// How many versions and keys open snapshots hold.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held.values().map(|held| held.versions.len() + held.deleted.len()).sum()
    }

    fn step(&mut self) {
        #[cfg(test)]
        {
            self.steps += 1;
        }
    }

    /// Frees what the horizon allows. What closed snapshots held is examined bit by bit, or all of it. Transactions of batches up to `planned` may
    /// know what is there.
    pub(super) fn collect(&mut self, all: bool, planned: u64, guard: &Guard<'_>) {
        if !self.held.is_empty() {
            self.let_go(if all { usize::MAX } else { EXAMINED_AT_ONCE }, planned, guard);
        }
        let finished = self.horizon.finished;
        // What has to wait for others comes behind those that are there now.
        for _ in 0..self.superseded.len() {
            let Some(old) = self.superseded.pop_front_if(|old| old.batch() <= finished) else { break };
            self.examine(old, guard);
        }
        for _ in 0..self.deleted.len() {
            let Some(deleted) = self.deleted.pop_front_if(|deleted| deleted.batch() <= finished) else { break };
            self.remove(deleted, planned, guard);
        }
    }

    /// Examines again what closed snapshots held: it is freed, or an older snapshot sees it, too.
    fn let_go(&mut self, most: usize, planned: u64, guard: &Guard<'_>) {
        let mut left = most;
        // From the newest one on: what an older snapshot sees goes there, and is looked at again if that one is over, too.
        let mut before = u64::MAX;
        while left > 0 {
            let open = &self.horizon.open;
            let mut ended = self.held.range_mut(..before).rev();
            let Some((&snapshot, held)) = ended.find(|(snapshot, _)| open.binary_search(snapshot).is_err()) else {
                return;
            };
            let versions = held.versions.split_off(held.versions.len().saturating_sub(left));
            left -= versions.len();
            let deleted = held.deleted.split_off(held.deleted.len().saturating_sub(left));
            left -= deleted.len();
            if held.versions.is_empty() && held.deleted.is_empty() {
                self.held.remove(&snapshot);
            }
            versions.into_iter().for_each(|old| self.examine(old, guard));
            deleted.into_iter().for_each(|deleted| self.remove(deleted, planned, guard));
            before = snapshot;
        }
    }

    /// Frees a version whose superseding batch is finished, or keeps it for the newest snapshot that sees it.
    fn examine(&mut self, mut old: Superseded, guard: &Guard<'_>) {
        self.step();
        // Every transaction that could read the version, or come past it, is in a batch that is finished.
        let version = reached(old.version());
        match old.readers() {
            Readers::Snapshots if old.batch() > self.horizon.oldest() => {}
            readers => {
                let when = if matches!(readers, Readers::Snapshots) { Free::Now } else { Free::BehindGuards };
                if matches!(readers, Readers::Below) {
                    // The intent above is freed after this one.
                    reached(old.above()).forget_below();
                }
                // SAFETY: no snapshot is older than the version above, or will be, so none comes past that. What still looks at an intent, or
                // at a version of a closed chain, has found it under a guard.
                return unsafe { version.free(when, guard) };
            }
        }
        let begin = version.begin().batch();
        // Where no snapshot is older than this version, the one below may be gone, and nothing reads it.
        let is_last = self.horizon.newest_before(begin).is_none();
        let below = if is_last { None } else { version.below() }.map(reached);
        if below.is_some_and(|below| !below.is_linked_upward()) {
            // The thread that put this version between those two leaves that one later.
            self.superseded.push_back(old);
            return;
        }
        // The version that is named as the one above stays until it is unlinked, and then another one is named.
        let above = version.above().map_or_else(|| self.find_above(&old), reached);
        // Of those that were inserted in between the lowest one superseded it.
        old.lower_batch(above.begin().batch());
        let seen_by = self.horizon.newest_before(old.batch()).filter(|&snapshot| snapshot >= begin);
        // Where nothing is below, a missing version says that the key is absent as well as one that says so.
        let seen_by = seen_by.filter(|_| !is_last || matches!(version.state(), State::Row(_)));
        // SAFETY: this collects the chain, and the batch of the version above is finished. Once unlinked the version is not found any more; snapshots
        // that are at it have found it under a guard.
        unsafe {
            match seen_by {
                Some(_) => version.link_upward(above),
                None => version.unlink(above, below, guard),
            }
        }
        if let Some(snapshot) = seen_by {
            self.held.entry(snapshot).or_default().versions.push(old);
        }
    }

    /// The version right above a superseded one: the one that superseded it, or the lowest of those that were inserted late in between.
    fn find_above<'g>(&mut self, old: &Superseded) -> Version<'g> {
        let mut next = old.above();
        loop {
            self.step();
            // Versions above one that is still there are freed behind it, or are unlinked.
            let above = reached(next);
            match above.below() {
                Some(below) if below != old.version() => next = below,
                below => {
                    debug_assert!(below.is_some(), "a version lies below the one that superseded it");
                    return above;
                }
            }
        }
    }

    /// Removes a key from its index whose newest version says that it is absent, unless a snapshot sees another version below.
    fn remove(&mut self, mut deleted: Deleted, planned: u64, guard: &Guard<'_>) {
        self.step();
        let Some((chain, version)) = deleted.newest(guard) else {
            self.unused.push(deleted.store);
            return;
        };
        if let Some(snapshot) = self.horizon.newest_before(deleted.batch())
            && let Some(below) = version.below()
        {
            deleted.waited = true;
            if reached(below).is_linked_upward() {
                deleted.store.displace(&deleted.key, chain, (deleted.version, deleted.batch()), guard);
                self.held.entry(snapshot).or_default().deleted.push(deleted);
            } else {
                self.deleted.push_back(deleted);
            }
            return;
        }
        let Deleted { store, key, version, .. } = deleted;
        // Transactions that were planned may have been given the version to read.
        self.superseded.extend(store.remove(&key, chain, (version, planned), guard));
        self.unused.push(store);
    }
}
