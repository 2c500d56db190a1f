//! Lazy state determination (*Lazy State Determination: More concurrency for contending linearizable transactions*, Vale, Leitão,
//! Preguiça, Rodrigues, Dias and Lourenço, 2020): futures stay open until the commit.
//!
//! **Idea.** A transaction that reads a column as a future reads nothing; one that writes a future notes an expression. At the
//! commit the rows are claimed, read, computed and written, in one short section. In between only conditions are looked at,
//! and of a row that a condition depends on others may change everything but the answer. So transactions that add to one
//! counter do not conflict.
//!
//! This is a layer over a protocol that reads and writes at once ([`Base`]): over Maflingo it is `lazy-occ` (Algorithm 1:
//! conditions are looked at again at the commit), over two-phase locking with condition locks `lazy-2pl` (Algorithm 2). The
//! same code that resolves futures at once is `occ`.
//!
//! **Serial order.** That of the protocol beneath. It agrees with real time.
//!
//! **Invariants** are on the page `docs/protocols/lazy.md`.

mod arena;
mod base;
mod occ;
mod program;
mod protocol;
mod settle;
mod steps;
mod transaction;
mod two_phase;
mod worker;

pub use base::{AtCommit, AtOnce, Base, Moment};
#[doc(hidden)]
pub use program::Condition;
pub use protocol::Lazy;
#[doc(hidden)]
pub use steps::Step;
pub use transaction::LazyTransaction;
pub use worker::LazyWorker;

/// Lazy optimistic concurrency control (Algorithm 1).
pub type LazyOcc = Lazy<crate::maflingo::Maflingo, AtCommit>;
/// The same with futures resolved at once.
pub type Occ = Lazy<crate::maflingo::Maflingo, AtOnce>;
/// Lazy two-phase locking (Algorithm 2).
pub type LazyTwoPhase = Lazy<crate::locking::Locking<crate::locking::Conditional>, AtCommit>;
