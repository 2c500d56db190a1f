//! Comparisons with patterns, spans with units, zones and collations.

use sqlparser::ast;

use super::Binder;
use crate::casts::Place;
use crate::datum::OwnedDatum;
use crate::error::SqlError;
use crate::expr::{Expr, Typed};
use crate::types::Type;

impl Binder<'_> {
    pub(super) fn pattern_or_time(&mut self, expr: &ast::Expr) -> Result<Typed, SqlError> {
        match expr {
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
