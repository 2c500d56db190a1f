//! A worker: a slot in the epochs, and buffers that its procedures use one after the other.

use std::sync::Arc;

use polychron_base::Error;
use polychron_engine::Mode;
use polychron_engine::stores::{Base, StoreWorker, WorkerBase};
use polychron_memory::Local;

use super::table::Entries;
use super::transaction::{Buffers, KeyValueTransaction};

/// One thread's way into the database.
#[derive(Debug)]
pub struct KeyValueWorker {
    pub(super) local: Local,
    pub(super) state: State,
    pub(super) database: Arc<Base<Entries>>,
}

/// What a worker keeps from one procedure to the next.
#[derive(Debug)]
pub(super) struct State {
    pub(super) base: WorkerBase<Entries>,
    pub(super) buffers: Buffers,
}

impl KeyValueWorker {
    pub(super) fn new(local: Local, database: &Arc<Base<Entries>>) -> Self {
        let state = State { base: WorkerBase::new(database, &local), buffers: Buffers::default() };
        Self { local, state, database: Arc::clone(database) }
    }
}

impl StoreWorker for KeyValueWorker {
    type Store = Entries;
    type Transaction<'w> = KeyValueTransaction<'w>;

    const HOLDS_GROUPS: bool = false;

    polychron_engine::worker_parts!(database);

    #[inline]
    fn start(&mut self, mode: Mode) -> Result<KeyValueTransaction<'_>, Error> {
        let Self { local, state, database } = self;
        // Pinned first: a thread that waits for the procedures that know an old catalog waits for their epochs.
        let guard = local.pin();
        // SAFETY: the transaction holds the guard, and never renews it.
        unsafe { state.base.tables.renew(&database.catalog) };
        if mode == Mode::Snapshot {
            state.base.counters.snapshot(0);
        }
        state.base.rows.savepoints.clear();
        Ok(KeyValueTransaction::new(state, guard, mode))
    }

    /// Of a procedure that was leaked its pin is left.
    fn has_leaked(&self) -> bool {
        self.local.is_pinned()
    }

    fn undo_leaked(&mut self) {}
}
