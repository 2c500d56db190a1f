//! A worker: asks a procedure for its partitions, takes their locks, and runs it.

use std::sync::Arc;

use polychron_base::key::EncodedKey;
use polychron_base::{Error, TableId};
use polychron_engine::mutations::left_out;
use polychron_engine::stores::{StoreWorker, UndoLog, WorkerBase};
use polychron_engine::{Access, Declare, Mode, Procedure, drive};
use polychron_memory::Local;

use super::locks::{Locks, Partitions};
use super::protocol::Shared;
use super::steps::Step;
use super::table::{Entry, Index};
use super::transaction::{Buffers, PartitionedTransaction};

/// One thread's way into the database.
#[derive(Debug)]
pub struct PartitionedWorker {
    pub(super) local: Local,
    pub(super) state: State,
    database: Arc<Shared>,
}

/// What a worker keeps from one transaction to the next.
#[derive(Debug)]
pub(super) struct State {
    pub(super) base: WorkerBase<Index>,
    pub(super) buffers: Buffers,
    pub(super) log: UndoLog<Entry>,
    /// Between transactions: what the next one wants. In a transaction: what it holds.
    pub(super) partitions: Partitions,
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
    pub(super) fn new(local: Local, database: &Arc<Shared>) -> Self {
        let partitions = Partitions::new(database.locks.len());
        let base = WorkerBase::new(&database.base, &local);
        let state = State { base, buffers: Buffers::default(), log: UndoLog::default(), partitions };
        Self { local, state, database: Arc::clone(database) }
    }
}

impl StoreWorker for PartitionedWorker {
    type Store = Index;
    type Transaction<'w> = PartitionedTransaction<'w>;

    /// No lock is needed to look a key up: indexes may be read by anyone, and the records are not read there.
    const HOLDS_GROUPS: bool = false;

    polychron_engine::worker_parts!(database.base);

    /// Asks a procedure which partitions it wants. One that panics here will get all of them, and panic again where
    /// it is caught and reported.
    #[inline]
    fn ask<P: Procedure>(&mut self, procedure: &P) {
        self.end_leaked();
        let partitions = &mut self.state.partitions;
        partitions.clear();
        let mut naming = Naming { locks: &self.database.locks, partitions };
        if drive::catch(|| procedure.declare(&mut naming)).is_err() {
            self.state.partitions.clear();
        }
    }

    /// Takes the partitions that a procedure named just before, and all when none did.
    #[inline]
    fn start(&mut self, mode: Mode) -> Result<PartitionedTransaction<'_>, Error> {
        let Self { local, state, database } = self;
        state.partitions.complete();
        if !left_out(Step::TakeLocks)
            && let Err(error) = state.partitions.lock(&database.locks)
        {
            state.partitions.clear();
            return Err(error);
        }
        // Looked at under the locks: a thread that changes tables holds all of them, so the list can no longer change.
        let guard = local.pin();
        // SAFETY: the transaction holds the guard, and never renews it.
        unsafe { state.base.tables.renew(&database.base.catalog) };
        if mode == Mode::Snapshot {
            state.base.counters.snapshot(0);
        }
        debug_assert!(state.log.is_empty(), "the transaction before left something behind");
        state.base.begin();
        Ok(PartitionedTransaction::new(&database.locks, state, guard, mode))
    }

    fn undo_leaked(&mut self) {
        let Self { local, state, database } = self;
        // The tables are those that the leaked transaction has seen: its guard has kept them.
        drop(PartitionedTransaction::new(&database.locks, state, local.pin(), Mode::ReadWrite));
    }
}

impl Drop for PartitionedWorker {
    fn drop(&mut self) {
        self.end_leaked();
    }
}
