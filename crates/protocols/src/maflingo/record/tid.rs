//! Transaction ids.

/// Transaction ids (§4.1): epoch, counter, worker, from the most to the least significant bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::maflingo) struct Tid(pub(in crate::maflingo) u64);

impl Tid {
    /// The id with which every record begins.
    pub(in crate::maflingo) const ZERO: Self = Self(0);
    /// The id of rows that were loaded. It is in the first epoch, which all snapshots see, and no worker draws it: counters begin with one.
    pub(in crate::maflingo) const LOADED: Self = Self(1);
    const WORKER_BITS: u32 = 10;
    /// Epochs of 2 ms take 278 years to use up the 42 bits above, and the shortest that sessions can ask for, of 16 µs, two years. A
    /// worker, or a chain of dependent transactions, that uses up the counter within an epoch ends the epoch early.
    const COUNTER_BITS: u32 = 12;
    pub(in crate::maflingo) const EPOCH_SHIFT: u32 = Self::WORKER_BITS + Self::COUNTER_BITS;
    /// Workers that the id can distinguish.
    pub(in crate::maflingo) const MAX_WORKERS: usize = 1 << Self::WORKER_BITS;

    /// The epoch in which the transaction committed.
    #[inline]
    pub(in crate::maflingo) fn epoch(self) -> u64 {
        self.0 >> Self::EPOCH_SHIFT
    }

    /// The worker that drew it.
    pub(in crate::maflingo) fn worker(self) -> usize {
        self.0 as usize & (Self::MAX_WORKERS - 1)
    }

    /// The smallest id of `worker` in `epoch` that exceeds `floor`; `None` when the epoch's counter is used up.
    #[inline]
    pub(in crate::maflingo) fn after(floor: Self, epoch: u64, worker: usize) -> Option<Self> {
        debug_assert!(floor.epoch() <= epoch, "an id from the future was observed");
        let base = Self(epoch << Self::EPOCH_SHIFT).max(floor).0 >> Self::WORKER_BITS;
        let next = Self((base + 1) << Self::WORKER_BITS | worker as u64);
        (next.epoch() == epoch).then_some(next)
    }
}
