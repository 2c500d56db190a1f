//! A running transaction: one of the protocol beneath, and the futures that it has left open.
//!
//! Ordinary operations go through to the protocol beneath. Before one meets a row of which something is left open, all that is
//! open is settled (`settle.rs`), so that it finds what the transaction wrote, and a future keeps the value that it stands for.

use std::fmt;
use std::ops::ControlFlow;

use polychron_base::error::Stopped;
use polychron_base::key::EncodedKey;
use polychron_base::{Stop, TableId};
use polychron_engine::futures::{Expression, FutureColumn, FutureError, Operand, Scalar};
use polychron_engine::lazy::{Beneath, Inner};
use polychron_engine::mutations::left_out;
use polychron_engine::{
    Aggregate, ColumnBatch, Commit, Insertion, Projection, Savepoint, Scan, TableDefinition, Transaction,
};
use polychron_schema::{RowMut, RowRef, Value};

use super::arena::{Arena, Told};
use super::steps::Step;

/// A running transaction.
pub struct LazyTransaction<'w, B: Beneath> {
    pub(super) inner: Inner<'w, B>,
    pub(super) arena: &'w mut Arena,
    /// Whether futures stay open: not in snapshots, nor where they are resolved at once.
    pub(super) late: bool,
    /// Whether an assumed answer is taken for true: not at a second attempt.
    pub(super) speculates: bool,
}

impl<B: Beneath> fmt::Debug for LazyTransaction<'_, B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LazyTransaction").field("arena", &self.arena).finish_non_exhaustive()
    }
}

impl<B: Beneath> LazyTransaction<'_, B> {
    /// Before a row is read.
    #[inline]
    fn before_read<K: EncodedKey>(&mut self, table: TableId, key: K) -> Result<(), Stop> {
        if self.arena.writes_row(table, key) && !left_out(Step::SettleBeforeReads) {
            return self.settle();
        }
        Ok(())
    }

    /// Before a row is written.
    #[inline]
    fn before_write<K: EncodedKey>(&mut self, table: TableId, key: K) -> Result<(), Stop> {
        let open = self.arena.writes_row(table, key) || self.arena.reads_row(table, key);
        if open && !left_out(Step::SettleBeforeWrites) {
            return self.settle();
        }
        Ok(())
    }

    /// Before a range is read.
    #[inline]
    fn before_scan(&mut self, table: TableId) -> Result<(), Stop> {
        if self.arena.writes_table(table) && !left_out(Step::SettleBeforeScans) {
            return self.settle();
        }
        Ok(())
    }
}

impl<B: Beneath> Commit for LazyTransaction<'_, B> {
    fn commit(mut self) -> Result<(), Stop> {
        if let Err(stop) = self.finish() {
            let Stopped::Failed(error) = stop.into_parts() else { return Err(Stop::conflict()) };
            // It may come from reads that never stood together.
            let sound = self.inner.roll_back() || left_out(Step::ValidateFailures);
            return Err(if sound { error.into() } else { Stop::conflict() });
        }
        self.inner.commit()
    }

    fn roll_back(self) -> bool {
        self.inner.roll_back()
    }
}

impl<B: Beneath> Transaction for LazyTransaction<'_, B> {
    #[inline]
    fn read_row<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Stop> {
        self.before_read(table, key)?;
        self.inner.read_row(table, key, projection)
    }

    #[inline]
    fn read_row_unvalidated<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Stop> {
        self.before_read(table, key)?;
        self.inner.read_row_unvalidated(table, key, projection)
    }

    #[inline]
    fn update_row<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<bool, Stop> {
        self.before_write(table, key)?;
        self.inner.update_row(table, key, projection, change)
    }

    #[inline]
    fn insert_row<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Stop> {
        self.before_write(table, key)?;
        self.inner.insert_row(table, key, row)
    }

    #[inline]
    fn put_row<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Stop> {
        self.before_write(table, key)?;
        self.inner.put_row(table, key, row)
    }

    #[inline]
    fn delete_row<K: EncodedKey>(&mut self, table: TableId, key: K) -> Result<bool, Stop> {
        self.before_write(table, key)?;
        self.inner.delete_row(table, key)
    }

    fn scan_rows(
        &mut self,
        scan: &Scan<'_>,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        self.before_scan(scan.table)?;
        self.inner.scan_rows(scan, visitor)
    }

    fn scan_table(
        &mut self,
        table: TableId,
        projection: &Projection,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        self.before_scan(table)?;
        self.inner.scan_table(table, projection, visitor)
    }

    fn aggregate(&mut self, scan: &Scan<'_>, wanted: Aggregate) -> Result<Value, Stop> {
        self.before_scan(scan.table)?;
        self.inner.aggregate(scan, wanted)
    }

    fn scan_columns<O>(
        &mut self,
        scan: &Scan<'_>,
        columns: &[usize],
        look: &mut impl FnMut(&ColumnBatch<'_>) -> O,
        keep: &mut impl FnMut(O) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        self.before_scan(scan.table)?;
        self.inner.scan_columns(scan, columns, look, keep)
    }

    #[inline]
    fn read_future<K: EncodedKey>(&mut self, table: TableId, key: K, column: FutureColumn) -> Result<Operand, Stop> {
        if !self.late {
            return self.inner.read_future(table, key, column);
        }
        self.inner.definition(table)?;
        Ok(self.arena.column(table, key, column))
    }

    #[inline]
    fn combine_futures(&mut self, expression: Expression) -> Result<Operand, Stop> {
        Ok(self.arena.combine(expression)?)
    }

    fn test_future(&mut self, condition: Operand) -> Result<bool, Stop> {
        if let Some(value) = self.arena.value(condition)? {
            return Ok(value != 0);
        }
        let truth = self.observe(condition)?;
        if !B::HOLDS_CONDITIONS {
            self.arena.told.push(Told { condition, truth });
        }
        Ok(truth)
    }

    fn test_future_assuming(&mut self, condition: Operand, assumed: bool) -> Result<bool, Stop> {
        if B::HOLDS_CONDITIONS || !self.speculates || self.arena.value(condition)?.is_some() {
            return self.test_future(condition);
        }
        self.arena.told.push(Told { condition, truth: assumed });
        Ok(assumed)
    }

    fn write_future<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        column: FutureColumn,
        value: Operand,
    ) -> Result<(), Stop> {
        if !self.late {
            return self.inner.write_future(table, key, column, value);
        }
        self.inner.definition(table)?;
        self.arena.value(value)?;
        self.arena.write(table, key, column, value);
        Ok(())
    }

    fn resolve_future(&mut self, future: Operand) -> Result<Scalar, Stop> {
        if self.arena.value(future)?.is_none() {
            self.resolve(future)?;
        }
        self.arena.value(future)?.ok_or_else(|| FutureError::Foreign.into())
    }

    fn savepoint(&mut self) -> Savepoint {
        if !self.arena.writes.is_empty() && !left_out(Step::SettleBeforeSavepoints) {
            // A failure shows at the next operation, or at the commit: what could not be settled is still owed.
            self.arena.owed = if self.settle().is_ok() { 0 } else { self.arena.writes.len() };
        }
        self.inner.savepoint()
    }

    fn roll_back_to(&mut self, savepoint: Savepoint) -> Result<(), Stop> {
        // What was read since keeps the value that it had then.
        self.read_all(false)?;
        if !left_out(Step::ForgetUndone) {
            let owed = self.arena.owed;
            self.arena.writes.truncate(owed);
        }
        self.inner.roll_back_to(savepoint)
    }

    #[inline]
    fn prefetch_row<K: EncodedKey>(&mut self, table: TableId, key: K) {
        self.inner.prefetch_row(table, key);
    }

    #[inline]
    fn has_prefetched(&self) -> bool {
        self.inner.has_prefetched()
    }

    fn definition(&self, table: TableId) -> Result<&TableDefinition, Stop> {
        self.inner.definition(table)
    }
}
