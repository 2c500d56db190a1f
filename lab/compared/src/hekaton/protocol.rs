//! The database as a whole: tables, workers, the table of transactions.

use std::sync::Arc;

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::catalog::Catalog;
use polychron_engine::redo::{NoRedo, Redo};
use polychron_engine::statistics::Registry;
use polychron_engine::stores::{Blueprint, Keeper, StoreTable};
use polychron_engine::{
    Common, Configuration, IndexDefinition, Isolation, Protocol, Statistics, TableDefinition, Versions,
};
use polychron_memory::{Memory, OWN_SLOTS};
use polychron_sync::Mutex;

use super::collect::Orphans;
use super::level::Level;
use super::options::Options;
use super::table::{HekatonTable, Store};
use super::transactions::Transactions;
use super::version::TransactionId;
use super::worker::HekatonWorker;

/// What all workers share.
#[derive(Debug)]
pub(super) struct Shared<R: Redo> {
    pub(super) memory: Arc<Memory>,
    pub(super) common: Common,
    pub(super) catalog: Catalog<HekatonTable>,
    pub(super) counters: Registry,
    pub(super) transactions: Transactions,
    pub(super) orphans: Orphans,
    pub(super) keeper: Arc<Keeper>,
    /// Held while an index is filled.
    pub(super) filling: Mutex<()>,
    pub(super) redo: R,
    pub(super) options: Options,
}

/// The protocol. See the module.
#[derive(Debug)]
pub struct Hekaton<R: Redo = NoRedo> {
    pub(super) shared: Arc<Shared<R>>,
}

impl<R: Redo> Hekaton<R> {
    /// Opens a database whose commits hand their changes to `redo`.
    ///
    /// # Errors
    /// As [`Protocol::open`].
    pub fn open_with(options: Options, common: Common, redo: R) -> Result<Arc<Self>, Error> {
        let slots = common.memory.max_workers + OWN_SLOTS;
        if slots > TransactionId::MAX_SLOTS {
            return Err(Error::TooManyWorkers { limit: TransactionId::MAX_SLOTS - OWN_SLOTS });
        }
        let memory = Memory::new(common.memory.clone())?;
        let shared = Arc::new(Shared {
            keeper: Arc::new(Keeper::new(&memory)?),
            memory,
            common,
            catalog: Catalog::default(),
            counters: Registry::default(),
            transactions: Transactions::new(slots),
            orphans: Orphans::default(),
            filling: Mutex::default(),
            redo,
            options,
        });
        Ok(Arc::new(Self { shared }))
    }

    fn make(&self, blueprint: &Blueprint, ready: bool) -> Result<Store, Error> {
        self.shared.keeper.with_guard(|guard| Store::new(blueprint, ready, &self.shared.keeper, guard))
    }

    /// Gives back the memory of what was dropped.
    fn give_back(&self) {
        let epochs = self.shared.memory.epochs();
        self.shared.keeper.give_back(&self.shared.catalog, epochs, || _ = epochs.advance());
    }
}

impl<R: Redo> Drop for Hekaton<R> {
    fn drop(&mut self) {
        self.shared.keeper.close();
    }
}

impl<R: Redo + Default> Protocol for Hekaton<R> {
    const NAME: &'static str = "hekaton";
    const SUMMARY: &'static str =
        "optimistic, multi-version, one counter for all timestamps (Hekaton's MV/O): for comparison";
    const CONFIGURATIONS: &'static [Configuration] = Level::SNAPSHOT;
    const INTERLEAVES: bool = true;

    type Options = Options;
    type Worker = HekatonWorker<R>;

    fn open(options: Options, common: Common) -> Result<Arc<Self>, Error> {
        Self::open_with(options, common, R::default())
    }

    fn set_option(options: &mut Options, name: &str, value: &str) -> Result<(), Error> {
        options.set(name, value).map_err(Error::Options)
    }

    fn name(&self) -> &'static str {
        self.shared.options.level.configuration().map_or(Self::NAME, |it| it.name)
    }

    fn isolation(&self) -> Isolation {
        self.shared.options.level.configuration().map_or(Self::ISOLATION, |it| it.isolation)
    }

    fn memory(&self) -> &Arc<Memory> {
        &self.shared.memory
    }

    fn create_table(&self, definition: TableDefinition) -> Result<TableId, Error> {
        StoreTable::create(&self.shared.catalog, &definition, |_, blueprint| self.make(blueprint, true))
    }

    fn drop_table(&self, table: TableId) -> Result<(), Error> {
        self.shared.catalog.remove(table).map(drop)?;
        self.give_back();
        Ok(())
    }

    fn create_index(self: &Arc<Self>, table: TableId, definition: IndexDefinition) -> Result<IndexId, Error> {
        if self.shared.memory.epochs().is_pinned_here() {
            // The filling waits for all transactions that do not know the index.
            return Err(Error::WaitsForItself { table, key: None });
        }
        let make = |_: &TableDefinition, blueprint: &Blueprint| self.make(blueprint, false);
        let (index, store) = StoreTable::add_index(&self.shared.catalog, table, &definition, make)?;
        match super::fill::fill(self, table, index) {
            Ok(moment) => {
                store.set_ready_from(moment);
                Ok(index)
            }
            Err(error) => {
                self.drop_index(table, index)?;
                Err(error)
            }
        }
    }

    fn drop_index(&self, table: TableId, index: IndexId) -> Result<(), Error> {
        StoreTable::remove_index(&self.shared.catalog, table, index, |_| ())?;
        self.give_back();
        Ok(())
    }

    fn find_table(&self, name: &str) -> Option<TableId> {
        self.shared.catalog.find(name)
    }

    fn definition(&self, table: TableId) -> Result<Arc<TableDefinition>, Error> {
        self.shared.catalog.definition(table)
    }

    fn worker(self: &Arc<Self>) -> Result<HekatonWorker<R>, Error> {
        HekatonWorker::new(&self.shared)
    }

    fn statistics(&self) -> Statistics {
        Statistics { memory: Some(self.shared.memory.statistics()), ..self.shared.counters.sum() }
    }

    fn versions(&self) -> Option<Versions> {
        Some(super::fill::count_versions(&self.shared))
    }
}
