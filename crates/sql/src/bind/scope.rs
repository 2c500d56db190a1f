//! The columns that names can stand for.

use std::sync::Arc;

use super::needs::Origin;
use crate::catalog::Table;
use crate::error::{SqlError, SqlState};
use crate::types::ColumnType;

/// A column of the rows that a query works on.
#[derive(Clone, Debug)]
pub(crate) struct ScopeColumn {
    /// The name of its table, or the table's alias.
    pub(crate) table: Option<String>,
    pub(crate) name: String,
    pub(crate) of: ColumnType,
    /// Not named by `*`, nor without its table: the other column of a `USING`.
    pub(crate) is_hidden: bool,
    /// The table that it is a column of, and its position there.
    pub(crate) origin: Option<(Arc<Table>, usize)>,
    /// Where a privilege is needed to read it.
    pub(crate) need: Option<Origin>,
}

impl ScopeColumn {
    pub(crate) fn new(table: Option<&str>, name: &str, of: ColumnType) -> Self {
        Self { table: table.map(str::to_owned), name: name.to_owned(), of, is_hidden: false, origin: None, need: None }
    }
}

/// Columns in the order of the row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    pub(crate) columns: Vec<ScopeColumn>,
    /// What stands to the left in FROM, which `LATERAL` alone sees.
    pub(crate) is_aside: bool,
}

/// What a name is in one scope.
enum Found {
    Nothing,
    Column(usize),
    Many,
}

impl Scope {
    pub(crate) fn of(columns: impl IntoIterator<Item = ScopeColumn>) -> Self {
        Self { columns: columns.into_iter().collect(), is_aside: false }
    }

    /// The columns of both, one behind the other.
    pub(crate) fn joined(mut self, other: Self) -> Result<Self, SqlError> {
        for table in other.tables() {
            if self.tables().any(|own| own == table) {
                let message = format!("table name \"{table}\" specified more than once");
                return Err(SqlError::new(SqlState::DUPLICATE_ALIAS, message));
            }
        }
        self.columns.extend(other.columns);
        Ok(self)
    }

    fn tables(&self) -> impl Iterator<Item = &String> {
        let names = self.columns.iter().filter_map(|column| column.table.as_ref());
        let mut last = None;
        names.filter(move |name| last.replace(*name) != Some(name))
    }

    pub(crate) fn has_table(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column.table.as_deref() == Some(name))
    }

    /// Whether the values of a column are the same in all rows that agree in these columns, which have the key of its table among them.
    pub(crate) fn is_determined(&self, column: usize, by: &dyn Fn(usize) -> bool) -> bool {
        let of = &self.columns[column];
        let Some((table, _)) = &of.origin else { return false };
        table.sources(table.primary()).iter().all(|key| {
            let is_key = |it: &ScopeColumn| it.table == of.table && it.origin.as_ref().is_some_and(|(_, at)| at == key);
            self.columns.iter().enumerate().any(|(at, it)| is_key(it) && by(at))
        })
    }

    fn find(&self, table: Option<&str>, name: &str) -> Found {
        let is_meant = |column: &ScopeColumn| {
            column.name == name && table.map_or(!column.is_hidden, |table| column.table.as_deref() == Some(table))
        };
        let mut found = self.columns.iter().enumerate().filter(|(_, column)| is_meant(column));
        match (found.next(), found.next()) {
            (None, _) => Found::Nothing,
            (Some((at, _)), None) => Found::Column(at),
            _ => Found::Many,
        }
    }
}

/// The level and the position of the column that a name stands for, in the innermost scope that has it; the last scope has level 0.
pub(crate) fn resolve(
    scopes: &[Scope],
    table: Option<&str>,
    name: &str,
) -> Result<(usize, usize, ColumnType), SqlError> {
    for (level, scope) in scopes.iter().rev().enumerate().filter(|(_, scope)| !scope.is_aside) {
        match scope.find(table, name) {
            Found::Column(at) => return Ok((level, at, scope.columns[at].of)),
            Found::Many => {
                let message = format!("column reference \"{name}\" is ambiguous");
                return Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message));
            }
            Found::Nothing => {}
        }
    }
    match table {
        Some(table) if scopes.iter().any(|scope| scope.is_aside && scope.has_table(table)) => {
            let message = format!("invalid reference to FROM-clause entry for table \"{table}\"");
            Err(SqlError::new(SqlState::UNDEFINED_TABLE, message))
        }
        Some(table) if !scopes.iter().any(|scope| !scope.is_aside && scope.has_table(table)) => {
            Err(SqlError::new(SqlState::UNDEFINED_TABLE, format!("missing FROM-clause entry for table \"{table}\"")))
        }
        Some(table) => Err(SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column {table}.{name} does not exist"))),
        None => Err(SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"))),
    }
}
