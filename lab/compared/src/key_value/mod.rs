//! Key-Value: "the concurrent B+-tree underneath, atomic gets and puts for a single key, no transactions" (Tu, *Fast
//! Transactions for Multicore In-Memory Databases*, MIT 2013, §6.3).
//!
//! **Idea.** It is the yardstick for what transactions cost: the same index, the same rows written in place, the same
//! copying of the wanted columns into the caller's buffer, and nothing else. A record's version word lets readers notice
//! that a row changed under them and read again, and lets one writer at a time in.
//!
//! **Isolation.** None. Every get, put, insertion and deletion of one key is atomic and linearizable; a procedure is a
//! sequence of them. A read-modify-write is a get and a put of which another's put may come between. Commit does nothing;
//! rollback undoes nothing, it only reports. Snapshots read the present.
//!
//! **Invariants** are those of `record.rs` and of `rows.rs`; `docs/lab/key-value.md` lists them.

#[cfg(all(test, loom))]
mod model;
mod options;
mod protocol;
mod record;
mod rows;
mod table;
#[cfg(test)]
mod tests;
mod transaction;
mod worker;

pub use options::Options;
pub use protocol::KeyValue;
pub use transaction::KeyValueTransaction;
pub use worker::KeyValueWorker;
