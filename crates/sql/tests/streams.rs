//! Long answers are given while their query runs: what the client has got is the answer of the transaction that commits, or the statement fails.

use crate::common::{all, connect, database, run};
use polychron_engine::{Interactive, Protocol};
use polychron_protocols::{cicada::Cicada, hyper::Hyper, maflingo::Maflingo};
use polychron_sql::{Connection, Datum, SqlError};

const ROWS: i64 = 20_000;
const ALL: &str = "SELECT id, v, filler FROM t ORDER BY id";

/// Two connections to a table with an answer of some MiB.
fn connections<P: Protocol<Worker: Interactive>>() -> [Connection<P>; 2] {
    let database = database();
    let [mut one, other] = [(); 2].map(|()| connect(&database));
    let fill = format!("INSERT INTO t SELECT g, 0, repeat('x', 200) FROM generate_series(1, {ROWS}) g");
    let texts = [
        "CREATE TABLE t (id int PRIMARY KEY, v int, filler text)",
        &fill,
        "CREATE TABLE u (id int PRIMARY KEY, v int)",
        "INSERT INTO u VALUES (1, 0)",
    ];
    all(&mut one, &texts);
    [one, other]
}

/// The whole answer, during which another connection does something once: before the client gets the first row.
fn streamed<P: Protocol<Worker: Interactive>>(
    [one, other]: &mut [Connection<P>; 2],
    text: &str,
    beside: &str,
) -> Result<Vec<(i64, i64)>, SqlError> {
    let (mut answer, mut beside) = (Vec::new(), Some(beside).filter(|text| !text.is_empty()));
    let rows = one.stream_query(text, &mut |columns, row| {
        assert_eq!(columns.len(), row.len());
        if let Some(text) = beside.take() {
            std::thread::scope(|scope| scope.spawn(|| all(other, &[text])).join().unwrap());
        }
        let (Datum::Int(id), Datum::Int(v)) = (row[0], row[1]) else { panic!("{row:?}") };
        answer.push((id, v));
        Ok(())
    })?;
    let rows = rows.expect("it is a query");
    assert_eq!((rows.given(), rows.len(), rows.count()), (answer.len() as u64, 0, answer.len() as u64));
    assert_eq!(rows.tag(), format!("SELECT {}", answer.len()));
    Ok(answer)
}

/// How often the client was told of a conflict.
fn conflicts<P: Protocol<Worker: Interactive>>(begin: &[&str], end: &[&str]) -> usize {
    let mut told = 0;
    let mut both = connections::<P>();
    let changes = [
        "UPDATE t SET v = v + 1 WHERE id = 1",
        "UPDATE t SET v = v + 1 WHERE id = 20000",
        "DELETE FROM t WHERE id = 3",
        "INSERT INTO t VALUES (0, 7, '')",
    ];
    for change in changes {
        let before = streamed(&mut both, ALL, "").unwrap();
        all(&mut both[0], begin);
        let answer = streamed(&mut both, ALL, change);
        let ended = end.iter().try_for_each(|text| run(&mut both[0], text).map(|_| ()));
        let after = streamed(&mut both, ALL, "").unwrap();
        assert_ne!(before, after);
        match answer.and_then(|answer| ended.map(|()| answer)) {
            // A transaction that saw half of the change would be in no order with it.
            Ok(answer) => assert!(answer == before || answer == after, "{}: {change}", P::NAME),
            Err(error) => {
                assert_eq!(error.state().code(), "40001", "{}: {change}: {error}", P::NAME);
                told += 1;
            }
        }
        all(&mut both[0], &["ROLLBACK"]);
    }
    told
}

#[test]
fn a_conflict_gives_no_half_answer() {
    for ends in [[&[][..], &[]], [&["BEGIN"], &["COMMIT"]], [&["BEGIN READ ONLY"], &["COMMIT"]]] {
        let [begin, end] = ends;
        // A long answer is read in a snapshot.
        assert_eq!(conflicts::<Cicada>(begin, end), 0);
        assert_eq!(conflicts::<Maflingo>(begin, end), 0);
        assert_eq!(conflicts::<Hyper>(begin, end), 0);
    }
    // Behind another statement it is not.
    conflicts::<Cicada>(&["BEGIN", "SELECT 1"], &["COMMIT"]);
    conflicts::<Hyper>(&["BEGIN", "SELECT 1"], &["COMMIT"]);
    // The last row alone had not been given.
    assert_eq!(conflicts::<Maflingo>(&["BEGIN", "SELECT 1"], &["COMMIT"]), 3);
}

/// A transaction with a long answer is run again like others.
fn is_run_again<P: Protocol<Worker: Interactive>>() {
    let mut both = connections::<P>();
    all(&mut both[0], &["BEGIN", "SELECT count(v) FROM u"]);
    assert_eq!(streamed(&mut both, ALL, "").unwrap().len() as i64, ROWS);
    all(&mut both[1], &["UPDATE u SET v = v + 1"]);
    all(&mut both[0], &["UPDATE u SET v = v + 100", "COMMIT"]);
    assert_eq!(run(&mut both[1], "SELECT v FROM u").unwrap(), "101", "{}", P::NAME);
    // Where the answer would be another one, that is told.
    all(&mut both[0], &["BEGIN", "SELECT count(v) FROM u"]);
    streamed(&mut both, ALL, "").unwrap();
    all(&mut both[1], &["UPDATE u SET v = v + 1", "UPDATE t SET v = 1 WHERE id = 17"]);
    let told = ["UPDATE u SET v = v + 100", "COMMIT"].iter().find_map(|text| run(&mut both[0], text).err());
    assert_eq!(told.unwrap().state().code(), "40001", "{}", P::NAME);
}

#[test]
fn transactions_with_long_answers_are_run_again() {
    is_run_again::<Cicada>();
    is_run_again::<Maflingo>();
    is_run_again::<Hyper>();
}

#[test]
fn short_answers_are_held_back_and_other_texts_are_not_touched() {
    let [mut one, _] = connections::<Cicada>();
    let give = &mut |_: &[_], _: &[Datum<'_>]| panic!("it is short");
    let rows = one.stream_query("SELECT id FROM t WHERE id < 4 ORDER BY id", give).unwrap().unwrap();
    assert_eq!((rows.len(), rows.given(), rows.tag().as_str()), (3, 0, "SELECT 3"));
    for text in ["", "SELECT 1; SELECT 2", "DELETE FROM t", "BEGIN", "SELEC", "EXPLAIN SELECT 1"] {
        assert!(one.stream_query(text, give).unwrap().is_none(), "{text}");
    }
    assert_eq!(run(&mut one, "SELECT count(*) FROM t").unwrap(), ROWS.to_string());
    assert_eq!(one.stream_query("SELECT 1 / 0", give).unwrap_err().state().code(), "22012");
}

/// A client that takes no more ends the query, and the transaction with it.
#[test]
fn a_client_that_is_gone_ends_its_query() {
    let [mut one, _] = connections::<Maflingo>();
    let mut count = 0;
    let gone = one.stream_query(ALL, &mut |_, _| {
        count += 1;
        if count > 100 { Err(std::io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    });
    assert_eq!((gone.unwrap_err().state().code(), count), ("58030", 101));
    assert!(!one.is_in_transaction());
    assert_eq!(run(&mut one, "SELECT count(*) FROM t").unwrap(), ROWS.to_string());
}
