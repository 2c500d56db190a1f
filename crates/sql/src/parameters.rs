//! What clients are told of the server, and what they set for their sessions that no statement looks at.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{SqlError, SqlState};

/// The release of PostgreSQL that answers are those of.
pub(crate) const SERVER_VERSION: &str = "15.0";

/// What SET changes and no statement looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientSettings {
    /// The bytes of a name, and how many there are: PostgreSQL cuts longer ones.
    application: ([u8; LONGEST], usize),
    /// Beyond 0 floats are shown by their shortest digits, whatever it is.
    pub(crate) float_digits: u8,
    /// Settings of the program's own.
    custom: Option<Arc<BTreeMap<String, String>>>,
}

/// The longest name of an application, in bytes.
const LONGEST: usize = 63;

impl Default for ClientSettings {
    fn default() -> Self {
        Self { application: ([0; LONGEST], 0), float_digits: 1, custom: None }
    }
}

impl ClientSettings {
    pub(crate) fn application(&self) -> &str {
        str::from_utf8(&self.application.0[..self.application.1]).unwrap_or_default()
    }

    pub(crate) fn set_application(&mut self, name: &str) {
        let end = (0..=LONGEST.min(name.len())).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
        self.application.0[..end].copy_from_slice(&name.as_bytes()[..end]);
        self.application.1 = end;
    }

    /// The value of a setting of the program's own.
    pub(crate) fn custom(&self, name: &str) -> Option<&str> {
        self.custom.as_ref()?.get(name).map(String::as_str)
    }

    /// All settings of the program's own.
    pub(crate) fn all_custom(&self) -> impl Iterator<Item = (&str, &str)> {
        self.custom.iter().flat_map(|all| all.iter()).map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Sets one of them.
    ///
    /// # Errors
    /// All of them would have more than `most` bytes.
    pub(crate) fn set_custom(&mut self, name: &str, value: &str, most: usize) -> Result<(), SqlError> {
        let others = self.all_custom().filter(|(own, _)| *own != name);
        // What a map keeps beside the bytes of a short name counts, too.
        let bytes: usize = others.map(|(name, value)| 64 + name.len() + value.len()).sum();
        if 64 + bytes + name.len() + value.len() > most {
            let message = format!("the settings of a session with names of its own have at most {most} bytes");
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
        }
        Arc::make_mut(self.custom.get_or_insert_default()).insert(name.to_owned(), value.to_owned());
        Ok(())
    }
}

/// Whether an encoding of this name is UTF-8. As in PostgreSQL, only its letters and digits count.
pub(crate) fn is_unicode(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    ["utf8", "unicode"].iter().any(|own| plain.eq_ignore_ascii_case(own))
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
    fn settings_of_programs_are_bounded() {
        let mut client = ClientSettings::default();
        client.set_custom("a.b", &"x".repeat(900), 1000).unwrap();
        client.set_custom("a.b", &"y".repeat(900), 1000).unwrap();
        assert_eq!(client.set_custom("a.c", "z", 1000).unwrap_err().state(), SqlState::PROGRAM_LIMIT_EXCEEDED);
        assert_eq!((client.custom("a.b").map(str::len), client.custom("a.c")), (Some(900), None));
    }
}
