//! Text into statements.

use sqlparser::ast;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use crate::error::{SqlError, SqlState};

/// How deeply expressions and queries may nest. The parser, the binder and the evaluation go down as deep.
const DEPTH: usize = 200;

/// The longest statement, in bytes.
const LENGTH: usize = 16 << 20;

fn error_of(error: ParserError) -> SqlError {
    match error {
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => {
            SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error: {message}"))
        }
        ParserError::RecursionLimitExceeded => {
            SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
                .with_hint(format!("Expressions and queries may be nested {DEPTH} times."))
        }
    }
}

fn parser(text: &str) -> Result<Parser<'static>, SqlError> {
    if text.len() > LENGTH {
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a statement has at most 16 MiB"));
    }
    const DIALECT: PostgreSqlDialect = PostgreSqlDialect {};
    Parser::new(&DIALECT).with_recursion_limit(DEPTH).try_with_sql(text).map_err(error_of)
}

/// The statements of a text.
pub(crate) fn statements(text: &str) -> Result<Vec<ast::Statement>, SqlError> {
    parser(text)?.parse_statements().map_err(error_of)
}

/// The expression that a text is.
pub(crate) fn expression(text: &str) -> Result<ast::Expr, SqlError> {
    let mut parser = parser(text)?;
    let expr = parser.parse_expr().map_err(error_of)?;
    match parser.peek_token().token {
        Token::EOF => Ok(expr),
        other => Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{other}\""))),
    }
}
