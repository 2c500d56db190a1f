//! The database as a whole.

use std::sync::Arc;

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::catalog::Kept;
use polychron_engine::redo::{Order, Orders};
use polychron_engine::stores::{Base, StoreDefinition, StoreProtocol};
use polychron_engine::{Configuration, TableDefinition, rows};
use polychron_memory::Local;
use polychron_sync::CachePadded;
use polychron_sync::atomic::{AtomicU64, Ordering};

use super::locks::LockTable;
use super::options::{Options, Policy};
use super::ranges::Ranges;
use super::table::{Index, Table};
use super::worker::LockingWorker;

/// What all workers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) base: Base<Index>,
    /// The tables of transactions, which are in no epoch while their clients do nothing.
    pub(super) kept: Kept<Table>,
    pub(super) policy: Policy,
    pub(super) locks: LockTable,
    /// The age of the next transaction, where ages matter.
    ages: CachePadded<AtomicU64>,
    /// Of those that seal their changes for the log, while they hold their locks.
    pub(super) orders: Orders,
}

impl Shared {
    /// The age of a transaction that begins.
    #[inline]
    pub(super) fn draw_age(&self) -> u64 {
        // Relaxed: ages are only compared with each other.
        self.ages.fetch_add(1, Ordering::Relaxed)
    }
}

/// The protocol. See the module.
#[derive(Debug)]
pub struct Locking {
    pub(super) shared: Arc<Shared>,
}

impl StoreProtocol for Locking {
    const NAME: &'static str = "locking";
    const SUMMARY: &'static str =
        "two-phase locking, declared keys in one order: the classic, for declared sets and hot rows";
    const CONFIGURATIONS: &'static [Configuration] = Policy::NAMED;

    type Options = Options;
    type Worker = LockingWorker;
    type Driven = LockingWorker;
    type Store = Index;

    fn over(base: Base<Index>, options: Options) -> Result<Self, Error> {
        if !(1..=Options::MOST_BUCKETS).contains(&options.buckets) {
            return Err(Error::options(format!("there are 1 to {} buckets of locks", Options::MOST_BUCKETS)));
        }
        let shared = Arc::new(Shared {
            kept: Kept::new(base.slots()),
            orders: Orders::new(base.slots()),
            base,
            policy: options.policy,
            locks: LockTable::new(options.buckets),
            ages: CachePadded::default(),
        });
        Ok(Self { shared })
    }

    fn configuration(&self) -> Option<&'static Configuration> {
        self.shared.policy.configuration()
    }

    fn enter(&self, local: Local) -> LockingWorker {
        LockingWorker::new(local, &self.shared)
    }

    fn base(&self) -> &Base<Index> {
        &self.shared.base
    }

    fn make(&self, _: &TableDefinition, store: &StoreDefinition) -> Result<Index, Error> {
        Ok(Index { store: self.shared.base.store(store)?, ranges: Ranges::default() })
    }

    /// Operations of transactions that do not know the index are waited for, and not the transactions: what they have written is locked, and those
    /// that have not ended when it came into the catalog do not commit to its table.
    fn fill(&self, table: TableId, index: IndexId, made: &Arc<Index>) -> Result<(), Error> {
        rows::fill_by_own_worker(self, table, index)?;
        made.store.set_ready();
        Ok(())
    }

    fn ended(&self) -> Order {
        self.shared.orders.ended().into()
    }

    /// The filling waits for what the thread's transactions have locked, and those that have written the table and do not know the index do not
    /// commit.
    fn waits_for_itself(&self) -> bool {
        self.shared.base.epochs().is_open_here()
    }

    fn give_back(&self) {
        let epochs = self.shared.base.epochs();
        self.shared.kept.take_from_idle(&self.shared.base.catalog, |worker| !epochs.is_pinned(worker));
        self.shared.base.give_back();
    }
}
