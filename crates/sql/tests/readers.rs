//! Transactions that read beside writers, pause, and come to their end.

use std::sync::Arc;
use std::thread;

use crate::common::{all, run};
use polychron_engine::{Common, Interactive, Protocol};
use polychron_protocols::lazy::Lazy;
use polychron_protocols::{cicada::Cicada, hyper::Hyper, locking::Locking, maflingo::Maflingo, serial::Serial};
use polychron_sql::{Connection, KeptBecause, Parking, SqlDatabase};

#[track_caller]
fn code<P: Protocol<Worker: Interactive>>(connection: &mut Connection<P>, text: &str) -> Option<&'static str> {
    run(connection, text).err().map(|error| error.state().code())
}

fn database<P: Protocol<Worker: Interactive>>(common: Common) -> Arc<SqlDatabase<P>> {
    SqlDatabase::open(P::open(P::Options::default(), common).unwrap())
}

/// Connections that are idle as soon as they say nothing, to a table of four rows.
fn connections<P: Protocol<Worker: Interactive>>() -> [Connection<P>; 2] {
    let database = database::<P>(Common::default());
    let mut both = [(); 2].map(|()| Connection::open(&database).unwrap());
    both.iter_mut().for_each(|it| all(it, &["SET park_after = '1ms'"]));
    let table =
        ["CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t SELECT n, 10 FROM generate_series(1, 4) n"];
    all(&mut both[0], &table);
    both
}

/// What becomes of a transaction that was idle for long.
fn pause<P: Protocol<Worker: Interactive>>(connection: &mut Connection<P>) -> Parking {
    loop {
        match connection.park_idle() {
            Parking::Kept(KeptBecause::NotIdle) => thread::yield_now(),
            other => return other,
        }
    }
}

macro_rules! on_protocols_with_snapshots {
    ($($name:ident: $test:ident;)*) => {$(
        #[test]
        fn $name() {
            $test::<Cicada>();
            $test::<Maflingo>();
            $test::<Hyper>();
            $test::<Lazy<Cicada>>();
            $test::<Lazy<Maflingo>>();
        }
    )*};
}

on_protocols_with_snapshots! {
    declared_readers_come_to_their_ends: declared;
    a_snapshot_has_all_that_was_committed: fresh;
    a_snapshot_is_given_up_where_it_is_wanted: given_up;
    definitions_do_not_wait_for_silent_readers: definitions;
    workers_of_silent_readers_are_taken: workers;
    repeatable_reads_go_on_in_the_present_to_write: repeatable;
    cursors_pause: cursors;
    temporary_tables_are_written_by_readers: temporary;
}

const BEGINS: [&[&str]; 4] = [
    &["BEGIN READ ONLY"],
    &["BEGIN TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE"],
    &["BEGIN", "SET TRANSACTION READ ONLY, NOT DEFERRABLE"],
    &["BEGIN ISOLATION LEVEL REPEATABLE READ"],
];

fn declared<P: Protocol<Worker: Interactive>>() {
    let [mut one, mut other] = connections::<P>();
    for (round, begin) in BEGINS.iter().enumerate() {
        all(&mut one, begin);
        for statement in 0..20 {
            let sum = run(&mut one, "SELECT sum(v), count(*) FROM t").unwrap();
            assert_eq!(sum, format!("{}|{}", 40 + round * 20, 4 + round * 20), "{}: {begin:?}", P::NAME);
            assert_eq!(pause(&mut one), Parking::Kept(KeptBecause::Reads), "{}: {begin:?}", P::NAME);
            all(&mut other, &["UPDATE t SET v = v + 1 WHERE id = 1"]);
            all(&mut other, &[&format!("INSERT INTO t VALUES ({}, 0)", 100 + round * 20 + statement)]);
            other.park();
        }
        all(&mut one, &["COMMIT"]);
    }
}

fn fresh<P: Protocol<Worker: Interactive>>() {
    let [mut one, mut other] = connections::<P>();
    thread::scope(|scope| {
        let (told, hears) = std::sync::mpsc::channel();
        let (asks, asked) = std::sync::mpsc::channel();
        scope.spawn(move || {
            for v in asked {
                all(&mut other, &[&format!("UPDATE t SET v = {v}")]);
                told.send(()).unwrap();
            }
        });
        for v in 0..100 {
            asks.send(v).unwrap();
            hears.recv().unwrap();
            all(&mut one, &["BEGIN READ ONLY"]);
            assert_eq!(run(&mut one, "SELECT v FROM t WHERE id = 3").unwrap(), v.to_string(), "{}", P::NAME);
            all(&mut one, &["COMMIT"]);
        }
    });
}

fn given_up<P: Protocol<Worker: Interactive>>() {
    let [mut one, mut other] = connections::<P>();
    all(&mut one, &["BEGIN READ ONLY", "SELECT v FROM t WHERE id = 1"]);
    assert_eq!(one.park(), Parking::Parked);
    all(&mut other, &["UPDATE t SET v = 9 WHERE id = 2"]);
    // It goes on in another snapshot where that answers the same.
    assert_eq!(run(&mut one, "SELECT v FROM t WHERE id = 2").unwrap(), "9", "{}", P::NAME);
    assert_eq!(one.park(), Parking::Parked);
    all(&mut other, &["UPDATE t SET v = 8 WHERE id = 2"]);
    let error = run(&mut one, "SELECT 1").unwrap_err();
    assert_eq!(error.state().code(), "40001", "{}", P::NAME);
    assert!(error.detail().is_some_and(|detail| detail.contains("parked")), "{}: {error}", P::NAME);
    all(&mut one, &["ROLLBACK"]);
}

fn definitions<P: Protocol<Worker: Interactive>>() {
    let definitions =
        ["ALTER TABLE t ADD COLUMN w int DEFAULT 3", "ALTER TABLE t RENAME COLUMN w TO x", "DROP TABLE t"];
    let [mut one, mut other] = connections::<P>();
    all(&mut other, &["SET lock_timeout = 0", "CREATE TABLE u (id int PRIMARY KEY)"]);
    for definition in definitions {
        all(&mut one, &["BEGIN READ ONLY", "SELECT count(*) FROM t"]);
        assert_eq!(pause(&mut one), Parking::Kept(KeptBecause::Reads));
        thread::scope(|scope| {
            let altered = scope.spawn(|| all(&mut other, &[definition]));
            while pause(&mut one) != Parking::Parked {
                thread::yield_now();
            }
            altered.join().unwrap();
        });
        let error = run(&mut one, "SELECT 1").unwrap_err();
        assert_eq!(error.state().code(), "40001", "{}: {definition}", P::NAME);
        assert!(error.detail().is_some_and(|detail| detail.contains("altered or dropped")), "{}: {error}", P::NAME);
        all(&mut one, &["ROLLBACK"]);
    }
    // Without a thread that looks after the reader, one of the definition's own is found by the definition.
    all(&mut one, &["BEGIN READ ONLY", "SELECT count(*) FROM u"]);
    assert_eq!(pause(&mut one), Parking::Kept(KeptBecause::Reads));
    all(&mut other, &["DROP TABLE u"]);
    assert_eq!(code(&mut one, "SELECT 1"), Some("40001"), "{}", P::NAME);
}

fn workers<P: Protocol<Worker: Interactive>>() {
    let database = database::<P>(Common::default());
    let mut readers: Vec<Connection<P>> = Vec::new();
    let mut first = Connection::open(&database).unwrap();
    all(&mut first, &["CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)"]);
    first.park();
    // Far more than there are workers.
    for _ in 0..300 {
        let mut reader = Connection::open(&database).unwrap();
        all(&mut reader, &["SET park_after = '1ms'", "BEGIN READ ONLY", "SELECT v FROM t"]);
        while reader.park_idle() == Parking::Kept(KeptBecause::NotIdle) {
            thread::yield_now();
        }
        readers.push(reader);
    }
    let kept = |readers: &mut Vec<Connection<P>>| {
        readers.iter_mut().filter_map(|it| (it.park_idle() == Parking::Kept(KeptBecause::Reads)).then_some(())).count()
    };
    assert!(kept(&mut readers) > 0, "{}", P::NAME);
    assert_eq!(run(&mut first, "UPDATE t SET v = v + 0 RETURNING v").unwrap(), "1", "{}", P::NAME);
    first.park();
    for reader in &mut readers {
        assert_eq!(run(reader, "SELECT v FROM t").unwrap(), "1", "{}", P::NAME);
        all(reader, &["COMMIT"]);
        reader.park();
    }
}

fn repeatable<P: Protocol<Worker: Interactive>>() {
    let [mut one, mut other] = connections::<P>();
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ";
    // What it had read is read again.
    all(&mut one, &[begin, "SELECT v FROM t WHERE id = 1"]);
    all(&mut other, &["UPDATE t SET v = 11 WHERE id = 2"]);
    assert_eq!(run(&mut one, "UPDATE t SET v = v + 1 WHERE id = 2 RETURNING v").unwrap(), "12", "{}", P::NAME);
    all(&mut one, &["COMMIT", begin, "SELECT v FROM t WHERE id = 1"]);
    all(&mut other, &["UPDATE t SET v = 11 WHERE id = 1"]);
    assert_eq!(run(&mut one, "SELECT v FROM t WHERE id = 1").unwrap(), "10", "{}", P::NAME);
    let error = run(&mut one, "UPDATE t SET v = 0 WHERE id = 3").unwrap_err();
    assert_eq!(error.state().code(), "40001", "{}", P::NAME);
    assert!(error.detail().is_some_and(|detail| detail.contains("snapshot")), "{}: {error}", P::NAME);
    // Run again, it has all that was committed, and ends.
    all(&mut one, &["ROLLBACK", begin]);
    assert_eq!(run(&mut one, "SELECT v FROM t WHERE id = 1").unwrap(), "11", "{}", P::NAME);
    all(&mut one, &["SAVEPOINT a", "SELECT 1", "ROLLBACK TO a", "UPDATE t SET v = 1 WHERE id = 3", "COMMIT"]);
    all(&mut one, &[begin, "UPDATE t SET v = 2 WHERE id = 3", "COMMIT"]);
    all(&mut one, &[begin, "SELECT 1", "SET CONSTRAINTS ALL IMMEDIATE", "UPDATE t SET v = 3 WHERE id = 3", "COMMIT"]);
    all(&mut one, &["SET replay = off", begin, "SELECT 1", "UPDATE t SET v = 4 WHERE id = 3", "COMMIT"]);
    all(&mut one, &["SET replay = on", begin, "SELECT v FROM t", "CREATE TABLE u (id int PRIMARY KEY)"]);
    all(&mut one, &["INSERT INTO u SELECT id FROM t", "COMMIT"]);
    assert_eq!(run(&mut other, "SELECT v FROM t ORDER BY id").unwrap(), "11\n12\n4\n10", "{}", P::NAME);
    assert_eq!(run(&mut other, "SELECT count(*) FROM u").unwrap(), "4", "{}", P::NAME);
}

fn cursors<P: Protocol<Worker: Interactive>>() {
    let [mut one, mut other] = connections::<P>();
    for (declare, hold) in [("DECLARE c CURSOR FOR", false), ("DECLARE c CURSOR WITH HOLD FOR", true)] {
        all(&mut one, &["BEGIN", &format!("{declare} SELECT id FROM t ORDER BY id")]);
        assert_eq!(run(&mut one, "FETCH 1 FROM c").unwrap(), "1");
        assert_eq!(pause(&mut one), Parking::Kept(KeptBecause::Reads), "{}", P::NAME);
        all(
            &mut other,
            &["UPDATE t SET v = v + 1", "INSERT INTO t SELECT max(id) + 1, 0 FROM t", "DELETE FROM t WHERE id > 4"],
        );
        assert_eq!(run(&mut one, "FETCH 9 FROM c").unwrap(), "2\n3\n4", "{}", P::NAME);
        all(&mut one, &["COMMIT"]);
        if hold {
            assert_eq!(run(&mut one, "FETCH BACKWARD 1 FROM c").unwrap(), "4");
        }
    }
    // What reads a cursor may write behind it.
    all(&mut one, &["BEGIN", "DECLARE d CURSOR FOR SELECT id FROM t ORDER BY id", "FETCH 2 FROM d"]);
    all(&mut one, &["UPDATE t SET v = 99 WHERE id = 2"]);
    assert_eq!(pause(&mut one), Parking::Parked, "{}", P::NAME);
    assert_eq!(run(&mut one, "FETCH 2 FROM d").unwrap(), "3\n4", "{}", P::NAME);
    all(&mut one, &["COMMIT"]);
    assert_eq!(run(&mut other, "SELECT v FROM t WHERE id = 2").unwrap(), "99", "{}", P::NAME);
}

fn temporary<P: Protocol<Worker: Interactive>>() {
    let [mut one, mut other] = connections::<P>();
    all(&mut one, &["CREATE TEMP TABLE n (id int PRIMARY KEY) ON COMMIT DELETE ROWS"]);
    for freshness in ["strict", "recent"] {
        all(&mut one, &[&format!("SET read_only_freshness = {freshness}"), "BEGIN READ ONLY"]);
        all(&mut one, &["SELECT v FROM t WHERE id = 1", "INSERT INTO n SELECT id FROM t"]);
        assert_eq!(run(&mut one, "SELECT count(*) FROM n").unwrap(), "4", "{}", P::NAME);
        assert_eq!(code(&mut one, "UPDATE t SET v = 0"), Some("25006"), "{}", P::NAME);
        all(&mut one, &["ROLLBACK"]);
        all(&mut one, &["SET default_transaction_read_only = on", "INSERT INTO n VALUES (1)"]);
        assert_eq!(run(&mut one, "SELECT count(*) FROM n").unwrap(), "0", "it went with the commit");
        all(&mut one, &["SET default_transaction_read_only = off"]);
    }
    assert_eq!(run(&mut other, "SELECT v FROM t WHERE id = 1").unwrap(), "10", "{}", P::NAME);
}

/// A transaction that says nothing reads on what it began with, where the protocol's transactions do so.
fn undeclared<P: Protocol<Worker: Interactive>>() {
    let [mut one, mut other] = connections::<P>();
    all(&mut one, &["BEGIN"]);
    for _ in 0..20 {
        assert_eq!(run(&mut one, "SELECT v FROM t WHERE id = 1").unwrap(), "10", "{}", P::NAME);
        assert_eq!(pause(&mut one), Parking::Kept(KeptBecause::Reads), "{}", P::NAME);
        all(&mut other, &["UPDATE t SET v = v + 1"]);
    }
    all(&mut one, &["COMMIT", "BEGIN", "UPDATE t SET v = 0 WHERE id = 1"]);
    // What has written holds others up.
    assert_eq!(pause(&mut one), Parking::Parked, "{}", P::NAME);
    all(&mut one, &["COMMIT"]);
}

#[test]
fn undeclared_readers_read_on() {
    undeclared::<Cicada>();
    undeclared::<Hyper>();
}

/// Where there are no snapshots readers are parked, and do not hold writers up.
fn without<P: Protocol<Worker: Interactive>>() {
    let [mut one, mut other] = connections::<P>();
    all(&mut one, &["BEGIN READ ONLY", "SELECT v FROM t WHERE id = 1"]);
    assert_eq!(pause(&mut one), Parking::Parked, "{}", P::NAME);
    all(&mut other, &["UPDATE t SET v = 1 WHERE id = 2"]);
    other.park();
    assert_eq!(run(&mut one, "SELECT v FROM t WHERE id = 2").unwrap(), "1", "{}", P::NAME);
    assert_eq!(pause(&mut one), Parking::Parked, "{}", P::NAME);
    all(&mut other, &["UPDATE t SET v = 2 WHERE id = 2"]);
    assert_eq!(code(&mut one, "COMMIT"), Some("40001"), "{}", P::NAME);
}

#[test]
fn readers_of_protocols_without_snapshots_are_parked() {
    without::<Locking>();
    without::<Serial>();
}
