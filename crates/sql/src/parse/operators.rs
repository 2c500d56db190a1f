//! Operators of several characters, as PostgreSQL cuts them.

use sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use crate::error::SqlError;

/// Characters that let an operator end with a sign.
const LETS_SIGNS: &str = "~!@#%^&|`?";

/// Where a comment begins in an operator.
fn comment(operator: &str) -> Option<usize> {
    [operator.find("--"), operator.find("/*")].into_iter().flatten().min()
}

/// The operator without the signs at its end, which belong to what follows, and these signs.
fn parts(operator: &str) -> (&str, &str) {
    let is_cut = operator.chars().count() > 1 && !operator.contains(|it| LETS_SIGNS.contains(it));
    let end = operator.trim_end_matches(['+', '-']);
    match is_cut && end != operator {
        true if end.is_empty() => operator.split_at(1),
        true => operator.split_at(end.len()),
        false => (operator, ""),
    }
}

/// The token of an operator that the tokenizer would give if nothing followed.
fn token(operator: &str) -> Result<Token, SqlError> {
    Ok(super::cut(operator)?.into_iter().next().map_or(Token::EOF, |it| it.token))
}

/// Cuts operators before the signs at their ends, as in `1>=-1`. The answer is a position where a comment begins within one.
pub(super) fn with_operators(tokens: &mut Vec<TokenWithSpan>) -> Result<Option<Location>, SqlError> {
    let is_cut = |it: &TokenWithSpan| match &it.token {
        Token::CustomBinaryOperator(operator) => comment(operator).is_some() || !parts(operator).1.is_empty(),
        _ => false,
    };
    if !tokens.iter().any(is_cut) {
        return Ok(None);
    }
    let mut all = Vec::with_capacity(tokens.len() + 4);
    for mut own in tokens.drain(..) {
        let Token::CustomBinaryOperator(operator) = &own.token else {
            all.push(own);
            continue;
        };
        let operator = operator.clone();
        if let Some(at) = comment(&operator) {
            let start = own.span.start;
            return Ok(Some(Location { line: start.line, column: start.column + at as u64 }));
        }
        let (sign, signs) = parts(&operator);
        if signs.is_empty() {
            all.push(own);
            continue;
        }
        let mut span = own.span;
        span.end.column = span.start.column + sign.len() as u64;
        own = TokenWithSpan { token: token(sign)?, span };
        all.push(own);
        for one in signs.chars() {
            span.start.column = span.end.column;
            span.end.column += 1;
            all.push(TokenWithSpan { token: if one == '-' { Token::Minus } else { Token::Plus }, span });
        }
    }
    *tokens = all;
    Ok(None)
}

/// The text with a blank at a position of a line.
pub(super) fn with_blank(text: &str, at: Location) -> String {
    let lines = text.split_inclusive('\n').enumerate().map(|(number, line)| {
        if number as u64 + 1 != at.line {
            return line.to_owned();
        }
        let before = line.char_indices().nth(at.column as usize - 1).map_or(line.len(), |(byte, _)| byte);
        format!("{} {}", &line[..before], &line[before..])
    });
    lines.collect()
}
