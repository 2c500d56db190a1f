//! Deleted rows that only old readers see: they are out of the way of others, and the readers find them.

use std::collections::BTreeMap;

use polychron_base::IndexId;
use polychron_engine::stores::for_each;
use polychron_engine::{Direction, Scan, Worker};

use super::*;

type Snapshot<'w> = <CicadaWorker as Interactive>::Transaction<'w>;

fn eager() -> Arc<Cicada> {
    open(|options| (options.collection_interval, options.pruning_after) = (Duration::ZERO, Duration::ZERO))
}

/// Entries of an index, and of the one beside it.
fn entries(worker: &mut CicadaWorker, table: &Table<Account>, index: u16) -> (usize, usize) {
    let transaction = worker.begin_in_epoch(Mode::ReadWrite).unwrap();
    let store = transaction.state.base.tables.table(table.id()).unwrap().store(IndexId(index)).unwrap();
    let (mut there, mut beside) = (0, 0);
    for_each(store.index(), &transaction.guard, &mut |_, _| there += 1);
    for_each(store.displaced.index().unwrap(), &transaction.guard, &mut |_, _| beside += 1);
    (there, beside)
}

/// What a snapshot sees, by single reads, by scans of the primary index in both directions, and by those of the secondary one.
fn check(snapshot: &mut Snapshot<'_>, table: &Table<Account>, rows: &BTreeMap<u64, i64>, keys: u64) {
    for id in 0..keys {
        assert_eq!(snapshot.get(table, id).unwrap().map(|row| row.balance()), rows.get(&id).copied(), "row {id}");
    }
    let forward = snapshot.scan(table, ..).map(|row| (row.id(), row.balance())).collect::<Vec<_>>().unwrap();
    assert!(forward.iter().map(|row| (&row.0, &row.1)).eq(rows.iter()), "{forward:?} in place of {rows:?}");
    let mut backward = Vec::new();
    let scan = Scan { direction: Direction::Backward, ..Scan::all(table.id()) };
    let visit = &mut |row: RowRef<'_>| {
        backward.push(Account::view(row).id());
        std::ops::ControlFlow::Continue(())
    };
    snapshot.scan_rows(&scan, visit).unwrap();
    assert!(backward.iter().rev().eq(rows.keys()));
    let some = snapshot.scan(table, keys / 4..keys / 2).map(|row| row.id()).collect::<Vec<_>>().unwrap();
    assert!(some.iter().eq(rows.range(keys / 4..keys / 2).map(|row| row.0)));
    let by_group =
        (0..4).map(|group| snapshot.scan_by(table, Account::BY_GROUP, group).map(|row| row.balance()).sum().unwrap());
    assert_eq!(by_group.sum::<i64>(), rows.values().sum::<i64>());
}

/// A queue beside an idle snapshot and an idle writer: the head of the index is the head of the queue.
#[test]
fn a_queue_beside_idle_readers_has_no_deleted_head() {
    let rows = scaled(600, 40) as u64;
    for mode in [Mode::Snapshot, Mode::ReadWrite] {
        let database = eager();
        let table: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
        let (mut idle, mut worker) = (database.worker().unwrap(), database.worker().unwrap());
        done(&mut worker, |t| {
            (0..rows).try_for_each(|id| t.insert(&table, &Account { id, group: id as u16 % 4, balance: 1 }))
        });
        database.tick();
        let mut open = idle.begin(mode).unwrap();
        // The horizon passes an idle writer when its time has come.
        database.shared.clocks.pass_time(2_000_000);
        for tail in rows..3 * rows {
            database.shared.clocks.pass_time(1000);
            done(&mut worker, |t| {
                let head = t.scan(&table, ..).first(|row| row.id())?.unwrap();
                assert_eq!(head, tail - rows);
                assert!(t.delete(&table, head)?);
                t.insert(&table, &Account { id: tail, group: tail as u16 % 4, balance: 1 })
            });
        }
        for index in 0..2 {
            let (there, beside) = entries(&mut worker, &table, index);
            assert!(there as u64 <= rows + rows / 4, "{mode:?}: {there} entries for {rows} rows");
            // A few wait for the transaction that has just run, where the background looked meanwhile.
            assert!(beside as u64 <= rows + 8, "what came after the reader began is not kept for it: {beside}");
        }
        if mode == Mode::Snapshot {
            check(&mut open, &table, &(0..rows).map(|id| (id, 1)).collect(), 3 * rows);
        } else {
            let stale = open.scan(&table, ..).count();
            assert!(stale.is_err_and(|error| error.is_conflict()), "a writer so old conflicts");
        }
        drop(open);
        for index in 0..2 {
            // A tick leaves to the background what that is at just now.
            let gone = (0..1000).any(|_| {
                database.tick();
                entries(&mut worker, &table, index) == (rows as usize, 0)
            });
            assert!(gone, "{mode:?}: {:?}", entries(&mut worker, &table, index));
        }
    }
}

/// Rows of a few keys come, go and come back while snapshots of several timestamps are open: each sees its timestamp.
#[test]
fn snapshots_find_what_was_displaced() {
    const KEYS: u64 = 40;
    let database = eager();
    let table: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
    let mut worker = database.worker().unwrap();
    let mut readers: Vec<_> = (0..4).map(|_| database.worker().unwrap()).collect();
    let (mut rows, mut random) = (BTreeMap::new(), Random::stream(11, 1));
    let mut open: Vec<(Snapshot<'_>, BTreeMap<u64, i64>)> = Vec::new();
    let mut readers = readers.iter_mut();
    for round in 0..scaled(1600, 64) as i64 {
        if round % scaled(400, 16) as i64 == 0
            && let Some(reader) = readers.next()
        {
            while !database.shared.clocks.min_wts().is_after(worker.last_timestamp()) {
                database.tick();
            }
            open.push((reader.begin(Mode::Snapshot).unwrap(), rows.clone()));
        }
        let id = random.below(KEYS);
        done(&mut worker, |t| {
            if rows.contains_key(&id) && round % 3 > 0 {
                assert!(t.delete(&table, id)?);
                return Ok(());
            }
            t.upsert(&table, &Account { id, group: (round % 4) as u16, balance: round })
        });
        if rows.remove(&id).is_none() || round % 3 == 0 {
            rows.insert(id, round);
        }
        if round % 97 == 0 {
            open.iter_mut().for_each(|(snapshot, seen)| check(snapshot, &table, seen, KEYS));
        }
    }
    // The oldest goes first, and then the latest, so that what others see stays.
    while !open.is_empty() {
        drop(open.remove(if open.len().is_multiple_of(2) { 0 } else { open.len() - 1 }));
        (0..4).for_each(|_| database.tick());
        open.iter_mut().for_each(|(snapshot, seen)| check(snapshot, &table, seen, KEYS));
    }
    (0..8).for_each(|_| database.tick());
    assert_eq!(entries(&mut worker, &table, 0), (rows.len(), 0));
}

/// Rows are deleted and displaced while a snapshot is in the middle of a scan, in both directions: each is visited once.
#[test]
fn rows_are_displaced_under_a_scan() {
    for rows in [10, scaled(300, 70) as u64] {
        for direction in [Direction::Forward, Direction::Backward] {
            for stop in [0, rows / 2, rows - 1] {
                let database = eager();
                let table: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
                let (mut reader, mut worker) = (database.worker().unwrap(), database.worker().unwrap());
                let row = |id: u64| Account { id, group: 0, balance: 1 };
                done(&mut worker, |t| (0..rows).try_for_each(|id| t.insert(&table, &row(id))));
                database.tick();
                let mut snapshot = reader.begin(Mode::Snapshot).unwrap();
                database.shared.clocks.pass_time(2_000_000);
                let mut seen = Vec::new();
                let visit = &mut |row: RowRef<'_>| {
                    if seen.len() as u64 == stop {
                        // Half of the rows go, on both sides.
                        for id in (0..rows).step_by(2) {
                            assert!(done(&mut worker, |t| t.delete(&table, id)));
                        }
                        (0..4).for_each(|_| database.tick());
                        assert!(entries(&mut worker, &table, 0).1 > 0, "nothing was displaced");
                    }
                    seen.push(Account::view(row).id());
                    std::ops::ControlFlow::Continue(())
                };
                snapshot.scan_rows(&Scan { direction, ..Scan::all(table.id()) }, visit).unwrap();
                if direction == Direction::Backward {
                    seen.reverse();
                }
                assert!(seen.iter().copied().eq(0..rows), "{direction:?}, {stop}: {seen:?}");
            }
        }
    }
}

/// Insertions that are given up beside an idle snapshot leave nothing in the index: nobody sees what never was.
#[test]
fn insertions_that_are_given_up_leave_the_index() {
    let rounds = scaled(400, 30) as u64;
    let database = open(|options| {
        (options.collection_interval, options.pruning_after) = (Duration::ZERO, Duration::ZERO);
        // Who is overtaken writes at another timestamp, and may commit.
        options.overtaking_after = Duration::from_secs(3600);
    });
    let table: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
    let (mut idle, mut worker, mut loser) =
        (database.worker().unwrap(), database.worker().unwrap(), database.worker().unwrap());
    let account = |id, balance| Account { id, group: 0, balance };
    done(&mut worker, |t| t.insert(&table, &account(0, 1)));
    database.tick();
    let mut snapshot = idle.begin(Mode::Snapshot).unwrap();
    assert_eq!(snapshot.scan(&table, ..).count().unwrap(), 1);
    let (mut used, mut refused, mut id) = (Vec::new(), 0, 0);
    while refused < 2 * rounds {
        id += 1;
        let mut given_up = loser.begin(Mode::ReadWrite).unwrap();
        given_up.insert(&table, &account(id, 0)).unwrap();
        given_up.update(&table, 0, |row| row.set_balance(0)).unwrap();
        // Read later than it writes, if the clocks say so: found when its versions are installed.
        done(&mut worker, |t| t.get(&table, 0).map(|row| assert_eq!(row.unwrap().balance(), 1)));
        if given_up.commit().is_ok() {
            done(&mut worker, |t| {
                t.delete(&table, id)?;
                t.update(&table, 0, |row| row.set_balance(1)).map(drop)
            });
            continue;
        }
        refused += 1;
        database.tick();
        if refused % rounds == 0 {
            for _ in 0..4 {
                database.tick();
                Worker::maintain(&mut loser);
                Worker::maintain(&mut worker);
            }
            used.push(database.memory().statistics().used_bytes);
        }
    }
    let (there, beside) = entries(&mut worker, &table, 0);
    assert!(there <= 2 && beside == 0, "{there} entries, and {beside} beside");
    assert!(used[1] <= used[0] + 4096, "{used:?}");
    assert_eq!(snapshot.scan(&table, ..).map(|row| row.balance()).sum().unwrap(), 1);
}
