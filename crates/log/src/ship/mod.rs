//! Shipping: a database's log is sent to standbys as it becomes durable, and they follow it. `docs/durability.md` has the rules.
//!
//! [`Sender`] is what a primary does for one connection, [`Standby`] what a standby does. Both take bytes and give bytes, whatever carries them; `net` is the
//! one place that touches the network.

mod base;
mod marker;
mod message;
pub mod net;
mod points;
mod sender;
mod shared;
mod show;
mod standby;

pub use base::Base;
pub(crate) use marker::{forget, is_there as is_standby, next_incarnation};
pub use message::Mark;
pub use points::Point;
pub use sender::{Hearing, Sender, Source};
pub(crate) use shared::Shared;
pub use show::{Apply, Changes, Showing, Unshown};
pub use standby::{Following, Standby, StandbyOpening};

use crate::disk;
use crate::error::Error;
use message::{Garbled, Refusal};

/// How long the log may become while files of it are kept for a standby, in bytes.
pub(crate) const MOST_HELD: u64 = 1 << 30;

/// How many standbys a primary has at most.
pub(crate) const MOST_STANDBYS: usize = 16;

/// How long a log file may be, in bytes.
const MOST_FILE: u64 = 1 << 30;
/// How many bytes of an epoch a standby gathers at most before the last one's frame has come: a long transaction, and others beside it.
const MOST_EPOCH: usize = 8 << 30;
/// How many bytes of whole epochs it makes durable and applies at once.
const MOST_ARRIVED: usize = 8 << 20;

/// Why a connection between a primary and a standby has ended.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// No primary or standby sends such bytes: they were damaged on the way, or somebody else is there.
    #[error("{0}")]
    Garbled(&'static str),
    /// Both have messages of different versions.
    #[error("its messages are of another version")]
    Version,
    /// The primary has another database.
    #[error("it is another database")]
    OtherDatabase,
    /// The standby has seen a later opening than the primary's: there is a newer primary, or was.
    #[error("it is at opening {primary} of the database, and opening {seen} was seen: there is a newer primary")]
    Fenced {
        /// The primary's opening.
        primary: u64,
        /// The highest that was seen.
        seen: u64,
    },
    /// The standby's history is no part of the primary's.
    #[error("its history is another one")]
    OtherHistory,
    /// The log behind what the standby has is gone, or the primary no longer knows which tables there were then.
    #[error("what follows what the standby has is gone: it begins anew when it is opened again")]
    TooFarBehind,
    /// Files of the primary or of the standby could not be used.
    #[error("{0}")]
    Files(Error),
    /// The standby's files could not be written.
    #[error("{0}")]
    Stopped(String),
    /// Changes that were received could not be applied.
    #[error("{0}")]
    Apply(std::sync::Arc<polychron_base::Error>),
    /// The connection was lost.
    #[error("{0}")]
    Lost(String),
}

impl Trouble {
    /// The same as the user of the standby at this path is told it.
    #[cold]
    pub fn of_standby(self, path: &str) -> polychron_base::Error {
        match self {
            Self::Files(error) => error.of_database(path),
            other => polychron_base::Error::not_following(path.to_owned(), other.to_string()),
        }
    }

    /// Whether it is about what the standby has, so that no other connection does better: it ends until it is opened again.
    fn is_of_standby(&self) -> bool {
        matches!(self, Self::Files(_) | Self::Stopped(_) | Self::Apply(_) | Self::TooFarBehind | Self::OtherHistory)
    }

    /// Whether another connection may do better.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Garbled(_) | Self::Lost(_))
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Files(error)
    }
}

impl From<disk::Error> for Trouble {
    fn from(error: disk::Error) -> Self {
        Self::Files(error.into())
    }
}

impl From<crate::manifest::Error> for Trouble {
    fn from(error: crate::manifest::Error) -> Self {
        Self::Files(error.into())
    }
}

impl From<Garbled> for Trouble {
    fn from(garbled: Garbled) -> Self {
        Self::Garbled(garbled.0)
    }
}

/// The refusal of a primary, to a standby that has seen this opening.
fn refused(refusal: Refusal, seen: u64) -> Trouble {
    match refusal {
        Refusal::Version => Trouble::Version,
        Refusal::OtherDatabase => Trouble::OtherDatabase,
        Refusal::Fenced => Trouble::Fenced { primary: 0, seen },
        Refusal::OtherHistory => Trouble::OtherHistory,
        Refusal::TooFarBehind => Trouble::TooFarBehind,
    }
}
