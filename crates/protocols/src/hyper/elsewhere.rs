//! Where a collector finds a relation that its own list of tables does not have: one that was made since, or one that was dropped.
//!
//! A before-image is in the chain of a slot, and any thread that has the relation reads the chain: so the before-image leaves the chain
//! before its memory is freed, as long as anybody has the relation. A dropped one belongs to the transactions that are older, and goes with
//! the last of them.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, Weak};

use polychron_base::{IndexId, TableId};
use polychron_engine::catalog::{self, Catalog};
use polychron_engine::stores::IndexRef;
use polychron_sync::Mutex;

use super::table::{HyperTable, Relation};

/// Relations that were dropped, as long as anybody has them.
#[derive(Debug, Default)]
pub(super) struct Dropped(Mutex<BTreeMap<(TableId, IndexId), Weak<Relation>>>);

impl Dropped {
    /// Notes a relation that is about to be dropped: before the catalog forgets it, so that there is no timestamp in which it is found in
    /// neither.
    pub(super) fn note(&self, relation: &Arc<Relation>) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.retain(|_, relation| relation.strong_count() > 0);
        let IndexRef { table, index } = relation.index_ref();
        noted.insert((table, index), Arc::downgrade(relation));
    }

    /// The relation of a place, if anybody has it.
    #[cold]
    pub(super) fn find(&self, catalog: &Catalog<HyperTable>, index_ref: IndexRef) -> Option<Arc<Relation>> {
        let (_, tables) = catalog.snapshot();
        let present = catalog::known(&tables, index_ref.table).and_then(|table| table.store(index_ref.index).ok());
        if let Some(relation) = present {
            return Some(Arc::clone(relation));
        }
        // Not among the present ones, so it was dropped, and noted before.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&(index_ref.table, index_ref.index))?.upgrade()
    }
}
