//! Measures what a log costs: nanoseconds a seal, and a transaction's changes with it; how long one client waits for a commit, beside a bare write and
//! sync of a block, in turns; and how many commits clients have in a second that wait together.
//!
//! `cargo run --release -p polychron-log --example commit -- DIRECTORY [CLIENTS]`, in a directory that is made and whose disk is measured.

use std::path::Path;
use std::sync::Arc;

use polychron_base::TableId;
use polychron_base::clock::{Clock as _, Duration, SystemClock};
use polychron_engine::redo::{Change, Log as _, Order};
use polychron_log::disk::{Access, BLOCK, Buffer, Cause, Directory, File, Files};
use polychron_log::manifest::{Manifest, Manifests};
use polychron_log::{DatabaseId, Log, Options, Threads};

type Measured = Log<Directory>;
type Answer<T> = Result<T, Box<dyn std::error::Error>>;

/// The changes of a transaction like an order of TPC-C: twelve, some 600 bytes.
fn stage(log: &Measured, worker: usize, number: u64) {
    let table = |position| TableId::new(1, position);
    let put = |position, words: &[u64]| log.stage(worker, table(position), b"", Change::Put(words)).expect("it fits");
    let patch = |position, key: u64, words: &[u64]| {
        let change = Change::Patch { word: 3, words };
        log.stage(worker, table(position), &key.to_be_bytes(), change).expect("it fits");
    };
    patch(1, number % 10, &[number]);
    put(2, &[number, 1, 77, number << 20, 0, 5, 1, 0]);
    for line in 0..5 {
        patch(3, number + line, &[91 - line, number, 10]);
        put(4, &[number, line, number << 9, 0, 5, number << 8, 0x4142_4344_4546_4748, 0x4142_4344_4546_4748]);
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

/// Nanoseconds a seal: of many workers, one after the other.
fn seals(log: &Measured, clock: &SystemClock, workers: usize) -> Answer<u64> {
    let mut rounds = Vec::new();
    for round in 0..2000 {
        for worker in 0..workers {
            log.stage(worker, TableId::new(1, 1), b"", Change::Put(&[round + 1]))?;
        }
        let begun = clock.now_ns();
        for worker in 0..workers {
            log.seal(worker, Order::from(round));
        }
        rounds.push((clock.now_ns() - begun) / workers as u64);
        if round % 50 == 0 {
            log.flush()?;
        }
    }
    Ok(median(rounds))
}

/// Nanoseconds to stage a transaction and seal it.
fn transactions(log: &Measured, clock: &SystemClock) -> Answer<u64> {
    const TIMES: u64 = 20;
    let mut rounds = Vec::new();
    for round in 0..2000 {
        log.admit(0)?;
        let begun = clock.now_ns();
        for number in 0..TIMES {
            stage(log, 0, number);
            log.seal(0, Order::from(round * TIMES + number));
        }
        rounds.push((clock.now_ns() - begun) / TIMES);
    }
    Ok(median(rounds))
}

fn commit(log: &Measured, worker: usize, number: u64) -> Answer<()> {
    log.admit(worker)?;
    stage(log, worker, number);
    Ok(log.wait(log.seal(worker, Order::from(number)))?)
}

/// Median times of a commit and of a bare write and sync, in turns.
fn alone(
    log: &Measured,
    probe: &File<<Directory as polychron_log::disk::Disk>::File>,
    clock: &SystemClock,
) -> Answer<()> {
    let (mut commits, mut probes) = (Vec::new(), Vec::new());
    let mut block = Buffer::zeroed(BLOCK);
    let blocks = probe.bytes()? / BLOCK as u64;
    for turn in 0..10 {
        for number in 0..200 {
            let begun = clock.now_ns();
            commit(log, 0, turn * 200 + number)?;
            commits.push(clock.now_ns() - begun);
        }
        for number in 0..200 {
            block.fill(number as u8);
            let begun = clock.now_ns();
            probe.write_at((turn * 200 + number) % blocks * BLOCK as u64, &block)?;
            probe.sync()?;
            probes.push(clock.now_ns() - begun);
        }
    }
    let (commit, probe) = (median(commits) as f64 / 1e3, median(probes) as f64 / 1e3);
    println!(
        "one client: {commit:.1} µs a commit, {probe:.1} µs a write and sync of a block: {:+.1} µs",
        commit - probe
    );
    Ok(())
}

/// Commits in a second of clients that each wait for theirs, and in a flush.
fn together(log: &Measured, clock: &SystemClock, clients: usize) -> (f64, f64) {
    const TIME: Duration = Duration::from_secs(2);
    let (begun, durable) = (clock.now_ns(), log.durable());
    let is_over = || clock.now_ns() - begun > TIME.as_nanos() as u64;
    let client = |worker| (0..).take_while(|number| !is_over() && commit(log, worker, *number).is_ok()).count();
    let commits: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|worker| scope.spawn(move || client(worker))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
    });
    let flushes = (log.durable() - durable) as f64;
    (commits as f64 * 1e9 / (clock.now_ns() - begun) as f64, commits as f64 / flushes)
}

fn main() -> Answer<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("which directory?")?;
    let clients: usize = arguments.next().map_or(Ok(64), |count| count.parse())?;
    let files = Files::new(Directory::create_or_open(Path::new(&path))?);
    let _lock = files.lock()?;
    let first = Manifest {
        database: DatabaseId(1),
        incarnation: 0,
        first_log_file: 1,
        durable: 0,
        checkpoint: None,
        catalog: Vec::new(),
    };
    let mut manifests = match Manifests::open(&files)? {
        Some(manifests) => manifests,
        None => Manifests::create(&files, first)?,
    };
    let clock = SystemClock::new();
    let options = Options::production(clients);
    let ended = Box::new(Order::default);
    let mut records = 0;
    let log = Log::open(&files, &mut manifests, options, Arc::new(clock.clone()), ended, &mut |_| records += 1)?;
    println!("{records} records were found");
    let log = Arc::new(log);
    let _threads = Threads::start(Arc::clone(&log))?;
    let probe = match files.create("probe", 4 << 20) {
        Err(error) if error.cause == Cause::Exists => files.open("probe", Access::Write)?,
        probe => probe?,
    };
    for _ in 0..3 {
        println!("{} ns a seal, {} ns a transaction", seals(&log, &clock, clients)?, transactions(&log, &clock)?);
        alone(&log, &probe, &clock)?;
        let ((one, _), (all, shared)) = (together(&log, &clock, 1), together(&log, &clock, clients));
        println!("{one:.0} commits a second of one client");
        println!("{all:.0} of {clients}, {shared:.1} a flush: {:.1} times", all / one);
        // So that the next turn finds files made ahead.
        log.flush()?;
    }
    Ok(())
}
