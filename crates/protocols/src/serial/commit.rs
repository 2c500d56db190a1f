//! The end of a transaction, and what it takes to undo one.

use polychron_base::{Error, TableId};
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

impl Undo {
    /// What it needs of the memory.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.key.len() + self.before.as_deref().map_or(0, size_of_val)
    }
}

impl SerialTransaction<'_> {
    /// Remembers a change.
    pub(super) fn log(&mut self, undo: Undo) {
        self.tables().count(undo.bytes(), 0);
        self.buffers.undo.push(undo);
    }

    /// Forgets all changes.
    fn forget(&mut self) {
        let bytes = self.buffers.undo.iter().map(Undo::bytes).sum();
        self.tables().count(0, bytes);
        self.buffers.undo.clear();
    }

    /// Puts rows back as they were when the log had `length` entries, the latest change first.
    pub(super) fn undo_to(&mut self, length: usize) {
        while self.buffers.undo.len() > length {
            let Some(undo) = self.buffers.undo.pop() else { return };
            self.tables().count(0, undo.bytes());
            // No table is dropped meanwhile, and the keys of both rows were made before, when they were written.
            self.tables_mut().replace(undo.table, &undo.key, undo.before).expect("the row stood there before");
        }
    }
}

impl Commit for SerialTransaction<'_> {
    /// The tables hold the new state already; all there is to do is to forget the old one.
    fn commit(mut self) -> Result<(), Error> {
        self.forget();
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
            self.forget();
        }
        self.undo_to(0);
        if let Some(tables) = self.buffers.tables.take() {
            self.database.put_back(tables);
        }
    }
}
