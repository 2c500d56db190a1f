//! What clients set for their sessions, and are told of the server.
//!
//! Most of it has one value alone, because answers have one form: another one is refused by name, and never taken and ignored.

use polychron_engine::Protocol;
use sqlparser::ast;

use crate::connection::Connection;
use crate::error::{SqlError, SqlState};
use crate::outcome::{Notice, Outcome};
use crate::text::Zone;

/// The release of PostgreSQL that answers are those of.
pub(crate) const SERVER_VERSION: &str = "15.0";

/// What SET changes and no statement looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientSettings {
    /// The bytes of a name, and how many there are: PostgreSQL cuts longer ones.
    application: ([u8; LONGEST], usize),
    /// Beyond 0 floats are shown by their shortest digits, whatever it is.
    float_digits: u8,
}

/// The longest name of an application, in bytes.
const LONGEST: usize = 63;

impl Default for ClientSettings {
    fn default() -> Self {
        Self { application: ([0; LONGEST], 0), float_digits: 1 }
    }
}

impl ClientSettings {
    /// Takes over one of them, by its name.
    pub(crate) fn take(&mut self, name: &str, from: &Self) {
        match name {
            "application_name" => self.application = from.application,
            "extra_float_digits" => self.float_digits = from.float_digits,
            // All others are never changed.
            _ => {}
        }
    }

    pub(crate) fn application(&self) -> &str {
        str::from_utf8(&self.application.0[..self.application.1]).unwrap_or_default()
    }

    fn set_application(&mut self, name: &str) {
        let end = (0..=LONGEST.min(name.len())).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
        self.application.0[..end].copy_from_slice(&name.as_bytes()[..end]);
        self.application.1 = end;
    }
}

/// How a setting is changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// It is not.
    Never,
    /// To one of these, in small letters, which all are what it is.
    Same(&'static [&'static str]),
    /// To a name of UTF-8.
    Encoding,
    /// To any text.
    Application,
    FloatDigits,
    /// To a zone of time.
    Zone,
}

/// A setting: its name in small letters, the name that clients are told, its value, and how it is changed.
struct Parameter {
    name: &'static str,
    shown: &'static str,
    value: &'static str,
    change: Change,
    /// Clients are told of it when they connect.
    is_reported: bool,
}

const fn parameter(
    (name, shown): (&'static str, &'static str),
    value: &'static str,
    change: Change,
    is_reported: bool,
) -> Parameter {
    Parameter { name, shown, value, change, is_reported }
}

const LEVELS: &[&str] = &["serializable", "repeatable read", "read committed", "read uncommitted"];

const PARAMETERS: &[Parameter] = &[
    parameter(("application_name", "application_name"), "", Change::Application, true),
    parameter(("client_encoding", "client_encoding"), "UTF8", Change::Encoding, true),
    parameter(("datestyle", "DateStyle"), "ISO, MDY", Change::Same(&["iso", "iso, mdy", "iso,mdy", "mdy"]), true),
    parameter(
        ("default_transaction_read_only", "default_transaction_read_only"),
        "off",
        // By the session itself.
        Change::Never,
        true,
    ),
    parameter(("in_hot_standby", "in_hot_standby"), "off", Change::Never, true),
    parameter(("integer_datetimes", "integer_datetimes"), "on", Change::Never, true),
    parameter(("intervalstyle", "IntervalStyle"), "postgres", Change::Same(&["postgres"]), true),
    parameter(("is_superuser", "is_superuser"), "on", Change::Never, true),
    parameter(("server_encoding", "server_encoding"), "UTF8", Change::Never, true),
    parameter(("server_version", "server_version"), SERVER_VERSION, Change::Never, true),
    parameter(("session_authorization", "session_authorization"), crate::bind::ROLE, Change::Never, true),
    parameter(
        ("standard_conforming_strings", "standard_conforming_strings"),
        "on",
        Change::Same(&["on", "true", "yes", "1"]),
        true,
    ),
    parameter(("timezone", "TimeZone"), "UTC", Change::Zone, true),
    parameter(("bytea_output", "bytea_output"), "hex", Change::Same(&["hex"]), false),
    parameter(("client_min_messages", "client_min_messages"), "notice", Change::Same(&["notice"]), false),
    parameter(
        ("default_transaction_isolation", "default_transaction_isolation"),
        "serializable",
        Change::Same(LEVELS),
        false,
    ),
    parameter(("extra_float_digits", "extra_float_digits"), "1", Change::FloatDigits, false),
    parameter(("max_identifier_length", "max_identifier_length"), "63", Change::Never, false),
    parameter(("max_index_keys", "max_index_keys"), "32", Change::Never, false),
    parameter(("server_version_num", "server_version_num"), "150000", Change::Never, false),
];

fn find(name: &str) -> Option<&'static Parameter> {
    PARAMETERS.iter().find(|parameter| parameter.name.eq_ignore_ascii_case(name))
}

/// Whether an encoding of this name is UTF-8. As in PostgreSQL, only its letters and digits count.
fn is_unicode(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    ["utf8", "unicode"].iter().any(|own| plain.eq_ignore_ascii_case(own))
}

/// Names of the settings with their values, and whether clients change them. `client` and `zone` are those of a session.
pub(crate) fn all(client: &ClientSettings, zone: &Zone) -> impl Iterator<Item = (&'static str, String, bool)> {
    PARAMETERS.iter().map(|parameter| {
        let value = match parameter.change {
            Change::Zone => zone.shown().to_owned(),
            Change::Application => client.application().to_owned(),
            Change::FloatDigits => client.float_digits.to_string(),
            _ => parameter.value.to_owned(),
        };
        (parameter.shown, value, parameter.change != Change::Never)
    })
}

/// The value of a setting that is always the same; `None`: there is none of this name.
///
/// # Errors
/// Sessions change it.
pub(crate) fn fixed(name: &str) -> Result<Option<&'static str>, SqlError> {
    const OF_SESSIONS: [&str; 7] = [
        "replay",
        "read_only_freshness",
        "lock_timeout",
        "statement_timeout",
        "park_after",
        "idle_in_transaction_session_timeout",
        "search_path",
    ];
    let is_of_session = || SqlError::unsupported(format!("current_setting of \"{name}\""));
    let own = name.to_lowercase();
    match find(&own) {
        _ if OF_SESSIONS.contains(&own.as_str()) || own == "default_transaction_read_only" => Err(is_of_session()),
        None => Ok(None),
        Some(parameter) => match parameter.change {
            Change::Application | Change::FloatDigits | Change::Zone => Err(is_of_session()),
            Change::Never | Change::Same(_) | Change::Encoding => Ok(Some(parameter.value)),
        },
    }
}

/// Whether it is one of these settings.
pub(crate) fn is_known(name: &str) -> bool {
    find(name).is_some()
}

/// That a setting of this name, if it is one of these, may be changed.
pub(crate) fn check_may_change(name: &str) -> Result<(), SqlError> {
    let is_own = ["default_transaction_read_only"].contains(&name);
    match find(name) {
        Some(parameter) if parameter.change == Change::Never && !is_own => {
            let message = format!("parameter \"{}\" cannot be changed", parameter.shown);
            Err(SqlError::new(SqlState::CANNOT_CHANGE, message))
        }
        _ => Ok(()),
    }
}

/// The name of a setting as PostgreSQL shows it.
pub(crate) fn shown_name(name: &str) -> &str {
    find(name).map_or(name, |parameter| parameter.shown)
}

/// The text of a value, which may stand in quotes.
fn text_of(value: &ast::Expr) -> String {
    match value {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) | ast::Value::EscapedStringLiteral(text) => text.clone(),
            other => other.to_string(),
        },
        ast::Expr::Identifier(name) => name.value.clone(),
        other => other.to_string(),
    }
}

impl<P: Protocol> Connection<P> {
    /// The value of a setting that clients have for their sessions, or are told of the server; `None`: there is none of this name.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let parameter = find(name)?;
        if let Some((is_first, values)) = self.settings().choice(name) {
            return Some(values[usize::from(!*is_first)].to_owned());
        }
        match parameter.name {
            "session_authorization" => return Some(self.path.user.session.1.clone()),
            "is_superuser" => return Some(if self.is_superuser() { "on" } else { "off" }.to_owned()),
            _ => {}
        }
        Some(match parameter.change {
            Change::Application => self.client.application().to_owned(),
            Change::FloatDigits => self.client.float_digits.to_string(),
            Change::Zone => self.zone.shown().to_owned(),
            Change::Never | Change::Same(_) | Change::Encoding => parameter.value.to_owned(),
        })
    }

    /// What the client calls itself.
    pub fn application_name(&self) -> &str {
        self.client.application()
    }

    /// The zone of the session, by the name that SHOW gives it.
    pub fn time_zone(&self) -> &str {
        self.zone.shown()
    }

    /// Names and values of the settings that PostgreSQL tells clients when they connect.
    pub fn reported_parameters(&self) -> impl Iterator<Item = (&'static str, String)> {
        let reported = PARAMETERS.iter().filter(|parameter| parameter.is_reported);
        reported.filter_map(|parameter| Some((parameter.shown, self.parameter(parameter.name)?)))
    }

    /// Changes a setting as SET does, from its text.
    ///
    /// # Errors
    /// There is none of this name, it cannot be changed, or not to this value.
    pub fn set_parameter(&mut self, name: &str, value: &str) -> Result<(), SqlError> {
        if name == "search_path" {
            let schemas = value.split(',').map(|schema| schema.trim().trim_matches('"').replace('"', ""));
            let schemas: Vec<_> = schemas.map(|schema| format!("\"{schema}\"")).collect();
            return self.execute(&format!("SET search_path = {}", schemas.join(", ")), &[]).map(|_| ());
        }
        let mut settings = self.settings();
        if settings.choice(name).is_none() && settings.time(name).is_none() {
            if let Some(parameter) = find(name) {
                return self.change_parameter(parameter, value, false);
            }
            let message = format!("unrecognized configuration parameter \"{name}\"");
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
        }
        self.execute(&format!("SET {name} = '{}'", value.replace('\'', "''")), &[]).map(|_| ())
    }

    fn change_parameter(&mut self, parameter: &Parameter, value: &str, is_local: bool) -> Result<(), SqlError> {
        let shown = parameter.shown;
        match parameter.change {
            Change::Never => {
                let message = format!("parameter \"{shown}\" cannot be changed");
                Err(SqlError::new(SqlState::CANNOT_CHANGE, message))
            }
            Change::Same(values) if values.contains(&value.to_lowercase().as_str()) => Ok(()),
            Change::Encoding if is_unicode(value) => Ok(()),
            Change::Same(_) | Change::Encoding => {
                Err(SqlError::unsupported(format!("the value \"{value}\" of parameter \"{shown}\"")))
            }
            Change::Application => {
                self.change_settings(is_local, |settings| settings.client.set_application(value));
                Ok(())
            }
            Change::Zone => self.set_zone(Zone::of_setting(value), value, is_local),
            Change::FloatDigits => match value.parse::<i8>() {
                Ok(digits @ 1..=3) => {
                    self.change_settings(is_local, |settings| settings.client.float_digits = digits.unsigned_abs());
                    Ok(())
                }
                Ok(-15..=0) => Err(SqlError::unsupported(format!("the value {value} of parameter \"{shown}\""))),
                _ => {
                    let message = format!("invalid value for parameter \"{shown}\": \"{value}\"");
                    Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
                }
            },
        }
    }

    /// What SET says of one of these settings.
    pub(crate) fn set_client(&mut self, name: &str, values: &[ast::Expr], is_local: bool) -> Result<Outcome, SqlError> {
        let Some(parameter) = find(name) else { return Err(SqlError::internal("no such setting")) };
        if is_local && !self.session.is_explicit() {
            let message = "SET LOCAL can only be used in transaction blocks";
            let notices = vec![Notice::warning(SqlState::NO_ACTIVE_TRANSACTION, message)];
            return Ok(Outcome { notices, ..Outcome::tagged("SET") });
        }
        let texts: Vec<_> = values.iter().map(text_of).collect();
        let value = match texts.join(", ") {
            own if own.eq_ignore_ascii_case("default") => match &self.initial {
                Some(initial) if parameter.change == Change::Zone => initial.zone.shown().to_owned(),
                _ => parameter.value.to_owned(),
            },
            given => given,
        };
        let changed = self.change_parameter(parameter, &value, is_local);
        changed.map(|()| Outcome::tagged("SET")).map_err(|error| self.fail(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_applications_are_cut_between_letters() {
        let mut client = ClientSettings::default();
        client.set_application(&"é".repeat(40));
        assert_eq!(client.application(), "é".repeat(31));
        client.set_application("short");
        assert_eq!(client.application(), "short");
    }

    #[test]
    fn names_are_small_and_single() {
        for (at, parameter) in PARAMETERS.iter().enumerate() {
            assert_eq!(parameter.name, parameter.shown.to_lowercase());
            assert!(PARAMETERS[..at].iter().all(|other| other.name != parameter.name), "{}", parameter.name);
        }
    }
}
