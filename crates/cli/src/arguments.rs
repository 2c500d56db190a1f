//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use clap::{Args, Parser, Subcommand};
use polychron::{DefaultProtocol, Protocol, Submissions};
use polychron_workloads::churn::ChurnOptions;
use polychron_workloads::hotkey::{AssertOptions, HotOptions};
use polychron_workloads::increment::IncrementOptions;
use polychron_workloads::modify::ModifyOptions;
use polychron_workloads::run::Idle;
use polychron_workloads::scan::ScanOptions;
use polychron_workloads::smallbank::SmallBankOptions;
use polychron_workloads::tatp::TatpOptions;
use polychron_workloads::tpcc::{Scale, TpccOptions};
use polychron_workloads::ycsb::YcsbArguments;

use crate::output::tell;

/// Polychron: a main-memory transactional database with a choice of concurrency-control protocols
#[derive(Debug, Parser)]
#[command(name = "polychron", version, about)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Load a workload, run it, and report throughput, latencies and consistency
    Bench(Bench),
    /// Run random transactions that collide, record them, and check that they have a serial order
    Check(Check),
    /// Measure the figures of a paper on this machine, and write them as a page of HTML
    Figures(Figures),
}

/// Options of `polychron figures`.
#[derive(Debug, Args)]
pub(crate) struct Figures {
    /// The paper
    pub(crate) paper: String,

    /// Small tables and short runs: a few minutes in all
    #[arg(long)]
    pub(crate) quick: bool,

    /// Draw only this figure; may be given several times
    #[arg(long)]
    pub(crate) figure: Vec<String>,

    /// The page's file [default: figures-PAPER.html]
    #[arg(long)]
    pub(crate) output: Option<PathBuf>,

    /// The file of the figures' data [default: as the page's, with the ending .json]
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,

    /// The most threads [default: one for each core]
    #[arg(long)]
    pub(crate) threads: Option<usize>,

    /// Seconds that each run of a point measures [default: 2, or 0.2 with --quick]
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) seconds: Option<f64>,

    /// Runs of each point, of which the median counts [default: 5, or 3 with --quick]
    #[arg(long)]
    pub(crate) repeat: Option<usize>,

    /// Rows of the tables that are not TPC-C's [default: as in the paper, or 200000 with --quick]
    #[arg(long)]
    pub(crate) records: Option<u64>,

    /// Seed of all inputs
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Cardinalities of TPC-C: `standard`, or `tiny` for tests
    #[arg(long, hide = true)]
    pub(crate) scale: Option<Scale>,
}

/// Options of `polychron check`.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Concurrency-control protocol [default: each that promises a serial order]
    #[arg(long, conflicts_with = "history")]
    pub(crate) protocol: Option<String>,

    /// Minutes that it takes, for all protocols together
    #[arg(long, allow_negative_numbers = true, conflicts_with_all = ["seconds", "history"])]
    pub(crate) minutes: Option<f64>,

    /// The same in seconds [default: 10]
    #[arg(long, allow_negative_numbers = true, conflicts_with = "history")]
    pub(crate) seconds: Option<f64>,

    /// Seed of the first round; the second round has the next, and so on
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Threads that execute transactions [default: one for each core, at least 2]
    #[arg(long, conflicts_with = "history")]
    pub(crate) threads: Option<usize>,

    /// An option of the protocol itself, such as indexes=multi-version; may be given several times
    #[arg(long, value_name = "NAME=VALUE", requires = "protocol")]
    pub(crate) protocol_option: Vec<String>,

    /// The serial order must agree with real time, snapshots aside
    #[arg(long)]
    pub(crate) strict: bool,

    /// Check the history in this file instead, a line of JSON for each transaction; see docs/checker.md
    #[arg(long)]
    pub(crate) history: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) workload: WorkloadCommand,
}

/// The workloads. Each brings options of its own beside the common ones.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkloadCommand {
    /// Name the workloads and the protocols
    List,
    /// Orders, payments and deliveries of a wholesale supplier
    Tpcc(Workload<TpccOptions>),
    /// Reads and writes of a few rows of one table, by key
    Ycsb(Workload<YcsbArguments>),
    /// Increments of random integers
    Increment(Workload<IncrementOptions>),
    /// Increments of a counter that all clients share
    Hotkey(Workload<HotOptions>),
    /// Decrements of a counter that all clients share, while it stays above zero
    Assert(Workload<AssertOptions>),
    /// Sums over a whole table on snapshots, beside threads that change it
    Scan(Workload<ScanOptions>),
    /// Insertions, updates, and deletions with an insertion, of rows of ten integers
    Modify(Workload<ModifyOptions>),
    /// Rows that come and go under a fixed number of keys, or in queues
    Churn(Workload<ChurnOptions>),
    /// The short transactions of a bank
    Smallbank(Workload<SmallBankOptions>),
    /// A mobile network's register of subscribers
    Tatp(Workload<TatpOptions>),
}

/// The options of one workload and the common ones.
#[derive(Debug, Args)]
pub(crate) struct Workload<A: Args> {
    #[command(flatten)]
    pub(crate) common: Common,

    #[command(flatten)]
    pub(crate) options: A,
}

/// Options of every benchmark.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Run")]
#[group(skip)]
pub(crate) struct Common {
    /// Concurrency-control protocol; `polychron bench list` names them
    #[arg(long, default_value = DefaultProtocol::NAME)]
    pub(crate) protocol: String,

    /// An option of the protocol itself, such as indexes=multi-version; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) protocol_option: Vec<String>,

    /// Threads that execute transactions [default: one for each core]
    #[arg(long)]
    pub(crate) threads: Option<usize>,

    /// Seconds that are measured
    #[arg(long, default_value_t = 10.0, allow_negative_numbers = true)]
    pub(crate) seconds: f64,

    /// Seconds of ramp-up before
    #[arg(long, default_value_t = 2.0, allow_negative_numbers = true)]
    pub(crate) warmup: f64,

    /// Seed of all inputs
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Procedures handed over at once; 1 is one by one
    #[arg(long, default_value_t = 1)]
    pub(crate) batch: usize,

    /// Submit transactions in place of executing them: so many each thread has under way. As many threads again execute them, in
    /// batches of --batch at most
    #[arg(long, default_value_t = 0, conflicts_with = "pregenerate")]
    pub(crate) submit: usize,

    /// With --submit: microseconds for which a batch is kept open while a thread is free
    #[arg(long, requires = "submit", default_value_t = Submissions::default().batch_time_us)]
    pub(crate) batch_time_us: u64,

    /// Keep so many transactions of a thread open at a time, which take turns at every operation (tpcc under protocols whose operations do
    /// not wait for other transactions)
    #[arg(long, default_value_t = 1, conflicts_with_all = ["submit", "batch", "pregenerate"])]
    pub(crate) interleave: usize,

    /// Draw so many transactions a thread beforehand, and go through them again and again
    #[arg(long, default_value_t = 0)]
    pub(crate) pregenerate: usize,

    /// Keep a snapshot open for the whole run, on a thread of its own that does nothing else
    #[arg(long)]
    pub(crate) open_snapshot: bool,

    /// Let a client of its own come and go beside the others, which leaves this open and does nothing, for moments and for seconds
    #[arg(long, value_enum)]
    pub(crate) idle: Option<Idle>,

    /// Execute at most so many transactions a second, all threads together; 0 stands for as many as they can
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true, conflicts_with_all = ["submit", "interleave"])]
    pub(crate) rate: f64,

    /// Fail when the process has over 5 % more memory in the last quarter than in the second, or a client completes nothing for a second
    #[arg(long)]
    pub(crate) steady: bool,

    /// Bind each thread to a core
    #[arg(long)]
    pub(crate) pin: bool,

    /// Most memory for rows, versions and indexes, in MiB [default: what the machine has]
    #[arg(long)]
    pub(crate) memory_limit: Option<usize>,

    /// Memory to touch before loading, in MiB, so that the run meets no page faults
    #[arg(long, default_value_t = 0)]
    pub(crate) prefault: usize,

    /// Write everything measured to this file as JSON
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
}

/// The options of a protocol, with those changed that the command line gives.
pub(crate) fn protocol_options<P: Protocol>(given: &[String]) -> Result<P::Options, String> {
    let mut options = P::Options::default();
    for (name, value) in knobs(given)? {
        P::set_option(&mut options, name, value)
            .map_err(|error| format!("--protocol-option {name}={value}: {error}"))?;
    }
    Ok(options)
}

/// Names and values of a protocol's own options.
pub(crate) fn knobs(given: &[String]) -> Result<Vec<(&str, &str)>, String> {
    let refusal = |text| format!("--protocol-option {text}: it is NAME=VALUE");
    given.iter().map(|text| text.split_once('=').ok_or_else(|| refusal(text))).collect()
}

/// Answers a command line that cannot be parsed: help where it was asked for, otherwise one line.
pub(crate) fn refuse(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Printing fails when nobody reads; there is nobody to tell.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    tell(one_line(error));
    ExitCode::from(2)
}

fn one_line(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(name) = error.get(ContextKind::InvalidSubcommand)
    {
        let names = crate::bench::workload_names().join(", ");
        return format!("error: there is no command or workload `{name}`; the workloads are {names}");
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "error: a workload is missing; try `polychron bench list` or `polychron bench --help`".to_owned();
    }
    let text = error.render().to_string();
    let useful = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let useful: Vec<_> = useful.filter(|line| !line.is_empty() && !line.starts_with("For more information")).collect();
    useful.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_fit_together() {
        Arguments::command().debug_assert();
    }
}
