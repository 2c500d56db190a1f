//! Aborts with and without need.

use super::*;
use crate::checker::{Aborts, examine};

/// How many of the aborts in this history no cycle explains.
#[track_caller]
fn unexplained(history: &History) -> usize {
    let (_, aborts) = examine(history, false);
    let Aborts { all, unexplained } = aborts.expect("the committed transactions have a serial order");
    assert_eq!(all, 1);
    unexplained
}

/// Two rows, a transaction that changes both, and one beside it that is aborted.
fn beside_a_writer(aborted: &[Operation]) -> History {
    let mut history = History::default();
    add(&mut history, 1, (0, 1), Outcome::Committed, &[insert(1, v(1, 1)), insert(2, v(1, 2))]);
    let changes = [write(1, v(2, 1), v(1, 1)), write(2, v(2, 2), v(1, 2)), insert(5, v(2, 3))];
    add(&mut history, 2, (2, 8), Outcome::Committed, &changes);
    add(&mut history, 3, (3, 9), Outcome::Aborted, aborted);
    history
}

#[test]
fn a_stale_read_alone_needs_no_abort() {
    assert_eq!(unexplained(&beside_a_writer(&[read(1, v(1, 1))])), 1);
    assert_eq!(unexplained(&beside_a_writer(&[read(1, v(1, 1)), read(2, v(1, 2)), absent(5)])), 1);
    assert_eq!(unexplained(&beside_a_writer(&[])), 1);
    // It writes where no other client is.
    assert_eq!(unexplained(&beside_a_writer(&[read(1, v(1, 1)), insert(7, v(3, 1))])), 1);
}

#[test]
fn what_would_have_closed_a_cycle_was_aborted_with_need() {
    // Parts of another transaction's effects.
    assert_eq!(unexplained(&beside_a_writer(&[read(1, v(1, 1)), read(2, v(2, 2))])), 0);
    assert_eq!(unexplained(&beside_a_writer(&[scan(3, 9, &[]), read(2, v(2, 2))])), 0);
    assert_eq!(unexplained(&beside_a_writer(&[absent(5), read(2, v(2, 2))])), 0);
    // A lost update, also where a conflict ended the write itself.
    assert_eq!(unexplained(&beside_a_writer(&[write(1, v(3, 1), v(1, 1))])), 0);
    assert_eq!(unexplained(&beside_a_writer(&[read(1, v(1, 1)), blind(2, v(3, 1))])), 0);
    // A second insertion.
    assert_eq!(unexplained(&beside_a_writer(&[insert(5, v(3, 1))])), 0);
    // What was never committed.
    assert_eq!(unexplained(&beside_a_writer(&[read(1, v(9, 1))])), 0);
}

#[test]
fn write_skew_was_aborted_with_need() {
    let mut history = History::default();
    add(&mut history, 1, (0, 1), Outcome::Committed, &[insert(1, v(1, 1)), insert(2, v(1, 2))]);
    add(&mut history, 2, (2, 8), Outcome::Committed, &[read(1, v(1, 1)), write(2, v(2, 1), v(1, 2))]);
    let mut phantoms = history.clone();
    add(&mut history, 3, (3, 9), Outcome::Aborted, &[read(2, v(1, 2)), write(1, v(3, 1), v(1, 1))]);
    assert_eq!(unexplained(&history), 0);
    add(&mut phantoms, 3, (2, 8), Outcome::Committed, &[scan(10, 19, &[]), insert(20, v(3, 1))]);
    add(&mut phantoms, 4, (3, 9), Outcome::Aborted, &[scan(20, 29, &[]), insert(10, v(4, 1))]);
    assert_eq!(unexplained(&phantoms), 0);
}

/// One that began only afterwards has nothing to do with it.
#[test]
fn later_transactions_explain_nothing() {
    let mut history = History::default();
    add(&mut history, 1, (0, 1), Outcome::Committed, &[insert(1, v(1, 1))]);
    add(&mut history, 2, (3, 4), Outcome::Aborted, &[write(1, v(2, 1), v(1, 1))]);
    add(&mut history, 3, (5, 6), Outcome::Committed, &[write(1, v(3, 1), v(1, 1))]);
    assert_eq!(unexplained(&history), 1);
}
