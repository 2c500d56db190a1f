//! A worker: a slot in the clock and in the epochs, pools, and the memory that its transactions use one after the other.

use std::sync::Arc;

use polychron_base::clock::Duration;
use polychron_base::{Error, TableId};
use polychron_engine::mutations::pass;
use polychron_engine::stores::{StoreWorker, WorkerBase};
use polychron_engine::{LoadedRow, Mode};
use polychron_memory::Local;

use super::clock::{Clock, Held};
use super::collect::{Collector, Site};
use super::commit::Validation;
use super::predicates::PredicateLog;
use super::protocol::Shared;
use super::steps::Point;
use super::table::Relation;
use super::transaction::{Buffers, HyperTransaction};
use super::undo::Writing;

/// Before-images that a worker sees to at once that has nothing else to do.
const TIDIED_AT_ONCE: usize = 1 << 12;

/// One thread's way into the database.
#[derive(Debug)]
pub struct HyperWorker {
    local: Local,
    state: State,
    shared: Arc<Shared>,
}

/// What a worker keeps from one transaction to the next.
#[derive(Debug)]
pub(super) struct State {
    pub(super) base: WorkerBase<Relation>,
    pub(super) log: PredicateLog,
    pub(super) writing: Writing,
    pub(super) validation: Validation,
    pub(super) held: Held,
    pub(super) buffers: Buffers,
    pub(super) collector: Collector,
    /// The latest commit that this worker has met.
    pub(super) known: u64,
    /// Which of the worker's transactions runs.
    pub(super) generation: u64,
    pub(super) met: Option<Met>,
}

/// A conflict with another transaction that the same thread has open.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) id: u64,
    /// The answer to any thread that tries again.
    pub(super) error: Error,
    /// Whether the next transaction is another attempt.
    pub(super) again: bool,
}

impl State {
    /// Refuses another attempt that would meet an open transaction of the same thread again.
    #[cold]
    fn meet_again(&mut self, clock: &Clock) -> Result<(), Error> {
        match self.met.take() {
            Some(met) if met.again && clock.is_open_here(met.id) => Err(met.error),
            _ => Ok(()),
        }
    }
}

impl HyperWorker {
    pub(super) fn new(local: Local, shared: &Arc<Shared>) -> Self {
        let base = WorkerBase::new(&shared.base, &local);
        let slot = base.slot;
        shared.clock.enter(slot);
        let state = State {
            base,
            log: PredicateLog::default(),
            writing: Writing::default(),
            validation: Validation::default(),
            held: Held::default(),
            buffers: Buffers::default(),
            collector: Collector::new(slot),
            known: 0,
            generation: 0,
            met: None,
        };
        Self { local, state, shared: Arc::clone(shared) }
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn pin(&self) -> polychron_memory::Guard<'_> {
        self.local.pin()
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn collector(&self) -> &Collector {
        &self.state.collector
    }
}

impl StoreWorker for HyperWorker {
    type Store = Relation;
    type Transaction<'w> = HyperTransaction<'w>;

    polychron_engine::worker_parts!(shared.base);

    #[inline]
    fn start(&mut self, mode: Mode) -> Result<HyperTransaction<'_>, Error> {
        if self.local.was_refused() {
            // Else what the last transaction needed may wait for a commit, and no commit succeed without it.
            self.maintain_stores();
        }
        let Self { local, state, shared } = self;
        if state.met.is_some() {
            state.meet_again(&shared.clock)?;
        }
        // The exchange of a pin serves the clock, too.
        let is_pinned = local.is_pinned();
        shared.clock.note_thread(state.base.slot);
        if !is_pinned {
            shared.clock.announce(state.base.slot, state.known);
        }
        // Pinned first: a thread that waits for the transactions that know an old catalog waits for their epochs.
        let guard = local.pin();
        // SAFETY: a batch holds the guard; of a transaction of its own, which leaves its epoch, the list is kept below, until it has ended.
        unsafe { state.base.tables.renew(&shared.base.catalog) };
        pass(Point::Beginning);
        let snapshot = mode == Mode::Snapshot;
        let start = match is_pinned {
            false => shared.clock.begin_behind_exchange(state.base.slot, snapshot),
            true => shared.clock.begin(state.base.slot, state.known, snapshot),
        };
        // Under this guard, since the transaction leaves its epoch. Any thread that takes lists away sees the announcement.
        if !is_pinned {
            shared.kept.keep(state.base.slot, &mut state.base.tables);
        }
        Ok(HyperTransaction::new(shared, state, guard, start, snapshot))
    }

    /// A snapshot reads at the counter of all commits.
    fn await_present(&mut self, _: Duration) -> bool {
        true
    }

    fn keeps_open_readers(&self, _: Mode) -> bool {
        true
    }

    /// Its writes stand in place, and its slot of the clock and its guard hold back what others collect.
    fn undo_leaked(&mut self) {
        let Self { local, state, shared } = self;
        // Its list of tables is kept, or under the leaked guard of a batch.
        drop(HyperTransaction::taken_over(shared, state, local.pin()));
    }

    /// A wait is useless where another attempt must meet a transaction of the same thread again.
    fn wait(&mut self, attempts: u64) {
        let Self { state, shared, .. } = self;
        if let Some(met) = &mut state.met {
            met.again = true;
        } else {
            state.base.wait_contested(&shared.base, attempts);
        }
    }

    fn load_rows(&mut self, table: TableId, rows: &[LoadedRow<'_>]) -> Result<(), Error> {
        super::loading::load(&self.shared, &self.local, table, rows)
    }

    fn maintain_stores(&mut self) {
        let guard = self.local.pin();
        let State { base: WorkerBase { tables, slot, .. }, collector, held, .. } = &mut self.state;
        // SAFETY: pinned just before; no thread looks at the list between transactions without renewing it like this.
        unsafe { tables.renew(&self.shared.base.catalog) };
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
            let epochs = self.shared.base.memory.epochs();
            let (catalog, dropped, counts) =
                (&self.shared.base.catalog, &self.shared.dropped, &self.shared.counts[*slot]);
            collector.work(held, &Site { clock, tables, catalog, dropped, epochs, guard: &guard, counts });
            if !taken {
                break;
            }
        }
        drop(guard);
        // What was collected just now waits for the end of this epoch, and this worker may be idle from now on.
        self.local.collect();
        self.shared.base.memory.epochs().advance();
        if self.release_pages() {
            self.local.collect();
            self.shared.base.memory.epochs().advance();
        }
        self.shared.kept.let_old_go(self.state.base.slot, &mut self.state.base.tables, &self.shared.base.catalog);
        self.local.collect();
    }
}

impl HyperWorker {
    /// Gives memory the pages that no longer have rows. Whether there were any.
    fn release_pages(&mut self) -> bool {
        let guard = self.local.pin();
        // SAFETY: as in `maintain_stores`.
        unsafe { self.state.base.tables.renew(&self.shared.base.catalog) };
        let stores = self.state.base.tables.iter().flatten().flat_map(|table| table.stores());
        stores.filter(|store| store.rows.release_pages(self.shared.base.memory.epochs(), &guard)).count() > 0
    }
}

impl Drop for HyperWorker {
    fn drop(&mut self) {
        self.end_all();
        self.shared.kept.let_go(self.state.base.slot, &mut self.state.base.tables);
    }
}
