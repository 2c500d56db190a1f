//! `cargo xtask soak`: the long forms of everything that explores, one after the other, with a line each at the end.
//!
//! What each part does is in `docs/testing.md`. A part whose tools are missing is skipped, and says which they are.
//!
//! `cargo xtask endure`: runs of minutes, looked at for memory and for clients that are held up.

mod endure;
mod parts;
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use polychron_base::clock::{Clock, SystemClock};

use parts::{Outcome, PARTS, Part};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "What a developer of Polychron runs besides cargo's own commands")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the long forms of all that explores: models, schedules, properties, interpreters, sanitizers, fuzzers, histories
    Soak(Soak),
    /// Runs workloads for minutes, and fails where memory grows or a client is held up
    Endure(endure::Endure),
}

/// How much to explore.
#[derive(clap::Args)]
struct Soak {
    /// Minutes in all, divided among the parts that can go on for any time; building and the other parts come on top
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// From which seeds are counted: the same ones draw the same plans
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this part; may be given several times
    #[arg(long, value_parser = PARTS.iter().map(|part| part.name).collect::<Vec<_>>())]
    only: Vec<String>,
}

/// Where a part runs, and how much.
struct Share {
    seconds: u64,
    seed: u64,
    /// Builds and logs go here.
    folder: PathBuf,
    clock: SystemClock,
}

fn main() -> ExitCode {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let folder = target.join("soak");
    if let Err(error) = std::fs::create_dir_all(&folder) {
        eprintln!("{}: {error}", folder.display());
        return ExitCode::FAILURE;
    }
    let fine = match Arguments::parse().command {
        Command::Soak(soak) => soak_parts(&soak, folder),
        Command::Endure(given) => endure::endure(&given, &folder),
    };
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the chosen parts, and answers whether all is well.
fn soak_parts(soak: &Soak, folder: PathBuf) -> bool {
    let chosen: Vec<&Part> =
        PARTS.iter().filter(|part| soak.only.is_empty() || soak.only.iter().any(|name| name == part.name)).collect();
    let dividing = chosen.iter().filter(|part| part.goes_on).count().max(1) as u64;
    let share = Share { seconds: soak.minutes * 60 / dividing, seed: soak.seed, folder, clock: SystemClock::new() };
    let lines: Vec<(bool, String)> = chosen.iter().map(|part| soak_part(part, &share)).collect();
    println!();
    lines.iter().for_each(|(_, line)| println!("{line}"));
    lines.iter().all(|(fine, _)| *fine)
}

/// Runs a part, and answers whether all is well and the part's line.
fn soak_part(part: &Part, share: &Share) -> (bool, String) {
    eprintln!("{}: {}", part.name, part.summary);
    let began = share.clock.now_ns();
    let outcome = match (part.missing)() {
        Some(missing) => Outcome::Skipped(missing),
        None => (part.run)(share),
    };
    let seconds = (share.clock.now_ns() - began) / 1_000_000_000;
    let (fine, outcome) = match outcome {
        Outcome::Passed(found) => (true, format!("passed   {seconds:>5} s  {found}")),
        Outcome::Failed(log) => (false, format!("FAILED   {seconds:>5} s  see {}", log.display())),
        Outcome::Skipped(missing) => (true, format!("skipped          {missing}")),
    };
    let line = format!("{:<15}{outcome}", part.name);
    eprintln!("{line}");
    (fine, line)
}
