//! Batches: the records of procedures that wait are brought into the caches while others run.
//!
//! A worker that runs one procedure after the other pays a memory latency for every node and record it touches. With
//! declared keys it can walk the indexes for a whole group of procedures first, a step of each walk in turn, so that the
//! latencies overlap. No record is read: the procedures look everything up again, in the
//! caches, or begin at what the walks found, as far as their protocol can tell that it still holds.

use std::sync::Arc;

use polychron_base::key::{EncodedKey, Key16};
use polychron_base::{Error, TableId};
use polychron_index::ordered::{Cursor, Step};
use polychron_index::{AnyIndex, Handle};
use polychron_memory::Guard;

use super::{Records, Store, StoreTable};
use crate::{Access, Declare, Procedure, Worker};

/// Lines of a record that are fetched: longer rows are rarely read whole.
const MOST_LINES: usize = 4;

/// Where the rows of declared keys lie.
pub trait Prefetched {
    /// The index that leads to the key's record, and the record's lines. `None`: there is no such table, or it is not
    /// worth it.
    fn locate(&self, table: TableId, key: &Key16) -> Option<(&AnyIndex, usize)>;
}

impl<R: Records> Prefetched for [Option<Arc<StoreTable<Store<R>>>>] {
    #[inline]
    fn locate(&self, table: TableId, _key: &Key16) -> Option<(&AnyIndex, usize)> {
        let table = self.get(table.position())?.as_deref()?;
        Some((table.primary.index(), table.lines(R::HEADER_BYTES)))
    }
}

/// Procedures whose keys are walked together: 4 leave latency uncovered, 16 gain nothing more.
const GROUP: usize = 8;

/// [`Worker::execute_batch`] in groups: `prefetch` brings the records of a whole group into the caches before its procedures run
/// one after the other. Of a single procedure nothing is brought: it would wait for nothing but itself.
pub fn execute_in_groups<W: Worker, P: Procedure>(
    worker: &mut W,
    procedures: &mut [P],
    done: &mut impl FnMut(usize, Result<P::Output, Error>),
    mut prefetch: impl FnMut(&mut W, &[P]),
) {
    for (number, group) in procedures.chunks_mut(GROUP).enumerate() {
        if group.len() > 1 {
            prefetch(worker, group);
        }
        for (position, procedure) in group.iter_mut().enumerate() {
            let outcome = worker.execute(procedure);
            done(number * GROUP + position, outcome);
        }
    }
}

/// What a declared key led to.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The position of the procedure that declared it.
    pub procedure: usize,
    /// The key's table.
    pub table: TableId,
    /// The key.
    pub key: Key16,
    /// The record's address, if the key was there.
    pub handle: Option<Handle>,
}

#[derive(Debug)]
struct Walk<'t> {
    index: &'t AnyIndex,
    cursor: Option<Cursor<'t, Key16>>,
    lines: usize,
    done: bool,
    arrival: Arrival,
}

struct Plan<'t, T: ?Sized> {
    guard: &'t Guard<'t>,
    tables: &'t T,
    procedure: usize,
    walks: Vec<Walk<'t>>,
}

impl<T: Prefetched + ?Sized> Declare for Plan<'_, T> {
    #[inline]
    fn key<K: EncodedKey>(&mut self, table: TableId, key: K, _access: Access) {
        let Some(key) = Key16::from_key(key) else { return };
        let Some((index, lines)) = self.tables.locate(table, &key) else { return };
        let cursor = match index {
            AnyIndex::Ordered(index) => Some(index.start(key, self.guard)),
            AnyIndex::Hash(index) => {
                index.prefetch(key, self.guard);
                None
            }
        };
        let arrival = Arrival { procedure: self.procedure, table, key, handle: None };
        self.walks.push(Walk { index, cursor, lines, done: false, arrival });
    }
}

impl<'t> Walk<'t> {
    /// Goes one node further; `true` when the record is being fetched.
    #[inline]
    fn step(&mut self, guard: &'t Guard<'t>) -> bool {
        let lookup = match (self.index, &mut self.cursor) {
            (AnyIndex::Ordered(index), Some(cursor)) => match index.advance(cursor, guard) {
                Step::Pending => return false,
                Step::Done(lookup) => lookup,
            },
            (index, _) => index.get(self.arrival.key, guard),
        };
        self.arrival.handle = lookup.handle;
        if let Some(handle) = lookup.handle {
            let record: *const u8 = std::ptr::without_provenance(handle.get() as usize);
            for line in 0..self.lines.min(MOST_LINES) {
                polychron_sync::prefetch_read(record.wrapping_add(64 * line));
            }
        }
        true
    }
}

/// Memory of walks, kept from one group of procedures to the next.
#[derive(Debug, Default)]
pub struct Walks {
    /// Empty between groups.
    memory: Vec<Walk<'static>>,
}

// SAFETY: cursors are what keeps a walk in its thread, and no walk outlives the call that began it.
unsafe impl Send for Walks {}

impl Walks {
    /// Fetches the records of the keys that `procedures` declare, where handles are addresses of records. `arrived` is
    /// told of each key in the order of declaration; what it is told holds under the guard.
    #[inline]
    pub fn prefetch_declared<T: Prefetched + ?Sized, P: Procedure>(
        &mut self,
        tables: &T,
        procedures: &[P],
        guard: &Guard<'_>,
        arrived: &mut impl FnMut(Arrival),
    ) {
        let mut plan = Plan { guard, tables, procedure: 0, walks: lend(std::mem::take(&mut self.memory)) };
        for (position, procedure) in procedures.iter().enumerate() {
            plan.procedure = position;
            procedure.declare(&mut plan);
        }
        let mut left = plan.walks.len();
        while left > 0 {
            for walk in &mut plan.walks {
                if !walk.done && walk.step(guard) {
                    walk.done = true;
                    left -= 1;
                }
            }
        }
        plan.walks.iter().for_each(|walk| arrived(walk.arrival));
        self.memory = lend(plan.walks);
    }
}

/// Empties a list of walks and lends its memory to walks of another life: collecting an iterator of the same layout takes
/// over the allocation.
fn lend<'a>(mut walks: Vec<Walk<'_>>) -> Vec<Walk<'a>> {
    walks.clear();
    walks.into_iter().map(|_| unreachable!("the list is empty")).collect()
}
