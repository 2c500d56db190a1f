//! The database as a whole: tables, workers, the thread that works when no worker does.

use std::sync::{Arc, PoisonError};

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::background::Background;
use polychron_engine::catalog::Tables;
use polychron_engine::mutations::left_out;
use polychron_engine::redo::Order;
use polychron_engine::stores::{Base, StoreDefinition, StoreProtocol};
use polychron_engine::{Common, Metric, MetricValue, TableDefinition, Versions};
use polychron_memory::{Local, OWN_SLOTS, Pressure};
use polychron_sync::Mutex;
use polychron_sync::atomic::{AtomicU64, Ordering};

use super::bins::Bins;
use super::clocks::{Clocks, Held};
use super::gaps::GapReadTimestamps;
use super::options::Options;
use super::reclaim::Site;
use super::regulation::Regulation;
use super::renewal::Renewal;
use super::steps::Step;
use super::table::{CicadaTable, Store};
use super::timestamp::Timestamp;
use super::worker::{CicadaWorker, collect_all, collect_some};

/// What all workers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) base: Base<Store>,
    pub(super) options: Options,
    pub(super) bins: Bins,
    pub(super) clocks: Clocks,
    /// No transaction is ahead of this clock reading that may ask an index which was dropped.
    pub(super) unknowing: AtomicU64,
    pub(super) gaps: GapReadTimestamps,
    pub(super) regulation: Regulation,
    pub(super) renewal: Renewal,
    /// Lists of tables that no guard still keeps, each with a timestamp: a transaction that may look at it holds that or an earlier one.
    past_lists: Mutex<Vec<(Timestamp, Tables<CicadaTable>)>>,
}

/// How much of the garbage is worked off in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// A bounded part of what idle workers have left.
    Some,
    /// All that idle workers have left, as far as readers allow.
    Idle,
    /// All that there is.
    All,
}

/// The protocol. See the module.
#[derive(Debug)]
pub struct Cicada {
    /// Joined before the rest is dropped.
    _background: Background,
    pub(super) shared: Arc<Shared>,
}

impl Shared {
    /// Moves the horizons on, and adjusts what depends on time.
    pub(super) fn lead(&self, now_ns: u64) {
        if self.clocks.lead() {
            self.regulation.regulate(now_ns, || self.base.counters.try_commits());
        }
    }

    /// A collector holds what is stable: paused between two looks, it would else compare with a horizon that has long been passed by
    /// all that it finds.
    pub(super) fn hold_for_collection(&self, slot: usize) -> Option<Held<'_>> {
        (!left_out(Step::HoldToCollect)).then(|| self.clocks.hold(slot))
    }

    /// Gives up the lists of tables of the past. A transaction looks at its list beyond the guard under which it found it, for as long as it
    /// holds the timestamp at which it began under that guard. So those that still look when no such guard is left hold what is stable by then, or
    /// an earlier timestamp.
    fn release_lists(&self) {
        let released = self.base.catalog.take_released(self.base.memory.epochs());
        let mut lists = self.past_lists.lock().unwrap_or_else(PoisonError::into_inner);
        let stable = self.clocks.min_wts().predecessor();
        lists.extend(released.into_iter().map(|list| (stable, list)));
        let given_up: Vec<_> = lists.extract_if(.., |(timestamp, _)| !self.clocks.is_held(*timestamp)).collect();
        drop(lists);
        // A table that goes with its list takes time, and asks the deferred drops.
        drop(given_up);
    }

    /// Does what workers do besides their transactions, in case they have none.
    pub(super) fn tick(&self, extent: Extent) {
        self.lead(self.clocks.now_ns());
        self.base.memory.epochs().advance();
        let (_, tables) = self.base.catalog.snapshot();
        self.base.deferred_drops.with_guard(|guard| {
            let worker = guard.worker_id().position();
            let _held = self.hold_for_collection(worker);
            let site = Site::new(&tables, &self.clocks, worker, guard);
            let mut spans = Vec::new();
            match extent {
                Extent::Some => collect_some(self, &mut spans, &site),
                Extent::Idle => collect_all(self, false, &mut spans, &site),
                Extent::All => collect_all(self, true, &mut spans, &site),
            }
        });
        self.base.deferred_drops.collect();
        self.release_lists();
    }
}

impl Cicada {
    /// Moves horizons and epochs on and works off what collection can, as happens by itself: for tests that must not depend
    /// on time.
    pub fn tick(&self) {
        self.shared.tick(Extent::Idle);
    }
}

impl StoreProtocol for Cicada {
    const NAME: &'static str = "cicada";
    const SUMMARY: &'static str = "optimistic, versions and a clock for each worker: any load, contended ones too, and snapshots microseconds old";

    type Options = Options;
    type Worker = CicadaWorker;
    type Driven = CicadaWorker;
    type Store = Store;

    fn memory_options(options: &Options, common: &Common) -> Result<polychron_memory::Options, Error> {
        options.shape()?;
        let most = (1usize << options.worker_bits.min(31)).saturating_sub(OWN_SLOTS);
        common.check_workers(Self::NAME, most.min(polychron_memory::Options::MOST_WORKERS))?;
        // The epochs are moved by this protocol's own thread.
        Ok(polychron_memory::Options { epoch_interval: None, ..common.memory.clone() })
    }

    fn over(base: Base<Store>, options: Options) -> Result<Self, Error> {
        let options = Options { check_every: options.check_every.max(1), ..options };
        let ceiling_ns = base.common.retry.backoff_max_us.saturating_mul(1000);
        let clocks = Clocks::new(&options, options.shape()?, base.slots());
        let bins = Bins::new(base.slots());
        let shared = Arc::new(Shared {
            renewal: Renewal::default(),
            gaps: GapReadTimestamps::new(clocks.min_rts()),
            clocks,
            unknowing: AtomicU64::new(0),
            regulation: Regulation::new(&options, ceiling_ns),
            base,
            options,
            bins,
            past_lists: Mutex::default(),
        });
        let interval = shared.options.background_interval;
        let background = Background::start("polychron-clock", interval, &shared, |shared| {
            // Near the limit of the memory everything is to be given back that can be.
            let is_full = shared.base.memory.pressure() == Pressure::Hard;
            shared.tick(if is_full { Extent::All } else { Extent::Some });
        })?;
        Ok(Self { shared, _background: background })
    }

    fn enter(&self, local: Local) -> CicadaWorker {
        CicadaWorker::new(local, &self.shared)
    }

    fn base(&self) -> &Base<Store> {
        &self.shared.base
    }

    fn make(&self, table: &TableDefinition, store: &StoreDefinition) -> Result<Store, Error> {
        Store::new(&self.shared, table, store)
    }

    fn fill(&self, table: TableId, index: IndexId, store: &Arc<Store>) -> Result<(), Error> {
        let unknowing = self.shared.clocks.furthest_drawn();
        store.set_known_after(unknowing);
        store.set_ready_from(super::fill::fill(&self.shared, table, index, unknowing)?);
        Ok(())
    }

    fn ended(&self) -> Order {
        self.shared.clocks.ended()
    }

    /// The filling waits until all that is open has ended, or knows the index, and for all guards: a thread has one in the midst of a batch,
    /// where nothing is open.
    fn waits_for_itself(&self) -> bool {
        self.shared.clocks.is_open_here(None) || self.shared.base.epochs().is_pinned_here()
    }

    fn dropping(&self, _: &Arc<Store>) {
        // A transaction that leaves the index alone is to come after all that do not know yet that they must not ask it.
        let unknowing = self.shared.clocks.furthest_drawn();
        // Relaxed: the list of tables is made known behind it.
        self.shared.unknowing.fetch_max(unknowing, Ordering::Relaxed);
    }

    fn give_back(&self) {
        // The list of tables waits for the guards of one epoch, and the records, which are found then, for those of the next.
        (0..4).for_each(|_| self.shared.tick(Extent::Some));
    }

    fn metrics(&self) -> Vec<Metric> {
        let Shared { clocks, renewal, .. } = &*self.shared;
        let mut metrics = super::counts::metrics(clocks.all_counts());
        metrics.push(Metric { name: "rounds_of_renewal", value: MetricValue::Count(renewal.rounds()) });
        metrics
    }

    fn versions(&self) -> Option<Versions> {
        Some(super::fill::look_through(&self.shared).versions)
    }

    fn inspect(&self) -> Vec<Metric> {
        let mut metrics = super::fill::look_through(&self.shared).metrics();
        let course = MetricValue::Course(self.shared.regulation.course());
        metrics.push(Metric { name: "longest_backoff_us_over_time", value: course });
        metrics
    }
}
