//! A worker: a slot in the clock and in the epochs, pools, and the memory that its transactions use one after the other.

use std::sync::Arc;

use polychron_base::{Abort, Error};
use polychron_engine::catalog::Seen;
use polychron_engine::contested::{CONFLICTS_UNFAVOURED, Contested, Favour};
use polychron_engine::drive::RandomWait;
use polychron_engine::mutations::pass;
use polychron_engine::nested::Nested;
use polychron_engine::options::Retry;
use polychron_engine::redo::{NoRedo, Redo};
use polychron_engine::stores::{Fingers, Grouped, Hints, execute_grouped};
use polychron_engine::{Counters, Interactive, Mode, Procedure, Savepoints, Worker, drive};
use polychron_memory::Local;

use super::clock::{Clock, Held};
use super::collect::{Collector, Site};
use super::commit::Validation;
use super::predicates::PredicateLog;
use super::protocol::Shared;
use super::steps::Point;
use super::table::{HyperTable, Located};
use super::transaction::{Buffers, HyperTransaction};
use super::undo::Writing;

/// Images that a worker sees to at once that has nothing else to do.
const TIDIED_AT_ONCE: usize = 1 << 12;

/// One thread's way into the database.
#[derive(Debug)]
pub struct HyperWorker<R: Redo = NoRedo> {
    local: Local,
    state: State,
    shared: Arc<Shared<R>>,
}

/// What a worker keeps from one transaction to the next.
#[derive(Debug)]
pub(super) struct State {
    pub(super) log: PredicateLog,
    pub(super) writing: Writing,
    pub(super) validation: Validation,
    pub(super) held: Held,
    pub(super) buffers: Buffers,
    pub(super) hints: Hints,
    pub(super) fingers: Fingers,
    pub(super) savepoints: Savepoints,
    pub(super) nested: Nested,
    pub(super) collector: Collector,
    pub(super) tables: Seen<HyperTable>,
    pub(super) slot: usize,
    /// The latest commit that this worker has met.
    pub(super) known: u64,
    /// Which of the worker's transactions runs.
    pub(super) generation: u64,
    /// Whether a transaction has begun and not ended. Between two transactions it tells that one was leaked.
    pub(super) is_open: bool,
    pub(super) last_abort: Option<Abort>,
    pub(super) counters: Arc<Counters>,
    pub(super) met: Option<Met>,
    pub(super) contested: Contested,
    back_off: RandomWait,
}

/// A conflict with another transaction that the same thread has open.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) id: u64,
    /// The answer to whoever tries again.
    pub(super) error: Error,
    /// Whether the next transaction is another attempt.
    pub(super) again: bool,
}

impl State {
    /// Waits before another attempt, which is useless where that must meet a transaction of the same thread again.
    fn wait(&mut self, attempts: u64, favour: &Favour, retry: &Retry) {
        if let Some(met) = &mut self.met {
            met.again = true;
        } else if !self.contested.wait(favour, self.slot, attempts, CONFLICTS_UNFAVOURED) {
            self.back_off.wait(attempts, retry);
        }
    }

    /// Refuses another attempt that would meet an open transaction of the same thread again.
    #[cold]
    fn meet_again(&mut self, clock: &Clock) -> Result<(), Error> {
        match self.met.take() {
            Some(met) if met.again && clock.is_open_here(met.id) => Err(met.error),
            _ => Ok(()),
        }
    }
}

impl<R: Redo> HyperWorker<R> {
    pub(super) fn new(shared: &Arc<Shared<R>>) -> Result<Self, Error> {
        Ok(Self::over(shared.memory.register()?, shared))
    }

    /// A worker for the database's own transactions.
    pub(super) fn own(shared: &Arc<Shared<R>>) -> Result<Self, Error> {
        Ok(Self::over(shared.memory.register_own()?, shared))
    }

    fn over(local: Local, shared: &Arc<Shared<R>>) -> Self {
        let slot = local.worker_id().position();
        shared.clock.enter(slot);
        let state = State {
            log: PredicateLog::default(),
            writing: Writing::default(),
            validation: Validation::default(),
            held: Held::default(),
            buffers: Buffers::default(),
            hints: Hints::default(),
            fingers: Fingers::default(),
            savepoints: Savepoints::default(),
            nested: Nested::default(),
            collector: Collector::new(slot),
            tables: Seen::default(),
            slot,
            known: 0,
            generation: 0,
            is_open: false,
            last_abort: None,
            counters: shared.counters.register(),
            met: None,
            contested: Contested::default(),
            back_off: RandomWait::new(slot),
        };
        Self { local, state, shared: Arc::clone(shared) }
    }

    /// Undoes a transaction that was leaked: its writes stand in place, and its slot of the clock and its guard hold back what others collect.
    #[inline]
    fn end_leaked(&mut self) {
        if self.state.is_open {
            self.end_leaked_now();
        }
    }

    #[cold]
    fn end_leaked_now(&mut self) {
        let Self { local, state, shared } = self;
        // Its list of tables is kept, or under the leaked guard of a batch.
        drop(HyperTransaction::taken_over(shared, state, local.pin()));
        state.contested.end(&shared.favour);
        local.end_leaked();
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn pin(&self) -> polychron_memory::Guard<'_> {
        self.local.pin()
    }
}

impl<R: Redo> Worker for HyperWorker<R> {
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
        let State { collector, tables, held, slot, .. } = &mut self.state;
        // SAFETY: pinned just before; nobody looks at the list between transactions but who renews it like this.
        unsafe { tables.renew(&self.shared.catalog) };
        let clock = &self.shared.clock;
        loop {
            clock.held(held);
            let mut history = clock.history();
            let taken = collector.take_ready(held, &mut history, clock, TIDIED_AT_ONCE);
            if !taken {
                collector.sweep(&mut history, usize::MAX);
                collector.sweep_behind(&mut history, usize::MAX);
            }
            drop(history);
            let epochs = self.shared.memory.epochs();
            let (catalog, dropped, counts) = (&self.shared.catalog, &self.shared.dropped, &self.shared.counts[*slot]);
            collector.work(held, &Site { clock, tables, catalog, dropped, epochs, guard: &guard, counts });
            if !taken {
                break;
            }
        }
        drop(guard);
        self.shared.kept.let_old_go(self.state.slot, &mut self.state.tables, &self.shared.catalog);
        // What was collected just now waits for the end of this epoch, and this worker may be idle from now on.
        self.local.collect();
        self.shared.memory.epochs().advance();
        self.local.collect();
    }
}

impl<R: Redo> Interactive for HyperWorker<R> {
    type Transaction<'w> = HyperTransaction<'w, R>;

    #[inline]
    fn begin(&mut self, mode: Mode) -> Result<Self::Transaction<'_>, Error> {
        self.end_leaked();
        if self.local.was_refused() {
            // Else what the last transaction needed may wait for a commit, and no commit succeed without it.
            self.tidy_up();
        }
        let Self { local, state, shared } = self;
        if state.met.is_some() {
            state.meet_again(&shared.clock)?;
        }
        // What a group of procedures has looked up holds as long as the group.
        if local.is_held() {
            state.hints.rewind()
        } else {
            state.hints.clear()
        }
        // The exchange of a pin serves the clock, too.
        let is_pinned = local.is_pinned();
        shared.clock.note_thread(state.slot);
        if !is_pinned {
            shared.clock.announce(state.slot, state.known);
        }
        // Pinned first: who waits for the transactions that know an old catalog waits for their epochs.
        let guard = local.pin();
        // SAFETY: a batch holds the guard; of a transaction of its own, which leaves its epoch, the list is kept below, until it has ended.
        unsafe { state.tables.renew(&shared.catalog) };
        pass(Point::Beginning);
        let snapshot = mode == Mode::Snapshot;
        let start = match is_pinned {
            false => shared.clock.begin_behind_exchange(state.slot, snapshot),
            true => shared.clock.begin(state.slot, state.known, snapshot),
        };
        // Under this guard, since the transaction leaves its epoch. Whoever takes lists away sees the announcement.
        if !is_pinned {
            shared.kept.keep(state.slot, &mut state.tables);
        }
        Ok(HyperTransaction::new(shared, state, guard, start, snapshot))
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
        self.state.wait(attempts, &self.shared.favour, &self.shared.common.retry);
    }

    fn retry(&self) -> &Retry {
        &self.shared.common.retry
    }
}

impl<R: Redo> Grouped for HyperWorker<R> {
    fn begin_group<P: Procedure>(&mut self, group: &[P]) {
        self.end_leaked();
        self.local.hold();
        let Self { local, state, shared } = self;
        let guard = local.pin();
        // SAFETY: the worker is held until the group is done, and the group's transactions do not renew their guards.
        unsafe { state.tables.renew(&shared.catalog) };
        state.hints.gather(&Located(&state.tables), group, &guard);
    }

    fn put_in_force(&mut self, position: usize) {
        self.state.hints.put_in_force(position);
    }

    fn end_group(&mut self) {
        self.state.hints.clear();
        self.local.release();
    }
}

impl<R: Redo> Drop for HyperWorker<R> {
    fn drop(&mut self) {
        self.end_leaked();
        self.state.contested.end(&self.shared.favour);
        self.shared.kept.let_go(self.state.slot, &mut self.state.tables);
        self.shared.counters.leave(&self.state.counters);
    }
}
