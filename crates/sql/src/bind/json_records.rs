//! `json_to_record` and its like in FROM: rows of objects, with the columns that the alias defines.

use sqlparser::ast;

use super::joins::{Source, scope_of};
use super::{Binder, Scope, folded};
use crate::casts::Place;
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::functions::{Function, Unresolved, functions, no_function};
use crate::plan::Node;
use crate::types::{ColumnType, Type};

/// The type of the argument, and whether it has several rows, of a function that is one of these.
pub(super) fn form(name: &str) -> Option<(Type, bool)> {
    Some(match name {
        "json_to_record" => (Type::Json, false),
        "json_to_recordset" => (Type::Json, true),
        "jsonb_to_record" => (Type::Jsonb, false),
        "jsonb_to_recordset" => (Type::Jsonb, true),
        _ => return None,
    })
}

/// What an argument, and an item of one, are called that are none: they answer what they are given.
static CHECKS: &[Function] = functions! {
    "json_to_record"(Json) -> Json = |it, _| record(it[0]);
    "jsonb_to_record"(Jsonb) -> Jsonb = |it, _| record(it[0]);
    "json_to_recordset"(Json) -> Json = |it, _| match kind(it[0]) {
        "an array" => Ok(it[0]),
        kind => Err(invalid(format!("cannot call json_to_recordset on {kind}"))),
    };
    "jsonb_to_recordset"(Jsonb) -> Jsonb = |it, _| match kind(it[0]) {
        "an array" => Ok(it[0]),
        _ => Err(invalid("cannot call jsonb_to_recordset on a non-array".to_owned())),
    };
    "item of json_to_recordset"(Json) -> Json = |it, _| item(it[0], "json_to_recordset");
    "item of jsonb_to_recordset"(Jsonb) -> Jsonb = |it, _| item(it[0], "jsonb_to_recordset");
};

/// What a value is.
fn kind(value: Datum<'_>) -> &'static str {
    let (Datum::Json(text) | Datum::Text(text)) = value else { return "a scalar" };
    match text.trim_start().as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        _ => "a scalar",
    }
}

fn record(value: Datum<'_>) -> Result<Datum<'_>, SqlError> {
    match kind(value) {
        "an object" => Ok(value),
        kind => Err(invalid(format!("cannot call populate_composite on {kind}"))),
    }
}

fn item<'a>(value: Datum<'a>, function: &str) -> Result<Datum<'a>, SqlError> {
    match kind(value) {
        "an object" => Ok(value),
        _ => Err(invalid(format!("argument of {function} must be an array of objects"))),
    }
}

fn invalid(message: String) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// A value that is checked when it is evaluated.
fn checked(name: &str, value: Expr) -> Result<Expr, SqlError> {
    let check = CHECKS.iter().find(|check| check.name == name);
    let check = check.ok_or_else(|| SqlError::internal(format!("{name} has no check")))?;
    Ok(Expr::Call(check, [value].into()))
}

fn syntax(message: &str) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, message)
}

/// Refuses types of columns of a function that has types of its own.
pub(super) fn check_untyped(alias: Option<&ast::TableAlias>) -> Result<(), SqlError> {
    match alias.is_some_and(|alias| alias.columns.iter().any(|column| column.data_type.is_some())) {
        true => Err(syntax("a column definition list is only allowed for functions returning \"record\"")),
        false => Ok(()),
    }
}

impl Binder<'_> {
    /// The rows of such a function.
    pub(super) fn rows_of_json(
        &mut self,
        name: &str,
        (of, is_set): (Type, bool),
        arguments: &[&ast::Expr],
        alias: Option<&ast::TableAlias>,
    ) -> Result<Source, SqlError> {
        let [argument] = arguments else { return Err(no_function(name, &[], Unresolved::None)) };
        let typed = |column: &ast::TableAliasColumnDef| column.data_type.is_some();
        let alias = alias
            .filter(|it| !it.columns.is_empty() && it.columns.iter().all(typed))
            .ok_or_else(|| syntax("a column definition list is required for functions returning \"record\""))?;
        let value = self.seeing(true, |binder| binder.within(Scope::default(), |binder| binder.expr(argument)))?;
        let value = self.cast(value, of.into(), Place::Implicit)?;
        let value = Typed::new(checked(name, value.expr)?, of);
        let input = match is_set {
            true => {
                let each = if of == Type::Jsonb { "jsonb_array_elements" } else { "json_array_elements" };
                let calls = vec![(self.call(each, vec![value])?.expr, 1)];
                let items = Node::Expand { input: Box::new(Node::Nothing), calls, has_numbers: false };
                let item = checked(&format!("item of {name}"), Expr::Column(0))?;
                Node::Project { input: Box::new(items), columns: vec![item] }
            }
            false => Node::Project { input: Box::new(Node::Nothing), columns: vec![value.expr] },
        };
        let (mut columns, mut names) = (Vec::new(), Vec::new());
        for column in &alias.columns {
            let Some(data_type) = &column.data_type else { continue };
            let (own, to) = (folded(&column.name), self.catalog.usable_type(data_type)?);
            columns.push(self.member(of, &own, to)?);
            names.push((own, to));
        }
        let scope = scope_of(&folded(&alias.name), names, Some(alias))?;
        Ok(Source { node: Node::Project { input: Box::new(input), columns }, scope })
    }

    /// What an object, the only column of the rows, has under a name, as a value of a type.
    fn member(&mut self, of: Type, name: &str, to: ColumnType) -> Result<Expr, SqlError> {
        if to.base.element().is_some() {
            return Err(SqlError::unsupported("an array among the columns of objects"));
        }
        let is_json = matches!(to.base, Type::Json | Type::Jsonb);
        let object = Typed::new(Expr::Column(0), of);
        let key = Typed::new(Expr::Constant(OwnedDatum::Text(name.into())), Type::Text);
        let member = self.apply(if is_json { "->" } else { "->>" }, vec![object, key])?;
        let value = self.cast(member, to.base.into(), Place::Explicit)?;
        Ok(self.cast(value, to, Place::Assignment)?.expr)
    }
}
