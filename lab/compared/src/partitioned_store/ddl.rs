//! Tables and indexes come and go under all locks, so no transaction ever sees a change of them.

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::stores::{Blueprint, Keyed, Keys, Record, Store, StoreTable, entry_words, for_each};
use polychron_engine::{IndexDefinition, TableDefinition, catalog};
use polychron_index::Inserted;
use polychron_memory::Guard;
use polychron_schema::{KeyScratch, RowBuffer, RowRef};

use super::locks::AllLocked;
use super::protocol::PartitionedStore;
use super::rows::find;
use super::table::{Index, KeyColumn, Table};

impl PartitionedStore {
    /// The empty stores of an index.
    pub(super) fn make(
        &self,
        definition: &TableDefinition,
        blueprint: &Blueprint,
        ready: bool,
    ) -> Result<Index, Error> {
        let layout = definition.layout()?;
        let divided = KeyColumn::find(definition, &layout, &definition.key).is_some();
        let count = if divided { self.locks.len() } else { 1 };
        let (mut columns, mut unique_over_all) = (definition.key.clone(), false);
        if let Some(index) = definition.indexes.last().filter(|_| blueprint.place.index != IndexId::PRIMARY) {
            columns.clone_from(&index.columns);
            unique_over_all =
                index.unique && count > 1 && definition.partition_column.is_some_and(|at| !columns.contains(&at));
            if !index.unique {
                columns.extend(definition.key.iter().filter(|column| !index.columns.contains(column)));
            }
        }
        let column = KeyColumn::find(definition, &layout, &columns);
        let share = Blueprint { expected_rows: blueprint.expected_rows.div_ceil(count), ..blueprint.clone() };
        let make = |_| self.keeper.with_guard(|guard| Store::new(&share, ready, &self.keeper, guard));
        Ok(Index { stores: (0..count).map(make).collect::<Result<_, _>>()?, column, unique_over_all })
    }

    pub(super) fn add_index(&self, table: TableId, definition: &IndexDefinition) -> Result<IndexId, Error> {
        let _locked = AllLocked::new(&self.locks)?;
        let make = |changed: &TableDefinition, blueprint: &Blueprint| self.make(changed, blueprint, false);
        let (id, index) = StoreTable::add_index(&self.catalog, table, definition, make)?;
        let (_, tables) = self.catalog.snapshot();
        let filled = self.keeper.with_guard(|guard| fill(catalog::get(&tables, table)?, &index, guard));
        drop(tables);
        if let Err(error) = filled {
            StoreTable::remove_index(&self.catalog, table, id, |_| ())?;
            return Err(error);
        }
        index.stores.iter().for_each(Store::set_ready);
        Ok(id)
    }
}

/// Makes the entries of a new index.
fn fill(table: &Table, index: &Index, guard: &Guard<'_>) -> Result<(), Error> {
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
                return Err(Error::Duplicate { table: table.id, index: index.place().index });
            }
        }
    }
    Ok(())
}
