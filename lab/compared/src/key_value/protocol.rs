//! The database as a whole.

use std::sync::Arc;

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::stores::{Base, Keys, StoreDefinition, StoreProtocol, for_each};
use polychron_engine::{Common, Isolation, TableDefinition, catalog};
use polychron_memory::{Guard, Local};

use super::options::Options;
use super::rows;
use super::table::Entries;
use super::worker::KeyValueWorker;

/// Rows whose entries are made under one guard.
const ROWS_AT_ONCE: usize = 64;

/// The protocol. See the module.
#[derive(Debug)]
pub struct KeyValue {
    pub(super) base: Arc<Base<Entries>>,
}

impl KeyValue {
    /// Visits all keys of an index, some at a time under one guard.
    fn visit(
        &self,
        store: &Entries,
        mut visit: impl FnMut(&[u8], &Guard<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut keys = Keys::default();
        self.base.deferred_drops.with_guard(|guard| for_each(store.index(), guard, &mut |key, _| keys.push(key)));
        for first in (0..keys.len()).step_by(ROWS_AT_ONCE) {
            let mut positions = first..keys.len().min(first + ROWS_AT_ONCE);
            let visited = self
                .base
                .deferred_drops
                .with_guard(|guard| positions.try_for_each(|position| visit(keys.get(position), guard)));
            visited?;
        }
        Ok(())
    }
}

impl StoreProtocol for KeyValue {
    const NAME: &'static str = "key-value";
    const SUMMARY: &'static str =
        "no transactions: atomic gets and puts of single keys, the upper bound for every other protocol";
    const ISOLATION: Isolation = Isolation::Nothing;

    type Options = Options;
    type Worker = KeyValueWorker;
    type Driven = KeyValueWorker;
    type Store = Entries;

    fn memory_options(_: &Options, common: &Common) -> Result<polychron_memory::Options, Error> {
        common.journal.refuse(Self::NAME)?;
        Ok(common.memory.clone())
    }

    fn over(base: Base<Entries>, _: Options) -> Result<Self, Error> {
        Ok(Self { base: Arc::new(base) })
    }

    fn enter(&self, local: Local) -> KeyValueWorker {
        KeyValueWorker::new(local, &self.base)
    }

    fn base(&self) -> &Base<Entries> {
        &self.base
    }

    fn make(&self, _: &TableDefinition, store: &StoreDefinition) -> Result<Entries, Error> {
        self.base.store(store)
    }

    /// See `rows::fill_entry` for the races with writers of the same row.
    ///
    /// A procedure that began before the index was known makes no entries in it, and takes none away that others made. When the
    /// last of these has ended, entries that lead to no such row are unlinked. One may have been ahead of its row, whose writer
    /// had only come so far; when that has ended, too, every row gets its entry.
    fn fill(&self, table: TableId, _: IndexId, store: &Arc<Entries>) -> Result<(), Error> {
        self.base.wait_for_open()?;
        let (_, tables) = self.base.catalog.snapshot();
        let table = catalog::get(&tables, table)?;
        self.visit(store, |key, guard| rows::sweep_entry(table, store, key, guard))?;
        self.base.wait_for_open()?;
        self.visit(&table.primary, |key, guard| rows::fill_entry(table, store, key, guard))?;
        store.set_ready();
        Ok(())
    }
}
