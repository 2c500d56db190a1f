//! CREATE PROCEDURE as the parser can read it: as CREATE FUNCTION of a marked name, with the body between BEGIN ATOMIC and END as one constant.

use sqlparser::ast::DollarQuotedString;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use super::lexemes::offsets;
use crate::error::{SqlError, SqlState};

/// What the name of a procedure begins with, there and in the definitions.
pub(crate) const MARK: char = '\u{2}';

/// The tag of a body that stood between BEGIN ATOMIC and END.
pub(crate) const ATOMIC: &str = "\u{2}atomic";

fn is_word(token: Option<&TokenWithSpan>, wanted: &str) -> bool {
    let token = token.map(|token| &token.token);
    matches!(token, Some(Token::Word(word)) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}

/// Tokens of a text, and which of them are neither blank nor comments.
struct Rewriter<'t> {
    text: &'t str,
    tokens: &'t [TokenWithSpan],
    starts: Vec<usize>,
    seen: Vec<usize>,
    out: Vec<TokenWithSpan>,
    /// How many tokens are in `out`, or replaced there.
    done: usize,
}

impl Rewriter<'_> {
    fn is(&self, at: usize, wanted: &str) -> bool {
        is_word(self.seen.get(at).map(|&at| &self.tokens[at]), wanted)
    }

    /// Puts these tokens in the place of those from one seen position up to another.
    fn replace(&mut self, from: usize, to: usize, new: impl IntoIterator<Item = Token>) {
        let (from, to) = (self.seen[from], self.seen[to]);
        self.out.extend_from_slice(&self.tokens[self.done..from]);
        for token in new {
            let span = self.tokens[from].span;
            self.out.push(TokenWithSpan { token, span });
        }
        self.done = to + 1;
    }

    /// Rewrites the head of a procedure: the position behind its name. `None`: it is another statement.
    fn head(&mut self, at: usize) -> Option<usize> {
        let mut at = at;
        if !self.is(at, "create") {
            return None;
        }
        at += if self.is(at + 1, "or") && self.is(at + 2, "replace") { 3 } else { 1 };
        if !self.is(at, "procedure") {
            return None;
        }
        self.replace(at, at, [Token::make_keyword("FUNCTION")]);
        at += 1;
        while self.seen.get(at + 1).is_some_and(|&next| self.tokens[next].token == Token::Period) {
            at += 2;
        }
        if let Some(Token::Word(name)) = self.seen.get(at).map(|&at| &self.tokens[at].token) {
            let own = if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() };
            let marked = Token::Word(Word {
                value: format!("{MARK}{own}"),
                quote_style: Some('"'),
                keyword: sqlparser::keywords::Keyword::NoKeyword,
            });
            self.replace(at, at, [marked]);
        }
        Some(at + 1)
    }

    /// Rewrites a body whose BEGIN is there: the position behind its END.
    fn body(&mut self, begin: usize) -> Result<usize, SqlError> {
        let (mut depth, mut at) = (0, begin + 2);
        while at < self.seen.len() {
            if self.is(at, "case") || self.is(at, "begin") {
                depth += 1;
            } else if self.is(at, "end") {
                if depth == 0 {
                    let value = self.text[self.starts[self.seen[begin + 1] + 1]..self.starts[self.seen[at]]].to_owned();
                    let body = Token::DollarQuotedString(DollarQuotedString { value, tag: Some(ATOMIC.to_owned()) });
                    self.replace(begin, at, [Token::make_keyword("AS"), body]);
                    return Ok(at + 1);
                }
                depth -= 1;
            }
            at += 1;
        }
        Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at end of input"))
    }
}

/// Rewrites the definitions of procedures among the statements of a text.
pub(crate) fn with_procedures(text: &str, tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>, SqlError> {
    if !tokens.iter().any(|token| is_word(Some(token), "procedure")) {
        return Ok(tokens);
    }
    let seen = (0..tokens.len()).filter(|&at| !matches!(tokens[at].token, Token::Whitespace(_))).collect();
    let starts = offsets(text, &tokens);
    let mut rewriter = Rewriter { text, tokens: &tokens, starts, seen, out: Vec::new(), done: 0 };
    let mut at = 0;
    while at < rewriter.seen.len() {
        let is_procedure = rewriter.head(at).inspect(|&behind| at = behind).is_some();
        while let Some(&next) = rewriter.seen.get(at) {
            at += 1;
            if tokens[next].token == Token::SemiColon {
                break;
            }
            if is_procedure && rewriter.is(at - 1, "begin") && rewriter.is(at, "atomic") {
                at = rewriter.body(at - 1)?;
            }
        }
    }
    let Rewriter { mut out, done, .. } = rewriter;
    out.extend_from_slice(&tokens[done..]);
    Ok(out)
}
