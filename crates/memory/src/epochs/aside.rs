//! A worker stands aside of its epoch between two operations, and comes back before the next one: two plain stores, a light barrier and a
//! comparison, on a line that is the worker's own as long as nobody moves the clock.

use std::ptr::NonNull;

use super::*;

/// A worker's slot, found once, for what is done at every operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aside {
    slot: NonNull<Slot>,
    light: Light,
}

impl Epochs {
    /// What the slot's worker stands aside with, and comes back.
    pub(crate) fn aside(&self, slot: usize) -> Aside {
        Aside { slot: NonNull::from(&*self.slots[slot]), light: self.light }
    }
}

impl Aside {
    /// The worker, which is pinned in that epoch and follows no links between versions, stands aside: when it is told to leave, it is in no
    /// epoch any more.
    ///
    /// # Safety
    /// The epochs are there. The caller owns the slot.
    #[inline]
    pub(crate) unsafe fn stand_aside(self, epoch: u64) {
        // SAFETY: the slots stay where they are as long as the epochs are there, as the caller promises.
        let slot = unsafe { self.slot.as_ref() };
        // Release: pairs with the acquire load of the leader's scan.
        slot.active.store(epoch | ASIDE, Ordering::Release);
    }

    /// The worker comes back from aside. `false`: it was told to leave the epoch meanwhile, and must be pinned anew.
    ///
    /// # Safety
    /// As above.
    #[inline]
    pub(crate) unsafe fn come_back(self, epoch: u64) -> bool {
        // SAFETY: as above.
        let Slot { active, told, .. } = unsafe { self.slot.as_ref() };
        active.store(epoch, Ordering::Relaxed);
        // Barrier: pairs with the one in `oldest_active`. Either the leader sees the word behind it, or this load sees the leader's.
        self.light.pass();
        told.load(Ordering::Relaxed) != epoch
    }
}
