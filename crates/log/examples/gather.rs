//! Measures what a checkpoint of a database costs that no process has open, on one thread.
//!
//! `cargo run --release -p polychron-log --example gather -- DIRECTORY`: how long it takes to read the log, to gather it, and to pass the rows of the
//! checkpoint before through that, which go nowhere. `… DIRECTORY MEGABYTES` makes a checkpoint with so much memory: the directory is another one then.

use std::path::Path;
use std::sync::{Arc, Mutex};

use polychron_base::clock::{Clock as _, SystemClock};
use polychron_engine::redo::Order;
use polychron_log::checkpoint::{self, Checkpoints, Haste, Range, RowSource, carried};
use polychron_log::disk::{Directory, Files};
use polychron_log::manifest::Manifests;
use polychron_log::recover::{Batch, Sink, Tail};
use polychron_log::{Error, Log, Logged, Options, catalog};

type Answer<T> = Result<T, Box<dyn std::error::Error>>;

struct Nowhere;

impl Sink for Nowhere {
    type Error = Error;

    fn rows(&self, batch: &Batch<'_>) -> Result<(), Error> {
        std::hint::black_box(batch.rows().map(|row| row.words[0]).fold(0, u64::wrapping_add));
        Ok(())
    }
}

fn gather(files: &Files<Directory>) -> Answer<()> {
    let clock = SystemClock::new();
    let since = |begun: u64| (clock.now_ns() - begun) as f64;
    let (manifest, generation) = Manifests::read_with_generation(files)?.ok_or("there is no database")?;
    let catalog = catalog::decode(&manifest.catalog)?;
    let read = |visit: &mut dyn FnMut(Logged<'_>)| -> Result<(), Error> {
        carried(files, &manifest, visit)?;
        polychron_log::read(files, &manifest, generation, visit).map(drop)
    };
    for _ in 0..3 {
        let (mut records, mut changes, mut bytes) = (0_u64, 0_u64, 0);
        let begun = clock.now_ns();
        read(&mut |logged| {
            records += 1;
            bytes += logged.record.bytes();
        })?;
        let only_read = since(begun);
        read(&mut |logged| changes += logged.record.changes().count() as u64)?;
        let begun = clock.now_ns();
        let mut tail = Tail::of_range(&catalog, Range::default(), 0, usize::MAX)?;
        read(&mut |logged| tail.add(logged))?;
        let newest = tail.finish()?;
        let (gathered, memory) = (since(begun), newest.memory_bytes());
        let rows = newest.merge(0, &RowSource::of(files, &manifest), &Nowhere)?;
        let passed = since(begun) - gathered;
        let each = |ns: f64| ns / changes as f64;
        println!(
            "{changes} changes of {records} transactions, {bytes} bytes: {:.0} ns a change to read, {:.0} to gather with it, {:.0} to pass {rows} rows; {memory} bytes",
            each(only_read),
            each(gathered),
            each(passed)
        );
    }
    Ok(())
}

fn fold(files: &Files<Directory>, memory_bytes: usize) -> Answer<()> {
    let _lock = files.lock()?;
    let mut manifests = Manifests::open(files)?.ok_or("there is no database")?;
    let (clock, ended) = (SystemClock::new(), Box::new(|| Order::LAST));
    let log = Log::open(files, &mut manifests, Options::production(1), Arc::new(clock.clone()), ended, &mut |_| {})?;
    log.flush()?;
    let options = checkpoint::Options { threads: 1, memory_bytes, ..checkpoint::Options::production() };
    let checkpoints = Checkpoints::open(files, manifests.current(), options)?;
    let begun = clock.now_ns();
    checkpoints.run(&log, &Mutex::new(manifests), Haste::Unpaced)?;
    println!("{:.0} ms for a checkpoint", (clock.now_ns() - begun) as f64 / 1e6);
    Ok(())
}

fn main() -> Answer<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("which directory?")?;
    let files = Files::new(Directory::open(Path::new(&path))?);
    match arguments.next() {
        Some(megabytes) => fold(&files, megabytes.parse::<usize>()? << 20),
        None => gather(&files),
    }
}
