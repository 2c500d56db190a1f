//! Moments that are held: by who compares with a horizon or looks around, and by all others.

use polychron_engine::mutations::{left_out, pass};
use polychron_sync::atomic::{Ordering, fence};

use super::{Clocks, NONE};
use crate::cicada::steps::{Point, Step};
use crate::cicada::timestamp::Timestamp;

/// A snapshot of a worker's slot that is not a transaction: who compares with a horizon, or looks around, keeps the clocks near it.
/// Ends whatever happens.
#[derive(Debug)]
pub(in crate::cicada) struct Held<'c> {
    clocks: &'c Clocks,
    slot: usize,
    /// The moment that is held.
    pub(in crate::cicada) moment: Timestamp,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.clocks.end(self.slot);
    }
}

impl Clocks {
    /// Holds what is settled until it is dropped. The slot runs nothing.
    #[inline]
    pub(in crate::cicada) fn hold(&self, slot: usize) -> Held<'_> {
        Held { clocks: self, slot, moment: self.begin_snapshot(slot) }
    }

    /// What is settled, and in order all moments before that at which somebody reads, now or later. The caller's slot reads nothing.
    pub(in crate::cicada) fn held_moments(&self, slot: usize, moments: &mut Vec<Timestamp>) -> Timestamp {
        let mut settled = self.min_wts().predecessor();
        // SeqCst: the barrier between the horizon and the look at the words; pairs with those of `begin` and `begin_snapshot`.
        // Whom the look misses sees that horizon, and reads at it or later.
        fence(Ordering::SeqCst);
        // Acquire: pairs with the release in `join`, and with `end`.
        let slots = &self.slots[..self.used_slots.load(Ordering::Acquire)];
        let others = slots.iter().enumerate().filter(|&(other, _)| other != slot);
        let words = others.map(|(_, slot)| slot.floor.load(Ordering::Acquire));
        moments.clear();
        moments.extend(words.filter(|&word| word != NONE).map(Timestamp));
        moments.extend(self.overtaken_moments(slot));
        moments.sort_unstable_by_key(|moment| moment.0.wrapping_sub(settled.0) as i64);
        moments.dedup();
        pass(Point::Counted);
        if left_out(Step::HorizonBeforeMoments) {
            settled = self.min_wts().predecessor();
        }
        settled
    }
}
