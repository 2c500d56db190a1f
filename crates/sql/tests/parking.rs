//! Held transactions that hear nothing are parked, and go on where the client cannot tell.

use std::sync::Arc;
use std::thread;

use crate::common::{all, run};
use polychron_base::clock::Duration;
use polychron_engine::{Common, Interactive, Protocol};
use polychron_protocols::lazy::Lazy;
use polychron_protocols::{cicada::Cicada, hyper::Hyper, locking::Locking, maflingo::Maflingo, serial::Serial};
use polychron_sql::{Connection, Datum, KeptBecause, Parking, SqlDatabase};

#[track_caller]
fn code<P: Protocol<Worker: Interactive>>(connection: &mut Connection<P>, text: &str) -> Option<&'static str> {
    run(connection, text).err().map(|error| error.state().code())
}

fn database<P: Protocol<Worker: Interactive>>(common: Common) -> Arc<SqlDatabase<P>> {
    SqlDatabase::open(P::open(P::Options::default(), common).unwrap())
}

/// Connections that park nothing by themselves, and a table of four rows.
fn connections<P: Protocol<Worker: Interactive>>(common: Common) -> [Connection<P>; 2] {
    connected(&database::<P>(common))
}

fn connected<P: Protocol<Worker: Interactive>>(database: &Arc<SqlDatabase<P>>) -> [Connection<P>; 2] {
    let mut both = [(); 2].map(|()| {
        let mut connection = Connection::open(database).unwrap();
        all(&mut connection, &["SET park_after = 0"]);
        connection.park();
        connection
    });
    all(
        &mut both[0],
        &["CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t SELECT n, 10 FROM generate_series(1, 4) n"],
    );
    both[0].park();
    both
}

#[track_caller]
fn park<P: Protocol<Worker: Interactive>>(connection: &mut Connection<P>) {
    assert_eq!(connection.park(), Parking::Parked, "{}", P::NAME);
}

macro_rules! on_each_protocol {
    ($($name:ident: $test:ident;)*) => {$(
        #[test]
        fn $name() {
            $test::<Cicada>();
            $test::<Maflingo>();
            $test::<Hyper>();
            $test::<Locking>();
            $test::<Serial>();
            $test::<Lazy<Cicada>>();
        }
    )*};
}

on_each_protocol! {
    a_transaction_goes_on_as_it_was: goes_on;
    what_differs_is_a_conflict: differs;
    a_thousand_parked_transactions_do_no_harm: thousand;
    parked_transactions_have_no_workers: workers;
    tables_are_free: tables;
    what_cannot_be_run_again_is_kept: kept;
    a_parked_transaction_goes_on_in_another_thread: another_thread;
    a_transaction_is_parked_by_its_thread: by_itself;
}

const CHILD: &str = "CREATE TABLE c (id int PRIMARY KEY, t int REFERENCES t DEFERRABLE INITIALLY DEFERRED)";

fn goes_on<P: Protocol<Worker: Interactive>>() {
    let [mut one, mut other] = connections::<P>(Common::default());
    all(
        &mut one,
        &[CHILD, "CREATE SEQUENCE s", "CREATE TABLE u (n bigint, x float8, y uuid, z timestamptz, w timestamptz)"],
    );
    all(&mut one, &["BEGIN", "UPDATE t SET v = v + 1 WHERE id = 1", "INSERT INTO c VALUES (1, 9)"]);
    let drawn =
        "INSERT INTO u VALUES (nextval('s'), random(), gen_random_uuid(), clock_timestamp(), now()) RETURNING *";
    let told = run(&mut one, drawn).unwrap();
    all(&mut one, &["SAVEPOINT a", "UPDATE t SET v = v + 1 WHERE id = 1"]);
    all(&mut one, &["DECLARE d CURSOR FOR SELECT id FROM t ORDER BY id", "FETCH 2 FROM d"]);
    park(&mut one);
    all(&mut other, &["UPDATE t SET v = 99 WHERE id = 4", "SELECT nextval('s')"]);
    other.park();
    assert_eq!(run(&mut one, "FETCH d").unwrap(), "3", "{}", P::NAME);
    assert_eq!(one.answer("SELECT v FROM t WHERE id = 1", &[]).unwrap().only::<(i32,)>().unwrap(), (12,));
    park(&mut one);
    assert_eq!(run(&mut one, "SELECT v FROM t WHERE id = 4").unwrap(), "99", "it goes on in the present");
    let mut prepared = one.prepare("UPDATE t SET v = v + $1 WHERE id = 2").unwrap();
    park(&mut one);
    assert_eq!(one.answer_prepared(&mut prepared, &[Datum::Int(5)]).unwrap().count(), 1, "{}", P::NAME);
    park(&mut one);
    let mut copy = one.copy_in("COPY t FROM STDIN").unwrap();
    copy.write(b"9\t9\n").unwrap();
    assert_eq!(copy.finish().unwrap(), 1);
    park(&mut one);
    all(&mut one, &["SAVEPOINT b"]);
    park(&mut one);
    all(&mut one, &["INSERT INTO t VALUES (10, 10)", "ROLLBACK TO b", "COMMIT"]);
    assert_eq!(run(&mut other, "SELECT * FROM u").unwrap(), told, "{}", P::NAME);
    assert_eq!(run(&mut other, "SELECT v FROM t ORDER BY id").unwrap(), "12\n15\n10\n99\n9", "{}", P::NAME);
    assert_eq!(run(&mut other, "SELECT nextval('s')").unwrap(), "3");
    // What is deferred fails where it would have failed.
    all(&mut one, &["BEGIN", "INSERT INTO c VALUES (2, 77)"]);
    park(&mut one);
    assert_eq!(code(&mut one, "COMMIT"), Some("23503"), "{}", P::NAME);
    // A rollback to a savepoint of a transaction that is parked.
    all(&mut one, &["BEGIN", "UPDATE t SET v = 1 WHERE id = 1", "SAVEPOINT a", "UPDATE t SET v = 2 WHERE id = 1"]);
    park(&mut one);
    all(&mut one, &["ROLLBACK TO a", "COMMIT"]);
    assert_eq!(run(&mut other, "SELECT v FROM t WHERE id = 1").unwrap(), "1", "{}", P::NAME);
    // Definitions.
    other.park();
    all(&mut one, &["BEGIN", "CREATE TABLE n (id int PRIMARY KEY)", "INSERT INTO n VALUES (1)"]);
    park(&mut one);
    assert_eq!(code(&mut other, "SELECT * FROM n"), Some("42P01"), "{}", P::NAME);
    other.park();
    all(&mut one, &["INSERT INTO n VALUES (2)", "COMMIT"]);
    assert_eq!(run(&mut other, "SELECT count(*) FROM n").unwrap(), "2", "{}", P::NAME);
}

fn differs<P: Protocol<Worker: Interactive>>() {
    let [mut one, mut other] = connections::<P>(Common::default());
    all(&mut one, &["BEGIN", "SELECT v FROM t WHERE id = 1", "SAVEPOINT a"]);
    park(&mut one);
    all(&mut other, &["UPDATE t SET v = 11 WHERE id = 1"]);
    let error = run(&mut one, "SELECT 1").unwrap_err();
    assert_eq!(error.state().code(), "40001", "{}: {error}", P::NAME);
    assert!(error.detail().is_some_and(|detail| detail.contains("parked")), "{}: {error}", P::NAME);
    assert_eq!(code(&mut one, "SELECT 1"), Some("25P02"));
    assert_eq!(code(&mut one, "ROLLBACK TO a"), Some("40001"), "{}", P::NAME);
    assert_eq!(one.execute("COMMIT", &[]).unwrap().tag, "ROLLBACK");
    // What was only written is not missed: it is written behind what others have written.
    all(&mut one, &["BEGIN", "UPDATE t SET v = v + 1 WHERE id = 1"]);
    park(&mut one);
    all(&mut other, &["UPDATE t SET v = v + 10 WHERE id = 1"]);
    all(&mut one, &["COMMIT"]);
    assert_eq!(run(&mut other, "SELECT v FROM t WHERE id = 1").unwrap(), "22", "{}", P::NAME);
    // A rollback asks for nothing.
    all(&mut one, &["BEGIN", "SELECT v FROM t WHERE id = 1"]);
    park(&mut one);
    all(&mut other, &["UPDATE t SET v = 0 WHERE id = 1"]);
    all(&mut one, &["ROLLBACK", "SELECT 1"]);
}

/// So many transactions are held open at once, with a few workers, and versions go all the same.
fn thousand<P: Protocol<Worker: Interactive>>() {
    let mut common = Common::default();
    (common.memory.max_workers, common.memory.limit_bytes) = (4, Some(64 << 20));
    let database = database::<P>(common);
    let mut other = Connection::open(&database).unwrap();
    all(
        &mut other,
        &["CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t SELECT n, 0 FROM generate_series(1, 1000) n"],
    );
    all(&mut other, &["CREATE TABLE w (id int PRIMARY KEY, s text)", "INSERT INTO w VALUES (1, '')"]);
    other.park();
    let mut parked: Vec<_> = (1..=1000)
        .map(|id| {
            let mut one = Connection::open(&database).unwrap();
            all(&mut one, &["BEGIN", "SELECT count(*) FROM w"]);
            assert_eq!(run(&mut one, &format!("UPDATE t SET v = v + 1 WHERE id = {id} RETURNING v")).unwrap(), "1");
            park(&mut one);
            one
        })
        .collect();
    let mut change = other.prepare("UPDATE w SET s = repeat($1, 16000) WHERE id = 1").unwrap();
    for round in 0..20_000 {
        let text = if round % 2 == 0 { "a" } else { "b" };
        other.answer_prepared(&mut change, &[Datum::Text(text)]).unwrap_or_else(|error| panic!("{}: {error}", P::NAME));
    }
    all(&mut other, &["UPDATE t SET v = 7 WHERE id = 1000"]);
    other.park();
    let codes: Vec<_> = parked
        .iter_mut()
        .map(|one| {
            let code = code(one, "COMMIT");
            one.park();
            code
        })
        .collect();
    // The last one has told the client another number.
    assert!(codes[..999].iter().all(Option::is_none), "{}: {codes:?}", P::NAME);
    assert_eq!(codes[999], Some("40001"), "{}", P::NAME);
    assert_eq!(run(&mut other, "SELECT sum(v) FROM t").unwrap(), "1006", "{}", P::NAME);
}

fn workers<P: Protocol<Worker: Interactive>>() {
    let mut common = Common::default();
    common.memory.max_workers = 2;
    let database = database::<P>(common);
    let [mut one, mut other] = connected(&database);
    all(&mut one, &["BEGIN", "UPDATE t SET v = v + 1 WHERE id = 1"]);
    park(&mut one);
    // The protocol's own work may need the second one.
    all(&mut other, &["SELECT v FROM t WHERE id = 2"]);
    let mut third = Connection::open(&database).unwrap();
    let error = run(&mut one, "SELECT 1").unwrap_err();
    assert_eq!(error.state().code(), "53300", "{}: {error}", P::NAME);
    assert_eq!(third.park(), Parking::NoTransaction);
    // It was not lost with that.
    all(&mut one, &["UPDATE t SET v = v + 1 WHERE id = 1", "COMMIT"]);
    assert_eq!(run(&mut other, "SELECT v FROM t WHERE id = 1").unwrap(), "12", "{}", P::NAME);
}

fn tables<P: Protocol<Worker: Interactive>>() {
    for (definition, wanted) in [
        ("DROP TABLE t", Some("40001")),
        ("ALTER TABLE t ADD COLUMN w int", Some("40001")),
        ("ALTER TABLE t ADD CHECK (v < 11)", Some("40001")),
        ("TRUNCATE t", None),
        ("CREATE INDEX i ON t (v)", None),
        ("CREATE TABLE u (id int)", None),
    ] {
        let [mut one, mut other] = connections::<P>(Common::default());
        all(&mut one, &["BEGIN", "INSERT INTO t VALUES (7, 70)"]);
        park(&mut one);
        all(&mut other, &["SET lock_timeout = '1ms'", definition]);
        other.park();
        let told = code(&mut one, "INSERT INTO t VALUES (8, 80)");
        assert_eq!(told, wanted, "{}: {definition}", P::NAME);
        assert_eq!(one.execute("COMMIT", &[]).unwrap().tag, if told.is_none() { "COMMIT" } else { "ROLLBACK" });
        // Used again, it waits for nobody.
        all(&mut one, &["SELECT 1", "BEGIN", "SELECT 1", "COMMIT"]);
    }
    // What goes on has its tables again.
    let [mut one, mut other] = connections::<P>(Common::default());
    all(&mut one, &["BEGIN", "INSERT INTO t VALUES (7, 70)"]);
    park(&mut one);
    all(&mut one, &["SELECT 1"]);
    all(&mut other, &["SET lock_timeout = '1ms'"]);
    assert_eq!(code(&mut other, "DROP TABLE t"), Some("55P03"), "{}", P::NAME);
    all(&mut one, &["COMMIT"]);
}

fn kept<P: Protocol<Worker: Interactive>>() {
    let [mut one, _] = connections::<P>(Common::default());
    assert_eq!(one.park(), Parking::NoTransaction);
    let kept = |one: &mut Connection<P>, texts: &[&str], why| {
        all(one, &["BEGIN", "UPDATE t SET v = 1 WHERE id = 1"]);
        texts.iter().for_each(|text| drop(run(one, text)));
        assert_eq!(one.park(), Parking::Kept(why), "{}: {texts:?}", P::NAME);
        all(one, &["ROLLBACK"]);
        assert_eq!(one.park(), Parking::NoTransaction, "{}", P::NAME);
    };
    kept(&mut one, &["SAVEPOINT a", "ROLLBACK TO a"], KeptBecause::RunsOnce);
    kept(&mut one, &["SET CONSTRAINTS ALL IMMEDIATE"], KeptBecause::RunsOnce);
    kept(&mut one, &["SAVEPOINT a", "SELECT 1 / 0"], KeptBecause::Failed);
    kept(&mut one, &["SET replay = off"], KeptBecause::ReplayOff);
    kept(&mut one, &["SELECT random() FROM generate_series(1, 100001)"], KeptBecause::TooLong);
    // One that has failed without a savepoint has nothing.
    all(&mut one, &["BEGIN", "UPDATE t SET v = 1 WHERE id = 1"]);
    assert_eq!(code(&mut one, "SELECT 1 / 0"), Some("22012"));
    park(&mut one);
    assert_eq!(code(&mut one, "SELECT 1"), Some("25P02"));
    all(&mut one, &["ROLLBACK", "SET park_after = '1h'", "BEGIN", "UPDATE t SET v = 1 WHERE id = 1"]);
    assert_eq!(one.park_idle(), Parking::Kept(KeptBecause::NotIdle));
    all(&mut one, &["SET park_after = '1ms'"]);
    thread::sleep(Duration::from_millis(2));
    assert_eq!(one.park_idle(), Parking::Parked, "{}", P::NAME);
    assert!(one.idle_for().is_some_and(|idle| idle >= Duration::from_millis(1)));
}

fn another_thread<P: Protocol<Worker: Interactive>>() {
    let [mut one, mut other] = connections::<P>(Common::default());
    all(&mut one, &["BEGIN", "UPDATE t SET v = v + 1 WHERE id = 1"]);
    let mut one = thread::scope(|scope| {
        let elsewhere = scope.spawn(move || {
            assert_eq!(code(&mut one, "SELECT 1"), Some("0A000"));
            assert_eq!(one.park(), Parking::Kept(KeptBecause::OtherThread));
            one
        });
        elsewhere.join().unwrap()
    });
    park(&mut one);
    let one = thread::scope(|scope| {
        let elsewhere = scope.spawn(move || {
            all(&mut one, &["UPDATE t SET v = v + 1 WHERE id = 1"]);
            park(&mut one);
            one
        });
        elsewhere.join().unwrap()
    });
    let mut one = one;
    all(&mut one, &["COMMIT"]);
    assert_eq!(run(&mut other, "SELECT v FROM t WHERE id = 1").unwrap(), "12", "{}", P::NAME);
}

fn by_itself<P: Protocol<Worker: Interactive>>() {
    let [mut one, mut other] = connections::<P>(Common::default());
    all(&mut one, &["SET park_after = '1ms'", "BEGIN", "UPDATE t SET v = v + 1 WHERE id = 1"]);
    thread::sleep(Duration::from_millis(2));
    // Under `locking` it would wait for its own thread, and under `serial` not even begin.
    all(&mut other, &["UPDATE t SET v = v + 1 WHERE id = 1"]);
    other.park();
    all(&mut one, &["UPDATE t SET v = v + 1 WHERE id = 1"]);
    // A definition waits until it is idle.
    all(&mut other, &["ALTER TABLE t ADD COLUMN w int"]);
    other.park();
    assert_eq!(code(&mut one, "SELECT 1"), Some("40001"), "{}", P::NAME);
    all(&mut one, &["ROLLBACK", "BEGIN", "UPDATE t SET v = v + 1 WHERE id = 4"]);
    thread::sleep(Duration::from_millis(2));
    assert_eq!((polychron_sql::park_idle(), polychron_sql::park_idle()), (1, 0), "{}", P::NAME);
    all(&mut one, &["COMMIT"]);
    assert_eq!(run(&mut other, "SELECT v FROM t WHERE id = 1").unwrap(), "11", "{}", P::NAME);
}

#[test]
fn what_is_idle_for_too_long_ends() {
    let [mut one, mut other] = connections::<Locking>(Common::default());
    all(&mut one, &["SET idle_in_transaction_session_timeout = '1ms'", "BEGIN", "UPDATE t SET v = 0 WHERE id = 1"]);
    all(&mut one, &["SAVEPOINT a", "ROLLBACK TO a"]);
    thread::sleep(Duration::from_millis(2));
    all(&mut other, &["UPDATE t SET v = v + 1 WHERE id = 1"]);
    assert_eq!(code(&mut one, "SELECT 1"), Some("25P03"));
    assert_eq!([code(&mut one, "SELECT 1"), code(&mut one, "ROLLBACK")], [Some("25P02"), None]);
    // A parked one ends, too.
    all(&mut one, &["SET idle_in_transaction_session_timeout = '5ms'", "BEGIN", "UPDATE t SET v = 0 WHERE id = 1"]);
    park(&mut one);
    thread::sleep(Duration::from_millis(6));
    assert_eq!(code(&mut one, "COMMIT"), Some("25P03"));
    all(&mut one, &["ROLLBACK"]);
    assert_eq!(run(&mut other, "SELECT v FROM t WHERE id = 1").unwrap(), "11");
}

#[test]
fn the_time_is_a_setting() {
    let mut one = Connection::open(&database::<Serial>(Common::default())).unwrap();
    assert_eq!(run(&mut one, "SHOW park_after").unwrap(), "100ms");
    for (set, shown) in [("'2s'", "2s"), ("off", "0"), ("250", "250ms"), ("0", "0"), ("default", "100ms")] {
        all(&mut one, &[&format!("SET park_after = {set}")]);
        assert_eq!(run(&mut one, "SHOW park_after").unwrap(), shown, "{set}");
    }
    all(&mut one, &["BEGIN", "SET LOCAL park_after = 5", "SET idle_in_transaction_session_timeout = '1min'"]);
    assert_eq!(run(&mut one, "SHOW park_after").unwrap(), "5ms");
    all(&mut one, &["ROLLBACK"]);
    assert_eq!(run(&mut one, "SHOW idle_in_transaction_session_timeout").unwrap(), "0");
    assert_eq!(run(&mut one, "SHOW park_after").unwrap(), "100ms");
    assert_eq!(code(&mut one, "SET park_after = 'soon'"), Some("22023"));
}

/// A commit that finds something else ends its transaction, parked or not, and a transaction that has failed has no table that others would wait for.
fn what_has_failed_holds_nothing<P: Protocol<Worker: Interactive>>() {
    let [mut one, mut other] = connections::<P>(Common::default());
    all(&mut one, &["BEGIN", "SELECT v FROM t WHERE id = 1", "UPDATE t SET v = 5 WHERE id = 1"]);
    park(&mut one);
    all(&mut other, &["UPDATE t SET v = v + 1 WHERE id = 1"]);
    assert_eq!(code(&mut one, "COMMIT"), Some("40001"), "{}", P::NAME);
    assert_eq!(run(&mut one, "SELECT v FROM t WHERE id = 1").unwrap(), "11", "{}", P::NAME);
    all(&mut one, &["BEGIN", "SELECT * FROM t"]);
    assert_eq!(code(&mut one, "SELECT 1 / 0"), Some("22012"), "{}", P::NAME);
    all(&mut other, &["SET lock_timeout = 1", "ALTER TABLE t ADD z int"]);
    assert_eq!(code(&mut one, "SELECT 1"), Some("25P02"), "{}", P::NAME);
    all(&mut one, &["ROLLBACK", "SELECT z FROM t"]);
}

#[test]
fn failed_transactions_hold_nothing() {
    what_has_failed_holds_nothing::<Cicada>();
    what_has_failed_holds_nothing::<Maflingo>();
    what_has_failed_holds_nothing::<Hyper>();
    what_has_failed_holds_nothing::<Locking>();
}
