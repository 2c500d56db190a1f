//! The names of operators.

use sqlparser::ast::BinaryOperator as Sign;

use super::Binder;
use super::literals::constant;
use crate::casts::Place;
use crate::datum::Datum;
use crate::error::SqlError;
use crate::expr::Typed;
use crate::functions;
use crate::types::Type;

impl Binder<'_> {
    /// `|/` and `||/`, which are of floats alone.
    pub(super) fn root(&mut self, function: &str, of: Typed) -> Result<Typed, SqlError> {
        let of = self.cast(of, Type::Float8.into(), Place::Implicit)?;
        self.call(function, vec![of])
    }

    /// `~` of an integer: all bits turned are −1 less the number.
    pub(super) fn complement(&mut self, of: Typed) -> Result<Typed, SqlError> {
        let base = of.base();
        if !matches!(base, Type::Int2 | Type::Int4 | Type::Int8) {
            return Err(functions::no_operator("~", &[base], functions::Unresolved::None));
        }
        let less = self.apply("-", vec![constant(Datum::Int(-1), Type::Int4), of])?;
        self.cast(less, base.into(), Place::Explicit)
    }
}

/// The name of an operator in the registry.
pub(super) fn operator_name(sign: &Sign) -> Result<&'static str, SqlError> {
    Ok(match sign {
        Sign::Plus => "+",
        Sign::Minus => "-",
        Sign::Multiply => "*",
        Sign::Divide => "/",
        Sign::Modulo => "%",
        Sign::PGExp | Sign::BitwiseXor => "^",
        Sign::BitwiseAnd => "&",
        Sign::BitwiseOr => "|",
        Sign::Eq => "=",
        Sign::NotEq => "<>",
        Sign::Lt => "<",
        Sign::LtEq => "<=",
        Sign::Gt => ">",
        Sign::GtEq => ">=",
        Sign::PGRegexMatch => "~",
        Sign::PGRegexIMatch => "~*",
        Sign::PGRegexNotMatch => "!~",
        Sign::PGRegexNotIMatch => "!~*",
        Sign::PGLikeMatch => "~~",
        Sign::PGNotLikeMatch => "!~~",
        Sign::PGILikeMatch => "~~*",
        Sign::PGNotILikeMatch => "!~~*",
        Sign::Arrow => "->",
        Sign::LongArrow => "->>",
        Sign::HashArrow => "#>",
        Sign::HashLongArrow => "#>>",
        Sign::HashMinus => "#-",
        Sign::AtArrow => "@>",
        Sign::ArrowAt => "<@",
        Sign::PGOverlap => "&&",
        Sign::Question => "?",
        Sign::QuestionPipe => "?|",
        Sign::QuestionAnd => "?&",
        Sign::PGStartsWith => "^@",
        Sign::PGBitwiseShiftLeft => "<<",
        Sign::PGBitwiseShiftRight => ">>",
        Sign::PGBitwiseXor => "#",
        Sign::PGCustomBinaryOperator(parts) if parts.len() == 2 && parts[0] == "pg_catalog" => {
            let known =
                ["=", "<>", "<", "<=", ">", ">=", "~", "~*", "!~", "!~*", "~~", "!~~", "+", "-", "*", "/", "||"];
            let found = known.into_iter().find(|sign| *sign == parts[1]);
            return found.ok_or_else(|| SqlError::unsupported(format!("the operator {}", parts[1])));
        }
        other => return Err(SqlError::unsupported(format!("the operator {other}"))),
    })
}
