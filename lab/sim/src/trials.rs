//! What tests on simulated disks have in common.

use std::cell::Cell;
use std::fmt;
use std::ops::Range;

use polychron_base::random::Random;
use polychron_log::disk::Operation;

use crate::{Fault, SimulatedDisk, Step, Survival};

fn wanted(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// The seeds that a test tries: as many as this variable of the environment says, or the default, from `POLYCHRON_FIRST_SEED` on.
pub fn seeds(variable: &str, default: usize) -> Range<u64> {
    let first = wanted("POLYCHRON_FIRST_SEED").unwrap_or(1);
    first..first + wanted(variable).unwrap_or(default as u64)
}

/// The seeds of what each power failure leaves: as many as `POLYCHRON_CRASH_SEEDS` says, or the default, from `POLYCHRON_FIRST_CRASH_SEED` on.
pub fn crash_seeds(default: usize) -> Range<u64> {
    let first = wanted("POLYCHRON_FIRST_CRASH_SEED").unwrap_or(1);
    first..first + wanted("POLYCHRON_CRASH_SEEDS").unwrap_or(default as u64)
}

/// Of a run's operations one in so many has a fault: as `POLYCHRON_STRIDE` says, or the default.
pub fn stride(default: usize) -> usize {
    wanted("POLYCHRON_STRIDE").map_or(default, |stride| stride.max(1) as usize)
}

/// Where in a run something is looked at: its seed, and the operations that had faults, of the run and of what came behind the first crash.
#[derive(Clone, Copy, Debug)]
pub struct At<'o> {
    /// The run's seed.
    pub seed: u64,
    /// The operations.
    pub operations: &'o [usize],
}

/// Counts what a test recovers, and says of what is wrong how it is repeated.
#[derive(Debug)]
pub struct Trials {
    /// The variable that says how many runs there are.
    runs: &'static str,
    recoveries: Cell<u64>,
}

impl Trials {
    /// Of a test whose number of runs this variable has.
    pub fn new(runs: &'static str) -> Self {
        Self { runs, recoveries: Cell::new(0) }
    }

    /// How many recoveries there were so far.
    pub fn recoveries(&self) -> u64 {
        self.recoveries.get()
    }

    /// Counts a recovery behind which nothing was lost.
    ///
    /// # Panics
    /// When there is a complaint.
    #[track_caller]
    pub fn check(&self, at: At<'_>, what: impl fmt::Debug, complaint: Option<String>) {
        self.judge(at, &format!("{what:?}"), String::new(), complaint);
    }

    /// Looks at every outcome of a power failure now that these seeds give.
    ///
    /// # Panics
    /// When there is a complaint.
    #[track_caller]
    pub fn crash(
        &self,
        disk: &SimulatedDisk,
        at: At<'_>,
        seeds: Range<u64>,
        mut complaint: impl FnMut(&SimulatedDisk) -> Option<String>,
    ) {
        for survival in Survival::ALL {
            let is_certain = matches!(survival, Survival::Nothing | Survival::Everything);
            let seeds = if is_certain { seeds.start..seeds.start + 1 } else { seeds.clone() };
            for seed in seeds {
                let left = self.after(disk, at, survival, seed);
                let what = format!("{survival:?} survives by seed {seed}");
                let variables = format!(" POLYCHRON_FIRST_CRASH_SEED={seed} POLYCHRON_CRASH_SEEDS=1");
                self.judge(at, &what, variables, complaint(&left));
            }
        }
    }

    /// One outcome.
    #[must_use]
    pub fn after(&self, disk: &SimulatedDisk, at: At<'_>, survival: Survival, seed: u64) -> SimulatedDisk {
        let operation = at.operations.iter().fold(0, |sum: u64, operation| sum * 100_003 + *operation as u64);
        disk.after_power_failure(survival, Random::stream(seed, operation).next_u64())
    }

    #[track_caller]
    fn judge(&self, At { seed, operations }: At<'_>, what: &str, variables: String, complaint: Option<String>) {
        if let Some(complaint) = complaint {
            let executable = std::env::current_exe().unwrap_or_default();
            let binary = executable.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let binary = binary.rsplit_once('-').map_or(&*binary, |(name, _)| name);
            // A test that is alone runs in the first thread.
            let thread = std::thread::current();
            let test = thread.name().filter(|name| *name != "main").unwrap_or_default();
            panic!(
                "{complaint}\nrun seed {seed}, operations {operations:?}, {what}\nrepeat it: POLYCHRON_FIRST_SEED={seed} {}=1{variables} \
                 cargo test -p polychron-sim --test {binary} {test}",
                self.runs
            );
        }
        self.recoveries.set(self.recoveries.get() + 1);
    }
}

impl Drop for Trials {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            println!("{} recoveries were right", self.recoveries.get());
        }
    }
}

/// The writes and syncs, of a run's operations those with these numbers, that can be lost without harm. `is_harmed` runs on a disk that loses one of them and
/// power at a later operation, and says whether what is left of it is wrong.
pub fn unneeded(
    start: &SimulatedDisk,
    steps: &[Step],
    numbers: Range<usize>,
    is_harmed: impl Fn(&SimulatedDisk) -> bool,
) -> Vec<(Operation, String)> {
    let can_be_lost = |number: usize| {
        let fault = match steps[number].operation {
            Operation::Sync | Operation::SyncDirectory => Fault::LoseSync,
            Operation::Write => Fault::LoseWrite,
            _ => return false,
        };
        !(number + 1..=steps.len()).any(|crash| {
            let disk = start.after_restart();
            disk.plan(number, fault);
            disk.plan(crash, Fault::PowerFailure);
            is_harmed(&disk)
        })
    };
    let of = |number: usize| (steps[number].operation, steps[number].path.clone());
    numbers.filter(|number| can_be_lost(*number)).map(of).collect()
}

/// Makes a test of each step of an enum, which leaves it out: what `$killer` answers for it is called, and says whether something goes wrong.
#[macro_export]
macro_rules! each_step_is_needed {
    ($steps:ident, $killer:ident: $($step:ident)*) => {
        #[allow(non_snake_case)]
        mod each {
            use super::*;

            $(
                #[test]
                fn $step() {
                    let play = $killer($steps::$step);
                    assert!(!play(), "it goes wrong although nothing is left out");
                    let _without = polychron_engine::mutations::leave_out($steps::$step);
                    // An assertion of the code may miss a step, too.
                    let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(play));
                    assert!(played.unwrap_or(true), "nothing goes wrong");
                }
            )*

            #[test]
            fn all() {
                assert_eq!([$($steps::$step),*], $steps::ALL);
            }
        }
    };
}
