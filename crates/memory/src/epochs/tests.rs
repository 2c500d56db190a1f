use polychron_base::sizes::scaled;

use super::*;

#[test]
fn horizons_follow_the_clock_when_nobody_runs() {
    let epochs = Epochs::new(4);
    assert_eq!((epochs.current(), epochs.readonly(), epochs.collectable()), (1, 0, 0));
    for tick in 1..10 {
        assert!(epochs.advance());
        assert_eq!((epochs.current(), epochs.readonly(), epochs.collectable()), (tick + 1, tick, tick));
    }
}

#[test]
fn a_pinned_worker_holds_the_horizons_but_not_the_clock() {
    let epochs = Epochs::new(4);
    let (first, second) = (epochs.claim_any().unwrap(), epochs.claim_any().unwrap());
    epochs.advance();
    assert_eq!(epochs.pin(first), 2);
    epochs.advance();
    assert_eq!(epochs.pin(second), 3);
    epochs.advance();
    epochs.advance();
    assert_eq!((epochs.current(), epochs.readonly()), (5, 1));
    assert_eq!((epochs.past(), epochs.collectable()), (4, 4), "snapshots and versions do not wait for a pin");
    epochs.unpin(first);
    epochs.refresh();
    assert_eq!((epochs.current(), epochs.readonly()), (5, 2));
    assert_eq!(epochs.pin(second), 5, "a renewed pin is in the current epoch");
    epochs.refresh();
    assert_eq!(epochs.readonly(), 4);
    epochs.unpin(second);
    epochs.advance();
    assert_eq!(epochs.readonly(), 5);
}

#[test]
fn a_commit_holds_the_past_alone() {
    let epochs = Epochs::new(4);
    let (writer, walker) = (epochs.claim_any().unwrap(), epochs.claim_any().unwrap());
    epochs.advance();
    epochs.pin(writer);
    epochs.advance();
    epochs.begin_commit(writer);
    epochs.advance();
    epochs.advance();
    assert_eq!((epochs.current(), epochs.readonly(), epochs.past(), epochs.collectable()), (5, 1, 2, 2));
    assert_eq!(epochs.begin_snapshot(walker), 2);
    epochs.end_commit(writer);
    assert_eq!(epochs.pin_walking(walker), 5);
    epochs.advance();
    assert_eq!((epochs.past(), epochs.collectable(), epochs.version_horizon().guards), (5, 2, 4));
    epochs.end_snapshot(walker);
    epochs.unpin(walker);
    epochs.refresh();
    assert_eq!((epochs.readonly(), epochs.collectable(), epochs.version_horizon().guards), (1, 5, 5));
}

#[test]
fn the_age_of_an_epoch_is_measured_from_its_end() {
    let epochs = Epochs::new(1);
    for _ in 0..3000 {
        epochs.advance();
    }
    let (old, young) = (epochs.age_ns(1), epochs.age_ns(epochs.current() - 1));
    assert!(old >= young, "what is not remembered is as old as the oldest that is");
    let ages: Vec<u64> = (epochs.current() - 500..epochs.current()).map(|epoch| epochs.age_ns(epoch)).collect();
    // Looked at one after the other, each is a little older by then.
    let passed = epochs.age_ns(epochs.current() - 1) - young;
    assert!(ages.windows(2).all(|pair| pair[0] + passed >= pair[1]), "{ages:?}");
}

#[test]
fn the_clock_waits_for_a_worker_that_stays() {
    let epochs = Epochs::new(2);
    let slot = epochs.claim_any().unwrap();
    let began = epochs.pin(slot);
    let ticks = (0..1000).filter(|_| epochs.tick()).count() as u64;
    assert_eq!((ticks, epochs.current(), epochs.readonly()), (LONGEST_LAG, began + LONGEST_LAG, began - 1));
    assert!(epochs.is_lagging() && epochs.advance(), "who must have a new epoch gets one");
    epochs.unpin(slot);
    assert!(!epochs.tick(), "the horizons come first");
    assert!(epochs.tick() && !epochs.is_lagging());
}

#[test]
fn a_snapshot_holds_collection_alone() {
    let epochs = Epochs::new(4);
    let (reader, other) = (epochs.claim_any().unwrap(), epochs.claim_any().unwrap());
    epochs.advance();
    epochs.advance();
    assert_eq!(epochs.begin_snapshot(reader), 2);
    epochs.advance();
    epochs.advance();
    assert_eq!((epochs.readonly(), epochs.collectable()), (4, 2));
    assert_eq!(epochs.begin_snapshot(other), 4);
    let mut open = vec![77];
    assert!(epochs.open_snapshots(&mut open));
    assert_eq!(open, [2, 4]);
    epochs.end_snapshot(reader);
    epochs.advance();
    assert_eq!((epochs.readonly(), epochs.collectable()), (5, 4));
    epochs.end_snapshot(other);
    epochs.refresh();
    assert_eq!(epochs.collectable(), 5);
    assert!(epochs.open_snapshots(&mut open));
    assert!(open.is_empty());
}

#[test]
fn a_reader_that_is_choosing_holds_everything() {
    let epochs = Epochs::new(2);
    let slot = epochs.claim_any().unwrap();
    epochs.advance();
    epochs.slots[slot].snapshot.store(OPENING, Ordering::Release);
    let before = epochs.collectable();
    epochs.advance();
    epochs.advance();
    assert_eq!((epochs.readonly(), epochs.collectable()), (3, before));
    assert!(!epochs.open_snapshots(&mut Vec::new()), "nobody knows what it will read");
    epochs.end_snapshot(slot);
    epochs.refresh();
    assert_eq!(epochs.collectable(), 3);
}

#[test]
fn a_hold_keeps_the_horizon_of_versions_alone() {
    let epochs = Epochs::new(2);
    let (holder, reader) = (epochs.claim_any().unwrap(), epochs.claim_any().unwrap());
    epochs.advance();
    epochs.advance();
    assert_eq!(epochs.begin_snapshot(reader), 2);
    epochs.advance();
    assert!(epochs.lead(|| assert_eq!(epochs.hold(holder), None)), "who moves the clock decides");
    assert_eq!(epochs.hold(holder), Some(2));
    epochs.end_snapshot(reader);
    epochs.advance();
    assert_eq!((epochs.readonly(), epochs.collectable()), (4, 2));
    let mut open = Vec::new();
    assert!(epochs.open_snapshots(&mut open));
    assert_eq!(open, [2], "a hold counts as a snapshot");
    epochs.end_snapshot(holder);
    epochs.refresh();
    assert_eq!(epochs.collectable(), 4);
}

#[test]
fn slots_run_out_and_come_back() {
    let epochs = Epochs::new(2);
    let (first, second) = (epochs.claim_any().unwrap(), epochs.claim_any().unwrap());
    assert_ne!(first, second);
    assert_eq!(epochs.claim_any(), None);
    epochs.pin(second);
    epochs.begin_snapshot(second);
    epochs.release(second);
    assert_eq!(epochs.claim_any(), Some(second));
    epochs.advance();
    assert_eq!(epochs.collectable(), 1, "a slot that was given back holds nothing");
}

#[test]
fn one_leader_at_a_time() {
    let epochs = Epochs::new(1);
    assert!(epochs.lead(|| assert!(!epochs.advance())));
    assert!(epochs.advance());
}

/// What the protocols build on: no worker is pinned at or below the read-only epoch, no reader reads below the
/// collectable one, whatever the leader does meanwhile.
#[test]
fn nobody_runs_behind_the_horizons() {
    let rounds = scaled(20_000, 50);
    let epochs = Epochs::new(3);
    let running = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let slot = epochs.claim_any().unwrap();
                    for _ in 0..rounds {
                        let epoch = epochs.pin(slot);
                        assert!(epochs.readonly() < epoch && epoch <= epochs.current());
                        epochs.begin_commit(slot);
                        let written = epochs.current();
                        assert!(epochs.past() < written, "a snapshot sees nothing of a commit that is under way");
                        epochs.end_commit(slot);
                        let snapshot = epochs.begin_snapshot(slot);
                        assert!(snapshot < epochs.current() && epochs.collectable() <= snapshot);
                        epochs.unpin(slot);
                        assert!(epochs.collectable() <= snapshot);
                        epochs.end_snapshot(slot);
                    }
                    epochs.release(slot);
                })
            })
            .collect();
        scope.spawn(|| {
            while running.load(Ordering::Relaxed) {
                epochs.advance();
            }
        });
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        running.store(false, Ordering::Relaxed);
        assert!(results.into_iter().all(|result| result.is_ok()));
    });
}
