//! A worker: asks a procedure for its keys, locks them in the global order, and runs it.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use polychron_base::key::EncodedKey;
use polychron_base::{Abort, Error, IndexId, TableId};
use polychron_engine::catalog::Seen;
use polychron_engine::drive::RandomWait;
use polychron_engine::options::Retry;
use polychron_engine::stores::{Fingers, Hints, Place, UndoLog, execute_in_groups};
use polychron_engine::{Access, Counters, Declare, Interactive, Mode, Procedure, Worker, drive};
use polychron_memory::Local;

use super::conditions::Conditions;
use super::held::{Held, Lock, Wanted, own_wait};
use super::locks::LockTable;
use super::options::Policy;
use super::protocol::Shared;
use super::table::{Declared, Table, name_of};
use super::transaction::{Buffers, LockingTransaction};
use super::wounds::Patience;

/// One thread's way into the database.
#[derive(Debug)]
pub struct LockingWorker<P: Policy> {
    pub(super) local: Local,
    pub(super) state: State,
    shared: Arc<Shared>,
    policy: PhantomData<P>,
}

/// What a worker keeps from one transaction to the next.
#[derive(Debug)]
pub(super) struct State {
    pub(super) buffers: Buffers,
    pub(super) log: UndoLog<Place>,
    pub(super) held: Held,
    pub(super) conditions: Conditions,
    /// The indexes in whose queues the running transaction has something.
    pub(super) ranges: Vec<Place>,
    pub(super) wanted: Wanted,
    pub(super) tables: Seen<Table>,
    pub(super) fingers: Fingers,
    pub(super) last_abort: Option<Abort>,
    pub(super) counters: Arc<Counters>,
    hints: Hints,
    back_off: RandomWait,
    /// The age of the transaction before, if this one is its next attempt.
    age: Option<u64>,
}

/// Receives the keys that a procedure declares.
struct Naming<'n> {
    locks: &'n LockTable,
    wanted: &'n mut Wanted,
}

impl Declare for Naming<'_> {
    #[inline]
    fn key<K: EncodedKey>(&mut self, table: TableId, key: K, access: Access) {
        let name = name_of(Place { table, index: IndexId::PRIMARY }, key);
        self.locks.prefetch(name);
        self.wanted.add(Lock { name, exclusive: access != Access::Read });
    }
}

impl<P: Policy> LockingWorker<P> {
    pub(super) fn new(local: Local, shared: &Arc<Shared>) -> Self {
        let back_off = RandomWait::new(local.worker_id().position());
        let state = State {
            buffers: Buffers::default(),
            log: UndoLog::default(),
            held: Held::default(),
            conditions: Conditions::default(),
            ranges: Vec::new(),
            wanted: Wanted::default(),
            tables: Seen::default(),
            fingers: Fingers::default(),
            last_abort: None,
            counters: shared.counters.register(),
            hints: Hints::default(),
            back_off,
            age: None,
        };
        Self { local, state, shared: Arc::clone(shared), policy: PhantomData }
    }

    /// Asks a procedure which keys it wants. One that panics here is given none, and panics again where it is caught and
    /// reported.
    #[inline]
    fn ask<Q: Procedure>(&mut self, procedure: &Q) {
        let wanted = &mut self.state.wanted;
        wanted.clear();
        if !P::IN_ORDER {
            return;
        }
        let mut naming = Naming { locks: &self.shared.locks, wanted };
        let asked = catch_unwind(AssertUnwindSafe(|| procedure.declare(&mut naming)));
        if asked.is_err() {
            wanted.clear();
        }
        wanted.in_force = true;
    }
}

/// Takes what is wanted, waiting: ranges and insertions index by index, then keys by their names.
fn take_wanted(state: &mut State, shared: &Shared, owner: u64) -> Result<(), Error> {
    let State { wanted, held, ranges, tables, .. } = state;
    let asker = held.own.asker();
    for wishes in wanted.wishes() {
        let place = wishes[0].0;
        // An index that was dropped meanwhile has nothing to wait for.
        let Some(Some(table)) = tables.get(place.table.position()) else { continue };
        let Ok(index) = table.store(place.index) else { continue };
        ranges.push(place);
        if !index.ranges.wait_for(owner, asker, wishes.iter().map(|(_, wish)| wish)) {
            return Err(own_wait());
        }
    }
    for &lock in wanted.in_order() {
        held.take(&shared.locks, lock, Patience::Queue)?;
    }
    Ok(())
}

impl<P: Policy> Worker for LockingWorker<P> {
    fn execute<Q: Procedure>(&mut self, procedure: &mut Q) -> Result<Q::Output, Error> {
        self.ask(procedure);
        drive::execute(self, Mode::ReadWrite, procedure)
    }

    fn execute_batch<Q: Procedure>(
        &mut self,
        procedures: &mut [Q],
        done: &mut impl FnMut(usize, Result<Q::Output, Error>),
    ) {
        execute_in_groups(self, procedures, done, |worker, group| {
            // No lock is needed: indexes may be read by anyone, and the records are not read here.
            let State { hints, tables, .. } = &mut worker.state;
            let guard = worker.local.pin();
            // SAFETY: the guard stays while the keys are walked.
            unsafe { tables.renew(&worker.shared.catalog) };
            hints.gather(&Declared(tables), group, &guard);
        });
    }

    fn snapshot<Q: Procedure>(&mut self, procedure: &mut Q) -> Result<Q::Output, Error> {
        self.ask(procedure);
        drive::execute(self, Mode::Snapshot, procedure)
    }

    fn counters(&self) -> &Counters {
        &self.state.counters
    }

    fn tidy_up(&mut self) {
        self.local.collect();
        self.shared.keeper.tidy_up(&self.shared.catalog, self.shared.memory.epochs());
    }
}

impl<P: Policy> Interactive for LockingWorker<P> {
    type Transaction<'w> = LockingTransaction<'w, P>;

    /// Locks what a procedure declared just before, or what the attempt before had reached.
    #[inline]
    fn begin(&mut self, mode: Mode) -> Result<LockingTransaction<'_, P>, Error> {
        let Self { local, state, shared, .. } = self;
        let owner = local.worker_id().position() as u64;
        // Pinned first: who waits for the transactions that know an old catalog waits for their epochs.
        let guard = local.pin();
        // SAFETY: the transaction holds the guard, and never renews it.
        unsafe { state.tables.renew(&shared.catalog) };
        state.fingers.clear();
        let age = if P::WOUNDS { state.age.take().unwrap_or_else(|| shared.draw_age()) } else { 0 };
        state.held.begin(age);
        debug_assert!(state.log.is_empty(), "the transaction before left something behind");
        let taken = if state.wanted.in_force { take_wanted(state, shared, owner) } else { Ok(()) };
        state.wanted.clear();
        let read_only = mode == Mode::Snapshot;
        // Where something could not be taken, dropping it gives the rest back.
        let transaction =
            LockingTransaction { shared, state, guard, owner, read_only, doomed: false, policy: PhantomData };
        taken.map(|()| transaction)
    }

    fn last_abort(&self) -> Option<Abort> {
        self.state.last_abort
    }

    /// The next attempt takes beforehand what this one had reached, or is as old as this one was; where that does not help, it waits
    /// for a random time below a bound that doubles with each conflict in a row.
    fn back_off(&mut self, attempts: u64) {
        let state = &mut self.state;
        state.wanted.in_force = P::IN_ORDER;
        if P::WOUNDS {
            state.age = Some(state.held.own.age());
        }
        if (P::IN_ORDER || P::WOUNDS) && attempts < 4 {
            return;
        }
        state.back_off.wait(attempts, &self.shared.common.retry);
    }

    fn retry(&self) -> &Retry {
        &self.shared.common.retry
    }
}

impl<P: Policy> Drop for LockingWorker<P> {
    fn drop(&mut self) {
        self.shared.counters.leave(&self.state.counters);
    }
}
