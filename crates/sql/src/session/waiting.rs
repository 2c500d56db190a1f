//! Statements that wait for advisory locks: outside of the engine's transaction, if that can be run again.

use polychron_engine::{Interactive, limits};

use super::Session;
use crate::error::SqlError;
use crate::exec::Failure;
use crate::text::Zone;

impl<W: Interactive + 'static> Session<W> {
    /// A statement of the open transaction begins.
    pub(super) fn begin_statement(&self) {
        let leaves = self.block.as_ref().is_some_and(|block| block.kept_because(self.is_replayed).is_none());
        self.drawn.locks.set_leaving(leaves);
    }

    /// A statement of the open transaction has failed. If it has to wait for a lock, that is done, and the transaction is there again; otherwise as [`Session::recover`].
    ///
    /// # Errors
    /// What the statement fails with.
    #[cold]
    pub(super) fn recover_or_wait(&mut self, failure: Failure, zone: &Zone) -> Result<(), Failure> {
        if !self.drawn.locks.is_wanted() {
            return self.recover(failure, zone);
        }
        self.pause()?;
        let waited = self.drawn.provide();
        match &waited {
            Ok(_) => self.resume(zone)?,
            // A return to one of them needs the transaction.
            Err(_) if self.block.as_ref().is_some_and(|block| !block.savepoints.is_empty()) => {
                limits::lifted(|| self.resume(zone))?;
            }
            Err(_) => {}
        }
        Ok(waited.map(drop)?)
    }

    /// A transaction of its own has ended. Whether it has waited for a lock since, and is to be run once more.
    ///
    /// # Errors
    /// The lock is not to be had.
    pub(super) fn has_waited(drawn: &crate::sequences::Drawn) -> Result<bool, SqlError> {
        if drawn.locks.is_wanted() { drawn.provide() } else { Ok(false) }
    }

    /// Whether the open transaction has failed for good.
    pub(crate) fn is_lost(&self) -> bool {
        self.block.as_ref().is_some_and(|block| block.has_failed && block.transaction.is_none())
    }
}
