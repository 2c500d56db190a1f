//! Arrays, and JSON that is made of values.

use sqlparser::ast;

use super::literals::constant;
use super::{Binder, folded};
use crate::casts::{Cast, Place};
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::functions;
use crate::types::{Bound, Type};

impl Binder<'_> {
    /// `ARRAY[…]`; where the statement says which type it is to be, the elements are of it.
    pub(super) fn array(&mut self, parts: &[ast::Expr], wanted: Option<Type>) -> Result<Typed, SqlError> {
        let wanted = wanted.and_then(Type::element);
        let mut bound = Vec::new();
        for part in parts {
            bound.push(match (part, wanted) {
                (ast::Expr::Array(inner), Some(wanted)) => self.array(&inner.elem, wanted.array())?,
                _ => self.expr(part)?,
            });
        }
        let Some(first) = bound.first() else {
            let of = wanted.and_then(Type::array).ok_or_else(|| {
                SqlError::new(SqlState::INDETERMINATE_DATATYPE, "cannot determine type of empty array")
                    .with_hint("Explicitly cast to the desired type, for example ARRAY[]::integer[].")
            })?;
            return Ok(Typed::new(Expr::Array { parts: Box::new([]), is_nested: false }, of));
        };
        let is_nested = bound.iter().any(|it| it.base().element().is_some());
        let of = match wanted {
            Some(wanted) if is_nested => wanted.array().unwrap_or(first.base()),
            Some(wanted) => wanted,
            None => super::expressions::common_type("ARRAY", &bound)?,
        };
        let place = if wanted.is_some() { Place::Explicit } else { Place::Implicit };
        let parts = bound.into_iter().map(|part| Ok(self.cast(part, of.into(), place)?.expr));
        let parts = parts.collect::<Result<_, SqlError>>()?;
        let of = if is_nested { Some(of) } else { of.array() };
        let of = of.ok_or_else(|| SqlError::unsupported("an array of such values"))?;
        Ok(Typed::new(super::expressions::fold_array(parts, is_nested), of))
    }

    /// Elements and slices of an array, parts of JSON.
    pub(super) fn subscripts(&mut self, root: &ast::Expr, chain: &[ast::AccessExpr]) -> Result<Typed, SqlError> {
        // Names in front are those of a column.
        let mut names = match root {
            ast::Expr::Identifier(name) => vec![name.clone()],
            ast::Expr::CompoundIdentifier(names) => names.clone(),
            _ => Vec::new(),
        };
        let mut rest = chain;
        while let ([ast::AccessExpr::Dot(ast::Expr::Identifier(name)), behind @ ..], false) = (rest, names.is_empty()) {
            names.push(name.clone());
            rest = behind;
        }
        let root = match &names[..] {
            [] => self.expr(root)?,
            [name] => self.named_column(None, name)?,
            [table, name] => self.named_column(Some((&*folded(table)).into()), name)?,
            _ => return Err(SqlError::unsupported("such a name")),
        };
        let mut root = root;
        while let ([ast::AccessExpr::Dot(ast::Expr::Identifier(name)), behind @ ..], true) = (rest, names.is_empty()) {
            root = self.field(&root, name)?;
            rest = behind;
        }
        if rest.is_empty() {
            return Ok(root);
        }
        let of = root.base();
        if root.of.bound == Bound::Name
            && let [ast::AccessExpr::Subscript(ast::Subscript::Index { index })] = rest
        {
            let one = || constant(Datum::Int(1), Type::Int4);
            let index = Typed::new(self.subscript(index)?, Type::Int4);
            let position = self.apply("+", vec![index, one()])?;
            return self.call("substr", vec![Typed::new(root.expr, Type::Text), position, one()]);
        }
        if of == Type::Jsonb {
            return self.json_subscripts(root, rest);
        }
        if of.element().is_none() {
            let message = format!("cannot subscript type {of} because it does not support subscripting");
            return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
        }
        let is_slice = rest.iter().any(|it| matches!(it, ast::AccessExpr::Subscript(ast::Subscript::Slice { .. })));
        let mut bounds = Vec::new();
        for access in rest {
            match access {
                ast::AccessExpr::Subscript(ast::Subscript::Index { index }) => {
                    if is_slice {
                        bounds.push(super::query::null().expr);
                    }
                    bounds.push(self.subscript(index)?);
                }
                ast::AccessExpr::Subscript(ast::Subscript::Slice { lower_bound, upper_bound, stride: None }) => {
                    for bound in [lower_bound, upper_bound] {
                        bounds.push(match bound {
                            Some(bound) => self.subscript(bound)?,
                            None => super::query::null().expr,
                        });
                    }
                }
                other => return Err(SqlError::unsupported(format!("the subscript {other}"))),
            }
        }
        let bounds = super::expressions::fold_array(bounds.into(), false);
        let name = if is_slice { "array_slice" } else { "array_element" };
        self.call(name, vec![root, Typed::new(bounds, Type::Int4s)])
    }

    fn subscript(&mut self, index: &ast::Expr) -> Result<Expr, SqlError> {
        let index = self.expr(index)?;
        if crate::casts::find(index.base(), Type::Int4, Place::Assignment).is_none() {
            return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, "array subscript must have type integer"));
        }
        Ok(self.cast(index, Type::Int4.into(), Place::Assignment)?.expr)
    }

    fn json_subscripts(&mut self, mut of: Typed, chain: &[ast::AccessExpr]) -> Result<Typed, SqlError> {
        for access in chain {
            let ast::AccessExpr::Subscript(ast::Subscript::Index { index }) = access else {
                return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, "jsonb subscript does not support slices"));
            };
            let index = self.expr(index)?;
            of = self.apply("->", vec![of, index])?;
        }
        Ok(of)
    }

    /// `value sign ANY (array)`, or `ALL`.
    pub(super) fn any_of_array(
        &mut self,
        left: &ast::Expr,
        (sign, needs_all): (&'static str, bool),
        right: &ast::Expr,
    ) -> Result<Typed, SqlError> {
        let (value, mut list) = (self.expr(left)?, self.expr(right)?);
        if list.base() == Type::Unknown {
            let element = if value.base() == Type::Unknown { Type::Text } else { value.base() };
            let array = element.array().ok_or_else(|| SqlError::unsupported("an array of such values"))?;
            list = self.cast(list, array.into(), Place::Implicit)?;
        }
        let Some(element) = list.base().element() else {
            let message = "op ANY/ALL (array) requires array on right side";
            return Err(SqlError::new(SqlState("42809"), message));
        };
        let sides = vec![value, Typed::new(Expr::NULL, element)];
        let types: Vec<_> = sides.iter().map(Typed::base).collect();
        let function = functions::resolve(sign, &types).map_err(|why| functions::no_operator(sign, &types, why))?;
        let [of_left, of_right] = *function.arguments else { return Err(SqlError::unsupported(sign)) };
        if function.result != Type::Bool {
            return Err(SqlError::new(SqlState("42809"), "op ANY/ALL (array) requires operator to yield boolean"));
        }
        let of_left = if of_left == Type::AnyEnum { element } else { of_left };
        let value = sides.into_iter().next().unwrap_or_else(super::query::null);
        let value = self.cast(value, of_left.into(), Place::Implicit)?.expr;
        let wanted = of_right.array().unwrap_or(list.base());
        let list = self.cast(list, wanted.into(), Place::Implicit)?.expr;
        let any = Expr::AnyItem { eval: function.eval, needs_all, pair: Box::new((value, list)) };
        Ok(Typed::new(any, Type::Bool))
    }

    /// A value as JSON.
    pub(super) fn as_json(&mut self, typed: Typed, is_binary: bool) -> Result<Expr, SqlError> {
        let typed = self.known(typed)?;
        let cast = match (typed.base(), is_binary) {
            (Type::Json, false) | (Type::Jsonb, true) => return Ok(typed.expr),
            (of, is_binary) => Cast::Json(of, is_binary),
        };
        Ok(Expr::Cast(cast, Box::new(typed.expr)))
    }

    /// Functions that take values of any type, or any number of them.
    pub(super) fn variadic(&mut self, name: &str, arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        let of_name = |is_binary: bool| if is_binary { Type::Jsonb } else { Type::Json };
        let is_binary = name.starts_with("jsonb") || name == "to_jsonb";
        match name {
            "to_json" | "to_jsonb" | "array_to_json" | "row_to_json" => {
                let one = match <[Typed; 1]>::try_from(arguments) {
                    Ok([one]) if name != "row_to_json" || one.base() == Type::Record => one,
                    Ok([one]) => return Err(functions::no_function(name, &[one.base()], functions::Unresolved::None)),
                    Err(_) => return Err(functions::no_function(name, &[], functions::Unresolved::None)),
                };
                Ok(Typed::new(self.as_json(one, is_binary)?, of_name(is_binary)))
            }
            "json_build_array" | "jsonb_build_array" => {
                let parts =
                    arguments.into_iter().map(|it| self.as_json(it, is_binary)).collect::<Result<Box<_>, _>>()?;
                let all = Typed::new(Expr::Array { parts, is_nested: false }, Type::Texts);
                self.call(name, vec![all])
            }
            "json_build_object" | "jsonb_build_object" => {
                if arguments.len() % 2 == 1 {
                    let message = "argument list must have even number of elements";
                    return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
                }
                let mut parts = Vec::new();
                for (at, argument) in arguments.into_iter().enumerate() {
                    parts.push(match at % 2 {
                        0 => super::expressions::shown(argument),
                        _ => self.as_json(argument, is_binary)?,
                    });
                }
                let all = Typed::new(Expr::Array { parts: parts.into(), is_nested: false }, Type::Texts);
                self.call(name, vec![all])
            }
            _ => {
                // The first argument, and the others as an array of texts.
                let mut rest = arguments.into_iter();
                let first = rest.next().unwrap_or_else(super::query::null);
                let mut parts = Vec::new();
                for part in rest {
                    parts.push(self.cast(part, Type::Text.into(), Place::Implicit)?.expr);
                }
                let all = Typed::new(Expr::Array { parts: parts.into(), is_nested: false }, Type::Texts);
                self.call(name, vec![first, all])
            }
        }
    }
}
