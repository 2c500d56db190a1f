//! Every interleaving of two threads in the lock table, under loom: a holder sees what the last holder of its lock did, waiters are
//! granted, shared locks are shared and become exclusive alone; conditions keep their truth value for as long as they are held;
//! and of a scan and an insertion at least one sees the other.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use polychron_engine::lazy::Condition;
use polychron_sync::atomic::{AtomicBool, Ordering};
use polychron_sync::model::explore;
use polychron_sync::thread;

use super::conditions::Conditions;
use super::held::{Held, Lock, Taken};
use super::locks::{Answer, LockTable, Requests};
use super::ranges::Ranges;
use super::wounds::{SpinBudget, UNAGED, Wounds};

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
        let mut held = Held::new(&self.table);
        held.begin(UNAGED);
        for &row in rows {
            let taken = held.acquire(Lock { name: NAMES[row], exclusive }, SpinBudget::Queue, |wait| wait());
            assert_eq!(taken, Taken::Held);
        }
        rows.iter().for_each(|&row| self.touch(row, exclusive));
        held.release();
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
        let mut held = Held::new(&self.table);
        held.begin(UNAGED);
        let name = NAMES[0];
        let mut got =
            |exclusive| held.acquire(Lock { name, exclusive }, SpinBudget::Refuse, |wait| wait()) == Taken::Held;
        let both = got(false) && {
            self.touch(0, false);
            got(true)
        };
        if both {
            self.touch(0, true);
        }
        held.release();
        both
    }

    /// Locks rows in any order, by age, and adds one to each; again until it is not wounded on its way.
    fn visit_by_age(&self, rows: [usize; 2], age: u64) -> bool {
        let mut held = Held::new(&self.table);
        loop {
            held.begin(age);
            let done = rows.iter().all(|&row| {
                let lock = Lock { name: NAMES[row], exclusive: true };
                held.acquire(lock, SpinBudget::Wound, |wait| wait()) == Taken::Held
            });
            if done {
                rows.iter().for_each(|&row| self.touch(row, true));
            }
            held.release();
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

/// Of two that read and then write at most one writes at a time, and one that is refused has not.
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

/// A key that comes into an index beside a scan: the scan finds it, or the insertion is turned away, or waits until the range is given
/// back.
fn insert_beside_a_scan(age: u64, gives_back: bool, check: fn(bool, bool)) {
    explore(3, move || {
        use std::ops::Bound::Unbounded;
        let shared = Arc::new((Ranges::default(), AtomicBool::new(false), AtomicBool::new(false)));
        let (inserting, scanning) = (Arc::clone(&shared), Arc::clone(&shared));
        let insertion = thread::spawn(move || {
            // Release: as an index makes a key known.
            inserting.1.store(true, Ordering::Release);
            let mut own = Wounds::default();
            own.begin(age);
            let ranges = &inserting.0;
            let admitted = !ranges.are_there() || ranges.admit(&own, 1, &mut Vec::new(), vec![5]) == Answer::Granted;
            // SeqCst: what a commit would make known of it.
            inserting.2.store(admitted, Ordering::SeqCst);
            admitted
        });
        let scan = thread::spawn(move || {
            let mut own = Wounds::default();
            own.begin(UNAGED);
            let (range, _) = scanning.0.lock(own.requester(), 2, Unbounded, Unbounded);
            // Acquire: as an index is read.
            let found = scanning.1.load(Ordering::Acquire);
            // SeqCst: as above.
            let admitted = scanning.2.load(Ordering::SeqCst);
            assert!(found || !admitted, "a key came into a range that is held");
            if gives_back {
                scanning.0.release(range);
            }
            found
        });
        let admitted = insertion.join().expect("it does not panic");
        check(admitted, scan.join().expect("it does not panic"));
    });
}

#[test]
fn scans_and_insertions_see_each_other() {
    insert_beside_a_scan(UNAGED, false, |admitted, found| assert!(found || !admitted, "a phantom"));
}

/// An insertion that waits for a range is woken when that is released.
#[test]
fn insertions_outlast_ranges() {
    insert_beside_a_scan(1, true, |admitted, _| assert!(admitted, "no transaction wounds the insertion"));
}

/// Two that read a row and then write it by age: what the younger one read is wounded, or the older one has ended before.
#[test]
fn upgrades_by_age_end() {
    let attempt = |rows: &Rows, age| {
        let mut held = Held::new(&rows.table);
        loop {
            held.begin(age);
            let name = NAMES[0];
            let mut got =
                |exclusive| held.acquire(Lock { name, exclusive }, SpinBudget::Wound, |wait| wait()) == Taken::Held;
            let both = got(false) && got(true);
            if both {
                rows.touch(0, true);
            }
            held.release();
            if both {
                return true;
            }
        }
    };
    explore(2, move || {
        let rows = Rows::new();
        let (left, right) = (Arc::clone(&rows), Arc::clone(&rows));
        let threads = [thread::spawn(move || attempt(&left, 1)), thread::spawn(move || attempt(&right, 2))];
        threads.into_iter().for_each(|thread| assert!(thread.join().expect("it does not panic")));
        assert_eq!(rows.value(0), 2);
    });
}

/// Two that lock the same rows in opposite orders both come to their end: the older one wounds the younger, or does not wait.
#[test]
fn the_older_one_comes_first() {
    let older = |rows: &Rows| rows.visit_by_age([0, 1], 1);
    let younger = |rows: &Rows| rows.visit_by_age([1, 0], 2);
    beside(older, younger, |rows, _, _| assert_eq!([rows.value(0), rows.value(1)], [2, 2]));
}

/// Two rows: one thread holds conditions over them, and another one changes them.
struct Tested {
    rows: Rows,
    /// The committed value of each row: the holder of a condition over it reads it, and a writer that makes the condition untrue changes it.
    committed: [UnsafeCell<u32>; 2],
    /// The writer has come to its end.
    written: AtomicBool,
}

impl Tested {
    fn committed(&self, row: usize) -> u32 {
        // SAFETY: loom checks it.
        self.committed[row].with(|row| unsafe { *row })
    }

    /// Tests of each of the rows whether it is 0, as `hold_condition` does, and finds, after `meanwhile`, that the answers are still right. Returns
    /// whether it was not wounded on its way.
    fn hold(&self, rows: &[usize], age: u64, meanwhile: impl Fn()) -> bool {
        let (mut conditions, mut own) = (Conditions::new(&self.rows.table), Wounds::default());
        own.begin(age);
        let mut tested = Vec::new();
        for &row in rows {
            if own.wounded() || conditions.acquire(NAMES[row], &own) != Taken::Held {
                break;
            }
            let is_zero = self.rows.value(row) == 0;
            assert_eq!(is_zero, self.committed(row) == 0, "a row is tested that is not committed");
            conditions.hold(&Condition::default(), is_zero);
            tested.push(is_zero);
        }
        meanwhile();
        for (&row, is_zero) in rows.iter().zip(&tested) {
            assert_eq!(*is_zero, self.committed(row) == 0, "an answer has changed while it was held");
        }
        conditions.release();
        tested.len() == rows.len()
    }

    /// Makes each of the rows `value`, and commits when no condition is held whose truth value would change, as `respect` does. Returns whether it was not
    /// wounded on its way.
    fn write(&self, rows: &[usize], value: u32, age: u64) -> bool {
        let mut held = Held::new(&self.rows.table);
        held.begin(age);
        let mut commits = rows.iter().all(|&row| {
            let lock = Lock { name: NAMES[row], exclusive: true };
            held.acquire(lock, SpinBudget::Wound, |wait| wait()) == Taken::Held
        });
        if commits {
            // SAFETY: loom checks it.
            rows.iter().for_each(|&row| self.rows.rows[row].with_mut(|row| unsafe { *row = value }));
            commits = rows.iter().all(|&row| self.respect(NAMES[row], value == 0, &held.own));
            for &row in rows {
                match commits {
                    // SAFETY: loom checks it.
                    true if value != 0 => self.committed[row].with_mut(|row| unsafe { *row = value }),
                    true => {}
                    // SAFETY: as above.
                    false => self.rows.rows[row].with_mut(|row| unsafe { *row = 0 }),
                }
            }
        }
        held.release();
        // Release: as a client gets its answer.
        self.written.store(true, Ordering::Release);
        commits
    }

    fn respect(&self, name: u64, is_zero: bool, own: &Wounds) -> bool {
        let mut found = Vec::new();
        self.rows.table.conditions(name, own.requester(), |condition| {
            found.push((std::ptr::from_ref(condition).addr(), condition.truth));
        });
        let mut watch = Requests::new(&self.rows.table);
        let mut is_released = |address| watch.await_condition(name, address, own) == Answer::Granted;
        found.into_iter().all(|(address, truth)| truth == is_zero || is_released(address))
    }
}

fn tested(
    preemptions: usize,
    writer: fn(&Tested) -> bool,
    requester: fn(&Tested) -> bool,
    after: impl Fn(&Tested, bool, bool) + Copy + Send + Sync + 'static,
) {
    explore(preemptions, move || {
        let rows = Rows { table: LockTable::new(2), rows: [0, 0].map(UnsafeCell::new) };
        let tested = Arc::new(Tested { rows, committed: [0, 0].map(UnsafeCell::new), written: AtomicBool::new(false) });
        let (left, right) = (Arc::clone(&tested), Arc::clone(&tested));
        let (writer, requester) = (thread::spawn(move || writer(&left)), thread::spawn(move || requester(&right)));
        let wrote = writer.join().expect("it does not panic");
        after(&tested, wrote, requester.join().expect("it does not panic"));
    });
}

/// A writer that would change a truth value waits until it is released.
#[test]
fn an_answer_stays_true_for_as_long_as_it_is_held() {
    let after = |tested: &Tested, wrote: bool, _: bool| {
        assert!(wrote, "nothing else blocks one row");
        assert_eq!([tested.rows.value(0), tested.committed(0)], [1, 1]);
    };
    tested(2, |tested| tested.write(&[0], 1, 1), |tested| tested.hold(&[0], 2, || ()), after);
    tested(2, |tested| tested.write(&[0], 1, 2), |tested| tested.hold(&[0], 1, || ()), after);
}

/// A writer that leaves a truth value as it is does not wait for its holder.
#[test]
fn an_answer_that_stays_true_blocks_no_writer() {
    let hold = |tested: &Tested| {
        tested.hold(&[0], 1, || {
            // Acquire: as a client gets its answer.
            while !tested.written.load(Ordering::Acquire) {
                thread::yield_now();
            }
        })
    };
    tested(
        2,
        |tested| tested.write(&[0], 0, 2),
        hold,
        |_, wrote, asked| assert!(wrote && asked, "one of them is wounded"),
    );
}

/// Two rows, whose conditions are held and whose locks are taken in opposite orders: the older one comes to its end.
#[test]
fn of_a_holder_and_a_writer_the_older_one_goes_on() {
    let both = |tested: &Tested, wrote: bool| {
        assert_eq!([tested.rows.value(0), tested.committed(0), tested.committed(1)], [u32::from(wrote); 3]);
    };
    tested(
        2,
        |tested| tested.write(&[1, 0], 1, 1),
        |tested| tested.hold(&[0, 1], 2, || ()),
        move |tested, wrote, _| {
            assert!(wrote, "the older one is wounded");
            both(tested, wrote);
        },
    );
    // With two, some way into the search, they spin beside each other for longer than the tool's limit of branches.
    tested(
        1,
        |tested| tested.write(&[1, 0], 1, 2),
        |tested| tested.hold(&[0, 1], 1, || ()),
        move |tested, wrote, asked| {
            assert!(asked, "the older one is wounded");
            both(tested, wrote);
        },
    );
}
