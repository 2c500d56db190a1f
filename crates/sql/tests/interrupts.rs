//! What ends statements: their time, and other threads.

use std::sync::mpsc;
use std::thread;

use crate::common::{all as run, connect, database};
use polychron_engine::{Interactive, Protocol};
use polychron_protocols::{cicada::Cicada, locking::Locking, maflingo::Maflingo, serial::Serial};
use polychron_sql::{SqlError, SqlState};

const TABLES: [&str; 3] = [
    "CREATE TABLE t (a int PRIMARY KEY, b int)",
    "INSERT INTO t SELECT g, g % 10 FROM generate_series(1, 1000) g",
    "CREATE TABLE n (a bigint)",
];

/// Statements without an end, or one that no test waits for: what each of them spends its time with.
const ENDLESS: [(&str, &str); 10] = [
    ("a series", "SELECT count(*) FROM generate_series(1, 1000000000000)"),
    ("scans", "SELECT count(*) FROM t x, t y, t z, t w"),
    ("a join by values", "SELECT count(*) FROM t x JOIN t y USING (b) JOIN t z USING (b) JOIN t w USING (b)"),
    ("looks at single rows", "SELECT count(*) FROM generate_series(1, 1000000000000) g JOIN t ON a = g % 1000"),
    (
        "recursion",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION SELECT (n + 1) % 1000 FROM r, t) SELECT count(*) FROM r, r s, r u",
    ),
    ("groups", "SELECT g % 7, sum(g) FROM generate_series(1, 1000000000000) g GROUP BY 1"),
    (
        "windows",
        "SELECT count(*) FROM (SELECT sum(a) OVER (ORDER BY a ROWS BETWEEN 900 PRECEDING AND 1 PRECEDING) FROM (SELECT x.a FROM t x, t y LIMIT 100000) z) w",
    ),
    (
        "a subquery",
        "SELECT count(*) FROM t x WHERE (SELECT count(*) FROM t y, t z WHERE y.b = x.b AND z.b <> y.b) = -1",
    ),
    ("functions of many rows", "SELECT count(*) FROM (SELECT generate_series(1, 1000000) FROM t, t u) x"),
    ("a change", "INSERT INTO n SELECT g FROM generate_series(1, 1000000000000) g WHERE g < 0"),
];

fn check_canceled<O: std::fmt::Debug>(ended: Result<O, SqlError>, why: &str, what: &str) {
    let error = ended.expect_err(what);
    assert_eq!((error.state(), error.message()), (SqlState::QUERY_CANCELED, why), "{what}");
}

const BY_TIME: &str = "canceling statement due to statement timeout";
const BY_REQUEST: &str = "canceling statement due to user request";

fn timed<P: Protocol<Worker: Interactive>>() {
    let database = database::<P>();
    let mut connection = connect(&database);
    run(&mut connection, &TABLES);
    run(&mut connection, &["SET statement_timeout = '20ms'"]);
    for (what, statement) in ENDLESS {
        check_canceled(connection.execute(statement, &[]), BY_TIME, what);
        check_canceled(connection.answer(statement, &[]), BY_TIME, what);
    }
    let mut nothing = Vec::new();
    check_canceled(connection.copy_out(&format!("COPY ({}) TO STDOUT", ENDLESS[0].1), &mut nothing), BY_TIME, "COPY");
    run(&mut connection, &["SET statement_timeout = 0", "BEGIN", "INSERT INTO n VALUES (1)", "SAVEPOINT s"]);
    run(&mut connection, &["SET LOCAL statement_timeout = '20ms'"]);
    check_canceled(connection.execute(ENDLESS[0].1, &[]), BY_TIME, "a held transaction");
    assert_eq!(connection.execute("SELECT 1", &[]).unwrap_err().state(), SqlState::IN_FAILED_TRANSACTION);
    run(&mut connection, &["ROLLBACK TO s", "SET LOCAL statement_timeout = 0", "SELECT count(*) FROM t", "COMMIT"]);
    let rows = connection.answer("SELECT a FROM n", &[]).unwrap();
    assert_eq!(
        rows.only::<(i64,)>().unwrap(),
        (1,),
        "nothing is left of the statement, and of the transaction nothing is lost"
    );
}

#[test]
fn statements_end_with_their_time() {
    timed::<Serial>();
    timed::<Cicada>();
    timed::<Maflingo>();
}

fn canceled<P: Protocol<Worker: Interactive>>() {
    let database = database::<P>();
    let mut connection = connect(&database);
    run(&mut connection, &TABLES);
    let handle = connection.cancel_handle();
    assert!(!handle.cancel(), "nothing runs");
    run(&mut connection, &["SELECT count(*) FROM t"]);
    for (what, statement) in ENDLESS {
        let (ended, has_ended) = mpsc::channel::<()>();
        let own = handle.clone();
        // It may ask before the statement has begun, and so asks until it has ended.
        let thread = thread::spawn(move || {
            while has_ended.try_recv() == Err(mpsc::TryRecvError::Empty) {
                own.cancel();
                thread::yield_now();
            }
        });
        let answer = connection.execute(statement, &[]);
        drop(ended);
        thread.join().unwrap();
        check_canceled(answer, BY_REQUEST, what);
    }
    assert!(!handle.cancel(), "nothing runs");
    run(&mut connection, &["SELECT count(*) FROM t"]);
    drop(connection);
    assert!(!handle.cancel(), "it may outlive its connection");
}

#[test]
fn other_threads_end_statements() {
    canceled::<Serial>();
    canceled::<Cicada>();
    canceled::<Maflingo>();
}

#[test]
fn sorts_in_runs_are_stable_and_end() {
    let database = database::<Serial>();
    let mut connection = connect(&database);
    let sorted = "SELECT g, g % 100 FROM generate_series(1, 100000) g ORDER BY 2, g";
    let stable = "SELECT g, g % 100 FROM generate_series(1, 100000) g ORDER BY 2";
    let wanted: Vec<(i32, i32)> = connection.answer(sorted, &[]).unwrap().all().unwrap();
    // With a handle, sorts are taken apart.
    let _handle = connection.cancel_handle();
    for statement in [sorted, stable] {
        assert_eq!(connection.answer(statement, &[]).unwrap().all::<(i32, i32)>().unwrap(), wanted, "{statement}");
    }
}

#[test]
fn waits_for_locks_and_tables_end() {
    let database = database::<Locking>();
    let (mut one, mut other) = (connect(&database), connect(&database));
    run(
        &mut one,
        &["CREATE TABLE t (a int PRIMARY KEY, b int)", "INSERT INTO t VALUES (1, 1)", "BEGIN", "UPDATE t SET b = 2"],
    );
    let (begun, has_begun) = mpsc::channel();
    let thread = thread::spawn(move || {
        let handle = other.cancel_handle();
        begun.send(handle).unwrap();
        let row = other.execute("UPDATE t SET b = 3", &[]);
        let table = other.execute("ALTER TABLE t ADD COLUMN c int", &[]);
        run(&mut other, &["SET statement_timeout = '20ms'"]);
        let timed = (other.execute("UPDATE t SET b = 3", &[]), other.execute("DROP TABLE t", &[]));
        // The time for locks alone keeps its own code.
        run(&mut other, &["SET statement_timeout = 0", "SET lock_timeout = '20ms'"]);
        (row, table, timed, other.execute("DROP TABLE t", &[]))
    });
    let handle = has_begun.recv().unwrap();
    while !thread.is_finished() {
        handle.cancel();
        thread::sleep(std::time::Duration::from_millis(30));
    }
    let (row, table, timed, locked) = thread.join().unwrap();
    check_canceled(row, BY_REQUEST, "a row");
    check_canceled(table, BY_REQUEST, "a table");
    for ended in [timed.0, timed.1] {
        assert_eq!(ended.unwrap_err().state(), SqlState::QUERY_CANCELED);
    }
    let state = locked.unwrap_err().state();
    assert!([SqlState::LOCK_NOT_AVAILABLE, SqlState::QUERY_CANCELED].contains(&state), "{state}");
    run(&mut one, &["COMMIT", "UPDATE t SET b = 4", "DROP TABLE t"]);
}

#[test]
fn a_copy_ends_with_the_statement() {
    let database = database::<Cicada>();
    let mut connection = connect(&database);
    run(&mut connection, &["CREATE TABLE t (a int PRIMARY KEY)"]);
    let handle = connection.cancel_handle();
    let mut copy = connection.copy_in("COPY t FROM STDIN").unwrap();
    copy.write(b"1\n2\n").unwrap();
    assert!(handle.cancel(), "it runs until it is finished");
    check_canceled(copy.write(b"3\n"), BY_REQUEST, "COPY");
    drop(copy);
    let copy = connection.copy_in("COPY t FROM STDIN").unwrap();
    handle.cancel();
    check_canceled(copy.finish(), BY_REQUEST, "COPY");
    let count = connection.answer("SELECT count(*) FROM t", &[]).unwrap();
    assert_eq!(count.only::<(i64,)>().unwrap(), (0,));
}

#[test]
fn settings_that_are_not_there_are_refused() {
    let database = database::<Serial>();
    let mut connection = connect(&database);
    for (statement, wanted) in [
        ("SET deadlock_timeout = 5", SqlState::UNDEFINED_OBJECT),
        ("DELETE FROM t WHERE CURRENT OF c", SqlState::FEATURE_NOT_SUPPORTED),
        ("SET CONSTRAINTS ALL 'soon'", SqlState::FEATURE_NOT_SUPPORTED),
    ] {
        let state = connection.execute(statement, &[]).unwrap_err().state();
        assert_eq!(state, wanted, "{statement}");
    }
}
