//! How the database is opened. Tables and indexes come and go under all locks, so no transaction ever sees a change of them.

use std::sync::Arc;

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::stores::{
    Base, Keyed, Keys, Record, Store, StoreDefinition, StoreProtocol, entry_words, for_each,
};
use polychron_engine::{Common, TableDefinition, catalog};
use polychron_index::Inserted;
use polychron_memory::{Guard, Local};
use polychron_schema::{KeyScratch, RowBuffer, RowRef};

use super::locks::{AllLocked, Locks};
use super::options::Options;
use super::protocol::{PartitionedStore, Shared};
use super::rows::find;
use super::table::{Index, KeyColumn, Table};
use super::worker::PartitionedWorker;

impl StoreProtocol for PartitionedStore {
    const NAME: &'static str = "partitioned-store";
    const SUMMARY: &'static str =
        "a lock for each partition and no other control: for workloads that stay in one partition";

    type Options = Options;
    type Worker = PartitionedWorker;
    type Driven = PartitionedWorker;
    type Store = Index;

    fn memory_options(options: &Options, common: &Common) -> Result<polychron_memory::Options, Error> {
        common.journal.refuse(Self::NAME)?;
        if !(1..=Options::MOST_PARTITIONS).contains(&options.partitions) {
            return Err(Error::options(format!("there are 1 to {} partitions", Options::MOST_PARTITIONS)));
        }
        Ok(common.memory.clone())
    }

    fn over(base: Base<Index>, options: Options) -> Result<Self, Error> {
        Ok(Self { shared: Arc::new(Shared { base, locks: Locks::new(options.partitions) }) })
    }

    fn enter(&self, local: Local) -> PartitionedWorker {
        PartitionedWorker::new(local, &self.shared)
    }

    fn base(&self) -> &Base<Index> {
        &self.shared.base
    }

    fn make(&self, definition: &TableDefinition, store_definition: &StoreDefinition) -> Result<Index, Error> {
        let layout = definition.layout()?;
        let divided = KeyColumn::find(definition, &layout, &definition.key).is_some();
        let count = if divided { self.shared.locks.len() } else { 1 };
        let (mut columns, mut unique_over_all) = (definition.key.clone(), false);
        if let Some(index) = definition.indexes.last().filter(|_| store_definition.index_ref.index != IndexId::PRIMARY)
        {
            columns.clone_from(&index.columns);
            unique_over_all =
                index.unique && count > 1 && definition.partition_column.is_some_and(|at| !columns.contains(&at));
            if !index.unique {
                columns.extend(definition.key.iter().filter(|column| !index.columns.contains(column)));
            }
        }
        let column = KeyColumn::find(definition, &layout, &columns);
        let share = StoreDefinition {
            expected_rows: store_definition.expected_rows.div_ceil(count),
            ..store_definition.clone()
        };
        let make = |_| self.shared.base.store(&share);
        Ok(Index { stores: (0..count).map(make).collect::<Result<_, _>>()?, column, unique_over_all })
    }

    fn fill(&self, table: TableId, _: IndexId, index: &Arc<Index>) -> Result<(), Error> {
        let (_, tables) = self.shared.base.catalog.snapshot();
        self.shared
            .base
            .deferred_drops
            .with_guard(|guard| make_entries(catalog::get(&tables, table)?, index, guard))?;
        index.stores.iter().for_each(Store::set_ready);
        Ok(())
    }

    /// The locks tell.
    fn waits_for_itself(&self) -> bool {
        false
    }

    fn stand_still(&self) -> Result<impl Sized, Error> {
        AllLocked::new(&self.shared.locks)
    }
}

/// Makes the entries of a new index.
fn make_entries(table: &Table, index: &Index, guard: &Guard<'_>) -> Result<(), Error> {
    let mut entry = RowBuffer::new();
    for (partition, rows) in table.primary.stores.iter().enumerate() {
        let mut keys = Keys::default();
        let mut records = Vec::new();
        for_each(rows.index(), guard, &mut |key, handle| {
            keys.push(key);
            // SAFETY: all locks are held.
            records.push(unsafe { Record::from_handle(handle) });
        });
        for (position, record) in records.into_iter().enumerate() {
            // SAFETY: all locks are held, and rows are not written here.
            let row = RowRef::from_words(unsafe { record.words() });
            let mut scratch = KeyScratch::new();
            let key = index.extractor().extract(row, &mut scratch)?;
            let taken = index.unique_over_all && index.stores.iter().any(|store| find(store, key, guard).is_some());
            let made = Record::new(entry_words(keys.get(position), &mut entry), guard)?;
            let inserted = match taken {
                true => Ok(false),
                false => index.stores[partition]
                    .index()
                    .insert(key, made.handle(), &mut (), guard)
                    .map(|inserted| matches!(inserted, Inserted::New)),
            };
            if !matches!(inserted, Ok(true)) {
                // SAFETY: the index did not take the record.
                unsafe { made.free(guard) };
                inserted?;
                return Err(Error::duplicate(table.id, index.index_ref().index));
            }
        }
    }
    Ok(())
}
