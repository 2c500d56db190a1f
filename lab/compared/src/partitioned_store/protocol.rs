//! The database as a whole.

use std::sync::Arc;

use polychron_base::Error;
use polychron_engine::stores::Base;
use polychron_engine::{Common, Protocol, Storage};
use polychron_memory::Memory;

use super::locks::Locks;
use super::options::Options;
use super::table::Index;
use super::worker::PartitionedWorker;

/// The protocol. See the module.
#[derive(Debug)]
pub struct PartitionedStore {
    pub(super) base: Base<Index>,
    pub(super) locks: Locks,
}

impl Protocol for PartitionedStore {
    const NAME: &'static str = "partitioned-store";
    const SUMMARY: &'static str =
        "a lock for each partition and no other control: for workloads that stay in one partition";

    type Options = Options;
    type Worker = PartitionedWorker;

    fn open(options: Options, common: Common) -> Result<Arc<Self>, Error> {
        common.journal.refuse(Self::NAME)?;
        if !(1..=Options::MOST_PARTITIONS).contains(&options.partitions) {
            return Err(Error::options(format!("there are 1 to {} partitions", Options::MOST_PARTITIONS)));
        }
        let base = Base::new(Memory::new(common.memory.clone())?, common)?;
        Ok(Arc::new(Self { base, locks: Locks::new(options.partitions) }))
    }

    fn set_option(options: &mut Options, name: &str, value: &str) -> Result<(), Error> {
        options.set(name, value).map_err(Error::options)
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn worker(self: &Arc<Self>) -> Result<PartitionedWorker, Error> {
        PartitionedWorker::new(self)
    }
}
