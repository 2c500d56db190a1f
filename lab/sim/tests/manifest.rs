//! Manifests under failures: after any crash the newest durable one is found, or the one that was being written, and never anything else.
//!
//! `POLYCHRON_MANIFEST_RUNS` says how many disks are tried, `POLYCHRON_CRASH_SEEDS` how many outcomes of each power failure, and `POLYCHRON_FIRST_SEED` and
//! `POLYCHRON_FIRST_CRASH_SEED` from which seeds on.

use polychron_base::sizes::scaled;
use polychron_log::DatabaseId;
use polychron_log::checkpoint::{Contents, Range};
use polychron_log::disk::{Access, BLOCK, Buffer, Cause, Files, Operation};
use polychron_log::manifest::{Checkpoint, CheckpointFile, Error, Manifest, Manifests};
use polychron_sim::{At, Damage, Fault, SimulatedDisk, Step, Survival, Trials};

const DATABASE: DatabaseId = DatabaseId(77);

/// The manifest of this number; they differ in length, some are longer than the files are at first, and all bytes depend on the number.
fn manifest(number: u64) -> Manifest {
    let contents = Contents::Rows { table: 1, part: 2, range: Range::default() };
    let file = CheckpointFile { number, contents, count: 1, bytes: number, checksum: number as u32 };
    let blocks = [0, 3, 1, 17, 20, 2][number as usize % 6];
    Manifest {
        database: DATABASE,
        incarnation: 1,
        first_log_file: number,
        durable: 10 * number,
        checkpoint: Some(Checkpoint { number, files: vec![file; 2], ..Checkpoint::default() }),
        catalog: vec![number as u8 + 1; blocks * BLOCK + 100],
    }
}

/// What may be found: the number of the manifest that was durable last, if one was, and of the one that is being written.
#[derive(Clone, Copy, Debug, Default)]
struct Expected {
    durable: Option<u64>,
    tried: Option<u64>,
}

impl Expected {
    /// What is wrong with what was found, in words.
    fn complaint(&self, found: Option<&Manifest>) -> Option<String> {
        let Some(found) = found else {
            return self.durable.map(|durable| format!("nothing was found, and {durable} was durable"));
        };
        let number = found.first_log_file;
        let is_expected = self.durable == Some(number) || self.tried == Some(number);
        let complaint = if !is_expected {
            format!("{number} was found for {self:?}")
        } else if *found != manifest(number) {
            format!("{number} has become another")
        } else {
            return None;
        };
        Some(complaint)
    }
}

/// Opens or creates, and writes some more. Keeps account of what was durable; stops at the first error.
fn use_manifests(disk: &SimulatedDisk, expected: &mut Expected, writes: u64) -> Result<(), Error> {
    let files = Files::new(disk.clone());
    let mut manifests = match Manifests::open(&files)? {
        Some(manifests) => manifests,
        None => {
            expected.tried = Some(0);
            Manifests::create(&files, manifest(0))?
        }
    };
    let number = manifests.current().first_log_file;
    *expected = Expected { durable: Some(number), tried: None };
    for number in number + 1..=number + writes {
        expected.tried = Some(number);
        manifests.write(manifest(number))?;
        *expected = Expected { durable: Some(number), tried: None };
    }
    Ok(())
}

/// What is wrong with what is found on a disk. An error is wrong, too.
fn complaint(disk: &SimulatedDisk, expected: &Expected) -> Option<String> {
    match Manifests::read(&Files::new(disk.clone())) {
        Ok(found) => expected.complaint(found.as_ref()),
        Err(error) => Some(error.to_string()),
    }
}

fn seeds(default: usize) -> std::ops::Range<u64> {
    polychron_sim::crash_seeds(scaled(default, 1))
}

/// The seeds of disks.
fn runs(default: usize) -> std::ops::Range<u64> {
    polychron_sim::seeds("POLYCHRON_MANIFEST_RUNS", scaled(default, 1))
}

fn trials() -> Trials {
    Trials::new("POLYCHRON_MANIFEST_RUNS")
}

/// The operations of a run without faults.
fn steps_of(start: &SimulatedDisk, writes: u64) -> Vec<Step> {
    let disk = start.after_restart();
    use_manifests(&disk, &mut Expected::default(), writes).expect("nothing fails");
    disk.steps()
}

/// Crashes at every operation of a run that begins with a disk, and calls `check` with each outcome.
fn crash_everywhere(
    start: &SimulatedDisk,
    expected: Expected,
    writes: u64,
    fault: Fault,
    check: &mut dyn FnMut(usize, &SimulatedDisk, Expected),
) {
    for number in 0..steps_of(start, writes).len() {
        let disk = start.after_restart();
        disk.plan(number, fault);
        let mut expected = expected;
        // An error need not follow: what fails last may be something that nobody waits for.
        let _ = use_manifests(&disk, &mut expected, writes);
        check(number, &disk, expected);
    }
}

#[test]
fn a_power_failure_at_any_operation_leaves_the_newest() {
    let trials = trials();
    for seed in runs(1) {
        let (start, nothing) = (SimulatedDisk::new(seed), Expected::default());
        crash_everywhere(&start, nothing, 8, Fault::PowerFailure, &mut |number, disk, expected| {
            let at = At { seed, operations: &[number] };
            trials.crash(disk, at, seeds(20), |left| complaint(left, &expected));
        });
    }
}

/// A creation that was interrupted leaves a file of any content, on a file system that lengthens files before it writes them.
#[test]
fn a_creation_begins_anew() {
    let trials = trials();
    for seed in runs(1) {
        let disk = SimulatedDisk::new(seed);
        let files = Files::new(disk.clone());
        let left = files.create("manifest.0", BLOCK as u64).unwrap();
        let mut garbage = Buffer::zeroed(BLOCK);
        garbage.fill(0xAA);
        left.write_at(0, &garbage).unwrap();
        left.sync().unwrap();
        files.sync_directory("").unwrap();
        crash_everywhere(&disk, Expected::default(), 1, Fault::PowerFailure, &mut |number, disk, expected| {
            let at = At { seed, operations: &[number] };
            trials.crash(disk, at, seeds(20), |left| complaint(left, &expected));
        });
    }
}

/// The same as above, and then once more while the database is opened again and used.
#[test]
fn so_does_a_second_power_failure() {
    let trials = trials();
    for seed in runs(1) {
        let (start, nothing) = (SimulatedDisk::new(seed), Expected::default());
        crash_everywhere(&start, nothing, 3, Fault::PowerFailure, &mut |first, disk, expected| {
            trials.crash(disk, At { seed, operations: &[first] }, seeds(2), |left| {
                crash_everywhere(left, expected, 2, Fault::PowerFailure, &mut |second, disk, expected| {
                    let at = At { seed, operations: &[first, second] };
                    trials.crash(disk, at, seeds(2), |left| complaint(left, &expected));
                });
                complaint(left, &expected)
            });
        });
    }
}

/// A process ends, after an operation has failed or none, the next one opens what it finds, and then the power fails.
#[test]
fn what_a_restart_finds_is_durable_before_anything_is_built_on_it() {
    let trials = trials();
    for fault in [Fault::Fail, Fault::FailForEver, Fault::PowerFailure] {
        for seed in runs(4) {
            crash_everywhere(&SimulatedDisk::new(seed), Expected::default(), 3, fault, &mut |first, disk, expected| {
                // Where the power did not fail, what the failed operation has left is still in the system's cache.
                let next = disk.after_restart();
                trials.check(At { seed, operations: &[first] }, fault, complaint(&next, &expected));
                crash_everywhere(&next, expected, 2, Fault::PowerFailure, &mut |second, disk, expected| {
                    let at = At { seed, operations: &[first, second] };
                    trials.crash(disk, at, seeds(4), |left| {
                        complaint(left, &expected).map(|complaint| format!("{fault:?}: {complaint}"))
                    });
                });
            });
        }
    }
}

/// Operations fail once, each in turn, while nothing else happens: errors are told, and the process may open again.
#[test]
fn a_failed_operation_is_told() {
    let (trials, start) = (trials(), SimulatedDisk::new(1));
    let steps = steps_of(&start, 4);
    for (number, step) in steps.iter().enumerate() {
        for (fault, cause) in
            [(Fault::Fail, Cause::Device), (Fault::FailForEver, Cause::Device), (Fault::Full, Cause::Full)]
        {
            let disk = start.after_restart();
            disk.plan(number, fault);
            let mut expected = Expected::default();
            let result = use_manifests(&disk, &mut expected, 4);
            let concerns = fault != Fault::Full || step.allocates > 0;
            match result {
                Err(Error::Disk(error)) => {
                    assert!(concerns);
                    assert_eq!(error.cause, cause, "{fault:?} at {number}");
                    assert_eq!((error.operation, &error.path), (step.operation, &step.path));
                }
                other => assert!(!concerns && other.is_ok(), "{fault:?} at {number}: {other:?}"),
            }
            trials.check(At { seed: 1, operations: &[number] }, fault, complaint(&disk.after_restart(), &expected));
        }
    }
}

/// No room for a manifest that is longer: the one before counts, and writing goes on when there is room.
#[test]
fn room_that_comes_back_is_used() {
    let disk = SimulatedDisk::new(1);
    let files = Files::new(disk.clone());
    let mut manifests = Manifests::create(&files, manifest(0)).unwrap();
    manifests.write(manifest(1)).unwrap();
    disk.set_room(Some(disk.used()));
    // One that fits is written.
    manifests.write(manifest(2)).unwrap();
    for _ in 0..3 {
        let Err(Error::Disk(error)) = manifests.write(manifest(3)) else { panic!("there is no room") };
        assert!(error.is_full());
        assert_eq!(manifests.current(), &manifest(2));
        for left in disk.outcomes(1..5) {
            assert_eq!(complaint(&left, &Expected { durable: Some(2), tried: Some(3) }), None);
        }
    }
    disk.set_room(None);
    manifests.write(manifest(3)).unwrap();
    for left in disk.outcomes(1..5) {
        assert_eq!(complaint(&left, &Expected { durable: Some(3), tried: None }), None);
    }
}

/// After a failed sync no further manifest is written, for then neither file would be certain.
#[test]
fn nothing_is_written_after_a_failed_sync() {
    let disk = SimulatedDisk::new(1);
    let files = Files::new(disk.clone());
    let mut manifests = Manifests::create(&files, manifest(0)).unwrap();
    disk.plan(disk.steps().len() + 1, Fault::Fail);
    assert!(manifests.write(manifest(1)).is_err());
    for _ in 0..3 {
        let Err(Error::Disk(error)) = manifests.write(manifest(2)) else { panic!("it was written") };
        assert_eq!(error.cause, Cause::InDoubt);
    }
}

#[test]
fn damage_is_not_believed() {
    let disk = SimulatedDisk::new(1);
    let files = Files::new(disk.clone());
    drop(Manifests::create(&files, manifest(0)).unwrap());
    let damaged = |damages: &[(&str, Damage)]| {
        let disk = disk.after_restart();
        for (path, damage) in damages {
            assert_eq!(disk.damage(path, 0, *damage), Ok(true));
        }
        Manifests::read(&Files::new(disk)).map(|found| found.map(|manifest| manifest.first_log_file))
    };
    let flip = Damage::FlipBit { bit: 1000 };
    // As after a write that was interrupted.
    assert_eq!(damaged(&[("manifest.0", flip)]), Ok(Some(0)));
    assert_eq!(damaged(&[("manifest.1", Damage::Garbage)]), Ok(Some(0)));
    assert!(matches!(damaged(&[("manifest.0", flip), ("manifest.1", flip)]), Err(Error::Corrupt { .. })));
    assert!(matches!(damaged(&[("manifest.1", Damage::Zero)]), Err(Error::Corrupt { path: "manifest.1", .. })));
    assert!(
        matches!(damaged(&[("manifest.0", Damage::Unreadable)]), Err(Error::Disk(error)) if error.cause == Cause::Device)
    );
    files.remove("manifest.1").unwrap();
    assert!(matches!(Manifests::open(&files).err(), Some(Error::Corrupt { path: "manifest.1", .. })));
    // One file's content in the other.
    let disk = SimulatedDisk::new(1);
    let files = Files::new(disk.clone());
    drop(Manifests::create(&files, manifest(0)).unwrap());
    let file = files.open("manifest.1", Access::Write).unwrap();
    let mut block = Buffer::zeroed(BLOCK);
    let from = files.open("manifest.0", Access::Read).unwrap();
    from.read_at(0, &mut block).unwrap();
    file.write_at(0, &block).unwrap();
    assert!(matches!(Manifests::open(&files).err(), Some(Error::Corrupt { path: "manifest.1", .. })));
}

#[test]
fn a_database_is_created_once() {
    let files = Files::new(SimulatedDisk::new(1));
    assert!(Manifests::open(&files).unwrap().is_none());
    drop(Manifests::create(&files, manifest(0)).unwrap());
    assert!(matches!(Manifests::create(&files, manifest(0)).err(), Some(Error::Corrupt { .. })));
    let too_long = Manifest { catalog: vec![1; polychron_log::manifest::MAX_BYTES], ..manifest(1) };
    let mut manifests = Manifests::open(&files).unwrap().unwrap();
    assert!(matches!(manifests.write(too_long), Err(Error::TooLong { .. })));
    manifests.write(manifest(1)).unwrap();
    assert_eq!((manifests.generation(), manifests.current()), (3, &manifest(1)));
}

/// Whether some crash is answered wrongly when an operation does nothing, as if it stood not in the code.
fn is_needed(step: usize, fault: Fault, start: &SimulatedDisk, before: Expected) -> bool {
    let count = steps_of(start, 2).len();
    (step + 1..=count).any(|crash| {
        let disk = start.after_restart();
        disk.plan(step, fault);
        disk.plan(crash, Fault::PowerFailure);
        let mut expected = before;
        let _ = use_manifests(&disk, &mut expected, 2);
        disk.outcomes(1..30).any(|left| complaint(&left, &expected).is_some())
    })
}

/// The tests above can fail: without any one of the syncs, and without the write that begins an opening, some crash is answered wrongly.
#[test]
fn every_sync_is_needed() {
    // A process has written and its sync has failed; readers are shown what was lost.
    let lost = (0..200).find_map(|seed| {
        let disk = SimulatedDisk::new(seed);
        let files = Files::new(disk.clone());
        let mut manifests = Manifests::create(&files, manifest(0)).unwrap();
        disk.plan(disk.steps().len() + 1, Fault::Fail);
        manifests.write(manifest(1)).unwrap_err();
        let is_shown = Manifests::read(&files).unwrap() == Some(manifest(1));
        let is_lost =
            Manifests::read(&Files::new(disk.after_power_failure(Survival::Nothing, 0))).unwrap() == Some(manifest(0));
        (is_shown && is_lost).then(|| disk.after_restart())
    });
    let after_failure = (lost.unwrap(), Expected { durable: Some(0), tried: Some(1) });
    let fresh = (SimulatedDisk::new(1), Expected::default());
    let mut needed = Vec::new();
    for (start, before) in [fresh, after_failure] {
        let steps = steps_of(&start, 2);
        for (number, step) in steps.iter().enumerate() {
            let fault = match step.operation {
                Operation::Sync | Operation::SyncDirectory => Fault::LoseSync,
                Operation::Write => Fault::LoseWrite,
                _ => continue,
            };
            needed.push((number, step.operation, is_needed(number, fault, &start, before)));
        }
    }
    // The first sync of the directory follows what an interrupted creation has left, which here is nothing.
    let unneeded: Vec<_> = needed.iter().filter(|(_, _, is_needed)| !is_needed).collect();
    assert!(matches!(unneeded[..], [(_, Operation::SyncDirectory, _)]), "{needed:?}");
}
