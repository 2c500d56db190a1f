//! The same with threads, whose turns nobody decides.

use std::sync::Arc;
use std::time::Duration;

use polychron_base::TableId;
use polychron_base::clock::SystemClock;
use polychron_base::random::Random;
use polychron_engine::redo::{Change, Log as _, Order};
use polychron_log::disk::{Files, Operation};
use polychron_log::{Durability, Log, Options, Threads};
use polychron_sim::{At, Fault, SimulatedDisk, crash_seeds};
use polychron_sync::atomic::{AtomicU64, Ordering};

use crate::ledger::{Id, Ledger, Sealed, Told};
use crate::session::manifests;
use crate::{complaint, runs, trials};

fn opened(disk: &SimulatedDisk, options: Options) -> Arc<Log<SimulatedDisk>> {
    let files = Files::new(disk.clone());
    let clock = Arc::new(SystemClock::new());
    let mut manifests = manifests(disk).unwrap();
    Arc::new(Log::open(&files, &mut manifests, options, clock, Box::new(Order::default), &mut |_| {}).unwrap())
}

/// Commits until the log stops, and answers what was sealed, and whether it was acknowledged.
fn client(log: &Log<SimulatedDisk>, worker: usize, orders: &AtomicU64) -> Vec<(Id, Sealed, bool)> {
    let mut sealed = Vec::new();
    loop {
        log.admit(worker).unwrap();
        let timestamp = orders.fetch_add(1, Ordering::Relaxed);
        let changes: Vec<Told> = (0..timestamp % 4 + 1)
            .map(|at| Told::Put(at as u32, vec![timestamp; (timestamp * 7 + at) as usize % 40]))
            .collect();
        let stage = |change: &Told| log.stage(worker, TableId::new(1, change.table()), b"", change.change());
        if changes.iter().try_for_each(stage).is_err() {
            log.discard(worker);
            break;
        }
        let ticket = log.seal(worker, Order::from(timestamp));
        let is_durable = log.wait(ticket).is_ok();
        sealed.push(((1, timestamp), Sealed { worker, epoch: ticket.0, changes }, is_durable));
    }
    sealed
}

#[test]
fn what_is_acknowledged_to_threads_survives() {
    let (trials, mut acknowledged) = (trials(), 0);
    for seed in runs(40) {
        let disk = SimulatedDisk::new(seed);
        let log = opened(&disk, Options::tiny());
        let threads = (seed % 2 == 0).then(|| Threads::start(Arc::clone(&log)).unwrap());
        let mut random = Random::from_seed(seed);
        let fault = if random.chance(0.7) { Fault::PowerFailure } else { Fault::FailForEver };
        disk.plan(disk.steps().len() + random.below(150) as usize, fault);
        let orders = AtomicU64::new(1);
        let (log, orders) = (&log, &orders);
        let mut ledger = Ledger::default();
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..3).map(|worker| scope.spawn(move || client(log, worker, orders))).collect();
            for (id, sealed, is_durable) in clients.into_iter().flat_map(|client| client.join().unwrap()) {
                ledger.sealed.insert(id, sealed);
                ledger.certain.extend(is_durable.then_some(id));
            }
        });
        drop(threads);
        acknowledged += ledger.certain.len();
        let at = At { seed, operations: &[] };
        trials.crash(&disk, at, crash_seeds(3), |left| complaint(left, &ledger));
        trials.check(at, "a restart", complaint(&disk.after_restart(), &ledger));
    }
    assert!(acknowledged > 20, "{acknowledged} transactions were acknowledged");
}

/// Waits for something that another thread does.
#[track_caller]
fn comes(is_so: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("it does not come");
}

/// Nobody waits: what is sealed becomes durable, then that is written down, and files are made before they are needed.
#[test]
fn the_logs_threads_do_what_nobody_waits_for() {
    for durability in [Durability::Eventual(Duration::from_millis(3)), Durability::Immediate] {
        let disk = SimulatedDisk::new(1);
        let log = opened(&disk, Options { durability, ..Options::tiny() });
        let operations = |operation, path: &str| {
            disk.steps().iter().filter(|step| (step.operation, step.path.as_str()) == (operation, path)).count()
        };
        let before = operations(Operation::Write, "log/0.log");
        let _threads = Threads::start(Arc::clone(&log)).unwrap();
        comes(|| operations(Operation::Create, "log/1.log") == 1);
        log.stage(0, TableId::new(1, 1), b"", Change::Put(&[1])).unwrap();
        let ticket = log.seal(0, Order::from(1));
        comes(|| log.durable() >= ticket.0);
        comes(|| operations(Operation::Write, "log/0.log") == before + 2);
    }
}

/// Nobody waits, and no time comes: what rings have is flushed before they are half full, when a transaction would do it.
#[test]
fn rings_that_fill_are_flushed() {
    let disk = SimulatedDisk::new(1);
    let log = opened(&disk, Options { durability: Durability::OnCheckpoint, ..Options::tiny() });
    let _threads = Threads::start(Arc::clone(&log)).unwrap();
    for timestamp in 1..=100 {
        // Of 512 words, 4 in front and 36 of a row, so that the fourth transaction passes a quarter.
        let mut ticket = 0;
        for part in 0..4 {
            log.stage(0, TableId::new(1, 1), b"", Change::Put(&[timestamp; 36])).unwrap();
            ticket = log.seal(0, Order::from(4 * timestamp + part)).0;
        }
        comes(|| log.durable() >= ticket);
    }
}

/// Each flush writes much where nobody waits for it, though the database may have many workers.
#[test]
fn flushes_that_nobody_waits_for_are_long() {
    const BYTES: usize = 8 << 20;
    let disk = SimulatedDisk::new(1);
    let log = opened(&disk, Options { durability: Durability::OnCheckpoint, ..Options::production(256) });
    let threads = Threads::start(Arc::clone(&log)).unwrap();
    let syncs = || disk.steps().iter().filter(|step| step.operation == Operation::Sync).count();
    let before = syncs();
    for timestamp in 1..=(BYTES / 1024) as u64 {
        log.admit(0).unwrap();
        log.stage(0, TableId::new(1, 1), b"", Change::Put(&[timestamp; 128])).unwrap();
        log.seal(0, Order::from(timestamp));
    }
    drop(threads);
    // A ring calls for a flush once it has 256 KiB, and at most one frame more follows, which says what is durable. Files are synced as they are made.
    let most = 2 * BYTES.div_ceil(256 << 10) + 10;
    assert!(syncs() - before <= most, "{} flushes, at most {most}", syncs() - before);
}

/// What is sealed is durable, though nobody waits, once the log's threads are told to end.
#[test]
fn closing_makes_all_durable() {
    let disk = SimulatedDisk::new(1);
    let log = opened(&disk, Options { durability: Durability::OnCheckpoint, ..Options::tiny() });
    let threads = Threads::start(Arc::clone(&log)).unwrap();
    log.stage(0, TableId::new(1, 1), b"", Change::Put(&[1])).unwrap();
    let ticket = log.seal(0, Order::from(1));
    drop(threads);
    assert!(log.durable() >= ticket.0);
    assert_eq!(log.ticket(Order::from(1)).0, 0);
}

/// Flushes of a group begin so far apart that all clients share them.
#[test]
fn a_group_shares_its_flushes() {
    const TIME: Duration = Duration::from_millis(30);
    let disk = SimulatedDisk::new(1);
    let log = opened(&disk, Options { durability: Durability::Group(TIME), ..Options::tiny() });
    let before = disk.steps().len();
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let log = &log;
            scope.spawn(move || {
                for number in 0..4 {
                    log.stage(worker, TableId::new(1, 1), b"", Change::Put(&[1])).unwrap();
                    log.wait(log.seal(worker, Order::from(number * 3 + worker as u64))).unwrap();
                }
            });
        }
    });
    let syncs = disk.steps()[before..].iter().filter(|step| step.operation == Operation::Sync).count();
    let most = begun.elapsed().as_millis() / TIME.as_millis() + 1;
    assert!((1..=most).contains(&(syncs as u128)), "{syncs} flushes in {:?}", begun.elapsed());
}
