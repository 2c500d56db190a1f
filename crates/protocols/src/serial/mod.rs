//! Serial: every transaction runs alone, because it has the tables to itself.
//!
//! **Idea.** A transaction takes the tables from its beginning to its end, reads and writes standard ordered maps in place,
//! and remembers what each row was before, so that a rollback can put it back. Nothing ever conflicts.
//!
//! **Serial order.** The order in which transactions take the tables; it agrees with real time. A snapshot is a transaction
//! that may not write, and is never stale.
//!
//! **What it is for.** It is the oracle against which the other protocols are compared, since it is right by construction,
//! and shows what a protocol implements that uses nothing of the row layer. Read the files in this order:
//!
//! | file | what it shows |
//! |---|---|
//! | `options.rs` | the protocol's own knobs (here: none) |
//! | `table.rs` | how rows lie in memory, and how secondary indexes follow every change of a row |
//! | `protocol.rs` | [`polychron_engine::Protocol`]: tables come and go, workers are handed out |
//! | `worker.rs` | [`polychron_engine::Worker`] and [`polychron_engine::Interactive`]: all work is left to `engine::drive` |
//! | `transaction.rs` | [`polychron_engine::Transaction`]: what a procedure may ask for |
//! | `commit.rs` | [`polychron_engine::Commit`], savepoints, and the log of what is to be undone |
//!
//! **Invariants.**
//! 1. `table::Tables` have one owner: the database, a call, or the worker of the running transaction.
//! 2. Every row has exactly one entry in each secondary index, under the key that its columns give (`table::SerialTable::replace`
//!    is the only way to change a row).
//! 3. While no transaction runs, the undo log is empty and the tables hold the committed state.
//!
//! **Limits.** Rows live on the common heap. What they, their keys and a running transaction's changes need is counted, with an
//! estimate of what the heap and the maps add, and a write that goes beyond the memory limit of the options is refused; a deletion
//! never is. A thread that begins a
//! transaction while it is inside another one of the same database would wait for itself; it gets
//! [`polychron_engine::Error::Unsupported`] instead.

mod commit;
mod options;
mod protocol;
mod steps;
mod table;
mod transaction;
mod worker;

#[cfg(test)]
mod tests;

pub use options::Options;
pub use protocol::Serial;
#[doc(hidden)]
pub use steps::Step;
pub use transaction::SerialTransaction;
pub use worker::SerialWorker;
