//! Calls of functions, aggregates and window functions.

use sqlparser::ast;

use super::aggregates::aggregate_kind;
use super::expressions::shown;
use super::windows::window_function;
use super::{Binder, object_name};
use crate::casts::Place;
use crate::datum::OwnedDatum;
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::functions;
use crate::types::Type;

/// A call as it is written.
pub(super) struct Call<'e> {
    pub(super) name: &'e str,
    pub(super) arguments: &'e [&'e ast::Expr],
    pub(super) is_distinct: bool,
    pub(super) filter: Option<&'e ast::Expr>,
    /// ORDER BY among the arguments, or WITHIN GROUP.
    pub(super) order: &'e [ast::OrderByExpr],
    pub(super) is_within_group: bool,
}

impl Binder<'_> {
    pub(super) fn function(&mut self, function: &ast::Function) -> Result<Typed, SqlError> {
        let name = function_name(&function.name)?;
        let unsupported = || SqlError::unsupported(format!("the expression {function}"));
        if function.null_treatment.is_some() || !matches!(function.parameters, ast::FunctionArguments::None) {
            return Err(unsupported());
        }
        let (list, is_distinct, clauses) = match &function.args {
            ast::FunctionArguments::None => (&[][..], false, &[][..]),
            ast::FunctionArguments::List(list) => {
                let is_distinct = list.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct);
                (&list.args[..], is_distinct, &list.clauses[..])
            }
            ast::FunctionArguments::Subquery(_) => return Err(unsupported()),
        };
        let order = match clauses {
            [] => &function.within_group[..],
            [ast::FunctionArgumentClause::OrderBy(order)] if function.within_group.is_empty() => order,
            _ => return Err(unsupported()),
        };
        let is_star = matches!(list, [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Wildcard)]);
        let mut expressions = Vec::new();
        for argument in list.iter().filter(|_| !is_star) {
            match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => expressions.push(expr),
                other => return Err(SqlError::unsupported(format!("the argument {other}"))),
            }
        }
        let call = Call {
            name: &name,
            arguments: &expressions,
            is_distinct,
            filter: function.filter.as_deref(),
            order,
            is_within_group: !function.within_group.is_empty(),
        };
        let wrong = |message: String| Err(SqlError::new(SqlState("42809"), message));
        match (&function.over, aggregate_kind(&name, is_star), window_function(&name)) {
            (None, Some(kind), _) => self.aggregate(kind, &call),
            (Some(over), Some(kind), _) => self.window_aggregate(kind, &call, over),
            (Some(over), None, Some(function)) => self.window_call(function, &call, over),
            (None, None, Some(_)) => wrong(format!("window function {name} requires an OVER clause")),
            (Some(_), None, None) => {
                wrong(format!("OVER specified, but {name} is not a window function nor an aggregate function"))
            }
            (None, None, None) if is_star || is_distinct || call.filter.is_some() || !order.is_empty() => {
                if is_star {
                    return Err(functions::no_function(&name, &[], functions::Unresolved::None));
                }
                let message = match () {
                    () if call.is_within_group => {
                        format!("WITHIN GROUP specified, but {name} is not an aggregate function")
                    }
                    () if is_distinct => format!("DISTINCT specified, but {name} is not an aggregate function"),
                    () if !order.is_empty() => format!("ORDER BY specified, but {name} is not an aggregate function"),
                    () => format!("FILTER specified, but {name} is not an aggregate function"),
                };
                wrong(message)
            }
            (None, None, None) => {
                let arguments = expressions.iter().map(|it| self.expr(it)).collect::<Result<Vec<_>, _>>()?;
                self.plain_call(&name, arguments)
            }
        }
    }

    fn plain_call(&mut self, name: &str, mut arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        match name {
            "coalesce" => {
                let (parts, of) = self.alike("COALESCE", arguments)?;
                Ok(Typed::new(Expr::Coalesce(parts.into()), of))
            }
            "greatest" | "least" => {
                let is_greatest = name == "greatest";
                let (parts, of) = self.alike(if is_greatest { "GREATEST" } else { "LEAST" }, arguments)?;
                Ok(Typed::new(Expr::Extreme { is_greatest, of: parts.into() }, of))
            }
            "nullif" if arguments.len() == 2 => {
                let of = arguments[0].of;
                let mut sides = self.compared("=", arguments)?.1.into_vec();
                let (second, first) = (sides.pop().unwrap_or(Expr::NULL), sides.pop().unwrap_or(Expr::NULL));
                let of = if of.base == Type::Unknown { Type::Text.into() } else { of };
                Ok(Typed::new(Expr::NullIf(Box::new((first, second))), of))
            }
            "concat" => {
                let empty = || Expr::Constant(OwnedDatum::Text("".into()));
                let parts = arguments.drain(..).map(|it| Expr::Coalesce(Box::new([shown(it), empty()])));
                let parts: Vec<_> = parts.collect();
                let mut all = Typed::new(empty(), Type::Text);
                for part in parts {
                    all = self.apply("||", vec![all, Typed::new(part, Type::Text)])?;
                }
                Ok(all)
            }
            "current_timestamp" => self.call("now", arguments),
            "current_date" => {
                let now = self.call("now", arguments)?;
                self.cast(now, Type::Date.into(), Place::Explicit)
            }
            "localtimestamp" => {
                let now = self.call("now", arguments)?;
                self.cast(now, Type::Timestamp.into(), Place::Explicit)
            }
            _ => self.call(name, arguments),
        }
    }
}

/// The name of a function, which may be that of the schema `pg_catalog`.
fn function_name(name: &ast::ObjectName) -> Result<String, SqlError> {
    match &name.0[..] {
        [schema, name] if schema.as_ident().is_some_and(|it| super::folded(it) == "pg_catalog") => {
            name.as_ident().map(super::folded).ok_or_else(|| SqlError::unsupported(format!("the name {name}")))
        }
        _ => object_name(name),
    }
}
