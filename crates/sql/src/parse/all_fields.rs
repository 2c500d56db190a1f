//! `(row).*` in a list, of which the parser does not know that the row may be any expression: the star becomes a name.

use sqlparser::ast;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// The name that stands for all columns. No identifier has the character.
const ALL: &str = "\u{2}all";

/// Gives each star behind a parenthesis and a point its name.
pub(super) fn with_all_fields(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    for at in 2..tokens.len() {
        if let [Token::RParen, Token::Period, Token::Mul] =
            [&tokens[at - 2].token, &tokens[at - 1].token, &tokens[at].token]
        {
            tokens[at].token = Token::Word(super::quoted(ALL.to_owned()));
        }
    }
    tokens
}

/// Whether an item of a list asks for all columns of a row.
pub(crate) fn is_row_of_all(expr: &ast::Expr) -> bool {
    row_of_all(expr).is_some()
}

/// The row whose columns are all asked for, if an item of a list does that.
pub(crate) fn row_of_all(expr: &ast::Expr) -> Option<ast::Expr> {
    let ast::Expr::CompoundFieldAccess { root, access_chain } = expr else { return None };
    let (ast::AccessExpr::Dot(ast::Expr::Identifier(last)), before) = access_chain.split_last()? else { return None };
    if last.value != ALL {
        return None;
    }
    match before {
        [] => Some((**root).clone()),
        before => Some(ast::Expr::CompoundFieldAccess { root: root.clone(), access_chain: before.to_vec() }),
    }
}
