//! When futures are resolved.

/// One of two times.
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
