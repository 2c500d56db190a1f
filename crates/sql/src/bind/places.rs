//! Where in its text a statement names what is not there.

use sqlparser::ast::{self, Spanned as _};

use crate::error::{SqlError, SqlState};

/// The error of an expression, with the place of the name if it is about that.
#[cold]
pub(super) fn of_name(error: SqlError, expr: &ast::Expr) -> SqlError {
    let is_about_name = match expr {
        ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_) => {
            let states = [SqlState::UNDEFINED_COLUMN, SqlState::AMBIGUOUS_COLUMN, SqlState::UNDEFINED_TABLE];
            states.contains(&error.state())
        }
        // A text that is read as a type.
        ast::Expr::Cast { expr: inner, .. } => {
            let states = [SqlState::INVALID_TEXT_REPRESENTATION, SqlState::INVALID_DATETIME_FORMAT];
            return match &**inner {
                ast::Expr::Value(_) if states.contains(&error.state()) => error.at(inner.span().start),
                _ => error,
            };
        }
        ast::Expr::Function(_) => [SqlState::UNDEFINED_FUNCTION, SqlState::AMBIGUOUS_FUNCTION].contains(&error.state()),
        _ => false,
    };
    if is_about_name { error.at(expr.span().start) } else { error }
}

/// The error of a relation in FROM, or of one that is changed.
#[cold]
pub(crate) fn of_relation(error: SqlError, name: &ast::ObjectName) -> SqlError {
    let is_about_name = [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME].contains(&error.state());
    if is_about_name { error.at(name.span().start) } else { error }
}

/// The error of a column that is set.
#[cold]
pub(super) fn of_target(error: SqlError, name: &ast::ObjectName) -> SqlError {
    error.at(name.span().start)
}
