//! The database as a whole. A transaction takes the tables, and gives them back at its end: a thread that wants them meanwhile waits.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use polychron_base::error::table_name;
use polychron_base::{Error, IndexId, TableId};
use polychron_engine::catalog::Superseded;
use polychron_engine::definitions::{Standing, StoredCatalog};
use polychron_engine::limits;
use polychron_engine::redo::{Journal, Order, Orders};
use polychron_engine::statistics::Registry;
use polychron_engine::{Common, IndexDefinition, Protocol, Statistics, Storage, TableDefinition, WriteRules};
use polychron_memory::{Memory, MemoryStatistics, OWN_SLOTS};
use polychron_schema::EvolutionError;
use polychron_sync::atomic::{AtomicUsize, Ordering};
use polychron_sync::{Condvar, Mutex, MutexGuard, nap};

use super::options::Options;
use super::table::Tables;
use super::worker::SerialWorker;

/// The protocol. See the module.
#[derive(Debug)]
pub struct Serial {
    pub(super) memory: Arc<Memory>,
    pub(super) common: Common,
    pub(super) counters: Registry,
    /// Bytes that the tables need.
    used: Arc<AtomicUsize>,
    limit: usize,
    gate: Mutex<Gate>,
    evolving: Mutex<()>,
    /// The tables by name, as of the last change of them: whoever looks for one does not wait.
    names: Mutex<BTreeMap<String, (TableId, Standing)>>,
    /// The tables came back.
    free: Condvar,
    /// Of those that seal their changes for the log.
    pub(super) orders: Orders,
}

/// Where the tables are while no thread has them.
#[derive(Debug)]
struct Gate {
    tables: Option<Box<Tables>>,
    /// The thread that has them otherwise.
    holder: u64,
    /// How many wait for them.
    waiting: usize,
}

/// The tables, taken for one call.
pub(super) struct Held<'d> {
    tables: Option<Box<Tables>>,
    database: &'d Serial,
}

impl Serial {
    fn gate(&self) -> MutexGuard<'_, Gate> {
        // No statement under this mutex can panic.
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the tables, and waits for them.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when this thread has them already and would wait for itself; what [`limits::check`] says while it waits.
    pub(super) fn take(&self) -> Result<Box<Tables>, Error> {
        let here = polychron_sync::this_thread();
        let mut gate = self.gate();
        loop {
            if let Some(tables) = gate.tables.take() {
                gate.holder = here;
                return Ok(tables);
            }
            if gate.holder == here {
                let what = "a call from inside a transaction of the same thread";
                return Err(Error::unsupported(Self::NAME, what));
            }
            if limits::are_set() {
                // No thread wakes this thread when its time is over, so it looks for itself.
                drop(gate);
                limits::check()?;
                nap(1);
                gate = self.gate();
                continue;
            }
            gate.waiting += 1;
            gate = self.free.wait(gate).unwrap_or_else(PoisonError::into_inner);
            gate.waiting -= 1;
        }
    }

    /// Gives the tables back.
    pub(super) fn put_back(&self, tables: Box<Tables>) {
        let mut gate = self.gate();
        gate.tables = Some(tables);
        gate.holder = 0;
        if gate.waiting > 0 {
            self.free.notify_one();
        }
    }

    /// Takes the tables for one call.
    ///
    /// # Errors
    /// As [`Serial::take`].
    pub(super) fn hold(&self) -> Result<Held<'_>, Error> {
        Ok(Held { tables: Some(self.take()?), database: self })
    }

    /// Changes which tables there are.
    fn change<O>(&self, change: impl FnOnce(&mut Tables) -> Result<O, Error>) -> Result<O, Error> {
        let mut tables = self.hold()?;
        let output = change(&mut tables)?;
        *self.names() = tables.names();
        Ok(output)
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<String, (TableId, Standing)>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Held<'_> {
    type Target = Tables;

    fn deref(&self) -> &Tables {
        self.tables.as_deref().expect("they are given back at the end")
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Tables {
        self.tables.as_deref_mut().expect("they are given back at the end")
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(tables) = self.tables.take() {
            self.database.put_back(tables);
        }
    }
}

impl Protocol for Serial {
    const NAME: &'static str = "serial";
    const SUMMARY: &'static str = "one transaction at a time: the oracle for tests";

    type Options = Options;
    type Worker = SerialWorker;
    type Driven = SerialWorker;

    fn open(_options: Options, common: Common) -> Result<Arc<Self>, Error> {
        let memory = Memory::new(common.memory.clone()).map_err(Error::from)?;
        let (limit, used) = (memory.statistics().limit_bytes, Arc::<AtomicUsize>::default());
        let tables = Box::new(Tables::new(limit, Arc::clone(&used), common.journal.clone()));
        let gate = Mutex::new(Gate { tables: Some(tables), holder: 0, waiting: 0 });
        let (counters, free) = (Registry::new(common.events.clone()), Condvar::new());
        Ok(Arc::new(Self {
            memory,
            orders: Orders::new(common.memory.max_workers + OWN_SLOTS),
            common,
            counters,
            used,
            limit,
            gate,
            evolving: Mutex::default(),
            names: Mutex::default(),
            free,
        }))
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn worker(self: &Arc<Self>) -> Result<SerialWorker, Error> {
        SerialWorker::new(self)
    }
}

impl Storage for Serial {
    fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    fn counters(&self) -> &Registry {
        &self.counters
    }

    fn journal(&self) -> &Journal {
        &self.common.journal
    }

    fn ended(&self) -> Order {
        self.orders.ended().into()
    }

    fn create_table(&self, definition: TableDefinition, standing: Standing) -> Result<TableId, Error> {
        self.change(|tables| tables.create(definition, standing))
    }

    fn restore(&self, stored: &StoredCatalog) -> Result<(), Error> {
        self.change(|tables| tables.restore(stored))
    }

    fn drop_table(&self, table: TableId) -> Result<(), Error> {
        self.change(|tables| tables.remove(table))
    }

    fn create_index(&self, table: TableId, definition: IndexDefinition, standing: Standing) -> Result<IndexId, Error> {
        let name = definition.name.clone();
        let mut tables = limits::check()
            .and_then(|()| limits::patiently(self.longest_wait(), || self.hold()))
            .map_err(|error| error.making(|| format!("{}.{name}", table_name(table))))?;
        tables.create_index(table, definition, standing)
    }

    fn drop_index(&self, table: TableId, index: IndexId) -> Result<(), Error> {
        self.hold()?.drop_index(table, index)
    }

    fn hold_table(&self, table: TableId, why: Option<Arc<EvolutionError>>) -> Result<(), Error> {
        self.hold()?.hold(table, why)
    }

    fn set_write_rules(&self, table: TableId, rules: Option<Arc<dyn WriteRules>>) -> Result<(), Error> {
        self.hold()?.set_write_rules(table, rules)
    }

    fn keep_table(&self, table: TableId) -> Result<(), Error> {
        self.change(|tables| tables.keep(table))
    }

    fn supersede_table(&self, old: Superseded, new: TableId) -> Result<(), Error> {
        self.change(|tables| tables.supersede(old, new))
    }

    fn evolving(&self) -> &Mutex<()> {
        &self.evolving
    }

    fn longest_wait(&self) -> Option<Duration> {
        self.common.retry.time
    }

    fn find_table(&self, name: &str) -> Option<TableId> {
        self.names().get(name).map(|(id, _)| *id)
    }

    fn table_names(&self) -> Vec<String> {
        let names = self.names();
        let permanent = names.iter().filter(|(_, (_, standing))| *standing == Standing::Permanent);
        permanent.map(|(name, _)| name.clone()).collect()
    }

    fn find_index(&self, table: TableId, name: &str) -> Result<Option<IndexId>, Error> {
        Ok(self.hold()?.get(table)?.index_named(name))
    }

    fn definition(&self, table: TableId) -> Result<Arc<TableDefinition>, Error> {
        self.hold()?.get(table).map(|table| Arc::clone(&table.definition))
    }

    fn statistics(&self) -> Statistics {
        let used_bytes = self.used.load(Ordering::Relaxed);
        let memory = MemoryStatistics { used_bytes, limit_bytes: self.limit, ..self.memory.statistics() };
        Statistics { memory: Some(memory), ..self.counters.sum() }
    }
}
