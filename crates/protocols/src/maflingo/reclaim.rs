//! Deleted keys leave the index (§4.8).
//!
//! The thesis lets a background walker sweep every tree. Here each worker queues the tombstones it writes, and takes them
//! out in small steps between its transactions, so nothing is walked that did not change. Two more deviations:
//!
//! * A tombstone leaves only when no snapshot, not even a long one, sees what it replaced: when none is older than it
//!   (`epoch ≤ collectable`), or when it is the past for all that begin (`epoch ≤ T_readonly`, here `past`) and no row is left in its
//!   chain (`versions.rs`). The thesis lets it go at `epoch ≤ T_readonly`, but a reader that began earlier would then miss
//!   a row it must still see. Where it looks behind the tombstone, the key moves to an index beside (`displaced.rs`).
//! * Taking a record out aborts no transaction: stamps do not change with removals, a transaction that read the tombstone
//!   holds the node's stamp beside it, so an *absent* record that is unlinked still validates (`commit.rs`), and the latch
//!   is the background's.
//!
//! * A transaction that writes on a tombstone claims it first. A claimed tombstone stays; the claim is taken back, and the
//!   tombstone looked at again when every transaction of that time has ended. So a transaction that runs finds what it
//!   wrote under the key where it wrote it.
//! * An insertion that another transaction had claimed when it was given up is queued as a tombstone of no epoch.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use polychron_base::key::EncodedKey;
use polychron_base::room::KeptList;
use polychron_engine::mutations::left_out;
use polychron_engine::stores::{IndexRef, OwnedKey};
use polychron_memory::Guard;
use polychron_sync::atomic::{AtomicBool, Ordering};
use polychron_sync::{Mutex, MutexGuard};

use super::record::{Address, Record, Tid};
use super::steps::Step;
use super::table::{self, MaflingoTable, Store};
use super::versions::{self, View};

/// A worker with more tombstones than this shares them, in case it has nothing to do for a while. More than a busy worker
/// writes in the epochs that a tombstone waits: it takes them out itself, and does not depend on when the clock's thread
/// gets a processor.
const SHARE_ABOVE: usize = 8192;

/// Tombstones looked at in one pass with a view; the next transaction goes on.
const SLICE: usize = 256;

/// Tombstones without an owner that are looked at under one guard.
const ORPHANS: usize = 1024;

/// A deleted record that the index still knows.
#[derive(Debug)]
pub(super) struct Tombstone {
    index_ref: IndexRef,
    key: OwnedKey,
    /// Where the record was: it may have gone by another way.
    record: Address,
    tid: Tid,
    /// Of the record.
    bytes: u32,
    /// The epoch in which a claim was taken back: transactions of that epoch may still rely on it.
    disclaimed: u64,
    /// Whether the record lies beside its index.
    displaced: bool,
}

impl Tombstone {
    pub(super) fn new(index_ref: IndexRef, key: &[u8], record: Record<'_>, tid: Tid) -> Self {
        let (key, bytes) = (OwnedKey::new(key), record.bytes() as u32);
        Self { index_ref, key, record: record.address(), tid, bytes, disclaimed: 0, displaced: false }
    }
}

/// Tombstones in the order in which they were written, more or less.
#[derive(Debug, Default)]
struct Queues {
    /// Those that were not looked at yet.
    fresh: VecDeque<Tombstone>,
    /// Those that replaced what an open snapshot sees: they wait until none is older.
    kept: VecDeque<Tombstone>,
    /// Those of which a claim was taken back: they wait for the transactions of that time, and the others not for them.
    claimed: VecDeque<Tombstone>,
}

impl Queues {
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        self.fresh.len() + self.kept.len() + self.claimed.len()
    }

    fn all(&mut self) -> [&mut VecDeque<Tombstone>; 3] {
        [&mut self.fresh, &mut self.kept, &mut self.claimed]
    }

    /// Gives the memory back that a backlog has needed.
    fn shrink(&mut self) {
        self.all().into_iter().for_each(KeptList::give_back_room);
    }

    /// Takes over up to `limit` of another one's, of each kind the oldest ones.
    fn take_from(&mut self, other: &mut Self, limit: usize) {
        for (queue, other) in self.all().into_iter().zip(other.all()) {
            if queue.is_empty() && other.len() <= limit {
                std::mem::swap(queue, other);
            } else {
                queue.extend(other.drain(..limit.min(other.len())));
            }
        }
    }
}

/// Tombstones that no worker owns: of workers that left, or had too many.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    any: AtomicBool,
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    queues: Queues,
    /// How many of the claimed ones the present sweep has still to look at, and how many of those it has looked at have stayed.
    sweeps: usize,
    stayed: usize,
}

impl Orphans {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn adopt(&self, queues: &mut Queues) {
        if !queues.is_empty() {
            self.shared().queues.take_from(queues, usize::MAX);
            // A hint only: the lock carries the data.
            self.any.store(true, Ordering::Relaxed);
        }
    }

    /// Puts back what was left of a slice, where it was.
    fn put_back(&self, queues: &mut Queues) {
        if !queues.is_empty() {
            let mut shared = self.shared();
            for (queue, from) in shared.queues.all().into_iter().zip(queues.all()) {
                from.drain(..).rev().for_each(|tombstone| queue.push_front(tombstone));
            }
            self.any.store(true, Ordering::Relaxed);
        }
    }

    /// Takes a slice out. Whether there is more.
    fn take(&self, queues: &mut Queues) -> bool {
        if !self.any.load(Ordering::Relaxed) {
            return false;
        }
        let mut shared = self.shared();
        queues.take_from(&mut shared.queues, ORPHANS);
        shared.queues.shrink();
        let more = !shared.queues.is_empty();
        self.any.store(more, Ordering::Relaxed);
        more
    }

    /// Lets claimed tombstones go that have been overwritten since. The others wait for the transactions of their time, which may be open
    /// for long, and a key that comes and goes meanwhile leaves one each time. They are gone through in slices, when there are twice as many
    /// as have stayed in the last sweep.
    pub(super) fn sweep(&self, tables: &[Option<Arc<MaflingoTable>>], guard: &Guard<'_>) {
        let mut shared = self.shared();
        let Shared { queues: Queues { claimed, .. }, sweeps, stayed } = &mut *shared;
        if *sweeps == 0 && claimed.len() > 2 * *stayed + ORPHANS {
            (*sweeps, *stayed) = (claimed.len(), 0);
        }
        let count = (*sweeps).min(claimed.len()).min(ORPHANS);
        *sweeps = (*sweeps).min(claimed.len()) - count;
        let mut slice: Vec<_> = claimed.drain(..count).collect();
        drop(shared);
        if count > 0 {
            slice.retain(|tombstone| !matches!(unlink(tombstone, tables, Look::Only, guard), Unlinked::Done));
            let mut shared = self.shared();
            shared.stayed += slice.len();
            shared.queues.claimed.extend(slice);
        }
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shared().queues.len()
    }
}

/// For what a tombstone is looked at.
#[derive(Clone, Copy)]
enum Look<'l, 'g, 'v> {
    /// To take it out: no snapshot is older.
    Old,
    /// To take it out if it hides nothing from the snapshots of a view.
    Between(&'l View<'g, 'v>),
    /// To find out whether something else stands for its key by now.
    Only,
}

/// One worker's queue.
#[derive(Debug, Default)]
pub(super) struct Reclaimer {
    queues: Queues,
    /// Of the records of all that was queued since the queues were shared, less those that were unlinked.
    bytes: usize,
}

impl Reclaimer {
    #[inline]
    pub(super) fn push(&mut self, tombstone: Tombstone) {
        self.bytes += tombstone.bytes as usize;
        self.queues.fresh.push_back(tombstone);
    }

    /// Hands everything over when the worker leaves.
    pub(super) fn leave(&mut self, orphans: &Orphans) {
        orphans.adopt(&mut self.queues);
    }

    /// Shares the queue when it has become long.
    #[inline]
    pub(super) fn share_surplus(&mut self, orphans: &Orphans, most_bytes: usize) {
        if self.bytes > most_bytes || self.queues.len() > SHARE_ABOVE {
            orphans.adopt(&mut self.queues);
            self.queues.shrink();
            self.bytes = 0;
        }
    }

    /// How many tombstones there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.queues.len()
    }

    /// Tombstones that a queue has room for.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        let Queues { fresh, kept, claimed } = &self.queues;
        fresh.capacity().max(kept.capacity()).max(claimed.capacity())
    }

    /// Whether there are tombstones that were not looked at yet.
    pub(super) fn has_fresh(&self) -> bool {
        !self.queues.fresh.is_empty()
    }

    /// Takes up to `limit` tombstones out than which no snapshot is older.
    #[inline]
    pub(super) fn step(&mut self, tables: &[Option<Arc<MaflingoTable>>], limit: usize, guard: &Guard<'_>) {
        if self.queues.is_empty() {
            return;
        }
        // A thread that may rely on a claim is pinned; whether it reads the past makes no difference.
        let (collectable, readonly) = (guard.epochs().collectable(), guard.epochs().readonly());
        let unseen =
            |tombstone: &mut Tombstone| tombstone.tid.epoch() <= collectable || left_out(Step::OutliveSnapshots);
        let unclaimed = |tombstone: &mut Tombstone| {
            (tombstone.disclaimed <= readonly || left_out(Step::OutliveClaims)) && unseen(tombstone)
        };
        for _ in 0..limit {
            let Queues { fresh, kept, claimed } = &mut self.queues;
            let due = fresh.pop_front_if(unseen).or_else(|| kept.pop_front_if(unseen));
            let Some(tombstone) = due.or_else(|| claimed.pop_front_if(unclaimed)) else { return };
            if !self.unlink(tombstone, tables, Look::Old, guard) {
                return;
            }
        }
    }

    /// While a long snapshot is open: takes tombstones out that hide nothing from it either. Each is looked at once.
    pub(super) fn step_between(
        &mut self,
        tables: &[Option<Arc<MaflingoTable>>],
        all: bool,
        view: &View<'_, '_>,
        guard: &Guard<'_>,
    ) {
        let past = |tombstone: &mut Tombstone| tombstone.tid.epoch() <= view.past();
        for _ in 0..if all { self.queues.fresh.len() } else { SLICE } {
            let Some(tombstone) = self.queues.fresh.pop_front_if(past) else { return };
            if !self.unlink(tombstone, tables, Look::Between(view), guard) {
                return;
            }
        }
    }

    /// Takes one tombstone out, or puts it back. `false`: some thread is at it just now.
    fn unlink(
        &mut self,
        mut tombstone: Tombstone,
        tables: &[Option<Arc<MaflingoTable>>],
        look: Look<'_, '_, '_>,
        guard: &Guard<'_>,
    ) -> bool {
        let unlinked = unlink(&tombstone, tables, look, guard);
        match unlinked {
            Unlinked::Done => self.bytes = self.bytes.saturating_sub(tombstone.bytes as usize),
            Unlinked::Latched => self.queues.fresh.push_back(tombstone),
            Unlinked::Claimed => {
                tombstone.disclaimed = guard.epochs().current();
                self.queues.claimed.push_back(tombstone);
            }
            Unlinked::Needed { displaced } => {
                tombstone.displaced = displaced;
                self.queues.kept.push_back(tombstone);
            }
        }
        !matches!(unlinked, Unlinked::Latched)
    }

    /// Works off this queue and a slice of the orphans, as far as snapshots allow. Whether it is worth coming back for the rest.
    pub(super) fn drain(
        &mut self,
        orphans: &Orphans,
        tables: &[Option<Arc<MaflingoTable>>],
        guard: &Guard<'_>,
    ) -> bool {
        let more = orphans.take(&mut self.queues);
        let taken = self.queues.len();
        self.step(tables, taken, guard);
        if self.has_fresh()
            && versions::long_snapshot(guard)
            && let Some(view) = View::new(guard, &mut Vec::new())
        {
            self.step_between(tables, true, &view, guard);
        }
        let left = self.queues.len();
        orphans.put_back(&mut self.queues);
        more && left < taken
    }
}

/// What came of taking a tombstone out.
enum Unlinked {
    /// It is out, or something else stands for its key by now.
    Done,
    /// A transaction holds its latch just now.
    Latched,
    /// A transaction had claimed it; the claim is taken back, now or before.
    Claimed,
    /// An open snapshot sees what it replaced, and looks for it beside the index if it lies there by now.
    Needed { displaced: bool },
}

/// Takes one record out of its index, or looks whether that is still to be done.
fn unlink(
    tombstone: &Tombstone,
    tables: &[Option<Arc<MaflingoTable>>],
    look: Look<'_, '_, '_>,
    guard: &Guard<'_>,
) -> Unlinked {
    // A dropped table or index gives its records back as a whole.
    let Some(store) = versions::store_at(tables, tombstone.index_ref) else { return Unlinked::Done };
    match &tombstone.key {
        OwnedKey::Short(key) => unlink_key(tombstone, store, *key, look, guard),
        OwnedKey::Long(key) => unlink_key(tombstone, store, &**key, look, guard),
    }
}

fn unlink_key<K: EncodedKey>(
    tombstone: &Tombstone,
    store: &Store,
    key: K,
    look: Look<'_, '_, '_>,
    guard: &Guard<'_>,
) -> Unlinked {
    let is_its = |record: &Record<'_>| record.address() == tombstone.record;
    if tombstone.displaced {
        // The other index has forgotten it before; only the holder of the tombstone unlinks it.
        if let Some(beside) = store.displaced.entries()
            && let Some(record) = table::find(beside, key, guard).filter(is_its)
        {
            table::remove(beside, key, record, guard, |_| ());
        }
        return Unlinked::Done;
    }
    // The key may have been used again, and deleted again: then a later tombstone stands for it, perhaps on another
    // record, and this one's memory must not be touched before the index has confirmed it.
    let Some(record) = table::find(store, key, guard).filter(is_its) else { return Unlinked::Done };
    let Some(state) = record.latch_in_background() else { return Unlinked::Latched };
    // An insertion that was given up has no id yet; another one's may lie in the same memory, under the same key.
    let not_given_up = tombstone.tid == Tid::ZERO && !state.given_up();
    let another = !state.absent() || state.unlinked() || record.tid() != tombstone.tid || not_given_up;
    if another && !left_out(Step::UnlinkOnlyTombstones) {
        record.unlatch();
        return Unlinked::Done;
    }
    let view = match look {
        Look::Old => None,
        Look::Between(view) => Some(view),
        Look::Only => {
            record.unlatch();
            return Unlinked::Claimed;
        }
    };
    if state.claimed() && !left_out(Step::RespectClaims) {
        record.disclaim();
        record.unlatch();
        return Unlinked::Claimed;
    }
    if view.is_some_and(|view| versions::prune(record, view)) && !left_out(Step::KeepHidden) {
        let displaced = store.displace(key, record, tombstone.tid, guard);
        if !displaced {
            record.unlatch();
        }
        return Unlinked::Needed { displaced };
    }
    table::remove(store, key, record, guard, |record| {
        if let Some(view) = view {
            versions::abandon(record, view);
        }
        record.unlink();
    });
    Unlinked::Done
}
