//! Transactions that conflict again and again.

use std::sync::mpsc::channel;

use polychron_engine::contested::CONFLICTS_UNFAVOURED;
use polychron_engine::drive;

use super::*;

/// A transaction that reads accounts 0 and 1 and writes those that it is told to, and that another client overtakes at each attempt, at one of the two
/// in turns. Account 7 is written meanwhile as well.
fn overtaken_at_each_attempt(written: &'static [u64]) {
    let bank = Bank::new(Backend::Rows);
    let accounts = bank.accounts;
    let (mut unlucky, mut other) = (bank.worker(), bank.worker());
    let ((go, going), (overtaken, was_overtaken)) = (channel::<u64>(), channel());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for row in going {
                let mut act = |id: u64| {
                    let mut t = other.begin(Mode::ReadWrite).unwrap();
                    let change = |row: &mut AccountMut<'_>| row.set_balance(row.balance() + 1);
                    t.update(&accounts, id, change).is_ok() && t.commit().is_ok()
                };
                let has_overtaken = act(row);
                assert!(act(7), "no transaction has conflicted at this row");
                overtaken.send(has_overtaken).unwrap();
            }
        });
        for _ in 0..4 {
            let (mut attempts, mut last) = (0, true);
            let mut body = |t: &mut Tx<'_>| {
                attempts += 1;
                assert!(attempts <= 8 * CONFLICTS_UNFAVOURED, "it starves");
                for id in 0..2 {
                    t.get(&accounts, id)?;
                }
                go.send(attempts % 2).unwrap();
                last = was_overtaken.recv().unwrap();
                written
                    .iter()
                    .try_for_each(|&id| t.update(&accounts, id, |row| row.set_credit(Some(attempts as i64))).map(drop))
            };
            drive::transact(&mut unlucky, Mode::ReadWrite, &mut body).unwrap();
            assert!(!last, "the other client makes way for the favoured transaction");
            assert!(attempts <= CONFLICTS_UNFAVOURED + 2, "{attempts} attempts");
            // The favour ended with the transaction.
            go.send(0).unwrap();
            assert!(was_overtaken.recv().unwrap());
        }
        drop(go);
    });
}

#[test]
fn a_transaction_whose_rows_others_write_commits_soon() {
    overtaken_at_each_attempt(&[0, 1]);
}

/// What it conflicts with is found at its commit.
#[test]
fn a_transaction_whose_reads_others_overwrite_commits_soon() {
    overtaken_at_each_attempt(&[5]);
}

/// Who had begun before is waited for under the same favour, and nobody else begins to write the row meanwhile.
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
        assert!(is_done(), "the row is left to who has conflicted there");
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        assert!(t.update(&accounts, 1, |row| row.set_credit(Some(1))).unwrap());
        t.commit().unwrap();
        go.send(()).unwrap();
        assert!(is_done(), "the favour has ended");
    });
}

/// The favour ends with a transaction that is dropped or leaked, and with its worker; and a transaction of the favoured one's own thread, which
/// it would wait for, does not make way.
#[test]
fn the_favour_ends_with_the_transaction() {
    let bank = Bank::new(Backend::Rows);
    let accounts = bank.accounts;
    let (mut worker, mut own) = (bank.worker(), bank.worker());
    let write = |worker: &mut HyperWorker| {
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        t.upsert(&accounts, &account(1)).is_ok() && t.commit().is_ok()
    };
    let other_writes = || {
        let mut other = bank.worker();
        std::thread::scope(|scope| scope.spawn(|| write(&mut other)).join().unwrap())
    };
    assert!(other_writes());
    for leaks in [false, true] {
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        t.get(&accounts, 1).unwrap();
        assert!(other_writes());
        assert!(t.update(&accounts, 1, |row| row.set_balance(5)).is_err());
        drop(t);
        worker.back_off(CONFLICTS_UNFAVOURED);
        let t = worker.begin(Mode::ReadWrite).unwrap();
        assert!(!other_writes(), "the row is left to the transaction that has conflicted there");
        assert!(write(&mut own), "it waits for its own thread");
        if leaks {
            std::mem::forget(t);
            worker.tidy_up();
        } else {
            drop(t);
        }
        assert!(other_writes());
    }
    worker.back_off(CONFLICTS_UNFAVOURED);
    drop(worker);
    assert!(other_writes(), "a worker that is gone is not favoured");
}
