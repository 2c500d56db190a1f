//! The plug point: what a protocol gives, and what a procedure may ask for.
//!
//! ```text
//!   workloads, SQL, users ──► Procedure / closures ──► Transaction ◄── implemented by each protocol
//!                                    │                      ▲
//!                             Worker::execute ── drive ─────┘   retry, back-off, panics, counters (here, once)
//! ```
//!
//! Everything is dispatched statically: a procedure is code generic over [`Transaction`] and is compiled once for each
//! protocol. Protocols own how rows lie in memory; what several of them need stands here, offered and never required.
//! `docs/decisions/0002-plug-point.md` walks each of the five designs through these traits.

pub mod aggregate;
pub mod any;
pub mod background;
pub mod batch;
pub mod catalog;
mod change_outcome;
pub mod checked;
pub mod contested;
pub mod definitions;
mod distribution;
pub mod drive;
pub mod events;
pub mod evolve;
pub mod foreign_keys;
pub mod futures;
mod handle;
mod hot_keys;
mod interactive;
mod isolation;
mod key_names;
pub mod keys;
pub mod lazy;
pub mod limits;
pub mod load;
pub mod midway;
#[doc(hidden)]
pub mod mutations;
pub mod nested;
pub mod open;
mod operations;
pub mod options;
mod procedure;
pub mod redo;
pub mod rows;
mod savepoint;
pub mod scan;
mod single;
pub mod statistics;
mod storage;
pub mod stores;
pub mod submission;
mod transaction;
pub mod typed;
pub mod watch;
mod whole;
pub mod write_rules;

use std::sync::Arc;

use polychron_base::key::EncodedKey;
pub use polychron_base::{Abort, Error, IndexId, Reason, TableId};
use polychron_memory::Memory;
pub use polychron_schema::{IndexDefinition, Projection, Row, RowBuffer, RowMut, RowRef, TableDefinition};

pub use aggregate::Aggregate;
pub use batch::{ColumnBatch, ColumnVector};
pub use change_outcome::ChangeOutcome;
pub use definitions::Standing;
pub use distribution::{Counting, Distribution, SharedDistribution};
pub use events::{Event, Events, OpeningStage};
pub use foreign_keys::Constraints;
pub use futures::{Becomes, Future, FutureValue, Futures, Together};
pub use hot_keys::HotKey;
pub use interactive::{Commit, Interactive, Mode};
pub use isolation::{Configuration, Isolation};
pub use load::LoadedRow;
pub use operations::Operations;
pub use options::Common;
pub use procedure::{Access, Declare, Procedure};
pub use redo::{Journal, Ticket};
pub use savepoint::{Savepoint, Savepoints};
pub use scan::{Direction, Restriction, Scan};
pub use statistics::{Counters, Metric, MetricValue, Statistics, Versions};
pub use storage::Storage;
pub use submission::Submission;
pub use transaction::{Insertion, LazyFutures, Prefetch, Queries, RowVisitor, Transaction};
pub use typed::Table;
pub use whole::WholeOnly;
pub use write_rules::WriteRules;

/// A concurrency-control design: owns the tables, hands out workers.
///
/// Tables and indexes may be created and dropped while transactions run.
pub trait Protocol: Sized + Send + Sync + 'static {
    /// The name on the command line.
    const NAME: &'static str;
    /// One line for lists: what it is and when to take it.
    const SUMMARY: &'static str;

    /// The isolation under the default options. Every protocol is serializable, except those that exist for comparison only.
    const ISOLATION: Isolation = Isolation::Serializable;

    /// Options that have a name of their own in lists, beside the default ones, which go by [`Protocol::NAME`].
    const CONFIGURATIONS: &'static [Configuration] = &[];

    /// The protocol's own knobs.
    type Options: Clone + std::fmt::Debug + Default + Send + Sync + 'static;
    /// A thread's access, which executes procedures.
    type Worker: Worker + 'static;
    /// The same worker, for code that is written once for all protocols and finds out when it runs whether transactions can be begun step by step
    /// ([`Interactive::holds_transactions`]): the worker itself, or else [`WholeOnly`] of it.
    type Driven: Interactive + From<Self::Worker> + 'static;

    /// Opens an empty database.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the memory limit leaves no room to start.
    fn open(options: Self::Options, common: Common) -> Result<Arc<Self>, Error>;

    /// Sets one of the protocol's own knobs by its name, from text: for programs that learn the protocol when they run.
    ///
    /// # Errors
    /// [`Error::Options`]: there is no knob of that name, or it has no such value.
    fn set_option(_options: &mut Self::Options, name: &str, _value: &str) -> Result<(), Error> {
        Err(Error::options(format!("{} has no option `{name}`", Self::NAME)))
    }

    /// The name of the options that this database was opened with, if they have one of their own.
    fn name(&self) -> &'static str {
        Self::NAME
    }

    /// The isolation of this database.
    fn isolation(&self) -> Isolation {
        Self::ISOLATION
    }

    /// Its memory and its tables.
    fn storage(&self) -> &dyn Storage;

    /// A worker: one for each thread that executes procedures.
    ///
    /// # Errors
    /// [`Error::TooManyWorkers`] when all slots are taken.
    fn worker(self: &Arc<Self>) -> Result<Self::Worker, Error>;

    /// The memory of this database.
    fn memory(&self) -> &Arc<Memory> {
        self.storage().memory()
    }

    /// Creates a table with its secondary indexes.
    ///
    /// # Errors
    /// [`Error::NameTaken`], [`Error::Definition`], [`Error::OutOfMemory`].
    fn create_table(&self, definition: TableDefinition) -> Result<TableId, Error> {
        self.storage().create_table(definition, Standing::Permanent)
    }

    /// Drops a table. Operations on it fail with [`Error::NoSuchTable`] in transactions that begin from now on. One that is open may go on with
    /// the table, and commit: it takes its place before the drop, also where others have met the table gone before that. The table's memory is
    /// given back when no transaction can still see it.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`].
    fn drop_table(&self, table: TableId) -> Result<(), Error> {
        self.storage().drop_table(table)
    }

    /// Adds a secondary index to a table and fills it while transactions run. Returns when it can be read. While a unique index is being filled,
    /// it refuses writes as duplicates, also where it cannot be made in the end.
    ///
    /// If it has to wait for open transactions of other threads, it waits within the limits of the calling thread
    /// ([`Limits::hold`](limits::Limits::hold)), and at most for [`Retry::time`](options::Retry::time). A protocol that plans procedures
    /// waits for the procedures that were submitted before.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::NameTaken`], [`Error::Definition`], [`Error::OutOfMemory`], and
    /// [`Error::Duplicate`] when the index is unique and the rows are not; [`Error::TimedOut`], which names the transaction it waited for,
    /// [`Error::Cancelled`], or [`Error::Conflicts`] when another transaction that it must wait for stays open for too long. The table is then as before.
    /// [`Error::WaitsForItself`] where the calling thread has a transaction open, or is called from the midst of a batch, and the protocol waits
    /// for the end of both.
    fn create_index(&self, table: TableId, definition: IndexDefinition) -> Result<IndexId, Error> {
        self.storage().create_index(table, definition, Standing::Permanent)
    }

    /// Drops a secondary index.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::NoSuchIndex`].
    fn drop_index(&self, table: TableId, index: IndexId) -> Result<(), Error> {
        self.storage().drop_index(table, index)
    }

    /// The id of the table of this name.
    fn find_table(&self, name: &str) -> Option<TableId> {
        self.storage().find_table(name)
    }

    /// The names of all tables, sorted, but for those that go with the process.
    fn table_names(&self) -> Vec<String> {
        self.storage().table_names()
    }

    /// The id of the index of this name, if the table has one.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`].
    fn find_index(&self, table: TableId, name: &str) -> Result<Option<IndexId>, Error> {
        self.storage().find_index(table, name)
    }

    /// The definition of a table, with the indexes it has now.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`].
    fn definition(&self, table: TableId) -> Result<Arc<TableDefinition>, Error> {
        self.storage().definition(table)
    }

    /// Counts of all workers so far, and of memory and snapshots.
    fn statistics(&self) -> Statistics {
        self.storage().statistics()
    }

    /// The number of versions that the records have besides the newest (Figure 6-6 of the Maflingo thesis); walks every table.
    /// `None` where records have one version only.
    fn versions(&self) -> Option<Versions> {
        self.storage().versions()
    }

    /// Facts about its tables that only this protocol has; walks every table.
    fn inspect(&self) -> Vec<Metric> {
        self.storage().inspect()
    }
}

/// One thread's way into a database.
pub trait Worker: Send {
    /// Executes a procedure as one serializable transaction, again and again until it commits, is stopped by the
    /// procedure itself, or has conflicted as often as [`options::Retry`] allows.
    ///
    /// # Errors
    /// The error that stopped it; all its changes are undone.
    fn execute<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, P::Error>;

    /// Executes independent procedures, each as a transaction of its own, in any order. A protocol may look ahead: plan
    /// them together, or bring their records into the caches while earlier ones run.
    ///
    /// `done` is told each procedure's position and outcome.
    fn execute_batch<P: Procedure>(
        &mut self,
        procedures: &mut [P],
        done: &mut impl FnMut(usize, Result<P::Output, P::Error>),
    ) {
        for (position, procedure) in procedures.iter_mut().enumerate() {
            let outcome = self.execute(procedure);
            done(position, outcome);
        }
    }

    /// As [`Worker::execute_batch`], together with procedures of other types. `others` is called once, to execute those with this worker: as soon as
    /// `procedures` are handed in to be planned, or after them. Another thread that [helps](Worker::help_others) may call `done`.
    fn execute_batch_with<P: Procedure>(
        &mut self,
        procedures: &mut [P],
        done: &(impl Fn(usize, Result<P::Output, P::Error>) + Sync),
        others: impl FnOnce(&mut Self),
    ) {
        self.execute_batch(procedures, &mut |position, outcome| done(position, outcome));
        others(self);
    }

    /// For an idle thread: continues a batch of another worker that has stopped ([`Worker::execute_batch_with`]). Returns whether there was one; `None`:
    /// this protocol plans no batches.
    fn help_others(&mut self) -> Option<bool> {
        None
    }

    /// Executes a read-only procedure on a consistent snapshot, slightly in the past where the protocol says so. It
    /// tracks nothing, never conflicts, and neither blocks writers nor is blocked by them.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when it writes; otherwise what the procedure itself returned.
    fn snapshot<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, P::Error>;

    /// Reads one row of the committed present, outside of any transaction of the caller's: `read` is given the columns that
    /// `projection` names, or `None` for an absent key, and may be called again when the read met a writer.
    ///
    /// By default this is a transaction of one read. A protocol whose versions never change can hand out the version it
    /// finds (Cicada, appendix B), and neither begins nor validates anything.
    ///
    /// # Errors
    /// As [`Worker::execute`].
    #[inline]
    fn read_one<K: EncodedKey, O: Send>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        read: impl FnMut(Option<RowRef<'_>>) -> O + Send,
    ) -> Result<O, Error> {
        self.execute(&mut single::ReadOne { table, key, projection, read })
    }

    /// Puts rows into a table of a database that nobody uses yet and that logs nothing. Each has its key and the table's layout; keys differ from each
    /// other, and from those of all rows that other workers load. Foreign keys are not looked at.
    ///
    /// By default this is a transaction. A protocol may make records without one: those are then older than everything, so that the first snapshot has
    /// them.
    ///
    /// # Errors
    /// [`Error::Duplicate`] where a key of the primary index or of a unique one is taken, and [`Error::OutOfMemory`]. The database is to be given up
    /// then: it may have any of the rows, with or without their entries.
    fn load(&mut self, table: TableId, rows: &[LoadedRow<'_>]) -> Result<(), Error>
    where
        Self: Sized,
    {
        load::by_transaction(self, table, rows)
    }

    /// Before a transaction that may write begins: waits while the log is behind. [`drive`] asks, and [`open`]; a protocol that executes transactions on
    /// other threads than the client's does so by itself.
    ///
    /// # Errors
    /// [`Error::LogStopped`], [`Error::DiskFull`].
    fn admit(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// The ticket on which the answers depend that this worker has given since the last call. The worker itself does not wait for it. The caller that
    /// passes the answers on does ([`redo::Answers`]), while the worker is in no epoch, and preferably after it has returned the worker. A protocol with a
    /// journal sets the ticket for each transaction, including those that only read or failed.
    fn take_ticket(&mut self) -> Ticket {
        Ticket::DONE
    }

    /// This worker's counts.
    fn counters(&self) -> &Counters;

    /// Does pending background work of this worker (collecting versions, unlinking deleted keys). Executing does so too,
    /// in small steps; an idle worker may call this.
    fn maintain(&mut self) {}
}
