//! Batches: the index lines and then the records of procedures that wait are brought into the caches while others run.
//!
//! Where a walk found a record it leaves a hint, and the transaction that asks for the key goes straight there. That is safe because
//! a record serves one key until it is closed, and its place no other one while the batch holds its guard: a record that shows a
//! row is not closed. In every other case the key is looked up again.

use std::sync::Arc;

use polychron_base::key::Key16;
use polychron_base::{Error, TableId};
use polychron_engine::redo::Redo;
use polychron_engine::stores::Prefetched;
use polychron_engine::{Mode, Procedure, drive};
use polychron_index::AnyIndex;

use super::table::CicadaTable;
use super::worker::{CicadaWorker, Session};

/// Procedures whose keys are walked together.
const GROUP: usize = 8;

/// The tables as a batch of procedures sees them.
struct Declared<'t>(&'t [Option<Arc<CicadaTable>>]);

impl Prefetched for Declared<'_> {
    #[inline]
    fn locate(&self, table: TableId, _key: &Key16) -> Option<(&AnyIndex, usize)> {
        let table = self.0.get(table.position())?.as_deref()?;
        if table.primary.versioned.is_some() {
            return None;
        }
        Some((table.primary.index(), table.primary.records.lines()))
    }
}

/// [`polychron_engine::Worker::execute_batch`] of this protocol.
pub(super) fn execute_batch<R: Redo, P: Procedure>(
    worker: &mut CicadaWorker<R>,
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
            state.hints.walk(&Declared(&state.tables), group, &mut ends, &guard);
            let planned = &mut state.buffers.planned;
            planned.look_up(shared, &state.tables, state.worker, group, &mut state.hints, &mut ends);
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
