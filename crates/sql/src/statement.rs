//! Statements that are bound, and what they answer.

use std::cell::RefCell;
use std::sync::Arc;

use bumpalo::Bump;
use polychron_base::TableId;
use polychron_engine::Transaction;
use polychron_schema::IndexDefinition;
use sqlparser::ast;

use crate::bind::{Binder, NewTable, TABLE_AS};
use crate::casts;
use crate::catalog::{Catalog, Description, Schema, Table, View, taken};
use crate::context::{Context, Now};
use crate::datum::Datum;
use crate::enums::Enum;
use crate::error::{SqlError, SqlState};
use crate::exec::paused::Paused;
use crate::exec::{Exec, Failure, Flow, Shared, bytes_of, execute};
use crate::finish::finished;
use crate::gaps::AlterSequence;
use crate::names::Name;
use crate::outcome::{Notice, Outcome, Tag};
use crate::plan::{Node, OutputColumn, Plan};
use crate::procedures::Procedure;
use crate::roles::{Role, RoleStatement, SharedAccess};
use crate::rows::Rows;
use crate::sequences::{Drawn, Sequence, SequenceDefinition};
use crate::session::Sum;
use crate::streams::Stream;
use crate::text::Zone;
use crate::types::Type;

/// A plan with its parameters' values.
pub(crate) type Planned<'p> = (&'p Plan, &'p [Datum<'p>]);

/// What a statement does.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all of them are plans")]
pub(crate) enum Action {
    Run(Plan),
    Define(Box<Definition>),
    /// Nothing, as the notice says.
    Skip {
        tag: &'static str,
        notice: Notice,
    },
}

/// A change of what objects there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Definition {
    /// What PostgreSQL calls it.
    pub(crate) tag: &'static str,
    pub(crate) notices: Vec<Notice>,
    /// Tables that no other transaction may use until this one has ended.
    pub(crate) closes: Vec<TableId>,
    /// Tables whose rows it reads.
    pub(crate) uses: Vec<TableId>,
    /// Tables that the engine is to make.
    pub(crate) tables: Vec<NewTable>,
    /// What other names stand for afterwards, or that they stand for nothing.
    pub(crate) objects: NewObjects,
    /// Queries that must find nothing then, and the error of those that do.
    pub(crate) checks: Vec<(String, SqlError)>,
    /// Objects whose rows have to be there: roles that get something.
    pub(crate) needs: Vec<(Name, SqlError)>,
    /// What is to be run then.
    pub(crate) plans: Vec<Plan>,
    /// An index that may be made while others use the table.
    pub(crate) index: Option<(Arc<Table>, IndexDefinition)>,
    /// The catalog that it was bound to.
    pub(crate) bound_to: Option<Arc<Catalog>>,
}

/// Names with what they are to stand for, or that they stand for nothing.
pub(crate) type NewObjects = Vec<(Name, Option<NewObject>)>;

/// What a name is to stand for.
#[derive(Clone, Debug)]
pub(crate) enum NewObject {
    /// This table of the engine, described so.
    Table(Arc<Table>, Description),
    /// Numbers that begin anew, or go on where those of another sequence are.
    Sequence(SequenceDefinition, Option<Arc<Sequence>>),
    View(View),
    Procedure(Procedure),
    Enum(Enum),
    Schema(Schema),
    Role(Role),
    Shared(SharedAccess),
}

impl Definition {
    pub(crate) fn new(tag: &'static str) -> Self {
        Self { tag, ..Self::default() }
    }

    /// How a table is described, as far as this definition has come.
    pub(crate) fn described(&self, table: &Table) -> Description {
        let changed = self.objects.iter().rev().find(|(name, _)| *name == table.name);
        match changed {
            Some((_, Some(NewObject::Table(_, description)))) => description.clone(),
            _ => table.description.clone(),
        }
    }

    /// Says what a name stands for, in the place of what was said before.
    pub(crate) fn set_object(&mut self, name: &Name, object: Option<NewObject>) {
        self.objects.retain(|(own, _)| own != name);
        self.objects.push((name.clone(), object));
    }
}

/// A statement whose names and types are decided.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) action: Action,
    /// The types of its parameters.
    pub(crate) parameters: Vec<Type>,
    /// The tables that it uses.
    pub(crate) tables: Vec<TableId>,
    /// It shows what goes on now, and is bound for one execution.
    pub(crate) is_live: bool,
}

/// A statement as it is parsed.
#[derive(Clone, Copy)]
pub(crate) enum Source<'s> {
    Known(&'s ast::Statement),
    AlterSequence(&'s AlterSequence),
    Roles(&'s RoleStatement),
}

/// Refuses parameters in what outlives their values: the expressions of tables, indexes and views.
fn check_parameters(statement: &ast::Statement) -> Result<(), SqlError> {
    use ast::Statement::{AlterTable, CreateIndex, CreateTable, CreateView};
    if !matches!(statement, AlterTable { .. } | CreateIndex(_) | CreateTable(_) | CreateView { .. }) {
        return Ok(());
    }
    // Looked for in the form that is shown, which has all parts; in texts the quotation mark would have a backslash.
    let shown = format!("{statement:?}");
    let Some((_, behind)) = shown.split_once("Placeholder(\"") else { return Ok(()) };
    let name = behind.split('"').next().unwrap_or_default();
    Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, format!("there is no parameter {name}")))
}

impl Statement {
    pub(crate) fn of(
        source: Source<'_>,
        catalog: &Catalog,
        parameters: &[Type],
        drawn: &Arc<Drawn>,
    ) -> Result<Self, SqlError> {
        match source {
            Source::Known(statement) => Self::bind(catalog, statement, parameters, drawn),
            Source::AlterSequence(alter) => {
                let mut binder = Binder::new(catalog, &[], drawn);
                let mut action = binder.alter_sequence(alter)?;
                binder.finish_owners(&mut action)?;
                let tables = binder.catalog.used.into_inner();
                Ok(Self { action, parameters: Vec::new(), tables, is_live: false })
            }
            Source::Roles(statement) => {
                let action = Binder::new(catalog, &[], drawn).role_statement(statement)?;
                Ok(Self { action, parameters: Vec::new(), tables: Vec::new(), is_live: false })
            }
        }
    }

    /// Binds a statement; `parameters` are the types that the client has declared.
    pub(crate) fn bind(
        catalog: &Catalog,
        statement: &ast::Statement,
        parameters: &[Type],
        drawn: &Arc<Drawn>,
    ) -> Result<Self, SqlError> {
        check_parameters(statement)?;
        let mut binder = Binder::new(catalog, parameters, drawn);
        let action = match statement {
            ast::Statement::Explain { analyze, format: None, statement, options, .. } => {
                let wanted = crate::explain::wanted(*analyze, options.as_deref().unwrap_or_default())?;
                if matches!(**statement, ast::Statement::Copy { .. }) {
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"COPY\""));
                }
                let inner = Self::bind(catalog, statement, parameters, drawn)?;
                binder.parameters = inner.parameters;
                match inner.action {
                    Action::Run(Plan::Call(_)) if wanted.is_run => {
                        return Err(SqlError::unsupported("EXPLAIN ANALYZE of CALL"));
                    }
                    Action::Run(plan) if wanted.is_run => Action::Run(Plan::analyzing(plan, wanted.has_summary)),
                    Action::Run(plan) => Action::Run(Plan::in_words(&plan, drawn.is_planned())),
                    _ => return Err(SqlError::unsupported("EXPLAIN of a statement without a plan")),
                }
            }
            ast::Statement::Copy { source: ast::CopySource::Table { table_name, columns }, to, .. } => {
                Action::Run(binder.copy(table_name, columns, *to)?)
            }
            other => match binder.statement(other)? {
                Some(action) => action,
                None => define(&mut binder, other)?,
            },
        };
        let mut action = if let Action::Run(plan) = action { Action::Run(finished(plan)) } else { action };
        if binder.is_checked(&action) {
            binder.catalog.check_needs()?;
        }
        binder.finish_owners(&mut action)?;
        if let Some(at) = binder.parameters.iter().position(|of| *of == Type::Unknown) {
            let message = format!("could not determine data type of parameter ${}", at + 1);
            return Err(SqlError::new(SqlState::INDETERMINATE_DATATYPE, message));
        }
        let is_live = binder.catalog.is_live.get();
        let mut tables = binder.catalog.used.into_inner();
        tables.sort_unstable();
        tables.dedup();
        Ok(Self { action, parameters: binder.parameters, tables, is_live })
    }
}

/// Binds a statement that defines something.
fn define(binder: &mut Binder<'_>, statement: &ast::Statement) -> Result<Action, SqlError> {
    let definition = match statement {
        ast::Statement::CreateTable(create) => {
            let name = binder.new_relation_name(&create.name, create.temporary)?;
            binder.check_free_of_type(&name)?;
            let tag = if create.query.is_some() { TABLE_AS } else { "CREATE TABLE" };
            match skip(tag, &binder.catalog, &name, create.if_not_exists)? {
                Some(skipped) => return Ok(skipped),
                None => binder.create_table(create, name)?,
            }
        }
        ast::Statement::CreateIndex(create) => return binder.create_index(create),
        ast::Statement::CreateSequence { temporary, if_not_exists, name, sequence_options } => {
            let name = binder.new_relation_name(name, *temporary)?;
            match skip("CREATE SEQUENCE", &binder.catalog, &name, *if_not_exists)? {
                Some(skipped) => return Ok(skipped),
                None => binder.create_sequence(&name, sequence_options)?,
            }
        }
        ast::Statement::CreateSchema {
            schema_name, if_not_exists, or_replace: false, with, options, clone, ..
        } if with.is_none() && options.is_none() && clone.is_none() => {
            return binder.create_schema(schema_name, *if_not_exists);
        }
        ast::Statement::Drop { object_type: ast::ObjectType::Schema, names, cascade, if_exists, .. } => {
            binder.drop_schemas(names, *cascade, *if_exists)?
        }
        ast::Statement::CreateType { name, representation } => binder.create_type(name, representation.as_ref())?,
        ast::Statement::AlterType(alter) => return binder.alter_type(alter),
        ast::Statement::Drop { object_type: ast::ObjectType::Type, names, cascade, if_exists, .. } => {
            binder.drop_types(names, *cascade, *if_exists)?
        }
        ast::Statement::CreateExtension(create) => return binder.create_extension(create),
        ast::Statement::CreateView(create) => binder.create_view(create)?,
        ast::Statement::AlterTable(alter) => return binder.alter_table(alter),
        ast::Statement::AlterIndex { name, operation: ast::AlterIndexOperation::RenameIndex { index_name } } => {
            return binder.rename_index(name, index_name);
        }
        ast::Statement::Drop { object_type, names, cascade, if_exists, .. } => {
            binder.drop_objects(*object_type, names, *cascade, *if_exists)?
        }
        ast::Statement::DropProcedure { if_exists, proc_desc, .. } => binder.drop_procedures(proc_desc, *if_exists)?,
        ast::Statement::CreateFunction(create) => match binder.create_procedure(create)? {
            Some(definition) => definition,
            None => return Err(SqlError::unsupported("the statement CREATE FUNCTION")),
        },
        ast::Statement::Comment { object_type, object_name, comment, .. } => {
            binder.comment(*object_type, object_name, comment.as_deref())?
        }
        // There is nothing to be swept.
        ast::Statement::Vacuum(_) => Definition::new("VACUUM"),
        ast::Statement::Analyze { .. } => Definition::new("ANALYZE"),
        other => {
            let words: Vec<_> = other.to_string().split_whitespace().take(2).map(str::to_owned).collect();
            return Err(SqlError::unsupported(format!("the statement {}", words.join(" "))));
        }
    };
    Ok(Action::Define(definition.into()))
}

/// What becomes of a definition whose name is taken: an error, or nothing where IF NOT EXISTS says so. `None`: the name is free.
pub(crate) fn skip(
    tag: &'static str,
    catalog: &Catalog,
    name: &Name,
    may_be: bool,
) -> Result<Option<Action>, SqlError> {
    match catalog.is_taken(name)? {
        false => Ok(None),
        true if may_be => {
            let message = format!("relation \"{name}\" already exists, skipping");
            Ok(Some(Action::Skip { tag, notice: Notice::remark(SqlState::DUPLICATE_TABLE, message) }))
        }
        true => Err(taken(name)),
    }
}

/// Runs a plan in a transaction, and gathers its answer.
pub(crate) fn answer<T: Transaction>(
    (plan, parameters): Planned<'_>,
    transaction: &mut T,
    zone: &Zone,
    now: Now<'_>,
) -> Result<Outcome, Failure> {
    let mut rows = Vec::new();
    let mut scratch = Scratch::default();
    let mut bytes = 0;
    let count = run(plan, transaction, (parameters, zone, now), &mut scratch, &mut |row| {
        count_answer(&mut bytes, row)?;
        rows.push(row.iter().map(|value| value.owned()).collect());
        Ok(Flow::More)
    })?;
    let columns = plan.columns().iter().map(|column| (column.name.clone(), column.of.base)).collect();
    let bounds = plan.columns().iter().map(|column| column.of.bound).collect();
    let origins = plan.columns().iter().map(|column| column.origin).collect();
    let (tag, zone) = (Tag::of(plan), zone.clone());
    let (tag, is_query) = (tag.text(count), tag == Tag::Counted(Tag::QUERY));
    Ok(Outcome { tag, count, is_query, columns, bounds, origins, rows, notices: scratch.notices, zone })
}

/// The most bytes of an answer that is gathered in memory.
const ANSWER_MEMORY: usize = 1 << 30;

/// Adds a row to the bytes of an answer.
///
/// # Errors
/// The answer is too large.
fn count_answer(bytes: &mut usize, row: &[Datum<'_>]) -> Result<(), SqlError> {
    *bytes += bytes_of(row);
    if *bytes <= ANSWER_MEMORY {
        return Ok(());
    }
    let detail = format!("An answer takes at most {ANSWER_MEMORY} bytes; COPY gives longer ones in pieces.");
    Err(SqlError::out_of_memory(detail))
}

/// Memory that one statement leaves to the next.
#[derive(Default)]
pub(crate) struct Scratch {
    arenas: Vec<Bump>,
    /// What the statement has noted for the client.
    notices: Vec<Notice>,
}

/// Runs a plan in a transaction, and puts its answer into `rows`, in the place of what is there.
pub(crate) fn answer_into<T: Transaction>(
    (plan, parameters): Planned<'_>,
    transaction: &mut T,
    zone: &Zone,
    now: Now<'_>,
    (rows, scratch, stream): (&mut Rows, &mut Scratch, Option<&mut Stream<'_>>),
) -> Result<(), Failure> {
    rows.clear();
    let mut bytes = 0;
    let count = match stream {
        None => run(plan, transaction, (parameters, zone, now), scratch, &mut |row| {
            count_answer(&mut bytes, row)?;
            rows.push(row);
            Ok(Flow::More)
        })?,
        Some(stream) => {
            stream.begin();
            let out = &mut |row: &[Datum<'_>]| stream.row(row, rows);
            let count = run(plan, transaction, (parameters, zone, now), scratch, out)?;
            rows.set_given(stream.end()?);
            count
        }
    };
    rows.set_count(count);
    rows.set_zone(zone);
    rows.set_notices(std::mem::take(&mut scratch.notices));
    Ok(())
}

/// Runs a plan in a transaction, and gives what stands for its answer.
pub(crate) fn answer_sum<T: Transaction>(
    (plan, parameters): Planned<'_>,
    transaction: &mut T,
    zone: &Zone,
    now: Now<'_>,
    mut sum: Sum,
) -> Result<u64, Failure> {
    let mut scratch = Scratch::default();
    let count = run(plan, transaction, (parameters, zone, now), &mut scratch, &mut |row| {
        row.iter().for_each(|value| sum.add(*value));
        Ok(Flow::More)
    })?;
    Ok(sum.finish(count, &scratch.notices))
}

/// Runs a plan in a transaction, and shows each row of its answer to `out`; the number of rows is the answer.
pub(crate) fn each_row<T: Transaction>(
    (plan, parameters): Planned<'_>,
    transaction: &mut T,
    zone: &Zone,
    now: Now<'_>,
    out: &mut dyn FnMut(&[Datum<'_>]) -> Result<(), SqlError>,
) -> Result<u64, Failure> {
    let out = &mut |row: &[Datum<'_>]| out(row).map(|()| Flow::More);
    run(plan, transaction, (parameters, zone, now), &mut Scratch::default(), out)
}

/// Runs a plan in a transaction. `out` gets the rows that it answers with; the number of rows is the answer.
fn run<T: Transaction>(
    plan: &Plan,
    transaction: &mut T,
    (parameters, zone, now): (&[Datum<'_>], &Zone, Now<'_>),
    scratch: &mut Scratch,
    out: &mut dyn FnMut(&[Datum<'_>]) -> Result<Flow, SqlError>,
) -> Result<u64, Failure> {
    let mut arena = scratch.arenas.pop().unwrap_or_default();
    let (access, shared) = (RefCell::new(transaction), Shared::with_arenas(std::mem::take(&mut scratch.arenas)));
    let mut exec = Exec::new(&access, &shared);
    let context = Context { arena: &arena, parameters, outer: None, zone, now, exec: Some(exec) };
    let done = execute(plan, &mut exec, &context, &mut shown(plan.columns(), out));
    let notices = shared.take_notices();
    let done = match done {
        Err(Failure::Sql(error)) if !notices.is_empty() => Err(error.behind(notices).into()),
        done => {
            scratch.notices = notices;
            done
        }
    };
    arena.reset();
    scratch.arenas = shared.into_arenas(arena);
    done
}

/// Goes on with a query that was left, until about so many rows have come, or `out`, which gets them, has enough.
pub(crate) fn go_on<T: Transaction>(
    (plan, node, parameters): (&Plan, &Node, &[Datum<'_>]),
    paused: &mut Paused,
    wanted: usize,
    (transaction, zone, now): (&mut T, &Zone, Now<'_>),
    out: &mut dyn FnMut(&[Datum<'_>]) -> Result<Flow, SqlError>,
) -> Result<(), Failure> {
    let (arena, access) = (Bump::new(), RefCell::new(transaction));
    let context = Context { parameters, now, ..Context::of(&arena, zone) };
    paused.go_on(node, wanted, (&access, &context), &mut shown(plan.columns(), out))
}

/// Takes rows, and shows them to `out` as the client gets them.
fn shown<'o>(
    columns: &'o [OutputColumn],
    out: &'o mut dyn FnMut(&[Datum<'_>]) -> Result<Flow, SqlError>,
) -> impl FnMut(&mut Exec<'_>, &[Datum<'_>]) -> Result<Flow, Failure> + 'o {
    let is_padded = columns.iter().any(|column| column.of.padding().is_some());
    move |exec, row| {
        if is_padded {
            let arena = exec.take_arena();
            let flow = out(padded(row, columns, &arena))?;
            exec.give_arena(arena);
            return Ok(flow);
        }
        Ok(out(row)?)
    }
}

/// A row as the client gets it: a `character` has blanks up to its length, which it has nowhere else.
fn padded<'a>(row: &[Datum<'a>], columns: &[OutputColumn], arena: &'a Bump) -> &'a [Datum<'a>] {
    let values = row.iter().zip(columns).map(|(value, column)| match column.of.padding() {
        Some(length) => casts::padded(*value, length, arena),
        None => *value,
    });
    let mut own = bumpalo::collections::Vec::with_capacity_in(row.len(), arena);
    own.extend(values);
    own.into_bump_slice()
}
