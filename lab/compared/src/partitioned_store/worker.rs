//! A worker: asks a procedure for its partitions, takes their locks, and runs it.

use std::sync::Arc;

use polychron_base::key::EncodedKey;
use polychron_base::{Abort, Error, TableId};
use polychron_engine::catalog::Seen;
use polychron_engine::mutations::left_out;
use polychron_engine::options::Retry;
use polychron_engine::stores::{Hints, UndoLog, execute_in_groups};
use polychron_engine::{Access, Counters, Declare, Interactive, Mode, Procedure, Savepoints, Worker, drive};
use polychron_memory::Local;

use super::locks::{Locks, Partitions};
use super::protocol::PartitionedStore;
use super::steps::Step;
use super::table::{Declared, Entry, Table};
use super::transaction::{Buffers, PartitionedTransaction};

/// One thread's way into the database.
#[derive(Debug)]
pub struct PartitionedWorker {
    pub(super) local: Local,
    pub(super) state: State,
    database: Arc<PartitionedStore>,
}

/// What a worker keeps from one transaction to the next.
#[derive(Debug)]
pub(super) struct State {
    pub(super) buffers: Buffers,
    pub(super) log: UndoLog<Entry>,
    pub(super) savepoints: Savepoints,
    /// Between transactions: what the next one wants. In a transaction: what it holds.
    pub(super) partitions: Partitions,
    pub(super) tables: Seen<Table>,
    hints: Hints,
    counters: Arc<Counters>,
}

/// Receives the partitions that a procedure names.
struct Naming<'p> {
    locks: &'p Locks,
    partitions: &'p mut Partitions,
}

impl Declare for Naming<'_> {
    #[inline]
    fn key<K: EncodedKey>(&mut self, _: TableId, _: K, _: Access) {}

    #[inline]
    fn partition(&mut self, partition: u64) {
        self.partitions.name(self.locks.partition_of(partition));
    }
}

impl PartitionedWorker {
    pub(super) fn new(database: &Arc<PartitionedStore>) -> Result<Self, Error> {
        let local = database.base.memory.register()?;
        let counters = database.base.counters.register();
        let partitions = Partitions::new(database.locks.len());
        let (buffers, log, savepoints) = (Buffers::default(), UndoLog::default(), Savepoints::default());
        let (tables, hints) = (Seen::default(), Hints::default());
        let state = State { buffers, log, savepoints, partitions, tables, hints, counters };
        Ok(Self { local, state, database: Arc::clone(database) })
    }

    /// Asks a procedure which partitions it wants. One that panics here will get all of them, and panic again where
    /// it is caught and reported.
    #[inline]
    fn ask<P: Procedure>(&mut self, procedure: &P) {
        let partitions = &mut self.state.partitions;
        partitions.clear();
        let mut naming = Naming { locks: &self.database.locks, partitions };
        if drive::catch(|| procedure.declare(&mut naming)).is_err() {
            self.state.partitions.clear();
        }
    }
}

impl PartitionedWorker {
    /// Rolls back a transaction that was leaked, and gives its locks back.
    fn end_leaked(&mut self) {
        if !self.local.is_pinned() {
            return;
        }
        let Self { local, state, database } = self;
        // The tables are those that the leaked transaction has seen: its guard has kept them.
        drop(PartitionedTransaction::new(&database.locks, state, local.pin(), Mode::ReadWrite));
        local.end_leaked();
    }
}

impl Worker for PartitionedWorker {
    fn execute<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, Error> {
        self.end_leaked();
        self.ask(procedure);
        drive::execute(self, Mode::ReadWrite, procedure)
    }

    fn execute_batch<P: Procedure>(
        &mut self,
        procedures: &mut [P],
        done: &mut impl FnMut(usize, Result<P::Output, Error>),
    ) {
        self.end_leaked();
        execute_in_groups(self, procedures, done, |worker, group| {
            // No lock is needed: indexes may be read by anyone, and the records are not read here.
            let State { hints, tables, .. } = &mut worker.state;
            let guard = worker.local.pin();
            // SAFETY: the guard stays while the keys are walked.
            unsafe { tables.renew(&worker.database.base.catalog) };
            let declared = Declared { tables, locks: &worker.database.locks };
            hints.gather(&declared, group, &guard);
        });
    }

    fn snapshot<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, Error> {
        self.end_leaked();
        self.ask(procedure);
        drive::execute(self, Mode::Snapshot, procedure)
    }

    fn counters(&self) -> &Counters {
        &self.state.counters
    }

    fn tidy_up(&mut self) {
        self.end_leaked();
        self.local.collect();
        self.database.base.keeper.tidy_up(&self.database.base.catalog, self.database.base.memory.epochs());
    }
}

impl Interactive for PartitionedWorker {
    type Transaction<'w> = PartitionedTransaction<'w>;

    /// Takes the partitions that a procedure named just before, and all when none did.
    #[inline]
    fn begin(&mut self, mode: Mode) -> Result<PartitionedTransaction<'_>, Error> {
        self.end_leaked();
        let Self { local, state, database } = self;
        state.partitions.complete();
        if !left_out(Step::TakeLocks)
            && let Err(error) = state.partitions.lock(&database.locks)
        {
            state.partitions.clear();
            return Err(error);
        }
        // Looked at under the locks: who changes tables holds all of them, so the list cannot change any more.
        let guard = local.pin();
        // SAFETY: the transaction holds the guard, and never renews it.
        unsafe { state.tables.renew(&database.base.catalog) };
        if mode == Mode::Snapshot {
            state.counters.snapshot(0);
        }
        debug_assert!(state.log.is_empty(), "the transaction before left something behind");
        state.savepoints.clear();
        Ok(PartitionedTransaction::new(&database.locks, state, guard, mode))
    }

    /// Nothing ever conflicts.
    fn last_abort(&self) -> Option<Abort> {
        None
    }

    fn back_off(&mut self, _attempts: u64) {}

    fn retry(&self) -> &Retry {
        &self.database.base.common.retry
    }
}

impl Drop for PartitionedWorker {
    fn drop(&mut self) {
        self.end_leaked();
        self.database.base.counters.leave(&self.state.counters);
    }
}
