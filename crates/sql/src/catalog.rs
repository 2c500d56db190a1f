//! The tables that statements are bound to.

use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use polychron_base::{IndexId, TableId};
use polychron_schema::{ColumnOrder, ColumnType as Stored, KeyExtractor, Layout, TableDefinition};
use serde::{Deserialize, Serialize};

use crate::error::{SqlError, SqlState};
use crate::types::{Bound, ColumnType, Type};

/// What SQL knows of a table, and the engine does not: `definitions` keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Description {
    pub(crate) columns: Vec<Column>,
    /// The name of the primary key.
    pub(crate) primary: String,
    /// By their names, in which order they are evaluated.
    #[serde(default)]
    pub(crate) checks: Vec<Check>,
}

/// A condition that holds for each row of a table, or is NULL.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Check {
    pub(crate) name: String,
    /// Its text.
    pub(crate) condition: String,
}

/// A column as SQL has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) of: ColumnType,
    pub(crate) nullable: bool,
    /// The text of its default.
    pub(crate) default: Option<String>,
}

/// A key of a table and how it is made.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) id: IndexId,
    pub(crate) name: String,
    /// Positions of its columns.
    pub(crate) columns: Vec<usize>,
    /// How they are sorted; empty where all of them rise.
    pub(crate) orders: Vec<ColumnOrder>,
    pub(crate) is_unique: bool,
    /// Whether it has an order, so that ranges of it can be scanned.
    pub(crate) is_ordered: bool,
    pub(crate) keys: KeyExtractor,
}

/// A table, with what is needed to read and write its rows.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) id: TableId,
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) layout: Layout,
    /// The primary one first.
    pub(crate) indexes: Vec<Index>,
    pub(crate) checks: Vec<Check>,
}

impl Index {
    /// Whether its keys are sorted, and equal, as the values of the column at this position are. Spans of time are stored in parts.
    pub(crate) fn is_comparable(&self, table: &Table, position: usize) -> bool {
        table.columns[self.columns[position]].of.base != Type::Interval
    }

    /// Whether the column at this position of the key rises.
    pub(crate) fn is_ascending(&self, position: usize) -> bool {
        !self.orders.get(position).copied().unwrap_or_default().descending
    }
}

impl Table {
    /// A table of the engine, as its definition alone describes it.
    ///
    /// # Errors
    /// [`SqlState::FEATURE_NOT_SUPPORTED`] for columns of types that SQL has not.
    pub(crate) fn of_engine(id: TableId, definition: &TableDefinition, ids: &[IndexId]) -> Result<Self, SqlError> {
        let broken = |error: polychron_schema::SchemaError| SqlError::new(SqlState::INTERNAL_ERROR, error.to_string());
        let columns = definition.columns.iter().map(|column| {
            let of = of_stored(column.column_type)
                .ok_or_else(|| SqlError::unsupported(format!("the type of {}.{}", definition.name, column.name)))?;
            Ok(Column { name: column.name.clone(), of, nullable: column.nullable, default: None })
        });
        let columns = columns.collect::<Result<_, SqlError>>()?;
        let is_ordered = |kind| kind == polychron_schema::IndexKind::Ordered;
        let mut indexes = vec![Index {
            id: IndexId::PRIMARY,
            name: format!("{}_pkey", definition.name),
            columns: definition.key.clone(),
            orders: Vec::new(),
            is_unique: true,
            is_ordered: is_ordered(definition.primary_kind),
            keys: KeyExtractor::primary(definition).map_err(broken)?,
        }];
        for (position, (index, id)) in definition.indexes.iter().zip(ids).enumerate() {
            indexes.push(Index {
                id: *id,
                name: index.name.clone(),
                columns: index.columns.clone(),
                orders: index.orders.clone(),
                is_unique: index.unique,
                is_ordered: is_ordered(index.kind),
                keys: KeyExtractor::secondary(definition, position).map_err(broken)?,
            });
        }
        let layout = definition.layout().map_err(broken)?;
        Ok(Self { id, name: definition.name.clone(), columns, layout, indexes, checks: Vec::new() })
    }

    /// The same table, as SQL has described it.
    #[must_use]
    pub(crate) fn described(mut self, description: Description) -> Self {
        self.columns = description.columns;
        self.indexes[0].name = description.primary;
        self.checks = description.checks;
        self
    }

    /// What [`Table::described`] makes the same table of.
    pub(crate) fn description(&self) -> Description {
        Description { columns: self.columns.clone(), primary: self.primary().name.clone(), checks: self.checks.clone() }
    }

    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    pub(crate) fn primary(&self) -> &Index {
        &self.indexes[0]
    }

    /// Its columns' values in words, for messages about a row.
    pub(crate) fn names(&self, columns: &[usize]) -> String {
        columns.iter().map(|&column| self.columns[column].name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// The type of SQL whose values a column of the engine holds.
pub(crate) fn of_stored(stored: Stored) -> Option<ColumnType> {
    let base = match stored {
        Stored::Bool => Type::Bool,
        Stored::I8 | Stored::I16 | Stored::U8 => Type::Int2,
        Stored::I32 | Stored::U16 => Type::Int4,
        Stored::I64 | Stored::U32 => Type::Int8,
        Stored::U64 => return Some(ColumnType { base: Type::Numeric, bound: Bound::Digits(20, 0) }),
        Stored::F32 => Type::Float4,
        Stored::F64 => Type::Float8,
        Stored::Decimal { scale } => return Some(ColumnType { base: Type::Numeric, bound: Bound::Digits(18, scale) }),
        Stored::Decimal128 { scale } => {
            return Some(ColumnType { base: Type::Numeric, bound: Bound::Digits(38, scale) });
        }
        Stored::I128 => return Some(ColumnType { base: Type::Numeric, bound: Bound::Digits(38, 0) }),
        Stored::Date => Type::Date,
        Stored::Timestamp => Type::Timestamp,
        Stored::String { .. } | Stored::FixedString { .. } => Type::Text,
        Stored::Bytes { .. } | Stored::FixedBytes { .. } => Type::Bytea,
        _ => return None,
    };
    Some(base.into())
}

/// Finds tables that a catalog does not have yet.
pub(crate) trait Source: Send + Sync {
    /// The names of the tables that SQL has made.
    fn names(&self) -> Result<Vec<String>, SqlError>;

    fn find(&self, name: &str) -> Result<Option<Arc<Table>>, SqlError>;
}

/// The tables that were named so far, as a statement sees them; never changed, but replaced.
#[derive(Default)]
pub(crate) struct Catalog {
    tables: HashMap<String, Arc<Table>>,
    source: Option<Weak<dyn Source>>,
}

impl Catalog {
    /// One without tables, but for those that the source finds.
    pub(crate) fn of(source: Weak<dyn Source>) -> Self {
        Self { tables: HashMap::new(), source: Some(source) }
    }

    /// The same tables with a new one, in the place of one of its name.
    #[must_use]
    pub(crate) fn with(&self, new: Arc<Table>) -> Self {
        let mut tables = self.tables.clone();
        tables.insert(new.name.clone(), new);
        Self { tables, source: self.source.clone() }
    }

    /// Those of the tables for which this holds.
    #[must_use]
    pub(crate) fn retaining(&self, stays: impl Fn(&Table) -> bool) -> Self {
        let tables = self.tables.iter().filter(|(_, table)| stays(table));
        let tables = tables.map(|(name, table)| (name.clone(), table.clone())).collect();
        Self { tables, source: self.source.clone() }
    }

    /// All tables that SQL has made, or that were named, by their names.
    pub(crate) fn all(&self) -> Result<Vec<Arc<Table>>, SqlError> {
        let mut tables: std::collections::BTreeMap<_, _> =
            self.tables.iter().map(|(name, table)| (name.clone(), table.clone())).collect();
        if let Some(source) = self.source.as_ref().and_then(Weak::upgrade) {
            for name in source.names()? {
                if !tables.contains_key(&name)
                    && let Some(table) = source.find(&name)?
                {
                    tables.insert(name, table);
                }
            }
        }
        Ok(tables.into_values().collect())
    }

    /// The table of this name, if there is one.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Arc<Table>>, SqlError> {
        if let Some(table) = self.tables.get(name) {
            return Ok(Some(table.clone()));
        }
        let source = self.source.as_ref().and_then(Weak::upgrade);
        source.map_or(Ok(None), |source| source.find(name))
    }

    pub(crate) fn table(&self, name: &str) -> Result<Arc<Table>, SqlError> {
        let missing = || SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"));
        self.find(name)?.ok_or_else(missing)
    }

    /// Whether a table, or an index of one that was named, has this name.
    pub(crate) fn is_taken(&self, name: &str) -> Result<bool, SqlError> {
        let has_index = |table: &Arc<Table>| table.indexes.iter().any(|index| index.name == name);
        Ok(self.tables.values().any(has_index) || self.find(name)?.is_some())
    }
}

/// That a table or an index of this name is there already.
pub(crate) fn taken(name: &str) -> SqlError {
    SqlError::new(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists"))
}
