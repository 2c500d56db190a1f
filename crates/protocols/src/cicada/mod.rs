//! Cicada: optimistic, multi-version, with a clock for each worker (Lim, Kaminsky, Andersen, *Cicada: Dependably Fast Multi-Core
//! In-Memory Transactions*, SIGMOD 2017; section numbers refer to it).
//!
//! **Idea.** A transaction takes a timestamp from its worker's own clock when it begins, and reads of each record the version that
//! is visible at that timestamp. Its writes stay with it. At commit it installs them as pending versions, notes on what it read
//! that it was read so late, and checks that what it read is still what is visible, and that nobody later has read what it
//! overwrites (§3.4). Records are lists of versions; the head of a list holds a small version itself, so that a row that
//! changes seldom costs no more than in a single-version design (§3.3). Garbage is collected by timestamps, microseconds after it
//! came to be (§3.8).
//!
//! **Serial order.** The order of the timestamps, snapshots included. How it agrees with real time is an option
//! ([`Consistency`]).
//!
//! **Invariants** are written where they are relied on: versions in `record.rs`, horizons in `clocks.rs`, validation in
//! `commit.rs`, absent keys in `gaps.rs`, collection in `reclaim.rs`. `docs/protocols/cicada.md` lists them, and every
//! point where this differs from the paper and why.

mod array;
mod aside;
mod bins;
mod clocks;
mod commit;
mod conflict;
mod counts;
mod displaced;
mod fill;
mod find;
mod gaps;
mod garbage;
mod installation;
mod kept;
mod lazy_host;
mod loading;
mod log;
#[cfg(all(test, loom))]
mod model;
mod options;
mod promotion;
mod protocol;
mod pruning;
mod reads;
mod reclaim;
mod record;
mod regulation;
mod renewal;
mod rows;
mod scan;
mod searches;
mod sets;
mod steps;
mod table;
mod table_scan;
#[cfg(test)]
mod tests;
mod time;
mod timestamp;
mod transaction;
mod versioned;
mod worker;

#[cfg(any(test, feature = "ablation"))]
pub use options::Ablation;
pub use options::{Consistency, Indexes, Options, Snapshots};
pub use protocol::Cicada;
#[doc(hidden)]
pub use steps::{Point, Step};
pub use transaction::CicadaTransaction;
pub use worker::CicadaWorker;
