//! The database as a whole: tables, workers, the clock.

use std::sync::Arc;

use polychron_base::clock::SystemClock;
use polychron_base::{Error, IndexId, TableId};
use polychron_engine::catalog::{Catalog, Kept};
use polychron_engine::contested::Favour;
use polychron_engine::redo::{NoRedo, Redo};
use polychron_engine::statistics::Registry;
use polychron_engine::stores::{Blueprint, Keeper, StoreTable};
use polychron_engine::{
    Common, Configuration, IndexDefinition, Isolation, Protocol, Statistics, TableDefinition, Versions,
};
use polychron_memory::{Memory, OWN_SLOTS};
use polychron_sync::{CachePadded, Mutex};

use super::clock::Clock;
use super::counts::Counts;
use super::elsewhere::Dropped;
use super::level::Level;
use super::options::Options;
use super::table::{HyperTable, Relation};
use super::worker::HyperWorker;

/// What all workers share.
#[derive(Debug)]
pub(super) struct Shared<R: Redo> {
    pub(super) memory: Arc<Memory>,
    pub(super) common: Common,
    pub(super) options: Options,
    pub(super) catalog: Catalog<HyperTable>,
    pub(super) dropped: Dropped,
    pub(super) counters: Registry,
    /// For each slot.
    pub(super) counts: Box<[CachePadded<Counts>]>,
    pub(super) clock: Clock,
    /// For transactions that conflict again and again.
    pub(super) favour: CachePadded<Favour>,
    pub(super) keeper: Arc<Keeper>,
    /// The tables of transactions, which are in no epoch between their operations.
    pub(super) kept: Kept<HyperTable>,
    /// Held while an index is filled.
    pub(super) filling: Mutex<()>,
    /// For how long trees take to build.
    pub(super) time: SystemClock,
    pub(super) redo: R,
}

/// The protocol. See the module.
#[derive(Debug)]
pub struct Hyper<R: Redo = NoRedo> {
    pub(super) shared: Arc<Shared<R>>,
}

impl<R: Redo> Hyper<R> {
    /// Opens a database whose commits hand their changes to `redo`.
    ///
    /// # Errors
    /// As [`Protocol::open`].
    pub fn open_with(options: Options, common: Common, redo: R) -> Result<Arc<Self>, Error> {
        let slots = common.memory.max_workers + OWN_SLOTS;
        let memory = Memory::new(common.memory.clone())?;
        let shared = Arc::new(Shared {
            keeper: Arc::new(Keeper::new(&memory)?),
            memory,
            common,
            options,
            catalog: Catalog::default(),
            dropped: Dropped::default(),
            counters: Registry::default(),
            counts: (0..slots).map(|_| CachePadded::default()).collect(),
            clock: Clock::new(slots),
            favour: CachePadded::default(),
            kept: Kept::new(slots),
            filling: Mutex::default(),
            time: SystemClock::new(),
            redo,
        });
        Ok(Arc::new(Self { shared }))
    }

    fn make(&self, definition: &TableDefinition, blueprint: &Blueprint, ready: bool) -> Result<Relation, Error> {
        Relation::new(definition, blueprint, ready, &self.shared.options, &self.shared.keeper)
    }

    /// Takes the lists of tables away that idle workers keep, except the present one. The pin of a worker that begins lies between its
    /// announcement in the clock and its look at the catalog.
    pub(super) fn take_lists(&self) {
        self.shared.kept.take_from_idle(&self.shared.catalog, |slot| self.shared.clock.is_idle(slot));
    }

    /// Gives back the memory of what was dropped.
    fn give_back(&self) {
        self.take_lists();
        let epochs = self.shared.memory.epochs();
        self.shared.keeper.give_back(&self.shared.catalog, epochs, || _ = epochs.advance());
    }
}

impl<R: Redo> Drop for Hyper<R> {
    fn drop(&mut self) {
        self.shared.keeper.close();
    }
}

impl<R: Redo + Default> Protocol for Hyper<R> {
    const NAME: &'static str = "hyper";
    const SUMMARY: &'static str =
        "in place with undo buffers, precision locking of the columns read: short writers beside long readers";
    const CONFIGURATIONS: &'static [Configuration] = Level::NAMED;
    const INTERLEAVES: bool = true;

    type Options = Options;
    type Worker = HyperWorker<R>;

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
        StoreTable::create(&self.shared.catalog, &definition, |definition, blueprint| {
            self.make(definition, blueprint, true)
        })
    }

    fn drop_table(&self, table: TableId) -> Result<(), Error> {
        self.shared.dropped.note(&self.shared.catalog, table, None)?;
        self.shared.catalog.remove(table).map(drop)?;
        self.give_back();
        Ok(())
    }

    fn create_index(self: &Arc<Self>, table: TableId, definition: IndexDefinition) -> Result<IndexId, Error> {
        // The filling waits for all transactions that do not know the index, and for all guards: a thread has one in the midst of a batch, where
        // no transaction is open.
        if self.shared.clock.is_open_on_this_thread() || self.shared.memory.epochs().is_pinned_here() {
            return Err(Error::WaitsForItself { table, key: None });
        }
        let make = |definition: &TableDefinition, blueprint: &Blueprint| self.make(definition, blueprint, false);
        let (index, store) = StoreTable::add_index(&self.shared.catalog, table, &definition, make)?;
        match super::fill::fill(self, table, index) {
            Ok(moment) => {
                store.set_ready_from(moment);
                Ok(index)
            }
            Err(error) => {
                // The index goes with its last user, and its memory is given back then.
                drop(store);
                self.drop_index(table, index)?;
                Err(error)
            }
        }
    }

    fn drop_index(&self, table: TableId, index: IndexId) -> Result<(), Error> {
        self.shared.dropped.note(&self.shared.catalog, table, Some(index))?;
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

    fn worker(self: &Arc<Self>) -> Result<HyperWorker<R>, Error> {
        HyperWorker::new(&self.shared)
    }

    fn statistics(&self) -> Statistics {
        let figures = Counts::figures(&self.shared.counts, &self.shared.clock);
        Statistics { memory: Some(self.shared.memory.statistics()), figures, ..self.shared.counters.sum() }
    }

    fn versions(&self) -> Option<Versions> {
        Some(super::fill::count_versions(&self.shared))
    }
}
