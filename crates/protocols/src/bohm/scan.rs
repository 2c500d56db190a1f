//! Scans. All placeholders of earlier transactions are in place before a transaction is executed, and those that could not be planned
//! are waited for: what a scan does not meet is not there.

use std::ops::ControlFlow;

use polychron_base::{Error, IndexId, Stop};
use polychron_engine::Scan;
use polychron_engine::stores::{Batch, Both, key_in_entry};
use polychron_index::AnyIndex;
use polychron_schema::RowRef;

use super::table::{BohmStore, BohmTable};
use super::transaction::BohmTransaction;
use super::version::{Chain, Version};

impl BohmTransaction<'_> {
    /// Visits the rows of a range of any index.
    pub(super) fn visit_rows(
        &mut self,
        scan: &Scan<'_>,
        table: &BohmTable,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        let store = &**table.store(scan.index)?;
        let index = store.entries.scanned(scan)?;
        if !store.entries.is_ready_at(self.moment.batch()) {
            return Err(Error::NoSuchIndex(table.id, scan.index).into());
        }
        if scan.limit == 0 {
            return Ok(());
        }
        self.enter_index(store)?;
        self.await_range(store, scan)?;
        let mut left = scan.limit;
        let mut visit = |row: RowRef<'_>| {
            if !scan.restrictions.iter().all(|restriction| restriction.holds(&table.layout, row)) {
                return ControlFlow::Continue(());
            }
            left -= 1;
            let flow = visitor(row);
            if left == 0 { ControlFlow::Break(()) } else { flow }
        };
        let mut batch = std::mem::take(&mut self.state.buffers.batch);
        let mut both = std::mem::take(&mut self.state.buffers.both);
        let outcome = self.visit_batches(scan, (table, store, index), (&mut batch, &mut both), &mut visit);
        (self.state.buffers.batch, self.state.buffers.both) = (batch, both);
        outcome.map(drop)
    }

    fn visit_batches(
        &mut self,
        scan: &Scan<'_>,
        (table, store, index): (&BohmTable, &BohmStore, &AnyIndex),
        (batch, both): (&mut Batch, &mut Both),
        visit: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Stop> {
        let is_snapshot = self.planned.is_none();
        batch.begin(scan.limit, false);
        loop {
            if is_snapshot {
                both.begin(batch.last_key());
            }
            let more = batch.fill(index, scan, &self.guard);
            if store.displaced.concern(self.moment) {
                // What was visited so far was all there: it had not been displaced when it was collected.
                return self.visit_both(both, scan, (table, store), visit);
            }
            if !more || self.visit_batch(batch, table, store, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            // A snapshot does not ask again behind the end: what is displaced from now on is no part of what it has not visited.
            if is_snapshot && batch.last_key().is_none() {
                return Ok(ControlFlow::Continue(()));
            }
            self.renew();
        }
    }

    fn visit_batch(
        &mut self,
        batch: &Batch,
        table: &BohmTable,
        store: &BohmStore,
        visit: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Stop> {
        // SAFETY: the handle was found under the transaction's guard.
        let chain = |position| batch.get(position).map(|handle| unsafe { Chain::from_handle(handle) });
        for position in 0..batch.len() + 2 * Batch::AHEAD {
            if let Some(ahead) = chain(position) {
                ahead.prefetch();
            }
            let newest = |position| chain(position)?.head().newest();
            if let Some(ahead) = position.checked_sub(Batch::AHEAD).and_then(newest) {
                ahead.prefetch();
                ahead.prefetch_row(store.row_words);
            }
            let Some(chain) = position.checked_sub(2 * Batch::AHEAD).and_then(chain) else { continue };
            if self.visit_chain(chain, table, store, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Visits the row of a chain, or the row that an entry leads to, if it is seen.
    #[inline]
    pub(super) fn visit_chain(
        &mut self,
        chain: Chain,
        table: &BohmTable,
        store: &BohmStore,
        visit: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Stop> {
        #[cfg(test)]
        {
            self.state.scanned += 1;
        }
        self.step()?;
        let Some(mut row) = self.visible(chain.head())? else { return Ok(ControlFlow::Continue(())) };
        if store.place().index != IndexId::PRIMARY {
            let Some(found) = self.row_of_entry(table, row)? else { return Ok(ControlFlow::Continue(())) };
            row = found;
        }
        // SAFETY: the version has a row, and the visitor cannot put another one.
        Ok(visit(RowRef::from_words(unsafe { row.words() })))
    }

    /// The row that an entry leads to. A run that guesses does not see all that it writes itself, and may find none.
    fn row_of_entry(&mut self, table: &BohmTable, entry: Version) -> Result<Option<Version>, Stop> {
        // SAFETY: the version has a row, which nothing here replaces.
        let key = key_in_entry(unsafe { entry.words() });
        let row = self.see(&table.primary, key)?;
        debug_assert!(row.is_some() || self.is_void(), "an entry leads to a row");
        Ok(row)
    }
}
