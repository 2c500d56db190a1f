//! A worker: what a thread keeps from one transaction to the next.

use std::sync::Arc;

use polychron_base::Error;
use polychron_engine::Mode;
use polychron_engine::mutations::left_out;
use polychron_engine::stores::{IndexRef, RowRecords, Store, StoreWorker, UndoLog, WorkerBase};
use polychron_memory::Local;

use crate::protocol::Shared;
use crate::steps::Step;
use crate::transaction::OneLockTransaction;

/// One thread's access to the database.
#[derive(Debug)]
pub struct OneLockWorker {
    local: Local,
    state: State,
    shared: Arc<Shared>,
    /// Whether its transactions acquire the lock; otherwise it is held for them.
    locks: bool,
}

/// What the running transaction changes of a worker.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) base: WorkerBase<Store<RowRecords>>,
    pub(crate) log: UndoLog<IndexRef>,
}

impl OneLockWorker {
    pub(crate) fn new(local: Local, shared: &Arc<Shared>, locks: bool) -> Self {
        let state = State { base: WorkerBase::new(&shared.base, &local), log: UndoLog::default() };
        Self { local, state, shared: Arc::clone(shared), locks }
    }

    /// A transaction that has begun: anew, or one that was leaked.
    fn open(&mut self, read_only: bool) -> OneLockTransaction<'_> {
        let lock = self.locks.then_some(&self.shared.lock);
        OneLockTransaction::new(&self.shared, lock, &mut self.state, self.local.pin(), read_only)
    }
}

impl StoreWorker for OneLockWorker {
    type Store = Store<RowRecords>;
    type Transaction<'w> = OneLockTransaction<'w>;

    /// A worker that waits for the lock is in no epoch: the thread that has it may wait until all have left theirs.
    const HOLDS_GROUPS: bool = false;

    polychron_engine::worker_parts!(shared.base);

    fn start(&mut self, mode: Mode) -> Result<OneLockTransaction<'_>, Error> {
        if self.locks && !left_out(Step::AcquireLock) {
            self.shared.lock.acquire()?;
        }
        self.state.base.begin_logged(&self.shared.base.common.journal);
        if mode == Mode::Snapshot {
            self.state.base.counters.snapshot(0);
        }
        let mut transaction = self.open(mode == Mode::Snapshot);
        transaction.renew_tables();
        Ok(transaction)
    }

    fn undo_leaked(&mut self) {
        drop(self.open(false));
    }
}

impl Drop for OneLockWorker {
    fn drop(&mut self) {
        self.end_leaked();
    }
}
