//! Cursors in transactions that are run again, and how much they may keep.

use crate::common::{all as run, connect, database};
use polychron_engine::{Interactive, Protocol};
use polychron_protocols::{cicada::Cicada, maflingo::Maflingo, serial::Serial};
use polychron_sql::{Connection, SqlState, Type};

fn fetched<P: Protocol<Worker: Interactive>>(connection: &mut Connection<P>, text: &str) -> Vec<i32> {
    let rows = connection.answer(text, &[]).unwrap_or_else(|error| panic!("{text}: {error}"));
    rows.all::<(i32,)>().unwrap().into_iter().map(|(value,)| value).collect()
}

const TABLES: [&str; 2] =
    ["CREATE TABLE t (a int PRIMARY KEY, b int, c int)", "INSERT INTO t VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3)"];

/// The transaction of a cursor conflicts, and is run again where the cursor's rows are the same.
fn replayed<P: Protocol<Worker: Interactive>>() {
    let database = database::<P>();
    let (mut one, mut other) = (connect(&database), connect(&database));
    run(&mut one, &TABLES);
    run(&mut one, &["BEGIN", "DECLARE c CURSOR FOR SELECT b FROM t ORDER BY a"]);
    assert_eq!(fetched(&mut one, "FETCH 2 c"), [1, 2]);
    run(&mut other, &["UPDATE t SET c = 7 WHERE a = 3"]);
    run(&mut one, &["UPDATE t SET c = c + 1 WHERE a = 3"]);
    assert_eq!(fetched(&mut one, "FETCH c"), [3], "it goes on where it was");
    run(&mut one, &["COMMIT"]);
    assert_eq!(fetched(&mut one, "SELECT c FROM t WHERE a = 3"), [8]);
    run(&mut one, &["BEGIN", "DECLARE c CURSOR FOR SELECT b FROM t ORDER BY a"]);
    assert_eq!(fetched(&mut one, "FETCH c"), [1]);
    run(&mut other, &["UPDATE t SET b = 9 WHERE a = 3"]);
    let ended = one.execute("UPDATE t SET c = b WHERE a = 3", &[]).and_then(|_| one.execute("COMMIT", &[]));
    assert_eq!(ended.unwrap_err().state(), SqlState::SERIALIZATION_FAILURE, "a row that was kept has changed");
    run(&mut one, &["ROLLBACK"]);
}

#[test]
fn a_cursor_is_declared_again_with_its_transaction() {
    replayed::<Cicada>();
    replayed::<Maflingo>();
}

#[test]
fn definitions_leave_cursors_where_they_are() {
    let database = database::<Serial>();
    let mut connection = connect(&database);
    run(&mut connection, &TABLES);
    run(&mut connection, &["BEGIN", "DECLARE c CURSOR FOR SELECT a FROM t ORDER BY a"]);
    assert_eq!(fetched(&mut connection, "FETCH c"), [1]);
    run(&mut connection, &["CREATE TABLE u (a int)"]);
    assert_eq!(fetched(&mut connection, "FETCH ALL c"), [2, 3]);
    run(&mut connection, &["COMMIT"]);
}

#[test]
fn cursors_are_bounded_together() {
    let database = database::<Serial>();
    let mut connection = connect(&database);
    let declare = |name: &str, count: u32| {
        format!("DECLARE {name} CURSOR WITH HOLD FOR SELECT repeat('x', 1000000) FROM generate_series(1, {count})")
    };
    let error = connection.execute(&declare("a", 300), &[]).unwrap_err();
    assert_eq!(error.state(), SqlState::OUT_OF_MEMORY);
    run(&mut connection, &[&declare("a", 150)]);
    let error = connection.execute(&declare("b", 150), &[]).unwrap_err();
    assert_eq!(error.state(), SqlState::OUT_OF_MEMORY);
    run(&mut connection, &["CLOSE a", &declare("b", 150), "CLOSE ALL"]);
}

#[test]
fn parameters_and_columns_are_those_of_the_query() {
    let database = database::<Serial>();
    let mut connection = connect(&database);
    run(&mut connection, &TABLES);
    let two = (Type::Int4, polychron_sql::Datum::Int(2));
    connection.execute("DECLARE c CURSOR WITH HOLD FOR SELECT a AS x FROM t WHERE a >= $1 ORDER BY a", &[two]).unwrap();
    let outcome = connection.execute("FETCH ALL FROM c", &[]).unwrap();
    assert_eq!((outcome.columns, outcome.count), (vec![("x".to_owned(), Type::Int4)], 2));
    let rows = connection.answer("MOVE BACKWARD ALL FROM c", &[]).unwrap();
    assert_eq!((rows.count(), rows.columns().len()), (2, 0));
    for refused in ["DECLARE d BINARY CURSOR WITH HOLD FOR SELECT 1", "DELETE FROM t WHERE CURRENT OF c"] {
        assert_eq!(connection.execute(refused, &[]).unwrap_err().state(), SqlState::FEATURE_NOT_SUPPORTED, "{refused}");
    }
    for wrong in [
        "DECLARE d CURSOR",
        "FETCH",
        "FETCH x y c",
        "FETCH ABSOLUTE c",
        "FETCH 99999999999 c",
        "CLOSE",
        "DECLARE 5 CURSOR FOR SELECT 1",
        "DECLARE d CURSOR WITH HOLD FOR DELETE FROM t",
    ] {
        let state = connection.execute(wrong, &[]).unwrap_err().state();
        assert!([SqlState::SYNTAX_ERROR, SqlState::FEATURE_NOT_SUPPORTED].contains(&state), "{wrong}: {state}");
    }
}
