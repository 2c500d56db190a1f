//! Scans: of one partition when the range names it, else of all, merged in the order of their keys.

use std::ops::{Bound, ControlFlow};

use polychron_base::Error;
use polychron_engine::mutations::left_out;
use polychron_engine::rows::Visit;
use polychron_engine::stores::{Batch, Record, Records, RowRecords, words_of};
use polychron_engine::{Direction, Scan};
use polychron_index::Handle;
use polychron_memory::Guard;
use polychron_schema::RowRef;

use super::rows::{FoundRow, undeclared};
use super::steps::Step;
use super::table::Index;
use super::transaction::PartitionedTransaction;

/// The entries of all partitions in order.
struct Merge<'i> {
    index: &'i Index,
    /// Partitions that have entries left: which one, its latest entries, and how far it was visited.
    runs: Vec<(usize, Batch, usize)>,
}

impl<'i> Merge<'i> {
    fn new(index: &'i Index, scan: &Scan<'_>, guard: &Guard<'_>) -> Result<Self, Error> {
        let mut merge = Self { index, runs: Vec::new() };
        for (partition, store) in index.stores.iter().enumerate() {
            let mut batch = Batch::default();
            batch.begin(scan.limit, true);
            if batch.fill(store.scanned(scan)?, scan, guard) {
                merge.runs.push((partition, batch, 0));
            }
        }
        Ok(merge)
    }

    fn next(&mut self, scan: &Scan<'_>, guard: &Guard<'_>) -> Result<Option<(usize, Handle)>, Error> {
        let by_key = |left: &&mut (usize, Batch, usize), right: &&mut (usize, Batch, usize)| {
            left.1.key(left.2).cmp(right.1.key(right.2))
        };
        let first = match scan.direction {
            Direction::Forward => self.runs.iter_mut().min_by(by_key),
            Direction::Backward => self.runs.iter_mut().max_by(by_key),
        };
        let Some((partition, batch, position)) = first else { return Ok(None) };
        let (partition, handle) = (*partition, batch.get(*position));
        *position += 1;
        if *position == batch.len() {
            *position = 0;
            if !batch.fill(self.index.stores[partition].scanned(scan)?, scan, guard) {
                self.runs.retain(|(_, batch, _)| !batch.is_empty());
            }
        }
        Ok(handle.map(|handle| (partition, handle)))
    }
}

impl<'w> PartitionedTransaction<'w> {
    /// Visits the rows of a range of any index.
    pub(super) fn visit_rows<V: FnMut(RowRef<'_>) -> ControlFlow<()>>(
        &mut self,
        visit: &mut Visit<'_, 'w, Index, V>,
    ) -> Result<(), Error> {
        let (scan, table, index) = (visit.scan, visit.table, &**visit.store()?);
        index.stores[0].scanned(scan)?;
        let one = index.column.and_then(|column| column.value_of_range(scan.lower, scan.upper));
        let partition = match one {
            _ if !table.primary.is_divided() => Some(0),
            Some(value) => Some(self.locks.partition_of(value)),
            None => None,
        };
        let allowed = match partition {
            Some(partition) => !table.primary.is_divided() || self.state.partitions.contains(partition),
            None => self.state.partitions.all(),
        };
        if !allowed && !left_out(Step::RefuseUndeclaredRanges) {
            let (Bound::Included(key) | Bound::Excluded(key)) = scan.lower else {
                return Err(undeclared(table, scan.index, &[][..]));
            };
            return Err(undeclared(table, scan.index, key));
        }
        match partition {
            Some(partition) => self.visit_partition(index, partition, visit),
            None => self.visit_all(index, visit),
        }
    }

    fn visit_partition<V: FnMut(RowRef<'_>) -> ControlFlow<()>>(
        &mut self,
        index: &Index,
        partition: usize,
        visit: &mut Visit<'_, 'w, Index, V>,
    ) -> Result<(), Error> {
        let scan = visit.scan;
        let ordered = index.stores[partition].scanned(scan)?;
        let lines = (words_of(&scan.projection).end.min(56) * 8 + RowRecords::HEADER_BYTES).div_ceil(64);
        let mut batch = std::mem::take(&mut self.state.buffers.batch);
        batch.begin(scan.limit, false);
        'scan: while batch.fill(ordered, scan, &self.guard) {
            for position in 0..batch.len() + Batch::AHEAD {
                if let Some(ahead) = batch.get(position) {
                    // SAFETY: the partition's lock is held; a prefetch does not even read.
                    unsafe { Record::from_handle(ahead) }.prefetch(lines);
                }
                let Some(handle) = position.checked_sub(Batch::AHEAD).and_then(|position| batch.get(position)) else {
                    continue;
                };
                if self.visit_entry(partition, handle, visit)?.is_break() {
                    break 'scan;
                }
            }
        }
        self.state.buffers.batch = batch;
        Ok(())
    }

    #[cold]
    fn visit_all<V: FnMut(RowRef<'_>) -> ControlFlow<()>>(
        &mut self,
        index: &Index,
        visit: &mut Visit<'_, 'w, Index, V>,
    ) -> Result<(), Error> {
        let scan = visit.scan;
        let mut merge = Merge::new(index, scan, &self.guard)?;
        while let Some((partition, handle)) = merge.next(scan, &self.guard)? {
            if self.visit_entry(partition, handle, visit)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Visits the row of a record, or the one to which an entry leads, unless it is deleted.
    #[inline]
    fn visit_entry<V: FnMut(RowRef<'_>) -> ControlFlow<()>>(
        &mut self,
        partition: usize,
        handle: Handle,
        visit: &mut Visit<'_, 'w, Index, V>,
    ) -> Result<ControlFlow<()>, Error> {
        // SAFETY: the scan holds the locks of the partitions it visits, for reading and as long as it lasts.
        let record = unsafe { Record::from_handle(handle) };
        if record.is_deleted() {
            return Ok(ControlFlow::Continue(()));
        }
        visit.record(self, FoundRow { record, partition })
    }
}
