//! Positions in the log of transactions: timestamps, without a counter that several threads draw from (§2.1, §3.2.1).

/// The position of a transaction: its batch, and its position in it. Zero is before all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timestamp(u64);

impl Timestamp {
    /// Bits for the position in a batch.
    const POSITION_BITS: u32 = 18;
    /// The most transactions of a batch.
    pub(super) const MOST_IN_BATCH: usize = (1 << Self::POSITION_BITS) - 4;

    /// The timestamp of a transaction.
    #[inline]
    pub(super) fn new(batch: u64, position: usize) -> Self {
        debug_assert!(position < Self::MOST_IN_BATCH);
        Self(batch << Self::POSITION_BITS | (position as u64 + 1))
    }

    /// The timestamp behind all transactions of a batch.
    #[inline]
    pub(super) fn end_of(batch: u64) -> Self {
        Self(((batch + 1) << Self::POSITION_BITS) - 1)
    }

    /// The number of the batch.
    #[inline]
    pub(super) fn batch(self) -> u64 {
        self.0 >> Self::POSITION_BITS
    }

    /// The position in the batch.
    #[inline]
    pub(super) fn position(self) -> usize {
        (self.0 & ((1 << Self::POSITION_BITS) - 1)) as usize - 1
    }

    /// As a number below 2⁶².
    #[inline]
    pub(super) fn bits(self) -> u64 {
        self.0
    }
}
