//! Batches: the records of procedures that wait are brought into the caches while others run.
//!
//! A worker that runs one transaction after the other pays a memory latency for every node and record it touches. With
//! declared keys it can walk the indexes for a whole group of procedures first, a step of each walk in turn, so that the
//! latencies overlap. Nothing is read that could matter: the procedures look everything up again, in the caches.

use polychron_base::key::{EncodedKey, Key16};
use polychron_base::{Error, TableId};
use polychron_engine::redo::Redo;
use polychron_engine::{Access, Declare, Procedure, Worker};
use polychron_index::AnyIndex;
use polychron_index::ordered::{Cursor, Step};
use polychron_memory::Guard;

use super::record::Record;
use super::table::MaflingoTable;
use super::tid::TidSource;
use super::worker::MaflingoWorker;

/// Procedures whose keys are walked together. Measured on 16-key transactions: 4 leaves latency uncovered, 16 gains
/// nothing more and begins to push lines out of the first-level cache again.
const GROUP: usize = 8;

/// Lines of a record that are fetched: longer rows are rarely read whole.
const MOST_LINES: usize = 4;

struct Walk<'t> {
    table: &'t MaflingoTable,
    key: Key16,
    cursor: Option<Cursor<'t, Key16>>,
    done: bool,
}

struct Plan<'t> {
    guard: &'t Guard<'t>,
    tables: &'t [Option<std::sync::Arc<MaflingoTable>>],
    walks: Vec<Walk<'t>>,
}

impl Declare for Plan<'_> {
    #[inline]
    fn key<K: EncodedKey>(&mut self, table: TableId, key: K, _access: Access) {
        let table = self.tables.get(table.position()).and_then(Option::as_deref);
        let (Some(table), Some(key)) = (table, Key16::from_key(key)) else { return };
        let cursor = match &*table.primary.index {
            AnyIndex::Ordered(index) => Some(index.start(key, self.guard)),
            AnyIndex::Hash(index) => {
                index.prefetch(key, self.guard);
                None
            }
        };
        self.walks.push(Walk { table, key, cursor, done: false });
    }
}

impl Plan<'_> {
    /// Takes all walks to their records, a step of each in turn.
    fn run(&mut self) {
        let mut left = self.walks.len();
        while left > 0 {
            for walk in &mut self.walks {
                if !walk.done && walk.step(self.guard) {
                    walk.done = true;
                    left -= 1;
                }
            }
        }
    }
}

impl<'t> Walk<'t> {
    /// Goes one node further; `true` when the record is being fetched.
    #[inline]
    fn step(&mut self, guard: &'t Guard<'t>) -> bool {
        let lookup = match (&*self.table.primary.index, &mut self.cursor) {
            (AnyIndex::Ordered(index), Some(cursor)) => match index.advance(cursor, guard) {
                Step::Pending => return false,
                Step::Done(lookup) => lookup,
            },
            (index, _) => index.get(self.key, guard),
        };
        if let Some(handle) = lookup.handle {
            // SAFETY: the handle was found under this guard.
            unsafe { Record::from_handle(handle) }.prefetch(self.table.lines.min(MOST_LINES));
        }
        true
    }
}

/// [`Worker::execute_batch`] of this protocol.
pub(super) fn execute_batch<T: TidSource, R: Redo, P: Procedure>(
    worker: &mut MaflingoWorker<T, R>,
    procedures: &mut [P],
    done: &mut impl FnMut(usize, Result<P::Output, Error>),
) {
    let mut first = 0;
    for group in procedures.chunks_mut(GROUP) {
        if group.len() > 1 {
            let guard = worker.local.pin();
            let mut plan = Plan { guard: &guard, tables: &worker.state.tables, walks: Vec::with_capacity(GROUP * 16) };
            for procedure in group.iter() {
                procedure.declare(&mut plan);
            }
            plan.run();
        }
        for (position, procedure) in group.iter_mut().enumerate() {
            let outcome = worker.execute(procedure);
            done(first + position, outcome);
        }
        first += group.len();
    }
}
