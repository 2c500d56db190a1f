//! Cursors: how far they read, what they see, how they are run again with their transactions, and how much they may keep.

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
    assert_eq!(fetched(&mut one, "FETCH 3 c"), [1, 2, 3]);
    run(&mut other, &["UPDATE t SET b = 9 WHERE a = 3"]);
    let ended = one.execute("UPDATE t SET c = b WHERE a = 3", &[]).and_then(|_| one.execute("COMMIT", &[]));
    assert_eq!(ended.unwrap_err().state(), SqlState::SERIALIZATION_FAILURE, "a row that was fetched has changed");
    // What was not fetched may be another one.
    run(&mut one, &["ROLLBACK", "BEGIN", "DECLARE c CURSOR FOR SELECT b FROM t ORDER BY a"]);
    assert_eq!(fetched(&mut one, "FETCH 1 c"), [1]);
    run(&mut other, &["UPDATE t SET b = 10 WHERE a = 3"]);
    run(&mut one, &["UPDATE t SET b = 11 WHERE a = 3"]);
    assert_eq!(fetched(&mut one, "FETCH ALL c"), [2, 10], "the cursor reads what its transaction reads");
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

/// A table of some hundred rows, one of some of them, and a sequence.
const PARTS: [&str; 5] = [
    "CREATE TABLE big (a int PRIMARY KEY, b int, c text)",
    "INSERT INTO big SELECT g, g % 10, 'row ' || g FROM generate_series(1, 300) g",
    "CREATE INDEX by_b ON big (b)",
    "CREATE TABLE few (a int PRIMARY KEY, d int)",
    "INSERT INTO few SELECT g * 3, g FROM generate_series(1, 30) g",
];

/// Queries of all forms that can be left in their midst.
const QUERIES: [&str; 28] = [
    "SELECT a, c FROM big ORDER BY a",
    "SELECT a FROM big WHERE a > 100 AND b = 3 ORDER BY a DESC",
    "SELECT a, c FROM big WHERE b = 4",
    "SELECT a FROM big WHERE a = 7",
    "SELECT a FROM big WHERE a = NULL",
    "SELECT a FROM big ORDER BY a OFFSET 5 LIMIT 40",
    "SELECT big.a, few.d FROM few JOIN big ON big.b = few.d ORDER BY few.a, big.a",
    "SELECT big.a, few.d FROM few JOIN big ON big.b = few.d",
    "SELECT big.a, few.d FROM big LEFT JOIN few ON few.a = big.a WHERE big.a < 120",
    "SELECT few.a, x.a FROM few LEFT JOIN big x ON x.c = 'row ' || few.d",
    "SELECT few.a, x.a FROM few FULL JOIN big x ON x.a = few.a",
    "SELECT few.a, l.a FROM few, LATERAL (SELECT a FROM big WHERE b = few.d % 10 ORDER BY a DESC LIMIT 3) l",
    "SELECT few.a, l.n FROM few LEFT JOIN LATERAL (SELECT count(*) n FROM big WHERE b = few.d) l ON true",
    "SELECT DISTINCT b FROM big",
    "SELECT v.n, big.a FROM (VALUES (1), (2)) v(n), big WHERE big.b = v.n",
    "SELECT few.d, big.a FROM few, big WHERE few.a = 3 AND big.b >= few.d",
    "SELECT few.a, l.a FROM few, LATERAL (SELECT a FROM big WHERE b = few.d EXCEPT SELECT a FROM few UNION ALL SELECT few.d) l",
    "SELECT few.a, l.a FROM few, LATERAL (SELECT x.a FROM big x JOIN few y ON x.b = y.d WHERE x.a < few.a) l",
    "SELECT b, count(*), sum(a) FROM big GROUP BY b ORDER BY b",
    "SELECT a, row_number() OVER (ORDER BY a DESC) FROM few",
    "SELECT a FROM few UNION ALL SELECT b FROM big UNION ALL VALUES (1), (2)",
    "SELECT a FROM big EXCEPT SELECT a FROM few",
    "SELECT a FROM big INTERSECT ALL SELECT a FROM few",
    "SELECT g, few.a FROM generate_series(1, 5) g, few WHERE few.d <= g",
    "WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r WHERE n < 50) SELECT n FROM r",
    "WITH w AS MATERIALIZED (SELECT a FROM few) SELECT x.a, y.a FROM w x JOIN w y ON x.a < y.a",
    "SELECT a, (SELECT max(a) FROM few), EXISTS (SELECT 1 FROM few WHERE few.a = big.a) FROM big WHERE a < 60",
    "SELECT a, unnest(ARRAY[a, b]) FROM big WHERE a < 30",
];

/// Fetched in parts of any size, a query gives what it gives at once.
fn in_parts<P: Protocol<Worker: Interactive>>() {
    let database = database::<P>();
    let mut connection = connect(&database);
    run(&mut connection, &PARTS);
    for query in QUERIES {
        let whole = text(&mut connection, query);
        for (size, kind) in [(1, "NO SCROLL"), (7, "SCROLL"), (500, "")] {
            run(&mut connection, &["BEGIN", &format!("DECLARE c {kind} CURSOR FOR {query}")]);
            let mut rows = Vec::new();
            loop {
                let part = text(&mut connection, &format!("FETCH {size} FROM c"));
                let is_last = part.len() < size;
                rows.extend(part);
                if is_last {
                    break;
                }
            }
            assert_eq!(rows, whole, "{}: {size} {query}", P::NAME);
            assert!(text(&mut connection, "FETCH c").is_empty(), "{query}");
            run(&mut connection, &["COMMIT"]);
        }
    }
}

fn text<P: Protocol<Worker: Interactive>>(connection: &mut Connection<P>, text: &str) -> Vec<String> {
    let answer = crate::common::run(connection, text).unwrap_or_else(|error| panic!("{text}: {error}"));
    answer.lines().map(str::to_owned).collect()
}

#[test]
fn parts_of_any_size_are_those_of_the_whole() {
    in_parts::<Cicada>();
    in_parts::<Serial>();
}

/// How many rows a cursor has looked at shows in the numbers of a sequence that its query draws.
#[test]
fn a_cursor_reads_as_far_as_it_is_fetched() {
    let database = database::<Cicada>();
    let mut connection = connect(&database);
    run(&mut connection, &PARTS);
    run(&mut connection, &["CREATE SEQUENCE s"]);
    for query in [
        "SELECT a, nextval('s') FROM big",
        "SELECT few.a, nextval('s') FROM few JOIN big ON true",
        "SELECT few.a, nextval('s') FROM big JOIN few ON big.a = few.a + 0",
        "SELECT a, nextval('s') FROM big UNION ALL SELECT a, nextval('s') FROM few",
        "SELECT g, nextval('s') FROM generate_series(1, 1000000000) g",
        "SELECT a, nextval('s') FROM big ORDER BY a DESC OFFSET 1 LIMIT 900",
    ] {
        run(&mut connection, &["BEGIN", &format!("DECLARE c CURSOR FOR {query}")]);
        let before = fetched(&mut connection, "SELECT nextval('s')::int")[0];
        run(&mut connection, &["FETCH 3 FROM c"]);
        let left_out = i32::from(query.contains("OFFSET"));
        assert_eq!(fetched(&mut connection, "SELECT currval('s')::int")[0] - before, 3 + left_out, "{query}");
        run(&mut connection, &["MOVE 2 FROM c"]);
        assert_eq!(fetched(&mut connection, "SELECT currval('s')::int")[0] - before, 5 + left_out, "{query}");
        run(&mut connection, &["COMMIT"]);
    }
}

#[test]
fn many_open_cursors_cost_what_is_fetched_of_them() {
    let database = database::<Cicada>();
    let mut connection = connect(&database);
    run(&mut connection, &PARTS);
    run(&mut connection, &["CREATE SEQUENCE s", "BEGIN"]);
    for number in 0..200 {
        run(&mut connection, &[&format!("DECLARE c{number} CURSOR FOR SELECT a, nextval('s') FROM big")]);
        run(&mut connection, &[&format!("FETCH 2 FROM c{number}")]);
    }
    for number in 0..200 {
        run(&mut connection, &[&format!("FETCH 1 FROM c{number}")]);
    }
    assert_eq!(fetched(&mut connection, "SELECT currval('s')::int"), [600]);
    // A table that none of them reads changes nothing of them.
    run(&mut connection, &["UPDATE few SET d = 0"]);
    assert_eq!(fetched(&mut connection, "SELECT currval('s')::int"), [600]);
    run(&mut connection, &["COMMIT"]);
}

/// What the transaction changes behind DECLARE a cursor does not see, whatever it has read before.
fn changes_are_not_seen<P: Protocol<Worker: Interactive>>() {
    let database = database::<P>();
    let mut connection = connect(&database);
    run(&mut connection, &PARTS);
    run(
        &mut connection,
        &[
            "CREATE TABLE child (a int PRIMARY KEY REFERENCES few ON DELETE CASCADE)",
            "INSERT INTO child SELECT a FROM few",
            "CREATE PROCEDURE p() LANGUAGE sql AS 'UPDATE few SET d = d + 1000'",
        ],
    );
    let changes: [&[&str]; 6] = [
        &["UPDATE few SET d = -d"],
        &["DELETE FROM few"],
        &["INSERT INTO few SELECT g, g FROM generate_series(100, 200) g", "UPDATE few SET d = 0 WHERE a > 100"],
        &["CALL p()"],
        &["WITH x AS (DELETE FROM few RETURNING a) SELECT count(*) FROM x"],
        &["SAVEPOINT s", "DELETE FROM few", "ROLLBACK TO s", "INSERT INTO few VALUES (-1, -1)"],
    ];
    for query in ["SELECT few.d FROM few", "SELECT child.a FROM child", "SELECT b FROM big JOIN few ON big.a = few.d"] {
        let whole = fetched(&mut connection, query);
        for change in changes {
            for first in [0, 1, 7] {
                run(&mut connection, &["BEGIN", &format!("DECLARE c CURSOR FOR {query}")]);
                let mut rows =
                    if first > 0 { fetched(&mut connection, &format!("FETCH {first} c")) } else { Vec::new() };
                run(&mut connection, change);
                rows.extend(fetched(&mut connection, "FETCH 2 c"));
                rows.extend(fetched(&mut connection, "FETCH ALL c"));
                assert_eq!(rows, whole, "{}: {query} {change:?}", P::NAME);
                run(&mut connection, &["ROLLBACK"]);
            }
        }
    }
}

#[test]
fn changes_behind_a_cursor_are_not_seen() {
    changes_are_not_seen::<Cicada>();
    changes_are_not_seen::<Maflingo>();
    changes_are_not_seen::<Serial>();
}

/// A transaction that is run again goes with its cursors as far as they had come, and a change that came between comes between again.
fn replayed_in_parts<P: Protocol<Worker: Interactive>>() {
    let database = database::<P>();
    let (mut one, mut other) = (connect(&database), connect(&database));
    run(&mut one, &PARTS);
    run(&mut one, &["CREATE TABLE count (id int PRIMARY KEY, n int)", "INSERT INTO count VALUES (1, 0)"]);
    for closes in [false, true] {
        run(
            &mut one,
            &["BEGIN", "UPDATE few SET d = d WHERE a = 3", "DECLARE c CURSOR FOR SELECT a FROM few ORDER BY a"],
        );
        assert_eq!(fetched(&mut one, "FETCH 2 c"), [3, 6]);
        run(&mut one, &["INSERT INTO few VALUES (1000, 0), (7, 7)"]);
        assert_eq!(fetched(&mut one, "FETCH 2 c"), [9, 12]);
        if closes {
            run(&mut one, &["CLOSE c"]);
        }
        assert_eq!(fetched(&mut one, "SELECT n FROM count")[0], i32::from(closes) * 11);
        // The rows of the cursor are the same, and so is what was read; what is written conflicts.
        run(&mut other, &["UPDATE count SET n = n + 0 WHERE id = 1"]);
        run(&mut one, &["UPDATE count SET n = n + 10 WHERE id = 1"]);
        if !closes {
            assert_eq!(fetched(&mut one, "FETCH ALL c").len(), 26, "{}", P::NAME);
        }
        run(&mut one, &["COMMIT", "DELETE FROM few WHERE a IN (7, 1000)", "UPDATE count SET n = 11"]);
    }
    // A row that was fetched has changed.
    run(
        &mut one,
        &["BEGIN", "UPDATE count SET n = 1", "DECLARE c CURSOR FOR SELECT d FROM few ORDER BY a", "FETCH 2 c"],
    );
    run(&mut other, &["UPDATE few SET d = 77 WHERE a = 3"]);
    let ended = one.execute("UPDATE few SET d = 1 WHERE a = 3", &[]).and_then(|_| one.execute("COMMIT", &[]));
    assert_eq!(ended.unwrap_err().state(), SqlState::SERIALIZATION_FAILURE, "{}", P::NAME);
    run(&mut one, &["ROLLBACK"]);
}

#[test]
fn a_transaction_is_run_again_with_its_fetches() {
    replayed_in_parts::<Cicada>();
    replayed_in_parts::<Maflingo>();
}

#[test]
fn what_a_cursor_has_passed_is_forgotten() {
    let database = database::<Serial>();
    let mut connection = connect(&database);
    let query = "SELECT g, repeat('x', 1000000) FROM generate_series(1, 1000000000) g";
    for kind in ["NO SCROLL", ""] {
        run(
            &mut connection,
            &["BEGIN", &format!("DECLARE c {kind} CURSOR FOR {query}"), "SAVEPOINT s", "MOVE 1000 FROM c"],
        );
        for _ in 0..10 {
            assert_eq!(text(&mut connection, "FETCH 30 FROM c").len(), 30);
        }
        assert!(text(&mut connection, "FETCH ABSOLUTE 1500 FROM c")[0].starts_with("1500|"));
        let error = connection.execute("FETCH PRIOR FROM c", &[]).unwrap_err();
        assert_eq!(error.state(), SqlState::NOT_IN_PREREQUISITE_STATE, "{kind}");
        run(&mut connection, &["ROLLBACK"]);
    }
    run(&mut connection, &["BEGIN", &format!("DECLARE c SCROLL CURSOR FOR {query}")]);
    let error = connection.execute("MOVE 300 FROM c", &[]).unwrap_err();
    assert_eq!(error.state(), SqlState::OUT_OF_MEMORY);
    run(&mut connection, &["ROLLBACK", "BEGIN", &format!("DECLARE c CURSOR WITH HOLD FOR {query}"), "FETCH 3 c"]);
    let error = connection.execute("COMMIT", &[]).unwrap_err();
    assert_eq!(error.state(), SqlState::OUT_OF_MEMORY, "a cursor that is held is read whole");
}

#[test]
fn tables_of_open_cursors_are_not_dropped() {
    let database = database::<Cicada>();
    let mut connection = connect(&database);
    run(&mut connection, &TABLES);
    run(&mut connection, &["CREATE TABLE u (a int)", "CREATE VIEW v AS SELECT a FROM t"]);
    let refuses = |connection: &mut Connection<Cicada>, text: &str, verb: &str| {
        run(connection, &["SAVEPOINT x"]);
        let error = connection.execute(text, &[]).unwrap_err();
        let message = format!("cannot {verb} \"t\" because it is being used by active queries in this session");
        assert_eq!((error.state(), error.message()), (SqlState::OBJECT_IN_USE, message.as_str()), "{text}");
        run(connection, &["ROLLBACK TO x"]);
    };
    run(&mut connection, &["BEGIN", "DECLARE c CURSOR FOR SELECT a FROM v ORDER BY a"]);
    assert_eq!(fetched(&mut connection, "FETCH 1 c"), [1]);
    for (text, verb) in [
        ("DROP TABLE t CASCADE", "DROP TABLE"),
        ("ALTER TABLE t ADD COLUMN x int", "ALTER TABLE"),
        ("ALTER TABLE t ALTER COLUMN b SET DEFAULT 1", "ALTER TABLE"),
        ("CREATE INDEX i ON t (b)", "CREATE INDEX"),
        ("TRUNCATE t", "TRUNCATE"),
    ] {
        refuses(&mut connection, text, verb);
    }
    run(&mut connection, &["ALTER TABLE t RENAME TO t2", "ALTER TABLE t2 RENAME TO t", "DROP TABLE u", "DROP VIEW v"]);
    assert_eq!(fetched(&mut connection, "FETCH ALL c"), [2, 3]);
    refuses(&mut connection, "DROP TABLE t", "DROP TABLE");
    run(&mut connection, &["CLOSE c", "DROP TABLE t", "ROLLBACK"]);
    run(
        &mut connection,
        &["BEGIN", "DECLARE c CURSOR WITH HOLD FOR SELECT a FROM t ORDER BY a", "COMMIT", "DROP TABLE t CASCADE"],
    );
    assert_eq!(fetched(&mut connection, "FETCH ALL c"), [1, 2, 3]);
}
