//! What lazy state determination needs of the protocol beneath it.

use polychron_base::{Reason, Stop, TableId};
use polychron_engine::{Interactive, Protocol};

use super::program::Condition;

/// A running transaction of a protocol.
pub(super) type Inner<'w, B> = <<B as Protocol>::Worker as Interactive>::Transaction<'w>;

/// A protocol beneath. What a transaction of it has read stays, or the transaction conflicts; that is all that is relied on.
pub trait Base: Protocol<Worker: Interactive> {
    /// Name and line in lists of the lazy protocol.
    #[doc(hidden)]
    const LAZY: (&'static str, &'static str);
    /// The same where futures are resolved at once.
    #[doc(hidden)]
    const EAGER: (&'static str, &'static str);
    /// Whether [`Base::observe`] makes a condition stay what it is told to be. Where it does not, it is looked at again at the
    /// commit.
    #[doc(hidden)]
    const HOLDS_CONDITIONS: bool;

    /// Tells whether a condition is true now.
    #[doc(hidden)]
    fn observe(transaction: &mut Inner<'_, Self>, condition: &Condition, scratch: &mut Vec<u64>) -> Result<bool, Stop>;

    /// At the commit, before a row is looked at: keeps others from writing it, or even from reading it.
    #[doc(hidden)]
    fn claim(transaction: &mut Inner<'_, Self>, table: TableId, key: &[u8], written: bool) -> Result<(), Stop>;

    /// The transaction conflicts.
    #[doc(hidden)]
    fn conflict(transaction: &mut Inner<'_, Self>, reason: Reason, table: TableId) -> Stop;
}

/// When futures are resolved.
pub trait Moment: std::fmt::Debug + Send + Sync + 'static {
    /// Whether they stay open until the commit.
    const LATE: bool;
}

/// At the commit.
#[derive(Debug)]
pub enum AtCommit {}

impl Moment for AtCommit {
    const LATE: bool = true;
}

/// At once, as in every other protocol.
#[derive(Debug)]
pub enum AtOnce {}

impl Moment for AtOnce {
    const LATE: bool = false;
}
