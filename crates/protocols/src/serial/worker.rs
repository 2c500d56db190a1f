//! A worker: a slot, counters, and buffers that its transactions use one after the other.

use std::sync::Arc;

use polychron_base::{Abort, Error};
use polychron_engine::options::Retry;
use polychron_engine::redo::Watch;
use polychron_engine::statistics::Registered;
use polychron_engine::{Counters, Interactive, Mode, Procedure, Savepoints, Ticket, Worker, drive};
use polychron_memory::Local;
use polychron_schema::RowBuffer;

use super::commit::Undo;
use super::protocol::Serial;
use super::table::Tables;
use super::transaction::SerialTransaction;

/// One thread's way into the database.
#[derive(Debug)]
pub struct SerialWorker {
    database: Arc<Serial>,
    counters: Registered,
    /// A worker slot: claimed for its number, which the options limit.
    slot: Local,
    buffers: Buffers,
}

/// What a worker keeps from one transaction to the next, so that transactions do not allocate it anew.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// The database's tables, while a transaction runs.
    pub(super) tables: Option<Box<Tables>>,
    /// What the running transaction changed, in order.
    pub(super) undo: Vec<Undo>,
    pub(super) savepoints: Savepoints,
    /// The row that is being changed.
    pub(super) row: RowBuffer,
    /// The worker's slot, by which the log knows it.
    pub(super) slot: usize,
    /// What its answers wait for.
    pub(super) ticket: Ticket,
    /// What the running transaction reads of a log that has stopped.
    pub(super) watch: Watch,
}

impl SerialWorker {
    pub(super) fn new(database: &Arc<Serial>) -> Result<Self, Error> {
        let slot = database.memory.register().map_err(Error::from)?;
        let counters = database.counters.register();
        let buffers = Buffers { slot: slot.worker_id().position(), ..Buffers::default() };
        Ok(Self { database: Arc::clone(database), counters, slot, buffers })
    }
}

impl SerialWorker {
    /// Rolls back a transaction that was leaked.
    fn end_leaked(&mut self) {
        if self.buffers.tables.is_some() {
            drop(SerialTransaction::new(&self.database, &mut self.buffers, &self.counters, Mode::ReadWrite));
        }
    }
}

impl Worker for SerialWorker {
    fn execute<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, P::Error> {
        drive::execute(self, Mode::ReadWrite, procedure)
    }

    fn snapshot<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, P::Error> {
        drive::execute(self, Mode::Snapshot, procedure)
    }

    fn admit(&mut self) -> Result<(), Error> {
        self.database.common.journal.admit(self.buffers.slot)
    }

    fn take_ticket(&mut self) -> Ticket {
        std::mem::take(&mut self.buffers.ticket)
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Interactive for SerialWorker {
    type Transaction<'w> = SerialTransaction<'w>;

    fn begin(&mut self, mode: Mode) -> Result<SerialTransaction<'_>, Error> {
        self.end_leaked();
        if self.database.common.memory.pin_workers {
            // A guard keeps nothing here; with it the worker comes to its thread.
            drop(self.slot.pin());
        }
        self.buffers.tables = Some(self.database.take()?);
        debug_assert!(self.buffers.undo.is_empty(), "the transaction before has ended");
        self.buffers.savepoints.clear();
        self.buffers.watch.begin(&self.database.common.journal);
        Ok(SerialTransaction::new(&self.database, &mut self.buffers, &self.counters, mode))
    }

    /// Nothing ever conflicts.
    fn last_abort(&self) -> Option<Abort> {
        None
    }

    fn back_off(&mut self, _attempts: u64) {}

    fn retry(&self) -> &Retry {
        &self.database.common.retry
    }
}

impl Drop for SerialWorker {
    fn drop(&mut self) {
        self.end_leaked();
    }
}
