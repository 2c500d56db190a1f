//! Aborts, refusals and failures.
//!
//! An abort is not an error: it is counted, explained by an [`Abort`] and retried. An [`Error`] is a refusal or a failure
//! that the caller must know of. Inside a transaction both travel as a [`Stop`], which `?` makes of any error type.

use std::fmt;

use crate::id::{IndexId, TableId};
use crate::key::EncodedKey;
use crate::line::OneLine;

/// Why a transaction was aborted by the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// A record that was read has been changed by a transaction that committed first.
    StaleRead,
    /// A key was inserted where the transaction had found none: in a range it scanned or at a key it missed.
    Phantom,
    /// A record to be written stayed latched by another committing transaction.
    Latched,
    /// A record that was read is being written by another committing transaction.
    BeingWritten,
    /// The procedure ran on reads that did not fit together, and was stopped before it could do harm.
    Inconsistent,
    /// Another transaction inserted the same key first.
    InsertedFirst,
    /// A transaction with a later timestamp has read what this one would have changed.
    ReadLater,
    /// A transaction with a later timestamp has written what this one read and was going to write.
    WrittenLater,
    /// A key or a range is locked by another transaction.
    Locked,
    /// An older transaction wants a key or a range that this one had locked.
    Wounded,
    /// A condition over futures is not any more what the transaction was told.
    Condition,
}

impl Reason {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 11] = [
        Self::StaleRead,
        Self::Phantom,
        Self::Latched,
        Self::BeingWritten,
        Self::Inconsistent,
        Self::InsertedFirst,
        Self::ReadLater,
        Self::WrittenLater,
        Self::Locked,
        Self::Wounded,
        Self::Condition,
    ];

    /// The reason's name in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::StaleRead => "stale-read",
            Self::Phantom => "phantom",
            Self::Latched => "latched",
            Self::BeingWritten => "being-written",
            Self::Inconsistent => "inconsistent",
            Self::InsertedFirst => "inserted-first",
            Self::ReadLater => "read-later",
            Self::WrittenLater => "written-later",
            Self::Locked => "locked",
            Self::Wounded => "wounded",
            Self::Condition => "condition",
        }
    }
}

/// The first bytes of a key, for explaining an abort without allocating.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyPreview {
    bytes: [u8; Self::BYTES],
    len: u16,
}

impl KeyPreview {
    const BYTES: usize = 24;

    /// Keeps the front of `key` and its whole length.
    pub fn new<K: EncodedKey>(key: K) -> Self {
        let mut bytes = [0; Self::BYTES];
        for (index, chunk) in bytes.chunks_mut(8).enumerate() {
            chunk.copy_from_slice(&key.slice(index).to_be_bytes());
        }
        Self { bytes, len: key.len().min(usize::from(u16::MAX)) as u16 }
    }

    /// The kept bytes: the whole key when it is short enough.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len).min(Self::BYTES)]
    }
}

impl fmt::Debug for KeyPreview {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl fmt::Display for KeyPreview {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("0x")?;
        for byte in self.bytes() {
            write!(out, "{byte:02x}")?;
        }
        if usize::from(self.len) > Self::BYTES {
            write!(out, "… ({} bytes)", self.len)?;
        }
        Ok(())
    }
}

/// Why, and over which key, a transaction was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort {
    /// The check that failed.
    pub reason: Reason,
    /// The table of the key.
    pub table: TableId,
    /// The index in which the key stands.
    pub index: IndexId,
    /// The encoded key, where the check knows one (a phantom in a range names a key at the range's front).
    pub key: Option<KeyPreview>,
}

impl fmt::Display for Abort {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} in {}", self.reason.name(), self.table)?;
        if self.index != IndexId::PRIMARY {
            write!(out, ", {}", self.index)?;
        }
        if let Some(key) = &self.key {
            write!(out, ", key {key}")?;
        }
        Ok(())
    }
}

/// A refusal or a failure of the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The transaction conflicted as often as the options allow.
    #[error("the transaction conflicted {attempts} times, at last: {abort}")]
    Conflicts {
        /// How often it was tried.
        attempts: u64,
        /// The last conflict.
        abort: Abort,
    },
    /// The procedure ended with a conflict that no operation had told it of ([`Stop::conflict`]). To run it again would end the same way.
    #[error("the procedure ended with a conflict that the protocol knows nothing of")]
    UnknownConflict,
    /// The procedure asked to be rolled back.
    #[error("the procedure rolled its transaction back")]
    RolledBack,
    /// The procedure returned an error of its own; its transaction is rolled back.
    #[error("the procedure failed: {}", OneLine(.0))]
    Procedure(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The procedure panicked; its transaction is rolled back.
    #[error("the procedure panicked: {}", OneLine(.0))]
    Panicked(String),
    /// A row with this key exists already.
    #[error("duplicate key in {table}, {index}")]
    Duplicate {
        /// The table.
        table: TableId,
        /// The unique index that holds the key already.
        index: IndexId,
    },
    /// A foreign key of a row leads to no row.
    #[error("{table} refers to key {key} of {parent}, where there is none")]
    NoParent {
        /// The table of the row.
        table: TableId,
        /// The table that its foreign key leads to.
        parent: TableId,
        /// The parent's primary key.
        key: KeyPreview,
    },
    /// A row that foreign keys of other rows lead to cannot go.
    #[error("{child} refers to key {key} of {table}")]
    HasChildren {
        /// The table of the row.
        table: TableId,
        /// The table of a row that refers to it.
        child: TableId,
        /// The row's primary key.
        key: KeyPreview,
    },
    /// The memory limit is reached, or the system has no more.
    #[error("out of memory: {requested} bytes were asked for, and {}", OfLimit(*used, *limit))]
    OutOfMemory {
        /// Bytes asked for.
        requested: usize,
        /// Bytes taken of the limit: in use, waiting to be freed, or kept to be used again.
        used: usize,
        /// The limit in bytes; `usize::MAX` where there is none but the system's.
        limit: usize,
    },
    /// All worker slots are taken.
    #[error("all {limit} worker slots are taken")]
    TooManyWorkers {
        /// How many there are.
        limit: usize,
    },
    /// A key is longer than [`crate::key::MAX_KEY_BYTES`].
    #[error("a key is longer than {} bytes", crate::key::MAX_KEY_BYTES)]
    KeyTooLong,
    /// A row is longer than the limit.
    #[error("a row of {bytes} bytes is longer than {limit}")]
    RowTooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A row does not fit the layout of its table, or an update makes something of it that it cannot be.
    #[error("the row does not fit {table}: {}", OneLine(why))]
    WrongRow {
        /// The table.
        table: TableId,
        /// What is wrong with the row.
        why: String,
    },
    /// A row was to be written under another key than its own.
    #[error("key {key} of {table} was given for the row of key {own}")]
    WrongKey {
        /// The table.
        table: TableId,
        /// The key that was given.
        key: KeyPreview,
        /// The key that the row's columns make.
        own: KeyPreview,
    },
    /// No such table, or it was dropped.
    #[error("{0} does not exist")]
    NoSuchTable(TableId),
    /// The id, or a handle with it, is of a table of another database.
    #[error("{0} belongs to another database")]
    OtherDatabase(TableId),
    /// The handle is of an index that was made at run time for another table.
    #[error("{index} belongs to {own} and not to {table}")]
    OtherTable {
        /// The index.
        index: IndexId,
        /// Its table.
        own: TableId,
        /// The table with which it was used.
        table: TableId,
    },
    /// No such index, or it was dropped, or is still being filled.
    #[error("{1} of {0} does not exist")]
    NoSuchIndex(TableId, IndexId),
    /// A table or index of this name exists already.
    #[error("`{}` exists already", OneLine(.0))]
    NameTaken(String),
    /// A table or index definition breaks a rule.
    #[error("{}", OneLine(.0))]
    Definition(String),
    /// The options of a database contradict each other, or the system cannot do what they ask.
    #[error("{}", OneLine(.0))]
    Options(String),
    /// The transaction was to be undone to a savepoint that is not its own, or behind which it was undone already. Nothing was undone.
    #[error("the savepoint is void: it was undone, or it is of another transaction")]
    VoidSavepoint,
    /// A write inside a read-only snapshot.
    #[error("a snapshot cannot write")]
    ReadOnly,
    /// The protocol does not offer this.
    #[error("{protocol} does not offer {what}")]
    Unsupported {
        /// The protocol's name.
        protocol: &'static str,
        /// What was asked for.
        what: &'static str,
    },
    /// A planned transaction touched a key that it had not declared.
    #[error("key {key} of {table} was not declared")]
    Undeclared {
        /// The table.
        table: TableId,
        /// The key.
        key: KeyPreview,
    },
    /// The transaction waits for another transaction that the same thread has open: the wait could not end.
    #[error("the transaction would wait for another one that this thread has open, in {table}")]
    WaitsForItself {
        /// The table of the row or range, or [`TableId::NONE`] where it is not one that is waited for.
        table: TableId,
        /// The encoded key, where one is known.
        key: Option<KeyPreview>,
    },
    /// A submitted procedure was not executed, because the database was closed.
    #[error("the database was closed before the procedure was executed")]
    Closed,
    /// The answer to a submitted procedure was taken before.
    #[error("the answer was taken before")]
    AnswerTaken,
    /// An ordered scan was asked of an index without order.
    #[error("{1} of {0} has no order")]
    NoOrder(TableId, IndexId),
}

/// How much is taken of a limit.
struct OfLimit(usize, usize);

impl fmt::Display for OfLimit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(used, usize::MAX) => write!(out, "the system has no more beside the {used} bytes that are taken"),
            Self(used, limit) => write!(out, "{used} of {limit} bytes are taken"),
        }
    }
}

/// What ends a procedure before its commit. `?` turns every error type into one.
#[derive(Debug)]
pub struct Stop(StopKind);

#[derive(Debug)]
enum StopKind {
    Conflict,
    Error(Box<dyn std::error::Error + Send + Sync>),
}

/// A [`Stop`] taken apart by the engine.
#[derive(Debug)]
pub enum Stopped {
    /// The transaction conflicts; its [`Abort`] is kept by the transaction.
    Conflict,
    /// As [`Error::RolledBack`], [`Error::Procedure`] or any other refusal.
    Failed(Error),
}

impl Stop {
    /// The protocol found a conflict, whose [`Abort`] it keeps.
    ///
    /// Procedures pass on those that operations give them. One that makes up its own is rolled back, and answered with
    /// [`Error::UnknownConflict`]: nothing says that another run would end better.
    #[inline]
    pub const fn conflict() -> Self {
        Self(StopKind::Conflict)
    }

    /// The procedure wants its transaction undone. It is not retried.
    pub fn roll_back() -> Self {
        Error::RolledBack.into()
    }

    /// Whether the engine may run the procedure again.
    pub const fn is_conflict(&self) -> bool {
        matches!(self.0, StopKind::Conflict)
    }

    /// Takes the stop apart.
    pub fn into_parts(self) -> Stopped {
        match self.0 {
            StopKind::Conflict => Stopped::Conflict,
            StopKind::Error(error) => Stopped::Failed(match error.downcast::<Error>() {
                Ok(own) => *own,
                Err(foreign) => Error::Procedure(foreign),
            }),
        }
    }
}

// `Stop` itself is no `std::error::Error`, so this conversion cannot overlap with the reflexive one.
impl<E: std::error::Error + Send + Sync + 'static> From<E> for Stop {
    #[cold]
    fn from(error: E) -> Self {
        Self(StopKind::Error(Box::new(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_is_two_words() {
        assert_eq!(size_of::<Stop>(), 2 * size_of::<usize>());
    }

    #[test]
    fn own_errors_come_back_as_they_were() {
        fn fails() -> Result<(), Stop> {
            Err(Error::ReadOnly)?;
            Ok(())
        }
        assert!(matches!(fails().unwrap_err().into_parts(), Stopped::Failed(Error::ReadOnly)));
        let foreign = Stop::from(std::fmt::Error);
        assert!(matches!(foreign.into_parts(), Stopped::Failed(Error::Procedure(_))));
    }

    #[test]
    fn long_keys_are_cut_in_previews() {
        let key = [7u8; 30];
        let text = KeyPreview::new(&key[..]).to_string();
        assert!(text.ends_with("… (30 bytes)"), "{text}");
        assert_eq!(KeyPreview::new(&[1u8, 2][..]).to_string(), "0x0102");
    }

    #[test]
    fn messages_have_one_line() {
        let text = || "first\nsecond\u{1b}[2J".to_owned();
        let errors = [
            Error::Procedure(text().into()),
            Error::Panicked(text()),
            Error::NameTaken(text()),
            Error::Definition(text()),
            Error::Options(text()),
            Error::WrongRow { table: TableId::NONE, why: text() },
        ];
        for error in errors {
            let line = error.to_string();
            assert!(line.contains("first\\nsecond") && !line.contains(char::is_control), "{line}");
        }
    }

    #[test]
    fn lack_of_memory_tells_how_much_there_is() {
        let full = |limit| Error::OutOfMemory { requested: 48, used: 900, limit }.to_string();
        assert_eq!(full(1000), "out of memory: 48 bytes were asked for, and 900 of 1000 bytes are taken");
        assert!(full(usize::MAX).ends_with("beside the 900 bytes that are taken"), "{}", full(usize::MAX));
    }
}
