//! The knobs of this protocol, and its policies.

use polychron_engine::Configuration;
use polychron_engine::stores::knobs::{self, Knobs};

/// Options of two-phase locking.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What a transaction does about locks that others hold.
    pub policy: Policy,
    /// How many buckets the lock table has, rounded up to a power of two: a word each. Locks that share a bucket share a latch
    /// and a list for a short time; with many more buckets than locks that are held at a time there is one lock in each.
    pub buckets: usize,
}

impl Options {
    /// The most buckets there can be.
    pub const MOST_BUCKETS: usize = 1 << 28;
}

impl Default for Options {
    fn default() -> Self {
        Self { policy: Policy::default(), buckets: if cfg!(any(loom, shuttle, miri)) { 16 } else { 1 << 16 } }
    }
}

/// What a transaction does about locks that others hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Locks that are known beforehand are waited for in one global order; any other lock that another holds is a conflict.
    #[default]
    InOrder,
    /// No transaction waits: a lock that another one holds is a conflict.
    NoWait,
    /// Older transactions wound younger ones that hold what they want, and wait for older ones.
    WoundWait,
    /// As [`Policy::WoundWait`], with condition locks: for a layer that leaves futures open, which chooses it.
    Conditional,
}

/// How often a transaction conflicts before it gets an age, where not all have one.
pub(super) const CONFLICTS_UNAGED: u64 = 4;

impl Policy {
    /// Those that have names of their own.
    pub(super) const NAMED: &'static [Configuration] = &[
        Configuration::new(
            "locking-no-wait",
            "two-phase locking that never waits for a lock: for short transactions that seldom meet",
            &[("policy", "no-wait")],
        ),
        Configuration::new(
            "locking-wound-wait",
            "two-phase locking, locks as they come, older transactions first: for interactive transactions on hot rows",
            &[("policy", "wound-wait")],
        ),
    ];

    /// The configuration of this policy, if it is one that has a name of its own.
    pub(super) const fn configuration(self) -> Option<&'static Configuration> {
        match self {
            Self::InOrder | Self::Conditional => None,
            Self::NoWait => Some(&Self::NAMED[0]),
            Self::WoundWait => Some(&Self::NAMED[1]),
        }
    }

    /// Whether locks that are known beforehand are taken in the global order, waiting.
    #[inline]
    pub(super) const fn is_in_order(self) -> bool {
        matches!(self, Self::InOrder)
    }

    /// Whether every transaction has an age from its beginning on: older ones wound younger ones, and wait while they run. Otherwise a
    /// transaction gets one when it has conflicted several times.
    #[inline]
    pub(super) const fn wounds(self) -> bool {
        matches!(self, Self::WoundWait | Self::Conditional)
    }

    /// Whether transactions hold conditions, which others respect.
    #[inline]
    pub(super) const fn has_conditions(self) -> bool {
        matches!(self, Self::Conditional)
    }
}

impl Knobs for Options {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "policy" => {
                let policies =
                    [("in-order", Policy::InOrder), ("no-wait", Policy::NoWait), ("wound-wait", Policy::WoundWait)];
                self.policy = knobs::choice(name, value, &policies)?;
            }
            "buckets" => self.buckets = knobs::number(name, value)?,
            _ => return Err(knobs::unknown("locking", name, "`buckets` and `policy`")),
        }
        Ok(())
    }
}
