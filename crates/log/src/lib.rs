//! The durable part of Polychron: files and what is in them.
//!
//! [`disk`] is the only part that touches files. `docs/durability.md` lists the promises and invariants, and which parts exist.

mod codec;
pub mod disk;
pub mod frame;
pub mod manifest;

pub use codec::DatabaseId;
