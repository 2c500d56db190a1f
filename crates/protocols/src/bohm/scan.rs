//! Scans. All placeholders of earlier transactions are in place before a transaction is executed, and those that could not be planned
//! are waited for: what a scan does not meet is not there.

use std::ops::ControlFlow;

use polychron_base::Error;
use polychron_engine::Scan;
use polychron_engine::stores::{Batch, Both};
use polychron_index::AnyIndex;

use super::table::BohmStore;
use super::transaction::BohmTransaction;
use super::version::Version;

impl<'t> BohmTransaction<'t> {
    /// Visits the rows of a range of any index.
    pub(super) fn visit_rows(
        &mut self,
        scan: &Scan<'_>,
        store: &BohmStore,
        visit: &mut impl FnMut(&mut Self, Version<'t>) -> Result<ControlFlow<()>, Error>,
    ) -> Result<(), Error> {
        let index = store.entries.scanned(scan)?;
        if !store.entries.is_ready_at(self.timestamp.bits()) {
            return Err(Error::no_such_index(scan.table, scan.index));
        }
        self.enter_index(store)?;
        self.await_range(store, scan)?;
        // A transaction before this one may have been executed with a later list of tables, and has left the index alone: that was waited for,
        // or was planned by that list, so the drop is seen.
        if !store.entries.is_ready() {
            return Err(Error::no_such_index(scan.table, scan.index));
        }
        let mut batch = std::mem::take(&mut self.state.buffers.batch);
        let mut both = std::mem::take(&mut self.state.buffers.both);
        let outcome = self.visit_batches(scan, (store, index), (&mut batch, &mut both), visit);
        (self.state.buffers.batch, self.state.buffers.both) = (batch, both);
        outcome.map(drop)
    }

    fn visit_batches(
        &mut self,
        scan: &Scan<'_>,
        (store, index): (&BohmStore, &AnyIndex),
        (batch, both): (&mut Batch, &mut Both),
        visit: &mut impl FnMut(&mut Self, Version<'t>) -> Result<ControlFlow<()>, Error>,
    ) -> Result<ControlFlow<()>, Error> {
        let is_snapshot = self.planned.is_none();
        batch.begin(scan.limit, false);
        loop {
            if is_snapshot {
                both.begin(batch.last_key());
            }
            let more = batch.fill(index, scan, &self.guard);
            if store.displaced.concern(self.timestamp) {
                // What was visited so far was all there: it had not been displaced when it was collected.
                return self.visit_both(both, scan, store, visit);
            }
            if !more || self.visit_batch(batch, store, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            // A snapshot does not ask again behind the end: what is displaced from now on is no part of what it has not visited.
            if is_snapshot && batch.last_key().is_none() {
                return Ok(ControlFlow::Continue(()));
            }
            self.renew();
        }
    }
}
