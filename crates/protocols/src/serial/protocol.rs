//! The database as a whole: one mutex over the tables.

use std::cell::RefCell;
use std::sync::{Arc, PoisonError};

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::statistics::Registry;
use polychron_engine::{Common, IndexDefinition, Protocol, Statistics, TableDefinition};
use polychron_memory::Memory;
use polychron_sync::{Mutex, MutexGuard, thread_local};

use super::options::Options;
use super::table::Tables;
use super::worker::SerialWorker;

/// The protocol. See the module.
#[derive(Debug)]
pub struct Serial {
    pub(super) memory: Arc<Memory>,
    pub(super) common: Common,
    pub(super) counters: Registry,
    tables: Mutex<Tables>,
}

thread_local! {
    /// The databases (by address) whose mutex this thread holds.
    static HELD: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The mutex, held.
#[derive(Debug)]
pub(super) struct Held<'d> {
    pub(super) tables: MutexGuard<'d, Tables>,
    database: usize,
}

impl Serial {
    /// Takes the mutex.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when this thread holds it already and would wait for itself.
    pub(super) fn hold(&self) -> Result<Held<'_>, Error> {
        let database = std::ptr::from_ref(self).addr();
        HELD.with(|held| {
            let mut held = held.borrow_mut();
            if held.contains(&database) {
                return Err(Error::Unsupported {
                    protocol: Self::NAME,
                    what: "a call from inside a transaction of the same thread",
                });
            }
            held.push(database);
            Ok(())
        })?;
        // Procedures that panic are caught and rolled back before the mutex is given back, so it is never poisoned by them.
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Held { tables, database })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        HELD.with(|held| held.borrow_mut().retain(|&database| database != self.database));
    }
}

impl Protocol for Serial {
    const NAME: &'static str = "serial";
    const SUMMARY: &'static str = "one transaction at a time behind one mutex: the oracle for tests and the tutorial";

    type Options = Options;
    type Worker = SerialWorker;

    fn open(_options: Options, common: Common) -> Result<Arc<Self>, Error> {
        let memory = Memory::new(common.memory.clone()).map_err(Error::from)?;
        Ok(Arc::new(Self { memory, common, counters: Registry::default(), tables: Mutex::default() }))
    }

    fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    fn create_table(&self, definition: TableDefinition) -> Result<TableId, Error> {
        self.hold()?.tables.create(definition)
    }

    fn drop_table(&self, table: TableId) -> Result<(), Error> {
        self.hold()?.tables.remove(table)
    }

    fn create_index(self: &Arc<Self>, table: TableId, definition: IndexDefinition) -> Result<IndexId, Error> {
        self.hold()?.tables.get_mut(table)?.create_index(definition)
    }

    fn drop_index(&self, table: TableId, index: IndexId) -> Result<(), Error> {
        self.hold()?.tables.get_mut(table)?.drop_index(index)
    }

    fn find_table(&self, name: &str) -> Option<TableId> {
        self.hold().ok()?.tables.find(name)
    }

    fn definition(&self, table: TableId) -> Result<Arc<TableDefinition>, Error> {
        self.hold()?.tables.get(table).map(|table| Arc::clone(&table.definition))
    }

    fn worker(self: &Arc<Self>) -> Result<SerialWorker, Error> {
        SerialWorker::new(self)
    }

    fn statistics(&self) -> Statistics {
        self.counters.sum()
    }
}
