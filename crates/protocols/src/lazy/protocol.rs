//! The database: that of the protocol beneath.

use std::sync::Arc;

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::lazy::Beneath;
use polychron_engine::{
    Common, Configuration, Figure, IndexDefinition, Isolation, Protocol, Statistics, TableDefinition, Versions,
};
use polychron_memory::Memory;

use super::options::{Options, Resolution};
use super::worker::LazyWorker;

/// The protocol. See the module.
#[derive(Debug)]
pub struct Lazy<B: Beneath> {
    inner: Arc<B>,
    resolution: Resolution,
}

impl<B: Beneath> Lazy<B> {
    /// The protocol beneath.
    pub fn base(&self) -> &Arc<B> {
        &self.inner
    }
}

impl<B: Beneath> Protocol for Lazy<B> {
    const NAME: &'static str = B::DEFERRED.name;
    const SUMMARY: &'static str = B::DEFERRED.summary;
    const ISOLATION: Isolation = B::ISOLATION;
    const CONFIGURATIONS: &'static [Configuration] = B::EAGER;

    type Options = Options<B::Options>;
    type Worker = LazyWorker<B>;

    fn open(options: Options<B::Options>, common: Common) -> Result<Arc<Self>, Error> {
        let Options { base, resolution } = options;
        Ok(Arc::new(Self { inner: B::open(base, common)?, resolution }))
    }

    fn set_option(options: &mut Options<B::Options>, name: &str, value: &str) -> Result<(), Error> {
        let outcome = options.set(name, value).map(|outcome| outcome.map_err(Error::Options));
        outcome.unwrap_or_else(|| B::set_option(&mut options.base, name, value))
    }

    fn name(&self) -> &'static str {
        match (self.resolution, B::EAGER) {
            (Resolution::Eager, [eager, ..]) => eager.name,
            _ => Self::NAME,
        }
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

    fn worker(self: &Arc<Self>) -> Result<LazyWorker<B>, Error> {
        Ok(LazyWorker::new(self.inner.worker()?, self.resolution))
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
