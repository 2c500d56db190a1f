//! COPY: rows of a table as a stream of bytes, and back.
//!
//! Bytes come in pieces of any size. They are cut into lines (`lines`) and these into fields (`fields`), or into the rows of the binary format (`binary`). Rows are
//! gathered into batches, and a batch is inserted as a statement of the transaction whose parameters are its values (`input`). What is written comes from a query
//! (`output`).

pub(crate) mod binary;
mod decoder;
mod fields;
mod input;
mod lines;
mod options;
mod output;

use sqlparser::ast;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{IsOptional, Parser};
use sqlparser::tokenizer::Token;

use crate::bind::{Written, folded};
use crate::error::{SqlError, SqlState};
use crate::parse::{error_of, syntax_error};

pub use input::CopyIn;
use options::Options;
pub(crate) use output::Encoder;

/// How the data of a COPY look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyShape {
    /// Whether they are in the binary format.
    pub is_binary: bool,
    /// How many columns they have.
    pub columns: usize,
}

/// A COPY as it is written.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    /// What the binder makes a plan of: a query, or a COPY of a table.
    pub(crate) statement: ast::Statement,
    pub(crate) is_from: bool,
    /// The name of the table; empty for a query.
    pub(crate) table: String,
    pub(crate) options: Options,
}

impl Copy {
    /// Reads what follows the word COPY.
    pub(crate) fn parse(parser: &mut Parser<'_>) -> Result<Self, SqlError> {
        let mut table = String::new();
        let query = if parser.consume_token(&Token::LParen) {
            let query = parser.parse_statement().map_err(error_of)?;
            parser.expect_token(&Token::RParen).map_err(error_of)?;
            Some(query)
        } else {
            None
        };
        let mut source = None;
        if query.is_none() {
            let table_name = parser.parse_object_name(false).map_err(error_of)?;
            table = Written::of(&table_name)?.name;
            let columns = parser.parse_parenthesized_column_list(IsOptional::Optional, false).map_err(error_of)?;
            source = Some((table_name, columns));
        }
        let is_from = match parser.parse_one_of_keywords(&[Keyword::FROM, Keyword::TO]) {
            Some(Keyword::FROM) if query.is_none() => true,
            Some(Keyword::TO) => false,
            _ => return Err(syntax_error(&parser.peek_token().token)),
        };
        check_is_stream(parser, is_from)?;
        let options = options::parse(parser, is_from)?;
        if parser.parse_keyword(Keyword::WHERE) {
            return Err(match is_from {
                true => SqlError::unsupported("COPY FROM with WHERE"),
                false => SqlError::new(SqlState::SYNTAX_ERROR, "WHERE clause not allowed with COPY TO"),
            });
        }
        let statement = match (query, source) {
            (Some(query), _) => query_of(query)?,
            (None, Some((table_name, columns))) => ast::Statement::Copy {
                source: ast::CopySource::Table { table_name, columns },
                to: !is_from,
                target: if is_from { ast::CopyTarget::Stdin } else { ast::CopyTarget::Stdout },
                options: Vec::new(),
                legacy_options: Vec::new(),
                payload: None,
            },
            (None, None) => return Err(syntax_error(&Token::EOF)),
        };
        Ok(Self { statement, is_from, table, options })
    }

    /// The error of a COPY that is executed as other statements are.
    pub(crate) fn needs_stream(&self) -> SqlError {
        let (direction, call) = if self.is_from { ("FROM STDIN", "copy_in") } else { ("TO STDOUT", "copy_out") };
        SqlError::unsupported(format!("COPY {direction} without a stream"))
            .with_hint(format!("Use the connection's {call}, or \\copy of the shell."))
    }
}

/// A library opens no files of a server, and runs no programs.
fn check_is_stream(parser: &mut Parser<'_>, is_from: bool) -> Result<(), SqlError> {
    let token = parser.next_token().token;
    let direction = if is_from { "FROM" } else { "TO" };
    match &token {
        Token::Word(word) if word.quote_style.is_none() => match word.value.to_ascii_lowercase().as_str() {
            "stdin" | "stdout" => Ok(()),
            "program" => Err(SqlError::unsupported(format!("COPY {direction} PROGRAM"))),
            _ => Err(syntax_error(&token)),
        },
        Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_) => {
            Err(SqlError::unsupported(format!("COPY {direction} a file"))
                .with_hint("Read or write the file yourself, or use \\copy of the shell."))
        }
        _ => Err(syntax_error(&token)),
    }
}

/// A statement whose rows can be copied.
fn query_of(statement: ast::Statement) -> Result<ast::Statement, SqlError> {
    use ast::Statement as S;
    let has_rows = match &statement {
        S::Query(_) => true,
        S::Insert(insert) => insert.returning.is_some(),
        S::Update(update) => update.returning.is_some(),
        S::Delete(delete) => delete.returning.is_some(),
        _ => return Err(SqlError::new(SqlState::SYNTAX_ERROR, "COPY takes a query or a change with RETURNING")),
    };
    if has_rows {
        return Ok(statement);
    }
    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "COPY query must have a RETURNING clause"))
}

/// The columns of a list.
fn names(parser: &mut Parser<'_>) -> Result<Vec<String>, SqlError> {
    let list = parser.parse_comma_separated(Parser::parse_identifier).map_err(error_of)?;
    Ok(list.iter().map(folded).collect())
}

/// A fault of the copied data.
#[cold]
fn bad_data(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::BAD_COPY_FORMAT, message)
}

/// The most that one line, or one row of the binary format, may have.
const LONGEST: usize = 16 << 20;

#[cold]
fn too_long() -> SqlError {
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, format!("a line of COPY has at most {LONGEST} bytes"))
}

/// A text as messages have it: its beginning.
fn shortened(text: &[u8]) -> String {
    const MOST: usize = 100;
    let text = String::from_utf8_lossy(&text[..text.len().min(MOST + 4)]);
    if text.len() <= MOST {
        return text.into_owned();
    }
    let end = (0..=MOST).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    format!("{}...", &text[..end])
}
