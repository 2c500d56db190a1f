//! What ALTER SYSTEM, ALTER ROLE and ALTER DATABASE say of settings.

use sqlparser::ast;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::{Scope, Setting, Settings, checked, is_custom, is_default, not_to_set, text_of, unrecognized};
use crate::configured::SystemChange;
use crate::error::{SqlError, SqlState};
use crate::parse::{error_of, syntax_error};
use crate::roles::parsing::{expect, identifier, take};

/// A change of the settings with which sessions begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SettingChange {
    Set {
        name: String,
        value: String,
    },
    /// The value that the session has.
    FromCurrent {
        name: String,
    },
    Reset {
        name: String,
    },
    ResetAll,
}

/// The name of a setting, in small letters.
fn name(parser: &mut Parser<'_>) -> Result<String, SqlError> {
    if take(parser, &["time", "zone"]) {
        return Ok("timezone".to_owned());
    }
    let mut name = identifier(parser)?;
    while parser.consume_token(&Token::Period) {
        name = format!("{name}.{}", identifier(parser)?);
    }
    Ok(name.to_lowercase())
}

/// The values behind the name.
fn values(parser: &mut Parser<'_>) -> Result<Vec<ast::Expr>, SqlError> {
    let mut all = Vec::new();
    loop {
        let is_name = matches!(&parser.peek_token_ref().token, Token::Word(_));
        all.push(if is_name {
            ast::Expr::Identifier(parser.parse_identifier().map_err(error_of)?)
        } else {
            parser.parse_expr().map_err(error_of)?
        });
        if !parser.consume_token(&Token::Comma) {
            return Ok(all);
        }
    }
}

impl SettingChange {
    /// SET and RESET, if one of them comes next.
    pub(crate) fn parse(parser: &mut Parser<'_>) -> Result<Option<Self>, SqlError> {
        if take(parser, &["reset"]) {
            return Ok(Some(if take(parser, &["all"]) { Self::ResetAll } else { Self::Reset { name: name(parser)? } }));
        }
        if !take(parser, &["set"]) {
            return Ok(None);
        }
        let name = name(parser)?;
        if take(parser, &["from", "current"]) {
            return Ok(Some(Self::FromCurrent { name }));
        }
        if !take(parser, &["to"]) && !parser.consume_token(&Token::Eq) {
            return Err(syntax_error(&parser.peek_token_ref().token));
        }
        let values = values(parser)?;
        Ok(Some(if is_default(&values) {
            Self::Reset { name }
        } else {
            Self::Set { value: text_of(&name, &values), name }
        }))
    }

    /// ALTER SYSTEM, behind these words.
    pub(crate) fn parse_system(parser: &mut Parser<'_>) -> Result<SystemChange, SqlError> {
        expect(parser, &["alter", "system"])?;
        match Self::parse(parser)? {
            Some(Self::Set { name, value }) => Ok(SystemChange { name: Some(name), value: Some(value) }),
            Some(Self::Reset { name }) => Ok(SystemChange { name: Some(name), value: None }),
            Some(Self::ResetAll) => Ok(SystemChange { name: None, value: None }),
            _ => Err(syntax_error(&parser.peek_token_ref().token)),
        }
    }

    /// Changes the settings that are kept.
    ///
    /// # Errors
    /// There is no such setting, no session changes it, only superusers do, or it has no such value.
    pub(crate) fn apply(
        &self,
        kept: &mut Kept,
        current: Option<&Settings>,
        is_superuser: bool,
    ) -> Result<(), SqlError> {
        let is_of_superusers =
            |name: &str| Setting::find(name).is_some_and(|setting| setting.scope == Scope::Superuser);
        let (name, value) = match self {
            Self::ResetAll => {
                // What only superusers set, only they take back.
                kept.0.retain(|name, _| !is_superuser && is_of_superusers(name));
                return Ok(());
            }
            Self::Reset { name } => (name, None),
            Self::Set { name, value } => (name, Some(value.clone())),
            Self::FromCurrent { name } => (name, current.and_then(|current| current.shown(name))),
        };
        if is_of_superusers(name) && !is_superuser {
            return Err(not_to_set(name));
        }
        let value = match Setting::find(name) {
            Some(setting) if setting.scope.is_of_sessions() => value.map(|value| checked(setting, &value)),
            Some(setting) => return Err(super::values::unchangeable(setting)),
            None if is_custom(name)? => value.map(Ok),
            None => return Err(unrecognized(name)),
        };
        match value.transpose()? {
            Some(value) => kept.0.insert(name.clone(), value),
            None => kept.0.remove(name),
        };
        let bytes: usize = kept.0.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > KEPT_BYTES {
            let message = format!("the settings that are kept have at most {KEPT_BYTES} bytes");
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
        }
        Ok(())
    }
}

/// The most that a role, or the database, keeps, in bytes: it has to fit into a row.
const KEPT_BYTES: usize = 16 << 10;

/// Settings with which sessions begin, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub(crate) struct Kept(std::collections::BTreeMap<String, String>);

impl Kept {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As catalogs have them: `name=value`.
    pub(crate) fn items(&self) -> Vec<String> {
        let shown = |name: &str| super::shown_name(name).to_owned();
        self.0.iter().map(|(name, value)| format!("{}={value}", shown(name))).collect()
    }

    /// Has a session begin with them. Those that are no longer known are left out.
    pub(crate) fn begin(&self, settings: &mut Settings) {
        self.0.iter().for_each(|(name, value)| drop(settings.set(name, value)));
    }
}
