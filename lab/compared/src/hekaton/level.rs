//! What transactions are promised of each other.

use polychron_engine::{Configuration, Isolation};

/// A level of isolation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// Reads are validated at the end timestamp: the MV/O scheme of Hekaton.
    #[default]
    Serializable,
    /// Reads are not validated, except those that a foreign key rests on. Every transaction reads one snapshot, and of two that write the
    /// same row the first one wins.
    Snapshot,
}

impl Level {
    /// The one that has a name of its own.
    pub(super) const SNAPSHOT: &'static [Configuration] = &[Configuration::new(
        "snapshot-isolation",
        "hekaton without validation of reads: snapshot isolation, which allows write skew",
        &[("level", "snapshot")],
    )
    .promising(Isolation::Snapshot)];

    /// The configuration of this level, if it is not the default one.
    pub(super) const fn configuration(self) -> Option<&'static Configuration> {
        match self {
            Self::Serializable => None,
            Self::Snapshot => Some(&Self::SNAPSHOT[0]),
        }
    }

    /// Whether reads are remembered, and checked when the transaction ends.
    #[inline]
    pub(super) const fn validates(self) -> bool {
        matches!(self, Self::Serializable)
    }
}
