//! Statements that are bound once, parameters of all types, and the rows that they are read from.

use std::sync::Arc;
use std::thread;

use crate::common::connect as connected;
use polychron_engine::{Common, Interactive, Protocol};
use polychron_protocols::{cicada::Cicada, locking::Locking, maflingo::Maflingo, serial::Serial};
use polychron_schema::{Date, Decimal, Timestamp};
use polychron_sql::{
    Connection, Datum, FromRow, FromSql, Interval, Parameters, Prepared, Rows, SqlDatabase, SqlError, SqlState, Type,
};

fn connect<P: Protocol<Worker: Interactive>>() -> (Arc<SqlDatabase<P>>, Connection<P>) {
    let database = SqlDatabase::open(P::open(P::Options::default(), Common::default()).unwrap());
    let connection = connected(&database);
    (database, connection)
}

fn ask<P: Protocol<Worker: Interactive>>(
    connection: &mut Connection<P>,
    text: &str,
    parameters: impl Parameters,
) -> Result<Rows, SqlError> {
    parameters.lend(|values| connection.answer(text, values))
}

fn again<P: Protocol<Worker: Interactive>>(
    connection: &mut Connection<P>,
    prepared: &mut Prepared,
    parameters: impl Parameters,
) -> Result<Rows, SqlError> {
    parameters.lend(|values| connection.answer_prepared(prepared, values))
}

/// A `character` has its blanks in rows, and none where it comes back as a parameter.
#[test]
fn characters_are_padded_in_rows() {
    let (_database, mut connection) = connect::<Serial>();
    ask(&mut connection, "CREATE TABLE t (c char(4) PRIMARY KEY, n char(2)[])", ()).unwrap();
    ask(&mut connection, "INSERT INTO t VALUES ('ab', NULL), ('äöü', NULL), ('', NULL)", ()).unwrap();
    let mut find = connection.prepare("SELECT c, c || '|', n FROM t WHERE c = $1").unwrap();
    for (given, shown, whole) in [("ab", "ab  ", "ab|"), ("äöü ", "äöü ", "äöü|"), ("    ", "    ", "|")] {
        let rows = again(&mut connection, &mut find, [given]).unwrap();
        let row = rows.first().unwrap();
        assert_eq!((row.get::<&str>("c").unwrap(), row.text(0).unwrap()), (shown, shown.to_owned()));
        assert_eq!(row.get::<&str>(1).unwrap(), whole);
        assert_eq!(again(&mut connection, &mut find, [row.get::<&str>(0).unwrap()]).unwrap().len(), 1);
        let typed = [(Type::Bpchar, Datum::Text(shown))];
        let outcome = connection.execute("SELECT c, length($1) FROM t WHERE c = $1", &typed).unwrap();
        let length = whole.chars().count() - 1;
        assert_eq!(outcome.texts().next().unwrap(), [Some(shown.to_owned()), Some(length.to_string())]);
    }
}

fn statements_are_prepared<P: Protocol<Worker: Interactive>>() {
    let (_database, mut connection) = connect::<P>();
    ask(&mut connection, "CREATE TABLE account (id bigint PRIMARY KEY, owner text, balance numeric(12, 2))", ())
        .unwrap();
    let mut insert = connection.prepare("INSERT INTO account VALUES ($1, $2, $3)").unwrap();
    assert_eq!(insert.parameters(), [Type::Int8, Type::Text, Type::Numeric]);
    for id in 0..10_i64 {
        let rows = again(&mut connection, &mut insert, (id, format!("owner {id}"), "10.50")).unwrap();
        assert_eq!((rows.count(), rows.len()), (1, 0));
    }
    let mut find = connection.prepare("SELECT owner, balance, id FROM account WHERE id = $1").unwrap();
    for id in 0..10_i64 {
        let rows = again(&mut connection, &mut find, [id]).unwrap();
        let (owner, balance, same): (&str, Decimal<2>, i64) = rows.only().unwrap();
        assert_eq!((owner, balance.units(), same), (&*format!("owner {id}"), 1050, id), "{}", P::NAME);
    }
    assert!(again(&mut connection, &mut find, (77,)).unwrap().is_empty());
    // In a transaction that the client holds as well, where an error is one of it.
    ask(&mut connection, "BEGIN", ()).unwrap();
    let changed = ask(&mut connection, "UPDATE account SET balance = balance - $1 WHERE id < $2", (1, 5)).unwrap();
    assert_eq!(changed.count(), 5);
    assert_eq!(again(&mut connection, &mut insert, (1, "twice", 0)).unwrap_err().state(), SqlState::UNIQUE_VIOLATION);
    assert_eq!(again(&mut connection, &mut find, (1,)).unwrap_err().state(), SqlState::IN_FAILED_TRANSACTION);
    let unknown = ask(&mut connection, "SELECT nothing", ()).unwrap_err();
    assert_eq!(unknown.state(), SqlState::IN_FAILED_TRANSACTION);
    ask(&mut connection, "ROLLBACK", ()).unwrap();
    let total: (Decimal<2>,) = ask(&mut connection, "SELECT sum(balance) FROM account", ()).unwrap().only().unwrap();
    assert_eq!(total.0.units(), 10_500);
    ask(&mut connection, "BEGIN READ ONLY", ()).unwrap();
    let refused = again(&mut connection, &mut insert, (11, "late", 0)).unwrap_err();
    assert_eq!(refused.state(), SqlState::READ_ONLY_TRANSACTION);
    ask(&mut connection, "ROLLBACK", ()).unwrap();
}

#[test]
fn statements_are_prepared_on_protocols() {
    statements_are_prepared::<Serial>();
    statements_are_prepared::<Cicada>();
    statements_are_prepared::<Maflingo>();
    statements_are_prepared::<Locking>();
}

#[test]
fn a_statement_is_bound_again_when_its_table_is_another_one() {
    let (database, mut connection) = connect::<Cicada>();
    let mut other = connected(&database);
    ask(&mut connection, "CREATE TABLE t (id int PRIMARY KEY, v int)", ()).unwrap();
    ask(&mut connection, "INSERT INTO t VALUES (1, 2)", ()).unwrap();
    let mut all = connection.prepare("SELECT * FROM t").unwrap();
    assert_eq!(again(&mut connection, &mut all, ()).unwrap().columns().len(), 2);
    ask(&mut other, "DROP TABLE t; ", ()).unwrap();
    assert_eq!(again(&mut connection, &mut all, ()).unwrap_err().state(), SqlState::UNDEFINED_TABLE);
    ask(&mut other, "CREATE TABLE t (id text PRIMARY KEY, v int, w int)", ()).unwrap();
    ask(&mut other, "INSERT INTO t VALUES ('x', 3, 4)", ()).unwrap();
    let rows = again(&mut connection, &mut all, ()).unwrap();
    let row: (&str, i32, i32) = rows.only().unwrap();
    assert_eq!(row, ("x", 3, 4));
    // An index that is new is used, which only shows in that the answer stays right.
    ask(&mut other, "CREATE INDEX by_v ON t (v)", ()).unwrap();
    assert_eq!(ask(&mut connection, "SELECT id FROM t WHERE v = $1", (3,)).unwrap().len(), 1);
}

#[test]
fn a_statement_is_bound_again_in_another_database() {
    let ((_one, mut first), (_other, mut second)) = (connect::<Cicada>(), connect::<Cicada>());
    for (connection, of) in [(&mut first, "text"), (&mut second, "int")] {
        ask(connection, &format!("CREATE TABLE t (id int PRIMARY KEY, v {of})"), ()).unwrap();
        ask(connection, "INSERT INTO t VALUES (1, '7')", ()).unwrap();
    }
    let mut all = first.prepare("SELECT v FROM t WHERE id = $1").unwrap();
    assert_eq!(again(&mut first, &mut all, (1,)).unwrap().only::<(&str,)>().unwrap(), ("7",));
    assert_eq!(again(&mut second, &mut all, (1,)).unwrap().only::<(i32,)>().unwrap(), (7,));
    assert_eq!(again(&mut first, &mut all, (1,)).unwrap().only::<(&str,)>().unwrap(), ("7",));
}

#[test]
fn tables_that_another_object_drops_are_met_once() {
    let (database, mut connection) = connect::<Cicada>();
    ask(&mut connection, "CREATE TABLE t (id int PRIMARY KEY)", ()).unwrap();
    let mut all = connection.prepare("SELECT * FROM t").unwrap();
    let protocol = database.protocol().clone();
    let mut stranger = Connection::open(&SqlDatabase::open(protocol)).unwrap();
    ask(&mut stranger, "DROP TABLE t", ()).unwrap();
    ask(&mut stranger, "CREATE TABLE t (id int PRIMARY KEY, v int)", ()).unwrap();
    assert_eq!(again(&mut connection, &mut all, ()).unwrap_err().state(), SqlState::UNDEFINED_TABLE);
    assert_eq!(again(&mut connection, &mut all, ()).unwrap().columns().len(), 2);
}

/// A value goes in as a parameter, through a column of a type, and comes back the same.
fn goes_through<T>(connection: &mut Connection<Cicada>, of: &str, value: T)
where
    T: polychron_sql::ToSql + for<'r> FromSql<'r> + PartialEq + std::fmt::Debug,
{
    ask(connection, "DROP TABLE IF EXISTS through", ()).unwrap();
    ask(connection, &format!("CREATE TABLE through (id int PRIMARY KEY, v {of})"), ()).unwrap();
    ask(connection, "INSERT INTO through VALUES (1, $1), (2, NULL)", [&value]).unwrap();
    let rows = ask(connection, "SELECT v FROM through ORDER BY id", ()).unwrap();
    assert_eq!(rows.get(0).unwrap().get::<T>("v").unwrap(), value, "{of}");
    assert_eq!(rows.get(1).unwrap().get::<Option<T>>(0).unwrap(), None, "{of}");
    assert_eq!(rows.get(1).unwrap().get::<T>(0).unwrap_err().state(), SqlState::NULL_VALUE, "{of}");
    let found = ask(connection, "SELECT id FROM through WHERE v = $1", (&value,)).unwrap();
    assert_eq!(found.only::<(i32,)>().unwrap(), (1,), "{of}");
}

#[test]
fn values_of_all_types_go_through() {
    let (_database, mut connection) = connect::<Cicada>();
    let all = &mut connection;
    goes_through(all, "boolean", true);
    goes_through(all, "smallint", -7_i16);
    goes_through(all, "integer", i32::MIN);
    goes_through(all, "bigint", i64::MAX);
    goes_through(all, "bigint", 7_u32);
    goes_through(all, "real", 1.5_f32);
    goes_through(all, "double precision", -0.25_f64);
    goes_through(all, "numeric(30, 3)", polychron_sql::Decimal::new(12_345, 3));
    goes_through(all, "numeric(20)", u64::MAX);
    goes_through(all, "numeric(10, 2)", Decimal::<2>::from_units(-5));
    goes_through(all, "text", "Grüße".to_owned());
    goes_through(all, "varchar(9)", "short".to_owned());
    goes_through(all, "bytea", vec![0_u8, 255, 7]);
    goes_through(all, "date", Date(-3));
    goes_through(all, "timestamp", Timestamp(1_234_567));
    goes_through(all, "timestamptz", Timestamp(-1));
    goes_through(all, "interval", Interval { months: 1, days: -2, micros: 3 });
    goes_through(all, "uuid", [7_u8; 16]);
    let (time, text) = (Datum::Time(3_600_000_000), "01:00:00");
    let rows = ask(all, "SELECT $1::time = $2::time", [time, Datum::Text(text)]).unwrap();
    assert_eq!(rows.only::<(bool,)>().unwrap(), (true,));
}

#[test]
fn values_that_do_not_fit_are_refused() {
    let (_database, mut connection) = connect::<Cicada>();
    ask(&mut connection, "CREATE TABLE t (id int PRIMARY KEY, b boolean, d date)", ()).unwrap();
    let insert = "INSERT INTO t VALUES ($1, $2, $3)";
    let none = Datum::Null;
    let code = |parameters: [Datum<'_>; 3], connection: &mut Connection<Cicada>| {
        ask(connection, insert, parameters).unwrap_err().state()
    };
    assert_eq!(code([Datum::Int(1 << 40), none, none], &mut connection), SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
    assert_eq!(code([Datum::Int(1), Datum::Int(1), none], &mut connection), SqlState::DATATYPE_MISMATCH);
    assert_eq!(code([Datum::Text("x"), none, none], &mut connection), SqlState::INVALID_TEXT_REPRESENTATION);
    assert_eq!(
        code([Datum::Int(1), none, Datum::Text("2024-02-30")], &mut connection),
        SqlState::DATETIME_FIELD_OVERFLOW
    );
    assert_eq!(ask(&mut connection, insert, (1,)).unwrap_err().state(), SqlState::UNDEFINED_PARAMETER);
    assert_eq!(connection.prepare("SELECT 1; SELECT 2").unwrap_err().state(), SqlState::SYNTAX_ERROR);
    ask(&mut connection, insert, (1, "yes", "2024-02-29")).unwrap();
    let rows = ask(&mut connection, "SELECT * FROM t", ()).unwrap();
    let row = rows.first().unwrap();
    assert_eq!(row.get::<i32>("nothing").unwrap_err().state(), SqlState::UNDEFINED_COLUMN);
    assert_eq!(row.get::<i32>(3).unwrap_err().state(), SqlState::UNDEFINED_COLUMN);
    assert_eq!(row.get::<&str>("id").unwrap_err().state(), SqlState::DATATYPE_MISMATCH);
    assert_eq!(row.get::<i16>("id").unwrap(), 1);
    assert_eq!(row.text(2).as_deref(), Some("2024-02-29"));
    assert_eq!(<(i32,)>::from_row(row).unwrap_err().state(), SqlState::DATATYPE_MISMATCH);
    assert_eq!(rows.all::<(i32, bool, Option<Date>)>().unwrap().len(), 1);
}

#[test]
fn another_thread_leaves_a_held_transaction_as_it_is() {
    let (_database, mut connection) = connect::<Cicada>();
    ask(&mut connection, "CREATE TABLE t (id int PRIMARY KEY)", ()).unwrap();
    let mut insert = connection.prepare("INSERT INTO t VALUES ($1)").unwrap();
    ask(&mut connection, "BEGIN", ()).unwrap();
    again(&mut connection, &mut insert, (1,)).unwrap();
    let elsewhere = thread::spawn(move || {
        let refused = [
            again(&mut connection, &mut insert, (2,)).unwrap_err(),
            ask(&mut connection, "INSERT INTO t VALUES (3)", ()).unwrap_err(),
            ask(&mut connection, "SELECT nothing", ()).unwrap_err(),
            connection.prepare("SELECT 4").unwrap_err(),
        ];
        assert!(refused.iter().all(|error| error.state() == SqlState::FEATURE_NOT_SUPPORTED), "{refused:?}");
        connection
    });
    let mut connection = elsewhere.join().unwrap();
    ask(&mut connection, "COMMIT", ()).unwrap();
    assert_eq!(ask(&mut connection, "SELECT id FROM t", ()).unwrap().only::<(i32,)>().unwrap(), (1,));
}

#[test]
fn more_texts_than_are_kept() {
    let (_database, mut connection) = connect::<Serial>();
    for round in 0..3 {
        for number in 0..600 {
            let rows = ask(&mut connection, &format!("SELECT {number} + $1"), (round,)).unwrap();
            assert_eq!(rows.only::<(i32,)>().unwrap(), (number + round,));
        }
    }
    let long = format!("SELECT 1 -- {}", "x".repeat(100_000));
    for _ in 0..2 {
        assert_eq!(ask(&mut connection, &long, ()).unwrap().len(), 1);
    }
}

#[test]
fn threads_count_with_prepared_statements() {
    let (database, mut connection) = connect::<Cicada>();
    ask(&mut connection, "CREATE TABLE counter (id int PRIMARY KEY, n bigint NOT NULL)", ()).unwrap();
    ask(&mut connection, "INSERT INTO counter VALUES (1, 0)", ()).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            let mut connection = connected(&database);
            scope.spawn(move || {
                let mut count = connection.prepare("UPDATE counter SET n = n + $1 WHERE id = $2 RETURNING n").unwrap();
                for _ in 0..100 {
                    assert_eq!(again(&mut connection, &mut count, (2, 1)).unwrap().len(), 1);
                }
            });
        }
    });
    let rows = ask(&mut connection, "SELECT n FROM counter", ()).unwrap();
    assert_eq!(rows.only::<(i64,)>().unwrap(), (800,));
}

#[test]
fn the_time_of_a_parameter_is_that_of_the_transaction() {
    let (_database, mut connection) = connect::<Cicada>();
    let mut holds = |text: &str, begins: bool| {
        let mut prepared = connection.prepare(text).unwrap();
        if begins {
            ask(&mut connection, "BEGIN", ()).unwrap();
        }
        let (is_true,): (bool,) = again(&mut connection, &mut prepared, ("now",)).unwrap().only().unwrap();
        if begins {
            ask(&mut connection, "COMMIT", ()).unwrap();
        }
        is_true
    };
    assert!(holds("SELECT $1::timestamptz > '2020-01-01'", false));
    assert!(holds("SELECT $1::timestamptz = now()", true));
    assert!(holds("SELECT clock_timestamp() >= now() AND $1::text = 'now'", false));
}

/// A table is in use while the transaction of a statement is open that ran before, and then no longer.
#[test]
fn a_statement_that_runs_again_keeps_its_table() {
    let (database, mut connection) = connect::<Cicada>();
    ask(&mut connection, "CREATE TABLE item (id int PRIMARY KEY, n int)", ()).unwrap();
    ask(&mut connection, "INSERT INTO item VALUES (1, 10)", ()).unwrap();
    let mut other = connected(&database);
    ask(&mut other, "SET lock_timeout = 10", ()).unwrap();
    let mut update = connection.prepare("UPDATE item SET n = n + 1 WHERE id = $1").unwrap();
    for _ in 0..3 {
        assert_eq!(again(&mut connection, &mut update, (1,)).unwrap().count(), 1);
    }
    ask(&mut connection, "BEGIN", ()).unwrap();
    again(&mut connection, &mut update, (1,)).unwrap();
    let refused = ask(&mut other, "DROP TABLE item", ()).unwrap_err();
    assert_eq!(refused.state(), SqlState::LOCK_NOT_AVAILABLE, "{refused}");
    ask(&mut connection, "COMMIT", ()).unwrap();
    again(&mut connection, &mut update, (1,)).unwrap();
    ask(&mut other, "ALTER TABLE item ADD COLUMN more int DEFAULT 7", ()).unwrap();
    assert_eq!(again(&mut connection, &mut update, (1,)).unwrap().count(), 1);
    let row: (i32, i32, i32) = ask(&mut other, "SELECT * FROM item", ()).unwrap().only().unwrap();
    assert_eq!(row, (1, 16, 7));
    ask(&mut other, "DROP TABLE item", ()).unwrap();
    assert_eq!(again(&mut connection, &mut update, (1,)).unwrap_err().state(), SqlState::UNDEFINED_TABLE);
}

/// What is defined outlives the values of parameters: it has none.
#[test]
fn definitions_have_no_parameters() {
    let (_database, mut connection) = connect::<Serial>();
    ask(&mut connection, "CREATE TABLE t (id int PRIMARY KEY, a int)", ()).unwrap();
    for text in [
        "CREATE TABLE u (a int DEFAULT $1)",
        "CREATE TABLE u (a int CHECK (a > $1))",
        "CREATE TABLE u (a int, b int GENERATED ALWAYS AS (a + $1) STORED)",
        "ALTER TABLE t ALTER COLUMN a SET DEFAULT $1",
        "ALTER TABLE t ADD CHECK (a > $1)",
        "CREATE INDEX ON t ((a + $1))",
        "CREATE VIEW v AS SELECT a + $1 AS b FROM t",
    ] {
        let error = ask(&mut connection, text, (1,)).unwrap_err();
        assert_eq!(error.state(), SqlState::UNDEFINED_PARAMETER, "{text}: {error}");
        assert_eq!(error.message(), "there is no parameter $1", "{text}");
    }
    ask(&mut connection, "CREATE TABLE u (a text DEFAULT 'Placeholder(\"$1\")')", ()).unwrap();
}
