//! Collection (§3.3.2): versions that were superseded in a batch are freed when that batch is finished, except those that open snapshots see.
//!
//! `docs/protocols/bohm.md` has the invariants. The thread that plans a partition collects it, so one thread at a time collects a chain.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use polychron_base::key::EncodedKey;
use polychron_engine::stores::OwnedKey;
use polychron_index::{AnyIndex, Handle, Inserted};
use polychron_memory::Guard;

use super::chain::{Chain, Readers, Superseded};
use super::entry::Known;
use super::table::BohmStore;
use super::timestamp::Timestamp;
use super::version::{Free, RawVersion, State, Version};

/// How many versions and keys of closed snapshots are examined in one batch.
const EXAMINED_AT_ONCE: usize = if polychron_sync::MODELLED { 2 } else { 1024 };

/// A key whose newest version is a deletion.
#[derive(Debug)]
pub(super) struct Deleted {
    store: Arc<BohmStore>,
    key: OwnedKey,
    chain: Handle,
    version: RawVersion,
    begin: Timestamp,
    /// It was examined before, and the chain may have changed since.
    waited: bool,
}

impl Deleted {
    /// The key of an entry whose version, of this chain, has just become absent.
    ///
    /// # Safety
    /// The version is in the chain, its batch is not finished, and this is called once of it.
    pub(super) unsafe fn new(entry: Known<'_>, chain: Chain<'_>, version: Version<'_>) -> Self {
        Self {
            store: entry.keep_store(),
            key: OwnedKey::new(entry.key()),
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
    /// Stores that nothing here still needs.
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

    /// Frees what the horizon allows. What closed snapshots held is examined bit by bit, or all of it.
    ///
    /// # Safety
    /// The caller plans for the partition of this garbage, whose transactions of batches up to `planned` may know what is there, and no others. The
    /// batches up to that of the horizon are finished, and it has all older snapshots.
    pub(super) unsafe fn collect(&mut self, all: bool, planned: u64, guard: &Guard<'_>) {
        let mut collection = Collection { garbage: self, planned, guard };
        if !collection.garbage.held.is_empty() {
            collection.examine_held(if all { usize::MAX } else { EXAMINED_AT_ONCE });
        }
        let finished = collection.garbage.horizon.finished;
        // What has to wait for others comes behind those that are there now.
        for _ in 0..collection.garbage.superseded.len() {
            let next = collection.garbage.superseded.pop_front_if(|old| old.batch() <= finished);
            let Some(old) = next else { break };
            collection.examine(old);
        }
        for _ in 0..collection.garbage.deleted.len() {
            let next = collection.garbage.deleted.pop_front_if(|deleted| deleted.batch() <= finished);
            let Some(deleted) = next else { break };
            collection.remove(deleted);
        }
    }
}

/// One collection of a partition's garbage, as [`Garbage::collect`] asks for.
///
/// What it reaches stays: it has each superseded version until it frees that, and by the invariants 11 to 14 a version that is linked to one that is
/// not freed yet is freed later, or unlinked first.
struct Collection<'c> {
    garbage: &'c mut Garbage,
    planned: u64,
    guard: &'c Guard<'c>,
}

impl<'c> Collection<'c> {
    /// A version that is superseded, or linked to one that is not freed yet.
    fn reached(&self, version: RawVersion) -> Version<'c> {
        // SAFETY: see the type.
        unsafe { version.get() }
    }

    /// A superseded version, which is not freed yet.
    fn superseded(&self, old: &Superseded) -> Version<'c> {
        self.reached(old.version())
    }

    /// The version that superseded it.
    fn superseding(&self, old: &Superseded) -> Version<'c> {
        self.reached(old.above())
    }

    /// The version below one that is not freed yet, where a snapshot may see it.
    fn below(&self, version: Version<'c>) -> Option<Version<'c>> {
        version.below().map(|below| self.reached(below))
    }

    /// The version above one that is linked upward, and not freed yet.
    fn above(&self, version: Version<'c>) -> Option<Version<'c>> {
        version.above().map(|above| self.reached(above))
    }

    /// Examines again what closed snapshots held: it is freed, or an older snapshot sees it, too.
    fn examine_held(&mut self, most: usize) {
        let mut left = most;
        // From the newest one on: what an older snapshot sees goes there, and is looked at again if that one is over, too.
        let mut before = u64::MAX;
        while left > 0 {
            let Garbage { horizon, held: all, .. } = &mut *self.garbage;
            let open = &horizon.open;
            let mut ended = all.range_mut(..before).rev();
            let Some((&snapshot, held)) = ended.find(|(snapshot, _)| open.binary_search(snapshot).is_err()) else {
                return;
            };
            let versions = held.versions.split_off(held.versions.len().saturating_sub(left));
            left -= versions.len();
            let deleted = held.deleted.split_off(held.deleted.len().saturating_sub(left));
            left -= deleted.len();
            if held.versions.is_empty() && held.deleted.is_empty() {
                all.remove(&snapshot);
            }
            versions.into_iter().for_each(|old| self.examine(old));
            deleted.into_iter().for_each(|deleted| self.remove(deleted));
            before = snapshot;
        }
    }

    /// Frees a version whose superseding batch is finished, or keeps it for the newest snapshot that sees it.
    fn examine(&mut self, mut old: Superseded) {
        self.garbage.step();
        // Every transaction that could read the version, or come past it, is in a batch that is finished.
        let version = self.superseded(&old);
        match old.readers() {
            Readers::Snapshots if old.batch() > self.garbage.horizon.oldest() => {}
            readers => {
                let when = if matches!(readers, Readers::Snapshots) { Free::Now } else { Free::BehindGuards };
                if matches!(readers, Readers::Below) {
                    // The intent above is freed after this one.
                    self.superseding(&old).forget_below();
                }
                // SAFETY: no snapshot is older than the version above, or will be, so none comes past that. What still looks at an intent, or
                // at a version of a closed chain, has found it under a guard.
                return unsafe { version.free(when, self.guard) };
            }
        }
        let begin = version.begin().batch();
        // Where no snapshot is older than this version, the one below may be gone, and nothing reads it.
        let is_last = self.garbage.horizon.newest_before(begin).is_none();
        let below = if is_last { None } else { self.below(version) };
        if below.is_some_and(|below| !below.is_linked_upward()) {
            // The thread that put this version between those two leaves that one later.
            self.garbage.superseded.push_back(old);
            return;
        }
        // The version that is named as the one above stays until it is unlinked, and then another one is named.
        let above = self.above(version).unwrap_or_else(|| self.find_above(&old));
        // Of those that were inserted in between the lowest one superseded it.
        old.lower_batch(above.begin().batch());
        let seen_by = self.garbage.horizon.newest_before(old.batch()).filter(|&snapshot| snapshot >= begin);
        // Where nothing is below, a missing version means that the key is absent, as a deletion does.
        let seen_by = seen_by.filter(|_| !is_last || matches!(version.state(), State::Row(_)));
        // SAFETY: this collects the chain, and the batch of the version above is finished. Once unlinked, the version is no longer found; snapshots
        // that are at it have found it under a guard.
        unsafe {
            match seen_by {
                Some(_) => version.link_upward(above),
                None => version.unlink(above, below, self.guard),
            }
        }
        if let Some(snapshot) = seen_by {
            self.garbage.held.entry(snapshot).or_default().versions.push(old);
        }
    }

    /// The version right above a superseded one: the one that superseded it, or the lowest of those that were inserted late in between.
    fn find_above(&mut self, old: &Superseded) -> Version<'c> {
        let mut above = self.superseding(old);
        loop {
            self.garbage.step();
            // Versions above one that is still there are freed behind it, or are unlinked.
            match self.below(above) {
                Some(below) if below.raw() != old.version() => above = below,
                below => {
                    debug_assert!(below.is_some(), "a version lies below the one that superseded it");
                    return above;
                }
            }
        }
    }

    /// Removes a key from its index whose newest version is a deletion, unless a snapshot sees another version below.
    fn remove(&mut self, mut deleted: Deleted) {
        self.garbage.step();
        let Some((chain, version)) = deleted.newest(self.guard) else {
            self.garbage.unused.push(deleted.store);
            return;
        };
        if let Some(snapshot) = self.garbage.horizon.newest_before(deleted.batch())
            && let Some(below) = self.below(version)
        {
            deleted.waited = true;
            if below.is_linked_upward() {
                deleted.store.displace(&deleted.key, chain, (deleted.version, deleted.batch()), self.guard);
                self.garbage.held.entry(snapshot).or_default().deleted.push(deleted);
            } else {
                self.garbage.deleted.push_back(deleted);
            }
            return;
        }
        let Deleted { store, key, version, .. } = deleted;
        // Transactions that were planned may have been given the version to read.
        let from = if chain.head().is_sealed() { store.displaced.index() } else { Some(store.index()) };
        // SAFETY: the thread that plans for the partition alone closes the chain, and no later batch knows the version.
        let closed = unsafe { chain.head().close(version, self.planned) };
        closed.iter().for_each(|closed| chain.remove(from, &key, closed, self.guard));
        self.garbage.superseded.extend(closed);
        self.garbage.unused.push(store);
    }
}

impl BohmStore {
    /// Displaces a key that a snapshot sees, and that was deleted in this batch. The caller plans for its partition, and the batch is finished.
    fn displace(&self, key: &OwnedKey, chain: Chain<'_>, (deletion, batch): (RawVersion, u64), guard: &Guard<'_>) {
        if chain.head().is_sealed() {
            return;
        }
        match key {
            OwnedKey::Short(key) => self.displace_key(*key, chain, (deletion, batch), guard),
            OwnedKey::Long(key) => self.displace_key(&**key, chain, (deletion, batch), guard),
        }
    }

    fn displace_key<K: EncodedKey>(
        &self,
        key: K,
        chain: Chain<'_>,
        (deletion, batch): (RawVersion, u64),
        guard: &Guard<'_>,
    ) {
        let Some(beside) = self.displaced.index() else { return };
        // Another chain of the key may lie there, and without memory everything stays where it is.
        if !matches!(beside.insert(key, chain.handle(), &mut (), guard), Ok(Inserted::New)) {
            return;
        }
        self.displaced.raise(batch);
        // A late write may have come first.
        let from = if chain.head().seal(deletion) { self.index() } else { beside };
        let removed = from.remove(key, chain.handle(), guard);
        assert!(removed, "the chain was in both, and only the thread that plans for the key removes it");
    }

    /// Whether a key leads to a chain, in the index or beside.
    fn leads_to(&self, key: &OwnedKey, chain: Handle, guard: &Guard<'_>) -> bool {
        let find = |index: &AnyIndex| match key {
            OwnedKey::Short(key) => index.find(*key, guard),
            OwnedKey::Long(key) => index.find(&**key, guard),
        };
        [Some(self.index()), self.displaced.index()].into_iter().flatten().any(|index| find(index) == Some(chain))
    }
}
