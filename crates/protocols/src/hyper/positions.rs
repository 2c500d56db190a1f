//! VersionedPositions (§2.6 of the paper): for a fixed range of slots, between which positions some are versioned. All slots outside show
//! one row to all, and are written by no thread that has not widened the interval first.
//!
//! ```text
//!  positions   changes (29) │ being narrowed (1) │ behind the last one (17) │ first one (17)
//! ```
//!
//! A slot is *plain* when it has a row and no version. A thread that latches a plain slot widens the interval over it before it writes a
//! word ([`Positions::cover`]); it does nothing where the interval covers the slot already, so in steady state no thread writes here. No
//! thread takes a slot out when its versions go: that does the next scan that meets a plain slot at either end ([`Positions::narrow`]).
//!
//! `docs/protocols/hyper.md`, V1 to V4, says why a reader that finds the word unchanged has read rows that stood still.

use std::ops::Range;

use polychron_engine::mutations::{left_out, pass};
use polychron_sync::atomic::{AtomicU64, Ordering};
use polychron_sync::fence_behind_exchange;

use super::steps::{Point, Step};

const BITS: u32 = 17;
const MASK: u64 = (1 << BITS) - 1;
const NARROWING: u64 = 1 << (2 * BITS);
const CHANGE: u64 = NARROWING << 1;

/// Slots that one interval may stand for: positions behind the last one must fit.
pub(super) const MOST: usize = 1 << 16;

/// The interval of a range of slots.
#[derive(Debug)]
pub(super) struct Positions(AtomicU64);

/// What an interval was at one timestamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Interval(u64);

impl Interval {
    /// The positions, counted from the first slot of the range. Empty where all slots are plain.
    #[inline]
    pub(super) fn range(self) -> Range<usize> {
        (self.0 & MASK) as usize..(self.0 >> BITS & MASK) as usize
    }

    #[inline]
    fn covers(self, position: usize) -> bool {
        self.range().contains(&position)
    }

    #[inline]
    fn is_narrowing(self) -> bool {
        self.0 & NARROWING != 0
    }

    /// Another interval, which differs from all before it.
    fn changed(self, range: Range<usize>) -> Self {
        // Carries out of the word are lost.
        let changes = (self.0 & !(CHANGE - 1)).wrapping_add(CHANGE);
        Self(changes | (range.end as u64) << BITS | range.start as u64)
    }

    /// The interval with one more position.
    fn with(self, position: usize) -> Self {
        let range = self.range();
        let wider = match range.is_empty() {
            true => position..position + 1,
            false => range.start.min(position)..range.end.max(position + 1),
        };
        self.changed(wider)
    }
}

impl Positions {
    /// Those of so many new slots, of which none has a row.
    pub(super) fn new(slots: usize) -> Self {
        Self(AtomicU64::new(Interval::default().changed(0..slots).0))
    }

    /// Acquire: pairs with the releases of those that change it, so that a reader which finds a slot outside sees what stands in it.
    #[inline]
    pub(super) fn load(&self) -> Interval {
        Interval(self.0.load(Ordering::Acquire))
    }

    /// Whether the interval is what it was. The caller has put an acquiring fence between its reads and this.
    #[inline]
    pub(super) fn is(&self, seen: Interval) -> bool {
        Interval(self.0.load(Ordering::Relaxed)) == seen
    }

    /// Widens the interval over a slot whose latch the caller has just taken, by an exchange.
    #[inline]
    pub(super) fn cover(&self, position: usize) {
        if left_out(Step::CoverVersions) {
            return;
        }
        // Barrier: pairs with the one in `narrow`. A thread that narrows sees the latch, or this sees that it does.
        fence_behind_exchange();
        let mut seen = self.load();
        while !seen.covers(position) || seen.is_narrowing() && !left_out(Step::StopNarrowing) {
            // Acquire and release: a thread that sees the words that are written next sees this, and a thread that comes later what came
            // before.
            let outcome = self.0.compare_exchange(seen.0, seen.with(position).0, Ordering::AcqRel, Ordering::Acquire);
            match outcome {
                Ok(_) => return,
                Err(other) => seen = Interval(other),
            }
        }
    }

    /// Takes plain slots at the ends out: `find` answers what is left of the interval, by looking at each slot in it.
    pub(super) fn narrow(&self, seen: Interval, find: impl FnOnce(Range<usize>) -> Range<usize>) {
        let marked = Interval(seen.0.wrapping_add(CHANGE) | NARROWING);
        let replace = |from: Interval, to: Interval| {
            // Release: pairs with the acquire in `load`, for what `find` has seen.
            self.0.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        if seen.is_narrowing() || !replace(seen, marked) {
            return;
        }
        // Barrier: pairs with the one in `cover`.
        fence_behind_exchange();
        let left = find(seen.range());
        pass(Point::Narrowing);
        // A thread that has latched a plain slot since has changed the word; then the interval stays.
        replace(marked, marked.changed(left));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn intervals_grow_and_shrink() {
        let positions = Positions::new(MOST);
        assert_eq!(positions.load().range(), 0..MOST);
        positions.narrow(positions.load(), |range| {
            assert_eq!(range, 0..MOST);
            0..0
        });
        let empty = positions.load();
        assert!(empty.range().is_empty() && positions.is(empty));
        for (position, expected) in [(9, 9..10), (9, 9..10), (4, 4..10), (MOST - 1, 4..MOST)] {
            positions.cover(position);
            assert_eq!(positions.load().range(), expected);
        }
        assert!(!positions.is(empty));
        let covered = positions.load();
        positions.cover(5);
        assert!(positions.is(covered), "nothing is written where the slot is covered");
        positions.narrow(covered, |_| 7..9);
        assert_eq!(positions.load().range(), 7..9);
    }

    #[test]
    fn a_latch_stops_narrowing() {
        let positions = Positions::new(8);
        positions.narrow(positions.load(), |_| {
            positions.cover(3);
            5..6
        });
        assert_eq!(positions.load().range(), 0..8);
        positions.narrow(Interval::default(), |_| unreachable!("the interval is another one"));
    }

    #[test]
    fn the_same_range_is_another_interval() {
        let positions = Positions::new(8);
        let mut seen = vec![positions.load()];
        for _ in 0..3 {
            positions.narrow(positions.load(), |_| 1..2);
            positions.cover(7);
            assert!(!seen.contains(&positions.load()));
            seen.push(positions.load());
        }
    }
}
