//! The same with threads, whose turns nobody decides.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use polychron_base::TableId;
use polychron_base::clock::{Clock, SystemClock};
use polychron_engine::redo::{Change, Log as _, Order};
use polychron_log::checkpoint::{self, Checkpoints, Haste};
use polychron_log::disk::Files;
use polychron_log::manifest::{Manifest, Manifests};
use polychron_log::{Log, Options};
use polychron_sim::SimulatedDisk;
use polychron_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::ledger::encoded;
use crate::runs;
use crate::world::{DATABASE, look};

/// Clients count up rows of their own, while one checkpoint after the other is made by two threads each: what was acknowledged is there after a power failure.
#[test]
fn clients_commit_beside_checkpoints() {
    let mut made = 0;
    for seed in runs(6) {
        let disk = SimulatedDisk::new(seed);
        let files = Files::new(disk.clone());
        let first = Manifest {
            database: DATABASE,
            incarnation: 0,
            first_log_file: 1,
            durable: 0,
            checkpoint: None,
            catalog: encoded(&BTreeSet::from([1])),
        };
        let mut manifests = Manifests::create(&files, first).unwrap();
        let options = checkpoint::Options { threads: 2, memory_bytes: 1 << 20, ..checkpoint::Options::tiny() };
        let checkpoints = Checkpoints::open(&files, manifests.current(), options).unwrap();
        let orders: Arc<Vec<AtomicU64>> = Arc::new((0..3).map(|_| AtomicU64::new(0)).collect());
        let seen = Arc::clone(&orders);
        // Each client's orders rise, and are its number modulo three.
        let ended = move || {
            let least = seen.iter().map(|order| order.load(Ordering::Acquire)).min();
            Order::from(3 * least.unwrap_or(0) + 2)
        };
        let clock = Arc::new(SystemClock::new());
        let log = Log::open(&files, &mut manifests, Options::tiny(), clock, Box::new(ended), &mut |_| {}).unwrap();
        let (log, manifests, is_over) = (Arc::new(log), Mutex::new(manifests), AtomicBool::new(false));
        let client = |worker: usize| {
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) || count < 30 {
                count += 1;
                log.admit(worker).unwrap();
                let row = [worker as u64 + 10 * (count % 20), count, 0, 0, count];
                log.stage(worker, TableId::new(9, 1), b"", Change::Put(&row)).unwrap();
                let ticket = log.seal(worker, Order::from(3 * count + worker as u64));
                orders[worker].store(count, Ordering::Release);
                log.wait(ticket).unwrap();
            }
            count
        };
        let counts: Vec<u64> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..3).map(|worker| scope.spawn(move || client(worker))).collect();
            let results: Vec<_> = (0..8)
                .map(|_| {
                    let _ = log.flush();
                    checkpoints.run(&log, &manifests, Haste::Unpaced)
                })
                .collect();
            is_over.store(true, Ordering::Relaxed);
            for result in results {
                result.unwrap();
            }
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        made += checkpoints.counts().made;
        for left in disk.outcomes(1..3) {
            let rows = look(&left).unwrap().expect("it was made").rows;
            for (worker, count) in counts.iter().enumerate() {
                for number in count.saturating_sub(19).max(1)..=*count {
                    let key = (1, worker as u64 + 10 * (number % 20));
                    assert_eq!(rows.get(&key).map(|row| row[1]), Some(number), "seed {seed}, worker {worker}");
                }
            }
        }
    }
    assert!(made > 6, "{made} checkpoints were made");
}

/// Goes a millisecond ahead whenever somebody looks, so that there is always a reason to pause.
#[derive(Debug)]
struct Hasty(SystemClock, AtomicU64);

impl Clock for Hasty {
    fn now_ns(&self) -> u64 {
        self.0.now_ns() + self.1.fetch_add(1, Ordering::Relaxed) * 1_000_000
    }
}

/// Threads hand the files of several tables to each other while they pause: no pause is the reason of another one, and what somebody waits for has none.
#[test]
fn pauses_do_not_grow() {
    for (share, haste) in [(0.25, Haste::Paced), (0.000_001, Haste::Unpaced)] {
        let files = Files::new(SimulatedDisk::new(1));
        let tables = BTreeSet::from([1, 2, 3]);
        let first = Manifest {
            database: DATABASE,
            incarnation: 0,
            first_log_file: 1,
            durable: 0,
            checkpoint: None,
            catalog: encoded(&tables),
        };
        let mut manifests = Manifests::create(&files, first).unwrap();
        let options = checkpoint::Options { share, threads: 8, memory_bytes: 1 << 20, ..checkpoint::Options::tiny() };
        let checkpoints = Checkpoints::open(&files, manifests.current(), options).unwrap();
        let clock = Arc::new(Hasty(SystemClock::new(), AtomicU64::new(0)));
        let ended = Box::new(|| Order::from(u64::MAX));
        let log = Log::open(&files, &mut manifests, Options::tiny(), clock, ended, &mut |_| {}).unwrap();
        for number in 1..100 {
            log.admit(0).unwrap();
            for table in &tables {
                log.stage(0, TableId::new(9, *table), b"", Change::Put(&[number, 0, 0, 0, number])).unwrap();
            }
            log.seal(0, Order::from(number));
        }
        log.flush().unwrap();
        checkpoints.run(&log, &Mutex::new(manifests), haste).unwrap();
        assert_eq!(checkpoints.counts().made, 1);
    }
}
