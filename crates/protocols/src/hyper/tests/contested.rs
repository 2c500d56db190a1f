//! Transactions that conflict again and again.

use std::sync::mpsc::channel;

use polychron_engine::contested::CONFLICTS_UNFAVOURED;

use super::*;
use crate::contested_tests::{Deed, favour_ends_with_the_transaction, overtaken_at_each_attempt};

#[test]
fn a_transaction_whose_rows_others_write_commits_soon() {
    overtaken_at_each_attempt(&Bank::new(Backend::Rows).database, Deed::Update, &[0, 1]);
}

/// What it conflicts with is found at its commit.
#[test]
fn a_transaction_whose_reads_others_overwrite_commits_soon() {
    overtaken_at_each_attempt(&Bank::new(Backend::Rows).database, Deed::Update, &[5]);
}

/// A thread that had begun before is waited for under the same favour, and no other thread begins to write the row meanwhile.
#[test]
fn the_favour_outlasts_a_conflict_with_an_open_write() {
    let bank = Bank::new(Backend::Rows);
    let accounts = bank.accounts;
    let (mut worker, mut open, mut other) = (bank.worker(), bank.worker(), bank.worker());
    std::thread::scope(|scope| {
        let (go, going) = channel::<()>();
        let (done, is_done) = channel();
        scope.spawn(move || {
            let mut t = open.begin(Mode::ReadWrite).unwrap();
            assert!(t.update(&accounts, 1, |row| row.set_balance(5)).unwrap());
            done.send(true).unwrap();
            going.recv().unwrap();
            t.commit().unwrap();
            // From now on the row is left to the favoured transaction.
            let mut t = other.begin(Mode::ReadWrite).unwrap();
            done.send(t.update(&accounts, 1, |row| row.set_balance(6)).is_err()).unwrap();
            drop(t);
            going.recv().unwrap();
            let mut t = other.begin(Mode::ReadWrite).unwrap();
            done.send(t.update(&accounts, 1, |row| row.set_balance(7)).is_ok()).unwrap();
        });
        let is_done = || is_done.recv().unwrap();
        assert!(is_done());
        for attempts in 1..=CONFLICTS_UNFAVOURED + 2 {
            let mut t = worker.begin(Mode::ReadWrite).unwrap();
            assert!(t.update(&accounts, 1, |row| row.set_credit(Some(1))).is_err());
            drop(t);
            worker.back_off(attempts);
        }
        go.send(()).unwrap();
        assert!(is_done(), "the row is left to the transaction that has conflicted there");
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        assert!(t.update(&accounts, 1, |row| row.set_credit(Some(1))).unwrap());
        t.commit().unwrap();
        go.send(()).unwrap();
        assert!(is_done(), "the favour has ended");
    });
}

#[test]
fn the_favour_ends_with_the_transaction() {
    favour_ends_with_the_transaction(&Bank::new(Backend::Rows).database);
}
