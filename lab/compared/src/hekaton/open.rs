//! Transactions that are open where no thread can end them: by another worker of the same thread, or leaked.

use polychron_base::error::KeyPreview;
use polychron_base::key::EncodedKey;
use polychron_base::{Abort, Error, Reason};
use polychron_engine::stores::IndexRef;
use polychron_memory::Guard;

use super::protocol::Shared;
use super::transaction::HekatonTransaction;
use super::transactions::Transactions;
use super::version::{Stamp, TransactionId, Version};
use super::worker::State;

/// A transaction of the same thread that was in the way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Met {
    pub(super) id: TransactionId,
    /// Whether the next transaction is another attempt.
    pub(super) again: bool,
}

impl State {
    /// Refuses another attempt that would meet an open transaction of the same thread again.
    #[cold]
    pub(super) fn meet_again(&mut self, transactions: &Transactions) -> Result<(), Error> {
        let Some(Met { id, again: true }) = self.met.take() else { return Ok(()) };
        match self.base.last_abort {
            Some(Abort { table, index, key, .. }) if transactions.is_open_here(id) => {
                Err(Error::waits_in_index(table, index, key))
            }
            _ => Ok(()),
        }
    }
}

impl<'w> HekatonTransaction<'w> {
    /// What tells this database from others while it is open.
    pub(super) fn database(&self) -> u32 {
        self.shared.base.catalog.number()
    }

    /// Undoes the transaction that a worker has open and no thread can end, because it was leaked.
    #[cold]
    pub(super) fn undo_leaked(shared: &'w Shared, state: &'w mut State, guard: Guard<'w>) {
        // The tables are those that it has seen: its guard has kept them, or it has.
        let id = state.id;
        let mut leaked = Self::over(shared, state, guard, id, 0);
        leaked.doomed = true;
    }

    /// Another transaction's stamp is in the way. If that is open in this very thread, it cannot end before the procedure that
    /// conflicts: another attempt would meet it again, and is refused.
    #[cold]
    pub(super) fn meet(&mut self, stamp: Stamp) {
        if let Stamp::By(other) = stamp
            && self.shared.transactions.is_open_here(other)
        {
            self.state.met = Some(Met { id: other, again: false });
        }
        match stamp {
            Stamp::At(timestamp) => self.state.base.nested.is_behind(timestamp),
            Stamp::By(id) => self.state.base.nested.is_beside(id.0),
        }
    }

    /// Another transaction has written or is writing the row of which this one sees that version.
    #[cold]
    pub(super) fn write_conflict(&mut self, seen: Version, end: Stamp, index_ref: IndexRef) -> Error {
        let reason = if matches!(end, Stamp::At(_)) { Reason::WrittenLater } else { Reason::BeingWritten };
        self.meet(end);
        self.conflict(reason, index_ref, Some(seen))
    }

    /// Another transaction inserted the key first; this one does not see its version, which may still be open.
    #[cold]
    pub(super) fn inserted_first<K: EncodedKey>(&mut self, latest: Version, key: K, index_ref: IndexRef) -> Error {
        self.meet(latest.begin());
        self.conflict_over(Reason::InsertedFirst, index_ref, Some(KeyPreview::new(key)))
    }
}
