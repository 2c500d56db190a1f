//! Tables as ordered maps.
//!
//! ```text
//!   rows:              primary key bytes ──► the row's words
//!   secondary entries: secondary key bytes ──► primary key bytes
//! ```
//!
//! A secondary key is followed by the primary key unless the index is unique, so that equal keys can stand side by side.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use polychron_base::error::table_is_dropped;
use polychron_base::{Error, IndexId, TableId};
use polychron_engine::catalog::Superseded;
use polychron_engine::{Constraints, IndexDefinition, TableDefinition};
use polychron_schema::{EvolutionError, IndexKind, KeyExtractor, KeyScratch, Layout, RowRef};
use polychron_sync::atomic::{AtomicUsize, Ordering};

/// All tables by id; dropped ones leave a hole, so that ids are never used again.
#[derive(Debug)]
pub(super) struct Tables {
    /// The number that ids of this database's tables carry.
    database: u32,
    tables: BTreeMap<TableId, SerialTable>,
    /// How many tables there have been.
    made: u32,
    /// Tables in whose place others are, and why.
    superseded: Vec<Superseded>,
    /// Bytes of rows, entries, and what running transactions changed. Written by a thread that has the tables.
    used: Arc<AtomicUsize>,
    /// What `used` may come to.
    limit: usize,
}

/// What an entry of a map needs beside its key and value on the heap: its place in a node that is two thirds full, and what the heap
/// keeps about two blocks.
const ENTRY_BYTES: usize = 104;

/// One table.
#[derive(Debug)]
pub(super) struct SerialTable {
    id: TableId,
    /// With the indexes that exist now.
    pub(super) definition: Arc<TableDefinition>,
    pub(super) layout: Layout,
    pub(super) constraints: Constraints,
    pub(super) rows: Rows,
    /// By id − 1; dropped indexes leave a hole, so that ids are never used again.
    secondaries: Vec<Option<Secondary>>,
    /// What its rows and entries need.
    bytes: usize,
}

/// The words of each row, by its primary key.
pub(super) type Rows = BTreeMap<Vec<u8>, Box<[u64]>>;

/// A secondary index.
#[derive(Debug)]
pub(super) struct Secondary {
    pub(super) kind: IndexKind,
    name: String,
    extractor: KeyExtractor,
    /// Primary keys by secondary key.
    pub(super) entries: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Tables {
    /// No tables, and what they may need.
    pub(super) fn new(limit: usize, used: Arc<AtomicUsize>) -> Self {
        Self {
            database: polychron_sync::new_number(),
            tables: BTreeMap::new(),
            made: 0,
            superseded: Vec::new(),
            used,
            limit,
        }
    }

    /// Notes that memory is needed from now on, or no more.
    pub(super) fn count(&self, more: usize, less: usize) {
        // Relaxed: a thread that has the tables writes it, alone; others only look.
        self.used.store(self.used.load(Ordering::Relaxed) + more - less, Ordering::Relaxed);
    }

    /// Refuses `requested` more bytes, which are counted already, if they are too many.
    pub(super) fn check_limit(&self, requested: usize) -> Result<(), Error> {
        // Relaxed: as above.
        let used = self.used.load(Ordering::Relaxed);
        if used <= self.limit {
            return Ok(());
        }
        Err(Error::out_of_memory(requested, used.saturating_sub(requested), self.limit))
    }

    /// Replaces a row ([`SerialTable::replace`]).
    pub(super) fn replace(
        &mut self,
        table: TableId,
        primary: &[u8],
        new: Option<Box<[u64]>>,
    ) -> Result<Option<Box<[u64]>>, Error> {
        let table = self.get_mut(table)?;
        let before = table.bytes;
        let replaced = table.replace(primary, new);
        let after = table.bytes;
        self.count(after, before);
        replaced
    }

    /// Adds an index to a table ([`SerialTable::create_index`]), if there is memory for it.
    pub(super) fn create_index(&mut self, table: TableId, index: IndexDefinition) -> Result<IndexId, Error> {
        let entry = self.get_mut(table)?;
        let before = entry.bytes;
        let index = entry.create_index(index)?;
        let after = entry.bytes;
        self.count(after, before);
        self.check_limit(after - before).inspect_err(|_| drop(self.drop_index(table, index)))?;
        Ok(index)
    }

    /// Drops an index of a table.
    pub(super) fn drop_index(&mut self, table: TableId, index: IndexId) -> Result<(), Error> {
        let entry = self.get_mut(table)?;
        let before = entry.bytes;
        entry.drop_index(index)?;
        let after = entry.bytes;
        self.count(after, before);
        Ok(())
    }

    /// Adds a table.
    pub(super) fn create(&mut self, definition: TableDefinition) -> Result<TableId, Error> {
        if self.find(&definition.name).is_some() {
            return Err(Error::name_taken(definition.name));
        }
        if self.made as usize == TableId::POSITIONS {
            return Err(Error::definition("a database has had as many tables as it can"));
        }
        let id = TableId::new(self.database, self.made);
        let mut table = SerialTable::new(id, definition)?;
        let definition = Arc::clone(&table.definition);
        let definition_of = |parent| Ok(&*self.get(parent)?.definition);
        table.constraints = Constraints::of(id, &definition, |name| self.find(name), definition_of)?;
        for reference in table.constraints.foreign(id) {
            self.get_mut(reference.parent())?.constraints.add_child(Arc::clone(reference));
        }
        self.made += 1;
        self.tables.insert(id, table);
        Ok(id)
    }

    /// Drops a table.
    pub(super) fn remove(&mut self, id: TableId) -> Result<(), Error> {
        let table = self.get(id)?;
        table.constraints.check_removal(&table.definition.name, id, |child| self.get(child).is_ok())?;
        let bytes = table.bytes;
        table_is_dropped(id, &table.definition.name);
        self.tables.remove(&id);
        self.count(0, bytes);
        Ok(())
    }

    /// See [`polychron_engine::Storage::hold_table`].
    pub(super) fn hold(&mut self, id: TableId, why: Option<Arc<EvolutionError>>) -> Result<(), Error> {
        self.get_mut(id)?.constraints.hold(why);
        Ok(())
    }

    /// See [`polychron_engine::Storage::supersede_table`].
    pub(super) fn supersede(&mut self, (old, why): Superseded, new: TableId) -> Result<(), Error> {
        let name = self.get(old)?.definition.name.clone();
        let renamed = TableDefinition::clone(&self.get(new)?.definition).with_name(name);
        self.remove(old)?;
        let table = self.get_mut(new)?;
        table.constraints.rename(new, &renamed)?;
        table.definition = Arc::new(renamed);
        self.superseded.push((old, why));
        Ok(())
    }

    /// The table of this id.
    pub(super) fn get(&self, id: TableId) -> Result<&SerialTable, Error> {
        self.tables.get(&id).ok_or_else(|| self.no_such_table(id))
    }

    /// The table of this id, to be changed.
    pub(super) fn get_mut(&mut self, id: TableId) -> Result<&mut SerialTable, Error> {
        if !self.tables.contains_key(&id) {
            return Err(self.no_such_table(id));
        }
        Ok(self.tables.get_mut(&id).expect("it is there"))
    }

    /// Why there is no table of this id.
    fn no_such_table(&self, id: TableId) -> Error {
        match self.superseded.iter().find(|(superseded, _)| *superseded == id) {
            Some((_, why)) => EvolutionError::clone(why).into(),
            None if id.database() == self.database => Error::no_such_table(id),
            None => Error::other_database(id),
        }
    }

    /// The tables by name.
    pub(super) fn names(&self) -> BTreeMap<String, TableId> {
        self.tables.values().map(|table| (table.definition.name.clone(), table.id)).collect()
    }

    /// The id of the table of this name.
    pub(super) fn find(&self, name: &str) -> Option<TableId> {
        self.tables.values().find(|table| table.definition.name == name).map(|table| table.id)
    }
}

impl Secondary {
    /// The index at `position` of the definition, without entries.
    fn new(definition: &TableDefinition, position: usize) -> Result<Self, Error> {
        let index = &definition.indexes[position];
        let IndexDefinition { name, kind, .. } = index.clone();
        // Entries that carry the primary key are found by what they begin with, which hashing cannot do.
        let kind = if definition.appends_primary_key(index) { IndexKind::Ordered } else { kind };
        let extractor = KeyExtractor::secondary(definition, position).map_err(Error::from)?;
        Ok(Self { kind, name, extractor, entries: BTreeMap::new() })
    }

    /// What the entries need.
    fn bytes(&self) -> usize {
        self.entries.iter().map(|(key, primary)| entry_bytes(key, primary)).sum()
    }

    /// The key of a row in this index, the primary key included where the index is not unique.
    fn key<'s>(&self, row: &[u64], scratch: &'s mut KeyScratch) -> Result<&'s [u8], Error> {
        self.extractor.extract(RowRef::from_words(row), scratch).map_err(Error::from)
    }
}

/// What an entry of a map needs: a row's, or one of a secondary index.
fn entry_bytes<T>(key: &[u8], value: &[T]) -> usize {
    ENTRY_BYTES + key.len() + size_of_val(value)
}

impl SerialTable {
    fn new(id: TableId, definition: TableDefinition) -> Result<Self, Error> {
        let layout = definition.layout().map_err(Error::from)?;
        let positions = 0..definition.indexes.len();
        let secondaries = positions.map(|position| Secondary::new(&definition, position).map(Some));
        let secondaries = secondaries.collect::<Result<_, _>>()?;
        let constraints = Constraints::default();
        Ok(Self { id, definition: Arc::new(definition), layout, constraints, rows: Rows::new(), secondaries, bytes: 0 })
    }

    /// A secondary index.
    pub(super) fn secondary(&self, index: IndexId) -> Result<&Secondary, Error> {
        let position = index.position().checked_sub(1);
        let secondary = position.and_then(|position| self.secondaries.get(position)?.as_ref());
        secondary.ok_or_else(|| Error::no_such_index(self.id, index))
    }

    /// Adds a secondary index and fills it; the table is as before when the rows do not fit into it.
    pub(super) fn create_index(&mut self, index: IndexDefinition) -> Result<IndexId, Error> {
        if self.definition.indexes.iter().any(|other| other.name == index.name) {
            return Err(Error::name_taken(index.name));
        }
        let definition = TableDefinition::clone(&self.definition).with_index(index);
        let mut secondary = Secondary::new(&definition, definition.indexes.len() - 1)?;
        let id = IndexId::secondary(self.secondaries.len())?;
        let mut scratch = KeyScratch::new();
        for (primary, row) in &self.rows {
            let key = secondary.key(row, &mut scratch).map_err(|error| error.in_index(self.id, id))?.to_vec();
            if secondary.entries.insert(key, primary.clone()).is_some() {
                let mut constraints = self.constraints.clone();
                constraints.add_index(self.id, &definition)?;
                return Err(constraints.duplicate(self.id, id, RowRef::from_words(row)));
            }
        }
        self.bytes += secondary.bytes();
        self.secondaries.push(Some(secondary));
        self.constraints.add_index(self.id, &definition)?;
        self.definition = Arc::new(definition);
        Ok(id)
    }

    /// Drops a secondary index.
    pub(super) fn drop_index(&mut self, index: IndexId) -> Result<(), Error> {
        let secondary = self.secondary(index)?;
        let (name, bytes) = (secondary.name.clone(), secondary.bytes());
        self.constraints.check_index_removal(index)?;
        self.bytes -= bytes;
        self.secondaries[index.position() - 1] = None;
        Arc::make_mut(&mut self.definition).indexes.retain(|other| other.name != name);
        Ok(())
    }

    /// Checks that `row` can stand under `primary`: the first unique index in which another row has its key.
    pub(super) fn duplicate(&self, primary: &[u8], row: &[u64]) -> Result<Option<IndexId>, Error> {
        let mut scratch = KeyScratch::new();
        for (position, secondary) in self.secondaries.iter().enumerate() {
            let Some(secondary) = secondary else { continue };
            // Where an index is not unique, the key ends with the primary key and can only be found for the same row.
            let index = IndexId::secondary(position)?;
            let key = secondary.key(row, &mut scratch).map_err(|error| error.in_index(self.id, index))?;
            if secondary.entries.get(key).is_some_and(|owner| owner != primary) {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Puts `new` in the place of the row of `primary`, in all indexes, and returns what stood there: the one way in which
    /// a row comes, changes and goes. The caller has asked [`SerialTable::duplicate`], or undoes what was there before; so
    /// all keys can be made, and the table is never left half changed.
    pub(super) fn replace(&mut self, primary: &[u8], new: Option<Box<[u64]>>) -> Result<Option<Box<[u64]>>, Error> {
        let mut scratch = KeyScratch::new();
        let old = self.rows.remove(primary);
        for secondary in self.secondaries.iter_mut().flatten() {
            if let Some(old) = &old {
                let key = secondary.key(old, &mut scratch)?;
                self.bytes -= secondary.entries.remove(key).map_or(0, |primary| entry_bytes(key, &primary));
            }
            if let Some(new) = &new {
                let key = secondary.key(new, &mut scratch)?.to_vec();
                let bytes = entry_bytes(&key, primary);
                let before = secondary.entries.insert(key, primary.to_vec());
                self.bytes += if before.is_none() { bytes } else { 0 };
            }
        }
        self.bytes -= old.as_ref().map_or(0, |old| entry_bytes(primary, old));
        if let Some(new) = new {
            self.bytes += entry_bytes(primary, &new);
            self.rows.insert(primary.to_vec(), new);
        }
        Ok(old)
    }
}

/// Whether a range can hold one key at most, which is all that an index without order can answer.
pub(super) fn is_point(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> bool {
    matches!((lower, upper), (Bound::Included(lower), Bound::Included(upper)) if lower == upper)
}

/// Whether a range holds no key at all; the maps of the standard library insist on being asked for sensible ranges only.
pub(super) fn is_empty(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> bool {
    match (lower, upper) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (Bound::Included(lower) | Bound::Excluded(lower), Bound::Included(upper) | Bound::Excluded(upper)) => {
            lower >= upper
        }
    }
}
