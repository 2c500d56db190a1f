//! Deleted rows that only snapshots see: they are out of the way of others, and the snapshots find them.

use std::time::Duration;

use polychron_base::room::ROOM;
use polychron_base::sizes::scaled;

use super::*;
use crate::displaced_tests::{
    Stage, change, check, member, readers_find_what_was_displaced, rows_are_displaced_under_a_scan,
};

/// The clock is the test's.
fn open() -> Stage<Maflingo> {
    let options = super::super::Options { epoch_interval: Duration::from_secs(3600), ..Default::default() };
    let database = <Maflingo>::open(options, Common::default()).unwrap();
    Stage::new(
        database,
        |store| store.displaced.index(),
        |database, worker| {
            for _ in 0..12 {
                database.tick();
                worker.maintain();
            }
        },
    )
}

/// A huge transaction, deletions, and versions that piled up behind a snapshot, leave short lists with little room.
#[test]
#[cfg_attr(miri, ignore = "does more than an interpreter can")]
fn the_room_of_a_backlog_is_freed() {
    const ROWS: u64 = 4 * ROOM as u64;
    let stage = open();
    let (table, mut writer, mut reader) = (stage.members, stage.worker(), stage.worker());
    stage.fill(&mut writer, 0..ROWS);
    stage.quiesce(&mut writer);
    let snapshot = reader.begin(Mode::Snapshot).unwrap();
    stage.quiesce(&mut writer);
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
    stage.quiesce(&mut writer);
    change(&mut writer, |t| t.insert(&table, &member(0)));
    let state = &writer.state;
    let rooms = [state.sets.room(), state.reclaimer.room(), state.pruner.room()];
    assert!(rooms.iter().all(|&room| room <= ROOM), "{rooms:?}");
}

/// A queue beside an idle snapshot: a thread that looks for its head passes by what was deleted in the latest epochs, and by nothing else.
#[test]
fn a_queue_beside_an_idle_snapshot_has_no_deleted_head() {
    let rows = scaled(2000, 60) as u64;
    let (stage, turns) = (open(), 2 * rows);
    let (mut idle, mut worker) = (stage.worker(), stage.worker());
    stage.fill(&mut worker, 0..rows);
    stage.quiesce(&mut worker);
    let mut open = idle.begin(Mode::Snapshot).unwrap();
    for tail in rows..rows + turns {
        stage.turn(&mut worker, tail - rows, tail);
        if tail % 8 == 0 {
            stage.database.tick();
        }
    }
    for (there, beside) in stage.entries() {
        // Those of the snapshot's first epochs, of the latest ones, and those that wait for the next pass.
        let passed = there as u64 - rows;
        assert!(passed <= 8 * 20, "a search for the head passes {passed} deleted rows");
        assert!(beside as u64 <= rows, "what came after the snapshot is not kept for it: {beside}");
        assert!(beside as u64 >= rows / 2, "{beside}");
    }
    check(&mut open, &stage.members, &(0..rows).map(|id| (id, member(id).balance)).collect(), rows + turns);
    drop(open);
    stage.quiesce(&mut worker);
    stage.has_rows_alone(rows as usize);
}

#[test]
fn snapshots_find_what_was_displaced() {
    let stage = open();
    readers_find_what_was_displaced(&stage, 0, || stage.database.tick());
}

#[test]
fn rows_leave_under_a_scan() {
    rows_are_displaced_under_a_scan(open);
}
