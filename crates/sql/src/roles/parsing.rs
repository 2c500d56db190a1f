//! What parsers of statements have in common that sqlparser does not know.

use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, Word};

use crate::bind::folded;
use crate::error::SqlError;
use crate::parse::{error_of, syntax_error};

/// The next word that is no blank, in small letters, if it is not quoted.
pub(crate) fn word(parser: &Parser<'_>, ahead: usize) -> String {
    match parser.peek_nth_token_ref(ahead).token {
        Token::Word(Word { ref value, quote_style: None, .. }) => value.to_lowercase(),
        _ => String::new(),
    }
}

/// Takes these words, if they come next.
pub(crate) fn take(parser: &mut Parser<'_>, words: &[&str]) -> bool {
    let is_next = words.iter().enumerate().all(|(at, wanted)| word(parser, at) == *wanted);
    if is_next {
        words.iter().for_each(|_| drop(parser.next_token()));
    }
    is_next
}

pub(crate) fn expect(parser: &mut Parser<'_>, words: &[&str]) -> Result<(), SqlError> {
    if take(parser, words) { Ok(()) } else { Err(syntax_error(&parser.peek_token_ref().token)) }
}

pub(crate) fn identifier(parser: &mut Parser<'_>) -> Result<String, SqlError> {
    Ok(folded(&parser.parse_identifier().map_err(error_of)?))
}

pub(crate) fn list<O>(
    parser: &mut Parser<'_>,
    mut item: impl FnMut(&mut Parser<'_>) -> Result<O, SqlError>,
) -> Result<Vec<O>, SqlError> {
    let mut all = vec![item(parser)?];
    while parser.consume_token(&Token::Comma) {
        all.push(item(parser)?);
    }
    Ok(all)
}
