//! `polychron-lab durability`: what durability costs, beside a bare disk and databases in memory.
//!
//! What is compared is measured in turns, and the ratio is that of neighbours, so that both meet the same moods of the machine.

mod clients;
mod disk;
mod opening;
pub(crate) mod standby;
mod workloads;

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use polychron::{ProtocolList, Protocols};
use polychron_base::clock::{Clock, SystemClock};
use polychron_cli::interrupt;
use polychron_cli::output::{print_error, print_output};
use polychron_cli::progress::Steps;
use polychron_cli::report::columns;
use polychron_sync::atomic::Ordering;
use polychron_workloads::run::Spread;
use tempfile::TempDir;

use crate::arguments::Durability;

/// A part of what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// One client's commits, beside a bare write and sync of the same disk, in microseconds
    Latency,
    /// Commits a second of many clients at each level
    Clients,
    /// Commits a second of one client that has a thousand submissions under way
    Submissions,
    /// TPC-C and YCSB with and without a log
    Workloads,
    /// Opening from the log, and from a checkpoint
    Opening,
    /// TPC-C at a primary with and without a standby beside it, and how far that is behind
    Standby,
}

/// One thing to be measured, over and over.
pub(crate) struct Series<'m> {
    name: String,
    measure: Box<dyn FnMut() -> Result<f64, String> + 'm>,
}

impl<'m> Series<'m> {
    pub(crate) fn new(name: impl Into<String>, measure: impl FnMut() -> Result<f64, String> + 'm) -> Self {
        Self { name: name.into(), measure: Box::new(measure) }
    }
}

/// What is compared with each other: everything with what comes first.
pub(crate) struct Comparison<'m> {
    what: String,
    unit: &'static str,
    series: Vec<Series<'m>>,
}

impl<'m> Comparison<'m> {
    pub(crate) fn new(what: impl Into<String>, unit: &'static str, series: Vec<Series<'m>>) -> Self {
        Self { what: what.into(), unit, series }
    }
}

/// How and where.
pub(crate) struct Place<'g> {
    pub(crate) given: &'g Durability,
}

impl Place<'_> {
    /// A directory for one database.
    pub(crate) fn directory(&self) -> Result<TempDir, String> {
        let made = match &self.given.directory {
            Some(path) => tempfile::tempdir_in(path),
            None => tempfile::tempdir(),
        };
        made.map_err(|error| format!("{}: {error}", self.root().display()))
    }

    fn root(&self) -> PathBuf {
        self.given.directory.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// A builder for the protocol that was chosen.
    pub(crate) fn builder(&self) -> polychron::Builder<polychron::AnyProtocol> {
        polychron::Database::builder().protocol(&self.given.protocol)
    }
}

/// Seconds since the clock was made.
pub(crate) fn seconds_of(clock: &SystemClock) -> f64 {
    clock.now_ns() as f64 / 1e9
}

/// One line of an error, and where.
pub(crate) fn at(path: &Path, error: impl std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}

/// Runs the command.
pub(crate) fn run(given: &Durability) -> u8 {
    match run_all(given) {
        Ok(()) => 0,
        Err(line) => {
            print_error(line);
            2
        }
    }
}

fn run_all(given: &Durability) -> Result<(), String> {
    if !(given.seconds.is_finite() && given.seconds > 0.0 && given.seconds <= 3600.0) {
        return Err(format!("--seconds is {}; it lies above 0 and up to 3600", given.seconds));
    }
    if !(1..=1000).contains(&given.repeat) {
        return Err(format!("--repeat is {}; it lies between 1 and 1000", given.repeat));
    }
    let known: Vec<_> = Protocols::all().iter().map(|it| it.name).collect();
    if !known.contains(&&*given.protocol) {
        return Err(format!("there is no protocol `{}` here; there are {}", given.protocol, known.join(", ")));
    }
    interrupt::listen();
    let place = Place { given };
    let parts = if given.part.is_empty() { Part::value_variants() } else { &given.part };
    for part in parts {
        let comparisons = match part {
            Part::Latency => vec![disk::latency(&place)?],
            Part::Clients => vec![clients::levels(&place)?],
            Part::Submissions => vec![clients::submissions(&place)?],
            Part::Workloads => workloads::with_and_without(&place),
            Part::Opening => opening::sizes(&place)?,
            Part::Standby => standby::followed(&place),
        };
        for comparison in comparisons {
            compare(comparison, given.repeat)?;
        }
    }
    Ok(())
}

/// Measures everything in turns, and prints a table.
fn compare(comparison: Comparison<'_>, repeat: usize) -> Result<(), String> {
    let Comparison { what, unit, mut series } = comparison;
    let steps = Steps::new((repeat * series.len()) as u64);
    let mut runs = vec![Vec::new(); series.len()];
    for _ in 0..repeat {
        for (series, runs) in series.iter_mut().zip(&mut runs) {
            steps.now(&format!("{what}: {}", series.name));
            runs.push((series.measure)()?);
            if interrupt::STOP.load(Ordering::Relaxed) {
                return Err("interrupted".to_owned());
            }
            steps.step();
        }
    }
    drop(steps);
    let first = runs[0].clone();
    let rows: Vec<_> = series.iter().zip(runs).map(|(series, runs)| row(&series.name, &runs, &first)).collect();
    print_output(format_args!("{what}, {unit}"));
    print_output(columns(["", "median", "lowest", "highest", "times the first", "of these"], &rows));
    print_output("");
    Ok(())
}

fn row(name: &str, runs: &[f64], first: &[f64]) -> [String; 6] {
    let ratios = Spread::of(runs.iter().zip(first).map(|(run, first)| run / first).collect());
    let Spread { median, least, most, .. } = Spread::of(runs.to_vec());
    let [median, least, most] = [median, least, most].map(number);
    let ratio = format!("{:.2}", ratios.median);
    [name.to_owned(), median, least, most, ratio, format!("{:.2} to {:.2}", ratios.least, ratios.most)]
}

fn number(value: f64) -> String {
    if value < 100.0 { format!("{value:.2}") } else { polychron_cli::report::thousands(value.round() as u64) }
}
