//! `polychron serve`, with a client, signals and restarts.
#![cfg(feature = "serve")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use postgres::{Client, NoTls};

/// A server, its port, and the password that it has printed.
struct Served {
    child: Child,
    out: BufReader<ChildStdout>,
    errors: BufReader<ChildStderr>,
    port: u16,
    password: Option<String>,
}

impl Served {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polychron"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--socket-directory", ""]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let errors = BufReader::new(child.stderr.take().unwrap());
        let mut password = None;
        let port = loop {
            let mut line = String::new();
            assert_ne!(out.read_line(&mut line).unwrap(), 0, "it has ended");
            if let Some(address) = line.trim().strip_prefix("listening on 127.0.0.1:") {
                break address.parse().unwrap();
            }
            password = line.trim().rsplit_once(": ").map(|(_, password)| password.to_owned());
        };
        Self { child, out, errors, port, password }
    }

    fn connect(&self, password: &str) -> Result<Client, postgres::Error> {
        connect(self.port, password)
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for its end; the answer is the exit code.
    fn end(mut self) -> Option<i32> {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        self.child.wait().unwrap().code()
    }
}

fn connect(port: u16, password: &str) -> Result<Client, postgres::Error> {
    let mut config = postgres::Config::new();
    config.host("127.0.0.1").port(port).user("postgres").dbname("polychron").password(password);
    config.connect(NoTls)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn what_was_acknowledged_is_there_whatever_ends_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank");
    let served = Served::start(&[text(&path)]);
    let password = served.password.clone().expect("the first start prints one");
    let mut client = served.connect(&password).unwrap();
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").unwrap();
    for id in 0..20_i32 {
        client.execute("INSERT INTO t VALUES ($1)", &[&id]).unwrap();
    }
    let mut transaction = client.transaction().unwrap();
    transaction.execute("INSERT INTO t VALUES (100)", &[]).unwrap();
    served.signal("-KILL");
    assert_eq!(served.end(), None);
    drop(transaction);

    let served = Served::start(&[text(&path)]);
    assert_eq!(served.password, None, "it is not shown again");
    assert!(served.connect("something else").is_err());
    let mut client = served.connect(&password).unwrap();
    let count: i64 = client.query_one("SELECT count(*) FROM t", &[]).unwrap().get(0);
    assert_eq!(count, 20);
    client.execute("INSERT INTO t VALUES (20)", &[]).unwrap();
    served.signal("-TERM");
    assert_eq!(served.end(), Some(0));
    let error = client.query("SELECT 1", &[]).unwrap_err();
    assert!(error.is_closed() || error.code().is_some_and(|code| code.code() == "57P01"), "{error}");

    let served = Served::start(&[text(&path), "--trust"]);
    let count: i64 = served.connect("").unwrap().query_one("SELECT count(*) FROM t", &[]).unwrap().get(0);
    assert_eq!(count, 21);
    served.signal("-INT");
    assert_eq!(served.end(), Some(0));
}

#[test]
fn passwords_come_from_files() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "of a file\n").unwrap();
    let served = Served::start(&["--password-file", text(&file)]);
    assert_eq!(served.password, None);
    assert!(served.connect("of a fil").is_err());
    assert_eq!(served.connect("of a file").unwrap().query("SELECT 1", &[]).unwrap().len(), 1);
    served.signal("-TERM");
    assert_eq!(served.end(), Some(0));
}

#[test]
fn what_cannot_be_served_is_refused() {
    let refused = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_polychron")).arg("serve").args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = refused(&["--listen", "0.0.0.0:0", "--socket-directory", ""]);
    assert!(code == Some(1) && said.contains("is reached from other machines"), "{said}");
    let (code, said) = refused(&["--protocol", "nothing"]);
    assert!(code == Some(2) && said.contains("--protocol"), "{said}");
    let (code, said) = refused(&["--trust", "--password-file", "x"]);
    assert!(code == Some(2) && said.contains("cannot be used with"), "{said}");
    let (code, said) = refused(&["--max-connections", "3", "--listen", "127.0.0.1:0", "--socket-directory", ""]);
    assert!(code == Some(1) && said.contains("superuser_reserved_connections (3) must be less"), "{said}");
}

/// A password that nobody can use is not shown, and the next start shows one.
#[test]
fn a_start_that_fails_has_no_password() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_polychron"));
    command.args(["serve", text(&path), "--listen", &address, "--socket-directory", ""]);
    let output = command.env("POLYCHRON_MAX_CONNECTION", "5").env("POLYCHRON_LOCK_TIMEOUT", "5s").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains(&address), "{said}");
    let line = "variables of the environment that name no setting: POLYCHRON_MAX_CONNECTION";
    assert!(said.lines().any(|own| own.contains(line)), "{said}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    let served = Served::start(&[text(&path)]);
    let password = served.password.clone().expect("the first start prints one");
    drop(served.connect(&password).unwrap());
    served.signal("-TERM");
    assert_eq!(served.end(), Some(0));
}

/// ALTER SYSTEM takes nothing with which the server would not start again.
#[test]
fn values_are_tried_before_they_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank");
    let served = Served::start(&[text(&path)]);
    let mut client = served.connect(served.password.as_ref().unwrap()).unwrap();
    let long = "x".repeat(200);
    for setting in [
        "protocol = 'nothing'",
        "listen = 'nowhere'",
        "listen = '203.0.113.7:0'",
        "listen = '0.0.0.0:0'",
        "metrics = '0.0.0.0:0'",
        "metrics = 'x'",
        "metrics_password_file = '/no/such/file'",
        "password_file = '/no/such/file'",
        "password_file = '/dev/zero'",
        "metrics_password_file = '/dev/zero'",
        &format!("listen = '127.0.0.1:{port},127.0.0.1:{port}'", port = served.port),
        &format!("listen = '127.0.0.1:{port},[::ffff:127.0.0.1]:{port}'", port = served.port),
        "socket_directory = '/no/such/directory'",
        &format!("socket_directory = '/tmp/{long}'"),
        "tls_certificate = '/no/such/file'",
        "superuser_reserved_connections = 100",
        "max_connections = 3",
    ] {
        let error = client.batch_execute(&format!("ALTER SYSTEM SET {setting}")).unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "22023", "{setting}: {error}");
        assert!(error.message().starts_with("the server would not start with it: "), "{setting}: {error}");
    }
    assert!(!directory.path().join("bank.settings.toml").exists(), "nothing was written");
    // Its own port is free when it starts again.
    client.batch_execute(&format!("ALTER SYSTEM SET listen = '127.0.0.1:{}'", served.port)).unwrap();
    client.batch_execute("ALTER SYSTEM SET max_connections = 50").unwrap();
    client.batch_execute("ALTER SYSTEM RESET ALL").unwrap();
    let left = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().contains("trial")));
    served.signal("-TERM");
    assert_eq!(served.end(), Some(0));
}

#[test]
fn settings_come_from_files_and_are_altered() {
    let directory = tempfile::tempdir().unwrap();
    let (path, config) = (directory.path().join("bank"), directory.path().join("polychron.toml"));
    let printed = Command::new(env!("CARGO_BIN_EXE_polychron")).args(["serve", "--print-config"]).output().unwrap();
    assert!(printed.status.success());
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains("\nmax_connections = 100\n"), "{printed}");
    // What is printed can be used as it is.
    let written =
        printed.replace("max_connections = 100", "max_connections = 7").replace("trust = false", "trust = true");
    std::fs::write(&config, written.replace("statement_timeout = \"0\"", "statement_timeout = \"9s\"")).unwrap();
    let show =
        |client: &mut Client, name: &str| -> String { client.query_one(&format!("SHOW {name}"), &[]).unwrap().get(0) };
    let served = Served::start(&[text(&path), "-c", "lock_timeout=3s"]);
    let mut client = served.connect("").unwrap();
    assert_eq!(
        ["max_connections", "statement_timeout", "lock_timeout"].map(|name| show(&mut client, name)),
        ["7", "9s", "3s"]
    );
    client.batch_execute("ALTER SYSTEM SET max_connections = 8").unwrap();
    client.batch_execute("ALTER SYSTEM SET statement_timeout = '8s'").unwrap();
    assert!(client.query_one("SELECT pg_reload_conf()", &[]).unwrap().get::<_, bool>(0));
    let pending = "SELECT pending_restart FROM pg_settings WHERE name = 'max_connections'";
    assert!(client.query_one(pending, &[]).unwrap().get::<_, bool>(0));
    assert_eq!(show(&mut served.connect("").unwrap(), "statement_timeout"), "8s");
    let mut set = client.prepare("SELECT set_config('my.name', $1, false)").unwrap();
    assert_eq!(client.query_one(&set, &[&"x"]).unwrap().get::<_, String>(0), "x");
    set = client.prepare("SELECT current_setting('my.name')").unwrap();
    assert_eq!(client.query_one(&set, &[]).unwrap().get::<_, String>(0), "x");
    served.signal("-TERM");
    assert_eq!(served.end(), Some(0));

    let served = Served::start(&[text(&path)]);
    let mut client = served.connect("").unwrap();
    assert_eq!(show(&mut client, "max_connections"), "8");
    served.signal("-TERM");
    assert_eq!(served.end(), Some(0));

    std::fs::write(&config, "max_connections = 0").unwrap();
    let refused = Command::new(env!("CARGO_BIN_EXE_polychron")).args(["serve", text(&path)]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        refused.status.code() == Some(1) && said.contains("polychron.toml") && said.contains("max_connections"),
        "{said}"
    );
}

/// SIGHUP has the rules read again; what cannot be used leaves those that were there.
#[test]
fn files_are_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("polychron.toml");
    let password = directory.path().join("password");
    std::fs::write(&password, "right\n").unwrap();
    let rule = |address: &str| {
        let text = format!("[[rule]]\nkind = \"host\"\naddress = \"{address}\"\nmethod = \"scram\"\n");
        std::fs::write(&config, text).unwrap();
    };
    rule("127.0.0.1");
    let mut served = Served::start(&["--password-file", text(&password), "--config", text(&config)]);
    let port = served.port;
    let is_admitted = || match connect(port, "right") {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.code().unwrap().code(), "28000", "{error}");
            false
        }
    };
    let until = |wanted: bool| {
        for _ in 0..1200 {
            if is_admitted() == wanted {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("it was not read again");
    };
    let mut client = served.connect("right").unwrap();
    rule("10.0.0.0/8");
    assert!(is_admitted(), "nobody has had it read");
    served.signal("-HUP");
    until(false);
    std::fs::write(&config, "[[rule]]\nkind = \"host\"\naddress = \"all\"\nmethod = \"none\"\n").unwrap();
    served.signal("-HUP");
    let mut line = String::new();
    served.errors.read_line(&mut line).unwrap();
    assert!(line.contains("not read again: ") && line.contains("the method \"none\" is not supported"), "{line}");
    assert!(!is_admitted());
    rule("127.0.0.1");
    served.signal("-HUP");
    until(true);
    assert_eq!(client.query("SELECT 1", &[]).unwrap().len(), 1, "clients that have come stay");
    served.signal("-TERM");
    assert_eq!(served.end(), Some(0));
}
