//! Pages without rows go back to memory, and their numbers are reused.

use std::collections::BTreeMap;

use polychron_sync::atomic::{AtomicBool, Ordering};
use polychron_sync::thread;

use super::*;
use crate::displaced_tests::{change, check};

/// More rows than three pages have places.
const ROWS: u64 = 3 * 1024 + 100;

fn open(backend: Backend, synopsis: Option<u32>) -> Bank {
    let memory = polychron_memory::Options { epoch_interval: None, ..polychron_memory::Options::tiny() };
    let options = Options { backend, synopsis, ..Options::default() };
    let database = Hyper::open(options, Common { memory, ..Common::default() }).unwrap();
    let accounts = Table::from_id(database.create_table(Account::definition()).unwrap());
    Bank { database, accounts }
}

/// Pages of each index's rows, and a number behind all of their slots.
fn pages(bank: &Bank) -> Vec<(usize, u64)> {
    let all = bank.database.shared.base.catalog.snapshot().1;
    let table = polychron_engine::catalog::known(&all, bank.accounts.id()).unwrap();
    table.stores().map(|store| (store.rows.pages(), store.rows.len())).collect()
}

fn fill(worker: &mut HyperWorker, accounts: &Table<Account>, ids: impl Iterator<Item = u64>) -> BTreeMap<u64, i64> {
    let ids: Vec<u64> = ids.collect();
    for some in ids.chunks(100) {
        change(worker, |t| some.iter().try_for_each(|id| t.insert(accounts, &account(*id))));
    }
    ids.into_iter().map(|id| (id, account(id).balance)).collect()
}

fn empty(worker: &mut HyperWorker, accounts: &Table<Account>, rows: &BTreeMap<u64, i64>) {
    let ids: Vec<u64> = rows.keys().copied().collect();
    for some in ids.chunks(100) {
        change(worker, |t| some.iter().try_for_each(|id| t.delete(accounts, *id).map(drop)));
    }
}

/// While a snapshot sees the rows their pages stay; then they leave, but for one with a row, and serve other rows, at the numbers that there
/// were.
#[test]
fn pages_leave_and_come_back() {
    for (backend, synopsis) in [(Backend::Rows, Some(16)), (Backend::Columns, Some(1024)), (Backend::Rows, None)] {
        let bank = open(backend, synopsis);
        let (mut worker, mut reader) = (bank.worker(), bank.worker());
        let mut rows = fill(&mut worker, &bank.accounts, 0..ROWS);
        let full = pages(&bank);
        let mut snapshot = reader.begin(Mode::Snapshot).unwrap();
        let kept = rows.remove(&(ROWS / 2)).map(|balance| (ROWS / 2, balance)).unwrap();
        empty(&mut worker, &bank.accounts, &rows);
        (0..3).for_each(|_| worker.maintain());
        assert_eq!(pages(&bank), full, "a snapshot sees them");
        rows.insert(kept.0, kept.1);
        check(&mut snapshot, &bank.accounts, &rows, ROWS);
        drop(snapshot);
        (0..3).for_each(|_| worker.maintain());
        assert!(pages(&bank).iter().all(|(pages, _)| *pages == 1), "{:?} of {full:?}", pages(&bank));
        let mut snapshot = reader.begin(Mode::Snapshot).unwrap();
        check(&mut snapshot, &bank.accounts, &BTreeMap::from([kept]), ROWS);
        drop(snapshot);
        let mut again = fill(&mut worker, &bank.accounts, (ROWS..2 * ROWS).step_by(2));
        again.insert(kept.0, kept.1);
        (0..3).for_each(|_| worker.maintain());
        let mut snapshot = reader.begin(Mode::Snapshot).unwrap();
        check(&mut snapshot, &bank.accounts, &again, 2 * ROWS);
        drop(snapshot);
        let more = fill(&mut worker, &bank.accounts, (ROWS + 1..2 * ROWS).step_by(2));
        again.extend(more);
        check(&mut worker.begin(Mode::Snapshot).unwrap(), &bank.accounts, &again, 2 * ROWS);
        assert!(pages(&bank).iter().zip(&full).all(|(now, full)| now.0 <= full.0 + 1 && now.1 <= full.1 + 1024));
    }
}

/// A table that is emptied and filled while others scan it shows whole transactions only.
#[test]
fn scans_beside_pages_that_leave() {
    for (backend, synopsis) in [(Backend::Columns, Some(16)), (Backend::Rows, Some(1024)), (Backend::Rows, None)] {
        let bank = open(backend, synopsis);
        let (bank, is_over) = (&bank, &AtomicBool::new(false));
        thread::scope(|scope| {
            let scanners: Vec<_> = [Mode::Snapshot, Mode::ReadWrite]
                .into_iter()
                .map(|mode| scope.spawn(move || scan_until(bank, mode, is_over)))
                .collect();
            let mut worker = bank.worker();
            let mut left = 0;
            for round in 0..scaled(30, 3) as u64 {
                let ids: Vec<u64> = (0..ROWS & !1).map(|id| id + round % 2).collect();
                for pair in ids.chunks(2) {
                    let row = |id: u64, balance| Account { balance, ..account(id) };
                    change(&mut worker, |t| {
                        t.insert(&bank.accounts, &row(pair[0], 7))?;
                        t.insert(&bank.accounts, &row(pair[1], -7))
                    });
                }
                for pair in ids.chunks(2) {
                    change(&mut worker, |t| pair.iter().try_for_each(|id| t.delete(&bank.accounts, *id).map(drop)));
                }
                (0..3).for_each(|_| worker.maintain());
                left += usize::from(pages(bank)[0].0 == 0);
            }
            is_over.store(true, Ordering::Relaxed);
            scanners.into_iter().for_each(|scanner| scanner.join().unwrap());
            (0..3).for_each(|_| worker.maintain());
            assert!(pages(bank).iter().all(|(pages, _)| *pages == 0), "{:?}, and all left {left} times", pages(bank));
        });
    }
}

fn scan_until(bank: &Bank, mode: Mode, is_over: &AtomicBool) {
    let (mut worker, table) = (bank.worker(), bank.accounts.id());
    while !is_over.load(Ordering::Relaxed) {
        let mut t = worker.begin(mode).unwrap();
        let sum = t.aggregate(&Scan::all(table), Aggregate::Sum(2)).unwrap();
        let count = t.aggregate(&Scan::all(table), Aggregate::Count(0)).unwrap();
        assert!(sum == Value::Integer(0) || count == Value::Unsigned(0), "{count:?} rows, whose sum is {sum:?}");
        let (mut rows, mut balance) = (0, 0);
        t.visit_all(&bank.accounts, |row| {
            rows += 1;
            balance += row.balance();
        })
        .unwrap();
        assert!(balance == 0 && Value::Unsigned(rows) == count, "{rows} rows of {count:?}, whose sum is {balance}");
        let by_owner = |t: &mut Tx<'_>, owner| {
            t.scan_by(&bank.accounts, Account::BY_OWNER, owner).map(|row| row.balance()).sum().unwrap()
        };
        assert_eq!((0..4).map(|owner| by_owner(&mut t, owner)).sum::<i64>(), 0);
    }
}
