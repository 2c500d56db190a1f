//! A running transaction, as a protocol gives it.

use std::ops::ControlFlow;

use polychron_base::key::EncodedKey;
use polychron_base::{Error, TableId};
use polychron_schema::{KeyScratch, Projection, RowMut, RowRef, TableDefinition};

use crate::aggregate::{Group, Grouping};
use crate::futures::{self, Assigned, Bytes, FutureColumn, NewRow, OpenKey, Operand, Scope, Value};
use crate::{ColumnBatch, Constraints, IndexId, Savepoints, Scan, aggregate, batch, drive};

/// The result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Insertion {
    /// The row is in.
    Inserted,
    /// A row with the same key stands in this unique index; nothing changed, and the transaction goes on.
    Duplicate(IndexId),
}

/// Looks at rows one by one, until it has enough.
pub trait RowVisitor: FnMut(RowRef<'_>) -> ControlFlow<()> {}

impl<V: FnMut(RowRef<'_>) -> ControlFlow<()>> RowVisitor for V {}

/// A running transaction: what a protocol gives. Rows are bytes in the schema's layout, keys are encoded.
///
/// Procedures use it through [`Operations`](crate::Operations), which checks what they write, and [`Futures`](crate::Futures). A transaction reads
/// its own writes everywhere. An `Err` that is a conflict must be passed on: after one, every further call conflicts too.
pub trait Transaction: Queries + LazyFutures + Prefetch {
    /// Reads the columns that `projection` names of the row of `key`; other columns of the view are undefined.
    ///
    /// An absent key is an observation like any other: it stays absent until the commit, or the transaction conflicts.
    fn read_row<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Error>;

    /// Reads a row without protecting the read: it may have changed by the time the transaction commits. For answers that
    /// may be approximate; never needed for correctness.
    fn read_row_unvalidated<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Error> {
        self.read_row(table, key, projection)
    }

    /// [`Operations::update_row`](crate::Operations::update_row) of a protocol: nothing is checked of what `change` makes of the row. This and the
    /// four methods below are for callers that have checked already; a wrong row or key breaks the table's indexes.
    #[doc(hidden)]
    fn update_unchecked<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<bool, Error>;

    /// [`Operations::insert_row`](crate::Operations::insert_row) of a row that has this key, and whose parents are checked.
    #[doc(hidden)]
    fn insert_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Error>;

    /// [`Operations::put_row`](crate::Operations::put_row) of a row that has this key, and whose parents are checked.
    #[doc(hidden)]
    fn put_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Error>;

    /// [`Operations::delete_row`](crate::Operations::delete_row) of a row whose children are checked.
    #[doc(hidden)]
    fn delete_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K) -> Result<bool, Error>;

    /// [`Operations::scan_rows`](crate::Operations::scan_rows), of which all restrictions name columns of the table.
    #[doc(hidden)]
    fn scan_unchecked(&mut self, scan: &Scan<'_>, visitor: &mut impl RowVisitor) -> Result<(), Error>;

    /// The position of the transaction. The protocol defines its meaning, and it decreases only by
    /// [`Transaction::undo_unchecked`].
    #[doc(hidden)]
    fn mark(&mut self) -> Result<usize, Error>;

    /// Undoes all writes since [`Transaction::mark`] told this position, or nothing when it fails. No earlier position was undone to since.
    /// An error among them that was not reported yet goes to [`Savepoints::tell`].
    #[doc(hidden)]
    fn undo_unchecked(&mut self, position: usize) -> Result<(), Error>;

    /// As [`Transaction::mark`], at the begin of a single operation, for [`Transaction::undo_operation`] alone.
    #[doc(hidden)]
    fn mark_operation(&mut self) -> Result<usize, Error> {
        self.mark()
    }

    /// Undoes the writes of a single operation, at whose begin the position was told: what is open now was open then.
    #[doc(hidden)]
    fn undo_operation(&mut self, position: usize) -> Result<(), Error> {
        self.undo_unchecked(position)
    }

    /// The savepoints of this transaction.
    #[doc(hidden)]
    fn savepoints(&mut self) -> &mut Savepoints;

    /// Whether this run finds out what the transaction writes, and nothing else: whatever comes of it is discarded, and the procedure runs again.
    /// Where that shows only at a write, the answer changes there.
    #[inline]
    fn is_reconnaissance(&self) -> bool {
        false
    }

    /// The definition of a table, for dynamic access to rows.
    fn definition(&self, table: TableId) -> Result<&TableDefinition, Error>;

    /// The foreign keys that lead from a table and to it, and what its rows must be.
    fn constraints(&self, _table: TableId) -> Result<&Constraints, Error> {
        Ok(Constraints::NONE)
    }

    /// From here on, or up to here, reads stay as they were until the commit, or the transaction conflicts, whatever its level of
    /// isolation: for what a foreign key rests on. Nothing to do where all reads do.
    fn protect_reads(&mut self, _protect: bool) {}

    /// The transaction cannot go on, whatever its procedure makes of errors: something half done is left in it. What drives it undoes it, and answers
    /// with the error. A transaction that its client drives answers what its operation fails with.
    #[doc(hidden)]
    fn give_up(&mut self, error: Error) -> Error {
        drive::end(error)
    }
}

/// Questions about many rows at once, of which all restrictions name columns of the table. The defaults visit the rows; a protocol overrides what it
/// can answer faster, or protect better.
pub trait Queries {
    /// [`Operations::scan_table`](crate::Operations::scan_table). A protocol whose rows lie one behind the other goes along them and past every
    /// index. The default visits the rows in the order of their keys.
    fn visit_table(
        &mut self,
        table: TableId,
        projection: &Projection,
        visitor: &mut impl RowVisitor,
    ) -> Result<(), Error>
    where
        Self: Transaction,
    {
        self.scan_unchecked(&Scan { projection: *projection, ..Scan::all(table) }, visitor)
    }

    /// [`Operations::aggregate_groups`](crate::Operations::aggregate_groups). A protocol that locks predicates learns here which answer is wanted, so that it can
    /// protect that answer and not every value (a minimum conflicts only with what could lower it); one that stores columns
    /// computes it from them.
    fn aggregate_range(&mut self, scan: &Scan<'_>, grouping: &Grouping<'_>) -> Result<Vec<Group>, Error>
    where
        Self: Transaction,
    {
        aggregate::over_rows(self, scan, grouping)
    }

    /// [`Operations::scan_columns`](crate::Operations::scan_columns). The default gathers rows into buffers. A protocol that stores columns lends
    /// them where no row of the batch has more than one version.
    fn visit_columns<O>(
        &mut self,
        scan: &Scan<'_>,
        columns: &[usize],
        look: &mut impl FnMut(&ColumnBatch<'_>) -> O,
        keep: &mut impl FnMut(O) -> ControlFlow<()>,
    ) -> Result<(), Error>
    where
        Self: Transaction,
    {
        batch::over_rows(self, scan, columns, look, keep)
    }
}

/// The methods that a protocol overrides to leave [futures](crate::Futures) open. The defaults resolve them at once.
pub trait LazyFutures {
    /// Which transaction this is, for the futures that belong to it. One that leaves futures open has an
    /// [`ExpressionArena`](crate::futures::ExpressionArena), and is known by its scope.
    #[inline]
    fn future_scope(&mut self) -> Scope
    where
        Self: Transaction,
    {
        self.savepoints().scope()
    }

    /// Whether futures may stay open up to the commit. Otherwise what is read late is read at once, and costs more than an ordinary update.
    fn leaves_futures_open(&mut self) -> bool {
        false
    }

    /// Reads columns of a row as futures; see [`Futures::future`](crate::Futures::future).
    fn read_futures<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        columns: &[FutureColumn],
        futures: &mut [Operand],
    ) -> Result<(), Error>
    where
        Self: Transaction,
    {
        futures::read_now(self, table, key, columns, futures)
    }

    /// Whether a condition is true now; it stays so until the commit, or the transaction conflicts.
    fn test_future(&mut self, condition: Operand) -> Result<bool, Error>
    where
        Self: Transaction,
    {
        Ok(self.resolve_future(condition)?.is_true())
    }

    /// As [`LazyFutures::test_future`]; a protocol that looks at conditions again at the commit may take the assumed answer at
    /// the first attempt. See [`Futures::is_true_assuming`](crate::Futures::is_true_assuming).
    fn test_future_assuming(&mut self, condition: Operand, _assumed: bool) -> Result<bool, Error>
    where
        Self: Transaction,
    {
        self.test_future(condition)
    }

    /// Makes futures the values of columns of an existing row; see [`Futures::set_futures`](crate::Futures::set_futures), which checks what this and the two methods
    /// below rely on.
    #[doc(hidden)]
    fn write_futures<K: EncodedKey>(&mut self, table: TableId, key: K, columns: &Assigned) -> Result<(), Error>
    where
        Self: Transaction,
    {
        futures::write_now(self, table, key, columns)
    }

    /// As [`LazyFutures::write_futures`], under a key that may be open itself.
    #[doc(hidden)]
    fn write_futures_at(&mut self, table: TableId, key: &OpenKey, columns: &Assigned) -> Result<(), Error>
    where
        Self: Transaction,
    {
        let mut scratch = KeyScratch::new();
        let key = futures::close_key(self, key, &mut scratch)?;
        self.write_futures(table, key, columns)
    }

    /// Inserts a row of which columns may be open, also in its key; see [`Futures::insert_future`](crate::Futures::insert_future).
    #[doc(hidden)]
    fn insert_futures(
        &mut self,
        table: TableId,
        key: &OpenKey,
        row: NewRow<'_>,
        columns: &Assigned,
    ) -> Result<(), Error>
    where
        Self: Transaction,
    {
        futures::insert_now(self, table, key, row, columns)
    }

    /// The value of a future.
    fn resolve_future(&mut self, future: Operand) -> Result<Value<Bytes>, Error> {
        Ok(future.known()?)
    }
}

/// Rows on their way into the caches.
pub trait Prefetch {
    /// Starts bringing the row of `key` into the caches, and may remember where it is. Protects nothing.
    #[inline]
    fn prefetch_row<K: EncodedKey>(&mut self, _table: TableId, _key: K) {}

    /// Whether the rows that the procedure declares are on their way already, as they are in a batch.
    #[inline]
    fn has_prefetched(&self) -> bool {
        false
    }
}
