//! Deleted rows that only snapshots see: they are out of the way of others, and the snapshots find them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use polychron_base::random::Random;
use polychron_engine::Direction;
use polychron_engine::stores::for_each;
use polychron_sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Entries of each index, and of those beside them.
fn entries(bank: &Bank, worker: &HyperWorker) -> Vec<(usize, usize)> {
    let (all, guard) = (bank.database.shared.catalog.snapshot().1, worker.pin());
    let table = polychron_engine::catalog::known(&all, bank.accounts.id()).unwrap();
    let stores = std::iter::once(&table.primary).chain(table.secondaries());
    let count = |index: &polychron_index::AnyIndex| {
        let mut count = 0;
        for_each(index, &guard, &mut |_, _| count += 1);
        count
    };
    stores.map(|store| (count(store.index()), count(store.displaced.index().unwrap()))).collect()
}

/// What a snapshot sees, by single reads, by scans of the primary index in both directions and in parts, by those of the secondary one, and along the
/// slots.
fn check(t: &mut Tx<'_>, table: &Table<Account>, rows: &BTreeMap<u64, i64>, keys: u64) {
    for id in 0..keys {
        assert_eq!(t.get(table, id).unwrap().map(|row| row.balance()), rows.get(&id).copied(), "row {id}");
    }
    let forward = t.scan(table, ..).map(|row| (row.id(), row.balance())).collect::<Vec<_>>().unwrap();
    assert!(forward.iter().map(|row| (&row.0, &row.1)).eq(rows.iter()), "{forward:?} in place of {rows:?}");
    let mut backward = Vec::new();
    let scan = Scan { direction: Direction::Backward, ..Scan::all(table.id()) };
    let visit = &mut |row: polychron_schema::RowRef<'_>| {
        backward.push(Account::view(row).id());
        ControlFlow::Continue(())
    };
    t.scan_rows(&scan, visit).unwrap();
    assert!(backward.iter().rev().eq(rows.keys()));
    for (from, limit) in [(0, 1), (keys / 4, 3), (keys / 2, 100)] {
        let some = t.scan(table, from..keys - 1).limit(limit).map(|row| row.id()).collect::<Vec<_>>().unwrap();
        assert!(some.iter().eq(rows.range(from..keys - 1).map(|row| row.0).take(limit)));
    }
    let of = |t: &mut Tx<'_>, owner: u32| {
        t.scan_by(table, Account::BY_OWNER, owner).map(|row| row.balance()).sum::<i64>().unwrap()
    };
    let sum = rows.values().sum::<i64>();
    assert_eq!((0..4).map(|owner| of(t, owner)).sum::<i64>(), sum);
    // The range of an empty sum is NULL.
    let all = t.aggregate(&Scan::all(table.id()), Aggregate::Sum(2)).unwrap();
    assert!(all == Value::Integer(sum) || rows.is_empty(), "{all:?} is not {sum}");
    let mut count = 0;
    t.visit_all(table, |_| count += 1).unwrap();
    assert_eq!(count, rows.len());
}

fn change(worker: &mut HyperWorker, body: impl FnOnce(&mut Tx<'_>) -> Result<(), Stop>) {
    let mut t = worker.begin(Mode::ReadWrite).unwrap();
    body(&mut t).unwrap();
    t.commit().unwrap();
}

/// Deletes the rows that a bank begins with.
fn empty(worker: &mut HyperWorker, accounts: &Table<Account>) {
    change(worker, |t| (0..10).try_for_each(|id| t.delete(accounts, id).map(drop)));
}

fn settle(bank: &Bank, worker: &mut HyperWorker) {
    for _ in 0..4 {
        bank.database.memory().epochs().advance();
        worker.tidy_up();
    }
}

/// A queue beside an idle snapshot: the head of the index is the head of the queue.
#[test]
fn a_queue_beside_an_idle_snapshot_has_no_deleted_head() {
    let rows = scaled(600, 40) as u64;
    for backend in [Backend::Rows, Backend::Columns] {
        let bank = Bank::new(backend);
        let (accounts, mut idle, mut worker) = (bank.accounts, bank.worker(), bank.worker());
        empty(&mut worker, &accounts);
        change(&mut worker, |t| (0..rows).try_for_each(|id| t.insert(&accounts, &account(id))));
        let mut open = idle.begin(Mode::Snapshot).unwrap();
        for tail in rows..3 * rows {
            change(&mut worker, |t| {
                let head = t.scan(&accounts, ..).first(|row| row.id())?.unwrap();
                assert_eq!(head, tail - rows);
                assert!(t.delete(&accounts, head)?);
                t.insert(&accounts, &account(tail))
            });
        }
        for (there, beside) in entries(&bank, &worker) {
            assert!(there as u64 <= rows + 2, "{there} entries for {rows} rows");
            assert_eq!(beside as u64, rows, "what came after the snapshot is not kept for it");
        }
        check(&mut open, &accounts, &(0..rows).map(|id| (id, account(id).balance)).collect(), 3 * rows);
        drop(open);
        settle(&bank, &mut worker);
        assert!(entries(&bank, &worker).iter().all(|&counts| counts == (rows as usize, 0)));
    }
}

/// Rows of a few keys come, go, move in the secondary index and come back while snapshots of several moments are open: each sees its moment.
#[test]
fn snapshots_find_what_was_displaced() {
    const KEYS: u64 = 40;
    for backend in [Backend::Rows, Backend::Columns] {
        let bank = Bank::new(backend);
        let (accounts, mut worker) = (bank.accounts, bank.worker());
        empty(&mut worker, &accounts);
        let mut readers: Vec<_> = (0..3).map(|_| bank.worker()).collect();
        let mut writers: Vec<_> = (0..3).map(|_| bank.worker()).collect();
        let (mut rows, mut random) = (BTreeMap::new(), Random::stream(11, 1));
        let mut open: Vec<(Tx<'_>, BTreeMap<u64, i64>)> = Vec::new();
        let (mut readers, mut writers) = (readers.iter_mut(), writers.iter_mut());
        // Now and then one that may write is open, too, and sees what is deleted meanwhile.
        let (mut old, mut has_displaced): (Option<(Tx<'_>, _)>, _) = (None, false);
        for round in 0..scaled(1600, 64) as i64 {
            if round % scaled(400, 16) as i64 == 10
                && let Some(reader) = readers.next()
            {
                open.push((reader.begin(Mode::Snapshot).unwrap(), rows.clone()));
            }
            if round % scaled(400, 16) as i64 == 15 {
                old = writers.next().map(|writer| (writer.begin(Mode::ReadWrite).unwrap(), rows.clone()));
            }
            if round % scaled(400, 16) as i64 == scaled(360, 14) as i64 {
                old = None;
            }
            let id = random.below(KEYS);
            if round % 3 > 0 && rows.remove(&id).is_some() {
                change(&mut worker, |t| t.delete(&accounts, id).map(drop));
            } else {
                let row = Account { id, owner: round as u32 % 4, balance: round, credit: None };
                change(&mut worker, |t| t.upsert(&accounts, &row));
                rows.insert(id, round);
            }
            has_displaced |= entries(&bank, &worker)[0].1 > 0;
            if round % 97 == 0 {
                open.iter_mut().chain(&mut old).for_each(|(t, seen)| check(t, &accounts, seen, KEYS));
            }
        }
        assert!(has_displaced && old.is_none());
        // The oldest goes first, and then the latest, so that what others see stays.
        while !open.is_empty() {
            drop(open.remove(if open.len().is_multiple_of(2) { 0 } else { open.len() - 1 }));
            settle(&bank, &mut worker);
            open.iter_mut().for_each(|(snapshot, seen)| check(snapshot, &accounts, seen, KEYS));
        }
        settle(&bank, &mut worker);
        assert!(entries(&bank, &worker).iter().all(|&counts| counts == (rows.len(), 0)));
    }
}

/// Rows are deleted and displaced while a snapshot is in the middle of a scan, in both directions: each is visited once.
#[test]
fn rows_are_displaced_under_a_scan() {
    for rows in [10, scaled(300, 70) as u64] {
        for direction in [Direction::Forward, Direction::Backward] {
            for stop in [0, rows / 2, rows - 1] {
                let bank = Bank::new(Backend::Rows);
                let (accounts, mut reader, mut worker) = (bank.accounts, bank.worker(), bank.worker());
                change(&mut worker, |t| (10..rows).try_for_each(|id| t.insert(&accounts, &account(id))));
                let mut snapshot = reader.begin(Mode::Snapshot).unwrap();
                let mut seen = Vec::new();
                let visit = &mut |row: polychron_schema::RowRef<'_>| {
                    if seen.len() as u64 == stop {
                        // Half of the rows go, on both sides.
                        for id in (0..rows).step_by(2) {
                            change(&mut worker, |t| t.delete(&accounts, id).map(drop));
                        }
                        settle(&bank, &mut worker);
                        assert_eq!(entries(&bank, &worker)[0], (rows as usize / 2, rows as usize / 2));
                    }
                    seen.push(Account::view(row).id());
                    ControlFlow::Continue(())
                };
                snapshot.scan_rows(&Scan { direction, ..Scan::all(accounts.id()) }, visit).unwrap();
                if direction == Direction::Backward {
                    seen.reverse();
                }
                assert!(seen.iter().copied().eq(0..rows), "{direction:?}, {stop}: {seen:?}");
            }
        }
    }
}

/// While one thread turns a queue, others see all of it in every snapshot, old ones and young ones, whatever moves beside meanwhile.
#[test]
fn snapshots_see_whole_queues() {
    const ROWS: u64 = 40;
    let turns = scaled(3000, 100) as u64;
    let bank = Bank::new(Backend::Rows);
    let (accounts, mut worker) = (bank.accounts, bank.worker());
    change(&mut worker, |t| (10..ROWS).try_for_each(|id| t.insert(&accounts, &account(id))));
    let ends = AtomicBool::new(false);
    let look = |t: &mut Tx<'_>| {
        let ids = t.scan(&accounts, ..).map(|row| row.id()).collect::<Vec<_>>().unwrap();
        assert!(ids.iter().copied().eq(ids[0]..ids[0] + ROWS), "{ids:?} is not the whole queue");
        let last = t.scan(&accounts, ..).reverse().first(|row| row.id()).unwrap();
        assert_eq!(last, ids.last().copied());
        assert!(ids.iter().all(|id| t.get(&accounts, *id).unwrap().is_some()));
        assert_eq!(t.get(&accounts, ids[0] + ROWS).unwrap().map(|row| row.id()), None);
        ids[0]
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut reader = bank.worker();
            let (look, ends) = (&look, &ends);
            scope.spawn(move || {
                let mut looks = 1;
                while !ends.load(Ordering::Relaxed) || looks == 1 {
                    let mut snapshot = reader.begin(Mode::Snapshot).unwrap();
                    let first = look(&mut snapshot);
                    (0..looks % 8).for_each(|_| assert_eq!(look(&mut snapshot), first));
                    looks += 1;
                }
            });
        }
        for tail in ROWS..ROWS + turns {
            change(&mut worker, |t| {
                let head = t.scan(&accounts, ..).first(|row| row.id())?.unwrap();
                assert!(t.delete(&accounts, head)?);
                t.insert(&accounts, &account(tail))
            });
        }
        ends.store(true, Ordering::Relaxed);
    });
    settle(&bank, &mut worker);
    assert!(entries(&bank, &worker).iter().all(|&counts| counts == (ROWS as usize, 0)));
}
