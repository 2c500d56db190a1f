//! The knobs of this protocol.

/// Options of Hekaton. It has none: what the papers leave open is decided in `docs/protocols/hekaton.md`.
#[derive(Clone, Debug, Default)]
pub struct Options {}
