//! Which tables a database has, as a log stores it: `docs/durability.md`, "Catalog".

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use polychron_base::line::OneLine;
use polychron_base::{IndexId, TableId};
use polychron_schema::{KeyExtractor, SchemaError, TableDefinition};

/// The tables of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredCatalog {
    next: u32,
    tables: BTreeMap<u32, StoredTable>,
}

/// A table, and the ids of its indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTable {
    /// Its definition, with its present indexes.
    pub definition: Arc<TableDefinition>,
    /// The ids of these indexes, in the definition's order, which is that of their creation.
    pub indexes: Vec<IndexId>,
    /// The highest id that a secondary index of the table has had; 0 if it has had none.
    pub last_index: IndexId,
    /// Whether it goes with the process: then a recovery drops it.
    pub standing: Standing,
}

/// Whether a table or an index is there for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// Until it is dropped.
    #[default]
    Permanent,
    /// For as long as the process, or what it makes of it: an evolution of a table makes such ones.
    Provisional,
}

impl StoredCatalog {
    /// Tables by their positions, all below `next`, which is the first position that no table has had.
    ///
    /// # Errors
    /// The first thing that is wrong with the tables.
    pub fn new(next: u32, tables: BTreeMap<u32, StoredTable>) -> Result<Self, CatalogError> {
        let bound = tables.last_key_value().map_or(0, |(last, _)| last.saturating_add(1));
        if next < bound || next as usize > TableId::POSITIONS {
            return Err(CatalogError::Positions { next, bound });
        }
        let mut names = HashMap::new();
        for table in tables.values() {
            table.check()?;
            let name = table.definition.name.as_str();
            if names.insert(name, &*table.definition).is_some() {
                return Err(CatalogError::NameTaken { name: name.to_owned() });
            }
        }
        tables.values().try_for_each(|table| table.check_parents(&names))?;
        Ok(Self { next, tables })
    }

    /// The first position that no table has had.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// The tables by their positions.
    pub fn tables(&self) -> &BTreeMap<u32, StoredTable> {
        &self.tables
    }

    /// The same tables without those that went with their process.
    #[must_use]
    pub fn permanent(&self) -> Self {
        let is_permanent = |table: &StoredTable| table.standing == Standing::Permanent;
        let tables = self.tables.iter().filter(|(_, table)| is_permanent(table));
        Self { next: self.next, tables: tables.map(|(position, table)| (*position, table.clone())).collect() }
    }
}

impl StoredTable {
    fn check(&self) -> Result<(), CatalogError> {
        self.definition.validate().map_err(|error| self.refused(error))?;
        let is_one_each = self.indexes.len() == self.definition.indexes.len();
        let ids = std::iter::once(&IndexId::PRIMARY).chain(&self.indexes);
        if is_one_each && ids.is_sorted_by(|id, next| id < next) && self.indexes.last() <= Some(&self.last_index) {
            return Ok(());
        }
        Err(CatalogError::IndexIds { table: self.definition.name.clone() })
    }

    fn check_parents(&self, tables: &HashMap<&str, &TableDefinition>) -> Result<(), CatalogError> {
        for foreign_key in &self.definition.foreign_keys {
            let parent = tables.get(foreign_key.parent.as_str()).ok_or_else(|| CatalogError::NoParent {
                table: self.definition.name.clone(),
                parent: foreign_key.parent.clone(),
            })?;
            KeyExtractor::foreign(&self.definition, &foreign_key.columns, parent)
                .map_err(|error| self.refused(error))?;
        }
        Ok(())
    }

    fn refused(&self, error: SchemaError) -> CatalogError {
        CatalogError::Definition { table: self.definition.name.clone(), error }
    }

    /// The same table without these indexes.
    #[must_use]
    pub fn without(mut self, out: &[IndexId]) -> Self {
        if self.indexes.iter().any(|index| out.contains(index)) {
            let mut ids = self.indexes.iter();
            let indexes = &mut Arc::make_mut(&mut self.definition).indexes;
            indexes.retain(|_| ids.next().is_some_and(|index| !out.contains(index)));
            self.indexes.retain(|index| !out.contains(index));
        }
        self
    }
}

/// Why tables cannot be those of a database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// A table's definition is not valid.
    #[error("table {} of the catalog: {error}", OneLine(table))]
    Definition {
        /// The table's name.
        table: String,
        /// Why not.
        error: SchemaError,
    },
    /// The next position is not behind all tables, or beyond the last possible one.
    #[error("the next table's position is {next}, which is not in {bound}..={}", TableId::POSITIONS)]
    Positions {
        /// The next position.
        next: u32,
        /// The least that it can be.
        bound: u32,
    },
    /// The ids are not one for each secondary index, rising, and at most the last one.
    #[error("table {} of the catalog has ids of indexes that are not those of its indexes", OneLine(table))]
    IndexIds {
        /// The table's name.
        table: String,
    },
    /// Two tables have one name.
    #[error("two tables of the catalog are called {}", OneLine(name))]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The parent of a foreign key is not among the tables.
    #[error("table {} of the catalog refers to {}, which is not in it", OneLine(table), OneLine(parent))]
    NoParent {
        /// The table's name.
        table: String,
        /// The parent's name.
        parent: String,
    },
}

impl From<CatalogError> for polychron_base::Error {
    #[cold]
    fn from(error: CatalogError) -> Self {
        Self::definition(error.to_string())
    }
}
