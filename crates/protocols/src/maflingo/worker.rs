//! A worker: a slot in the epochs, pools, and the sets that its transactions use one after the other.

use std::sync::Arc;

use polychron_base::clock::Duration;
use polychron_base::{Error, TableId};
use polychron_engine::stores::{StoreWorker, WorkerBase};
use polychron_engine::{LoadedRow, Mode};
use polychron_memory::{Guard, Local};
use polychron_sync::atomic::Ordering;

use super::aside::ShownSets;
use super::nested::Known;
use super::protocol::Shared;
use super::reclaim::Reclaimer;
use super::record::Tid;
use super::table::Store;
use super::transaction::{Buffers, MaflingoTransaction};
use super::versions::Pruner;

/// Tombstones unlinked after each transaction, beside as many as it wrote itself.
const RECLAIM_STEP: usize = 4;

/// One thread's way into the database.
#[derive(Debug)]
pub struct MaflingoWorker {
    pub(super) local: Local,
    pub(super) state: State,
    pub(super) shared: Arc<Shared>,
}

/// What a worker keeps from one transaction to the next.
#[derive(Debug)]
pub(super) struct State {
    pub(super) base: WorkerBase<Store>,
    pub(super) sets: ShownSets,
    pub(super) buffers: Buffers,
    pub(super) reclaimer: Reclaimer,
    pub(super) pruner: Pruner,
    pub(super) last_tid: Tid,
    pub(super) known: Known,
    #[cfg(any(test, feature = "ablation"))]
    reads_own_writes: bool,
}

impl State {
    /// Whether reads look for own writes: always, where no laboratory has a say.
    #[inline(always)]
    pub(super) fn reads_own_writes(&self) -> bool {
        #[cfg(any(test, feature = "ablation"))]
        return self.reads_own_writes;
        #[cfg(not(any(test, feature = "ablation")))]
        true
    }

    /// The newest epoch of what was read since there were so many reads.
    pub(super) fn newest_read(&self, since: usize) -> u64 {
        self.sets.reads[since..].iter().map(|read| read.tid.epoch()).max().unwrap_or(0)
    }

    /// Has snapshots contain that, whatever becomes of the transaction.
    pub(super) fn note_reads(&mut self, since: usize, database: u32) {
        let newest = self.newest_read(since);
        self.known.note(database, newest);
    }

    /// What is done between two transactions, under the guard of the one that begins.
    #[inline]
    pub(super) fn reclaim_between(&mut self, shared: &Shared, guard: &Guard<'_>) {
        let Self { base, known, last_tid, .. } = self;
        base.nested.begin();
        known.begin(|| shared.moved_after[base.slot].store(last_tid.0, Ordering::Relaxed));
        self.reclaimer.step(&self.base.tables, RECLAIM_STEP, guard);
        if self.pruner.is_due(guard) {
            self.prune(guard);
        }
    }

    /// Takes out what only a long snapshot's being open keeps, and no snapshot sees.
    #[cold]
    fn prune(&mut self, guard: &Guard<'_>) {
        let Self { base: WorkerBase { tables, .. }, pruner, reclaimer, .. } = self;
        if pruner.is_empty() && !reclaimer.has_fresh() {
            return;
        }
        pruner.pass(tables, false, guard, |view| reclaimer.step_between(tables, false, view, guard));
    }
}

impl MaflingoWorker {
    pub(super) fn new(mut local: Local, shared: &Arc<Shared>) -> Self {
        let base = WorkerBase::new(&shared.base, &local);
        let state = State {
            base,
            sets: ShownSets::of(&mut local),
            buffers: Buffers::default(),
            reclaimer: Reclaimer::default(),
            pruner: Pruner::default(),
            last_tid: Tid::ZERO,
            known: Known::default(),
            #[cfg(any(test, feature = "ablation"))]
            reads_own_writes: shared.options.read_own_writes,
        };
        Self { local, state, shared: Arc::clone(shared) }
    }
}

impl StoreWorker for MaflingoWorker {
    type Store = Store;
    type Transaction<'w> = MaflingoTransaction<'w>;

    polychron_engine::worker_parts!(shared.base);

    #[inline]
    fn start(&mut self, mode: Mode) -> Result<MaflingoTransaction<'_>, Error> {
        let Self { local, state, shared } = self;
        if local.is_epoch_overdue() {
            shared.base.memory.epochs().advance();
        }
        let open = (mode == Mode::Snapshot && shared.options.snapshots).then(|| {
            let newest = state.known.newest(shared.base.catalog.number());
            if shared.options.own_commits && shared.base.memory.epochs().past() < newest {
                shared.wait_until_past(newest);
            }
            // Opened before the list of tables is looked at, which it keeps while the transaction leaves its epoch.
            loop {
                let open = local.begin_snapshot();
                if shared.keeping.has_kept() {
                    break open;
                }
                drop(open);
                shared.begin_keeping();
            }
        });
        Ok(MaflingoTransaction::begin(shared, state, local, open, mode))
    }

    fn await_present(&mut self, longest: Duration) -> bool {
        let shared = &self.shared;
        shared.options.snapshots && shared.is_past_within(shared.base.memory.epochs().current(), Some(longest))
    }

    fn keeps_open_readers(&self, mode: Mode) -> bool {
        mode == Mode::Snapshot && self.shared.options.snapshots
    }

    fn undo_leaked(&mut self) {
        self.state.note_reads(0, self.shared.base.catalog.number());
        self.state.undo_leaked(&self.local);
    }

    fn load_rows(&mut self, table: TableId, rows: &[LoadedRow<'_>]) -> Result<(), Error> {
        super::loading::load(&self.shared, &self.local, table, rows)
    }

    fn maintain_stores(&mut self) {
        while self.state.maintain(&self.local, &self.shared) {}
        self.local.collect();
    }
}

impl Drop for MaflingoWorker {
    fn drop(&mut self) {
        self.end_all();
        self.state.pruner.leave(&self.local.pin());
        self.state.reclaimer.leave(&self.shared.orphans);
    }
}
