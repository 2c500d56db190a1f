//! A worker: a slot in the epochs, pools, and the sets that its transactions use one after the other.

use std::sync::Arc;

use polychron_base::{Abort, Error};
use polychron_engine::catalog::Seen;
use polychron_engine::contested::{CONFLICTS_UNFAVOURED, Contested};
use polychron_engine::drive::RandomWait;
use polychron_engine::options::Retry;
use polychron_engine::redo::{NoRedo, Redo};
use polychron_engine::stores::{Fingers, Grouped, Hints, execute_grouped};
use polychron_engine::{Counters, Interactive, Mode, Procedure, Savepoints, Worker, drive};
use polychron_memory::{Guard, Local};
use polychron_sync::atomic::Ordering;

use super::aside::ShownSets;
use super::nested::Nested;
use super::protocol::Shared;
use super::reclaim::Reclaimer;
use super::record::Tid;
use super::table::{Known, MaflingoTable};
use super::transaction::{Buffers, MaflingoTransaction};
use super::versions::Pruner;

/// Tombstones taken out after each transaction, beside as many as it wrote itself.
const RECLAIM_STEP: usize = 4;

/// One thread's way into the database.
#[derive(Debug)]
pub struct MaflingoWorker<R: Redo = NoRedo> {
    pub(super) local: Local,
    pub(super) state: State,
    pub(super) shared: Arc<Shared<R>>,
}

/// What a worker keeps from one transaction to the next.
#[derive(Debug)]
pub(super) struct State {
    pub(super) sets: ShownSets,
    pub(super) buffers: Buffers,
    pub(super) hints: Hints,
    pub(super) fingers: Fingers,
    pub(super) savepoints: Savepoints,
    pub(super) reclaimer: Reclaimer,
    pub(super) pruner: Pruner,
    pub(super) tables: Seen<MaflingoTable>,
    pub(super) last_tid: Tid,
    pub(super) last_abort: Option<Abort>,
    pub(super) counters: Arc<Counters>,
    pub(super) worker: usize,
    /// Whether a transaction has begun and not ended: none runs when the worker begins the next, so that one was leaked.
    pub(super) open: bool,
    pub(super) nested: Nested,
    pub(super) contested: Contested,
    back_off: RandomWait,
}

impl State {
    /// Waits before the next attempt of a transaction.
    fn wait<R: Redo>(&mut self, attempts: u64, shared: &Shared<R>) {
        if !self.contested.wait(&shared.favour, self.worker, attempts, CONFLICTS_UNFAVOURED) {
            self.back_off.wait(attempts, &shared.common.retry);
        }
    }

    /// The newest epoch of what was read since there were so many reads.
    pub(super) fn newest_read(&self, since: usize) -> u64 {
        self.sets.reads[since..].iter().map(|read| read.tid.epoch()).max().unwrap_or(0)
    }

    /// Has snapshots contain that, whatever becomes of the transaction.
    pub(super) fn note_reads(&mut self, since: usize, database: u32) {
        let newest = self.newest_read(since);
        self.nested.has_read(database, newest);
    }

    /// Takes out what only a long snapshot's being open keeps, and no snapshot sees.
    #[cold]
    fn prune(&mut self, guard: &Guard<'_>) {
        let Self { pruner, reclaimer, tables, .. } = self;
        if pruner.is_empty() && !reclaimer.has_fresh() {
            return;
        }
        pruner.pass(tables, false, guard, |view| reclaimer.step_between(tables, false, view, guard));
    }
}

impl<R: Redo> MaflingoWorker<R> {
    pub(super) fn new(shared: &Arc<Shared<R>>) -> Result<Self, Error> {
        Ok(Self::over(shared.memory.register()?, shared))
    }

    /// A worker for the database's own transactions.
    pub(super) fn own(shared: &Arc<Shared<R>>) -> Result<Self, Error> {
        Ok(Self::over(shared.memory.register_own()?, shared))
    }

    fn over(mut local: Local, shared: &Arc<Shared<R>>) -> Self {
        let worker = local.worker_id().position();
        let state = State {
            sets: ShownSets::of(&mut local),
            buffers: Buffers::default(),
            hints: Hints::default(),
            fingers: Fingers::default(),
            savepoints: Savepoints::default(),
            reclaimer: Reclaimer::default(),
            pruner: Pruner::default(),
            tables: Seen::default(),
            last_tid: Tid::ZERO,
            last_abort: None,
            counters: shared.counters.register(),
            worker,
            open: false,
            nested: Nested::default(),
            contested: Contested::default(),
            back_off: RandomWait::new(worker),
        };
        Self { local, state, shared: Arc::clone(shared) }
    }
}

impl<R: Redo> MaflingoWorker<R> {
    /// Undoes a transaction that was leaked: nothing of it may commit, and what it holds may not stay held.
    #[inline]
    fn end_leaked(&mut self) {
        if self.state.open {
            self.end_leaked_slowly();
        }
    }

    #[cold]
    fn end_leaked_slowly(&mut self) {
        // Where there is something to undo, the leaked guard still holds the epoch of its records and tables.
        let guard = self.local.pin();
        self.state.note_reads(0, self.shared.catalog.number());
        self.state.undo_writes(0, &guard);
        drop(guard);
        self.state.sets.clear();
        self.state.unlatch_rows();
        self.state.contested.end(&self.shared.favour);
        self.state.open = false;
        self.local.end_leaked();
    }
}

impl<R: Redo> Worker for MaflingoWorker<R> {
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
        let mut more = true;
        while more {
            let guard = self.local.pin();
            // SAFETY: pinned just before; nobody looks at the list between transactions but who renews it like this.
            unsafe { self.state.tables.renew(&self.shared.catalog) };
            if !self.state.pruner.is_empty() {
                self.state.pruner.pass(&self.state.tables, true, &guard, |_| {});
            }
            more = self.state.reclaimer.drain(&self.shared.orphans, &self.state.tables, &guard);
        }
        self.local.collect();
    }
}

impl<R: Redo> Interactive for MaflingoWorker<R> {
    type Transaction<'w> = MaflingoTransaction<'w, R>;

    #[inline]
    fn begin(&mut self, mode: Mode) -> Result<Self::Transaction<'_>, Error> {
        self.end_leaked();
        let Self { local, state, shared } = self;
        // What a group of procedures has looked up holds as long as the group.
        if local.is_held() {
            state.hints.rewind()
        } else {
            state.hints.clear()
        }
        if local.is_epoch_overdue() {
            shared.memory.epochs().advance();
        }
        let open = (mode == Mode::Snapshot && shared.options.snapshots).then(|| {
            let newest = state.nested.newest(shared.catalog.number());
            if shared.options.own_commits && shared.memory.epochs().past() < newest {
                shared.wait_until_past(newest);
            }
            // Opened before the list of tables is looked at, which it keeps while the transaction leaves its epoch.
            local.begin_snapshot()
        });
        // Pinned first: who waits for the transactions that know an old catalog waits for their epochs.
        let guard = local.pin();
        // SAFETY: the transaction holds the guard until its end, or has the snapshot, which was opened before.
        unsafe { state.tables.renew(&shared.catalog) };
        state.nested.begin(|| shared.moved_after[state.worker].store(state.last_tid.0, Ordering::Relaxed));
        state.reclaimer.step(&state.tables, RECLAIM_STEP, &guard);
        if state.pruner.is_due(&guard) {
            state.prune(&guard);
        }
        Ok(MaflingoTransaction::new(shared, state, guard, open, mode))
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
        self.state.wait(attempts, &self.shared);
    }

    fn retry(&self) -> &Retry {
        &self.shared.common.retry
    }
}

impl<R: Redo> Grouped for MaflingoWorker<R> {
    fn begin_group<P: Procedure>(&mut self, group: &[P]) {
        self.end_leaked();
        self.local.hold();
        let Self { local, state, shared } = self;
        let guard = local.pin();
        // SAFETY: the worker is held until the group is done, and the group's transactions do not renew their guards.
        unsafe { state.tables.renew(&shared.catalog) };
        state.hints.gather(&Known(&state.tables), group, &guard);
    }

    fn put_in_force(&mut self, position: usize) {
        self.state.hints.put_in_force(position);
    }

    fn end_group(&mut self) {
        self.state.hints.clear();
        self.local.release();
    }
}

impl<R: Redo> Drop for MaflingoWorker<R> {
    fn drop(&mut self) {
        self.end_leaked();
        self.state.contested.end(&self.shared.favour);
        self.state.pruner.leave(&self.local.pin());
        self.state.reclaimer.leave(&self.shared.orphans);
        self.shared.counters.leave(&self.state.counters);
    }
}
