//! Enums are kept, are changed beside the transactions of others, and belong to roles.

use crate::common::{all, code, connect, database, run};
use polychron_engine::{Common, Interactive, Protocol};
use polychron_protocols::{cicada::Cicada, hyper::Hyper, locking::Locking, maflingo::Maflingo, serial::Serial};
use polychron_sql::{Connection, Datum, SqlDatabase, Type};

const SETUP: &[&str] = &[
    "CREATE TYPE mood AS ENUM ('sad', 'happy')",
    "CREATE TABLE t (id int PRIMARY KEY, m mood DEFAULT 'sad', l mood[])",
    "CREATE INDEX of_m ON t (m)",
    "INSERT INTO t VALUES (1, 'happy', '{sad}'), (2, DEFAULT, NULL)",
];

fn enums_are_kept<P: Protocol<Worker: Interactive>>() {
    let protocol = P::open(P::Options::default(), Common::default()).unwrap();
    // Each of them begins with an empty catalog, as after a reopening.
    let reopened = || connect(&SqlDatabase::open(protocol.clone()));
    let mut one = reopened();
    all(&mut one, SETUP);
    all(&mut one, &["ALTER TYPE mood ADD VALUE 'ok' BEFORE 'happy'", "INSERT INTO t VALUES (3, 'ok', '{ok,happy}')"]);
    all(&mut one, &["ALTER TYPE mood RENAME TO humour", "ALTER TYPE humour RENAME VALUE 'happy' TO 'glad'"]);
    all(&mut one, &["CREATE VIEW v AS SELECT m FROM t", "CREATE PROCEDURE p(h humour) LANGUAGE sql AS 'SELECT 1'"]);
    for text in ["SELECT m, l FROM t ORDER BY m", "SELECT m, l FROM t WHERE m >= 'sad' ORDER BY m"] {
        assert_eq!(run(&mut reopened(), text).unwrap(), "sad|\nok|{ok,glad}\nglad|{sad}", "{}", P::NAME);
    }
    assert_eq!(run(&mut reopened(), "SELECT enum_range(m) FROM v LIMIT 1").unwrap(), "{sad,ok,glad}");
    all(&mut reopened(), &["CALL p('ok')", "INSERT INTO t (id) VALUES (4)"]);
    assert_eq!(code(run(&mut reopened(), "CALL p('happy')")), "22P02");
    assert_eq!(code(run(&mut reopened(), "INSERT INTO t VALUES (5, 'happy')")), "22P02");
    assert_eq!(code(run(&mut reopened(), "SELECT 'sad'::mood")), "42704");
    assert_eq!(code(run(&mut reopened(), "DROP TYPE humour")), "2BP01");
    assert_eq!(code(run(&mut reopened(), "CREATE TYPE humour AS ENUM ()")), "42710");
    all(&mut reopened(), &["DROP VIEW v", "DROP TYPE humour CASCADE", "CREATE TYPE humour AS ENUM ('x')"]);
    assert_eq!(run(&mut reopened(), "SELECT * FROM t ORDER BY id").unwrap(), "1\n2\n3\n4", "{}", P::NAME);
}

#[test]
fn enums_are_kept_in_the_database() {
    enums_are_kept::<Serial>();
    enums_are_kept::<Cicada>();
    enums_are_kept::<Maflingo>();
    enums_are_kept::<Hyper>();
    enums_are_kept::<Locking>();
}

/// What a transaction has changed of an enum is seen by others when it has committed, whatever they have bound before.
fn changes_are_seen_when_committed<P: Protocol<Worker: Interactive>>() {
    let database = database::<P>();
    let (mut one, mut two) = (connect(&database), connect(&database));
    all(&mut one, SETUP);
    let mut insert = two.prepare("INSERT INTO t VALUES ($1, $2)").unwrap();
    let mut put = |connection: &mut Connection<P>, id: i64, label: &str| {
        connection.answer_prepared(&mut insert, &[Datum::Int(id), Datum::Text(label)]).map(drop)
    };
    put(&mut two, 3, "sad").unwrap();
    all(
        &mut one,
        &["BEGIN", "ALTER TYPE mood ADD VALUE 'ok' AFTER 'sad'", "ALTER TYPE mood RENAME VALUE 'happy' TO 'glad'"],
    );
    assert_eq!(run(&mut one, "SELECT m FROM t WHERE id = 1").unwrap(), "glad", "{}", P::NAME);
    assert_eq!(run(&mut two, "SELECT m FROM t WHERE id = 1").unwrap(), "happy", "{}", P::NAME);
    assert_eq!(put(&mut two, 4, "ok").unwrap_err().state().code(), "22P02", "{}", P::NAME);
    all(&mut one, &["ROLLBACK"]);
    assert_eq!(run(&mut one, "SELECT enum_range(NULL::mood)").unwrap(), "{sad,happy}");
    all(&mut one, &["BEGIN", "ALTER TYPE mood ADD VALUE 'ok' AFTER 'sad'", "COMMIT"]);
    put(&mut two, 4, "ok").unwrap();
    assert_eq!(run(&mut two, "SELECT id, m FROM t ORDER BY m, id").unwrap(), "2|sad\n3|sad\n4|ok\n1|happy");
    // Columns and parameters are of the type, and a program reads labels.
    let rows =
        two.answer("SELECT m, $1::mood[] FROM t WHERE m = $2", &[Datum::Text("{ok}"), Datum::Text("ok")]).unwrap();
    assert!(matches!(rows.columns()[0].of, Type::Enum(_)));
    let row = rows.first().unwrap();
    assert_eq!((row.get::<&str>(0).unwrap(), row.text(1).unwrap()), ("ok", "{ok}".to_owned()));
}

#[test]
fn changes_of_enums_are_seen_when_they_are_committed() {
    changes_are_seen_when_committed::<Cicada>();
    changes_are_seen_when_committed::<Maflingo>();
    changes_are_seen_when_committed::<Hyper>();
}

/// A type is not dropped while a transaction makes a table of it: one of both conflicts, or waits and finds the other.
fn drops_meet_uses<P: Protocol<Worker: Interactive>>() {
    for use_of_it in
        ["CREATE TABLE u (m mood)", "ALTER TABLE w ADD COLUMN m mood", "CREATE VIEW u AS SELECT 'a'::mood AS m"]
    {
        for commits_first in [true, false] {
            let database = database::<P>();
            let (mut one, mut two) = (connect(&database), connect(&database));
            all(&mut one, &["CREATE TYPE mood AS ENUM ('a')", "CREATE TABLE w (id int PRIMARY KEY)"]);
            all(&mut two, &["SET lock_timeout = '200ms'", "SELECT 1"]);
            all(&mut one, &["BEGIN", use_of_it]);
            let (used, dropped) = if commits_first {
                (run(&mut one, "COMMIT"), run(&mut two, "DROP TYPE mood"))
            } else {
                let dropped = run(&mut two, "DROP TYPE mood");
                (run(&mut one, "COMMIT"), dropped)
            };
            let is_there = run(&mut two, "SELECT count(*) FROM pg_type WHERE typname = 'mood'").unwrap() == "1";
            let of_tables =
                "SELECT count(*) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid WHERE attname = 'm'";
            let is_used = run(&mut two, of_tables).unwrap() == "1";
            let told = format!("{}: {use_of_it}: {used:?} {dropped:?}", P::NAME);
            assert_eq!((is_there, is_used), (dropped.is_err(), used.is_ok()), "{told}");
            assert!(is_there || !is_used, "{told}");
            if commits_first {
                assert_eq!(code(dropped), "2BP01", "{told}");
            }
        }
    }
}

#[test]
fn enums_are_not_dropped_beside_their_uses() {
    drops_meet_uses::<Cicada>();
    drops_meet_uses::<Maflingo>();
    drops_meet_uses::<Hyper>();
}

#[test]
fn enums_belong_to_roles() {
    let database = database::<Cicada>();
    let (mut owner, mut other) = (connect(&database), connect(&database));
    all(&mut owner, &["CREATE ROLE a", "CREATE ROLE b", "GRANT CREATE ON SCHEMA public TO a, b"]);
    all(&mut owner, &["SET ROLE a", "CREATE TYPE mood AS ENUM ('x')"]);
    all(&mut other, &["SET ROLE b", "CREATE TABLE t (m mood)", "DROP TABLE t"]);
    for text in
        ["ALTER TYPE mood ADD VALUE 'y'", "ALTER TYPE mood RENAME TO z", "DROP TYPE mood", "ALTER TYPE mood OWNER TO b"]
    {
        let error = run(&mut other, text).unwrap_err();
        assert_eq!((error.state().code(), error.message()), ("42501", "must be owner of type mood"), "{text}");
    }
    all(&mut owner, &["REVOKE USAGE ON TYPE mood FROM PUBLIC"]);
    let error = run(&mut other, "CREATE TABLE t (m mood[])").unwrap_err();
    assert_eq!((error.state().code(), error.message()), ("42501", "permission denied for type mood"));
    assert_eq!(run(&mut other, "SELECT 'x'::mood").unwrap(), "x");
    all(&mut owner, &["GRANT USAGE ON TYPE mood TO b"]);
    all(&mut other, &["CREATE TABLE t (m mood[])"]);
    let shown = "SELECT typowner::regrole, typacl FROM pg_type WHERE typname = 'mood'";
    assert_eq!(run(&mut other, shown).unwrap(), "a|{a=U/a,b=U/a}");
    all(&mut owner, &["RESET ROLE", "ALTER TYPE mood OWNER TO b"]);
    all(&mut other, &["ALTER TYPE mood ADD VALUE 'y'"]);
    assert_eq!(run(&mut other, "SELECT enum_range(NULL::mood)").unwrap(), "{x,y}");
}
