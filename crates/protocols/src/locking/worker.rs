//! A worker: asks a procedure for its keys, locks them in the global order, and runs it.

use std::sync::Arc;

use polychron_base::key::{EncodedKey, HashSeed};
use polychron_base::{Abort, Error, IndexId, Reason, TableId};
use polychron_engine::drive::RandomWait;
use polychron_engine::stores::{Base, IndexRef, StoreWorker, UndoLog, WorkerBase};
use polychron_engine::{Access, Declare, Mode, Procedure, drive};
use polychron_memory::Local;

use super::conditions::Conditions;
use super::held::{Held, Lock, Taken, Wanted};
use super::intervals::Id;
use super::locks::LockTable;
use super::options::CONFLICTS_UNAGED;
use super::protocol::Shared;
use super::ranges::InTheWay;
use super::rows::Undone;
use super::table::{Index, index_at, name_of};
use super::transaction::{Buffers, LockingTransaction};
use super::wounds::{SpinBudget, UNAGED};

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
    pub(super) base: WorkerBase<Index>,
    pub(super) buffers: Buffers,
    pub(super) log: UndoLog<IndexRef>,
    pub(super) held: Held,
    pub(super) conditions: Conditions,
    /// The ranges that the running transaction has locked.
    pub(super) ranges: Vec<(IndexRef, Id)>,
    /// Ranges that an insertion waits for.
    pub(super) in_the_way: Vec<InTheWay>,
    pub(super) wanted: Wanted,
    back_off: RandomWait,
    /// The age of the transaction before, if this one is its next attempt.
    age: Option<u64>,
}

/// Receives the keys that a procedure declares.
struct Naming<'n> {
    locks: &'n LockTable,
    wanted: &'n mut Wanted,
    hash_seed: HashSeed,
}

impl Declare for Naming<'_> {
    #[inline]
    fn key<K: EncodedKey>(&mut self, table: TableId, key: K, access: Access) {
        let name = name_of(IndexRef { table, index: IndexId::PRIMARY }, key, self.hash_seed);
        self.locks.prefetch(name);
        self.wanted.add(Lock { name, exclusive: access != Access::Read });
    }
}

impl LockingWorker {
    pub(super) fn new(local: Local, shared: &Arc<Shared>) -> Self {
        let base = WorkerBase::new(shared, &local);
        let back_off = RandomWait::new(base.slot);
        let mut held = Held::new(&shared.locks);
        held.own.belong_to(&local);
        let state = State {
            base,
            buffers: Buffers::default(),
            log: UndoLog::default(),
            held,
            conditions: Conditions::new(&shared.locks),
            ranges: Vec::new(),
            in_the_way: Vec::new(),
            wanted: Wanted::default(),
            back_off,
            age: None,
        };
        Self { local, state, shared: Arc::clone(shared) }
    }
}

impl State {
    /// Takes what is wanted, waiting, in the order of names. `false`: the transaction was wounded meanwhile.
    ///
    /// What another transaction of the same thread holds is left out, and what others do not give back to a transaction inside of another one:
    /// the procedure is told if it asks for it.
    fn take_wanted(&mut self) -> bool {
        let Self { wanted, held, .. } = self;
        let spin_budget = match held.own.spin_budget() {
            SpinBudget::Refuse => SpinBudget::Queue,
            spin_budget => spin_budget,
        };
        wanted.in_order().iter().all(|&lock| held.take(lock, spin_budget, |wait| wait()) != Taken::Refused)
    }

    /// Gives back all that is locked.
    #[inline]
    pub(super) fn release(&mut self, shared: &Shared) {
        for (place, range) in self.ranges.drain(..) {
            index_at(&self.base.tables, place).ranges.release(range);
        }
        if shared.policy.has_conditions() {
            self.conditions.release();
        }
        self.held.release();
    }
}

impl StoreWorker for LockingWorker {
    type Store = Index;
    type Transaction<'w> = LockingTransaction<'w>;

    /// No lock is needed to look a key up: indexes may be read by anyone, and the records are not read there.
    const HOLDS_GROUPS: bool = false;

    #[inline]
    fn parts(&self) -> (&Local, &WorkerBase<Index>, &Base<Index>) {
        (&self.local, &self.state.base, &self.shared)
    }

    #[inline]
    fn parts_mut(&mut self) -> (&mut Local, &mut WorkerBase<Index>, &Base<Index>) {
        (&mut self.local, &mut self.state.base, &self.shared)
    }

    /// Asks a procedure which keys it wants. One that panics here is given none, and panics again where it is caught and
    /// reported.
    #[inline]
    fn ask<P: Procedure>(&mut self, procedure: &P) {
        let wanted = &mut self.state.wanted;
        wanted.clear();
        if !self.shared.policy.is_in_order() {
            return;
        }
        let mut naming = Naming { locks: &self.shared.locks, wanted, hash_seed: self.shared.common.hash_seed };
        let asked = drive::catch(|| procedure.declare(&mut naming));
        if asked.is_err() {
            wanted.clear();
        }
        wanted.in_force = true;
    }

    /// Locks what a procedure declared just before, or what the attempt before had reached.
    #[inline]
    fn start(&mut self, mode: Mode) -> Result<LockingTransaction<'_>, Error> {
        let Self { local, state, shared, .. } = self;
        let owner = state.base.slot as u64;
        // Pinned first: who waits for the transactions that know an old catalog waits for their epochs.
        let mut guard = local.pin();
        // SAFETY: of the transaction, which leaves its epoch, the list is kept below, until it has ended.
        unsafe { state.base.tables.renew(&shared.catalog) };
        shared.kept.keep(owner as usize, &mut state.base.tables);
        // It looks at nothing before its first operation, and may wait for locks here.
        guard.stand_aside();
        let age = state.age.take().unwrap_or_else(|| if shared.policy.wounds() { shared.draw_age() } else { UNAGED });
        state.held.begin(age);
        debug_assert!(state.log.is_empty(), "the transaction before left something behind");
        state.base.begin();
        let doomed = state.wanted.in_force && !state.take_wanted();
        if doomed {
            let (table, index) = (TableId::default(), IndexId::PRIMARY);
            let opponent = state.held.own.opponent();
            state.base.last_abort = Some(Abort { reason: Reason::Wounded, table, index, key: None, opponent });
        } else {
            // Who was wounded will want the same again.
            state.wanted.clear();
        }
        let read_only = mode == Mode::Snapshot;
        Ok(LockingTransaction { shared, state, guard, owner, read_only, doomed, asks_secondary: false })
    }

    /// Others may have met its requests, which lie here.
    fn undo_leaked(&mut self) {
        let Self { local, state, shared, .. } = self;
        let guard = local.pin();
        // The tables are those that the leaked transaction has seen: they are kept as long as its guard is.
        state.log.undo_to(0, &Undone(&state.base.tables), &guard);
        drop(guard);
        state.release(shared);
    }

    /// The next attempt takes beforehand what this one had reached. One that has conflicted several times gets an age, and keeps it until
    /// it commits, so that it comes first in the end; before, it waits for a random time.
    fn wait(&mut self, attempts: u64) {
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

    fn maintain_stores(&mut self) {
        self.local.collect();
        self.shared.deferred_drops.maintain(&self.shared.catalog, self.shared.memory.epochs());
    }
}

impl Drop for LockingWorker {
    fn drop(&mut self) {
        self.end_leaked();
        self.shared.kept.let_go(self.state.base.slot, &mut self.state.base.tables);
    }
}
