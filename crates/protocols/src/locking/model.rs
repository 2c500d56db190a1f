//! Every interleaving of two threads in the lock table, under loom: who holds a lock sees what its last holder did, waiters are
//! granted, shared locks are shared and become exclusive alone; and of a scan and an insertion at least one sees the other.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use polychron_sync::atomic::{AtomicBool, Ordering};
use polychron_sync::model::explore;
use polychron_sync::thread;

use super::held::{Held, Lock};
use super::locks::{Answer, LockTable};
use super::ranges::{Ranges, Wish};
use super::wounds::{Asker, Patience};

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
        held.begin(0);
        for &row in rows {
            let taken = held.take(&self.table, Lock { name: NAMES[row], exclusive }, Patience::Queue);
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
        held.begin(0);
        let name = NAMES[0];
        let mut got =
            |exclusive| held.take(&self.table, Lock { name, exclusive }, Patience::Refuse).expect("nothing waits");
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

    /// Locks rows in any order, by age, and adds one to each; again until it is not wounded on its way.
    fn visit_by_age(&self, rows: [usize; 2], age: u64) -> bool {
        let mut held = Held::default();
        loop {
            held.begin(age);
            let done = rows.iter().all(|&row| {
                let lock = Lock { name: NAMES[row], exclusive: true };
                held.take(&self.table, lock, Patience::Wound).expect("another thread holds it")
            });
            if done {
                rows.iter().for_each(|&row| self.touch(row, true));
            }
            held.release(&self.table);
            if done {
                return true;
            }
            thread::yield_now();
        }
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
            inserting.0.admits(1, Asker::nobody(), Patience::Refuse, || vec![5]) == Answer::Granted
        });
        let scan = thread::spawn(move || {
            use std::ops::Bound::Unbounded;
            assert!(scanning.0.try_lock(2, Asker::in_thread(1), Wish::Range(Unbounded, Unbounded)));
            // Acquire: as an index is read.
            scanning.1.load(Ordering::Acquire)
        });
        let admitted = insertion.join().expect("it does not panic");
        let found = scan.join().expect("it does not panic");
        assert!(found || !admitted, "a phantom");
    });
}

/// Two that lock the same rows in opposite orders both come to their end: the older one wounds the younger, or waits for nobody.
#[test]
fn the_older_one_comes_first() {
    let older = |rows: &Rows| rows.visit_by_age([0, 1], 1);
    let younger = |rows: &Rows| rows.visit_by_age([1, 0], 2);
    beside(older, younger, |rows, _, _| assert_eq!([rows.value(0), rows.value(1)], [2, 2]));
}
