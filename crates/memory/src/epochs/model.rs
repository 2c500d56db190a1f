//! Every interleaving of readers, a writer that retires, pruners and leaders, under loom (docs/testing.md).

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::*;

/// All interleavings with so many preemptions; the known mistakes in such schemes need two.
fn model(check: impl Fn() + Sync + Send + 'static) {
    polychron_sync::model::explore(3, check);
}

struct Cell {
    /// Stands for a pointer in an index: whether it still leads to `block`.
    linked: AtomicBool,
    /// Stands for the block. Loom reports an access that is not ordered with the one that frees it.
    block: UnsafeCell<u32>,
}

impl Cell {
    fn new() -> Self {
        Self { linked: AtomicBool::new(true), block: UnsafeCell::new(1) }
    }

    fn read_if_linked(&self) {
        // Acquire: as an index reads its pointers.
        if self.linked.load(Ordering::Acquire) {
            // SAFETY: loom checks it.
            self.block.with(|block| assert_eq!(unsafe { *block }, 1, "the block was freed under a reader"));
        }
    }

    fn free(&self) {
        // SAFETY: loom checks it.
        self.block.with_mut(|block| unsafe { *block = 0 });
    }
}

/// A block that was unlinked, tagged behind the next barrier and freed by the horizon is never met by a reader.
fn retire(ticks: usize, leader_is_writer: bool) {
    model(move || {
        let epochs = Arc::new(Epochs::new(2));
        let cell = Arc::new(Cell::new());
        let (reading, writing) = (epochs.claim_any().unwrap(), epochs.claim_any().unwrap());
        let reader = {
            let (epochs, cell) = (Arc::clone(&epochs), Arc::clone(&cell));
            thread::spawn(move || {
                epochs.pin(reading);
                cell.read_if_linked();
                epochs.unpin(reading);
            })
        };
        let leader = (!leader_is_writer).then(|| {
            let epochs = Arc::clone(&epochs);
            thread::spawn(move || {
                for _ in 0..ticks {
                    epochs.advance();
                }
            })
        });
        cell.linked.store(false, Ordering::Release);
        let tag = epochs.seal(writing);
        if leader_is_writer {
            for _ in 0..ticks {
                epochs.advance();
            }
        }
        if epochs.readonly() >= tag {
            cell.free();
        }
        reader.join().unwrap();
        if let Some(leader) = leader {
            leader.join().unwrap();
        }
    });
}

#[test]
fn retire_with_the_writer_leading() {
    retire(2, true);
}

#[test]
fn retire_with_another_leader() {
    retire(2, false);
}

/// A worker that is pinned in an epoch never finds the read-only epoch there or beyond.
#[test]
fn pinned_workers_are_ahead_of_readonly() {
    model(|| {
        let epochs = Arc::new(Epochs::new(1));
        let slot = epochs.claim_any().unwrap();
        let leader = {
            let epochs = Arc::clone(&epochs);
            thread::spawn(move || {
                epochs.advance();
                epochs.advance();
                epochs.readonly()
            })
        };
        let epoch = epochs.pin(slot);
        let seen = epochs.readonly();
        assert!(seen < epoch);
        let last = leader.join().unwrap();
        assert!(last < epoch, "the pin was in place at the end of the last scan, or was made in a newer epoch");
    });
}

/// The epoch of a commit that was announced is not the past before it is over; a snapshot that begins at it afterwards sees all
/// that was written.
#[test]
fn snapshots_see_whole_commits() {
    model(|| {
        let epochs = Arc::new(Epochs::new(2));
        let (writing, reading) = (epochs.claim_any().unwrap(), epochs.claim_any().unwrap());
        let written = Arc::new(Cell::new());
        let writer = {
            let (epochs, written) = (Arc::clone(&epochs), Arc::clone(&written));
            thread::spawn(move || {
                epochs.begin_commit(writing);
                let epoch = epochs.current();
                assert!(epochs.past() < epoch);
                written.free();
                epochs.end_commit(writing);
                epoch
            })
        };
        let leader = {
            let epochs = Arc::clone(&epochs);
            thread::spawn(move || _ = epochs.advance())
        };
        let snapshot = epochs.begin_snapshot(reading);
        // The commit's epoch is 1 or 2, and no thread but the leader ends one: a snapshot at 1 or later sees what was committed in 1.
        let (mut seen, epoch) = (None, writer.join().unwrap());
        if snapshot >= epoch {
            // SAFETY: loom checks it.
            seen = Some(written.block.with(|block| unsafe { *block }));
        }
        assert!(seen.is_none_or(|seen| seen == 0));
        leader.join().unwrap();
    });
}

/// What a snapshot can see is not collected, whatever the leader publishes meanwhile.
#[test]
fn snapshots_hold_collection() {
    model(|| {
        let epochs = Arc::new(Epochs::new(1));
        let slot = epochs.claim_any().unwrap();
        // A version superseded in epoch 1: readers of epoch 0 need it.
        let cell = Arc::new(Cell::new());
        let collector = {
            let (epochs, cell) = (Arc::clone(&epochs), Arc::clone(&cell));
            thread::spawn(move || {
                epochs.advance();
                epochs.advance();
                if epochs.collectable() >= 1 {
                    cell.free();
                }
            })
        };
        let epoch = epochs.begin_snapshot(slot);
        if epoch < 1 {
            cell.read_if_linked();
        }
        epochs.end_snapshot(slot);
        collector.join().unwrap();
    });
}

/// A pruner, not the leader, that read the past and then listed the snapshots knows every reader of an older
/// epoch.
#[test]
fn open_snapshots_are_all_listed() {
    model(|| {
        let epochs = Arc::new(Epochs::new(1));
        let slot = epochs.claim_any().unwrap();
        let cell = Arc::new(Cell::new());
        let leader = {
            let epochs = Arc::clone(&epochs);
            thread::spawn(move || epochs.advance())
        };
        let pruner = {
            let (epochs, cell) = (Arc::clone(&epochs), Arc::clone(&cell));
            thread::spawn(move || {
                let past = epochs.past();
                let mut open = Vec::new();
                let known = epochs.open_snapshots(&mut open);
                // A version of epoch 0 that was superseded in epoch 1.
                if past >= 1 && known && !open.contains(&0) {
                    cell.free();
                }
            })
        };
        let epoch = epochs.begin_snapshot(slot);
        if epoch < 1 {
            cell.read_if_linked();
        }
        epochs.end_snapshot(slot);
        pruner.join().unwrap();
        leader.join().unwrap();
    });
}

/// While a worker holds the horizon, it stays, whatever snapshot ends and any thread that leads; so what is kept for that snapshot
/// is not freed under the holder.
#[test]
fn a_hold_keeps_versions() {
    model(|| {
        let epochs = Arc::new(Epochs::new(2));
        let (reading, holding) = (epochs.claim_any().unwrap(), epochs.claim_any().unwrap());
        assert_eq!(epochs.begin_snapshot(reading), 0);
        // A version superseded in epoch 1, which the snapshot at 0 sees.
        let cell = Arc::new(Cell::new());
        let collector = {
            let (epochs, cell) = (Arc::clone(&epochs), Arc::clone(&cell));
            thread::spawn(move || {
                epochs.end_snapshot(reading);
                epochs.advance();
                epochs.advance();
                if epochs.collectable() >= 1 {
                    cell.free();
                }
            })
        };
        if let Some(held) = epochs.hold(holding) {
            if held < 1 {
                cell.read_if_linked();
            }
            epochs.end_snapshot(holding);
        }
        collector.join().unwrap();
    });
}

/// A version in a chain: its epoch, the link to the one before, and what stands for its memory.
struct Version {
    epoch: u64,
    /// The position of the version before.
    previous: AtomicUsize,
    cell: Cell,
}

/// A reader of the oldest version walks the chain while a pruner takes two adjacent versions out of its middle and frees
/// them by the horizon: wherever the reader stands, its way on stays, and it arrives.
#[test]
fn a_reader_walks_a_chain_that_is_pruned() {
    model(|| {
        let epochs = Arc::new(Epochs::new(3));
        let (snapshot, reading, pruning) =
            (epochs.claim_any().unwrap(), epochs.claim_any().unwrap(), epochs.claim_any().unwrap());
        // Open before all, and to the end.
        assert_eq!(epochs.begin_snapshot(snapshot), 0);
        for _ in 0..3 {
            epochs.advance();
        }
        let version = |epoch: usize| Version {
            epoch: epoch as u64,
            previous: AtomicUsize::new(epoch.saturating_sub(1)),
            cell: Cell::new(),
        };
        let chain = Arc::new([version(0), version(1), version(2), version(3)]);
        let reader = {
            let (epochs, chain) = (Arc::clone(&epochs), Arc::clone(&chain));
            thread::spawn(move || {
                epochs.pin_walking(reading);
                let mut at = 3;
                while chain[at].epoch > 0 {
                    // Acquire: as the protocol reads its links.
                    at = chain[at].previous.load(Ordering::Acquire);
                    chain[at].cell.read_if_linked();
                }
                epochs.unpin(reading);
            })
        };
        let held = epochs.hold(pruning).unwrap();
        let past = epochs.past();
        let mut open = Vec::new();
        assert!(epochs.open_snapshots(&mut open));
        let (mut newer, mut pruned) = (3, Vec::new());
        while chain[newer].epoch > held {
            let at = chain[newer].previous.load(Ordering::Relaxed);
            let seen = open.iter().any(|epoch| (chain[at].epoch..chain[newer].epoch).contains(epoch));
            if seen || chain[newer].epoch > past {
                newer = at;
            } else {
                let previous = chain[at].previous.load(Ordering::Relaxed);
                chain[newer].previous.store(previous, Ordering::Release);
                pruned.push(at);
            }
        }
        epochs.end_snapshot(pruning);
        assert_eq!(pruned, [2, 1]);
        let tag = epochs.seal(pruning);
        epochs.advance();
        epochs.advance();
        if epochs.version_horizon().guards >= tag {
            pruned.iter().for_each(|&at| chain[at].cell.free());
        }
        reader.join().unwrap();
    });
}

/// A worker that renews its pin may read what it finds then, and nothing it found before.
#[test]
fn renewed_pins_protect_anew() {
    model(|| {
        let epochs = Arc::new(Epochs::new(2));
        let cells = Arc::new([Cell::new(), Cell::new()]);
        let (reading, writing) = (epochs.claim_any().unwrap(), epochs.claim_any().unwrap());
        let reader = {
            let (epochs, cells) = (Arc::clone(&epochs), Arc::clone(&cells));
            thread::spawn(move || {
                for cell in cells.iter() {
                    epochs.pin(reading);
                    cell.read_if_linked();
                }
                epochs.unpin(reading);
            })
        };
        for cell in cells.iter() {
            cell.linked.store(false, Ordering::Release);
            let tag = epochs.seal(writing);
            epochs.advance();
            if epochs.readonly() >= tag {
                cell.free();
            }
        }
        reader.join().unwrap();
    });
}

/// A slot that is claimed, used and given back while the leader scans protects its worker as any other.
#[test]
fn slots_change_hands() {
    model(|| {
        let epochs = Arc::new(Epochs::new(2));
        let cell = Arc::new(Cell::new());
        let writing = epochs.claim_any().unwrap();
        let reader = {
            let (epochs, cell) = (Arc::clone(&epochs), Arc::clone(&cell));
            thread::spawn(move || {
                for _ in 0..2 {
                    let slot = epochs.claim_any().unwrap();
                    epochs.pin(slot);
                    cell.read_if_linked();
                    epochs.release(slot);
                }
            })
        };
        cell.linked.store(false, Ordering::Release);
        let tag = epochs.seal(writing);
        epochs.advance();
        epochs.advance();
        if epochs.readonly() >= tag {
            cell.free();
        }
        reader.join().unwrap();
    });
}

/// Two leaders at once: one leads, no epoch is skipped, and the horizons stay in their order and never fall.
#[test]
fn horizons_only_grow() {
    model(|| {
        let epochs = Arc::new(Epochs::new(1));
        let slot = epochs.claim_any().unwrap();
        let leaders: Vec<_> = (0..2)
            .map(|_| {
                let epochs = Arc::clone(&epochs);
                thread::spawn(move || u64::from(epochs.advance()))
            })
            .collect();
        epochs.pin(slot);
        let mut before = epochs.horizon();
        assert!(before.collectable <= epochs.past());
        epochs.unpin(slot);
        for _ in 0..2 {
            let after = epochs.horizon();
            assert!(after.guards >= before.guards && after.collectable >= before.collectable);
            assert!(epochs.readonly() < epochs.current() && epochs.past() < epochs.current());
            before = after;
        }
        let led: u64 = leaders.into_iter().map(|leader| leader.join().unwrap()).sum();
        assert!(led > 0);
        assert_eq!(epochs.current(), 1 + led);
    });
}

/// A worker that stands aside between two looks holds nothing back, and finds out before the next one; what it has found is protected while
/// it was not told to leave.
#[test]
fn a_set_aside_guard_is_notified() {
    model(|| {
        let epochs = Arc::new(Epochs::new(2));
        let cell = Arc::new(Cell::new());
        let (reading, writing) = (epochs.claim_any().unwrap(), epochs.claim_any().unwrap());
        let reader = {
            let (epochs, cell) = (Arc::clone(&epochs), Arc::clone(&cell));
            thread::spawn(move || {
                let epoch = epochs.pin(reading);
                let found = cell.linked.load(Ordering::Acquire);
                epochs.stand_aside(reading);
                if !epochs.come_back(reading) {
                    epochs.pin(reading);
                    cell.read_if_linked();
                } else if found {
                    // SAFETY: loom checks it.
                    cell.block.with(|block| assert_eq!(unsafe { *block }, 1, "the block was freed under a reader"));
                }
                epochs.unpin(reading);
            })
        };
        cell.linked.store(false, Ordering::Release);
        let tag = epochs.seal(writing);
        epochs.advance();
        if epochs.readonly() >= tag {
            cell.free();
        }
        reader.join().unwrap();
    });
}

/// What a worker has found, where leaders ask for it: whether it is the block of a cell. Loom reports a leader that looks while the worker
/// changes it.
struct FoundBlock(UnsafeCell<bool>);

/// The address under which the block is noted.
const BLOCK: usize = 64;

// SAFETY: loom checks it.
unsafe impl Send for FoundBlock {}
// SAFETY: loom checks it.
unsafe impl Sync for FoundBlock {}

// SAFETY: the block is all that is used.
unsafe impl Finds for FoundBlock {
    unsafe fn each(&self, note: &mut dyn FnMut(usize)) {
        // SAFETY: loom checks it.
        if self.0.with(|found| unsafe { *found }) {
            note(BLOCK);
        }
    }
}

/// A worker that shows what it has found stands aside, comes back, and uses that, whether or not it was told to leave; what it finds
/// afterwards is protected by its new pin, or shown the next time. A block is freed when no thread is left who could have found it and has
/// not shown it, and it is not noted.
fn shown(rounds: usize, ticks: usize) {
    model(move || {
        let epochs = Arc::new(Epochs::new(2));
        let cell = Arc::new(Cell::new());
        let (reading, writing) = (epochs.claim_any().unwrap(), epochs.claim_any().unwrap());
        let found = std::sync::Arc::new(FoundBlock(UnsafeCell::new(false)));
        epochs.show_finds(reading, Some(found.clone()));
        let reader = {
            let (epochs, cell) = (Arc::clone(&epochs), Arc::clone(&cell));
            thread::spawn(move || {
                let mut epoch = epochs.pin(reading);
                for _ in 0..rounds {
                    if cell.linked.load(Ordering::Acquire) {
                        // SAFETY: loom checks it.
                        found.0.with_mut(|found| unsafe { *found = true });
                    }
                    epochs.stand_aside(reading);
                    if !epochs.come_back(reading) {
                        epoch = epochs.pin(reading);
                    }
                }
                // SAFETY: loom checks it.
                if found.0.with(|found| unsafe { *found }) {
                    // SAFETY: loom checks it.
                    cell.block.with(|block| assert_eq!(unsafe { *block }, 1, "the block was freed under a reader"));
                }
                epochs.unpin(reading);
            })
        };
        cell.linked.store(false, Ordering::Release);
        let tag = epochs.seal(writing);
        for _ in 0..ticks {
            epochs.advance();
            let is_left = epochs.horizon().guards >= tag;
            let is_noted = epochs.noted() & 1 != 0 && epochs.noted_addresses().contains(&BLOCK);
            if is_left && !is_noted {
                cell.free();
                break;
            }
        }
        reader.join().unwrap();
        epochs.show_finds(reading, None);
    });
}

#[test]
fn what_is_shown_stays() {
    shown(1, 2);
}

#[test]
fn what_is_shown_again_stays() {
    shown(2, 2);
}

/// An epoch that a worker has left with its finds noted is not over for those who wait for the transactions in it.
#[test]
fn who_has_left_with_its_finds_noted_counts() {
    model(|| {
        let epochs = Arc::new(Epochs::new(1));
        let slot = epochs.claim_any().unwrap();
        epochs.show_finds(slot, Some(std::sync::Arc::new(FoundBlock(UnsafeCell::new(true)))));
        let leader = {
            let epochs = Arc::clone(&epochs);
            thread::spawn(move || {
                epochs.advance();
                epochs.advance();
                epochs.readonly()
            })
        };
        let epoch = epochs.pin(slot);
        epochs.stand_aside(slot);
        if !epochs.come_back(slot) {
            epochs.pin(slot);
        }
        assert!(epochs.readonly() < epoch);
        let last = leader.join().unwrap();
        assert!(last < epoch, "the pin has not ended");
        epochs.unpin(slot);
    });
}

/// What a worker keeps is used by one at a time: by itself in epochs and where it holds it, by another one otherwise.
#[test]
fn what_a_worker_keeps_is_taken_between_its_epochs() {
    model(|| {
        let epochs = Arc::new(Epochs::new(1));
        let kept = Arc::new(UnsafeCell::new(0u32));
        let slot = epochs.claim_any().unwrap();
        let other = {
            let (epochs, kept) = (Arc::clone(&epochs), Arc::clone(&kept));
            thread::spawn(move || {
                if epochs.take_kept(slot) {
                    // SAFETY: loom checks it.
                    kept.with_mut(|kept| unsafe { *kept += 1 });
                    epochs.give_up(slot, true);
                }
            })
        };
        epochs.pin(slot);
        if !epochs.kept_own(slot) {
            epochs.come_for_kept(slot);
        }
        // SAFETY: as above.
        kept.with_mut(|kept| unsafe { *kept += 1 });
        epochs.unpin(slot);
        epochs.hold_kept(slot);
        // SAFETY: as above.
        kept.with_mut(|kept| unsafe { *kept += 1 });
        epochs.give_up(slot, false);
        other.join().unwrap();
    });
}
