//! Maflingo (later called Silo): optimistic, single-version for writers, in epochs (Tu, *Fast Transactions for Multicore
//! In-Memory Databases*, MIT 2013; section numbers refer to it).
//!
//! **Idea.** A transaction reads records without writing anything shared and remembers the transaction id (TID) each had.
//! At commit it latches what it writes, checks that what it read still has the same ids, draws a TID from its own memory
//! and writes in place (Figure 4-1). Ranges and absent keys are guarded by the versions of the index nodes that were looked
//! at (§4.3). Time is cut into epochs; TIDs begin with theirs, so that a whole epoch is a consistent snapshot once no worker
//! is still in it (§4.7), and memory is freed by the same clock (§4.6, 4.8).
//!
//! **Serial order.** The order of the instants between phase 1 and phase 2 of commit. Each lies within its transaction's
//! call, so the order agrees with real time (strict serializability) without any cost. Snapshots are serialized at the end
//! of an epoch in the recent past.
//!
//! **Invariants** are written where they are relied on: the record's words in `record.rs`, commit in `commit.rs`, memory in
//! `reclaim.rs`. `docs/protocols/maflingo.md` lists them, and every place where this differs from the thesis and why.
//!
//! GlobalTID (§6.4) is the same protocol with one shared counter in the commit path: the option `counter=shared` ([`Counter`]).

mod aside;
mod commit;
mod conflicts;
mod displaced;
mod fill;
mod keeping;
mod lazy_host;
mod loading;
#[cfg(all(test, loom))]
mod model;
mod nested;
mod options;
mod protocol;
mod reclaim;
mod record;
mod rows;
mod scan;
mod sets;
mod staging;
mod steps;
mod table;
#[cfg(test)]
mod tests;
mod transaction;
mod versions;
mod worker;
mod writing;

pub use options::{Counter, Options};
pub use protocol::Maflingo;
#[doc(hidden)]
pub use steps::{Point, Step};
pub use transaction::MaflingoTransaction;
pub use worker::MaflingoWorker;
