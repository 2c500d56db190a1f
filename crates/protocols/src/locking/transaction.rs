//! What a procedure may ask for.

use polychron_base::{Error, IndexId, Reason};
use polychron_engine::Commit;
use polychron_engine::mutations::left_out;
use polychron_engine::stores::{Batch, IndexRef, has_dropped};
use polychron_memory::Guard;
use polychron_schema::RowBuffer;

use super::protocol::Shared;
use super::rows::Undone;
use super::steps::Step;
use super::worker::State;

/// Memory that operations use one after the other.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// A row whose lock was given back.
    pub(super) row: RowBuffer,
    pub(super) batch: Batch,
}

/// A running transaction: it holds its locks, and is rolled back when it is dropped.
#[derive(Debug)]
pub struct LockingTransaction<'w> {
    pub(super) shared: &'w Shared,
    pub(super) state: &'w mut State,
    pub(super) guard: Guard<'w>,
    /// The worker's number, in the queues of ranges.
    pub(super) owner: u64,
    pub(super) read_only: bool,
    /// It has conflicted.
    pub(super) doomed: bool,
    /// It has been told something by a secondary index.
    pub(super) asks_secondary: bool,
}

impl<'w> LockingTransaction<'w> {
    /// Runs an operation. Between two of them the transaction stands aside: one whose client does nothing holds back no epoch. What it will look
    /// at again is locked, so that nobody else takes it away, or is its own, and its list of tables is kept. Only fingers are forgotten.
    #[inline]
    pub(super) fn work<O>(&mut self, operation: impl FnOnce(&mut Self) -> O) -> O {
        self.come_back();
        let outcome = operation(self);
        self.guard.stand_aside();
        outcome
    }

    /// The transaction is in an epoch from now on.
    #[inline]
    pub(super) fn come_back(&mut self) {
        if !self.guard.come_back() {
            self.state.base.fingers.clear();
        }
    }

    /// No index was added to a table that was written: its entries would not be kept up.
    #[inline]
    fn know_all_indexes(&mut self) -> Result<(), Error> {
        if left_out(Step::KnowAllIndexes) {
            return Ok(());
        }
        let outdated = self.state.base.tables.outdated(&self.shared.catalog, || self.state.log.index_refs());
        outdated.map_or(Ok(()), |place| Err(self.conflict(Reason::Inconsistent, place, None, None)))
    }

    /// No index was dropped that may have been asked. Who leaves it alone locks nothing there; but whoever locks what it has written, or writes
    /// what it has read, does so behind it, and sees here that its catalog has another version.
    #[inline]
    fn know_dropped(&mut self) -> Result<(), Error> {
        let known = !self.asks_secondary || self.state.base.tables.is_present(&self.shared.catalog);
        if known || left_out(Step::KnowDropped) { Ok(()) } else { self.look_for_dropped() }
    }

    #[cold]
    fn look_for_dropped(&mut self) -> Result<(), Error> {
        let Some(table) = has_dropped(&self.state.base.tables) else { return Ok(()) };
        Err(self.conflict(Reason::Inconsistent, IndexRef { table, index: IndexId::PRIMARY }, None, None))
    }

    /// Gives back all that is locked.
    fn release(&mut self) {
        self.state.release(self.shared);
    }
}

impl Drop for LockingTransaction<'_> {
    fn drop(&mut self) {
        self.come_back();
        if left_out(Step::UndoTransactions) {
            self.state.log.commit(&Undone(&self.state.base.tables), &self.guard);
        }
        self.undo_log_to(0);
        self.release();
        self.state.base.is_open = false;
        self.shared.kept.let_old_go(self.owner as usize, &mut self.state.base.tables, &self.shared.catalog);
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
        self.come_back();
        let state = &mut *self.state;
        state.log.commit(&Undone(&state.base.tables), &self.guard);
        if self.read_only {
            state.base.counters.snapshot(0);
        }
        // The locks go with the transaction, which has nothing left to undo.
        Ok(())
    }

    fn roll_back(mut self) -> bool {
        !self.doomed && self.know_dropped().is_ok()
    }
}
