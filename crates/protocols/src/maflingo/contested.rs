//! Rows at which a transaction has conflicted again and again.
//!
//! Who has a row in its processor's cache reads and overwrites it in less time than its line takes to come to another processor, so of two clients at one
//! row one may commit as long as the system lets it run, and the other one not at all. Where there are more threads than processors, one that loses its
//! processor while it holds the row's latch leaves it locked, all others conflict, and who comes next is a matter of luck. So a
//! transaction that has conflicted [`PATIENCE`] times in a row waits until it is *favoured*, one of a database at a time. As long as it is, others
//! do not commit writes of the rows at which it has conflicted: they conflict, and come to that point in their turn. Who waits
//! sleeps, so that the processors are left to those who have something to do, who holds a latch among them.
//!
//! Nothing but progress depends on it, so nothing is ordered: who did not see it in time is one more conflict. It comes to an end with each attempt. One
//! that takes long in the middle of an attempt, or waits there for another thread, which wants the same row, is not waited for: who has slept
//! [`MOST_NAPS_FOR_ONE`] times for one and the same makes an attempt that no favour holds up.

use polychron_sync::MODELLED;
use polychron_sync::atomic::{AtomicUsize, Ordering};

use super::record::Record;

/// Conflicts in a row that a transaction puts up with. From the next one on its waits give the processor away, too, which makes each attempt a
/// long matter where there are many threads.
pub(super) const PATIENCE: u64 = 8;

/// Rows that are remembered.
const MOST: usize = 8;

/// The shortest sleep, in microseconds.
const NAP_US: u64 = 50;
/// As many long who waits for being favoured sleeps before it looks again: seldom, so that those who wait leave the processors to those who work.
const NAPS_BETWEEN: u64 = 20;
/// How often it does so while one and the same is favoured, and in all, before it makes an attempt as if nobody were.
const MOST_NAPS_FOR_ONE: u32 = if MODELLED { 1 } else { 8 };
const MOST_NAPS: u32 = if MODELLED { 2 } else { 512 };

/// Nobody is favoured.
const NOBODY: usize = 0;

/// Who is favoured. All who commit look at it, and few write it.
#[derive(Debug, Default)]
pub(super) struct Favour {
    /// The worker, from one on.
    whose: AtomicUsize,
    /// How many have been so far.
    turns: AtomicUsize,
    /// Addresses of the rows' records, which may have gone: they are compared, and not looked at.
    rows: [AtomicUsize; MOST],
}

impl Favour {
    /// The worker for whom others leave a row alone, when it is not this one.
    #[inline]
    pub(super) fn bars(&self, record: Record, worker: usize) -> Option<usize> {
        match self.whose.load(Ordering::Relaxed) {
            NOBODY => None,
            whose => (whose != worker + 1 && self.has(record)).then(|| whose - 1),
        }
    }

    #[cold]
    fn has(&self, record: Record) -> bool {
        self.rows.iter().any(|row| row.load(Ordering::Relaxed) == address(record))
    }
}

/// The rows at which the attempts of a transaction have conflicted.
#[derive(Debug, Default)]
pub(super) struct Contested {
    /// Addresses of records.
    rows: [usize; MOST],
    standing: Standing,
}

/// How the transaction stands to others that runs, or is about to be run again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    #[default]
    Ordinary,
    /// It is favoured.
    Favoured,
    /// It leaves no row alone.
    Impatient,
}

impl Contested {
    /// Whether a row is to be left alone, for the sake of another worker.
    #[inline]
    pub(super) fn is_barred(&self, favour: &Favour, record: Record, worker: usize) -> bool {
        favour.bars(record, worker).is_some() && self.standing != Standing::Impatient
    }

    /// The transaction has ended.
    #[inline]
    pub(super) fn end(&mut self, favour: &Favour) {
        if std::mem::take(&mut self.standing) == Standing::Favoured {
            favour.whose.store(NOBODY, Ordering::Relaxed);
        }
    }

    /// The transaction has conflicted at a record.
    pub(super) fn note(&mut self, record: Record) {
        let row = address(record);
        if !self.rows.contains(&row) {
            self.rows.rotate_right(1);
            self.rows[0] = row;
        }
    }

    /// Before the next attempt of a transaction that has conflicted, for the given number of times in a row: waits until it is favoured, if
    /// that is due, but not for ever. `false`: it is not due.
    pub(super) fn wait(&mut self, favour: &Favour, worker: usize, attempts: u64) -> bool {
        if attempts == 1 {
            // The others are of transactions before.
            self.rows[1..].fill(0);
        }
        if attempts < PATIENCE {
            return false;
        }
        let (mut turn, mut naps_for_one) = (usize::MAX, 0);
        for _ in 0..MOST_NAPS {
            if self.ask(favour, worker) {
                if attempts > PATIENCE {
                    // The row's latch is held by who waits for a processor, most likely.
                    nap(1);
                }
                return true;
            }
            let present = favour.turns.load(Ordering::Relaxed);
            naps_for_one = if turn == present { naps_for_one + 1 } else { 0 };
            if naps_for_one >= MOST_NAPS_FOR_ONE {
                break;
            }
            turn = present;
            nap(NAPS_BETWEEN);
        }
        self.standing = Standing::Impatient;
        true
    }

    fn ask(&mut self, favour: &Favour, worker: usize) -> bool {
        if favour.whose.compare_exchange(NOBODY, worker + 1, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return false;
        }
        self.standing = Standing::Favoured;
        favour.turns.fetch_add(1, Ordering::Relaxed);
        favour.rows.iter().zip(self.rows).for_each(|(row, own)| row.store(own, Ordering::Relaxed));
        true
    }
}

/// Sleeps for a while. A thread that yielded would be taken to have had its turn, and be behind all others where these are more than the processors.
fn nap(length: u64) {
    if MODELLED {
        polychron_sync::thread::yield_now();
    } else {
        std::thread::sleep(std::time::Duration::from_micros(length * NAP_US));
    }
}

fn address(record: Record) -> usize {
    record.memory().as_ptr().addr()
}
