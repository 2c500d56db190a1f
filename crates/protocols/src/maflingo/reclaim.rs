//! Deleted keys leave the index (§4.8).
//!
//! The thesis lets a background walker sweep every tree. Here each worker queues the tombstones it writes, and takes them
//! out in small steps between its transactions, so nothing is walked that did not change. Two more deviations:
//!
//! * A tombstone leaves only when no snapshot, not even a long one, is older than it (`epoch ≤ collectable`). The thesis
//!   lets it go at `epoch ≤ T_readonly`, but a reader that began earlier would then miss a row it must still see.
//! * Taking a record out aborts nobody: stamps do not change with removals, and a transaction that read the tombstone
//!   holds the node's stamp beside it, so an *absent* record that is unlinked still validates (`commit.rs`).
//!
//! * A transaction that writes on a tombstone claims it first. A claimed tombstone stays; the claim is taken back, and the
//!   tombstone looked at again when every transaction of that moment has ended. So a transaction that runs finds what it
//!   wrote under the key where it wrote it.
//!
//! Superseded versions need no step of their own: they are given to the memory's epochs when they are made, and nobody
//! follows a link to a version whose successor is old enough (`Record::read_at`), so links are never cut.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use polychron_base::key::EncodedKey;
use polychron_engine::stores::{OwnedKey, Place};
use polychron_memory::Guard;
use polychron_sync::atomic::{AtomicBool, Ordering};

use super::record::{Record, Tid};
use super::table::MaflingoTable;

/// A worker with more tombstones than this shares them, in case it has nothing to do for a while.
const SHARE_ABOVE: usize = 512;

/// A deleted record that the index still knows.
#[derive(Debug)]
pub(super) struct Tombstone {
    place: Place,
    key: OwnedKey,
    record: Record,
    tid: Tid,
    /// The epoch in which a claim was taken back: transactions of that epoch may still rely on it.
    disclaimed: u64,
}

impl Tombstone {
    pub(super) fn new(place: Place, key: &[u8], record: Record, tid: Tid) -> Self {
        Self { place, key: OwnedKey::new(key), record, tid, disclaimed: 0 }
    }
}

/// Tombstones that no worker owns: of workers that left, or had too many.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    any: AtomicBool,
    tombstones: Mutex<VecDeque<Tombstone>>,
}

impl Orphans {
    pub(super) fn adopt(&self, tombstones: &mut VecDeque<Tombstone>) {
        if !tombstones.is_empty() {
            self.tombstones.lock().unwrap_or_else(PoisonError::into_inner).append(tombstones);
            // A hint only: the lock carries the data.
            self.any.store(true, Ordering::Relaxed);
        }
    }

    fn take(&self) -> VecDeque<Tombstone> {
        if !self.any.swap(false, Ordering::Relaxed) {
            return VecDeque::new();
        }
        std::mem::take(&mut *self.tombstones.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One worker's queue.
#[derive(Debug, Default)]
pub(super) struct Reclaimer {
    queue: VecDeque<Tombstone>,
}

impl Reclaimer {
    #[inline]
    pub(super) fn push(&mut self, tombstone: Tombstone) {
        self.queue.push_back(tombstone);
    }

    /// Hands everything over when the worker leaves.
    pub(super) fn leave(&mut self, orphans: &Orphans) {
        orphans.adopt(&mut self.queue);
    }

    /// Shares the queue when it has become long.
    #[inline]
    pub(super) fn share_surplus(&mut self, orphans: &Orphans) {
        if self.queue.len() > SHARE_ABOVE {
            orphans.adopt(&mut self.queue);
        }
    }

    /// Takes up to `limit` tombstones out that no snapshot can see behind any more.
    #[inline]
    pub(super) fn step(
        &mut self,
        tables: &[Option<Arc<MaflingoTable>>],
        worker: usize,
        limit: usize,
        guard: &Guard<'_>,
    ) {
        if self.queue.is_empty() {
            return;
        }
        let (collectable, readonly) = (guard.epochs().collectable(), guard.epochs().readonly());
        for _ in 0..limit {
            let due =
                |tombstone: &mut Tombstone| tombstone.tid.epoch() <= collectable && tombstone.disclaimed <= readonly;
            let Some(mut tombstone) = self.queue.pop_front_if(due) else { return };
            match unlink(&tombstone, tables, worker, guard) {
                Unlinked::Done => {}
                Unlinked::Latched => {
                    self.queue.push_back(tombstone);
                    return;
                }
                Unlinked::Claimed => {
                    tombstone.disclaimed = guard.epochs().current();
                    self.queue.push_back(tombstone);
                }
            }
        }
    }

    /// Works off this queue and the orphans, as far as snapshots allow.
    pub(super) fn drain(
        &mut self,
        orphans: &Orphans,
        tables: &[Option<Arc<MaflingoTable>>],
        worker: usize,
        guard: &Guard<'_>,
    ) {
        let mut adopted = orphans.take();
        self.queue.append(&mut adopted);
        self.step(tables, worker, self.queue.len(), guard);
        orphans.adopt(&mut self.queue);
    }
}

/// What came of taking a tombstone out.
enum Unlinked {
    /// It is out, or something else stands for its key by now.
    Done,
    /// A transaction holds its latch just now.
    Latched,
    /// A transaction had claimed it; the claim is taken back.
    Claimed,
}

/// Takes one record out of its index.
fn unlink(tombstone: &Tombstone, tables: &[Option<Arc<MaflingoTable>>], worker: usize, guard: &Guard<'_>) -> Unlinked {
    let Place { table, index } = tombstone.place;
    let store = tables.get(table.position()).and_then(Option::as_ref).and_then(|table| table.store(index).ok());
    // A dropped table or index gives its records back as a whole.
    let Some(store) = store else { return Unlinked::Done };
    match &tombstone.key {
        OwnedKey::Short(key) => unlink_key(tombstone, store, *key, worker, guard),
        OwnedKey::Long(key) => unlink_key(tombstone, store, &**key, worker, guard),
    }
}

fn unlink_key<K: EncodedKey>(
    tombstone: &Tombstone,
    store: &super::table::Store,
    key: K,
    worker: usize,
    guard: &Guard<'_>,
) -> Unlinked {
    let record = tombstone.record;
    // The key may have been used again, and deleted again: then a later tombstone stands for it, perhaps on another
    // record, and this one's memory must not be touched before the index has confirmed it.
    if store.index().get(key, guard).handle != Some(record.handle()) {
        return Unlinked::Done;
    }
    let Some(state) = record.latch(worker) else { return Unlinked::Latched };
    if !state.absent() || state.unlinked() || record.tid() != tombstone.tid {
        record.unlatch();
        return Unlinked::Done;
    }
    if state.claimed() {
        record.disclaim();
        record.unlatch();
        return Unlinked::Claimed;
    }
    let removed = store.index().remove(key, record.handle(), guard);
    debug_assert!(removed, "the record was linked and latched");
    record.unlink();
    // SAFETY: the index has forgotten the record, so only guards that exist now can reach it.
    unsafe { guard.retire(record.memory(), record.bytes()) };
    Unlinked::Done
}
