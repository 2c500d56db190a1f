//! Commit: the rows are claimed, what is open is flushed, and then the host protocol commits.

use polychron_base::Error;
use polychron_engine::Commit;
use polychron_engine::lazy::{Claim, LazyHost};
use polychron_engine::mutations::left_out;

use super::arena::NONE;
use super::steps::Step;
use super::transaction::LazyTransaction;

impl<B: LazyHost> LazyTransaction<'_, B> {
    /// What the commit does before that of the host protocol.
    #[inline]
    fn finish(&mut self) -> Result<(), Error> {
        if self.arena.is_empty() {
            return Ok(());
        }
        self.with_nodes(Self::finish_nodes)
    }

    fn finish_nodes(&mut self) -> Result<(), Error> {
        self.arena.gather_touched();
        for &row in &self.arena.touched {
            let (table, key) = self.arena.nodes.program.row(row);
            let written = self.arena.rows[row as usize].write != NONE;
            B::claim(&mut self.base, &Claim { table, key, is_written: written })?;
        }
        B::resolving(&mut self.base)?;
        self.flush()
    }
}

impl<B: LazyHost> Commit for LazyTransaction<'_, B> {
    fn commit(mut self) -> Result<(), Error> {
        if let Err(error) = self.finish() {
            if error.is_conflict() {
                return Err(error);
            }
            // It may come from reads that were never mutually consistent, or from answers that no longer stand.
            let stands = self.with_nodes(Self::stands);
            let sound = self.base.roll_back() && stands || left_out(Step::ValidateFailures);
            return Err(if sound { error } else { Error::Conflict });
        }
        self.base.commit()
    }

    fn roll_back(mut self) -> bool {
        // The procedure may give up because of what it was told, which no thread has held for it.
        let stands = self.with_nodes(Self::stands);
        self.base.roll_back() && stands
    }
}
