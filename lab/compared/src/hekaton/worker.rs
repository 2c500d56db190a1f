//! A worker: a slot in the table of transactions and in the epochs, pools, and the sets that its transactions use one after the
//! other.

use std::sync::Arc;

use polychron_base::{Abort, Error};
use polychron_engine::catalog::Seen;
use polychron_engine::drive::RandomWait;
use polychron_engine::mutations::pass;
use polychron_engine::nested::Nested;
use polychron_engine::options::Retry;
use polychron_engine::redo::{NoRedo, Redo};
use polychron_engine::stores::{Fingers, Grouped, Hints, execute_grouped};
use polychron_engine::{Counters, Interactive, Mode, Procedure, Savepoints, Worker, drive};
use polychron_memory::Local;

use super::collect::Collector;
use super::open::Met;
use super::protocol::Shared;
use super::sets::Sets;
use super::steps::Point;
use super::table::HekatonTable;
use super::transaction::{Buffers, HekatonTransaction};
use super::version::TransactionId;

/// One thread's way into the database.
#[derive(Debug)]
pub struct HekatonWorker<R: Redo = NoRedo> {
    local: Local,
    pub(super) state: State,
    shared: Arc<Shared<R>>,
}

/// What a worker keeps from one transaction to the next.
#[derive(Debug)]
pub(super) struct State {
    pub(super) sets: Sets,
    pub(super) buffers: Buffers,
    pub(super) hints: Hints,
    pub(super) fingers: Fingers,
    pub(super) savepoints: Savepoints,
    pub(super) nested: Nested,
    pub(super) collector: Collector,
    pub(super) tables: Seen<HekatonTable>,
    pub(super) slot: usize,
    /// The latest timestamp that this worker has met.
    pub(super) known: u64,
    pub(super) last_abort: Option<Abort>,
    /// The transaction that runs, a snapshot's being none. Between transactions: one that was leaked.
    pub(super) open: Option<TransactionId>,
    /// An open transaction of the same thread with which the latest one has conflicted.
    pub(super) met: Option<Met>,
    pub(super) counters: Arc<Counters>,
    pub(super) back_off: RandomWait,
}

impl<R: Redo> HekatonWorker<R> {
    pub(super) fn new(shared: &Arc<Shared<R>>) -> Result<Self, Error> {
        Ok(Self::over(shared.memory.register()?, shared))
    }

    /// A worker for the database's own transactions.
    pub(super) fn own(shared: &Arc<Shared<R>>) -> Result<Self, Error> {
        Ok(Self::over(shared.memory.register_own()?, shared))
    }

    fn over(local: Local, shared: &Arc<Shared<R>>) -> Self {
        let slot = local.worker_id().position();
        shared.transactions.enter(slot);
        let state = State {
            sets: Sets::default(),
            buffers: Buffers::default(),
            hints: Hints::default(),
            fingers: Fingers::default(),
            savepoints: Savepoints::default(),
            nested: Nested::default(),
            collector: Collector::default(),
            tables: Seen::default(),
            slot,
            known: 0,
            last_abort: None,
            open: None,
            met: None,
            counters: shared.counters.register(),
            back_off: RandomWait::new(slot),
        };
        Self { local, state, shared: Arc::clone(shared) }
    }

    /// Undoes a transaction that was leaked.
    #[inline]
    fn end_leaked(&mut self) {
        let Self { local, state, shared } = self;
        if let Some(id) = state.open {
            HekatonTransaction::undo_leaked(shared, state, local.pin(), id);
            local.end_leaked();
        }
    }
}

impl<R: Redo> Worker for HekatonWorker<R> {
    fn execute<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, Error> {
        drive::execute(self, Mode::ReadWrite, procedure)
    }

    fn execute_batch<P: Procedure>(
        &mut self,
        procedures: &mut [P],
        done: &mut impl FnMut(usize, Result<P::Output, Error>),
    ) {
        execute_grouped(self, procedures, done);
    }

    fn snapshot<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, Error> {
        drive::execute(self, Mode::Snapshot, procedure)
    }

    fn counters(&self) -> &Counters {
        &self.state.counters
    }

    fn tidy_up(&mut self) {
        self.end_leaked();
        let guard = self.local.pin();
        let State { collector, tables, .. } = &mut self.state;
        // SAFETY: pinned just before; nobody looks at the list between transactions but who renews it like this.
        unsafe { tables.renew(&self.shared.catalog) };
        let limit = collector.len() + self.shared.orphans.len();
        collector.work(limit, &self.shared.transactions, &self.shared.orphans, tables, &guard);
        collector.free_tails(usize::MAX, &guard);
        drop(guard);
        self.local.collect();
    }
}

impl<R: Redo> Interactive for HekatonWorker<R> {
    type Transaction<'w> = HekatonTransaction<'w, R>;

    #[inline]
    fn begin(&mut self, mode: Mode) -> Result<Self::Transaction<'_>, Error> {
        self.end_leaked();
        if self.local.was_refused() {
            // Else what the last transaction needed may wait for a commit, and no commit succeed without it.
            self.tidy_up();
        }
        let Self { local, state, shared } = self;
        if state.met.is_some() {
            state.meet_again(&shared.transactions)?;
        }
        // What a group of procedures has looked up holds as long as the group.
        if local.is_held() {
            state.hints.rewind()
        } else {
            state.hints.clear()
        }
        // Pinned first: who waits for the transactions that know an old catalog waits for their epochs.
        let guard = local.pin();
        // SAFETY: the transaction holds the guard, and keeps the list before it renews the guard.
        unsafe { state.tables.renew(&shared.catalog) };
        state.collector.step(&shared.transactions, &shared.orphans, &state.tables, &guard);
        pass(Point::Beginning);
        state.nested.begin();
        Ok(HekatonTransaction::new(shared, state, guard, mode))
    }

    fn last_abort(&self) -> Option<Abort> {
        self.state.last_abort
    }

    fn waits_for_itself(&self) -> Option<Error> {
        self.state.nested.error()
    }

    fn is_nested(&self) -> bool {
        self.local.is_nested()
    }

    fn back_off(&mut self, attempts: u64) {
        self.state.wait(attempts, &self.shared.common.retry);
    }

    fn retry(&self) -> &Retry {
        &self.shared.common.retry
    }
}

impl<R: Redo> Grouped for HekatonWorker<R> {
    fn begin_group<P: Procedure>(&mut self, group: &[P]) {
        self.end_leaked();
        self.local.hold();
        let Self { local, state, shared } = self;
        let guard = local.pin();
        // SAFETY: the worker is held until the group is done, and the group's transactions do not renew their guards.
        unsafe { state.tables.renew(&shared.catalog) };
        state.hints.gather(&state.tables[..], group, &guard);
    }

    fn put_in_force(&mut self, position: usize) {
        self.state.hints.put_in_force(position);
    }

    fn end_group(&mut self) {
        self.state.hints.clear();
        self.local.release();
    }
}

impl<R: Redo> Drop for HekatonWorker<R> {
    fn drop(&mut self) {
        self.end_leaked();
        let guard = self.local.pin();
        self.state.collector.leave(&self.shared.orphans, &guard);
        drop(guard);
        self.shared.counters.leave(&self.state.counters);
    }
}
