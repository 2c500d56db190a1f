//! Deleted rows that only snapshots see: they are out of the way of others, and the snapshots find them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use polychron_base::Error;
use polychron_base::random::Random;
use polychron_base::room::ROOM;
use polychron_base::sizes::scaled;
use polychron_engine::stores::for_each;
use polychron_engine::{Direction, Scan};
use polychron_schema::RowRef;

use super::super::MaflingoTransaction;
use super::super::worker::MaflingoWorker;
use super::*;

#[derive(Row, Clone, Debug, PartialEq)]
#[index(name = "by_group", columns(group))]
struct Member {
    #[key]
    id: u64,
    group: u32,
    balance: i64,
}

type Tx<'t> = MaflingoTransaction<'t>;

fn open() -> (Arc<Maflingo>, Table<Member>) {
    // The clock is the test's.
    let options = super::super::Options { epoch_interval: Duration::from_secs(3600), ..Default::default() };
    let database = <Maflingo>::open(options, Common::default()).unwrap();
    let table = Table::from_id(database.create_table(Member::definition()).unwrap());
    (database, table)
}

fn member(id: u64) -> Member {
    Member { id, group: id as u32 % 4, balance: id as i64 + 1 }
}

fn change(worker: &mut MaflingoWorker, body: impl FnOnce(&mut Tx<'_>) -> Result<(), Error>) {
    let mut t = worker.begin(Mode::ReadWrite).unwrap();
    body(&mut t).unwrap();
    t.commit().unwrap();
}

fn quiesce(database: &Arc<Maflingo>, worker: &mut MaflingoWorker) {
    for _ in 0..12 {
        database.tick();
        worker.maintain();
    }
}

/// A huge transaction, deletions, and versions that piled up behind a snapshot, leave short lists with little room.
#[test]
#[cfg_attr(miri, ignore = "does more than an interpreter can")]
fn the_room_of_a_backlog_is_freed() {
    const ROWS: u64 = 4 * ROOM as u64;
    let (database, table) = open();
    let [mut writer, mut reader] = [database.worker().unwrap(), database.worker().unwrap()];
    change(&mut writer, |t| (0..ROWS).try_for_each(|id| t.insert(&table, &member(id))));
    quiesce(&database, &mut writer);
    let snapshot = reader.begin(Mode::Snapshot).unwrap();
    quiesce(&database, &mut writer);
    change(&mut writer, |t| t.delete(&table, 0).map(drop));
    let mut huge = writer.begin(Mode::ReadWrite).unwrap();
    (1..ROWS).for_each(|id| assert!(huge.update(&table, id, |row| row.set_balance(7)).unwrap()));
    assert!(huge.state.sets.room() > 2 * ROOM);
    huge.commit().unwrap();
    assert!(writer.state.pruner.room() > 2 * ROOM);
    drop(snapshot);
    for half in [1..ROWS / 2, ROWS / 2..ROWS] {
        change(&mut writer, |t| half.clone().try_for_each(|id| t.delete(&table, id).map(drop)));
        assert!(writer.state.reclaimer.room() <= ROOM);
    }
    quiesce(&database, &mut writer);
    change(&mut writer, |t| t.insert(&table, &member(0)));
    let state = &writer.state;
    let rooms = [state.sets.room(), state.reclaimer.room(), state.pruner.room()];
    assert!(rooms.iter().all(|&room| room <= ROOM), "{rooms:?}");
}

/// Entries of each index, and of those beside them.
fn entries(database: &Arc<Maflingo>, table: &Table<Member>) -> Vec<(usize, usize)> {
    let (_, tables) = database.shared.catalog.snapshot();
    let table = polychron_engine::catalog::known(&tables, table.id()).unwrap();
    database.shared.deferred_drops.with_guard(|guard| {
        let count = |index: &polychron_index::AnyIndex| {
            let mut count = 0;
            for_each(index, guard, &mut |_, _| count += 1);
            count
        };
        let stores = std::iter::once(&table.primary).chain(table.secondaries());
        stores.map(|store| (count(store.index()), count(store.displaced.index().unwrap()))).collect()
    })
}

/// What a snapshot sees, by single reads, by scans of the primary index in both directions and in parts, and by those of the secondary one.
fn check(t: &mut Tx<'_>, table: &Table<Member>, rows: &BTreeMap<u64, i64>, keys: u64) {
    for id in 0..keys {
        assert_eq!(t.get(table, id).unwrap().map(|row| row.balance()), rows.get(&id).copied(), "row {id}");
    }
    let forward = t.scan(table, ..).map(|row| (row.id(), row.balance())).collect::<Vec<_>>().unwrap();
    assert!(forward.iter().map(|row| (&row.0, &row.1)).eq(rows.iter()), "{forward:?} in place of {rows:?}");
    let mut backward = Vec::new();
    let scan = Scan { direction: Direction::Backward, ..Scan::all(table.id()) };
    let visit = &mut |row: RowRef<'_>| {
        backward.push(Member::view(row).id());
        ControlFlow::Continue(())
    };
    t.scan_rows(&scan, visit).unwrap();
    assert!(backward.iter().rev().eq(rows.keys()));
    for (from, limit) in [(0, 1), (keys / 4, 3), (keys / 2, 100)] {
        let some = t.scan(table, from..keys - 1).limit(limit).map(|row| row.id()).collect::<Vec<_>>().unwrap();
        assert!(some.iter().eq(rows.range(from..keys - 1).map(|row| row.0).take(limit)));
    }
    let by_group =
        (0..4).map(|group| t.scan_by(table, Member::BY_GROUP, group).map(|row| row.balance()).sum().unwrap());
    assert_eq!(by_group.sum::<i64>(), rows.values().sum::<i64>());
}

/// A queue beside an idle snapshot: a thread that looks for its head passes by what was deleted in the latest epochs, and by nothing else.
#[test]
fn a_queue_beside_an_idle_snapshot_has_no_deleted_head() {
    let rows = scaled(2000, 60) as u64;
    let ((database, table), turns) = (open(), 2 * rows);
    let (mut idle, mut worker) = (database.worker().unwrap(), database.worker().unwrap());
    change(&mut worker, |t| (0..rows).try_for_each(|id| t.insert(&table, &member(id))));
    quiesce(&database, &mut worker);
    let mut open = idle.begin(Mode::Snapshot).unwrap();
    for tail in rows..rows + turns {
        change(&mut worker, |t| {
            let head = t.scan(&table, ..).first(|row| row.id())?.unwrap();
            assert_eq!(head, tail - rows);
            assert!(t.delete(&table, head)?);
            t.insert(&table, &member(tail))
        });
        if tail % 8 == 0 {
            database.tick();
        }
    }
    for (there, beside) in entries(&database, &table) {
        // Those of the snapshot's first epochs, of the latest ones, and those that wait for the next pass.
        let passed = there as u64 - rows;
        assert!(passed <= 8 * 20, "a search for the head passes {passed} deleted rows");
        assert!(beside as u64 <= rows, "what came after the snapshot is not kept for it: {beside}");
        assert!(beside as u64 >= rows / 2, "{beside}");
    }
    check(&mut open, &table, &(0..rows).map(|id| (id, member(id).balance)).collect(), rows + turns);
    drop(open);
    quiesce(&database, &mut worker);
    assert!(entries(&database, &table).iter().all(|&counts| counts == (rows as usize, 0)));
}

/// Rows of a few keys come, go, move in the secondary index and come back while snapshots of several times are open: each sees its time.
#[test]
fn snapshots_find_what_was_displaced() {
    const KEYS: u64 = 40;
    let (database, table) = open();
    let mut worker = database.worker().unwrap();
    let mut readers: Vec<_> = (0..3).map(|_| database.worker().unwrap()).collect();
    let (mut rows, mut random) = (BTreeMap::new(), Random::stream(11, 1));
    let mut open: Vec<(Tx<'_>, BTreeMap<u64, i64>)> = Vec::new();
    let (mut readers, mut has_displaced) = (readers.iter_mut(), false);
    for round in 0..scaled(1600, 96) as i64 {
        if round % scaled(400, 24) as i64 == 10
            && let Some(reader) = readers.next()
        {
            quiesce(&database, &mut worker);
            open.push((reader.begin(Mode::Snapshot).unwrap(), rows.clone()));
        }
        let id = random.below(KEYS);
        if round % 3 > 0 && rows.remove(&id).is_some() {
            change(&mut worker, |t| t.delete(&table, id).map(drop));
        } else {
            let row = Member { id, group: round as u32 % 4, balance: round };
            change(&mut worker, |t| t.upsert(&table, &row));
            rows.insert(id, round);
        }
        database.tick();
        has_displaced |= entries(&database, &table)[0].1 > 0;
        if round % 97 == 0 {
            open.iter_mut().for_each(|(t, seen)| check(t, &table, seen, KEYS));
        }
    }
    assert!(has_displaced);
    // The oldest goes first, and then the latest, so that what others see stays.
    while !open.is_empty() {
        drop(open.remove(if open.len().is_multiple_of(2) { 0 } else { open.len() - 1 }));
        quiesce(&database, &mut worker);
        open.iter_mut().for_each(|(t, seen)| check(t, &table, seen, KEYS));
    }
    quiesce(&database, &mut worker);
    assert!(entries(&database, &table).iter().all(|&counts| counts == (rows.len(), 0)));
}

/// Rows are deleted and displaced while a snapshot is in the middle of a scan, in both directions: each is visited once.
#[test]
fn rows_are_displaced_under_a_scan() {
    for rows in [10, scaled(300, 70) as u64] {
        for direction in [Direction::Forward, Direction::Backward] {
            for stop in [0, rows / 2, rows - 1] {
                let (database, table) = open();
                let (mut reader, mut worker) = (database.worker().unwrap(), database.worker().unwrap());
                change(&mut worker, |t| (0..rows).try_for_each(|id| t.insert(&table, &member(id))));
                quiesce(&database, &mut worker);
                let mut snapshot = reader.begin(Mode::Snapshot).unwrap();
                quiesce(&database, &mut worker);
                let mut seen = Vec::new();
                let visit = &mut |row: RowRef<'_>| {
                    if seen.len() as u64 == stop {
                        // Half of the rows go, on both sides.
                        for id in (0..rows).step_by(2) {
                            change(&mut worker, |t| t.delete(&table, id).map(drop));
                        }
                        quiesce(&database, &mut worker);
                        assert_eq!(entries(&database, &table)[0], (rows as usize / 2, rows as usize / 2));
                    }
                    seen.push(Member::view(row).id());
                    ControlFlow::Continue(())
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
