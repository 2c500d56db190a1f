//! The command line.

mod serve;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use clap::{Args, Parser, Subcommand};
use polychron::{DefaultProtocol, Durability, Protocol, ProtocolInfo, Submissions};
use polychron_workloads::churn::ChurnOptions;
use polychron_workloads::hotkey::{AssertOptions, HotOptions};
use polychron_workloads::increment::IncrementOptions;
use polychron_workloads::modify::ModifyOptions;
use polychron_workloads::run::Idle;
use polychron_workloads::scan::ScanOptions;
use polychron_workloads::smallbank::SmallBankOptions;
use polychron_workloads::tatp::TatpOptions;
use polychron_workloads::tpcc::TpccOptions;
use polychron_workloads::ycsb::YcsbArguments;

pub use serve::Serve;

use crate::output::{colours_on_errors, print_error, print_status};

/// Polychron: a main-memory transactional database with a choice of concurrency-control protocols
#[derive(Debug, Parser)]
#[command(name = "polychron", version, about)]
pub struct Arguments {
    /// What is to be done.
    #[command(subcommand)]
    pub command: Command,
}

/// What can be done.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one of it")]
pub enum Command {
    /// Load a workload, run it, and report throughput, latencies and consistency
    Bench(Bench),
    /// Show what a database's directory has: tables, checkpoint and log
    Inspect(Place),
    /// Check all files of a database, and name everything that is damaged
    Verify(Place),
    /// Copy a database that no process has open; the copy is a database of its own
    Backup(Backup),
    /// Bring a backup up to a later time, by an archive and the log, as a new database
    Restore(Restore),
    /// Follow a database that serves standbys, with a copy of it, until Ctrl-C
    Standby(Standby),
    /// Write the rows of a table to a file: CSV or Parquet
    Export(Export),
    /// Insert the rows of a CSV or Parquet file into a table: all of them, or none
    Import(Import),
    /// Run statements of SQL: typed, of a script, or given here. Needs a program with the feature `shell`
    Shell(Shell),
    /// Answer clients of PostgreSQL. Needs a program with the feature `serve`
    Serve(Serve),
    /// Look into the log of a database
    #[command(subcommand)]
    Log(LogCommand),
    /// For shells and `man`.
    #[command(flatten)]
    Pages(Pages),
}

/// What a shell and `man` want to know of the program.
#[derive(Debug, Subcommand)]
pub enum Pages {
    /// Print a script that completes this program's commands in a shell
    #[command(hide = true)]
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    #[command(hide = true)]
    Man {
        /// Write a page of each command into this folder
        #[arg(long)]
        directory: Option<PathBuf>,
    },
}

/// Which database.
#[derive(Debug, Args)]
pub struct Place {
    /// The database's directory; nothing in it is changed
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Options of `backup`.
#[derive(Debug, Args)]
pub struct Backup {
    /// Where.
    #[command(flatten)]
    pub place: Place,

    /// The directory of the copy, which is empty or missing
    #[arg(value_name = "TO")]
    pub to: PathBuf,
}

/// Options of `standby`.
#[derive(Debug, Args)]
pub struct Standby {
    /// The directory of the copy: a standby's, or one that is empty or missing
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// Where the database listens, such as 10.0.0.1:7300
    #[arg(long, value_name = "ADDRESS")]
    pub of: String,
}

/// Options of `restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// A backup, which was not opened to write
    #[arg(value_name = "FROM")]
    pub from: PathBuf,

    /// The directory of the new database, which is empty or missing
    #[arg(value_name = "TO")]
    pub to: PathBuf,

    /// The archive to which the database had its log files copied
    #[arg(long)]
    pub archive: Option<PathBuf>,

    /// The directory of the database itself, for what was not archived; no process has it open
    #[arg(long, value_name = "DIR")]
    pub database: Option<PathBuf>,

    /// Stop at the last consistent point before this time, such as 2026-03-01T12:00:00Z [default: the last one that there is]
    #[arg(long, value_name = "TIME", value_parser = nanoseconds)]
    pub until: Option<u64>,
}

/// A time as nanoseconds since 1970.
fn nanoseconds(text: &str) -> Result<u64, String> {
    let time: jiff::Timestamp = text.parse().map_err(|_| "it is no time such as 2026-03-01T12:00:00Z".to_owned())?;
    u64::try_from(time.as_nanosecond()).map_err(|_| "it is before 1970".to_owned())
}

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// With a line of names first; NULL is \\N, and text that begins with a backslash has one more; bytes are hexadecimal.
    Csv,
    /// Apache Parquet: a column of each of the table's, compressed with Snappy. Needs a program with the feature `parquet`.
    Parquet,
}

/// Options of `export`.
#[derive(Debug, Args)]
pub struct Export {
    /// Where.
    #[command(flatten)]
    pub place: Place,

    /// The table
    #[arg(long)]
    pub table: String,

    /// How rows are written [default: the format that the file's name ends in, else csv]
    #[arg(long, value_enum)]
    pub format: Option<Format>,

    /// The file, which must not be there [default: the standard output]
    #[arg(long)]
    pub output: Option<PathBuf>,
}

/// Options of `import`.
#[derive(Debug, Args)]
pub struct Import {
    /// The database's directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// The table, which is there
    #[arg(long)]
    pub table: String,

    /// How rows are written [default: the format that the file's name ends in, else csv]
    #[arg(long, value_enum)]
    pub format: Option<Format>,

    /// The file [default: the standard input]
    #[arg(long)]
    pub input: Option<PathBuf>,
}

/// How a shell shows rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Shown {
    /// A table, as psql shows it
    Aligned,
    /// A line of each value, as psql shows it
    Expanded,
    /// With a line of names first; NULL is nothing, and an empty text two quotes
    Csv,
    /// A list of objects
    Json,
    /// A table of Markdown
    Markdown,
}

/// Options of `shell`.
#[derive(Debug, Args)]
pub struct Shell {
    /// The database's directory; where there is none, one is made [default: a database in memory, gone with the shell]
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,

    /// Run these statements as one transaction, or one command of the shell such as `\d`; may be given several times
    #[arg(short, long, value_name = "TEXT")]
    pub command: Vec<String>,

    /// Run the statements and commands of this file, behind those of --command; `-` is the standard input
    #[arg(short, long)]
    pub file: Vec<PathBuf>,

    /// How rows are shown
    #[arg(long, value_enum, default_value_t = Shown::Aligned)]
    pub format: Shown,

    /// End at the first statement that fails, with exit code 3
    #[arg(long)]
    pub stop_on_error: bool,

    /// Print rows alone, and not what other statements have done
    #[arg(short, long)]
    pub quiet: bool,

    /// Change nothing in the directory, and refuse statements that would
    #[arg(long, requires = "path")]
    pub read_only: bool,

    /// Concurrency-control protocol; `polychron bench list` names them
    #[arg(long, default_value = DefaultProtocol::NAME)]
    pub protocol: String,
}

/// What can be done with a log.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Print all changes that recovery reads from the log, a line each: when they became durable, in which order they count, and what they did
    Dump(Dump),
}

/// Options of `log dump`.
#[derive(Debug, Args)]
pub struct Dump {
    /// Where.
    #[command(flatten)]
    pub place: Place,

    /// Only changes of this table; one that was dropped goes by its number in brackets
    #[arg(long)]
    pub table: Option<String>,

    /// Only changes of the row with this key: the values of its columns, with commas between them
    #[arg(long, requires = "table")]
    pub key: Option<String>,
}

/// Options of `bench`.
#[derive(Debug, Args)]
pub struct Bench {
    /// The workload.
    #[command(subcommand)]
    pub workload: WorkloadCommand,
}

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum WorkloadCommand {
    /// Name the workloads and the protocols
    List,
    /// Run a workload on two protocols in turns, and say which one is faster
    Compare(Compare),
    /// One workload on one protocol.
    #[command(flatten)]
    One(OneWorkload),
}

/// Options of `bench compare`.
#[derive(Debug, Args)]
pub struct Compare {
    /// The two, and how often.
    #[command(flatten)]
    pub turns: Turns,

    /// The workload.
    #[command(subcommand)]
    pub workload: OneWorkload,
}

/// Two protocols that take turns.
#[derive(Debug, Args)]
pub struct Turns {
    /// A protocol; its own options follow behind commas: PROTOCOL,NAME=VALUE,NAME=VALUE
    #[arg(value_name = "A")]
    pub first: String,

    /// Another one, or the same with other options
    #[arg(value_name = "B")]
    pub second: String,

    /// Runs of each, in the order A B A B; the median counts
    #[arg(long, default_value_t = 5)]
    pub runs: usize,
}

/// The workloads. Each brings options of its own beside the common ones.
#[derive(Debug, Subcommand)]
pub enum OneWorkload {
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
pub struct Workload<A: Args> {
    /// The common ones.
    #[command(flatten)]
    pub common: Common,

    /// Those of the workload.
    #[command(flatten)]
    pub options: A,
}

/// Options of every benchmark.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Run")]
#[group(skip)]
pub struct Common {
    /// Concurrency-control protocol; `polychron bench list` names them
    #[arg(long, default_value = DefaultProtocol::NAME)]
    pub protocol: String,

    /// An option of the protocol itself, such as indexes=multi-version; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    pub protocol_option: Vec<String>,

    /// Threads that execute transactions [default: one for each core]
    #[arg(long)]
    pub threads: Option<usize>,

    /// Seconds that are measured
    #[arg(long, default_value_t = 10.0, allow_negative_numbers = true)]
    pub seconds: f64,

    /// Seconds of ramp-up before
    #[arg(long, default_value_t = 2.0, allow_negative_numbers = true)]
    pub warmup: f64,

    /// Seed of all inputs
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// Procedures handed over at once; 1 is one by one
    #[arg(long, default_value_t = 1)]
    pub batch: usize,

    /// Submit transactions in place of executing them: so many each thread has under way. As many threads again execute them, in
    /// batches of --batch at most
    #[arg(long, default_value_t = 0, conflicts_with = "pregenerate")]
    pub submit: usize,

    /// With --submit: microseconds for which a batch is kept open while a thread is free
    #[arg(long, requires = "submit", default_value_t = Submissions::default().batch_time_us)]
    pub batch_time_us: u64,

    /// Draw so many transactions a thread beforehand, and go through them again and again
    #[arg(long, default_value_t = 0)]
    pub pregenerate: usize,

    /// Keep a snapshot open for the whole run, on a thread of its own that does nothing else
    #[arg(long)]
    pub open_snapshot: bool,

    /// Let a client of its own come and go beside the others, which leaves this open and does nothing, for times and for seconds
    #[arg(long, value_enum)]
    pub idle: Option<Idle>,

    /// Execute at most so many transactions a second, all threads together; 0 stands for as many as they can
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true, conflicts_with = "submit")]
    pub rate: f64,

    /// Fail when the process has over 5 % more memory in the last quarter than in the second, or a client completes nothing for a second
    #[arg(long)]
    pub steady: bool,

    /// Bind each thread to a core
    #[arg(long)]
    pub pin: bool,

    /// Most memory for rows, versions and indexes, in MiB [default: what the machine has]
    #[arg(long)]
    pub memory_limit: Option<usize>,

    /// Make the database in this directory, which is empty or missing, and stays; without it nothing is written
    #[arg(long)]
    pub directory: Option<PathBuf>,

    /// With --directory: when answers leave: immediate, group=TIME, eventual=TIME or on-checkpoint
    #[arg(long, requires = "directory", default_value_t = Durability::Immediate)]
    pub durability: Durability,

    /// Memory to touch before loading, in MiB, so that the run meets no page faults
    #[arg(long, default_value_t = 0)]
    pub prefault: usize,

    /// Write everything measured to this file as JSON
    #[arg(long)]
    pub json: Option<PathBuf>,
}

impl Common {
    /// The protocol where none is named.
    pub(crate) const fn default_protocol() -> &'static str {
        DefaultProtocol::NAME
    }
}

/// The options of a protocol of a list, with those changed that the command line gives.
///
/// # Errors
/// One line.
pub fn protocol_options<P: Protocol>(info: &ProtocolInfo, given: &[String]) -> Result<P::Options, String> {
    let mut options = info.options_of::<P>().map_err(|error| error.to_string())?;
    for (name, value) in knobs(given)? {
        P::set_option(&mut options, name, value)
            .map_err(|error| format!("--protocol-option {name}={value}: {error}"))?;
    }
    Ok(options)
}

/// Names and values of a protocol's own options.
///
/// # Errors
/// One line.
pub fn knobs(given: &[String]) -> Result<Vec<(&str, &str)>, String> {
    let refusal = |text| format!("--protocol-option {text}: it is NAME=VALUE");
    given.iter().map(|text| text.split_once('=').ok_or_else(|| refusal(text))).collect()
}

/// Reads the command line.
///
/// # Errors
/// The exit code, when there is nothing more to do: help was asked for, or it cannot be parsed, which was told in one line.
pub fn parse<A: Parser>() -> Result<A, ExitCode> {
    A::try_parse().map_err(|error| refuse(&error))
}

fn refuse(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Printing fails when no one reads the output.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    match own_line(error) {
        Some(line) => print_error(line),
        None => print_status(one_line(error, colours_on_errors())),
    }
    ExitCode::from(2)
}

/// What is said in place of the parser's own words, where it knows less.
fn own_line(error: &clap::Error) -> Option<String> {
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(name) = error.get(ContextKind::InvalidSubcommand)
    {
        let names = crate::bench::workload_names().join(", ");
        return Some(format!("there is no command or workload `{name}`; the workloads are {names}"));
    }
    let line = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            "a command or workload is missing; try `bench list` or `--help`"
        }
        ErrorKind::MissingSubcommand => {
            "a workload is missing; it is `bench compare A B WORKLOAD`, and `bench list` names both"
        }
        _ => return None,
    };
    Some(line.to_owned())
}

/// The parser's own words in one line, without usage and hints at the help.
fn one_line(error: &clap::Error, coloured: bool) -> String {
    let rendered = error.render();
    let (plain, shown) =
        (rendered.to_string(), if coloured { rendered.ansi().to_string() } else { rendered.to_string() });
    // Colours change no line's place; what a line is shows in the plain one.
    let lines = plain.lines().map(str::trim).zip(shown.lines().map(str::trim));
    let useful = lines.take_while(|(plain, _)| !plain.starts_with("Usage:"));
    let useful = useful.filter(|(plain, _)| !plain.is_empty() && !plain.starts_with("For more information"));
    let mut line = String::new();
    let mut end = "";
    for (plain, shown) in useful {
        line.push_str(end);
        line.push_str(shown);
        end = if plain.ends_with(':') { " " } else { "; " };
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_fit_together() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_parsers_words_keep_their_colours_in_one_line() {
        let error = Arguments::try_parse_from(["polychron", "bench", "ycsb", "--record", "5"]).unwrap_err();
        let (plain, coloured) = (one_line(&error, false), one_line(&error, true));
        assert!(plain.starts_with("error: unexpected argument '--record' found"), "{plain}");
        assert!(plain.contains("found; tip: ") && !plain.contains("Usage") && !plain.contains('\x1b'), "{plain}");
        assert!(coloured.contains("\x1b[") && !coloured.contains('\n'), "{coloured:?}");
        assert_eq!(console::strip_ansi_codes(&coloured), plain);
    }
}
