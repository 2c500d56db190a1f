//! VACUUM.

use sqlparser::ast;
use sqlparser::parser::{IsOptional, Parser};
use sqlparser::tokenizer::Token;

use super::{error_of, syntax_error};
use crate::error::SqlError;

/// VACUUM in PostgreSQL's form: nothing is to be swept, so of the options and tables only the form counts.
pub(super) fn vacuum(parser: &mut Parser<'_>) -> Result<ast::Statement, SqlError> {
    parser.next_token();
    let words = ["full", "freeze", "verbose", "analyze", "analyse"];
    if parser.consume_token(&Token::LParen) {
        loop {
            parser.parse_identifier().map_err(error_of)?;
            let token = parser.peek_token().token;
            if !matches!(token, Token::Comma | Token::RParen) {
                parser.next_token();
            }
            match parser.next_token().token {
                Token::Comma => {}
                Token::RParen => break,
                other => return Err(syntax_error(&other)),
            }
        }
    }
    while matches!(&parser.peek_token_ref().token, Token::Word(word) if word.quote_style.is_none() && words.contains(&word.value.to_lowercase().as_str()))
    {
        parser.next_token();
    }
    let mut first = None;
    while !matches!(parser.peek_token_ref().token, Token::EOF | Token::SemiColon) {
        if first.is_some() {
            parser.expect_token(&Token::Comma).map_err(error_of)?;
        }
        if !matches!(parser.peek_token_ref().token, Token::Word(_)) {
            return Err(syntax_error(&parser.peek_token_ref().token));
        }
        let name = parser.parse_object_name(false).map_err(error_of)?;
        let _ = parser.parse_parenthesized_column_list(IsOptional::Optional, false).map_err(error_of)?;
        first.get_or_insert(name);
    }
    Ok(ast::Statement::Vacuum(ast::VacuumStatement {
        full: false,
        sort_only: false,
        delete_only: false,
        reindex: false,
        recluster: false,
        table_name: first,
        threshold: None,
        boost: false,
    }))
}
