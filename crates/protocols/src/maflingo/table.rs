//! A table: its primary index holds the records, each secondary index is a further map from secondary key to a record
//! that holds the primary key (§4.4).

use std::mem::ManuallyDrop;
use std::sync::Arc;

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::catalog::Described;
use polychron_index::AnyIndex;
use polychron_index::hash::HashIndex;
use polychron_index::ordered::OrderedIndex;
use polychron_memory::Guard;
use polychron_schema::{ColumnSet, IndexKind, KeyExtractor, Layout, TableDefinition};
use polychron_sync::atomic::{AtomicBool, Ordering};

use super::Keeper;
use super::sets::Place;

/// One index and the records it leads to.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) place: Place,
    /// Given back by hand, because that takes a guard.
    pub(super) index: ManuallyDrop<AnyIndex>,
    /// Makes the index's key of a row.
    pub(super) extractor: KeyExtractor,
    /// Whether the index holds every row; a new secondary index does not until it is filled.
    ready: AtomicBool,
    keeper: Arc<Keeper>,
}

impl Store {
    pub(super) fn new(
        place: Place,
        kind: IndexKind,
        extractor: KeyExtractor,
        expected_rows: usize,
        ready: bool,
        keeper: &Arc<Keeper>,
        guard: &Guard<'_>,
    ) -> Result<Self, Error> {
        let index = match kind {
            IndexKind::Ordered => OrderedIndex::new(guard).map(AnyIndex::Ordered),
            IndexKind::Hash => HashIndex::new(expected_rows, guard).map(AnyIndex::Hash),
        };
        let index = index.map_err(|refused| Error::OutOfMemory { requested: refused.requested })?;
        Ok(Self { place, index: ManuallyDrop::new(index), extractor, ready: AtomicBool::new(ready), keeper: Arc::clone(keeper) })
    }

    /// Whether the index may be read.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        // Pairs with the release in `set_ready`: who sees it set sees every entry that filling made.
        self.ready.load(Ordering::Acquire)
    }

    pub(super) fn set_ready(&self) {
        // Pairs with the acquire in `is_ready`.
        self.ready.store(true, Ordering::Release);
    }
}

impl Drop for Store {
    /// The last user of a dropped table or index gives its memory back; when the whole database goes, its memory goes at
    /// once and nothing is walked.
    fn drop(&mut self) {
        Arc::clone(&self.keeper).clear(self);
    }
}

/// A table as one catalog entry; adding or dropping an index makes a new entry around the same stores.
#[derive(Debug)]
pub(super) struct MaflingoTable {
    pub(super) id: TableId,
    /// What users see: the indexes that exist.
    pub(super) definition: Arc<TableDefinition>,
    /// Cache lines of a record of this table, without variable columns.
    pub(super) lines: usize,
    pub(super) layout: Layout,
    pub(super) has_secondaries: bool,
    pub(super) primary: Arc<Store>,
    /// Secondary indexes by id − 1; dropped ones leave a hole.
    pub(super) secondaries: Vec<Option<Arc<Store>>>,
}

impl Described for MaflingoTable {
    fn definition(&self) -> &Arc<TableDefinition> {
        &self.definition
    }
}

impl MaflingoTable {
    /// The store of an index, ready or not.
    #[inline]
    pub(super) fn store(&self, index: IndexId) -> Option<&Arc<Store>> {
        match index {
            IndexId::PRIMARY => Some(&self.primary),
            IndexId(position) => self.secondaries.get(position as usize - 1)?.as_ref(),
        }
    }

    /// The secondary stores that exist.
    #[inline]
    pub(super) fn secondaries(&self) -> impl Iterator<Item = &Arc<Store>> {
        self.secondaries.iter().flatten()
    }

    /// Whether a change of these columns moves an entry of a secondary index.
    pub(super) fn indexes_columns(&self, columns: ColumnSet) -> bool {
        self.secondaries().any(|store| store.extractor.affects(columns))
    }
}
