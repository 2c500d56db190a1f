//! Free blocks that a worker keeps for itself. At the memory limit another thread may take them, while the worker is in no epoch.
//!
//! A word in the worker's slot says whose it is. A thread that takes it claims the word, passes a barrier and looks whether the worker is in
//! an epoch; the worker looks at the word behind the barrier of its pin, so one of the two sees the other.

use polychron_sync::Backoff;

use super::*;

/// It is the worker's own.
pub(super) const OWN: usize = 0;

/// Another one takes it just now, or the worker itself does something with it outside of an epoch.
const HELD: usize = 1;

/// Another one has taken it all.
const TAKEN: usize = 2;

impl Epochs {
    /// Lets the caller take what a worker keeps to itself that is in no epoch: until [`Epochs::give_up`] the worker waits before it enters
    /// one. `false`: it is in an epoch, or has nothing.
    pub(crate) fn take_kept(&self, slot: usize) -> bool {
        let Slot { active, kept, .. } = &*self.slots[slot];
        // Acquire: pairs with the release of who held it before.
        if kept.load(Ordering::Relaxed) != OWN
            || kept.compare_exchange(OWN, HELD, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return false;
        }
        // Barrier: pairs with `publish` in `pin`. Either the load below sees the pin, or the worker's load in `kept_own` sees the word.
        fence(Ordering::SeqCst);
        // Acquire: pairs with the release in `unpin`: what the worker did before it left happened before.
        let is_idle = active.load(Ordering::Acquire) == IDLE;
        if !is_idle {
            self.give_up(slot, false);
        }
        is_idle
    }

    /// Ends what [`Epochs::take_kept`] or [`Epochs::hold_kept`] began. `all`: nothing is left.
    pub(crate) fn give_up(&self, slot: usize, all: bool) {
        // Release: pairs with the acquire loads of a thread that holds it next.
        self.slots[slot].kept.store(if all { TAKEN } else { OWN }, Ordering::Release);
    }

    /// Whether what the worker keeps to itself is its own. The caller owns the slot and is pinned.
    #[inline]
    pub(crate) fn kept_own(&self, slot: usize) -> bool {
        // Relaxed: who took something was waited for, or comes behind the barrier of the pin and sees it.
        self.slots[slot].kept.load(Ordering::Relaxed) == OWN
    }

    /// Waits until no thread takes what the worker keeps to itself, which then is its own. The caller owns the slot and is pinned.
    #[cold]
    pub(crate) fn come_for_kept(&self, slot: usize) {
        self.hold_kept(slot);
        self.give_up(slot, false);
    }

    /// The worker itself does something with what it keeps, outside of an epoch, until [`Epochs::give_up`]. The caller owns the slot.
    pub(crate) fn hold_kept(&self, slot: usize) {
        let kept = &self.slots[slot].kept;
        let mut backoff = Backoff::new();
        loop {
            let seen = kept.load(Ordering::Relaxed);
            // Acquire: pairs with the release of who held it before.
            if seen != HELD && kept.compare_exchange(seen, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return;
            }
            backoff.wait();
        }
    }
}
