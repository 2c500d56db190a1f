//! The database as a whole: tables, workers, the table of transactions.

use std::sync::Arc;

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::stores::{Base, StoreDefinition, StoreProtocol};
use polychron_engine::{Common, Configuration, TableDefinition, Versions, rows};
use polychron_memory::{Local, OWN_SLOTS};

use super::collect::Orphans;
use super::level::Level;
use super::options::Options;
use super::table::Store;
use super::transactions::Transactions;
use super::version::TransactionId;
use super::worker::HekatonWorker;

/// What all workers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) base: Base<Store>,
    pub(super) transactions: Transactions,
    pub(super) orphans: Orphans,
    pub(super) options: Options,
}

/// The protocol. See the module.
#[derive(Debug)]
pub struct Hekaton {
    pub(super) shared: Arc<Shared>,
}

impl StoreProtocol for Hekaton {
    const NAME: &'static str = "hekaton";
    const SUMMARY: &'static str =
        "optimistic, multi-version, one counter for all timestamps (Hekaton's MV/O): for comparison";
    const CONFIGURATIONS: &'static [Configuration] = Level::SNAPSHOT;

    type Options = Options;
    type Worker = HekatonWorker;
    type Driven = HekatonWorker;
    type Store = Store;

    fn memory_options(_: &Options, common: &Common) -> Result<polychron_memory::Options, Error> {
        common.journal.refuse(Self::NAME)?;
        common.check_workers(Self::NAME, TransactionId::MAX_SLOTS - OWN_SLOTS)?;
        Ok(common.memory.clone())
    }

    fn over(base: Base<Store>, options: Options) -> Result<Self, Error> {
        let shared = Arc::new(Shared {
            transactions: Transactions::new(base.slots()),
            base,
            orphans: Orphans::default(),
            options,
        });
        Ok(Self { shared })
    }

    fn configuration(&self) -> Option<&'static Configuration> {
        self.shared.options.level.configuration()
    }

    fn enter(&self, local: Local) -> HekatonWorker {
        HekatonWorker::new(local, &self.shared)
    }

    fn base(&self) -> &Base<Store> {
        &self.shared.base
    }

    fn make(&self, _: &TableDefinition, store: &StoreDefinition) -> Result<Store, Error> {
        self.shared.base.store(store)
    }

    fn fill(&self, table: TableId, index: IndexId, store: &Arc<Store>) -> Result<(), Error> {
        rows::fill_by_own_worker(self, table, index)?;
        store.set_ready_from(self.shared.transactions.latest());
        Ok(())
    }

    fn versions(&self) -> Option<Versions> {
        Some(super::fill::count_versions(&self.shared))
    }
}
