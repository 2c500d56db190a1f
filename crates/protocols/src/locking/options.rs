//! The knobs of this protocol, and its policies.

use std::fmt::Debug;

/// Options of two-phase locking.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many buckets the lock table has, rounded up to a power of two: a word each. Locks that share a bucket share a latch
    /// and a list for moments; with many more buckets than locks that are held at a time there is one lock in each.
    pub buckets: usize,
}

impl Options {
    /// The most buckets there can be.
    pub const MOST_BUCKETS: usize = 1 << 28;
}

impl Default for Options {
    fn default() -> Self {
        Self { buckets: if cfg!(any(loom, shuttle, miri)) { 16 } else { 1 << 16 } }
    }
}

/// What a transaction does about locks that others hold.
pub trait Policy: Debug + Send + Sync + 'static {
    /// The protocol's name on the command line.
    const NAME: &'static str;
    /// Its line in lists.
    const SUMMARY: &'static str;
    /// Whether locks that are known beforehand are taken in the global order, waiting.
    const IN_ORDER: bool = false;
    /// Whether every transaction has an age from its beginning on: older ones wound younger ones, and wait while they run. Without
    /// it a transaction gets one when it has conflicted [`Policy::CONFLICTS_UNAGED`] times.
    const WOUNDS: bool = false;
    /// How often a transaction conflicts before it gets an age.
    #[doc(hidden)]
    const CONFLICTS_UNAGED: u64 = 4;
    /// Whether transactions hold conditions, which others respect.
    const CONDITIONS: bool = false;
}

/// Locks that are known beforehand are waited for in one global order.
#[derive(Debug)]
pub enum InOrder {}

impl Policy for InOrder {
    const NAME: &'static str = "locking";
    const SUMMARY: &'static str =
        "two-phase locking, declared keys in one order: the classic, for declared sets and hot rows";
    const IN_ORDER: bool = true;
}

/// Nobody waits: a lock that another holds is a conflict.
#[derive(Debug)]
pub enum NoWait {}

impl Policy for NoWait {
    const NAME: &'static str = "locking-no-wait";
    const SUMMARY: &'static str =
        "two-phase locking that never waits for a lock: for short transactions that seldom meet";
}

/// Older transactions wound younger ones that hold what they want, and wait for older ones.
#[derive(Debug)]
pub enum WoundWait {}

impl Policy for WoundWait {
    const NAME: &'static str = "locking-wound-wait";
    const SUMMARY: &'static str =
        "two-phase locking, locks as they come, older transactions first: for interactive transactions on hot rows";
    const WOUNDS: bool = true;
}

/// As [`WoundWait`], with condition locks: beneath a layer that leaves futures open.
#[derive(Debug)]
pub enum Conditional {}

impl Policy for Conditional {
    const NAME: &'static str = "locking-conditional";
    const SUMMARY: &'static str = "two-phase locking with condition locks, beneath a layer that leaves futures open";
    const WOUNDS: bool = true;
    const CONDITIONS: bool = true;
}
