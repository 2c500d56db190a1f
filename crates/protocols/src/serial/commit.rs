//! The end of a transaction, and what it takes to undo one.

use polychron_base::{Error, TableId};
use polychron_engine::mutations::left_out;
use polychron_engine::redo::{self, Change};
use polychron_engine::{Commit, Mode};

use super::protocol::Serial;
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

impl SerialTransaction<'_> {
    /// Stages the changes: in what each row that was changed differs now from what it was.
    fn stage_changes(&self) -> Result<(), Error> {
        let journal = &self.database.common.journal;
        if journal.is_empty() {
            return Ok(());
        }
        let slot = self.buffers.slot;
        self.buffers.undo.iter().try_for_each(|Undo { table, key, before }| {
            match (before, self.tables().get(*table)?.rows.get(key)) {
                (_, None) => journal.stage(slot, *table, key, Change::Delete),
                (None, Some(row)) => journal.stage(slot, *table, key, Change::Put(row)),
                (Some(before), Some(row)) => journal.stage_update(slot, (*table, key), before, row),
            }
        })
    }

    /// What was staged counts. A transaction that has changed nothing waits for what it has read.
    fn seal(&mut self) {
        let (Serial { common, orders, .. }, buffers) = (self.database, &mut *self.buffers);
        buffers.ticket.raise(orders.end(&common.journal, buffers.slot, !buffers.undo.is_empty(), &buffers.watch));
        self.has_sealed = true;
    }
}

impl Commit for SerialTransaction<'_> {
    /// The tables hold the new state already; all there is to do is to hand it to the log, and to forget the old one.
    fn commit(mut self) -> Result<(), Error> {
        self.stage_changes()?;
        if left_out(redo::Step::SealFirst) {
            self.buffers.tables.take().into_iter().for_each(|tables| self.database.put_back(tables));
            self.seal();
            self.buffers.tables = Some(self.database.take()?);
        }
        self.seal();
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
        if !self.buffers.undo.is_empty() {
            self.database.common.journal.discard(self.buffers.slot);
        }
        if left_out(Step::UndoTransactions) {
            self.forget();
        }
        self.undo_to(0);
        if !self.has_sealed {
            self.seal();
        }
        if let Some(tables) = self.buffers.tables.take() {
            self.database.put_back(tables);
        }
    }
}
