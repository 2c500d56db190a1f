//! The database as a whole.

use std::sync::Arc;

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::catalog::{self, Catalog};
use polychron_engine::statistics::Registry;
use polychron_engine::stores::{Blueprint, Keeper, Keys, Store, StoreTable, for_each, wait_for};
use polychron_engine::{Common, IndexDefinition, Isolation, Protocol, Statistics, Stop, TableDefinition};
use polychron_memory::{Guard, Memory};

use super::options::Options;
use super::rows;
use super::table::{Entries, Table};
use super::worker::KeyValueWorker;

/// Rows whose entries are made under one guard.
const ROWS_AT_ONCE: usize = 64;

/// The protocol. See the module.
#[derive(Debug)]
pub struct KeyValue {
    pub(super) memory: Arc<Memory>,
    pub(super) common: Common,
    pub(super) catalog: Catalog<Table>,
    pub(super) counters: Registry,
    pub(super) keeper: Arc<Keeper>,
}

impl KeyValue {
    fn make(&self, blueprint: &Blueprint, ready: bool) -> Result<Entries, Error> {
        self.keeper.with_guard(|guard| Store::new(blueprint, ready, &self.keeper, guard))
    }

    /// Gives back the memory of what was dropped.
    fn give_back(&self) {
        let epochs = self.memory.epochs();
        self.keeper.give_back(&self.catalog, epochs, || _ = epochs.advance());
    }

    /// Makes the entries of a new index that the catalog shows already, but that is not read yet: see
    /// [`rows::fill_entry`] for the races with writers of the same row.
    ///
    /// A procedure that began before the index was known makes no entries in it, and takes none away that others made. When the
    /// last of these has ended, entries that lead to no such row are taken out. One may have been ahead of its row, whose writer
    /// had only come so far; when that has ended, too, every row gets its entry.
    fn fill(&self, table: TableId, store: &Entries) -> Result<(), Error> {
        let epochs = self.memory.epochs();
        wait_for(epochs, epochs.current());
        let (_, tables) = self.catalog.snapshot();
        let table = catalog::get(&tables, table)?;
        self.visit(store, |key, guard| rows::sweep_entry(table, store, key, guard))?;
        wait_for(epochs, epochs.current());
        self.visit(&table.primary, |key, guard| rows::fill_entry(table, store, key, guard))
    }

    /// Visits all keys of an index, some at a time under one guard.
    fn visit(
        &self,
        store: &Entries,
        mut visit: impl FnMut(&[u8], &Guard<'_>) -> Result<(), Stop>,
    ) -> Result<(), Error> {
        let mut keys = Keys::default();
        self.keeper.with_guard(|guard| for_each(store.index(), guard, &mut |key, _| keys.push(key)));
        for first in (0..keys.len()).step_by(ROWS_AT_ONCE) {
            let mut positions = first..keys.len().min(first + ROWS_AT_ONCE);
            let visited =
                self.keeper.with_guard(|guard| positions.try_for_each(|position| visit(keys.get(position), guard)));
            if let Err(stop) = visited
                && let polychron_base::error::Stopped::Failed(error) = stop.into_parts()
            {
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Protocol for KeyValue {
    const NAME: &'static str = "key-value";
    const SUMMARY: &'static str =
        "no transactions: atomic gets and puts of single keys, the upper bound for every other protocol";

    const ISOLATION: Isolation = Isolation::Nothing;

    type Options = Options;
    type Worker = KeyValueWorker;

    fn open(_options: Options, common: Common) -> Result<Arc<Self>, Error> {
        let memory = Memory::new(common.memory.clone())?;
        let keeper = Arc::new(Keeper::new(&memory)?);
        Ok(Arc::new(Self { memory, common, catalog: Catalog::default(), counters: Registry::default(), keeper }))
    }

    fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    fn create_table(&self, definition: TableDefinition) -> Result<TableId, Error> {
        StoreTable::create(&self.catalog, &definition, |_, blueprint| self.make(blueprint, true))
    }

    fn drop_table(&self, table: TableId) -> Result<(), Error> {
        self.catalog.remove(table).map(drop)?;
        self.give_back();
        Ok(())
    }

    fn create_index(self: &Arc<Self>, table: TableId, definition: IndexDefinition) -> Result<IndexId, Error> {
        // The filling waits for the end of all procedures of the present.
        if self.memory.epochs().is_pinned_here() {
            return Err(Error::WaitsForItself { table, key: None });
        }
        let make = |_: &TableDefinition, blueprint: &Blueprint| self.make(blueprint, false);
        let (index, store) = StoreTable::add_index(&self.catalog, table, &definition, make)?;
        if let Err(error) = self.fill(table, &store) {
            self.drop_index(table, index)?;
            return Err(error);
        }
        store.set_ready();
        Ok(index)
    }

    fn drop_index(&self, table: TableId, index: IndexId) -> Result<(), Error> {
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

    fn worker(self: &Arc<Self>) -> Result<KeyValueWorker, Error> {
        KeyValueWorker::new(self)
    }

    fn statistics(&self) -> Statistics {
        Statistics { memory: Some(self.memory.statistics()), ..self.counters.sum() }
    }
}

impl Drop for KeyValue {
    fn drop(&mut self) {
        self.keeper.close();
    }
}
