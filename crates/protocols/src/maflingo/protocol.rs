//! The database as a whole: tables, workers, the clock of epochs.

use std::sync::Arc;

use polychron_base::clock::{Clock as _, Duration, SystemClock};
use polychron_base::{Error, IndexId, TableId};
use polychron_engine::background::Background;
use polychron_engine::mutations::left_out;
use polychron_engine::redo::{self, Order};
use polychron_engine::stores::{Base, StoreDefinition, StoreProtocol};
use polychron_engine::{Common, Configuration, TableDefinition, Versions, rows};
use polychron_memory::{Local, OWN_SLOTS};
use polychron_sync::atomic::AtomicU64;
use polychron_sync::{Backoff, CachePadded, MODELLED};

use super::keeping::Keeping;
use super::options::{Counter, Options};
use super::reclaim::{Orphans, Reclaimer};
use super::record::Tid;
use super::steps::Step;
use super::table::Store;
use super::worker::MaflingoWorker;

/// A session that commits and opens a snapshot in turns begins epochs no faster than this: ids last for years then, and others share
/// the epoch.
const SHORTEST_EPOCH_NS: u64 = 16_000;

/// Slices of tombstones that belong to no thread which one tick works off at most.
const SLICES: usize = 4;

/// What all workers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) base: Base<Store>,
    pub(super) options: Options,
    pub(super) orphans: Orphans,
    /// What each worker had committed last when it came to the thread on which it is: its later ids are of that thread.
    pub(super) moved_after: Box<[AtomicU64]>,
    pub(super) ticket: CachePadded<AtomicU64>,
    pub(super) keeping: Keeping,
}

/// The protocol. See the module.
#[derive(Debug)]
pub struct Maflingo {
    /// It moves the epochs on. Joined before the rest is dropped.
    _background: Background,
    pub(super) shared: Arc<Shared>,
}

impl Shared {
    /// Gives back the memory of what was dropped.
    fn give_back(&self) {
        self.base.deferred_drops.give_back(&self.base.catalog, self.base.memory.epochs(), || self.tick());
    }

    /// Waits until snapshots that begin see what was committed in an epoch. That takes no longer than the commits that are under
    /// way: a transaction that is open and does nothing holds no thread up.
    #[cold]
    pub(super) fn wait_until_past(&self, epoch: u64) {
        self.is_past_within(epoch, None);
    }

    /// As [`Shared::wait_until_past`], for this time at most; whether they do.
    #[cold]
    pub(super) fn is_past_within(&self, epoch: u64, longest: Option<Duration>) -> bool {
        let epochs = self.base.memory.epochs();
        let mut backoff = Backoff::new();
        let clock = SystemClock::new();
        let ends = longest.map(|longest| clock.now_ns().saturating_add(longest.as_nanos() as u64));
        while epochs.past() < epoch {
            if ends.is_some_and(|ends| clock.now_ns() >= ends) {
                return false;
            }
            if epochs.current() > epoch {
                epochs.refresh();
            } else if MODELLED || epochs.age_ns(epochs.current() - 1) >= SHORTEST_EPOCH_NS {
                epochs.advance();
            }
            backoff.wait();
        }
        true
    }

    /// Has what snapshots see kept that begin from now on.
    #[cold]
    pub(super) fn begin_keeping(&self) {
        self.keeping.begin(self.base.memory.epochs(), |epoch| self.wait_until_past(epoch));
    }

    /// Begins the next epoch, and does the background's share of reclamation.
    fn tick(&self) {
        self.base.memory.epochs().advance();
        self.keeping.tick(self.base.memory.epochs());
        let (_, tables) = self.base.catalog.snapshot();
        // Each slice under a guard of its own, so that a backlog does not hold up what it waits for itself.
        for _ in 0..SLICES {
            if !self.base.deferred_drops.with_guard(|guard| Reclaimer::default().drain(&self.orphans, &tables, guard)) {
                break;
            }
        }
        self.base.deferred_drops.with_guard(|guard| self.orphans.sweep(&tables, guard));
        self.base.deferred_drops.maintain(&self.base.catalog, self.base.memory.epochs());
    }
}

impl Maflingo {
    /// Ends the present epoch and works off what reclamation can, as the clock does by itself: for tests that must not
    /// depend on time.
    pub fn tick(&self) {
        self.shared.tick();
    }
}

impl StoreProtocol for Maflingo {
    const NAME: &'static str = "maflingo";
    const SUMMARY: &'static str = "optimistic, in place, epochs (Silo): short transactions with few conflicts, and snapshots some milliseconds old";
    const CONFIGURATIONS: &'static [Configuration] = Counter::SHARED;

    type Options = Options;
    type Worker = MaflingoWorker;
    type Driven = MaflingoWorker;
    type Store = Store;

    fn memory_options(_: &Options, common: &Common) -> Result<polychron_memory::Options, Error> {
        common.check_workers(Self::NAME, Tid::MAX_WORKERS - OWN_SLOTS)?;
        // The epochs are moved by this protocol's own thread, which also takes tombstones out.
        Ok(polychron_memory::Options { epoch_interval: None, ..common.memory.clone() })
    }

    fn over(base: Base<Store>, options: Options) -> Result<Self, Error> {
        let shared = Arc::new(Shared {
            options: Options { check_every: options.check_every.max(1), ..options },
            orphans: Orphans::default(),
            moved_after: (0..base.slots()).map(|_| AtomicU64::new(0)).collect(),
            base,
            ticket: CachePadded::new(AtomicU64::new(0)),
            keeping: Keeping::default(),
        });
        let interval = shared.options.epoch_interval;
        let background = Background::start("polychron-epochs", interval, &shared, Shared::tick)?;
        Ok(Self { shared, _background: background })
    }

    fn configuration(&self) -> Option<&'static Configuration> {
        match self.shared.options.counter {
            Counter::Own => None,
            Counter::Shared => Some(&Counter::SHARED[0]),
        }
    }

    fn enter(&self, local: Local) -> MaflingoWorker {
        MaflingoWorker::new(local, &self.shared)
    }

    fn base(&self) -> &Base<Store> {
        &self.shared.base
    }

    fn make(&self, _: &TableDefinition, store: &StoreDefinition) -> Result<Store, Error> {
        Store::new(&self.shared.base, store)
    }

    fn fill(&self, table: TableId, index: IndexId, store: &Arc<Store>) -> Result<(), Error> {
        rows::fill_by_own_worker(self, table, index)?;
        // Snapshots that begin from now on are to find the entries, so what was written here must have become the past.
        let filled = self.shared.base.epochs().current();
        if !left_out(Step::AwaitFilling) {
            self.shared.wait_until_past(filled);
        }
        store.set_ready_from(filled);
        Ok(())
    }

    fn give_back(&self) {
        self.shared.give_back();
    }

    /// No thread still commits in the past.
    fn ended(&self) -> Order {
        let epochs = self.shared.base.memory.epochs();
        Tid::end_of(if left_out(redo::Step::AwaitSealing) { epochs.current() } else { epochs.past() }).0.into()
    }

    fn versions(&self) -> Option<Versions> {
        self.shared.options.snapshots.then(|| super::fill::count_versions(&self.shared))
    }
}
