//! LISTEN and NOTIFY: what is told, to whom, in which order, and that nothing is told of what was rolled back.

use std::sync::{Arc, Barrier};
use std::thread;

use crate::common::{all, code, connect, database, run};
use polychron_base::clock::Duration;
use polychron_engine::Protocol;
use polychron_protocols::cicada::Cicada;
use polychron_sql::{Connection, SqlDatabase};

fn heard<P: Protocol>(connection: &mut Connection<P>) -> Vec<String> {
    connection.notifications(usize::MAX).iter().map(|it| format!("{} {}", it.channel(), it.payload())).collect()
}

fn pair<P: Protocol>() -> (Arc<SqlDatabase<P>>, Connection<P>, Connection<P>) {
    let database = database::<P>();
    let (one, other) = (connect(&database), connect(&database));
    (database, one, other)
}

fn told_when_committed<P: Protocol>() {
    let (_database, mut one, mut other) = pair::<P>();
    all(&mut one, &["LISTEN a", "LISTEN A", "LISTEN \"B c\"", "NOTIFY a, 'own'"]);
    assert_eq!(run(&mut one, "SELECT * FROM pg_listening_channels()").unwrap(), "B c\na");
    assert_eq!(run(&mut one, "SELECT pg_listening_channels(), 1").unwrap(), "B c|1\na|1");
    assert_eq!(heard(&mut one), ["a own"], "{}", P::NAME);
    all(&mut other, &["NOTIFY a; NOTIFY a; NOTIFY a, 'x'; NOTIFY b; NOTIFY \"B c\", 'it''s'"]);
    assert_eq!(heard(&mut one), ["a ", "a x", "B c it's"], "{}", P::NAME);
    assert_eq!(heard(&mut other), [""; 0]);
    // A text is one transaction, which tells nothing where it fails.
    run(&mut other, "NOTIFY a, 'lost'; SELECT pg_notify('a', 'lost too'); SELECT 1 / 0").unwrap_err();
    run(&mut other, "SELECT pg_notify('a', n::text), 1 / (3 - n) FROM generate_series(1, 4) n").unwrap_err();
    assert_eq!(heard(&mut one), [""; 0], "{}", P::NAME);
    all(&mut other, &["SELECT pg_notify('a', n::text) FROM generate_series(1, 3) n", "SELECT pg_notify('a', NULL)"]);
    assert_eq!(heard(&mut one), ["a 1", "a 2", "a 3", "a "], "{}", P::NAME);
    all(&mut one, &["UNLISTEN a"]);
    all(&mut other, &["NOTIFY a", "NOTIFY \"B c\""]);
    all(&mut one, &["UNLISTEN *"]);
    assert_eq!((heard(&mut one), run(&mut one, "SELECT pg_listening_channels()").unwrap()), (vec![], String::new()));
}

fn refused<P: Protocol>() {
    let (_database, mut one, _) = pair::<P>();
    let mut refused = |text: &str| {
        let error = run(&mut one, text).unwrap_err();
        format!("{} {error}", error.state().code())
    };
    assert!(refused("SELECT pg_notify('', 'x')").contains("22023"), "{}", P::NAME);
    assert!(refused("SELECT pg_notify(NULL, 'x')").contains("channel name cannot be empty"));
    assert!(refused("SELECT pg_notify('a', repeat('x', 8000))").contains("payload string too long"));
    assert!(refused("SELECT pg_notify(repeat('c', 64), 'x')").contains("channel name too long"));
    assert!(refused("SELECT pg_notify('a')").contains("42883"));
    all(&mut one, &["SELECT pg_notify(repeat('c', 63), repeat('x', 7999))"]);
}

fn told_by_held_transactions<P: Protocol>() {
    let (_database, mut one, mut other) = pair::<P>();
    all(&mut one, &["BEGIN", "LISTEN a"]);
    assert_eq!(run(&mut one, "SELECT pg_listening_channels()").unwrap(), "");
    all(&mut one, &["ROLLBACK", "BEGIN", "LISTEN a", "NOTIFY a, 'first'", "SAVEPOINT s", "UNLISTEN a"]);
    all(&mut one, &["ROLLBACK TO s", "COMMIT"]);
    assert_eq!(heard(&mut one), ["a first"], "{}", P::NAME);
    all(&mut other, &["BEGIN", "NOTIFY a, '1'", "NOTIFY a, '2'", "SAVEPOINT s", "NOTIFY a, '3'", "NOTIFY a, '1'"]);
    all(&mut other, &["ROLLBACK TO s", "NOTIFY a, '1'", "NOTIFY a, '3'", "SELECT pg_notify('a', '4')"]);
    assert_eq!(heard(&mut one), [""; 0]);
    all(&mut other, &["COMMIT"]);
    assert_eq!(heard(&mut one), ["a 1", "a 2", "a 3", "a 4"], "{}", P::NAME);
    all(&mut other, &["BEGIN", "NOTIFY a, 'lost'", "ROLLBACK", "BEGIN", "NOTIFY a, 'lost'"]);
    assert_eq!(code(run(&mut other, "SELECT 1 / 0")), "22012");
    all(&mut other, &["COMMIT", "NOTIFY a, 'last'", "BEGIN", "NOTIFY a, 'dropped'"]);
    drop(other);
    assert_eq!(heard(&mut one), ["a last"], "{}", P::NAME);
}

/// Within a transaction nothing is heard; afterwards all of it is.
fn heard_between_transactions<P: Protocol>() {
    let (_database, mut one, mut other) = pair::<P>();
    all(&mut one, &["LISTEN a"]);
    all(&mut other, &["BEGIN", "LISTEN a"]);
    all(&mut one, &["NOTIFY a, '1'"]);
    all(&mut other, &["COMMIT"]);
    assert_eq!(heard(&mut other), [""; 0], "it came before the commit");
    all(&mut other, &["BEGIN"]);
    all(&mut one, &["NOTIFY a, '2'"]);
    assert_eq!((heard(&mut other), other.has_notifications()), (vec![], false));
    all(&mut other, &["ROLLBACK"]);
    assert!(other.has_notifications());
    assert_eq!(heard(&mut other), ["a 2"], "{}", P::NAME);
}

/// A transaction that is run again, after a conflict, a definition or because it was parked, tells once what it tells.
fn told_once<P: Protocol>() {
    let (_database, mut one, mut other) = pair::<P>();
    all(&mut one, &["CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 0), (2, 0)", "LISTEN a"]);
    all(&mut other, &["BEGIN", "NOTIFY a, '1'", "SELECT pg_notify('a', '2')", "CREATE TABLE u (id int)"]);
    all(&mut other, &["NOTIFY a, '3'"]);
    other.park();
    all(&mut other, &["NOTIFY a, '4'", "COMMIT"]);
    assert_eq!(heard(&mut one), ["a 1", "a 2", "a 3", "a 4"], "{}", P::NAME);
    // Others change a row that it writes without having read what they write.
    all(&mut other, &["BEGIN", "NOTIFY a, '5'", "UPDATE t SET n = n + 1 WHERE id = 1"]);
    other.park();
    all(&mut one, &["UPDATE t SET n = n + 1 WHERE id = 1"]);
    all(&mut other, &["SELECT pg_notify('a', '6')", "COMMIT"]);
    assert_eq!(heard(&mut one), ["a 5", "a 6"], "{}", P::NAME);
    assert_eq!(run(&mut one, "SELECT n FROM t WHERE id = 1").unwrap(), "2");
}

/// What a transaction tells comes behind what those have told whose writes it has read, however many commit at the same time.
fn told_in_the_order_of_commits<P: Protocol>() {
    const CLIENTS: usize = 4;
    const EACH: i32 = 40;
    let (database, mut one, mut other) = pair::<P>();
    all(&mut one, &["CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 0)", "LISTEN a"]);
    one.park();
    all(&mut other, &["SELECT 1"]);
    other.park();
    let barrier = Barrier::new(CLIENTS);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut own = connect(&database);
                barrier.wait();
                let mut done = 0;
                while done < EACH {
                    let text =
                        "UPDATE t SET n = n + 1 WHERE id = 1; SELECT pg_notify('a', n::text) FROM t WHERE id = 1";
                    match run(&mut own, text) {
                        Ok(_) => done += 1,
                        Err(error) => assert_eq!(error.state().code(), "40001", "{error}"),
                    }
                }
            });
        }
    });
    let wanted: Vec<_> = (1..=CLIENTS as i32 * EACH).map(|n| format!("a {n}")).collect();
    assert_eq!(heard(&mut one), wanted, "{}", P::NAME);
}

fn waited_for<P: Protocol>() {
    let (_database, mut one, mut other) = pair::<P>();
    all(&mut one, &["LISTEN a"]);
    assert_eq!(one.wait_for_notifications(Some(Duration::from_millis(1))).len(), 0);
    thread::scope(|scope| {
        scope.spawn(|| all(&mut other, &["NOTIFY a, 'come'"]));
        let told = one.wait_for_notifications(None);
        assert_eq!(told.iter().map(|it| it.payload()).collect::<Vec<_>>(), ["come"], "{}", P::NAME);
    });
}

mod on_each_protocol {
    use polychron_protocols::bohm::Bohm;
    use polychron_protocols::serial::Serial;

    on_each_protocol! {
        told_when_committed, Serial, Bohm;
        refused, Serial, Bohm;
        told_by_held_transactions, Serial;
        heard_between_transactions;
        told_once, Serial;
        told_in_the_order_of_commits, Serial, Bohm;
        waited_for, Serial, Bohm;
    }
}

/// A reader that does not read stops those who tell, and nobody loses anything.
#[test]
fn those_who_tell_are_refused_while_nobody_reads() {
    let (_database, mut one, mut other) = pair::<Cicada>();
    all(&mut one, &["LISTEN a"]);
    let mut told = 0;
    let refused = loop {
        let text = "SELECT pg_notify('a', n || repeat('x', 7900)) FROM generate_series(1, 1000) n";
        match run(&mut other, text) {
            Ok(_) => told += 1000,
            Err(error) => break error,
        }
        assert!(told < 20_000, "it has no bound");
    };
    assert_eq!(refused.state().code(), "54000");
    let usage: f64 = run(&mut other, "SELECT pg_notification_queue_usage()").unwrap().parse().unwrap();
    assert!(usage > 0.8 && usage <= 1.0, "{usage}");
    assert_eq!(heard(&mut one).len(), told);
    all(&mut other, &["NOTIFY a, 'again'"]);
    assert_eq!(heard(&mut one), ["a again"]);
    drop(one);
    assert_eq!(run(&mut other, "SELECT pg_notification_queue_usage()").unwrap(), "0");
}
