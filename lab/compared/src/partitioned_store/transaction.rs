//! What a procedure may ask for, once it holds its partitions.

use polychron_base::Error;
use polychron_engine::mutations::left_out;
use polychron_engine::stores::Batch;
use polychron_engine::{Commit, Mode};
use polychron_memory::Guard;

use super::locks::Locks;
use super::steps::Step;
use super::table::Undone;
use super::worker::State;

/// Memory that operations use one after the other.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    pub(super) batch: Batch,
}

/// A running transaction: it holds its partitions' locks, and is rolled back when it is dropped.
#[derive(Debug)]
pub struct PartitionedTransaction<'w> {
    pub(super) locks: &'w Locks,
    pub(super) state: &'w mut State,
    pub(super) guard: Guard<'w>,
    pub(super) read_only: bool,
    /// The partition of the row that was found or inserted last.
    pub(super) partition: usize,
}

impl<'w> PartitionedTransaction<'w> {
    /// The locks of `state.partitions` are held.
    pub(super) fn new(locks: &'w Locks, state: &'w mut State, guard: Guard<'w>, mode: Mode) -> Self {
        Self { locks, state, guard, read_only: mode == Mode::Snapshot, partition: 0 }
    }
}

impl Drop for PartitionedTransaction<'_> {
    fn drop(&mut self) {
        if left_out(Step::UndoTransactions) {
            self.state.log.commit(&Undone(&self.state.base.tables), &self.guard);
        }
        self.undo_log_to(0);
        self.state.partitions.unlock(self.locks);
        self.state.partitions.clear();
        self.state.base.is_open = false;
    }
}

impl Commit for PartitionedTransaction<'_> {
    #[inline]
    fn commit(self) -> Result<(), Error> {
        let state = &mut *self.state;
        state.log.commit(&Undone(&state.base.tables), &self.guard);
        // The locks go with the transaction, which has nothing left to undo.
        Ok(())
    }

    fn roll_back(self) -> bool {
        true
    }
}
