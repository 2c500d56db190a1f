//! The parts of every database whose tables are stores.

use std::sync::Arc;

use polychron_base::Error;
use polychron_memory::{Epochs, Guard, Memory};
use polychron_schema::IndexKind;
use polychron_sync::{CachePadded, Mutex};

use super::{DeferredDrops, Records, Store, StoreDefinition, StoreTable, wait_for};
use crate::catalog::Catalog;
use crate::contested::Favour;
use crate::statistics::Registry;
use crate::{Common, Versions, limits};

/// The parts of every such database.
#[derive(Debug)]
pub struct Base<S> {
    /// Its memory.
    pub memory: Arc<Memory>,
    /// The options that all protocols have.
    pub common: Common,
    /// Its tables.
    pub catalog: Catalog<StoreTable<S>>,
    /// The workers' counts.
    pub counters: Registry,
    /// Frees the memory of dropped stores.
    pub deferred_drops: Arc<DeferredDrops>,
    /// For transactions that conflict repeatedly.
    pub favour: CachePadded<Favour>,
    /// Held while an index is made and filled: the database has one slot for that.
    pub(super) filling: Mutex<()>,
    pub(super) evolving: Mutex<()>,
}

impl<S> Base<S> {
    /// A database without tables.
    ///
    /// # Errors
    /// [`Error::TooManyWorkers`]: the memory has no slot for the deferred drops.
    pub fn new(memory: Arc<Memory>, common: Common) -> Result<Self, Error> {
        let deferred_drops = Arc::new(DeferredDrops::new(&memory)?);
        let (catalog, counters) = (Catalog::new(common.journal.clone()), Registry::new(common.events.clone()));
        Ok(Self {
            memory,
            common,
            catalog,
            counters,
            deferred_drops,
            favour: CachePadded::default(),
            filling: Mutex::default(),
            evolving: Mutex::default(),
        })
    }

    /// The epochs of its memory.
    #[inline]
    pub fn epochs(&self) -> &Epochs {
        self.memory.epochs()
    }

    /// The number of worker slots, including those of the database's own workers.
    pub fn slots(&self) -> usize {
        self.memory.slots()
    }

    /// An empty store of this database.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn store<R: Records>(&self, definition: &StoreDefinition) -> Result<Store<R>, Error> {
        self.deferred_drops.with_guard(|guard| Store::new(definition, &self.deferred_drops, guard))
    }

    /// An empty store beside one, for deleted rows that only older readers see: with an order, because an ordered index is small while it is empty.
    /// `None`: there is no memory for it.
    pub fn store_beside<R: Records>(&self, definition: &StoreDefinition) -> Option<Store<R>> {
        self.store(&StoreDefinition { kind: IndexKind::Ordered, is_ready: true, ..definition.clone() }).ok()
    }

    /// Waits until every transaction that is open now has ended, or is between two operations and does not show what it has found, for as long
    /// as the options have it. The calling thread has nothing pinned.
    ///
    /// # Errors
    /// As [`wait_for`].
    pub fn wait_for_open(&self) -> Result<(), Error> {
        limits::patiently(self.common.retry.time, || wait_for(self.epochs(), self.epochs().current()))
    }

    /// Counts the versions of all rows: `count` does it for a table.
    pub fn count_versions(&self, mut count: impl FnMut(&StoreTable<S>, &Guard<'_>, &mut Versions)) -> Versions {
        let mut versions = Versions::default();
        let (_, tables) = self.catalog.snapshot();
        self.deferred_drops.with_guard(|guard| {
            tables.iter().flatten().for_each(|table| count(table, guard, &mut versions));
        });
        versions
    }

    /// Gives back the memory of what was dropped, as far as it can go: see [`DeferredDrops::give_back`].
    pub fn give_back(&self) {
        self.deferred_drops.give_back(&self.catalog, self.epochs(), || _ = self.epochs().advance());
    }
}

impl<S> Drop for Base<S> {
    /// The stores go with the memory: the catalog is dropped after this. The database, its workers and its background thread share the base,
    /// so that the last of them comes here. Stores that were dropped before gave their memory back themselves.
    fn drop(&mut self) {
        self.deferred_drops.close();
    }
}
