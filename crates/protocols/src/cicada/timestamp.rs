//! Timestamps and how they are made of a clock and a worker's number (§3.1).

/// A position in the serial order. Numbers wrap around: of two timestamps less than half the numbers apart, the one behind
/// is the earlier one, so there is an order between neighbours and none over all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Timestamp(pub(super) u64);

impl Timestamp {
    /// Whether it lies before `other`.
    #[inline]
    pub(super) const fn is_before(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i64) < 0
    }

    /// Whether it lies after `other`.
    #[inline]
    pub(super) const fn is_after(self, other: Self) -> bool {
        other.is_before(self)
    }

    /// The last timestamp before this one.
    #[inline]
    pub(super) const fn predecessor(self) -> Self {
        Self(self.0.wrapping_sub(1))
    }
}

/// Where the clock and the worker's number stand in a timestamp: both at its upper end, so that a narrow clock wraps
/// around just as a wide one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    clock_shift: u32,
    worker_shift: u32,
}

impl Shape {
    /// `None` when there is no room for such a clock beside the worker's number.
    pub(super) fn new(clock_bits: Option<u32>, worker_bits: u32) -> Option<Self> {
        let clock_bits = clock_bits.unwrap_or(u64::BITS.checked_sub(worker_bits)?);
        let fits = clock_bits > 8 && clock_bits + worker_bits <= u64::BITS && worker_bits > 0;
        let clock_shift = u64::BITS.wrapping_sub(clock_bits);
        fits.then(|| Self { clock_shift, worker_shift: clock_shift - worker_bits })
    }

    /// The timestamp of a worker at a reading of its clock; its upper bits are lost.
    #[inline]
    pub(super) const fn timestamp(self, clock: u64, worker: usize) -> Timestamp {
        Timestamp(clock << self.clock_shift | (worker as u64) << self.worker_shift)
    }

    /// The first reading from `clock` on that gives no zero timestamp, which stands for none.
    #[inline]
    pub(super) const fn proper(self, clock: u64) -> u64 {
        if clock << self.clock_shift == 0 { clock + 1 } else { clock }
    }

    /// How many readings there are before the clock wraps around.
    #[inline]
    pub(super) const fn clock_numbers(self) -> u64 {
        1 << (u64::BITS - self.clock_shift)
    }

    /// So many sixteenths of them.
    #[inline]
    pub(super) const fn sixteenths(self, count: u64) -> u64 {
        self.clock_numbers() / 16 * count
    }

    /// The reading of which a timestamp was made: the latest one that is not after `near`.
    #[inline]
    pub(super) const fn reading(self, timestamp: Timestamp, near: u64) -> u64 {
        near - (near.wrapping_sub(timestamp.0 >> self.clock_shift) & (self.clock_numbers() - 1))
    }

    /// The era of a reading: how often the clock has wrapped around before it (§3.1).
    #[inline]
    pub(super) const fn era(self, clock: u64) -> u64 {
        clock >> (u64::BITS - self.clock_shift)
    }

    /// A distance of timestamps, or a sum of such, as clock readings.
    #[inline]
    pub(super) const fn in_clock(self, distance: u128) -> u64 {
        (distance >> self.clock_shift) as u64
    }

    /// How far apart in time two timestamps are that are so many clock readings apart.
    #[inline]
    pub(super) const fn clock_between(self, earlier: Timestamp, later: Timestamp) -> u64 {
        later.0.wrapping_sub(earlier.0) >> self.clock_shift
    }
}
