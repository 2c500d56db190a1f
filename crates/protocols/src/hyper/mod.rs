//! HyPer's multi-version concurrency control (Neumann, Mühlbauer, Kemper, *Fast Serializable Multi-Version Concurrency Control for
//! Main-Memory Database Systems*, SIGMOD 2015).
//!
//! **Idea.** Rows are changed where they lie. What was there goes into the undo buffer of the transaction, and readers undo what is too new
//! for them; so the newest state, which nearly all wants, is a plain array of words. A transaction logs not what it has read but what
//! it has asked, as predicates; to commit, it tests what others have committed meanwhile, which their undo buffers tell, against them.
//!
//! **Serial order.** The order of the commit times; a transaction that writes nothing stands at its start, and so does a snapshot. Both
//! lie within the call, so the order agrees with real time.
//!
//! `docs/protocols/hyper.md` lists the invariants, and where this differs from the paper and why. What predicates distinguish is the type
//! parameter [`Level`]: columns, records, or nothing, which is snapshot isolation.

mod ahead;
mod chains;
mod clock;
mod collect;
mod columns;
mod commit;
mod counts;
mod displaced;
mod elsewhere;
mod entries;
mod fill;
mod lazy_host;
mod level;
mod loading;
#[cfg(all(test, loom))]
mod model;
mod needed;
mod options;
mod out_of_line;
mod positions;
mod predicates;
mod protocol;
mod restored;
mod rows;
mod scan;
mod slot_ranges;
mod steps;
mod table;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod transaction;
mod tree;
mod undo;
mod view;
mod worker;
mod writes;

pub use level::Level;
pub use options::{Backend, BeforeImages, Options};
pub use protocol::Hyper;
#[doc(hidden)]
pub use steps::{Point, Step};
pub use transaction::HyperTransaction;
pub use worker::HyperWorker;
