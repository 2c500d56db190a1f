//! Every interleaving of beginning transactions and snapshots with a leader, under loom: the horizons of `docs/protocols/cicada.md`.

use std::sync::Arc;

use polychron_sync::model::explore;
use polychron_sync::thread;

use super::*;

fn clocks(workers: usize) -> Arc<Clocks> {
    let options = Options { synchronization_interval: std::time::Duration::from_secs(3600), ..Options::default() };
    let shape = Shape::new(None, options.worker_bits).expect("the default is sound");
    Arc::new(Clocks::new(&options, shape, workers))
}

/// The timestamp of what stays.
fn begun(held: Held<'_>) -> Timestamp {
    let timestamp = held.timestamp();
    std::mem::forget(held);
    timestamp
}

/// Runs a worker, which holds what it began, beside a leader.
fn beside_a_leader<O: 'static>(
    leads: usize,
    worker: impl FnOnce(&Clocks, &mut LocalClock) -> O + 'static,
    check: impl FnOnce(&Clocks, O),
) {
    let clocks = clocks(1);
    let mut local = clocks.join(0);
    let leader = {
        let clocks = Arc::clone(&clocks);
        thread::spawn(move || {
            for _ in 0..leads {
                assert!(clocks.lead(), "nobody else leads");
            }
        })
    };
    let worker = {
        let clocks = Arc::clone(&clocks);
        thread::spawn(move || worker(&clocks, &mut local))
    };
    let output = worker.join().expect("no thread panics");
    leader.join().expect("no thread panics");
    // One that sees all that was held.
    assert!(clocks.lead());
    check(&clocks, output);
}

/// H1 and H2 for transactions: the horizons do not pass one that runs, and what it holds.
#[test]
fn the_horizons_stay_before_a_transaction() {
    explore(3, || {
        beside_a_leader(
            2,
            |clocks, local| {
                let timestamp = begun(clocks.begin(0, local).expect("the clock is wide"));
                assert!(!timestamp.is_before(clocks.min_wts()), "H1 when it begins");
                timestamp
            },
            |clocks, timestamp| {
                assert!(!timestamp.is_before(clocks.min_wts()), "H1");
                let floor = Timestamp(clocks.slots[0].floor.load(Ordering::Relaxed));
                assert!(!floor.is_before(clocks.min_rts()), "H2");
            },
        );
    });
}

/// H2 for snapshots, which read at what they hold.
#[test]
fn the_horizon_stays_before_a_snapshot() {
    explore(3, || {
        beside_a_leader(
            2,
            |clocks, _| begun(clocks.begin_snapshot(0)),
            |clocks, timestamp| assert!(!timestamp.is_before(clocks.min_rts()), "H2"),
        );
    });
}

/// The same for a worker that joins while the leader is at work, and begins at once.
#[test]
fn the_horizon_stays_before_a_snapshot_of_who_joins() {
    explore(3, || {
        let clocks = clocks(OWN_SLOTS + 1);
        let work = |work: fn(&Clocks) -> Option<Timestamp>| {
            let clocks = Arc::clone(&clocks);
            thread::spawn(move || work(&clocks))
        };
        let leader = work(|clocks| {
            assert!(clocks.lead(), "nobody else leads");
            None
        });
        let reader = work(|clocks| {
            clocks.join(OWN_SLOTS);
            Some(begun(clocks.begin_snapshot(OWN_SLOTS)))
        });
        let timestamp = reader.join().expect("no thread panics").expect("a snapshot has a timestamp");
        leader.join().expect("no thread panics");
        assert!(!timestamp.is_before(clocks.min_rts()), "H2");
    });
}

/// A thread that waits for a horizon behind a transaction sees what that did (H3).
#[test]
fn what_is_behind_the_horizon_has_happened() {
    explore(3, || {
        let clocks = clocks(1);
        let mut local = clocks.join(0);
        let timestamp = begun(clocks.begin(0, &mut local).expect("the clock is wide"));
        let done = Arc::new(AtomicBool::new(false));
        let worker = {
            let (clocks, done) = (Arc::clone(&clocks), Arc::clone(&done));
            thread::spawn(move || {
                // Relaxed: what is tried is whether `end` and the horizon carry it.
                done.store(true, Ordering::Relaxed);
                clocks.end(0);
            })
        };
        let leader = {
            let clocks = Arc::clone(&clocks);
            thread::spawn(move || {
                clocks.lead();
                if clocks.min_wts().is_after(timestamp) {
                    assert!(done.load(Ordering::Relaxed), "the horizon has passed a transaction that runs");
                }
            })
        };
        worker.join().expect("no thread panics");
        leader.join().expect("no thread panics");
    });
}

/// A thread that counts the timestamps that are held misses none that it must keep: what it takes for stable is not ahead of a snapshot that it
/// missed, whichever thread leads.
#[test]
fn no_moment_that_is_held_is_missed() {
    explore(3, || {
        let clocks = clocks(1);
        clocks.join(0);
        let run = |work: fn(&Clocks) -> (Timestamp, Vec<Span>)| {
            let clocks = Arc::clone(&clocks);
            thread::spawn(move || work(&clocks))
        };
        let reader = run(|clocks| (begun(clocks.begin_snapshot(0)), Vec::new()));
        let leader = run(|clocks| {
            clocks.lead();
            (clocks.min_wts(), Vec::new())
        });
        let pruner = run(|clocks| {
            let mut spans = Vec::new();
            (clocks.held_spans(1, 0, &mut spans).stable(), spans)
        });
        let (timestamp, _) = reader.join().expect("no thread panics");
        leader.join().expect("no thread panics");
        let (stable, spans) = pruner.join().expect("no thread panics");
        let is_held = spans.iter().any(|span| !timestamp.is_before(span.from) && !timestamp.is_after(span.to));
        assert!(is_held || !timestamp.is_before(stable), "a reader before what is stable was missed");
    });
}
