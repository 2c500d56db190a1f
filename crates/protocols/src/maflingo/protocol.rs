//! The database as a whole: tables, workers, the clock of epochs.

use std::ops::Deref;
use std::sync::Arc;

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::background::Background;
use polychron_engine::contested::Favour;
use polychron_engine::mutations::left_out;
use polychron_engine::redo::{self, Order};
use polychron_engine::stores::{Base, HasStores, StoreDefinition};
use polychron_engine::{Common, Configuration, Protocol, Storage, TableDefinition, Versions, rows};
use polychron_memory::{Memory, OWN_SLOTS};
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
    base: Base<Store>,
    pub(super) options: Options,
    pub(super) orphans: Orphans,
    /// What each worker had committed last when it came to the thread on which it is: its later ids are of that thread.
    pub(super) moved_after: Box<[AtomicU64]>,
    /// The worker that others let go first.
    pub(super) favour: CachePadded<Favour>,
    pub(super) ticket: CachePadded<AtomicU64>,
    pub(super) keeping: Keeping,
}

impl Deref for Shared {
    type Target = Base<Store>;

    #[inline]
    fn deref(&self) -> &Base<Store> {
        &self.base
    }
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
        self.deferred_drops.give_back(&self.catalog, self.memory.epochs(), || self.tick());
    }

    /// Waits until snapshots that begin see what was committed in an epoch. That takes no longer than the commits that are under
    /// way: a transaction that is open and does nothing holds no thread up.
    #[cold]
    pub(super) fn wait_until_past(&self, epoch: u64) {
        let epochs = self.memory.epochs();
        let mut backoff = Backoff::new();
        while epochs.past() < epoch {
            if epochs.current() > epoch {
                epochs.refresh();
            } else if MODELLED || epochs.age_ns(epochs.current() - 1) >= SHORTEST_EPOCH_NS {
                epochs.advance();
            }
            backoff.wait();
        }
    }

    /// Has what snapshots see kept that begin from now on.
    #[cold]
    pub(super) fn begin_keeping(&self) {
        self.keeping.begin(self.memory.epochs(), |epoch| self.wait_until_past(epoch));
    }

    /// Begins the next epoch, and does the background's share of reclamation.
    fn tick(&self) {
        self.memory.epochs().advance();
        self.keeping.tick(self.memory.epochs());
        let (_, tables) = self.catalog.snapshot();
        // Each slice under a guard of its own, so that a backlog does not hold up what it waits for itself.
        for _ in 0..SLICES {
            if !self.deferred_drops.with_guard(|guard| Reclaimer::default().drain(&self.orphans, &tables, guard)) {
                break;
            }
        }
        self.deferred_drops.with_guard(|guard| self.orphans.sweep(&tables, guard));
        self.deferred_drops.maintain(&self.catalog, self.memory.epochs());
    }
}

impl Maflingo {
    /// Ends the present epoch and works off what reclamation can, as the clock does by itself: for tests that must not
    /// depend on time.
    pub fn tick(&self) {
        self.shared.tick();
    }
}

impl Protocol for Maflingo {
    const NAME: &'static str = "maflingo";
    const SUMMARY: &'static str = "optimistic, in place, epochs (Silo): short transactions with few conflicts, and snapshots some milliseconds old";
    const CONFIGURATIONS: &'static [Configuration] = Counter::SHARED;

    type Options = Options;
    type Worker = MaflingoWorker;

    fn open(options: Options, common: Common) -> Result<Arc<Self>, Error> {
        common.check_workers(Self::NAME, Tid::MAX_WORKERS - OWN_SLOTS)?;
        let options = Options { check_every: options.check_every.max(1), ..options };
        // The epochs are moved by this protocol's own thread, which also takes tombstones out.
        let memory = Memory::new(polychron_memory::Options { epoch_interval: None, ..common.memory.clone() })?;
        let common_workers = common.memory.max_workers;
        let shared = Arc::new(Shared {
            base: Base::new(memory, common)?,
            options,
            orphans: Orphans::default(),
            moved_after: (0..OWN_SLOTS + common_workers).map(|_| AtomicU64::new(0)).collect(),
            favour: CachePadded::default(),
            ticket: CachePadded::new(AtomicU64::new(0)),
            keeping: Keeping::default(),
        });
        let interval = shared.options.epoch_interval;
        let background = Background::start("polychron-epochs", interval, &shared, Shared::tick)?;
        Ok(Arc::new(Self { shared, _background: background }))
    }

    fn set_option(options: &mut Options, name: &str, value: &str) -> Result<(), Error> {
        options.set(name, value).map_err(Error::options)
    }

    fn name(&self) -> &'static str {
        match self.shared.options.counter {
            Counter::Own => Self::NAME,
            Counter::Shared => Counter::SHARED[0].name,
        }
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn worker(self: &Arc<Self>) -> Result<MaflingoWorker, Error> {
        Ok(MaflingoWorker::new(self.shared.memory.register()?, &self.shared))
    }
}

impl HasStores for Maflingo {
    type Store = Store;

    fn base(&self) -> &Base<Store> {
        &self.shared.base
    }

    fn make(&self, _: &TableDefinition, store_definition: &StoreDefinition, ready: bool) -> Result<Store, Error> {
        self.shared
            .deferred_drops
            .with_guard(|guard| Store::new(store_definition, ready, &self.shared.deferred_drops, guard))
    }

    fn fill(&self, table: TableId, index: IndexId, store: &Arc<Store>) -> Result<(), Error> {
        let mut worker = MaflingoWorker::new(self.shared.memory.register_own()?, &self.shared);
        rows::fill(self.base(), &mut worker, table, index)?;
        // Snapshots that begin from now on are to find the entries, so what was written here must have become the past.
        let filled = self.shared.epochs().current();
        if !left_out(Step::AwaitFilling) {
            self.shared.wait_until_past(filled);
        }
        store.set_ready_from(filled);
        Ok(())
    }

    fn give_back(&self) {
        self.shared.give_back();
    }

    /// No thread commits in the past any more.
    fn ended(&self) -> Order {
        let epochs = self.shared.memory.epochs();
        Tid::end_of(if left_out(redo::Step::AwaitSealing) { epochs.current() } else { epochs.past() }).0.into()
    }

    fn versions(&self) -> Option<Versions> {
        self.shared.options.snapshots.then(|| super::fill::count_versions(&self.shared))
    }
}
