//! What the relations show that tell what goes on.

use std::sync::{Arc, Mutex};

use polychron_base::clock::Duration;
use polychron_engine::Protocol;
use polychron_protocols::cicada::Cicada;
use polychron_sql::{Client, Connection, SlowLog, SqlDatabase, SqlState};

use crate::common::database;

fn rows<P: Protocol>(connection: &mut Connection<P>, text: &str) -> Vec<Vec<Option<String>>> {
    connection.execute(text, &[]).unwrap_or_else(|error| panic!("{text}: {error}")).texts().collect()
}

fn count<P: Protocol>(connection: &mut Connection<P>, text: &str) -> i64 {
    rows(connection, text)[0][0].as_deref().expect("a number").parse().expect("a number")
}

fn conflicting(first: &mut Connection<Cicada>, other: &mut Connection<Cicada>) -> Option<SqlState> {
    first.execute("BEGIN", &[]).unwrap();
    rows(first, "SELECT sum(b) FROM t");
    other.execute("UPDATE t SET b = b + 1 WHERE a = 1", &[]).unwrap();
    let ended = first.execute("UPDATE t SET b = 0 WHERE a = 1", &[]).and_then(|_| first.execute("COMMIT", &[]));
    let state = ended.err().map(|error| error.state());
    first.execute("ROLLBACK", &[]).unwrap();
    state
}

#[test]
fn sessions_are_seen_with_what_they_do() {
    let database = database::<Cicada>();
    let (mut own, mut other) = (Connection::open(&database).unwrap(), Connection::open(&database).unwrap());
    other.execute("SET application_name = 'the other'", &[]).unwrap();
    other.execute("CREATE TABLE t (a int PRIMARY KEY)", &[]).unwrap();
    other.execute("BEGIN", &[]).unwrap();
    other.execute("INSERT INTO t VALUES (1)", &[]).unwrap();
    let seen = "SELECT state, query FROM pg_stat_activity WHERE application_name = 'the other'";
    let wanted = |state: &str, query: &str| vec![vec![Some(state.to_owned()), Some(query.to_owned())]];
    assert_eq!(rows(&mut own, seen), wanted("idle in transaction", "INSERT INTO t VALUES (1)"));
    // The same text again shows what is then.
    other.execute("INSERT INTO t VALUES (1)", &[]).unwrap_err();
    assert_eq!(rows(&mut own, seen), wanted("idle in transaction (aborted)", "INSERT INTO t VALUES (1)"));
    other.execute("ROLLBACK", &[]).unwrap();
    assert_eq!(rows(&mut own, seen), wanted("idle", "ROLLBACK"));
    let mut prepared = own.prepare(seen).unwrap();
    let states = |rows: &polychron_sql::Rows| rows.iter().map(|row| row.get::<String>(0).unwrap()).collect::<Vec<_>>();
    assert_eq!(states(&own.answer_prepared(&mut prepared, &[]).unwrap()), ["idle"]);
    other.execute("BEGIN", &[]).unwrap();
    assert_eq!(states(&own.answer_prepared(&mut prepared, &[]).unwrap()), ["idle in transaction"]);
    assert_eq!(count(&mut own, "SELECT count(*) FROM pg_stat_activity"), 2);
    let me = "SELECT state FROM pg_stat_activity WHERE pid = pg_backend_pid()";
    assert_eq!(rows(&mut own, me), [[Some("active".to_owned())]]);
    // What asks sees itself, however it is run.
    let me = "SELECT query FROM pg_stat_activity WHERE pid = pg_backend_pid()";
    let texts = |rows: &polychron_sql::Rows| rows.iter().map(|row| row.get::<String>(0).unwrap()).collect::<Vec<_>>();
    assert_eq!(rows(&mut own, me), [[Some(me.to_owned())]]);
    let mut prepared = own.prepare(me).unwrap();
    for _ in 0..2 {
        own.execute("SELECT 1", &[]).unwrap();
        assert_eq!(texts(&own.answer_prepared(&mut prepared, &[]).unwrap()), [me]);
        own.execute("SELECT 1", &[]).unwrap();
        assert_eq!(texts(&own.answer(me, &[]).unwrap()), [me]);
    }
    drop(other);
    assert_eq!(count(&mut own, "SELECT count(*) FROM pg_stat_activity"), 1);
}

#[test]
fn counts_stay_when_sessions_end() {
    let database = database::<Cicada>();
    let mut own = Connection::open(&database).unwrap();
    own.execute("CREATE TABLE t (a int PRIMARY KEY, b int)", &[]).unwrap();
    let before = database.sums();
    let mut other = Connection::open(&database).unwrap();
    other.execute("INSERT INTO t VALUES (1, 1), (2, 2)", &[]).unwrap();
    for _ in 0..3 {
        other.answer("SELECT b FROM t WHERE a = 1", &[]).unwrap();
    }
    other.answer("SELECT b FROM t WHERE  a = 2", &[]).unwrap();
    other.answer("UPDATE t SET b = 0", &[]).unwrap();
    other.answer("SELECT 1 / 0", &[]).unwrap_err();
    for text in ["BEGIN", "DELETE FROM t WHERE a = 1", "ROLLBACK", "BEGIN", "DELETE FROM t WHERE a = 2", "COMMIT"] {
        other.execute(text, &[]).unwrap();
    }
    let counted = |database: &SqlDatabase<Cicada>| {
        let sums = database.sums();
        let less = |now: [u64; 2], before: [u64; 2]| [now[0] - before[0], now[1] - before[1]];
        [less(sums.statements, before.statements), less(sums.transactions, before.transactions)]
    };
    let all = [[12, 1], [7, 2]];
    assert_eq!(counted(&database), all);
    drop(other);
    assert_eq!(counted(&database), all);
    let of_shape = "SELECT calls, rows, errors FROM pg_stat_statements WHERE query =";
    let shown = |own: &mut Connection<Cicada>, shape: &str| {
        let found = rows(own, &format!("{of_shape} '{shape}'"));
        found.concat().into_iter().flatten().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(shown(&mut own, "select b from t where a = $1"), "4 4 0");
    assert_eq!(shown(&mut own, "select $1 / $2"), "1 0 1");
    assert_eq!(shown(&mut own, "insert into t values ($1, $2), ($3, $4)"), "1 2 0");
    let tables =
        "SELECT seq_scan, idx_scan, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables WHERE relname = 't'";
    let tables: Vec<_> = rows(&mut own, tables).concat().into_iter().flatten().collect();
    assert_eq!(tables, ["1", "6", "2", "2", "2"]);
    assert_eq!(count(&mut own, "SELECT tup_deleted FROM pg_stat_database"), 2);
}

#[test]
fn conflicts_are_told_with_their_places() {
    let database = database::<Cicada>();
    let (mut own, mut other) = (Connection::open(&database).unwrap(), Connection::open(&database).unwrap());
    own.execute("CREATE TABLE t (a int PRIMARY KEY, b int)", &[]).unwrap();
    own.execute("INSERT INTO t VALUES (1, 1), (2, 2)", &[]).unwrap();
    assert_eq!(conflicting(&mut own, &mut other), Some(SqlState::SERIALIZATION_FAILURE));
    let told = "SELECT relation, outcome, pid = pg_backend_pid() FROM polychron_conflicts ORDER BY at DESC LIMIT 1";
    let wanted = ["t", "told", "t"].map(|text| Some(text.to_owned()));
    assert_eq!(rows(&mut own, told)[0], wanted);
    let sums = database.sums();
    assert!(sums.told == 1 && sums.replays[1] >= 1 && sums.conflicts().iter().any(|it| it.count > 0));
    let in_ring = count(&mut own, "SELECT count(*) FROM polychron_conflicts");
    for _ in 0..300 {
        conflicting(&mut own, &mut other);
    }
    assert!(database.conflicts().len() <= 64 && in_ring <= 64, "the ring has an end");
}

#[test]
fn others_are_cancelled_and_ended() {
    let database = database::<Cicada>();
    let (mut own, mut other) = (Connection::open(&database).unwrap(), Connection::open(&database).unwrap());
    let ended = Arc::new(Mutex::new(0));
    let seen = ended.clone();
    other.introduce(Client { number: 7, address: None, end: Box::new(move || *seen.lock().unwrap() += 1) });
    assert_eq!(count(&mut other, "SELECT pg_backend_pid()"), 7);
    assert_eq!(count(&mut own, "SELECT count(*) FROM pg_stat_activity WHERE pid = 7 AND xact_start IS NULL"), 1);
    let endless = std::thread::spawn(move || {
        let ended = other.execute("SELECT count(*) FROM generate_series(1, 1000000000000)", &[]);
        (other, ended.map(drop))
    });
    while !endless.is_finished() {
        assert_eq!(rows(&mut own, "SELECT pg_cancel_backend(7)"), [[Some("t".to_owned())]]);
    }
    let (mut other, cancelled) = endless.join().unwrap();
    assert_eq!(cancelled.unwrap_err().state(), SqlState::QUERY_CANCELED);
    other.execute("SELECT 1", &[]).unwrap();
    let seven = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = 7";
    assert_eq!(rows(&mut own, seven), [[Some("t".to_owned())]]);
    assert_eq!(*ended.lock().unwrap(), 1);
    assert_eq!(other.execute("SELECT 1", &[]).unwrap_err().state(), SqlState::ADMIN_SHUTDOWN);
    assert_eq!(
        rows(&mut own, "SELECT pg_terminate_backend(8), pg_cancel_backend(NULL)"),
        [[Some("f".to_owned()), None]]
    );
}

#[test]
fn settings_and_gates_are_shown() {
    let database = database::<Cicada>();
    let (mut own, mut other) = (Connection::open(&database).unwrap(), Connection::open(&database).unwrap());
    own.execute("SET statement_timeout = '5s'", &[]).unwrap();
    let setting = "SELECT setting, unit FROM pg_settings WHERE name = 'statement_timeout'";
    assert_eq!(rows(&mut own, setting), [["5000", "ms"].map(|text| Some(text.to_owned()))]);
    assert_eq!(rows(&mut other, setting)[0][0].as_deref(), Some("0"));
    other.execute("CREATE TABLE t (a int PRIMARY KEY)", &[]).unwrap();
    let locks = "SELECT mode FROM pg_locks WHERE relation = 't'::regclass AND pid <> pg_backend_pid()";
    assert!(rows(&mut own, locks).is_empty());
    other.execute("BEGIN", &[]).unwrap();
    rows(&mut other, "SELECT * FROM t");
    assert_eq!(rows(&mut own, locks), [[Some("AccessShareLock".to_owned())]]);
    other.execute("ROLLBACK", &[]).unwrap();
    assert!(rows(&mut own, locks).is_empty());
    assert!(count(&mut own, "SELECT bytes FROM polychron_memory WHERE kind = 'used'") > 0);
    let body = "CREATE PROCEDURE p() LANGUAGE sql AS 'SELECT * FROM pg_stat_activity'";
    assert_eq!(own.execute(body, &[]).unwrap_err().state(), SqlState::FEATURE_NOT_SUPPORTED);
}

#[test]
fn slow_transactions_are_told_without_passwords() {
    let database = database::<Cicada>();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let told = lines.clone();
    let line = Arc::new(move |line: &str| told.lock().unwrap().push(line.to_owned()));
    database.log_slow(SlowLog { after: Some(Duration::from_nanos(1)), cuts_constants: false, line });
    let mut own = Connection::open(&database).unwrap();
    for text in ["BEGIN", "SELECT 'a\"b'", "SELECT 'the password is secret'", "ROLLBACK"] {
        own.execute(text, &[]).unwrap();
    }
    own.execute("SELECT 1 / 0", &[]).unwrap_err();
    own.execute("SET log_min_duration_transaction = 0", &[]).unwrap();
    own.execute("SELECT 'not told'", &[]).unwrap();
    let lines = lines.lock().unwrap();
    assert!(lines.iter().all(|line| !line.contains("secret") && !line.contains("not told")), "{lines:?}");
    let lines: Vec<serde_json::Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let texts = |line: &serde_json::Value| {
        let statements = line["statements"].as_array().unwrap().iter();
        statements.map(|it| it["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(texts(&lines[0]), ["BEGIN", "SELECT 'a\"b'", "select $1", "ROLLBACK"]);
    assert_eq!((&lines[0]["outcome"], &lines[0]["attempts"]), (&"rolled back".into(), &1.into()));
    assert_eq!(texts(&lines[1]), ["SELECT 1 / 0"]);
}
