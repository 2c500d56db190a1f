//! Words of PostgreSQL that the parser does not know, in the form of others that it knows.

use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

/// Writes `IS NULL` for `ISNULL` and `IS NOT NULL` for `NOTNULL`, which are no names, and joins literals that stand in lines below each other.
pub(super) fn with_words(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_met = |token: &TokenWithSpan| match &token.token {
        Token::Word(word) => !written(word).is_empty(),
        Token::SingleQuotedString(_) => true,
        _ => false,
    };
    if !tokens.iter().any(is_met) {
        return tokens;
    }
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    for token in tokens {
        match &token.token {
            Token::Word(word) if !written(word).is_empty() => {
                for word in written(word) {
                    out.push(TokenWithSpan { token: Token::make_keyword(word), span: token.span });
                }
            }
            Token::SingleQuotedString(text) => match literal_above(&out) {
                Some(at) => {
                    out.truncate(at + 1);
                    if let Token::SingleQuotedString(above) = &mut out[at].token {
                        above.push_str(text);
                    }
                }
                None => out.push(token),
            },
            _ => out.push(token),
        }
    }
    out
}

fn written(word: &sqlparser::tokenizer::Word) -> &'static [&'static str] {
    match () {
        () if word.quote_style.is_some() => &[],
        () if word.value.eq_ignore_ascii_case("isnull") => &["IS", "NULL"],
        () if word.value.eq_ignore_ascii_case("notnull") => &["IS", "NOT", "NULL"],
        () => &[],
    }
}

/// The position of the literal that goes on with the next one: at least one line ends between both, and nothing else stands there.
fn literal_above(tokens: &[TokenWithSpan]) -> Option<usize> {
    let at = tokens.iter().rposition(|it| !matches!(it.token, Token::Whitespace(_)))?;
    let ends_line = |it: &TokenWithSpan| {
        matches!(it.token, Token::Whitespace(Whitespace::Newline | Whitespace::SingleLineComment { .. }))
    };
    let is_literal = matches!(tokens[at].token, Token::SingleQuotedString(_));
    (is_literal && tokens[at + 1..].iter().any(ends_line)).then_some(at)
}
