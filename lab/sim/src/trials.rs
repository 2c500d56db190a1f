//! What tests on simulated disks have in common.

use std::ops::Range;

use polychron_log::disk::Operation;

use crate::{Fault, SimulatedDisk, Step};

/// The seeds that a test tries: as many as this variable of the environment says, or the default, from `POLYCHRON_FIRST_SEED` on.
pub fn seeds(variable: &str, default: usize) -> Range<u64> {
    let wanted = |variable: &str| std::env::var(variable).ok().and_then(|text| text.parse().ok());
    let first = wanted("POLYCHRON_FIRST_SEED").unwrap_or(1);
    first..first + wanted(variable).unwrap_or(default as u64)
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
