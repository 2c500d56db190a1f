//! What transactions are begun as.
//!
//! A read-only transaction is validated as others are, so that it reads the present (`read_only_freshness = strict`), or it reads a snapshot of the engine, which never conflicts and may be a
//! little older (`recent`).

use polychron_engine::open::Open;
use polychron_engine::{Interactive, Mode};

use super::{Session, error_of};
use crate::control::Modes;
use crate::error::{SqlError, SqlState};

impl<W: Interactive + 'static> Session<W> {
    /// What a transaction of the engine is begun as. A snapshot could be older than the rows of a table that has taken the place of another one.
    pub(super) fn mode_of(&self, is_read_only: bool) -> Mode {
        if is_read_only && self.reads_recent && !self.versions.has_replaced() {
            Mode::Snapshot
        } else {
            Mode::ReadWrite
        }
    }

    /// Whether statements read a snapshot, in which nothing can be changed.
    pub(crate) fn reads_snapshot(&self) -> bool {
        let mode = self.block.as_ref().map_or_else(|| self.mode_of(self.reads_only), |block| block.mode);
        matches!(mode, Mode::Snapshot)
    }

    /// What the transaction was begun with.
    pub(crate) fn modes(&self) -> Modes {
        Modes { is_read_only: self.block.as_ref().map(|block| block.is_read_only) }
    }

    /// Changes what the transaction was begun with. Before its first statement it is begun anew.
    ///
    /// # Errors
    /// It was read-only, and is not to be behind a statement.
    pub(crate) fn set(&mut self, modes: Modes) -> Result<(), SqlError> {
        let Some(block) = &self.block else { return Ok(()) };
        let Some(is_read_only) = modes.is_read_only.filter(|it| *it != block.is_read_only) else { return Ok(()) };
        let has_begun = block.script.has_run() || !block.savepoints.is_empty();
        if has_begun && !is_read_only {
            let message = "transaction read-write mode must be set before any query";
            return Err(self.fail(SqlError::new(SqlState::ACTIVE_TRANSACTION, message).into()));
        }
        let mode = self.mode_of(is_read_only);
        let Some(block) = &mut self.block else { return Ok(()) };
        block.is_read_only = is_read_only;
        // What has written or read something goes on as it is.
        if has_begun || mode == block.mode || block.transaction.is_none() {
            return Ok(());
        }
        block.mode = mode;
        if let Some(Ok(transaction)) = block.transaction.take().map(super::Resident::take) {
            Open::rollback(transaction);
        }
        match self.begin_held(mode) {
            Ok(transaction) => {
                if let Some(block) = &mut self.block {
                    block.transaction = Some(transaction);
                }
                Ok(())
            }
            Err(failure) => {
                let error = error_of(failure);
                Err(self.fail(error.into()))
            }
        }
    }
}
