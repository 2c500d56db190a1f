//! Bodies of procedures: the tree of a text becomes steps.
//!
//! What is wrong with the statements of SQL in PL/pgSQL is an error of the execution that comes to them, as in PostgreSQL; what is wrong with anything else is one of the definition.

use std::sync::Arc;

use polychron_base::TableId;
use sqlparser::ast;

use super::Binder;
use super::records::Records;
use super::variables::{Field, Variable, Variables, What};
use crate::casts::{self, Place};
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::finish::finished;
use crate::plan::Plan;
use crate::procedures::statements::{Block, Into as Targets, Kind, Raise, Statement, Target};
use crate::procedures::tree::{Act, Destination, Put, Query, Raising, Routine, Slot, Step, Value};
use crate::procedures::{Language, Procedure, parse};
use crate::statement::Action;
use crate::types::{ColumnType, Type};

/// Binds one body.
pub(super) struct Compiler<'p, 'b, 'c> {
    pub(super) binder: &'b mut Binder<'c>,
    /// The procedures whose bodies are bound, this one and those that it calls among them.
    pending: &'p mut Vec<Arc<Procedure>>,
    pub(super) entries: Vec<Variable>,
    slots: Vec<Slot>,
    /// The blocks and loops around, the innermost one last.
    pub(super) around: Vec<Around>,
    is_sql: bool,
    /// What its first statement that changes rows is called.
    changes: Option<&'static str>,
    /// Why something could not be found out now: the open transaction has to stand aside. It is no error of a step.
    interrupted: Option<SqlError>,
}

/// A block or a loop that can be left.
pub(super) struct Around {
    label: Option<String>,
    id: usize,
    is_loop: bool,
    /// What the records have where it is left, or its next round begins.
    pub(super) exits: Vec<Records>,
}

pub(super) fn syntax(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, message.into())
}

/// The outcome of binding a statement of SQL: its error is one of the execution.
fn or_failing(bound: Result<Act, SqlError>) -> Act {
    bound.unwrap_or_else(Act::Fail)
}

impl Binder<'_> {
    /// The value as one of a variable: where there is no cast, its text is read.
    pub(super) fn put(&mut self, value: Typed, of: ColumnType) -> Result<Expr, SqlError> {
        let has_cast = casts::find(value.base(), of.base, Place::Assignment).is_some();
        if has_cast || value.base() == Type::Unknown {
            return Ok(self.cast(value, of, Place::Assignment)?.expr);
        }
        Ok(self.cast(super::expressions::written(value), of, Place::Explicit)?.expr)
    }

    /// A plan that has parameters for variables.
    fn plan_in_body(&mut self, statement: &ast::Statement) -> Result<Plan, SqlError> {
        match self.statement(statement)? {
            Some(Action::Run(plan)) => Ok(finished(plan)),
            _ => {
                let words: Vec<_> = statement.to_string().split_whitespace().take(2).map(str::to_owned).collect();
                Err(SqlError::unsupported(format!("the statement {} in a procedure", words.join(" "))))
            }
        }
    }
}

/// Binds the body of a procedure: its steps, and what its first statement that changes rows is called.
pub(super) fn compile(
    binder: &mut Binder<'_>,
    pending: &mut Vec<Arc<Procedure>>,
    procedure: &Procedure,
) -> Result<(Routine, Option<&'static str>), SqlError> {
    let is_sql = procedure.language != Language::PlPgSql;
    let (entries, slots, around) = (Vec::new(), vec![Slot::default()], Vec::new());
    let mut compiler = Compiler { binder, pending, entries, slots, around, is_sql, changes: None, interrupted: None };
    let mut routine = Routine::default();
    compiler.parameters(procedure, &mut routine);
    if is_sql {
        routine.title = format!("SQL function \"{}\"", procedure.name);
        routine.body = compiler.sql_body(procedure, &routine.outputs)?;
    } else {
        routine.title = format!("PL/pgSQL function {}", procedure.signature());
        let block = parse::plpgsql_body(&procedure.body)?;
        let act = compiler.block(&block)?;
        routine.body = vec![Step { line: 1, act }];
    }
    if let Some(error) = compiler.interrupted {
        return Err(error);
    }
    routine.slots = compiler.slots;
    Ok((routine, compiler.changes))
}

// Statements nest. What is not inlined does not add to the stack of those that are around others.
impl Compiler<'_, '_, '_> {
    pub(super) fn new_slot(&mut self, required: Option<String>) -> usize {
        self.slots.push(Slot { required });
        self.slots.len() - 1
    }

    pub(super) fn declare(&mut self, label: Option<&Arc<str>>, name: &str, field: Field, is_constant: bool) {
        let (label, name) = (label.cloned(), name.to_owned());
        self.entries.push(Variable { label, name, what: What::Value(field), is_constant });
    }

    fn parameters(&mut self, procedure: &Procedure, routine: &mut Routine) {
        let label: Arc<str> = procedure.name.plain().into();
        if !self.is_sql {
            let field = Field { name: "found".to_owned(), slot: crate::procedures::tree::FOUND, of: Type::Bool.into() };
            self.declare(None, "found", field, false);
        }
        let mut number = 0;
        for parameter in &procedure.parameters {
            let slot = self.new_slot(None);
            let field = |name: &str| Field { name: name.to_owned(), slot, of: parameter.of.into() };
            if parameter.is_input() {
                routine.inputs.push(slot);
            }
            if parameter.is_output() {
                routine.outputs.push(slot);
            }
            if self.is_sql && !parameter.is_input() {
                continue;
            }
            number += 1;
            let dollar = format!("${number}");
            self.declare(None, &dollar, field(&dollar), false);
            if let Some(name) = &parameter.name {
                self.declare(Some(&label), name, field(name), false);
            }
        }
    }

    /// Binds something that sees the variables, and tells which of them it uses.
    fn bind<O>(
        &mut self,
        bind: impl FnOnce(&mut Binder<'_>) -> Result<O, SqlError>,
    ) -> Result<(O, Vec<usize>), SqlError> {
        let mut binder = Binder::new(self.binder.catalog.catalog, &[], &self.binder.drawn);
        let entries = std::mem::take(&mut self.entries);
        binder.variables = Some(Variables { entries, used: Vec::new(), are_hidden: self.is_sql });
        let bound = bind(&mut binder);
        let variables = binder.variables.take().unwrap_or_default();
        self.entries = variables.entries;
        let used: Vec<TableId> = binder.catalog.used.take();
        self.binder.catalog.used.borrow_mut().extend(used);
        self.binder.catalog.needs.borrow_mut().extend(binder.catalog.needs.take());
        if let Err(error) = &bound
            && error.is_from_inside()
        {
            self.interrupted.get_or_insert_with(|| error.clone());
        }
        if binder.catalog.is_live.get() {
            // A body is bound once and run often.
            return Err(SqlError::unsupported(
                "what holds only now (current_setting, and relations that show what goes on), in the body of a procedure",
            ));
        }
        bound.map(|bound| (bound, variables.used))
    }

    #[inline(never)]
    pub(super) fn value(&mut self, expr: &ast::Expr, of: ColumnType) -> Value {
        let bound = self.bind(|binder| {
            let typed = binder.expr(expr)?;
            binder.put(typed, of)
        });
        match bound {
            Ok((expr, uses)) => Value { expr: Ok(expr), uses },
            Err(error) => Value { expr: Err(error), uses: Vec::new() },
        }
    }

    /// The value in words, or NULL.
    #[inline(never)]
    fn shown(&mut self, expr: &ast::Expr) -> Value {
        let bound = self.bind(|binder| {
            let typed = binder.expr(expr)?;
            let typed = binder.known(typed)?;
            Ok(super::expressions::shown(typed))
        });
        match bound {
            Ok((expr, uses)) => Value { expr: Ok(expr), uses },
            Err(error) => Value { expr: Err(error), uses: Vec::new() },
        }
    }

    #[inline(never)]
    fn query(&mut self, statement: &ast::Statement) -> Result<Query, SqlError> {
        let (plan, uses) = self.bind(|binder| binder.plan_in_body(statement))?;
        if !matches!(plan, Plan::Query { .. }) {
            self.changes.get_or_insert(plan.verb());
        }
        Ok(Query { plan, uses })
    }

    /// The statements of a body in SQL; the last one gives the outputs.
    fn sql_body(&mut self, procedure: &Procedure, outputs: &[usize]) -> Result<Vec<Step>, SqlError> {
        let statements = parse::sql_body(&procedure.body)?;
        let mismatch = |detail: String| {
            let message = "return type mismatch in function declared to return record";
            SqlError::new(SqlState::INVALID_FUNCTION_DEFINITION, message).with_detail(detail)
        };
        let no_rows =
            || mismatch("Function's final statement must be SELECT or INSERT/UPDATE/DELETE RETURNING.".into());
        let mut steps = Vec::new();
        for (line, statement) in (1..).zip(&statements) {
            let act = match statement {
                ast::Statement::Call(_) if procedure.language == Language::Atomic => {
                    let message = "CALL is not yet supported in unquoted SQL function body";
                    return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
                }
                ast::Statement::Call(call) => self.call(call)?,
                other => Act::Run { query: self.query(other)?.into(), into: Destination::Nowhere },
            };
            steps.push(Step { line, act });
        }
        if outputs.is_empty() {
            return Ok(steps);
        }
        let Some(Step { act: Act::Run { query, into }, .. }) = steps.last_mut() else { return Err(no_rows()) };
        let columns = query.plan.columns();
        match columns.len().cmp(&outputs.len()) {
            _ if columns.is_empty() => return Err(no_rows()),
            std::cmp::Ordering::Less => return Err(mismatch("Final statement returns too few columns.".into())),
            std::cmp::Ordering::Greater => return Err(mismatch("Final statement returns too many columns.".into())),
            std::cmp::Ordering::Equal => {}
        }
        let mut puts = Vec::new();
        for (at, (slot, parameter)) in outputs.iter().zip(procedure.outputs()).enumerate() {
            let (from, to) = (columns[at].of.base, parameter.of);
            if casts::find(from, to, Place::Assignment).is_none() {
                let number = at + 1;
                return Err(mismatch(format!("Final statement returns {from} instead of {to} at column {number}.")));
            }
            let value = Typed::new(Expr::Column(at), columns[at].of);
            puts.push(Put { slot: *slot, expr: self.binder.put(value, to.into())? });
        }
        *into = Destination::Outputs(puts);
        Ok(steps)
    }

    #[inline(never)]
    fn block(&mut self, block: &Block) -> Result<Act, SqlError> {
        let (entries, mut body) = (self.entries.len(), Vec::new());
        let label: Option<Arc<str>> = block.label.as_deref().map(Arc::from);
        for declaration in &block.declarations {
            let is_twice = self.entries[entries..].iter().any(|it| it.name == declaration.name);
            if is_twice {
                return Err(syntax(format!("duplicate declaration at or near \"{}\"", declaration.name)));
            }
            self.declaration(label.as_ref(), declaration, &mut body)?;
        }
        let id = self.enter(block.label.clone(), false);
        let statements = self.statements(&block.body);
        let exits = self.around.pop().map(|it| it.exits).unwrap_or_default();
        body.extend(statements?);
        self.join_records(&exits);
        self.entries.truncate(entries);
        Ok(Act::Block { id, body })
    }

    /// Notes a block or a loop that is around what follows.
    pub(super) fn enter(&mut self, label: Option<String>, is_loop: bool) -> usize {
        // Numbers of those that are around each other differ.
        let id = self.around.len();
        self.around.push(Around { label, id, is_loop, exits: Vec::new() });
        id
    }

    /// The variable of this name, and whether it is a constant.
    pub(super) fn find(&mut self, first: Option<&str>, name: &str) -> Result<Option<(Field, bool)>, SqlError> {
        let variables = Variables { entries: std::mem::take(&mut self.entries), ..Variables::default() };
        let found = variables.find(first, name).map(|it| it.map(|(of, field)| (field.clone(), of.is_constant)));
        self.entries = variables.entries;
        found
    }

    /// The variable that a statement changes.
    #[inline(never)]
    pub(super) fn target(&mut self, target: &[String]) -> Result<Field, SqlError> {
        let found = match target {
            [name] => self.find(None, name)?,
            [first, name] => self.find(Some(first), name)?,
            _ => None,
        };
        match found {
            Some((field, false)) => Ok(field),
            Some((_, true)) => {
                let message = format!("variable \"{}\" is declared CONSTANT", target.join("."));
                Err(SqlError::new(SqlState("22005"), message))
            }
            None => Err(syntax(format!("\"{}\" is not a known variable", target.join(".")))),
        }
    }

    pub(super) fn statements(&mut self, statements: &[Statement]) -> Result<Vec<Step>, SqlError> {
        let step = |it: &Statement| Ok(Step { line: it.line, act: self.act(&it.kind)? });
        statements.iter().map(step).collect()
    }

    fn act(&mut self, kind: &Kind) -> Result<Act, SqlError> {
        Ok(match kind {
            Kind::Nothing => Act::Nothing,
            Kind::Return => Act::Return,
            Kind::Block(block) => self.block(block)?,
            Kind::Assign { target, value } => {
                if self.record(std::slice::from_ref(target)).is_some() {
                    return Err(SqlError::unsupported("an assignment to a record"));
                }
                let field = self.target(target)?;
                Act::Set { slot: field.slot, value: self.value(value, field.of), is_initial: false }
            }
            Kind::If { branches, otherwise } => {
                let before = self.records();
                let mut after = Vec::new();
                let branch = |(condition, body): &(ast::Expr, Vec<Statement>)| {
                    self.set_records(&before);
                    let branch = (self.value(condition, Type::Bool.into()), self.statements(body)?);
                    after.push(self.records());
                    Ok(branch)
                };
                let branches = branches.iter().map(branch).collect::<Result<_, SqlError>>()?;
                self.set_records(&before);
                let otherwise = self.statements(otherwise)?;
                self.join_records(&after);
                Act::If { branches, otherwise }
            }
            Kind::Loop { label, condition, body } => {
                let (id, body) = self.loop_body(label.as_ref(), body, None)?;
                // It is bound to what the records have at the beginning of each round.
                let condition = condition.as_ref().map(|it| self.value(it, Type::Bool.into()));
                Act::Loop { id, condition, body }
            }
            Kind::Range { .. } => self.range(kind)?,
            Kind::Rows { label, targets, query, body } => self.rows(label.as_ref(), targets, query, body)?,
            Kind::Leave { label, is_continue, when } => self.leave(label.as_deref(), *is_continue, when.as_ref())?,
            Kind::Raise(raise) => self.raise(raise),
            Kind::Perform(query) => {
                let discard = |query: Query| Act::Run { query: query.into(), into: Destination::Nowhere };
                or_failing(self.query(query).map(discard))
            }
            Kind::Run { statement, into } => self.run(statement, into.as_ref())?,
            Kind::CountRows(target) => {
                let field = self.target(target)?;
                let expr = self.binder.put(Typed::new(Expr::Column(0), Type::Int8), field.of)?;
                Act::CountRows(Put { slot: field.slot, expr })
            }
        })
    }

    #[inline(never)]
    fn range(&mut self, kind: &Kind) -> Result<Act, SqlError> {
        let Kind::Range { label, variable, is_reverse, bounds, body } = kind else { return Ok(Act::Nothing) };
        let of = ColumnType::from(Type::Int4);
        let bounds = bounds.each_ref().map(|bound| self.value(bound, of)).into();
        let (entries, slot) = (self.entries.len(), self.new_slot(None));
        let name: Option<Arc<str>> = label.as_deref().map(Arc::from);
        self.declare(name.as_ref(), variable, Field { name: variable.clone(), slot, of }, false);
        let body = self.loop_body(label.as_ref(), body, None);
        self.entries.truncate(entries);
        let (id, body) = body?;
        Ok(Act::Range { id, slot, is_reverse: *is_reverse, bounds, body })
    }

    #[inline(never)]
    fn rows(
        &mut self,
        label: Option<&String>,
        targets: &[Target],
        query: &ast::Statement,
        body: &[Statement],
    ) -> Result<Act, SqlError> {
        let record = self.record(targets);
        if record.is_none() {
            for target in targets {
                self.target(target).map_err(|error| match error.state() {
                    SqlState::SYNTAX_ERROR => {
                        let message =
                            "loop variable of loop over rows must be a record variable or list of scalar variables";
                        syntax(message)
                    }
                    _ => error,
                })?;
            }
        }
        let query = match self.query(query) {
            Ok(query) if query.plan.columns().is_empty() => {
                return Ok(Act::Fail(syntax(format!("cannot open {} query as cursor", query.plan.verb()))));
            }
            Ok(query) => query,
            Err(error) => return Ok(Act::Fail(error)),
        };
        let puts = match self.puts(targets, query.plan.columns()) {
            Ok(puts) => puts,
            Err(error) => return Ok(Act::Fail(error)),
        };
        let row = record.map(|at| (at, self.state(at)));
        let (id, body) = self.loop_body(label, body, row)?;
        Ok(Act::Rows { id, query: query.into(), puts, body })
    }

    #[inline(never)]
    fn leave(&mut self, label: Option<&str>, is_continue: bool, when: Option<&ast::Expr>) -> Result<Act, SqlError> {
        let word = if is_continue { "CONTINUE" } else { "EXIT" };
        let found = match label {
            None => self.around.iter().rposition(|it| it.is_loop),
            Some(label) => self.around.iter().rposition(|it| it.label.as_deref() == Some(label)),
        };
        let Some(found) = found else {
            return Err(match label {
                Some(label) => syntax(format!(
                    "there is no label \"{label}\" attached to any block or loop enclosing this statement"
                )),
                None if is_continue => syntax("CONTINUE cannot be used outside a loop"),
                None => syntax(format!("{word} cannot be used outside a loop, unless it has a label")),
            });
        };
        if is_continue && !self.around[found].is_loop {
            let label = label.unwrap_or_default();
            return Err(syntax(format!("block label \"{label}\" cannot be used in CONTINUE")));
        }
        let (when, records) = (when.map(|when| self.value(when, Type::Bool.into())), self.records());
        let around = &mut self.around[found];
        around.exits.push(records);
        Ok(Act::Leave { id: around.id, is_continue, when })
    }

    #[inline(never)]
    fn raise(&mut self, raise: &Raise) -> Act {
        Act::Raise(Box::new(Raising {
            level: raise.level,
            condition: raise.condition.clone(),
            format: raise.format.clone(),
            values: raise.values.iter().map(|value| self.shown(value)).collect(),
            options: raise.options.iter().map(|(option, value)| (*option, self.shown(value))).collect(),
        }))
    }

    /// A statement of SQL, whose row goes to variables.
    #[inline(never)]
    fn run(&mut self, statement: &ast::Statement, into: Option<&Targets>) -> Result<Act, SqlError> {
        if let ast::Statement::Call(call) = statement {
            return match into {
                None => Ok(or_failing(self.call(call))),
                Some(_) => Err(syntax("syntax error at or near \"INTO\"")),
            };
        }
        let targets = into.map_or(&[][..], |into| &into.targets);
        if self.record(targets).is_none() {
            targets.iter().try_for_each(|target| self.target(target).map(drop))?;
        }
        let query = match self.query(statement) {
            Ok(query) => query,
            // What is not there is refused when the procedure is defined.
            Err(error) if error.state() == SqlState::FEATURE_NOT_SUPPORTED => return Err(error),
            Err(error) => return Ok(Act::Fail(error)),
        };
        let has_rows = !query.plan.columns().is_empty();
        let into = match into {
            None if has_rows => {
                let error = syntax("query has no destination for result data");
                let hint = "If you want to discard the results of a SELECT, use PERFORM instead.";
                let is_query = matches!(query.plan, Plan::Query { .. });
                return Ok(Act::Fail(if is_query { error.with_hint(hint) } else { error }));
            }
            Some(_) if !has_rows => return Ok(Act::Fail(syntax("INTO used with a command that cannot return data"))),
            None => Destination::Nowhere,
            Some(into) => match self.puts(&into.targets, query.plan.columns()) {
                Ok(puts) => Destination::Variables { puts, is_strict: into.is_strict },
                Err(error) => return Ok(Act::Fail(error)),
            },
        };
        Ok(Act::Run { query: query.into(), into })
    }

    /// A call of a procedure, whose outputs go to the variables that are its arguments.
    #[inline(never)]
    fn call(&mut self, call: &ast::Function) -> Result<Act, SqlError> {
        let ((procedure, inputs, outputs), uses) = self.bind(|binder| {
            let procedure = binder.called(call)?;
            let (inputs, outputs) = binder.call_arguments(&procedure, call)?;
            Ok((procedure, inputs, outputs))
        })?;
        if self.is_sql && !outputs.is_empty() {
            let message = "calling procedures with output arguments is not supported in SQL functions";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let mut puts = Vec::new();
        for (at, (output, parameter)) in outputs.iter().zip(procedure.outputs()).enumerate() {
            let target: Option<Target> = match output {
                Some(ast::Expr::Identifier(name)) => Some(vec![super::folded(name)]),
                Some(ast::Expr::CompoundIdentifier(names)) => Some(names.iter().map(super::folded).collect()),
                _ => None,
            };
            let field = target.and_then(|target| self.target(&target).ok());
            let Some(field) = field else {
                let name = procedure.output_name(at);
                return Err(syntax(format!(
                    "procedure parameter \"{name}\" is an output parameter but corresponding argument is not writable"
                )));
            };
            let expr = self.binder.put(Typed::new(Expr::Column(at), parameter.of), field.of)?;
            puts.push(Put { slot: field.slot, expr });
        }
        let routine = match self.pending.iter().position(|it| it.name == procedure.name) {
            Some(known) => known,
            None => {
                self.pending.push(procedure);
                self.pending.len() - 1
            }
        };
        let arguments = inputs.into_iter().map(|expr| Value { expr: Ok(expr), uses: uses.clone() }).collect();
        Ok(Act::Call { routine, arguments, puts })
    }
}
