//! Scans. What was asked is logged when the scan is over: the range as far as it was visited, its restrictions, and the columns read.

use std::ops::{Bound, ControlFlow};

use polychron_base::{Error, IndexId};
use polychron_engine::aggregate::{self, Group, Grouping};
use polychron_engine::mutations::left_out;
use polychron_engine::rows::{Primitives, Visit};
use polychron_engine::stores::Batch;
use polychron_engine::{Aggregate, Direction, Projection, RowVisitor, Scan};
use polychron_schema::{ColumnSet, ColumnType};

use super::columns::comes_in_slot_ranges;
use super::entries::FoundRow;
use super::predicates::Extremum;
use super::rows::Record;
use super::steps::Step;
use super::table::{HyperTable, Relation};
use super::transaction::HyperTransaction;

/// Entries that are collected at first, however few are wanted: some may show no row.
const LEAST: usize = 4;

impl<'w> HyperTransaction<'w> {
    /// Visits the rows of a range of any index.
    pub(super) fn visit_rows<V: RowVisitor>(&mut self, visit: &mut Visit<'_, 'w, Relation, V>) -> Result<(), Error> {
        let (scan, table, store) = (visit.scan, visit.table, visit.store()?);
        // Every transaction reads the past.
        if !store.is_ready_at(self.start) && !left_out(Step::AwaitIndexes) {
            return Err(Error::no_such_index(table.id, scan.index));
        }
        store.scanned(scan)?;
        let mut batch = std::mem::take(&mut self.state.buffers.batch);
        let logs = self.logs();
        if logs {
            self.state.log.begin_to_show(table.id);
        }
        let outcome = self.visit_batches(store, visit, &mut batch);
        if logs {
            self.state.log.has_shown();
        }
        self.state.buffers.batch = batch;
        outcome
    }

    /// Logs a range, up to the key at which the visit stopped.
    pub(super) fn log_range(
        &mut self,
        table: &HyperTable,
        store: &Relation,
        scan: &Scan<'_>,
        stopped_at: Option<&[u8]>,
    ) {
        if !self.logs() || left_out(Step::LogRanges) {
            return;
        }
        let bounds = match (stopped_at, scan.direction) {
            (None, _) => (scan.lower, scan.upper),
            (Some(key), Direction::Forward) => (scan.lower, Bound::Included(key)),
            (Some(key), Direction::Backward) => (Bound::Included(key), scan.upper),
        };
        // The order of the visit tells of the index's columns.
        let columns = scan.projection.columns.union(store.extractor.columns());
        let (index, restrictions) = (scan.index, scan.restrictions);
        self.state.log.path(table.id, index, bounds, restrictions, columns, None);
    }

    fn visit_batches<V: RowVisitor>(
        &mut self,
        store: &'w Relation,
        visit: &mut Visit<'_, 'w, Relation, V>,
        batch: &mut Batch,
    ) -> Result<(), Error> {
        batch.begin(visit.scan.limit.max(LEAST), self.logs());
        loop {
            if self.snapshot {
                // Between batches a snapshot renews its guard; within one it holds handles that only the guard keeps.
                self.step()?;
            }
            self.state.buffers.both.begin(batch.last_key());
            let more = batch.fill(store.index(), visit.scan, &self.guard);
            if self.may_see_beside(store) {
                // What was visited so far was all there: it had not been displaced when it was collected.
                return self.visit_both(store, visit);
            }
            for ahead in 0..Batch::AHEAD {
                fetch(store, batch, ahead);
            }
            for position in 0..batch.len() {
                fetch(store, batch, position + Batch::AHEAD);
                let Some(handle) = batch.get(position) else { break };
                let record = store.record(handle);
                if self.visit_record(record, visit)?.is_break() {
                    if self.logs() {
                        self.log_range(visit.table, store, visit.scan, Some(batch.key(position)));
                    }
                    return Ok(());
                }
            }
            // No thread asks again behind the end: what is displaced from now on is no part of what was not visited.
            if !more || batch.last_key().is_none() {
                self.log_range(visit.table, store, visit.scan, None);
                return Ok(());
            }
        }
    }

    /// Visits the row of an entry, if it shows one.
    #[inline]
    pub(super) fn visit_record<V: RowVisitor>(
        &mut self,
        record: Record<'w>,
        visit: &mut Visit<'_, 'w, Relation, V>,
    ) -> Result<ControlFlow<()>, Error> {
        self.flags().check()?;
        if visit.scan.index == IndexId::PRIMARY && !self.see(record, &visit.projection).present {
            return Ok(ControlFlow::Continue(()));
        }
        visit.record(self, FoundRow(record))
    }

    /// Visits all rows of a table in the order in which they lie.
    pub(super) fn visit_slots(
        &mut self,
        table: &'w HyperTable,
        projection: &Projection,
        visitor: &mut impl RowVisitor,
    ) -> Result<(), Error> {
        if self.logs() && !left_out(Step::LogRanges) {
            let everything = (Bound::Unbounded, Bound::Unbounded);
            let columns = projection.columns;
            self.state.log.path(table.id, IndexId::PRIMARY, everything, &[], columns, None);
        }
        let rows = &table.primary.rows;
        let (mut next, len) = (0, rows.len());
        while next < len {
            self.step()?;
            let Some(record) = rows.find(next) else {
                next = rows.page_end(next);
                continue;
            };
            next += 1;
            if self.see(record, projection).present && visitor(self.state.buffers.row.as_row()).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Counts, sums, or finds extreme values of a range or of its groups, and logs the question: so a smallest value of all conflicts only with
    /// what lowers it, and with what takes it away.
    pub(super) fn aggregate_logged(&mut self, scan: &Scan<'_>, grouping: &Grouping<'_>) -> Result<Vec<Group>, Error> {
        // SAFETY: the guard stands for as long as the transaction.
        let table = unsafe { self.state.base.tables.table_during(scan.table)? };
        let in_slot_ranges = comes_in_slot_ranges(scan, &table.layout, &grouping.columns());
        let compute = if in_slot_ranges { aggregate::over_columns } else { aggregate::over_rows };
        if !self.logs() || scan.limit != usize::MAX {
            return compute(self, scan, grouping);
        }
        self.state.log.begin_to_show(table.id);
        let answer = compute(Silent::begin(self).0, scan, grouping);
        self.state.log.has_shown();
        if left_out(Step::LogExtremes) || answer.is_err() && left_out(Step::LogFailures) {
            return answer;
        }
        self.log_question(table, scan, grouping, answer.as_ref().ok());
        answer
    }

    /// Logs a path for each extreme of a whole range, and one for everything else that was asked.
    fn log_question(
        &mut self,
        table: &HyperTable,
        scan: &Scan<'_>,
        grouping: &Grouping<'_>,
        answer: Option<&Vec<Group>>,
    ) {
        let bounds = (scan.lower, scan.upper);
        // An error tells of the rows, too: that their sum is too large. And of groups the extremes are many.
        let whole = answer.filter(|_| grouping.by.is_empty()).and_then(|groups| groups.first());
        let by = grouping.by.iter().fold(ColumnSet::EMPTY, |set, &column| set.with(column as u16));
        let mut others = (!grouping.by.is_empty() || grouping.wanted.is_empty()).then_some(by);
        for (position, &wanted) in grouping.wanted.iter().enumerate() {
            let value = whole.and_then(|group| group.values.get(position));
            let columns = columns_of(table, scan, wanted);
            match value.and_then(|value| Extremum::of(&table.layout, wanted, value)) {
                Some(extremum) => {
                    self.state.log.path(table.id, scan.index, bounds, scan.restrictions, columns, Some(extremum));
                }
                None => others = Some(others.unwrap_or(ColumnSet::EMPTY).union(columns)),
            }
        }
        if let Some(columns) = others {
            self.state.log.path(table.id, scan.index, bounds, scan.restrictions, columns, None);
        }
    }
}

/// The columns that an aggregate depends on, besides those that say which rows are in the range.
fn columns_of(table: &HyperTable, scan: &Scan<'_>, wanted: Aggregate) -> ColumnSet {
    let Some(column) = wanted.column() else { return ColumnSet::EMPTY };
    let columns = ColumnSet::single(column as u16);
    let is_float = table
        .layout
        .columns()
        .get(column)
        .is_some_and(|column| matches!(column.column_type, ColumnType::F32 | ColumnType::F64));
    match table.store(scan.index) {
        // A sum of floating-point numbers depends on the order in which they are added.
        Ok(store) if is_float && matches!(wanted, Aggregate::Sum(_) | Aggregate::Average(_)) => {
            columns.union(store.extractor.columns())
        }
        _ => columns,
    }
}

/// While it lives, scans log nothing; also when one of them panics.
struct Silent<'t, 'w>(&'t mut HyperTransaction<'w>);

impl<'t, 'w> Silent<'t, 'w> {
    fn begin(transaction: &'t mut HyperTransaction<'w>) -> Self {
        transaction.silent = true;
        Self(transaction)
    }
}

impl Drop for Silent<'_, '_> {
    fn drop(&mut self) {
        self.0.silent = false;
    }
}

#[inline]
fn fetch(store: &Relation, batch: &Batch, position: usize) {
    if let Some(handle) = batch.get(position) {
        store.record(handle).prefetch();
    }
}
