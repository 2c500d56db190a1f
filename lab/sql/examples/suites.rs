//! Measures the benchmarks of `polychron_lab_sql::suites`: transactions of single statements that are bound once, a second.
//!
//! `cargo run --release -p polychron-lab-sql --example suites -- tpcc 20000`: the benchmark, and how many transactions each client runs. Its conditions are checked behind each run.

use std::process::ExitCode;

use polychron_base::clock::{Clock as _, SystemClock};
use polychron_engine::{Interactive, Protocol};
use polychron_lab_sql::Ours;
use polychron_lab_sql::suites::{self, Outcomes, SmallBank, Suite, Tatp, Tpcc, Ycsb};
use polychron_protocols::cicada::Cicada;
use polychron_protocols::hyper::Hyper;
use polychron_protocols::maflingo::Maflingo;

const SUITES: [&dyn Suite; 4] = [
    &Tpcc { warehouses: 1, customers: 3_000, items: 100_000 },
    &SmallBank { customers: 100_000 },
    &Tatp { subscribers: 100_000 },
    &Ycsb { rows: 100_000 },
];

fn measure<P: Protocol<Worker: Interactive>>(suite: &dyn Suite, clients: usize, count: u64) -> bool {
    let mut connections = Ours::<P>::several(clients);
    suites::load(suite, 1, &mut connections[0]);
    let clock = SystemClock::new();
    let begun_ns = clock.now_ns();
    let outcomes: Vec<Outcomes> = std::thread::scope(|scope| {
        let clients = connections.iter_mut().zip(1..);
        let threads: Vec<_> = clients
            .map(|(connection, seed)| scope.spawn(move || suites::run(suite, (seed, count), connection, None)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a client that fails says why")).collect()
    });
    let seconds = (clock.now_ns() - begun_ns) as f64 / 1e9;
    let sum = |of: fn(&Outcomes) -> u64| outcomes.iter().map(of).sum::<u64>();
    let (done, conflicts) = (sum(|it| it.committed + it.rolled_back), sum(|it| it.conflicts));
    let rate = done as f64 / seconds;
    println!("{} {}, {clients} clients: {rate:.0} transactions a second, {conflicts} conflicts", suite.name(), P::NAME);
    let broken = suites::broken(suite, &mut connections[0]);
    broken.iter().for_each(|fault| println!("broken: {fault}"));
    broken.is_empty()
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let suite = arguments.next().and_then(|name| SUITES.into_iter().find(|suite| suite.name() == name));
    let count = arguments.next().and_then(|count| count.parse().ok()).filter(|count| *count > 0);
    let (Some(suite), Some(count), None) = (suite, count, arguments.next()) else {
        let names = SUITES.map(Suite::name).join(", ");
        eprintln!("error: the arguments are a benchmark ({names}) and how many transactions each client runs");
        return ExitCode::from(2);
    };
    let mut is_right = true;
    for clients in [1, 2] {
        is_right &= measure::<Cicada>(suite, clients, count);
        is_right &= measure::<Maflingo>(suite, clients, count);
        is_right &= measure::<Hyper>(suite, clients, count);
    }
    ExitCode::from(u8::from(!is_right))
}
