//! Forms of FOR UPDATE that the parser does not know, as those that mean the same here: `FOR NO KEY UPDATE`, `FOR KEY SHARE`, and `OF` with several tables.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// The keyword that a token is.
fn keyword(token: &TokenWithSpan) -> Keyword {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

/// The first tokens from here on that are no blanks, with their positions.
fn ahead<const N: usize>(tokens: &[TokenWithSpan], from: usize) -> Option<[usize; N]> {
    let is_seen = |at: &usize| !matches!(tokens[*at].token, Token::Whitespace(_));
    let found: Vec<_> = (from..tokens.len()).filter(is_seen).take(N).collect();
    found.try_into().ok()
}

pub(super) fn with_row_locks(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut at = 0;
    while at < tokens.len() {
        if keyword(&tokens[at]) == Keyword::FOR {
            without_key(&mut tokens, at);
            each_table(&mut tokens, at);
        }
        at += 1;
    }
    tokens
}

/// Leaves out what says that keys are not locked, or are alone.
fn without_key(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let words = |positions: &[usize]| positions.iter().map(|at| keyword(&tokens[*at])).collect::<Vec<_>>();
    let gone = match (ahead::<4>(tokens, at), ahead::<3>(tokens, at)) {
        (Some(four), _) if words(&four[1..]) == [Keyword::NO, Keyword::KEY, Keyword::UPDATE] => vec![four[2], four[1]],
        (_, Some(three)) if words(&three[1..]) == [Keyword::KEY, Keyword::SHARE] => vec![three[1]],
        _ => Vec::new(),
    };
    gone.into_iter().for_each(|at| drop(tokens.remove(at)));
}

/// `FOR UPDATE OF a, b` is `FOR UPDATE OF a FOR UPDATE OF b`.
fn each_table(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let Some([first, strength, of]) = ahead::<3>(tokens, at) else { return };
    let is_lock = matches!(keyword(&tokens[strength]), Keyword::UPDATE | Keyword::SHARE);
    if !is_lock || keyword(&tokens[of]) != Keyword::OF {
        return;
    }
    let again = [first, strength, of].map(|at| tokens[at].clone());
    let mut next = of + 1;
    while let Some([name, comma]) = ahead::<2>(tokens, next) {
        if !matches!(tokens[name].token, Token::Word(_)) || tokens[comma].token != Token::Comma {
            return;
        }
        tokens.splice(comma..=comma, again.iter().cloned());
        next = comma + again.len();
    }
}
