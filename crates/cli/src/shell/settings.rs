//! What `\set`, `\pset`, `\x` and `\timing` change.

use super::show::Format;

/// How much is said of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verbosity {
    Terse,
    Default,
    Verbose,
    Code,
}

const VERBOSITIES: [(&str, Verbosity); 4] = [
    ("default", Verbosity::Default),
    ("sqlstate", Verbosity::Code),
    ("terse", Verbosity::Terse),
    ("verbose", Verbosity::Verbose),
];

pub(super) struct Settings {
    pub(super) format: Format,
    /// What stands for NULL.
    pub(super) null: String,
    pub(super) is_timing: bool,
    pub(super) is_quiet: bool,
    pub(super) stops_on_error: bool,
    pub(super) has_pager: bool,
    pub(super) verbosity: Verbosity,
}

/// `on`, `off` and their other words; nothing turns a switch.
pub(super) fn switch(word: Option<&str>, now: bool) -> Result<bool, String> {
    match word.map(str::to_ascii_lowercase).as_deref() {
        None => Ok(!now),
        Some("on" | "true" | "yes" | "1") => Ok(true),
        Some("off" | "false" | "no" | "0") => Ok(false),
        Some(other) => Err(format!("unrecognized value \"{other}\": Boolean expected")),
    }
}

fn on_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

impl Settings {
    /// `\set NAME VALUE`.
    ///
    /// # Errors
    /// There is no such setting, or it has no such value.
    pub(super) fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let is_on = || switch(value, false);
        match name {
            "ON_ERROR_STOP" => self.stops_on_error = is_on()?,
            "QUIET" => self.is_quiet = is_on()?,
            "VERBOSITY" => {
                let wanted = value.unwrap_or("default");
                let found = VERBOSITIES.iter().find(|(name, _)| *name == wanted);
                self.verbosity = found
                    .map(|(_, verbosity)| *verbosity)
                    .ok_or_else(|| format!("VERBOSITY is default, verbose, terse or sqlstate, and not \"{wanted}\""))?;
            }
            other => {
                return Err(format!("there is no setting \"{other}\"; there are ON_ERROR_STOP, QUIET and VERBOSITY"));
            }
        }
        Ok(())
    }

    /// All that `\set` changes.
    pub(super) fn all(&self) -> String {
        let named = VERBOSITIES.iter().find(|(_, verbosity)| *verbosity == self.verbosity);
        format!(
            "ON_ERROR_STOP = '{}'\nQUIET = '{}'\nVERBOSITY = '{}'",
            on_off(self.stops_on_error),
            on_off(self.is_quiet),
            named.map_or("", |(name, _)| name)
        )
    }

    /// `\pset NAME VALUE`; the answer is what is said of it.
    ///
    /// # Errors
    /// There is no such setting, or it has no such value.
    pub(super) fn print_set(&mut self, name: &str, value: Option<&str>) -> Result<String, String> {
        match (name, value) {
            ("format", Some(value)) => {
                let format = <Format as clap::ValueEnum>::from_str(value, true);
                self.format = format
                    .map_err(|_| "\\pset: allowed formats are aligned, csv, expanded, json, markdown".to_owned())?;
            }
            ("null", Some(value)) => value.clone_into(&mut self.null),
            ("pager", value) => self.has_pager = switch(value, self.has_pager)?,
            ("expanded" | "x", value) => return self.expand(value).map(str::to_owned),
            ("format" | "null", None) => {}
            (other, _) => return Err(format!("\\pset: unknown option: {other}")),
        }
        Ok(match name {
            "format" => format!("Output format is {}.", self.format.name()),
            "null" => format!("Null display is \"{}\".", self.null),
            _ => format!("Pager is {}.", on_off(self.has_pager)),
        })
    }

    /// `\x`
    pub(super) fn expand(&mut self, word: Option<&str>) -> Result<&'static str, String> {
        let is_expanded = switch(word, self.format == Format::Expanded)?;
        self.format = if is_expanded { Format::Expanded } else { Format::Aligned };
        Ok(if is_expanded { "Expanded display is on." } else { "Expanded display is off." })
    }

    /// `\timing`
    pub(super) fn time(&mut self, word: Option<&str>) -> Result<&'static str, String> {
        self.is_timing = switch(word, self.is_timing)?;
        Ok(if self.is_timing { "Timing is on." } else { "Timing is off." })
    }
}
