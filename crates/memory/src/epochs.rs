//! The epoch clock: one clock for reclamation and for the protocols' snapshots (§4.6 to §4.8 of the Maflingo thesis).
//!
//! Every worker has a slot. `active` is the epoch in which it is pinned; `walking` the same, where it follows links between versions;
//! `committing` the epoch in which it announced that it is about to commit; `snapshot` the epoch its read-only transaction reads at. Any
//! thread that holds the ticket [`Epochs::advance`] asks for (the *leader* of that time) moves `current` on, looks at these words and
//! publishes what follows: `readonly`, the newest epoch in which no thread is still pinned; `left`, the same but for those whose finds
//! are noted (`aside.rs`); `walked`, the newest in which no such walker is; `past`, the newest in which no thread can still commit; and
//! `collectable`, the oldest epoch any snapshot may read at. So a transaction that is open and does nothing holds back the memory that it
//! may have found, and neither snapshots nor the versions that were made for them. All horizons only grow. `docs/memory.md` proves what is
//! promised here; this module depends on nothing but atomics, so that loom can run it.

use std::ops::Range;
use std::sync::Arc;

use polychron_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use polychron_sync::{CachePadded, publish, this_thread};

use crate::barriers;
use crate::beginnings::Beginnings;

/// The word of a slot that takes no part: greater than every epoch, so that a minimum passes over it.
const IDLE: u64 = u64::MAX;

/// The `snapshot` word of a reader that is about to choose its epoch: it may be any that is readable now.
const OPENING: u64 = IDLE - 1;

/// In an `active` word: the worker is between two operations, and will look before the next one whether it was told to leave.
const ASIDE: u64 = 1 << 62;

/// The first epoch. What is loaded before any transaction ran counts as written in epoch 0.
const FIRST: u64 = 1;

/// The number of epochs that the clock begins while a worker stays in an old one.
const LONGEST_LAG: u64 = 16;

/// The epoch clock of one database. See the head of the module.
#[derive(Debug)]
pub struct Epochs {
    /// Written once a tick and read at every pin: one line for all workers, shared as long as the clock stands.
    horizons: CachePadded<Horizons>,
    /// Held by a thread that moves the clock.
    advancing: CachePadded<AtomicBool>,
    /// No slot from here on was ever claimed.
    used_slots: CachePadded<AtomicUsize>,
    slots: Box<[CachePadded<Slot>]>,
    beginnings: Beginnings,
    noted: Noted,
}

#[derive(Debug)]
struct Horizons {
    current: AtomicU64,
    readonly: AtomicU64,
    left: AtomicU64,
    noted: AtomicU64,
    walked: AtomicU64,
    past: AtomicU64,
    collectable: AtomicU64,
}

/// One worker's words.
#[derive(Debug)]
pub(crate) struct Slot {
    active: AtomicU64,
    /// The epoch that the worker was told to leave while it stood aside, by the leader, which passes a barrier behind it.
    notified: AtomicU64,
    /// That epoch, once it stood aside behind the barrier, with what it shows noted. Leaders write it; a worker reads it under the lock of
    /// its finds.
    gone: AtomicU64,
    /// Of a worker that has left epochs with its finds noted: the first of them, until its pin ends. Leaders write it under the lock of the
    /// finds, and the worker when its pin ends.
    since: AtomicU64,
    /// Whether the worker shows what it has found. Written while it is in no epoch.
    shows: AtomicBool,
    walking: AtomicU64,
    committing: AtomicU64,
    snapshot: AtomicU64,
    claimed: AtomicBool,
    /// The owner of the free blocks that the worker keeps for itself.
    kept: AtomicUsize,
    /// The thread on which the slot's worker was pinned last. Only that thread may conclude anything from it: it knows what
    /// it wrote itself.
    thread: AtomicU64,
}

/// The epochs that decide which retired blocks a worker may free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Horizon {
    /// No guard that could reach a block is of this epoch or an older one.
    pub(crate) guards: u64,
    /// No snapshot is older than this.
    pub(crate) collectable: u64,
}

impl Epochs {
    pub(crate) fn new(slots: usize) -> Self {
        barriers::prepare();
        let slot = || Slot {
            active: AtomicU64::new(IDLE),
            notified: AtomicU64::new(0),
            gone: AtomicU64::new(0),
            since: AtomicU64::new(IDLE),
            shows: AtomicBool::new(false),
            walking: AtomicU64::new(IDLE),
            committing: AtomicU64::new(IDLE),
            snapshot: AtomicU64::new(IDLE),
            claimed: AtomicBool::new(false),
            kept: AtomicUsize::new(kept::OWN),
            thread: AtomicU64::new(0),
        };
        let horizons = Horizons {
            current: AtomicU64::new(FIRST),
            readonly: AtomicU64::new(FIRST - 1),
            left: AtomicU64::new(FIRST - 1),
            noted: AtomicU64::new(0),
            walked: AtomicU64::new(FIRST - 1),
            past: AtomicU64::new(FIRST - 1),
            collectable: AtomicU64::new(FIRST - 1),
        };
        Self {
            horizons: CachePadded::new(horizons),
            advancing: CachePadded::new(AtomicBool::new(false)),
            used_slots: CachePadded::new(AtomicUsize::new(0)),
            slots: (0..slots).map(|_| CachePadded::new(slot())).collect(),
            beginnings: Beginnings::new(),
            noted: Noted::new(slots),
        }
    }

    /// The thesis's T_cur: the epoch that transactions which begin now run in.
    #[inline]
    pub fn current(&self) -> u64 {
        // Acquire: pairs with the leader's `publish` in `advance`. Sequentially consistent: a commit that reads the epoch
        // between latching and validating must not have it moved before its latches, or a transaction that overwrites what
        // it read could commit in an earlier epoch.
        self.horizons.current.load(Ordering::SeqCst)
    }

    /// The newest epoch in which no worker is still pinned, nor in an older one.
    #[inline]
    pub fn readonly(&self) -> u64 {
        // Acquire: pairs with the leader's release store in `scan`, which comes after it saw the workers leave.
        self.horizons.readonly.load(Ordering::Acquire)
    }

    /// The thesis's T_readonly: the newest epoch in which no thread can still commit ([`crate::Guard::begin_commit`]). A snapshot at
    /// this epoch or an older one never changes.
    #[inline]
    pub fn past(&self) -> u64 {
        // Acquire: pairs with the leader's `publish` in `scan`, which comes after it saw the commits end.
        self.horizons.past.load(Ordering::Acquire)
    }

    /// The thesis's T_gc: every snapshot reader, present or to come, reads at this epoch or a newer one. Data superseded
    /// in epoch E has no snapshot reader once `E <= collectable()`.
    #[inline]
    pub fn collectable(&self) -> u64 {
        // Acquire: pairs with the leader's release store in `scan`, which comes after it saw the readers leave.
        self.horizons.collectable.load(Ordering::Acquire)
    }

    /// The horizon of blocks that any guard may reach. A block behind it may still be noted.
    #[inline]
    pub(crate) fn horizon(&self) -> Horizon {
        Horizon { guards: self.left(), collectable: self.collectable() }
    }

    /// The newest epoch in which, and in older ones, there is no worker whose finds are not noted.
    #[inline]
    fn left(&self) -> u64 {
        // Acquire: pairs with the leader's release store in `scan`, which comes after it saw the workers leave, or noted what they had
        // found.
        self.horizons.left.load(Ordering::Acquire)
    }

    /// The horizon of versions, which only walkers reach.
    #[inline]
    pub(crate) fn version_horizon(&self) -> Horizon {
        // Acquire: pairs with the leader's release store in `scan`, which comes after it saw the walkers leave.
        Horizon { guards: self.horizons.walked.load(Ordering::Acquire), collectable: self.collectable() }
    }

    /// One tick: the current epoch moves on, whatever still runs in older ones, and both horizons follow as far as they can.
    ///
    /// Returns whether this call did it; a call that meets another one in progress leaves the work to that one.
    pub fn advance(&self) -> bool {
        self.lead(|| {
            let current = self.horizons.current.load(Ordering::Relaxed);
            self.beginnings.note(current + 1);
            // Barrier: pairs with `publish` in `pin`; a worker whose pin the scan misses sees the new epoch.
            publish(&self.horizons.current, current + 1);
            self.scan(current + 1);
        })
    }

    /// One tick, as [`Epochs::advance`] does it, unless `current` is far ahead of `readonly` already: while a worker stays in
    /// an old epoch nothing is gained by more of them, and the horizons are only brought up to date. Returns whether an
    /// epoch began.
    pub fn tick(&self) -> bool {
        if self.is_lagging() {
            self.refresh();
            return false;
        }
        self.advance()
    }

    /// Whether a worker that stays in an old epoch keeps the clock from beginning new ones.
    pub fn is_lagging(&self) -> bool {
        self.current() > self.left() + LONGEST_LAG
    }

    /// Brings the horizons up to date without a tick.
    ///
    /// Returns whether this call did it, as [`Epochs::advance`] does.
    pub fn refresh(&self) -> bool {
        self.lead(|| {
            let current = self.horizons.current.load(Ordering::Relaxed);
            // Barrier: as in `advance`. Storing the same epoch again harms no thread: only the leader writes it.
            publish(&self.horizons.current, current);
            self.scan(current);
        })
    }

    /// The time since an epoch ended, in nanoseconds: the age of a snapshot at it.
    pub fn age_ns(&self, epoch: u64) -> u64 {
        self.beginnings.since_ns(epoch + 1, self.current())
    }

    fn lead(&self, work: impl FnOnce()) -> bool {
        // Acquire: pairs with the release below, so that leaders follow each other.
        if self.advancing.swap(true, Ordering::Acquire) {
            return false;
        }
        work();
        // Release: pairs with the acquire above.
        self.advancing.store(false, Ordering::Release);
        true
    }

    /// Publishes the horizons. The caller leads, and has stored or read `current` and passed a barrier since.
    fn scan(&self, current: u64) {
        // Acquire: pairs with the release in `claim`.
        let slots = &self.slots[..self.used_slots.load(Ordering::Acquire)];
        let (horizons, oldest) = (&self.horizons, |word: fn(&Slot) -> &AtomicU64| {
            // Acquire: pairs with the release stores of those who leave and with `publish` of those who come: what they did in
            // the epochs they left happened before whatever someone does who sees the horizon.
            slots.iter().map(|slot| word(slot).load(Ordering::Acquire)).min().unwrap_or(IDLE)
        });
        // A word that was announced with an outdated epoch and is about to be announced anew may lie behind the horizon for a
        // time; no thread runs in it.
        let horizon = |oldest: u64, of: &AtomicU64| (oldest.min(current) - 1).max(of.load(Ordering::Relaxed));
        let oldest_active = self.oldest_active(slots, current);
        // Release: pairs with the acquire in `readonly`.
        horizons.readonly.store(horizon(oldest_active.pinned, &horizons.readonly), Ordering::Release);
        // Release: pairs with the acquire in `left`.
        horizons.left.store(horizon(oldest_active.unnoted, &horizons.left), Ordering::Release);
        // Release: pairs with the acquire in `version_horizon`.
        horizons.walked.store(horizon(oldest(|slot| &slot.walking), &horizons.walked), Ordering::Release);
        let past = horizon(oldest(|slot| &slot.committing), &horizons.past);
        // Barrier: pairs with `publish` in `begin_snapshot`; a reader whose snapshot the scan misses sees this epoch.
        publish(&horizons.past, past);
        // Acquire: again for slots claimed meanwhile.
        let slots = &self.slots[..self.used_slots.load(Ordering::Acquire)];
        // A reader that is choosing may come to read at any epoch from the present `collectable` on, so that stays.
        let bound = |word| if word == OPENING { 0 } else { word };
        // Acquire: pairs with the release store of `end_snapshot` and with `publish` in `begin_snapshot`.
        let oldest = slots.iter().map(|slot| bound(slot.snapshot.load(Ordering::Acquire))).min().unwrap_or(IDLE);
        let collectable = oldest.min(past).max(self.horizons.collectable.load(Ordering::Relaxed));
        // Release: pairs with the acquire in `collectable`.
        self.horizons.collectable.store(collectable, Ordering::Release);
    }

    /// Fills `epochs` with the epochs at which snapshots are open now, sorted and each once: what a pruner needs to take
    /// versions out of the middle of chains. To be used together with `past()` read **before** the call: a snapshot
    /// that is not listed, because it begins meanwhile, reads at that epoch or a newer one.
    ///
    /// Returns false when the list cannot tell, because some reader is just choosing its epoch.
    #[must_use]
    pub fn open_snapshots(&self, epochs: &mut Vec<u64>) -> bool {
        // SeqCst: the barrier between the caller's load of `past` and the scan; pairs with `begin_snapshot`.
        fence(Ordering::SeqCst);
        // Acquire: pairs with the release in `claim`.
        let slots = &self.slots[..self.used_slots.load(Ordering::Acquire)];
        epochs.clear();
        // Acquire: pairs with the release store of `end_snapshot`.
        epochs.extend(slots.iter().map(|slot| slot.snapshot.load(Ordering::Acquire)).filter(|epoch| *epoch != IDLE));
        epochs.sort_unstable();
        epochs.dedup();
        epochs.last() != Some(&OPENING)
    }

    /// Claims a free slot of these, or none when all are taken.
    pub(crate) fn claim(&self, mut slots: Range<usize>) -> Option<usize> {
        let free = |slot: &CachePadded<Slot>| {
            !slot.claimed.load(Ordering::Relaxed)
                // Acquire: pairs with the release in `release`.
                && slot.claimed.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let index = slots.find(|&index| free(&self.slots[index]))?;
        // Release: pairs with the acquire loads of the leader. The barrier of the owner's first pin comes later, so a
        // leader that does not see this yet is one whose scan came before that barrier.
        self.used_slots.fetch_max(index + 1, Ordering::AcqRel);
        Some(index)
    }

    /// Claims any free slot.
    #[cfg(test)]
    pub(crate) fn claim_any(&self) -> Option<usize> {
        self.claim(0..self.slots.len())
    }

    /// Gives a slot back. Its worker is neither pinned nor has it a snapshot from now on.
    pub(crate) fn release(&self, slot: usize) {
        self.unpin(slot);
        self.end_snapshot(slot);
        self.end_commit(slot);
        // Release: pairs with the acquire in `claim`.
        self.slots[slot].claimed.store(false, Ordering::Release);
    }

    /// Enters the current epoch and returns it. The caller owns the slot. Also renews a pin.
    #[inline]
    pub(crate) fn pin(&self, slot: usize) -> u64 {
        let active = &self.slots[slot].active;
        let mut epoch = self.current();
        loop {
            // Barrier: pairs with `publish` in `advance`. Either the leader's scan sees this pin, or the load below sees
            // the leader's epoch; and what was unlinked before the barrier is not found after it.
            publish(active, epoch);
            let current = self.current();
            if current == epoch {
                return epoch;
            }
            epoch = current;
        }
    }

    /// As [`Epochs::pin`], for a worker that follows links between versions until it leaves the epoch.
    #[inline]
    pub(crate) fn pin_walking(&self, slot: usize) -> u64 {
        let Slot { active, walking, .. } = &*self.slots[slot];
        let mut epoch = self.current();
        loop {
            // Release: pairs with the acquire load of the leader's scan. The barrier behind it is this word's, too.
            walking.store(epoch, Ordering::Release);
            // Barrier: as in `pin`, for both words.
            publish(active, epoch);
            let current = self.current();
            if current == epoch {
                return epoch;
            }
            epoch = current;
        }
    }

    /// From now on the worker, which is pinned, follows links between versions. The caller owns the slot.
    pub(crate) fn walk(&self, slot: usize) {
        let mut epoch = self.current();
        loop {
            // Barrier: as in `pin`.
            publish(&self.slots[slot].walking, epoch);
            let current = self.current();
            if current == epoch {
                return;
            }
            epoch = current;
        }
    }

    /// Announces that the worker is about to commit: epochs that it reads from now on, until [`Epochs::end_commit`], do not become
    /// the past. The caller owns the slot.
    #[inline]
    pub(crate) fn begin_commit(&self, slot: usize) {
        // Barrier: pairs with `publish` in `advance`. Either the leader's scan sees this, or the epoch that the commit reads is at least
        // the leader's.
        publish(&self.slots[slot].committing, self.current());
    }

    /// The commit is over. The caller owns the slot.
    #[inline]
    pub(crate) fn end_commit(&self, slot: usize) {
        // Release: pairs with the acquire load of the leader's scan: a thread that reads the past sees all that was written in it.
        self.slots[slot].committing.store(IDLE, Ordering::Release);
    }

    /// Notes on which thread the slot's worker is pinned from now on. The caller owns the slot.
    pub(crate) fn set_thread(&self, slot: usize, thread: u64) {
        self.slots[slot].thread.store(thread, Ordering::Relaxed);
    }

    /// Whether the worker of a slot was pinned last on the calling thread. What that worker holds in an open transaction, the
    /// calling thread waits for in vain.
    pub fn is_here(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(|slot| slot.thread.load(Ordering::Relaxed) == this_thread())
    }

    /// Whether the worker of a slot is pinned, aside or not. If not, the barrier of the worker's next pin comes after a sequentially
    /// consistent fence that the caller has passed before.
    pub fn is_pinned(&self, slot: usize) -> bool {
        // Acquire: pairs with the release in `unpin`.
        self.slots.get(slot).is_some_and(|slot| slot.active.load(Ordering::Acquire) != IDLE)
    }

    /// The slot of a worker that keeps [`Epochs::readonly`] behind an epoch: of those, the one that has been pinned for longest.
    pub fn oldest_pinned(&self, epoch: u64) -> Option<usize> {
        let slots = self.slots[..self.used_slots()].iter().enumerate();
        let since = |(at, slot): (usize, &CachePadded<Slot>)| {
            // Relaxed: what it tells may be over when it is told.
            let active = slot.active.load(Ordering::Relaxed);
            (active != IDLE).then(|| ((active & !ASIDE).min(slot.since.load(Ordering::Relaxed)), at))
        };
        slots.filter_map(since).filter(|(since, _)| *since <= epoch).min().map(|(_, at)| at)
    }

    /// Whether the calling thread has a worker pinned, aside or not: as a rule one with a transaction open.
    pub fn is_open_here(&self) -> bool {
        self.is_another_pinned_here(usize::MAX)
    }

    /// Whether the calling thread has a worker pinned, or one that stands aside and shows what it has found: it would wait in vain for
    /// all of the present epoch to end.
    pub fn is_pinned_here(&self) -> bool {
        let here = this_thread();
        let pinned = |slot: &CachePadded<Slot>| {
            // Acquire: pairs with the pin, which stores the thread before. In this order, because a thread may have the number of one that
            // had the slot before it ended. IDLE has the bit, too.
            let active = slot.active.load(Ordering::Acquire);
            let is_pinned = active & ASIDE == 0 || active != IDLE && slot.shows.load(Ordering::Relaxed);
            is_pinned && slot.thread.load(Ordering::Relaxed) == here
        };
        self.slots[..self.used_slots.load(Ordering::Relaxed)].iter().any(pinned)
    }

    /// Whether the calling thread has the worker of another slot than this one pinned, one that stands aside too: as a rule one with a
    /// transaction open, which does not end before the thread goes on. It looks at words that other threads write, so it is for a thread
    /// that has waited already.
    pub fn is_another_pinned_here(&self, slot: usize) -> bool {
        let here = this_thread();
        let slots = self.slots[..self.used_slots.load(Ordering::Relaxed)].iter().enumerate();
        slots.filter(|(at, _)| *at != slot).any(|(_, other)| {
            // Acquire, and in this order: as above.
            other.active.load(Ordering::Acquire) != IDLE && other.thread.load(Ordering::Relaxed) == here
        })
    }

    /// Leaves the epoch. The caller owns the slot.
    #[inline]
    pub(crate) fn unpin(&self, slot: usize) {
        let Slot { active, walking, since, .. } = &*self.slots[slot];
        if walking.load(Ordering::Relaxed) != IDLE {
            // Release: as below.
            walking.store(IDLE, Ordering::Release);
        }
        if since.load(Ordering::Relaxed) != IDLE {
            // Release: pairs with the acquire loads of leaders, who forget what was noted.
            since.store(IDLE, Ordering::Release);
        }
        // Release: pairs with the acquire load of the leader's scan.
        active.store(IDLE, Ordering::Release);
    }

    /// Passes the barrier of a pin without changing the pin, and returns the epoch behind it: the tag of what was unlinked
    /// before. The caller owns the slot.
    pub(crate) fn seal(&self, slot: usize) -> u64 {
        let active = &self.slots[slot].active;
        // Barrier: as in `pin`.
        publish(active, active.load(Ordering::Relaxed));
        self.current()
    }

    /// The number of slots that were ever claimed.
    pub(crate) fn used_slots(&self) -> usize {
        // Acquire: pairs with the release in `claim`.
        self.used_slots.load(Ordering::Acquire)
    }

    /// A tag for what others unlinked in epochs that they have left: passes a barrier and returns the epoch behind it.
    pub(crate) fn tag_for_others(&self) -> u64 {
        // Barrier: as in `seal`; what the others unlinked happened before.
        fence(Ordering::SeqCst);
        self.current()
    }

    /// Announces a snapshot at the newest epoch of the past and returns that epoch. The caller owns the slot.
    ///
    /// No epoch is ever announced but the one that is read at: so what is published as `collectable` was either read at
    /// or the past when it was published, which pruning relies on (`docs/memory.md`).
    #[inline]
    pub(crate) fn begin_snapshot(&self, slot: usize) -> u64 {
        let snapshot = &self.slots[slot].snapshot;
        // Barrier: pairs with `publish` of `past` in `scan`. Either that scan sees that a snapshot begins, or the load
        // below sees its epoch.
        publish(snapshot, OPENING);
        let epoch = self.past();
        // Release: pairs with the acquire loads of scans and pruners. A thread that sees the word before is held up, not misled.
        snapshot.store(epoch, Ordering::Release);
        epoch
    }

    /// Keeps `collectable` where it is until [`Epochs::end_snapshot`], and returns it; `None` when the clock is just being
    /// moved. The caller owns the slot and has no snapshot.
    pub(crate) fn hold(&self, slot: usize) -> Option<u64> {
        let mut held = 0;
        let led = self.lead(|| {
            held = self.horizons.collectable.load(Ordering::Relaxed);
            // Only leaders move the horizon, and the next one sees this: leaders follow each other.
            self.slots[slot].snapshot.store(held, Ordering::Release);
        });
        led.then_some(held)
    }

    /// Ends the slot's snapshot. The caller owns the slot.
    #[inline]
    pub(crate) fn end_snapshot(&self, slot: usize) {
        // Release: pairs with the acquire load of the leader's scan.
        self.slots[slot].snapshot.store(IDLE, Ordering::Release);
    }
}

mod aside;
mod kept;

pub use aside::Finds;
use aside::Noted;

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod model;
