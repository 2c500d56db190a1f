//! Below a layer that leaves futures open: what is flushed at the commit is read and written at a timestamp that is drawn then, so
//! that increments of one counter meet in the time between their reads and their validation only. Conditions are looked at without
//! protection.

use polychron_base::{Error, IndexId, Reason, TableId};
use polychron_engine::lazy::{BaseTransaction, LazyHost, Names};
use polychron_engine::stores::IndexRef;

use super::protocol::Cicada;
use super::transaction::CicadaTransaction;

impl LazyHost for Cicada {
    const DEFERRED: Names = Names {
        name: "lazy-cicada",
        summary: "cicada, futures open until the commit: for hot rows that are added to, far from the clients",
    };

    fn resolving(transaction: &mut BaseTransaction<'_, Self>) -> Result<(), Error> {
        transaction.begin_again()
    }

    fn conflict(transaction: &mut BaseTransaction<'_, Self>, reason: Reason, table: TableId) -> Error {
        transaction.end_in_conflict(reason, table)
    }
}

impl CicadaTransaction<'_> {
    /// Draws another timestamp, if the transaction has neither read nor written anything: then it may as well begin now. What it had
    /// read would no longer be kept for it. A transaction that knows an old catalog keeps the old timestamp, which the thread that makes
    /// the entries of a new index has seen.
    fn begin_again(&mut self) -> Result<(), Error> {
        self.work(Self::draw_anew)
    }

    fn draw_anew(&mut self) -> Result<(), Error> {
        let sets = &self.state.sets;
        let untouched = sets.reads.is_empty()
            && sets.nodes.is_empty()
            && sets.gaps.is_empty()
            && sets.writes.is_empty()
            && sets.fresh.is_empty();
        if !untouched || !self.state.base.tables.is_present(&self.shared.base.catalog) {
            return Ok(());
        }
        self.shared.clocks.advance(&mut self.state.clock, self.state.base.slot);
        if self.begin_untouched() {
            return Ok(());
        }
        Err(self.end_in_conflict(Reason::Inconsistent, TableId::default()))
    }

    /// The transaction conflicts, for a reason that this protocol does not know.
    fn end_in_conflict(&mut self, reason: Reason, table: TableId) -> Error {
        self.conflict(reason, IndexRef { table, index: IndexId::PRIMARY }, None)
    }
}
