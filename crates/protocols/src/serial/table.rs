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

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::{Constraints, IndexDefinition, TableDefinition};
use polychron_schema::{IndexKind, KeyExtractor, KeyScratch, Layout, RowRef};

/// All tables by id; dropped ones leave a hole, so that ids are never used again.
#[derive(Debug)]
pub(super) struct Tables {
    /// The number that ids of this database's tables carry.
    database: u32,
    list: Vec<Option<SerialTable>>,
}

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

impl Default for Tables {
    fn default() -> Self {
        Self { database: polychron_sync::new_number(), list: Vec::new() }
    }
}

impl Tables {
    /// Adds a table.
    pub(super) fn create(&mut self, definition: TableDefinition) -> Result<TableId, Error> {
        if self.find(&definition.name).is_some() {
            return Err(Error::NameTaken(definition.name));
        }
        if self.list.len() == TableId::POSITIONS {
            return Err(Error::Definition("a database has had as many tables as it can".to_owned()));
        }
        let id = TableId::new(self.database, self.list.len() as u32);
        let mut table = SerialTable::new(id, definition)?;
        let definition = Arc::clone(&table.definition);
        let definition_of = |parent| Ok(&*self.get(parent)?.definition);
        table.constraints = Constraints::of(id, &definition, |name| self.find(name), definition_of)?;
        for reference in table.constraints.foreign(id) {
            self.get_mut(reference.parent())?.constraints.add_child(Arc::clone(reference));
        }
        self.list.push(Some(table));
        Ok(id)
    }

    /// Drops a table.
    pub(super) fn remove(&mut self, id: TableId) -> Result<(), Error> {
        let table = self.get(id)?;
        table.constraints.check_removal(&table.definition.name, id, |child| self.get(child).is_ok())?;
        self.list[id.position()] = None;
        Ok(())
    }

    /// The table of this id.
    pub(super) fn get(&self, id: TableId) -> Result<&SerialTable, Error> {
        let table = self.list.get(id.position()).and_then(Option::as_ref).filter(|table| table.id == id);
        table.ok_or_else(|| self.no_such_table(id))
    }

    /// The table of this id, to be changed.
    pub(super) fn get_mut(&mut self, id: TableId) -> Result<&mut SerialTable, Error> {
        let missing = self.no_such_table(id);
        let table = self.list.get_mut(id.position()).and_then(Option::as_mut).filter(|table| table.id == id);
        table.ok_or(missing)
    }

    /// Why there is no table of this id.
    fn no_such_table(&self, id: TableId) -> Error {
        if id.database() == self.database { Error::NoSuchTable(id) } else { Error::OtherDatabase(id) }
    }

    /// The id of the table of this name.
    pub(super) fn find(&self, name: &str) -> Option<TableId> {
        self.list.iter().flatten().find(|table| table.definition.name == name).map(|table| table.id)
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

    /// The key of a row in this index, the primary key included where the index is not unique.
    fn key<'s>(&self, row: &[u64], scratch: &'s mut KeyScratch) -> Result<&'s [u8], Error> {
        self.extractor.extract(RowRef::from_words(row), scratch).map_err(Error::from)
    }
}

impl SerialTable {
    fn new(id: TableId, definition: TableDefinition) -> Result<Self, Error> {
        let layout = definition.layout().map_err(Error::from)?;
        let positions = 0..definition.indexes.len();
        let secondaries = positions.map(|position| Secondary::new(&definition, position).map(Some));
        let secondaries = secondaries.collect::<Result<_, _>>()?;
        let constraints = Constraints::default();
        Ok(Self { id, definition: Arc::new(definition), layout, constraints, rows: Rows::new(), secondaries })
    }

    /// A secondary index.
    pub(super) fn secondary(&self, index: IndexId) -> Result<&Secondary, Error> {
        let position = index.position().checked_sub(1);
        let secondary = position.and_then(|position| self.secondaries.get(position)?.as_ref());
        secondary.ok_or(Error::NoSuchIndex(self.id, index))
    }

    /// Adds a secondary index and fills it; the table is as before when the rows do not fit into it.
    pub(super) fn create_index(&mut self, index: IndexDefinition) -> Result<IndexId, Error> {
        if self.definition.indexes.iter().any(|other| other.name == index.name) {
            return Err(Error::NameTaken(index.name));
        }
        let definition = TableDefinition::clone(&self.definition).with_index(index);
        let mut secondary = Secondary::new(&definition, definition.indexes.len() - 1)?;
        let id = IndexId::secondary(self.secondaries.len())?;
        let mut scratch = KeyScratch::new();
        for (primary, row) in &self.rows {
            let key = secondary.key(row, &mut scratch)?.to_vec();
            if secondary.entries.insert(key, primary.clone()).is_some() {
                return Err(Error::Duplicate { table: self.id, index: id });
            }
        }
        self.secondaries.push(Some(secondary));
        self.definition = Arc::new(definition);
        Ok(id)
    }

    /// Drops a secondary index.
    pub(super) fn drop_index(&mut self, index: IndexId) -> Result<(), Error> {
        let name = self.secondary(index)?.name.clone();
        self.constraints.check_index_removal(index)?;
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
            let key = secondary.key(row, &mut scratch)?;
            if secondary.entries.get(key).is_some_and(|owner| owner != primary) {
                return Ok(Some(IndexId::secondary(position)?));
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
                secondary.entries.remove(key);
            }
            if let Some(new) = &new {
                let key = secondary.key(new, &mut scratch)?.to_vec();
                secondary.entries.insert(key, primary.to_vec());
            }
        }
        if let Some(new) = new {
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
