//! A database whose tables are stores, and how its tables and indexes come and go.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use polychron_base::error::table_name;
use polychron_base::{Error, IndexId, TableId};
use polychron_memory::{Epochs, Memory};
use polychron_schema::EvolutionError;
use polychron_sync::Mutex;

use super::{DeferredDrops, IndexRef, Keyed, StoreDefinition, StoreTable, wait_for};
use crate::catalog::{Catalog, Superseded};
use crate::definitions::{Standing, StoredCatalog};
use crate::redo::{Journal, Order};
use crate::statistics::Registry;
use crate::{Common, IndexDefinition, Metric, Statistics, Storage, TableDefinition, Versions, limits};

/// What every such database has.
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
    /// Held while an index is made and filled: the database has one slot for that.
    filling: Mutex<()>,
    evolving: Mutex<()>,
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
            filling: Mutex::default(),
            evolving: Mutex::default(),
        })
    }

    /// The epochs of its memory.
    #[inline]
    pub fn epochs(&self) -> &Epochs {
        self.memory.epochs()
    }

    /// Waits until every transaction that is open now has ended, or is between two operations and does not show what it has found, for as long
    /// as the options have it. The calling thread has nothing pinned.
    ///
    /// # Errors
    /// As [`wait_for`].
    pub fn wait_for_open(&self) -> Result<(), Error> {
        limits::patiently(self.common.retry.time, || wait_for(self.epochs(), self.epochs().current()))
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

/// A protocol whose tables are [`StoreTable`]s: what differs between such protocols when tables and indexes come and go. The rest is
/// [`Storage`], written once.
pub trait HasStores: Send + Sync {
    /// What stands for one index.
    type Store: Keyed + fmt::Debug + Send + Sync;

    /// What every such database has.
    fn base(&self) -> &Base<Self::Store>;

    /// Makes an empty store. The last index of the definition is the one that it is for, if that is a secondary one. A store that is not
    /// `ready` is read when it has been filled.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    fn make(
        &self,
        definition: &TableDefinition,
        store_definition: &StoreDefinition,
        ready: bool,
    ) -> Result<Self::Store, Error>;

    /// Makes the entries of a new index that the catalog shows already, and has it read from then on.
    ///
    /// # Errors
    /// [`Error::Duplicate`], [`Error::OutOfMemory`]. The index then goes again.
    fn fill(&self, table: TableId, index: IndexId, store: &Arc<Self::Store>) -> Result<(), Error>;

    /// Whether the filling would wait for the calling thread itself: by default, whether that is in an epoch.
    fn waits_for_itself(&self) -> bool {
        self.base().epochs().is_pinned_here()
    }

    /// What is held while tables or indexes change, beside the catalog's own lock.
    ///
    /// # Errors
    /// [`Error::WaitsForItself`].
    fn stand_still(&self) -> Result<impl Sized, Error> {
        Ok(())
    }

    /// An index goes, alone or with its table: called under the catalog's lock, before anybody can know that.
    fn dropping(&self, _store: &Arc<Self::Store>) {}

    /// Gives back the memory of what was dropped.
    fn give_back(&self) {
        self.base().give_back();
    }

    /// What no other protocol counts.
    fn metrics(&self) -> Vec<Metric> {
        Vec::new()
    }

    /// See [`Storage::ended`].
    fn ended(&self) -> Order {
        Order::default()
    }

    /// See [`Storage::versions`].
    fn versions(&self) -> Option<Versions> {
        None
    }

    /// See [`Storage::inspect`].
    fn inspect(&self) -> Vec<Metric> {
        Vec::new()
    }
}

fn make_index<D: HasStores + ?Sized>(
    database: &D,
    table: TableId,
    (definition, standing): (&IndexDefinition, Standing),
) -> Result<IndexId, Error> {
    limits::check()?;
    if database.waits_for_itself() {
        return Err(Error::waits_for_itself(table, None));
    }
    let Base { catalog, common, filling, .. } = database.base();
    let _still = limits::patiently(common.retry.time, || database.stand_still())?;
    // Who has it waits for others within bounds, and fills for as long as it takes.
    let _alone = limits::lock(filling)?;
    let make =
        |changed: &TableDefinition, store_definition: &StoreDefinition| database.make(changed, store_definition, false);
    let (index, store) = StoreTable::add_index(catalog, table, definition, common.hash_seed, make)?;
    let keep = || match standing {
        Standing::Permanent => catalog.keep_index(IndexRef { table, index }),
        Standing::Provisional => Ok(()),
    };
    if let Err(error) = database.fill(table, index, &store).and_then(|()| keep()) {
        // The index goes with its last user, and its memory is freed then.
        drop(store);
        remove_index(database, table, index)?;
        return Err(error);
    }
    Ok(index)
}

fn remove_index<D: HasStores + ?Sized>(database: &D, table: TableId, index: IndexId) -> Result<(), Error> {
    StoreTable::remove_index(&database.base().catalog, table, index, |store| database.dropping(store))?;
    database.give_back();
    Ok(())
}

impl<D: HasStores> Storage for D {
    fn memory(&self) -> &Arc<Memory> {
        &self.base().memory
    }

    fn counters(&self) -> &Registry {
        &self.base().counters
    }

    fn journal(&self) -> &Journal {
        &self.base().common.journal
    }

    fn ended(&self) -> Order {
        HasStores::ended(self)
    }

    fn create_table(&self, definition: TableDefinition, standing: Standing) -> Result<TableId, Error> {
        let Base { catalog, common, .. } = self.base();
        let make =
            |growing: &TableDefinition, store_definition: &StoreDefinition| self.make(growing, store_definition, true);
        StoreTable::create(catalog, (&definition, standing), common.hash_seed, make)
    }

    fn restore(&self, stored: &StoredCatalog) -> Result<(), Error> {
        let Base { catalog, common, .. } = self.base();
        let make =
            |growing: &TableDefinition, store_definition: &StoreDefinition| self.make(growing, store_definition, true);
        StoreTable::restore(catalog, stored, common.hash_seed, make)
    }

    fn drop_table(&self, table: TableId) -> Result<(), Error> {
        let _still = self.stand_still()?;
        let going = |table: &StoreTable<D::Store>| table.stores().for_each(|store| self.dropping(store));
        drop(self.base().catalog.remove(table, going)?);
        self.give_back();
        Ok(())
    }

    fn create_index(&self, table: TableId, definition: IndexDefinition, standing: Standing) -> Result<IndexId, Error> {
        make_index(self, table, (&definition, standing))
            .map_err(|error| error.making(|| format!("{}.{}", table_name(table), definition.name)))
    }

    fn drop_index(&self, table: TableId, index: IndexId) -> Result<(), Error> {
        let _still = self.stand_still()?;
        remove_index(self, table, index)
    }

    fn hold_table(&self, table: TableId, why: Option<Arc<EvolutionError>>) -> Result<(), Error> {
        // Writers that find the table held no more may find it so at any time.
        let _still = why.is_some().then(|| self.stand_still()).transpose()?;
        StoreTable::hold(&self.base().catalog, table, why)
    }

    fn supersede_table(&self, old: Superseded, new: TableId) -> Result<(), Error> {
        let _still = self.stand_still()?;
        let catalog = &self.base().catalog;
        let name = catalog.definition(old.0)?.name.clone();
        let going = |table: &StoreTable<D::Store>| table.stores().for_each(|store| self.dropping(store));
        drop(catalog.supersede(old, new, |table| table.renamed(&name), going)?);
        self.give_back();
        Ok(())
    }

    fn evolving(&self) -> &Mutex<()> {
        &self.base().evolving
    }

    fn longest_wait(&self) -> Option<Duration> {
        self.base().common.retry.time
    }

    fn waits_for_itself(&self) -> bool {
        HasStores::waits_for_itself(self)
    }

    fn find_table(&self, name: &str) -> Option<TableId> {
        self.base().catalog.find(name)
    }

    fn find_index(&self, table: TableId, name: &str) -> Result<Option<IndexId>, Error> {
        self.base().catalog.find_index(table, name)
    }

    fn definition(&self, table: TableId) -> Result<Arc<TableDefinition>, Error> {
        self.base().catalog.definition(table)
    }

    fn statistics(&self) -> Statistics {
        let Base { memory, counters, .. } = self.base();
        Statistics { memory: Some(memory.statistics()), metrics: self.metrics(), ..counters.sum() }
    }

    fn versions(&self) -> Option<Versions> {
        HasStores::versions(self)
    }

    fn inspect(&self) -> Vec<Metric> {
        HasStores::inspect(self)
    }
}
