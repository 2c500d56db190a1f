//! Scans: the range is locked, then its entries are collected, then their keys are locked one by one as they are visited.

use std::ops::ControlFlow;

use polychron_base::{IndexId, Stop};
use polychron_engine::mutations::{left_out, pass};
use polychron_engine::stores::{Batch, Record, Records, RowRecords, key_in_entry, words_of};
use polychron_engine::{Direction, Scan};
use polychron_index::Handle;
use polychron_schema::RowRef;

use super::intervals::Id;
use super::options::Policy;
use super::steps::{Point, Step};
use super::table::{Index, Table};
use super::transaction::LockingTransaction;

/// The part of a scan that is the same for every row.
struct Visit<'v, V> {
    table: &'v Table,
    index: &'v Index,
    scan: &'v Scan<'v>,
    left: usize,
    /// The epoch in which the entries were collected that are being visited.
    epoch: u64,
    visitor: &'v mut V,
}

impl<V: FnMut(RowRef<'_>) -> ControlFlow<()>> Visit<'_, V> {
    /// The entry's record, which is locked, unless it is deleted.
    #[inline]
    fn record<P: Policy>(
        &self,
        key: &[u8],
        handle: Handle,
        transaction: &mut LockingTransaction<'_, P>,
    ) -> Option<Record> {
        // Where the transaction has waited for a lock since, the record that was collected may be gone.
        if transaction.guard.epoch() == self.epoch {
            // SAFETY: the handle was collected in the epoch in which the transaction is, so the record is there; its key is locked.
            let record = unsafe { Record::from_handle(handle) };
            if !record.is_deleted() {
                return Some(record);
            }
            // It was replaced, or taken out, before the key was locked.
            if left_out(Step::LookAgain) {
                return None;
            }
        }
        transaction.find(self.index, key)
    }

    /// Locks an entry and the row behind it, and shows the row to the visitor, if it is wanted.
    #[inline]
    fn entry<P: Policy>(
        &mut self,
        key: &[u8],
        handle: Handle,
        transaction: &mut LockingTransaction<'_, P>,
    ) -> Result<ControlFlow<()>, Stop> {
        let go_on = Ok(ControlFlow::Continue(()));
        if !left_out(Step::LockScanned) {
            transaction.lock(self.index, key, false)?;
        }
        let Some(mut record) = self.record(key, handle, transaction) else { return go_on };
        if self.scan.index != IndexId::PRIMARY {
            // SAFETY: the entry is locked, and a scan writes nothing.
            let primary = key_in_entry(unsafe { record.words() });
            transaction.lock(&self.table.primary, primary, false)?;
            let Some(row) = transaction.find(&self.table.primary, primary) else { return go_on };
            record = row;
        }
        // SAFETY: the row is locked, and a scan writes nothing.
        let row = RowRef::from_words(unsafe { record.words() });
        if !self.scan.restrictions.iter().all(|restriction| restriction.holds(&self.table.layout, row)) {
            return go_on;
        }
        self.left -= 1;
        let flow = (self.visitor)(row);
        Ok(if self.left == 0 { ControlFlow::Break(()) } else { flow })
    }
}

impl<P: Policy> LockingTransaction<'_, P> {
    /// Visits the rows of a range of any index.
    pub(super) fn visit_rows(
        &mut self,
        scan: &Scan<'_>,
        table: &Table,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        self.alive()?;
        let index = &**table.store(scan.index)?;
        index.store.scanned(scan)?;
        self.asks_secondary |= scan.index != IndexId::PRIMARY;
        if scan.limit == 0 {
            return Ok(());
        }
        // One key's lock is enough for a range of one key. The key may be too long for any index, and is absent then.
        let point = scan.point();
        let mut locked = None;
        if let Some(key) = point {
            self.lock(index, key, false)?;
        } else if !left_out(Step::LockRangesFirst) {
            locked = self.lock_range(index, scan);
        }
        let mut batch = std::mem::take(&mut self.state.buffers.batch);
        let mut visit = Visit { table, index, scan, left: scan.limit, epoch: 0, visitor };
        let stopped = self.visit_batches(&mut batch, &mut visit);
        if let (Ok(Some(position)), Some(range)) = (&stopped, locked) {
            // The scan stopped at this key, and protects what it has seen.
            let last = Some(batch.key(*position));
            match scan.direction {
                Direction::Forward => index.ranges.narrow(range, None, last),
                Direction::Backward => index.ranges.narrow(range, last, None),
            }
        }
        self.state.buffers.batch = batch;
        stopped?;
        if point.is_none() && left_out(Step::LockRangesFirst) {
            self.lock_range(index, scan);
        }
        Ok(())
    }

    /// Visits the entries of a scan. Answers the position in the batch where the visit stopped early.
    fn visit_batches<V: FnMut(RowRef<'_>) -> ControlFlow<()>>(
        &mut self,
        batch: &mut Batch,
        visit: &mut Visit<'_, V>,
    ) -> Result<Option<usize>, Stop> {
        let scan = visit.scan;
        let ordered = visit.index.store.scanned(scan)?;
        let lines = (words_of(&scan.projection).end.min(56) * 8 + RowRecords::HEADER_BYTES).div_ceil(64);
        batch.begin(scan.limit, true);
        while batch.fill(ordered, scan, &self.guard) {
            visit.epoch = self.guard.epoch();
            pass(Point::Collected);
            for position in 0..batch.len() + Batch::AHEAD {
                if let Some(ahead) = batch.get(position) {
                    // SAFETY: a prefetch does not even read.
                    unsafe { Record::from_handle(ahead) }.prefetch(lines);
                }
                let Some(visited) = position.checked_sub(Batch::AHEAD) else { continue };
                let Some(handle) = batch.get(visited) else { continue };
                if visit.entry(batch.key(visited), handle, self)?.is_break() {
                    return Ok(Some(visited));
                }
            }
        }
        pass(Point::Collected);
        Ok(None)
    }

    /// Locks the whole range of a scan, which is never refused. Answers the range if it may become smaller: it was not held
    /// before.
    fn lock_range(&mut self, index: &Index, scan: &Scan<'_>) -> Option<Id> {
        if left_out(Step::LockRanges) {
            return None;
        }
        let (range, held) = index.ranges.lock(self.state.held.own.asker(), self.owner, scan.lower, scan.upper);
        if !held {
            self.state.ranges.push((index.store.place, range));
        }
        (!held).then_some(range)
    }
}
