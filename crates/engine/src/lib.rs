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
pub mod checked;
pub mod contested;
mod distribution;
pub mod drive;
pub mod foreign_keys;
pub mod futures;
mod handle;
mod interactive;
mod isolation;
pub mod lazy;
#[doc(hidden)]
pub mod mutations;
pub mod nested;
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
pub mod typed;

use std::ops::ControlFlow;
use std::sync::Arc;

use polychron_base::key::EncodedKey;
pub use polychron_base::{Abort, Error, IndexId, Reason, Stop, TableId};
use polychron_memory::Memory;
use polychron_schema::Value;
pub use polychron_schema::{IndexDefinition, Projection, Row, RowBuffer, RowMut, RowRef, TableDefinition};

use futures::{Assigned, FutureColumn, FutureError, OpenKey, Operand, Scalar, Scope};

pub use aggregate::Aggregate;
pub use batch::{ColumnBatch, ColumnVector};
pub use distribution::Distribution;
pub use foreign_keys::Constraints;
pub use futures::{Becomes, Future, FutureValue, Futures};
pub use interactive::{Commit, Interactive, Mode};
pub use isolation::{Configuration, Isolation};
pub use options::Common;
pub use procedure::{Access, Declare, Procedure};
pub use savepoint::{Savepoint, Savepoints};
pub use scan::{Direction, Restriction, Scan};
pub use statistics::{Counters, Figure, FigureValue, Statistics, Versions};
pub use storage::Storage;
pub use submission::Submission;
pub use typed::{Operations, Table};

/// A concurrency-control design: owns the tables, hands out workers.
///
/// Tables and indexes may be created and dropped while transactions run.
pub trait Protocol: Sized + Send + Sync + 'static {
    /// The name on the command line.
    const NAME: &'static str;
    /// One line for lists: what it is and when to take it.
    const SUMMARY: &'static str;

    /// What transactions are promised of each other under the default options. Everything but what is there for comparison is
    /// serializable.
    const ISOLATION: Isolation = Isolation::Serializable;

    /// Options that have a name of their own in lists, beside the default ones, which go by [`Protocol::NAME`].
    const CONFIGURATIONS: &'static [Configuration] = &[];

    /// Whether transactions of several workers can be open in one thread, none of whose operations waits for another one to end. Only
    /// benchmarks ask.
    const INTERLEAVES: bool = false;

    /// The protocol's own knobs.
    type Options: Clone + std::fmt::Debug + Default + Send + Sync + 'static;
    /// What a thread executes procedures with.
    type Worker: Worker + 'static;

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
        Err(Error::Options(format!("{} has no option `{name}`", Self::NAME)))
    }

    /// The name of the options that this database was opened with, if they have one of their own.
    fn name(&self) -> &'static str {
        Self::NAME
    }

    /// What the transactions of this database are promised of each other.
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
        self.storage().create_table(definition)
    }

    /// Drops a table. Operations on it fail with [`Error::NoSuchTable`] in transactions that begin from now on. One that is open may go on with
    /// the table, and commit: it takes its place before the drop, also where others have met the table gone before that. The table's memory is
    /// given back when no transaction can see it any more.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`].
    fn drop_table(&self, table: TableId) -> Result<(), Error> {
        self.storage().drop_table(table)
    }

    /// Adds a secondary index to a table and fills it while transactions run. Returns when it can be read. While a unique index is being filled,
    /// it refuses writes as duplicates, also where it cannot be made in the end.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::NameTaken`], [`Error::Definition`], [`Error::OutOfMemory`], and
    /// [`Error::Duplicate`] when the index is unique and the rows are not; the table is then as before.
    /// [`Error::WaitsForItself`] where the calling thread has a transaction open, or is called from the midst of a batch, and the protocol waits
    /// for the end of both.
    fn create_index(&self, table: TableId, definition: IndexDefinition) -> Result<IndexId, Error> {
        self.storage().create_index(table, definition)
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

    /// How many versions the records have besides the newest (Figure 6-6 of the Maflingo thesis); walks every table.
    /// `None` where records have one version only.
    fn versions(&self) -> Option<Versions> {
        self.storage().versions()
    }

    /// What this protocol can tell of its tables that others cannot; walks every table.
    fn inspect(&self) -> Vec<Figure> {
        self.storage().inspect()
    }
}

/// One thread's way into a database.
pub trait Worker: Send {
    /// Executes a procedure as one serializable transaction, again and again until it commits, is stopped by the
    /// procedure itself, or has conflicted as often as [`options::Retry`] allows.
    ///
    /// # Errors
    /// What stopped it; whatever it had done is undone.
    fn execute<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, Error>;

    /// Executes independent procedures, each as a transaction of its own, in any order. A protocol may look ahead: plan
    /// them together, or bring their records into the caches while earlier ones run.
    ///
    /// `done` is told each procedure's position and outcome.
    fn execute_batch<P: Procedure>(
        &mut self,
        procedures: &mut [P],
        done: &mut impl FnMut(usize, Result<P::Output, Error>),
    ) {
        for (position, procedure) in procedures.iter_mut().enumerate() {
            let outcome = self.execute(procedure);
            done(position, outcome);
        }
    }

    /// As [`Worker::execute_batch`], beside procedures of other types: `others`, which is called once, executes those with this worker, as soon as these
    /// are handed in to be planned, or behind them. `done` may be told by another thread, which [helps](Worker::help_others).
    fn execute_batch_with<P: Procedure>(
        &mut self,
        procedures: &mut [P],
        done: &(impl Fn(usize, Result<P::Output, Error>) + Sync),
        others: impl FnOnce(&mut Self),
    ) {
        self.execute_batch(procedures, &mut |position, outcome| done(position, outcome));
        others(self);
    }

    /// For an idle thread: goes on with batches of other workers that stand ([`Worker::execute_batch_with`]). Whether it could; `None`: none are planned.
    fn help_others(&mut self) -> Option<bool> {
        None
    }

    /// Executes a read-only procedure on a consistent snapshot, slightly in the past where the protocol says so. It
    /// tracks nothing, never conflicts, and neither blocks writers nor is blocked by them.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when it writes; otherwise what the procedure itself returned.
    fn snapshot<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, Error>;

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

    /// This worker's counts.
    fn counters(&self) -> &Counters;

    /// Does pending background work of this worker (collecting versions, unlinking deleted keys). Executing does so too,
    /// in small steps; an idle worker may call this.
    fn tidy_up(&mut self) {}
}

/// What an insertion did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Insertion {
    /// The row is in.
    Inserted,
    /// A row with the same key stands in this unique index; nothing changed, and the transaction goes on.
    Duplicate(IndexId),
}

/// A running transaction, as procedures see it: rows are bytes in the schema's layout, keys are encoded.
///
/// Typed access is added by [`Operations`]. A transaction reads its own writes everywhere. An `Err` that is a conflict
/// must be passed on: after one, every further call conflicts too.
pub trait Transaction {
    /// Reads the columns that `projection` names of the row of `key`; other columns of the view are undefined.
    ///
    /// An absent key is an observation like any other: it stays absent until the commit, or the transaction conflicts.
    fn read_row<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Stop>;

    /// Reads a row without protecting the read: it may have changed by the time the transaction commits. For answers that
    /// may be approximate; never needed for correctness.
    fn read_row_unvalidated<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Stop>;

    /// Changes a row in place: `change` sees the columns of `projection` and may set those. `false`: no such row.
    ///
    /// # Errors
    /// What [`checked`] refuses; the row is then as it was. This holds for the four methods below too.
    fn update_row<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<bool, Stop> {
        checked::update_row(self, table, key, projection, change)
    }

    /// Inserts a row whose key is absent.
    fn insert_row<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Stop> {
        checked::insert_row(self, table, key, row)
    }

    /// Writes the whole row of `key`, whether or not there is one; what was there is not observed unless a secondary
    /// index needs it.
    fn put_row<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Stop> {
        checked::put_row(self, table, key, row)
    }

    /// Deletes the row of `key`. `false`: no such row.
    fn delete_row<K: EncodedKey>(&mut self, table: TableId, key: K) -> Result<bool, Stop> {
        foreign_keys::delete_row(self, table, key)
    }

    /// Visits the rows of a range in order. The range, as far as it was visited, stays as it was seen until the commit,
    /// or the transaction conflicts.
    fn scan_rows(
        &mut self,
        scan: &Scan<'_>,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        checked::check_restrictions(self, scan)?;
        self.scan_unchecked(scan, visitor)
    }

    /// [`Transaction::update_row`] of a protocol: nothing is checked of what `change` makes of the row. This and the four methods
    /// below are for who has checked already; a wrong row or key breaks the table's indexes.
    #[doc(hidden)]
    fn update_unchecked<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<bool, Stop>;

    /// [`Transaction::insert_row`] of a row that has this key, and whose parents are checked.
    #[doc(hidden)]
    fn insert_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Stop>;

    /// [`Transaction::put_row`] of a row that has this key, and whose parents are checked.
    #[doc(hidden)]
    fn put_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Stop>;

    /// [`Transaction::delete_row`] of a row whose children are checked.
    #[doc(hidden)]
    fn delete_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K) -> Result<bool, Stop>;

    /// [`Transaction::scan_rows`], of which all restrictions name columns of the table.
    #[doc(hidden)]
    fn scan_unchecked(
        &mut self,
        scan: &Scan<'_>,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Stop>;

    /// Visits every row of a table once, in the order that is fastest: for questions about all of it. A protocol whose rows
    /// lie one behind the other goes along them and past every index.
    ///
    /// The default visits the rows in the order of their keys. In a read-write transaction the whole table stays as it was
    /// seen until the commit, as far as it was visited, or the transaction conflicts.
    ///
    /// # Errors
    /// [`Error::NoOrder`] where the primary index has no order and is needed: outside of snapshots always.
    fn scan_table(
        &mut self,
        table: TableId,
        projection: &Projection,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        self.scan_unchecked(&Scan { projection: *projection, ..Scan::all(table) }, visitor)
    }

    /// Counts the rows of a range, or sums a column, or finds its smallest or largest value. The direction is of no
    /// matter.
    ///
    /// The default visits the rows. A protocol that locks predicates learns here which answer is wanted, so that it can
    /// protect that answer and not every value (a minimum conflicts only with what could lower it); one that stores columns
    /// computes it from them.
    ///
    /// # Errors
    /// [`aggregate::AggregateError`] where the column has no such answer, beside what a scan may end with.
    fn aggregate(&mut self, scan: &Scan<'_>, wanted: Aggregate) -> Result<Value, Stop> {
        aggregate::over_rows(self, scan, wanted)
    }

    /// Visits the rows of a range as column batches of up to [`batch::ROWS`] rows, in any order of rows. The columns, by
    /// position, must be numbers, dates or truth values; `scan.projection` and `scan.direction` are not looked at.
    ///
    /// `look` makes something of a batch, and `keep` gets it when the rows stood still meanwhile. Otherwise `look` is asked again of the
    /// same rows, and what it made of them before is dropped: it may have seen rows of different moments. So what `look` writes
    /// elsewhere must be overwritten when it is asked again, and what is to last belongs into `keep`, which is called once for each batch.
    ///
    /// The default gathers rows into buffers. A protocol that stores columns lends them where no row of the batch has more
    /// than one version.
    ///
    /// # Errors
    /// [`batch::NotNumeric`] where a column cannot come as a slice, beside what a scan may end with.
    fn scan_columns<O>(
        &mut self,
        scan: &Scan<'_>,
        columns: &[usize],
        look: &mut impl FnMut(&ColumnBatch<'_>) -> O,
        keep: &mut impl FnMut(O) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        batch::over_rows(self, scan, columns, look, keep)
    }

    /// Which transaction this is, for the futures that belong to it. One that leaves futures open has a
    /// [`Workbench`](futures::Workbench), and is known by its scope.
    #[inline]
    fn future_scope(&self) -> Scope {
        Scope::of_attempt()
    }

    /// Reads columns of a row as futures; see [`Futures::future`]. This and the methods below are what a protocol overrides to
    /// leave futures open; the defaults resolve at once.
    fn read_futures<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        columns: &[FutureColumn],
        futures: &mut [Operand],
    ) -> Result<(), Stop> {
        futures::read_now(self, table, key, columns, futures)
    }

    /// Whether a condition is true now; it stays so until the commit, or the transaction conflicts.
    fn test_future(&mut self, condition: Operand) -> Result<bool, Stop> {
        Ok(self.resolve_future(condition)? != 0)
    }

    /// As [`Transaction::test_future`]; a protocol that looks at conditions again at the commit may take the assumed answer at
    /// the first attempt. See [`Futures::is_true_assuming`].
    fn test_future_assuming(&mut self, condition: Operand, _assumed: bool) -> Result<bool, Stop> {
        self.test_future(condition)
    }

    /// Makes futures the values of columns of an existing row; see [`Futures::set_futures`], which checks what this and the two methods
    /// below rely on.
    #[doc(hidden)]
    fn write_futures<K: EncodedKey>(&mut self, table: TableId, key: K, columns: &Assigned) -> Result<(), Stop> {
        futures::write_now(self, table, key, columns)
    }

    /// As [`Transaction::write_futures`], under a key that may be open itself.
    #[doc(hidden)]
    fn write_futures_at(&mut self, table: TableId, key: &OpenKey, columns: &Assigned) -> Result<(), Stop> {
        let mut bytes = Vec::new();
        let key = futures::close_key(self, key, &mut bytes)?;
        self.write_futures(table, key, columns)
    }

    /// Inserts a row of which columns may be open, also in its key; see [`Futures::insert_future`].
    #[doc(hidden)]
    fn insert_futures(
        &mut self,
        table: TableId,
        key: &OpenKey,
        row: RowRef<'_>,
        columns: &Assigned,
    ) -> Result<(), Stop> {
        futures::insert_now(self, table, key, row, columns)
    }

    /// The value of a future.
    fn resolve_future(&mut self, future: Operand) -> Result<Scalar, Stop> {
        match future {
            Operand::Known(value) => Ok(value),
            Operand::Pending(_) => Err(FutureError::Foreign.into()),
        }
    }

    /// Marks a place to which [`Transaction::roll_back_to`] can return. Where something that was left open before fails, or the transaction
    /// conflicts, there is no such place: the savepoint is void, and a return to it tells why.
    fn savepoint(&mut self) -> Savepoint {
        let position = self.mark();
        self.savepoints().set(position)
    }

    /// Undoes all writes since `savepoint`; reads stay protected. The savepoint stays valid, and those set later are void.
    ///
    /// # Errors
    /// [`Error::VoidSavepoint`], and nothing is undone. What had failed of what was left open since, and was told nowhere yet: it is undone
    /// with the rest, and told once.
    fn roll_back_to(&mut self, savepoint: Savepoint) -> Result<(), Stop> {
        let Some(position) = self.savepoints().position_of(savepoint) else {
            // What keeps the transaction from going on comes first.
            self.savepoints().take_refused()?;
            self.mark()?;
            return Err(Error::VoidSavepoint.into());
        };
        self.undo_unchecked(position)?;
        self.savepoints().undone_to(savepoint);
        self.savepoints().take_refused()
    }

    /// How far the transaction has come: a position that means something to the protocol, and never goes down but by
    /// [`Transaction::undo_unchecked`].
    #[doc(hidden)]
    fn mark(&mut self) -> Result<usize, Stop>;

    /// Undoes all writes since [`Transaction::mark`] told this position, or nothing when it fails. No earlier position was undone to since.
    /// What of them had failed, and was told nowhere, goes to [`Savepoints::tell`].
    #[doc(hidden)]
    fn undo_unchecked(&mut self, position: usize) -> Result<(), Stop>;

    /// The savepoints of this transaction.
    #[doc(hidden)]
    fn savepoints(&mut self) -> &mut Savepoints;

    /// Starts bringing the row of `key` into the caches, and may remember where it is. Protects nothing.
    #[inline]
    fn prefetch_row<K: EncodedKey>(&mut self, _table: TableId, _key: K) {}

    /// Whether the rows that the procedure declares are on their way already, as they are in a batch.
    #[inline]
    fn has_prefetched(&self) -> bool {
        false
    }

    /// Whether this run finds out what the transaction writes, and nothing else: whatever comes of it is discarded, and the procedure runs again.
    /// Where that shows only at a write, the answer changes there.
    #[inline]
    fn is_reconnaissance(&self) -> bool {
        false
    }

    /// The definition of a table, for dynamic access to rows.
    fn definition(&self, table: TableId) -> Result<&TableDefinition, Stop>;

    /// The foreign keys that lead from a table and to it, and what its rows must be.
    fn constraints(&self, _table: TableId) -> Result<&Constraints, Stop> {
        Ok(Constraints::NONE)
    }

    /// From here on, or up to here, reads stay as they were until the commit, or the transaction conflicts, whatever its level of
    /// isolation: for what a foreign key rests on. Nothing to do where all reads do.
    fn protect_reads(&mut self, _protect: bool) {}
}
