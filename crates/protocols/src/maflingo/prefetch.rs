//! Batches: the records of procedures that wait are brought into the caches while others run.
//!
//! A worker that runs one transaction after the other pays a memory latency for every node and record it touches. With
//! declared keys it walks the indexes for a whole group of procedures first ([`Walks`]).
//!
//! Where a walk found a record it leaves a [`Hint`], and the transaction that asks for the key goes straight to the
//! record. That is safe because nothing is concluded from a hint but the record's address, under an epoch that the batch
//! holds: if the record has a row and is not unlinked when the transaction reads it, and the transaction's validation finds
//! it so again with the same TID, then it was the key's record at that instant, however the hint came about. In every other
//! case the key is looked up again.

use polychron_base::key::{EncodedKey, Key16};
use polychron_base::{Error, TableId};
use polychron_engine::redo::Redo;
use polychron_engine::stores::{Arrival, Walks};
use polychron_engine::{Mode, Procedure, drive};
use polychron_index::Handle;
use polychron_memory::Guard;

use super::tid::TidSource;
use super::worker::{MaflingoWorker, Session, State};

/// Procedures whose keys are walked together. Measured on 16-key transactions: 4 leaves latency uncovered, 16 gains
/// nothing more and begins to push lines out of the first-level cache again.
const GROUP: usize = 8;

/// Where the record of a declared key was.
#[derive(Clone, Copy, Debug)]
struct Hint {
    table: TableId,
    key: Key16,
    handle: Option<Handle>,
}

/// The hints of a group of procedures, those of the one that runs in force; or of one transaction that prefetches.
#[derive(Debug, Default)]
pub(super) struct Hints {
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
    pub(super) fn any(&self) -> bool {
        self.first < self.end
    }

    /// The hint for a key.
    #[inline]
    pub(super) fn find<K: EncodedKey>(&mut self, table: TableId, key: K) -> Option<Handle> {
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
    pub(super) fn add<K: EncodedKey>(&mut self, table: TableId, key: K, handle: Handle) {
        if self.end == self.all.len()
            && let Some(key) = Key16::from_key(key)
        {
            self.all.push(Hint { table, key, handle: Some(handle) });
            self.end += 1;
        }
    }

    /// Forgets all hints, before the epoch ends in which they were found.
    #[inline]
    pub(super) fn clear(&mut self) {
        if !self.all.is_empty() {
            self.all.clear();
            self.put_in_force(0..0);
        }
    }

    fn put_in_force(&mut self, range: std::ops::Range<usize>) {
        (self.first, self.next, self.end) = (range.start, range.start, range.end);
    }
}

/// [`polychron_engine::Worker::execute_batch`] of this protocol.
pub(super) fn execute_batch<T: TidSource, R: Redo, P: Procedure>(
    worker: &mut MaflingoWorker<T, R>,
    procedures: &mut [P],
    done: &mut impl FnMut(usize, Result<P::Output, Error>),
) {
    let Session { local, state, shared, .. } = worker.session();
    let mut ends = [0; GROUP];
    for (index, group) in procedures.chunks_mut(GROUP).enumerate() {
        // Held until the group is done: hints are addresses.
        let guard = local.pin();
        if group.len() > 1 {
            // SAFETY: the guard stays until the group is done, and the group's transactions do not renew it.
            unsafe { state.tables.renew(&shared.catalog) };
            walk_group(group, &mut ends, state, &guard);
        }
        let mut start = 0;
        for (position, procedure) in group.iter_mut().enumerate() {
            // A procedure that declares nothing has no end of its own.
            let end = ends[position].max(start);
            state.hints.put_in_force(start..end);
            start = end;
            let outcome =
                drive::execute(&mut Session { local, state, shared, in_batch: true }, Mode::ReadWrite, procedure);
            done(index * GROUP + position, outcome);
        }
        state.hints.clear();
        ends = [0; GROUP];
    }
}

/// Finds the records that a group of procedures declares; `ends` tells where each procedure's hints end.
#[inline]
fn walk_group<P: Procedure>(group: &[P], ends: &mut [usize; GROUP], state: &mut State, guard: &Guard<'_>) {
    let Hints { all, walks, .. } = &mut state.hints;
    all.clear();
    walks.prefetch_declared(&state.tables[..], group, guard, &mut |Arrival { procedure, table, key, handle }| {
        all.push(Hint { table, key, handle });
        ends[procedure] = all.len();
    });
}
