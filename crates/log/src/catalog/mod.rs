//! The catalog as bytes: which tables there are, under which ids, and what defines them. A manifest carries it.
//!
//! [`StoredCatalog::new`] checks everything that creating the tables would check, and decoding goes through it. `docs/durability.md` has the rules.

mod format;

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
    /// What defines it, with the indexes that it has.
    pub definition: Arc<TableDefinition>,
    /// The ids of these indexes, in the definition's order, which is that of their creation.
    pub indexes: Vec<IndexId>,
    /// The highest id that a secondary index of the table has had; 0 if it has had none.
    pub last_index: IndexId,
}

impl StoredCatalog {
    /// Tables by their positions, all below `next`, which is the first position that no table has had.
    ///
    /// # Errors
    /// The first thing that is wrong with the tables.
    pub fn new(next: u32, tables: BTreeMap<u32, StoredTable>) -> Result<Self, Error> {
        let bound = tables.last_key_value().map_or(0, |(last, _)| last.saturating_add(1));
        if next < bound || next as usize > TableId::POSITIONS {
            return Err(Error::Positions { next, bound });
        }
        let mut names = HashMap::new();
        for table in tables.values() {
            table.check()?;
            let name = table.definition.name.as_str();
            if names.insert(name, &*table.definition).is_some() {
                return Err(Error::NameTaken { name: name.to_owned() });
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
}

impl StoredTable {
    fn check(&self) -> Result<(), Error> {
        self.definition.validate().map_err(|error| self.refused(error))?;
        let is_one_each = self.indexes.len() == self.definition.indexes.len();
        let ids = std::iter::once(&IndexId::PRIMARY).chain(&self.indexes);
        if is_one_each && ids.is_sorted_by(|id, next| id < next) && self.indexes.last() <= Some(&self.last_index) {
            return Ok(());
        }
        Err(Error::IndexIds { table: self.definition.name.clone() })
    }

    fn check_parents(&self, tables: &HashMap<&str, &TableDefinition>) -> Result<(), Error> {
        for foreign_key in &self.definition.foreign_keys {
            let parent = tables.get(foreign_key.parent.as_str()).ok_or_else(|| Error::NoParent {
                table: self.definition.name.clone(),
                parent: foreign_key.parent.clone(),
            })?;
            KeyExtractor::foreign(&self.definition, &foreign_key.columns, parent)
                .map_err(|error| self.refused(error))?;
        }
        Ok(())
    }

    fn refused(&self, error: SchemaError) -> Error {
        Error::Definition { table: self.definition.name.clone(), error }
    }
}

/// Why bytes are no catalog, or tables cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another version wrote it.
    #[error("the catalog has format {format}, and this version knows format {}", format::FORMAT)]
    Unsupported {
        /// Its format.
        format: u16,
    },
    /// The bytes are not what any catalog is encoded as.
    #[error("the catalog is damaged at byte {offset}: {reason}")]
    Malformed {
        /// Where what is wrong begins.
        offset: usize,
        /// What is wrong.
        reason: Malformed,
    },
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

/// What is wrong with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The bytes end within a number, or it is too large, or longer than it needs to be.
    #[error("there is no number that is possible here")]
    Number,
    /// A length goes beyond the last byte.
    #[error("the bytes end before what is announced")]
    Length,
    /// Text is not UTF-8.
    #[error("text is not UTF-8")]
    Text,
    /// A number that stands for nothing.
    #[error("no {what} has the number {number}")]
    Unknown {
        /// What it should stand for.
        what: &'static str,
        /// The number.
        number: u8,
    },
    /// The variants of an enum are no type.
    #[error("an enum is no column type: {0}")]
    Enum(&'static str),
    /// The positions of tables do not rise.
    #[error("a table is not behind the one before it")]
    Order,
    /// There is more than the catalog.
    #[error("there are bytes behind the catalog")]
    Behind,
}

#[cfg(test)]
mod tests;
