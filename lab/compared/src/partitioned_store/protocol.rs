//! The database as a whole.

use std::sync::Arc;

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::catalog::Catalog;
use polychron_engine::statistics::Registry;
use polychron_engine::stores::{Keeper, StoreTable};
use polychron_engine::{Common, IndexDefinition, Protocol, Statistics, TableDefinition};
use polychron_memory::Memory;

use super::locks::{AllLocked, Locks};
use super::options::Options;
use super::table::Table;
use super::worker::PartitionedWorker;

/// The protocol. See the module.
#[derive(Debug)]
pub struct PartitionedStore {
    pub(super) memory: Arc<Memory>,
    pub(super) common: Common,
    pub(super) catalog: Catalog<Table>,
    pub(super) counters: Registry,
    pub(super) keeper: Arc<Keeper>,
    pub(super) locks: Locks,
}

impl PartitionedStore {
    /// Gives back the memory of what was dropped.
    fn give_back(&self) {
        let epochs = self.memory.epochs();
        self.keeper.give_back(&self.catalog, epochs, || _ = epochs.advance());
    }
}

impl Protocol for PartitionedStore {
    const NAME: &'static str = "partitioned-store";
    const SUMMARY: &'static str =
        "a lock for each partition and no other control: for workloads that stay in one partition";

    type Options = Options;
    type Worker = PartitionedWorker;

    fn open(options: Options, common: Common) -> Result<Arc<Self>, Error> {
        if !(1..=Options::MOST_PARTITIONS).contains(&options.partitions) {
            return Err(Error::Options(format!("there are 1 to {} partitions", Options::MOST_PARTITIONS)));
        }
        let memory = Memory::new(common.memory.clone())?;
        let keeper = Arc::new(Keeper::new(&memory)?);
        let (catalog, counters) = (Catalog::default(), Registry::default());
        let locks = Locks::new(options.partitions);
        Ok(Arc::new(Self { memory, common, catalog, counters, keeper, locks }))
    }

    fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    fn create_table(&self, definition: TableDefinition) -> Result<TableId, Error> {
        StoreTable::create(&self.catalog, &definition, |growing, blueprint| self.make(growing, blueprint, true))
    }

    fn drop_table(&self, table: TableId) -> Result<(), Error> {
        let _locked = AllLocked::new(&self.locks)?;
        self.catalog.remove(table).map(drop)?;
        self.give_back();
        Ok(())
    }

    fn create_index(self: &Arc<Self>, table: TableId, definition: IndexDefinition) -> Result<IndexId, Error> {
        self.add_index(table, &definition)
    }

    fn drop_index(&self, table: TableId, index: IndexId) -> Result<(), Error> {
        let _locked = AllLocked::new(&self.locks)?;
        StoreTable::remove_index(&self.catalog, table, index, |_| ())?;
        self.give_back();
        Ok(())
    }

    fn find_table(&self, name: &str) -> Option<TableId> {
        self.catalog.find(name)
    }

    fn definition(&self, table: TableId) -> Result<Arc<TableDefinition>, Error> {
        self.catalog.definition(table)
    }

    fn worker(self: &Arc<Self>) -> Result<PartitionedWorker, Error> {
        PartitionedWorker::new(self)
    }

    fn statistics(&self) -> Statistics {
        Statistics { memory: Some(self.memory.statistics()), ..self.counters.sum() }
    }
}

impl Drop for PartitionedStore {
    fn drop(&mut self) {
        self.keeper.close();
    }
}
