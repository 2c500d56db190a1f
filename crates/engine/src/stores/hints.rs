//! Hints: where the records of keys are that will be asked for soon, so that they are looked up once. What may be concluded
//! from a hint is the protocol's business.

use polychron_base::TableId;
use polychron_base::key::{EncodedKey, Key16};
use polychron_index::Handle;
use polychron_memory::Guard;

use super::prefetch::{Arrival, Prefetched, Walks};
use crate::Procedure;

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
    /// Memory of the walks that find them.
    walks: Walks,
}

impl Hints {
    /// Whether any hint is in force.
    #[inline]
    pub fn any(&self) -> bool {
        self.first < self.end
    }

    /// The hint for a key.
    #[inline]
    pub fn find<K: EncodedKey>(&mut self, table: TableId, key: K) -> Option<Handle> {
        let key = Key16::from_key(key)?;
        let positions = (self.next..self.end).chain(self.first..self.next);
        for position in positions {
            let hint = &self.all[position];
            if hint.table == table && hint.key == key {
                self.next = position + 1;
                return hint.handle;
            }
        }
        None
    }

    /// Adds a hint to those in force. The transaction holds the epoch in which it was found.
    #[inline]
    pub fn add<K: EncodedKey>(&mut self, table: TableId, key: K, handle: Handle) {
        if self.end == self.all.len()
            && let Some(key) = Key16::from_key(key)
        {
            self.all.push(Hint { table, key, handle: Some(handle) });
            self.end += 1;
        }
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
        (self.first, self.next, self.end) = (range.start, range.start, range.end);
    }
}

impl Hints {
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
