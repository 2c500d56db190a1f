//! A transaction that is open for long does not hold the others back.
//!
//! The horizon `min_wts` stays before every transaction that may still write at its timestamp. One that runs, or whose client does something
//! else, for longer than `overtaking_after` is passed: the leader notes its timestamp in its slot (`overtaken`), and from then on it
//! reads as of that timestamp, as a snapshot does, and writes nothing there. If it has writes, it draws another timestamp when it
//! commits, and what it has read must be what is visible *then*.
//!
//! A transaction that commits says so first (`is_committing`), passes a barrier, and looks whether it was overtaken. The leader notes the timestamp, passes a barrier,
//! and looks whether it is being committed. So either the transaction finds that it was overtaken, or the leader that its timestamp stands, and
//! keeps the horizon before it until it has ended. What lies between the two is a validation and a write phase, in which no client is asked.

use polychron_base::clock::{Clock as _, Duration, SystemClock};
use polychron_sync::atomic::{AtomicU64, Ordering, fence};
use polychron_sync::{Backoff, CachePadded, MODELLED, publish, this_thread};

use super::{Clocks, Held, LocalClock, NONE, Slot};
use crate::cicada::timestamp::Timestamp;

/// A thread that waits for the horizon overtakes transactions that have been open for so long.
const SPIN_BUDGET_NS: u64 = if MODELLED { 0 } else { 20_000 };

/// What leaders know of a slot.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The timestamp that was found there last, and when it was found first.
    seen: AtomicU64,
    since_ns: AtomicU64,
    /// A timestamp that the horizon does not wait for.
    passed: AtomicU64,
}

impl Watch {
    /// The timestamp that the horizon does not wait for.
    #[inline]
    pub(super) fn passed(&self) -> u64 {
        // Acquire: pairs with the release in `overtake`.
        self.passed.load(Ordering::Acquire)
    }

    /// For how long the timestamp has been there.
    #[inline]
    fn age_ns(&self, word: u64, now_ns: u64) -> u64 {
        // Relaxed, all three: leaders alone look, one after the other.
        if self.seen.load(Ordering::Relaxed) == word {
            return now_ns.saturating_sub(self.since_ns.load(Ordering::Relaxed));
        }
        self.seen.store(word, Ordering::Relaxed);
        self.since_ns.store(now_ns, Ordering::Relaxed);
        0
    }
}

impl Held<'_> {
    /// Gives a transaction that was overtaken, and is about to write, another timestamp, which stands. What it holds besides it keeps. `false`: the
    /// timestamp would come to the limit.
    #[cold]
    pub(in crate::cicada) fn draw_again(&mut self, local: &mut LocalClock) -> bool {
        let (clocks, words) = (self.clocks, &self.clocks.slots[self.slot]);
        loop {
            let Some(drawn) = clocks.draw(local).or_else(|| clocks.draw_late(local, 0)) else { return false };
            local.adjusted = drawn;
            let timestamp = clocks.shape.timestamp(drawn, self.slot);
            // Release: as in `begin`.
            words.drawn.store(drawn, Ordering::Release);
            // Barrier: pairs with those of `lead`. The slot is committing, so this one is not overtaken.
            publish(&words.active, timestamp.0);
            let bound = clocks.bound_now();
            if drawn >= bound {
                self.timestamp = timestamp;
                return true;
            }
            local.time = local.time.max(bound);
        }
    }
}

impl Clocks {
    /// Overtakes transactions that have run for longer than that. Only the leader does.
    #[inline]
    pub(super) fn overtake(&self, slots: &[CachePadded<Slot>], now_ns: u64, spin_budget_ns: u64) {
        let mut found = false;
        for (slot, watch) in slots.iter().zip(&self.watches) {
            let word = slot.active.load(Ordering::Relaxed);
            if word != NONE && watch.age_ns(word, now_ns) >= spin_budget_ns && watch.passed() != word {
                // Relaxed: the fence below comes behind it.
                slot.overtaken.store(word, Ordering::Relaxed);
                found = true;
            }
        }
        if found {
            self.pass_idle(slots);
        }
    }

    #[cold]
    fn pass_idle(&self, slots: &[CachePadded<Slot>]) {
        // SeqCst: the barrier between the notes and the look at which transactions commit; pairs with that of `stand`.
        fence(Ordering::SeqCst);
        for (slot, watch) in slots.iter().zip(&self.watches) {
            let word = slot.overtaken.load(Ordering::Relaxed);
            // Acquire: pairs with the release in `end`. A transaction that has ended has another word by now.
            let runs = slot.is_committing.load(Ordering::Acquire) == 0 && slot.active.load(Ordering::Acquire) == word;
            if word != NONE && runs {
                // Release: pairs with the acquire in `passed`, whose caller knows a horizon behind this.
                watch.passed.store(word, Ordering::Release);
            }
        }
    }

    /// The transaction is about to write: its timestamp stands from now until it ends. `false`: it was overtaken.
    #[inline]
    pub(in crate::cicada) fn stand(&self, slot: usize, timestamp: Timestamp) -> bool {
        let is_committing = &self.slots[slot].is_committing;
        // Relaxed: nobody else writes it.
        if is_committing.load(Ordering::Relaxed) == 0 {
            // Barrier: pairs with that of `pass_idle`.
            publish(is_committing, 1);
        }
        !self.is_overtaken(slot, timestamp)
    }

    /// Begins a transaction in which no client is asked: its timestamp stands from the beginning. `None`: as in `begin`.
    #[inline]
    pub(in crate::cicada) fn begin_standing(&self, slot: usize, local: &mut LocalClock) -> Option<Held<'_>> {
        // Relaxed: the barrier in `begin` comes behind it, so a leader that finds the timestamp finds this, too.
        self.slots[slot].is_committing.store(1, Ordering::Relaxed);
        self.begin(slot, local)
    }

    /// Whether the transaction will write at another timestamp than this one, as far as is known.
    #[inline]
    pub(in crate::cicada) fn is_overtaken(&self, slot: usize, timestamp: Timestamp) -> bool {
        self.slots[slot].overtaken.load(Ordering::Relaxed) == timestamp.0
    }

    /// Waits until the horizon has passed the timestamp of a transaction that has ended: for those that are being committed, and not for
    /// others.
    #[cold]
    pub(in crate::cicada) fn await_horizon(&self, timestamp: Timestamp) {
        let mut backoff = Backoff::new();
        while !self.min_wts().is_after(timestamp) {
            self.lead_past(if backoff.is_yielding() { SPIN_BUDGET_NS } else { self.overtaking_ns });
            backoff.wait();
        }
    }

    /// The same for a commit of the slot's worker at a clock reading, however long ago that was.
    pub(in crate::cicada) fn await_commit(&self, reading: u64, slot: usize) {
        if !self.has_passed_commit(reading, slot) {
            self.await_horizon(self.shape.timestamp(reading, slot));
        }
    }

    /// Waits, for this time at most, until the horizon has passed all that has committed so far, and tells whether it has.
    pub(in crate::cicada) fn await_present(&self, longest: Duration) -> bool {
        // Of one reading, the last slot has the latest timestamp.
        let (reading, slot) = (self.furthest_drawn(), self.slots.len() - 1);
        let (clock, mut backoff) = (SystemClock::new(), Backoff::new());
        let ends = clock.now_ns().saturating_add(longest.as_nanos() as u64);
        while !self.has_passed_commit(reading, slot) {
            self.lead_past(if backoff.is_yielding() { SPIN_BUDGET_NS } else { self.overtaking_ns });
            if clock.now_ns() >= ends {
                return false;
            }
            backoff.wait();
        }
        true
    }

    /// Whether the horizon has passed a commit of the slot's worker at a clock reading.
    #[inline]
    pub(in crate::cicada) fn has_passed_commit(&self, reading: u64, slot: usize) -> bool {
        // What is so long ago has been passed, and is too far away to be compared.
        let is_long_ago = self.bound().saturating_sub(reading) >= self.shape.sixteenths(4);
        is_long_ago || self.min_wts().is_after(self.shape.timestamp(reading, slot))
    }

    /// Whether the calling thread has a transaction or a snapshot open on another slot than this one.
    pub(in crate::cicada) fn is_open_here(&self, but: Option<usize>) -> bool {
        let here = this_thread();
        self.slots.iter().enumerate().any(|(at, slot)| {
            // Acquire: pairs with `begin` and `begin_snapshot`, which store the thread before. In this order, because a thread may have the number of
            // one that had the slot before it ended.
            let open = slot.active.load(Ordering::Acquire) != NONE || slot.floor.load(Ordering::Acquire) != NONE;
            Some(at) != but && open && slot.thread.load(Ordering::Relaxed) == here
        })
    }
}
