//! What every protocol must pass: behaviour, anomalies, snapshots, reclamation, each as a function generic over the
//! protocol, and one macro, [`conformance!`], that makes a test of each.
//!
//! ```ignore
//! polychron_check::conformance!(maflingo, setup::maflingo());
//! ```
//!
//! Transactions are driven step by step by one thread, so that an interleaving is what the test's text says and nothing
//! depends on time. Where threads run freely, invariants are checked at the end.

pub mod checker;
mod client;
pub mod conformance;
pub mod exploration;
pub mod history;
pub mod journal;
mod model;
mod rows;
mod samples;
mod savepoints;
mod setup;
mod watch;

pub use savepoints::Savepoints;
pub use setup::Setup;
