//! What transactions are promised of each other: the one difference between the two protocols of this folder.

use polychron_engine::Isolation;

/// A level of isolation.
pub trait Level: std::fmt::Debug + Send + Sync + 'static {
    /// The protocol's name at this level.
    const NAME: &'static str;
    /// The protocol's line in lists.
    const SUMMARY: &'static str;
    /// What it promises.
    const ISOLATION: Isolation;
    /// Whether reads are remembered, and checked when the transaction ends.
    const VALIDATES: bool;
}

/// Reads are validated at the end timestamp: the MV/O scheme of Hekaton.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serializable;

impl Level for Serializable {
    const NAME: &'static str = "hekaton";
    const SUMMARY: &'static str =
        "optimistic, multi-version, one counter for all timestamps (Hekaton's MV/O): for comparison";
    const ISOLATION: Isolation = Isolation::Serializable;
    const VALIDATES: bool = true;
}

/// Reads are not validated: every transaction reads one snapshot, and of two that write the same row the first one wins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshot;

impl Level for Snapshot {
    const NAME: &'static str = "snapshot-isolation";
    const SUMMARY: &'static str = "hekaton without validation of reads: snapshot isolation, which allows write skew";
    const ISOLATION: Isolation = Isolation::Snapshot;
    const VALIDATES: bool = false;
}
