//! What a record's head knows of collecting it: a latch, and which items of the record are queued.

use polychron_sync::Backoff;
use polychron_sync::atomic::{AtomicU8, Ordering};

/// What an item of a record waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cicada) enum Queued {
    /// Versions of a record that stays.
    Versions = 0,
    /// The record may have to leave the index, too.
    Leaving = 1,
}

/// The latch's word: held, for each kind whether an item waits for the oldest reader, and whether somebody frees its versions in slices.
const LATCHED: u8 = 1;
const WAITING: [u8; 2] = [2, 4];
const SLICED: u8 = 8;

/// The marks of one record, in its head; those of versions elsewhere are not used.
#[derive(Debug, Default)]
pub(in crate::cicada) struct Marks {
    latch: AtomicU8,
    /// Whether an item of the record is queued for collection, by what the item is.
    queued: [AtomicU8; 2],
}

impl Marks {
    /// Marks that an item of the record is about to be queued. `false`: one is queued that will see to it. The caller has ended its version.
    #[inline]
    pub(in crate::cicada) fn note_queued(&self, kind: Queued) -> bool {
        // SeqCst: comes behind the installation of the version in the one order of all, and pairs with the collector's barrier between
        // `clear_queued` and its look at the list. Either that comes later, and the collector finds the version, or this finds the mark gone.
        let is_queued = |kind: Queued| self.queued[kind as usize].load(Ordering::SeqCst) != 0;
        if is_queued(Queued::Leaving) || kind == Queued::Versions && is_queued(kind) {
            return false;
        }
        // Relaxed, and no exchange: of two that come at once both queue an item.
        self.queued[kind as usize].store(1, Ordering::Relaxed);
        true
    }

    /// Takes the mark away. The collector passes a barrier before it looks at the list.
    #[inline]
    pub(in crate::cicada) fn clear_queued(&self, kind: Queued) {
        // Relaxed: the caller's fence comes behind it.
        self.queued[kind as usize].store(0, Ordering::Relaxed);
    }

    /// Takes the collection latch if it is free.
    #[inline]
    pub(super) fn try_latch(&self) -> bool {
        let now = self.latch.load(Ordering::Relaxed);
        // Acquire: pairs with the release in `unlatch`.
        now & LATCHED == 0
            && self.latch.compare_exchange(now, now | LATCHED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Waits for the latch. The thread that has it waits for none.
    pub(super) fn latch(&self) {
        let mut backoff = Backoff::new();
        while !self.try_latch() {
            backoff.wait();
        }
    }

    /// Gives it back.
    #[inline]
    pub(super) fn unlatch(&self) {
        let latch = &self.latch;
        // Release: pairs with the acquire in `try_latch`. The thread that has the latch is the only one to change the word.
        latch.store(latch.load(Ordering::Relaxed) & !LATCHED, Ordering::Release);
    }

    /// Marks that an item waits for the oldest reader; `false`: one does already. The caller has the latch.
    pub(in crate::cicada) fn note_waiting(&self, kind: Queued) -> bool {
        let (latch, bit) = (&self.latch, WAITING[kind as usize]);
        let now = latch.load(Ordering::Relaxed);
        latch.store(now | bit, Ordering::Relaxed);
        now & bit == 0
    }

    /// Takes that mark away. The caller has the latch.
    pub(in crate::cicada) fn clear_waiting(&self, kind: Queued) {
        let latch = &self.latch;
        latch.store(latch.load(Ordering::Relaxed) & !WAITING[kind as usize], Ordering::Relaxed);
    }

    /// Whether somebody frees versions of the record in slices: all others leave it alone. The caller has the latch.
    pub(in crate::cicada) fn is_sliced(&self) -> bool {
        self.latch.load(Ordering::Relaxed) & SLICED != 0
    }

    /// Begins or ends that. The caller has the latch.
    pub(in crate::cicada) fn set_sliced(&self, is_sliced: bool) {
        let now = self.latch.load(Ordering::Relaxed);
        self.latch.store(if is_sliced { now | SLICED } else { now & !SLICED }, Ordering::Relaxed);
    }

    /// The record serves another key. Items of the key before may still be queued: they find that the record is another one, and what they take
    /// away of these marks makes an item too many, never one too few.
    pub(super) fn reset(&self) {
        self.queued.iter().for_each(|queued| queued.store(0, Ordering::Relaxed));
        // A thread that has come for such an item may have the latch.
        self.latch();
        self.latch.store(LATCHED, Ordering::Relaxed);
        self.unlatch();
    }
}
