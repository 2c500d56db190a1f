//! Batches: the records of procedures that wait are brought into the caches while others run.
//!
//! A worker that runs one transaction after the other pays a memory latency for every node and record it touches. With
//! declared keys it walks the indexes for a whole group of procedures first.
//!
//! Where a walk found a record it leaves a hint (`engine::stores::Hints`), and the transaction that asks for the key goes straight to the
//! record. That is safe because nothing is concluded from a hint but the record's address, under an epoch that the batch
//! holds: if the record has a row and is not unlinked when the transaction reads it, and the transaction's validation finds
//! it so again with the same TID, then it was the key's record at that instant, however the hint came about. In every other
//! case the key is looked up again.

use polychron_base::Error;
use polychron_engine::redo::Redo;
use polychron_engine::{Mode, Procedure, drive};

use super::tid::TidSource;
use super::worker::{MaflingoWorker, Session};

/// Procedures whose keys are walked together. Measured on 16-key transactions: 4 leaves latency uncovered, 16 gains
/// nothing more and begins to push lines out of the first-level cache again.
const GROUP: usize = 8;

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
            state.hints.walk(&state.tables[..], group, &mut ends, &guard);
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
