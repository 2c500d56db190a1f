//! Statements that are bound, and what they answer.

use std::cell::RefCell;
use std::sync::Arc;

use bumpalo::Bump;
use polychron_engine::Transaction;
use polychron_schema::IndexDefinition;
use sqlparser::ast;

use crate::bind::{Binder, NewTable, create_index};
use crate::catalog::{Catalog, Table};
use crate::context::Context;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};
use crate::exec::{Exec, Failure, Flow, Shared, execute};
use crate::plan::Plan;
use crate::text::Zone;
use crate::types::Type;

/// What a statement does.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Run(Plan),
    CreateTable(NewTable),
    CreateIndex(Arc<Table>, IndexDefinition),
    DropTables { tables: Vec<Arc<Table>> },
}

/// A statement whose names and types are decided.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) action: Action,
    /// The types of its parameters.
    pub(crate) parameters: Vec<Type>,
}

impl Statement {
    /// Binds a statement; `parameters` are the types that the client has declared.
    pub(crate) fn bind(catalog: &Catalog, statement: &ast::Statement, parameters: &[Type]) -> Result<Self, SqlError> {
        let mut binder = Binder::new(catalog, parameters);
        let action = match statement {
            ast::Statement::Query(query) => {
                let bound = binder.query(query)?;
                Action::Run(Plan::Query { node: bound.node, columns: bound.columns })
            }
            ast::Statement::Insert(insert) => Action::Run(binder.insert(insert)?),
            ast::Statement::Update(update) => Action::Run(binder.update(update)?),
            ast::Statement::Delete(delete) => Action::Run(binder.delete(delete)?),
            ast::Statement::CreateTable(create) => Action::CreateTable(binder.create_table(create)?),
            ast::Statement::CreateIndex(create) => {
                let (table, index) = create_index(catalog, create)?;
                Action::CreateIndex(table, index)
            }
            ast::Statement::Drop { object_type: ast::ObjectType::Table, names, cascade: false, .. } => {
                let tables = names.iter().map(|name| Ok(catalog.table(&crate::bind::object_name(name)?)?.clone()));
                Action::DropTables { tables: tables.collect::<Result<_, SqlError>>()? }
            }
            other => {
                let words: Vec<_> = other.to_string().split_whitespace().take(2).map(str::to_owned).collect();
                return Err(SqlError::unsupported(format!("the statement {}", words.join(" "))));
            }
        };
        if let Some(at) = binder.parameters.iter().position(|of| *of == Type::Unknown) {
            let message = format!("could not determine data type of parameter ${}", at + 1);
            return Err(SqlError::new(SqlState::INDETERMINATE_DATATYPE, message));
        }
        Ok(Self { action, parameters: binder.parameters })
    }
}

/// Runs a plan in a transaction. `out` gets the rows that it answers with; the number of rows is the answer.
pub(crate) fn run<T: Transaction>(
    plan: &Plan,
    transaction: &mut T,
    (parameters, zone, now): (&[Datum<'_>], &Zone, i64),
    out: &mut dyn FnMut(&[Datum<'_>]) -> Result<(), SqlError>,
) -> Result<u64, Failure> {
    let arena = Bump::new();
    let (access, shared) = (RefCell::new(transaction), Shared::default());
    let mut exec = Exec::new(&access, &shared);
    let context = Context { arena: &arena, parameters, outer: None, zone, now, exec: Some(exec) };
    execute(plan, &mut exec, &context, &mut |_, row| {
        out(row)?;
        Ok(Flow::More)
    })
}
