//! Checkpoints under failures: whatever a crash leaves, checkpoint and log have together the rows of all that was acknowledged.
//!
//! `POLYCHRON_CHECKPOINT_RUNS` says how many runs are tried, `POLYCHRON_CRASH_SEEDS` how many outcomes of each power failure, and
//! `POLYCHRON_FIRST_SEED` from which seed on.

mod archive;
mod backup;
mod faults;
mod ledger;
mod pairs;
mod ship;
mod steps;
mod threads;
mod world;

use std::collections::BTreeSet;

use polychron_base::random::Random;
use polychron_base::sizes::scaled;
use polychron_log::Durability;
use polychron_log::checkpoint::{self, Contents};
use polychron_log::disk::Operation;
use polychron_sim::{At, Fault, SimulatedDisk, Survival, Trials};

use ledger::Ledger;
use world::{World, contents, keeping, leaving, look};

const STEPS: usize = 80;

fn seeds(default: usize) -> std::ops::Range<u64> {
    polychron_sim::crash_seeds(scaled(default, 1))
}

/// Whether fewer runs are wanted than see everything.
fn is_small(usual: usize) -> bool {
    runs(usual).count() < scaled(usual, 1)
}

fn trials() -> Trials {
    Trials::new("POLYCHRON_CHECKPOINT_RUNS")
}

/// The seeds of runs.
fn runs(default: usize) -> std::ops::Range<u64> {
    polychron_sim::seeds("POLYCHRON_CHECKPOINT_RUNS", scaled(default, 1))
}

/// What is wrong with what is found on a disk. An error is wrong, too.
fn complaint(disk: &SimulatedDisk, ledger: &Ledger) -> Option<String> {
    match look(disk) {
        Ok(Some(found)) => ledger.complaint(&found),
        Ok(None) => (ledger.certain > 0).then(|| "the database is gone".to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

/// How a database is used.
#[derive(Clone, Copy)]
struct Run {
    seed: u64,
    steps: usize,
    durability: Durability,
}

impl Run {
    fn new(seed: u64, steps: usize) -> Self {
        Self { seed, steps, durability: Durability::Immediate }
    }

    /// Whether rows are always written again, or rarely, or after a while, or where something has changed near them.
    fn options(self) -> checkpoint::Options {
        match self.seed % 4 {
            0 => checkpoint::Options::tiny(),
            1 => leaving(1000.0),
            2 => leaving(6.0),
            _ => keeping(),
        }
    }
}

/// Opens a database and uses it, until something fails. The ledger has what was sealed and acknowledged until then. Answers how many checkpoints were
/// made.
fn use_database(disk: &SimulatedDisk, ledger: &mut Ledger, run: Run) -> u64 {
    let Ok(world) = World::open_with(disk, ledger, run.options(), run.durability) else { return 0 };
    // The log may stop.
    let _ = world.run(&mut Random::from_seed(run.seed), run.steps);
    *ledger = world.told();
    world.checkpoints.counts().made
}

/// Whether the checkpoint of a disk has files of one table that were written for several ones.
fn has_kept(disk: &SimulatedDisk) -> bool {
    let files = world::files_of_rows(disk);
    let tables: BTreeSet<u32> = files.iter().map(|(table, _)| *table).collect();
    tables.len() < files.len()
}

/// How many operations a run has that nothing disturbs.
fn operations(start: &SimulatedDisk, ledger: &Ledger, run: Run) -> usize {
    let disk = start.after_restart();
    use_database(&disk, &mut ledger.clone(), run);
    disk.steps().len()
}

/// Lets each operation of a run have a fault, in turn, and calls `check` with each outcome.
fn fail_everywhere(
    start: &SimulatedDisk,
    ledger: &Ledger,
    run: Run,
    fault: Fault,
    check: &mut dyn FnMut(usize, &SimulatedDisk, &Ledger),
) {
    for number in 0..operations(start, ledger, run) {
        let disk = start.after_restart();
        disk.plan(number, fault);
        let mut ledger = ledger.clone();
        use_database(&disk, &mut ledger, run);
        check(number, &disk, &ledger);
    }
}

/// Runs in which nothing fails, one opening after the other.
#[test]
fn checkpoint_and_log_have_all_together() {
    let (trials, mut made, mut in_ranges, mut with_changes) = (trials(), 0, 0, 0);
    let mut with_kept = 0;
    for seed in runs(60) {
        let disk = SimulatedDisk::new(seed);
        let mut ledger = Ledger::default();
        for opening in 0..3 {
            made += use_database(&disk, &mut ledger, Run::new(10 * seed + opening, 4 * STEPS));
            trials.check(At { seed, operations: &[] }, opening, complaint(&disk.after_restart(), &ledger));
            let contents = contents(&disk);
            let is_of_range = |it: &Contents| matches!(it, Contents::Rows { range, .. } if range.bits > 0);
            in_ranges += usize::from(contents.iter().any(is_of_range));
            with_changes += usize::from(contents.contains(&Contents::Changes));
            with_kept += usize::from(has_kept(&disk));
        }
    }
    println!(
        "{made} checkpoints were made; at least {in_ranges} of them read the log several times, {with_changes} left rows, and {with_kept} kept files"
    );
    assert!(is_small(60) || (made > 50 && in_ranges > 10 && with_changes > 10 && with_kept > 10));
}

#[test]
fn what_is_acknowledged_survives_a_power_failure_at_any_operation() {
    let (trials, mut acknowledged) = (trials(), 0);
    for seed in runs(4) {
        let start = SimulatedDisk::new(seed);
        fail_everywhere(
            &start,
            &Ledger::default(),
            Run::new(seed, STEPS),
            Fault::PowerFailure,
            &mut |number, disk, ledger| {
                let at = At { seed, operations: &[number] };
                trials.crash(disk, at, seeds(3), |left| complaint(left, ledger));
                acknowledged = acknowledged.max(ledger.certain);
            },
        );
    }
    assert!(acknowledged > 10, "{acknowledged}");
}

/// Transactions that are longer than rings and frames are there whole or not at all, in the log and in what checkpoints carry.
#[test]
fn long_transactions_survive_beside_checkpoints() {
    let (trials, mut longs) = (trials(), 0);
    for seed in runs(3) {
        let disk = SimulatedDisk::new(seed);
        let world = World::open(&disk, &Ledger::default()).unwrap();
        world.has_long.set(true);
        for part in 0..8 {
            world.run(&mut Random::from_seed(8 * seed + part), STEPS / 4).unwrap();
            let at = At { seed, operations: &[disk.steps().len()] };
            trials.crash(&disk, at, seeds(2), |left| complaint(left, &world.told()));
        }
        longs += world.longs.get();
    }
    assert!(longs > 0);
}

/// Nothing but checkpoints makes durable what was committed: all that the last one had is there, and perhaps more, in whole epochs.
#[test]
fn what_a_checkpoint_has_survives_where_nobody_waits() {
    let (trials, mut lost, mut certain) = (trials(), 0, 0);
    for seed in runs(3) {
        let run = Run { durability: Durability::OnCheckpoint, ..Run::new(seed, STEPS) };
        let again = Run { seed: seed + 1, steps: STEPS / 2, ..run };
        let start = SimulatedDisk::new(seed);
        fail_everywhere(&start, &Ledger::default(), run, Fault::PowerFailure, &mut |number, disk, ledger| {
            let at = At { seed, operations: &[number] };
            trials.crash(disk, at, seeds(1), |left| {
                let whole = look(left).ok().flatten().map_or(0, |found| found.whole);
                lost += usize::from(ledger.sealed.iter().any(|sealed| sealed.epoch > whole));
                complaint(left, ledger)
            });
            certain = certain.max(ledger.certain);
            let survival = Survival::ALL[number % 6];
            let next = trials.after(disk, at, survival, seeds(1).start);
            let mut ledger = ledger.clone();
            use_database(&next, &mut ledger, again);
            trials.check(at, (survival, "and used"), complaint(&next.after_restart(), &ledger));
        });
    }
    println!("{lost} lost what no checkpoint had");
    assert!(certain > 2 && lost > 10, "up to {certain} epochs were certain, and {lost} outcomes lost something");
}

/// What is acknowledged survives a power failure, and another one while the database is opened again and used.
#[test]
fn so_it_does_at_a_second_one() {
    let trials = trials();
    for seed in runs(1) {
        let start = SimulatedDisk::new(seed);
        let run = Run::new(seed, STEPS / 2);
        fail_everywhere(&start, &Ledger::default(), run, Fault::PowerFailure, &mut |first, disk, ledger| {
            let left = trials.after(disk, At { seed, operations: &[first] }, Survival::ALL[first % 6], seeds(1).start);
            fail_everywhere(&left, ledger, Run::new(seed + 1, 12), Fault::PowerFailure, &mut |second, disk, ledger| {
                let (at, survival) = (At { seed, operations: &[first, second] }, Survival::ALL[second % 6]);
                let left = trials.after(disk, at, survival, seeds(1).start);
                trials.check(at, survival, complaint(&left, ledger));
            });
        });
    }
}

/// A process ends after an operation has failed; the next one opens what it finds, makes checkpoints, and then the power fails.
#[test]
fn what_a_restart_finds_is_durable_before_anything_is_built_on_it() {
    let trials = trials();
    for fault in [Fault::Fail, Fault::FailForEver, Fault::SyncFull] {
        for seed in runs(1) {
            let start = SimulatedDisk::new(seed);
            fail_everywhere(&start, &Ledger::default(), Run::new(seed, STEPS), fault, &mut |first, disk, ledger| {
                let next = disk.after_restart();
                let at = At { seed, operations: &[first] };
                trials.check(at, fault, complaint(&next, ledger));
                let mut ledger = ledger.clone();
                use_database(&next, &mut ledger, Run::new(seed + 1, 20));
                trials.crash(&next, at, seeds(1), |left| complaint(left, &ledger));
            });
        }
    }
}

/// Where the log has too much, it is read for ranges of the keys, but not for ever smaller ones where that does not help.
#[test]
fn ranges_are_halved_while_that_helps() {
    let readings = |memory_bytes, keys: &[u64]| {
        let disk = SimulatedDisk::new(1);
        let options = checkpoint::Options { memory_bytes, ..checkpoint::Options::tiny() };
        let world = World::open_with(&disk, &Ledger::default(), options, Durability::Immediate).unwrap();
        keys.iter().for_each(|key| world.commit(0, &[faults::row(1, *key, *key)]).unwrap());
        let before = disk.steps().len();
        world.checkpoint().unwrap();
        let is_read = |step: &&polychron_sim::Step| step.operation == Operation::Read && step.path.starts_with("log/");
        disk.steps()[before..].iter().filter(is_read).count()
    };
    let all: Vec<u64> = (0..100).collect();
    // It is in the first range, or in the 200th, however small these are.
    let [first, other] =
        [0, 200].map(|part| (0..10_000).find(|key: &u64| checkpoint::hash(&key.to_be_bytes()) >> 24 == part).unwrap());
    for (keys, is_halved) in [(all, true), (vec![first; 100], false), (vec![other; 100], false)] {
        let (once, few) = (readings(1 << 30, &keys), readings(256, &keys));
        assert_eq!(few > 3 * once, is_halved, "{few} blocks are read, and {once} if once");
    }
}
