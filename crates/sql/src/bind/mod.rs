//! Binding: what names stand for, and which types values have, by PostgreSQL's rules.

mod aggregates;
mod alter;
mod changes;
mod definitions;
mod drops;
mod expressions;
mod foreign_keys;
mod joins;
mod literals;
mod operators;
mod query;
mod renames;
mod scope;
mod sequences;
mod sets;
mod subqueries;
mod types;
mod views;

use std::cell::RefCell;
use std::sync::Arc;

use polychron_base::TableId;
use sqlparser::ast;

use crate::catalog::{Catalog, Object, Table};
use crate::error::{SqlError, SqlState};
use crate::sequences::Drawn;
use crate::types::Type;

pub(crate) use definitions::{NewTable, create_index, stored};
pub(crate) use scope::{Scope, ScopeColumn};
pub(crate) use types::column_type;

/// What is known while a statement is bound.
pub(crate) struct Binder<'c> {
    pub(crate) catalog: Recorded<'c>,
    /// What the connection knows of sequences.
    pub(crate) drawn: Arc<Drawn>,
    /// The types of the parameters, as far as something told them.
    pub(crate) parameters: Vec<Type>,
    /// The scopes around, the innermost one last.
    pub(crate) scopes: Vec<Scope>,
    /// What aggregates may be used, and those that were: `None` where none may stand.
    pub(crate) aggregates: Option<Vec<Aggregate>>,
    /// A column of a query stays of unknown type: the other side of a UNION tells.
    pub(crate) keeps_unknown: bool,
    /// The queries of `WITH` that are known, the innermost one last.
    pub(crate) tables: Vec<sets::Named>,
    /// The number of scopes around the FROM that is bound.
    pub(crate) from_start: usize,
    /// How many numbered parts the statement has so far.
    pub(crate) part_count: usize,
    /// Where none may stand, the name of the place.
    pub(crate) place: &'static str,
}

/// A catalog, and which of its tables a statement uses.
pub(crate) struct Recorded<'c> {
    catalog: &'c Catalog,
    pub(crate) used: RefCell<Vec<TableId>>,
    /// The names that were looked up.
    pub(crate) named: RefCell<Vec<String>>,
}

impl std::ops::Deref for Recorded<'_> {
    type Target = Catalog;

    fn deref(&self) -> &Catalog {
        self.catalog
    }
}

impl<'c> Recorded<'c> {
    pub(crate) fn new(catalog: &'c Catalog) -> Self {
        Self { catalog, used: RefCell::default(), named: RefCell::default() }
    }

    pub(crate) fn object(&self, name: &str) -> Result<Option<Object>, SqlError> {
        let object = self.catalog.object(name)?;
        self.used.borrow_mut().extend(object.as_ref().and_then(Object::table).map(|table| table.id));
        Ok(object)
    }

    pub(crate) fn table(&self, name: &str) -> Result<Arc<Table>, SqlError> {
        let table = self.catalog.table(name)?;
        self.named.borrow_mut().push(name.to_owned());
        self.used.borrow_mut().push(table.id);
        Ok(table)
    }
}

/// An aggregate that an expression uses.
#[derive(Clone, Debug)]
pub(crate) struct Aggregate {
    pub(crate) kind: AggregateKind,
    pub(crate) argument: Option<crate::expr::Typed>,
    pub(crate) is_distinct: bool,
    pub(crate) filter: Option<crate::expr::Expr>,
    pub(crate) result: Type,
}

/// The aggregates that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AggregateKind {
    CountRows,
    Count,
    Sum,
    Average,
    Least,
    Greatest,
    All,
    Any,
}

impl<'c> Binder<'c> {
    pub(crate) fn new(catalog: &'c Catalog, parameters: &[Type], drawn: &Arc<Drawn>) -> Self {
        Self {
            catalog: Recorded::new(catalog),
            drawn: drawn.clone(),
            parameters: parameters.to_vec(),
            scopes: Vec::new(),
            aggregates: None,
            keeps_unknown: false,
            tables: Vec::new(),
            from_start: 0,
            part_count: 0,
            place: "WHERE",
        }
    }

    /// The names' own scope while `bind` runs.
    pub(crate) fn within<O>(
        &mut self,
        scope: Scope,
        bind: impl FnOnce(&mut Self) -> Result<O, SqlError>,
    ) -> Result<O, SqlError> {
        self.scopes.push(scope);
        let bound = bind(self);
        self.scopes.pop();
        bound
    }
}

/// A name as PostgreSQL folds it: in small letters unless it is quoted.
pub(crate) fn folded(name: &ast::Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}

/// The name of an object of the schema `public`, which may be written in front of it.
pub(crate) fn object_name(name: &ast::ObjectName) -> Result<String, SqlError> {
    let parts: Option<Vec<_>> = name.0.iter().map(ast::ObjectNamePart::as_ident).collect();
    match parts.as_deref() {
        Some([name]) => Ok(folded(name)),
        Some([schema, name]) if folded(schema) == "public" => Ok(folded(name)),
        Some([schema, _]) => {
            Err(SqlError::new(SqlState("3F000"), format!("schema \"{}\" does not exist", folded(schema))))
        }
        _ => Err(SqlError::unsupported(format!("the name {name}"))),
    }
}
