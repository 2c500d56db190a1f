//! Values of settings as texts: what a text says, and how a value is shown.

use std::sync::Arc;

use polychron_base::clock::Duration;

use super::{Scope, Setting, Settings, Values};
use crate::error::{SqlError, SqlState};
use crate::names::{Path, shown_path};
use crate::parameters::is_unicode;
use crate::text::Zone;

/// The most that a session keeps of settings with names of its own, in bytes.
const CUSTOM_BYTES: usize = 1 << 20;

pub(crate) fn invalid(name: &str, value: &str) -> SqlError {
    let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

pub(crate) fn unrecognized(name: &str) -> SqlError {
    let message = format!("unrecognized configuration parameter \"{name}\"");
    SqlError::new(SqlState::UNDEFINED_OBJECT, message)
}

/// That a setting cannot be changed by a session.
pub(super) fn unchangeable(setting: &Setting) -> SqlError {
    let end = match setting.scope {
        Scope::Restart => "changed without restarting the server",
        Scope::Reload => "changed now",
        Scope::Fixed | Scope::Session | Scope::Superuser => "changed",
    };
    SqlError::new(SqlState::CANNOT_CHANGE, format!("parameter \"{}\" cannot be {end}", setting.name))
}

/// Whether a name is one that a program may give a setting of its own: identifiers with points between them.
pub(crate) fn is_custom(name: &str) -> Result<bool, SqlError> {
    if !name.contains('.') {
        return Ok(false);
    }
    let is_identifier = |part: &str| {
        part.starts_with(|it: char| it.is_alphabetic() || it == '_')
            && part.chars().all(|it| it.is_alphanumeric() || it == '_' || it == '$')
    };
    if name.split('.').all(is_identifier) {
        return Ok(true);
    }
    let detail = "Custom parameter names must be two or more simple identifiers separated by dots.";
    let message = format!("invalid configuration parameter name \"{name}\"");
    Err(SqlError::new(SqlState::INVALID_NAME, message).with_detail(detail))
}

/// The time that a text says, in milliseconds: `None` for 0.
fn duration(name: &str, text: &str) -> Result<Option<Duration>, SqlError> {
    let text = text.trim();
    if name == "park_after" && text.eq_ignore_ascii_case("off") {
        return Ok(None);
    }
    let unit_at = text.find(|it: char| !matches!(it, '0'..='9' | '.' | '-' | '+')).unwrap_or(text.len());
    let unit = match text[unit_at..].trim() {
        "us" => 0.001,
        "" | "ms" => 1.0,
        "s" => 1e3,
        "min" => 6e4,
        "h" => 3.6e6,
        "d" => 8.64e7,
        _ => {
            let hint = "Valid units for this parameter are \"us\", \"ms\", \"s\", \"min\", \"h\", and \"d\".";
            return Err(invalid(name, text).with_hint(hint));
        }
    };
    let number: f64 = text[..unit_at].parse().map_err(|_| invalid(name, text))?;
    let millis = (number * unit).round_ties_even();
    if !(0.0..=f64::from(i32::MAX)).contains(&millis) {
        let range = format!("{millis} ms is outside the valid range for parameter \"{name}\" (0 .. 2147483647)");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, range));
    }
    Ok((millis > 0.0).then(|| Duration::from_millis(millis as u64)))
}

/// The whole seconds that a text says. A number without a unit is one of seconds.
fn seconds(name: &str, text: &str, least: i64, most: i64) -> Result<u64, SqlError> {
    let is_plain = text.trim().bytes().all(|digit| digit.is_ascii_digit());
    let time = if is_plain { duration(name, &format!("{}s", text.trim())) } else { duration(name, text) }?;
    let seconds = time.map_or(0.0, |time| time.as_secs_f64().round_ties_even());
    if !(least as f64..=most as f64).contains(&seconds) {
        let message = format!("{seconds} s is outside the valid range for parameter \"{name}\" ({least} .. {most})");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok(seconds as u64)
}

/// A time as PostgreSQL shows it: in the largest unit of which it is a multiple.
fn shown_time(time: Option<Duration>) -> String {
    let millis = time.map_or(0, |time| time.as_millis());
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms")];
    let fitting = units.iter().find(|(unit, _)| millis > 0 && millis.is_multiple_of(*unit));
    fitting.map_or_else(|| "0".to_owned(), |(unit, name)| format!("{}{name}", millis / unit))
}

/// The whole milliseconds of a time that [`checked`] has shown.
pub(crate) fn millis_of(shown: &str) -> u64 {
    duration("", shown).ok().flatten().map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Whether a switch is on.
fn switched(text: &str) -> Option<bool> {
    match text.to_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

/// The schemas of a path: identifiers with commas between them.
fn schemas(text: &str) -> Result<Vec<String>, SqlError> {
    let wrong = || invalid("search_path", text).with_detail("List syntax is invalid.");
    let (mut schemas, mut rest) = (Vec::new(), text.trim());
    if rest.is_empty() {
        return Ok(schemas);
    }
    loop {
        let behind = if let Some(inside) = rest.strip_prefix('"') {
            let (mut name, mut at) = (String::new(), inside);
            loop {
                let (part, next) = at.split_once('"').ok_or_else(wrong)?;
                name.push_str(part);
                match next.strip_prefix('"') {
                    Some(more) => {
                        name.push('"');
                        at = more;
                    }
                    None => {
                        at = next;
                        break;
                    }
                }
            }
            schemas.push(name);
            at.trim_start()
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            let name = rest[..end].trim();
            if name.is_empty() || name.contains(|it: char| it.is_whitespace() || it == '"') {
                return Err(wrong());
            }
            schemas.push(name.to_lowercase());
            &rest[end..]
        };
        if behind.is_empty() {
            return Ok(schemas);
        }
        rest = behind.strip_prefix(',').ok_or_else(wrong)?.trim_start();
    }
}

/// The value that a text says of a setting, as SHOW has it.
///
/// # Errors
/// It says none.
pub fn checked(setting: &Setting, text: &str) -> Result<String, SqlError> {
    let name = setting.name;
    if text.contains('\0') {
        return Err(invalid(name, "\\0"));
    }
    let unsupported = || SqlError::unsupported(format!("the value \"{text}\" of parameter \"{name}\""));
    Ok(match setting.values {
        Values::Text => text.to_owned(),
        Values::Switch => {
            let is_on = switched(text);
            let is_on = is_on.ok_or_else(|| {
                SqlError::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("parameter \"{name}\" requires a Boolean value"),
                )
            })?;
            if is_on { "on" } else { "off" }.to_owned()
        }
        Values::Choice(of) => {
            let chosen = of.iter().find(|own| own.eq_ignore_ascii_case(text));
            let hint = || format!("Available values: {}.", of.join(", "));
            (*chosen.ok_or_else(|| invalid(name, text).with_hint(hint()))?).to_owned()
        }
        Values::Number(least, most) => match text.trim().parse::<i64>() {
            Ok(number) if (least..=most).contains(&number) => number.to_string(),
            // Other digits are another form of answers.
            Ok(-15..=0) if name == "extra_float_digits" => return Err(unsupported()),
            Ok(number) => {
                let message =
                    format!("{number} is outside the valid range for parameter \"{name}\" ({least} .. {most})");
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
            }
            Err(_) => return Err(invalid(name, text)),
        },
        Values::Time => shown_time(duration(name, text)?),
        Values::Seconds(least, most) => shown_time(Some(Duration::from_secs(seconds(name, text, least, most)?))),
        Values::Mode => {
            let digits = text.trim();
            let mode = Some(digits).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()));
            let mode = mode.and_then(|digits| u32::from_str_radix(digits, 8).ok()).filter(|mode| *mode <= 0o777);
            format!("{:04o}", mode.ok_or_else(|| invalid(name, text))?)
        }
        Values::Path => shown_path(&schemas(text)?),
        Values::Same(of) if of.contains(&text.to_lowercase().as_str()) => setting.default.to_owned(),
        Values::Zone => Zone::of_setting(text).ok_or_else(|| invalid(name, text))?.shown().to_owned(),
        Values::Encoding if is_unicode(text) => setting.default.to_owned(),
        Values::Same(_) | Values::Encoding => return Err(unsupported()),
    })
}

impl Settings {
    /// The value of a setting, by its name in small letters. `None`: it is none that sessions have a value of.
    pub(crate) fn shown(&self, name: &str) -> Option<String> {
        let switch = |is_on: bool| if is_on { "on" } else { "off" }.to_owned();
        let mut own = self.clone();
        if let Some(time) = own.time(name) {
            return Some(shown_time(*time));
        }
        Some(match name {
            "replay" => switch(self.is_replayed),
            "default_transaction_read_only" => switch(self.reads_only),
            "read_only_freshness" => if self.reads_recent { "recent" } else { "strict" }.to_owned(),
            "search_path" => shown_path(&self.path.schemas),
            "timezone" => self.zone.shown().to_owned(),
            "application_name" => self.client.application().to_owned(),
            "extra_float_digits" => self.client.float_digits.to_string(),
            _ => match Setting::find(name) {
                Some(setting) if setting.scope.is_of_sessions() => setting.default.to_owned(),
                Some(_) => return None,
                None => self.client.custom(name)?.to_owned(),
            },
        })
    }

    /// A time-out, by its name.
    fn time(&mut self, name: &str) -> Option<&mut Option<Duration>> {
        Some(match name {
            "lock_timeout" => &mut self.lock_timeout,
            "statement_timeout" => &mut self.statement_timeout,
            "park_after" => &mut self.park_after,
            "idle_in_transaction_session_timeout" => &mut self.idle_timeout,
            "log_min_duration_transaction" => &mut self.log_after,
            _ => return None,
        })
    }

    /// Gives a setting the value that a text says; the name is in small letters.
    ///
    /// # Errors
    /// There is no such setting, sessions do not change it, or the text says no value of it.
    pub(crate) fn set(&mut self, name: &str, text: &str) -> Result<(), SqlError> {
        let Some(setting) = Setting::find(name) else {
            if !is_custom(name)? {
                return Err(unrecognized(name));
            }
            return self.client.set_custom(name, text, CUSTOM_BYTES);
        };
        if !setting.scope.is_of_sessions() {
            return Err(unchangeable(setting));
        }
        let value = checked(setting, text)?;
        if let Some(time) = self.time(name) {
            *time = duration(name, &value)?;
            return Ok(());
        }
        match name {
            "replay" => self.is_replayed = value == "on",
            "default_transaction_read_only" => self.reads_only = value == "on",
            "read_only_freshness" => self.reads_recent = value == "recent",
            "search_path" => {
                let schemas = schemas(&value)?;
                if schemas != self.path.schemas {
                    self.path = Arc::new(Path { schemas, ..Path::clone(&self.path) });
                }
            }
            "timezone" => self.zone = Zone::of_setting(&value).ok_or_else(|| invalid(name, &value))?,
            "application_name" => self.client.set_application(&value),
            "extra_float_digits" => self.client.float_digits = value.parse().map_err(|_| invalid(name, &value))?,
            // The value is the only one.
            _ => {}
        }
        Ok(())
    }

    /// Gives a setting the value that it has there.
    ///
    /// # Errors
    /// As [`Settings::set`].
    pub(crate) fn take(&mut self, name: &str, from: &Self) -> Result<(), SqlError> {
        // What a program has set by itself has no value at first.
        self.set(name, &from.shown(name).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_lists_of_identifiers() {
        let read = |text| schemas(text).unwrap();
        assert_eq!(read(" A, \"B c\" ,\"d\"\"e\",\"$user\""), ["a", "B c", "d\"e", "$user"]);
        assert_eq!(read(""), Vec::<String>::new());
        for wrong in ["a,", ",a", "a b", "\"a", "\"a\"b", "a\"b\""] {
            assert_eq!(schemas(wrong).unwrap_err().state(), SqlState::INVALID_PARAMETER_VALUE, "{wrong}");
        }
    }

    #[test]
    fn names_of_programs_have_a_point() {
        assert!(is_custom("my.name").unwrap() && !is_custom("name").unwrap());
        for wrong in ["my.", ".my", "my.1x", "my name.x", "a..b"] {
            assert_eq!(is_custom(wrong).unwrap_err().state(), SqlState::INVALID_NAME, "{wrong}");
        }
    }
}
