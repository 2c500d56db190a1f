//! The knobs of this protocol: none.

/// Options of Key-Value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {}
