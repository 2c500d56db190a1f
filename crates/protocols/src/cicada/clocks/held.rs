//! Timestamps that are held: by transactions and snapshots, and by threads that compare with a horizon or look around.

use polychron_engine::mutations::{left_out, pass};
use polychron_engine::redo::{self, Order};
use polychron_sync::atomic::{Ordering, fence};

use super::{Clocks, NONE, Slot};
use crate::cicada::steps::{Point, Step};
use crate::cicada::timestamp::Timestamp;

/// The timestamp that a worker's slot holds, for a transaction, for a snapshot, or for a thread that compares with a horizon and keeps the clocks near it. There
/// is one for a slot. The slot holds it until this is dropped.
#[derive(Debug)]
pub(in crate::cicada) struct Held<'c> {
    pub(super) clocks: &'c Clocks,
    pub(super) slot: usize,
    pub(super) timestamp: Timestamp,
}

/// Timestamps at which a transaction reads, or has read.
///
/// A snapshot reads at one timestamp. A transaction that may write reads at its timestamp, and until the horizon has passed that, an earlier
/// transaction may change what it has read: the version that it saw is then visible up to a timestamp between its floor and its timestamp. All that
/// it can have seen is visible at a timestamp of this span, for what had changed by its floor it did not see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cicada) struct Span {
    pub(in crate::cicada) from: Timestamp,
    /// The last of them, or the last of an earlier span that is still later.
    pub(in crate::cicada) to: Timestamp,
}

/// What is stable, and the timestamps before that at which a transaction reads, now or later. This stays true: one that begins meanwhile reads at what was
/// stable then, or later.
#[derive(Clone, Copy, Debug)]
pub(in crate::cicada) struct HeldSpans<'m> {
    stable: Timestamp,
    /// `from` grows, and `to`.
    held: &'m [Span],
    /// How many of them, the first ones, are held for long.
    lasting: usize,
}

impl HeldSpans<'_> {
    /// A timestamp that all transactions that write, now or later, lie behind.
    #[inline]
    pub(in crate::cicada) fn stable(&self) -> Timestamp {
        self.stable
    }

    /// The earliest timestamp that is held.
    pub(in crate::cicada) fn earliest(&self) -> Option<Timestamp> {
        self.held.first().map(|span| span.from)
    }

    /// Whether somebody sees what was there from `from` on and not from `until` on.
    #[inline]
    pub(in crate::cicada) fn sees(&self, from: Timestamp, until: Timestamp) -> bool {
        find(self.held, from, until).is_some()
    }

    /// The timestamp of a transaction that sees it and has read for long.
    #[inline]
    pub(in crate::cicada) fn sees_for_long(&self, from: Timestamp, until: Timestamp) -> Option<Timestamp> {
        find(&self.held[..self.lasting], from, until)
    }

    /// Whether somebody holds a timestamp.
    pub(in crate::cicada) fn holds(&self, timestamp: Timestamp) -> bool {
        let next = self.held.partition_point(|span| span.from.is_before(timestamp));
        self.held.get(next).is_some_and(|span| span.from == timestamp)
    }
}

#[inline]
fn find(held: &[Span], from: Timestamp, until: Timestamp) -> Option<Timestamp> {
    let next = held.partition_point(|span| span.to.is_before(from));
    held.get(next).map(|span| span.from).filter(|timestamp| timestamp.is_before(until))
}

impl Held<'_> {
    /// The timestamp that is held.
    #[inline]
    pub(in crate::cicada) fn timestamp(&self) -> Timestamp {
        self.timestamp
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        // A transaction that reads at it has borrowed it.
        self.clocks.end(self.slot);
    }
}

impl Clocks {
    /// Up to which order all that write have ended: that of the horizon.
    pub(in crate::cicada) fn ended(&self) -> Order {
        let shape = self.shape;
        if left_out(redo::Step::AwaitSealing) {
            let drawn = shape.proper(self.furthest_drawn() + 1);
            return Order { era: shape.era(drawn), timestamp: shape.timestamp(drawn, 0).0 };
        }
        for _ in 0..4 {
            // Acquire: the horizon is no older.
            let before = self.bound_now();
            let timestamp = self.min_wts().predecessor();
            let near = self.bound();
            // The horizon lies less than half the numbers behind a bound of its time, and this much is added at most: so the reading is the latest one.
            if near - before < shape.sixteenths(4) {
                return Order { era: shape.era(shape.reading(timestamp, near)), timestamp: timestamp.0 };
            }
        }
        // The clock goes by faster than it is looked at.
        Order::default()
    }

    /// What a slot holds it holds until that ends.
    #[inline]
    pub(super) fn assert_idle(&self, words: &Slot) {
        // Relaxed: the slot's own thread writes it.
        assert_eq!(words.floor.load(Ordering::Relaxed), NONE, "the slot holds nothing yet");
    }

    /// The slot has begun at this timestamp.
    #[inline]
    pub(super) fn held(&self, slot: usize, timestamp: Timestamp) -> Held<'_> {
        Held { clocks: self, slot, timestamp }
    }

    /// What a slot still holds for a transaction that was leaked.
    ///
    /// # Safety
    /// The slot holds that timestamp, and what stood for it was forgotten.
    pub(in crate::cicada) unsafe fn take_over(&self, slot: usize, timestamp: Timestamp) -> Held<'_> {
        self.held(slot, timestamp)
    }

    /// The slot holds nothing from now on.
    #[inline]
    pub(super) fn end(&self, slot: usize) {
        let words = &self.slots[slot];
        // Release: pairs with the acquire loads of `lead`: all that the transaction read and wrote came before.
        words.active.store(NONE, Ordering::Release);
        words.floor.store(NONE, Ordering::Release);
        // Release: a thread that sees it sees that the transaction has ended.
        words.is_committing.store(0, Ordering::Release);
    }

    /// Holds what is stable until it is dropped.
    ///
    /// # Panics
    /// When the slot has a transaction or a snapshot, which would be held no more when this is dropped.
    #[inline]
    pub(in crate::cicada) fn hold(&self, slot: usize) -> Held<'_> {
        self.begin_snapshot(slot)
    }

    /// Whether somebody holds a timestamp, or an earlier one.
    pub(in crate::cicada) fn is_held(&self, timestamp: Timestamp) -> bool {
        // Acquire: pairs with the release in `join`, and with `end`. A transaction that is asked for has left an epoch behind its beginning, which has passed.
        let slots = &self.slots[..self.used_slots.load(Ordering::Acquire)];
        let mut floors = slots.iter().map(|slot| slot.floor.load(Ordering::Acquire));
        floors.any(|floor| floor != NONE && !Timestamp(floor).is_after(timestamp))
    }

    /// What is stable, and all timestamps before that at which somebody reads, now or later. The caller's slot reads nothing. Those that lie more
    /// than `lag` behind what is stable, in clock readings, are held for long.
    pub(in crate::cicada) fn held_spans<'m>(&self, slot: usize, lag: u64, held: &'m mut Vec<Span>) -> HeldSpans<'m> {
        let mut stable = self.min_wts().predecessor();
        // SeqCst: the barrier between the horizon and the look at the words; pairs with those of `begin` and `begin_snapshot`.
        // Whom the look misses sees that horizon, and reads at it or later.
        fence(Ordering::SeqCst);
        // Acquire: pairs with the release in `join`, and with `end`.
        let slots = &self.slots[..self.used_slots.load(Ordering::Acquire)];
        let others = slots.iter().enumerate().filter(|&(other, _)| other != slot);
        held.clear();
        for (_, words) in others {
            // Acquire, both: the floor first, so that no later transaction's is put together with an earlier one's timestamp.
            let (floor, active) = (words.floor.load(Ordering::Acquire), words.active.load(Ordering::Acquire));
            if floor == NONE {
                continue;
            }
            let from = Timestamp(floor);
            let to = Some(Timestamp(active)).filter(|to| active != NONE && to.is_after(from)).unwrap_or(from);
            if left_out(Step::KeepSpans) {
                held.push(Span { from: to, to });
            }
            held.push(Span { from, to: if left_out(Step::KeepSpans) { from } else { to } });
        }
        held.sort_unstable_by_key(|span| span.from.0.wrapping_sub(stable.0) as i64);
        let mut furthest = held.first().map_or(stable, |span| span.to);
        for span in held.iter_mut() {
            furthest = if span.to.is_after(furthest) { span.to } else { furthest };
            span.to = furthest;
        }
        pass(Point::Counted);
        if left_out(Step::HorizonBeforeMoments) {
            stable = self.min_wts().predecessor();
        }
        let lies_behind = |from: Timestamp| from.is_before(stable) && self.shape.clock_between(from, stable) > lag;
        let lasting = held.partition_point(|span| lies_behind(span.from));
        HeldSpans { stable, held, lasting }
    }
}
