//! Statements about the session itself: PREPARE and EXECUTE, RESET, DISCARD and their like.
//!
//! Statements by names are one set for SQL and for the messages of a server's clients: what either makes the other one runs and forgets.

use std::sync::Arc;

use bumpalo::Bump;
use hashbrown::HashMap;
use polychron_engine::Protocol;
use sqlparser::ast;

use crate::bind::{Binder, folded};
use crate::casts::Place;
use crate::connection::{Connection, Parameters};
use crate::context::{Context, Now, now};
use crate::datum::OwnedDatum;
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::notifications::Channel;
use crate::outcome::Outcome;
use crate::own::StatementShown;
use crate::plan::Plan;
use crate::prepared::{Bound, Prepared};
use crate::roles::Switch;
use crate::rows::RowColumn;
use crate::types::Type;

/// The most statements with names.
const MOST: usize = 10_000;
/// The most bytes of their texts. What is bound takes some times as many.
const MOST_BYTES: usize = 1 << 25;
/// Up to how many bytes they are short.
const SHORT: usize = 4096;

/// A statement that has a name.
#[derive(Clone, Debug)]
pub struct Named {
    /// The statement.
    pub prepared: Prepared,
    /// The types of its parameters, as a client is told.
    pub types: Arc<[Type]>,
}

/// A statement with its name: when it got that, in microseconds since 1970, and the text of the PREPARE that has made it.
pub(crate) struct Kept {
    named: Named,
    since: i64,
    text: Option<Arc<str>>,
}

/// Statements by their names.
pub(crate) type Statements = HashMap<String, Kept>;

/// What EXECUTE runs: the statement that it names, as it is bound now, and the values of its parameters.
pub(crate) type Called = (Arc<Bound>, Vec<OwnedDatum>);

fn missing(name: &str) -> SqlError {
    let message = match name {
        "" => "unnamed prepared statement does not exist".to_owned(),
        name => format!("prepared statement \"{name}\" does not exist"),
    };
    SqlError::new(SqlState::UNDEFINED_STATEMENT, message)
}

/// Whether PREPARE takes the statement.
fn may_be_prepared(statement: &ast::Statement) -> bool {
    use ast::Statement::{Delete, Insert, Merge, Query, Update};
    matches!(statement, Query(_) | Insert(_) | Update(_) | Delete(_) | Merge(_))
}

impl<P: Protocol> Connection<P> {
    /// The statement of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn named_statement(&self, name: &str) -> Result<&Named, SqlError> {
        self.statements.get(name).map(|kept| &kept.named).ok_or_else(|| missing(name))
    }

    /// Gives a statement a name. The empty name may be taken already.
    ///
    /// # Errors
    /// Another one has it, or there are too many.
    pub fn name_statement(&mut self, name: &str, named: Named) -> Result<(), SqlError> {
        self.keep_statement(name, named, None)
    }

    fn keep_statement(&mut self, name: &str, named: Named, text: Option<Arc<str>>) -> Result<(), SqlError> {
        self.check_new_name(name)?;
        let bytes = |known: &Named| known.prepared.text().len();
        let bytes_of = |kept: &Kept| bytes(&kept.named) + kept.text.as_ref().map_or(0, |text| text.len());
        // Short ones are bounded by their number.
        if bytes(&named) > SHORT
            && !self.statements.is_empty()
            && self.statements.values().map(bytes_of).sum::<usize>() + bytes(&named) > MOST_BYTES
        {
            let detail = format!("The texts of prepared statements of a session take at most {MOST_BYTES} bytes.");
            return Err(SqlError::out_of_memory(detail));
        }
        // The one without a name is not shown.
        let since = if name.is_empty() { 0 } else { now() };
        self.statements.insert(name.to_owned(), Kept { named, since, text });
        Ok(())
    }

    /// That a statement may get this name.
    ///
    /// # Errors
    /// As [`Connection::name_statement`].
    pub fn check_new_name(&self, name: &str) -> Result<(), SqlError> {
        if !name.is_empty() && self.statements.contains_key(name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_STATEMENT, message));
        }
        if self.statements.len() >= MOST {
            let message = format!("a session has at most {MOST} prepared statements");
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
        }
        Ok(())
    }

    /// A statement has run: where it was bound again for that, later executions need not do so.
    pub fn keep_bound(&mut self, name: &str, prepared: &Prepared) {
        if let Some(Kept { named, .. }) = self.statements.get_mut(name)
            && named.prepared.text() == prepared.text()
            && !named.prepared.is_bound_as(prepared)
        {
            named.prepared = prepared.clone();
        }
    }

    /// Forgets the statement of this name, if there is one.
    pub fn forget_statement(&mut self, name: &str) {
        self.statements.remove(name);
    }

    /// The statements with names.
    pub(crate) fn statements_shown(&self) -> Vec<StatementShown> {
        let named = self.statements.iter().filter(|(name, _)| !name.is_empty());
        let shown = named.map(|(name, kept)| StatementShown {
            name: name.clone(),
            text: kept.text.clone().unwrap_or_else(|| kept.named.prepared.text().into()),
            since: kept.since,
            types: kept.named.types.iter().map(ToString::to_string).collect(),
            is_of_sql: kept.text.is_some(),
        });
        shown.collect()
    }

    /// The settings as they are now are those to which RESET and DISCARD return.
    pub fn keep_as_initial(&mut self) {
        self.initial = Some(Box::new(self.settings()));
    }

    /// Does what a statement says of the session; `None`: it is about something else.
    pub(crate) fn about_session(
        &mut self,
        statement: &ast::Statement,
        parameters: Parameters<'_>,
    ) -> Option<Result<Outcome, SqlError>> {
        use ast::Statement as S;
        Some(match statement {
            S::Prepare { name, data_types, statement } => self.prepare_named(name, data_types, statement),
            S::Execute { .. } => {
                let called = self.called(statement, parameters)?;
                called.and_then(|(bound, values)| {
                    let values: Vec<_> = values.iter().map(OwnedDatum::get).collect();
                    self.run_here(bound.plan(), &values)
                })
            }
            S::Deallocate { name, .. } => self.deallocate(name),
            S::Discard { object_type } => self.discard(object_type),
            S::Reset(reset) => self.reset(&reset.reset),
            S::LISTEN { channel } => self.listen(Channel::Listen(folded(channel))),
            S::UNLISTEN { channel } if channel.quote_style.is_none() && channel.value == "*" => {
                self.listen(Channel::UnlistenAll)
            }
            S::UNLISTEN { channel } => self.listen(Channel::Unlisten(folded(channel))),
            S::NOTIFY { channel, payload } => self.notify(&folded(channel), payload.as_deref().unwrap_or_default()),
            S::Vacuum(_) if self.session.is_open() => Err(within_block("VACUUM")),
            _ => return None,
        })
    }

    fn prepare_named(
        &mut self,
        name: &ast::Ident,
        types: &[ast::DataType],
        statement: &ast::Statement,
    ) -> Result<Outcome, SqlError> {
        let name = folded(name);
        self.check_new_name(&name)?;
        if !may_be_prepared(statement) {
            let word = statement.to_string();
            let word = word.split_whitespace().next().unwrap_or_default();
            return Err(SqlError::unsupported(format!("PREPARE of {word}")));
        }
        let (catalog, drawn) = (self.catalog(), self.session.drawn().clone());
        let binder = Binder::new(&catalog, &[], &drawn);
        let types = types.iter().map(|of| binder.catalog.column_type(of).map(|of| of.base));
        let types: Vec<_> = types.collect::<Result<_, _>>()?;
        let prepared = self.prepare_text(&statement.to_string(), &types)?;
        let types = prepared.parameters().into();
        let text = self.slot.activity.text();
        self.keep_statement(&name, Named { prepared, types }, Some(text))?;
        Ok(Outcome::tagged("PREPARE"))
    }

    /// The statement that EXECUTE names, with its arguments; `None`: it is no EXECUTE.
    pub(crate) fn called(
        &mut self,
        statement: &ast::Statement,
        parameters: Parameters<'_>,
    ) -> Option<Result<Called, SqlError>> {
        let (name, arguments) = match call_of(statement)? {
            Ok(call) => call,
            Err(error) => return Some(Err(error)),
        };
        let bound = self.bound_by_name(&name, arguments.len());
        Some(bound.and_then(|bound| {
            let values = self.call_values(arguments, bound.parameters(), parameters)?;
            Ok((bound, values))
        }))
    }

    /// The query that EXECUTE runs; `None`: the statement is no EXECUTE, or that of another statement.
    pub(crate) fn called_query(&mut self, statement: &ast::Statement) -> Option<Result<Called, SqlError>> {
        let (name, arguments) = call_of(statement).filter(|_| !self.session.has_failed())?.ok()?;
        let bound = self.bound_by_name(&name, arguments.len()).ok()?;
        if !matches!(**bound.plan(), Plan::Query { .. }) {
            return None;
        }
        let values = self.call_values(arguments, bound.parameters(), Parameters { types: &[], values: &[] });
        Some(values.map(|values| (bound, values)))
    }

    /// The statement of this name as it is bound now, for so many arguments. What is bound again is kept.
    fn bound_by_name(&mut self, name: &str, arguments: usize) -> Result<Arc<Bound>, SqlError> {
        let Named { prepared, types } = self.named_statement(name)?;
        let (mut prepared, wanted) = (prepared.clone(), types.len());
        if arguments != wanted {
            let message = format!("wrong number of parameters for prepared statement \"{name}\"");
            let detail = format!("Expected {wanted} parameters but got {arguments}.");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).with_detail(detail));
        }
        // Others could be EXECUTE again, without an end.
        let other = || SqlError::unsupported("EXECUTE of a statement that neither reads nor changes rows");
        let bound = self.bound_now(&mut prepared)?.ok_or_else(other)?;
        self.keep_bound(name, &prepared);
        Ok(bound)
    }

    /// The values of arguments, as parameters of these types.
    fn call_values(
        &self,
        arguments: &[ast::Expr],
        types: &[Type],
        parameters: Parameters<'_>,
    ) -> Result<Vec<OwnedDatum>, SqlError> {
        let catalog = self.catalog();
        let mut binder = Binder::new(&catalog, parameters.types, self.session.drawn());
        let arena = Bump::new();
        let at = self.session.now().unwrap_or_else(now);
        let context = Context { now: Now::At(at), parameters: parameters.values, ..Context::of(&arena, &self.zone) };
        let mut values = Vec::with_capacity(types.len());
        for (at, (argument, of)) in arguments.iter().zip(types).enumerate() {
            let bound = binder.expr(argument)?;
            let from = bound.base();
            let bound = binder.cast(bound, (*of).into(), Place::Assignment).map_err(|error| {
                if error.state() != SqlState::DATATYPE_MISMATCH && error.state() != SqlState::CANNOT_COERCE {
                    return error;
                }
                let message =
                    format!("parameter ${} of type {from} cannot be coerced to the expected type {of}", at + 1);
                let hint = "You will need to rewrite or cast the expression.";
                SqlError::new(SqlState::DATATYPE_MISMATCH, message).with_hint(hint)
            })?;
            let mut is_scalar = true;
            bound
                .expr
                .walk(&mut |part| is_scalar &= !matches!(part, Expr::Set(_) | Expr::Aggregate(_) | Expr::Window(_)));
            if !is_scalar {
                return Err(SqlError::unsupported("a function of several rows in EXECUTE"));
            }
            values.push(bound.expr.eval(&[], &context)?.owned());
        }
        Ok(values)
    }

    /// The columns that an EXECUTE answers.
    pub(crate) fn executed_columns(&self, statement: &ast::Statement) -> Option<&[RowColumn]> {
        let ast::Statement::Execute { name: Some(name), .. } = statement else { return None };
        let [part] = &name.0[..] else { return None };
        self.statements.get(&folded(part.as_ident()?)).map(|kept| kept.named.prepared.columns())
    }

    fn deallocate(&mut self, name: &ast::Ident) -> Result<Outcome, SqlError> {
        let folded = folded(name);
        if name.quote_style.is_none() && folded == "all" {
            self.statements.clear();
            return Ok(Outcome::tagged("DEALLOCATE ALL"));
        }
        self.statements.remove(&folded).map(|_| Outcome::tagged("DEALLOCATE")).ok_or_else(|| missing(&folded))
    }

    fn discard(&mut self, what: &ast::DiscardObject) -> Result<Outcome, SqlError> {
        let tag = format!("DISCARD {what}");
        let is_open = self.session.is_open();
        match what {
            ast::DiscardObject::PLANS => self.cache.clear(),
            ast::DiscardObject::SEQUENCES => self.session.drawn().forget_last(),
            ast::DiscardObject::TEMP if is_open => {
                return Err(SqlError::unsupported("DISCARD TEMP in a transaction"));
            }
            ast::DiscardObject::TEMP => self.drop_temporary(&|_, _| true),
            ast::DiscardObject::ALL if is_open => return Err(within_block("DISCARD ALL")),
            ast::DiscardObject::ALL => {
                self.session.close_all();
                self.statements.clear();
                self.cache.clear();
                self.session.drawn().forget_last();
                self.session.drawn().close();
                self.drop_temporary(&|_, _| true);
                self.switch(&Switch::back("RESET"))?;
                self.reset_all();
            }
        }
        Ok(Outcome::tagged(tag))
    }
}

/// The name and the arguments of an EXECUTE; `None`: it is another statement.
fn call_of(statement: &ast::Statement) -> Option<Result<(String, &[ast::Expr]), SqlError>> {
    let ast::Statement::Execute { name, parameters: arguments, .. } = statement else { return None };
    let is_plain_call = matches!(
        statement,
        ast::Statement::Execute { immediate: false, into, using, output: false, default: false, .. }
            if into.is_empty() && using.is_empty()
    );
    let name = match name.as_ref().map(|name| &name.0[..]) {
        Some([part]) if is_plain_call => part.as_ident().map(folded),
        _ => None,
    };
    let unknown = || SqlError::unsupported("this form of EXECUTE");
    Some(name.map(|name| (name, &arguments[..])).ok_or_else(unknown))
}

fn within_block(statement: &str) -> SqlError {
    let message = format!("{statement} cannot run inside a transaction block");
    SqlError::new(SqlState::ACTIVE_TRANSACTION, message)
}
