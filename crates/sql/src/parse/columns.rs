//! Parts of definitions of tables that the parser does not know: LIKE among the columns, and some changes of columns. They travel in names.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::quoted;

/// How the name of a column begins that is LIKE, with the table and the options behind it.
pub(crate) const LIKE: char = '\u{4}';

/// How the name begins that stands for a default, where a column is changed in another way.
pub(crate) const CHANGE: char = '\u{5}';

/// How the value of CACHE begins that says what the sequence of an identity column is called, with the name behind it.
pub(crate) const SEQUENCE: char = '\u{6}';

fn keyword(token: &Token) -> Keyword {
    match token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

fn is_word(token: &Token, text: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text))
}

/// Rewrites the definitions of tables among the statements.
pub(super) fn with_columns(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_met = |it: &TokenWithSpan| matches!(keyword(&it.token), Keyword::CREATE | Keyword::ALTER | Keyword::DROP);
    if !tokens.iter().any(is_met) {
        return tokens;
    }
    let mut out = Vec::with_capacity(tokens.len());
    for statement in tokens.split_inclusive(|token| token.token == Token::SemiColon) {
        let words: Vec<_> = statement.iter().filter(|it| !matches!(it.token, Token::Whitespace(_))).collect();
        let first = words.first().map(|it| keyword(&it.token));
        let is_of_table = words.iter().take(5).any(|it| keyword(&it.token) == Keyword::TABLE);
        match first {
            Some(Keyword::CREATE) if is_of_table => likes(statement, &mut out),
            Some(Keyword::ALTER) if is_of_table => changes(&words, &mut out),
            Some(Keyword::DROP) if is_concurrent(&words) => {
                out.extend(words.iter().enumerate().filter(|(at, _)| *at != 2).map(|(_, word)| (*word).clone()));
            }
            _ => out.extend_from_slice(statement),
        }
    }
    out
}

/// Whether the words begin with DROP INDEX CONCURRENTLY, which waits for nothing here.
fn is_concurrent(words: &[&TokenWithSpan]) -> bool {
    let is = |at: usize, wanted: Keyword| words.get(at).is_some_and(|it| keyword(&it.token) == wanted);
    is(1, Keyword::INDEX) && is(2, Keyword::CONCURRENTLY)
}

/// Moves `LIKE t INCLUDING …` from the list of columns into the name of a column.
fn likes(statement: &[TokenWithSpan], out: &mut Vec<TokenWithSpan>) {
    let (mut depth, mut begins, mut at) = (0_usize, false, 0);
    while let Some(token) = statement.get(at) {
        if depth == 1 && begins && keyword(&token.token) == Keyword::LIKE {
            let end = statement[at..].iter().position(|it| matches!(it.token, Token::Comma | Token::RParen));
            let end = end.map_or(statement.len(), |end| at + end);
            let text: String = statement[at + 1..end].iter().map(|it| it.token.to_string()).collect();
            let name = Token::Word(quoted(format!("{LIKE}{}", text.trim())));
            for token_of in [name, Token::make_keyword("INT")] {
                out.push(TokenWithSpan { token: token_of, span: token.span });
            }
            at = end;
            begins = false;
            continue;
        }
        match token.token {
            Token::Whitespace(_) => {}
            Token::LParen => (depth, begins) = (depth + 1, true),
            Token::RParen => (depth, begins) = (depth.saturating_sub(1), false),
            Token::Comma => begins = true,
            _ => begins = false,
        }
        out.push(token.clone());
        at += 1;
    }
}

/// Writes what a column loses or gets as a default: `SET DEFAULT "…"`.
fn changes(words: &[&TokenWithSpan], out: &mut Vec<TokenWithSpan>) {
    let is = |at: usize, text: &str| words.get(at).is_some_and(|it| is_word(&it.token, text));
    // In a list of options with a name; CACHE says nothing more there.
    let mut is_named = false;
    let mut at = 0;
    while at < words.len() {
        is_named &= words[at].token != Token::RParen;
        if is_named && is(at, "cache") {
            at += 2;
            continue;
        }
        if is(at, "sequence")
            && is(at + 1, "name")
            && words.get(at.wrapping_sub(1)).is_some_and(|it| it.token == Token::LParen)
        {
            // A name with its schema has three parts.
            let parts = if words.get(at + 3).is_some_and(|it| it.token == Token::Period) { 3 } else { 1 };
            let end = words.len().min(at + 2 + parts);
            let name: String = words[at + 2..end].iter().map(|it| it.token.to_string()).collect();
            // The parser takes a number there, which it keeps as a text.
            let value = Token::Number(format!("{SEQUENCE}{name}"), false);
            for token in [Token::make_keyword("CACHE"), value] {
                out.push(TokenWithSpan { token, span: words[at].span });
            }
            (at, is_named) = (end, true);
            continue;
        }
        let length = match () {
            () if is(at, "drop") && (is(at + 1, "expression") || is(at + 1, "identity")) => {
                2 + if is(at + 2, "if") && is(at + 3, "exists") { 2 } else { 0 }
            }
            () if is(at, "set") && is(at + 1, "generated") && is(at + 2, "always") => 3,
            () if is(at, "set") && is(at + 1, "generated") && is(at + 2, "by") && is(at + 3, "default") => 4,
            () if is(at, "set") && ["statistics", "storage", "compression"].iter().any(|it| is(at + 1, it)) => 3,
            () => 0,
        };
        // A change stands behind the name of its column, which stands behind ALTER or COLUMN.
        let is_change = length > 0
            && at >= 2
            && matches!(keyword(&words[at - 2].token), Keyword::ALTER | Keyword::COLUMN)
            && at + length <= words.len();
        if !is_change {
            out.push(words[at].clone());
            at += 1;
            continue;
        }
        let text: Vec<_> = words[at..at + length].iter().map(|it| it.token.to_string().to_lowercase()).collect();
        let name = Token::Word(quoted(format!("{CHANGE}{}", text.join(" "))));
        for token in [Token::make_keyword("SET"), Token::make_keyword("DEFAULT"), name] {
            out.push(TokenWithSpan { token, span: words[at].span });
        }
        at += length;
    }
}
