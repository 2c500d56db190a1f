//! `polychron-peers`: durable commits of Polychron and of other databases, in turns on one disk.
//!
//! All have the same rows, a key of eight bytes and a value of a hundred, and answer a commit once it is synced. What a client does is one transaction.
//! `polychron-peers sql` compares prepared statements in memory with SQLite's.

mod databases;
mod statements;
#[cfg(feature = "rocksdb-system")]
mod system_rocks;

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};
use comfy_table::{Table, presets};
use polychron_base::clock::{Clock as _, SystemClock};

use databases::{Client, Peer};

/// The bytes of a row besides its key.
pub const VALUE_BYTES: usize = 100;

/// What a database says of what went wrong.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Durable commits of Polychron and of other databases, in turns on one disk
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    instead: Option<Instead>,
    /// Where the databases are made; each takes a directory of its own, which goes at the end
    #[arg(long, value_name = "PATH")]
    directory: Option<PathBuf>,
    /// How long each measurement lasts
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// How often everything is measured
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// How many rows there are
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
    /// A PostgreSQL server on the same disk, as `host=... user=...`; else it is left out
    #[arg(long, value_name = "PARAMETERS")]
    postgres: Option<String>,
}

/// What is compared in the place of durable commits.
#[derive(Subcommand)]
enum Instead {
    Sql(statements::Arguments),
}

/// What is measured.
struct Load {
    name: &'static str,
    clients: u64,
    does: Does,
}

/// What a transaction does.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    Read,
    /// So many rows are written, one behind the other.
    Write(u64),
}

const LOADS: [Load; 5] = [
    Load { name: "1 client, a row each: commits a second", clients: 1, does: Does::Write(1) },
    Load { name: "16 clients, a row each: commits a second", clients: 16, does: Does::Write(1) },
    Load { name: "64 clients, a row each: commits a second", clients: 64, does: Does::Write(1) },
    Load { name: "1 client, 1,000 rows each: rows a second", clients: 1, does: Does::Write(1_000) },
    Load { name: "1 client, a row read each: transactions a second", clients: 1, does: Does::Read },
];

fn main() {
    let arguments = Arguments::parse();
    let done = match &arguments.instead {
        Some(Instead::Sql(of_sql)) => statements::run(of_sql),
        None => run(&arguments),
    };
    if let Err(failure) = done {
        eprintln!("error: {failure}");
        std::process::exit(2);
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    if !(arguments.seconds > 0.0 && arguments.seconds <= 3600.0) || arguments.repeat == 0 || arguments.rows < 1_000 {
        return Err("--seconds lies above 0 and up to 3600, --repeat is 1 or more, and --rows is 1,000 or more".into());
    }
    let root = arguments.directory.clone().unwrap_or_else(std::env::temp_dir);
    let directory = tempfile::tempdir_in(&root).map_err(|error| format!("{}: {error}", root.display()))?;
    let peers = open_all(directory.path(), arguments)?;
    for load in &LOADS {
        let mut runs = vec![Vec::new(); peers.len()];
        for _ in 0..arguments.repeat {
            for (peer, runs) in peers.iter().zip(&mut runs) {
                let rate = measure(&**peer, load, arguments);
                runs.push(rate.map_err(|error| format!("{}, {}: {error}", peer.name(), load.name))?);
            }
        }
        print(load.name, &peers, runs);
    }
    Ok(())
}

fn open_all(directory: &Path, arguments: &Arguments) -> Result<Vec<Box<dyn Peer>>, Failure> {
    let peers = databases::all(directory, arguments.postgres.as_deref())?;
    for peer in &peers {
        let mut client = peer.client()?;
        for first in (0..arguments.rows).step_by(1_000) {
            let keys: Vec<u64> = (first..(first + 1_000).min(arguments.rows)).collect();
            client.write(&keys, &value(0)).map_err(|error| format!("{}: {error}", peer.name()))?;
        }
    }
    Ok(peers)
}

/// What a row has behind a write.
fn value(number: u64) -> [u8; VALUE_BYTES] {
    let mut value = [7; VALUE_BYTES];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

/// How often a second it is done, with as many threads as there are clients. What was written last is read back.
fn measure(peer: &dyn Peer, load: &Load, arguments: &Arguments) -> Result<f64, Failure> {
    let clients = (0..load.clients).map(|_| peer.client()).collect::<Result<Vec<_>, _>>()?;
    let clock = SystemClock::new();
    let (begun_ns, clock) = (clock.now_ns(), &clock);
    let is_over = || seconds_since(clock, begun_ns) >= arguments.seconds;
    let done: Result<u64, Failure> = std::thread::scope(|scope| {
        let is_over = &is_over;
        let start = |(number, client)| scope.spawn(move || drive(client, number, load, arguments.rows, is_over));
        let threads: Vec<_> = (0..).zip(clients).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).sum()
    });
    Ok(done? as f64 / seconds_since(clock, begun_ns))
}

fn seconds_since(clock: &SystemClock, begun_ns: u64) -> f64 {
    (clock.now_ns() - begun_ns) as f64 / 1e9
}

/// One client, which goes through rows of its own in an order that looks random. Answers how many rows it wrote, or read.
fn drive(
    mut client: Box<dyn Client>,
    number: u64,
    load: &Load,
    rows: u64,
    is_over: &(dyn Fn() -> bool + Sync),
) -> Result<u64, Failure> {
    let of_each = rows / load.clients;
    let mut state = number + 1;
    let mut keys = Vec::new();
    let mut done = 0;
    while !is_over() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let count = if let Does::Write(count) = load.does { count } else { 1 };
        let first = (state >> 33) % (of_each - count + 1) + number * of_each;
        keys.clear();
        keys.extend(first..first + count);
        if load.does == Does::Read {
            client.read(first)?.ok_or("a row is missing")?;
        } else {
            client.write(&keys, &value(state))?;
        }
        done += count;
    }
    if load.does != Does::Read && !keys.is_empty() && client.read(keys[0])? != Some(value(state)) {
        return Err("a row is not what was written".into());
    }
    Ok(done)
}

fn print(name: &str, peers: &[Box<dyn Peer>], runs: Vec<Vec<f64>>) {
    let ours = runs[0].clone();
    let mut table = Table::new();
    table.load_preset(presets::ASCII_BORDERS_ONLY_CONDENSED);
    table.set_header([name, "median", "lowest", "highest", "Polychron's times it", "of these"]);
    for (peer, runs) in peers.iter().zip(runs) {
        let [median, least, most] = spread(runs.clone());
        let [ratio, lowest, highest] = spread(ours.iter().zip(&runs).map(|(ours, its)| ours / its).collect());
        table.add_row([
            peer.name().to_owned(),
            format!("{median:.0}"),
            format!("{least:.0}"),
            format!("{most:.0}"),
            format!("{ratio:.2}"),
            format!("{lowest:.2} to {highest:.2}"),
        ]);
    }
    println!("{table}\n");
}

/// The median, the least and the most.
pub fn spread(mut runs: Vec<f64>) -> [f64; 3] {
    runs.sort_by(f64::total_cmp);
    [runs[runs.len() / 2], runs[0], runs[runs.len() - 1]]
}
