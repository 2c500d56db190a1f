//! A running transaction.

use polychron_engine::mutations::left_out;
use polychron_engine::stores::Batch;
use polychron_schema::RowBuffer;

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
