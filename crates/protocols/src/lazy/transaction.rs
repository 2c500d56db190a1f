//! A running transaction: one of the host protocol, and the futures that it has left open.
//!
//! Ordinary operations go through to the host protocol. Before one meets a row of which something is left open, all that is
//! open is flushed (`flush.rs`), so that it finds what the transaction wrote, and a future keeps the value that it stands for.

use polychron_base::key::EncodedKey;
use polychron_base::{Error, TableId};
use polychron_engine::aggregate::{Group, Grouping};
use polychron_engine::futures::{
    Assigned, Bytes, ExpressionArena, FutureColumn, NewRow, OpenKey, Operand, Scope, Value,
};
use polychron_engine::lazy::{BaseTransaction, LazyHost};
use polychron_engine::mutations::left_out;
use polychron_engine::rows::Finding;
use polychron_engine::{
    ColumnBatch, Constraints, Insertion, LazyFutures, Prefetch, Projection, Queries, RowVisitor, Savepoints, Scan,
    TableDefinition, Transaction, steady,
};
use polychron_schema::{RowMut, RowRef};
use std::fmt;
use std::ops::ControlFlow;

use super::arena::{Arena, Observed};
use super::steps::Step;

/// A running transaction.
pub struct LazyTransaction<'w, B: LazyHost> {
    pub(super) base: BaseTransaction<'w, B>,
    pub(super) arena: &'w mut Arena,
    /// Where futures are made that stay open: not in snapshots, nor where they are resolved at once.
    pub(super) expressions: Option<ExpressionArena>,
    /// Whether an assumed answer is taken for true: not at a second attempt.
    pub(super) speculates: bool,
}

impl<B: LazyHost> fmt::Debug for LazyTransaction<'_, B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LazyTransaction").field("arena", &self.arena).finish_non_exhaustive()
    }
}

impl<B: LazyHost> LazyTransaction<'_, B> {
    /// Before a row is read.
    #[inline]
    fn before_read<K: EncodedKey>(&mut self, table: TableId, key: K) -> Result<(), Error> {
        if self.arena.writes_nothing() || !self.arena.may_touch(table, key) || left_out(Step::FlushBeforeReads) {
            return Ok(());
        }
        self.with_nodes(|this| if this.arena.writes_row(table, key) { this.flush() } else { Ok(()) })
    }

    /// Before a row is written.
    #[inline]
    fn before_write<K: EncodedKey>(&mut self, table: TableId, key: K) -> Result<(), Error> {
        if !self.arena.may_touch(table, key) || left_out(Step::FlushBeforeWrites) {
            return Ok(());
        }
        self.with_nodes(|this| {
            let open = this.arena.writes_row(table, key) || this.arena.reads_row(table, key);
            if open { this.flush() } else { Ok(()) }
        })
    }

    /// Before futures of a row are read or written: the keys of pending inserts may be unknown.
    #[inline]
    fn before_unknown(&mut self, table: TableId) -> Result<(), Error> {
        if self.arena.has_deferred_in(table) && !left_out(Step::FlushBeforeReads) { self.flush() } else { Ok(()) }
    }

    /// Inserts a row, or writes one under a key that is open, at the commit.
    fn defer_write(
        &mut self,
        table: TableId,
        key: &OpenKey,
        row: Option<NewRow<'_>>,
        columns: &Assigned,
    ) -> Result<(), Error> {
        if self.expressions.is_none() {
            return match row {
                Some(row) => self.base.insert_futures(table, key, row, columns),
                None => self.base.write_futures_at(table, key, columns),
            };
        }
        self.base.definition(table)?;
        self.with_nodes(|this| this.arena.defer_write(table, key, row, columns))
    }

    /// Before a range is read.
    #[inline]
    fn before_scan(&mut self, table: TableId) -> Result<(), Error> {
        if self.arena.writes_nothing() || left_out(Step::FlushBeforeScans) {
            return Ok(());
        }
        self.with_nodes(|this| if this.arena.writes_table(table) { this.flush() } else { Ok(()) })
    }
}

#[cfg(test)]
impl<B: LazyHost> LazyTransaction<'_, B> {
    /// Rows, writes and nodes that were passed.
    pub(crate) fn steps(&self) -> usize {
        self.arena.steps.get()
    }
}

impl<B: LazyHost> Transaction for LazyTransaction<'_, B> {
    #[inline]
    fn read_row<K: EncodedKey>(&mut self, table: TableId, key: K, projection: &Projection) -> Finding<RowRef<'_>> {
        steady!(table, key => self.read_row(table, key, projection));
        self.before_read(table, key)?;
        self.base.read_row(table, key, projection)
    }

    #[inline]
    fn read_row_unvalidated<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Error> {
        steady!(table, key => self.read_row_unvalidated(table, key, projection));
        self.before_read(table, key)?;
        self.base.read_row_unvalidated(table, key, projection)
    }

    #[inline]
    fn update_unchecked<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<bool, Error> {
        steady!(table, key => self.update_unchecked(table, key, projection, change));
        self.before_write(table, key)?;
        self.base.update_unchecked(table, key, projection, change)
    }

    #[inline]
    fn insert_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Error> {
        steady!(table, key => self.insert_unchecked(table, key, row));
        self.before_write(table, key)?;
        self.base.insert_unchecked(table, key, row)
    }

    #[inline]
    fn put_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Error> {
        steady!(table, key => self.put_unchecked(table, key, row));
        self.before_write(table, key)?;
        self.base.put_unchecked(table, key, row)
    }

    #[inline]
    fn delete_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K) -> Result<bool, Error> {
        steady!(table, key => self.delete_unchecked(table, key));
        self.before_write(table, key)?;
        self.base.delete_unchecked(table, key)
    }

    fn scan_unchecked(&mut self, scan: &Scan<'_>, visitor: &mut impl RowVisitor) -> Result<(), Error> {
        self.before_scan(scan.table)?;
        self.base.scan_unchecked(scan, visitor)
    }

    fn mark(&mut self) -> Result<usize, Error> {
        self.set_mark()
    }

    fn undo_unchecked(&mut self, position: usize) -> Result<(), Error> {
        self.undo_to_mark(position)
    }

    fn mark_operation(&mut self) -> Result<usize, Error> {
        self.base.mark()
    }

    /// The operation has read what it writes, and closed what was open of these rows. Whatever else is open does not depend on it, and
    /// stays.
    fn undo_operation(&mut self, position: usize) -> Result<(), Error> {
        self.base.undo_unchecked(position)
    }

    fn savepoints(&mut self) -> &mut Savepoints {
        self.base.savepoints()
    }

    fn definition(&self, table: TableId) -> Result<&TableDefinition, Error> {
        self.base.definition(table)
    }

    fn constraints(&self, table: TableId) -> Result<&Constraints, Error> {
        self.base.constraints(table)
    }

    fn protect_reads(&mut self, protect: bool) {
        self.base.protect_reads(protect);
    }
}

impl<B: LazyHost> Queries for LazyTransaction<'_, B> {
    fn visit_table(
        &mut self,
        table: TableId,
        projection: &Projection,
        visitor: &mut impl RowVisitor,
    ) -> Result<(), Error> {
        self.before_scan(table)?;
        self.base.visit_table(table, projection, visitor)
    }

    fn aggregate_range(&mut self, scan: &Scan<'_>, grouping: &Grouping<'_>) -> Result<Vec<Group>, Error> {
        self.before_scan(scan.table)?;
        self.base.aggregate_range(scan, grouping)
    }

    fn visit_columns<O>(
        &mut self,
        scan: &Scan<'_>,
        columns: &[usize],
        look: &mut impl FnMut(&ColumnBatch<'_>) -> O,
        keep: &mut impl FnMut(O) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.before_scan(scan.table)?;
        self.base.visit_columns(scan, columns, look, keep)
    }
}

impl<B: LazyHost> LazyFutures for LazyTransaction<'_, B> {
    #[inline]
    fn future_scope(&mut self) -> Scope {
        self.expressions.as_ref().map_or_else(|| self.base.future_scope(), ExpressionArena::scope)
    }

    fn leaves_futures_open(&mut self) -> bool {
        self.expressions.is_some()
    }

    #[inline]
    fn read_futures<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        columns: &[FutureColumn],
        futures: &mut [Operand],
    ) -> Result<(), Error> {
        steady!(table, key => self.read_futures(table, key, columns, futures));
        if self.expressions.is_none() {
            return self.base.read_futures(table, key, columns, futures);
        }
        self.base.definition(table)?;
        self.with_nodes(|this| {
            this.before_unknown(table)?;
            let row = this.arena.row(table, key);
            for (column, future) in columns.iter().zip(futures) {
                let term = this.arena.column(row, *column);
                *future = this.arena.nodes.operand(term);
            }
            Ok(())
        })
    }

    fn test_future(&mut self, condition: Operand) -> Result<bool, Error> {
        self.with_nodes(|this| {
            let condition = this.arena.nodes.term(&condition)?;
            if let Some(value) = this.arena.nodes.value(condition)? {
                return Ok(value.is_true());
            }
            let Some(truth) = this.observe(condition)? else {
                this.resolve_node(condition)?;
                return Ok(this.arena.resolved(condition)?.is_true());
            };
            if !B::HOLDS_CONDITIONS {
                this.arena.observed.push(Observed { condition, truth });
            }
            Ok(truth)
        })
    }

    fn test_future_assuming(&mut self, condition: Operand, assumed: bool) -> Result<bool, Error> {
        if B::HOLDS_CONDITIONS || !self.speculates {
            return self.test_future(condition);
        }
        self.with_nodes(|this| {
            let condition = this.arena.nodes.term(&condition)?;
            if let Some(value) = this.arena.nodes.value(condition)? {
                return Ok(value.is_true());
            }
            this.arena.observed.push(Observed { condition, truth: assumed });
            Ok(assumed)
        })
    }

    #[inline]
    fn write_futures<K: EncodedKey>(&mut self, table: TableId, key: K, columns: &Assigned) -> Result<(), Error> {
        steady!(table, key => self.write_futures(table, key, columns));
        if self.expressions.is_none() {
            return self.base.write_futures(table, key, columns);
        }
        self.base.definition(table)?;
        self.with_nodes(|this| {
            this.before_unknown(table)?;
            let row = this.arena.row(table, key);
            for (column, value) in columns {
                let value = this.arena.nodes.term(value)?;
                this.arena.write(row, *column, value);
            }
            Ok(())
        })
    }

    fn write_futures_at(&mut self, table: TableId, key: &OpenKey, columns: &Assigned) -> Result<(), Error> {
        if key.parts().is_empty() {
            return self.write_futures(table, key.bytes()?, columns);
        }
        self.defer_write(table, key, None, columns)
    }

    fn insert_futures(
        &mut self,
        table: TableId,
        key: &OpenKey,
        row: NewRow<'_>,
        columns: &Assigned,
    ) -> Result<(), Error> {
        self.defer_write(table, key, Some(row), columns)
    }

    fn resolve_future(&mut self, future: Operand) -> Result<Value<Bytes>, Error> {
        let Operand::Pending(_) = future else { return Ok(future.known()?) };
        self.with_nodes(|this| {
            let term = this.arena.nodes.term(&future)?;
            if this.arena.nodes.value(term)?.is_none() {
                this.resolve_node(term)?;
            }
            Ok(this.arena.nodes.program.texts.release(this.arena.resolved(term)?))
        })
    }
}

impl<B: LazyHost> Prefetch for LazyTransaction<'_, B> {
    #[inline]
    fn prefetch_row<K: EncodedKey>(&mut self, table: TableId, key: K) {
        self.base.prefetch_row(table, key);
    }

    #[inline]
    fn has_prefetched(&self) -> bool {
        self.base.has_prefetched()
    }
}
