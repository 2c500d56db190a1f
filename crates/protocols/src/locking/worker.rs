//! A worker: collects the keys that a procedure declares, locks them in the global order, and runs it.

use std::sync::Arc;

use polychron_base::key::{EncodedKey, HashSeed};
use polychron_base::{Abort, Error, IndexId, Reason, TableId};
use polychron_engine::stores::{IndexRef, StoreWorker, WorkerBase};
use polychron_engine::{Access, Declare, Mode, Procedure, drive};
use polychron_memory::Local;

use super::conditions::Conditions;
use super::held::{Lock, Taken, Wanted};
use super::intervals::Id;
use super::locks::LockTable;
use super::options::CONFLICTS_UNAGED;
use super::protocol::Shared;
use super::ranges::Conflicting;
use super::records::{Records, WorkerRecords};
use super::table::{Index, index_at, name_of};
use super::transaction::{Buffers, LockingTransaction};
use super::wounds::{SpinBudget, UNAGED};

/// One thread's way into the database.
#[derive(Debug)]
pub struct LockingWorker {
    pub(super) local: Local,
    pub(super) state: State,
    pub(super) records: WorkerRecords,
    shared: Arc<Shared>,
}

/// What a worker keeps from one transaction to the next.
#[derive(Debug)]
pub(super) struct State {
    pub(super) base: WorkerBase<Index>,
    pub(super) buffers: Buffers,
    pub(super) conditions: Conditions,
    /// The ranges that the running transaction has locked.
    pub(super) ranges: Vec<(IndexRef, Id)>,
    /// Ranges that an insertion waits for.
    pub(super) conflicting: Vec<Conflicting>,
    pub(super) wanted: Wanted,
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
        let base = WorkerBase::new(&shared.base, &local);
        let records = WorkerRecords::new(&shared.locks, &local);
        let state = State {
            base,
            buffers: Buffers::default(),
            conditions: Conditions::new(&shared.locks),
            ranges: Vec::new(),
            conflicting: Vec::new(),
            wanted: Wanted::default(),
            age: None,
        };
        Self { local, state, records, shared: Arc::clone(shared) }
    }
}

impl State {
    /// Acquires the wanted locks, waiting, in the order of names. `false`: the transaction was wounded meanwhile.
    ///
    /// What another transaction of the same thread holds is left out, and what others do not release for a transaction inside of another one:
    /// the procedure gets an error if it needs that.
    fn acquire_wanted(&mut self, records: &mut Records<'_>) -> bool {
        let spin_budget = match records.held().own.spin_budget() {
            SpinBudget::Refuse => SpinBudget::Queue,
            spin_budget => spin_budget,
        };
        self.wanted.in_order().iter().all(|&lock| records.acquire_aside(lock, spin_budget) != Taken::Refused)
    }

    /// Releases the ranges and the conditions.
    #[inline]
    pub(super) fn release(&mut self, shared: &Shared) {
        for (index_ref, range) in self.ranges.drain(..) {
            index_at(&self.base.tables, index_ref).ranges.release(range);
        }
        if shared.policy.has_conditions() {
            self.conditions.release();
        }
    }
}

impl StoreWorker for LockingWorker {
    type Store = Index;
    type Transaction<'w> = LockingTransaction<'w>;

    /// No lock is needed to look a key up: indexes may be read by anyone, and the records are not read there.
    const HOLDS_GROUPS: bool = false;

    polychron_engine::worker_parts!(shared.base);

    /// Collects the keys that a procedure declares. One that panics here gets no locks beforehand, and panics again where that is caught and reported.
    #[inline]
    fn ask<P: Procedure>(&mut self, procedure: &P) {
        let wanted = &mut self.state.wanted;
        wanted.clear();
        if !self.shared.policy.is_in_order() {
            return;
        }
        let mut naming = Naming { locks: &self.shared.locks, wanted, hash_seed: self.shared.base.common.hash_seed };
        let asked = drive::catch(|| procedure.declare(&mut naming));
        if asked.is_err() {
            wanted.clear();
        }
        wanted.in_force = true;
    }

    /// Locks what a procedure declared just before, or what the attempt before had reached.
    #[inline]
    fn start(&mut self, mode: Mode) -> Result<LockingTransaction<'_>, Error> {
        let Self { local, state, records, shared } = self;
        // It looks at nothing before its first operation, and may wait for locks here.
        let mut records = records.begin(local, &mut state.base, shared);
        let age = state.age.take().unwrap_or_else(|| if shared.policy.wounds() { shared.draw_age() } else { UNAGED });
        records.begin_aged(age);
        let doomed = state.wanted.in_force && !state.acquire_wanted(&mut records);
        if doomed {
            let (table, index) = (TableId::default(), IndexId::PRIMARY);
            let opponent = records.held().own.opponent();
            state.base.last_abort = Some(Abort { reason: Reason::Wounded, table, index, key: None, opponent });
        } else {
            // A transaction that was wounded will need the same again.
            state.wanted.clear();
        }
        let (owner, read_only) = (state.base.slot as u64, mode == Mode::Snapshot);
        Ok(LockingTransaction {
            shared,
            state,
            records,
            owner,
            read_only,
            doomed,
            has_read_secondary: false,
            has_ended: false,
        })
    }

    /// Others may have found its requests in lists, which lie in this worker's memory.
    fn undo_leaked(&mut self) {
        let Self { local, state, records, shared } = self;
        records.undo_leaked(local, &state.base.tables);
        state.release(shared);
        records.release();
    }

    /// The next attempt locks beforehand what this one had reached. A transaction that has conflicted several times gets an age, and keeps it until
    /// it commits, so that it is the oldest in the end; before, it waits for a random time.
    fn wait(&mut self, attempts: u64) {
        let state = &mut self.state;
        state.wanted.in_force = self.shared.policy.is_in_order();
        let age = self.records.held().own.age();
        if age != UNAGED {
            state.age = Some(age);
        } else if attempts >= CONFLICTS_UNAGED {
            state.age = Some(self.shared.draw_age());
        } else {
            state.base.back_off.wait(attempts, &self.shared.base.common.retry);
        }
    }
}

impl Drop for LockingWorker {
    fn drop(&mut self) {
        self.end_leaked();
        self.shared.kept.let_go(self.state.base.slot, &mut self.state.base.tables);
    }
}
