//! White-box tests; behaviour is tested in the crate `check`.

mod aside;
mod contested;
mod displaced;
mod insertions;
mod keeping;

use polychron_engine::{Commit, Common, Error, Interactive, Mode, Operations, Protocol, Table, Worker};
use polychron_memory::{Memory, Options};
use polychron_schema::Row;

use super::Maflingo;
use super::record::{Record, Tid};
use super::sets::{Kind, MOST_PATCHES};

#[derive(Row, Clone, Debug, PartialEq)]
struct Pair {
    #[key]
    id: u64,
    left: u64,
    right: u64,
}

#[test]
fn ids_are_the_smallest_that_exceed_what_was_seen() {
    let first = Tid::after(Tid::ZERO, 5, 3).unwrap();
    assert_eq!(first.epoch(), 5);
    let next = Tid::after(first, 5, 2).unwrap();
    assert!(next > first, "an id exceeds those it follows, whatever its worker's number");
    assert!(Tid::after(first, 6, 0).unwrap() > next, "a later epoch exceeds every id of an earlier one");
    assert_ne!(Tid::after(Tid::ZERO, 5, 2), Some(first), "two workers never draw the same id");
}

#[test]
fn an_epochs_ids_run_out_without_reaching_into_the_next() {
    let (mut last, mut drawn) = (Tid::ZERO, 0);
    while let Some(next) = Tid::after(last, 7, Tid::MAX_WORKERS - 1) {
        assert!(next > last && next.epoch() == 7);
        (last, drawn) = (next, drawn + 1);
    }
    assert_eq!(drawn, (1 << 12) - 1);
    assert_eq!(Tid::after(last, 8, 0).unwrap().epoch(), 8);
}

/// Reclamation may hold a latch for as long as it takes a processor to come back to it: a thread that validates passes, and one that
/// wants to latch waits, however long that is.
#[test]
fn a_latch_held_in_the_background_aborts_no_transaction() {
    let memory = Memory::new(Options::tiny()).unwrap();
    let local = memory.register().unwrap();
    let guard = local.pin();
    let record = Record::absent(&[7], &guard).unwrap();
    record.publish(Tid::after(Tid::ZERO, 1, 0).unwrap(), true);
    let state = record.latch_in_background().unwrap();
    assert!(!state.latched_by_other(0) && !record.state().latched_by_other(1));
    std::thread::scope(|scope| {
        let (started, start) = std::sync::mpsc::channel();
        let writer = scope.spawn(move || {
            started.send(()).unwrap();
            record.latch(1).is_some()
        });
        start.recv().unwrap();
        for _ in 0..polychron_base::sizes::scaled(2000, 50) {
            std::thread::yield_now();
        }
        assert!(!writer.is_finished());
        record.unlatch();
        assert!(writer.join().unwrap(), "a writer gave up because of the background");
    });
    assert!(record.state().latched_by_other(0) && !record.state().latched_by_other(1));
    assert!(record.latch_in_background().is_none(), "the background does not wait for a transaction");
}

/// However often a transaction changes a row, and whichever part of it, reading it goes back over a few writes.
#[test]
fn own_patches_stay_few() {
    let database = <Maflingo>::open(super::Options::default(), Common::default()).unwrap();
    let pairs = Table::<Pair>::from_id(database.create_table(Pair::definition()).unwrap());
    let mut worker = Maflingo::worker(&database).unwrap();
    for inserted_before in [true, false] {
        let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
        transaction.upsert(&pairs, &Pair { id: 1, left: 0, right: 0 }).unwrap();
        if inserted_before {
            transaction.commit().unwrap();
            transaction = worker.begin(Mode::ReadWrite).unwrap();
        }
        let (mut savepoint, mut at_savepoint) = (transaction.savepoint(), 0);
        for change in 1..=polychron_base::sizes::scaled(20_000, 200) as u64 {
            let part = change % 3;
            let changed = match part {
                0 => transaction.update_columns(&pairs, 1, Pair::LEFT, |row| row.set_left(change)),
                1 => transaction.update_columns(&pairs, 1, Pair::RIGHT, |row| row.set_right(change)),
                _ => transaction.update(&pairs, 1, |row| row.set_left(change)),
            };
            assert!(changed.unwrap());
            let writes = &transaction.state.sets.writes;
            let last = writes.get(writes.len() as u32 - 1);
            let (mut patches, mut at) = (0, Some(writes.len() as u32 - 1));
            while let Some(write) = at.map(|position| *writes.get(position)).filter(|write| write.kind == Kind::Patch) {
                (patches, at) = (patches + 1, write.prior);
            }
            assert!(patches < MOST_PATCHES, "{patches} patches behind {last:?}");
            let row = transaction.get(&pairs, 1).unwrap().unwrap();
            assert_eq!(if part == 1 { row.right() } else { row.left() }, change);
            if change == 50 {
                (savepoint, at_savepoint) = (transaction.savepoint(), row_of(&mut transaction, &pairs));
            }
        }
        transaction.roll_back_to(savepoint).unwrap();
        assert_eq!(row_of(&mut transaction, &pairs), at_savepoint);
        transaction.commit().unwrap();
        let mut reader = worker.begin(Mode::ReadWrite).unwrap();
        assert_eq!(row_of(&mut reader, &pairs), at_savepoint);
    }
}

fn row_of(transaction: &mut super::MaflingoTransaction<'_>, pairs: &Table<Pair>) -> u64 {
    let row = transaction.get(pairs, 1).unwrap().unwrap();
    row.left() << 32 | row.right()
}

/// How many keys the index of a table leads from, tombstones among them.
fn entries(database: &std::sync::Arc<Maflingo>, pairs: &Table<Pair>) -> usize {
    let (_, tables) = database.shared.base.catalog.snapshot();
    let mut count = 0;
    let index = polychron_engine::catalog::known(&tables, pairs.id()).unwrap().primary.index();
    database.shared.base.deferred_drops.with_guard(|guard| {
        polychron_engine::stores::for_each(index, guard, &mut |_, _| count += 1);
    });
    count
}

/// A queue, whose head is deleted and whose tail is inserted, beside clients that hold a transaction or a snapshot open and do nothing: a
/// search for the head walks over few tombstones, and over none that no thread sees.
#[test]
fn a_queue_beside_idle_clients_leaves_few_tombstones() {
    const LENGTH: u64 = 20;
    for mode in [Mode::ReadWrite, Mode::Snapshot] {
        let database = <Maflingo>::open(super::Options::default(), Common::default()).unwrap();
        let pairs = Table::<Pair>::from_id(database.create_table(Pair::definition()).unwrap());
        let (mut worker, mut other) = (Maflingo::worker(&database).unwrap(), Maflingo::worker(&database).unwrap());
        let mut step = |insert: u64, delete: Option<u64>| {
            let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
            transaction.insert(&pairs, &Pair { id: insert, left: 0, right: 0 }).unwrap();
            if let Some(id) = delete {
                assert!(transaction.delete(&pairs, id).unwrap());
            }
            transaction.commit().unwrap();
        };
        (0..LENGTH).for_each(|id| step(id, None));
        database.tick();
        database.tick();
        let mut idle = other.begin(mode).unwrap();
        assert_eq!(idle.scan(&pairs, ..).count().unwrap(), LENGTH);
        for id in 0..polychron_base::sizes::scaled(6000, 300) as u64 {
            step(LENGTH + id, Some(id));
            if id % 8 == 0 {
                database.tick();
            }
        }
        let left = entries(&database, &pairs) as u64;
        // The queue itself, what the snapshot sees, and what was deleted in the latest epochs.
        assert!(left <= 2 * LENGTH + 8 * 64, "{mode:?}: {left} entries");
        if mode == Mode::Snapshot {
            assert_eq!(idle.scan(&pairs, ..).count().unwrap(), LENGTH);
        }
        drop(idle);
    }
}

/// A session that uses up the ids of its epochs beside an idle transaction leaves nothing behind that waits for it.
#[test]
fn used_up_ids_leave_no_versions() {
    let database = <Maflingo>::open(super::Options::default(), Common::default()).unwrap();
    let pairs = Table::<Pair>::from_id(database.create_table(Pair::definition()).unwrap());
    let (mut worker, mut other) = (Maflingo::worker(&database).unwrap(), Maflingo::worker(&database).unwrap());
    let mut update = |value: u64| {
        let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
        transaction.upsert(&pairs, &Pair { id: 1, left: value, right: 0 }).unwrap();
        transaction.commit().unwrap();
    };
    // What is overwritten is kept for a while.
    drop(other.begin(Mode::Snapshot).unwrap());
    update(0);
    let mut idle = other.begin(Mode::ReadWrite).unwrap();
    idle.get(&pairs, 1).unwrap();
    let before = database.shared.base.memory.epochs().current();
    (0..polychron_base::sizes::scaled(40_000, 200) as u64).for_each(&mut update);
    let epochs = database.shared.base.memory.epochs().current() - before;
    database.tick();
    worker.maintain();
    let waits = database.shared.base.memory.statistics().retired_bytes;
    assert!(waits <= 4 * 96, "{waits} bytes wait after {epochs} epochs");
}
