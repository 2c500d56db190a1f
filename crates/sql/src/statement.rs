//! Statements that are bound, and what they answer.

use std::cell::RefCell;
use std::sync::Arc;

use bumpalo::Bump;
use polychron_engine::Transaction;
use polychron_schema::IndexDefinition;
use sqlparser::ast;

use crate::bind::{Binder, NewTable, create_index, object_name};
use crate::catalog::{Catalog, Table, taken};
use crate::context::Context;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};
use crate::exec::{Exec, Failure, Flow, Shared, execute};
use crate::outcome::{Notice, Outcome};
use crate::plan::Plan;
use crate::rows::Rows;
use crate::text::Zone;
use crate::types::Type;

/// A plan with its parameters' values.
pub(crate) type Planned<'p> = (&'p Plan, &'p [Datum<'p>]);

/// What a statement does.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Run(Plan),
    Define(Definition),
    /// Nothing, as the notice says.
    Skip {
        tag: &'static str,
        notice: Notice,
    },
}

/// A change of what tables there are.
#[derive(Clone, Debug)]
pub(crate) enum Definition {
    CreateTable(NewTable),
    CreateIndex(Arc<Table>, IndexDefinition),
    DropTables { tables: Vec<Arc<Table>>, notices: Vec<Notice> },
}

impl Definition {
    /// What PostgreSQL calls it.
    pub(crate) fn tag(&self) -> &'static str {
        match self {
            Self::CreateTable(_) => "CREATE TABLE",
            Self::CreateIndex(..) => "CREATE INDEX",
            Self::DropTables { .. } => "DROP TABLE",
        }
    }
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
                let bound = binder.whole_query(query)?;
                Action::Run(Plan::Query { node: bound.node, columns: bound.columns })
            }
            ast::Statement::Explain { analyze: false, format: None, statement, options, .. } => {
                crate::explain::check_options(options.as_deref().unwrap_or_default())?;
                let inner = Self::bind(catalog, statement, parameters)?;
                binder.parameters = inner.parameters;
                let Action::Run(plan) = inner.action else {
                    return Err(SqlError::unsupported("EXPLAIN of a statement without a plan"));
                };
                Action::Run(Plan::in_words(&plan))
            }
            ast::Statement::Insert(insert) => Action::Run(binder.insert(insert)?),
            ast::Statement::Update(update) => Action::Run(binder.update(update)?),
            ast::Statement::Delete(delete) => Action::Run(binder.delete(delete)?),
            ast::Statement::Truncate(truncate) => Action::Run(binder.truncate(truncate)?),
            ast::Statement::CreateTable(create) => {
                let name = object_name(&create.name)?;
                match skip("CREATE TABLE", catalog, &name, create.if_not_exists)? {
                    Some(skipped) => skipped,
                    None => Action::Define(Definition::CreateTable(binder.create_table(create)?)),
                }
            }
            ast::Statement::CreateIndex(create) => {
                let (table, index) = create_index(catalog, create)?;
                match skip("CREATE INDEX", catalog, &index.name, create.if_not_exists)? {
                    Some(skipped) => skipped,
                    None => Action::Define(Definition::CreateIndex(table, index)),
                }
            }
            ast::Statement::Drop { object_type: ast::ObjectType::Table, names, cascade: false, if_exists, .. } => {
                Action::Define(dropped(catalog, names, *if_exists)?)
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

/// What becomes of a definition whose name is taken: an error, or nothing where IF NOT EXISTS says so. `None`: the name is free.
fn skip(tag: &'static str, catalog: &Catalog, name: &str, may_be: bool) -> Result<Option<Action>, SqlError> {
    match catalog.is_taken(name)? {
        false => Ok(None),
        true if may_be => {
            let message = format!("relation \"{name}\" already exists, skipping");
            Ok(Some(Action::Skip { tag, notice: Notice::remark(SqlState::DUPLICATE_TABLE, message) }))
        }
        true => Err(taken(name)),
    }
}

fn dropped(catalog: &Catalog, names: &[ast::ObjectName], may_be_missing: bool) -> Result<Definition, SqlError> {
    let (mut tables, mut notices) = (Vec::new(), Vec::new());
    for name in names {
        let name = object_name(name)?;
        let missing = format!("table \"{name}\" does not exist");
        match catalog.find(&name)? {
            Some(table) => tables.push(table),
            None if may_be_missing => {
                notices.push(Notice::remark(SqlState::SUCCESS, format!("{missing}, skipping")));
            }
            None => return Err(SqlError::new(SqlState::UNDEFINED_TABLE, missing)),
        }
    }
    Ok(Definition::DropTables { tables, notices })
}

/// Runs a plan in a transaction, and gathers its answer.
pub(crate) fn answer<T: Transaction>(
    (plan, parameters): Planned<'_>,
    transaction: &mut T,
    zone: &Zone,
    now: i64,
) -> Result<Outcome, Failure> {
    let mut rows = Vec::new();
    let count = run(plan, transaction, (parameters, zone, now), &mut Scratch::default(), &mut |row| {
        rows.push(row.iter().map(|value| value.owned()).collect());
        Ok(())
    })?;
    let columns = plan.columns().iter().map(|column| (column.name.clone(), column.of.base)).collect();
    let tag = match plan {
        Plan::Insert { .. } => format!("INSERT 0 {count}"),
        Plan::Truncate(_) => plan.verb().to_owned(),
        _ => format!("{} {count}", plan.verb()),
    };
    Ok(Outcome { tag, count, columns, rows, notices: Vec::new() })
}

/// Memory that one statement leaves to the next.
#[derive(Default)]
pub(crate) struct Scratch {
    arenas: Vec<Bump>,
}

/// Runs a plan in a transaction, and puts its answer into `rows`, in the place of what is there.
pub(crate) fn answer_into<T: Transaction>(
    (plan, parameters): Planned<'_>,
    transaction: &mut T,
    zone: &Zone,
    now: i64,
    (rows, scratch): (&mut Rows, &mut Scratch),
) -> Result<(), Failure> {
    rows.clear();
    let count = run(plan, transaction, (parameters, zone, now), scratch, &mut |row| {
        rows.push(row);
        Ok(())
    })?;
    rows.set_count(count);
    Ok(())
}

/// Runs a plan in a transaction. `out` gets the rows that it answers with; the number of rows is the answer.
fn run<T: Transaction>(
    plan: &Plan,
    transaction: &mut T,
    (parameters, zone, now): (&[Datum<'_>], &Zone, i64),
    scratch: &mut Scratch,
    out: &mut dyn FnMut(&[Datum<'_>]) -> Result<(), SqlError>,
) -> Result<u64, Failure> {
    let arena = Bump::new();
    let (access, shared) = (RefCell::new(transaction), Shared::with_arenas(std::mem::take(&mut scratch.arenas)));
    let mut exec = Exec::new(&access, &shared);
    let context = Context { arena: &arena, parameters, outer: None, zone, now, exec: Some(exec) };
    let done = execute(plan, &mut exec, &context, &mut |_, row| {
        out(row)?;
        Ok(Flow::More)
    });
    scratch.arenas = shared.into_arenas();
    done
}
