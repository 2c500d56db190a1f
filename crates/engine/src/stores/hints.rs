//! Hints: where the records of keys are that will be asked for soon, so that they are looked up once. What may be concluded
//! from a hint is the protocol's business.

use polychron_base::TableId;
use polychron_base::key::{EncodedKey, Key16};
use polychron_index::Handle;
use polychron_memory::Guard;

use super::prefetch::{Arrival, Prefetched, Walks};
use crate::Procedure;

/// Hints that are looked at for a key, ahead and from the first on: a key without a hint must not cost a walk over all.
const WINDOW: usize = 4;

/// Where the record of a declared key was.
#[derive(Clone, Copy, Debug)]
struct Hint {
    table: TableId,
    key: Key16,
    handle: Option<Handle>,
}

/// The hints of a group of procedures, those of the one that runs in force; or of one transaction that prefetches.
#[derive(Debug, Default)]
pub struct Hints {
    all: Vec<Hint>,
    /// The hints in force are `next .. end`, then `first .. next`: keys are mostly asked for in the order in which they
    /// were declared.
    first: usize,
    next: usize,
    end: usize,
    /// From here on up to `end`, hints wait for their look-ups.
    asked: usize,
    /// Memory of the walks that find them.
    walks: Walks,
}

impl Hints {
    /// Whether any hint is in force.
    #[inline]
    pub fn any(&self) -> bool {
        self.first < self.end
    }

    /// The hint for a key, if it is among the next ones, or among the first ones that were passed by.
    #[inline]
    pub fn find<K: EncodedKey>(&mut self, table: TableId, key: K) -> Option<Handle> {
        let key = Key16::from_key(key)?;
        let ahead = self.next..self.end.min(self.next + WINDOW);
        let positions = ahead.chain(self.first..self.next.min(self.first + WINDOW));
        for position in positions {
            let hint = &self.all[position];
            if hint.table == table && hint.key == key {
                self.next = position + 1;
                return hint.handle;
            }
        }
        None
    }

    /// Adds a hint to those in force, of which more is to be found out; `false` when there is no room behind them, or the
    /// key is too long. The transaction holds the epoch in which the key will be looked up.
    #[inline]
    pub fn ask<K: EncodedKey>(&mut self, table: TableId, key: K) -> bool {
        if self.end < self.all.len() {
            return false;
        }
        let Some(key) = Key16::from_key(key) else { return false };
        self.all.push(Hint { table, key, handle: None });
        self.end += 1;
        true
    }

    /// Adds what was found out about a key, of which nothing is in force yet, and answers how many hints there are.
    #[inline]
    pub fn add(&mut self, table: TableId, key: Key16, handle: Option<Handle>) -> usize {
        self.all.push(Hint { table, key, handle });
        self.all.len()
    }

    /// The next key that was asked for and not looked up yet.
    #[inline]
    pub fn next_asked(&self) -> Option<(TableId, Key16)> {
        (self.asked < self.end).then(|| (self.all[self.asked].table, self.all[self.asked].key))
    }

    /// Answers it.
    #[inline]
    pub fn answer(&mut self, handle: Option<Handle>) {
        self.all[self.asked].handle = handle;
        self.asked += 1;
    }

    /// Forgets all hints, before the epoch ends in which they were found.
    #[inline]
    pub fn clear(&mut self) {
        if !self.all.is_empty() {
            self.all.clear();
            self.put_in_force(0..0);
        }
    }

    /// The hints in this range are those of the procedure that runs now.
    pub fn put_in_force(&mut self, range: std::ops::Range<usize>) {
        (self.first, self.next, self.end, self.asked) = (range.start, range.start, range.end, range.end);
    }

    /// Finds the records that a group of procedures declares; `ends` tells where each procedure's hints end.
    #[inline]
    pub fn walk<T: Prefetched + ?Sized, P: Procedure>(
        &mut self,
        tables: &T,
        group: &[P],
        ends: &mut [usize],
        guard: &Guard<'_>,
    ) {
        let Self { all, walks, .. } = self;
        all.clear();
        walks.prefetch_declared(tables, group, guard, &mut |Arrival { procedure, table, key, handle }| {
            all.push(Hint { table, key, handle });
            ends[procedure] = all.len();
        });
    }
}
