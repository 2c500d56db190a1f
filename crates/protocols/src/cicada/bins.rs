//! Where garbage waits: a bin for each worker's slot, which anybody may empty.
//!
//! A worker puts the items of a transaction into its bin when the transaction ends, and works off a bounded part between two of its
//! transactions. The background comes by the bins whose workers have not been there since it came by last, and those that are full, and works off a bounded
//! part in each round. So what an idle worker, or one that has gone, leaves behind is everybody's, and no backlog is ever
//! moved from one to another.

use std::collections::VecDeque;

use polychron_base::room::KeptList;
use polychron_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use polychron_sync::{CachePadded, SpinGuard, SpinLatch};

use super::garbage::Garbage;
use super::reclaim::Reclaimer;

/// Items up to which the background leaves a bin to its worker, if that comes by.
const LEFT_TO_ITS_WORKER: usize = 1024;

/// One worker's bin.
#[derive(Debug, Default)]
pub(super) struct Bin {
    /// What transactions have put in, behind a latch that is held briefly.
    fresh: SpinLatch<VecDeque<Garbage>>,
    /// What is worked off, behind a latch that nobody waits for.
    reclaimer: SpinLatch<Reclaimer>,
    /// Whether its worker has been here since the background came by.
    is_served: AtomicBool,
}

/// All bins.
#[derive(Debug)]
pub(super) struct Bins {
    bins: Box<[CachePadded<Bin>]>,
    /// Where the background goes on.
    next: AtomicUsize,
}

impl Bin {
    /// Puts items in.
    #[inline]
    pub(super) fn put(&self, garbage: &mut VecDeque<Garbage>) {
        self.fresh.lock().append(garbage);
        garbage.give_back_room();
        self.note_served();
    }

    #[inline]
    fn note_served(&self) {
        // Relaxed: a hint, which orders nothing.
        if !self.is_served.load(Ordering::Relaxed) {
            self.is_served.store(true, Ordering::Relaxed);
        }
    }

    /// What is to be worked off, unless somebody else is at it.
    pub(super) fn open(&self) -> Option<SpinGuard<'_, Reclaimer>> {
        let mut reclaimer = self.reclaimer.try_lock()?;
        let mut fresh = self.fresh.lock();
        reclaimer.garbage.append(&mut fresh);
        fresh.give_back_room();
        Some(reclaimer)
    }

    /// The same for its worker.
    #[inline]
    pub(super) fn serve(&self) -> Option<SpinGuard<'_, Reclaimer>> {
        self.note_served();
        self.open()
    }

    /// The same for a worker that has something to add, and waits.
    pub(super) fn wait(&self) -> SpinGuard<'_, Reclaimer> {
        self.reclaimer.lock()
    }
}

impl Bins {
    /// Entries that the list of a bin has room for which has room for most.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.bins.iter().map(|bin| bin.fresh.lock().room().max(bin.reclaimer.lock().room())).max().unwrap_or(0)
    }

    /// Empty bins for so many slots.
    pub(super) fn new(slots: usize) -> Self {
        Self { bins: (0..slots).map(|_| CachePadded::default()).collect(), next: AtomicUsize::new(0) }
    }

    /// The bin of a slot.
    #[inline]
    pub(super) fn of(&self, slot: usize) -> &Bin {
        &self.bins[slot]
    }

    /// Whether nothing waits in any bin, and nobody works on one.
    pub(super) fn are_empty(&self) -> bool {
        self.bins.iter().all(|bin| {
            let reclaimer = bin.reclaimer.try_lock();
            reclaimer.is_some_and(|reclaimer| reclaimer.is_empty() && bin.fresh.lock().is_empty())
        })
    }

    /// Works on one bin after the other, from the one where the last call ended, until `work` answers `false`. With `all`, on those
    /// that are served, too.
    pub(super) fn go_round(&self, all: bool, mut work: impl FnMut(&mut Reclaimer) -> bool) {
        let first = self.next.load(Ordering::Relaxed);
        for offset in 0..self.bins.len() {
            let at = (first + offset) % self.bins.len();
            let bin = &self.bins[at];
            let is_served = bin.is_served.swap(false, Ordering::Relaxed) && !all;
            let Some(mut reclaimer) = bin.open() else { continue };
            if is_served && reclaimer.garbage.len() <= LEFT_TO_ITS_WORKER {
                continue;
            }
            if !reclaimer.is_empty() && !work(&mut reclaimer) {
                self.next.store(at, Ordering::Relaxed);
                return;
            }
        }
        self.next.store(first, Ordering::Relaxed);
    }
}
