//! The database as a whole: tables, workers, the clock.

use std::sync::Arc;

use polychron_base::clock::SystemClock;
use polychron_base::{Error, IndexId, TableId};
use polychron_engine::catalog::Kept;
use polychron_engine::redo::Order;
use polychron_engine::stores::{Base, StoreDefinition, StoreProtocol};
use polychron_engine::{Configuration, Metric, TableDefinition, Versions, rows};
use polychron_memory::Local;
use polychron_sync::CachePadded;

use super::clock::Clock;
use super::counts::Counts;
use super::elsewhere::Dropped;
use super::level::Level;
use super::options::Options;
use super::table::{HyperTable, Relation};
use super::worker::HyperWorker;

/// What all workers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) base: Base<Relation>,
    pub(super) options: Options,
    pub(super) dropped: Dropped,
    /// For each slot.
    pub(super) counts: Box<[CachePadded<Counts>]>,
    pub(super) clock: Clock,
    /// The tables of transactions, which are in no epoch between their operations.
    pub(super) kept: Kept<HyperTable>,
    /// For how long trees take to build.
    pub(super) time: SystemClock,
}

/// The protocol. See the module.
#[derive(Debug)]
pub struct Hyper {
    pub(super) shared: Arc<Shared>,
}

impl Hyper {
    /// Takes the lists of tables away that idle workers keep, except the present one. The pin of a worker that begins lies between its
    /// announcement in the clock and its look at the catalog.
    pub(super) fn take_lists(&self) {
        self.shared.kept.take_from_idle(&self.shared.base.catalog, |slot| self.shared.clock.is_idle(slot));
    }
}

impl StoreProtocol for Hyper {
    const NAME: &'static str = "hyper";
    const SUMMARY: &'static str =
        "in place with undo buffers, precision locking of the columns read: short writers beside long readers";
    const CONFIGURATIONS: &'static [Configuration] = Level::NAMED;

    type Options = Options;
    type Worker = HyperWorker;
    type Driven = HyperWorker;
    type Store = Relation;

    fn over(base: Base<Relation>, options: Options) -> Result<Self, Error> {
        let slots = base.slots();
        let shared = Arc::new(Shared {
            base,
            options,
            dropped: Dropped::default(),
            counts: (0..slots).map(|_| CachePadded::default()).collect(),
            clock: Clock::new(slots),
            kept: Kept::new(slots),
            time: SystemClock::new(),
        });
        Ok(Self { shared })
    }

    fn configuration(&self) -> Option<&'static Configuration> {
        self.shared.options.level.configuration()
    }

    fn enter(&self, local: Local) -> HyperWorker {
        HyperWorker::new(local, &self.shared)
    }

    fn base(&self) -> &Base<Relation> {
        &self.shared.base
    }

    fn make(&self, table: &TableDefinition, store: &StoreDefinition) -> Result<Relation, Error> {
        Relation::new(&self.shared, table, store)
    }

    fn fill(&self, table: TableId, index: IndexId, store: &Arc<Relation>) -> Result<(), Error> {
        rows::fill_by_own_worker(self, table, index)?;
        store.set_ready_from(self.shared.clock.latest());
        Ok(())
    }

    /// A commit time is known when it is sealed.
    fn ended(&self) -> Order {
        self.shared.clock.latest().into()
    }

    /// The filling waits for all transactions that do not know the index, and for all guards: a thread has one in the midst of a batch, where no
    /// transaction is open.
    fn waits_for_itself(&self) -> bool {
        self.shared.clock.is_open_on_this_thread() || self.shared.base.epochs().is_pinned_here()
    }

    fn dropping(&self, relation: &Arc<Relation>) {
        self.shared.dropped.note(relation);
    }

    fn give_back(&self) {
        self.take_lists();
        self.shared.base.give_back();
    }

    fn metrics(&self) -> Vec<Metric> {
        Counts::metrics(&self.shared.counts, &self.shared.clock)
    }

    fn versions(&self) -> Option<Versions> {
        Some(super::fill::count_versions(&self.shared))
    }
}
