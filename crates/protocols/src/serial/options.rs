//! The protocol's own knobs.

/// Serial has no knobs: there is nothing to trade.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {}
