//! A protocol whose tables are stores: how its databases are opened, and how their tables and indexes come and go.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use polychron_base::error::table_name;
use polychron_base::{Error, IndexId, TableId};
use polychron_memory::{Local, Memory};
use polychron_schema::EvolutionError;
use polychron_sync::Mutex;

use super::{Base, IndexRef, Keyed, Knobs, StoreDefinition, StoreTable};
use crate::catalog::Superseded;
use crate::definitions::{Standing, StoredCatalog};
use crate::redo::{Journal, Order};
use crate::statistics::Registry;
use crate::{
    Common, Configuration, IndexDefinition, Interactive, Isolation, Metric, Protocol, Statistics, Storage,
    TableDefinition, Versions, Worker, WriteRules, limits,
};

/// A protocol whose tables are [`StoreTable`]s: what differs between such protocols when a database is opened and entered, and when its tables and
/// indexes come and go. The rest is [`Protocol`] and [`Storage`], written once.
pub trait StoreProtocol: Sized + Send + Sync + 'static {
    /// See [`Protocol::NAME`].
    const NAME: &'static str;
    /// See [`Protocol::SUMMARY`].
    const SUMMARY: &'static str;
    /// See [`Protocol::ISOLATION`].
    const ISOLATION: Isolation = Isolation::Serializable;
    /// See [`Protocol::CONFIGURATIONS`].
    const CONFIGURATIONS: &'static [Configuration] = &[];

    /// The protocol's own knobs.
    type Options: Knobs;
    /// A thread's access, which executes procedures.
    type Worker: Worker + 'static;
    /// See [`Protocol::Driven`].
    type Driven: Interactive + From<Self::Worker> + 'static;
    /// The representation of one index.
    type Store: Keyed + fmt::Debug + Send + Sync + 'static;

    /// Checks the options, and answers those of the memory.
    ///
    /// # Errors
    /// [`Error::Options`].
    fn memory_options(_options: &Self::Options, common: &Common) -> Result<polychron_memory::Options, Error> {
        Ok(common.memory.clone())
    }

    /// The database over its base, without tables.
    ///
    /// # Errors
    /// As [`Protocol::open`].
    fn over(base: Base<Self::Store>, options: Self::Options) -> Result<Self, Error>;

    /// The configuration that this database was opened with, if it has a name of its own.
    fn configuration(&self) -> Option<&'static Configuration> {
        None
    }

    /// The worker in a slot.
    fn enter(&self, local: Local) -> Self::Worker;

    /// The parts of every such database.
    fn base(&self) -> &Base<Self::Store>;

    /// Makes an empty store. The last index of the definition is the one that it is for, if that is a secondary one. A store that is not
    /// ready is read when it has been filled.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    fn make(&self, table: &TableDefinition, store: &StoreDefinition) -> Result<Self::Store, Error>;

    /// Makes the entries of a new index that the catalog shows already, and has it read from then on.
    ///
    /// # Errors
    /// [`Error::Duplicate`], [`Error::OutOfMemory`]. The index then goes again.
    fn fill(&self, table: TableId, index: IndexId, store: &Arc<Self::Store>) -> Result<(), Error>;

    /// Whether the filling would wait for the calling thread itself: by default, whether that is in an epoch.
    fn waits_for_itself(&self) -> bool {
        self.base().epochs().is_pinned_here()
    }

    /// A guard while tables or indexes change, beside the catalog's own lock.
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

    /// The metrics of this protocol alone.
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

impl<P: StoreProtocol> Protocol for P {
    const NAME: &'static str = P::NAME;
    const SUMMARY: &'static str = P::SUMMARY;
    const ISOLATION: Isolation = P::ISOLATION;
    const CONFIGURATIONS: &'static [Configuration] = P::CONFIGURATIONS;

    type Options = P::Options;
    type Worker = P::Worker;
    type Driven = P::Driven;

    fn open(options: P::Options, common: Common) -> Result<Arc<Self>, Error> {
        let memory = Memory::new(P::memory_options(&options, &common)?)?;
        Ok(Arc::new(P::over(Base::new(memory, common)?, options)?))
    }

    fn set_option(options: &mut P::Options, name: &str, value: &str) -> Result<(), Error> {
        options.set(name, value).map_err(Error::options)
    }

    fn name(&self) -> &'static str {
        self.configuration().map_or(<P as StoreProtocol>::NAME, |configuration| configuration.name)
    }

    fn isolation(&self) -> Isolation {
        self.configuration().map_or(<P as StoreProtocol>::ISOLATION, |configuration| configuration.isolation)
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn worker(self: &Arc<Self>) -> Result<P::Worker, Error> {
        Ok(self.enter(self.base().memory.register()?))
    }
}

fn make_index<D: StoreProtocol>(
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
    let make = |changed: &TableDefinition, store: &StoreDefinition| database.make(changed, store);
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

fn remove_index<D: StoreProtocol>(database: &D, table: TableId, index: IndexId) -> Result<(), Error> {
    StoreTable::remove_index(&database.base().catalog, table, index, |store| database.dropping(store))?;
    database.give_back();
    Ok(())
}

impl<D: StoreProtocol> Storage for D {
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
        StoreProtocol::ended(self)
    }

    fn create_table(&self, definition: TableDefinition, standing: Standing) -> Result<TableId, Error> {
        let Base { catalog, common, .. } = self.base();
        let make = |growing: &TableDefinition, store: &StoreDefinition| self.make(growing, store);
        StoreTable::create(catalog, (&definition, standing), common.hash_seed, make)
    }

    fn restore(&self, stored: &StoredCatalog) -> Result<(), Error> {
        let Base { catalog, common, .. } = self.base();
        let make = |growing: &TableDefinition, store: &StoreDefinition| self.make(growing, store);
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

    fn set_write_rules(&self, table: TableId, rules: Option<Arc<dyn WriteRules>>) -> Result<(), Error> {
        StoreTable::set_write_rules(&self.base().catalog, table, rules)
    }

    fn keep_table(&self, table: TableId) -> Result<(), Error> {
        self.base().catalog.keep_table(table)
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
        StoreProtocol::waits_for_itself(self)
    }

    fn find_table(&self, name: &str) -> Option<TableId> {
        self.base().catalog.find(name)
    }

    fn table_names(&self) -> Vec<String> {
        self.base().catalog.names()
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
        StoreProtocol::versions(self)
    }

    fn inspect(&self) -> Vec<Metric> {
        StoreProtocol::inspect(self)
    }
}
