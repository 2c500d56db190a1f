//! Archives under failures: what is restored is a prefix, whatever has failed, or there is an error.

use std::collections::BTreeSet;
use std::time::UNIX_EPOCH;

use polychron_base::clock::calendar_time;
use polychron_base::random::Random;
use polychron_engine::redo::Durability;
use polychron_log::Error;
use polychron_log::backup::{Restored, Sources, back_up, restore};
use polychron_log::checkpoint::Options;
use polychron_log::disk::{Disk as _, Files};
use polychron_log::steps::ArchiveStep;
use polychron_sim::{At, Damage, Fault, SimulatedDisk, Survival, each_step_is_needed, stride};

use crate::faults::row;
use crate::ledger::{Ledger, Rows, Sealed, replay};
use crate::world::{World, look};
use crate::{is_small, runs, seeds, trials};

/// A database, its archive, and a backup.
pub(crate) struct Kept {
    pub(crate) disk: SimulatedDisk,
    pub(crate) archive: SimulatedDisk,
    pub(crate) backup: SimulatedDisk,
}

impl Kept {
    /// A fresh one, and its backup of nothing.
    pub(crate) fn new(seed: u64) -> (Self, World) {
        let (disk, archive, backup) =
            (SimulatedDisk::new(seed), SimulatedDisk::new(seed + 1), SimulatedDisk::new(seed));
        let kept = Self { disk, archive, backup };
        let world = kept.open(&Ledger::default()).unwrap();
        world.checkpoints.back_up(&world.log, &world.manifests, &Files::new(kept.backup.clone())).unwrap();
        (kept, world)
    }

    fn open(&self, ledger: &Ledger) -> Result<World, Error> {
        World::open_archived(&self.disk, ledger, Options::tiny(), Durability::Immediate, Some(&self.archive))
    }

    /// Restores to a new disk, from archive and log.
    fn restore(&self, until_ns: u64) -> Result<(SimulatedDisk, Restored), Error> {
        self.restore_with(&self.archive, &self.disk.after_restart(), until_ns)
    }

    pub(crate) fn restore_with(
        &self,
        archive: &SimulatedDisk,
        disk: &SimulatedDisk,
        until_ns: u64,
    ) -> Result<(SimulatedDisk, Restored), Error> {
        let to = SimulatedDisk::new(9);
        let [archive, disk] = [archive, disk].map(|disk| Files::new(disk.clone()));
        let sources = Sources { archive: Some(&archive), database: Some(&disk) };
        let (backup, files) = (Files::new(self.backup.clone()), Files::new(to.clone()));
        let restored = restore(&backup, sources, &files, until_ns, &Options::tiny())
            .inspect_err(|_| assert!(files.list("").unwrap().is_empty(), "nothing is left"))?;
        Ok((to, restored))
    }
}

fn now_ns() -> u64 {
    calendar_time().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// All transactions up to a point, in their order.
fn sealed_before(ledger: &Ledger, restored: &Restored) -> Vec<Sealed> {
    let last = restored.consistent.map_or(0, |order| order.timestamp);
    let is_before = |it: &&Sealed| (it.incarnation, it.order) <= (restored.incarnation, last);
    let mut sealed: Vec<_> = ledger.sealed.iter().filter(is_before).cloned().collect();
    sealed.sort_by_key(|sealed| (sealed.incarnation, sealed.order));
    sealed
}

/// The rows after them.
fn prefix(ledger: &Ledger, restored: &Restored, tables: &BTreeSet<u32>) -> Rows {
    replay(sealed_before(ledger, restored).iter(), tables)
}

/// What is wrong with what was restored.
pub(crate) fn wrong(to: &SimulatedDisk, ledger: &Ledger, restored: &Restored) -> Option<String> {
    let Ok(Some(found)) = look(to) else { return Some("it cannot be read".to_owned()) };
    let expected = prefix(ledger, restored, &found.tables);
    (found.rows != expected).then(|| format!("{restored:?}: {:?} in place of {expected:?}", found.rows))
}

/// Random transactions, changes of tables, checkpoints and openings, some of which follow a crash; then the database is restored to times between.
#[test]
fn what_is_restored_is_a_prefix() {
    let (trials, mut points, mut restores, mut longs) = (trials(), BTreeSet::new(), 0, 0);
    for seed in runs(4) {
        let (kept, mut world) = Kept::new(seed);
        let (mut random, mut times) = (Random::from_seed(seed), vec![now_ns()]);
        let mut ledger = world.told();
        for opening in 0..3 {
            world.has_long.set(seed % 2 == 0);
            for _ in 0..12 {
                world.run(&mut random, 12).unwrap();
                world.idle(1, 20);
                world.checkpoints.archive(&world.log, &world.manifests);
                times.push(now_ns());
            }
            if opening == 1 {
                world.log.close().unwrap();
            }
            assert_eq!(*world.failures.lock().unwrap(), Vec::<String>::new());
            ledger = world.told();
            longs += world.longs.get();
            drop(world);
            world = kept.open(&ledger).unwrap();
            ledger = world.told();
        }
        times.push(u64::MAX);
        let mut last = None;
        for until_ns in times {
            let (to, restored) = kept.restore(until_ns).unwrap();
            trials.check(At { seed, operations: &[] }, until_ns, wrong(&to, &ledger, &restored));
            let order = restored.consistent.map(|order| order.timestamp);
            assert!(last <= Some((restored.incarnation, order)), "a later time has more");
            last = Some((restored.incarnation, order));
            points.insert((seed, restored.incarnation, order));
            restores += 1;
            // It is a database, and there is a backup of it.
            if restores % 7 == 0 {
                let mut sealed = sealed_before(&ledger, &restored);
                sealed.iter_mut().for_each(|sealed| sealed.epoch = 0);
                let other = World::open(&to, &Ledger { sealed, ..Ledger::default() }).unwrap();
                other.run(&mut random, 20).unwrap();
                other.log.close().unwrap();
                assert_eq!(crate::complaint(&to.after_restart(), &other.told()), None, "seed {seed}");
                drop(other);
                back_up(&Files::new(to), &Files::new(SimulatedDisk::new(1)), &Options::tiny()).unwrap();
            }
        }
    }
    println!("{restores} restores, to {} points, and {longs} long transactions", points.len());
    assert!(is_small(4) || longs > 0);
    assert!(points.len() * 2 > restores, "{} points in {restores} restores", points.len());
}

/// Commits until some log files are closed.
pub(crate) fn fill(world: &World, from: u64, count: u64) {
    (from..from + count).for_each(|number| world.commit(1, &[row(1, number % 40, number)]).unwrap());
}

/// The calendar clock is set back while transactions commit: what is written behind a frame of a later time is not restored, though its own time is an earlier one.
#[test]
fn a_clock_that_is_set_back_brings_nothing_from_behind() {
    let (kept, world) = Kept::new(1);
    let begun_ns = now_ns() + 1_000_000_000_000;
    for (key, after_ns) in [(1, 100), (2, 300), (3, 200), (4, 400)] {
        world.clock.set_calendar_ns(begun_ns + after_ns);
        world.commit(1, &[row(1, key, key)]).unwrap();
        world.idle(1, 20);
    }
    world.checkpoints.archive(&world.log, &world.manifests);
    let ledger = world.told();
    let restored = [50, 150, 250, 350, 450].map(|after_ns| {
        let (to, restored) = kept.restore(begun_ns + after_ns).unwrap();
        assert_eq!(wrong(&to, &ledger, &restored), None, "until {after_ns}");
        look(&to).unwrap().unwrap().rows.into_keys().map(|(_, key)| key).collect::<Vec<_>>()
    });
    assert_eq!(restored, [vec![], vec![1], vec![1], vec![1, 2, 3], vec![1, 2, 3, 4]]);
}

/// Every operation of the archive fails, or the power does: the database goes on, and all is restored that was acknowledged, once it works again.
#[test]
fn an_archive_that_fails_loses_nothing() {
    let operations = {
        let (kept, world) = Kept::new(1);
        fill(&world, 0, 20);
        world.checkpoint().unwrap();
        kept.archive.steps().len()
    };
    assert!(operations > 20);
    let mut reported = 0;
    for fault in [Fault::Fail, Fault::Full] {
        for number in 0..operations {
            let (kept, world) = Kept::new(1);
            kept.archive.plan(number, fault);
            fill(&world, 0, 20);
            world.checkpoint().unwrap();
            fill(&world, 20, 20);
            world.checkpoint().unwrap();
            world.log.close().unwrap();
            reported += world.failures.lock().unwrap().len();
            let (ledger, world) = (world.told(), drop(world));
            let () = world;
            let (to, restored) =
                kept.restore(u64::MAX).unwrap_or_else(|error| panic!("{fault:?} at {number}: {error}"));
            assert_eq!(wrong(&to, &ledger, &restored), None, "{fault:?} at {number}");
            assert_eq!(look(&to).unwrap().unwrap().rows.len(), 40, "{fault:?} at {number}: {restored:?}");
        }
    }
    assert!(reported > 10, "{reported} failures were reported");
    let trials = trials();
    for number in (0..operations).step_by(stride(4)) {
        let (kept, world) = Kept::new(1);
        kept.archive.plan(number, Fault::PowerFailure);
        fill(&world, 0, 20);
        world.checkpoint().unwrap();
        fill(&world, 20, 20);
        world.checkpoint().unwrap();
        let ledger = world.told();
        drop(world);
        let with = |archive: &SimulatedDisk| Kept {
            archive: archive.after_restart(),
            disk: kept.disk.after_restart(),
            backup: kept.backup.clone(),
        };
        let recovered = |archive: &SimulatedDisk| {
            let kept = with(archive);
            let world = kept.open(&ledger).unwrap();
            world.checkpoint().unwrap();
            assert_eq!(*world.failures.lock().unwrap(), Vec::<String>::new());
            world.log.close().unwrap();
            drop(world);
            let (to, restored) = kept.restore(u64::MAX).unwrap();
            let rows = look(&to).unwrap().unwrap().rows.len();
            wrong(&to, &ledger, &restored).or_else(|| (rows != 40).then(|| format!("{rows} rows")))
        };
        let at = At { seed: 1, operations: &[number] };
        trials.crash(&kept.archive, at, seeds(1), recovered);
        // It fails again while the archive is brought up.
        let again = with(&trials.after(&kept.archive, at, Survival::ALL[number % 6], seeds(1).start));
        let second = (number * 7) % 20;
        again.archive.plan(second, Fault::PowerFailure);
        let world = again.open(&ledger).unwrap();
        world.checkpoint().unwrap();
        trials.crash(&again.archive, At { seed: 1, operations: &[number, second] }, seeds(1), recovered);
    }
}

/// Blocks of the archive are damaged, or files are missing: there is an error, or what is restored is right.
#[test]
fn damage_of_an_archive_is_noticed() {
    let (kept, world) = Kept::new(1);
    fill(&world, 0, 40);
    world.checkpoint().unwrap();
    world.log.close().unwrap();
    let ledger = world.told();
    drop(world);
    let files = Files::new(kept.archive.clone());
    let database = files.list("").unwrap().remove(0).name;
    let mut noticed = 0;
    for directory in [format!("{database}/log"), format!("{database}/manifests")] {
        for entry in files.list(&directory).unwrap() {
            let path = format!("{directory}/{}", entry.name);
            for block in 0..4 {
                for damage in [Damage::FlipBit { bit: 999 }, Damage::Zero, Damage::Unreadable, Damage::Garbage] {
                    let archive = kept.archive.after_restart();
                    if archive.damage(&path, block, damage).is_ok_and(|it| it) {
                        match kept.restore_with(&archive, &kept.disk.after_restart(), u64::MAX) {
                            Ok((to, restored)) => {
                                assert_eq!(wrong(&to, &ledger, &restored), None, "{damage:?} of {path}")
                            }
                            Err(_) => noticed += 1,
                        }
                    }
                }
            }
            let archive = kept.archive.after_restart();
            Files::new(archive.clone()).remove(&path).unwrap();
            match kept.restore_with(&archive, &kept.disk.after_restart(), u64::MAX) {
                Ok((to, restored)) => assert_eq!(wrong(&to, &ledger, &restored), None, "{path} is missing"),
                Err(error) => {
                    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
                    noticed += 1;
                }
            }
        }
    }
    assert!(noticed > 10, "{noticed}");
}

#[test]
fn what_cannot_be_restored_is_refused() {
    let (kept, world) = Kept::new(1);
    let refused = |result: Result<(SimulatedDisk, Restored), Error>| match result {
        Err(Error::Unrestorable { reason }) => reason,
        other => panic!("{:?}", other.map(|(_, restored)| restored)),
    };
    let lock = kept.disk.lock().unwrap();
    let (archive, to) = (Files::new(SimulatedDisk::new(1)), Files::new(SimulatedDisk::new(1)));
    let sources = Sources { archive: None, database: Some(&Files::new(kept.disk.clone())) };
    let in_use = restore(&Files::new(kept.backup.clone()), sources, &to, u64::MAX, &Options::tiny());
    assert!(matches!(in_use, Err(Error::Unrestorable { .. })));
    drop(lock);
    assert!(refused(kept.restore(1)).contains("later time"));
    let sources = Sources { archive: Some(&archive), database: None };
    let nothing = restore(&Files::new(kept.backup.clone()), sources, &to, u64::MAX, &Options::tiny());
    assert!(matches!(nothing, Err(Error::Unrestorable { .. })));
    let not_a_backup =
        Kept { backup: kept.disk.after_restart(), archive: kept.archive.clone(), disk: kept.disk.clone() };
    assert!(refused(not_a_backup.restore(u64::MAX)).contains("not a backup"));
    drop(world);
    drop(World::open(&kept.backup, &Ledger::default()));
    assert!(refused(kept.restore(u64::MAX)).contains("was opened"));
}

/// The archive does not work until a checkpoint has been made.
fn archive_that_works_late() -> bool {
    let (kept, world) = Kept::new(1);
    kept.archive.set_room(Some(kept.archive.used()));
    fill(&world, 0, 20);
    world.checkpoint().unwrap();
    kept.archive.set_room(None);
    fill(&world, 20, 20);
    world.checkpoint().unwrap();
    is_not_restored(&kept, &world)
}

fn is_not_restored(kept: &Kept, world: &World) -> bool {
    world.log.close().unwrap();
    let ledger = world.told();
    match kept.restore(u64::MAX) {
        Ok((to, restored)) => wrong(&to, &ledger, &restored).is_some() || look(&to).unwrap().unwrap().rows.len() != 40,
        Err(_) => true,
    }
}

fn file_that_goes_on() -> bool {
    let (kept, world) = Kept::new(1);
    fill(&world, 0, 2);
    world.checkpoints.archive(&world.log, &world.manifests);
    fill(&world, 0, 40);
    world.checkpoint().unwrap();
    is_not_restored(&kept, &world)
}

fn power_failure_of_the_archive() -> bool {
    let (kept, world) = Kept::new(1);
    fill(&world, 0, 40);
    world.checkpoint().unwrap();
    kept.archive.outcomes(1..6).any(|archive| {
        let kept = Kept { archive, disk: kept.disk.clone(), backup: kept.backup.clone() };
        is_not_restored(&kept, &world)
    })
}

/// Two copies of one database have one archive.
fn two_histories() -> bool {
    let (kept, world) = Kept::new(1);
    let other = Kept { disk: kept.disk.after_restart(), archive: kept.archive.clone(), backup: kept.backup.clone() };
    let twin = other.open(&world.told()).unwrap();
    fill(&world, 0, 40);
    world.checkpoint().unwrap();
    fill(&twin, 7, 40);
    twin.checkpoint().unwrap();
    let is_told = twin.failures.lock().unwrap().iter().any(|reason| reason.contains("another history"));
    !is_told || is_not_restored(&kept, &world)
}

/// A table is made while a transaction of a lower order is open than one that has ended before.
fn table_behind_an_open_transaction() -> bool {
    let (kept, world) = Kept::new(1);
    world.begin(0).unwrap();
    let (key, done) = row(1, 30, 30);
    world.stage(0, key, done).unwrap();
    world.commit(1, &[row(1, 1, 1)]).unwrap();
    world.define(BTreeSet::from([1, 2])).unwrap();
    world.commit(1, &[row(2, 1, 1)]).unwrap();
    world.checkpoints.archive(&world.log, &world.manifests);
    let until_ns = now_ns();
    let (to, restored) = kept.restore(until_ns).unwrap();
    let found = look(&to).unwrap().unwrap();
    assert_eq!(found.rows, prefix(&world.told(), &restored, &found.tables));
    let is_early = found.tables.contains(&2) && !found.rows.contains_key(&(1, 1));
    world.discard(0);
    is_early
}

fn record_behind_the_point() -> bool {
    let (kept, world) = Kept::new(1);
    world.begin(0).unwrap();
    (0..3).for_each(|key| world.commit(1, &[row(1, key, key)]).unwrap());
    world.checkpoints.archive(&world.log, &world.manifests);
    let (to, restored) = kept.restore(now_ns()).unwrap();
    let is_wrong = wrong(&to, &world.told(), &restored).is_some();
    world.discard(0);
    is_wrong
}

fn killer(step: ArchiveStep) -> fn() -> bool {
    match step {
        ArchiveStep::HoldBack => archive_that_works_late,
        ArchiveStep::AwaitFollowing => file_that_goes_on,
        ArchiveStep::SyncCopies => power_failure_of_the_archive,
        ArchiveStep::KeepOthers => two_histories,
        ArchiveStep::CoverDefinitions => table_behind_an_open_transaction,
        ArchiveStep::DropOpen => record_behind_the_point,
    }
}

each_step_is_needed! {
    ArchiveStep, killer: HoldBack AwaitFollowing SyncCopies KeepOthers CoverDefinitions DropOpen
}
