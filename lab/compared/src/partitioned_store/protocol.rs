//! The database as a whole.

use std::sync::Arc;

use polychron_engine::stores::Base;

use super::locks::Locks;
use super::table::Index;

/// What all workers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) base: Base<Index>,
    pub(super) locks: Locks,
}

/// The protocol. See the module.
#[derive(Debug)]
pub struct PartitionedStore {
    pub(super) shared: Arc<Shared>,
}
