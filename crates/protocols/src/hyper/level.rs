//! What transactions are promised of each other.

use polychron_engine::{Configuration, Isolation};

/// A level of isolation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// Serializable; predicates know the columns that were read (SR-AL).
    #[default]
    Columns,
    /// Serializable; predicates know rows only (SR-RL): for comparison.
    Rows,
    /// Snapshot isolation: reads are not validated, except those that a foreign key rests on. Every transaction reads one snapshot, and of
    /// two that write the same row the first one wins.
    Snapshot,
}

impl Level {
    /// Those that have names of their own.
    pub(super) const NAMED: &'static [Configuration] = &[
        Configuration::new(
            "hyper-record-level",
            "hyper whose predicates do not tell columns apart: for comparison",
            &[("level", "rows")],
        ),
        Configuration::new(
            "hyper-snapshot",
            "hyper without validation of reads: snapshot isolation, which allows write skew",
            &[("level", "snapshot")],
        )
        .promising(Isolation::Snapshot),
    ];

    /// The configuration of this level, if it is not the default one.
    pub(super) const fn configuration(self) -> Option<&'static Configuration> {
        match self {
            Self::Columns => None,
            Self::Rows => Some(&Self::NAMED[0]),
            Self::Snapshot => Some(&Self::NAMED[1]),
        }
    }

    /// Whether reads are logged as predicates, and checked when the transaction ends.
    #[inline]
    pub(super) const fn validates(self) -> bool {
        !matches!(self, Self::Snapshot)
    }

    /// Whether a change of columns that were not looked at is none.
    #[inline]
    pub(super) const fn goes_by_columns(self) -> bool {
        !matches!(self, Self::Rows)
    }
}
