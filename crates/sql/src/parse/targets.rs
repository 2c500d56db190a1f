//! Expressions behind ON CONFLICT, of which the parser knows names alone.

use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use super::quoted;

/// How a name begins in which an expression travels.
pub(crate) const TARGET: char = '\u{2}';

fn is_word(token: &Token, text: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text))
}

fn is_blank(token: &Token) -> bool {
    matches!(token, Token::Whitespace(_))
}

/// Puts `WHERE true` between the list of a SELECT and ON CONFLICT: the parser takes ON for a name of the last column.
fn with_lists_ended(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    // Whether a list of a SELECT goes on, in each parenthesis.
    let mut lists = vec![false];
    // The last two tokens that were not blank.
    let mut last = [Token::EOF, Token::EOF];
    for (at, token) in tokens.iter().enumerate() {
        let is = |text: &str| is_word(&token.token, text);
        let ends =
            ["where", "group", "having", "order", "limit", "offset", "fetch", "window", "union", "intersect", "except"];
        match &token.token {
            Token::LParen => lists.push(false),
            Token::RParen if lists.len() > 1 => drop(lists.pop()),
            Token::SemiColon => lists = vec![false],
            _ => {}
        }
        let follows_distinct = is_word(&last[1], "distinct") && !is_word(&last[0], "select");
        let Some(is_list) = lists.last_mut() else { break };
        if is("select") {
            *is_list = true;
        } else if is("from") && !follows_distinct || ends.iter().any(|word| is(word)) {
            *is_list = false;
        } else if *is_list && is("on") {
            let next = tokens[at + 1..].iter().find(|token| !is_blank(&token.token));
            if next.is_some_and(|next| is_word(&next.token, "conflict")) {
                let blank = || Token::Whitespace(Whitespace::Space);
                let words = [Token::make_keyword("WHERE"), blank(), Token::make_keyword("TRUE"), blank()];
                out.extend(words.map(|word| TokenWithSpan { token: word, span: token.span }));
                *is_list = false;
            }
        }
        if !is_blank(&token.token) {
            let [_, before] = last;
            last = [before, token.token.clone()];
        }
        out.push(token.clone());
    }
    out
}

/// Moves each expression among the columns of `ON CONFLICT (…)` into a name.
pub(super) fn with_targets(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(|token| is_word(&token.token, "conflict")) {
        return tokens;
    }
    let tokens = with_lists_ended(tokens);
    let mut out = Vec::with_capacity(tokens.len());
    let mut rest = tokens.into_iter().peekable();
    // The last two words that were not blank.
    let mut last = [Token::EOF, Token::EOF];
    while let Some(token) = rest.next() {
        let opens = token.token == Token::LParen && is_word(&last[0], "on") && is_word(&last[1], "conflict");
        if !is_blank(&token.token) {
            let [_, before] = last;
            last = [before, token.token.clone()];
        }
        out.push(token);
        if opens {
            items(&mut rest, &mut out);
        }
    }
    out
}

/// The items of a list, up to the parenthesis that closes it.
fn items(rest: &mut dyn Iterator<Item = TokenWithSpan>, out: &mut Vec<TokenWithSpan>) {
    let (mut item, mut depth) = (Vec::new(), 0_usize);
    for token in rest {
        let ends = depth == 0 && matches!(token.token, Token::Comma | Token::RParen);
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        if !ends {
            item.push(token);
            continue;
        }
        put(std::mem::take(&mut item), out);
        let is_last = token.token == Token::RParen;
        out.push(token);
        if is_last {
            return;
        }
    }
    out.append(&mut item);
}

fn put(item: Vec<TokenWithSpan>, out: &mut Vec<TokenWithSpan>) {
    let mut words: Vec<_> = item.iter().filter(|token| !is_blank(&token.token)).collect();
    // A name may stand in parentheses.
    while let [first, .., last] = &words[..]
        && first.token == Token::LParen
        && last.token == Token::RParen
        && words.len() == 3
    {
        words = vec![words[1]];
    }
    if let [name] = words[..] {
        out.push(name.clone());
    } else if words.is_empty() {
        out.extend(item);
    } else {
        let text: String = item.iter().map(|token| token.token.to_string()).collect();
        out.push(TokenWithSpan::wrap(Token::Word(quoted(format!("{TARGET}{}", text.trim())))));
    }
}
