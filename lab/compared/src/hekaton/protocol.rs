//! The database as a whole: tables, workers, the table of transactions.

use std::ops::Deref;
use std::sync::Arc;

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::stores::{Base, HasStores, StoreDefinition};
use polychron_engine::{Common, Configuration, Isolation, Protocol, Storage, TableDefinition, Versions, rows};
use polychron_memory::{Memory, OWN_SLOTS};

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
    base: Base<Store>,
    pub(super) transactions: Transactions,
    pub(super) orphans: Orphans,
    pub(super) options: Options,
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
pub struct Hekaton {
    pub(super) shared: Arc<Shared>,
}

impl Protocol for Hekaton {
    const NAME: &'static str = "hekaton";
    const SUMMARY: &'static str =
        "optimistic, multi-version, one counter for all timestamps (Hekaton's MV/O): for comparison";
    const CONFIGURATIONS: &'static [Configuration] = Level::SNAPSHOT;

    type Options = Options;
    type Worker = HekatonWorker;

    fn open(options: Options, common: Common) -> Result<Arc<Self>, Error> {
        common.journal.refuse(Self::NAME)?;
        common.check_workers(Self::NAME, TransactionId::MAX_SLOTS - OWN_SLOTS)?;
        let slots = common.memory.max_workers + OWN_SLOTS;
        let memory = Memory::new(common.memory.clone())?;
        let shared = Arc::new(Shared {
            base: Base::new(memory, common)?,
            transactions: Transactions::new(slots),
            orphans: Orphans::default(),
            options,
        });
        Ok(Arc::new(Self { shared }))
    }

    fn set_option(options: &mut Options, name: &str, value: &str) -> Result<(), Error> {
        options.set(name, value).map_err(Error::options)
    }

    fn name(&self) -> &'static str {
        self.shared.options.level.configuration().map_or(Self::NAME, |it| it.name)
    }

    fn isolation(&self) -> Isolation {
        self.shared.options.level.configuration().map_or(Self::ISOLATION, |it| it.isolation)
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn worker(self: &Arc<Self>) -> Result<HekatonWorker, Error> {
        Ok(HekatonWorker::new(self.shared.memory.register()?, &self.shared))
    }
}

impl HasStores for Hekaton {
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
        rows::fill(
            self.base(),
            &mut HekatonWorker::new(self.shared.memory.register_own()?, &self.shared),
            table,
            index,
        )?;
        store.set_ready_from(self.shared.transactions.latest());
        Ok(())
    }

    fn versions(&self) -> Option<Versions> {
        Some(super::fill::count_versions(&self.shared))
    }
}
