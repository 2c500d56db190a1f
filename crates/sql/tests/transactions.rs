//! Transactions of several connections, beside each other.

use std::thread;

use crate::common::{all, code, connect, database, run};
use polychron_engine::{Interactive, Protocol};
use polychron_protocols::{cicada::Cicada, hyper::Hyper, locking::Locking, maflingo::Maflingo, serial::Serial};
use polychron_sql::{Connection, SqlError, SqlState};

/// Runs texts up to the first that fails.
fn run_all<P: Protocol<Worker: Interactive>>(connection: &mut Connection<P>, texts: &[&str]) -> Result<(), SqlError> {
    texts.iter().try_for_each(|text| run(connection, text).map(drop))
}

fn with_two_accounts<P: Protocol<Worker: Interactive>>() -> [Connection<P>; 2] {
    let database = database::<P>();
    let [mut one, other] = [(); 2].map(|()| connect(&database));
    let text = "CREATE TABLE account (id bigint PRIMARY KEY, v bigint NOT NULL); INSERT INTO account VALUES (41, 10), (42, 10)";
    run(&mut one, text).unwrap();
    [one, other]
}

fn a_conflict_names_table_and_key<P: Protocol<Worker: Interactive>>() {
    let [mut one, mut other] = with_two_accounts::<P>();
    run_all(&mut one, &["BEGIN", "SELECT v FROM account WHERE id = 42"]).unwrap();
    run(&mut other, "UPDATE account SET v = 5 WHERE id = 42").unwrap();
    let error = run_all(&mut one, &["UPDATE account SET v = v + 1 WHERE id = 42", "COMMIT"]).unwrap_err();
    assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE, "{error}");
    let detail = error.detail().unwrap_or_default();
    assert!(detail.contains("account") && detail.contains("42"), "{}: {detail}", P::NAME);
    run(&mut one, "ROLLBACK").unwrap();
    assert_eq!(run(&mut one, "SELECT v FROM account ORDER BY id").unwrap(), "10\n5");
}

#[test]
fn conflicts_name_table_and_key() {
    a_conflict_names_table_and_key::<Cicada>();
    a_conflict_names_table_and_key::<Maflingo>();
    a_conflict_names_table_and_key::<Hyper>();
}

#[test]
fn an_error_of_reads_that_were_not_consistent_is_a_conflict() {
    let [mut one, mut other] = with_two_accounts::<Maflingo>();
    run_all(&mut one, &["BEGIN", "SELECT v FROM account WHERE id = 41"]).unwrap();
    run(&mut other, "UPDATE account SET v = 0").unwrap();
    let error = run(&mut one, "SELECT 1 / v FROM account WHERE id = 42").unwrap_err();
    assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE, "{error}");
    // With consistent reads it is the error that it seems to be.
    run_all(&mut one, &["ROLLBACK", "BEGIN"]).unwrap();
    let error = run(&mut one, "SELECT 1 / v FROM account WHERE id = 42").unwrap_err();
    assert_eq!(error.state(), SqlState::DIVISION_BY_ZERO, "{error}");
    assert_eq!(run(&mut one, "SELECT 1").unwrap_err().state(), SqlState::IN_FAILED_TRANSACTION);
    assert_eq!(one.execute("COMMIT", &[]).unwrap().tag, "ROLLBACK");
}

#[test]
fn after_a_conflict_no_savepoint_helps() {
    let [mut one, mut other] = with_two_accounts::<Hyper>();
    run_all(&mut one, &["SET replay = off", "BEGIN", "UPDATE account SET v = 1 WHERE id = 41", "SAVEPOINT s"]).unwrap();
    run(&mut other, "UPDATE account SET v = 5 WHERE id = 42").unwrap();
    for text in ["UPDATE account SET v = 2 WHERE id = 42", "ROLLBACK TO s"] {
        let error = run(&mut one, text).unwrap_err();
        assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE, "{text}: {error}");
        assert!(error.detail().is_some_and(|detail| detail.contains("account")), "{text}: {error}");
    }
    assert_eq!(run(&mut one, "SELECT 1").unwrap_err().state(), SqlState::IN_FAILED_TRANSACTION);
    assert_eq!(one.execute("COMMIT", &[]).unwrap().tag, "ROLLBACK");
    assert_eq!(run(&mut one, "SELECT v FROM account ORDER BY id").unwrap(), "10\n5");
}

#[test]
fn a_connection_that_is_dropped_rolls_its_transaction_back() {
    let [mut one, mut other] = with_two_accounts::<Maflingo>();
    run_all(&mut one, &["BEGIN", "UPDATE account SET v = 0"]).unwrap();
    drop(one);
    assert_eq!(run(&mut other, "SELECT sum(v) FROM account").unwrap(), "20");
}

#[test]
fn a_transaction_that_waits_for_its_own_thread_ends() {
    let [mut one, mut other] = with_two_accounts::<Locking>();
    run_all(&mut one, &["BEGIN", "UPDATE account SET v = 0 WHERE id = 41"]).unwrap();
    let error = run(&mut other, "UPDATE account SET v = 1 WHERE id = 41").unwrap_err();
    assert!([SqlState::DEADLOCK_DETECTED, SqlState::SERIALIZATION_FAILURE].contains(&error.state()), "{error}");
    run(&mut one, "COMMIT").unwrap();
    assert_eq!(run(&mut other, "SELECT v FROM account ORDER BY id").unwrap(), "0\n10");
}

fn a_connection_goes_to_other_threads<P: Protocol<Worker: Interactive>>() {
    let [mut one, mut other] = with_two_accounts::<P>();
    // Between its transactions it is used anywhere.
    let mut one = thread::scope(|scope| {
        let elsewhere = scope.spawn(move || {
            run_all(&mut one, &["BEGIN", "UPDATE account SET v = 11 WHERE id = 41", "COMMIT"]).unwrap();
            one
        });
        elsewhere.join().unwrap()
    });
    // Inside of one it answers in its own thread alone.
    run_all(&mut one, &["BEGIN", "UPDATE account SET v = 12 WHERE id = 41"]).unwrap();
    let mut one = thread::scope(|scope| {
        let elsewhere = scope.spawn(move || {
            for text in ["SELECT v FROM account", "COMMIT", "ROLLBACK"] {
                let error = run(&mut one, text).unwrap_err();
                assert_eq!(error.state(), SqlState::FEATURE_NOT_SUPPORTED, "{}, {text}: {error}", P::NAME);
            }
            one
        });
        elsewhere.join().unwrap()
    });
    assert_eq!(run(&mut one, "SELECT v FROM account WHERE id = 41").unwrap(), "12");
    run_all(&mut one, &["COMMIT", "BEGIN", "UPDATE account SET v = 13 WHERE id = 41"]).unwrap();
    // Dropped elsewhere it leaves its transaction to this thread, whose next one ends it.
    thread::scope(|scope| scope.spawn(move || drop(one)).join().unwrap());
    run_all(&mut other, &["BEGIN", "UPDATE account SET v = v + 1 WHERE id = 41", "COMMIT"]).unwrap();
    assert_eq!(run(&mut other, "SELECT v FROM account WHERE id = 41").unwrap(), "13");
}

#[test]
fn connections_go_to_other_threads() {
    a_connection_goes_to_other_threads::<Cicada>();
    a_connection_goes_to_other_threads::<Maflingo>();
    a_connection_goes_to_other_threads::<Hyper>();
    a_connection_goes_to_other_threads::<Locking>();
    a_connection_goes_to_other_threads::<Serial>();
}

fn a_leaked_transaction_ends_with_its_thread<P: Protocol<Worker: Interactive>>() {
    let [mut one, mut other] = with_two_accounts::<P>();
    let leaking = thread::spawn(move || {
        run_all(&mut one, &["BEGIN", "UPDATE account SET v = 0"]).unwrap();
        std::mem::forget(one);
    });
    leaking.join().unwrap();
    run(&mut other, "UPDATE account SET v = v + 1").unwrap();
    assert_eq!(run(&mut other, "SELECT sum(v) FROM account").unwrap(), "22", "{}", P::NAME);
}

#[test]
fn leaked_transactions_end_with_their_threads() {
    a_leaked_transaction_ends_with_its_thread::<Cicada>();
    a_leaked_transaction_ends_with_its_thread::<Maflingo>();
    a_leaked_transaction_ends_with_its_thread::<Hyper>();
    a_leaked_transaction_ends_with_its_thread::<Locking>();
    a_leaked_transaction_ends_with_its_thread::<Serial>();
}

const ACCOUNTS: u64 = 8;
const TRANSFERS: u64 = 150;
const READS: u64 = 200;
/// How often a client begins a transfer again.
const TRIES: u64 = 100;

/// One transfer, as a text that the connection runs again, or as a transaction that the client holds and begins again: whether it was made.
fn transfer<P: Protocol<Worker: Interactive>>(connection: &mut Connection<P>, seed: u64, holds: bool) -> bool {
    let (from, to, amount) = (seed % ACCOUNTS, (seed / 3 + 1) % ACCOUNTS, seed % 5 + 1);
    let texts = [
        format!("UPDATE account SET balance = balance - {amount} WHERE id = {from}"),
        format!("UPDATE account SET balance = balance + {amount} WHERE id = {to}"),
    ];
    if !holds {
        let outcome = connection.execute(&texts.join(";"), &[]).unwrap();
        assert_eq!(outcome.tag, "UPDATE 1");
        return true;
    }
    (0..TRIES).any(|_| {
        let ended = run_all(connection, &["BEGIN", &texts[0], &texts[1], "COMMIT"]);
        let Err(error) = ended else { return true };
        assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE, "{}: {error}", P::NAME);
        run(connection, "ROLLBACK").unwrap();
        thread::yield_now();
        false
    })
}

fn sums_hold<P: Protocol<Worker: Interactive>>() {
    let database = database::<P>();
    let mut connection = connect(&database);
    run(&mut connection, "CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL)").unwrap();
    for id in 0..ACCOUNTS {
        run(&mut connection, &format!("INSERT INTO account VALUES ({id}, 100)")).unwrap();
    }
    let total = (100 * ACCOUNTS).to_string();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let database = &database;
                scope.spawn(move || {
                    let mut connection = connect(database);
                    let made = |number: &u64| transfer(&mut connection, number * 7 + client * 13, client % 2 == 1);
                    (0..TRANSFERS).filter(made).count()
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let mut connection = connect(&database);
            for _ in 0..READS {
                assert_eq!(run(&mut connection, "SELECT sum(balance) FROM account").unwrap(), total, "{}", P::NAME);
                thread::yield_now();
            }
        });
        let made: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        reader.join().unwrap();
        let made: Vec<_> = made.into_iter().map(Result::unwrap).collect();
        assert_eq!((made[0], made[2]), (TRANSFERS as usize, TRANSFERS as usize), "{}", P::NAME);
        assert!(made[1] + made[3] > 0, "{}: {made:?}", P::NAME);
    });
    let outcome = connection.execute("SELECT sum(balance), count(*) FROM account", &[]).unwrap();
    assert_eq!(outcome.texts().next().unwrap(), [Some(total), Some(ACCOUNTS.to_string())]);
}

macro_rules! sums_hold {
    ($($name:ident $protocol:ty;)*) => {$(
        #[test]
        fn $name() {
            sums_hold::<$protocol>();
        }
    )*};
}

sums_hold! {
    sums_hold_on_serial Serial;
    sums_hold_on_cicada Cicada;
    sums_hold_on_maflingo Maflingo;
    sums_hold_on_hyper Hyper;
    sums_hold_on_locking Locking;
}

/// Panics with the first answer that it gets.
fn panic_at_first<P: Protocol<Worker: Interactive>>(connection: &mut Connection<P>, text: &str) {
    let run = std::panic::AssertUnwindSafe(|| {
        connection.execute_each(text, &[], &mut |outcome| panic!("a test has got {}", outcome.tag))
    });
    std::panic::catch_unwind(run).unwrap_err();
}

/// Where answers are given to a closure that panics, nothing of the text is committed, and no table stays in use.
fn a_panic_ends_the_text<P: Protocol<Worker: Interactive>>() {
    let database = database::<P>();
    let [mut one, mut other] = [(); 2].map(|()| connect(&database));
    run(&mut one, "CREATE TABLE t (a int PRIMARY KEY)").unwrap();
    let count = "SELECT count(*) FROM t";
    panic_at_first(&mut one, "INSERT INTO t VALUES (1); SHOW lock_timeout; INSERT INTO t VALUES (2)");
    assert!(!one.is_in_transaction());
    assert_eq!(run(&mut one, count).unwrap(), "0", "{}", P::NAME);
    panic_at_first(&mut one, "SET lock_timeout = '20ms'; INSERT INTO t VALUES (1)");
    assert_eq!(run(&mut one, "SHOW lock_timeout").unwrap(), "10s");
    panic_at_first(&mut one, "CREATE TABLE u (a int); INSERT INTO u VALUES (1)");
    assert_eq!(run(&mut one, "SELECT * FROM u").unwrap_err().state(), SqlState::UNDEFINED_TABLE);
    // What has committed before its answers are given stays.
    panic_at_first(&mut one, "INSERT INTO t VALUES (3); SELECT * FROM t");
    run_all(&mut other, &["SET lock_timeout = '20ms'", "ALTER TABLE t ADD COLUMN b int"]).unwrap();
    assert_eq!(run(&mut other, count).unwrap(), "1");
    // A transaction that the client has begun stays the client's.
    panic_at_first(&mut one, "BEGIN; INSERT INTO t VALUES (4)");
    assert!(one.is_in_transaction());
    assert_eq!(one.execute("ROLLBACK", &[]).unwrap().tag, "ROLLBACK");
    assert_eq!(run(&mut one, count).unwrap(), "1");
}

#[test]
fn panics_of_who_gets_answers_end_the_text() {
    a_panic_ends_the_text::<Serial>();
    a_panic_ends_the_text::<Cicada>();
    a_panic_ends_the_text::<Maflingo>();
}

/// A return to a savepoint opens the tables that were closed behind it, and no others.
fn tables_are_opened<P: Protocol<Worker: Interactive>>() {
    let database = database::<P>();
    let (mut one, mut other) = (connect(&database), connect(&database));
    all(
        &mut one,
        &["CREATE TABLE t (a int PRIMARY KEY)", "CREATE TABLE u (a int PRIMARY KEY)", "INSERT INTO t VALUES (1)"],
    );
    all(
        &mut one,
        &["BEGIN", "ALTER TABLE u ADD COLUMN x int", "SAVEPOINT s", "ALTER TABLE t ADD COLUMN x int", "ROLLBACK TO s"],
    );
    all(&mut other, &["SELECT a FROM t", "SET lock_timeout = 50"]);
    assert_eq!(code(run(&mut other, "SELECT a FROM u")), "55P03", "{}", P::NAME);
    // A definition that has to wait for a table in vain opens none of the others.
    all(&mut other, &["BEGIN", "SELECT a FROM t"]);
    all(&mut one, &["SET lock_timeout = 50"]);
    assert_eq!(code(run(&mut one, "ALTER TABLE t ADD COLUMN x int")), "55P03", "{}", P::NAME);
    all(&mut one, &["ROLLBACK TO s"]);
    all(&mut other, &["COMMIT"]);
    assert_eq!(code(run(&mut other, "SELECT a FROM u")), "55P03", "{}", P::NAME);
    all(&mut one, &["COMMIT"]);
    all(&mut other, &["SELECT x FROM u", "INSERT INTO t VALUES (2)"]);
}

#[test]
fn a_return_to_a_savepoint_opens_tables() {
    tables_are_opened::<Cicada>();
    tables_are_opened::<Maflingo>();
}

#[test]
fn what_is_said_of_a_transaction_behind_a_savepoint_is_undone() {
    let database = database::<Cicada>();
    let mut one = connect(&database);
    all(&mut one, &["CREATE TABLE t (a int PRIMARY KEY)"]);
    for end in ["ROLLBACK TO s", "RELEASE s"] {
        all(&mut one, &["BEGIN", "SAVEPOINT s", "SET TRANSACTION READ ONLY", "SAVEPOINT r", "ROLLBACK TO r"]);
        assert_eq!(run(&mut one, "SHOW transaction_read_only").unwrap(), "on");
        all(&mut one, &[end]);
        assert_eq!(run(&mut one, "SHOW transaction_read_only").unwrap(), "off");
        all(&mut one, &["INSERT INTO t VALUES (1)", "ROLLBACK"]);
    }
}
