//! One lock around all rows: the smallest complete protocol, which `docs/tutorial.md` writes step by step.
//!
//! **Idea.** A transaction acquires the lock when it begins and releases it when it ends. Between the two it reads and writes rows in place, and
//! notes what it overwrites, so that a rollback can put that back.
//!
//! **Serial order.** The order in which transactions acquire the lock; it agrees with real time. A snapshot is a transaction that may not write.
//!
//! **Invariants.** Only the holder of the lock reads or writes a row. While nobody holds it, the rows are the committed ones, the undo log of every
//! worker is empty, and what was committed is sealed for the log.

mod lock;
mod protocol;
mod rows;
mod steps;
mod transaction;
mod worker;

pub use protocol::{OneLock, Options};
#[doc(hidden)]
pub use steps::Step;
pub use transaction::OneLockTransaction;
pub use worker::OneLockWorker;
