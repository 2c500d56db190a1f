//! `TABLE t` as a query, which the parser knows in some places alone.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

fn keyword(token: &Token) -> Option<Keyword> {
    match token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.keyword),
        _ => None,
    }
}

/// Whether a statement that begins so has no TABLE but that of a query, or that of INTO.
fn has_queries_alone(first: &Token) -> bool {
    use Keyword::{INSERT, SELECT, TABLE, VALUES, WITH};
    *first == Token::LParen || matches!(keyword(first), Some(INSERT | SELECT | TABLE | VALUES | WITH))
}

/// Whether TABLE behind this word says what INTO makes.
fn is_of_into(word: Keyword) -> bool {
    matches!(word, Keyword::INTO | Keyword::TEMP | Keyword::TEMPORARY | Keyword::UNLOGGED)
}

/// Writes `SELECT * FROM t` for each query `TABLE t`.
pub(super) fn with_tables(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(|token| keyword(&token.token) == Some(Keyword::TABLE)) {
        return tokens;
    }
    let mut out = Vec::with_capacity(tokens.len() + 8);
    // The first token of the statement and the last one, without blanks.
    let (mut first, mut last): (Option<Token>, Option<Token>) = (None, None);
    for token in tokens {
        match &token.token {
            Token::Whitespace(_) => {
                out.push(token);
                continue;
            }
            Token::SemiColon => (first, last) = (None, None),
            other => {
                first.get_or_insert_with(|| other.clone());
            }
        }
        let is_query = keyword(&token.token) == Some(Keyword::TABLE)
            && first.as_ref().is_some_and(has_queries_alone)
            && !last.as_ref().and_then(keyword).is_some_and(is_of_into);
        last = Some(token.token.clone());
        if is_query {
            let words = [Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")];
            out.extend(words.map(|word| TokenWithSpan { token: word, span: token.span }));
        } else {
            if token.token == Token::SemiColon {
                last = None;
            }
            out.push(token);
        }
    }
    out
}
