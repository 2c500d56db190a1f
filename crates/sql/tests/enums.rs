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

#[test]
fn enums_are_copied() {
    let database = database::<Cicada>();
    let mut connection = connect(&database);
    all(&mut connection, SETUP);
    all(&mut connection, &["CREATE TABLE u (id int PRIMARY KEY, m mood, l mood[])"]);
    for format in ["text", "csv", "binary"] {
        let mut bytes = Vec::new();
        connection.copy_out(&format!("COPY t TO STDOUT (FORMAT {format})"), &mut bytes).unwrap();
        let has_labels =
            ["happy", "sad"].iter().all(|label| bytes.windows(label.len()).any(|it| it == label.as_bytes()));
        assert!(has_labels, "{format}");
        let mut copy = connection.copy_in(&format!("COPY u FROM STDIN (FORMAT {format})")).unwrap();
        copy.write(&bytes).unwrap();
        assert_eq!(copy.finish().unwrap(), 2, "{format}");
        assert_eq!(run(&mut connection, "SELECT * FROM u ORDER BY m").unwrap(), "2|sad|\n1|happy|{sad}", "{format}");
        all(&mut connection, &["DELETE FROM u"]);
    }
    let mut copy = connection.copy_in("COPY u FROM STDIN").unwrap();
    let ended = copy.write(b"1\tangry\t{}\n").and_then(|()| copy.finish());
    assert_eq!(ended.unwrap_err().state().code(), "22P02");
}

/// What was prepared before a type has changed runs with the labels of today, whoever has changed it.
fn prepared_statements_follow<P: Protocol<Worker: Interactive>>() {
    let database = database::<P>();
    let (mut one, mut two) = (connect(&database), connect(&database));
    all(&mut one, SETUP);
    all(&mut two, &["PREPARE put (int, mood) AS INSERT INTO t VALUES ($1, $2)", "PREPARE seen AS SELECT m FROM t"]);
    all(&mut two, &["PREPARE lists (mood[]) AS SELECT $1", "EXECUTE put (10, 'happy')", "EXECUTE lists ('{sad}')"]);
    let columns = two.prepare("SELECT m, l FROM t").unwrap();
    let (of, of_list) = (columns.columns()[0].of, columns.columns()[1].of);
    let typed = [Type::Int4, of, of_list];
    let mut insert = two.prepare_typed("INSERT INTO t VALUES ($1, $2, $3)", &typed).unwrap();
    let mut select = two.prepare("SELECT m, l FROM t WHERE id = 11").unwrap();
    let mut put = |connection: &mut Connection<P>, label: &str| {
        let list = format!("{{{label}}}");
        let label = connection.read_parameter(of, label.as_bytes(), false)?;
        let list = connection.read_parameter(of_list, list.as_bytes(), false)?;
        let values = [Datum::Int(11), label.get(), list.get()];
        connection.answer_decoded(&mut insert, &typed, &values).map(|_| String::new())
    };
    assert_eq!(two.answer_decoded(&mut select, &[], &[]).unwrap().len(), 0);
    all(&mut one, &["ALTER TYPE mood ADD VALUE 'ok' BEFORE 'happy'"]);
    all(&mut two, &["EXECUTE put (12, 'ok')"]);
    assert_eq!(run(&mut two, "EXECUTE lists ('{ok,happy}')").unwrap(), "{ok,happy}");
    assert_eq!(run(&mut two, "EXECUTE seen").unwrap(), "happy\nsad\nhappy\nok", "{}", P::NAME);
    put(&mut two, "ok").unwrap();
    let rows = two.answer_decoded(&mut select, &[], &[]).unwrap();
    assert_eq!((rows.len(), rows.first().unwrap().text(1).unwrap()), (1, "{ok}".to_owned()));
    all(&mut one, &["ALTER TYPE mood RENAME VALUE 'happy' TO 'glad'"]);
    for old in ["EXECUTE put (13, 'happy')", "EXECUTE lists ('{happy}')"] {
        assert_eq!(code(run(&mut two, old)), "22P02", "{}: {old}", P::NAME);
    }
    assert_eq!(code(put(&mut two, "happy")), "22P02", "{}", P::NAME);
    all(&mut two, &["EXECUTE put (13, 'glad')", "DELETE FROM t WHERE id = 11"]);
    put(&mut two, "glad").unwrap();
    assert_eq!(run(&mut two, "EXECUTE seen").unwrap(), "glad\nsad\nglad\nglad\nok\nglad", "{}", P::NAME);
    // A transaction sees its own changes, and not those that it has undone.
    all(&mut two, &["BEGIN", "ALTER TYPE mood RENAME VALUE 'sad' TO 'low'", "EXECUTE put (14, 'low')", "ROLLBACK"]);
    assert_eq!(code(run(&mut two, "EXECUTE put (14, 'low')")), "22P02", "{}", P::NAME);
    all(&mut two, &["EXECUTE put (14, 'sad')"]);
    // Another type has another number, whatever it is called.
    all(&mut one, &["ALTER TABLE t ALTER m DROP DEFAULT, ALTER m TYPE text"]);
    assert_eq!(code(run(&mut two, "EXECUTE seen")), "0A000", "{}", P::NAME);
}

#[test]
fn prepared_statements_have_the_labels_of_today() {
    prepared_statements_follow::<Cicada>();
    prepared_statements_follow::<Hyper>();
    prepared_statements_follow::<Serial>();
}

/// What keeps a text that names a type or a label goes on with it, or forbids the change; in transactions, and after a reopening.
#[test]
fn texts_follow_types() {
    let protocol = Cicada::open(Default::default(), Common::default()).unwrap();
    let reopened = || connect(&SqlDatabase::open(protocol.clone()));
    let mut one = reopened();
    all(&mut one, &["CREATE TYPE q8 AS ENUM ('a', 'b')", "CREATE TYPE q7 AS ENUM ('a', 'b')"]);
    let generated = "g bool GENERATED ALWAYS AS (k < 'b'::q8) STORED";
    all(&mut one, &[&format!("CREATE TABLE x8 (k q8 DEFAULT 'a'::q8, {generated}, CHECK (k >= 'a'::q8))")]);
    all(&mut one, &["INSERT INTO x8 VALUES ('a')", "BEGIN", "ALTER TYPE q8 RENAME TO \"Q 9\""]);
    assert_eq!(run(&mut one, "TABLE x8").unwrap(), "a|t");
    all(&mut one, &["INSERT INTO x8 VALUES ('b')", "ROLLBACK"]);
    assert_eq!(run(&mut reopened(), "TABLE x8").unwrap(), "a|t");
    all(&mut one, &["ALTER TYPE q8 RENAME TO \"Q 9\"", "INSERT INTO x8 VALUES ('b'), (DEFAULT)"]);
    assert_eq!(run(&mut reopened(), "SELECT * FROM x8 ORDER BY k").unwrap(), "a|t\na|t\nb|f");
    all(&mut reopened(), &["INSERT INTO x8 VALUES (DEFAULT)"]);
    // A label in the text of a generated column.
    let of_label = "CREATE TABLE x6 (k q7, g bool GENERATED ALWAYS AS (k = 'a') STORED)";
    all(&mut one, &[of_label, "INSERT INTO x6 VALUES ('a')"]);
    for begun in [false, true] {
        all(&mut one, if begun { &["BEGIN"] } else { &[] });
        assert_eq!(code(run(&mut one, "ALTER TYPE q7 RENAME VALUE 'a' TO 'x'")), "0A000");
        all(&mut one, if begun { &["ROLLBACK"] } else { &[] });
        assert_eq!(run(&mut reopened(), "TABLE x6").unwrap(), "a|t");
    }
    // What has nothing to do with the type does not count.
    all(&mut one, &["DROP TABLE x6", "CREATE VIEW v AS SELECT 'a'::text AS t", "CREATE SCHEMA s"]);
    all(&mut one, &["CREATE TABLE s.w (t text DEFAULT 'a' CHECK (t <> 'a' OR t = 'a'), k q7)"]);
    all(&mut one, &["CREATE INDEX ON s.w ((t || 'a'))", "CREATE VIEW s.u AS SELECT t FROM s.w WHERE k = 'b'"]);
    all(&mut one, &["ALTER TYPE q7 RENAME VALUE 'a' TO 'x'", "INSERT INTO s.w VALUES (DEFAULT, 'x')"]);
    assert_eq!(code(run(&mut one, "ALTER TYPE q7 RENAME VALUE 'b' TO 'y'")), "0A000");
    assert_eq!(run(&mut reopened(), "SELECT * FROM s.w, v").unwrap(), "a|x|a");
    all(&mut one, &["DROP VIEW s.u", "DROP TABLE s.w"]);
    all(&mut one, &["CREATE TABLE w (k q7[] DEFAULT '{x,b}')"]);
    assert_eq!(code(run(&mut one, "ALTER TYPE q7 RENAME VALUE 'x' TO 'a'")), "0A000");
    all(&mut one, &["DROP TABLE w", "ALTER TYPE q7 RENAME VALUE 'x' TO 'a'"]);
    // A type goes only with the columns that are generated by it.
    let of_type = "CREATE TABLE x7 (k int, g bool GENERATED ALWAYS AS ('a'::q7 < 'b'::q7) STORED)";
    all(&mut one, &[of_type, "INSERT INTO x7 VALUES (1)"]);
    let error = run(&mut one, "DROP TYPE q7").unwrap_err();
    assert_eq!((error.state().code(), error.detail()), ("2BP01", Some("column g of table x7 depends on type q7")));
    all(&mut one, &["BEGIN", "DROP TYPE q7 CASCADE"]);
    assert_eq!(run(&mut one, "TABLE x7").unwrap(), "1");
    all(&mut one, &["ROLLBACK"]);
    assert_eq!(run(&mut reopened(), "TABLE x7").unwrap(), "1|t");
    all(&mut one, &["DROP TYPE q7 CASCADE", "DROP TYPE \"Q 9\" CASCADE"]);
    assert_eq!(run(&mut reopened(), "TABLE x7").unwrap(), "1");
    assert_eq!(run(&mut reopened(), "SELECT count(*) FROM x8").unwrap(), "4");
}

#[test]
fn many_labels_are_added_at_one_place() {
    let database = database::<Cicada>();
    let mut connection = connect(&database);
    all(&mut connection, &["CREATE TYPE e AS ENUM ('a', 'e')"]);
    for number in 0..150 {
        all(&mut connection, &[&format!("ALTER TYPE e ADD VALUE 'v{number}' BEFORE 'e'")]);
    }
    for number in 0..150 {
        all(&mut connection, &[&format!("ALTER TYPE e ADD VALUE 'w{number}' AFTER 'a'")]);
    }
    let sorted = "SELECT count(*), enum_first(NULL::e), enum_last(NULL::e) FROM unnest(enum_range(NULL::e))";
    assert_eq!(run(&mut connection, sorted).unwrap(), "302|a|e");
    assert_eq!(run(&mut connection, "SELECT 'w0'::e < 'v0', 'w1'::e < 'w0', 'v149'::e > 'v148'").unwrap(), "t|t|t");
}
