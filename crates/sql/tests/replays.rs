//! Transactions that a client holds are run again after a conflict, where the client cannot tell.

use std::sync::Arc;
use std::thread;

use crate::common::{all, connect, run};
use polychron_engine::{Common, Interactive, Protocol};
use polychron_protocols::{cicada::Cicada, hyper::Hyper, maflingo::Maflingo};
use polychron_sql::{Connection, SqlDatabase};

/// The code of the first text that fails.
fn failure<P: Protocol<Worker: Interactive>>(connection: &mut Connection<P>, texts: &[&str]) -> Option<&'static str> {
    texts.iter().find_map(|text| run(connection, text).err()).map(|error| error.state().code())
}

fn connections<P: Protocol<Worker: Interactive>>() -> [Connection<P>; 2] {
    let database: Arc<_> = SqlDatabase::open(P::open(P::Options::default(), Common::default()).unwrap());
    let [mut one, other] = [(); 2].map(|()| connect(&database));
    all(&mut one, &["CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 10), (2, 10), (3, 10)"]);
    [one, other]
}

/// Has the transaction of `one` read row 2 as it was before `other` has changed it, so that writing it is a conflict, which no answer tells: how that ends.
fn conflicts<P: Protocol<Worker: Interactive>>(
    [one, other]: &mut [Connection<P>; 2],
    before: &[&str],
    after: &[&str],
) -> Option<&'static str> {
    all(one, &["BEGIN", "SELECT count(v) FROM t WHERE id = 2"]);
    all(one, before);
    all(other, &["UPDATE t SET v = v + 1 WHERE id = 2"]);
    failure(one, &["UPDATE t SET v = v + 100 WHERE id = 2"]).or_else(|| failure(one, after))
}

fn a_conflict_is_not_told<P: Protocol<Worker: Interactive>>() {
    let mut both = connections::<P>();
    assert_eq!(conflicts(&mut both, &["UPDATE t SET v = 0 WHERE id = 1"], &["COMMIT"]), None, "{}", P::NAME);
    assert_eq!(run(&mut both[1], "SELECT v FROM t ORDER BY id").unwrap(), "0\n111\n10", "{}", P::NAME);
    all(&mut both[0], &["SET replay = off"]);
    // To some protocols it is one with the thread itself.
    let told = conflicts(&mut both, &[], &["COMMIT"]);
    assert!(matches!(told, Some("40001" | "40P01")), "{}: {told:?}", P::NAME);
    all(&mut both[0], &["ROLLBACK", "SET replay = on"]);
    // Another answer is told.
    let told = conflicts(&mut both, &["SELECT v FROM t WHERE id = 2"], &["COMMIT"]);
    assert!(matches!(told, Some("40001" | "40P01")), "{}: {told:?}", P::NAME);
    all(&mut both[0], &["ROLLBACK"]);
    assert_eq!(run(&mut both[0], "SELECT v FROM t ORDER BY id").unwrap(), "0\n113\n10", "{}", P::NAME);
}

#[test]
fn a_conflict_is_told_only_where_an_answer_differs() {
    a_conflict_is_not_told::<Cicada>();
    a_conflict_is_not_told::<Maflingo>();
    a_conflict_is_not_told::<Hyper>();
}

fn a_bound_statement_is_run_again<P: Protocol<Worker: Interactive>>() {
    let [mut one, mut other] = connections::<P>();
    all(&mut one, &["BEGIN"]);
    one.answer("SELECT count(v) FROM t WHERE id = 2", &[]).unwrap();
    all(&mut other, &["UPDATE t SET v = v + 1 WHERE id = 2"]);
    assert_eq!(one.answer("UPDATE t SET v = v + 100 WHERE id = 2", &[]).unwrap().count(), 1, "{}", P::NAME);
    all(&mut one, &["COMMIT"]);
    assert_eq!(run(&mut other, "SELECT v FROM t ORDER BY id").unwrap(), "10\n111\n10", "{}", P::NAME);
}

#[test]
fn bound_statements_are_run_again() {
    a_bound_statement_is_run_again::<Cicada>();
    a_bound_statement_is_run_again::<Maflingo>();
    a_bound_statement_is_run_again::<Hyper>();
}

fn what_is_given_again<P: Protocol<Worker: Interactive>>() {
    let mut both = connections::<P>();
    all(
        &mut both[0],
        &["CREATE SEQUENCE s", "CREATE SEQUENCE r", "CREATE TABLE u (n bigint, x float8, y uuid, z timestamptz)"],
    );
    let drawn = "INSERT INTO u VALUES (nextval('s'), random(), gen_random_uuid(), clock_timestamp()) RETURNING *";
    all(&mut both[0], &["BEGIN", "SELECT count(v) FROM t WHERE id = 2", "SELECT setval('r', 7)"]);
    let told = run(&mut both[0], drawn).unwrap();
    all(&mut both[1], &["UPDATE t SET v = v + 1 WHERE id = 2"]);
    assert_eq!(run(&mut both[1], "SELECT nextval('r'), nextval('s')").unwrap(), "8|2");
    all(&mut both[0], &["UPDATE t SET v = v + 100 WHERE id = 2", "COMMIT"]);
    assert_eq!(run(&mut both[1], "SELECT * FROM u").unwrap(), told, "{}", P::NAME);
    // What was set is not set again, and the next numbers are new ones.
    assert_eq!(run(&mut both[1], "SELECT nextval('r'), nextval('s')").unwrap(), "9|3", "{}", P::NAME);
}

#[test]
fn sequences_and_volatile_functions_give_what_they_gave() {
    what_is_given_again::<Cicada>();
    what_is_given_again::<Maflingo>();
    what_is_given_again::<Hyper>();
}

fn what_was_undone_is_not_given_again<P: Protocol<Worker: Interactive>>() {
    let [mut one, _] = connections::<P>();
    all(&mut one, &["CREATE SEQUENCE q", "CREATE TABLE w (n bigint, x float8)", "BEGIN"]);
    all(&mut one, &["INSERT INTO w VALUES (nextval('q'), random())", "SAVEPOINT a", "SELECT nextval('q'), random()"]);
    all(&mut one, &["ROLLBACK TO a"]);
    let told = run(&mut one, "INSERT INTO w VALUES (nextval('q'), random()) RETURNING n, x").unwrap();
    assert!(told.starts_with("3|"), "{}: {told}", P::NAME);
    // A definition begins the transaction again, with all that was not undone.
    all(&mut one, &["CREATE TABLE z (id int PRIMARY KEY)", "INSERT INTO z SELECT n FROM w", "COMMIT"]);
    assert_eq!(run(&mut one, "SELECT n, x FROM w WHERE n > 1").unwrap(), told, "{}", P::NAME);
    assert_eq!(run(&mut one, "SELECT id FROM z ORDER BY id").unwrap(), "1\n3", "{}", P::NAME);
}

#[test]
fn undone_statements_leave_no_numbers_to_those_behind() {
    what_was_undone_is_not_given_again::<Cicada>();
    what_was_undone_is_not_given_again::<Maflingo>();
    what_was_undone_is_not_given_again::<Hyper>();
}

fn savepoints_are_set_again<P: Protocol<Worker: Interactive>>() {
    let mut both = connections::<P>();
    let before = ["UPDATE t SET v = 20 WHERE id = 1", "SAVEPOINT s", "UPDATE t SET v = 30 WHERE id = 1"];
    assert_eq!(conflicts(&mut both, &before, &["ROLLBACK TO s", "COMMIT"]), None, "{}", P::NAME);
    assert_eq!(run(&mut both[1], "SELECT v FROM t ORDER BY id").unwrap(), "20\n11\n10", "{}", P::NAME);
    // The client has seen what is undone, which cannot be asked for again.
    let before = ["SAVEPOINT s", "SELECT v FROM t WHERE id = 2", "ROLLBACK TO s"];
    assert_eq!(conflicts(&mut both, &before, &["COMMIT"]), Some("40001"), "{}", P::NAME);
}

#[test]
fn savepoints_are_kept() {
    // Others find the conflict at the end, behind the return to the savepoint.
    savepoints_are_set_again::<Cicada>();
    savepoints_are_set_again::<Hyper>();
}

const CHILD: &str = "CREATE TABLE c (id int PRIMARY KEY, t int REFERENCES t DEFERRABLE INITIALLY DEFERRED)";

fn deferred_checks_are_kept<P: Protocol<Worker: Interactive>>() {
    let mut both = connections::<P>();
    all(&mut both[0], &[CHILD]);
    assert_eq!(conflicts(&mut both, &["INSERT INTO c VALUES (1, 9)"], &["COMMIT"]), Some("23503"), "{}", P::NAME);
    assert_eq!(run(&mut both[1], "SELECT v FROM t ORDER BY id").unwrap(), "10\n11\n10", "{}", P::NAME);
    // Conflicts with one thread's own commits count in a row, so these are others.
    let mut both = connections::<P>();
    all(&mut both[0], &[CHILD]);
    let after = ["INSERT INTO t VALUES (9, 9)", "COMMIT"];
    assert_eq!(conflicts(&mut both, &["INSERT INTO c VALUES (1, 9)"], &after), None, "{}", P::NAME);
}

#[test]
fn deferred_checks_are_made_of_the_new_transaction() {
    deferred_checks_are_kept::<Cicada>();
    deferred_checks_are_kept::<Maflingo>();
    deferred_checks_are_kept::<Hyper>();
}

/// A transaction inside of this one asks for a block of row numbers. Under Cicada its sequence, which is not there yet, shares its timestamp with keys of other tables, by hash: so one of a
/// few transactions conflicts.
fn alone(database: &Arc<SqlDatabase<Cicada>>) {
    let mut one = connect(database);
    for number in 0..30 {
        let texts = ["CREATE TABLE t# (id int, v int)", "BEGIN", "TRUNCATE t#"];
        let more = ["INSERT INTO t# SELECT n, 0 FROM generate_series(1, 1000) n", "COMMIT", "DROP TABLE t#"];
        for text in texts.into_iter().chain(more) {
            all(&mut one, &[text.replace('#', &number.to_string()).as_str()]);
        }
    }
}

#[test]
fn a_connection_alone_has_no_conflict() {
    let database = SqlDatabase::open(Cicada::open(Default::default(), Common::default()).unwrap());
    alone(&database);
}

#[test]
fn a_definition_alone_has_no_conflict() {
    let database = SqlDatabase::open(Cicada::open(Default::default(), Common::default()).unwrap());
    let mut one = connect(&database);
    for _ in 0..20 {
        all(
            &mut one,
            &[
                "BEGIN",
                "CREATE TABLE u (id serial PRIMARY KEY, v int UNIQUE)",
                "INSERT INTO u (v) SELECT n FROM generate_series(1, 300) n",
                "ALTER TABLE u RENAME COLUMN v TO w",
                "CREATE VIEW x AS SELECT w FROM u",
                "COMMIT",
                "BEGIN",
                "DROP VIEW x",
                "DROP TABLE u",
                "COMMIT",
            ],
        );
    }
}

fn a_parent_goes_before_the_commit<P: Protocol<Worker: Interactive>>() {
    let [mut one, mut other] = connections::<P>();
    all(&mut one, &[CHILD, "BEGIN", "SELECT count(v) FROM t WHERE id = 2", "INSERT INTO c VALUES (1, 3)"]);
    all(&mut other, &["DELETE FROM t WHERE id = 3"]);
    assert_eq!(failure(&mut one, &["COMMIT"]), Some("23503"), "{}", P::NAME);
    assert_eq!(run(&mut other, "SELECT count(*) FROM c").unwrap(), "0", "{}", P::NAME);
}

#[test]
fn deferred_checks_are_made_again_after_a_conflict_of_the_commit() {
    a_parent_goes_before_the_commit::<Cicada>();
    a_parent_goes_before_the_commit::<Maflingo>();
    a_parent_goes_before_the_commit::<Hyper>();
}

fn a_unique_index_is_made<P: Protocol<Worker: Interactive>>() {
    let [mut one, mut other] = connections::<P>();
    all(&mut one, &["UPDATE t SET v = id", "BEGIN", "UPDATE t SET v = 1 WHERE id = 2"]);
    all(&mut other, &["SET lock_timeout = '100ms'", "SET statement_timeout = '1s'"]);
    let made =
        thread::scope(|scope| scope.spawn(|| run(&mut other, "CREATE UNIQUE INDEX t_v ON t (v)")).join().unwrap());
    let ended = run(&mut one, "COMMIT");
    assert_eq!(made.is_ok(), ended.is_err(), "{}: {made:?} {ended:?}", P::NAME);
    let codes = [made.err(), ended.err()].map(|error| error.map(|error| error.state().code()));
    assert!(
        codes.iter().flatten().all(|code| ["40001", "23505", "55P03", "57014"].contains(code)),
        "{}: {codes:?}",
        P::NAME
    );
}

#[test]
fn what_runs_again_meets_new_unique_indexes() {
    a_unique_index_is_made::<Cicada>();
    a_unique_index_is_made::<Hyper>();
}

/// What cannot be run again does not begin in a snapshot that it could not leave.
fn cursors_behind_settings<P: Protocol<Worker: Interactive>>() {
    for said in ["SET CONSTRAINTS ALL DEFERRED", "SET LOCAL TIME ZONE 'Asia/Tokyo'"] {
        let [mut one, _other] = connections::<P>();
        let cursor = "DECLARE c CURSOR FOR SELECT id FROM t";
        all(&mut one, &["BEGIN", said, cursor, "DELETE FROM t WHERE id = 1", "COMMIT"]);
        all(&mut one, &["BEGIN", cursor, said, "DELETE FROM t WHERE id = 2", "COMMIT"]);
        assert_eq!(run(&mut one, "SELECT id FROM t").unwrap(), "3", "{}: {said}", P::NAME);
    }
}

#[test]
fn transactions_that_run_once_write_behind_cursors() {
    cursors_behind_settings::<Cicada>();
    cursors_behind_settings::<Maflingo>();
    cursors_behind_settings::<Hyper>();
}
