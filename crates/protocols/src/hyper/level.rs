//! What transactions are promised of each other: the one difference between the three protocols of this folder.

use polychron_engine::Isolation;

/// A level of isolation.
pub trait Level: std::fmt::Debug + Send + Sync + 'static {
    /// The protocol's name at this level.
    const NAME: &'static str;
    /// The protocol's line in lists.
    const SUMMARY: &'static str;
    /// What it promises.
    const ISOLATION: Isolation;
    /// Whether reads are logged as predicates, and checked when the transaction ends.
    const VALIDATES: bool;
    /// Whether a change of columns that were not looked at is none.
    const BY_COLUMNS: bool;
}

/// Predicates know the columns that were read: SR-AL.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByColumn;

impl Level for ByColumn {
    const NAME: &'static str = "hyper";
    const SUMMARY: &'static str =
        "in place with undo buffers, precision locking of the columns read: short writers beside long readers";
    const ISOLATION: Isolation = Isolation::Serializable;
    const VALIDATES: bool = true;
    const BY_COLUMNS: bool = true;
}

/// Predicates know rows only: SR-RL.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByRecord;

impl Level for ByRecord {
    const NAME: &'static str = "hyper-record-level";
    const SUMMARY: &'static str = "hyper whose predicates do not tell columns apart: for comparison";
    const ISOLATION: Isolation = Isolation::Serializable;
    const VALIDATES: bool = true;
    const BY_COLUMNS: bool = false;
}

/// Reads are not validated: every transaction reads one snapshot, and of two that write the same row the first one wins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshot;

impl Level for Snapshot {
    const NAME: &'static str = "hyper-snapshot";
    const SUMMARY: &'static str = "hyper without validation of reads: snapshot isolation, which allows write skew";
    const ISOLATION: Isolation = Isolation::Snapshot;
    const VALIDATES: bool = false;
    /// Of what foreign keys rest on, which is validated at this level, too.
    const BY_COLUMNS: bool = true;
}
