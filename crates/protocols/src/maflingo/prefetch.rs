//! Batches: the records of procedures that wait are brought into the caches while others run.
//!
//! Where a key's record was found, a hint is left (`engine::stores::Hints`), and the transaction that asks for the key goes
//! straight there. That is safe because nothing is concluded from a hint but the record's address, under an epoch that the batch
//! holds: if the record has a row and is not unlinked when the transaction reads it, and the transaction's validation finds
//! it so again with the same TID, then it was the key's record at that instant, however the hint came about. In every other
//! case the key is looked up again.

use polychron_base::Error;
use polychron_engine::redo::Redo;
use polychron_engine::stores::GROUP;
use polychron_engine::{Mode, Procedure, drive};

use super::table::Known;
use super::worker::{MaflingoWorker, Session};

/// [`polychron_engine::Worker::execute_batch`] of this protocol.
pub(super) fn execute_batch<R: Redo, P: Procedure>(
    worker: &mut MaflingoWorker<R>,
    procedures: &mut [P],
    done: &mut impl FnMut(usize, Result<P::Output, Error>),
) {
    let Session { local, state, shared, .. } = worker.session();
    for (index, group) in procedures.chunks_mut(GROUP).enumerate() {
        // Held until the group is done: hints are addresses.
        let guard = local.pin();
        // SAFETY: the guard stays until the group is done, and the group's transactions do not renew it.
        unsafe { state.tables.renew(&shared.catalog) };
        state.hints.gather(&Known(&state.tables), group, &guard);
        for (position, procedure) in group.iter_mut().enumerate() {
            state.hints.put_in_force(position);
            let outcome =
                drive::execute(&mut Session { local, state, shared, in_batch: true }, Mode::ReadWrite, procedure);
            done(index * GROUP + position, outcome);
        }
        state.hints.clear();
    }
}
