//! The interface from commits to a log: the changes of rows, and the number that orders them. `docs/durability.md` has the invariants.
//!
//! A database has a [`Journal`], which is empty while it is in memory only; a [`Log`] is what receives the changes. A commit hands them over in two
//! halves. Staging comes first: it copies, may be refused, and is seen by no other thread. Sealing comes after validation, where nothing can fail any
//! more: it takes constant time, and waits for no other thread.

mod answers;
mod durability;
mod orders;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use polychron_base::{Error, TableId};
use polychron_schema::KeyExtractor;

use crate::definitions::StoredCatalog;
use crate::mutations::left_out;
pub use answers::Answers;
pub use orders::Orders;
pub use watch::{KeyRange, Watch, visit_to_stop};

/// A change of a row.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// The row is now these words.
    Put(&'a [u64]),
    /// These words of the row, from the given word on, are now so. The row has the length that it had.
    Patch {
        /// First changed word of the row.
        word: usize,
        /// The words from there on.
        words: &'a [u64],
    },
    /// The row is gone.
    Delete,
}

/// Orders the changes of one key, and no more than that: which of two transactions that wrote different rows comes first it need not say. The changes
/// of one transaction come in the order in which they were staged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order {
    /// The number of times that the numbering has restarted.
    pub era: u64,
    /// The protocol's timestamp, or what it counts, within the era.
    pub timestamp: u64,
}

impl Order {
    /// Behind all that a protocol gives.
    pub const LAST: Self = Self { era: u64::MAX, timestamp: u64::MAX };
}

impl From<u64> for Order {
    /// A timestamp of a protocol whose numbers are enough.
    #[inline]
    fn from(timestamp: u64) -> Self {
        Self { era: 0, timestamp }
    }
}

/// The log epoch that must be durable before an answer leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

impl Ticket {
    /// All is durable already.
    pub const DONE: Self = Self(0);

    /// Waits for the other one, too.
    #[inline]
    pub fn raise(&mut self, other: Self) {
        *self = (*self).max(other);
    }
}

/// When answers leave, and when what was sealed becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Answers wait until all that they depend on is durable; a flush begins as soon as one may.
    Immediate,
    /// The same, with flushes that begin at most so often.
    Group(Duration),
    /// Answers do not wait; a flush begins at least so often.
    Eventual(Duration),
    /// Answers do not wait; flushes begin only where rings are full, or somebody waits.
    OnCheckpoint,
}

impl Durability {
    /// Whether answers wait.
    pub fn waits(self) -> bool {
        matches!(self, Self::Immediate | Self::Group(_))
    }
}

/// Receives the changes of transactions. A worker is the slot of a thread in the epochs: below
/// [`MOST_WORKERS`](polychron_memory::Options::MOST_WORKERS), and one thread's at a time. It has one transaction between its first [`Log::stage`] and
/// [`Log::seal`] or [`Log::discard`], and calls nothing else of the log in between.
pub trait Log: Send + Sync + 'static {
    /// Before a transaction of this worker begins, or at least before it has staged anything: waits while the log is behind its budget, unless nothing
    /// would be staged anyway. A transaction that only reads is not told of a log that has stopped or has no room.
    ///
    /// # Errors
    /// The error that keeps transactions from beginning.
    fn admit(&self, worker: usize) -> Result<(), Error>;

    /// A change that the worker's transaction is about to make. Keys and rows are copied, and no other thread sees them before they are sealed.
    ///
    /// # Errors
    /// The log refuses it: [`Error::LogStopped`], [`Error::DiskFull`], which deletions are spared as long as possible, and what no log takes. The
    /// transaction rolls back, and discards what it has staged.
    fn stage(&self, worker: usize, table: TableId, key: &[u8], change: Change<'_>) -> Result<(), Error>;

    /// Drops what was staged and not sealed, if anything was.
    fn discard(&self, worker: usize);

    /// The transaction commits: what it has staged counts. Takes constant time, and waits for no other thread, for the caller holds latches. What the
    /// transaction wrote can be read by others only when this has returned. Where nothing was staged, the ticket is that of what was sealed so far.
    fn seal(&self, worker: usize, order: Order) -> Ticket;

    /// The ticket for the answer of a transaction that has read changes up to this order and has staged none.
    fn ticket(&self, read: Order) -> Ticket;

    /// These are the tables from now on; durable when this returns. Nobody knows of the change yet. Calls come one at a time, and no transaction waits for
    /// them.
    ///
    /// # Errors
    /// The log refuses the change, which is then not made.
    fn define(&self, tables: &StoredCatalog) -> Result<(), Error>;

    /// The ticket for all sealed changes that the caller may have read: the last epoch that a seal has noted, or [`Ticket::DONE`] if that epoch is
    /// durable.
    fn sealed(&self) -> Ticket;

    /// Waits until all that was sealed up to this ticket is durable, and sees to it where nobody else does. The caller has no worker, no guard and no
    /// latch that others wait for.
    ///
    /// # Errors
    /// [`Error::LogStopped`]: what was sealed may be there or not when the database is opened again.
    fn wait(&self, ticket: Ticket) -> Result<(), Error>;

    /// When answers leave, unless a call says otherwise.
    fn durability(&self) -> Durability;

    /// Whether the log has stopped for good: then it is known what of all that was sealed is not durable.
    #[inline]
    fn has_stopped(&self) -> bool {
        false
    }

    /// Of a log that has stopped: whether anything that was sealed, and is not known to be durable, has changed a row of this table with a key in this
    /// range. The extractor is that of the table's primary key. True where that is not known.
    fn is_lost(&self, _table: TableId, _range: KeyRange<'_>, _extractor: &KeyExtractor) -> bool {
        true
    }
}

crate::named! {
    /// Steps in front of every log that a test can leave out. Each protocol has its own tests that fail without them.
    pub enum Step {
        /// A patch is staged.
        StagePatches,
        /// It has all words that changed.
        WholePatches,
        /// The staged changes of a transaction that rolls back are discarded.
        Discard,
        /// Sealed changes have the order of their transaction.
        OrderSeals,
        /// It is sealed before any other thread can read it.
        SealFirst,
        /// The log is told of a table or an index before it is there, or gone.
        DefineFirst,
        /// It is told that an index is there when that is filled.
        DefineFilled,
        /// A transaction that has read waits for what it has read.
        AwaitReads,
        /// A transaction that begins on a stopped log checks that each row that it reads is durable.
        WatchKeys,
        /// It checks each range that it reads, too.
        WatchRanges,
        /// An answer leaves when what it depends on is durable.
        HoldAnswers,
        /// A transaction that is reported as ended has sealed its changes.
        AwaitSealing,
    }
}

/// The place of the log in a protocol: empty by default, and then each call costs a branch.
#[derive(Clone, Default)]
pub struct Journal(Option<Arc<dyn Log>>);

impl fmt::Debug for Journal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Journal").field("is_empty", &self.is_empty()).finish_non_exhaustive()
    }
}

impl Journal {
    /// The journal of a database whose changes are logged.
    pub fn new(log: Arc<dyn Log>) -> Self {
        Self(Some(log))
    }

    /// Whether no log listens.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Refuses a log, for a protocol that hands none its changes.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub fn refuse(&self, protocol: &'static str) -> Result<(), Error> {
        if self.is_empty() { Ok(()) } else { Err(Error::unsupported(protocol, "a database that is logged")) }
    }

    /// See [`Log::admit`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn admit(&self, worker: usize) -> Result<(), Error> {
        self.0.as_ref().map_or(Ok(()), |log| log.admit(worker))
    }

    /// See [`Log::stage`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn stage(&self, worker: usize, table: TableId, key: &[u8], change: Change<'_>) -> Result<(), Error> {
        let Some(log) = &self.0 else { return Ok(()) };
        let change = match change {
            Change::Patch { .. } if left_out(Step::StagePatches) => return Ok(()),
            Change::Patch { word, words } if left_out(Step::WholePatches) => {
                Change::Patch { word, words: &words[..words.len() - 1] }
            }
            change => change,
        };
        log.stage(worker, table, key, change)
    }

    /// Stages the words in which a row differs from what it was, each run of them as a patch; or the whole row, if its length has changed. Runs between
    /// which one word lies are one patch: it takes no more bytes than a second one's table and key.
    ///
    /// # Errors
    /// As [`Log::stage`].
    pub fn stage_update(
        &self,
        worker: usize,
        (table, key): (TableId, &[u8]),
        old: &[u64],
        new: &[u64],
    ) -> Result<(), Error> {
        if old.len() != new.len() {
            return self.stage(worker, table, key, Change::Put(new));
        }
        let differs = |at: usize| old[at] != new[at];
        let mut at = 0;
        while let Some(word) = (at..new.len()).find(|&at| differs(at)) {
            let ends = |at: &usize| !differs(*at) && (*at + 1 == new.len() || !differs(*at + 1));
            at = (word..new.len()).find(ends).unwrap_or(new.len());
            self.stage(worker, table, key, Change::Patch { word, words: &new[word..at] })?;
        }
        Ok(())
    }

    /// See [`Log::discard`].
    #[inline]
    pub fn discard(&self, worker: usize) {
        if let Some(log) = &self.0
            && !left_out(Step::Discard)
        {
            log.discard(worker);
        }
    }

    /// See [`Log::seal`].
    #[inline]
    pub fn seal(&self, worker: usize, order: impl FnOnce() -> Order) -> Ticket {
        let Some(log) = &self.0 else { return Ticket::DONE };
        let order = order();
        log.seal(worker, if left_out(Step::OrderSeals) { Order { era: 0, timestamp: !order.timestamp } } else { order })
    }

    /// See [`Log::ticket`].
    #[inline]
    pub fn ticket(&self, read: impl FnOnce() -> Order) -> Ticket {
        match &self.0 {
            Some(log) if !left_out(Step::AwaitReads) => log.ticket(read()),
            _ => Ticket::DONE,
        }
    }

    /// See [`Log::define`].
    ///
    /// # Errors
    /// As there.
    pub fn define(&self, tables: &StoredCatalog) -> Result<(), Error> {
        self.0.as_ref().map_or(Ok(()), |log| log.define(tables))
    }

    /// See [`Log::sealed`].
    #[inline]
    pub fn sealed(&self) -> Ticket {
        self.0.as_ref().map_or(Ticket::DONE, |log| log.sealed())
    }

    /// Waits as the [`Durability`] of the database wants it: until all that was sealed up to this ticket is durable, or not at all.
    ///
    /// # Errors
    /// As [`Log::wait`].
    #[inline]
    pub fn wait(&self, ticket: Ticket) -> Result<(), Error> {
        self.wait_as(ticket, None)
    }

    /// The same as another durability wants it.
    fn wait_as(&self, ticket: Ticket, durability: Option<Durability>) -> Result<(), Error> {
        match &self.0 {
            Some(log) if ticket != Ticket::DONE && self.holds(durability) => log.wait(ticket),
            _ => Ok(()),
        }
    }

    /// Whether answers of this durability, or the database's, wait for anything.
    fn holds(&self, durability: Option<Durability>) -> bool {
        self.0.as_ref().is_some_and(|log| durability.unwrap_or_else(|| log.durability()).waits())
            && !left_out(Step::HoldAnswers)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Keeps the patches that are staged.
    #[derive(Default)]
    struct Patches(Mutex<Vec<(usize, Vec<u64>)>>);

    impl Log for Patches {
        fn admit(&self, _: usize) -> Result<(), Error> {
            Ok(())
        }

        fn stage(&self, _: usize, _: TableId, _: &[u8], change: Change<'_>) -> Result<(), Error> {
            if let Change::Patch { word, words } = change {
                self.0.lock().unwrap().push((word, words.to_vec()));
            }
            Ok(())
        }

        fn discard(&self, _: usize) {}

        fn seal(&self, _: usize, _: Order) -> Ticket {
            Ticket::DONE
        }

        fn ticket(&self, _: Order) -> Ticket {
            Ticket::DONE
        }

        fn define(&self, _: &StoredCatalog) -> Result<(), Error> {
            Ok(())
        }

        fn sealed(&self) -> Ticket {
            Ticket::DONE
        }

        fn wait(&self, _: Ticket) -> Result<(), Error> {
            Ok(())
        }

        fn durability(&self) -> Durability {
            Durability::OnCheckpoint
        }
    }

    #[test]
    fn runs_with_one_word_between_are_one_patch() {
        let patches = |old: &[u64], new: &[u64]| {
            let log = Arc::new(Patches::default());
            Journal::new(Arc::clone(&log) as _).stage_update(0, (TableId::new(1, 1), b"key"), old, new).unwrap();
            std::mem::take(&mut *log.0.lock().unwrap())
        };
        let old = [0; 8];
        assert_eq!(patches(&old, &old), []);
        assert_eq!(patches(&old, &[1, 0, 3, 0, 0, 6, 7, 0]), [(0, vec![1, 0, 3]), (5, vec![6, 7])]);
        assert_eq!(patches(&old, &[0, 0, 0, 0, 5, 0, 7, 8]), [(4, vec![5, 0, 7, 8])]);
        assert_eq!(patches(&old, &[1, 0, 0, 0, 0, 0, 7, 0]), [(0, vec![1]), (6, vec![7])]);
    }
}
