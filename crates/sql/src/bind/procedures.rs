//! CREATE PROCEDURE, DROP PROCEDURE and CALL.

use std::sync::Arc;

use sqlparser::ast;

use super::{Binder, Written, folded};
use crate::casts::{self, Place};
use crate::catalog::Object;
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::outcome::Notice;
use crate::plan::{OutputColumn, Plan};
use crate::procedures::tree::{Act, Routine, Step};
use crate::procedures::{self, Call, Language, Mode, Parameter, Procedure, Unit};
use crate::roles::{Access, bits};
use crate::statement::{Action, Definition, NewObject};
use crate::types::Type;

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_FUNCTION_DEFINITION, message.into())
}

/// Inputs of a call, and the arguments that stand where its outputs are.
type Arguments<'e> = (Vec<Expr>, Vec<Option<&'e ast::Expr>>);

impl Binder<'_> {
    /// The plan of a statement that reads or changes rows. `None`: it is another one.
    pub(crate) fn statement(&mut self, statement: &ast::Statement) -> Result<Option<Action>, SqlError> {
        Ok(Some(match statement {
            ast::Statement::Query(query) => Action::Run(self.query_or_change(query)?),
            ast::Statement::Merge(merge) => {
                let plan = self.merge(merge)?;
                Action::Run(self.change_alone(plan))
            }
            ast::Statement::Insert(insert) => {
                let plan = self.insert(insert)?;
                Action::Run(self.change_alone(plan))
            }
            ast::Statement::Update(update) => {
                let plan = self.update(update)?;
                Action::Run(self.change_alone(plan))
            }
            ast::Statement::Delete(delete) => {
                let plan = self.delete(delete)?;
                Action::Run(self.change_alone(plan))
            }
            ast::Statement::Truncate(truncate) => self.truncate(truncate)?,
            ast::Statement::Lock(lock) => Action::Run(self.lock(lock)?),
            ast::Statement::Call(call) => Action::Run(self.call_plan(call)?),
            _ => return Ok(None),
        }))
    }

    /// What CREATE FUNCTION defines, if its name is marked as that of a procedure.
    pub(crate) fn create_procedure(&mut self, create: &ast::CreateFunction) -> Result<Option<Definition>, SqlError> {
        let written = Written::of(&create.name)?;
        let Some(name) = written.name.strip_prefix(procedures::MARK) else { return Ok(None) };
        let name = self.catalog.new_name(&Written { name: name.to_owned(), ..written })?;
        if name.is_temporary() {
            return Err(SqlError::unsupported("a temporary procedure"));
        }
        let key = procedures::key(&name);
        check_clauses(create)?;
        let (body, is_atomic) = body_of(create)?;
        let language = match (&create.language, is_atomic) {
            (None, true) => Language::Atomic,
            (None, false) => return Err(invalid("no language specified")),
            (Some(language), _) => match (folded(language).to_lowercase().as_str(), is_atomic) {
                ("sql", true) => Language::Atomic,
                ("sql", false) => Language::Sql,
                ("plpgsql", false) => Language::PlPgSql,
                ("plpgsql", true) => {
                    return Err(invalid("inline SQL function body only valid for language SQL"));
                }
                (other @ ("c" | "internal"), _) => {
                    return Err(SqlError::unsupported(format!("the language {other}")));
                }
                (other, _) => {
                    let message = format!("language \"{other}\" does not exist");
                    return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
                }
            },
        };
        let parameters = self.parameters(create.args.as_deref().unwrap_or_default())?;
        let mut procedure = Procedure { name, parameters, language, body, access: Access::default() };
        if let Some(Object::Procedure(old)) = self.catalog.object(&key)? {
            check_replaced(&old, &procedure, create.or_replace)?;
            self.catalog.check_owner(&Object::Procedure(old.clone()))?;
            procedure.access = old.access.clone();
        }
        // Its body is bound for what is wrong with it.
        super::bodies::compile(self, &mut vec![Arc::new(procedure.clone())], &procedure)?;
        let mut definition = Definition::new("CREATE PROCEDURE");
        definition.set_object(&key, Some(NewObject::Procedure(procedure)));
        Ok(Some(definition))
    }

    fn parameters(&mut self, arguments: &[ast::OperateFunctionArg]) -> Result<Vec<Parameter>, SqlError> {
        let mut parameters: Vec<Parameter> = Vec::new();
        for argument in arguments {
            let mode = match argument.mode {
                None | Some(ast::ArgMode::In) => Mode::In,
                Some(ast::ArgMode::Out) => Mode::Out,
                Some(ast::ArgMode::InOut) => Mode::InOut,
                #[allow(unreachable_patterns, reason = "other versions of the parser have more")]
                Some(_) => return Err(SqlError::unsupported("VARIADIC")),
            };
            let name = argument.name.as_ref().map(folded);
            if let Some(name) = &name
                && parameters.iter().any(|own| own.name.as_ref() == Some(name))
            {
                return Err(invalid(format!("parameter name \"{name}\" used more than once")));
            }
            let of = self.catalog.usable_type(&argument.data_type).map_err(|error| match error.state() {
                SqlState::UNDEFINED_OBJECT => SqlError::new(error.state(), error.message().replace('"', "")),
                _ => error,
            })?;
            let has_default = argument.default_expr.is_some();
            if mode == Mode::Out && parameters.iter().any(|own| own.default.is_some()) {
                return Err(invalid("procedure OUT parameters cannot appear after one with a default value"));
            }
            if has_default && mode == Mode::Out {
                return Err(invalid("only input parameters can have default values"));
            }
            if !has_default && mode != Mode::Out && parameters.iter().any(|own| own.default.is_some()) {
                return Err(invalid("input parameters after one with a default value must also have defaults"));
            }
            if let Some(default) = &argument.default_expr {
                let value = self.expr(default)?;
                self.cast(value, of.base.into(), Place::Assignment)?;
            }
            let default = argument.default_expr.as_ref().map(ToString::to_string);
            parameters.push(Parameter { name, mode, of: of.base, default });
        }
        Ok(parameters)
    }

    pub(crate) fn drop_procedures(
        &mut self,
        all: &[ast::FunctionDesc],
        may_be_missing: bool,
    ) -> Result<Definition, SqlError> {
        let mut definition = Definition::new("DROP PROCEDURE");
        for named in all {
            let written = Written::of(&named.name)?;
            if !may_be_missing {
                self.catalog.check_schema(&written)?;
            }
            let found = self.catalog.written_procedure(&written)?;
            let name = &written;
            let mut types = None;
            if let Some(arguments) = &named.args {
                let given = arguments.iter().filter(|it| !matches!(it.mode, Some(ast::ArgMode::Out)));
                let given = given.map(|it| self.catalog.column_type(&it.data_type).map(|of| of.base));
                types = Some(given.collect::<Result<Vec<_>, _>>()?);
            }
            let is_meant = |procedure: &Arc<Procedure>| {
                let has_types = |types: &Vec<Type>| procedure.inputs().map(|it| it.of).eq(types.iter().copied());
                types.as_ref().is_none_or(has_types)
            };
            if let Some(found) = found.filter(is_meant) {
                self.catalog.check_dropper(&Object::Procedure(found.clone()), &found.name)?;
                definition.set_object(&procedures::key(&found.name), None);
                continue;
            }
            let names = |of: &dyn Fn(&Type) -> String| types.iter().flatten().map(of).collect::<Vec<_>>().join(", ");
            if may_be_missing {
                // Names that are no keywords are shown as they were written.
                let words = names(&|of| match of {
                    Type::Text | Type::Date | Type::Uuid | Type::Bytea | Type::Json | Type::Jsonb => {
                        of.name().to_owned()
                    }
                    of => format!("pg_catalog.{}", of.internal_name()),
                });
                let words = words.replace(", ", ",");
                let message = format!("procedure {name}({words}) does not exist, skipping");
                definition.notices.push(Notice::remark(SqlState::SUCCESS, message));
                continue;
            }
            let message = match &types {
                Some(_) => format!("procedure {name}({}) does not exist", names(&|of| of.name().to_owned())),
                None => format!("could not find a procedure named \"{name}\""),
            };
            return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message));
        }
        Ok(definition)
    }

    /// The procedure that a call names.
    pub(super) fn called(&mut self, call: &ast::Function) -> Result<Arc<Procedure>, SqlError> {
        let written = Written::of(&call.name)?;
        self.catalog.check_schema(&written)?;
        match self.catalog.written_procedure(&written)? {
            Some(procedure) => Ok(procedure),
            None => Err(self.no_procedure(&written.to_string(), call)),
        }
    }

    /// That no procedure takes these arguments.
    #[cold]
    fn no_procedure(&mut self, name: &str, call: &ast::Function) -> SqlError {
        let mut words = Vec::new();
        for given in given(call).unwrap_or_default() {
            match self.expr(given.1) {
                Ok(value) => {
                    let of = value.base();
                    words.push(given.0.map_or(of.name().to_owned(), |name| format!("{name} => {of}")));
                }
                Err(error) => return error,
            }
        }
        let message = format!("procedure {name}({}) does not exist", words.join(", "));
        SqlError::new(SqlState::UNDEFINED_FUNCTION, message).with_hint(
            "No procedure matches the given name and argument types. You might need to add explicit type casts.",
        )
    }

    /// The values of the inputs of a call, and what stands where its outputs are.
    pub(super) fn call_arguments<'e>(
        &mut self,
        procedure: &Procedure,
        call: &'e ast::Function,
    ) -> Result<Arguments<'e>, SqlError> {
        let arguments = given(call)?;
        let mut slots: Vec<Option<&'e ast::Expr>> = vec![None; procedure.parameters.len()];
        for (at, (name, expr)) in arguments.iter().enumerate() {
            let found = match name {
                None => (at < slots.len()).then_some(at),
                Some(name) => procedure.parameters.iter().position(|own| own.name.as_ref() == Some(name)),
            };
            let Some(slot) = found.map(|at| &mut slots[at]).filter(|slot| slot.is_none()) else {
                return Err(self.no_procedure(&Written::of(&call.name)?.to_string(), call));
            };
            *slot = Some(expr);
        }
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for (parameter, given) in procedure.parameters.iter().zip(&slots) {
            if parameter.is_output() {
                outputs.push(*given);
            }
            match (given, &parameter.default) {
                (None, None) => return Err(self.no_procedure(&Written::of(&call.name)?.to_string(), call)),
                (Some(expr), _) => {
                    let value = self.expr(expr)?;
                    let is_castable = casts::find(value.base(), parameter.of, Place::Implicit).is_some();
                    if !is_castable {
                        return Err(self.no_procedure(&Written::of(&call.name)?.to_string(), call));
                    }
                    let value = self.cast(value, parameter.of.into(), Place::Implicit)?.expr;
                    inputs.extend(parameter.is_input().then_some(value));
                }
                (None, Some(default)) => {
                    let expr = crate::parse::expression(default)?;
                    let bind = |binder: &mut Self| {
                        let value = binder.expr(&expr)?;
                        Ok(binder.cast(value, parameter.of.into(), Place::Assignment)?.expr)
                    };
                    inputs.push(self.without_variables(bind)?);
                }
            }
        }
        Ok((inputs, outputs))
    }

    /// A call of a client.
    fn call_plan(&mut self, call: &ast::Function) -> Result<Plan, SqlError> {
        let procedure = self.called(call)?;
        self.catalog.need(Object::Procedure(procedure.clone()), bits::EXECUTE);
        let (arguments, _) = self.call_arguments(&procedure, call)?;
        let unit = self.unit(&procedure)?;
        self.catalog.used.borrow_mut().extend(&unit.tables);
        self.catalog.needs.borrow_mut().extend(unit.needs.iter().cloned());
        let column = |(at, parameter): (usize, &Parameter)| OutputColumn::new(procedure.output_name(at), parameter.of);
        let columns = procedure.outputs().enumerate().map(column).collect();
        Ok(Plan::Call(Call { unit, arguments, columns }.into()))
    }

    /// A procedure with all that it may call. The connection keeps it as long as the catalog stays as it is.
    fn unit(&mut self, procedure: &Arc<Procedure>) -> Result<Arc<Unit>, SqlError> {
        let version = self.catalog.version;
        let is_shared = !self.catalog.is_changed;
        if let Some(known) = self.drawn.unit(&procedure.name, version).filter(|_| is_shared) {
            return Ok(known);
        }
        let before = (self.catalog.used.take(), self.catalog.needs.take());
        let (mut pending, mut unit) = (vec![procedure.clone()], Unit::default());
        while let Some(next) = pending.get(unit.routines.len()).cloned() {
            match super::bodies::compile(self, &mut pending, &next) {
                Ok((routine, changes)) => {
                    unit.changes = unit.changes.or(changes);
                    unit.routines.push(routine);
                }
                Err(error) if unit.routines.is_empty() || error.is_from_inside() => return Err(error),
                // It fails where it is called.
                Err(error) => {
                    let body = vec![Step { line: 1, act: Act::Fail(error) }];
                    unit.routines.push(Routine { title: next.signature(), body, ..Routine::default() });
                }
            }
        }
        unit.tables = self.catalog.used.replace(before.0);
        unit.needs = self.catalog.needs.replace(before.1);
        unit.tables.sort_unstable();
        unit.tables.dedup();
        let unit = Arc::new(unit);
        if is_shared {
            self.drawn.keep_unit(&procedure.name, version, &unit);
        }
        Ok(unit)
    }
}

/// The arguments of a call with the names that they are given.
fn given(call: &ast::Function) -> Result<Vec<(Option<String>, &ast::Expr)>, SqlError> {
    let ast::FunctionArguments::List(list) = &call.args else {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error: CALL needs parentheses"));
    };
    let is_plain = list.clauses.is_empty()
        && list.duplicate_treatment.is_none()
        && call.filter.is_none()
        && call.over.is_none()
        && call.null_treatment.is_none()
        && call.within_group.is_empty()
        && matches!(call.parameters, ast::FunctionArguments::None);
    if !is_plain {
        return Err(SqlError::unsupported(format!("CALL {call}")));
    }
    let mut all: Vec<(Option<String>, &ast::Expr)> = Vec::new();
    for argument in &list.args {
        let (name, expr) = match argument {
            ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => (None, expr),
            ast::FunctionArg::Named { name, arg: ast::FunctionArgExpr::Expr(expr), .. } => (Some(folded(name)), expr),
            ast::FunctionArg::ExprNamed {
                name: ast::Expr::Identifier(name),
                arg: ast::FunctionArgExpr::Expr(expr),
                ..
            } => (Some(folded(name)), expr),
            other => return Err(SqlError::unsupported(format!("the argument {other}"))),
        };
        if name.is_none() && all.iter().any(|(name, _)| name.is_some()) {
            let message = "positional argument cannot follow named argument";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        all.push((name, expr));
    }
    Ok(all)
}

/// Refuses what a definition says beside its parameters, language and body.
fn check_clauses(create: &ast::CreateFunction) -> Result<(), SqlError> {
    let invalid_attribute = || invalid("invalid attribute in procedure definition");
    if create.return_type.is_some() {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"RETURNS\""));
    }
    if create.behavior.is_some() || create.called_on_null.is_some() || create.parallel.is_some() {
        return Err(invalid_attribute());
    }
    if matches!(create.security, Some(ast::FunctionSecurity::Definer)) {
        return Err(SqlError::unsupported("SECURITY DEFINER"));
    }
    let has_more = create.temporary
        || create.or_alter
        || create.if_not_exists
        || create.using.is_some()
        || create.determinism_specifier.is_some()
        || create.options.is_some()
        || !create.set_params.is_empty()
        || create.remote_connection.is_some();
    if has_more {
        return Err(SqlError::unsupported("this form of CREATE PROCEDURE"));
    }
    Ok(())
}

/// The text of the body, and whether it stood between BEGIN ATOMIC and END.
fn body_of(create: &ast::CreateFunction) -> Result<(String, bool), SqlError> {
    let body = match &create.function_body {
        None => return Err(invalid("no function body specified")),
        Some(ast::CreateFunctionBody::AsBeforeOptions { body, link_symbol: None }) => body,
        Some(ast::CreateFunctionBody::AsAfterOptions(body)) => body,
        Some(_) => return Err(SqlError::unsupported("this form of a body")),
    };
    let ast::Expr::Value(value) = body else { return Err(SqlError::unsupported("this form of a body")) };
    match &value.value {
        ast::Value::DollarQuotedString(text) => {
            Ok((text.value.clone(), text.tag.as_deref() == Some(procedures::ATOMIC)))
        }
        ast::Value::SingleQuotedString(text) | ast::Value::EscapedStringLiteral(text) => Ok((text.clone(), false)),
        _ => Err(SqlError::unsupported("this form of a body")),
    }
}

/// Whether a procedure may come in the place of one of its name.
fn check_replaced(old: &Procedure, new: &Procedure, or_replace: bool) -> Result<(), SqlError> {
    if !old.inputs().map(|it| it.of).eq(new.inputs().map(|it| it.of)) {
        return Err(SqlError::unsupported(format!("a second procedure of the name \"{}\"", new.name)));
    }
    if !or_replace {
        let message = format!("function \"{}\" already exists with same argument types", new.name);
        return Err(SqlError::new(SqlState::DUPLICATE_FUNCTION, message));
    }
    let hint = format!("Use DROP PROCEDURE {} first.", old.signature());
    if old.outputs().next().is_some() != new.outputs().next().is_some() {
        return Err(invalid("cannot change whether a procedure has output parameters").with_hint(hint));
    }
    let outputs = |of: &Procedure| of.outputs().map(|it| (it.name.clone(), it.of)).collect::<Vec<_>>();
    if outputs(old) != outputs(new) {
        return Err(invalid("cannot change return type of existing function")
            .with_detail("Row type defined by OUT parameters is different.")
            .with_hint(hint));
    }
    for (old_input, new_input) in old.inputs().zip(new.inputs()) {
        if let Some(name) = &old_input.name
            && new_input.name.as_ref() != Some(name)
        {
            return Err(invalid(format!("cannot change name of input parameter \"{name}\"")).with_hint(hint));
        }
        if old_input.default.is_some() && new_input.default.is_none() {
            return Err(invalid("cannot remove parameter defaults from existing function").with_hint(hint));
        }
    }
    Ok(())
}
