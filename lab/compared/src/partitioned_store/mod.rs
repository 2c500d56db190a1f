//! Partitioned-Store: whole-partition locks and no other concurrency control (Tu, *Fast Transactions for Multicore
//! In-Memory Databases*, MIT 2013, §6.5, after H-Store).
//!
//! **Idea.** Tables are divided by the value of their partition column; every partition has its own indexes and one spin
//! lock. A procedure declares its partitions, their locks are taken in sorted order before it runs, and then it runs as
//! in a single-threaded store: it reads records where they lie, writes them in place, and notes what to put back if it is
//! rolled back. Unbeatable while procedures stay in one partition each, and poor as soon as many do not.
//!
//! **Serial order.** A transaction holds all its locks from before its first operation to after its last, so transactions
//! that share a partition do not overlap at all. The order is that of taking the locks, and agrees with real time.
//! Snapshots are transactions that may not write, and are never stale.
//!
//! **Invariants** are written where they are relied on: locks in `locks.rs`, records and undoing in `engine::stores`.
//! `docs/lab/partitioned-store.md` lists them, and what was chosen where the thesis is silent.

mod ddl;
mod locks;
#[cfg(all(test, loom))]
mod model;
mod options;
mod protocol;
mod rows;
mod scan;
mod steps;
mod table;
#[cfg(test)]
mod tests;
mod transaction;
mod worker;

pub use options::Options;
pub use protocol::PartitionedStore;
#[doc(hidden)]
pub use steps::Step;
pub use transaction::PartitionedTransaction;
pub use worker::PartitionedWorker;
