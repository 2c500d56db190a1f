//! A worker: a slot in the table of transactions and in the epochs, pools, and the sets that its transactions use one after the
//! other.

use std::sync::Arc;

use polychron_base::Error;
use polychron_engine::Mode;
use polychron_engine::mutations::pass;
use polychron_engine::stores::{StoreWorker, WorkerBase};
use polychron_memory::Local;

use super::collect::Collector;
use super::open::Met;
use super::protocol::Shared;
use super::sets::Sets;
use super::steps::Point;
use super::table::Store;
use super::transaction::{Buffers, HekatonTransaction};
use super::version::TransactionId;

/// One thread's way into the database.
#[derive(Debug)]
pub struct HekatonWorker {
    local: Local,
    pub(super) state: State,
    shared: Arc<Shared>,
}

/// What a worker keeps from one transaction to the next.
#[derive(Debug)]
pub(super) struct State {
    pub(super) base: WorkerBase<Store>,
    pub(super) sets: Sets,
    pub(super) buffers: Buffers,
    pub(super) collector: Collector,
    /// The latest timestamp that this worker has met.
    pub(super) known: u64,
    /// The transaction that runs or ran last, a snapshot's being none.
    pub(super) id: TransactionId,
    /// An open transaction of the same thread with which the latest one has conflicted.
    pub(super) met: Option<Met>,
}

impl HekatonWorker {
    pub(super) fn new(local: Local, shared: &Arc<Shared>) -> Self {
        let base = WorkerBase::new(&shared.base, &local);
        let slot = base.slot;
        shared.transactions.enter(slot);
        let state = State {
            base,
            sets: Sets::default(),
            buffers: Buffers::default(),
            collector: Collector::default(),
            known: 0,
            id: TransactionId::NONE,
            met: None,
        };
        Self { local, state, shared: Arc::clone(shared) }
    }
}

impl StoreWorker for HekatonWorker {
    type Store = Store;
    type Transaction<'w> = HekatonTransaction<'w>;

    polychron_engine::worker_parts!(shared.base);

    #[inline]
    fn start(&mut self, mode: Mode) -> Result<HekatonTransaction<'_>, Error> {
        if self.local.was_refused() {
            // Else what the last transaction needed may wait for a commit, and no commit succeed without it.
            self.maintain_stores();
        }
        let Self { local, state, shared } = self;
        if state.met.is_some() {
            state.meet_again(&shared.transactions)?;
        }
        // Pinned first: a thread that waits for the transactions that know an old catalog waits for their epochs.
        let guard = local.pin();
        // SAFETY: the transaction holds the guard, and keeps the list before it renews the guard.
        unsafe { state.base.tables.renew(&shared.base.catalog) };
        state.collector.step(&shared.transactions, &shared.orphans, &state.base.tables, &guard);
        pass(Point::Beginning);
        state.base.nested.begin();
        Ok(HekatonTransaction::new(shared, state, guard, mode))
    }

    fn undo_leaked(&mut self) {
        let Self { local, state, shared } = self;
        HekatonTransaction::undo_leaked(shared, state, local.pin());
    }

    /// A wait is useless where another attempt must meet a transaction of the same thread again.
    fn wait(&mut self, attempts: u64) {
        match &mut self.state.met {
            Some(met) => met.again = true,
            None => self.state.base.back_off.wait(attempts, &self.shared.base.common.retry),
        }
    }

    fn maintain_stores(&mut self) {
        let guard = self.local.pin();
        let State { base: WorkerBase { tables, .. }, collector, .. } = &mut self.state;
        // SAFETY: pinned just before; no thread looks at the list between transactions without renewing it like this.
        unsafe { tables.renew(&self.shared.base.catalog) };
        let limit = collector.len() + self.shared.orphans.len();
        collector.work(limit, &self.shared.transactions, &self.shared.orphans, tables, &guard);
        collector.free_tails(usize::MAX, &guard);
        drop(guard);
        self.local.collect();
    }
}

impl Drop for HekatonWorker {
    fn drop(&mut self) {
        self.end_leaked();
        let guard = self.local.pin();
        self.state.collector.leave(&self.shared.orphans, &guard);
        drop(guard);
    }
}
