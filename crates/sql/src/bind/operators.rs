//! The names of operators.

use sqlparser::ast::BinaryOperator as Sign;

use crate::error::SqlError;

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
        other => return Err(SqlError::unsupported(format!("the operator {other}"))),
    })
}
