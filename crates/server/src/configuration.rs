//! `polychron.toml`, the file of ALTER SYSTEM, the environment and the command line, as one configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use polychron_sql::{Configuration, ConfigurationFiles, Origin, SETTINGS, Scope, Setting, SqlError, SqlState, Values};
use toml::Value;

use crate::error::ServerError;
use crate::files::{LONGEST, contents};
use crate::rules::Rule;

/// What the names of variables of the environment begin with; the name of a setting follows, in capital letters.
pub const PREFIX: &str = "POLYCHRON_";

/// The tables of the file that are no settings.
const OTHER_TABLES: [&str; 1] = ["rule"];

/// What takes over the file's other tables when the configuration is read again.
type Listener = Box<dyn Fn(&toml::Table) -> Result<(), ServerError> + Send + Sync>;

/// What tries whether a server would start with a configuration and these rules.
type Trial = Box<dyn Fn(&Configuration, Option<Vec<Rule>>) -> Result<(), String> + Send + Sync>;

/// Where the configuration of a server comes from.
pub struct Sources {
    /// `polychron.toml`, and whether it was named and so has to be there.
    file: Option<(PathBuf, bool)>,
    /// What ALTER SYSTEM writes.
    system: Option<PathBuf>,
    environment: Vec<(String, String)>,
    command_line: Vec<(String, String)>,
    /// One ALTER SYSTEM at a time.
    altering: Mutex<()>,
    listener: OnceLock<Listener>,
    trial: OnceLock<Trial>,
    /// Variables of the environment that begin as those of settings do, and name none.
    unknown: Vec<String>,
}

impl fmt::Debug for Sources {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Sources").field("file", &self.file).field("system", &self.system).finish_non_exhaustive()
    }
}

/// Beside a database's directory, in which all files are the database's, so that a copy of it has no configuration.
fn beside(directory: &Path, end: &str) -> PathBuf {
    let mut name = directory.as_os_str().to_owned();
    name.push(end);
    name.into()
}

impl Sources {
    /// Those of a server of the database in this directory, if it has one. `file` is the file that was named, in the place of `polychron.toml` beside the directory.
    /// `variables` are those of the environment, of which those count that name settings; `command_line` has names with values.
    pub fn new(
        directory: Option<&Path>,
        file: Option<&Path>,
        variables: impl Iterator<Item = (String, String)>,
        command_line: Vec<(String, String)>,
    ) -> Self {
        let directory = directory.map(|path| path.canonicalize().or_else(|_| std::path::absolute(path)));
        let directory = directory.and_then(Result::ok);
        let usual = || Some((directory.as_ref()?.parent()?.join("polychron.toml"), false));
        let (mut environment, mut unknown) = (Vec::new(), Vec::new());
        for (name, value) in variables {
            let Some(own) = name.strip_prefix(PREFIX).map(str::to_lowercase) else { continue };
            match Setting::find(&own).filter(|setting| setting.is_configurable()) {
                Some(_) => environment.push((own, value)),
                None => unknown.push(name),
            }
        }
        unknown.sort();
        Self {
            file: file.map(|path| (path.to_owned(), true)).or_else(usual),
            system: directory.as_deref().map(|path| beside(path, ".settings.toml")),
            environment,
            command_line,
            altering: Mutex::default(),
            listener: OnceLock::new(),
            trial: OnceLock::new(),
            unknown,
        }
    }

    /// The names of variables of the environment that begin as those of settings do, and name none. They are left out.
    pub fn unknown_variables(&self) -> &[String] {
        &self.unknown
    }

    /// Has `trial` say whether a server would start with a configuration, before ALTER SYSTEM writes it.
    pub fn try_with(
        &self,
        trial: impl Fn(&Configuration, Option<Vec<Rule>>) -> Result<(), String> + Send + Sync + 'static,
    ) {
        let _ = self.trial.set(Box::new(trial));
    }

    /// Has `listener` called with the file's tables that are no settings, whenever the configuration is read again. Where it fails, nothing of the configuration counts.
    pub fn listen(&self, listener: impl Fn(&toml::Table) -> Result<(), ServerError> + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    /// Reads all of it; and the tables of the file that are no settings.
    ///
    /// # Errors
    /// A file cannot be read, or says what is no setting, or no value of it.
    pub fn read_all(&self) -> Result<(Configuration, toml::Table), ServerError> {
        self.read_with(None)
    }

    /// The same; or with a table that is in the place of what ALTER SYSTEM has written, and the name of a setting that neither the environment nor the command line says.
    fn read_with(
        &self,
        changed: Option<(&toml::Table, Option<&str>)>,
    ) -> Result<(Configuration, toml::Table), ServerError> {
        let counts = |name: &str| changed.is_none_or(|(_, own)| own.is_none_or(|own| own != name));
        let (mut configuration, mut others) = (Configuration::default(), toml::Table::new());
        if let Some((path, is_named)) = &self.file {
            let mut table = read_table(path, *is_named)?;
            for name in OTHER_TABLES {
                others.extend(table.remove_entry(name));
            }
            put_table(&mut configuration, &table, Origin::File).map_err(|what| wrong(path, what))?;
        }
        if let Some(path) = &self.system {
            let table = match changed {
                Some((table, _)) => table.clone(),
                None => read_table(path, false)?,
            };
            put_table(&mut configuration, &table, Origin::System).map_err(|what| wrong(path, what))?;
        }
        for (name, value) in self.environment.iter().filter(|(name, _)| counts(name)) {
            let of_variable =
                |error: SqlError| ServerError::Configuration(format!("{PREFIX}{}: {error}", name.to_uppercase()));
            configuration.set(name, value, Origin::Environment).map_err(of_variable)?;
        }
        for (name, value) in self.command_line.iter().filter(|(name, _)| counts(name)) {
            let of_option = |error: SqlError| ServerError::Configuration(error.to_string());
            configuration.set(name, value, Origin::CommandLine).map_err(of_option)?;
        }
        Ok((configuration, others))
    }

    /// Tries whether a server would start with what ALTER SYSTEM is to write. Where it would not start as it is either, something may be taken back all the same.
    fn try_system(&self, text: &str, name: Option<&str>, value: Option<&str>) -> Result<(), ServerError> {
        let of_sessions = |name: &str| Setting::find(name).is_none_or(|setting| setting.scope.is_of_sessions());
        let Some(trial) = self.trial.get().filter(|_| !name.is_some_and(of_sessions)) else { return Ok(()) };
        let table: toml::Table =
            text.parse().map_err(|error: toml::de::Error| ServerError::Configuration(error.to_string()))?;
        let tried = |changed| {
            let (configuration, others) = self.read_with(changed)?;
            trial(&configuration, Rule::of_table(&others)?).map_err(ServerError::Configuration)
        };
        let name = name.map(str::to_lowercase);
        match tried(Some((&table, name.as_deref()))) {
            Err(_) if value.is_none() && tried(None).is_err() => Ok(()),
            tried => tried.map_err(|error| ServerError::Trial(error.to_string())),
        }
    }

    fn change_system(&self, path: &Path, name: Option<&str>, value: Option<&str>) -> Result<(), ServerError> {
        let _alone = self.altering.lock().unwrap_or_else(PoisonError::into_inner);
        let mut said = Configuration::default();
        put_table(&mut said, &read_table(path, false)?, Origin::System).map_err(|what| wrong(path, what))?;
        let mut said: BTreeMap<_, _> = said.said().collect();
        match (name, value) {
            (Some(name), Some(value)) => drop(said.insert(name, value)),
            (Some(name), None) => drop(said.remove(name)),
            (None, _) => said.clear(),
        }
        let mut text = "# ALTER SYSTEM writes this file, and replaces it.\n".to_owned();
        said.iter().for_each(|(name, value)| text.push_str(&format!("{} = {}\n", quoted(name), quoted(value))));
        if text.len() as u64 > LONGEST {
            return Err(wrong(path, format!("it would have more than {LONGEST} bytes")));
        }
        self.try_system(&text, name, value)?;
        replace(path, &text).map_err(|error| wrong(path, error.to_string()))
    }
}

impl ConfigurationFiles for Sources {
    fn read(&self) -> Result<Configuration, SqlError> {
        let of_files = |error: ServerError| SqlError::new(SqlState::CONFIG_FILE, error.to_string());
        let (configuration, others) = self.read_all().map_err(of_files)?;
        self.listener.get().map_or(Ok(()), |listener| listener(&others)).map_err(of_files)?;
        Ok(configuration)
    }

    fn alter(&self, name: Option<&str>, value: Option<&str>) -> Result<(), SqlError> {
        let Some(path) = &self.system else {
            let message = "ALTER SYSTEM needs a database in a directory";
            return Err(SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message));
        };
        self.change_system(path, name, value).map_err(|error| {
            let state = match error {
                ServerError::Trial(_) => SqlState::INVALID_PARAMETER_VALUE,
                _ => SqlState::IO_ERROR,
            };
            SqlError::new(state, error.to_string())
        })
    }
}

fn wrong(path: &Path, what: impl fmt::Display) -> ServerError {
    ServerError::Configuration(format!("{}: {what}", path.display()))
}

/// The tables of a file; none, where it is missing and need not be there.
fn read_table(path: &Path, has_to_be: bool) -> Result<toml::Table, ServerError> {
    let bytes = match contents(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !has_to_be => return Ok(toml::Table::new()),
        read => read.map_err(|error| wrong(path, error))?,
    };
    let text = String::from_utf8(bytes).map_err(|_| wrong(path, "stream did not contain valid UTF-8"))?;
    text.parse().map_err(|error: toml::de::Error| wrong(path, error.to_string().trim_end()))
}

/// Puts what a table says of settings into a configuration. What is in a table of its own has that table's name in front.
fn put_table(configuration: &mut Configuration, table: &toml::Table, origin: Origin) -> Result<(), String> {
    put_within(configuration, table, origin, "")
}

fn put_within(
    configuration: &mut Configuration,
    table: &toml::Table,
    origin: Origin,
    before: &str,
) -> Result<(), String> {
    for (key, value) in table {
        let name = format!("{before}{key}");
        let Value::Table(inner) = value else {
            let text =
                text_of(value).ok_or_else(|| format!("{name}: a value is a text, a number, or true or false"))?;
            configuration.set(&name, &text, origin).map_err(|error| error.to_string())?;
            continue;
        };
        // Names of settings have few parts.
        if before.len() > 200 {
            return Err(format!("{name}: tables are nested too deeply"));
        }
        put_within(configuration, inner, origin, &format!("{name}."))?;
    }
    Ok(())
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(is_true) => Some(is_true.to_string()),
        Value::Array(items) => {
            let items = items.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
            items.map(|items| items.join(", "))
        }
        Value::Datetime(_) | Value::Table(_) => None,
    }
}

/// A text as TOML writes it.
fn quoted(text: &str) -> String {
    let mut written = "\"".to_owned();
    for letter in text.chars() {
        match letter {
            '"' | '\\' => written.extend(['\\', letter]),
            letter if letter.is_control() => written.push_str(&format!("\\u{:04X}", u32::from(letter))),
            letter => written.push(letter),
        }
    }
    written.push('"');
    written
}

/// Puts a file in the place of another one, durably: after a crash there is the old one or the new one.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = beside(path, ".new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

/// All settings that a configuration may say, with their defaults and a line each, as a file that may be used as it is.
pub fn printed_configuration() -> String {
    let mut text =
        "# All settings of `polychron serve`, with their defaults. What is left out has its default.\n".to_owned();
    for setting in SETTINGS.iter().filter(|setting| setting.is_configurable()) {
        let value = match setting.values {
            Values::Number(..) => setting.default.to_owned(),
            Values::Switch => (setting.default == "on").to_string(),
            _ => quoted(setting.default),
        };
        text.push_str(&format!("\n# {} {}\n{} = {value}\n", setting.said, counts(setting.scope), setting.name));
    }
    text
}

/// When a change counts, in words.
fn counts(scope: Scope) -> &'static str {
    match scope {
        Scope::Fixed => "Not to be changed.",
        Scope::Restart => "Counts after a restart.",
        Scope::Reload => "Counts when it is read again.",
        Scope::Session => "Sessions may set it.",
        Scope::Superuser => "Sessions of superusers may set it.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(directory: &Path, variables: &[(&str, &str)], command_line: &[(&str, &str)]) -> Sources {
        let owned = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<Vec<_>>()
        };
        Sources::new(Some(directory), None, owned(variables).into_iter(), owned(command_line))
    }

    #[test]
    fn what_counts_more_wins() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("bank");
        let file = root.path().join("polychron.toml");
        let text = "listen = ['127.0.0.1:1', '[::1]:1']\nmax_connections = 5\nlock_timeout = '1s'\nstatement_timeout = '1s'\npark_after = '1s'\n[my]\nname = 'a'\n[[rule]]\nkind = 'local'\n";
        fs::write(&file, text).unwrap();
        let variables =
            [("POLYCHRON_STATEMENT_TIMEOUT", "3s"), ("POLYCHRON_PARK_AFTER", "3s"), ("POLYCHRON_PORT", "tcp://x")];
        let own = sources(&data, &variables, &[("park_after", "4s")]);
        for (name, value) in [("lock_timeout", "2s"), ("statement_timeout", "2s"), ("my.name", "\"\\\u{1}é")] {
            own.alter(Some(name), Some(value)).unwrap();
        }
        let (read, others) = own.read_all().unwrap();
        let said: Vec<_> = read.said().collect();
        let expected = [
            ("listen", "127.0.0.1:1, [::1]:1"),
            ("lock_timeout", "2s"),
            ("max_connections", "5"),
            ("my.name", "\"\\\u{1}é"),
            ("park_after", "4s"),
            ("statement_timeout", "3s"),
        ];
        assert_eq!(said, expected);
        assert_eq!(others.keys().collect::<Vec<_>>(), ["rule"]);
        own.alter(Some("lock_timeout"), None).unwrap();
        assert_eq!(own.read_all().unwrap().0.get("lock_timeout"), "1s");
        own.alter(None, None).unwrap();
        assert_eq!(own.read_all().unwrap().0.get("my.name"), "a");
        let files: Vec<_> = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(files.len(), 2, "nothing is left over: {files:?}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let root = tempfile::tempdir().unwrap();
        let (data, file) = (root.path().join("bank"), root.path().join("polychron.toml"));
        let own = sources(&data, &[], &[]);
        assert!(own.read_all().unwrap().0.said().next().is_none(), "there need not be a file");
        for (text, part) in [
            ("nothing = 1", "unrecognized configuration parameter \"nothing\""),
            ("server_version = '16'", "parameter \"server_version\" cannot be changed"),
            ("max_connections = 0", "outside the valid range"),
            ("max_connections = 1979-05-27", "max_connections: a value is a text"),
            ("lock_timeout = 'soon'", "invalid value for parameter \"lock_timeout\""),
            ("trust = 'maybe'", "requires a Boolean value"),
            ("listen = [1]", "listen: a value is a text"),
            ("[my]\n1x = 2", "invalid configuration parameter name \"my.1x\""),
            ("trust = ", "TOML parse error"),
        ] {
            fs::write(&file, text).unwrap();
            let error = own.read_all().unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("polychron.toml"), "{text}: {error}");
        }
        fs::write(&file, vec![b'#'; LONGEST as usize + 1]).unwrap();
        assert!(own.read_all().unwrap_err().to_string().contains("more than"));
        let named = Sources::new(None, Some(&root.path().join("missing")), std::iter::empty(), Vec::new());
        assert!(named.read_all().unwrap_err().to_string().contains("missing"));
        assert_eq!(named.alter(None, None).unwrap_err().state(), SqlState::NOT_IN_PREREQUISITE_STATE);
        let variables = sources(&root.path().join("other/bank"), &[("POLYCHRON_TRUST", "maybe")], &[]);
        assert!(variables.read_all().unwrap_err().to_string().contains("POLYCHRON_TRUST"));
    }

    #[test]
    fn what_is_printed_says_the_defaults() {
        let table: toml::Table = printed_configuration().parse().unwrap();
        let mut read = Configuration::default();
        put_table(&mut read, &table, Origin::File).unwrap();
        let all = SETTINGS.iter().filter(|setting| setting.is_configurable());
        all.for_each(|setting| assert_eq!(read.get(setting.name), setting.default, "{}", setting.name));
        assert_eq!(read.said().count(), SETTINGS.iter().filter(|setting| setting.is_configurable()).count());
    }

    /// The table of the documentation is that of the list.
    #[test]
    fn what_is_documented_is_the_list() {
        let all = SETTINGS.iter().filter(|setting| setting.is_configurable());
        let rows = all.map(|setting| {
            let default = if setting.default.is_empty() { String::new() } else { format!("`{}`", setting.default) };
            format!("| `{}` | {default} | {} | {} |\n", setting.name, setting.scope.context(), setting.said)
        });
        let table: String = rows.collect();
        let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/server.md")).unwrap();
        assert!(text.contains(&table), "docs/server.md is to have these rows:\n{table}");
    }
}
