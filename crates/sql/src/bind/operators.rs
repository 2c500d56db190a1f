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
