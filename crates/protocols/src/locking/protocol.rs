//! The database as a whole.

use std::marker::PhantomData;
use std::sync::Arc;

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::catalog::{Catalog, Kept};
use polychron_engine::statistics::Registry;
use polychron_engine::stores::{Blueprint, Keeper, Store, StoreTable};
use polychron_engine::{Common, IndexDefinition, Protocol, Statistics, TableDefinition};
use polychron_memory::{Memory, OWN_SLOTS};
use polychron_sync::atomic::{AtomicU64, Ordering};
use polychron_sync::{CachePadded, Mutex};

use super::locks::LockTable;
use super::options::{InOrder, Options, Policy};
use super::ranges::Ranges;
use super::table::{Index, Table};
use super::worker::LockingWorker;

/// What all workers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) memory: Arc<Memory>,
    pub(super) common: Common,
    pub(super) catalog: Catalog<Table>,
    /// The tables of transactions, which are in no epoch while their clients do nothing.
    pub(super) kept: Kept<Table>,
    pub(super) counters: Registry,
    pub(super) keeper: Arc<Keeper>,
    pub(super) locks: LockTable,
    /// The age of the next transaction, where ages matter.
    ages: CachePadded<AtomicU64>,
    /// Held while an index is filled.
    pub(super) filling: Mutex<()>,
}

impl Shared {
    /// The age of a transaction that begins.
    #[inline]
    pub(super) fn draw_age(&self) -> u64 {
        // Relaxed: ages are only compared with each other.
        self.ages.fetch_add(1, Ordering::Relaxed)
    }
}

/// The protocol. See the module.
#[derive(Debug)]
pub struct Locking<P: Policy = InOrder> {
    pub(super) shared: Arc<Shared>,
    policy: PhantomData<P>,
}

impl<P: Policy> Locking<P> {
    /// Gives back the memory of what was dropped.
    fn give_back(&self) {
        let epochs = self.shared.memory.epochs();
        self.shared.kept.take_from_idle(&self.shared.catalog, |worker| !epochs.is_pinned(worker));
        self.shared.keeper.give_back(&self.shared.catalog, epochs, || _ = epochs.advance());
    }

    fn make(&self, blueprint: &Blueprint, ready: bool) -> Result<Index, Error> {
        let keeper = &self.shared.keeper;
        let store = keeper.with_guard(|guard| Store::new(blueprint, ready, keeper, guard))?;
        Ok(Index { store, ranges: Ranges::default() })
    }
}

impl<P: Policy> Protocol for Locking<P> {
    const NAME: &'static str = P::NAME;
    const SUMMARY: &'static str = P::SUMMARY;

    type Options = Options;
    type Worker = LockingWorker<P>;

    fn open(options: Options, common: Common) -> Result<Arc<Self>, Error> {
        if !(1..=Options::MOST_BUCKETS).contains(&options.buckets) {
            return Err(Error::Options(format!("there are 1 to {} buckets of locks", Options::MOST_BUCKETS)));
        }
        let memory = Memory::new(common.memory.clone())?;
        let keeper = Arc::new(Keeper::new(&memory)?);
        let shared = Arc::new(Shared {
            kept: Kept::new(common.memory.max_workers + OWN_SLOTS),
            memory,
            common,
            catalog: Catalog::default(),
            counters: Registry::default(),
            keeper,
            locks: LockTable::new(options.buckets),
            ages: CachePadded::default(),
            filling: Mutex::default(),
        });
        Ok(Arc::new(Self { shared, policy: PhantomData }))
    }

    fn set_option(options: &mut Options, name: &str, value: &str) -> Result<(), Error> {
        match (name, value.parse()) {
            ("buckets", Ok(buckets)) => options.buckets = buckets,
            ("buckets", Err(_)) => return Err(Error::Options(format!("`{value}` is no number of buckets"))),
            _ => return Err(Error::Options(format!("{} has no option `{name}`", Self::NAME))),
        }
        Ok(())
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
        if self.shared.memory.epochs().is_open_here() {
            // The filling waits for what they have locked, and those that have written the table and do not know the index do not commit.
            return Err(Error::WaitsForItself { table, key: None });
        }
        let make = |_: &TableDefinition, blueprint: &Blueprint| self.make(blueprint, false);
        let (id, index) = StoreTable::add_index(&self.shared.catalog, table, &definition, make)?;
        match super::fill::fill::<P>(&self.shared, table, id) {
            Ok(()) => {
                index.store.set_ready();
                Ok(id)
            }
            Err(error) => {
                self.drop_index(table, id)?;
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

    fn worker(self: &Arc<Self>) -> Result<LockingWorker<P>, Error> {
        Ok(LockingWorker::new(self.shared.memory.register()?, &self.shared))
    }

    fn statistics(&self) -> Statistics {
        Statistics { memory: Some(self.shared.memory.statistics()), ..self.shared.counters.sum() }
    }
}

impl<P: Policy> Drop for Locking<P> {
    fn drop(&mut self) {
        self.shared.keeper.close();
    }
}
