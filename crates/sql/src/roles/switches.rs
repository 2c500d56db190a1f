//! Statements and settings that make another role of a session.

use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, Word};

use super::parsing::{identifier, take, word};
use crate::error::SqlError;
use crate::parse::error_of;

/// A statement that makes another role of a session.
#[derive(Clone, Debug)]
pub(crate) struct Switch {
    /// Only in this transaction.
    pub(crate) is_local: bool,
    /// SESSION AUTHORIZATION, and not ROLE.
    pub(crate) is_of_session: bool,
    /// `None`: the one that it was at first.
    pub(crate) to: Option<String>,
    pub(crate) tag: &'static str,
}

impl Switch {
    /// Back to the role that has logged in.
    pub(crate) fn back(tag: &'static str) -> Self {
        Self { is_local: false, is_of_session: true, to: None, tag }
    }

    /// What a value of the settings `role` and `session_authorization` means; `None`: the name is another one's.
    pub(crate) fn of_setting(name: &str, value: Option<&str>, is_local: bool) -> Option<Self> {
        let is_of_session = match name {
            "role" => false,
            "session_authorization" => true,
            _ => return None,
        };
        let to = value.filter(|to| is_of_session || *to != "none").map(str::to_owned);
        Some(Self { is_local, is_of_session, to, tag: "SET" })
    }
}

/// `SET ROLE`, `SET SESSION AUTHORIZATION`, and RESET of both.
pub(super) fn switch(parser: &mut Parser<'_>) -> Result<Option<Switch>, SqlError> {
    let is_reset = word(parser, 0) == "reset";
    let modifier = word(parser, 1);
    let behind = match modifier.as_str() {
        "local" if !is_reset => 2,
        "session" if !is_reset && matches!(word(parser, 2).as_str(), "role" | "session") => 2,
        _ => 1,
    };
    let is_local = behind == 2 && modifier == "local";
    let is_of_session = word(parser, behind) == "session" && word(parser, behind + 1) == "authorization";
    let is_role = word(parser, behind) == "role";
    if !is_of_session && !is_role {
        return Ok(None);
    }
    let count = behind + if is_of_session { 2 } else { 1 };
    (0..count).for_each(|_| drop(parser.next_token()));
    let tag = if is_reset { "RESET" } else { "SET" };
    if is_reset {
        return Ok(Some(Switch { is_local, is_of_session, to: None, tag }));
    }
    // A role is a setting, too.
    let is_set = is_role && (take(parser, &["to"]) || parser.consume_token(&Token::Eq));
    let to = match &parser.peek_token_ref().token {
        Token::SingleQuotedString(_) => Some(parser.parse_literal_string().map_err(error_of)?),
        Token::Word(Word { quote_style: None, keyword: Keyword::NONE, .. }) if !is_of_session => {
            parser.next_token();
            None
        }
        Token::Word(Word { quote_style: None, keyword: Keyword::DEFAULT, .. }) if is_of_session || is_set => {
            parser.next_token();
            None
        }
        _ => Some(identifier(parser)?),
    };
    // A text may say the same.
    let to = to.filter(|to| is_of_session || to != "none");
    Ok(Some(Switch { is_local, is_of_session, to, tag }))
}
