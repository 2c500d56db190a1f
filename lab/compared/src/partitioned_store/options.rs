//! The knobs of this protocol.

use polychron_engine::stores::Knobs;

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

impl Knobs for Options {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "partitions" => {
                let most = Self::MOST_PARTITIONS;
                let partitions = value.parse().ok().filter(|partitions| (1..=most).contains(partitions));
                let refusal = || format!("`partitions` is a number from 1 to {most}, and not `{value}`");
                self.partitions = partitions.ok_or_else(refusal)?;
                Ok(())
            }
            _ => Err(format!("partitioned-store has no option `{name}`; it has `partitions`")),
        }
    }
}
