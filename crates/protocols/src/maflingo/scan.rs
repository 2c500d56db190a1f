//! Scans (§4.3): leaves are collected in batches, whose records are fetched into the caches together and then visited.

use std::ops::{Bound, ControlFlow, Range};

use polychron_base::{Error, Reason};
use polychron_engine::mutations::left_out;
use polychron_engine::stores::{Both, IndexRef};
use polychron_engine::{Direction, Scan};
use polychron_index::{AnyIndex, Handle, Stamp, ordered};

use super::aside::Kept;
use super::record::Record;
use super::steps::Step;
use super::table::Store;
use super::transaction::MaflingoTransaction;

/// Entries of a range, collected leaf by leaf up to a number.
#[derive(Debug, Default)]
pub(super) struct ScanBatch {
    /// The leaves, and which entry is the first of each.
    leaves: Vec<(Stamp, usize)>,
    entries: Vec<Handle>,
    /// The last key taken, when the batch is full.
    resume: Vec<u8>,
    /// The memory of the key behind which the batch before has begun.
    spare: Vec<u8>,
    size: usize,
    full: bool,
}

impl ScanBatch {
    /// Entries collected at first, however few are wanted: some may be tombstones.
    const LEAST: usize = 4;
    /// Entries collected at first, however many are wanted: the visitor may stop early.
    const FIRST: usize = 64;
    /// Entries collected at a time, at most.
    const LARGEST: usize = 1024;
    /// How many records ahead of the visit are being fetched.
    const AHEAD: usize = 8;

    fn begin(&mut self, size: usize) {
        self.leaves.clear();
        self.entries.clear();
        self.size = size;
        self.full = false;
    }
}

impl ordered::Visitor for ScanBatch {
    #[inline]
    fn node(&mut self, stamp: Stamp) {
        self.leaves.push((stamp, self.entries.len()));
    }

    #[inline]
    fn entry(&mut self, key: &[u8], handle: Handle) -> ControlFlow<()> {
        self.entries.push(handle);
        if self.entries.len() < self.size {
            return ControlFlow::Continue(());
        }
        self.full = true;
        self.resume.clear();
        self.resume.extend_from_slice(key);
        ControlFlow::Break(())
    }
}

impl MaflingoTransaction<'_> {
    /// Visits the records of a range, as handles first: the records of a batch are fetched into the caches together.
    pub(super) fn scan_entries(
        &mut self,
        scan: &Scan<'_>,
        store: &Store,
        range: Range<usize>,
        visitor: &mut impl FnMut(&mut Self, Kept) -> Result<ControlFlow<()>, Error>,
    ) -> Result<(), Error> {
        let ready = self.snapshot.map_or_else(|| store.is_ready(), |epoch| store.is_ready_at(epoch));
        if !ready && !left_out(Step::AwaitIndexes) {
            return Err(Error::no_such_index(scan.table, scan.index));
        }
        let index = match (store.index(), scan.point()) {
            (AnyIndex::Ordered(index), _) => index,
            (AnyIndex::Hash(_), Some(key)) => {
                if let Some(record) = self.find(store, key, range) {
                    // One row at most, so whether the visitor breaks makes no difference.
                    let _ = visitor(self, record)?;
                }
                return Ok(());
            }
            (AnyIndex::Hash(_), None) => return Err(Error::no_order(scan.table, scan.index)),
        };
        let direction = match scan.direction {
            Direction::Forward => ordered::Direction::Forward,
            Direction::Backward => ordered::Direction::Backward,
        };
        let mut batch = std::mem::take(&mut self.state.buffers.batch);
        batch.entries.clear();
        batch.full = false;
        let mut bounds = (scan.lower, scan.upper);
        let mut size = scan.limit.clamp(ScanBatch::LEAST, ScanBatch::FIRST);
        let outcome = loop {
            // The empty key is a key like others.
            let is_resumed = batch.full;
            let spare = std::mem::take(&mut batch.spare);
            let resumed = if is_resumed { std::mem::replace(&mut batch.resume, spare) } else { spare };
            if is_resumed {
                match direction {
                    ordered::Direction::Forward => bounds.0 = Bound::Excluded(&resumed[..]),
                    ordered::Direction::Backward => bounds.1 = Bound::Excluded(&resumed[..]),
                }
            }
            if self.snapshot.is_some() {
                // Between batches a snapshot may leave its epoch; within one it holds records that only the pin keeps.
                self.midway.pass(batch.entries.len());
                if let Err(error) = self.step() {
                    break Err(error);
                }
            }
            batch.begin(size);
            index.scan(bounds.0, bounds.1, direction, &mut batch, &self.guard);
            if self.snapshot.is_some_and(|epoch| store.displaced.concern(epoch)) {
                // What was visited so far was all there: it had not been displaced when it was collected.
                let behind = is_resumed.then_some(&resumed[..]);
                break self.scan_both(scan, store, behind, range, visitor);
            }
            let outcome = self.visit_batch(&batch, store.index_ref, range.clone(), visitor);
            bounds = (scan.lower, scan.upper);
            batch.spare = resumed;
            match outcome {
                Ok(ControlFlow::Continue(())) if batch.full => size = (size * 4).min(ScanBatch::LARGEST),
                other => break other.map(|_| ()),
            }
        };
        self.state.buffers.batch = batch;
        outcome
    }

    fn visit_batch(
        &mut self,
        batch: &ScanBatch,
        index_ref: IndexRef,
        range: Range<usize>,
        visitor: &mut impl FnMut(&mut Self, Kept) -> Result<ControlFlow<()>, Error>,
    ) -> Result<ControlFlow<()>, Error> {
        let lines = (range.end.min(56) + 4).div_ceil(8);
        for &handle in batch.entries.iter().take(ScanBatch::AHEAD) {
            Record::prefetch_behind(handle, lines);
        }
        for (leaf, &(stamp, first)) in batch.leaves.iter().enumerate() {
            let end = batch.leaves.get(leaf + 1).map_or(batch.entries.len(), |&(_, next)| next);
            // Only leaves that were needed are remembered: those up to the entry at which the visitor stops.
            if self.snapshot.is_none() && !left_out(Step::NodesOfRanges) {
                self.state.sets.nodes.add(stamp, index_ref);
            }
            for position in first..end {
                if let Some(&ahead) = batch.entries.get(position + ScanBatch::AHEAD) {
                    Record::prefetch_behind(ahead, lines);
                }
                if self.snapshot.is_none() {
                    self.step()?;
                }
                let (reader, state) = self.reader();
                // SAFETY: the handle was found under this transaction's guard, which is renewed between batches only.
                let record = unsafe { Record::from_handle(batch.entries[position], reader.guard) };
                let seen = state.read_record(reader, record, stamp, index_ref, range.clone());
                let record = Kept::from(record);
                if seen.moved && self.snapshot.is_none() {
                    // The row moved to a larger record after the leaf was read; its old record does not validate.
                    return Err(self.conflict_at(Reason::StaleRead, index_ref, record));
                }
                if seen.present && visitor(self, record)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// As [`Self::scan_entries`], of a snapshot, along both indexes, behind a key if one is given (`displaced.rs`).
    #[cold]
    fn scan_both(
        &mut self,
        scan: &Scan<'_>,
        store: &Store,
        behind: Option<&[u8]>,
        range: Range<usize>,
        visitor: &mut impl FnMut(&mut Self, Kept) -> Result<ControlFlow<()>, Error>,
    ) -> Result<(), Error> {
        let Some(beside) = store.displaced.index() else { return Ok(()) };
        let mut both = Both::default();
        both.begin(behind);
        loop {
            // Between two parts the guard may be renewed.
            self.step()?;
            let more = both.fill((store.index(), beside), scan, &self.guard);
            while let Some(handle) = both.next(scan.direction) {
                let (reader, state) = self.reader();
                // SAFETY: the handle was found under this transaction's guard.
                let record = unsafe { Record::from_handle(handle, reader.guard) };
                if !state.see(reader, record, range.clone()) {
                    continue;
                }
                if !left_out(Step::SkipTwins) {
                    both.skip_twin();
                }
                let record = Kept::from(record);
                if visitor(self, record)?.is_break() {
                    return Ok(());
                }
            }
            if !more {
                return Ok(());
            }
        }
    }
}
