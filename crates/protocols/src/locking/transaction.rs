//! A running transaction.

use polychron_base::{Error, IndexId, Reason};
use polychron_engine::Commit;
use polychron_engine::mutations::left_out;
use polychron_engine::redo;
use polychron_engine::stores::{Batch, IndexRef, has_dropped};
use polychron_schema::{KeyScratch, RowBuffer, RowRef};

use super::protocol::Shared;
use super::records::Records;
use super::steps::Step;
use super::worker::State;

/// Memory that operations use one after the other.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// A row whose lock was released.
    pub(super) row: RowBuffer,
    pub(super) batch: Batch,
}

/// A running transaction: it holds its locks, and is rolled back when it is dropped.
#[derive(Debug)]
pub struct LockingTransaction<'w> {
    pub(super) shared: &'w Shared,
    pub(super) state: &'w mut State,
    pub(super) records: Records<'w>,
    /// The worker's number, in the queues of ranges.
    pub(super) owner: u64,
    pub(super) read_only: bool,
    /// It has conflicted.
    pub(super) doomed: bool,
    /// It has read a secondary index.
    pub(super) has_read_secondary: bool,
    /// It commits.
    pub(super) has_ended: bool,
}

impl LockingTransaction<'_> {
    /// Runs an operation. Between two of them the transaction stands aside: one whose client does nothing holds back no epoch. What it will look
    /// at again is locked, so that no other transaction frees it, or is its own, and its list of tables is kept. Only fingers are forgotten.
    #[inline]
    pub(super) fn work<O>(&mut self, operation: impl FnOnce(&mut Self) -> O) -> O {
        self.records.come_back();
        let outcome = operation(self);
        self.records.stand_aside();
        outcome
    }

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
}

impl LockingTransaction<'_> {
    /// Stages the changes of rows, as they are now.
    fn stage_changes(&mut self) -> Result<(), Error> {
        let (journal, base) = (&self.shared.base.common.journal, &self.state.base);
        if journal.is_empty() {
            return Ok(());
        }
        let mut scratch = KeyScratch::new();
        self.records.visit_changes(|IndexRef { table: id, index }, key, row, change| {
            let Ok(table) = base.tables.table(id) else { return Ok(()) };
            if index != IndexId::PRIMARY {
                return Ok(());
            }
            let key = match key {
                Some(key) => key,
                None => table.primary.store.extractor.extract(RowRef::from_words(row), &mut scratch)?,
            };
            journal.stage(base.slot, id, key, change)
        })
    }

    /// What was staged counts. A transaction that has changed nothing waits for what it has read.
    #[inline]
    fn seal(&mut self, has_changed: bool) {
        let (shared, base) = (self.shared, &mut self.state.base);
        let journal = &shared.base.common.journal;
        base.ticket.raise(match has_changed {
            true => shared.orders.seal(journal, base.slot),
            false => journal.ticket(|| shared.orders.last().into()),
        });
    }
}

impl Drop for LockingTransaction<'_> {
    fn drop(&mut self) {
        self.records.come_back();
        if self.records.changes() > 0 {
            self.shared.base.common.journal.discard(self.state.base.slot);
        }
        if !self.has_ended && !self.doomed {
            self.seal(false);
        }
        if left_out(Step::UndoTransactions) {
            self.records.commit(&self.state.base.tables);
        }
        self.undo_log_to(0);
        self.state.release(self.shared);
        self.records.release();
        self.state.base.is_open = false;
        self.shared.kept.let_old_go(self.owner as usize, &mut self.state.base.tables, &self.shared.base.catalog);
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
