//! A worker: a slot in the epochs, and buffers that its procedures use one after the other.

use std::sync::Arc;

use polychron_base::{Abort, Error};
use polychron_engine::catalog::Seen;
use polychron_engine::options::Retry;
use polychron_engine::stores::{Hints, execute_in_groups};
use polychron_engine::{Counters, Interactive, Mode, Procedure, Savepoints, Worker, drive};
use polychron_memory::Local;

use super::protocol::KeyValue;
use super::table::Table;
use super::transaction::{Buffers, KeyValueTransaction};

/// One thread's way into the database.
#[derive(Debug)]
pub struct KeyValueWorker {
    pub(super) local: Local,
    pub(super) state: State,
    pub(super) database: Arc<KeyValue>,
}

/// What a worker keeps from one procedure to the next.
#[derive(Debug)]
pub(super) struct State {
    pub(super) buffers: Buffers,
    pub(super) savepoints: Savepoints,
    pub(super) tables: Seen<Table>,
    hints: Hints,
    counters: Arc<Counters>,
}

impl KeyValueWorker {
    pub(super) fn new(database: &Arc<KeyValue>) -> Result<Self, Error> {
        let local = database.base.memory.register()?;
        let counters = database.base.counters.register();
        let (buffers, hints, tables) = (Buffers::default(), Hints::default(), Seen::default());
        let state = State { buffers, savepoints: Savepoints::default(), hints, tables, counters };
        Ok(Self { local, state, database: Arc::clone(database) })
    }
}

impl Worker for KeyValueWorker {
    fn execute<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, Error> {
        drive::execute(self, Mode::ReadWrite, procedure)
    }

    fn execute_batch<P: Procedure>(
        &mut self,
        procedures: &mut [P],
        done: &mut impl FnMut(usize, Result<P::Output, Error>),
    ) {
        execute_in_groups(self, procedures, done, |worker, group| {
            let State { hints, tables, .. } = &mut worker.state;
            let guard = worker.local.pin();
            // SAFETY: the guard stays while the keys are walked.
            unsafe { tables.renew(&worker.database.base.catalog) };
            hints.gather(&tables[..], group, &guard);
        });
    }

    fn snapshot<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, Error> {
        drive::execute(self, Mode::Snapshot, procedure)
    }

    fn counters(&self) -> &Counters {
        &self.state.counters
    }

    fn tidy_up(&mut self) {
        self.local.collect();
        self.database.base.keeper.tidy_up(&self.database.base.catalog, self.database.base.memory.epochs());
    }
}

impl Interactive for KeyValueWorker {
    type Transaction<'w> = KeyValueTransaction<'w>;

    #[inline]
    fn begin(&mut self, mode: Mode) -> Result<KeyValueTransaction<'_>, Error> {
        // Of a procedure that was leaked its pin is left.
        if self.local.is_pinned() {
            self.local.end_leaked();
        }
        let Self { local, state, database } = self;
        // Pinned first: who waits for the procedures that know an old catalog waits for their epochs.
        let guard = local.pin();
        // SAFETY: the transaction holds the guard, and never renews it.
        unsafe { state.tables.renew(&database.base.catalog) };
        if mode == Mode::Snapshot {
            state.counters.snapshot(0);
        }
        state.savepoints.clear();
        Ok(KeyValueTransaction::new(state, guard, mode))
    }

    /// Nothing ever conflicts.
    fn last_abort(&self) -> Option<Abort> {
        None
    }

    fn back_off(&mut self, _attempts: u64) {}

    fn retry(&self) -> &Retry {
        &self.database.base.common.retry
    }
}

impl Drop for KeyValueWorker {
    fn drop(&mut self) {
        self.database.base.counters.leave(&self.state.counters);
    }
}
