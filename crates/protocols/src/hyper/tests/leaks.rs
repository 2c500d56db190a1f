//! Transactions that safe code forgets instead of dropping them.

use std::mem;

use super::*;

/// Leaves a transaction behind that has updated, inserted and deleted, which no thread may ever see.
fn leak(bank: &Bank, worker: &mut HyperWorker, mode: Mode) {
    let accounts = bank.accounts;
    let mut t = worker.begin(mode).unwrap();
    assert!(t.get(&accounts, 1).unwrap().is_some());
    if mode == Mode::ReadWrite {
        assert!(t.update(&accounts, 1, |row| row.set_balance(-1)).unwrap());
        assert!(t.update(&accounts, 2, |row| row.set_owner(7)).unwrap());
        t.insert(&accounts, &account(100)).unwrap();
        assert!(t.delete(&accounts, 3).unwrap());
    }
    mem::forget(t);
}

/// The rows are what they were, in each index; they can be written, and what was retired is freed.
fn check(bank: &Bank) {
    let accounts = bank.accounts;
    assert!(bank.once(|t| {
        for id in 0..10 {
            assert_eq!(t.get(&accounts, id)?.map(|row| row.balance()), Some(account(id).balance));
        }
        assert!(t.get(&accounts, 100)?.is_none());
        assert_eq!(t.scan_by(&accounts, Account::BY_OWNER, 7).count()?, 0);
        assert_eq!(t.scan_by(&accounts, Account::BY_OWNER, 2).count()?, 2);
        for id in 1..4 {
            assert!(t.update(&accounts, id, |row| row.set_credit(Some(1)))?);
            assert!(t.update(&accounts, id, |row| row.set_credit(None))?);
        }
        t.insert(&accounts, &account(100))?;
        t.delete(&accounts, 100).map(drop)
    }));
    let epochs = bank.database.memory().epochs();
    let epoch = epochs.current();
    (0..3).for_each(|_| _ = epochs.advance());
    assert!(epochs.readonly() > epoch, "no pin was left behind");
    bank.worker().maintain();
    assert!(bank.metric("undo_buffers_kept") <= 2.0, "no read timestamp was left behind");
}

#[test]
fn what_was_forgotten_never_commits() {
    for mode in [Mode::ReadWrite, Mode::Snapshot] {
        // The next transaction commits nothing, or something, or is rolled back, or there is none and the worker goes or tidies up.
        for next in 0..6 {
            let bank = Bank::new(Backend::Rows);
            let (accounts, mut worker) = (bank.accounts, bank.worker());
            leak(&bank, &mut worker, mode);
            match next {
                0 => worker.begin(Mode::ReadWrite).unwrap().commit().unwrap(),
                1 => set_balance(&mut worker, &accounts, 1, account(1).balance),
                2 => _ = worker.begin(Mode::ReadWrite).unwrap().roll_back(),
                3 => drop(worker.begin(Mode::Snapshot).unwrap()),
                4 => worker.maintain(),
                _ => drop(worker),
            }
            check(&bank);
        }
    }
}

#[test]
fn others_meet_what_was_forgotten_until_its_worker_goes_on() {
    let bank = Bank::new(Backend::Rows);
    let (accounts, mut worker) = (bank.accounts, bank.worker());
    leak(&bank, &mut worker, Mode::ReadWrite);
    assert!(bank.once(|t| {
        assert_eq!(t.get(&accounts, 1)?.map(|row| row.balance()), Some(account(1).balance));
        Ok(())
    }));
    assert!(!bank.once(|t| t.update(&accounts, 1, |row| row.set_balance(5)).map(drop)));
    drop(worker);
    check(&bank);
}
