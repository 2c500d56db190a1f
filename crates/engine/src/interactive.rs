//! Transactions that a client drives step by step.

use polychron_base::clock::Duration;
use polychron_base::{Abort, Error};

use crate::{Transaction, Worker, options};

/// A worker whose transactions the client can drive step by step.
///
/// Protocols that plan whole procedures do not have this, so they cannot be mounted where clients are interactive.
pub trait Interactive: Worker {
    /// A running transaction.
    type Transaction<'w>: Commit
    where
        Self: 'w;

    /// Begins a transaction. Dropping it rolls it back.
    ///
    /// # Errors
    /// Only where the protocol needs memory to begin.
    fn begin(&mut self, mode: Mode) -> Result<Self::Transaction<'_>, Error>;

    /// Whether transactions can be begun at all. A worker of a protocol that is chosen when the program runs, and [`WholeOnly`](crate::WholeOnly), may
    /// execute whole procedures alone.
    fn holds_transactions(&self) -> bool {
        true
    }

    /// Why the latest transaction of this worker conflicted.
    fn last_abort(&self) -> Option<Abort>;

    /// Why another attempt would conflict likewise for as long as the calling thread waits for it, if the last one ended because of
    /// what that thread has open or does itself: [`Error::WaitsForItself`]. A client that drives its transactions step by step may
    /// end what it has open and try again.
    fn waits_for_itself(&self) -> Option<Error> {
        None
    }

    /// Whether the calling thread has another transaction of the same database open, in a protocol whose transactions conflict. This
    /// worker's then do not wait without end for those of other threads, which may wait for the one that is open.
    fn is_nested(&self) -> bool {
        false
    }

    /// Waits, for this time at most, until a snapshot that begins next contains all that any thread has committed before the call, and tells whether it will.
    /// `false` also of a protocol that does not promise that. No transaction of the worker is open.
    fn await_snapshot(&mut self, _longest: Duration) -> bool {
        false
    }

    /// Whether a client may leave a transaction of this mode open that has only read: it reads one state whatever others commit, holds back neither their
    /// commits nor their snapshots, and keeps no memory but what it can still see.
    fn keeps_readers(&self, _mode: Mode) -> bool {
        false
    }

    /// Waits before the next attempt after `attempts` conflicts in a row: the protocol's back-off.
    fn back_off(&mut self, attempts: u64);

    /// The limits of retrying.
    fn retry(&self) -> &options::Retry;
}

/// The two ways in which a driver ends a transaction.
pub trait Commit: Transaction {
    /// Commits. After an error nothing of the transaction remains.
    ///
    /// # Errors
    /// A conflict, or a refusal such as [`Error::OutOfMemory`].
    fn commit(self) -> Result<(), Error>;

    /// Undoes the transaction, and tells whether what it had read was consistent. When it was not, the reason for the rollback may come from
    /// reads that were never mutually consistent, and the transaction is to be run again. So is one that was told of a conflict: it answers
    /// `false`.
    fn roll_back(self) -> bool;
}

/// The kind of transaction to begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Serializable, reads the present.
    #[default]
    ReadWrite,
    /// Read-only on a consistent snapshot.
    Snapshot,
}
