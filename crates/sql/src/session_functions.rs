//! Functions that change what holds for the session or the server: `set_config` and `pg_reload_conf`. A statement that asks for nothing else is run as SET is, so that
//! a transaction which is run again does not set anything again.

use bumpalo::Bump;
use polychron_engine::Protocol;
use sqlparser::ast;

use crate::bind::{Binder, folded};
use crate::casts::Place;
use crate::connection::{Connection, Parameters};
use crate::context::{Context, Now, now};
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::outcome::Outcome;
use crate::roles::Switch;
use crate::statement::Statement;
use crate::types::Type;

/// The calls of a statement that asks for nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionCalls {
    pub(crate) calls: Vec<SessionCall>,
    /// The query whose rows are the arguments of all calls side by side, where there is a FROM.
    source: Option<Box<ast::Query>>,
}

/// A call, and the name of its column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionCall {
    function: Function,
    arguments: Vec<ast::Expr>,
    pub(crate) column: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    SetConfig,
    Reload,
}

impl Function {
    /// What is called, if it is one of these.
    fn named(name: &ast::ObjectName) -> Option<Self> {
        let (schema, name) = match &name.0[..] {
            [name] => (None, name),
            [schema, name] => (Some(schema), name),
            _ => return None,
        };
        let is_own = match schema {
            Some(schema) => folded(schema.as_ident()?) == "pg_catalog",
            None => true,
        };
        match folded(name.as_ident()?).as_str() {
            "set_config" if is_own => Some(Self::SetConfig),
            "pg_reload_conf" if is_own => Some(Self::Reload),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::SetConfig => "set_config",
            Self::Reload => "pg_reload_conf",
        }
    }
}

impl SessionCalls {
    /// The calls of a query that has nothing else. `None`: it is another one.
    pub(crate) fn all(query: &ast::Query) -> Option<Self> {
        let ast::SetExpr::Select(select) = &*query.body else { return None };
        let calls = select.projection.iter().map(SessionCall::of).collect::<Option<Vec<_>>>()?;
        let is_plain = query.with.is_none()
            && query.order_by.is_none()
            && query.limit_clause.is_none()
            && query.fetch.is_none()
            && query.locks.is_empty()
            && select.distinct.is_none()
            && select.into.is_none()
            && select.having.is_none()
            && select.named_window.is_empty()
            && select.qualify.is_none()
            && matches!(&select.group_by, ast::GroupByExpr::Expressions(keys, _) if keys.is_empty());
        let source = (!select.from.is_empty()).then(|| {
            let mut source = query.clone();
            let items = calls.iter().flat_map(|call| call.arguments.iter().cloned());
            if let ast::SetExpr::Select(select) = &mut *source.body {
                select.projection = items.map(ast::SelectItem::UnnamedExpr).collect();
            }
            Box::new(source)
        });
        let has_condition = source.is_none() && select.selection.is_some();
        let is_known = source.is_none() || calls.iter().all(|call| call.function == Function::SetConfig);
        (is_plain && is_known && !has_condition && !calls.is_empty()).then_some(Self { calls, source })
    }
}

impl SessionCall {
    fn of(item: &ast::SelectItem) -> Option<Self> {
        let (expr, alias) = match item {
            ast::SelectItem::UnnamedExpr(expr) => (expr, None),
            ast::SelectItem::ExprWithAlias { expr, alias } => (expr, Some(folded(alias))),
            _ => return None,
        };
        let ast::Expr::Function(call) = expr else { return None };
        let function = Function::named(&call.name)?;
        let arguments = match &call.args {
            ast::FunctionArguments::List(list) if list.duplicate_treatment.is_none() && list.clauses.is_empty() => {
                list.args.iter().map(argument).collect::<Option<_>>()?
            }
            _ => return None,
        };
        let column = alias.unwrap_or_else(|| function.name().to_owned());
        (call.over.is_none() && call.filter.is_none()).then_some(Self { function, arguments, column })
    }

    /// The type of its answer.
    pub(crate) const fn answers(&self) -> Type {
        match self.function {
            Function::SetConfig => Type::Text,
            Function::Reload => Type::Bool,
        }
    }
}

fn argument(argument: &ast::FunctionArg) -> Option<ast::Expr> {
    match argument {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    }
}

impl<P: Protocol> Connection<P> {
    /// The types of the parameters of such calls, of which the client has said these.
    pub(crate) fn types_of_calls(&self, of: &SessionCalls, types: &[Type]) -> Result<Vec<Type>, SqlError> {
        let catalog = self.catalog();
        if let Some(source) = &of.source {
            let query = ast::Statement::Query(source.clone());
            return Ok(Statement::bind(&catalog, &query, types, self.session.drawn())?.parameters);
        }
        let calls = &of.calls;
        let mut binder = Binder::new(&catalog, types, self.session.drawn());
        calls.iter().try_for_each(|call| call.bind(&mut binder).map(drop))?;
        if let Some(at) = binder.parameters.iter().position(|of| *of == Type::Unknown) {
            let message = format!("could not determine data type of parameter ${}", at + 1);
            return Err(SqlError::new(SqlState::INDETERMINATE_DATATYPE, message));
        }
        Ok(binder.parameters)
    }

    /// Runs such calls.
    pub(crate) fn run_calls(&mut self, of: &SessionCalls, given: Parameters<'_>) -> Result<Outcome, SqlError> {
        let calls = &of.calls;
        let columns = || calls.iter().map(|call| (call.column.clone(), call.answers())).collect();
        if let Some(source) = &of.source {
            let mut rows = Vec::new();
            for values in self.rows_of_arguments(calls, source, given)? {
                let row = values.chunks(3).map(|values| self.set_config(values));
                rows.push(row.collect::<Result<Vec<_>, _>>()?);
            }
            let count = rows.len() as u64;
            return Ok(Outcome { count, columns: columns(), rows, ..Outcome::tagged(format!("SELECT {count}")) });
        }
        let mut row = Vec::new();
        for call in calls {
            row.push(match (call.function, &self.arguments(call, given)?[..]) {
                (Function::SetConfig, values) => self.set_config(values)?,
                (Function::Reload, _) => {
                    // As in PostgreSQL, what is wrong in the files keeps the server as it is.
                    let reloaded = self.reload_configuration();
                    match reloaded {
                        Err(error) if error.state() == SqlState::INSUFFICIENT_PRIVILEGE => return Err(error),
                        ended => OwnedDatum::Plain(Datum::Bool(ended.is_ok())),
                    }
                }
            });
        }
        Ok(Outcome { count: 1, columns: columns(), rows: vec![row], ..Outcome::tagged("SELECT 1") })
    }

    /// The arguments of the calls for each row of the query that they stand in.
    fn rows_of_arguments(
        &mut self,
        calls: &[SessionCall],
        source: &ast::Query,
        given: Parameters<'_>,
    ) -> Result<Vec<Vec<OwnedDatum>>, SqlError> {
        if calls.iter().any(|call| call.arguments.len() != 3) {
            return Err(SqlError::unsupported("set_config with other than three arguments, of rows"));
        }
        if self.session.is_planned() {
            return Err(self.needs_block("set_config of rows"));
        }
        let was_open = self.session.is_open();
        let query = ast::Statement::Query(Box::new(source.clone()));
        let outcome = self.run(&query, given);
        if !was_open {
            match &outcome {
                Ok(_) => drop(self.commit()?),
                Err(_) => {
                    self.session.roll_back();
                    self.finish_definitions();
                }
            }
        }
        Ok(outcome?.rows)
    }

    fn arguments(&self, call: &SessionCall, given: Parameters<'_>) -> Result<Vec<OwnedDatum>, SqlError> {
        let catalog = self.catalog();
        let mut binder = Binder::new(&catalog, given.types, self.session.drawn());
        let bound = call.bind(&mut binder)?;
        if binder.parameters.len() > given.values.len() {
            let message = format!("there is no parameter ${}", given.values.len() + 1);
            return Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, message));
        }
        let arena = Bump::new();
        let at = self.session.now().unwrap_or_else(now);
        let context = Context { now: Now::At(at), parameters: given.values, ..Context::of(&arena, &self.zone) };
        bound.iter().map(|expr| expr.eval(&[], &context).map(|value| value.owned())).collect()
    }

    fn set_config(&mut self, values: &[OwnedDatum]) -> Result<OwnedDatum, SqlError> {
        let null = || SqlError::new(SqlState::NULL_NOT_ALLOWED, "SET requires parameter name");
        let [name, value, is_local] = values else { return Err(SqlError::internal("set_config has three arguments")) };
        let Datum::Text(name) = name.get() else { return Err(null()) };
        let name = name.to_lowercase();
        let is_local = matches!(is_local.get(), Datum::Bool(true));
        let text = match value.get() {
            Datum::Text(text) => Some(text),
            _ => None,
        };
        if let Some(switch) = Switch::of_setting(&name, text, is_local) {
            let user = self.switched(&switch)?;
            let to = if switch.is_of_session { user.session.1 } else { switch.to.unwrap_or_else(|| "none".to_owned()) };
            if !is_local || self.session.is_explicit() {
                self.set_text(&name, &to, is_local)?;
            }
            return Ok(OwnedDatum::Text(to.into()));
        }
        let mut probe = self.settings();
        match text {
            Some(text) => probe.set(&name, text)?,
            None => probe.take(&name, &self.initial_settings())?,
        }
        let shown = probe.shown(&name).unwrap_or_default();
        // What is local to a transaction of its own is nothing afterwards.
        if !is_local || self.is_in_block() {
            self.set_text(&name, &shown, is_local)?;
        }
        Ok(OwnedDatum::Text(shown.into()))
    }
}

impl SessionCall {
    fn bind(&self, binder: &mut Binder<'_>) -> Result<Vec<crate::expr::Expr>, SqlError> {
        let wanted: &[Type] = match self.function {
            Function::SetConfig => &[Type::Text, Type::Text, Type::Bool],
            Function::Reload => &[],
        };
        if self.arguments.len() != wanted.len() {
            let mut types = Vec::new();
            for argument in &self.arguments {
                types.push(binder.expr(argument)?.base());
            }
            let types: Vec<_> = types.iter().map(|of| of.name()).collect();
            let message = format!("function {}({}) does not exist", self.function.name(), types.join(", "));
            return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message));
        }
        let arguments = self.arguments.iter().zip(wanted).map(|(argument, of)| {
            let bound = binder.expr(argument)?;
            Ok(binder.cast(bound, (*of).into(), Place::Implicit)?.expr)
        });
        arguments.collect()
    }
}
