//! A running transaction, and how it ends.

use polychron_base::Error;
use polychron_engine::Commit;
use polychron_engine::mutations::left_out;
use polychron_engine::redo;
use polychron_engine::stores::{InPlace, Record};
use polychron_memory::Guard;

use crate::lock::Lock;
use crate::protocol::Shared;
use crate::steps::Step;
use crate::worker::State;

/// A running transaction: it holds the lock, and is rolled back when it is dropped.
#[derive(Debug)]
pub struct OneLockTransaction<'w> {
    shared: &'w Shared,
    /// The lock, unless it is held for the transaction.
    lock: Option<&'w Lock>,
    pub(crate) state: &'w mut State,
    pub(crate) guard: Guard<'w>,
    pub(crate) read_only: bool,
    has_sealed: bool,
}

impl<'w> OneLockTransaction<'w> {
    /// The lock is held.
    pub(crate) fn new(
        shared: &'w Shared,
        lock: Option<&'w Lock>,
        state: &'w mut State,
        guard: Guard<'w>,
        read_only: bool,
    ) -> Self {
        Self { shared, lock, state, guard, read_only, has_sealed: false }
    }

    /// It knows the present tables from now on. They stay: who changes them waits for the lock.
    pub(crate) fn renew_tables(&mut self) {
        // SAFETY: the transaction looks at the list under its guard, which it never renews.
        unsafe { self.state.base.tables.renew(&self.shared.base.catalog) };
    }

    /// The words of a record that was found, or changed.
    pub(crate) fn words(&self, record: Record) -> &[u64] {
        // SAFETY: the lock is held as long as the transaction lives, which writes nothing while the words are borrowed.
        unsafe { record.words() }
    }

    /// Undoes the changes from this one on.
    pub(crate) fn undo_log_to(&mut self, position: usize) {
        self.state.log.undo_to(position, &InPlace(&self.state.base.tables), &self.guard);
    }

    /// Makes the changes final.
    fn keep_changes(&mut self) {
        self.state.log.commit(&InPlace(&self.state.base.tables), &self.guard);
    }

    /// Others may begin.
    fn release(&mut self) {
        self.lock.take().into_iter().for_each(Lock::release);
    }

    /// What was staged counts, and the answer waits until it is durable; without changes, until what was read is.
    fn seal(&mut self) {
        let (base, has_changed) = (&mut self.state.base, !self.state.log.is_empty());
        let journal = &self.shared.base.common.journal;
        base.ticket.raise(self.shared.orders.end(journal, base.slot, has_changed, &base.rows.watch));
        self.has_sealed = true;
    }
}

impl Commit for OneLockTransaction<'_> {
    fn commit(mut self) -> Result<(), Error> {
        let (journal, base) = (&self.shared.base.common.journal, &self.state.base);
        self.state.log.stage(journal, base.slot, &base.tables, |record| self.words(record))?;
        if left_out(redo::Step::SealFirst) {
            self.release();
        }
        self.seal();
        self.keep_changes();
        Ok(())
    }

    /// What was read was consistent, as always here.
    fn roll_back(self) -> bool {
        true
    }
}

impl Drop for OneLockTransaction<'_> {
    fn drop(&mut self) {
        if !self.state.log.is_empty() {
            self.shared.base.common.journal.discard(self.state.base.slot);
        }
        if left_out(Step::UndoTransactions) {
            self.keep_changes();
        }
        self.undo_log_to(0);
        if !self.has_sealed {
            self.seal();
        }
        self.state.base.is_open = false;
        self.release();
    }
}
