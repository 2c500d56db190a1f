//! How fast histories are checked: records transactions of the default protocol and tells what checking them takes.
//!
//! `cargo run --release -p polychron-check --example check_histories -- 1000000`

use polychron_base::clock::{Clock, SystemClock};
use polychron_check::checker::{Verdict, examine};
use polychron_check::history::{Mix, Round, run_round};
use polychron_engine::{Common, Protocol};
use polychron_protocols::maflingo::Maflingo;
use polychron_sync::atomic::AtomicBool;

fn main() {
    let argument = std::env::args().nth(1);
    let Some(transactions) = argument.as_deref().map_or(Ok(100_000), str::parse::<usize>).ok().filter(|&it| it > 0)
    else {
        eprintln!("error: the number of transactions is a whole number above 0");
        std::process::exit(2);
    };
    const THREADS: u32 = 2;
    let clock = SystemClock::new();
    let seconds = |since: u64| (clock.now_ns() - since) as f64 / 1e9;
    let database = <Maflingo>::open(Default::default(), Common::default()).expect("the defaults are sound");
    let mix = Mix { keys: 1000, steps: 4, ..Mix::default() };
    let round = Round { mix, ..Round::new(1, THREADS, transactions / THREADS as usize) };
    let start = clock.now_ns();
    let history = run_round(&database, &round, &AtomicBool::new(false)).expect("the round runs");
    let (attempts, operations) = (history.attempts.len(), history.operations.len());
    println!("recorded {attempts} attempts with {operations} operations in {:.1} s", seconds(start));
    for strict in [false, true] {
        let start = clock.now_ns();
        let (verdict, aborts) = examine(&history, strict);
        let words = match verdict {
            Verdict::Serializable(order) => format!("{} transactions have a serial order", order.len()),
            Verdict::Anomalous(explanations) => explanations[0].to_string(),
            Verdict::Skewed(explanation) => explanation.to_string(),
            Verdict::Undecided => "undecided".to_owned(),
        };
        let mode = if strict { "strictly" } else { "without real time" };
        println!("checked {mode} in {:.1} s: {words}; {aborts:?}", seconds(start));
    }
}
