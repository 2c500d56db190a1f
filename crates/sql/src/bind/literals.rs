//! Constants of statements.

use sqlparser::ast::Value;

use super::Binder;
use crate::casts::Cast;
use crate::datum::{Datum, OwnedDatum};
use crate::decimal::Decimal;
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::types::Type;

/// A constant without text or bytes.
pub(crate) fn constant(datum: Datum<'static>, of: Type) -> Typed {
    Typed::new(Expr::Constant(OwnedDatum::Plain(datum)), of)
}

impl Binder<'_> {
    pub(super) fn literal(&mut self, value: &Value) -> Result<Typed, SqlError> {
        match value {
            Value::Number(text, _) => number(text),
            Value::SingleQuotedString(text)
            | Value::EscapedStringLiteral(text)
            | Value::UnicodeStringLiteral(text)
            | Value::NationalStringLiteral(text) => unknown(text),
            Value::DollarQuotedString(text) => unknown(&text.value),
            Value::Boolean(value) => Ok(constant(Datum::Bool(*value), Type::Bool)),
            Value::Null => Ok(constant(Datum::Null, Type::Unknown)),
            Value::Placeholder(name) => self.parameter(name),
            other => Err(SqlError::unsupported(format!("the constant {other}"))),
        }
    }

    fn parameter(&mut self, name: &str) -> Result<Typed, SqlError> {
        if let Some(variable) = self.numbered_variable(name) {
            return variable;
        }
        let number = name.strip_prefix('$').and_then(|digits| digits.parse::<usize>().ok());
        let missing = || SqlError::new(SqlState::UNDEFINED_PARAMETER, format!("there is no parameter {name}"));
        let number = number.filter(|number| (1..=65_535).contains(number)).ok_or_else(missing)? - 1;
        if self.parameters.len() <= number {
            self.parameters.resize(number + 1, Type::Unknown);
        }
        Ok(Typed::new(Expr::Parameter(number), self.parameters[number]))
    }
}

/// Text whose type its surroundings tell.
fn unknown(text: &str) -> Result<Typed, SqlError> {
    if text.contains('\0') {
        return Err(SqlError::new(SqlState("22021"), "invalid byte sequence for encoding \"UTF8\": 0x00"));
    }
    Ok(Typed::new(Expr::Constant(OwnedDatum::Text(text.into())), Type::Unknown))
}

/// The text of a number that no numeric holds, as [`Binder::literal`] leaves it: a float may hold it.
pub(super) fn beyond_numerics(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Cast(Cast::Read(Type::Numeric), text) => match &**text {
            Expr::Constant(OwnedDatum::Text(text)) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// The smallest type of the integers that holds it, or else a numeric.
fn number(text: &str) -> Result<Typed, SqlError> {
    if let Ok(value) = text.parse::<i64>() {
        let of = if i32::try_from(value).is_ok() { Type::Int4 } else { Type::Int8 };
        return Ok(constant(Datum::Int(value), of));
    }
    let bad =
        || SqlError::new(SqlState::SYNTAX_ERROR, format!("trailing junk after numeric literal at or near \"{text}\""));
    let Ok(value) = Decimal::parse(text).ok_or_else(bad)? else {
        // Where it is no float in the end, reading it fails when it is reached.
        let text = Expr::Constant(OwnedDatum::Text(text.into()));
        return Ok(Typed::new(Expr::Cast(Cast::Read(Type::Numeric), Box::new(text)), Type::Numeric));
    };
    Ok(constant(Datum::Numeric(value), Type::Numeric))
}
