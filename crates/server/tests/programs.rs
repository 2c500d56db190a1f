//! Programs of PostgreSQL, where they are installed: psql and pgbench.

use std::process::{Command, Output};

use crate::common::{Db, server, server_with};
use polychron_server::{Credentials, Password, Server};

/// The program, as it talks to the server; `None`: it is not installed.
pub(crate) fn program(name: &str, server: &Server<Db>) -> Option<Command> {
    if Command::new(name).arg("--version").output().is_err() {
        eprintln!("skipped: there is no {name}");
        return None;
    }
    let mut command = Command::new(name);
    let port = server.addresses()[0].port().to_string();
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("PGHOST", "127.0.0.1").env("PGPORT", port).env("PGUSER", "postgres").env("PGDATABASE", "polychron");
    command.env("PGSSLMODE", "prefer").env("LC_ALL", "C");
    Some(command)
}

#[track_caller]
pub(crate) fn succeeded(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{said}");
    assert!(!said.contains("ERROR"), "{said}");
    text
}

#[test]
fn psql_shows_what_there_is() {
    let server = server();
    let Some(mut psql) = program("psql", &server) else { return };
    let script = r"
        CREATE TABLE parent (id int PRIMARY KEY, name varchar(20) NOT NULL UNIQUE);
        CREATE TABLE child (id serial PRIMARY KEY, parent int REFERENCES parent, price numeric(8,2) DEFAULT 1 CHECK (price > 0));
        CREATE INDEX child_price ON child (price);
        CREATE VIEW both_of_them AS SELECT p.name, c.price FROM parent p JOIN child c ON c.parent = p.id;
        \d
        \d parent
        \d child
        \d+ child
        \d both_of_them
        \dt
        \di
        \dv
        \ds
        \dn
        \du
        \df
        \dT
        \l
        \dp
        \conninfo
        INSERT INTO parent VALUES (1, 'one'), (2, 'two');
        \copy parent TO STDOUT csv header
        \gset
        SELECT 1 AS a, 'b' AS b \gdesc
        BEGIN;
        SELECT * FROM parent ORDER BY id;
        COMMIT;
        \set FETCH_COUNT 1
        SELECT * FROM parent ORDER BY id;
    ";
    let script: String = script.lines().map(str::trim).filter(|line| *line != r"\gset").collect::<Vec<_>>().join("\n");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("script");
    std::fs::write(&path, script).unwrap();
    let shown = succeeded(&psql.args(["-X", "-v", "ON_ERROR_STOP=1", "-f"]).arg(&path).output().unwrap());
    for wanted in [
        "\"parent_pkey\" PRIMARY KEY, btree (id)",
        "\"child_price\" btree (price)",
        "FOREIGN KEY (parent) REFERENCES parent(id)",
        "both_of_them",
        "child_id_seq",
        "id,name\n1,one\n2,two\n",
        "  1 | one\n  2 | two\n(2 rows)",
    ] {
        assert!(shown.contains(wanted), "{wanted}\n{shown}");
    }
}

#[test]
fn psql_copies_files_in() {
    let server = server();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows.csv");
    std::fs::write(&path, "1,\"one, two\"\n2,three\n").unwrap();
    let Some(mut psql) = program("psql", &server) else { return };
    let copy = format!(r"\copy t FROM '{}' csv", path.display());
    let arguments =
        ["-X", "-A", "-t", "-c", "CREATE TABLE t (id int PRIMARY KEY, v text)", "-c", &copy, "-c", "SELECT * FROM t"];
    let shown = succeeded(&psql.args(arguments).output().unwrap());
    assert_eq!(shown, "CREATE TABLE\nCOPY 2\n1|one, two\n2|three\n");
}

#[test]
fn psql_shows_what_it_is_told() {
    let server = server();
    let Some(mut psql) = program("psql", &server) else { return };
    let script = "LISTEN a; BEGIN; NOTIFY a, 'one'; NOTIFY a; COMMIT; SET TIME ZONE 'Asia/Kolkata'; SELECT '2024-07-01'::timestamptz";
    let texts = script.split("; ").flat_map(|text| ["-c", text]);
    let shown = succeeded(&psql.args(["-X", "-A", "-t"]).args(texts).output().unwrap());
    let told: Vec<_> = shown.lines().map(|line| line.split(" received").next().unwrap_or_default()).collect();
    let wanted = [
        "LISTEN",
        "BEGIN",
        "NOTIFY",
        "NOTIFY",
        "COMMIT",
        "Asynchronous notification \"a\" with payload \"one\"",
        "Asynchronous notification \"a\"",
        "SET",
        "2024-07-01 00:00:00+05:30",
    ];
    assert_eq!(told, wanted);
}

#[test]
fn psql_takes_its_zone_from_the_environment() {
    let server = server();
    let Some(mut psql) = program("psql", &server) else { return };
    psql.env("PGTZ", "Europe/Berlin").args(["-X", "-A", "-t", "-c", "SHOW timezone"]);
    assert_eq!(succeeded(&psql.output().unwrap()), "Europe/Berlin\n");
}

#[test]
fn psql_shows_that_it_knows_the_password() {
    let credentials = Credentials::Password(Password::new("of psql").unwrap());
    let server = server_with(credentials, |_| {});
    for (password, is_right) in [("of psql", true), ("of somebody", false)] {
        let Some(mut psql) = program("psql", &server) else { return };
        let output = psql.env("PGPASSWORD", password).args(["-X", "-A", "-t", "-c", "SELECT 42"]).output().unwrap();
        assert_eq!(output.status.success(), is_right, "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.stdout == b"42\n", is_right);
    }
}

#[test]
fn pgbench_runs_its_scripts() {
    let server = server();
    let Some(mut pgbench) = program("pgbench", &server) else { return };
    succeeded(&pgbench.args(["-i", "-I", "dtgvpf", "-s", "2", "-q"]).output().unwrap());
    let Some(mut again) = program("pgbench", &server) else { return };
    succeeded(&again.args(["-i", "-I", "dtGvpf", "-s", "2", "-q"]).output().unwrap());
    for mode in ["simple", "extended", "prepared"] {
        for script in ["tpcb-like", "simple-update", "select-only"] {
            let Some(mut pgbench) = program("pgbench", &server) else { return };
            let arguments = ["-b", script, "-M", mode, "-c", "8", "-j", "2", "-t", "20", "-n", "--max-tries=100"];
            let said = succeeded(&pgbench.args(arguments).output().unwrap());
            assert!(said.contains("number of transactions actually processed: 160/160"), "{script} {mode}\n{said}");
        }
    }
    let mut client = crate::common::connect(&server);
    let sums = client
        .query_one(
            "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(delta) FROM pgbench_history)::bigint,
                (SELECT count(*) FROM pgbench_history),
                (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(tbalance) FROM pgbench_tellers)",
            &[],
        )
        .unwrap();
    assert_eq!(sums.get::<_, Option<i64>>(0), sums.get::<_, Option<i64>>(1));
    assert_eq!(sums.get::<_, i64>(2), 3 * 2 * 160);
    assert!(sums.get::<_, bool>(3));
}
