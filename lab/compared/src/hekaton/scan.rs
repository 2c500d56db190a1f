//! Scans: the entries of a range are collected some at a time, and their records and versions fetched into the caches ahead of the
//! visit.

use std::ops::ControlFlow;

use polychron_base::Error;
use polychron_engine::Scan;
use polychron_engine::mutations::left_out;
use polychron_engine::stores::Batch;
use polychron_index::AnyIndex;

use super::steps::Step;
use super::table::{HekatonTable, Store};
use super::transaction::{Found, HekatonTransaction, Remember};
use super::transactions::Look;
use super::version::{Record, Version};

/// Entries that are collected at first, however few are wanted: some may show no row.
const LEAST: usize = 4;

/// How far ahead of the visit a version is fetched; its record is on its way by then.
const VERSIONS_AHEAD: usize = Batch::AHEAD / 2;

impl HekatonTransaction<'_> {
    /// Visits what a range shows to this transaction. The range, as far as it was visited, is protected.
    pub(super) fn scan_entries(
        &mut self,
        scan: &Scan<'_>,
        table: &HekatonTable,
        visitor: &mut impl FnMut(&mut Self, Record, Version) -> Result<ControlFlow<()>, Error>,
    ) -> Result<(), Error> {
        let store: &Store = table.store(scan.index)?;
        // Read-write transactions read the past, too.
        if !store.is_ready_at(self.timestamp) && !left_out(Step::AwaitIndexes) {
            return Err(Error::no_such_index(table.id, scan.index));
        }
        let index = store.scanned(scan)?;
        if let (AnyIndex::Hash(_), Some(key)) = (index, scan.point()) {
            if let Found::Row(record, version) = self.find(store, key, Remember::Rows)? {
                // One row at most, so whether the visitor breaks makes no difference.
                let _ = visitor(self, record, version)?;
            }
            return Ok(());
        }
        let mut batch = std::mem::take(&mut self.state.buffers.batch);
        let outcome = self.scan_batches(scan, store, &mut batch, visitor);
        self.state.buffers.batch = batch;
        outcome
    }

    fn scan_batches(
        &mut self,
        scan: &Scan<'_>,
        store: &Store,
        batch: &mut Batch,
        visitor: &mut impl FnMut(&mut Self, Record, Version) -> Result<ControlFlow<()>, Error>,
    ) -> Result<(), Error> {
        let guarded = self.tracks();
        if guarded {
            batch.begin_guarded(scan.limit.max(LEAST));
        } else {
            batch.begin(scan.limit.max(LEAST), false);
        }
        loop {
            if self.snapshot {
                // Between batches a snapshot renews its guard; within one it holds records that only the guard keeps.
                self.until_renewal = 1;
                self.step()?;
            }
            let more = batch.fill(store.index(), scan, &self.guard);
            if self.visit_batch(batch, store, guarded, visitor)?.is_break() || !more {
                return Ok(());
            }
        }
    }

    fn visit_batch(
        &mut self,
        batch: &Batch,
        store: &Store,
        guarded: bool,
        visitor: &mut impl FnMut(&mut Self, Record, Version) -> Result<ControlFlow<()>, Error>,
    ) -> Result<ControlFlow<()>, Error> {
        let mut remembered = 0;
        for ahead in 0..Batch::AHEAD {
            fetch(batch, ahead);
        }
        for position in 0..batch.len() {
            fetch(batch, position + Batch::AHEAD);
            fetch_version(batch, position + VERSIONS_AHEAD);
            let Some(handle) = batch.get(position) else { break };
            // SAFETY: the handle was found under this transaction's guard.
            let record = unsafe { Record::from_handle(handle) };
            if !guarded {
                if !self.snapshot {
                    self.step()?;
                }
                if let Look::Row(version, _) = self.look(record)
                    && visitor(self, record, version)?.is_break()
                {
                    return Ok(ControlFlow::Break(()));
                }
                continue;
            }
            self.step()?;
            // Only leaves that were needed are remembered: those up to the entry at which the visitor stops.
            let leaves = batch.leaves(position);
            self.remember_leaves(batch, store, &mut remembered, leaves);
            let found = self.read_record(record, batch.stamps()[leaves - 1], store.index_ref, Remember::Rows);
            if let Found::Row(record, version) = found
                && visitor(self, record, version)?.is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        if guarded {
            self.remember_leaves(batch, store, &mut remembered, batch.stamps().len());
        }
        Ok(ControlFlow::Continue(()))
    }

    #[inline]
    fn remember_leaves(&mut self, batch: &Batch, store: &Store, remembered: &mut usize, up_to: usize) {
        if left_out(Step::NodesOfRanges) {
            return;
        }
        for &stamp in batch.stamps().get(*remembered..up_to).unwrap_or_default() {
            self.state.sets.nodes.add(stamp, store.index_ref);
        }
        *remembered = up_to.max(*remembered);
    }
}

#[inline]
fn fetch(batch: &Batch, position: usize) {
    if let Some(handle) = batch.get(position) {
        // SAFETY: the handle was found under the transaction's guard.
        unsafe { Record::from_handle(handle) }.prefetch();
    }
}

#[inline]
fn fetch_version(batch: &Batch, position: usize) {
    if let Some(handle) = batch.get(position) {
        // SAFETY: as in `fetch`.
        if let Some(version) = unsafe { Record::from_handle(handle) }.latest() {
            version.prefetch(2);
        }
    }
}
