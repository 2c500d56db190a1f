//! BOHM (Faleiro and Abadi, PVLDB 8(11), 2015): transactions are put in order and their versions made before they run.
//!
//! `docs/protocols/bohm.md` has the invariants. The way of a transaction:
//!
//! ```text
//!   worker.rs ──► planned.rs ──► pipeline.rs ──► plan.rs ──► execution.rs ──► transaction.rs, rows.rs, scan.rs
//!   a client      its client batch     the log         placeholders  procedures       what they may ask for
//! ```

mod answers;
mod attempt;
mod chain;
mod collection;
mod commit;
mod displaced;
mod dropped;
mod entry;
mod execution;
mod executors;
mod guesses;
mod interactive;
mod leftovers;
#[cfg(all(test, loom))]
mod model;
mod naming;
mod notices;
mod options;
mod parking;
mod pipeline;
mod plan;
mod planned;
mod protocol;
mod reading;
mod rows;
mod scan;
mod staging;
mod steps;
mod table;
#[cfg(test)]
mod tests;
mod timestamp;
mod transaction;
mod version;
mod worker;
mod writing;

pub use options::{Options, Unknown};
pub use protocol::Bohm;
pub use steps::{Point, Step};
pub use transaction::BohmTransaction;
pub use worker::BohmWorker;
