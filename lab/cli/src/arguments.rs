//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use polychron::{DefaultProtocol, Protocol as _};
use polychron_cli::arguments::{Bench, Pages};
use polychron_workloads::tpcc::Scale;

use crate::durability::Part;

/// What measures and proves Polychron: the figures of the papers, histories that are checked, and benchmarks
#[derive(Debug, Parser)]
#[command(name = "polychron-lab", version, about)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one of it")]
pub(crate) enum Command {
    /// Load a workload, run it, and report throughput, latencies and consistency
    Bench(Bench),
    /// Run random transactions that collide, record them, and check that they have a serial order
    Check(Check),
    /// Measure the figures of a paper on this machine, and write them as a page of HTML
    Figures(Figures),
    /// Kill processes that execute transactions on a database on disk, and check what is there when it is opened again
    Crash(Crash),
    /// Measure what durability costs, beside a bare disk and databases in memory
    Durability(Durability),
    /// A process that is killed
    #[command(hide = true)]
    CrashClient(CrashClient),
    /// For shells and `man`.
    #[command(flatten)]
    Pages(Pages),
}

/// Options of `polychron-lab crash`.
#[derive(Debug, Args)]
pub(crate) struct Crash {
    /// A concurrency-control protocol of those that are drawn from; may be given several times [default: all that are serializable]
    #[arg(long)]
    pub(crate) protocol: Vec<String>,

    /// Databases, each of which has several processes killed
    #[arg(long, default_value_t = 10)]
    pub(crate) runs: u64,

    /// Processes of each, one after the other
    #[arg(long, default_value_t = 5)]
    pub(crate) lives: u64,

    /// Threads of each process
    #[arg(long, default_value_t = 3)]
    pub(crate) threads: u64,

    /// Have log files archived, and restore each database to so many random times at the end
    #[arg(long, default_value_t = 0)]
    pub(crate) restores: u64,

    /// Seed of the first database; the second has the next, and so on
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Where the databases are made, each in a directory of its own [default: as for temporary files]
    #[arg(long)]
    pub(crate) directory: Option<PathBuf>,
}

/// Options of `polychron-lab durability`.
#[derive(Debug, Args)]
pub(crate) struct Durability {
    /// What is measured; may be given several times [default: everything]
    #[arg(long, value_enum)]
    pub(crate) part: Vec<Part>,

    /// The concurrency-control protocol
    #[arg(long, default_value = DefaultProtocol::NAME)]
    pub(crate) protocol: String,

    /// Seconds of each run
    #[arg(long, default_value_t = 1.0)]
    pub(crate) seconds: f64,

    /// Runs of everything
    #[arg(long, default_value_t = 5)]
    pub(crate) repeat: usize,

    /// About so much has each database that is opened
    #[arg(long, default_value_t = 200)]
    pub(crate) megabytes: u64,

    /// Where the databases are made, each in a directory of its own that goes in the end [default: as for temporary files]
    #[arg(long)]
    pub(crate) directory: Option<PathBuf>,
}

/// What a process is told that is killed.
#[derive(Debug, Args)]
pub(crate) struct CrashClient {
    #[arg(long)]
    pub(crate) directory: PathBuf,
    #[arg(long)]
    pub(crate) protocol: String,
    #[arg(long)]
    pub(crate) durability: polychron::Durability,
    #[arg(long)]
    pub(crate) life: u64,
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) threads: u64,
    #[arg(long, requires = "backup")]
    pub(crate) archive: Option<PathBuf>,
    #[arg(long, requires = "archive")]
    pub(crate) backup: Option<PathBuf>,
}

/// Options of `polychron-lab figures`.
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

/// Options of `polychron-lab check`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_fit_together() {
        Arguments::command().debug_assert();
    }
}
