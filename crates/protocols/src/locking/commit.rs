//! Commit: what was read is still so, the changes are sealed, and then the locks are released.

use polychron_base::{Error, IndexId, Reason};
use polychron_engine::Commit;
use polychron_engine::mutations::left_out;
use polychron_engine::redo;
use polychron_engine::stores::{IndexRef, has_dropped};

use super::steps::Step;
use super::transaction::LockingTransaction;

impl LockingTransaction<'_> {
    /// No index was added to a table that was written: its entries would not be kept up.
    #[inline]
    fn know_all_indexes(&mut self) -> Result<(), Error> {
        if left_out(Step::KnowAllIndexes) {
            return Ok(());
        }
        let outdated = self.state.base.tables.outdated(&self.shared.base.catalog, || self.records.changed());
        outdated.map_or(Ok(()), |index_ref| Err(self.conflict(Reason::Inconsistent, index_ref, None, None)))
    }

    /// No index was dropped that may have been read. A transaction that does not know the index locks nothing there; but one that locks what this
    /// one has written, or writes what this one has read, comes after it, and sees here that the catalog has another version.
    #[inline]
    fn know_dropped(&mut self) -> Result<(), Error> {
        let known = !self.has_read_secondary || self.state.base.tables.is_present(&self.shared.base.catalog);
        if known || left_out(Step::KnowDropped) { Ok(()) } else { self.look_for_dropped() }
    }

    #[cold]
    fn look_for_dropped(&mut self) -> Result<(), Error> {
        let Some(table) = has_dropped(&self.state.base.tables) else { return Ok(()) };
        Err(self.conflict(Reason::Inconsistent, IndexRef { table, index: IndexId::PRIMARY }, None, None))
    }

    /// Stages the changes of rows, as they are now.
    fn stage_changes(&self) -> Result<(), Error> {
        self.records.stage(&self.shared.base.common.journal, self.state.base.slot, &self.state.base.tables)
    }

    /// What was staged counts. A transaction that has changed nothing waits for what it has read.
    #[inline]
    pub(super) fn seal(&mut self, has_changed: bool) {
        let (shared, base) = (self.shared, &mut self.state.base);
        base.ticket.raise(shared.orders.end(&shared.base.common.journal, base.slot, has_changed, &base.rows.watch));
    }
}

impl Commit for LockingTransaction<'_> {
    #[inline]
    fn commit(mut self) -> Result<(), Error> {
        self.alive()?;
        self.know_all_indexes()?;
        self.know_dropped()?;
        if self.shared.policy.has_conditions() {
            self.respect_conditions()?;
        }
        self.records.come_back();
        self.stage_changes()?;
        self.has_ended = true;
        let has_changed = self.records.changes() > 0;
        if left_out(redo::Step::SealFirst) {
            self.records.commit(&self.state.base.tables);
            self.records.release();
        }
        self.seal(has_changed);
        self.records.commit(&self.state.base.tables);
        if self.read_only {
            self.state.base.counters.snapshot(0);
        }
        // The locks are released with the transaction, which has nothing left to undo.
        Ok(())
    }

    fn roll_back(mut self) -> bool {
        !self.doomed && self.know_dropped().is_ok()
    }
}
