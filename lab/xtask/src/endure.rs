//! `cargo xtask endure`: runs of minutes, after which memory is as it was and during which no client is held up.
//!
//! Each run is `polychron bench … --steady`, which fails where the process has more memory in its last quarter than in its second, or a
//! client completes nothing for a second. TPC-C adds rows for ever: there the memory that each transaction adds is compared.

use std::path::Path;

use crate::tools::{cargo, fresh_log, last_line, run};

/// How long, and what.
#[derive(clap::Args)]
pub(crate) struct Endure {
    /// Minutes of each run
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Minutes of the one run of the default protocol that takes longer; 0 leaves it out
    #[arg(long, default_value_t = 60.0)]
    long_minutes: f64,
    /// Only this protocol; may be given several times
    #[arg(long, value_parser = PROTOCOLS)]
    protocol: Vec<String>,
    /// Only this run; may be given several times
    #[arg(long, value_parser = RUNS.map(|run| run.name))]
    only: Vec<String>,
    /// Threads that execute transactions
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// Those that runs of minutes are for.
const PROTOCOLS: [&str; 5] = ["cicada", "maflingo", "hyper", "bohm", "lazy-occ"];

/// Where procedures are planned, one that sleeps is no idle client but a long procedure: there only snapshots stay open.
const PLANNED: &str = "bohm";

/// What runs.
struct Run {
    name: &'static str,
    arguments: &'static [&'static str],
    /// Whether a client comes and goes beside it.
    beside_idle: bool,
}

const RUNS: [Run; 3] = [
    Run {
        name: "tpcc",
        // At a rate at which what is added fits into the memory of a small machine. A hash index that doubles would count as growth.
        arguments: &["tpcc", "--warehouses", "2", "--index", "ordered", "--rate", "4000"],
        beside_idle: false,
    },
    Run { name: "churn", arguments: &["churn", "--records", "10000"], beside_idle: true },
    Run {
        name: "queue",
        arguments: &["churn", "--records", "1000", "--pattern", "queue", "--queues", "4"],
        beside_idle: true,
    },
];

/// The run that takes longer, under the default protocol.
const LONG: &str = "churn";

/// Runs everything that was chosen, and tells of each run in a line. Answers whether all is well.
pub(crate) fn endure(given: &Endure, folder: &Path) -> bool {
    let chosen = |list: &[String], name: &str| list.is_empty() || list.iter().any(|it| it == name);
    let mut lines = Vec::new();
    for of in RUNS.iter().filter(|run| chosen(&given.only, run.name)) {
        for protocol in PROTOCOLS.into_iter().filter(|protocol| chosen(&given.protocol, protocol)) {
            lines.push(one(of, protocol, given.minutes, given, folder));
            if of.name == LONG && protocol == PROTOCOLS[0] && given.long_minutes > 0.0 {
                lines.push(one(of, protocol, given.long_minutes, given, folder));
            }
        }
    }
    println!();
    lines.iter().for_each(|(_, line)| println!("{line}"));
    lines.iter().all(|(fine, _)| *fine)
}

fn one(of: &Run, protocol: &str, minutes: f64, given: &Endure, folder: &Path) -> (bool, String) {
    let log = fresh_log(folder, &format!("endure-{}-{protocol}-{minutes}", of.name));
    let mut command = cargo(&[]);
    command
        .args(["run", "--quiet", "--release", "-p", "polychron-cli", "--features", "workloads", "--", "bench"])
        .args(of.arguments);
    command.args(["--protocol", protocol, "--threads", &given.threads.to_string(), "--steady"]);
    command.args(["--seconds", &(minutes * 60.0).to_string(), "--warmup", "5"]);
    if of.beside_idle {
        command.args(["--idle", if protocol == PLANNED { "snapshot" } else { "both" }]);
    }
    let fine = run(&mut command, &log);
    let outcome = if fine { "passed" } else { "FAILED" };
    let memory = last_line(&log, "by quarter");
    let stall = last_line(&log, "longest stall");
    let why = if fine { String::new() } else { format!("; see {}: {}", log.display(), last_line(&log, "error:")) };
    let line = format!("{outcome}  {:<6} {protocol:<9} {minutes:>4} min  {memory}; {stall}{why}", of.name);
    eprintln!("{line}");
    (fine, line)
}
