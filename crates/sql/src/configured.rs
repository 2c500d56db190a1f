//! What a server's files, environment and command line say of settings.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use polychron_base::clock::Duration;
use polychron_engine::Protocol;

use crate::connection::Connection;
use crate::database::SqlDatabase;
use crate::error::{SqlError, SqlState};
use crate::settings::{Scope, Setting, checked, is_custom, millis_of, unrecognized};

/// Where the value of a setting comes from. Later ones count more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nothing says one.
    Default,
    /// `polychron.toml`.
    File,
    /// What ALTER SYSTEM has written.
    System,
    /// A variable of the environment.
    Environment,
    /// The command line.
    CommandLine,
}

impl Origin {
    /// What `pg_settings` calls it.
    pub const fn source(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File | Self::System => "configuration file",
            Self::Environment => "environment variable",
            Self::CommandLine => "command line",
        }
    }
}

/// Values of settings, and where they come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration(BTreeMap<String, (String, Origin)>);

impl Configuration {
    /// Says the value of a setting, unless one is said that counts more.
    ///
    /// # Errors
    /// There is no such setting, it is what it is, or the text says no value of it.
    pub fn set(&mut self, name: &str, text: &str, origin: Origin) -> Result<(), SqlError> {
        let (name, value) = said(name, text)?;
        if self.0.get(&name).is_none_or(|(_, own)| *own <= origin) {
            self.0.insert(name, (value, origin));
        }
        Ok(())
    }

    /// The value of a setting, as SHOW has it; its default, where nothing says another one.
    pub fn get(&self, name: &str) -> &str {
        let default = || Setting::find(name).map_or("", |setting| setting.default);
        self.0.get(&name.to_lowercase()).map_or_else(default, |(value, _)| value)
    }

    /// Where the value comes from.
    pub fn origin(&self, name: &str) -> Origin {
        self.0.get(&name.to_lowercase()).map_or(Origin::Default, |(_, origin)| *origin)
    }

    /// Whether a setting with the values `on` and `off` is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.get(name) == "on"
    }

    /// The time that a setting says.
    pub fn time(&self, name: &str) -> Duration {
        Duration::from_millis(millis_of(self.get(name)))
    }

    /// The settings that are said, with their values.
    pub fn said(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, (value, _))| (name.as_str(), value.as_str()))
    }
}

/// The name of a setting in small letters, and its value, as a configuration keeps them.
fn said(name: &str, text: &str) -> Result<(String, String), SqlError> {
    let key = name.to_lowercase();
    match Setting::find(&key) {
        Some(setting) if setting.is_configurable() => Ok((key, checked(setting, text)?)),
        Some(setting) => {
            let message = format!("parameter \"{}\" cannot be changed", setting.name);
            Err(SqlError::new(SqlState::CANNOT_CHANGE, message))
        }
        None if is_custom(&key)? => Ok((key, text.to_owned())),
        None => Err(unrecognized(name)),
    }
}

/// What is behind a configuration.
pub trait ConfigurationFiles: Send + Sync {
    /// Reads all of it again.
    ///
    /// # Errors
    /// Something in it is wrong: then nothing of it counts.
    fn read(&self) -> Result<Configuration, SqlError>;

    /// Changes the file of ALTER SYSTEM, durably: a setting has this value there, or none; without a name, no setting has.
    ///
    /// # Errors
    /// The file cannot be written.
    fn alter(&self, name: Option<&str>, value: Option<&str>) -> Result<(), SqlError>;
}

/// What is configured.
#[derive(Default)]
pub(crate) struct Configured {
    files: Option<Arc<dyn ConfigurationFiles>>,
    /// When the server was started, and now.
    started: Configuration,
    now: Configuration,
}

impl Configured {
    /// What counts of a setting.
    pub(crate) fn get(&self, setting: &Setting) -> &str {
        let of = if setting.scope == Scope::Restart { &self.started } else { &self.now };
        of.get(setting.name)
    }

    pub(crate) fn origin(&self, setting: &Setting) -> Origin {
        let of = if setting.scope == Scope::Restart { &self.started } else { &self.now };
        of.origin(setting.name)
    }

    /// Whether another value counts when the server is started again.
    pub(crate) fn is_pending(&self, setting: &Setting) -> bool {
        setting.scope == Scope::Restart && self.started.get(setting.name) != self.now.get(setting.name)
    }
}

/// What is configured of a database, and replaced as a whole.
#[derive(Default)]
pub(crate) struct Holder(RwLock<Arc<Configured>>);

impl Holder {
    pub(crate) fn get(&self) -> Arc<Configured> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, configured: Configured) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(configured);
    }
}

/// What ALTER SYSTEM says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SystemChange {
    /// `None`: all settings.
    pub(crate) name: Option<String>,
    /// `None`: the value is no longer said.
    pub(crate) value: Option<String>,
}

impl<P: Protocol> SqlDatabase<P> {
    /// Says what is configured. `files` is what is read again and altered, if that can be.
    pub fn configure(&self, configuration: Configuration, files: Option<Arc<dyn ConfigurationFiles>>) {
        self.configured.set(Configured { files, started: configuration.clone(), now: configuration });
    }

    /// Reads the configuration again. What it says of sessions counts for those that begin later.
    ///
    /// # Errors
    /// Something in it is wrong: then what was configured before goes on to count. Or nothing is behind it.
    pub fn reload(&self) -> Result<(), SqlError> {
        let configured = self.configured.get();
        let files = configured.files.clone().ok_or_else(no_files)?;
        let now = files.read()?;
        self.configured.set(Configured { files: Some(files), started: configured.started.clone(), now });
        Ok(())
    }

    /// What counts of a setting that is configured.
    pub(crate) fn configured(&self, setting: &Setting) -> String {
        self.configured.get().get(setting).to_owned()
    }

    /// The time that a setting of the server says now.
    pub fn configured_time(&self, name: &str) -> Option<Duration> {
        let configured = self.configured.get();
        let setting = Setting::find(name)?;
        (configured.origin(setting) != Origin::Default)
            .then(|| Duration::from_millis(millis_of(configured.get(setting))))
    }
}

fn no_files() -> SqlError {
    let message = "the database has no configuration that could be read or altered";
    SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message)
        .with_hint("A server has one whose database is in a directory.")
}

impl<P: Protocol> Connection<P> {
    /// Has the configuration say how settings begin.
    pub(crate) fn take_configuration(&mut self) {
        let configured = self.database.configured.get();
        let of_sessions = |name: &str| Setting::find(name).is_none_or(|setting| setting.scope.is_of_sessions());
        let mut said = configured.now.said().filter(|(name, _)| of_sessions(name)).peekable();
        if said.peek().is_some() {
            let mut settings = self.settings();
            // They were looked at when they were read.
            said.for_each(|(name, value)| drop(settings.set(name, value)));
            self.change_settings(false, |own| *own = settings.clone());
        }
        self.keep_as_initial();
    }

    /// ALTER SYSTEM.
    pub(crate) fn alter_system(&mut self, change: &SystemChange) -> Result<(), SqlError> {
        if self.session.is_open() {
            let message = "ALTER SYSTEM cannot run inside a transaction block";
            return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message));
        }
        if !self.is_superuser() {
            let message = match &change.name {
                Some(name) => format!("permission denied to set parameter \"{name}\""),
                None => "permission denied to perform ALTER SYSTEM RESET ALL".to_owned(),
            };
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        let files = self.database.configured.get().files.clone();
        let files = files.ok_or_else(no_files)?;
        let Some(name) = &change.name else { return files.alter(None, None) };
        let default = Setting::find(name).map_or("", |setting| setting.default);
        let (name, value) = said(name, change.value.as_deref().unwrap_or(default))?;
        // Who may come in without a password, and in plain text, is not for statements to say.
        if ["trust", "plain_text_on_the_network"].contains(&name.as_str()) && change.value.is_some() {
            let message = format!("parameter \"{name}\" cannot be changed by ALTER SYSTEM");
            return Err(SqlError::new(SqlState::CANNOT_CHANGE, message));
        }
        files.alter(Some(&name), change.value.is_some().then_some(&value))
    }

    /// `pg_reload_conf()`.
    pub(crate) fn reload_configuration(&self) -> Result<(), SqlError> {
        if !self.is_superuser() {
            let message = "permission denied for function pg_reload_conf";
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        self.database.reload()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_more_wins_whatever_comes_first() {
        let mut own = Configuration::default();
        own.set("Statement_Timeout", "5000", Origin::Environment).unwrap();
        own.set("statement_timeout", "7s", Origin::File).unwrap();
        assert_eq!((own.get("statement_timeout"), own.origin("statement_timeout")), ("5s", Origin::Environment));
        assert_eq!(own.time("statement_timeout"), Duration::from_secs(5));
        assert_eq!((own.get("max_connections"), own.origin("max_connections")), ("100", Origin::Default));
        let codes =
            [("nothing", "1"), ("server_version", "16"), ("max_connections", "0"), ("trust", "maybe"), ("a.", "")];
        let codes = codes.map(|(name, value)| own.set(name, value, Origin::File).unwrap_err().state());
        assert_eq!(codes.map(SqlState::code), ["42704", "55P02", "22023", "22023", "42602"]);
    }
}
