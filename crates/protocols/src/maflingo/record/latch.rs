//! The latch of a record, and what is said of the record under it or beside it: claims, marks, and its leaving.

use polychron_sync::atomic::Ordering;
use polychron_sync::{Backoff, MODELLED, spin_hint};

use super::{
    ABSENT, BACKGROUND, CLAIMED, Claim, GIVEN_UP, LATCH_MASK, MOVED, PRUNED, Record, State, UNLINKED, latch_of,
};

/// How often a committing transaction looks at a foreign latch before it gives up (§4.2, phase 1). In a model each look is
/// another thread's turn, so a few are many.
const LATCH_SPINS: u32 = if MODELLED { 4 } else { 256 };

/// How often reclamation does: there is always something else that it can do first.
const BACKGROUND_SPINS: u32 = 16;

impl Record<'_> {
    /// Latches the record for `worker`, or answers `None` after some spins. A record that `worker` latched already is not
    /// asked again: callers latch each record once.
    ///
    /// Sequentially consistent: see [`Record::state`].
    #[inline]
    pub(in crate::maflingo) fn latch(self, worker: usize) -> Option<State> {
        self.latch_as(latch_of(worker), LATCH_SPINS)
    }

    /// Latches the record for reclamation. The caller changes neither the row nor the id, and is quick.
    pub(in crate::maflingo) fn latch_in_background(self) -> Option<State> {
        self.latch_as(BACKGROUND, BACKGROUND_SPINS)
    }

    #[inline]
    fn latch_as(self, owner: u64, spins: u32) -> Option<State> {
        let version = &self.header().version;
        for _ in 0..spins {
            let free = version.load(Ordering::Relaxed);
            if free & LATCH_MASK == 0 {
                let latched = free | owner;
                if version.compare_exchange_weak(free, latched, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                    return Some(State(latched));
                }
            } else if free & LATCH_MASK == BACKGROUND {
                self.wait_for_background();
            }
            spin_hint();
        }
        None
    }

    /// Waits until reclamation gives the latch back, for it must not make anybody give up.
    #[cold]
    fn wait_for_background(self) {
        let mut backoff = Backoff::new();
        while self.header().version.load(Ordering::Relaxed) & LATCH_MASK == BACKGROUND {
            backoff.wait();
        }
    }

    /// Claims a tombstone. The word is only changed while the latch is free, so its owner sees a final claim.
    #[cold]
    pub(in crate::maflingo) fn claim(self) -> Claim {
        let version = &self.header().version;
        for _ in 0..LATCH_SPINS {
            let free = version.load(Ordering::Relaxed);
            if free & UNLINKED != 0 {
                return Claim::Gone;
            }
            if free & LATCH_MASK == 0 {
                // Even a claim that stands already is made anew: pairs with the acquire of the latch in `latch`, so that
                // a thread that withdraws the claim does so before this or sees the epoch in which the caller is pinned.
                if version.compare_exchange_weak(free, free | CLAIMED, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                    return Claim::Held;
                }
            } else if free & LATCH_MASK == BACKGROUND {
                self.wait_for_background();
            }
            spin_hint();
        }
        Claim::Latched
    }

    /// Leaves an own insertion, which others have claimed, to them. It is not latched: a thread that has the latch either gives it back with
    /// the bits as they are, or writes the record, and then it has an id and the mark has lost its meaning.
    #[cold]
    pub(in crate::maflingo) fn give_up(self) {
        // The queue to which the record goes carries it to any thread that takes the record out.
        self.header().version.fetch_or(GIVEN_UP, Ordering::Relaxed);
    }

    /// Takes all claims of a latched record back.
    pub(in crate::maflingo) fn disclaim(self) {
        let version = &self.header().version;
        // The latch's end, which follows, releases this.
        version.store(version.load(Ordering::Relaxed) & !CLAIMED, Ordering::Relaxed);
    }

    /// Gives the latch back with nothing changed.
    #[inline]
    pub(in crate::maflingo) fn unlatch(self) {
        // Pairs with the acquiring load of the next reader. One step, because a record that moved may be marked meanwhile.
        self.header().version.fetch_and(!LATCH_MASK, Ordering::Release);
    }

    /// Whether this older version is a tombstone. It does not change.
    pub(in crate::maflingo) fn is_absent_version(self) -> bool {
        self.header().version.load(Ordering::Relaxed) & ABSENT != 0
    }

    /// Whether this older version has left its chain. Acquiring: pairs with the release in `mark_pruned`, so that the
    /// version is retired behind its unlinking.
    #[inline]
    pub(in crate::maflingo) fn is_pruned(self) -> bool {
        self.header().version.load(Ordering::Acquire) & PRUNED != 0
    }

    /// Marks an older version that has left its chain. The caller holds the latch of the chain's head.
    pub(in crate::maflingo) fn mark_pruned(self) {
        // Pairs with the acquire in `is_pruned`. A record that moved may be latched by a thread that does not know that yet.
        self.header().version.fetch_or(PRUNED, Ordering::Release);
    }

    /// Marks a latched record as forgotten by the index, and unlatches it.
    pub(in crate::maflingo) fn unlink(self) {
        let version = &self.header().version;
        let unlinked = (version.load(Ordering::Relaxed) | UNLINKED) & !LATCH_MASK;
        // Pairs with the acquiring load of the next reader.
        version.store(unlinked, Ordering::Release);
    }

    /// Marks a latched record as superseded by a larger one to which the index leads now, and unlatches it.
    pub(in crate::maflingo) fn move_away(self) {
        let version = &self.header().version;
        let moved = (version.load(Ordering::Relaxed) | UNLINKED | MOVED) & !LATCH_MASK;
        // Pairs with the acquiring load of the next reader.
        version.store(moved, Ordering::Release);
    }
}
