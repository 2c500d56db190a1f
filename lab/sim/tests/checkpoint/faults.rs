//! Devices that fail, lie and age while checkpoints are made and read.

use std::collections::BTreeSet;

use polychron_base::random::Random;
use polychron_log::checkpoint::Contents;
use polychron_log::disk::{Access, Disk as _, DiskFile as _, Files, Operation};
use polychron_log::{Durability, Error, checkpoint};
use polychron_sim::{At, Damage, Fault, SimulatedDisk, unneeded};

use crate::ledger::{Done, Key, Ledger};
use crate::world::{World, contents, keeping, leaving, look};
use crate::{Run, STEPS, complaint, fail_everywhere, has_kept, runs, seeds, trials, use_database};

/// A row of a table.
pub(crate) fn row(table: u32, key: u64, number: u64) -> (Key, Done) {
    ((table, key), Done::Put(vec![key, number, 0, 0, number]))
}

/// What files of checkpoints there are.
pub(crate) fn stored(disk: &SimulatedDisk) -> BTreeSet<String> {
    let files = Files::new(disk.clone());
    let directories = files.list("checkpoint").unwrap_or_default();
    let paths = directories.iter().flat_map(|directory| {
        let directory = format!("checkpoint/{}", directory.name);
        let entries = files.list(&directory).unwrap();
        // One without files counts, too.
        let whole = entries.is_empty().then_some(directory.clone());
        entries.into_iter().map(move |entry| format!("{directory}/{}", entry.name)).chain(whole)
    });
    paths.collect()
}

fn named(world: &World) -> BTreeSet<String> {
    world.files().into_iter().collect()
}

/// What checkpoints do with rows of which few have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// All are written again.
    Rewrites,
    /// All stay, and changes are written beside them.
    Leaves,
    /// Those stay near which nothing has changed.
    Keeps,
}

impl Manner {
    pub(crate) const ALL: [Self; 3] = [Self::Rewrites, Self::Leaves, Self::Keeps];

    fn options(self) -> checkpoint::Options {
        match self {
            // All keys are near each other.
            Self::Rewrites => checkpoint::Options { group_bits: 64, ..checkpoint::Options::tiny() },
            Self::Leaves => leaving(1000.0),
            // So few groups that files know theirs.
            Self::Keeps => checkpoint::Options { group_bits: 3, ..keeping() },
        }
    }
}

/// A database with a checkpoint of two tables, of which one was made for an earlier one, with carried records and a log behind it; closed. Of that table
/// some rows have changed if rows are left, or some of them are.
pub(crate) fn closed(seed: u64, manner: Manner) -> (SimulatedDisk, Ledger) {
    let disk = SimulatedDisk::new(seed);
    let several = |options| checkpoint::Options { memory_bytes: 1 << 10, ..options };
    let options = if manner == Manner::Rewrites { several(manner.options()) } else { manner.options() };
    let world = World::open_with(&disk, &Ledger::default(), options, Durability::Immediate).unwrap();
    world.define(BTreeSet::from([1, 2])).unwrap();
    (0..60).for_each(|key| world.commit(0, &[row(1, key, key + seed)]).unwrap());
    world.checkpoint().unwrap();
    (0..30).for_each(|key| world.commit(0, &[row(2, key, key)]).unwrap());
    if manner == Manner::Keeps {
        // What nothing happens to has files of its own then.
        world.commit(0, &[row(1, 7, 1), row(1, 8, 1)]).unwrap();
        world.checkpoint().unwrap();
    }
    if manner != Manner::Rewrites {
        let patched = ((1, 9), Done::Patch(1, vec![5, 0, 7]));
        world.commit(0, &[row(1, 7, 7), ((1, 8), Done::Delete), patched]).unwrap();
        world.commit(0, &[((1, 9), Done::Patch(3, vec![8, 9])), ((1, 10), Done::Patch(2, vec![1]))]).unwrap();
    }
    world.begin(1).unwrap();
    (0..30).for_each(|key| world.commit(0, &[row(2, key % 7, key)]).unwrap());
    world.checkpoint().unwrap();
    world.commit(0, &[row(1, 3, 1)]).unwrap();
    world.discard(1);
    world.log.close().unwrap();
    let has = contents(&disk);
    assert_eq!((has.contains(&Contents::Records), has.contains(&Contents::Changes)), (true, manner == Manner::Leaves));
    assert_eq!(has_kept(&disk), manner == Manner::Keeps);
    (disk, world.told())
}

/// Rows stay while little has changed, and are written again when it is much.
#[test]
fn changes_are_folded_once_they_are_many() {
    let disk = SimulatedDisk::new(1);
    let world = World::open_with(&disk, &Ledger::default(), leaving(10.0), Durability::Immediate).unwrap();
    (0..12).for_each(|key| world.commit(0, &[row(1, key, key)]).unwrap());
    world.checkpoint().unwrap();
    let first = world.files();
    let folded = (1..200).find(|&round| {
        let rows: Vec<_> = (0..8).map(|key| row(1, 8 * round + key, round)).collect();
        world.commit(0, &rows).unwrap();
        world.checkpoint().unwrap();
        assert_eq!(complaint(&disk.after_restart(), &world.told()), None, "round {round}");
        let is_folded = !first.iter().all(|path| world.files().contains(path));
        assert_ne!(is_folded, contents(&disk).contains(&Contents::Changes));
        is_folded
    });
    assert!(folded.is_some_and(|round| round > 2), "{folded:?}");
}

/// Each operation fails: the database goes on or stops, and opening it again finds what was acknowledged.
#[test]
fn a_failed_operation_loses_nothing() {
    let trials = trials();
    for fault in [Fault::Fail, Fault::FailForEver, Fault::Full] {
        for seed in runs(2) {
            let start = SimulatedDisk::new(seed);
            fail_everywhere(&start, &Ledger::default(), Run::new(seed, STEPS), fault, &mut |number, disk, ledger| {
                let at = At { seed, operations: &[number] };
                trials.check(at, fault, complaint(&disk.after_restart(), ledger));
                let lost = |left: &SimulatedDisk| complaint(left, ledger).map(|it| format!("{fault:?}: {it}"));
                trials.crash(disk, at, seeds(1), lost);
            });
        }
    }
}

/// An operation of a checkpoint fails: it is given up, and nothing of it stays; transactions go on; a later one is made.
#[test]
fn a_failed_checkpoint_is_given_up() {
    let (trials, mut failed) = (trials(), 0);
    let manners = Manner::ALL.into_iter().flat_map(|manner| [(manner, Fault::Fail), (manner, Fault::Full)]);
    for (manner, fault) in manners {
        for number in 0.. {
            let disk = SimulatedDisk::new(number as u64);
            let world = World::open_with(&disk, &Ledger::default(), manner.options(), Durability::Immediate).unwrap();
            (0..20).for_each(|key| world.commit(0, &[row(1, key, key)]).unwrap());
            world.checkpoint().unwrap();
            if manner == Manner::Keeps {
                // The other rows have a file of their own then.
                world.commit(0, &[row(1, 1, 6)]).unwrap();
                world.checkpoint().unwrap();
            }
            world.commit(0, &[row(1, 1, 7)]).unwrap();
            let first = disk.steps().len();
            disk.plan(first + number, fault);
            let result = world.checkpoints.run(&world.log, &world.manifests, checkpoint::Haste::Unpaced);
            if disk.steps().len() <= first + number {
                assert_eq!(has_kept(&disk), manner == Manner::Keeps);
                break;
            }
            let step = disk.steps()[first + number].clone();
            let what = format!("{manner:?}, {fault:?} of {step:?}: {result:?}");
            let is_cleaning =
                matches!(step.operation, Operation::Remove | Operation::RemoveDirectory | Operation::List);
            let in_doubt = step.path.starts_with("manifest") && fault == Fault::Fail;
            failed += u64::from(result.is_err());
            assert_eq!(result.is_err(), world.checkpoints.counts().failed > 0, "{what}");
            if !is_cleaning && !in_doubt {
                assert_eq!(stored(&disk), named(&world), "{what}");
            }
            world.commit(0, &[row(1, 2, 8)]).unwrap();
            match world.checkpoint() {
                Ok(_) => assert_eq!(stored(&disk), named(&world), "{what}"),
                Err(error) => assert!(in_doubt && error == Error::InDoubt, "{what}, and then {error}"),
            }
            world.commit(0, &[row(1, 3, 9)]).unwrap();
            let at = At { seed: number as u64, operations: &[first + number] };
            let lost = |left: &SimulatedDisk| complaint(left, &world.told()).map(|it| format!("{what}: {it}"));
            trials.crash(&disk, at, seeds(2), lost);
            trials.check(at, &what, complaint(&disk.after_restart(), &world.told()));
        }
    }
    assert!(failed > 10, "{failed} checkpoints failed");
}

/// There is no room for a checkpoint, and then there is.
#[test]
fn room_that_comes_back_is_used() {
    let disk = SimulatedDisk::new(1);
    let world = World::open(&disk, &Ledger::default()).unwrap();
    (0..300).for_each(|key| world.commit(0, &[row(1, key, key)]).unwrap());
    let used = disk.used();
    // Not even that of spare files is enough.
    disk.set_room(Some(0));
    let error = world.checkpoint().unwrap_err();
    assert!(matches!(&error, Error::Disk(error) if error.is_full()), "{error}");
    assert!(disk.used() <= used && stored(&disk).is_empty(), "{:?}", stored(&disk));
    disk.set_room(None);
    world.checkpoint().unwrap();
    assert!(disk.used() < used, "the log has become shorter");
    assert_eq!(world.checkpoints.counts(), checkpoint::Counts { made: 1, failed: 1 });
    assert_eq!(complaint(&disk.after_restart(), &world.told()), None);
}

/// The log of a small table fills a disk again and again. Each time a checkpoint begins by itself before there is no room for it, and so nothing is
/// refused; and the disk stays full only while others fill it.
#[test]
fn a_small_disk_is_enough_for_a_small_table() {
    // Manifests take some.
    for blocks in [62, 72, 92] {
        let disk = SimulatedDisk::new(1);
        disk.set_room(Some(blocks << 12));
        let options = checkpoint::Options { log_bytes: 1 << 40, ..checkpoint::Options::tiny() };
        let world = World::open_with(&disk, &Ledger::default(), options, Durability::Immediate).unwrap();
        let beat = || {
            world.log.make_files();
            world.checkpoints.tick(&world.log, &world.manifests);
        };
        for number in 0..400 {
            beat();
            let done = world.commit(0, &[row(1, number % 12, number)]);
            assert!(done.is_ok(), "{done:?} at {number} with {blocks} blocks");
        }
        let counts = world.checkpoints.counts();
        assert!(counts.made > 10 && counts.failed == 0, "{counts:?} with {blocks} blocks");
        assert_eq!(complaint(&disk.after_restart(), &world.told()), None);
    }
}

/// Others have filled the disk before there was a checkpoint: one takes the room of a file that was made ahead, and then the log has room.
#[test]
fn a_checkpoint_takes_the_room_of_spare_files() {
    let disk = SimulatedDisk::new(1);
    let options = checkpoint::Options { log_bytes: 1 << 40, ..checkpoint::Options::tiny() };
    let world = World::open_with(&disk, &Ledger::default(), options, Durability::Immediate).unwrap();
    for number in 0..9 {
        world.log.make_files();
        world.commit(0, &[row(1, number % 12, number)]).unwrap();
    }
    world.log.make_files();
    disk.set_room(Some(disk.used()));
    let mut refused = 0;
    for number in 0..100 {
        world.log.make_files();
        world.checkpoints.tick(&world.log, &world.manifests);
        match world.commit(0, &[row(1, number % 12, number)]) {
            Ok(()) => {}
            Err(error) => {
                assert!(matches!(error, polychron_base::Error::DiskFull(_)), "{error}");
                world.discard(0);
                refused += 1;
            }
        }
    }
    assert!(refused < 50 && world.checkpoints.counts().made > 0, "{refused} and {:?}", world.checkpoints.counts());
    assert_eq!(complaint(&disk.after_restart(), &world.told()), None);
}

/// A checkpoint begins by itself once the log is long, and not again before the log has become so again; after a failure not soon.
#[test]
fn a_long_log_is_folded() {
    let disk = SimulatedDisk::new(1);
    let world = World::open(&disk, &Ledger::default()).unwrap();
    let mut key = 0;
    let mut commit = |fault: Option<Fault>| {
        key += 1;
        world.commit(0, &[row(1, key % 12, key)]).unwrap();
        fault.into_iter().for_each(|fault| disk.plan(disk.steps().len(), fault));
        for _ in 0..2 {
            world.checkpoints.tick(&world.log, &world.manifests);
        }
        let counts = world.checkpoints.counts();
        (counts.made, counts.failed)
    };
    // A frame has a block, and a log of 32 KiB is long: its files take twice as much then.
    let first = (1..200).find(|_| commit(None) == (1, 0)).expect("none is made");
    let second = (1..200).find(|_| commit(None) == (2, 0)).expect("no further one is made");
    assert!((4..=12).contains(&first) && (4..=12).contains(&second), "{first} and {second} commits");
    assert!((1..second).all(|_| commit(None) == (2, 0)));
    assert_eq!(commit(Some(Fault::Fail)), (2, 1));
    assert!((0..10).all(|_| commit(None) == (2, 1)));
    world.idle(11, 1000);
    assert_eq!(commit(None), (3, 1));
    assert_eq!(complaint(&disk.after_restart(), &world.told()), None);
}

/// The database is closed: the checkpoint that is being made is given up, and nothing of it stays.
#[test]
fn a_checkpoint_that_nobody_wants_is_given_up() {
    let disk = SimulatedDisk::new(1);
    let world = World::open(&disk, &Ledger::default()).unwrap();
    (0..20).for_each(|key| world.commit(0, &[row(1, key, key)]).unwrap());
    world.checkpoints.stop();
    assert_eq!(world.checkpoint(), Err(Error::GivenUp));
    assert_eq!(stored(&disk), BTreeSet::new());
    assert_eq!(complaint(&disk.after_restart(), &world.told()), None);
}

/// Every block of a checkpoint, damaged in every way: it is noticed, or makes no difference.
#[test]
fn damage_is_noticed() {
    let (trials, mut noticed, mut harmless) = (trials(), 0, 0);
    for (seed, manner) in runs(2).flat_map(|seed| Manner::ALL.map(|manner| (seed, manner))) {
        let (disk, ledger) = closed(seed, manner);
        let mut random = Random::from_seed(seed);
        for path in stored(&disk) {
            let blocks = disk.open(&path, Access::Read).unwrap().bytes().unwrap() / 4096;
            for block in 0..blocks {
                let damages = [
                    Damage::FlipBit { bit: random.below(8 * 4096) as usize },
                    Damage::FlipBit { bit: random.below(8 * 96) as usize },
                    Damage::Zero,
                    Damage::Garbage,
                    Damage::Stale,
                    Damage::Misdirect { from: random.below(blocks) },
                    Damage::Unreadable,
                    Damage::Cut,
                ];
                for damage in damages {
                    let left = disk.after_restart();
                    if !left.damage(&path, block, damage).unwrap() {
                        continue;
                    }
                    match look(&left) {
                        Ok(found) => {
                            let wrong = found.and_then(|found| ledger.complaint(&found));
                            trials.check(At { seed, operations: &[] }, (damage, &path, block), wrong);
                            harmless += 1;
                        }
                        Err(Error::Damaged { file, .. }) => {
                            assert_eq!(file, path);
                            noticed += 1;
                        }
                        Err(Error::Disk(error)) => assert_eq!((damage, error.path), (Damage::Unreadable, path.clone())),
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        }
    }
    println!("{noticed} damages were noticed, and {harmless} harmed nothing");
    assert!(noticed > 20 && harmless == 0);
}

/// Whole files are missing, or lie in each other's places.
#[test]
fn files_that_are_missing_or_swapped_are_noticed() {
    for manner in Manner::ALL {
        files_are_missed(&closed(1, manner).0);
    }
}

fn files_are_missed(disk: &SimulatedDisk) {
    let paths: Vec<String> = stored(disk).into_iter().collect();
    for path in &paths {
        let left = disk.after_restart();
        Files::new(left.clone()).remove(path).unwrap();
        assert!(look(&left).is_err(), "{path} is missing");
        for other in paths.iter().filter(|other| *other != path) {
            let left = disk.after_restart();
            let files = Files::new(left.clone());
            files.remove(path).unwrap();
            let from = files.open(other, Access::Read).unwrap();
            let mut bytes = polychron_log::disk::Buffer::zeroed(from.bytes().unwrap() as usize);
            from.read_at(0, &mut bytes).unwrap();
            files.create(path, 0).unwrap().write_at(0, &bytes).unwrap();
            assert!(look(&left).is_err(), "{other} is in the place of {path}");
        }
    }
}

/// A write of a checkpoint is lost or lands elsewhere: that is noticed, unless what it wrote is not needed.
#[test]
fn lost_and_misdirected_writes_are_noticed() {
    let (trials, mut noticed) = (trials(), 0);
    for seed in runs(2) {
        let start = SimulatedDisk::new(seed);
        for fault in [Fault::LoseWrite, Fault::Misdirect] {
            let undisturbed = start.after_restart();
            use_database(&undisturbed, &mut Ledger::default(), Run::new(seed, STEPS));
            for (number, step) in undisturbed.steps().iter().enumerate() {
                if step.operation != Operation::Write || !step.path.starts_with("checkpoint") {
                    continue;
                }
                let disk = start.after_restart();
                disk.plan(number, fault);
                let mut ledger = Ledger::default();
                use_database(&disk, &mut ledger, Run::new(seed, STEPS));
                match look(&disk.after_restart()) {
                    Ok(found) => {
                        let wrong = found.and_then(|found| ledger.complaint(&found));
                        trials.check(At { seed, operations: &[number] }, fault, wrong);
                    }
                    Err(_) => noticed += 1,
                }
            }
        }
    }
    assert!(noticed > 2, "{noticed} were noticed");
}

/// Reads of a recovery have a wrong bit, each in turn: what is read again is right.
#[test]
fn wrong_bits_on_the_way_are_read_again() {
    for manner in Manner::ALL {
        let (disk, ledger) = closed(1, manner);
        let undisturbed = disk.after_restart();
        look(&undisturbed).unwrap();
        for (number, step) in undisturbed.steps().iter().enumerate() {
            let left = disk.after_restart();
            left.plan(number, Fault::FlipBit);
            if !step.path.starts_with("manifest") {
                assert_eq!(complaint(&left, &ledger), None, "{step:?}");
            }
        }
    }
}

/// The tests of power failures can fail: without a write or a sync of a checkpoint, each in turn, some crash is answered wrongly.
#[test]
fn every_sync_is_needed() {
    Manner::ALL.into_iter().for_each(every_sync_of_a_checkpoint_is_needed);
}

fn every_sync_of_a_checkpoint_is_needed(manner: Manner) {
    let use_short = |disk: &SimulatedDisk, ledger: &mut Ledger| -> Option<(usize, usize)> {
        let world = World::open_with(disk, ledger, manner.options(), Durability::Immediate).ok()?;
        *ledger = world.told();
        if manner != Manner::Rewrites {
            // Far from the others, if rows stay near which nothing has changed.
            world.commit(0, &[row(1, if manner == Manner::Keeps { 100 } else { 1 }, 0)]).ok()?;
            world.checkpoint().ok()?;
            *ledger = world.told();
        }
        for key in 0..8 {
            world.commit(0, &[row(1, key, key)]).ok()?;
            *ledger = world.told();
        }
        world.begin(1).ok()?;
        world.commit(0, &[row(1, 1, 10)]).ok()?;
        *ledger = world.told();
        let begun = disk.steps().len();
        world.checkpoint().ok()?;
        let ended = disk.steps().len();
        // The files that were given back are written again.
        for key in 0..12 {
            world.commit(0, &[row(1, key, 20 + key)]).ok()?;
            *ledger = world.told();
        }
        Some((begun, ended))
    };
    let start = SimulatedDisk::new(1);
    let undisturbed = start.after_restart();
    let (begun, ended) = use_short(&undisturbed, &mut Ledger::default()).unwrap();
    assert_eq!(has_kept(&undisturbed), manner == Manner::Keeps);
    let steps = undisturbed.steps();
    let unneeded = unneeded(&start, &steps, begun..ended, |disk| {
        let mut ledger = Ledger::default();
        use_short(disk, &mut ledger);
        disk.outcomes(1..6).any(|left| complaint(&left, &ledger).is_some())
    });
    let wanted: Vec<_> = steps[begun..ended].iter().map(|step| (step.operation, step.path.as_str())).collect();
    assert_eq!(unneeded, [], "{wanted:?}");
}
