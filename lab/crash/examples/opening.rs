//! Measures how a database is opened.
//!
//! `make DIRECTORY orders MEGABYTES` makes one whose log is so long, of transactions like orders of TPC-C: patches of stock and new lines, of 27 bytes each.
//! `make DIRECTORY BYTES MEGABYTES` makes one whose checkpoint has rows of so many bytes. `open DIRECTORY PROTOCOL [THREADS]` opens it, and tells time,
//! processor time and memory.
//!
//! `cargo run --release -p polychron-crash --example opening -- …`

use std::path::Path;

use polychron::{Database, Durability, Error, Operations, Row};
use polychron_base::clock::{Clock as _, SystemClock};
use polychron_base::random::Random;
use polychron_log::disk::{Directory, Files};

type Answer<T> = Result<T, Box<dyn std::error::Error>>;

const ITEMS: u64 = 1_000_000;

#[derive(Row)]
struct Stock {
    #[key]
    item: u64,
    quantity: u64,
    sold: u64,
    last: u64,
    text: String,
}

#[derive(Row)]
struct Line {
    #[key]
    order: u64,
    #[key]
    number: u64,
    item: u64,
    quantity: u64,
    amount: u64,
    delivered: u64,
    supplier: u64,
}

#[derive(Row)]
#[index(name = "by_group", columns(group))]
struct Wide {
    #[key]
    id: u64,
    group: u32,
    text: String,
}

fn files(path: &str) -> Answer<Files<Directory>> {
    Ok(Files::new(Directory::create_or_open(Path::new(path))?))
}

fn log_bytes(files: &Files<Directory>) -> Answer<u64> {
    Ok(files.list("log")?.len() as u64 * (64 << 20))
}

fn orders(database: &Database, files: &Files<Directory>, bytes: u64) -> Answer<()> {
    let (stock, lines) = (database.create_table::<Stock>()?, database.create_table::<Line>()?);
    for first in (0..ITEMS).step_by(100) {
        database.transact(|transaction| {
            (first..first + 100).try_for_each(|item| {
                let text = "what is known of the item that lies here".to_owned();
                transaction.insert(&stock, &Stock { item, quantity: 100, sold: 0, last: 0, text })
            })
        })?;
    }
    let random = &mut Random::from_seed(1);
    let mut order = 0;
    while order % 1000 != 0 || log_bytes(files)? < bytes {
        let items: [u64; 10] = std::array::from_fn(|_| random.below(ITEMS));
        database.transact(|transaction| {
            for (number, item) in (0..).zip(items) {
                transaction.update(&stock, item, |row| {
                    row.set_quantity(91 - number);
                    row.set_sold(row.sold() + 1);
                })?;
                let line = Line { order, number, item, quantity: 5, amount: order << 8, delivered: 0, supplier: 0 };
                transaction.insert(&lines, &line)?;
            }
            Ok::<_, Error>(())
        })?;
        order += 1;
    }
    println!("{order} orders of 10 lines");
    Ok(())
}

fn rows(database: &Database, row_bytes: usize, bytes: u64) -> Answer<()> {
    let wide = database.create_table::<Wide>()?;
    let rows = bytes / row_bytes as u64;
    for first in (0..rows).step_by(100) {
        database.transact(|transaction| {
            (first..first + 100).try_for_each(|id| {
                let text = format!("{id:0>width$}", width = row_bytes - 24);
                transaction.insert(&wide, &Wide { id, group: id as u32 % 1000, text })
            })
        })?;
    }
    println!("{rows} rows");
    Ok(database.checkpoint()?)
}

fn make(path: &str, kind: &str, megabytes: u64) -> Answer<()> {
    let files = files(path)?;
    let builder = Database::builder().durability(Durability::OnCheckpoint);
    let database = builder.open_on(&files, |settings| settings.checkpoints.log_bytes = u64::MAX)?;
    match kind {
        "orders" => orders(&database, &files, megabytes << 20)?,
        row_bytes => rows(&database, row_bytes.parse()?, megabytes << 20)?,
    }
    Ok(database.close()?)
}

/// A line of what the system knows of the process.
fn known(file: &str, name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or("?").trim().to_owned()
}

/// Processor time so far, of the program and of the system, in seconds.
fn processor_seconds() -> (f64, f64) {
    let line = known("stat", "");
    let mut numbers = line.rsplit(") ").next().unwrap_or_default().split(' ').skip(11);
    let mut next = || numbers.next().and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0) / 100.0;
    (next(), next())
}

fn open(path: &str, protocol: &str, threads: Option<usize>) -> Answer<()> {
    let (files, clock) = (files(path)?, SystemClock::new());
    let begun = clock.now_ns();
    let database = Database::builder().protocol(protocol).open_on(&files, |settings| {
        settings.checkpoints.log_bytes = u64::MAX;
        settings.threads = threads.unwrap_or(settings.threads);
    })?;
    let ((own, system), memory) = (processor_seconds(), database.statistics().memory);
    println!(
        "{protocol}: {:.2} s, {:.2} s of the processor ({system:.2} of them in the system), peak {} (in use {} MB, reserved {} MB), {} commits",
        (clock.now_ns() - begun) as f64 / 1e9,
        own + system,
        known("status", "VmHWM:"),
        memory.as_ref().map_or(0, |memory| memory.used_bytes >> 20),
        memory.as_ref().map_or(0, |memory| memory.reserved_bytes >> 20),
        database.statistics().commits,
    );
    // What the processor does for nothing else is not measured.
    std::process::exit(0)
}

fn main() -> Answer<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["make", path, kind, megabytes] => make(path, kind, megabytes.parse()?),
        ["open", path, protocol] => open(path, protocol, None),
        ["open", path, protocol, threads] => open(path, protocol, Some(threads.parse()?)),
        _ => Err("make DIRECTORY orders|BYTES MEGABYTES, or open DIRECTORY PROTOCOL [THREADS]".into()),
    }
}
