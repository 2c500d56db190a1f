//! Lazy state determination (*Lazy State Determination: More concurrency for contending linearizable transactions*, Vale, Leitão,
//! Preguiça, Rodrigues, Dias and Lourenço, 2020): futures stay open until the commit.
//!
//! **Idea.** A transaction that reads a column as a future reads nothing; one that writes a future notes an expression. At the
//! commit the rows are claimed, read, computed and written, in one short section. In between only conditions are looked at,
//! and of a row that a condition depends on others may change everything but the answer. So transactions that add to one
//! counter do not conflict.
//!
//! This is a layer over a protocol that reads and writes at once ([`polychron_engine::lazy::LazyHost`]): over an optimistic one it is
//! `lazy-occ` (Algorithm 1: conditions are looked at again at the commit), over two-phase locking with condition locks `lazy-2pl`
//! (Algorithm 2). With the option `resolution=eager` the former is `occ`.
//!
//! **Serial order.** That of the host protocol. It agrees with real time.
//!
//! **Invariants** are on the page `docs/protocols/lazy.md`.

mod arena;
mod commit;
mod flush;
mod options;
mod protocol;
mod savepoints;
mod steps;
mod transaction;
mod worker;

pub use options::{Options, Resolution};
pub use protocol::Lazy;
#[doc(hidden)]
pub use steps::Step;
pub use transaction::LazyTransaction;
pub use worker::LazyWorker;
