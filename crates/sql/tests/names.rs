//! Schemas and temporary tables between sessions, and plans under another path.

use std::sync::Arc;

use crate::common::{all, code, run};
use polychron_engine::{Common, Interactive, Protocol};
use polychron_protocols::{cicada::Cicada, hyper::Hyper, locking::Locking, maflingo::Maflingo, serial::Serial};
use polychron_sql::{Connection, SqlDatabase};

fn open<P: Protocol>() -> (Arc<P>, Arc<SqlDatabase<P>>) {
    let protocol = P::open(P::Options::default(), Common::default()).unwrap();
    let database = SqlDatabase::open(protocol.clone());
    (protocol, database)
}

fn temporary_tables_are_of_one_session<P: Protocol<Worker: Interactive>>() {
    let (protocol, database) = open::<P>();
    let (mut one, mut two) = (Connection::open(&database).unwrap(), Connection::open(&database).unwrap());
    all(&mut one, &["CREATE TEMP TABLE t (id serial PRIMARY KEY, a int UNIQUE)", "INSERT INTO t (a) VALUES (1)"]);
    assert_eq!(code(run(&mut two, "SELECT * FROM t")), "42P01", "{}", P::NAME);
    let schema = run(&mut one, "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'pg_temp%'").unwrap();
    for text in [
        format!("SELECT * FROM {schema}.t"),
        "SELECT * FROM pg_temp.t".to_owned(),
        format!("DROP TABLE {schema}.t"),
        format!("SELECT nextval('{schema}.t_id_seq')"),
    ] {
        assert!(run(&mut two, &text).is_err(), "{}, {text}", P::NAME);
    }
    let seen = "SELECT count(*) FROM pg_class WHERE relname LIKE 't%' AND relpersistence = 't'";
    assert_eq!(run(&mut one, seen).unwrap(), "4");
    assert_eq!(run(&mut two, seen).unwrap(), "0");
    assert_eq!(run(&mut two, "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'pg_temp%'").unwrap(), "0");
    // A session may have its own one, or a permanent one, of the same name.
    all(&mut two, &["CREATE TEMP TABLE t (b text)", "INSERT INTO t VALUES ('two')", "CREATE TABLE public.t (c int)"]);
    assert_eq!(run(&mut one, "SELECT * FROM t").unwrap(), "1|1");
    assert_eq!(run(&mut two, "SELECT * FROM t").unwrap(), "two");
    // They go with the connection, and so do their tables of the engine.
    drop((one, two));
    let left: Vec<_> = protocol.storage().table_names().into_iter().filter(|name| name.contains("temp")).collect();
    assert!(left.is_empty(), "{}: {left:?}", P::NAME);
    let mut three = Connection::open(&database).unwrap();
    assert_eq!(run(&mut three, "SELECT count(*) FROM t").unwrap(), "0");
    assert_eq!(run(&mut three, "SELECT count(*) FROM pg_class WHERE relpersistence = 't'").unwrap(), "0");
}

#[test]
fn temporary_tables_are_seen_by_one_session() {
    temporary_tables_are_of_one_session::<Serial>();
    temporary_tables_are_of_one_session::<Cicada>();
    temporary_tables_are_of_one_session::<Maflingo>();
    temporary_tables_are_of_one_session::<Hyper>();
    temporary_tables_are_of_one_session::<Locking>();
}

/// What is done at the commit reaches tables of prepared statements and of held transactions, too.
fn on_commit<P: Protocol<Worker: Interactive>>() {
    let (_, database) = open::<P>();
    let mut one = Connection::open(&database).unwrap();
    all(&mut one, &["CREATE TEMP TABLE d (a int) ON COMMIT DELETE ROWS"]);
    let mut insert = one.prepare("INSERT INTO d VALUES ($1) RETURNING a").unwrap();
    for _ in 0..2 {
        one.answer_prepared(&mut insert, &[polychron_sql::Datum::Int(1)]).unwrap();
        assert_eq!(run(&mut one, "SELECT count(*) FROM d").unwrap(), "0", "{}", P::NAME);
    }
    all(&mut one, &["BEGIN", "INSERT INTO d VALUES (1)", "SAVEPOINT s", "INSERT INTO d VALUES (2)", "ROLLBACK TO s"]);
    assert_eq!(run(&mut one, "SELECT count(*) FROM d").unwrap(), "1");
    all(&mut one, &["COMMIT"]);
    assert_eq!(run(&mut one, "SELECT count(*) FROM d").unwrap(), "0");
    all(&mut one, &["BEGIN", "CREATE TEMP TABLE e (id serial) ON COMMIT DROP", "ROLLBACK"]);
    all(&mut one, &["BEGIN", "CREATE TEMP TABLE e (id serial) ON COMMIT DROP", "INSERT INTO e DEFAULT VALUES"]);
    assert_eq!(run(&mut one, "SELECT * FROM e").unwrap(), "1");
    all(&mut one, &["COMMIT"]);
    assert_eq!(code(run(&mut one, "SELECT * FROM e")), "42P01");
    assert_eq!(run(&mut one, "SELECT relname FROM pg_class WHERE relpersistence = 't'").unwrap(), "d");
}

#[test]
fn temporary_tables_are_emptied_or_dropped_when_a_transaction_commits() {
    on_commit::<Serial>();
    on_commit::<Cicada>();
    on_commit::<Maflingo>();
}

/// A prepared statement, and a text that is kept bound, mean what their names stand for now.
#[test]
fn plans_are_bound_again_under_another_path() {
    let (_, database) = open::<Cicada>();
    let mut one = Connection::open(&database).unwrap();
    all(&mut one, &["CREATE SCHEMA s", "CREATE TABLE t (a text)", "INSERT INTO t VALUES ('of public')"]);
    all(&mut one, &["CREATE TABLE s.t (a text)", "INSERT INTO s.t VALUES ('of s')"]);
    let mut prepared = one.prepare("SELECT a FROM t").unwrap();
    let texts = ["of public", "of s", "of public"];
    for (path, wanted) in ["public", "s, public", "public, s"].into_iter().zip(texts) {
        run(&mut one, &format!("SET search_path = {path}")).unwrap();
        for _ in 0..2 {
            let rows = one.answer_prepared(&mut prepared, &[]).unwrap();
            assert_eq!(rows.iter().next().unwrap().get::<String>(0).unwrap(), wanted);
            let rows = one.answer("SELECT a FROM t", &[]).unwrap();
            assert_eq!(rows.iter().next().unwrap().get::<String>(0).unwrap(), wanted);
        }
    }
    // A table that hides another one is met at once, and a rollback brings the path back.
    all(&mut one, &["BEGIN", "SET search_path = s", "ROLLBACK"]);
    let rows = one.answer_prepared(&mut prepared, &[]).unwrap();
    assert_eq!(rows.iter().next().unwrap().get::<String>(0).unwrap(), "of public");
    all(&mut one, &["CREATE TEMP TABLE t (a text)", "INSERT INTO t VALUES ('of the session')"]);
    let rows = one.answer_prepared(&mut prepared, &[]).unwrap();
    assert_eq!(rows.iter().next().unwrap().get::<String>(0).unwrap(), "of the session");
}

fn schemas_are_part_of_transactions<P: Protocol<Worker: Interactive>>() {
    let (protocol, database) = open::<P>();
    let (mut one, mut two) = (Connection::open(&database).unwrap(), Connection::open(&database).unwrap());
    all(&mut one, &["CREATE TABLE first (id int)", "BEGIN", "CREATE SCHEMA s", "CREATE TABLE s.t (a int PRIMARY KEY)"]);
    assert_eq!(code(run(&mut two, "CREATE TABLE s.u (a int)")), "3F000", "{}", P::NAME);
    all(&mut one, &["INSERT INTO s.t VALUES (1)", "COMMIT"]);
    assert_eq!(run(&mut two, "SELECT * FROM s.t").unwrap(), "1");
    // Whoever looks at the same database through another object finds them, too.
    let mut other = Connection::open(&SqlDatabase::open(protocol)).unwrap();
    assert_eq!(run(&mut other, "SELECT a FROM s.t").unwrap(), "1");
    all(&mut two, &["CREATE SCHEMA later", "CREATE TABLE later.t (a int)"]);
    assert_eq!(run(&mut other, "SELECT count(*) FROM later.t").unwrap(), "0");
    // A schema is not dropped while a table is made in it: one of both conflicts.
    all(&mut one, &["CREATE SCHEMA r", "BEGIN", "CREATE TABLE r.t (a int)"]);
    let dropped = run(&mut two, "BEGIN; DROP SCHEMA r; COMMIT");
    let _ = run(&mut two, "ROLLBACK");
    let made = run(&mut one, "COMMIT");
    let _ = run(&mut one, "ROLLBACK");
    assert!(dropped.is_err() || made.is_err(), "{}: both", P::NAME);
    let has_schema = run(&mut two, "SELECT count(*) FROM pg_namespace WHERE nspname = 'r'").unwrap();
    let has_table = run(&mut two, "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'r'").unwrap();
    assert!(has_schema == "1" || has_table == "0", "{}: {has_schema} and {has_table}", P::NAME);
}

#[test]
fn schemas_are_defined_by_transactions() {
    schemas_are_part_of_transactions::<Cicada>();
    schemas_are_part_of_transactions::<Maflingo>();
}

/// What PostgreSQL has in extensions is there, and others are refused by name.
#[test]
fn extensions_are_built_in() {
    let (_, database) = open::<Serial>();
    let mut one = Connection::open(&database).unwrap();
    all(&mut one, &["CREATE EXTENSION IF NOT EXISTS \"uuid-ossp\"", "CREATE EXTENSION IF NOT EXISTS pgcrypto"]);
    assert_eq!(
        run(&mut one, "SELECT uuid_generate_v4() <> gen_random_uuid(), uuid_generate_v4() IS NULL").unwrap(),
        "t|f"
    );
    assert_eq!(code(run(&mut one, "SELECT crypt('a', 'b')")), "42883");
    for text in ["CREATE EXTENSION postgis", "CREATE DOMAIN d AS int", "DO $$ BEGIN NULL; END $$"] {
        assert_eq!(code(run(&mut one, text)), "0A000", "{text}");
    }
}
