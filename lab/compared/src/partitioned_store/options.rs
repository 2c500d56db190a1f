//! The knobs of this protocol.

/// Options of Partitioned-Store.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many partitions there are; a partition column's value belongs to the partition `value % partitions`. The
    /// thesis has one for each warehouse; 64 gives as many warehouses a lock of their own, at 64 empty indexes for each
    /// index of a divided table. From 1 to [`Options::MOST_PARTITIONS`].
    pub partitions: usize,
}

impl Options {
    /// The most partitions there can be.
    pub const MOST_PARTITIONS: usize = 1 << 16;
}

impl Default for Options {
    fn default() -> Self {
        Self { partitions: 64 }
    }
}
