//! What statements ask of sequences.

use std::sync::Arc;

use super::Sequence;
use crate::asked::Asked;

/// A part of the row that a sequence is in FROM.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shown {
    LastValue,
    IsCalled,
}

/// What is asked of sequences.
#[derive(Debug)]
pub(crate) enum Draw {
    Next(Arc<Sequence>),
    /// The number of a row.
    Row(Arc<Sequence>),
    Current(Arc<Sequence>),
    Last,
    Set(Arc<Sequence>),
    Shown(Arc<Sequence>, Shown),
    /// Something else that is the session's.
    Asked(Asked),
}

impl Draw {
    /// The function that asks.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Next(_) | Self::Row(_) => "nextval",
            Self::Current(_) => "currval",
            Self::Last => "lastval",
            Self::Set(_) => "setval",
            Self::Shown(_, Shown::LastValue) => "last_value",
            Self::Shown(_, Shown::IsCalled) => "is_called",
            Self::Asked(asked) => asked.name(),
        }
    }
}
