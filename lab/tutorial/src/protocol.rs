//! The database as a whole.

use std::sync::Arc;

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::redo::{Order, Orders};
use polychron_engine::stores::{Base, Knobs, RowRecords, Store, StoreDefinition, StoreProtocol};
use polychron_engine::{TableDefinition, rows};
use polychron_memory::Local;

use crate::lock::Lock;
use crate::worker::OneLockWorker;

/// There is nothing to choose.
#[derive(Clone, Debug, Default)]
pub struct Options {}

impl Knobs for Options {}

/// What all workers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) base: Base<Store<RowRecords>>,
    pub(crate) lock: Lock,
    /// Of the transactions that seal their changes for the log, while they hold the lock.
    pub(crate) orders: Orders,
}

/// The protocol. See the crate.
#[derive(Debug)]
pub struct OneLock(Arc<Shared>);

impl StoreProtocol for OneLock {
    const NAME: &'static str = "one-lock";
    const SUMMARY: &'static str = "one lock around all rows: the protocol of the tutorial";

    type Options = Options;
    type Worker = OneLockWorker;
    type Driven = OneLockWorker;
    type Store = Store<RowRecords>;

    fn over(base: Base<Self::Store>, _: Options) -> Result<Self, Error> {
        let orders = Orders::new(base.slots());
        Ok(Self(Arc::new(Shared { base, lock: Lock::default(), orders })))
    }

    fn base(&self) -> &Base<Self::Store> {
        &self.0.base
    }

    fn enter(&self, local: Local) -> OneLockWorker {
        OneLockWorker::new(local, &self.0, true)
    }

    fn make(&self, _: &TableDefinition, store: &StoreDefinition) -> Result<Self::Store, Error> {
        self.0.base.store(store)
    }

    /// No transaction runs while tables or indexes change.
    fn stand_still(&self) -> Result<impl Sized, Error> {
        self.0.lock.hold()
    }

    /// The transactions that make the entries run under the lock that is held already.
    fn fill(&self, table: TableId, index: IndexId, store: &Arc<Self::Store>) -> Result<(), Error> {
        let base = &self.0.base;
        rows::fill(base, &mut OneLockWorker::new(base.memory.register_own()?, &self.0, false), table, index)?;
        store.set_ready();
        Ok(())
    }

    fn ended(&self) -> Order {
        self.0.orders.ended().into()
    }
}
