//! Why a transaction conflicts, and over which record.

use polychron_base::error::{KeyPreview, Opponent};
use polychron_base::{Abort, Error, IndexId, Reason, TableId};
use polychron_engine::catalog;
use polychron_engine::mutations::left_out;
use polychron_engine::stores::IndexRef;

use super::aside::Kept;
use super::record::{Record, Tid};
use super::steps::Step;
use super::transaction::MaflingoTransaction;
use super::worker::State;

/// A record over which a transaction conflicts, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Met {
    record: Kept,
    key: Option<KeyPreview>,
    /// The worker whose transaction holds the latch.
    pub(super) owner: Option<usize>,
    pub(super) tid: Tid,
}

impl MaflingoTransaction<'_> {
    /// The transaction conflicts, for a reason that this protocol does not know.
    pub(crate) fn end_in_conflict(&mut self, reason: Reason, table: TableId) -> Error {
        self.conflict(reason, IndexRef { table, index: IndexId::PRIMARY }, None)
    }

    /// As [`Self::conflict`], over a record of the sets.
    #[cold]
    pub(super) fn conflict_at(&mut self, reason: Reason, index_ref: IndexRef, record: Kept) -> Error {
        let met = self.state.meet(index_ref, record.under(&self.guard));
        self.conflict(reason, index_ref, Some(met))
    }

    /// Keeps why the transaction conflicts. The key is taken from the record.
    #[cold]
    pub(super) fn conflict(&mut self, reason: Reason, index_ref: IndexRef, met: Option<Met>) -> Error {
        self.conflict_over(reason, index_ref, met, met.and_then(|met| met.key))
    }

    /// As [`Self::conflict`], over a key.
    #[cold]
    pub(super) fn conflict_over(
        &mut self,
        reason: Reason,
        index_ref: IndexRef,
        met: Option<Met>,
        key: Option<KeyPreview>,
    ) -> Error {
        if let Some(met) = met {
            self.state.base.contested.note(met.record);
        }
        self.look_for_itself(reason, index_ref, met, key);
        let opponent = met.and_then(|met| self.opponent(met));
        self.state.base.last_abort =
            Some(Abort { reason, table: index_ref.table, index: index_ref.index, key, opponent });
        self.doomed = !left_out(Step::StayDoomed);
        Error::Conflict
    }

    /// The transaction that has latched the record, or else the one that wrote it last.
    fn opponent(&self, met: Met) -> Option<Opponent> {
        let owner = met.owner.filter(|&owner| owner != self.state.base.slot).map(Opponent::of_worker);
        owner.or_else(|| (met.tid != Tid::ZERO).then_some(Opponent::numbered(met.tid.0).run_by(met.tid.worker())))
    }
}

impl State {
    /// What is to be known of a record over which the transaction conflicts.
    #[cold]
    pub(super) fn meet(&mut self, index_ref: IndexRef, record: Record<'_>) -> Met {
        let (owner, tid, key) = (record.state().owner(), record.tid(), self.key_of(index_ref, record));
        Met { record: record.into(), key, owner, tid }
    }

    /// The key of a record, best effort: it may be changing.
    fn key_of(&mut self, index_ref: IndexRef, record: Record<'_>) -> Option<KeyPreview> {
        let mut row = std::mem::take(&mut self.buffers.old);
        let is_whole = record.peek(&mut row);
        let table = catalog::known(&self.base.tables, index_ref.table);
        let key = table.filter(|_| is_whole).and_then(|table| table.key_in(index_ref.index, row.as_words()));
        self.buffers.old = row;
        key
    }
}
