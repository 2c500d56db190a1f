//! All settings that there are. SHOW, `pg_settings`, ALTER SYSTEM, `polychron serve --print-config` and the table of `docs/server.md` come from this list.

use crate::parameters::SERVER_VERSION;

/// When a change of a setting counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// It is what it is.
    Fixed,
    /// When the server is started again.
    Restart,
    /// When the configuration is read again.
    Reload,
    /// At once, by SET. What the configuration says holds for sessions that begin later.
    Session,
    /// The same, where a superuser says SET.
    Superuser,
}

impl Scope {
    /// What `pg_settings` calls it.
    pub const fn context(self) -> &'static str {
        match self {
            Self::Fixed => "internal",
            Self::Restart => "postmaster",
            Self::Reload => "sighup",
            Self::Session => "user",
            Self::Superuser => "superuser",
        }
    }

    /// Whether each session has a value of its own.
    pub const fn is_of_sessions(self) -> bool {
        matches!(self, Self::Session | Self::Superuser)
    }
}

/// What values a setting has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Any text.
    Text,
    /// `on` or `off`.
    Switch,
    /// One of these.
    Choice(&'static [&'static str]),
    /// A whole number between these.
    Number(i64, i64),
    /// A time: 0 means without end, or never.
    Time,
    /// A time between these numbers of whole seconds.
    Seconds(i64, i64),
    /// Permissions of a file, as three octal digits.
    Mode,
    /// Schemas, with commas between them.
    Path,
    /// One of these, in small letters, which all mean the default.
    Same(&'static [&'static str]),
    /// A name of UTF-8.
    Encoding,
    /// A zone of time.
    Zone,
}

impl Values {
    /// What `pg_settings` calls it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Switch => "bool",
            Self::Choice(_) => "enum",
            Self::Number(..) | Self::Time | Self::Seconds(..) | Self::Mode => "integer",
            Self::Text | Self::Path | Self::Same(_) | Self::Encoding | Self::Zone => "string",
        }
    }
}

/// A setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name as SHOW has it. Names are compared without regard to capital letters.
    pub name: &'static str,
    /// Its value where nothing says another one.
    pub default: &'static str,
    /// What values it has.
    pub values: Values,
    /// When a change counts.
    pub scope: Scope,
    /// Clients are told of it when they connect.
    pub is_reported: bool,
    /// Only superusers see its value: it says where secrets are.
    pub is_hidden: bool,
    /// What it is, in one line.
    pub said: &'static str,
}

impl Setting {
    /// The setting of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.name.eq_ignore_ascii_case(name))
    }

    /// Whether the configuration may say its value.
    pub fn is_configurable(&self) -> bool {
        self.scope != Scope::Fixed
    }

    const fn reported(self) -> Self {
        Self { is_reported: true, ..self }
    }

    const fn hidden(self) -> Self {
        Self { is_hidden: true, ..self }
    }
}

const fn setting(
    name: &'static str,
    default: &'static str,
    (scope, values): (Scope, Values),
    said: &'static str,
) -> Setting {
    Setting { name, default, values, scope, is_reported: false, is_hidden: false, said }
}

use Scope::{Fixed, Reload, Restart, Session, Superuser};
use Values::{Choice, Encoding, Mode, Number, Path, Same, Seconds, Switch, Text, Time, Zone};

const MESSAGES: &[&str] =
    &["debug5", "debug4", "debug3", "debug2", "debug1", "debug", "log", "notice", "warning", "error"];
const LEVELS: &[&str] = &["serializable", "repeatable read", "read committed", "read uncommitted"];
/// What SHOW has for a setting that depends on the session.
const OF_SESSION: &str = "";

/// All settings, in the order of their names.
pub const SETTINGS: &[Setting] = &[
    setting("application_name", "", (Session, Text), "What the client calls itself.").reported(),
    setting(
        "authentication_timeout",
        "1min",
        (Reload, Seconds(1, 600)),
        "How long a client may take to show who it is.",
    ),
    setting("bytea_output", "hex", (Session, Same(&["hex"])), "How bytes are written as text."),
    setting(
        "check_function_bodies",
        "on",
        (Session, Switch),
        "Bodies of procedures are checked when they are made, whatever it is.",
    ),
    setting("client_encoding", "UTF8", (Session, Encoding), "The encoding of the client's texts.").reported(),
    setting(
        "client_min_messages",
        "notice",
        (Session, Same(MESSAGES)),
        "Which messages clients are sent: notices, whatever it is.",
    ),
    setting(
        "DateStyle",
        "ISO, MDY",
        (Session, Same(&["iso", "iso, mdy", "iso,mdy", "mdy"])),
        "How dates are written, and read where that is not plain.",
    )
    .reported(),
    setting(
        "default_table_access_method",
        "heap",
        (Session, Same(&["heap"])),
        "How tables are kept: there is one way.",
    ),
    setting("default_tablespace", "", (Session, Same(&[""])), "Where tables are kept: there is one place."),
    setting(
        "default_transaction_isolation",
        "serializable",
        (Session, Same(LEVELS)),
        "The isolation of transactions: all are serializable.",
    ),
    setting(
        "default_transaction_read_only",
        "off",
        (Session, Switch),
        "Transactions are read-only where nothing else is said.",
    )
    .reported(),
    setting(
        "extra_float_digits",
        "1",
        (Session, Number(1, 3)),
        "Floats are written with their shortest digits, whatever it is.",
    ),
    setting(
        "idle_in_transaction_session_timeout",
        "0",
        (Session, Time),
        "After how long a silence a session with an open transaction ends.",
    ),
    setting("in_hot_standby", "off", (Fixed, Switch), "Whether this is a standby.").reported(),
    setting("integer_datetimes", "on", (Fixed, Switch), "Times are whole microseconds.").reported(),
    setting("IntervalStyle", "postgres", (Session, Same(&["postgres"])), "How intervals are written.").reported(),
    setting("is_superuser", OF_SESSION, (Fixed, Switch), "Whether the role may do everything.").reported(),
    setting("listen", "127.0.0.1:5432", (Restart, Text), "The addresses of TCP, with commas between them."),
    setting("lock_timeout", "10s", (Session, Time), "How long a statement waits for a table that others have closed."),
    setting(
        "log_min_duration_transaction",
        "0",
        (Superuser, Time),
        "From how long on transactions are told in the log; 0 tells none.",
    ),
    setting(
        "log_without_constants",
        "off",
        (Restart, Switch),
        "Statements in the log of slow transactions have no constants.",
    ),
    setting("max_connections", "100", (Restart, Number(1, 10_000)), "The most clients at once."),
    setting("max_identifier_length", "63", (Fixed, Number(63, 63)), "The longest name, in bytes."),
    setting("max_index_keys", "32", (Fixed, Number(32, 32)), "The most columns of an index."),
    setting(
        "max_unauthenticated",
        "100",
        (Restart, Number(1, 10_000)),
        "The most clients that have not shown who they are; for one more, the oldest one goes.",
    ),
    setting("metrics", "", (Restart, Text), "The address that shows what goes on; without one there is none."),
    setting(
        "metrics_password_file",
        "",
        (Restart, Text),
        "The file whose first line is the password of the metrics; needed where other machines reach them.",
    )
    .hidden(),
    setting("park_after", "100ms", (Session, Time), "After how long a silence an open transaction is parked."),
    setting(
        "password_file",
        "",
        (Restart, Text),
        "The file whose first line is the password of postgres; without one, the first start makes it.",
    )
    .hidden(),
    setting(
        "plain_text_on_the_network",
        "off",
        (Restart, Switch),
        "Other machines may connect although nothing is encrypted.",
    ),
    setting("protocol", "", (Restart, Text), "The concurrency-control protocol; without a name it is the default one."),
    setting(
        "read_only_freshness",
        "strict",
        (Session, Choice(&["recent", "strict"])),
        "Whether read-only transactions read what has committed before they began, or a snapshot that may be older.",
    ),
    setting(
        "replay",
        "on",
        (Session, Switch),
        "Transactions that conflict are run again where their clients cannot tell.",
    ),
    setting("row_security", "on", (Session, Switch), "Whether policies of rows hold: there are none."),
    setting("search_path", "\"$user\", public", (Session, Path), "Where names without a schema are looked for."),
    setting("server_encoding", "UTF8", (Fixed, Text), "The encoding of the database.").reported(),
    setting("server_version", SERVER_VERSION, (Fixed, Text), "The PostgreSQL whose answers are given.").reported(),
    setting("server_version_num", "150000", (Fixed, Number(150_000, 150_000)), "The same as a number."),
    setting("session_authorization", OF_SESSION, (Fixed, Text), "The role of the session.").reported(),
    setting(
        "shutdown_grace",
        "10s",
        (Reload, Time),
        "How long open transactions may go on when the server ends; 0 leaves them no time.",
    ),
    setting(
        "socket_directory",
        "/tmp",
        (Restart, Text),
        "The directory of the unix socket; without a name there is none.",
    )
    .hidden(),
    setting(
        "standard_conforming_strings",
        "on",
        (Session, Same(&["on", "true", "yes", "1"])),
        "Backslashes in texts stand for themselves.",
    )
    .reported(),
    setting("statement_timeout", "0", (Session, Time), "How long a text of statements may take."),
    setting(
        "superuser_reserved_connections",
        "3",
        (Restart, Number(0, 10_000)),
        "How many of the most clients are kept for superusers.",
    ),
    setting("synchronize_seqscans", "on", (Session, Switch), "Scans begin at the first row, whatever it is."),
    setting("TimeZone", "UTC", (Session, Zone), "The zone in which times are shown.").reported(),
    setting(
        "tls_certificate",
        "",
        (Restart, Text),
        "The file of the certificate, and of those that lead to its root (PEM): connections of TCP can be encrypted.",
    ),
    setting(
        "tls_client_roots",
        "",
        (Restart, Text),
        "The file of certificates (PEM) whose owners sign those of clients.",
    ),
    setting(
        "tls_key",
        "",
        (Restart, Text),
        "The file of the certificate's key (PEM), which other accounts may not read.",
    )
    .hidden(),
    setting("transaction_isolation", "serializable", (Fixed, Choice(LEVELS)), "The isolation of the transaction."),
    setting("transaction_read_only", OF_SESSION, (Fixed, Switch), "Whether the transaction is read-only."),
    setting("trust", "off", (Restart, Switch), "Whoever comes is admitted, without a password; on this machine alone."),
    setting(
        "unix_socket_permissions",
        "0777",
        (Restart, Mode),
        "Which accounts may connect to the unix socket, as permissions of a file; writing is what counts.",
    ),
    setting("xmloption", "content", (Session, Same(&["content", "document"])), "How XML is read: there is none."),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::checked;

    #[test]
    fn settings_are_sorted_and_single() {
        let names: Vec<_> = SETTINGS.iter().map(|setting| setting.name.to_lowercase()).collect();
        assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
    }

    #[test]
    fn defaults_are_values() {
        for setting in SETTINGS.iter().filter(|setting| setting.is_configurable()) {
            assert_eq!(checked(setting, setting.default).unwrap(), setting.default, "{}", setting.name);
        }
    }
}
