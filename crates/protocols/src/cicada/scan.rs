//! Scans: the entries of a range are collected some at a time, and own insertions, which no index knows yet, are put between
//! them in the order of the keys.

use std::ops::{Bound, ControlFlow};

use polychron_base::Error;
use polychron_engine::mutations::left_out;
use polychron_engine::stores::{Batch, Keyed};
use polychron_engine::{Direction, Scan};
use polychron_index::AnyIndex;

use super::gaps::KeyPartition;
use super::kept::{Kept, Range};
use super::sets::Target;
use super::steps::Step;
use super::table::Store;
use super::transaction::{CicadaTransaction, Found, Source};

/// Entries that are collected at first, however few are wanted: some may be tombstones.
const LEAST: usize = 4;

/// Own insertions in the range of a scan that are still to be visited, in its order.
struct OwnKeys {
    positions: Vec<u32>,
    next: usize,
    backward: bool,
    /// Rows of others that the scan came to, under own writes, too.
    rows: usize,
}

/// What own insertions did to the visit of an entry.
enum Before {
    /// Nothing.
    Nothing,
    /// The entry's key is one of them: its record is not looked at.
    Shadowed,
    /// The visitor stopped at one.
    Stopped,
}

impl CicadaTransaction<'_> {
    /// Visits what a range shows to this transaction. The range, as far as it was visited, is protected.
    pub(super) fn scan_entries(
        &mut self,
        scan: &Scan<'_>,
        store: &Store,
        visitor: &mut impl FnMut(&mut Self, Source) -> Result<ControlFlow<()>, Error>,
    ) -> Result<(), Error> {
        if self.snapshot && !store.is_ready_at(self.timestamp()) && !left_out(Step::AwaitIndexes) {
            return Err(Error::no_such_index(scan.table, scan.index));
        }
        if let Some(nodes) = &store.versioned {
            store.check_scan(scan)?;
            return self.scan_versioned(scan, store, nodes, visitor);
        }
        let index = store.entries.scanned(scan)?;
        if let (AnyIndex::Hash(_), Some(key)) = (index, scan.point()) {
            if let Some(source) = self.find_row(store, key)? {
                // One row at most, so whether the visitor breaks makes no difference.
                let _ = visitor(self, source)?;
            }
            return Ok(());
        }
        let mut batch = std::mem::take(&mut self.state.buffers.batch);
        let mut own = self.own_keys(store, scan);
        let outcome = self.scan_batches(scan, store, &mut batch, &mut own, visitor);
        let rows = own.rows;
        self.state.buffers.own_keys = own.positions;
        self.state.buffers.batch = batch;
        let stopped = outcome?;
        if !self.snapshot && !left_out(Step::PartsOfRanges) {
            // Where a visit was stopped, nothing was seen of what comes behind.
            let last = &self.state.buffers.last_key[..];
            let (lower, upper) = match scan.direction {
                Direction::Forward if stopped => (scan.lower, Bound::Included(last)),
                Direction::Backward if stopped => (Bound::Included(last), scan.upper),
                _ => (scan.lower, scan.upper),
            };
            let sets = &mut self.state.sets;
            sets.gaps.push(KeyPartition::range(store.place(), lower, upper, &store.lengths));
            sets.searches.add_range(store.place(), lower, upper, rows);
        }
        Ok(())
    }

    fn own_keys(&mut self, store: &Store, scan: &Scan<'_>) -> OwnKeys {
        let mut positions = std::mem::take(&mut self.state.buffers.own_keys);
        positions.clear();
        let backward = scan.direction == Direction::Backward;
        if self.reads_own() && self.state.sets.writes.has_keys() {
            self.state.sets.writes.own_keys(store.place(), scan.lower, scan.upper, &mut positions);
            if backward {
                positions.reverse();
            }
        }
        OwnKeys { positions, next: 0, backward, rows: 0 }
    }

    /// Answers whether the visitor stopped; the key at which it did is then in its buffer.
    fn scan_batches(
        &mut self,
        scan: &Scan<'_>,
        store: &Store,
        batch: &mut Range,
        own: &mut OwnKeys,
        visitor: &mut impl FnMut(&mut Self, Source) -> Result<ControlFlow<()>, Error>,
    ) -> Result<bool, Error> {
        if self.snapshot {
            batch.begin(scan.limit.max(LEAST));
        } else {
            batch.begin_guarded(scan.limit.max(LEAST));
        }
        loop {
            if self.snapshot {
                // Between batches a snapshot may renew its guard; within one it holds records that only the guard keeps.
                self.midway.pass(batch.len());
                self.step()?;
            }
            let come_to = batch.last_key().filter(|_| self.snapshot);
            let has_come = come_to.is_some();
            if let Some(key) = come_to {
                let buffer = &mut self.state.buffers.come_to;
                buffer.clear();
                buffer.extend_from_slice(key);
            }
            let more = batch.fill(store, scan, &self.guard);
            if store.displaced.concern(self.timestamp()) {
                // What was visited so far was all there: it had not been displaced when it was collected.
                let key = std::mem::take(&mut self.state.buffers.come_to);
                let (lower, upper) = match scan.direction {
                    _ if !has_come => (scan.lower, scan.upper),
                    Direction::Forward => (Bound::Excluded(&key[..]), scan.upper),
                    Direction::Backward => (scan.lower, Bound::Excluded(&key[..])),
                };
                return self.scan_both(&Scan { lower, upper, ..*scan }, store, visitor);
            }
            if self.visit_batch(batch, store, own, visitor)? {
                return Ok(true);
            }
            // A snapshot does not ask again behind the end, where what was displaced meanwhile would be no part of what it has not visited.
            if !more || self.snapshot && batch.last_key().is_none() {
                break;
            }
        }
        while let Some(position) = own.peek() {
            if self.visit_own(position, own, visitor)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Visits the row of an own insertion.
    fn visit_own(
        &mut self,
        position: u32,
        own: &mut OwnKeys,
        visitor: &mut impl FnMut(&mut Self, Source) -> Result<ControlFlow<()>, Error>,
    ) -> Result<bool, Error> {
        own.next += 1;
        let stopped = visitor(self, Source::Own(position))?.is_break();
        if stopped {
            let mut last = std::mem::take(&mut self.state.buffers.last_key);
            last.clear();
            last.extend_from_slice(self.own_key(position));
            self.state.buffers.last_key = last;
        }
        Ok(stopped)
    }

    fn own_key(&self, position: u32) -> &[u8] {
        let writes = &self.state.sets.writes;
        writes.key(writes.get(position))
    }

    fn visit_batch(
        &mut self,
        batch: &Range,
        store: &Store,
        own: &mut OwnKeys,
        visitor: &mut impl FnMut(&mut Self, Source) -> Result<ControlFlow<()>, Error>,
    ) -> Result<bool, Error> {
        let lines = store.records.lines();
        let mut leaves = 0;
        for ahead in 0..Batch::AHEAD {
            batch.prefetch(ahead, lines);
        }
        for position in 0..batch.len() {
            batch.prefetch(position + Batch::AHEAD, lines);
            let Some(record) = batch.get(position, &self.guard) else { break };
            if !self.snapshot {
                self.step()?;
                // Only leaves that were needed are remembered: those up to the entry at which the visitor stops.
                self.remember_leaves(batch, store, &mut leaves, batch.leaves(position));
                if own.peek().is_some() {
                    match self.visit_own_before(batch.key(position), own, visitor)? {
                        Before::Stopped => return Ok(true),
                        Before::Shadowed => continue,
                        Before::Nothing => {}
                    }
                }
            }
            let found = self.read_next(record, store.place());
            own.rows += usize::from(match found {
                Found::Row(Source::Version(_)) => true,
                Found::Row(Source::Own(_)) | Found::Absent(Target::Record(_)) => self.read_under(record, store),
                Found::Absent(Target::Key) => false,
            });
            if let Found::Row(source) = found
                && visitor(self, source)?.is_break()
            {
                if !self.snapshot {
                    self.state.buffers.last_key.clear();
                    self.state.buffers.last_key.extend_from_slice(batch.key(position));
                }
                return Ok(true);
            }
        }
        if !self.snapshot {
            self.remember_leaves(batch, store, &mut leaves, batch.stamps().len());
        }
        Ok(false)
    }

    /// Visits own insertions whose keys come before `key`, or are that key.
    fn visit_own_before(
        &mut self,
        key: &[u8],
        own: &mut OwnKeys,
        visitor: &mut impl FnMut(&mut Self, Source) -> Result<ControlFlow<()>, Error>,
    ) -> Result<Before, Error> {
        let mut shadowed = false;
        while let Some(position) = own.peek() {
            let own_key = self.own_key(position);
            let is_due = if own.backward { own_key >= key } else { own_key <= key };
            if !is_due {
                break;
            }
            shadowed = own_key == key;
            if self.visit_own(position, own, visitor)? {
                return Ok(Before::Stopped);
            }
        }
        Ok(if shadowed { Before::Shadowed } else { Before::Nothing })
    }

    /// Remembers what lies under an own write in a range that may be searched again. Answers whether it is a row.
    #[cold]
    fn read_under(&mut self, record: Kept, store: &Store) -> bool {
        if !self.state.sets.searches.are_kept() {
            return false;
        }
        let found = record.under(&self.guard);
        let seen = self.guard.search(found, None, self.shared.options.parts().wait_for_pending);
        self.state.sets.reads.push(&self.guard, found, &seen, (store.place(), false));
        seen.is_row
    }

    #[inline]
    fn remember_leaves(&mut self, batch: &Range, store: &Store, remembered: &mut usize, up_to: usize) {
        if left_out(Step::NodesOfRanges) {
            return;
        }
        for &stamp in batch.stamps().get(*remembered..up_to).unwrap_or_default() {
            self.state.sets.nodes.add(stamp, store.place());
        }
        *remembered = up_to.max(*remembered);
    }
}

impl OwnKeys {
    #[inline]
    fn peek(&self) -> Option<u32> {
        self.positions.get(self.next).copied()
    }
}
