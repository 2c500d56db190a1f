//! Each step of checkpoints is left out, and something goes wrong that is seen.
//!
//! A *killer* tells whether something went wrong: with all steps it does not, and without one it does.

use std::collections::BTreeSet;

use polychron_engine::mutations::interrupt;
use polychron_log::checkpoint::{self, Contents, Range, Reader, RowContent, Writer};
use polychron_log::disk::{Files, Operation};
use polychron_log::frame::Body;
use polychron_log::manifest::CheckpointFile;
use polychron_log::steps::{CheckpointStep, Point};
use polychron_log::{DatabaseId, Durability};
use polychron_sim::{Damage, Fault, SimulatedDisk, Survival, each_step_is_needed};

use crate::complaint;
use crate::faults::{row, stored};
use crate::ledger::{Done, Key, Ledger};
use crate::world::{World, keeping, leaving, look};

fn fresh(seed: u64) -> (SimulatedDisk, World) {
    let disk = SimulatedDisk::new(seed);
    let world = World::open(&disk, &Ledger::default()).expect("nothing fails");
    (disk, world)
}

/// Rows have changed since they were written, and are left. Whether something is wrong then, and whether they were written again.
fn changes_beside_rows() -> (bool, bool) {
    let disk = SimulatedDisk::new(1);
    let options = leaving(1000.0);
    let world = World::open_with(&disk, &Ledger::default(), options, Durability::Immediate).expect("nothing fails");
    (0..4).for_each(|key| world.commit(0, &[row(1, key, key)]).unwrap());
    world.checkpoint().unwrap();
    let before = world.files();
    world.commit(0, &[row(1, 1, 7), ((1, 2), Done::Delete), ((1, 3), Done::Patch(1, vec![9]))]).unwrap();
    world.checkpoint().unwrap();
    let after = world.files();
    (is_wrong(&world), !before.iter().all(|path| after.contains(path)))
}

/// Whether something is wrong after a power failure that leaves only what is certain.
fn is_wrong(world: &World) -> bool {
    complaint(&world.disk.after_power_failure(Survival::Nothing, 0), &world.told()).is_some()
}

/// A transaction of a lower order is sealed behind a checkpoint which knows one of a higher order that has put the same row without a look at it.
fn late_record_of_a_lower_order() -> bool {
    let (_, world) = fresh(1);
    world.commit(2, &[row(1, 9, 9)]).unwrap();
    world.begin(0).unwrap();
    let (key, done) = row(1, 1, 100);
    world.stage(0, key, done).unwrap();
    world.commit(1, &[row(1, 1, 200)]).unwrap();
    world.checkpoint().unwrap();
    let ticket = world.seal(0).expect("nobody has read below");
    world.wait(ticket).unwrap();
    is_wrong(&world)
}

/// The only record of a row is carried, by one checkpoint or by one after the other.
fn row_that_is_carried(again: bool) -> bool {
    let (_, world) = fresh(1);
    world.commit(2, &[row(1, 9, 9)]).unwrap();
    world.begin(0).unwrap();
    world.commit(1, &[row(1, 1, 200)]).unwrap();
    world.checkpoint().unwrap();
    if again {
        world.commit(1, &[row(1, 2, 200)]).unwrap();
        world.discard(0);
        world.commit(1, &[row(1, 3, 200)]).unwrap();
        world.checkpoint().unwrap();
    }
    is_wrong(&world)
}

/// The log file that stays has a change which one in a file before was put over.
fn older_change_in_a_later_file() -> bool {
    let (_, world) = fresh(1);
    world.begin(0).unwrap();
    let (key, done) = row(1, 1, 100);
    world.stage(0, key, done).unwrap();
    world.commit(1, &[row(1, 1, 200)]).unwrap();
    // A file has four frames.
    (0..8).for_each(|key| world.commit(1, &[row(1, 10 + key, 0)]).unwrap());
    let ticket = world.seal(0).expect("nobody has read below");
    world.wait(ticket).unwrap();
    world.checkpoint().unwrap();
    is_wrong(&world)
}

/// The end of the log is gone, which the checkpoint has: its epochs would be given again.
fn log_that_is_gone() -> bool {
    let (disk, world) = fresh(1);
    (0..3).for_each(|key| world.commit(1, &[row(1, key, 0)]).unwrap());
    world.checkpoint().unwrap();
    // The frame of the opening stays, and that of one commit.
    for block in 2..4 {
        disk.damage("log/0.log", block, Damage::Zero).unwrap();
    }
    look(&disk).is_ok()
}

/// A table is made, and has a row, when a checkpoint has just begun.
fn table_that_is_made_beside() -> bool {
    let (_, world) = fresh(1);
    world.commit(0, &[row(1, 1, 1)]).unwrap();
    let beside = world.clone();
    interrupt(Point::CheckpointBegins, move || {
        beside.define(BTreeSet::from([1, 2])).unwrap();
        beside.commit(0, &[row(2, 1, 1)]).unwrap();
    });
    world.checkpoint().unwrap();
    is_wrong(&world)
}

/// Whether the files of a table are written again though nothing was done to it.
fn table_that_nobody_changes() -> bool {
    let (_, world) = fresh(1);
    world.define(BTreeSet::from([1, 2])).unwrap();
    world.commit(0, &[row(1, 1, 1), row(2, 1, 1)]).unwrap();
    world.checkpoint().unwrap();
    // Of files that it has not written, an opening does not know the groups.
    let world = World::open(&world.disk.after_restart(), &world.told()).expect("nothing fails");
    let before = world.files();
    world.commit(0, &[row(2, 2, 1)]).unwrap();
    world.checkpoint().unwrap();
    let after = world.files();
    is_wrong(&world) || before.iter().filter(|path| path.contains("/1.")).any(|path| !after.contains(path))
}

/// A database with a checkpoint of four rows, of which two each are near each other.
fn two_groups(least_bytes: u64) -> World {
    let options = checkpoint::Options { least_bytes, ..keeping() };
    let world = World::open_with(&SimulatedDisk::new(1), &Ledger::default(), options, Durability::Immediate)
        .expect("nothing fails");
    (0..4).for_each(|key| world.commit(0, &[row(1, key, key)]).unwrap());
    world.checkpoint().unwrap();
    world
}

/// Has a checkpoint have changes. Answers how many of the files before have stayed.
fn kept_behind(world: &World, changes: &[(Key, Done)]) -> usize {
    let before = world.files();
    world.commit(0, changes).unwrap();
    world.checkpoint().unwrap();
    let after = world.files();
    before.iter().filter(|path| after.contains(path)).count()
}

/// Rows are added far from the others, whose file is not needed.
fn rows_far_from_others() -> bool {
    let world = two_groups(0);
    let kept = kept_behind(&world, &[row(1, 100, 1)]);
    is_wrong(&world) || kept != 1
}

/// A row is deleted of a file that would stay if others were changed.
fn row_of_a_known_file() -> bool {
    let world = two_groups(0);
    kept_behind(&world, &[((1, 2), Done::Delete)]);
    is_wrong(&world)
}

/// A row is deleted that was passed on, because another one has changed, and not written anew.
fn row_that_was_passed_on() -> bool {
    let world = two_groups(0);
    kept_behind(&world, &[row(1, 0, 7)]);
    kept_behind(&world, &[((1, 2), Done::Delete)]);
    is_wrong(&world)
}

/// The same rows change again and again, and others do not.
fn rows_that_change_often() -> bool {
    let world = two_groups(0);
    kept_behind(&world, &[row(1, 0, 7)]);
    let kept = kept_behind(&world, &[row(1, 0, 8)]);
    is_wrong(&world) || kept != 1
}

/// Each checkpoint adds a few rows. Whether there are more and more files for that.
fn files_that_are_short() -> bool {
    let world = two_groups(1 << 20);
    (1..8).for_each(|number| _ = kept_behind(&world, &[row(1, 100 * number, 1)]));
    is_wrong(&world) || world.files().len() > 2
}

fn power_failure_after_a_checkpoint() -> bool {
    let (_, world) = fresh(1);
    world.commit(0, &[row(1, 1, 1)]).unwrap();
    world.checkpoint().unwrap();
    is_wrong(&world)
}

/// What comes of a fault at each operation of a second checkpoint.
fn second_checkpoint(seed: u64, fault: Fault, is_wrong: &dyn Fn(&World, Operation, &str) -> bool) -> bool {
    for number in 0.. {
        let (disk, world) = fresh(seed);
        (0..4).for_each(|key| world.commit(0, &[row(1, key, key)]).unwrap());
        world.checkpoint().unwrap();
        (0..4).for_each(|key| world.commit(0, &[row(1, key, 10)]).unwrap());
        let first = disk.steps().len();
        disk.plan(first + number, fault);
        let _ = world.checkpoint();
        let Some(step) = disk.steps().get(first + number).cloned() else { return false };
        if is_wrong(&world, step.operation, &step.path) {
            return true;
        }
    }
    false
}

fn power_failure_within_a_checkpoint() -> bool {
    second_checkpoint(1, Fault::PowerFailure, &|world, _, _| {
        world.disk.outcomes(1..4).any(|left| complaint(&left, &world.told()).is_some())
    })
}

/// A manifest cannot be written or synced: either one may count.
fn manifest_in_doubt() -> bool {
    (1..6).any(|seed| {
        second_checkpoint(seed, Fault::Fail, &|world, _, path| {
            let is_wrong = |left: SimulatedDisk| complaint(&left, &world.told()).is_some();
            path.starts_with("manifest")
                && (is_wrong(world.disk.after_restart()) || world.disk.outcomes(1..6).any(is_wrong))
        })
    })
}

fn leftovers(disk: &SimulatedDisk, world: &World) -> bool {
    stored(disk) != world.files().into_iter().collect()
}

fn failed_write() -> bool {
    second_checkpoint(1, Fault::Fail, &|world, operation, path| {
        operation == Operation::Write && path.starts_with("checkpoint") && leftovers(&world.disk, world)
    })
}

fn interrupted_write() -> bool {
    second_checkpoint(1, Fault::PowerFailure, &|world, operation, path| {
        let is_within = operation == Operation::Write && path.starts_with("checkpoint");
        is_within && {
            let left = world.disk.after_power_failure(Survival::Everything, 1);
            let world = World::open(&left, &world.told()).expect("nothing is lost");
            leftovers(&left, &world)
        }
    })
}

/// A file of one block, written for the same place in another checkpoint of this number that was interrupted.
fn file_of_the_same_place() -> bool {
    let write = |number: u64| -> (Files<SimulatedDisk>, CheckpointFile) {
        let files = Files::new(SimulatedDisk::new(1));
        files.create_directory("checkpoint").unwrap();
        files.create_directory("checkpoint/1").unwrap();
        let mut writer =
            Writer::new(&files, DatabaseId(1), 1, Contents::Rows { table: 1, part: 0, range: Range::default() });
        let (mut content, mut row) = (RowContent::new(1000), Body::new());
        row.put(1, &[number]).unwrap();
        content.push(row.as_bytes(), &[row.bytes()], &mut writer).unwrap();
        content.finish(&mut writer).unwrap();
        let file = writer.finish().unwrap().expect("it has a row");
        (files, file)
    };
    let ((files, old), (_, new)) = (write(1), write(2));
    let read = |file| -> bool {
        let mut reader = Reader::open(&files, DatabaseId(1), file).unwrap();
        while let Ok(block) = reader.next_block() {
            if block.is_none() {
                return true;
            }
        }
        false
    };
    !read(old) || read(new)
}

/// Others take all room, and rows are written until they are refused. Whether there is none for a checkpoint.
fn disk_that_others_fill() -> bool {
    (1..16).any(|count| {
        let disk = SimulatedDisk::new(count);
        let options = checkpoint::Options { log_bytes: 1 << 40, ..leaving(0.0) };
        let world = World::open_with(&disk, &Ledger::default(), options, Durability::Immediate).expect("nothing fails");
        let write = |number| {
            world.log.make_files();
            // As much of a checkpoint as of the log.
            let rows: Vec<_> = (0..60).map(|key| row(1, 60 * number + key, number)).collect();
            world.commit(0, &rows)
        };
        (0..count).for_each(|number| write(number).unwrap());
        world.log.make_files();
        disk.set_room(Some(disk.used()));
        assert!((count..count + 200).any(|number| write(number).is_err()));
        world.discard(0);
        world.checkpoint().is_err() || is_wrong(&world)
    })
}

/// What each step prevents.
fn killer(step: CheckpointStep) -> fn() -> bool {
    match step {
        CheckpointStep::CarryOpen => late_record_of_a_lower_order,
        CheckpointStep::TakeCarried => || row_that_is_carried(false) || row_that_is_carried(true),
        CheckpointStep::TakeChanges => || changes_beside_rows().0,
        CheckpointStep::LeaveRows => || changes_beside_rows() != (false, false),
        CheckpointStep::SkipFolded => older_change_in_a_later_file,
        CheckpointStep::RaiseFloor => log_that_is_gone,
        CheckpointStep::ReadCatalogLater => table_that_is_made_beside,
        CheckpointStep::KeepUnchanged => table_that_nobody_changes,
        CheckpointStep::KeepUntouched => rows_far_from_others,
        CheckpointStep::RewriteTouched => row_of_a_known_file,
        CheckpointStep::NotePassed => row_that_was_passed_on,
        CheckpointStep::WriteApart => rows_that_change_often,
        CheckpointStep::JoinShort => files_that_are_short,
        CheckpointStep::SyncRows | CheckpointStep::SyncDirectories => power_failure_after_a_checkpoint,
        CheckpointStep::WriteManifestFirst => power_failure_within_a_checkpoint,
        CheckpointStep::KeepInDoubt => manifest_in_doubt,
        CheckpointStep::RemoveFailed => failed_write,
        CheckpointStep::RemoveInterrupted => interrupted_write,
        CheckpointStep::KnowLastBlock => file_of_the_same_place,
        CheckpointStep::HoldRoom => disk_that_others_fill,
    }
}

each_step_is_needed! {
    CheckpointStep, killer:
    CarryOpen TakeCarried TakeChanges LeaveRows SkipFolded RaiseFloor ReadCatalogLater KeepUnchanged KeepUntouched RewriteTouched NotePassed WriteApart JoinShort SyncRows SyncDirectories WriteManifestFirst KeepInDoubt RemoveFailed
    RemoveInterrupted KnowLastBlock HoldRoom
}
