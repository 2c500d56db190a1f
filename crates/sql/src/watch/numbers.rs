//! Counters of sessions, written by one thread at a time and read by any.

use hashbrown::HashMap;
use polychron_base::{Reason, TableId};
use polychron_engine::{Counting, Distribution};
use polychron_sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

use super::lock;

/// Adds to a counter that only one thread at a time writes. Relaxed: nothing hangs on it.
#[inline]
pub(super) fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Times in microseconds.
#[derive(Debug, Default)]
pub(super) struct Times {
    counting: Counting,
    sum_us: AtomicU64,
}

impl Times {
    pub(super) fn count(&self, us: u64) {
        self.counting.count(us);
        add(&self.sum_us, us);
    }

    fn add_to(&self, distribution: &mut Distribution, sum: &mut u64) {
        distribution.add(&self.counting);
        *sum += get(&self.sum_us);
    }
}

/// What a session counts. Of pairs the first one is of what was well, the second one of what was not.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pub(super) statements: [AtomicU64; 2],
    pub(super) transactions: [AtomicU64; 2],
    /// Transactions that were run again for their clients, which did and which did not help.
    pub(super) replays: [AtomicU64; 2],
    /// Conflicts that clients were told.
    pub(super) told: AtomicU64,
    pub(super) conflicts: Mutex<HashMap<(TableId, Reason), u64>>,
    pub(super) statement_times: Times,
    pub(super) transaction_times: Times,
}

impl Numbers {
    #[inline]
    pub(super) fn ended(&self) -> u64 {
        get(&self.transactions[0]) + get(&self.transactions[1])
    }

    pub(super) fn add_to(&self, sums: &mut Sums) {
        let pairs = [
            (&self.statements, &mut sums.statements),
            (&self.transactions, &mut sums.transactions),
            (&self.replays, &mut sums.replays),
        ];
        for (counters, sums) in pairs {
            counters.iter().zip(sums).for_each(|(counter, sum)| *sum += get(counter));
        }
        sums.told += get(&self.told);
        for ((table, reason), count) in &*lock(&self.conflicts) {
            *sums.by_place.entry((*table, *reason)).or_default() += count;
        }
        self.statement_times.add_to(&mut sums.statement_us, &mut sums.statement_sum_us);
        self.transaction_times.add_to(&mut sums.transaction_us, &mut sums.transaction_sum_us);
    }
}

/// Conflicts of a reason in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictCount {
    /// Where.
    pub table: TableId,
    /// Why.
    pub reason: Reason,
    /// How many.
    pub count: u64,
}

/// What sessions have counted. Of pairs the first number is of what was well, the second one of what was not.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// Sessions that have come so far.
    pub sessions: u64,
    /// Requests to run statements.
    pub statements: [u64; 2],
    /// Transactions: committed, and rolled back.
    pub transactions: [u64; 2],
    /// Transactions that were run again without their clients' notice, and those of which that failed.
    pub replays: [u64; 2],
    /// Conflicts that clients were told.
    pub told: u64,
    by_place: HashMap<(TableId, Reason), u64>,
    /// How long statements of timed sessions took, in microseconds.
    pub statement_us: Distribution,
    /// The sum of that.
    pub statement_sum_us: u64,
    /// How long transactions of timed sessions took, in microseconds.
    pub transaction_us: Distribution,
    /// The sum of that.
    pub transaction_sum_us: u64,
}

impl Sums {
    /// The conflicts by table and reason.
    pub fn conflicts(&self) -> Vec<ConflictCount> {
        let count = |(&(table, reason), &count): (&(TableId, Reason), &u64)| ConflictCount { table, reason, count };
        let mut all: Vec<_> = self.by_place.iter().map(count).collect();
        all.sort_by_key(|it| (it.table, it.reason as u8));
        all
    }
}

/// What a session counts of the statements of one shape.
#[derive(Debug, Default)]
pub(crate) struct StatementCounts {
    calls: AtomicU64,
    rows: AtomicU64,
    errors: AtomicU64,
    sum_us: AtomicU64,
    max_us: AtomicU64,
}

impl StatementCounts {
    #[inline]
    pub(crate) fn ran(&self, rows: u64) {
        add(&self.calls, 1);
        add(&self.rows, rows);
    }

    pub(crate) fn failed(&self) {
        add(&self.calls, 1);
        add(&self.errors, 1);
    }

    pub(super) fn took(&self, us: u64) {
        add(&self.sum_us, us);
        if us > get(&self.max_us) {
            self.max_us.store(us, Ordering::Relaxed);
        }
    }

    pub(super) fn add_to(&self, sums: &mut StatementSums) {
        sums.calls += get(&self.calls);
        sums.rows += get(&self.rows);
        sums.errors += get(&self.errors);
        sums.sum_us += get(&self.sum_us);
        sums.max_us = sums.max_us.max(get(&self.max_us));
    }
}

/// What was counted of the statements of one shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatementSums {
    /// How often they ran.
    pub calls: u64,
    /// The rows that they have changed or answered.
    pub rows: u64,
    /// How often they have failed.
    pub errors: u64,
    /// How long they took in timed sessions, in microseconds.
    pub sum_us: u64,
    /// How long the longest of these took.
    pub max_us: u64,
}

/// What a session counts of a table.
#[derive(Debug, Default)]
pub(crate) struct TableCounts {
    pub(super) counts: [AtomicU64; 5],
}

/// What a statement does with a table each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Reads all of its rows.
    Whole = 0,
    /// Reads rows by an index.
    Indexed = 1,
    Inserts = 2,
    Updates = 3,
    Deletes = 4,
}

impl TableCounts {
    #[inline]
    pub(crate) fn count(&self, what: Use, rows: u64) {
        let amount = if matches!(what, Use::Whole | Use::Indexed) { 1 } else { rows };
        add(&self.counts[what as usize], amount);
    }

    pub(super) fn add_to(&self, sums: &mut TableSums) {
        for (sum, counter) in sums.0.iter_mut().zip(&self.counts) {
            *sum += get(counter);
        }
    }
}

/// What was counted of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableSums(pub(super) [u64; 5]);

impl TableSums {
    pub(crate) fn get(&self, what: Use) -> u64 {
        self.0[what as usize]
    }
}
