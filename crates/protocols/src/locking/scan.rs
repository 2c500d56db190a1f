//! Scans: the range is locked, then its entries are collected, then their keys are locked one by one as they are visited.

use polychron_base::{Error, IndexId};
use polychron_engine::mutations::left_out;
use polychron_engine::rows::Visit;
use polychron_engine::{Direction, RowVisitor, Scan};

use super::intervals::Id;
use super::steps::Step;
use super::table::Index;
use super::transaction::LockingTransaction;

impl<'w> LockingTransaction<'w> {
    /// Visits the rows of a range of any index: each entry is locked, and the row behind it.
    pub(super) fn visit_rows<V: RowVisitor>(&mut self, visit: &mut Visit<'_, 'w, Index, V>) -> Result<(), Error> {
        let (scan, index) = (visit.scan, visit.store()?);
        index.store.scanned(scan)?;
        self.has_read_secondary |= scan.index != IndexId::PRIMARY;
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

    /// Locks the whole range of a scan, which is never refused. Returns the range if it may become smaller: it was not held before.
    fn lock_range(&mut self, index: &Index, scan: &Scan<'_>) -> Option<Id> {
        if left_out(Step::LockRanges) {
            return None;
        }
        let own = self.records.held().own.requester();
        let (range, held) = index.ranges.lock(own, self.owner, scan.lower, scan.upper);
        if !held {
            self.state.ranges.push((index.store.index_ref, range));
        }
        (!held).then_some(range)
    }
}
