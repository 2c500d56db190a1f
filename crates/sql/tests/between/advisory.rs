//! Advisory locks: who has them, who waits, and what becomes of them.

use std::sync::Arc;
use std::thread;

use crate::common::{all, code, connect, database, run};
use polychron_base::clock::Duration;
use polychron_engine::Protocol;
use polychron_sql::{Connection, SqlDatabase};

fn pair<P: Protocol>() -> (Arc<SqlDatabase<P>>, Connection<P>, Connection<P>) {
    let database = database::<P>();
    let (one, other) = (connect(&database), connect(&database));
    (database, one, other)
}

#[track_caller]
fn is_free<P: Protocol>(connection: &mut Connection<P>, key: &str) -> bool {
    let tried = run(connection, &format!("SELECT pg_try_advisory_xact_lock({key})")).unwrap();
    tried == "t"
}

/// Waits until somebody waits for a lock.
fn until_waiting<P: Protocol>(watcher: &mut Connection<P>, count: usize) {
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    while run(watcher, waiting).unwrap() != count.to_string() {
        thread::sleep(Duration::from_millis(1));
    }
}

fn taken_and_given_back<P: Protocol>() {
    let (_database, mut one, mut other) = pair::<P>();
    all(&mut one, &["SELECT pg_advisory_lock(1), pg_advisory_lock_shared(2, 3), pg_advisory_xact_lock(5)"]);
    let seen = "SELECT classid, objid, objsubid, mode, granted, pid = pg_backend_pid() FROM pg_locks \
                WHERE locktype = 'advisory' ORDER BY classid, objid";
    assert_eq!(run(&mut one, seen).unwrap(), "0|1|1|ExclusiveLock|t|t\n2|3|2|ShareLock|t|t", "{}", P::NAME);
    assert_eq!(run(&mut one, "SELECT pg_try_advisory_lock(1)").unwrap(), "t");
    assert!(!is_free(&mut other, "1") && !is_free(&mut other, "2, 3") && is_free(&mut other, "5"));
    assert_eq!(run(&mut other, "SELECT pg_try_advisory_lock_shared(2, 3)").unwrap(), "t");
    // One number and two are other locks.
    assert!(is_free(&mut other, "8589934595"));
    let outcome =
        one.execute("SELECT pg_advisory_unlock(1), pg_advisory_unlock(1), pg_advisory_unlock(1)", &[]).unwrap();
    let notices: Vec<_> = outcome.notices.iter().map(|it| (it.severity, it.message.as_str())).collect();
    assert_eq!(notices, [("WARNING", "you don't own a lock of type ExclusiveLock")], "{}", P::NAME);
    let shown: Vec<_> = outcome.texts().flatten().flatten().collect();
    assert_eq!(shown, ["t", "t", "f"]);
    assert!(is_free(&mut other, "1"));
    all(&mut one, &["SELECT pg_advisory_lock(7)", "SELECT pg_advisory_unlock_all()", "SELECT pg_advisory_lock(NULL)"]);
    assert!(is_free(&mut other, "7"));
    all(&mut one, &["SELECT pg_advisory_lock(8)"]);
    drop(one);
    assert!(is_free(&mut other, "8"), "{}", P::NAME);
    all(&mut other, &["SELECT pg_advisory_lock(9)", "DISCARD ALL"]);
    assert_eq!(run(&mut other, seen).unwrap(), "", "{}", P::NAME);
}

fn of_transactions<P: Protocol>() {
    let (_database, mut one, mut other) = pair::<P>();
    all(&mut one, &["BEGIN", "SELECT pg_advisory_xact_lock(1)", "SAVEPOINT s", "SELECT pg_advisory_xact_lock(2)"]);
    all(&mut one, &["SELECT pg_advisory_lock(3)"]);
    one.park();
    assert!(["1", "2", "3"].iter().all(|key| !is_free(&mut other, key)), "a parked transaction keeps its locks");
    all(&mut one, &["ROLLBACK TO s"]);
    assert_eq!(["1", "2", "3"].map(|key| is_free(&mut other, key)), [false, true, false], "{}", P::NAME);
    all(&mut one, &["COMMIT"]);
    assert_eq!(["1", "3"].map(|key| is_free(&mut other, key)), [true, false]);
    all(&mut one, &["BEGIN", "SELECT pg_advisory_xact_lock(1)"]);
    assert_eq!(code(run(&mut one, "SELECT 1 / 0")), "22012");
    assert!(is_free(&mut other, "1"), "the error has ended the transaction");
    all(&mut one, &["ROLLBACK"]);
    // What a session locks stays where its statement fails.
    assert_eq!(
        code(run(
            &mut one,
            "SELECT pg_advisory_lock(4), pg_advisory_xact_lock(5), 1 / (n - 1) FROM generate_series(1, 1) n"
        )),
        "22012"
    );
    assert_eq!(["4", "5"].map(|key| is_free(&mut other, key)), [false, true], "{}", P::NAME);
}

/// Who waits gets the lock when it is free, and sees what was committed before.
fn waited_for<P: Protocol>() {
    let (database, mut one, mut other) = pair::<P>();
    all(&mut one, &["CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 0)"]);
    all(&mut one, &["SELECT pg_advisory_lock(1)"]);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            run(&mut other, "SELECT pg_advisory_lock(1); SELECT n FROM t; SELECT pg_advisory_unlock(1)").unwrap();
            run(&mut other, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
                .unwrap()
        });
        let mut watcher = connect(&database);
        until_waiting(&mut watcher, 1);
        all(&mut one, &["UPDATE t SET n = 7", "SELECT pg_advisory_unlock(1)"]);
        assert_eq!(waiter.join().unwrap(), "0", "{}", P::NAME);
    });
}

/// A transaction that begins with a wait reads what was committed meanwhile, and locks once.
fn waited_for_in_a_transaction<P: Protocol>() {
    let (database, mut one, mut other) = pair::<P>();
    all(&mut one, &["CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 0)"]);
    all(&mut one, &["SELECT pg_advisory_lock(1)"]);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            all(&mut other, &["BEGIN", "SELECT pg_advisory_xact_lock(2)", "SELECT pg_advisory_xact_lock(1)"]);
            let read = run(&mut other, "SELECT n FROM t").unwrap();
            all(&mut other, &["UPDATE t SET n = n + 1", "COMMIT"]);
            read
        });
        let mut watcher = connect(&database);
        until_waiting(&mut watcher, 1);
        all(&mut one, &["UPDATE t SET n = 7", "SELECT pg_advisory_unlock(1)"]);
        assert_eq!(waiter.join().unwrap(), "7", "{}", P::NAME);
    });
    assert_eq!(run(&mut one, "SELECT n FROM t").unwrap(), "8");
    assert!(is_free(&mut one, "1") && is_free(&mut one, "2"));
}

/// A wait ends with its time, or when it is cancelled, and leaves nothing.
fn waits_end<P: Protocol>() {
    let (database, mut one, mut other) = pair::<P>();
    all(&mut one, &["SELECT pg_advisory_lock(1)"]);
    all(&mut other, &["SET lock_timeout = '20ms'"]);
    assert_eq!(code(run(&mut other, "SELECT pg_advisory_lock(1)")), "55P03", "{}", P::NAME);
    all(&mut other, &["SET lock_timeout = 0", "SET statement_timeout = '20ms'"]);
    assert_eq!(code(run(&mut other, "SELECT pg_advisory_lock_shared(1)")), "57014");
    all(&mut other, &["SET statement_timeout = 0"]);
    let handle = other.cancel_handle();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| code(run(&mut other, "SELECT pg_advisory_xact_lock(1)")));
        let mut watcher = connect(&database);
        until_waiting(&mut watcher, 1);
        assert!(handle.cancel());
        assert_eq!(waiter.join().unwrap(), "57014", "{}", P::NAME);
        until_waiting(&mut watcher, 0);
    });
    all(&mut one, &["SELECT pg_advisory_unlock(1)"]);
    assert!(is_free(&mut other, "1"));
}

/// A savepoint is there behind a wait that has ended with its time.
fn waits_end_behind_savepoints<P: Protocol>() {
    let (_database, mut one, mut other) = pair::<P>();
    all(&mut one, &["CREATE TABLE t (id int PRIMARY KEY)", "SELECT pg_advisory_lock(1)"]);
    all(&mut other, &["SET lock_timeout = '20ms'", "BEGIN", "INSERT INTO t VALUES (1)", "SAVEPOINT s"]);
    assert_eq!(code(run(&mut other, "SELECT pg_advisory_xact_lock(1)")), "55P03");
    all(&mut other, &["ROLLBACK TO s", "INSERT INTO t VALUES (2)", "COMMIT"]);
    assert_eq!(run(&mut other, "SELECT count(*) FROM t").unwrap(), "2", "{}", P::NAME);
}

fn deadlocks<P: Protocol>() {
    let (database, mut one, mut other) = pair::<P>();
    all(&mut one, &["SET lock_timeout = 0", "SELECT pg_advisory_lock(1)"]);
    all(&mut other, &["SET lock_timeout = 0", "SELECT pg_advisory_lock(2)"]);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| run(&mut other, "SELECT pg_advisory_lock(1)"));
        let mut watcher = connect(&database);
        until_waiting(&mut watcher, 1);
        assert_eq!(code(run(&mut one, "SELECT pg_advisory_lock(2)")), "40P01", "{}", P::NAME);
        all(&mut one, &["SELECT pg_advisory_unlock(1)"]);
        waiter.join().unwrap().unwrap();
    });
}

/// A statement that is run again has locked once.
fn locked_once<P: Protocol>() {
    const CLIENTS: i32 = 4;
    let (database, mut one, mut other) = pair::<P>();
    all(&mut one, &["CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 0)"]);
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let database = &database;
            scope.spawn(move || {
                let mut own = connect(database);
                for _ in 0..30 {
                    let text = format!("UPDATE t SET n = n + 1; SELECT pg_advisory_lock({client})");
                    while let Err(error) = run(&mut own, &text) {
                        // What the session has locked stays.
                        assert_eq!(error.state().code(), "40001", "{error}");
                        run(&mut own, &format!("SELECT pg_advisory_unlock({client})")).unwrap();
                    }
                    let unlocked = format!("SELECT pg_advisory_unlock({client})");
                    assert_eq!(run(&mut own, &unlocked).unwrap(), "t");
                    assert_eq!(run(&mut own, &unlocked).unwrap(), "f", "{}", P::NAME);
                }
            });
        }
    });
    assert_eq!(run(&mut other, "SELECT n FROM t").unwrap(), (CLIENTS * 30).to_string());
}

mod on_each_protocol {
    use polychron_protocols::bohm::Bohm;
    use polychron_protocols::serial::Serial;

    on_each_protocol! {
        taken_and_given_back, Serial, Bohm;
        of_transactions;
        waited_for, Serial, Bohm;
        waited_for_in_a_transaction, Serial;
        waits_end, Serial, Bohm;
        waits_end_behind_savepoints, Serial;
        deadlocks, Serial, Bohm;
        locked_once, Serial, Bohm;
    }
}
