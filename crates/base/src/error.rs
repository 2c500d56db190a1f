//! Aborts, refusals and failures.
//!
//! An abort is not a failure: it is counted, explained by an [`Abort`] that the transaction keeps, and retried. Inside the transaction it
//! travels as [`Error::Conflict`], which says no more than that. Every other [`Error`] is a refusal or a failure that the caller must know of.
//!
//! An error takes two words, so that operations answer in registers; what is rare lies in a box.

mod names;

use std::fmt;
use std::ops::Deref;

use crate::id::{IndexId, TableId};
use crate::key::EncodedKey;
use crate::line::OneLine;

pub use names::{NamedKey, Reference};

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

    /// The whole key, when it is short enough to be kept.
    pub fn whole(&self) -> Option<&[u8]> {
        (usize::from(self.len) <= Self::BYTES).then(|| self.bytes())
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
    /// The transaction conflicted as often as the options allow.
    #[error("{0}")]
    Conflicts(Box<Conflicts>),
    /// The transaction had not committed when the time was over that its caller gave it; it is rolled back.
    #[error("the transaction was not committed after {after_ms} ms, and is rolled back")]
    TimedOut {
        /// The time that it had, in milliseconds.
        after_ms: u64,
    },
    /// The transaction was called off before it committed; it is rolled back.
    #[error("the transaction was cancelled, and is rolled back")]
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
    #[error("a key is longer than {} bytes", crate::key::MAX_KEY_BYTES)]
    KeyTooLong,
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
    /// A write inside a read-only snapshot.
    #[error("a snapshot cannot write")]
    ReadOnly,
    /// The protocol does not offer this.
    #[error("{0}")]
    Unsupported(Box<Unsupported>),
    /// A planned transaction touched a key that it had not declared.
    #[error("{0}")]
    Undeclared(Box<Undeclared>),
    /// The transaction waits for another transaction that the same thread has open: the wait could not end.
    #[error("{0}")]
    WaitsForItself(Box<WaitsForItself>),
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

impl Error {
    /// Whether this says that the transaction conflicts.
    #[inline]
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict)
    }

    /// An error of another type, for procedures that have none of their own.
    #[cold]
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(Box::new(Foreign(error.into())))
    }

    /// [`Error::Duplicate`] where only the ids of table and index are known.
    #[cold]
    pub fn duplicate(table: TableId, index: IndexId) -> Self {
        let key = NamedKey::new(table.to_string(), Some(index.to_string()), Vec::new(), Vec::new());
        Self::duplicate_key(table, index, key)
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

macro_rules! details {
    ($(
        $(#[$doc:meta])*
        $name:ident by $make:ident, $text:literal $(($($argument:tt)+))? {
            $($(#[$of_field:meta])* $field:ident: $type:ty,)+
        }
    )+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
            #[error($text $(, $($argument)+)?)]
            #[non_exhaustive]
            pub struct $name {
                $($(#[$of_field])* pub $field: $type,)+
            }

            impl From<$name> for Error {
                #[cold]
                fn from(details: $name) -> Self {
                    Self::$name(Box::new(details))
                }
            }
        )+

        impl Error {
            $(
                #[doc = concat!("[`Error::", stringify!($name), "`].")]
                #[cold]
                pub fn $make($($field: $type),+) -> Self {
                    $name { $($field),+ }.into()
                }
            )+
        }
    };
}

/// A conflict, in words as far as they are known.
struct Conflicted<'e>(&'e Abort, Option<&'e NamedKey>);

impl fmt::Display for Conflicted<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(abort, Some(key)) => write!(out, "{} of {key}", abort.reason.name()),
            Self(abort, None) => abort.fmt(out),
        }
    }
}

details! {
    /// The transaction conflicted as often as the options allow.
    Conflicts by conflicts, "the transaction conflicted {attempts} times, at last: {}" (Conflicted(abort, key.as_ref())) {
        /// How often it was tried.
        attempts: u64,
        /// The last conflict.
        abort: Abort,
        /// Its key in words, where the protocol knows one.
        key: Option<NamedKey>,
    }
    /// A row with this key exists already.
    Duplicate by duplicate_key, "duplicate key {key}" {
        /// The table.
        table: TableId,
        /// The unique index that holds the key already.
        index: IndexId,
        /// The same in words, and the values.
        key: NamedKey,
    }
    /// A foreign key of a row leads to no row.
    NoParent by no_parent, "{reference}, which does not exist" {
        /// The table of the row.
        table: TableId,
        /// The table that its foreign key leads to.
        parent: TableId,
        /// The parent's primary key.
        key: KeyPreview,
        /// The same in words.
        reference: Reference,
    }
    /// A row that foreign keys of other rows lead to cannot go.
    HasChildren by has_children, "{reference}, which cannot go" {
        /// The table of the row.
        table: TableId,
        /// The table of a row that refers to it.
        child: TableId,
        /// The row's primary key.
        key: KeyPreview,
        /// The same in words.
        reference: Reference,
    }
    /// The memory limit is reached, or the system has no more.
    OutOfMemory by out_of_memory, "out of memory: {requested} bytes were asked for, and {}" (OfLimit(*used, *limit)) {
        /// Bytes asked for.
        requested: usize,
        /// Bytes taken of the limit: in use, waiting to be freed, or kept to be used again.
        used: usize,
        /// The limit in bytes; `usize::MAX` where there is none but the system's.
        limit: usize,
    }
    /// A row is longer than the limit.
    RowTooLong by row_too_long, "a row of {bytes} bytes is longer than {limit}" {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    }
    /// A text or bytes are longer than their column holds.
    TooLong by too_long, "{column} holds at most {limit} bytes, and {bytes} were given" {
        /// The column, behind its table where that is known: `user.email`.
        column: String,
        /// The length in bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    }
    /// A row does not fit the layout of its table, or an update makes something of it that it cannot be.
    WrongRow by wrong_row, "the row does not fit {table}: {}" (OneLine(why)) {
        /// The table.
        table: TableId,
        /// What is wrong with the row.
        why: String,
    }
    /// A row was to be written under another key than its own.
    WrongKey by wrong_key, "key {key} of {table} was given for the row of key {own}" {
        /// The table.
        table: TableId,
        /// The key that was given.
        key: KeyPreview,
        /// The key that the row's columns make.
        own: KeyPreview,
    }
    /// The protocol does not offer this.
    Unsupported by unsupported, "{protocol} does not offer {what}" {
        /// The protocol's name.
        protocol: &'static str,
        /// What was asked for.
        what: &'static str,
    }
    /// A planned transaction touched a key that it had not declared.
    Undeclared by undeclared, "key {key} of {table} was not declared" {
        /// The table.
        table: TableId,
        /// The key.
        key: KeyPreview,
    }
    /// The transaction waits for another transaction that the same thread has open: the wait could not end.
    WaitsForItself by waits_for_itself, "the transaction would wait for another one that this thread has open, in {table}" {
        /// The table of the row or range, or [`TableId::NONE`] where it is not one that is waited for.
        table: TableId,
        /// The encoded key, where one is known.
        key: Option<KeyPreview>,
    }
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
