//! The end of a transaction, and what it takes to undo one.

use polychron_base::{Stop, TableId};
use polychron_engine::mutations::left_out;
use polychron_engine::{Commit, Mode};

use super::steps::Step;
use super::transaction::SerialTransaction;

/// What a row was before a write.
#[derive(Debug)]
pub(super) struct Undo {
    pub(super) table: TableId,
    pub(super) key: Vec<u8>,
    /// `None`: there was no row.
    pub(super) before: Option<Box<[u64]>>,
}

impl SerialTransaction<'_> {
    /// Puts rows back as they were when the log had `length` entries, the latest change first.
    pub(super) fn undo_to(&mut self, length: usize) {
        while self.buffers.undo.len() > length {
            let Some(undo) = self.buffers.undo.pop() else { return };
            let table = self.tables_mut().get_mut(undo.table).expect("no table is dropped while a transaction runs");
            // The keys of both rows were made before, when they were written, so they can be made again.
            table.replace(&undo.key, undo.before).expect("the row stood there before");
        }
    }
}

impl Commit for SerialTransaction<'_> {
    /// The tables hold the new state already; all there is to do is to forget the old one.
    fn commit(self) -> Result<(), Stop> {
        self.buffers.undo.clear();
        if self.mode == Mode::Snapshot {
            self.counters.snapshot(0);
        }
        Ok(())
    }

    /// Dropping does the work. What was read was consistent, as always here.
    fn roll_back(self) -> bool {
        true
    }
}

impl Drop for SerialTransaction<'_> {
    fn drop(&mut self) {
        if left_out(Step::UndoTransactions) {
            self.buffers.undo.clear();
        }
        self.undo_to(0);
        if let Some(tables) = self.buffers.tables.take() {
            self.database.give_back(tables);
        }
    }
}
