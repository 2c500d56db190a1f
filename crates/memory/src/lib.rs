//! Memory: regions, pools, epochs and reclamation.
//!
//! A [`Memory`] belongs to a database. Each worker registers for a [`Local`], pins itself for a [`Guard`], and allocates,
//! frees and retires through it. `docs/memory.md` states the invariants and proves the reclamation right.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use polychron_memory::{Memory, Options};
//!
//! let memory = Memory::new(Options::tiny())?;
//! let local = memory.register()?;
//! let guard = local.pin();
//! let block = guard.allocate(100)?;
//! // SAFETY: the block is 100 bytes of ours, came from `allocate`, and no other thread knows of it.
//! unsafe {
//!     block.write_bytes(7, 100);
//!     guard.retire(block, 100);
//! }
//! # Ok(())
//! # }
//! ```

mod arena;
mod barriers;
mod beginnings;
mod blocks;
mod classes;
mod coalesce;
mod epochs;
#[cfg(feature = "faults")]
#[doc(hidden)]
pub mod faults;
mod guard;
mod huge_pages;
mod limbo;
mod local;
mod memory;
#[cfg(loom)]
pub mod model;
mod options;
mod origin;
mod pool;
mod reserve;
mod set_aside;
mod stack;
mod system;
mod ticker;
mod topology;

pub use epochs::{Epochs, Finds};
pub use guard::{Committing, Guard, Hold, Snapshot};
pub use local::Local;
pub use memory::{ClassStatistics, Memory, MemoryStatistics, NodeStatistics, OWN_SLOTS, Pressure};
pub use options::Options;
pub use origin::Origin;
pub use stack::stack_left;
pub use system::granted_bytes;

/// An allocation was refused: the memory limit is reached or the system has no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", polychron_base::Error::from(*self))]
pub struct OutOfMemory {
    /// Bytes asked for.
    pub requested: usize,
    /// Bytes taken of the limit ([`MemoryStatistics::reserved_bytes`]).
    pub used: usize,
    /// The limit.
    pub limit: usize,
}

/// Memory could not be set up, or a worker not be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Every worker slot is claimed.
    #[error("all {limit} worker slots are in use")]
    TooManyWorkers {
        /// The number of slots.
        limit: usize,
    },
    /// The options contradict themselves or each other.
    #[error("invalid memory options: {reason}")]
    InvalidOptions {
        /// The condition that does not hold.
        reason: &'static str,
    },
    /// The thread that moves the epochs on could not be started.
    #[error("the epoch thread could not be started: {kind}")]
    Ticker {
        /// The error of the system.
        kind: std::io::ErrorKind,
    },
    /// An allocation was refused.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

impl From<OutOfMemory> for polychron_base::Error {
    #[cold]
    fn from(OutOfMemory { requested, used, limit }: OutOfMemory) -> Self {
        Self::out_of_memory(requested, used, limit)
    }
}

impl From<Error> for polychron_base::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::TooManyWorkers { limit } => Self::TooManyWorkers { limit },
            Error::OutOfMemory(refused) => refused.into(),
            Error::InvalidOptions { .. } | Error::Ticker { .. } => Self::options(error.to_string()),
        }
    }
}
