//! Aborts, refusals and failures.
//!
//! An abort is not a failure: it is counted, explained by an [`Abort`] that the transaction keeps, and retried. Inside the transaction it
//! travels as [`Error::Conflict`], which says no more than that. Every other [`Error`] is a refusal or a failure that the caller must know of.
//!
//! An error takes two words, so that operations answer in registers; what is rare lies in a box.

mod abort;
mod details;
mod names;
mod tables;
mod values;

use std::fmt;
use std::ops::Deref;

use crate::id::{IndexId, TableId};
use crate::line::OneLine;

pub use abort::{Abort, KeyPreview, Opponent, Reason};
pub use details::*;
pub use names::{NamedKey, Reference};
pub use tables::{Naming, TableNames, column as column_name, key as key_name, table as table_name, table_is_dropped};
pub use values::{AggregateError, Arithmetic, FutureError};

/// A refusal or a failure of the engine, or, inside a transaction, a conflict.
///
/// A transaction ends with the error type of its caller, into which this one can be made. Whether it is run again is not seen from the error
/// that its closure returns: the transaction knows whether it conflicts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The transaction conflicts with another one, and is to be run again; its [`Abort`] is kept by the transaction. Every further
    /// operation of it answers this, and so would its commit.
    ///
    /// Outside of transactions this is not seen, except by who made it up: that is an error like any other.
    #[error("the transaction conflicts with another one")]
    Conflict,
    /// The transaction conflicted as often as the options allow; one that its client drives, at its end.
    #[error("{0}")]
    Conflicts(Box<Conflicts>),
    /// The transaction had not committed when the time was over that its caller gave it; it is rolled back. Or a change of a table or its
    /// indexes was not made in time; everything is as before.
    #[error("{0}")]
    TimedOut(Box<TimedOut>),
    /// The transaction, or the change of a table or its indexes, was called off before it was made; it is rolled back.
    #[error("the call was cancelled, and what it had done is rolled back")]
    Cancelled,
    /// The transaction was asked to be rolled back.
    #[error("the transaction was rolled back on request")]
    RolledBack,
    /// An error of another type, of a layer above the engine.
    #[error(transparent)]
    Other(Box<Foreign>),
    /// The procedure panicked; its transaction is rolled back.
    #[error("the procedure panicked: {0}")]
    Panicked(Text),
    /// A row with this key exists already.
    #[error("{0}")]
    Duplicate(Box<Duplicate>),
    /// A foreign key of a row leads to no row.
    #[error("{0}")]
    NoParent(Box<NoParent>),
    /// A row that foreign keys of other rows lead to cannot go.
    #[error("{0}")]
    HasChildren(Box<HasChildren>),
    /// The memory limit is reached, or the system has no more.
    #[error("{0}")]
    OutOfMemory(Box<OutOfMemory>),
    /// All worker slots are taken.
    #[error("all {limit} worker slots are taken")]
    TooManyWorkers {
        /// How many there are.
        limit: usize,
    },
    /// A key is longer than [`crate::key::MAX_KEY_BYTES`].
    #[error("{0}")]
    KeyTooLong(Box<KeyTooLong>),
    /// A row is longer than the limit.
    #[error("{0}")]
    RowTooLong(Box<RowTooLong>),
    /// A text or bytes are longer than their column holds.
    #[error("{0}")]
    TooLong(Box<TooLong>),
    /// A value does not fit its column, values do not fit the columns, or bytes are no key or row.
    #[error("{0}")]
    WrongValue(Text),
    /// A row does not fit the layout of its table, or an update makes something of it that it cannot be.
    #[error("{0}")]
    WrongRow(Box<WrongRow>),
    /// A row was to be written under another key than its own.
    #[error("{0}")]
    WrongKey(Box<WrongKey>),
    /// No such table, or it was dropped.
    #[error("{0}")]
    NoSuchTable(Box<NoSuchTable>),
    /// The id, or a handle with it, is of a table of another database.
    #[error("{0}")]
    OtherDatabase(Box<OtherDatabase>),
    /// The handle is of an index that was made at run time for another table.
    #[error("{0}")]
    OtherTable(Box<OtherTable>),
    /// No such index, or it was dropped, or is still being filled.
    #[error("{0}")]
    NoSuchIndex(Box<NoSuchIndex>),
    /// A table or index of this name exists already.
    #[error("`{0}` exists already")]
    NameTaken(Text),
    /// A table or index definition breaks a rule.
    #[error("{0}")]
    Definition(Text),
    /// The options of a database contradict each other, or the system cannot do what they ask.
    #[error("{0}")]
    Options(Text),
    /// The transaction was to be undone to a savepoint that is not its own, or behind which it was undone already. Nothing was undone.
    #[error("the savepoint is void: it was undone, or it is of another transaction")]
    VoidSavepoint,
    /// A change in a database that was opened to be read alone.
    #[error("{0}")]
    OpenedReadOnly(Box<OpenedReadOnly>),
    /// A standby cannot be opened, because it cannot follow its primary.
    #[error("{0}")]
    NotFollowing(Box<NotFollowing>),
    /// A write inside a read-only snapshot.
    #[error("a snapshot cannot write")]
    ReadOnly,
    /// The protocol does not offer this.
    #[error("{0}")]
    Unsupported(Box<Unsupported>),
    /// A planned transaction touched a key that it had not declared.
    #[error("{0}")]
    Undeclared(Box<Undeclared>),
    /// The transaction waits for another transaction that the same thread has open, or conflicts again and again with what the same thread commits
    /// meanwhile. Run again in the same way, it would not commit: this is no conflict ([`Error::is_conflict`]), and is not retried. What the thread
    /// has open is to end first, or is to be done in the transaction itself.
    #[error("{0}")]
    WaitsForItself(Box<WaitsForItself>),
    /// A submitted procedure was not executed, because the database was closed.
    #[error("the database was closed before the procedure was executed")]
    Closed,
    /// The answer to a submitted procedure was taken before.
    #[error("the answer was taken before")]
    AnswerTaken,
    /// An ordered scan was asked of an index without order.
    #[error("{0}")]
    NoOrder(Box<NoOrder>),
    /// A future has no value.
    #[error("{0}")]
    NoValue(Box<NoValue>),
    /// A sum or another aggregate, or a restriction, has no answer.
    #[error("{0}")]
    NoAnswer(Box<NoAnswer>),
    /// A column whose values do not come in batches of numbers.
    #[error("{0}")]
    NotNumeric(Box<NotNumeric>),
    /// The log of the database has stopped, because a file could not be written. What was not durable by then may be there or not when the database
    /// is opened again; until then nothing is written.
    #[error("{0}")]
    LogStopped(Box<LogStopped>),
    /// The transaction has committed, or read what has, and that is durable here, but not yet at as many standbys as answers wait for, within their time. Nothing is undone:
    /// it reaches them when they follow again.
    #[error("{0}")]
    NotReplicated(Box<NotReplicated>),
    /// The process was forked from the one that has opened the database: it leaves the files alone, and so it neither writes nor answers what would have to be
    /// durable.
    #[error("the database was opened by another process, from which this one was forked")]
    OtherProcess,
    /// Another process has the database at this path open, or this one has.
    #[error("{0}")]
    InUse(Box<InUse>),
    /// There is no database at this path.
    #[error("{0}")]
    NoDatabase(Box<NoDatabase>),
    /// There is a database at this path already.
    #[error("{0}")]
    DatabaseExists(Box<DatabaseExists>),
    /// The files of a database are not what was written. Nothing was changed in them.
    #[error("{0}")]
    Corrupt(Box<Corrupt>),
    /// Another version has written the database, and this one cannot read it.
    #[error("{0}")]
    OtherFormat(Box<OtherFormat>),
    /// The system refuses an operation on the files of a database.
    #[error("{0}")]
    Inaccessible(Box<Inaccessible>),
    /// The disk has no room for what the database would have to write. Nothing was done, and writing goes on by itself once there is room. Meanwhile
    /// transactions that read are answered, and for a while those that only delete.
    #[error("{0}")]
    DiskFull(Box<DiskFull>),
    /// A transaction changes more than the log takes at once: three quarters of its memory, which is an eighth of the memory limit. Rows take
    /// there what they have of bytes that are not zero, and a few more. What is larger is to be done by several transactions.
    #[error("{0}")]
    TransactionTooLong(Box<TransactionTooLong>),
    /// The transaction object was used behind an error that ended the transaction. Nothing of the transaction remains.
    #[error("the transaction has ended before")]
    Ended,
}

impl Error {
    /// Whether this says that the transaction conflicts: [`Error::Conflict`] of its operations, or [`Error::Conflicts`] of its end. Run again, it may
    /// well commit. Of [`Error::WaitsForItself`] it does not hold: it would come again.
    #[inline]
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict | Self::Conflicts(_))
    }

    /// An error of another type, for procedures that have none of their own.
    #[cold]
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(Box::new(Foreign(error.into())))
    }

    /// [`Error::Duplicate`] of a row whose key is not at hand.
    #[cold]
    pub fn duplicate(table: TableId, index: IndexId) -> Self {
        Self::duplicate_key(table, index, tables::key(table, index, None))
    }

    /// [`Error::Panicked`].
    #[cold]
    pub fn panicked(text: impl Into<String>) -> Self {
        Self::Panicked(Text::new(text))
    }

    /// [`Error::NameTaken`].
    #[cold]
    pub fn name_taken(name: impl Into<String>) -> Self {
        Self::NameTaken(Text::new(name))
    }

    /// [`Error::Definition`].
    #[cold]
    pub fn definition(text: impl Into<String>) -> Self {
        Self::Definition(Text::new(text))
    }

    /// [`Error::WrongValue`].
    #[cold]
    pub fn wrong_value(text: impl Into<String>) -> Self {
        Self::WrongValue(Text::new(text))
    }

    /// [`Error::Options`].
    #[cold]
    pub fn options(text: impl Into<String>) -> Self {
        Self::Options(Text::new(text))
    }
}

/// A text of an error: behind one pointer, so that errors stay short.
#[derive(Clone, PartialEq, Eq)]
pub struct Text(Box<Box<str>>);

impl Text {
    fn new(text: impl Into<String>) -> Self {
        Self(Box::new(text.into().into_boxed_str()))
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, out)
    }
}

/// On one line.
impl fmt::Display for Text {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        OneLine(&**self).fmt(out)
    }
}

/// An error of another type, as [`Error::Other`] holds it: its text on one line, its sources, and what can be downcast.
pub struct Foreign(Box<dyn std::error::Error + Send + Sync>);

impl Foreign {
    /// The error itself.
    pub fn into_inner(self) -> Box<dyn std::error::Error + Send + Sync> {
        self.0
    }
}

impl Deref for Foreign {
    type Target = dyn std::error::Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        OneLine(&self.0).fmt(out)
    }
}

impl std::error::Error for Foreign {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations answer in two registers.
    #[test]
    fn an_error_is_two_words() {
        assert_eq!(size_of::<Error>(), 2 * size_of::<u64>());
        assert_eq!(size_of::<Result<(), Error>>(), 2 * size_of::<u64>());
        assert_eq!(size_of::<Result<bool, Error>>(), 2 * size_of::<u64>());
    }

    #[test]
    fn other_errors_keep_their_text_and_type() {
        let error = Error::other(Error::other(std::fmt::Error));
        assert_eq!(error.to_string(), std::fmt::Error.to_string());
        let Error::Other(outer) = error else { panic!("{error:?}") };
        let Some(Error::Other(inner)) = outer.downcast_ref::<Error>() else { panic!("{outer:?}") };
        assert!(inner.is::<std::fmt::Error>());
        assert_eq!(Error::other("a text").to_string(), "a text");
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
            Error::other(text()),
            Error::other(Error::other(text())),
            Error::panicked(text()),
            Error::name_taken(text()),
            Error::definition(text()),
            Error::options(text()),
            Error::wrong_row(TableId::NONE, text()),
        ];
        for error in errors {
            let line = error.to_string();
            assert!(line.contains("first\\nsecond") && !line.contains(char::is_control), "{line}");
        }
    }

    #[test]
    fn lack_of_memory_reports_how_much_there_is() {
        let full = |limit| Error::out_of_memory(48, 900, limit).to_string();
        assert_eq!(full(1000), "out of memory: 48 bytes were asked for, and 900 of 1000 bytes are taken");
        assert!(full(usize::MAX).ends_with("beside the 900 bytes that are taken"), "{}", full(usize::MAX));
    }
}
