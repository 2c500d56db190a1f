//! Hekaton's optimistic multi-version scheme (Larson, Blanas, Diaconu, Freedman, Patel, Zwilling, *High-Performance Concurrency Control
//! Mechanisms for Main-Memory Databases*, PVLDB 5(4), 2011: MV/O), and snapshot isolation from the same code: multi-version
//! systems for others to be compared with.
//!
//! **Idea.** One counter gives all timestamps. A transaction draws one when it begins, and reads what was committed then. Its writes are
//! versions in the lists of their records at once, with its id in the place of the beginning; the id in the end of the version before
//! is the write lock, and the second writer conflicts. To end, it draws another timestamp and checks that what it read is visible then,
//! too. What others read of it in the meantime they read on condition that it commits.
//!
//! **Serial order.** The order of the ends; a transaction that writes nothing stands at its beginning, and so does a snapshot. Both lie
//! within the call, so the order agrees with real time.
//!
//! `docs/lab/hekaton.md` lists the invariants, and where this differs from the paper and why. Without validation of reads the
//! same code is snapshot isolation: the option [`Level`].

mod collect;
mod commit;
mod fill;
mod level;
#[cfg(all(test, loom))]
mod model;
mod open;
mod options;
mod protocol;
mod rows;
mod scan;
mod sets;
mod steps;
mod table;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod transaction;
mod transactions;
mod version;
mod worker;

pub use level::Level;
pub use options::Options;
pub use protocol::Hekaton;
#[doc(hidden)]
pub use steps::{Point, Step};
pub use transaction::HekatonTransaction;
pub use worker::HekatonWorker;
