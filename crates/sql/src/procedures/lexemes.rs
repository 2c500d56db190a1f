//! The tokens of a text with where they are in it, so that parts of the text can be parsed for themselves.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::SqlError;

/// A token that is neither blank nor a comment.
#[derive(Clone, Debug)]
pub(super) struct Lexeme {
    pub(super) token: Token,
    /// Where its bytes begin and end.
    pub(super) start: usize,
    pub(super) end: usize,
    /// Counted from 1.
    pub(super) line: u32,
}

impl Lexeme {
    /// The keyword, in small letters, if it is a word without quotes.
    pub(super) fn word(&self) -> Option<String> {
        match &self.token {
            Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_lowercase()),
            _ => None,
        }
    }

    /// The name that it is, as PostgreSQL folds it.
    pub(super) fn name(&self) -> Option<String> {
        match &self.token {
            Token::Word(word) if word.quote_style.is_some() => Some(word.value.clone()),
            Token::Placeholder(name) => Some(name.clone()),
            _ => self.word(),
        }
    }

    /// The text that it is a constant of.
    pub(super) fn constant(&self) -> Option<&str> {
        match &self.token {
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => Some(text),
            Token::DollarQuotedString(text) => Some(&text.value),
            _ => None,
        }
    }
}

/// Where each token begins, in bytes, and last where the text ends.
pub(super) fn offsets(text: &str, tokens: &[TokenWithSpan]) -> Vec<usize> {
    let (mut line, mut column) = (1, 1);
    let mut characters = text.char_indices().peekable();
    let mut starts = Vec::with_capacity(tokens.len() + 1);
    for token in tokens {
        let wanted = (token.span.start.line, token.span.start.column);
        while (line, column) < wanted {
            match characters.next() {
                Some((_, '\n')) => (line, column) = (line + 1, 1),
                Some(_) => column += 1,
                None => break,
            }
        }
        starts.push(characters.peek().map_or(text.len(), |(at, _)| *at));
    }
    starts.push(text.len());
    starts
}

/// The lexemes of a text.
pub(super) fn lexemes(text: &str) -> Result<Vec<Lexeme>, SqlError> {
    let tokens = crate::parse::tokens(text)?;
    let starts = offsets(text, &tokens);
    let lexemes = tokens.into_iter().enumerate().filter(|(_, token)| !matches!(token.token, Token::Whitespace(_)));
    let lexeme = |(at, token): (usize, TokenWithSpan)| Lexeme {
        line: u32::try_from(token.span.start.line).unwrap_or(u32::MAX),
        token: token.token,
        start: starts[at],
        end: starts[at + 1],
    };
    Ok(lexemes.map(lexeme).collect())
}
