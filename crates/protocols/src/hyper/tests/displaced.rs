//! Deleted rows that only older transactions see: they are out of the way of others, and the older ones find them.

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

/// What a snapshot sees, by single reads, by scans of the primary index in both directions and in parts, by those of the secondary one, and
/// along the slots.
pub(super) fn check(t: &mut Tx<'_>, table: &Table<Account>, rows: &BTreeMap<u64, i64>, keys: u64) {
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
    let of =
        |t: &mut Tx<'_>, owner: u32| t.scan_by(table, Account::BY_OWNER, owner).map(|row| row.balance()).sum().unwrap();
    let sum = rows.values().sum::<i64>();
    assert_eq!((0..4).map(|owner| of(t, owner)).sum::<i64>(), sum);
    // The range of an empty sum is NULL.
    let all = t.aggregate(&Scan::all(table.id()), Aggregate::Sum(2)).unwrap();
    assert!(all == Value::Integer(sum) || rows.is_empty(), "{all:?} is not {sum}");
    let mut count = 0;
    t.visit_all(table, |_| count += 1).unwrap();
    assert_eq!(count, rows.len());
}

pub(super) fn change(worker: &mut HyperWorker, body: impl FnOnce(&mut Tx<'_>) -> Result<(), Error>) {
    let mut t = worker.begin(Mode::ReadWrite).unwrap();
    body(&mut t).unwrap();
    t.commit().unwrap();
}

/// Deletes the rows that a bank begins with.
fn empty(worker: &mut HyperWorker, accounts: &Table<Account>) {
    change(worker, |t| (0..10).try_for_each(|id| t.delete(accounts, id).map(drop)));
}

fn quiesce(bank: &Bank, worker: &mut HyperWorker) {
    for _ in 0..4 {
        bank.database.memory().epochs().advance();
        worker.maintain();
    }
}

/// A queue beside an idle transaction: the head of the index is the head of the queue, but for what is deleted before that transaction is no
/// young one any more.
#[test]
fn a_queue_beside_an_idle_transaction_has_no_deleted_head() {
    let rows = scaled(600, 40) as u64;
    for (mode, young) in [(Mode::Snapshot, 0), (Mode::ReadWrite, 300)] {
        let bank = Bank::new(if young == 0 { Backend::Rows } else { Backend::Columns });
        let (accounts, mut idle, mut worker) = (bank.accounts, bank.worker(), bank.worker());
        empty(&mut worker, &accounts);
        change(&mut worker, |t| (0..rows).try_for_each(|id| t.insert(&accounts, &account(id))));
        let mut open = idle.begin(mode).unwrap();
        if mode == Mode::ReadWrite {
            open.insert(&accounts, &account(1 << 40)).unwrap();
            open.delete(&accounts, 1 << 40).unwrap();
        }
        let turns = 2 * rows + 2 * young;
        for tail in rows..rows + turns {
            change(&mut worker, |t| {
                let head = t.scan(&accounts, ..).first(|row| row.id())?.unwrap();
                assert_eq!(head, tail - rows);
                assert!(t.delete(&accounts, head)?);
                t.insert(&accounts, &account(tail))
            });
            // Any thread that looks for the head goes past no more than these.
            let most = rows + 3 + if tail < rows + young + young / 4 { young } else { 0 };
            if tail % 16 == 0 {
                let there = entries(&bank, &worker).into_iter().map(|counts| counts.0 as u64).max();
                assert!(there <= Some(most), "{there:?} entries for {rows} rows at {tail}, {mode:?}");
            }
        }
        for (there, beside) in entries(&bank, &worker) {
            assert!(there as u64 <= rows + 3, "{there} entries for {rows} rows");
            assert_eq!(beside as u64, rows, "what came after the transaction is not kept for it");
        }
        check(&mut open, &accounts, &(0..rows).map(|id| (id, account(id).balance)).collect(), 3 * rows);
        drop(open);
        quiesce(&bank, &mut worker);
        assert!(entries(&bank, &worker).iter().all(|&counts| counts == (rows as usize, 0)));
    }
}

/// What an older transaction that may write is answered when it asks for a row that was displaced, or writes it.
#[test]
fn older_writers_find_what_was_displaced() {
    type Ask = fn(&mut Tx<'_>, &Table<Account>, &Table<Card>) -> Result<(), Error>;
    // What comes of it at once, and whether a transaction commits that asks it and then writes elsewhere.
    let asks: [(&str, Ask, bool, bool); 11] = [
        ("a read", |t, accounts, _| t.get(accounts, 3).map(|row| assert_eq!(row.unwrap().balance(), 103)), true, false),
        ("an update", |t, accounts, _| t.update(accounts, 3, |row| row.set_balance(1)).map(drop), false, false),
        ("a move", |t, accounts, _| t.update(accounts, 3, |row| row.set_owner(9)).map(drop), false, false),
        ("a look", |t, accounts, _| t.update(accounts, 3, |_| ()).map(drop), false, false),
        ("a deletion", |t, accounts, _| t.delete(accounts, 3).map(drop), false, false),
        ("an upsert", |t, accounts, _| t.upsert(accounts, &account(3)), false, false),
        (
            "an insertion",
            |t, accounts, _| {
                let answer = t.try_insert(accounts, &Account { balance: 7, ..account(3) })?;
                assert_ne!(answer, Insertion::Inserted);
                assert_eq!(t.get(accounts, 3)?.map(|row| row.balance()), Some(103));
                Ok(())
            },
            true,
            false,
        ),
        (
            "a unique value",
            |t, _, cards| {
                assert_ne!(t.try_insert(cards, &Card { id: 2, account: 3 })?, Insertion::Inserted);
                assert_eq!(t.get(cards, 2)?.map(|row| row.id()), None);
                Ok(())
            },
            true,
            false,
        ),
        (
            "a scan that stops",
            |t, accounts, _| t.scan(accounts, 3..).first(|row| row.id()).map(|id| assert_eq!(id, Some(3))),
            true,
            false,
        ),
        (
            "a scan that stops before",
            |t, accounts, _| t.scan(accounts, ..).limit(3).map(|row| row.id()).collect::<Vec<_>>().map(drop),
            true,
            true,
        ),
        (
            "a scan of entries",
            |t, accounts, _| t.scan_by(accounts, Account::BY_OWNER, 3).count().map(|count| assert_eq!(count, 2)),
            true,
            false,
        ),
    ];
    for (what, ask, is_answered, stands) in asks {
        let bank = Bank::new(Backend::Rows);
        let (accounts, mut idle, mut worker) = (bank.accounts, bank.worker(), bank.worker());
        let cards: Table<Card> = Table::from_id(bank.database.create_table(Card::definition()).unwrap());
        change(&mut worker, |t| t.insert(&cards, &Card { id: 1, account: 3 }));
        let mut open = idle.begin(Mode::ReadWrite).unwrap();
        change(&mut worker, |t| t.delete(&cards, 1).map(drop));
        change(&mut worker, |t| t.delete(&accounts, 3).map(drop));
        (0..300).for_each(|balance| set_balance(&mut worker, &accounts, 9, balance));
        quiesce(&bank, &mut worker);
        assert_eq!(entries(&bank, &worker), [(9, 1); 2], "it is displaced");
        let answer = ask(&mut open, &accounts, &cards);
        assert_eq!(answer.is_ok(), is_answered, "{what}");
        if is_answered {
            open.insert(&accounts, &account(1000)).unwrap();
            assert_eq!(open.commit().is_ok(), stands, "{what}, and a commit");
        } else {
            assert!(answer.is_err_and(|error| error.is_conflict()), "{what}");
            drop(open);
        }
        quiesce(&bank, &mut worker);
        assert_eq!(entries(&bank, &worker), [(9 + usize::from(stands), 0); 2], "{what}");
    }
}

/// Rows of a few keys come, go, move in the secondary index and come back while snapshots of several timestamps are open: each sees its
/// timestamp.
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
            quiesce(&bank, &mut worker);
            open.iter_mut().for_each(|(snapshot, seen)| check(snapshot, &accounts, seen, KEYS));
        }
        quiesce(&bank, &mut worker);
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
                        quiesce(&bank, &mut worker);
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

/// While one thread turns a queue, others see all of it at each timestamp, old ones and young ones, whatever moves beside meanwhile.
#[test]
fn older_transactions_see_whole_queues() {
    const ROWS: u64 = 40;
    let turns = scaled(3000, 100) as u64;
    let bank = Bank::new(Backend::Rows);
    let (accounts, mut worker) = (bank.accounts, bank.worker());
    change(&mut worker, |t| (10..ROWS).try_for_each(|id| t.insert(&accounts, &account(id))));
    let ends = AtomicBool::new(false);
    let look = |t: &mut Tx<'_>| {
        let ids = t.scan(&accounts, ..).map(|row| row.id()).collect::<Vec<_>>().unwrap();
        assert!(ids.iter().copied().eq(ids[0]..ids[0] + ROWS), "{ids:?} is not the whole queue");
        let last = t.scan(&accounts, ..).rev().first(|row| row.id()).unwrap();
        assert_eq!(last, ids.last().copied());
        assert!(ids.iter().all(|id| t.get(&accounts, *id).unwrap().is_some()));
        assert_eq!(t.get(&accounts, ids[0] + ROWS).unwrap().map(|row| row.id()), None);
        ids[0]
    };
    std::thread::scope(|scope| {
        for mode in [Mode::Snapshot, Mode::ReadWrite] {
            let mut reader = bank.worker();
            let (look, ends) = (&look, &ends);
            scope.spawn(move || {
                let mut looks = 1;
                while !ends.load(Ordering::Relaxed) || looks == 1 {
                    let mut open = reader.begin(mode).unwrap();
                    let first = look(&mut open);
                    // One that may write is young at first: nothing is displaced behind it then.
                    (0..looks % 8 * if mode == Mode::Snapshot { 1 } else { 20 })
                        .for_each(|_| assert_eq!(look(&mut open), first));
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
    quiesce(&bank, &mut worker);
    assert!(entries(&bank, &worker).iter().all(|&counts| counts == (ROWS as usize, 0)));
}
