//! Ids, errors, keys, seeded randomness and clocks: what every other crate of Polychron speaks with.

pub mod clock;
pub mod error;
pub mod id;
pub mod key;
pub mod line;
pub mod random;
pub mod room;
pub mod sizes;

pub use error::{Abort, Error, Reason, Stop};
pub use id::{IndexId, TableId, WorkerId};
