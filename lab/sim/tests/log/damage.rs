//! Devices that fail, lie and age: what was acknowledged is there, or opening says that it is not.

use polychron_base::Error as Refusal;
use polychron_base::random::Random;
use polychron_log::disk::{Cause, Disk as _, DiskFile as _, Files, Operation};
use polychron_log::{Error, Options};
use polychron_sim::{At, Damage, Fault, SimulatedDisk, Step, unneeded};

use crate::ledger::{Ledger, Told};
use crate::session::{Session, look};
use crate::{Ended, STEPS, complaint, operations, runs, seeds, trials, use_log};

/// What is wrong with what is found, if damage may be noticed.
fn silent(disk: &SimulatedDisk, ledger: &Ledger) -> Option<String> {
    look(disk).ok().and_then(|found| ledger.complaint(&found))
}

/// A log that was used and closed, and what is certain of it.
fn closed(seed: u64) -> (SimulatedDisk, Ledger) {
    let disk = SimulatedDisk::new(seed);
    let mut ledger = Ledger::default();
    for opening in 0..2 {
        let session = Session::open(&disk, &mut ledger, Options::tiny()).unwrap();
        session.run(&mut Random::from_seed(seed + opening), STEPS).unwrap();
        session.close();
        ledger = session.told();
        ledger.certain.extend(ledger.sealed.keys().filter(|id| id.0 == session.incarnation).copied());
    }
    (disk, ledger)
}

/// Each operation fails once: the log stops with an error that names it, or nothing depends on it.
#[test]
fn a_failed_operation_is_told() {
    let (trials, mut stopped) = (trials(), 0);
    for seed in runs(1) {
        let start = SimulatedDisk::new(seed);
        let count = operations(&start, &Ledger::default(), seed, STEPS);
        for (number, fault) in (0..count).flat_map(|number| [(number, Fault::Fail), (number, Fault::FailForEver)]) {
            let disk = start.after_restart();
            disk.plan(number, fault);
            let mut ledger = Ledger::default();
            let result = use_log(&disk, &mut ledger, seed, STEPS);
            let step = &disk.steps()[number];
            match result {
                Err(Ended::Running(Refusal::LogStopped(stop))) => {
                    stopped += 1;
                    let named = stop.reason.contains(&step.path) && stop.reason.contains(&step.operation.to_string());
                    // A file that could not be made is missed when it is needed, and a manifest need not be written.
                    let is_frame = step.operation == Operation::Write && step.path.starts_with("log");
                    assert!(named || !is_frame, "{step:?}: {stop}");
                }
                Err(Ended::Running(error)) => panic!("{step:?}: {error}"),
                Ok(()) | Err(Ended::Opening(_)) => {}
            }
            trials.check(At { seed, operations: &[number] }, fault, complaint(&disk.after_restart(), &ledger));
        }
    }
    assert!(stopped > 20, "the log has stopped {stopped} times");
}

/// Each operation that allocates finds no room, once: nothing is lost, and no waiting transaction is refused.
#[test]
fn a_lack_of_room_is_told_before_anything_is_done() {
    let (trials, mut full) = (trials(), 0);
    for seed in runs(1) {
        let start = SimulatedDisk::new(seed);
        for number in 0..operations(&start, &Ledger::default(), seed, 2 * STEPS) {
            let disk = start.after_restart();
            disk.plan(number, Fault::Full);
            let mut ledger = Ledger::default();
            match use_log(&disk, &mut ledger, seed, 2 * STEPS) {
                Ok(()) => {}
                Err(Ended::Running(Refusal::DiskFull(_))) => full += 1,
                Err(Ended::Opening(Error::Disk(error))) if error.is_full() => {}
                Err(Ended::Opening(Error::Manifest(_))) => {}
                Err(error) => panic!("operation {number}: {error}"),
            }
            let at = At { seed, operations: &[number] };
            trials.check(at, Fault::Full, complaint(&disk.after_restart(), &ledger));
            trials.crash(&disk, at, seeds(2), |left| complaint(left, &ledger));
        }
    }
    assert!(full > 0, "files are made while the log is used");
}

/// No room for a further file: what was staged commits, nothing but deletions is staged, and it goes on when there is room.
#[test]
fn room_that_comes_back_is_used() {
    let disk = SimulatedDisk::new(1);
    let session = Session::open(&disk, &mut Ledger::default(), Options::tiny()).unwrap();
    session.commit(0, &[Told::Put(0, vec![5; 50])]).unwrap();
    session.begin(1, Told::Put(0, vec![7; 50])).unwrap();
    session.idle(1, 0);
    disk.set_room(Some(disk.used()));
    while session.commit(0, &[Told::Put(0, vec![5; 50])]).is_ok() {
        session.idle(1, 0);
    }
    session.discard(0);
    let refused = session.begin(0, Told::Put(0, vec![1]));
    assert!(matches!(refused, Err(Refusal::DiskFull(_))), "{refused:?}");
    session.discard(0);
    assert!(session.stage(1, Told::Put(0, vec![8; 50])).is_err(), "nor is more staged");
    let sealed = session.seal(1);
    session.wait(sealed).unwrap();
    session.commit(0, &[Told::Delete(0, vec![9; 8])]).unwrap();
    assert!(session.begin(0, Told::Put(0, vec![1])).is_err());
    session.discard(0);
    disk.set_room(None);
    session.idle(1, 0);
    for word in 0..20 {
        session.commit(0, &[Told::Put(0, vec![word + 1; 200])]).unwrap();
    }
    assert_eq!(complaint(&disk.after_restart(), &session.told()), None);
}

/// Writes that are lost or land elsewhere are noticed, once the log has written down that they were durable.
#[test]
fn lost_and_misdirected_writes_are_noticed() {
    let (trials, mut noticed) = (trials(), 0);
    for seed in runs(3) {
        let start = SimulatedDisk::new(seed);
        for number in 0..operations(&start, &Ledger::default(), seed, STEPS) {
            for fault in [Fault::LoseWrite, Fault::Misdirect] {
                let disk = start.after_restart();
                disk.plan(number, fault);
                let mut ledger = Ledger::default();
                let Ok(session) = Session::open(&disk, &mut ledger, Options::tiny()) else { continue };
                session.run(&mut Random::from_seed(seed), STEPS).unwrap();
                session.close();
                let left = disk.after_restart();
                let what = (fault, disk.steps().get(number).cloned());
                trials.check(At { seed, operations: &[number] }, what, silent(&left, &session.told()));
                noticed += usize::from(look(&left).is_err());
            }
        }
    }
    assert!(noticed > 20, "{noticed} were noticed");
}

/// Reads of an opening have a wrong bit, each in turn.
#[test]
fn wrong_bits_are_noticed() {
    let trials = trials();
    for seed in runs(3) {
        let (disk, ledger) = closed(seed);
        let undisturbed = disk.after_restart();
        look(&undisturbed).unwrap();
        for number in 0..undisturbed.steps().len() {
            let left = disk.after_restart();
            left.plan(number, Fault::FlipBit);
            trials.check(At { seed, operations: &[number] }, Fault::FlipBit, silent(&left, &ledger));
            // Read again, it is right; unless it was a manifest, of which the other one counts.
            let other = disk.after_restart();
            other.plan(number, Fault::FlipBit);
            let opened = Session::open(&other, &mut ledger.clone(), Options::tiny());
            let is_manifest = other.steps()[number].path.starts_with("manifest");
            assert!(opened.is_ok() || is_manifest, "seed {seed}, operation {number}: {:?}", opened.err());
        }
    }
}

/// Every block of the log, damaged in every way.
#[test]
fn damage_is_noticed_and_changes_nothing() {
    let (trials, mut noticed, mut harmless) = (trials(), 0, 0);
    for seed in runs(2) {
        let (disk, ledger) = closed(seed);
        let mut random = Random::from_seed(seed);
        for entry in disk.list("log").unwrap() {
            let path = format!("log/{}", entry.name);
            let file = disk.open(&path, polychron_log::disk::Access::Read).unwrap();
            let blocks = file.bytes().unwrap() / 4096;
            for block in 0..blocks {
                let bit = random.below(8 * 200) as usize;
                let damages = [
                    Damage::FlipBit { bit },
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
                    trials.check(At { seed, operations: &[] }, (damage, &path, block), silent(&left, &ledger));
                    let opened = Session::open(&left, &mut ledger.clone(), Options::tiny());
                    match opened.err() {
                        None => harmless += 1,
                        Some(Error::Corrupt { file, first_epoch, last_epoch, .. }) => {
                            assert!(file.starts_with("log") && first_epoch <= last_epoch);
                            noticed += 1;
                        }
                        Some(Error::Disk(error)) => {
                            assert!(matches!((damage, error.cause), (Damage::Unreadable, Cause::Device)), "{error}");
                        }
                        Some(error) => panic!("{error}"),
                    }
                }
            }
        }
    }
    println!("{noticed} damages were noticed, and {harmless} harmed nothing");
    assert!(noticed > 20 && harmless > 0);
}

/// A log that was closed is known to be as long as it is, whichever part of its end is gone, the last file as a whole among them.
#[test]
fn an_end_that_is_gone_is_noticed() {
    for seed in runs(2) {
        let (disk, _) = closed(seed);
        let is_log = |step: &&Step| step.operation == Operation::Write && step.path.starts_with("log");
        let last = disk.steps().iter().rfind(is_log).unwrap().path.clone();
        let blocks = disk.open(&last, polychron_log::disk::Access::Read).unwrap().bytes().unwrap() / 4096;
        let mut noticed = 0;
        for first in (0..blocks).rev() {
            let left = disk.after_restart();
            let is_changed = (first..blocks).filter(|block| left.damage(&last, *block, Damage::Zero).unwrap()).count();
            let opened = look(&left).map(drop);
            assert_eq!(
                is_changed > 0,
                matches!(opened, Err(Error::Corrupt { .. })),
                "seed {seed}, {first}: {opened:?}"
            );
            noticed += usize::from(is_changed > 0);
        }
        assert!(noticed > 0);
        let left = disk.after_restart();
        Files::new(left.clone()).remove(&last).unwrap();
        assert!(matches!(look(&left), Err(Error::Corrupt { .. })), "seed {seed}");
    }
}

/// The tests of power failures can fail: without a write or a sync, each in turn, some crash is answered wrongly.
#[test]
fn every_sync_is_needed() {
    let use_short = |disk: &SimulatedDisk, ledger: &mut Ledger| -> Result<(), Ended> {
        let session = Session::open(disk, ledger, Options::tiny()).map_err(Ended::Opening)?;
        let long = || Told::Put(1, vec![7; 250]);
        // Two of these fill a file.
        for worker in [0, 1, 2, 0] {
            let sealed = session.sealed(worker, &[long(), long(), long()]);
            let result = sealed.and_then(|sealed| session.wait(sealed));
            *ledger = session.told();
            result.map_err(Ended::Running)?;
        }
        Ok(())
    };
    let start = SimulatedDisk::new(1);
    let undisturbed = start.after_restart();
    use_short(&undisturbed, &mut Ledger::default()).unwrap();
    let steps = undisturbed.steps();
    let unneeded = unneeded(&start, &steps, 0..steps.len(), |disk| {
        let mut ledger = Ledger::default();
        let _ = use_short(disk, &mut ledger);
        disk.outcomes(1..12).any(|left| complaint(&left, &ledger).is_some())
    });
    // Those of the root follow what an interrupted creation has left, which here is nothing; those of the log files that are not used yet, or that are followed
    // by another one.
    let of = |wanted: &str| {
        unneeded.iter().filter(|(operation, path)| *operation == Operation::SyncDirectory && path == wanted).count()
    };
    let is_log = |step: &&Step| step.operation == Operation::SyncDirectory && step.path == "log";
    let needed = steps.iter().filter(is_log).count() - of("log");
    assert!(of("") == 2 && of("") + of("log") == unneeded.len() && needed > 0, "{unneeded:?} of {steps:?}");
}

/// The manifests are lost, and a database is made anew in the directory: the log that lies there stays.
#[test]
fn a_log_without_its_manifests_is_left_alone() {
    let (disk, ledger) = closed(1);
    let files = Files::new(disk.clone());
    for path in ["manifest.0", "manifest.1"] {
        files.remove(path).unwrap();
    }
    let before = disk.list("log").unwrap();
    for _ in 0..2 {
        let opened = Session::open(&disk, &mut ledger.clone(), Options::tiny());
        assert!(matches!(opened.err(), Some(Error::Corrupt { .. })));
    }
    assert_eq!(disk.list("log").unwrap(), before);
}
