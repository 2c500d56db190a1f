//! Comparisons with patterns, spans with units, zones and collations.

use sqlparser::ast;

use super::Binder;
use crate::casts::Place;
use crate::datum::OwnedDatum;
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::types::Type;

/// What stands in `LIKE ALL (patterns)`, which the parser takes for a call.
fn all_of(pattern: &ast::Expr) -> Option<&ast::Expr> {
    let ast::Expr::Function(call) = pattern else { return None };
    let ([ast::ObjectNamePart::Identifier(name)], ast::FunctionArguments::List(list)) = (&call.name.0[..], &call.args)
    else {
        return None;
    };
    match &list.args[..] {
        [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(patterns))]
            if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all") =>
        {
            Some(patterns)
        }
        _ => None,
    }
}

impl Binder<'_> {
    /// `(start, end) OVERLAPS (start, end)`, where a span may stand for an end.
    pub(super) fn overlaps(&mut self, left: &ast::Expr, right: &ast::Expr) -> Result<Typed, SqlError> {
        let mut ends = Vec::new();
        for (side, place) in [(left, "left"), (right, "right")] {
            let ast::Expr::Tuple(parts) = side else {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"OVERLAPS\""));
            };
            let [start, end] = &parts[..] else {
                let message = format!("wrong number of parameters on {place} side of OVERLAPS expression");
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            };
            let (start, mut end) = (self.expr(start)?, self.expr(end)?);
            if end.base() == Type::Interval {
                end = self.apply("+", vec![start.clone(), end])?;
            }
            ends.extend([start, end]);
        }
        self.call("overlaps", ends)
    }

    pub(super) fn pattern_or_time(&mut self, expr: &ast::Expr) -> Result<Typed, SqlError> {
        match expr {
            ast::Expr::Like { negated, expr, pattern, escape_char: None, any: false }
                if let Some(patterns) = all_of(pattern) =>
            {
                self.any_of_array(expr, (if *negated { "!~~" } else { "~~" }, true), patterns)
            }
            ast::Expr::ILike { negated, expr, pattern, escape_char: None, any: false }
                if let Some(patterns) = all_of(pattern) =>
            {
                self.any_of_array(expr, (if *negated { "!~~*" } else { "~~*" }, true), patterns)
            }
            ast::Expr::Like { negated, expr, pattern, escape_char, any: false } => {
                self.pattern(if *negated { "!~~" } else { "~~" }, "like_escape", expr, pattern, escape_char.as_deref())
            }
            ast::Expr::Like { negated, expr, pattern, escape_char: None, any: true } => {
                self.any_of_array(expr, (if *negated { "!~~" } else { "~~" }, false), pattern)
            }
            ast::Expr::ILike { negated, expr, pattern, escape_char: None, any: true } => {
                self.any_of_array(expr, (if *negated { "!~~*" } else { "~~*" }, false), pattern)
            }
            ast::Expr::ILike { negated, expr, pattern, escape_char, any: false } => self.pattern(
                if *negated { "!~~*" } else { "~~*" },
                "like_escape",
                expr,
                pattern,
                escape_char.as_deref(),
            ),
            ast::Expr::SimilarTo { negated, expr, pattern, escape_char } => {
                let escape = ast::Expr::value(ast::Value::SingleQuotedString("\\".to_owned()));
                let escape = escape_char.as_deref().unwrap_or(&escape);
                let sign = if *negated { "!~" } else { "~" };
                self.pattern(sign, "similar_to_escape", expr, pattern, Some(escape))
            }
            ast::Expr::Collate { expr, collation } => {
                let name = super::calls::function_name(collation)?;
                match name.as_str() {
                    "default" | "C" | "POSIX" | "ucs_basic" => self.expr(expr),
                    _ => Err(SqlError::unsupported(format!("the collation {name}"))),
                }
            }
            ast::Expr::Interval(ast::Interval {
                value,
                leading_field: None,
                leading_precision: None,
                last_field: None,
                fractional_seconds_precision: None,
            }) => {
                let inner = self.expr(value)?;
                self.cast(inner, Type::Interval.into(), Place::Explicit)
            }
            ast::Expr::Interval(ast::Interval {
                value,
                leading_field: Some(field),
                leading_precision: None,
                last_field,
                fractional_seconds_precision: None,
            }) => self.interval(value, field, last_field.as_ref()),
            ast::Expr::AtTimeZone { timestamp, time_zone } => {
                let (of, zone) = (self.expr(timestamp)?, self.expr(time_zone)?);
                self.call("timezone", vec![zone, of])
            }
            other => Err(SqlError::unsupported(format!("the expression {other}"))),
        }
    }

    /// `INTERVAL '1' DAY`: a number of units, or of what stands in the text where there are several.
    fn interval(
        &mut self,
        value: &ast::Expr,
        field: &ast::DateTimeField,
        last: Option<&ast::DateTimeField>,
    ) -> Result<Typed, SqlError> {
        let unsupported = || SqlError::unsupported(format!("an interval of {field}"));
        let ast::Expr::Value(value) = value else { return Err(unsupported()) };
        let ast::Value::SingleQuotedString(text) = &value.value else { return Err(unsupported()) };
        let is_number = text.trim().parse::<f64>().is_ok();
        let text = match last {
            None if is_number => format!("{text} {field}"),
            Some(_) if !is_number => text.clone(),
            _ => return Err(unsupported()),
        };
        let inner = Typed::new(Expr::Constant(OwnedDatum::Text(text.into())), Type::Unknown);
        self.cast(inner, Type::Interval.into(), Place::Explicit)
    }

    /// A comparison with a pattern, which a function rewrites if another escape character is named.
    fn pattern(
        &mut self,
        sign: &'static str,
        rewrite: &str,
        expr: &ast::Expr,
        pattern: &ast::Expr,
        escape: Option<&ast::Expr>,
    ) -> Result<Typed, SqlError> {
        let (value, mut pattern) = (self.expr(expr)?, self.expr(pattern)?);
        if let Some(escape) = escape {
            let escape = self.expr(escape)?;
            pattern = self.call(rewrite, vec![pattern, escape])?;
        }
        self.apply(sign, vec![value, pattern])
    }
}
