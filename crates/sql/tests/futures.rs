//! Updates of one row that leave open what its column is, under protocols that can.

use std::thread;

use crate::common::{database, run};
use polychron_engine::{Interactive, Protocol, Reason};
use polychron_protocols::lazy::Lazy;
use polychron_protocols::{cicada::Cicada, hyper::Hyper, locking::Locking, maflingo::Maflingo, serial::Serial};
use polychron_sql::{Connection, Datum};

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, a smallint, b int, c bigint, d int CHECK (d < 100), e int)";

/// Statements and how many rows they change, or the code of their error.
const CASES: [(&str, Result<u64, &str>); 26] = [
    ("UPDATE t SET b = b + 5 WHERE id = 1", Ok(1)),
    ("UPDATE t SET b = b - 2 WHERE id = 1", Ok(1)),
    ("UPDATE t SET c = 7 + c WHERE id = 1", Ok(1)),
    ("UPDATE t SET a = a + 1 WHERE id = 1", Ok(1)),
    ("UPDATE t SET c = c + 1::smallint WHERE id = 1", Ok(1)),
    ("UPDATE t SET b = b + 1 WHERE id = 9", Ok(0)),
    ("UPDATE t SET b = b + 1 WHERE id = NULL", Ok(0)),
    ("UPDATE t SET b = b + 1 WHERE id = 2", Ok(1)),
    ("UPDATE t SET b = b + NULL WHERE id = 9", Ok(0)),
    ("UPDATE t SET b = b + 1 / 0 WHERE id = 9", Ok(0)),
    ("UPDATE t SET b = b + 1 / 0 WHERE id = 1", Err("22012")),
    ("UPDATE t SET b = b + 2147483647 WHERE id = 1", Err("22003")),
    ("UPDATE t SET a = a + 32767 WHERE id = 1", Err("22003")),
    ("UPDATE t SET a = a - 32767 WHERE id = 1", Ok(1)),
    ("UPDATE t SET b = b + 9223372036854775807 WHERE id = 1", Err("22003")),
    ("UPDATE t SET c = c - 9223372036854775807 WHERE id = 1", Ok(1)),
    ("UPDATE t SET c = c - 9223372036854775807 WHERE id = 1", Err("22003")),
    ("UPDATE t SET b = b - 10 WHERE id = 1 AND b >= 10", Ok(1)),
    ("UPDATE t SET b = b - 10 WHERE id = 1 AND b >= 10", Ok(0)),
    ("UPDATE t SET b = b - 10 WHERE id = 2 AND b >= 10", Ok(0)),
    ("UPDATE t SET b = b - 10 WHERE id = 9 AND b >= 10", Ok(0)),
    ("UPDATE t SET b = b + 1 WHERE id = 1 AND 3 >= b", Ok(1)),
    ("UPDATE t SET b = b + 1 WHERE id = 1 AND b < 4", Ok(0)),
    ("UPDATE t SET d = d + 50 WHERE id = 1", Ok(1)),
    ("UPDATE t SET d = d + 50 WHERE id = 1", Err("23514")),
    ("UPDATE t SET e = e + 1 WHERE id = 1", Ok(1)),
];

fn answers_are_the_same<P: Protocol<Worker: Interactive>>() {
    let mut one = Connection::open(&database::<P>()).unwrap();
    for text in [TABLE, "CREATE UNIQUE INDEX ON t (e)", "INSERT INTO t VALUES (1, 1, 10, 10, 10, 10), (2)"] {
        run(&mut one, text).unwrap();
    }
    for (text, wanted) in CASES {
        let told = one.answer(text, &[]).map(|rows| rows.count()).map_err(|error| error.state().code());
        assert_eq!(told, wanted, "{}: {text}", P::NAME);
        assert_eq!(one.execute("SELECT 1", &[]).unwrap().count, 1);
    }
    let left = "-32765|4|-9223372036854775789|60|11\n||||";
    let left_now = run(&mut one, "SELECT a, b, c, d, e FROM t ORDER BY id").unwrap();
    assert_eq!(left_now, left, "{}", P::NAME);
    // As texts, of which one is a transaction and one is not, and with parameters.
    let mut prepared = one.prepare("UPDATE t SET b = b + $1 WHERE id = $2 AND b >= $3").unwrap();
    for (values, count) in [([5, 1, 4], 1), ([5, 1, 10], 0), ([5, 3, 0], 0)] {
        let values = values.map(Datum::Int);
        assert_eq!(one.answer_prepared(&mut prepared, &values).unwrap().count(), count, "{}", P::NAME);
    }
    assert_eq!(one.execute("UPDATE t SET b = b + 1 WHERE id = 1", &[]).unwrap().tag, "UPDATE 1");
    assert_eq!(one.execute("UPDATE t SET b = b + 1 WHERE id = 7", &[]).unwrap().tag, "UPDATE 0");
    let twice =
        "UPDATE t SET b = b + 1 WHERE id = 1; UPDATE t SET b = b * 2 WHERE id = 1; SELECT b FROM t WHERE id = 1";
    assert_eq!(run(&mut one, twice).unwrap(), "22", "{}", P::NAME);
    for text in ["BEGIN", "UPDATE t SET b = b + 1 WHERE id = 1", "SAVEPOINT s"] {
        run(&mut one, text).unwrap();
    }
    assert_eq!(run(&mut one, "UPDATE t SET b = b + 2147483647 WHERE id = 1").unwrap_err().state().code(), "22003");
    run(&mut one, "ROLLBACK TO s; COMMIT").unwrap();
    assert_eq!(run(&mut one, "SELECT b FROM t WHERE id = 1").unwrap(), "23", "{}", P::NAME);
}

#[test]
fn answers_are_the_same_under_all_protocols() {
    answers_are_the_same::<Serial>();
    answers_are_the_same::<Cicada>();
    answers_are_the_same::<Hyper>();
    answers_are_the_same::<Lazy<Maflingo>>();
    answers_are_the_same::<Lazy<Cicada>>();
    answers_are_the_same::<Lazy<Hyper>>();
    answers_are_the_same::<Lazy<Locking>>();
}

const SESSIONS: usize = 2000;
const THREADS: usize = 8;
const EACH: usize = 1000;

/// Sessions that take turns, and threads, count in one row.
fn nothing_is_lost<P: Protocol<Worker: Interactive>>(statement: &str, never_conflicts: bool) {
    let database = database::<P>();
    let mut one = Connection::open(&database).unwrap();
    let text = "CREATE TABLE t (id int PRIMARY KEY, v bigint NOT NULL, w int); INSERT INTO t VALUES (1, 0, 0)";
    run(&mut one, text).unwrap();
    let mut sessions: Vec<_> = (0..SESSIONS)
        .map(|_| {
            let mut session = Connection::open(&database).unwrap();
            session.park();
            session
        })
        .collect();
    for session in sessions.iter_mut().chain(&mut [one]) {
        assert_eq!(session.execute("UPDATE t SET v = v + 1 WHERE id = 1", &[]).unwrap().tag, "UPDATE 1");
        session.park();
    }
    assert_eq!(database.protocol().statistics().conflicts(), 0, "{}", P::NAME);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut own = Connection::open(&database).unwrap();
                let mut take = own.prepare(statement).unwrap();
                for _ in 0..EACH {
                    assert_eq!(own.answer_prepared(&mut take, &[Datum::Int(2)]).unwrap().count(), 1, "{}", P::NAME);
                }
            });
        }
    });
    let wanted = SESSIONS as i64 + 1 - 2 * (THREADS * EACH) as i64;
    assert_eq!(run(&mut Connection::open(&database).unwrap(), "SELECT v FROM t").unwrap(), wanted.to_string());
    // A thread that is halted while it commits may keep others from the row for longer than they wait, or an older one takes its lock: that tells of no value.
    let counts = database.protocol().statistics();
    let of_locks = [Reason::Latched.name(), Reason::Wounded.name()];
    let of_values: Vec<_> = counts.aborts_by_reason().filter(|(reason, _)| !of_locks.contains(reason)).collect();
    assert!(of_values.is_empty() || !never_conflicts, "{}: {of_values:?}", P::NAME);
}

const TAKE: &str = "UPDATE t SET v = v - $1 WHERE id = 1";
const TAKE_WHAT_IS_THERE: &str = "UPDATE t SET v = v - $1 WHERE id = 1 AND v >= $1 - 1000000000";

#[test]
fn counting_never_conflicts() {
    nothing_is_lost::<Lazy<Maflingo>>(TAKE, true);
    nothing_is_lost::<Lazy<Maflingo>>(TAKE_WHAT_IS_THERE, true);
    nothing_is_lost::<Lazy<Locking>>(TAKE, true);
}

/// Timestamps of others, and locks that hold a condition, may still be in the way.
#[test]
fn what_conflicts_loses_nothing() {
    nothing_is_lost::<Lazy<Locking>>(TAKE_WHAT_IS_THERE, false);
    nothing_is_lost::<Lazy<Cicada>>(TAKE, false);
    nothing_is_lost::<Lazy<Cicada>>(TAKE_WHAT_IS_THERE, false);
    nothing_is_lost::<Lazy<Hyper>>(TAKE, false);
    nothing_is_lost::<Lazy<Hyper>>(TAKE_WHAT_IS_THERE, false);
}

#[test]
fn explain_shows_futures() {
    let mut one = Connection::open(&database::<Serial>()).unwrap();
    run(&mut one, TABLE).unwrap();
    run(&mut one, "CREATE TABLE u (id int PRIMARY KEY, v int, w int)").unwrap();
    let mut is_future = |text: &str| run(&mut one, &format!("EXPLAIN {text}")).unwrap().contains("  Future: v");
    assert!(is_future("UPDATE u SET v = v + 1 WHERE id = 1"));
    assert!(is_future("UPDATE u SET v = v - 5 WHERE id = 1 AND v >= 5"));
    for text in [
        "UPDATE u SET v = v + 1",
        "UPDATE u SET v = v + w WHERE id = 1",
        "UPDATE u SET v = w + 1 WHERE id = 1",
        "UPDATE u SET v = 1 - v WHERE id = 1",
        "UPDATE u SET v = v + 1, w = 0 WHERE id = 1",
        "UPDATE u SET v = v + 1 WHERE id = 1 AND w > 0",
        "UPDATE u SET v = v + 1 WHERE id = 1 RETURNING w",
        "UPDATE u SET v = v * 2 WHERE id = 1",
    ] {
        assert!(!is_future(text), "{text}");
    }
}
