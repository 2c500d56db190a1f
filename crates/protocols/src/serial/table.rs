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
use polychron_engine::definitions::{Standing, StoredCatalog, StoredTable};
use polychron_engine::{Constraints, IndexDefinition, Journal, TableDefinition, WriteRules};
use polychron_schema::{EvolutionError, IndexKind, KeyExtractor, KeyScratch, Layout, RowRef};
use polychron_sync::atomic::{AtomicUsize, Ordering};

/// All tables by id; dropped ones leave a hole, so that ids are never used again.
#[derive(Debug)]
pub(super) struct Tables {
    /// The number that ids of this database's tables carry.
    database: u32,
    tables: BTreeMap<TableId, SerialTable>,
    /// The first position that no table has had.
    next: u32,
    /// Tables in whose place others are, and why.
    superseded: Vec<Superseded>,
    /// Told of each change of the tables, before it is made.
    journal: Journal,
    /// What it was told last.
    told: StoredCatalog,
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
    standing: Standing,
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
    standing: Standing,
    extractor: KeyExtractor,
    /// Primary keys by secondary key.
    pub(super) entries: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Tables {
    /// No tables, and what they may need.
    pub(super) fn new(limit: usize, used: Arc<AtomicUsize>, journal: Journal) -> Self {
        Self {
            database: polychron_sync::new_number(),
            tables: BTreeMap::new(),
            next: 0,
            superseded: Vec::new(),
            journal,
            told: StoredCatalog::default(),
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
    pub(super) fn create_index(
        &mut self,
        table: TableId,
        index: IndexDefinition,
        standing: Standing,
    ) -> Result<IndexId, Error> {
        let entry = self.get_mut(table)?;
        let before = entry.bytes;
        let index = entry.create_index(index, standing)?;
        let after = entry.bytes;
        self.count(after, before);
        let checked = self.check_limit(after - before).and_then(|()| self.define(|_, _| ()));
        checked.inspect_err(|_| self.take_index(table, index))?;
        Ok(index)
    }

    /// Drops an index of a table.
    pub(super) fn drop_index(&mut self, table: TableId, index: IndexId) -> Result<(), Error> {
        self.get(table)?.check_index_removal(index)?;
        self.define(|_, tables| {
            tables.entry(table.position() as u32).and_modify(|stored| *stored = stored.clone().without(&[index]));
        })?;
        self.take_index(table, index);
        Ok(())
    }

    /// Takes an index out that is there.
    fn take_index(&mut self, table: TableId, index: IndexId) {
        let bytes = self.tables.get_mut(&table).map_or(0, |entry| entry.take_index(index));
        self.count(0, bytes);
    }

    /// Tells the log which tables there are, changed like this, unless it knows.
    fn define(&mut self, change: impl FnOnce(&mut u32, &mut BTreeMap<u32, StoredTable>)) -> Result<(), Error> {
        if self.journal.is_empty() {
            return Ok(());
        }
        let (mut next, mut stored) = (self.next, self.stored());
        change(&mut next, &mut stored);
        let stored = StoredCatalog::new(next, stored)?;
        if stored != self.told {
            self.journal.define(&stored)?;
            self.told = stored;
        }
        Ok(())
    }

    fn stored(&self) -> BTreeMap<u32, StoredTable> {
        self.tables.values().map(|table| (table.id.position() as u32, table.stored())).collect()
    }

    /// Adds a table.
    pub(super) fn create(&mut self, definition: TableDefinition, standing: Standing) -> Result<TableId, Error> {
        if self.find(&definition.name).is_some() {
            return Err(Error::name_taken(definition.name));
        }
        if self.next as usize == TableId::POSITIONS {
            return Err(Error::definition("a database has had as many tables as it can"));
        }
        let ids = (0..definition.indexes.len()).map(IndexId::secondary).collect::<Result<Vec<_>, _>>()?;
        let last_index = ids.last().copied().unwrap_or_default();
        let new = StoredTable { definition: Arc::new(definition), indexes: ids, last_index, standing };
        let table = self.make(TableId::new(self.database, self.next), &new)?;
        self.define(|next, tables| {
            tables.insert(*next, new);
            *next += 1;
        })?;
        self.next += 1;
        self.push(table)
    }

    /// See [`polychron_engine::Storage::restore`].
    pub(super) fn restore(&mut self, stored: &StoredCatalog) -> Result<(), Error> {
        if self.next > 0 {
            return Err(Error::definition("tables are restored in an empty database"));
        }
        // Parents have lower positions than their children, because foreign keys come with a table.
        for (position, table) in stored.permanent().tables() {
            let table = self.make(TableId::new(self.database, *position), table)?;
            self.push(table)?;
        }
        self.next = stored.next();
        self.told = stored.permanent();
        Ok(())
    }

    /// A table without rows, beside those that there are.
    fn make(&self, id: TableId, stored: &StoredTable) -> Result<SerialTable, Error> {
        let mut table = SerialTable::new(id, stored)?;
        let definition_of = |parent| Ok(&*self.get(parent)?.definition);
        let find = |name: &str| self.find(name);
        table.constraints = Constraints::of((id, &stored.definition, &stored.indexes), find, definition_of)?;
        Ok(table)
    }

    fn push(&mut self, table: SerialTable) -> Result<TableId, Error> {
        let id = table.id;
        for reference in table.constraints.foreign(id) {
            self.get_mut(reference.parent())?.constraints.add_child(Arc::clone(reference));
        }
        self.tables.insert(id, table);
        Ok(id)
    }

    /// Drops a table.
    pub(super) fn remove(&mut self, id: TableId) -> Result<(), Error> {
        self.check_removal(id)?;
        self.define(|_, tables| _ = tables.remove(&(id.position() as u32)))?;
        self.take(id);
        Ok(())
    }

    fn check_removal(&self, id: TableId) -> Result<(), Error> {
        let table = self.get(id)?;
        table.constraints.check_removal(&table.definition.name, id, |child| self.get(child).is_ok())
    }

    /// Takes a table out that is there.
    fn take(&mut self, id: TableId) {
        if let Some(table) = self.tables.remove(&id) {
            table_is_dropped(id, &table.definition.name);
            self.count(0, table.bytes);
        }
    }

    /// See [`polychron_engine::Storage::hold_table`].
    pub(super) fn hold(&mut self, id: TableId, why: Option<Arc<EvolutionError>>) -> Result<(), Error> {
        let table = self.get_mut(id)?;
        Ok(table.constraints.hold(&table.definition.name, why)?)
    }

    /// See [`polychron_engine::Storage::set_write_rules`].
    pub(super) fn set_write_rules(&mut self, id: TableId, rules: Option<Arc<dyn WriteRules>>) -> Result<(), Error> {
        self.get_mut(id)?.constraints.set_write_rules(rules);
        Ok(())
    }

    /// See [`polychron_engine::Storage::supersede_table`].
    pub(super) fn supersede(&mut self, (old, why): Superseded, new: TableId) -> Result<(), Error> {
        let name = self.get(old)?.definition.name.clone();
        let table = self.get(new)?;
        let renamed = Arc::new(TableDefinition::clone(&table.definition).with_name(name));
        let mut constraints = table.constraints.clone();
        constraints.rename(new, &renamed, &table.index_ids())?;
        self.check_removal(old)?;
        self.define(|_, tables| {
            tables.remove(&(old.position() as u32));
            tables.entry(new.position() as u32).and_modify(|stored| {
                stored.definition = Arc::clone(&renamed);
                stored.standing = Standing::Permanent;
            });
        })?;
        self.take(old);
        let table = self.get_mut(new)?;
        (table.constraints, table.definition, table.standing) = (constraints, renamed, Standing::Permanent);
        self.superseded.push((old, why));
        Ok(())
    }

    /// Makes a provisional table permanent.
    pub(super) fn keep(&mut self, id: TableId) -> Result<(), Error> {
        if self.get(id)?.standing == Standing::Permanent {
            return Ok(());
        }
        self.define(|_, tables| {
            let stored = tables.entry(id.position() as u32);
            stored.and_modify(|stored| stored.standing = Standing::Permanent);
        })?;
        self.get_mut(id)?.standing = Standing::Permanent;
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
    pub(super) fn names(&self) -> BTreeMap<String, (TableId, Standing)> {
        self.tables.values().map(|table| (table.definition.name.clone(), (table.id, table.standing))).collect()
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
        Ok(Self { kind, name, standing: Standing::Permanent, extractor, entries: BTreeMap::new() })
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
    fn new(id: TableId, stored: &StoredTable) -> Result<Self, Error> {
        let (definition, standing) = (Arc::clone(&stored.definition), stored.standing);
        let layout = definition.layout().map_err(Error::from)?;
        let mut secondaries: Vec<_> = (0..stored.last_index.position()).map(|_| None).collect();
        for (position, index) in stored.indexes.iter().enumerate() {
            secondaries[index.position() - 1] = Some(Secondary::new(&definition, position)?);
        }
        let (constraints, rows) = (Constraints::default(), Rows::new());
        Ok(Self { id, definition, layout, constraints, rows, secondaries, standing, bytes: 0 })
    }

    /// The ids of the secondary indexes, in the definition's order.
    fn index_ids(&self) -> Vec<IndexId> {
        let ids = (1..).zip(&self.secondaries).filter(|(_, secondary)| secondary.is_some());
        ids.map(|(id, _)| IndexId(id)).collect()
    }

    /// The id of the index of this name.
    pub(super) fn index_named(&self, name: &str) -> Option<IndexId> {
        self.index_ids().into_iter().find(|id| self.secondary(*id).is_ok_and(|secondary| secondary.name == name))
    }

    /// What a log stores of it.
    fn stored(&self) -> StoredTable {
        let provisional = self
            .index_ids()
            .into_iter()
            .filter(|id| self.secondary(*id).is_ok_and(|secondary| secondary.standing == Standing::Provisional));
        let stored = StoredTable {
            definition: Arc::clone(&self.definition),
            indexes: self.index_ids(),
            last_index: IndexId(self.secondaries.len() as u16),
            standing: self.standing,
        };
        stored.without(&provisional.collect::<Vec<_>>())
    }

    /// A secondary index.
    pub(super) fn secondary(&self, index: IndexId) -> Result<&Secondary, Error> {
        let position = index.position().checked_sub(1);
        let secondary = position.and_then(|position| self.secondaries.get(position)?.as_ref());
        secondary.ok_or_else(|| Error::no_such_index(self.id, index))
    }

    /// Adds a secondary index and fills it; the table is as before when the rows do not fit into it.
    fn create_index(&mut self, index: IndexDefinition, standing: Standing) -> Result<IndexId, Error> {
        if self.definition.indexes.iter().any(|other| other.name == index.name) {
            return Err(Error::name_taken(index.name));
        }
        let definition = TableDefinition::clone(&self.definition).with_index(index);
        let mut secondary = Secondary { standing, ..Secondary::new(&definition, definition.indexes.len() - 1)? };
        let id = IndexId::secondary(self.secondaries.len())?;
        let mut scratch = KeyScratch::new();
        for (primary, row) in &self.rows {
            let key = secondary.key(row, &mut scratch).map_err(|error| error.in_index(self.id, id))?.to_vec();
            if secondary.entries.insert(key, primary.clone()).is_some() {
                let mut constraints = self.constraints.clone();
                constraints.add_index(self.id, &definition, id)?;
                return Err(constraints.duplicate(self.id, id, RowRef::from_words(row)));
            }
        }
        self.bytes += secondary.bytes();
        self.secondaries.push(Some(secondary));
        self.constraints.add_index(self.id, &definition, id)?;
        self.definition = Arc::new(definition);
        Ok(id)
    }

    fn check_index_removal(&self, index: IndexId) -> Result<(), Error> {
        self.secondary(index)?;
        self.constraints.check_index_removal(index)
    }

    /// Takes a secondary index out, and answers what it has needed.
    fn take_index(&mut self, index: IndexId) -> usize {
        let Some(secondary) = self.secondaries[index.position() - 1].take() else { return 0 };
        let bytes = secondary.bytes();
        self.bytes -= bytes;
        Arc::make_mut(&mut self.definition).indexes.retain(|other| other.name != secondary.name);
        bytes
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
