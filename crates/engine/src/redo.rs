//! The place of the log: commit hands what it changed to a [`Redo`] that is a type parameter of the protocol.

use polychron_base::TableId;

/// What was done to a row.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// The row is now these bytes.
    Put(&'a [u64]),
    /// These words of the row, from the given word on, are now so.
    Patch {
        /// First changed word of the row.
        word: usize,
        /// The words from there on.
        words: &'a [u64],
    },
    /// The row is gone.
    Delete,
}

/// A timestamp that orders all changes for ever, however often the numbers of a protocol's timestamps were used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtendedTimestamp {
    /// How often the timestamps have begun anew.
    pub era: u64,
    /// The timestamp, as a number within its era.
    pub timestamp: u64,
}

impl From<u64> for ExtendedTimestamp {
    /// A timestamp of a protocol whose numbers are enough.
    #[inline]
    fn from(timestamp: u64) -> Self {
        Self { era: 0, timestamp }
    }
}

/// Receives the changes of each committed transaction, in its commit section, in the order of its serial position for
/// every single key. The type parameter vanishes when logging is off.
pub trait Redo: Send + Sync + 'static {
    /// Whether anything listens. When `false`, the calls below are not compiled in.
    const ENABLED: bool;

    /// One change. `timestamp` orders all changes of one key.
    fn change(&self, worker: usize, timestamp: ExtendedTimestamp, table: TableId, key: &[u8], change: Change<'_>);

    /// The transaction with this timestamp has handed over all its changes.
    fn committed(&self, worker: usize, timestamp: ExtendedTimestamp);
}

/// No log.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRedo;

impl Redo for NoRedo {
    const ENABLED: bool = false;

    #[inline]
    fn change(&self, _: usize, _: ExtendedTimestamp, _: TableId, _: &[u8], _: Change<'_>) {}

    #[inline]
    fn committed(&self, _: usize, _: ExtendedTimestamp) {}
}
