//! A worker: asks a procedure for its keys, locks them in the global order, and runs it.

use std::sync::Arc;

use polychron_base::key::EncodedKey;
use polychron_base::{Abort, Error, IndexId, Reason, TableId};
use polychron_engine::catalog::Seen;
use polychron_engine::drive::RandomWait;
use polychron_engine::options::Retry;
use polychron_engine::stores::{Fingers, Hints, Place, UndoLog, execute_in_groups};
use polychron_engine::{Access, Counters, Declare, Interactive, Mode, Procedure, Savepoints, Worker, drive};
use polychron_memory::Local;

use super::conditions::Conditions;
use super::held::{Held, Lock, Taken, Wanted};
use super::intervals::Id;
use super::locks::LockTable;
use super::options::CONFLICTS_UNAGED;
use super::protocol::Shared;
use super::ranges::InTheWay;
use super::table::{Declared, Table, Undone, index_at, name_of};
use super::transaction::{Buffers, LockingTransaction};
use super::wounds::{Patience, UNAGED};

/// One thread's way into the database.
#[derive(Debug)]
pub struct LockingWorker {
    pub(super) local: Local,
    pub(super) state: State,
    shared: Arc<Shared>,
}

/// What a worker keeps from one transaction to the next.
#[derive(Debug)]
pub(super) struct State {
    pub(super) buffers: Buffers,
    pub(super) log: UndoLog<Place>,
    pub(super) savepoints: Savepoints,
    pub(super) held: Held,
    pub(super) conditions: Conditions,
    /// The ranges that the running transaction has locked.
    pub(super) ranges: Vec<(Place, Id)>,
    /// Ranges that an insertion waits for.
    pub(super) in_the_way: Vec<InTheWay>,
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

impl LockingWorker {
    pub(super) fn new(local: Local, shared: &Arc<Shared>) -> Self {
        let back_off = RandomWait::new(local.worker_id().position());
        let mut held = Held::default();
        held.own.belong_to(&local);
        let state = State {
            buffers: Buffers::default(),
            log: UndoLog::default(),
            savepoints: Savepoints::default(),
            held,
            conditions: Conditions::default(),
            ranges: Vec::new(),
            in_the_way: Vec::new(),
            wanted: Wanted::default(),
            tables: Seen::default(),
            fingers: Fingers::default(),
            last_abort: None,
            counters: shared.counters.register(),
            hints: Hints::default(),
            back_off,
            age: None,
        };
        Self { local, state, shared: Arc::clone(shared) }
    }

    /// Asks a procedure which keys it wants. One that panics here is given none, and panics again where it is caught and
    /// reported.
    #[inline]
    fn ask<Q: Procedure>(&mut self, procedure: &Q) {
        let wanted = &mut self.state.wanted;
        wanted.clear();
        if !self.shared.policy.is_in_order() {
            return;
        }
        let mut naming = Naming { locks: &self.shared.locks, wanted };
        let asked = drive::catch(|| procedure.declare(&mut naming));
        if asked.is_err() {
            wanted.clear();
        }
        wanted.in_force = true;
    }
}

impl State {
    /// Takes what is wanted, waiting, in the order of names. `false`: the transaction was wounded meanwhile.
    ///
    /// What another transaction of the same thread holds is left out, and what others do not give back to a transaction inside of another one:
    /// the procedure is told if it asks for it.
    fn take_wanted(&mut self, locks: &LockTable) -> bool {
        let Self { wanted, held, .. } = self;
        let patience = match held.own.patience() {
            Patience::Refuse => Patience::Queue,
            patience => patience,
        };
        wanted.in_order().iter().all(|&lock| held.take(locks, lock, patience, |wait| wait()) != Taken::Refused)
    }

    /// Gives back all that is locked.
    #[inline]
    pub(super) fn release(&mut self, shared: &Shared) {
        for (place, range) in self.ranges.drain(..) {
            index_at(&self.tables, place).ranges.release(range);
        }
        if shared.policy.has_conditions() {
            self.conditions.release(&shared.locks);
        }
        self.held.release(&shared.locks);
    }
}

impl LockingWorker {
    /// Rolls back a transaction that was leaked, and gives back what it holds. Others may have met its requests, which lie here.
    #[cold]
    fn end_leaked(&mut self) {
        let Self { local, state, shared, .. } = self;
        let guard = local.pin();
        // The tables are those that the leaked transaction has seen: they are kept as long as its guard is.
        state.log.undo_to(0, &Undone(&state.tables), &guard);
        drop(guard);
        state.release(shared);
        local.end_leaked();
    }
}

impl Worker for LockingWorker {
    fn execute<Q: Procedure>(&mut self, procedure: &mut Q) -> Result<Q::Output, Error> {
        self.ask(procedure);
        drive::execute(self, Mode::ReadWrite, procedure)
    }

    fn execute_batch<Q: Procedure>(
        &mut self,
        procedures: &mut [Q],
        done: &mut impl FnMut(usize, Result<Q::Output, Error>),
    ) {
        if self.local.is_pinned() {
            self.end_leaked();
        }
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
        if self.local.is_pinned() {
            self.end_leaked();
        }
        self.local.collect();
        self.shared.keeper.tidy_up(&self.shared.catalog, self.shared.memory.epochs());
    }
}

impl Interactive for LockingWorker {
    type Transaction<'w> = LockingTransaction<'w>;

    /// Locks what a procedure declared just before, or what the attempt before had reached.
    #[inline]
    fn begin(&mut self, mode: Mode) -> Result<LockingTransaction<'_>, Error> {
        if self.local.is_pinned() {
            self.end_leaked();
        }
        let Self { local, state, shared, .. } = self;
        let owner = local.worker_id().position() as u64;
        // Pinned first: who waits for the transactions that know an old catalog waits for their epochs.
        let mut guard = local.pin();
        // SAFETY: of the transaction, which leaves its epoch, the list is kept below, until it has ended.
        unsafe { state.tables.renew(&shared.catalog) };
        shared.kept.keep(owner as usize, &mut state.tables);
        state.fingers.clear();
        // It looks at nothing before its first operation, and may wait for locks here.
        guard.stand_aside();
        let age = state.age.take().unwrap_or_else(|| if shared.policy.wounds() { shared.draw_age() } else { UNAGED });
        state.held.begin(age);
        debug_assert!(state.log.is_empty(), "the transaction before left something behind");
        state.savepoints.clear();
        let doomed = state.wanted.in_force && !state.take_wanted(&shared.locks);
        if doomed {
            let (table, index) = (TableId::default(), IndexId::PRIMARY);
            state.last_abort = Some(Abort { reason: Reason::Wounded, table, index, key: None });
        } else {
            // Who was wounded will want the same again.
            state.wanted.clear();
        }
        let read_only = mode == Mode::Snapshot;
        Ok(LockingTransaction { shared, state, guard, owner, read_only, doomed, asks_secondary: false })
    }

    fn last_abort(&self) -> Option<Abort> {
        self.state.last_abort
    }

    fn is_nested(&self) -> bool {
        self.local.is_nested()
    }

    /// The next attempt takes beforehand what this one had reached. One that has conflicted several times gets an age, and keeps it until
    /// it commits, so that it comes first in the end; before, it waits for a random time.
    fn back_off(&mut self, attempts: u64) {
        let state = &mut self.state;
        state.wanted.in_force = self.shared.policy.is_in_order();
        let age = state.held.own.age();
        if age != UNAGED {
            state.age = Some(age);
        } else if attempts >= CONFLICTS_UNAGED {
            state.age = Some(self.shared.draw_age());
        } else {
            state.back_off.wait(attempts, &self.shared.common.retry);
        }
    }

    fn retry(&self) -> &Retry {
        &self.shared.common.retry
    }
}

impl Drop for LockingWorker {
    fn drop(&mut self) {
        if self.local.is_pinned() {
            self.end_leaked();
        }
        self.shared.kept.let_go(self.local.worker_id().position(), &mut self.state.tables);
        self.shared.counters.leave(&self.state.counters);
    }
}
