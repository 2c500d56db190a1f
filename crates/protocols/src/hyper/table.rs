//! What tables are made of: each index leads to the numbers of records, which lie in the rows of that index. Those of a secondary index
//! are one word, the number of a record of the primary one.

use std::ops::Deref;
use std::sync::Arc;

use polychron_base::Error;
use polychron_base::IndexId;
use polychron_base::key::Key16;
use polychron_engine::stores::{DeferredDrops, Hinted, IndexRef, Keyed, Records, Store, StoreDefinition, StoreTable};
use polychron_index::{AnyIndex, Handle};
use polychron_memory::Guard;
use polychron_schema::TableDefinition;

use super::displaced::Displaced;
use super::protocol::Shared;
use super::rows::{Record, Rows};

/// A table.
pub(super) type HyperTable = StoreTable<Relation>;

/// The records that handles stand for lie in pages, which are retired as a whole when they have no rows.
#[derive(Debug)]
pub enum RowNumbers {}

impl Records for RowNumbers {
    const HEADER_BYTES: usize = 24;

    unsafe fn retire(_: Handle, _: &Guard<'_>) {}
}

/// One index, and the rows that it leads to.
#[derive(Debug)]
pub struct Relation {
    store: Store<RowNumbers>,
    pub(super) rows: Rows,
    /// Deleted records that only snapshots see.
    pub(super) displaced: Displaced,
    deferred_drops: Arc<DeferredDrops>,
}

impl Deref for Relation {
    type Target = Store<RowNumbers>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.store
    }
}

impl Keyed for Relation {
    type Records = RowNumbers;

    const FETCHES_MORE: bool = true;

    #[inline]
    fn entries(&self) -> &Store<RowNumbers> {
        &self.store
    }

    /// A handle is no address, so the record is fetched by [`Keyed::fetch_more`].
    #[inline]
    fn locate<'t>(table: &'t HyperTable, _: &Key16) -> Option<(&'t AnyIndex, usize)> {
        Some((table.primary.index(), 0))
    }

    #[inline]
    fn fetch_more(table: &HyperTable, record: Hinted<'_>) {
        table.primary.record(record.handle()).prefetch();
    }
}

impl Relation {
    pub(super) fn new(shared: &Shared, table: &TableDefinition, definition: &StoreDefinition) -> Result<Self, Error> {
        let (words, has_out_of_line) = match definition.index_ref.index {
            IndexId::PRIMARY => {
                let shape = table.layout()?.shape();
                (shape.fixed_bytes as usize / 8, shape.variable_count > 0)
            }
            _ => (1, false),
        };
        let store = shared.base.store(definition)?;
        let displaced = Displaced::new(shared.base.store_beside(definition));
        let rows = Rows::new(words, has_out_of_line, &shared.options);
        Ok(Self { store, rows, displaced, deferred_drops: Arc::clone(&shared.base.deferred_drops) })
    }

    /// The record behind a handle of the index. It serves its key for as long as the guard under which the index gave the handle.
    #[inline]
    pub(super) fn record(&self, handle: Handle) -> Record<'_> {
        self.rows.behind(handle)
    }

    /// Where it stands.
    #[inline]
    pub(super) fn index_ref(&self) -> IndexRef {
        self.store.index_ref
    }
}

impl Drop for Relation {
    /// When the whole database goes, its memory goes at once.
    fn drop(&mut self) {
        if !self.deferred_drops.is_closing() {
            // SAFETY: the relation goes with its last user, and running transactions that had it keep their epoch or their list of tables.
            self.deferred_drops.with_guard(|guard| unsafe { self.rows.retire(guard) });
        }
    }
}
