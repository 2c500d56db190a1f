//! The columns that names can stand for.

use std::sync::Arc;

use super::needs::Origin;
use crate::catalog::Table;
use crate::computed::TABLE_ID;
use crate::error::{SqlError, SqlState};
use crate::types::ColumnType;

/// A column of the rows that a query works on.
#[derive(Clone, Debug)]
pub(crate) struct ScopeColumn {
    /// The name of its table, or the table's alias.
    pub(crate) table: Option<String>,
    /// The schema of its table, which goes by no alias.
    pub(crate) schema: Option<String>,
    pub(crate) name: String,
    pub(crate) of: ColumnType,
    /// Not named by `*`, nor without its table: the other column of a `USING`.
    pub(crate) is_hidden: bool,
    /// The table that it is a column of, and its position there.
    pub(crate) origin: Option<(Arc<Table>, usize)>,
    /// The only column of a function of one value, for which the function's name stands.
    pub(crate) is_scalar: bool,
    /// Where a privilege is needed to read it.
    pub(crate) need: Option<Origin>,
}

impl ScopeColumn {
    pub(crate) fn new(table: Option<&str>, name: &str, of: ColumnType) -> Self {
        let table = table.map(str::to_owned);
        Self {
            table,
            schema: None,
            name: name.to_owned(),
            of,
            is_hidden: false,
            origin: None,
            is_scalar: false,
            need: None,
        }
    }

    /// Whether the table of this name goes by an alias here.
    fn is_called(&self, of: Qualifier<'_>) -> bool {
        let is_named =
            |(table, _): &(Arc<Table>, usize)| table.name.plain() == of.table && Some(table.name.schema()) == of.schema;
        self.origin.as_ref().is_some_and(is_named)
    }

    fn is_of(&self, table: Qualifier<'_>) -> bool {
        self.table.as_deref() == Some(table.table)
            && table.schema.is_none_or(|schema| self.schema.as_deref() == Some(schema))
    }
}

/// What stands in front of a column's name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Qualifier<'n> {
    pub(crate) schema: Option<&'n str>,
    pub(crate) table: &'n str,
}

impl<'n> From<&'n str> for Qualifier<'n> {
    fn from(table: &'n str) -> Self {
        Self { schema: None, table }
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
    ManyTables,
}

impl Scope {
    pub(crate) fn of(columns: impl IntoIterator<Item = ScopeColumn>) -> Self {
        Self { columns: columns.into_iter().collect(), is_aside: false }
    }

    /// The same columns as those of a relation in a schema, which goes by no alias.
    #[must_use]
    pub(crate) fn in_schema(mut self, schema: &str) -> Self {
        self.columns.iter_mut().for_each(|column| column.schema = Some(schema.to_owned()));
        self
    }

    /// The columns of both, one behind the other. Tables of one name are told apart by their schemas.
    pub(crate) fn joined(mut self, other: Self) -> Result<Self, SqlError> {
        for (table, schema) in other.tables() {
            let is_same = |own: &Option<String>| own.is_none() || schema.is_none() || own == schema;
            if self.tables().any(|(own, of)| own == table && is_same(of)) {
                let message = format!("table name \"{table}\" specified more than once");
                return Err(SqlError::new(SqlState::DUPLICATE_ALIAS, message));
            }
        }
        self.columns.extend(other.columns);
        Ok(self)
    }

    fn tables(&self) -> impl Iterator<Item = (&String, &Option<String>)> {
        let names = self.columns.iter().filter_map(|column| Some((column.table.as_ref()?, &column.schema)));
        let mut last = None;
        names.filter(move |name| last.replace(*name) != Some(*name))
    }

    pub(crate) fn has_table(&self, table: Qualifier<'_>) -> bool {
        self.columns.iter().any(|column| column.is_of(table))
    }

    /// The columns of a table, with their positions. There are none where it is not in FROM.
    ///
    /// # Errors
    /// Tables of several schemas have the name.
    pub(crate) fn of_table(&self, table: Qualifier<'_>) -> Result<Vec<(usize, &ScopeColumn)>, SqlError> {
        let found: Vec<_> = self.columns.iter().enumerate().filter(|(_, column)| column.is_of(table)).collect();
        match found.first() {
            Some((_, first)) if found.iter().any(|(_, column)| column.schema != first.schema) => Err(ambiguous(table)),
            _ => Ok(found),
        }
    }

    /// Whether the values of a column are the same in all rows that agree in these columns, which have the key of its table among them.
    pub(crate) fn is_determined(&self, column: usize, by: &dyn Fn(usize) -> bool) -> bool {
        let of = &self.columns[column];
        let Some((table, _)) = &of.origin else { return false };
        table.sources(table.primary()).iter().all(|key| {
            let is_same = |it: &ScopeColumn| it.table == of.table && it.schema == of.schema;
            let is_key = |it: &ScopeColumn| is_same(it) && it.origin.as_ref().is_some_and(|(_, at)| at == key);
            self.columns.iter().enumerate().any(|(at, it)| is_key(it) && by(at))
        })
    }

    fn find(&self, table: Option<Qualifier<'_>>, name: &str) -> Found {
        if let Some(table) = table
            && self.of_table(table).is_err()
        {
            return Found::ManyTables;
        }
        let is_meant = |column: &ScopeColumn| {
            let is_seen = || !column.is_hidden || column.name == TABLE_ID;
            column.name == name && table.map_or_else(is_seen, |table| column.is_of(table))
        };
        let mut found = self.columns.iter().enumerate().filter(|(_, column)| is_meant(column));
        match (found.next(), found.next()) {
            (None, _) => Found::Nothing,
            (Some((at, _)), None) => Found::Column(at),
            _ => Found::Many,
        }
    }
}

fn ambiguous(table: Qualifier<'_>) -> SqlError {
    SqlError::new(SqlState::AMBIGUOUS_ALIAS, format!("table reference \"{}\" is ambiguous", table.table))
}

/// That no table of FROM goes by this name, where the query could see it.
pub(crate) fn no_table(scopes: &[Scope], of: Qualifier<'_>) -> SqlError {
    let table = of.table;
    let is_there = scopes.iter().any(|scope| match of.schema {
        None => scope.is_aside && scope.has_table(of),
        Some(_) => scope.has_table(table.into()) || scope.columns.iter().any(|it| it.is_called(of)),
    });
    SqlError::new(
        SqlState::UNDEFINED_TABLE,
        match is_there {
            true => format!("invalid reference to FROM-clause entry for table \"{table}\""),
            false => format!("missing FROM-clause entry for table \"{table}\""),
        },
    )
}

/// The level and the position of the column that a name stands for, in the innermost scope that has it; the last scope has level 0.
pub(crate) fn resolve(
    scopes: &[Scope],
    table: Option<Qualifier<'_>>,
    name: &str,
) -> Result<(usize, usize, ColumnType), SqlError> {
    for (level, scope) in scopes.iter().rev().enumerate().filter(|(_, scope)| !scope.is_aside) {
        match scope.find(table, name) {
            Found::Column(at) => return Ok((level, at, scope.columns[at].of)),
            Found::Many => {
                let message = format!("column reference \"{name}\" is ambiguous");
                return Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message));
            }
            Found::ManyTables => return Err(table.map_or_else(|| SqlError::internal("no table"), ambiguous)),
            Found::Nothing => {}
        }
    }
    match table {
        Some(table) if !scopes.iter().any(|scope| !scope.is_aside && scope.has_table(table)) => {
            Err(no_table(scopes, table))
        }
        Some(table) => {
            Err(SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column {}.{name} does not exist", table.table)))
        }
        None => Err(SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"))),
    }
}
