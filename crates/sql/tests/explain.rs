//! EXPLAIN ANALYZE: what operators have done, and their transaction.

use std::sync::Arc;
use std::thread;

use crate::common::connect;
use polychron_engine::{Common, Interactive, Protocol};
use polychron_protocols::{hyper::Hyper, serial::Serial};
use polychron_sql::{Connection, Datum, SqlDatabase};

/// The rows of what a text answers last, or its error.
fn answer<P: Protocol<Worker: Interactive>>(connection: &mut Connection<P>, text: &str) -> String {
    match connection.execute(text, &[]) {
        Ok(outcome) => {
            outcome.texts().map(|row| row.into_iter().flatten().collect::<String>()).collect::<Vec<_>>().join("\n")
        }
        Err(error) => format!("ERROR {}: {}", error.state(), error.message()),
    }
}

fn connection<P: Protocol<Worker: Interactive>>() -> Connection<P> {
    connected(&SqlDatabase::open(P::open(P::Options::default(), Common::default()).unwrap()))
}

/// A connection to a new database, with tables.
fn connected<P: Protocol<Worker: Interactive>>(database: &Arc<SqlDatabase<P>>) -> Connection<P> {
    let mut connection = connect(database);
    let tables = "CREATE TABLE item (id int PRIMARY KEY, kind int NOT NULL, name text);
        CREATE TABLE kind (id int PRIMARY KEY, name text);
        INSERT INTO kind VALUES (0, 'even'), (1, 'odd');
        INSERT INTO item SELECT n, n % 2, 'item ' || n FROM generate_series(1, 10) n";
    for text in tables.split(';') {
        connection.execute(text, &[]).unwrap();
    }
    connection
}

#[test]
fn operators_tell_their_rows_and_loops() {
    let mut connection = connection::<Serial>();
    for (statement, wanted) in [
        (
            "SELECT * FROM item WHERE name > 'item 7'",
            "Seq Scan on item (actual rows=2 loops=1)\n  Filter: (name > 'item 7')\n  Rows Removed by Filter: 8\nRows Read: 10",
        ),
        (
            "SELECT i.name, k.name FROM item i JOIN kind k ON k.id = i.kind WHERE i.id < 4",
            "Nested Loop (actual rows=3 loops=1)\n  ->  Index Scan using item_pkey on item (actual rows=3 loops=1)\n        Index Cond: (id < 4)\n  \
             ->  Index Scan using kind_pkey on kind (actual rows=1 loops=3)\n        Index Cond: (id = kind)\nRows Read: 6",
        ),
        (
            "SELECT * FROM item ORDER BY id LIMIT 3",
            "Limit (actual rows=3 loops=1)\n  ->  Seq Scan on item (actual rows=3 loops=1)\nRows Read: 3",
        ),
        (
            "SELECT 1 WHERE EXISTS (SELECT 1 FROM item)",
            "Result (actual rows=1 loops=1)\n  Filter: (SubPlan 1)\nRows Read: 1",
        ),
        (
            "UPDATE item SET kind = 5 WHERE id IN (1, 2) RETURNING id",
            "Update on item (actual rows=2 loops=1)\n  ->  Seq Scan on item (actual rows=2 loops=1)\n        Filter: (id = ANY (ARRAY[1, 2]))\n        \
             Rows Removed by Filter: 8\nRows Read: 10",
        ),
        (
            "INSERT INTO kind VALUES (5, 'new')",
            "Insert on kind (actual rows=0 loops=1)\n  ->  Values Scan (actual rows=1 loops=1)\nRows Read: 0",
        ),
    ] {
        let text = format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {statement}");
        assert_eq!(answer(&mut connection, &text), format!("{wanted}\nAttempts: 1"), "{statement}");
    }
    // They have run.
    assert_eq!(answer(&mut connection, "SELECT count(*) FROM item WHERE kind = 5"), "2");
    assert_eq!(answer(&mut connection, "SELECT name FROM kind WHERE id = 5"), "new");
    let short = "EXPLAIN (ANALYZE, SUMMARY OFF) DELETE FROM kind WHERE id = 5";
    let wanted = "Delete on kind (actual rows=0 loops=1)\n  ->  Index Scan using kind_pkey on kind (actual rows=1 loops=1)\n        Index Cond: (id = 5)";
    assert_eq!(answer(&mut connection, short), wanted);
    let prepared = connection.prepare("EXPLAIN ANALYZE SELECT name FROM item WHERE id = $1");
    let rows = connection.answer_prepared(&mut prepared.unwrap(), &[Datum::Int(3)]).unwrap();
    let first = rows.first().unwrap().text(0);
    assert_eq!(first.as_deref(), Some("Index Scan using item_pkey on item (actual rows=1 loops=1)"));
    assert_eq!(rows.len(), 4, "{rows:?}");
}

#[test]
fn what_has_not_run_is_told() {
    let mut connection = connection::<Serial>();
    let text = "EXPLAIN (ANALYZE, SUMMARY OFF) SELECT * FROM item i JOIN kind k ON k.id = i.kind WHERE i.id = 99";
    assert!(answer(&mut connection, text).contains("on kind (never executed)"));
}

#[test]
fn what_is_not_measured_is_refused() {
    let mut connection = connection::<Serial>();
    for options in ["ANALYZE, TIMING", "ANALYZE, BUFFERS ON", "ANALYZE, FORMAT JSON", "ANALYZE, WAL"] {
        let refused = answer(&mut connection, &format!("EXPLAIN ({options}) SELECT 1"));
        assert!(refused.starts_with("ERROR 0A000"), "{options}: {refused}");
    }
    assert!(answer(&mut connection, "EXPLAIN ANALYZE CREATE TABLE t (id int)").starts_with("ERROR 0A000"));
}

#[test]
fn a_read_only_transaction_explains_no_change_that_runs() {
    let mut connection = connection::<Serial>();
    connection.execute("BEGIN READ ONLY", &[]).unwrap();
    assert!(answer(&mut connection, "EXPLAIN DELETE FROM item").starts_with("Delete on item"));
    assert!(
        answer(&mut connection, "EXPLAIN ANALYZE SELECT * FROM item").starts_with("Seq Scan on item (actual rows=10")
    );
    let refused = answer(&mut connection, "EXPLAIN ANALYZE DELETE FROM item");
    assert_eq!(refused, "ERROR 25006: cannot execute DELETE in a read-only transaction");
}

#[test]
fn an_open_transaction_tells_nothing_of_its_end() {
    let mut connection = connection::<Hyper>();
    connection.execute("BEGIN", &[]).unwrap();
    let told = answer(&mut connection, "EXPLAIN ANALYZE DELETE FROM item WHERE id = 1");
    assert!(told.ends_with("Rows Read: 1"), "{told}");
    connection.execute("ROLLBACK", &[]).unwrap();
    assert_eq!(answer(&mut connection, "SELECT count(*) FROM item"), "10");
}

#[test]
fn conflicts_are_told() {
    let database = SqlDatabase::open(Hyper::open(Default::default(), Common::default()).unwrap());
    let mut holding = connected(&database);
    holding.execute("BEGIN", &[]).unwrap();
    holding.execute("UPDATE item SET name = 'held' WHERE id = 7", &[]).unwrap();
    let begun = database.protocol().statistics().conflicts();
    let told = thread::scope(|scope| {
        let explained = scope.spawn(|| {
            let mut other = connect(&database);
            answer(&mut other, "EXPLAIN ANALYZE UPDATE item SET kind = 8 WHERE id = 7")
        });
        // It conflicts as long as the row is held.
        while database.protocol().statistics().conflicts() == begun {
            thread::yield_now();
        }
        holding.execute("COMMIT", &[]).unwrap();
        explained.join().unwrap()
    });
    let attempts = told.lines().find_map(|line| line.strip_prefix("Attempts: ")).unwrap();
    let conflicts: Vec<_> = told.lines().filter(|line| line.starts_with("  Conflict: ")).collect();
    assert_eq!(conflicts.len(), (attempts.parse::<usize>().unwrap() - 1).min(20), "{told}");
    assert!(conflicts[0].contains("item") && conflicts[0].contains('7'), "{told}");
}

/// Children without an index are looked for in a table that is read twice at most, however long a chain of parents and children is.
#[test]
fn a_cascade_reads_children_without_an_index_once() {
    let mut connection = connection::<Serial>();
    let rows = 400;
    for statement in [
        "CREATE TABLE node (id int PRIMARY KEY, parent int REFERENCES node ON DELETE CASCADE ON UPDATE CASCADE)",
        &format!("INSERT INTO node SELECT i, nullif(i - 1, 0) FROM generate_series(1, {rows}) i"),
    ] {
        connection.execute(statement, &[]).unwrap();
    }
    let mut read = |statement: &str| {
        let told = answer(&mut connection, &format!("EXPLAIN ANALYZE {statement}"));
        let read = told.lines().find_map(|line| line.strip_prefix("Rows Read: ")).unwrap();
        (read.parse::<usize>().unwrap(), answer(&mut connection, "SELECT count(*) FROM node"))
    };
    let (moved, left) = read("UPDATE node SET id = id + 1000");
    assert!(moved < 6 * rows && left == rows.to_string(), "{moved} rows read, {left} left");
    let (deleted, left) = read("DELETE FROM node WHERE id = 1001");
    assert!(deleted < 6 * rows && left == "0", "{deleted} rows read, {left} left");
}

#[test]
fn indexes_of_expressions_parts_and_other_types_are_used() {
    let mut connection = connection::<Serial>();
    for statement in [
        "CREATE TABLE person (id int PRIMARY KEY, email text, age int, span interval)",
        "CREATE UNIQUE INDEX by_email ON person (lower(email))",
        "CREATE INDEX adults ON person (age) WHERE age >= 18",
        "CREATE INDEX by_span ON person (span)",
    ] {
        connection.execute(statement, &[]).unwrap();
    }
    for (condition, wanted) in [
        ("lower(email) = 'x'", "Index Scan using by_email on person\n  Index Cond: (lower(email) = 'x')"),
        ("age > 20", "Index Scan using adults on person\n  Index Cond: (age > 20)"),
        ("age = 18", "Index Scan using adults on person\n  Index Cond: (age = 18)"),
        ("age > 17", "Seq Scan on person"),
        ("age > 20 OR id = 1", "Seq Scan on person"),
        ("upper(email) = 'X'", "Seq Scan on person"),
        ("span = '1 day'", "Index Scan using by_span on person\n  Index Cond: (span = '1 day')"),
        ("span > '1 day' ORDER BY span", "Index Scan using by_span on person\n  Index Cond: (span > '1 day')"),
    ] {
        let told = answer(&mut connection, &format!("EXPLAIN SELECT id FROM person WHERE {condition}"));
        assert!(told.starts_with(wanted), "{condition}: {told}");
    }
}

#[test]
fn an_explained_statement_has_the_tag_of_its_explanation() {
    let mut connection = connection::<Serial>();
    for text in ["EXPLAIN SELECT 1", "EXPLAIN DELETE FROM item", "EXPLAIN ANALYZE SELECT 1"] {
        assert_eq!(connection.execute(text, &[]).unwrap().tag, "EXPLAIN", "{text}");
    }
    assert_eq!(connection.execute("SELECT 1", &[]).unwrap().tag, "SELECT 1");
}
