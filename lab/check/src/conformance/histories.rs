//! Random transactions, recorded, whose histories are checked as a whole.

use polychron_engine::{Interactive, Protocol};
use polychron_sync::atomic::AtomicBool;

use crate::Setup;
use crate::checker::{Verdict, check_at};
use crate::history::{Leeway, Round, find_anomaly, run_round};

/// How many seeds are tried: 6, or `POLYCHRON_CHECK_SEEDS`.
fn seeds() -> std::ops::Range<u64> {
    0..std::env::var("POLYCHRON_CHECK_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(6)
}

/// Step by step in random turns: the transactions are isolated as promised.
pub fn in_turns<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    for seed in seeds() {
        if let Some(explanation) = find_anomaly(setup, seed, 240) {
            panic!("seed {seed}: {explanation}");
        }
    }
}

/// On free-running threads: the transactions are isolated as promised.
pub fn on_threads<P: Protocol>(setup: &Setup<P>) {
    run_rounds(setup, 0);
}

/// The same of transactions that are submitted, several of each thread at once.
pub fn submitted<P: Protocol>(setup: &Setup<P>) {
    run_rounds(setup, 5);
}

fn run_rounds<P: Protocol>(setup: &Setup<P>, submitted: usize) {
    let database = setup.open();
    for seed in seeds() {
        let leeway = Leeway::of(setup.name);
        let round = Round { submitted, leeway, ..Round::new(seed, 3, 400) };
        let history = run_round(&database, &round, &AtomicBool::new(false)).expect("the round runs");
        setup.pass(&database, 1);
        match check_at(&history, setup.strict, setup.isolation) {
            Verdict::Serializable(_) | Verdict::Skewed(_) => {}
            Verdict::Anomalous(explanations) => panic!("seed {seed}: {}", explanations[0]),
            Verdict::Undecided => panic!("seed {seed} leaves too much open"),
        }
    }
}
