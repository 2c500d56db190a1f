//! Scans: the range is locked, then its entries are collected, then their keys are locked one by one as they are visited.

use std::ops::ControlFlow;

use polychron_base::{Error, IndexId};
use polychron_engine::mutations::{left_out, pass};
use polychron_engine::rows::Visit;
use polychron_engine::stores::{Batch, Record, Records, RowRecords, words_of};
use polychron_engine::{Direction, Scan};
use polychron_index::Handle;
use polychron_schema::RowRef;

use super::intervals::Id;
use super::rows::FoundRow;
use super::steps::{Point, Step};
use super::table::Index;
use super::transaction::LockingTransaction;

impl<'w> LockingTransaction<'w> {
    /// The record of an entry that was collected in this epoch, and is locked since, unless it is deleted.
    ///
    /// # Safety
    /// The handle was collected from this index when the guard was in that epoch; its key is locked.
    #[inline]
    unsafe fn collected(&mut self, epoch: u64, index: &Index, key: &[u8], handle: Handle) -> Option<Record> {
        // Where the transaction has waited for a lock since, the record that was collected may be gone.
        if self.guard.epoch() == epoch {
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
        // SAFETY: the key is locked.
        unsafe { self.lookup(index, key) }
    }

    /// Visits the rows of a range of any index: each entry is locked, and the row behind it.
    pub(super) fn visit_rows<V: FnMut(RowRef<'_>) -> ControlFlow<()>>(
        &mut self,
        visit: &mut Visit<'_, 'w, Index, V>,
    ) -> Result<(), Error> {
        let (scan, index) = (visit.scan, visit.store()?);
        index.store.scanned(scan)?;
        self.asks_secondary |= scan.index != IndexId::PRIMARY;
        // One key's lock is enough for a range of one key. The key may be too long for any index, and is absent then.
        let point = scan.point();
        let mut locked = None;
        if let Some(key) = point {
            self.lock(index, key, false)?;
        } else if !left_out(Step::LockRangesFirst) {
            locked = self.lock_range(index, scan);
        }
        let mut batch = std::mem::take(&mut self.state.buffers.batch);
        let stopped = self.visit_batches(&mut batch, visit, index);
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
        visit: &mut Visit<'_, 'w, Index, V>,
        index: &Index,
    ) -> Result<Option<usize>, Error> {
        let scan = visit.scan;
        let ordered = index.store.scanned(scan)?;
        let lines = (words_of(&scan.projection).end.min(56) * 8 + RowRecords::HEADER_BYTES).div_ceil(64);
        batch.begin(scan.limit, true);
        while batch.fill(ordered, scan, &self.guard) {
            let epoch = self.guard.epoch();
            pass(Point::Collected);
            for position in 0..batch.len() + Batch::AHEAD {
                if let Some(ahead) = batch.get(position) {
                    Record::prefetch_behind(ahead, lines);
                }
                let Some(visited) = position.checked_sub(Batch::AHEAD) else { continue };
                let Some(handle) = batch.get(visited) else { continue };
                let key = batch.key(visited);
                if !left_out(Step::LockScanned) {
                    self.lock(index, key, false)?;
                }
                // SAFETY: the batch was filled in this epoch, and the key is locked since.
                let Some(record) = (unsafe { self.collected(epoch, index, key, handle) }) else { continue };
                if visit.record(self, FoundRow(Some(record)))?.is_break() {
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
        let (range, held) = index.ranges.lock(self.state.held.own.requester(), self.owner, scan.lower, scan.upper);
        if !held {
            self.state.ranges.push((index.store.index_ref, range));
        }
        (!held).then_some(range)
    }
}
