//! The database: that of the host protocol.

use std::sync::Arc;

use polychron_base::Error;
use polychron_engine::lazy::LazyHost;
use polychron_engine::{Common, Configuration, Isolation, Protocol, Storage};

use super::options::{Options, Resolution};
use super::worker::LazyWorker;

/// The protocol. See the module.
#[derive(Debug)]
pub struct Lazy<B: LazyHost> {
    host: Arc<B>,
    resolution: Resolution,
}

impl<B: LazyHost> Lazy<B> {
    /// The host protocol.
    pub fn base(&self) -> &Arc<B> {
        &self.host
    }
}

impl<B: LazyHost> Protocol for Lazy<B> {
    const NAME: &'static str = B::DEFERRED.name;
    const SUMMARY: &'static str = B::DEFERRED.summary;
    const ISOLATION: Isolation = B::ISOLATION;
    const CONFIGURATIONS: &'static [Configuration] = B::EAGER;

    type Options = Options<B::Options>;
    type Worker = LazyWorker<B>;
    type Driven = LazyWorker<B>;

    fn open(options: Options<B::Options>, common: Common) -> Result<Arc<Self>, Error> {
        let Options { mut base, resolution } = options;
        B::prepare(&mut base);
        Ok(Arc::new(Self { host: B::open(base, common)?, resolution }))
    }

    fn set_option(options: &mut Options<B::Options>, name: &str, value: &str) -> Result<(), Error> {
        let outcome = options.set(name, value).map(|outcome| outcome.map_err(Error::options));
        outcome.unwrap_or_else(|| B::set_option(&mut options.base, name, value))
    }

    fn name(&self) -> &'static str {
        match (self.resolution, B::EAGER) {
            (Resolution::Eager, [eager, ..]) => eager.name,
            _ => Self::NAME,
        }
    }

    fn storage(&self) -> &dyn Storage {
        self.host.storage()
    }

    fn worker(self: &Arc<Self>) -> Result<LazyWorker<B>, Error> {
        Ok(LazyWorker::new(self.host.worker()?, self.resolution))
    }
}
