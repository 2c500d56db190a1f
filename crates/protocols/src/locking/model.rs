//! Every interleaving of two threads in the lock table, under loom: who holds a lock sees what its last holder did, waiters are
//! granted, shared locks are shared and become exclusive alone; and of a scan and an insertion at least one sees the other.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use polychron_sync::atomic::{AtomicBool, Ordering};
use polychron_sync::model::explore;
use polychron_sync::thread;

use super::held::{Held, Lock};
use super::locks::LockTable;
use super::ranges::{Ranges, Wish};

/// Two names in one bucket.
const NAMES: [u64; 2] = [1, 2];

struct Rows {
    table: LockTable,
    rows: [UnsafeCell<u32>; 2],
}

impl Rows {
    fn new() -> Arc<Self> {
        Arc::new(Self { table: LockTable::new(2), rows: [0, 0].map(UnsafeCell::new) })
    }

    /// Locks rows in the global order, waiting, and adds one to each; or reads them.
    fn visit(&self, rows: &[usize], exclusive: bool) {
        let mut held = Held::default();
        held.begin();
        for &row in rows {
            let taken = held.take(&self.table, Lock { name: NAMES[row], exclusive }, true);
            assert!(taken.expect("another thread holds it"));
        }
        rows.iter().for_each(|&row| self.touch(row, exclusive));
        held.release(&self.table);
    }

    fn touch(&self, row: usize, exclusive: bool) {
        if exclusive {
            // SAFETY: loom checks it.
            self.rows[row].with_mut(|row| unsafe { *row += 1 });
        } else {
            // SAFETY: loom checks it.
            self.rows[row].with(|row| unsafe { _ = *row });
        }
    }

    /// Takes what it can get at once: a shared lock, then an exclusive one in its place. Whether it got both.
    fn attempt(&self) -> bool {
        let mut held = Held::default();
        held.begin();
        let name = NAMES[0];
        let mut got = |exclusive| held.take(&self.table, Lock { name, exclusive }, false).expect("nothing waits");
        let both = got(false) && {
            self.touch(0, false);
            got(true)
        };
        if both {
            self.touch(0, true);
        }
        held.release(&self.table);
        both
    }

    fn value(&self, row: usize) -> u32 {
        // SAFETY: loom checks it.
        self.rows[row].with(|row| unsafe { *row })
    }
}

fn beside(other: fn(&Rows) -> bool, own: fn(&Rows) -> bool, after: fn(&Rows, bool, bool)) {
    explore(2, move || {
        let rows = Rows::new();
        let (left, right) = (Arc::clone(&rows), Arc::clone(&rows));
        let (left, right) = (thread::spawn(move || other(&left)), thread::spawn(move || own(&right)));
        let left = left.join().expect("it does not panic");
        after(&rows, left, right.join().expect("it does not panic"));
    });
}

fn write_both(rows: &Rows) -> bool {
    rows.visit(&[0, 1], true);
    true
}

#[test]
fn writers_take_turns() {
    beside(write_both, write_both, |rows, _, _| assert_eq!([rows.value(0), rows.value(1)], [2, 2]));
}

#[test]
fn readers_wait_for_a_writer() {
    let read = |rows: &Rows| {
        rows.visit(&[0, 1], false);
        true
    };
    beside(write_both, read, |rows, _, _| assert_eq!([rows.value(0), rows.value(1)], [1, 1]));
}

/// Of two that read and then write at most one writes at a time, and who is turned away has not.
#[test]
fn upgrades_are_alone() {
    beside(Rows::attempt, Rows::attempt, |rows, left, right| {
        assert_eq!(rows.value(0), u32::from(left) + u32::from(right));
    });
}

/// A writer waits for one that reads and writes, and is granted its lock.
#[test]
fn waiters_outlast_upgrades() {
    let write = |rows: &Rows| {
        rows.visit(&[0], true);
        true
    };
    beside(write, Rows::attempt, |rows, _, attempted| assert_eq!(rows.value(0), 1 + u32::from(attempted)));
}

/// A key that comes into an index beside a scan is found by the scan, or turned away.
#[test]
fn scans_and_insertions_see_each_other() {
    explore(3, || {
        let shared = Arc::new((Ranges::default(), AtomicBool::new(false)));
        let (inserting, scanning) = (Arc::clone(&shared), Arc::clone(&shared));
        let insertion = thread::spawn(move || {
            // Release: as an index makes a key known.
            inserting.1.store(true, Ordering::Release);
            inserting.0.admits(1, || vec![5])
        });
        let scan = thread::spawn(move || {
            use std::ops::Bound::Unbounded;
            assert!(scanning.0.try_lock(2, Wish::Range(Unbounded, Unbounded)));
            // Acquire: as an index is read.
            scanning.1.load(Ordering::Acquire)
        });
        let admitted = insertion.join().expect("it does not panic");
        let found = scan.join().expect("it does not panic");
        assert!(found || !admitted, "a phantom");
    });
}
