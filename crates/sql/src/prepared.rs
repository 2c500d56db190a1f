//! Statements that are bound once and executed often.
//!
//! A bound statement is good as long as the tables are as they were when it was bound: it keeps the version of the catalog, and is bound again at the next
//! execution after another one is there. A connection keeps the latest texts that it has bound, so that a text which comes again is not parsed again.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use bumpalo::Bump;
use hashbrown::HashMap;
use polychron_base::TableId;
use polychron_engine::Protocol;
use sqlparser::ast;

use crate::connection::Connection;
use crate::context::{Context, Now};
use crate::control::Control;
use crate::cursors::CursorCommand;
use crate::datum::Datum;
use crate::enums;
use crate::error::{SqlError, SqlState};
use crate::names::Path;
use crate::outcome::Tag;
use crate::parse::{self, Command, is_plain};
use crate::plan::Plan;
use crate::rows::{RowColumn, Rows};
use crate::settings::{all_columns, shown_name};
use crate::statement::{Action, Statement};
use crate::streams::Stream;
use crate::types::{self, Type};
use crate::values::{coerced, fits, natural_type};
use crate::watch::{StatementCounts, TableCounts, Use};

/// The most texts that a connection keeps bound.
const KEPT_TEXTS: usize = 256;
/// Longer texts are not kept.
const KEPT_BYTES: usize = 16 << 10;

/// A statement whose names and types are decided, and what its execution needs.
#[derive(Debug)]
pub(crate) struct Bound {
    plan: Arc<Plan>,
    parameters: Vec<Type>,
    columns: Arc<[RowColumn]>,
    /// Its number in the session.
    number: u64,
    /// The version of the catalog that it is bound to.
    version: u64,
    /// The tables that it uses.
    tables: Vec<TableId>,
    /// The session that has bound it: numbers of sequences are drawn for that.
    session: u64,
    /// Where names without a schema were looked for.
    path: Arc<Path>,
    text: Arc<str>,
    /// What its executions are counted in, and those of the tables that it uses.
    counts: Arc<StatementCounts>,
    uses: Vec<(Arc<TableCounts>, Use)>,
}

impl Bound {
    pub(crate) fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The types of its parameters.
    pub(crate) fn parameters(&self) -> &[Type] {
        &self.parameters
    }

    /// Whether its parameters have these types, of whichever versions.
    fn takes(&self, types: &[Type]) -> bool {
        let is_same = |(own, other): (&Type, &Type)| enums::is_same(*own, *other);
        self.parameters.len() == types.len() && self.parameters.iter().zip(types).all(is_same)
    }

    /// Whether both have the same columns, by name and type, whichever tables these are of.
    fn answers_as(&self, other: &Self) -> bool {
        let is_same = |(own, other): (&RowColumn, &RowColumn)| {
            own.name == other.name && own.bound == other.bound && enums::is_same(own.of, other.of)
        };
        self.columns.len() == other.columns.len() && self.columns.iter().zip(&*other.columns).all(is_same)
    }
}

/// A statement that is executed often, with other parameters each time.
#[derive(Clone, Debug)]
pub struct Prepared {
    text: Arc<str>,
    /// The types that the client has declared for its parameters; [`Type::Unknown`] where the text is to tell.
    types: Arc<[Type]>,
    /// What it is, where it is not bound.
    other: Other,
    /// `None`: it is none that only reads or changes rows, and is bound at each execution.
    bound: Option<Arc<Bound>>,
}

impl Prepared {
    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The types of its parameters, as the text gives them.
    pub fn parameters(&self) -> &[Type] {
        match (&self.bound, &self.other) {
            (Some(bound), _) => &bound.parameters,
            (None, Other::Asks(_, types)) => types,
            _ => &[],
        }
    }

    /// The columns of its rows.
    pub fn columns(&self) -> &[RowColumn] {
        match (&self.bound, &self.other) {
            (Some(bound), _) => &bound.columns,
            (None, Other::Shows(columns) | Other::Asks(columns, _)) => columns,
            _ => &[],
        }
    }

    /// Whether both are bound to the same tables as they were at the same time.
    pub fn is_bound_as(&self, other: &Self) -> bool {
        match (&self.bound, &other.bound) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (own, other) => own.is_none() && other.is_none(),
        }
    }

    /// What it is bound as: another number once it was bound again, as long as a clone has what it was bound as before.
    pub fn binding(&self) -> usize {
        self.bound.as_ref().map_or(0, |bound| Arc::as_ptr(bound).addr())
    }

    /// What a client has to do with it besides reading its rows.
    pub fn kind(&self) -> Kind {
        match (&self.bound, &self.other) {
            (None, Other::Empty) => Kind::Empty,
            (None, Other::CopyIn) => Kind::CopyIn,
            (None, Other::CopyOut) => Kind::CopyOut,
            _ => Kind::Statement,
        }
    }
}

/// What a client has to do with a statement besides reading its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing: its answer has the rows, if it has some.
    Statement,
    /// The text has no statement.
    Empty,
    /// The client sends data: [`Connection::copy_in`].
    CopyIn,
    /// The client gets data: [`Connection::copy_out`].
    CopyOut,
}

/// A statement that is bound at each execution.
#[derive(Clone, Debug, Default)]
enum Other {
    /// It answers no rows.
    #[default]
    Plain,
    Empty,
    CopyIn,
    CopyOut,
    /// It answers rows with these columns.
    Shows(Arc<[RowColumn]>),
    /// The same, with parameters of these types.
    Asks(Arc<[RowColumn]>, Arc<[Type]>),
}

/// The texts that were bound last.
#[derive(Default)]
pub(crate) struct Cache {
    bound: HashMap<Arc<str>, Arc<Bound>>,
    /// In the order in which they came.
    order: VecDeque<Arc<str>>,
}

impl Cache {
    fn keep(&mut self, text: &Arc<str>, bound: &Arc<Bound>) {
        if text.len() > KEPT_BYTES {
            return;
        }
        if self.bound.insert(text.clone(), bound.clone()).is_some() {
            return;
        }
        self.order.push_back(text.clone());
        if self.order.len() > KEPT_TEXTS
            && let Some(oldest) = self.order.pop_front()
        {
            self.bound.remove(&oldest);
        }
    }

    /// Forgets all texts.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cold]
fn other_columns() -> SqlError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "cached plan must not change result type")
}

impl<P: Protocol> Connection<P> {
    /// Binds a statement for many executions. It is bound again by itself when tables change.
    ///
    /// # Errors
    /// It is wrong, or the text has several statements.
    pub fn prepare(&mut self, text: &str) -> Result<Prepared, SqlError> {
        self.prepare_typed(text, &[])
    }

    /// As [`Connection::prepare`], with the types that the first parameters have; the statement tells them where they are [`Type::Unknown`].
    ///
    /// # Errors
    /// As there.
    pub fn prepare_typed(&mut self, text: &str, types: &[Type]) -> Result<Prepared, SqlError> {
        self.session.check_thread()?;
        self.end_leaked_copy();
        self.wake(text)?;
        let prepared = self.prepare_text(text, types).map_err(|error| self.fail(error));
        self.finish_definitions();
        self.session.rest();
        prepared.map_err(|error| error.within(text))
    }

    pub(crate) fn prepare_text(&mut self, text: &str, types: &[Type]) -> Result<Prepared, SqlError> {
        let types = if types.iter().all(|of| *of == Type::Unknown) { &[] } else { types };
        let known = self.cache.bound.get(text).filter(|bound| types.is_empty() && self.may_run(bound)).cloned();
        let bound = match known {
            Some(bound) => self.check_not_failed().map(|()| (Some(bound), Other::Plain)),
            None => self.bound_text(text, types).and_then(|bound| {
                let other = if bound.is_none() { self.other(text, types)? } else { Other::Plain };
                Ok((bound, other))
            }),
        };
        let (bound, other) = bound?;
        Ok(Prepared { text: text.into(), types: types.into(), other, bound })
    }

    /// What a text is that is not kept bound.
    fn other(&self, text: &str, types: &[Type]) -> Result<Other, SqlError> {
        let column = |name: &str, of| RowColumn { name: name.to_owned(), of, bound: types::Bound::None, origin: None };
        Ok(match parse::commands(text)?.first() {
            None => Other::Empty,
            Some(Command::Copy(copy)) if copy.is_from => Other::CopyIn,
            Some(Command::Copy(_)) => Other::CopyOut,
            Some(Command::Cursor(CursorCommand::Fetch { name, is_move: false, .. })) => {
                Other::Shows(self.cursor_columns(name).unwrap_or_default().into())
            }
            Some(Command::Cursor(_) | Command::AlterSequence(_) | Command::Roles(_)) => Other::Plain,
            Some(Command::Sql(statement)) => match Control::of(statement)? {
                Some(Control::Show(name)) if name == "all" => {
                    Other::Shows(all_columns().map(|name| column(name, Type::Text)).into())
                }
                Some(Control::Ask(calls)) => {
                    let types = self.types_of_calls(&calls, types)?;
                    let columns = calls.calls.iter().map(|call| column(&call.column, call.answers()));
                    Other::Asks(columns.collect(), types.into())
                }
                Some(Control::Show(name)) => Other::Shows([column(shown_name(&name), Type::Text)].into()),
                _ => match self.executed_columns(statement) {
                    Some(columns) if !columns.is_empty() => Other::Shows(columns.into()),
                    _ => Other::Plain,
                },
            },
        })
    }

    /// Runs a statement and answers with its rows. A text that came before is not parsed again.
    ///
    /// # Errors
    /// As [`Connection::execute`]; and values of parameters that do not fit the types which the text gives them.
    pub fn answer(&mut self, text: &str, parameters: &[Datum<'_>]) -> Result<Rows, SqlError> {
        let ended = self.limited(text, |connection| {
            let known = connection.cache.bound.get(text).filter(|bound| connection.may_run(bound)).cloned();
            match known.map_or_else(|| connection.bound_to_run(text, &[]), |bound| Ok(Some(bound))) {
                Ok(Some(bound)) => connection.run_bound(&bound, parameters, false, None),
                Ok(None) => connection.run_unbound(text, parameters),
                Err(error) => Err(connection.fail(error)),
            }
        });
        self.finish_definitions();
        ended.map_err(|error| error.within(text))
    }

    /// Whether a bound statement may run as it is; then the tables are in use.
    fn may_run(&self, bound: &Bound) -> bool {
        let is_own = bound.session == self.slot.session && Arc::ptr_eq(&bound.path, &self.path) && !self.has_defined();
        is_own && self.database.enter_again((&bound.tables, bound.number, bound.version), &self.slot)
    }

    /// Whether the open transaction has defined something, which the catalog's version does not tell.
    fn has_defined(&self) -> bool {
        self.session.changes().is_some_and(|changes| !changes.is_empty())
    }

    /// As [`Connection::answer`], of a statement that is prepared.
    ///
    /// # Errors
    /// As there.
    pub fn answer_prepared(&mut self, prepared: &mut Prepared, parameters: &[Datum<'_>]) -> Result<Rows, SqlError> {
        self.run_prepared(prepared, parameters, None, None)
    }

    /// As [`Connection::answer_prepared`], of values that were read as the types of the statement's parameters ([`Connection::read_parameter`]), and for a client
    /// that knows its columns.
    ///
    /// # Errors
    /// As there; and [`SqlState::FEATURE_NOT_SUPPORTED`] where the tables have changed so that the statement has other columns.
    pub fn answer_decoded(
        &mut self,
        prepared: &mut Prepared,
        types: &[Type],
        parameters: &[Datum<'_>],
    ) -> Result<Rows, SqlError> {
        self.run_prepared(prepared, parameters, Some(types), None)
    }

    pub(crate) fn run_prepared(
        &mut self,
        prepared: &mut Prepared,
        parameters: &[Datum<'_>],
        decoded: Option<&[Type]>,
        stream: Option<&mut Stream<'_>>,
    ) -> Result<Rows, SqlError> {
        // A statement that is bound is no ROLLBACK, for which alone the text is looked at.
        let text = if prepared.bound.is_none() { Some(prepared.text.clone()) } else { None };
        let ended = self.limited(text.as_deref().unwrap_or_default(), |connection| {
            let is_ready = prepared.bound.as_ref().is_some_and(|bound| connection.may_run(bound));
            // It comes back when it has run.
            let bound = match is_ready {
                true => Ok(prepared.bound.take()),
                false => connection.bound_to_run(&prepared.text, &prepared.types),
            };
            let bound = bound.and_then(|bound| match (&bound, &prepared.bound) {
                (Some(new), Some(old)) if decoded.is_some() && !new.answers_as(old) => Err(other_columns()),
                _ => Ok(bound),
            });
            match bound {
                Ok(Some(bound)) => {
                    let is_decoded = decoded.is_some_and(|types| bound.takes(types));
                    let ended = connection.run_bound(&bound, parameters, is_decoded, stream);
                    prepared.bound = Some(bound);
                    ended
                }
                Ok(None) => connection.run_unbound(&prepared.text, parameters),
                Err(error) => Err(connection.fail(error)),
            }
        });
        self.finish_definitions();
        ended.map_err(|error| error.within(&prepared.text))
    }

    /// The same, of a statement that runs at once. Its text is noted before, for what shows what goes on takes its rows when it is bound.
    fn bound_to_run(&mut self, text: &str, types: &[Type]) -> Result<Option<Arc<Bound>>, SqlError> {
        self.slot.activity.note_text(text);
        self.bound_text(text, types)
    }

    /// What a prepared statement is bound as now, if it only reads or changes rows; its tables are in use then.
    ///
    /// # Errors
    /// As [`Connection::answer_decoded`] where it is bound again.
    pub(crate) fn bound_now(&mut self, prepared: &mut Prepared) -> Result<Option<Arc<Bound>>, SqlError> {
        if let Some(bound) = &prepared.bound
            && self.may_run(bound)
        {
            let bound = bound.clone();
            self.session.renew(&bound.tables, &self.zone)?;
            return Ok(Some(bound));
        }
        let bound = self.bound_text(&prepared.text, &prepared.types)?;
        if let (Some(new), Some(old)) = (&bound, &prepared.bound)
            && !new.answers_as(old)
        {
            return Err(other_columns());
        }
        if !self.has_defined() {
            prepared.bound.clone_from(&bound);
        }
        Ok(bound)
    }

    /// The statement of a text, if it only reads or changes rows.
    fn bound_text(&mut self, text: &str, types: &[Type]) -> Result<Option<Arc<Bound>>, SqlError> {
        let commands = parse::commands(text)?;
        let statement = match &commands[..] {
            [Command::Sql(statement)] => statement,
            [] | [_] => return Ok(None),
            _ => {
                let message = "cannot insert multiple commands into a prepared statement";
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
        };
        let bound = self.bound_statement(text, statement, types)?;
        if let Some(bound) = &bound
            && types.is_empty()
            && !self.has_defined()
        {
            self.cache.keep(&bound.text, bound);
        }
        Ok(bound)
    }

    /// A statement, if it only reads or changes rows.
    pub(crate) fn bound_statement(
        &mut self,
        text: &str,
        statement: &ast::Statement,
        types: &[Type],
    ) -> Result<Option<Arc<Bound>>, SqlError> {
        if !is_plain(statement) {
            return Ok(None);
        }
        self.check_not_failed()?;
        let types: Vec<_> = types.iter().map(|of| self.type_now(*of)).collect::<Result<_, _>>()?;
        let (bound, version) = self.bind_to_tables(statement, &types)?;
        let Statement { action: Action::Run(plan), parameters, tables, is_live } = bound else {
            return Ok(None);
        };
        let columns = plan.columns().iter();
        let columns = columns
            .map(|column| RowColumn {
                name: column.name.clone(),
                of: column.of.base,
                bound: column.of.bound,
                origin: column.origin,
            })
            .collect();
        let (plan, session, number) = (Arc::new(plan), self.slot.session, self.slot.new_statement());
        let (path, activity) = (self.path.clone(), &self.slot.activity);
        // No catalog has this version: what shows what goes on is bound each time, and so is what may name something that only its transaction has defined.
        let version = if is_live || self.has_defined() { u64::MAX } else { version };
        let uses = plan.uses().into_iter().map(|(table, what)| (activity.counts_of_table(table), what)).collect();
        let (counts, text) = (activity.counts_of(text), Arc::from(text));
        Ok(Some(Arc::new(Bound {
            plan,
            parameters,
            columns,
            number,
            version,
            tables,
            session,
            path,
            text,
            counts,
            uses,
        })))
    }

    /// A type with the labels that it has now, as this transaction sees it.
    pub(crate) fn type_now(&self, of: Type) -> Result<Type, SqlError> {
        if enums::has_labels(of) { Ok(enums::resolved(of, &*self.catalog().enums()?)) } else { Ok(of) }
    }

    /// `is_decoded`: the values are of the types of the parameters, and are not looked at.
    /// Rows of a query go to `stream`.
    pub(crate) fn run_bound(
        &mut self,
        bound: &Bound,
        values: &[Datum<'_>],
        is_decoded: bool,
        stream: Option<&mut Stream<'_>>,
    ) -> Result<Rows, SqlError> {
        self.slot.activity.note_bound(bound.number, &bound.text, &bound.counts);
        let ended = self.run_noted(bound, values, is_decoded, stream);
        match &ended {
            Ok(rows) => {
                bound.counts.ran(rows.count());
                bound.uses.iter().for_each(|(table, what)| table.count(*what, rows.count()));
            }
            Err(_) => bound.counts.failed(),
        }
        ended
    }

    fn run_noted(
        &mut self,
        bound: &Bound,
        values: &[Datum<'_>],
        is_decoded: bool,
        stream: Option<&mut Stream<'_>>,
    ) -> Result<Rows, SqlError> {
        self.check_not_failed()?;
        self.session.renew(&bound.tables, &self.zone)?;
        let wanted = bound.parameters.len();
        if values.len() != wanted {
            let message = format!("the statement has {wanted} parameters, and {} values are given", values.len());
            return Err(self.fail(SqlError::new(SqlState::UNDEFINED_PARAMETER, message)));
        }
        let mut rows = Rows::new(bound.columns.clone());
        rows.set_tag(Tag::of(&bound.plan));
        let ended = if is_decoded || values.iter().zip(&bound.parameters).all(|(value, of)| fits(*value, *of)) {
            self.run_plan(&bound.plan, values, &mut rows, stream)
        } else {
            let arena = Bump::new();
            let zone = self.zone.clone();
            let asked = Cell::new(self.session.now());
            let context = Context { now: Now::WhenAsked(&asked), ..Context::of(&arena, &zone) };
            let values = values.iter().zip(&bound.parameters).zip(1..);
            let values: Result<Vec<_>, _> =
                values.map(|((value, of), number)| coerced(value.within(&arena), *of, number, &context)).collect();
            match values {
                Ok(values) => self.run_plan(&bound.plan, &values, &mut rows, stream),
                Err(error) => Err(self.fail(error)),
            }
        };
        if ended.as_ref().is_err_and(SqlError::is_of_unknown_table) {
            self.database.forget_dropped();
            self.cache.clear();
        }
        ended.map(|()| rows)
    }

    fn run_plan(
        &mut self,
        plan: &Arc<Plan>,
        values: &[Datum<'_>],
        rows: &mut Rows,
        stream: Option<&mut Stream<'_>>,
    ) -> Result<(), SqlError> {
        let stream = stream.filter(|_| matches!(**plan, Plan::Query { .. }));
        self.check_may_run(plan, None)?;
        self.session.run_into((plan, values), &self.zone, rows, stream)
    }

    /// A statement that is not kept bound.
    fn run_unbound(&mut self, text: &str, values: &[Datum<'_>]) -> Result<Rows, SqlError> {
        let parameters: Vec<_> = values.iter().map(|value| (natural_type(*value), *value)).collect();
        let mut last = crate::outcome::Outcome::default();
        self.execute_within(text, &parameters, &mut |outcome| last = outcome)?;
        Ok(Rows::of_outcome(last))
    }
}
