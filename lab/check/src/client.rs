//! A transaction driven interactively, which may conflict at any step.

use std::cell::Cell;

use polychron_base::Error;
use polychron_engine::any::AnyTransaction;
use polychron_engine::{Commit, Interactive, Mode};

/// What this thread's clients have met.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Met {
    /// A client could not begin beside another one.
    pub(crate) alone: bool,
    /// A client has conflicted.
    pub(crate) conflict: bool,
}

thread_local! {
    static MET: Cell<Met> = const { Cell::new(Met { alone: false, conflict: false }) };
}

/// What clients have met since the last [`forget`].
pub(crate) fn met() -> Met {
    MET.get()
}

/// Begins anew with what clients meet.
pub(crate) fn forget() {
    MET.set(Met::default());
}

fn meet_conflict() {
    MET.set(Met { conflict: true, ..MET.get() });
}

/// One of several transactions that a test interleaves.
///
/// A protocol may find a conflict early or late. From then on the client has lost: its steps do nothing and answer `None`.
pub(crate) struct Client<T> {
    transaction: Option<T>,
}

impl Client<AnyTransaction<'_>> {
    /// Forgets the transaction, as safe code can; its memory serves for something else.
    pub(crate) fn leak(self) {
        if let Some(transaction) = self.transaction {
            transaction.leak();
        }
    }
}

impl<T: Commit> Client<T> {
    /// Begins; where the protocol cannot run two transactions in one thread the client has lost already.
    pub(crate) fn begin<'w, W: Interactive<Transaction<'w> = T>>(worker: &'w mut W, mode: Mode) -> Self {
        match worker.begin(mode) {
            Ok(transaction) => Self { transaction: Some(transaction) },
            Err(Error::Unsupported { .. }) => {
                MET.set(Met { alone: true, ..MET.get() });
                Self { transaction: None }
            }
            Err(error) => panic!("a transaction cannot begin: {error}"),
        }
    }

    /// Whether no step has conflicted so far.
    pub(crate) fn is_running(&self) -> bool {
        self.transaction.is_some()
    }

    /// Takes a step.
    pub(crate) fn step<O>(&mut self, step: impl FnOnce(&mut T) -> Result<O, Error>) -> Option<O> {
        match step(self.transaction.as_mut()?) {
            Ok(output) => Some(output),
            Err(error) => {
                // All clients are of one thread: where another one is in the way, the wait would be for itself.
                match error {
                    Error::Conflict | Error::WaitsForItself { .. } => {}
                    error => panic!("a step failed: {error:?}"),
                }
                meet_conflict();
                self.transaction = None;
                None
            }
        }
    }

    /// Commits, and says whether that worked.
    pub(crate) fn commit(self) -> bool {
        let Some(transaction) = self.transaction else { return false };
        match transaction.commit() {
            Ok(()) => true,
            Err(Error::Conflict | Error::WaitsForItself { .. }) => {
                meet_conflict();
                false
            }
            Err(error) => panic!("a commit failed: {error}"),
        }
    }

    /// Rolls back, and says whether what it saw was consistent; nothing is said of one that has lost already.
    pub(crate) fn roll_back(self) -> bool {
        let Some(transaction) = self.transaction else { return false };
        let was_consistent = transaction.roll_back();
        if !was_consistent {
            meet_conflict();
        }
        was_consistent
    }
}
