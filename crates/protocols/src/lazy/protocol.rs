//! The database: that of the protocol beneath.

use std::marker::PhantomData;
use std::sync::Arc;

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::lazy::Beneath;
use polychron_engine::{Common, Figure, IndexDefinition, Isolation, Protocol, Statistics, TableDefinition, Versions};
use polychron_memory::Memory;

use super::moment::{AtCommit, Moment};
use super::worker::LazyWorker;

/// The protocol. See the module.
#[derive(Debug)]
pub struct Lazy<B: Beneath, M: Moment = AtCommit> {
    inner: Arc<B>,
    moment: PhantomData<M>,
}

impl<B: Beneath, M: Moment> Lazy<B, M> {
    /// The protocol beneath.
    pub fn base(&self) -> &Arc<B> {
        &self.inner
    }
}

impl<B: Beneath, M: Moment> Protocol for Lazy<B, M> {
    const NAME: &'static str = if M::LATE { B::LATE.name } else { B::AT_ONCE.name };
    const SUMMARY: &'static str = if M::LATE { B::LATE.summary } else { B::AT_ONCE.summary };
    const ISOLATION: Isolation = B::ISOLATION;

    type Options = B::Options;
    type Worker = LazyWorker<B, M>;

    fn open(options: B::Options, common: Common) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self { inner: B::open(options, common)?, moment: PhantomData }))
    }

    fn set_option(options: &mut B::Options, name: &str, value: &str) -> Result<(), Error> {
        B::set_option(options, name, value)
    }

    fn memory(&self) -> &Arc<Memory> {
        self.inner.memory()
    }

    fn create_table(&self, definition: TableDefinition) -> Result<TableId, Error> {
        self.inner.create_table(definition)
    }

    fn drop_table(&self, table: TableId) -> Result<(), Error> {
        self.inner.drop_table(table)
    }

    fn create_index(self: &Arc<Self>, table: TableId, definition: IndexDefinition) -> Result<IndexId, Error> {
        self.inner.create_index(table, definition)
    }

    fn drop_index(&self, table: TableId, index: IndexId) -> Result<(), Error> {
        self.inner.drop_index(table, index)
    }

    fn find_table(&self, name: &str) -> Option<TableId> {
        self.inner.find_table(name)
    }

    fn definition(&self, table: TableId) -> Result<Arc<TableDefinition>, Error> {
        self.inner.definition(table)
    }

    fn worker(self: &Arc<Self>) -> Result<LazyWorker<B, M>, Error> {
        Ok(LazyWorker::new(self.inner.worker()?))
    }

    fn statistics(&self) -> Statistics {
        self.inner.statistics()
    }

    fn versions(&self) -> Option<Versions> {
        self.inner.versions()
    }

    fn inspect(&self) -> Vec<Figure> {
        self.inner.inspect()
    }
}
