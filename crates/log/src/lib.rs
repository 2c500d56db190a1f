//! The durable part of Polychron: files and what is in them.
//!
//! [`disk`] is the only part that touches files. A [`Log`] takes what commits change and makes it durable; [`read()`] hands it out again.
//! `docs/durability.md` lists the promises and invariants, and which parts exist.

pub mod backup;
pub mod catalog;
pub mod checkpoint;
mod codec;
pub mod disk;
mod durable;
mod error;
mod flush;
pub mod frame;
pub mod manifest;
mod open;
mod read;
mod reading;
pub mod recover;
mod ring;
pub mod ship;
pub mod steps;
pub mod tools;

pub use codec::DatabaseId;
pub use durable::{Durable, Load, Opening, Progress, Settings, Wanted};
pub use error::{Error, RowFault};
pub use flush::{Beat, Ended, Log, Options, Replication, Threads};
pub use polychron_engine::redo::Durability;
pub use read::{Logged, read};
pub use reading::Reading;
