//! The log under failures: after any crash all that was acknowledged is there, whole, and what is there are whole epochs; damage is an error.
//!
//! Three workers stage and seal in one thread, in turns that a seed decides, some of them while an epoch is closed. `POLYCHRON_LOG_RUNS` says how many
//! runs are tried, `POLYCHRON_CRASH_SEEDS` how many outcomes of each power failure, and `POLYCHRON_FIRST_SEED` from which seed on.

mod damage;
mod ledger;
mod session;
mod steps;
mod threads;

use polychron_base::random::Random;
use polychron_base::sizes::scaled;
use polychron_log::{Error, Options};
use polychron_sim::{At, Fault, SimulatedDisk, Trials};

use ledger::Ledger;
use session::{Session, look};

const STEPS: usize = 60;

fn seeds(default: usize) -> std::ops::Range<u64> {
    polychron_sim::crash_seeds(scaled(default, 1))
}

fn trials() -> Trials {
    Trials::new("POLYCHRON_LOG_RUNS")
}

/// The seeds of runs.
fn runs(default: usize) -> std::ops::Range<u64> {
    polychron_sim::seeds("POLYCHRON_LOG_RUNS", scaled(default, 1))
}

/// What is wrong with what is found on a disk. An error is wrong, too.
fn complaint(disk: &SimulatedDisk, ledger: &Ledger) -> Option<String> {
    match look(disk) {
        Ok(found) => ledger.complaint(&found),
        Err(error) => Some(error.to_string()),
    }
}

/// Why a run has ended before its steps were over.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("opening: {0}")]
    Opening(Error),
    #[error("running: {0}")]
    Running(polychron_base::Error),
}

/// Opens a log and uses it, until something fails. The ledger has what was sealed and acknowledged until then.
fn use_log(disk: &SimulatedDisk, ledger: &mut Ledger, seed: u64, steps: usize) -> Result<(), Ended> {
    // Every other run has rings of different lengths, as workers that begin later have.
    let unflushed_bytes = [12 << 10, 48 << 10][seed as usize % 2];
    let options = Options { unflushed_bytes, ..Options::tiny() };
    let session = Session::open(disk, ledger, options).map_err(Ended::Opening)?;
    let result = session.run(&mut Random::from_seed(seed), steps);
    *ledger = session.ledger.borrow().clone();
    result.map_err(Ended::Running)
}

/// How many operations a run has that nothing disturbs.
fn operations(start: &SimulatedDisk, ledger: &Ledger, seed: u64, steps: usize) -> usize {
    let disk = start.after_restart();
    let result = use_log(&disk, &mut ledger.clone(), seed, steps);
    result.unwrap_or_else(|error| panic!("{error}"));
    disk.steps().len()
}

/// Crashes at every operation of a run that begins with a disk, and calls `check` with each outcome.
fn crash_everywhere(
    start: &SimulatedDisk,
    ledger: &Ledger,
    (seed, steps): (u64, usize),
    fault: Fault,
    check: &mut dyn FnMut(usize, &SimulatedDisk, &Ledger),
) {
    for number in 0..operations(start, ledger, seed, steps) {
        let disk = start.after_restart();
        disk.plan(number, fault);
        let mut ledger = ledger.clone();
        // An error need not follow: nobody may have waited for what fails last.
        let _ = use_log(&disk, &mut ledger, seed, steps);
        check(number, &disk, &ledger);
    }
}

#[test]
fn what_is_acknowledged_survives_a_power_failure_at_any_operation() {
    let (trials, mut acknowledged, mut pieces) = (trials(), 0, 0);
    for seed in runs(6) {
        let run = (seed, 3 * STEPS);
        crash_everywhere(
            &SimulatedDisk::new(seed),
            &Ledger::default(),
            run,
            Fault::PowerFailure,
            &mut |number, disk, ledger| {
                let at = At { seed, operations: &[number] };
                trials.crash(disk, at, seeds(5), |left| {
                    pieces += look(left).map_or(0, |found| found.later);
                    complaint(left, ledger)
                });
                acknowledged = acknowledged.max(ledger.certain.len());
            },
        );
    }
    assert!(acknowledged > 20 && pieces > 20, "{pieces} pieces were found");
}

/// The same, and then once more while the log is opened again and used.
#[test]
fn so_it_does_at_a_second_one() {
    let trials = trials();
    for seed in runs(2) {
        let start = &SimulatedDisk::new(seed);
        crash_everywhere(start, &Ledger::default(), (seed, STEPS), Fault::PowerFailure, &mut |first, disk, ledger| {
            trials.crash(disk, At { seed, operations: &[first] }, seeds(1), |left| {
                crash_everywhere(left, ledger, (seed, 12), Fault::PowerFailure, &mut |second, disk, ledger| {
                    let at = At { seed, operations: &[first, second] };
                    trials.crash(disk, at, seeds(1), |left| complaint(left, ledger));
                });
                complaint(left, ledger)
            });
        });
    }
}

/// A process ends, after an operation has failed or none; the next one opens what it finds, and then the power fails.
#[test]
fn what_a_restart_finds_is_durable_before_anything_is_built_on_it() {
    let trials = trials();
    for fault in [Fault::Fail, Fault::FailForEver, Fault::PowerFailure] {
        for seed in runs(2) {
            let start = &SimulatedDisk::new(seed);
            crash_everywhere(start, &Ledger::default(), (seed, STEPS), fault, &mut |first, disk, ledger| {
                let next = disk.after_restart();
                trials.check(At { seed, operations: &[first] }, fault, complaint(&next, ledger));
                crash_everywhere(&next, ledger, (seed, 12), Fault::PowerFailure, &mut |second, disk, ledger| {
                    let at = At { seed, operations: &[first, second] };
                    trials.crash(disk, at, seeds(1), |left| complaint(left, ledger));
                });
            });
        }
    }
}
