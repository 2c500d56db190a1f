//! Collection (§3.3.2): what was superseded in a batch goes when that batch is finished, but for what open snapshots see.
//!
//! `docs/protocols/bohm.md` has the invariants. All of it is done by who plans for the partition, so each chain is one thread's.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use polychron_base::key::EncodedKey;
use polychron_engine::stores::OwnedKey;
use polychron_index::Handle;
use polychron_memory::Guard;

use super::chain::Chain;
use super::entry::Known;
use super::table::BohmStore;
use super::timestamp::Timestamp;
use super::version::{Old, RawVersion, State, Version};

/// Of what a snapshot has held that is over, how much is looked at in one batch.
const PIECE: usize = if polychron_sync::MODELLED { 2 } else { 1024 };

/// A version that no transaction wants which comes after a batch.
#[derive(Debug)]
pub(super) struct Superseded {
    pub(super) old: Old,
    /// The batch of the version above.
    pub(super) batch: u64,
    pub(super) readers: Readers,
}

/// How readers may still come to a superseded version when all transactions that want it are over.
#[derive(Clone, Copy, Debug)]
pub(super) enum Readers {
    /// Snapshots that are older than the version above.
    Snapshots,
    /// By its chain, which has left its index: who found it there before reads what is there since.
    Guards,
    /// They walk further down than to what they want: from the version above, which then ends the list.
    Below,
}

/// A key whose newest version says that it is absent.
#[derive(Debug)]
pub(super) struct Deleted {
    store: Arc<BohmStore>,
    key: OwnedKey,
    chain: Handle,
    version: RawVersion,
    begin: Timestamp,
    /// It was looked at before: what it says may not be so any more.
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
        // One that has waited may be gone, and its chain, too; the same memory may serve again.
        if self.waited && !self.store.leads_to(&self.key, self.chain, guard) {
            return None;
        }
        // SAFETY: the index leads to it, or nobody has taken it out since the version was put there.
        let chain: Chain<'g> = unsafe { Chain::from_handle(self.chain) };
        let newest = chain.head().newest().filter(|newest| *newest == self.version)?;
        // SAFETY: the newest version of a chain goes by the guards, once it is taken out by who plans for the key, which is the caller.
        let version: Version<'g> = unsafe { newest.get() };
        (version.begin() == self.begin).then_some((chain, version))
    }
}

pub(super) fn owned_key(entry: Known<'_>) -> OwnedKey {
    let mut bytes = vec![0; entry.key().len()];
    entry.key().write_to(&mut bytes);
    OwnedKey::new(&bytes)
}

/// What may be given back: all batches up to one are finished, and which snapshots are older than that.
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
    /// What open snapshots see, by the newest one that does.
    held: BTreeMap<u64, Held>,
    pub(super) horizon: Horizon,
    /// Stores that nothing here needs any more.
    pub(super) unused: Vec<Arc<BohmStore>>,
    /// Versions and keys that were looked at, for tests.
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

    /// Gives back what the horizon allows. What snapshots held that are over is looked at bit by bit, or all of it. Transactions of batches up
    /// to `planned` may have been told of what is there.
    pub(super) fn collect(&mut self, all: bool, planned: u64, guard: &Guard<'_>) {
        if !self.held.is_empty() {
            self.let_go(if all { usize::MAX } else { PIECE }, planned, guard);
        }
        let finished = self.horizon.finished;
        // What has to wait for others comes behind those that are there now.
        for _ in 0..self.superseded.len() {
            let Some(old) = self.superseded.pop_front_if(|old| old.batch <= finished) else { break };
            self.give_back(old, guard);
        }
        for _ in 0..self.deleted.len() {
            let Some(deleted) = self.deleted.pop_front_if(|deleted| deleted.batch() <= finished) else { break };
            self.take_out(deleted, planned, guard);
        }
    }

    /// Looks again at what was held for snapshots that are over: it goes, or an older one sees it, too.
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
            versions.into_iter().for_each(|old| self.give_back(old, guard));
            deleted.into_iter().for_each(|deleted| self.take_out(deleted, planned, guard));
            before = snapshot;
        }
    }

    /// Gives a version back whose superseding batch is finished, or keeps it for the newest snapshot that sees it.
    fn give_back(&mut self, mut old: Superseded, guard: &Guard<'_>) {
        self.step();
        // Every transaction that could want the version, or come past it, is in a batch that is finished.
        // SAFETY: the version stays until it is given back, which is done here alone.
        let version = unsafe { old.old.version().get() };
        match old.readers {
            Readers::Guards | Readers::Below => {
                // SAFETY: the intent above goes behind this one. Who still looks at it has found it under a guard.
                return unsafe {
                    if matches!(old.readers, Readers::Below) {
                        old.old.above().get().forget_below();
                    }
                    version.retire(guard);
                };
            }
            Readers::Snapshots if old.batch <= self.horizon.oldest() => {
                // SAFETY: no snapshot is older than the version above, or will be, so none comes past that.
                return unsafe { version.free(guard) };
            }
            Readers::Snapshots => {}
        }
        let begin = version.begin().batch();
        // Where no snapshot is older than this version, what is below may be gone, and is wanted by nobody.
        let is_last = self.horizon.newest_before(begin).is_none();
        let below = if is_last { None } else { version.below() };
        // SAFETY: a snapshot may want it, so it stays.
        let below = below.map(|below| unsafe { below.get() });
        if below.is_some_and(|below| !below.is_settled()) {
            // Whoever put this one between those two tells of that one later.
            self.superseded.push_back(old);
            return;
        }
        let above = match version.above() {
            // SAFETY: what is said to be above stays until it is unlinked, and that says which one is above from then on.
            Some(above) => unsafe { above.get() },
            None => self.find_above(&old.old),
        };
        // Of those that were put in between the lowest one superseded it.
        old.batch = old.batch.min(above.begin().batch());
        let seen_by = self.horizon.newest_before(old.batch).filter(|&snapshot| snapshot >= begin);
        // Where nothing is below, nothing says that the key is absent as well as a version that says so.
        match seen_by.filter(|_| !is_last || matches!(version.state(), State::Row)) {
            Some(snapshot) => {
                // SAFETY: this collects the chain, and the batch of the version above is finished.
                unsafe { version.settle(above) };
                self.held.entry(snapshot).or_default().versions.push(old);
            }
            // SAFETY: as above. Then nobody finds it any more; snapshots that are at it have found it under a guard.
            None => unsafe {
                version.unlink(above, below);
                version.retire(guard);
            },
        }
    }

    /// The version right above a superseded one, from the one that superseded it on down: between them are those that were put there late.
    fn find_above<'g>(&mut self, old: &Old) -> Version<'g> {
        let mut next = old.above();
        loop {
            self.step();
            // SAFETY: versions above one that is still there are not given back before it, or are unlinked.
            let above = unsafe { next.get() };
            match above.below() {
                Some(below) if below != old.version() => next = below,
                below => {
                    debug_assert!(below.is_some(), "a version lies below the one that superseded it");
                    return above;
                }
            }
        }
    }

    /// Takes a key out of its index whose newest version says that it is absent, unless a snapshot sees another one below.
    fn take_out(&mut self, mut deleted: Deleted, planned: u64, guard: &Guard<'_>) {
        self.step();
        let Some((chain, version)) = deleted.newest(guard) else {
            self.unused.push(deleted.store);
            return;
        };
        if let Some(snapshot) = self.horizon.newest_before(deleted.batch())
            && let Some(below) = version.below()
        {
            deleted.waited = true;
            // SAFETY: a snapshot may want it, so it stays.
            if unsafe { below.get() }.is_settled() {
                deleted.store.displace(&deleted.key, chain, (deleted.version, deleted.batch()), guard);
                self.held.entry(snapshot).or_default().deleted.push(deleted);
            } else {
                self.deleted.push_back(deleted);
            }
            return;
        }
        let Deleted { store, key, version, .. } = deleted;
        let taken_out = store.take_out(&key, chain, version, guard);
        self.unused.push(store);
        // Transactions that were planned may have been told to read it.
        let superseded = taken_out.map(|old| Superseded { old, batch: planned, readers: Readers::Guards });
        self.superseded.extend(superseded);
    }
}
