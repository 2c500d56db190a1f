//! Columns that SQL computes of others, so that indexes of the engine are about expressions, about the rows that meet a condition, and about types that the
//! engine does not sort. Statements do not see them.

use serde::{Deserialize, Serialize};

use crate::bind::Binder;
use crate::catalog::{Catalog, Column, Index, Table};
use crate::error::SqlError;
use crate::expr::Expr;

/// What a column is computed from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Computed {
    /// The value of this expression.
    Expression(String),
    /// TRUE where this condition holds, else NULL. A key that begins with NULL is equal to no other one.
    Member(String),
    /// Bytes that are sorted as the values of the column of this name.
    Sorted(String),
}

/// A computed column, and its value over the other columns of its table.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) column: usize,
    pub(crate) value: Expr,
}

/// What a table's columns follow from.
#[derive(Debug)]
pub(crate) struct Rules {
    /// Of columns that statements see: they are a part of the row before anything is asked of it.
    generated: Box<[Rule]>,
    /// Of columns of indexes, which look at generated ones, too.
    computed: Box<[Rule]>,
}

/// How the names of computed columns begin.
const PREFIX: &str = "(key ";

/// The column of a relation of the system that says which relation it is. No statement makes a column of this name.
pub(crate) const TABLE_ID: &str = "tableoid";

/// Whether a column has a name that is SQL's own.
pub(crate) fn is_own_name(name: &str) -> bool {
    name == TABLE_ID || name == crate::catalog::ROW_NUMBER || name.starts_with(PREFIX) && name.ends_with(')')
}

/// The computed column of this number.
pub(crate) fn column(number: usize, of: crate::types::ColumnType, nullable: bool, computed: Computed) -> Column {
    let column = Column::new(format!("{PREFIX}{number})"), of);
    Column { nullable, is_hidden: true, computed: Some(computed), ..column }
}

/// An expression as a part of a key: in parentheses, unless it is a call.
pub(crate) fn in_words(text: &str) -> String {
    let is_call = matches!(crate::parse::expression(text), Ok(sqlparser::ast::Expr::Function(_)));
    if is_call { text.to_owned() } else { format!("({text})") }
}

impl Table {
    /// Binds what its columns are computed by, once.
    ///
    /// # Errors
    /// Something that an expression names is no longer there.
    pub(crate) fn prepare(&self, catalog: &Catalog) -> Result<(), SqlError> {
        if self.rules.get().is_some() {
            return Ok(());
        }
        let computed = self.columns.iter().enumerate().filter_map(|(at, column)| Some((at, column.computed.as_ref()?)));
        let binder = || Binder::new(catalog, &[], &Default::default());
        let computed = computed.map(|(column, of)| Ok(Rule { column, value: binder().computed(self, of)? }));
        let computed = computed.collect::<Result<_, SqlError>>()?;
        let generated = self.columns.iter().enumerate().filter(|(_, column)| column.generated.is_some());
        let generated = generated.map(|(column, of)| {
            let value = binder().generated(self.name.plain(), &self.columns, of)?;
            Ok(Rule { column, value })
        });
        let generated = generated.collect::<Result<_, SqlError>>()?;
        // Another session may have bound them meanwhile.
        let _ = self.rules.set(Rules { generated, computed });
        Ok(())
    }

    fn all_rules(&self) -> Result<&Rules, SqlError> {
        let missing = || SqlError::internal(format!("what columns of {} follow from was not bound", self.name));
        self.rules.get().ok_or_else(missing)
    }

    /// What its generated columns are.
    ///
    /// # Errors
    /// They were not bound.
    pub(crate) fn generated(&self) -> Result<&[Rule], SqlError> {
        Ok(&self.all_rules()?.generated)
    }

    /// What its columns are computed by, in the order in which they need each other.
    ///
    /// # Errors
    /// They were not bound.
    pub(crate) fn rules(&self) -> Result<&[Rule], SqlError> {
        Ok(&self.all_rules()?.computed)
    }

    /// The column whose values a column of an index has, or has the order of.
    pub(crate) fn source(&self, column: usize) -> usize {
        match &self.columns[column].computed {
            Some(Computed::Sorted(name)) => self.columns.iter().position(|it| it.name == *name).unwrap_or(column),
            _ => column,
        }
    }

    /// The columns of an index, as it was defined: without the one that says which rows it is about.
    pub(crate) fn keys<'t>(&self, index: &'t Index) -> &'t [usize] {
        &index.columns[usize::from(self.condition(index).is_some())..]
    }

    /// The columns whose values the keys of an index have, or have the order of.
    pub(crate) fn sources(&self, index: &Index) -> Vec<usize> {
        self.keys(index).iter().map(|&column| self.source(column)).collect()
    }

    /// The condition of the rows that an index is about.
    pub(crate) fn condition(&self, index: &Index) -> Option<&str> {
        match &self.columns[*index.columns.first()?].computed {
            Some(Computed::Member(condition)) => Some(condition),
            _ => None,
        }
    }

    /// The expression that a column has the value of.
    pub(crate) fn expression(&self, column: usize) -> Option<&str> {
        match &self.columns[column].computed {
            Some(Computed::Expression(text)) => Some(text),
            _ => None,
        }
    }

    /// A column as a key names it: its name, or its expression.
    pub(crate) fn key_name(&self, column: usize) -> String {
        match self.expression(self.source(column)) {
            Some(text) => in_words(text),
            None => self.columns[self.source(column)].name.clone(),
        }
    }

    /// Whether an index is about columns of all rows, and nothing that is computed but their order.
    pub(crate) fn is_plain(&self, index: &Index) -> bool {
        self.condition(index).is_none() && self.sources(index).iter().all(|&at| self.columns[at].computed.is_none())
    }
}
