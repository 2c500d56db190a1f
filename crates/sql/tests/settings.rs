//! Settings: what SET, SHOW, `set_config` and `current_setting` say of them, and with which ones sessions begin.

use std::sync::{Arc, Mutex};

use crate::common::{all, run};
use polychron_protocols::cicada::Cicada;
use polychron_sql::{Configuration, ConfigurationFiles, Datum, Origin, SETTINGS, Scope, SqlDatabase, SqlError, Type};

type Connection = polychron_sql::Connection<Cicada>;

fn database() -> Arc<SqlDatabase<Cicada>> {
    crate::common::database()
}

/// The code of the error of a text that fails.
fn code(connection: &mut Connection, text: &str) -> Option<&'static str> {
    run(connection, text).err().map(|error| error.state().code())
}

#[test]
fn the_list_says_with_what_sessions_begin() {
    let database = database();
    let mut one = Connection::open(&database).unwrap();
    for setting in SETTINGS.iter().filter(|setting| setting.scope != Scope::Fixed) {
        // Tests set the time themselves.
        assert_eq!(run(&mut one, &format!("SHOW {}", setting.name)).unwrap(), setting.default, "{}", setting.name);
    }
    let shown = run(&mut one, "SHOW ALL").unwrap();
    let listed = run(&mut one, "SELECT count(*) FROM pg_settings").unwrap();
    assert_eq!(listed, (SETTINGS.len() - 1).to_string(), "but for what a transaction is");
    assert_eq!(shown.lines().count(), SETTINGS.len());
    assert_eq!(code(&mut one, "SET max_connections = 5"), Some("55P02"));
    assert_eq!(code(&mut one, "SET nothing = 5"), Some("42704"));
    assert_eq!(code(&mut one, "RESET nothing"), Some("42704"));
    assert_eq!(code(&mut one, "SET statement_timeout = '1 year'"), Some("22023"));
}

#[test]
fn programs_have_settings_of_their_own() {
    let database = database();
    let mut one = Connection::open(&database).unwrap();
    all(&mut one, &["SET my.name = 'x'"]);
    assert_eq!(run(&mut one, "SHOW my.name").unwrap(), "x");
    assert_eq!(run(&mut one, "SELECT current_setting('My.Name') || '!'").unwrap(), "x!");
    assert_eq!(run(&mut one, "SELECT current_setting('my.other', true) IS NULL").unwrap(), "t");
    assert_eq!(code(&mut one, "SELECT current_setting('my.other')"), Some("42704"));
    assert_eq!(code(&mut one, "SET my.\"1x\" = 3"), Some("42602"));
    // A statement that was bound before is told what holds now.
    let mut prepared = one.prepare("SELECT current_setting('my.name')").unwrap();
    for value in ["y", "z"] {
        all(&mut one, &[&format!("SET my.name = '{value}'")]);
        let rows = one.answer_prepared(&mut prepared, &[]).unwrap();
        assert_eq!(rows.get(0).unwrap().get::<&str>(0).unwrap(), value);
    }
    all(&mut one, &["BEGIN", "SET LOCAL my.name = 'local'"]);
    assert_eq!(run(&mut one, "SELECT current_setting('my.name')").unwrap(), "local");
    all(&mut one, &["COMMIT"]);
    assert_eq!(run(&mut one, "SHOW my.name").unwrap(), "z");
    all(&mut one, &["BEGIN", "SET my.name = 'gone'", "ROLLBACK"]);
    assert_eq!(run(&mut one, "SHOW my.name").unwrap(), "z");
    all(&mut one, &["RESET my.name"]);
    assert_eq!(run(&mut one, "SHOW my.name").unwrap(), "");
    // What is kept does not depend on it.
    all(&mut one, &["CREATE TABLE t (id int PRIMARY KEY, a text DEFAULT current_setting('my.name'))"]);
    assert_eq!(code(&mut one, "CREATE INDEX ON t ((a || current_setting('my.name')))"), Some("42P17"));
    all(
        &mut one,
        &["SET my.name = 'one'", "INSERT INTO t VALUES (1)", "SET my.name = 'two'", "INSERT INTO t VALUES (2)"],
    );
    assert_eq!(run(&mut one, "SELECT a FROM t ORDER BY id").unwrap(), "one\ntwo");
    let long = "x".repeat(2 << 20);
    assert_eq!(code(&mut one, &format!("SET my.name = '{long}'")), Some("54000"));
}

#[test]
fn set_config_is_set() {
    let database = database();
    let mut one = Connection::open(&database).unwrap();
    let ask = |one: &mut Connection, text: &str| run(one, text).unwrap();
    assert_eq!(ask(&mut one, "SELECT set_config('statement_timeout', '5000', false)"), "5s");
    assert_eq!(ask(&mut one, "SHOW statement_timeout"), "5s");
    assert_eq!(ask(&mut one, "SELECT pg_catalog.set_config('search_path', '', false)"), "");
    assert_eq!(ask(&mut one, "SELECT set_config('search_path', 'a, \"B\"', true) AS path"), "a, \"B\"");
    assert_eq!(ask(&mut one, "SHOW search_path"), "", "it was local to the statement");
    all(&mut one, &["BEGIN"]);
    assert_eq!(ask(&mut one, "SELECT set_config('my.a', 'b', true), set_config('my.c', 'd', false)"), "b|d");
    all(&mut one, &["COMMIT"]);
    assert_eq!(ask(&mut one, "SELECT current_setting('my.c')"), "d");
    assert_eq!(code(&mut one, "SELECT current_setting('my.a')"), Some("42704"));
    assert_eq!(ask(&mut one, "SELECT set_config('statement_timeout', NULL, false)"), "0");
    assert_eq!(ask(&mut one, "SELECT set_config('a.b', x, false) FROM (VALUES ('c')) v (x)"), "c");
    for (text, expected) in [
        ("SELECT set_config(NULL, 'a', false)", "22004"),
        ("SELECT set_config('nothing', 'a', false)", "42704"),
        ("SELECT set_config('statement_timeout', 'soon', true)", "22023"),
        ("SELECT set_config('a.b')", "42883"),
        ("SELECT length(set_config('a.b', 'c', false))", "0A000"),
    ] {
        assert_eq!(code(&mut one, text), Some(expected), "{text}");
    }
    // With parameters, as clients of the protocol have it.
    let mut prepared = one.prepare("SELECT set_config('my.e', $1, $2)").unwrap();
    assert_eq!(prepared.parameters(), [Type::Text, Type::Bool]);
    let values = [Datum::Text("f"), Datum::Bool(false)];
    one.answer_prepared(&mut prepared, &values).unwrap();
    assert_eq!(ask(&mut one, "SHOW my.e"), "f");
    // A text that fails later has set nothing.
    assert!(one.execute("SELECT set_config('my.e', 'g', false); SELECT 1 / 0", &[]).is_err());
    assert_eq!(ask(&mut one, "SHOW my.e"), "f");
}

#[test]
fn what_a_transaction_was_told_of_settings_is_told_again() {
    let database = database();
    let (mut one, mut other) = (Connection::open(&database).unwrap(), Connection::open(&database).unwrap());
    all(
        &mut one,
        &["CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE TABLE u (who text)", "INSERT INTO t VALUES (1, 1)"],
    );
    all(&mut one, &["SET my.who = 'first'", "BEGIN", "INSERT INTO u VALUES (current_setting('my.who'))"]);
    all(&mut one, &["SET my.who = 'second'", "INSERT INTO u VALUES (current_setting('my.who'))"]);
    all(&mut one, &["UPDATE t SET v = v + 1 WHERE id = 1"]);
    all(&mut other, &["UPDATE t SET v = v + 10 WHERE id = 1"]);
    // The transaction conflicts, and is run again.
    all(&mut one, &["COMMIT"]);
    assert_eq!(run(&mut one, "SELECT who FROM u ORDER BY who").unwrap(), "first\nsecond");
    assert_eq!(run(&mut one, "SELECT v FROM t").unwrap(), "12");
}

#[test]
fn roles_and_the_database_keep_settings() {
    let database = database();
    let mut admin = Connection::open(&database).unwrap();
    all(
        &mut admin,
        &[
            "CREATE ROLE clerk LOGIN",
            "ALTER ROLE ALL SET my.all = 'of all'",
            "ALTER ROLE ALL SET my.name = 'of all'",
            "ALTER DATABASE polychron SET my.name = 'of the database'",
            "ALTER ROLE clerk SET statement_timeout = 5000",
            "ALTER USER clerk SET search_path TO a, \"B\"",
            "ALTER ROLE clerk IN DATABASE polychron SET lock_timeout = '3s'",
        ],
    );
    let shown = |names: &[&str]| {
        let mut one = Connection::open(&database).unwrap();
        one.act_as("clerk").unwrap();
        names.iter().map(|name| run(&mut one, &format!("SHOW {name}")).unwrap()).collect::<Vec<_>>()
    };
    let names = ["my.all", "my.name", "statement_timeout", "search_path", "lock_timeout"];
    assert_eq!(shown(&names), ["of all", "of the database", "5s", "a, \"B\"", "3s"]);
    let kept = "SELECT setdatabase <> 0, setrole <> 0, setconfig FROM pg_db_role_setting ORDER BY 1, 2";
    assert_eq!(
        run(&mut admin, kept).unwrap(),
        "f|f|{\"my.all=of all\",\"my.name=of all\"}\nf|t|{\"search_path=a, \\\"B\\\"\",statement_timeout=5s}\n\
         t|f|{\"my.name=of the database\"}\nt|t|{lock_timeout=3s}"
    );
    // RESET returns to them.
    let mut one = Connection::open(&database).unwrap();
    one.act_as("clerk").unwrap();
    all(&mut one, &["SET statement_timeout = 0", "RESET statement_timeout"]);
    assert_eq!(run(&mut one, "SHOW statement_timeout").unwrap(), "5s");
    assert_eq!(run(&mut one, "SHOW role").unwrap(), "none");
    all(&mut one, &["ALTER ROLE CURRENT_USER SET my.own = 'by itself'"]);
    for text in [
        "ALTER ROLE postgres SET my.own = 1",
        "ALTER ROLE ALL SET my.own = 1",
        "ALTER DATABASE polychron SET my.own = 1",
        "ALTER SYSTEM SET my.own = 1",
        "SELECT pg_reload_conf()",
    ] {
        assert_eq!(code(&mut one, text), Some("42501"), "{text}");
    }
    all(&mut admin, &["ALTER ROLE clerk RESET statement_timeout", "ALTER DATABASE polychron RESET ALL"]);
    all(
        &mut admin,
        &["SET lock_timeout = '7s'", "ALTER ROLE clerk IN DATABASE polychron SET lock_timeout FROM CURRENT"],
    );
    assert_eq!(shown(&["my.own", "my.name", "statement_timeout", "lock_timeout"]), ["by itself", "of all", "0", "7s"]);
    for (text, expected) in [
        ("ALTER ROLE clerk SET nothing = 1", "42704"),
        ("ALTER ROLE clerk SET max_connections = 1", "55P02"),
        ("ALTER ROLE clerk SET statement_timeout = 'soon'", "22023"),
        ("ALTER ROLE clerk IN DATABASE other SET my.x = 1", "3D000"),
        ("ALTER DATABASE other SET my.x = 1", "3D000"),
        ("ALTER ROLE nobody SET my.x = 1", "42704"),
        ("ALTER ROLE clerk SET my.x", "42601"),
    ] {
        assert_eq!(code(&mut admin, text), Some(expected), "{text}");
    }
}

/// Files that are a configuration in memory.
#[derive(Default)]
struct Files(Mutex<Configuration>);

impl ConfigurationFiles for Files {
    fn read(&self) -> Result<Configuration, SqlError> {
        Ok(self.0.lock().unwrap().clone())
    }

    fn alter(&self, name: Option<&str>, value: Option<&str>) -> Result<(), SqlError> {
        let mut own = self.0.lock().unwrap();
        match (name, value) {
            (Some(name), Some(value)) => own.set(name, value, Origin::System),
            _ => {
                *own = Configuration::default();
                Ok(())
            }
        }
    }
}

#[test]
fn the_configuration_is_altered_and_read_again() {
    let database: Arc<SqlDatabase<Cicada>> = database();
    let mut one = Connection::open(&database).unwrap();
    assert_eq!(code(&mut one, "ALTER SYSTEM SET statement_timeout = 5"), Some("55000"), "there is no file");
    database.configure(Configuration::default(), Some(Arc::new(Files::default())));
    all(&mut one, &["ALTER SYSTEM SET statement_timeout = 5000", "ALTER SYSTEM SET max_connections = 7"]);
    let pending = "SELECT setting, pending_restart, source FROM pg_settings WHERE name = 'max_connections'";
    assert_eq!(run(&mut one, pending).unwrap(), "100|f|default");
    assert_eq!(run(&mut one, "SELECT pg_reload_conf()").unwrap(), "t");
    assert_eq!(run(&mut one, pending).unwrap(), "100|t|default");
    assert_eq!(run(&mut one, "SHOW statement_timeout").unwrap(), "0", "the session has begun before");
    let mut new = Connection::open(&database).unwrap();
    assert_eq!(run(&mut new, "SHOW statement_timeout").unwrap(), "5s");
    assert_eq!(
        run(&mut new, "SELECT setting, unit, source, reset_val FROM pg_settings WHERE name = 'statement_timeout'")
            .unwrap(),
        "5000|ms|configuration file|5000"
    );
    for (text, expected) in [
        ("ALTER SYSTEM SET nothing = 1", "42704"),
        ("ALTER SYSTEM SET server_version = 16", "55P02"),
        ("ALTER SYSTEM SET max_connections = 0", "22023"),
        ("BEGIN; ALTER SYSTEM SET max_connections = 9", "25001"),
    ] {
        assert_eq!(code(&mut one, text), Some(expected), "{text}");
        all(&mut one, &["ROLLBACK"]);
    }
    all(&mut one, &["ALTER SYSTEM RESET ALL", "SELECT pg_reload_conf()"]);
    let mut new = Connection::open(&database).unwrap();
    assert_eq!(run(&mut new, "SHOW statement_timeout").unwrap(), "0");
}

#[test]
fn some_settings_are_for_superusers() {
    let database = database();
    let (mut admin, mut low) = (Connection::open(&database).unwrap(), Connection::open(&database).unwrap());
    all(&mut admin, &["CREATE ROLE low LOGIN", "SET log_min_duration_transaction = '3s'"]);
    low.act_as("low").unwrap();
    for text in [
        "SET log_min_duration_transaction = 1",
        "SET LOCAL log_min_duration_transaction = 1",
        "RESET log_min_duration_transaction",
        "SET log_min_duration_transaction TO DEFAULT",
        "SELECT set_config('log_min_duration_transaction', '1', false)",
        "ALTER ROLE low SET log_min_duration_transaction = 1",
        "SHOW password_file",
        "SHOW tls_key",
        "SELECT current_setting('metrics_password_file')",
        "SELECT current_setting('Password_File', true)",
    ] {
        all(&mut low, &["BEGIN"]);
        assert_eq!(code(&mut low, text), Some("42501"), "{text}");
        all(&mut low, &["ROLLBACK"]);
    }
    assert_eq!(low.set_parameter("log_min_duration_transaction", "1").unwrap_err().state().code(), "42501");
    // Whoever may not set it sees it, and returns to what it was.
    assert_eq!(run(&mut low, "SHOW log_min_duration_transaction").unwrap(), "0");
    all(&mut low, &["RESET ALL", "DISCARD ALL"]);
    let secret = "name IN ('password_file', 'metrics_password_file', 'tls_key', 'socket_directory')";
    let count = format!("SELECT count(*) FROM pg_settings WHERE {secret}");
    assert_eq!((run(&mut admin, &count).unwrap(), run(&mut low, &count).unwrap()), ("4".into(), "0".into()));
    assert!(run(&mut admin, "SHOW ALL").unwrap().contains("password_file"));
    assert!(!run(&mut low, "SHOW ALL").unwrap().contains("password_file"));
    assert_eq!(run(&mut admin, "SHOW socket_directory").unwrap(), "/tmp");
    // What a superuser has set of a role, the role does not take back.
    all(&mut admin, &["ALTER ROLE low SET log_min_duration_transaction = '7s'", "ALTER ROLE low SET my.x = 1"]);
    assert_eq!(code(&mut low, "ALTER ROLE low RESET log_min_duration_transaction"), Some("42501"));
    all(&mut low, &["ALTER ROLE low RESET ALL"]);
    let kept = "SELECT setconfig FROM pg_db_role_setting";
    assert_eq!(run(&mut admin, kept).unwrap(), "{log_min_duration_transaction=7s}");
    let mut again = Connection::open(&database).unwrap();
    again.act_as("low").unwrap();
    assert_eq!(run(&mut again, "SHOW log_min_duration_transaction").unwrap(), "7s");
    all(&mut admin, &["ALTER ROLE low RESET ALL"]);
    assert_eq!(run(&mut admin, kept).unwrap(), "");
    let context = "SELECT context FROM pg_settings WHERE name = 'log_min_duration_transaction'";
    assert_eq!(run(&mut low, context).unwrap(), "superuser");
    let changeable = "SELECT is_changeable FROM polychron_settings WHERE name = 'log_min_duration_transaction'";
    assert_eq!((run(&mut admin, changeable).unwrap(), run(&mut low, changeable).unwrap()), ("t".into(), "f".into()));
}

#[test]
fn values_of_the_server_have_their_bounds() {
    let database = database();
    let mut one = Connection::open(&database).unwrap();
    database.configure(Configuration::default(), Some(Arc::new(Files::default())));
    for (text, expected) in [
        ("authentication_timeout = '1ms'", Some("22023")),
        ("authentication_timeout = 0", Some("22023")),
        ("authentication_timeout = '11min'", Some("22023")),
        ("authentication_timeout = '10min'", None),
        ("authentication_timeout = 30", None),
        ("unix_socket_permissions = '0999'", Some("22023")),
        ("unix_socket_permissions = '1777'", Some("22023")),
        ("unix_socket_permissions = ''", Some("22023")),
        ("unix_socket_permissions = '+7'", Some("22023")),
        ("unix_socket_permissions = '700'", None),
    ] {
        assert_eq!(code(&mut one, &format!("ALTER SYSTEM SET {text}")), expected, "{text}");
    }
    all(&mut one, &["SELECT pg_reload_conf()"]);
    let seen =
        "SELECT setting, unit, min_val, max_val, boot_val FROM pg_settings WHERE name = 'authentication_timeout'";
    assert_eq!(run(&mut one, seen).unwrap(), "30|s|1|600|60");
    assert_eq!(run(&mut one, "SHOW authentication_timeout").unwrap(), "30s");
    let mut parsed = Configuration::default();
    parsed.set("unix_socket_permissions", "700", Origin::File).unwrap();
    assert_eq!(parsed.get("unix_socket_permissions"), "0700");
}

#[test]
fn a_role_is_a_setting() {
    let database = database();
    let (mut admin, mut low) = (Connection::open(&database).unwrap(), Connection::open(&database).unwrap());
    all(&mut admin, &["CREATE ROLE low LOGIN", "CREATE ROLE grp", "CREATE ROLE other", "GRANT grp TO low"]);
    low.act_as("low").unwrap();
    let who = |one: &mut Connection| run(one, "SELECT session_user, current_user").unwrap();
    assert_eq!(run(&mut low, "SELECT set_config('role', 'grp', false)").unwrap(), "grp");
    assert_eq!((run(&mut low, "SHOW role").unwrap(), who(&mut low)), ("grp".into(), "low|grp".into()));
    assert_eq!(run(&mut low, "SELECT set_config('role', 'none', false)").unwrap(), "none");
    all(&mut low, &["SET role = 'grp'"]);
    assert_eq!(who(&mut low), "low|grp");
    all(&mut low, &["SET role TO DEFAULT"]);
    assert_eq!(who(&mut low), "low|low");
    // It is local to a transaction, and a rollback takes it back.
    all(&mut low, &["BEGIN", "SELECT set_config('role', 'grp', true)"]);
    assert_eq!(who(&mut low), "low|grp");
    all(&mut low, &["COMMIT"]);
    assert_eq!(who(&mut low), "low|low");
    all(&mut low, &["BEGIN", "SET role TO grp", "ROLLBACK", "SELECT set_config('role', 'grp', true)"]);
    assert_eq!(who(&mut low), "low|low");
    for (text, expected) in [
        ("SELECT set_config('role', 'other', false)", "42501"),
        ("SET role = 'postgres'", "42501"),
        ("SELECT set_config('role', 'nobody', false)", "42704"),
        ("SELECT set_config('session_authorization', 'postgres', false)", "42501"),
    ] {
        assert_eq!(code(&mut low, text), Some(expected), "{text}");
    }
    assert_eq!(who(&mut low), "low|low");
    assert_eq!(run(&mut admin, "SELECT set_config('session_authorization', 'low', false)").unwrap(), "low");
    assert_eq!(who(&mut admin), "low|low");
    all(&mut admin, &["RESET SESSION AUTHORIZATION"]);
    assert_eq!(who(&mut admin), "postgres|postgres");
    low.set_parameter("role", "grp").unwrap();
    assert_eq!(who(&mut low), "low|grp");
}
