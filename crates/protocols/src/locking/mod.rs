//! Two-phase locking: rows in one version each, written in place under locks that are held to the end (strict two-phase
//! locking, after Gray and others; the lock table after the baseline of *Rethinking serializable multiversion concurrency
//! control*, Faleiro and Abadi, VLDB 2015, §4).
//!
//! **Idea.** A transaction locks what it reads shared, and what it writes exclusively, an absent key like a present one, and releases all locks
//! at its end. Ranges that were scanned are locked, too, so that no key comes into them. An undo log restores rows in a rollback. The keys that a
//! procedure declares are locked in one global order, waiting, before it runs. What it accesses beyond them is locked without waiting; where that
//! fails it conflicts, and the next attempt first locks, in the global order, all that this one had reached. [`NoWait`](Policy::NoWait) has neither
//! the order nor the waiting; with [`WoundWait`](Policy::WoundWait) older transactions wound younger ones that block them, and wait for all others,
//! as any transaction does that has conflicted several times.
//!
//! **Serial order.** That of the ends of transactions: each holds all its locks at one time, and releases none before. It agrees with real time.
//! Snapshots are transactions that may not write: they are never stale, and hold writers back.
//!
//! **Invariants** are on the page `docs/protocols/locking.md`, and where they are relied on: locks in `locks.rs`, ranges in `ranges.rs`, the locks of
//! a transaction in `held.rs`, its records in `records.rs`.

mod commit;
mod conditions;
mod held;
mod intervals;
mod lazy_host;
mod locks;
#[cfg(all(test, loom))]
mod model;
mod options;
mod protocol;
mod ranges;
mod records;
mod rows;
mod scan;
mod steps;
mod table;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod transaction;
mod worker;
mod wounds;

pub use options::{Options, Policy};
pub use protocol::Locking;
#[doc(hidden)]
pub use steps::{Point, Step};
pub use transaction::LockingTransaction;
pub use worker::LockingWorker;
