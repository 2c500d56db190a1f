//! Backups under failures: each has all that was acknowledged before, or there is none, and the database goes on.

use polychron_base::random::Random;
use polychron_engine::mutations::interrupt;
use polychron_log::Error;
use polychron_log::backup::{Origin, back_up};
use polychron_log::checkpoint::Options;
use polychron_log::disk::{Cause, Disk as _, Files, Operation};
use polychron_log::steps::{BackupStep, Point};
use polychron_sim::{At, Damage, Fault, SimulatedDisk, each_step_is_needed, unneeded};

use crate::faults::{Manner, closed, row, stored};
use crate::ledger::Ledger;
use crate::world::{DATABASE, World, look};
use crate::{STEPS, complaint, is_small, runs, seeds, trials};

fn copy(world: &World, to: &SimulatedDisk) -> Result<(), Error> {
    world.log.flush().unwrap();
    world.checkpoints.back_up(&world.log, &world.manifests, &Files::new(to.clone()))
}

fn copy_closed(disk: &SimulatedDisk, to: &SimulatedDisk) -> Result<(), Error> {
    back_up(&Files::new(disk.clone()), &Files::new(to.clone()), &Options::tiny())
}

/// What must be in a backup.
fn copied(ledger: &Ledger) -> Ledger {
    let mut ledger = ledger.clone();
    ledger.sealed.iter_mut().for_each(|sealed| sealed.epoch = 0);
    ledger.certain = 0;
    ledger.tables = ledger.tables.split_off(ledger.tables.len().saturating_sub(1));
    ledger.first = 0;
    ledger
}

/// What is wrong with a backup, which may be missing if it was not made.
fn wrong(to: &SimulatedDisk, ledger: &Ledger, is_made: bool) -> Option<String> {
    match look(to) {
        Ok(None) if is_made => Some("there is none".to_owned()),
        _ => complaint(to, &copied(ledger)),
    }
}

fn is_empty(disk: &SimulatedDisk) -> bool {
    Files::new(disk.clone()).list("").unwrap().is_empty()
}

/// A database with a checkpoint, carried records, and transactions that are open.
fn used(seed: u64) -> World {
    let world = World::open(&SimulatedDisk::new(seed), &Ledger::default()).unwrap();
    world.run(&mut Random::from_seed(seed), STEPS).unwrap();
    world
}

#[test]
fn a_backup_has_all_that_was_acknowledged_and_is_a_database() {
    let mut carried = 0;
    for seed in runs(60) {
        let world = used(seed);
        let (to, before) = (SimulatedDisk::new(seed), world.disk.steps().len());
        world.log.flush().unwrap();
        let flushed = world.disk.steps().len();
        copy(&world, &to).unwrap();
        let reads = [Operation::Open, Operation::Measure, Operation::Read, Operation::List, Operation::Lock];
        assert!(world.disk.steps()[flushed..].iter().all(|step| reads.contains(&step.operation)), "it is read alone");
        assert!(flushed >= before);
        let ledger = world.told();
        assert_eq!(wrong(&to, &ledger, true), None, "seed {seed}");
        let origin = Origin::read(&Files::new(to.clone())).unwrap().expect("it is written");
        assert_eq!((origin.database, origin.incarnation), (DATABASE, world.incarnation));
        carried += u64::from(stored(&to).contains("checkpoint/1/carried"));
        // Both go on, and know nothing of each other.
        let other = World::open(&to, &copied(&ledger)).unwrap();
        assert_ne!(other.manifests.lock().unwrap().current().database, DATABASE);
        for (world, seed) in [(&world, seed + 1), (&other, seed + 2)] {
            world.run(&mut Random::from_seed(seed), STEPS / 2).unwrap();
            world.checkpoint().unwrap();
            assert_eq!(complaint(&world.disk.after_restart(), &world.told()), None, "seed {seed}");
        }
    }
    assert!(is_small(60) || carried > 0, "no backup carries records");
}

#[test]
fn a_closed_database_is_copied() {
    for seed in runs(10) {
        let (disk, ledger) = closed(seed, Manner::ALL[seed as usize % 3]);
        let (to, before) = (SimulatedDisk::new(seed), disk.steps().len());
        copy_closed(&disk, &to).unwrap();
        assert_eq!(wrong(&to, &ledger, true), None, "seed {seed}");
        let writes = [Operation::Write, Operation::Create, Operation::Remove, Operation::Sync];
        assert!(disk.steps()[before..].iter().all(|step| !writes.contains(&step.operation)));
        assert!(!stored(&to).contains("checkpoint/1/carried"), "nothing is open");
        // And so is the copy.
        let again = SimulatedDisk::new(seed);
        copy_closed(&to, &again).unwrap();
        assert_eq!(wrong(&again, &ledger, true), None, "seed {seed}");
    }
}

#[test]
fn what_is_no_database_or_is_in_use_or_not_empty_is_refused() {
    let (disk, _) = closed(1, Manner::Leaves);
    let to = SimulatedDisk::new(1);
    assert_eq!(copy_closed(&SimulatedDisk::new(2), &to), Err(Error::NoDatabase));
    let lock = disk.lock().unwrap();
    let Err(Error::Disk(error)) = copy_closed(&disk, &to) else { panic!("it is in use") };
    assert!(matches!(error.cause, Cause::Locked { .. }));
    assert!(is_empty(&to));
    drop(lock);
    Files::new(to.clone()).create("notes", 0).unwrap();
    let Err(Error::Disk(error)) = copy_closed(&disk, &to) else { panic!("there is something") };
    assert_eq!(error.cause, Cause::NotEmpty);
    assert_eq!(Files::new(to).list("").unwrap().len(), 1);
}

/// The power fails at every operation, and whatever it leaves is no backup or a whole one.
#[test]
fn an_interrupted_backup_is_none() {
    let trials = trials();
    for seed in runs(2) {
        let world = used(seed);
        let whole = SimulatedDisk::new(seed);
        copy(&world, &whole).unwrap();
        for number in 0..=whole.steps().len() {
            let to = SimulatedDisk::new(seed);
            to.plan(number, Fault::PowerFailure);
            let is_made = copy(&world, &to).is_ok();
            let at = At { seed, operations: &[number] };
            trials.crash(&to, at, seeds(2), |left| wrong(left, &world.told(), is_made));
        }
        world.run(&mut Random::from_seed(seed), 20).unwrap();
        assert_eq!(complaint(&world.disk.after_restart(), &world.told()), None);
    }
}

/// The power fails at every operation while a backup is opened for the first time, and again at some operation of the next opening.
#[test]
fn a_backup_survives_its_opening() {
    let trials = trials();
    for seed in runs(1) {
        let world = used(seed);
        let whole = copy_of(&world);
        let ledger = copied(&world.told());
        let open = |disk: &SimulatedDisk| World::open(disk, &ledger).map(|_| disk.steps().len());
        let operations = open(&whole.after_restart()).unwrap();
        for first in 0..operations {
            let disk = whole.after_restart();
            disk.plan(first, Fault::PowerFailure);
            let _ = open(&disk);
            let at = At { seed, operations: &[first] };
            trials.crash(&disk, at, seeds(1), |left| {
                let second = (first * 7 + seed as usize) % operations;
                let again = left.after_restart();
                again.plan(second, Fault::PowerFailure);
                let _ = open(&again);
                let at = At { seed, operations: &[first, second] };
                trials.crash(&again, at, seeds(1), |left| wrong(left, &world.told(), true));
                wrong(left, &world.told(), true)
            });
        }
    }
}

/// Each operation fails, in the one directory or the other: then nothing is left, and the database goes on.
#[test]
fn a_failed_backup_leaves_nothing() {
    let world = used(3);
    let whole = SimulatedDisk::new(1);
    copy(&world, &whole).unwrap();
    let (mut failed, mut full) = (0, 0);
    for fault in [Fault::Fail, Fault::FailForEver, Fault::Full] {
        for number in 0..whole.steps().len() {
            let to = SimulatedDisk::new(number as u64);
            to.plan(number, fault);
            let result = copy(&world, &to);
            let what = format!("{fault:?} of {:?}: {result:?}", whole.steps()[number]);
            // What could not be removed either is no database.
            let is_unremoved = fault == Fault::FailForEver && look(&to.after_restart()).is_err();
            let wrong = wrong(&to.after_restart(), &world.told(), result.is_ok());
            assert!(wrong.is_none() || (is_unremoved && result.is_err()), "{what}: {wrong:?}");
            if let Err(error) = &result {
                failed += 1;
                full += u64::from(matches!(error, Error::Disk(error) if error.is_full()));
                assert!(fault == Fault::FailForEver || is_empty(&to), "{what}");
            }
        }
    }
    assert!(failed > 20 && full > 5, "{failed} failed, {full} of them for lack of room");
    let begun = world.disk.steps().len();
    copy(&world, &SimulatedDisk::new(1)).unwrap();
    for number in 0..world.disk.steps().len() - begun {
        let to = SimulatedDisk::new(1);
        world.disk.plan(world.disk.steps().len() + number, Fault::Fail);
        // A read may be tried again.
        match copy(&world, &to) {
            Ok(()) => assert_eq!(wrong(&to, &world.told(), true), None),
            Err(_) => assert!(is_empty(&to), "read {number}"),
        }
    }
    assert_eq!(complaint(&world.disk.after_restart(), &world.told()), None);
}

/// Blocks of the database are damaged: there is an error and nothing else, or the backup is whole.
#[test]
fn damage_is_not_copied() {
    let mut noticed = 0;
    let (disk, ledger) = closed(1, Manner::Leaves);
    let paths: Vec<String> =
        stored(&disk).into_iter().chain(["log/0.log".to_owned(), "log/1.log".to_owned()]).collect();
    for (path, block) in paths.iter().flat_map(|path| (0..4).map(move |block| (path, block))) {
        for damage in [Damage::FlipBit { bit: 777 }, Damage::Zero, Damage::Unreadable, Damage::Garbage] {
            let (left, to) = (disk.after_restart(), SimulatedDisk::new(1));
            if !left.damage(path, block, damage).unwrap_or(false) {
                continue;
            }
            match copy_closed(&left, &to) {
                Ok(()) => assert_eq!(wrong(&to, &ledger, true), None, "{damage:?} of {path}, block {block}"),
                Err(_) => {
                    noticed += 1;
                    assert!(is_empty(&to));
                }
            }
        }
    }
    assert!(noticed > 10, "{noticed}");
}

/// The test of power failures can fail: without any write or sync some backup is not what it should be.
#[test]
fn every_sync_is_needed() {
    let world = used(1);
    let start = SimulatedDisk::new(1);
    let undisturbed = start.after_restart();
    copy(&world, &undisturbed).unwrap();
    let steps = undisturbed.steps();
    let mut unneeded = unneeded(&start, &steps, 0..steps.len(), |disk| {
        let is_made = copy(&world, disk).is_ok();
        disk.outcomes(1..6).any(|left| {
            let has_origin = Origin::read(&Files::new(left.clone())).is_ok_and(|origin| origin.is_some());
            let is_there = look(&left).is_ok_and(|found| found.is_some());
            wrong(&left, &world.told(), is_made).is_some() || (is_there && !has_origin)
        })
    });
    // The second manifest has what the first one has.
    unneeded.retain(|(_, path)| !path.starts_with("manifest.") && !path.is_empty());
    assert_eq!(unneeded, []);
}

fn copy_of(world: &World) -> SimulatedDisk {
    let to = SimulatedDisk::new(7);
    copy(world, &to).unwrap();
    to
}

fn power_failure() -> bool {
    let world = used(1);
    let to = copy_of(&world);
    to.outcomes(1..6).any(|left| wrong(&left, &world.told(), true).is_some())
}

fn power_failure_within() -> bool {
    let world = used(1);
    let count = copy_of(&world).steps().len();
    (0..count).any(|number| {
        let to = SimulatedDisk::new(1);
        to.plan(number, Fault::PowerFailure);
        let is_made = copy(&world, &to).is_ok();
        to.outcomes(1..3).any(|left| wrong(&left, &world.told(), is_made).is_some())
    })
}

fn failed_write() -> bool {
    let (world, to) = (used(1), SimulatedDisk::new(1));
    to.plan(8, Fault::Fail);
    copy(&world, &to).is_err() && !is_empty(&to)
}

fn full_directory() -> bool {
    let to = SimulatedDisk::new(1);
    Files::new(to.clone()).create("notes", 0).unwrap();
    copy(&used(1), &to).is_ok()
}

/// A backup is opened, and a row is changed that it carries a record of.
fn changed_row_of_a_backup() -> bool {
    let disk = SimulatedDisk::new(1);
    let mut ledger = Ledger::default();
    for _ in 0..3 {
        ledger = World::open(&disk, &ledger).unwrap().told();
    }
    let world = World::open(&disk, &ledger).unwrap();
    world.begin(0).unwrap();
    (0..9).for_each(|number| world.commit(1, &[row(1, 1, number)]).unwrap());
    let to = copy_of(&world);
    let other = World::open(&to, &copied(&world.told())).unwrap();
    other.commit(1, &[row(1, 1, 77)]).unwrap();
    let found = look(&to.after_restart()).unwrap().expect("it is there");
    found.rows[&(1, 1)][1] != 77
}

fn opening_beside() -> bool {
    let (disk, _) = closed(1, Manner::Leaves);
    let beside = disk.clone();
    interrupt(Point::FilesRead, move || drop(beside.lock().unwrap()));
    copy_closed(&disk, &SimulatedDisk::new(1)).is_ok()
}

fn killer(step: BackupStep) -> fn() -> bool {
    match step {
        BackupStep::RefuseFull => full_directory,
        BackupStep::SyncNames => power_failure,
        BackupStep::ManifestsLast => power_failure_within,
        BackupStep::ClearFailed => failed_write,
        BackupStep::BeginEpochsAnew | BackupStep::KeepIncarnation => changed_row_of_a_backup,
        BackupStep::LookAgain => opening_beside,
    }
}

each_step_is_needed! {
    BackupStep, killer: RefuseFull SyncNames ManifestsLast ClearFailed BeginEpochsAnew KeepIncarnation LookAgain
}
