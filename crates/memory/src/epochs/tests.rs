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
    let (first, second) = (epochs.claim().unwrap(), epochs.claim().unwrap());
    epochs.advance();
    assert_eq!(epochs.pin(first), 2);
    epochs.advance();
    assert_eq!(epochs.pin(second), 3);
    epochs.advance();
    epochs.advance();
    assert_eq!((epochs.current(), epochs.readonly(), epochs.collectable()), (5, 1, 1));
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
fn a_snapshot_holds_collection_alone() {
    let epochs = Epochs::new(4);
    let (reader, other) = (epochs.claim().unwrap(), epochs.claim().unwrap());
    epochs.advance();
    epochs.advance();
    assert_eq!(epochs.begin_snapshot(reader), 2);
    epochs.advance();
    epochs.advance();
    assert_eq!((epochs.readonly(), epochs.collectable()), (4, 2));
    assert_eq!(epochs.begin_snapshot(other), 4);
    let mut open = vec![77];
    epochs.open_snapshots(&mut open);
    assert_eq!(open, [2, 4]);
    epochs.end_snapshot(reader);
    epochs.advance();
    assert_eq!((epochs.readonly(), epochs.collectable()), (5, 4));
    epochs.end_snapshot(other);
    epochs.refresh();
    assert_eq!(epochs.collectable(), 5);
    epochs.open_snapshots(&mut open);
    assert!(open.is_empty());
}

#[test]
fn slots_run_out_and_come_back() {
    let epochs = Epochs::new(2);
    let (first, second) = (epochs.claim().unwrap(), epochs.claim().unwrap());
    assert_ne!(first, second);
    assert_eq!(epochs.claim(), None);
    epochs.pin(second);
    epochs.begin_snapshot(second);
    epochs.release(second);
    assert_eq!(epochs.claim(), Some(second));
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
                    let slot = epochs.claim().unwrap();
                    for _ in 0..rounds {
                        let epoch = epochs.pin(slot);
                        assert!(epochs.readonly() < epoch && epoch <= epochs.current());
                        let snapshot = epochs.begin_snapshot(slot);
                        assert!(snapshot < epoch, "a snapshot sees nothing of the running epoch");
                        assert!(epochs.collectable() <= snapshot);
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
