//! Read-only transactions, which read the present or a snapshot.

use std::sync::Arc;

use crate::common::{all, run};
use polychron_engine::{Common, Interactive, Protocol};
use polychron_protocols::lazy::Lazy;
use polychron_protocols::{cicada::Cicada, hyper::Hyper, locking::Locking, maflingo::Maflingo, serial::Serial};
use polychron_sql::{Connection, SqlDatabase};

#[track_caller]
fn code<P: Protocol<Worker: Interactive>>(connection: &mut Connection<P>, text: &str) -> Option<&'static str> {
    run(connection, text).err().map(|error| error.state().code())
}

fn connections<P: Protocol<Worker: Interactive>>() -> [Connection<P>; 2] {
    let database: Arc<_> = SqlDatabase::open(P::open(P::Options::default(), Common::default()).unwrap());
    let mut both = [(); 2].map(|()| Connection::open(&database).unwrap());
    both.iter_mut().for_each(|it| all(it, &["SET park_after = 0"]));
    all(&mut both[0], &["CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1), (2, 1)"]);
    both
}

fn changes_are_refused<P: Protocol<Worker: Interactive>>() {
    for freshness in ["strict", "recent"] {
        let [mut one, mut other] = connections::<P>();
        all(&mut one, &[&format!("SET read_only_freshness = {freshness}"), "UPDATE t SET v = 5 WHERE id = 1"]);
        assert_eq!(run(&mut one, "SHOW read_only_freshness").unwrap(), freshness);
        for begin in [&["BEGIN READ ONLY"][..], &["BEGIN", "SET TRANSACTION READ ONLY"]] {
            all(&mut one, begin);
            // What the session itself has committed is there.
            assert_eq!(run(&mut one, "SELECT v FROM t ORDER BY id").unwrap(), "5\n1", "{}", P::NAME);
            assert_eq!(code(&mut one, "UPDATE t SET v = 0"), Some("25006"), "{}", P::NAME);
            all(&mut one, &["ROLLBACK"]);
        }
        all(&mut one, &["BEGIN READ ONLY", "SELECT v FROM t"]);
        assert_eq!(code(&mut one, "SET TRANSACTION READ WRITE"), Some("25001"), "{}", P::NAME);
        all(
            &mut one,
            &["ROLLBACK", "BEGIN READ ONLY", "SET TRANSACTION READ WRITE", "UPDATE t SET v = 6 WHERE id = 1"],
        );
        all(&mut one, &["SET TRANSACTION READ ONLY", "SELECT v FROM t"]);
        assert_eq!(code(&mut one, "DELETE FROM t"), Some("25006"));
        all(&mut one, &["ROLLBACK", "SET default_transaction_read_only = on"]);
        for text in ["UPDATE t SET v = 0", "CREATE TABLE u (id int)", "SELECT 1; DELETE FROM t"] {
            assert_eq!(code(&mut one, text), Some("25006"), "{}: {text}", P::NAME);
        }
        assert_eq!(one.answer("DELETE FROM t", &[]).unwrap_err().state().code(), "25006");
        assert_eq!(run(&mut one, "SELECT sum(v) FROM t").unwrap(), "6");
        all(&mut one, &["BEGIN READ WRITE", "UPDATE t SET v = 7 WHERE id = 1", "COMMIT AND CHAIN"]);
        all(&mut one, &["UPDATE t SET v = 8 WHERE id = 1", "COMMIT", "SET default_transaction_read_only = off"]);
        assert_eq!(run(&mut other, "SELECT v FROM t WHERE id = 1").unwrap(), "8", "{}", P::NAME);
        assert_eq!(code(&mut one, "SET read_only_freshness = old"), Some("22023"));
        all(&mut one, &["BEGIN"]);
        assert_eq!(code(&mut one, "SET TRANSACTION SNAPSHOT '1'"), Some("0A000"));
        all(&mut one, &["ROLLBACK"]);
    }
}

#[test]
fn read_only_transactions_change_nothing() {
    changes_are_refused::<Cicada>();
    changes_are_refused::<Maflingo>();
    changes_are_refused::<Hyper>();
    changes_are_refused::<Locking>();
    changes_are_refused::<Serial>();
    changes_are_refused::<Lazy<Maflingo>>();
}

/// One state is seen from the first statement to the last, whatever others commit, and nothing conflicts.
fn a_snapshot_stays<P: Protocol<Worker: Interactive>>() {
    let [mut one, mut other] = connections::<P>();
    all(&mut one, &["SET read_only_freshness = recent", "SET replay = off", "BEGIN READ ONLY"]);
    assert_eq!(run(&mut one, "SELECT v FROM t WHERE id = 1").unwrap(), "1", "{}", P::NAME);
    all(&mut other, &["UPDATE t SET v = v + 1"]);
    assert_eq!(run(&mut one, "SELECT v FROM t ORDER BY id").unwrap(), "1\n1", "{}", P::NAME);
    all(&mut other, &["DELETE FROM t"]);
    assert_eq!(run(&mut one, "SELECT sum(v) FROM t").unwrap(), "2", "{}", P::NAME);
    all(&mut one, &["COMMIT"]);
    let conflicts = one.execute("SELECT count(*) FROM t", &[]).unwrap();
    assert_eq!(conflicts.count, 1);
}

#[test]
fn recent_transactions_are_snapshots() {
    a_snapshot_stays::<Cicada>();
    a_snapshot_stays::<Maflingo>();
    a_snapshot_stays::<Hyper>();
}
