//! SET, RESET and SHOW, and what programs ask of settings besides.

use polychron_engine::Protocol;
use sqlparser::ast;

use super::{SETTINGS, Scope, Setting, Settings, unrecognized};
use crate::bind::folded;
use crate::connection::Connection;
use crate::datum::OwnedDatum;
use crate::error::{SqlError, SqlState};
use crate::outcome::{Notice, Outcome};
use crate::roles::Switch;
use crate::types::Type;

/// The text of a value that SET gives a setting. A path is a list of names.
pub(crate) fn text_of(name: &str, values: &[ast::Expr]) -> String {
    let text = |value: &ast::Expr| match value {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) | ast::Value::EscapedStringLiteral(text) => text.clone(),
            other => other.to_string(),
        },
        ast::Expr::Identifier(word) if name == "search_path" => folded(word),
        ast::Expr::Identifier(word) => word.value.clone(),
        other => other.to_string(),
    };
    let texts = values.iter().map(text);
    let texts: Vec<_> = if name == "search_path" {
        texts.map(|schema| format!("\"{}\"", schema.replace('"', "\"\""))).collect()
    } else {
        texts.collect()
    };
    texts.join(", ")
}

/// The name of a setting, in small letters, as a statement says it.
pub(crate) fn name_of(written: &ast::ObjectName) -> String {
    let part = |part: &ast::ObjectNamePart| part.as_ident().map_or_else(|| part.to_string(), |word| word.value.clone());
    written.0.iter().map(part).collect::<Vec<_>>().join(".").to_lowercase()
}

/// Whether SET gives a setting the value that it had at first.
pub(crate) fn is_default(values: &[ast::Expr]) -> bool {
    matches!(values, [ast::Expr::Identifier(word)] if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("default"))
}

/// The name of a setting as PostgreSQL shows it.
pub(crate) fn shown_name(name: &str) -> &str {
    Setting::find(name).map_or(name, |setting| setting.name)
}

impl<P: Protocol> Connection<P> {
    /// The value of a setting; `None`: there is none of this name.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let switch = |is_on: bool| if is_on { "on" } else { "off" }.to_owned();
        let name = name.to_lowercase();
        let user = &self.path.user;
        match name.as_str() {
            "role" if user.current == user.session => return Some("none".to_owned()),
            "role" => return Some(user.current.1.clone()),
            "session_authorization" => return Some(user.session.1.clone()),
            "is_superuser" => return Some(switch(self.is_superuser())),
            "transaction_read_only" => return Some(switch(self.session.is_read_only())),
            _ => {}
        }
        self.settings().shown(&name).or_else(|| Some(self.database.configured(Setting::find(&name)?)))
    }

    /// How often settings have changed: where it is the same, all of them are.
    #[inline]
    pub fn settings_changes(&self) -> u64 {
        self.settings_changes
    }

    /// Names and values of the settings that PostgreSQL tells clients when they connect.
    pub fn reported_parameters(&self) -> impl Iterator<Item = (&'static str, String)> {
        let reported = SETTINGS.iter().filter(|setting| setting.is_reported);
        reported.filter_map(|setting| Some((setting.name, self.parameter(setting.name)?)))
    }

    /// Changes a setting as SET does, from its text.
    ///
    /// # Errors
    /// There is none of this name, it cannot be changed, or not to this value.
    pub fn set_parameter(&mut self, name: &str, value: &str) -> Result<(), SqlError> {
        self.set_text(&name.to_lowercase(), value, false)
    }

    /// Gives a setting the value that a text says, up to the end of the transaction where that is `is_local`.
    pub(crate) fn set_text(&mut self, name: &str, value: &str, is_local: bool) -> Result<(), SqlError> {
        self.check_may_set(name)?;
        if let Some(switch) = Switch::of_setting(name, Some(value), is_local) {
            return self.switch_role(&switch);
        }
        let mut probe = self.settings();
        probe.set(name, value)?;
        self.prepare_zone(&probe.zone)?;
        self.change_settings(is_local, |settings| drop(settings.set(name, value)));
        Ok(())
    }

    /// Whether the role may change a setting in its session.
    fn check_may_set(&self, name: &str) -> Result<(), SqlError> {
        match Setting::find(name) {
            Some(setting) if setting.scope == Scope::Superuser && !self.is_superuser() => Err(not_to_set(name)),
            _ => Ok(()),
        }
    }

    /// Whether the role sees the value of a setting.
    fn sees(&self, name: &str) -> bool {
        Setting::find(name).is_none_or(|setting| !setting.is_hidden) || self.is_superuser()
    }

    /// What SET says.
    pub(crate) fn set_written(
        &mut self,
        name: &str,
        values: &[ast::Expr],
        is_local: bool,
    ) -> Result<Outcome, SqlError> {
        if is_local && !self.is_in_block() {
            let message = "SET LOCAL can only be used in transaction blocks";
            let notices = vec![Notice::warning(SqlState::NO_ACTIVE_TRANSACTION, message)];
            return Ok(Outcome { notices, ..Outcome::tagged("SET") });
        }
        if is_default(values) {
            self.take_initial(name, is_local)?;
        } else {
            self.set_text(name, &text_of(name, values), is_local)?;
        }
        Ok(Outcome::tagged("SET"))
    }

    /// What settings are where nothing sets them.
    pub(crate) fn initial_settings(&self) -> Settings {
        let mut initial = self.initial.as_ref().map_or_else(|| self.settings(), |initial| (**initial).clone());
        // Who the session is does not belong to them.
        let schemas = initial.path.schemas.clone();
        initial.path = std::sync::Arc::new(crate::names::Path { schemas, ..(*self.path).clone() });
        initial
    }

    /// Gives a setting the value that it had at first.
    pub(crate) fn take_initial(&mut self, name: &str, is_local: bool) -> Result<(), SqlError> {
        self.check_may_set(name)?;
        if let Some(switch) = Switch::of_setting(name, None, is_local) {
            return self.switch_role(&switch);
        }
        let (initial, mut probe) = (self.initial_settings(), self.settings());
        probe.take(name, &initial)?;
        self.prepare_zone(&probe.zone)?;
        self.change_settings(is_local, |settings| drop(settings.take(name, &initial)));
        Ok(())
    }

    /// Gives all settings the values that they had at first.
    pub(crate) fn reset_all(&mut self) {
        let initial = self.initial_settings();
        self.change_settings(false, |settings| *settings = initial.clone());
    }

    /// What SHOW answers.
    pub(crate) fn show(&mut self, name: &str) -> Result<Outcome, SqlError> {
        if name == "all" {
            return Ok(self.show_all());
        }
        let value = self.parameter(name).ok_or_else(|| self.fail(unrecognized(name)))?;
        if !self.sees(name) {
            return Err(self.fail(not_to_see(name)));
        }
        let rows = vec![vec![OwnedDatum::Text(value.into())]];
        let columns = vec![(shown_name(name).to_owned(), Type::Text)];
        Ok(Outcome { count: 1, columns, rows, ..Outcome::tagged("SHOW") })
    }

    fn show_all(&self) -> Outcome {
        let settings = self.settings();
        let known = SETTINGS.iter().filter(|setting| self.sees(setting.name)).filter_map(|setting| {
            let value = self.parameter(setting.name)?;
            Some((setting.name.to_owned(), value, setting.said))
        });
        let custom = settings.client.all_custom().map(|(name, value)| (name.to_owned(), value.to_owned(), ""));
        let mut all: Vec<_> = known.chain(custom).collect();
        all.sort_by_key(|(name, ..)| name.to_lowercase());
        let text = |text: &str| OwnedDatum::Text(text.into());
        let rows: Vec<_> = all.iter().map(|(name, value, said)| vec![text(name), text(value), text(said)]).collect();
        let columns = all_columns().map(|name| (name.to_owned(), Type::Text)).to_vec();
        Outcome { count: rows.len() as u64, columns, rows, ..Outcome::tagged("SHOW") }
    }

    /// What RESET says.
    pub(crate) fn reset(&mut self, what: &ast::Reset) -> Result<Outcome, SqlError> {
        match what {
            ast::Reset::ALL => self.reset_all(),
            ast::Reset::SessionAuthorization => drop(self.switch(&Switch::back("RESET"))?),
            ast::Reset::ConfigurationParameter(name) => self.take_initial(&name_of(name), false)?,
        }
        Ok(Outcome::tagged("RESET"))
    }
}

/// That only a superuser changes a setting.
pub(crate) fn not_to_set(name: &str) -> SqlError {
    let message = format!("permission denied to set parameter \"{name}\"");
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
}

/// That only a superuser sees a setting.
pub(crate) fn not_to_see(name: &str) -> SqlError {
    let message =
        format!("must be superuser or have privileges of pg_read_all_settings to examine \"{}\"", shown_name(name));
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
}

/// The columns of SHOW ALL.
pub(crate) const fn all_columns() -> [&'static str; 3] {
    ["name", "setting", "description"]
}

/// Whether the session may be told of a setting by `current_setting`, whatever the transaction is.
pub(crate) fn is_of_transaction(name: &str) -> bool {
    matches!(name, "transaction_read_only")
}

/// Whether a setting is the same for all sessions.
pub(crate) fn is_constant(name: &str) -> bool {
    Setting::find(name).is_some_and(|setting| match setting.scope {
        Scope::Fixed => !matches!(name, "is_superuser" | "session_authorization" | "transaction_read_only"),
        Scope::Session | Scope::Superuser => matches!(setting.values, super::Values::Same(_) | super::Values::Encoding),
        Scope::Restart | Scope::Reload => false,
    })
}
