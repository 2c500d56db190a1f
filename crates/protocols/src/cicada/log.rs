//! What the log gets of a transaction: changes of rows are staged before anything is installed, and sealed behind the validation, before any version
//! has its status.

use polychron_base::{Error, IndexId};
use polychron_engine::redo::{Change, Order, Ticket};

use super::counts::Stage;
use super::sets::Kind;
use super::timestamp::Timestamp;
use super::transaction::CicadaTransaction;
use super::worker::State;

impl CicadaTransaction<'_> {
    /// Whether a log listens.
    #[inline]
    pub(super) fn is_logged(&self) -> bool {
        !self.shared.base.common.journal.is_empty()
    }

    /// The timestamp with its era. The worker's clock, of which it was made, knows how often it has wrapped around.
    fn order(&self) -> Order {
        let (shape, adjusted) = (self.shared.clocks.shape, self.state.clock.adjusted);
        debug_assert_eq!(
            shape.timestamp(adjusted, self.state.base.slot),
            self.timestamp(),
            "a worker runs one transaction"
        );
        Order { era: shape.era(adjusted), timestamp: self.timestamp().0 }
    }

    /// Stages the changes of rows. Where a row was written on what was read, that is what lies below if the transaction commits.
    pub(super) fn stage_changes(&self) -> Result<(), Error> {
        let (journal, State { base, sets, buffers, .. }) = (&self.shared.base.common.journal, &*self.state);
        if journal.is_empty() {
            return Ok(());
        }
        for pending in &buffers.pending {
            let write = sets.writes.get(pending.write);
            if write.place.index != IndexId::PRIMARY || write.unlogged {
                continue;
            }
            let (table, key) = (write.place.table, sets.writes.key(write));
            let row = sets.writes.row(pending.write).as_words();
            match (write.kind, sets.version_below(write, &self.guard)) {
                (Kind::Delete, _) => journal.stage(base.slot, table, key, Change::Delete)?,
                (Kind::Put, None) => journal.stage(base.slot, table, key, Change::Put(row))?,
                (Kind::Put, Some(below)) => {
                    journal.stage_update(base.slot, (table, key), below.row().as_words(), row)?;
                }
            }
        }
        Ok(())
    }

    /// What was staged counts. Rows that are written once more as they are leave nothing in the log.
    #[inline]
    pub(super) fn seal(&mut self) {
        if self.state.stage != Stage::Rewriting {
            let ticket = self.shared.base.common.journal.seal(self.state.base.slot, || self.order());
            self.state.base.ticket.raise(ticket);
            self.has_sealed = true;
        }
    }

    /// Nothing of it has become part of the log, and nothing will. It waits for what it has read, unless it is run again.
    #[inline]
    pub(super) fn leave_journal(&mut self) {
        if self.is_logged() && self.state.stage != Stage::Rewriting && !self.has_sealed {
            self.discard_staged();
        }
    }

    #[cold]
    fn discard_staged(&mut self) {
        let journal = &self.shared.base.common.journal;
        journal.discard(self.state.base.slot);
        if self.doomed {
            return;
        }
        // Whatever it has read has a timestamp that is not later than its own. Only where that is not durable it is worth while to look at each.
        let watch = &self.state.base.rows.watch;
        let mut ticket = journal.ticket_of(watch, || self.order_of(self.timestamp()));
        if ticket != Ticket::DONE
            && !self.snapshot
            && let Some(newest) = self.state.sets.newest_read(&self.guard)
        {
            ticket = journal.ticket(|| self.order_of(newest));
        }
        self.state.base.ticket.raise(ticket);
    }

    /// A timestamp that is not later than the transaction's, with its era.
    fn order_of(&self, timestamp: Timestamp) -> Order {
        let clocks = &self.shared.clocks;
        let reading = clocks.shape.reading(timestamp, clocks.bound().max(self.state.clock.adjusted));
        Order { era: clocks.shape.era(reading), timestamp: timestamp.0 }
    }
}
