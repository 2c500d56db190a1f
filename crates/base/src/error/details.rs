//! What errors tell beside their kind. It lies in boxes, so that errors stay short; names of tables, columns and values are asked for when an error is
//! made ([`super::tables`]).

use std::fmt;

use super::{Abort, AggregateError, Error, FutureError, KeyPreview, NamedKey, Opponent, Reference, tables};
use crate::id::{IndexId, TableId};
use crate::key::{EncodedKey, MAX_KEY_BYTES};
use crate::line::OneLine;

/// What is told of an error, in a box.
macro_rules! boxed {
    ($(
        $(#[$doc:meta])*
        $name:ident, $text:literal $(($($argument:tt)+))? {
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
    };
}

/// The same, with a constructor of the error.
macro_rules! details {
    ($(
        $(#[$doc:meta])*
        $name:ident by $make:ident, $text:literal $(($($argument:tt)+))? {
            $($(#[$of_field:meta])* $field:ident: $type:ty,)+
        }
    )+) => {
        boxed! {
            $($(#[$doc])* $name, $text $(($($argument)+))? { $($(#[$of_field])* $field: $type,)+ })+
        }

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

/// A conflict in words.
struct Conflicted<'e>(u64, &'e Abort, &'e NamedKey);

impl fmt::Display for Conflicted<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(attempts, abort, key) = self;
        match attempts {
            1 => out.write_str("the transaction conflicted: ")?,
            _ => write!(out, "the transaction conflicted {attempts} times, at last: ")?,
        }
        abort.tell(key, out)
    }
}

/// What was not done in time, and why.
struct Late<'e>(u64, &'e Option<String>, &'e Option<NamedKey>, &'e Option<Opponent>);

impl fmt::Display for Late<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(after_ms, change, key, opponent) = self;
        match change {
            Some(change) => write!(out, "{} was not made after {after_ms} ms, and is given up", OneLine(change))?,
            None => write!(out, "the transaction was not committed after {after_ms} ms, and is rolled back")?,
        }
        match (key, opponent) {
            (None, None) => Ok(()),
            (None, Some(opponent)) => write!(out, "; {opponent} is open"),
            (Some(key), opponent) => {
                write!(out, "; it waited {}{key}", if key.is_known() { "at " } else { "" })?;
                opponent.map_or(Ok(()), |opponent| write!(out, " for {opponent}"))
            }
        }
    }
}

/// Something that is too long, of a table or an index if that is known, with its length, if that was measured.
struct Long<'e>(&'static str, &'e Option<String>, Option<usize>, usize);

impl fmt::Display for Long<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(what, name, bytes, limit) = self;
        write!(out, "a {what}")?;
        name.as_ref().map_or(Ok(()), |name| write!(out, " of {}", OneLine(name)))?;
        match bytes {
            Some(bytes) => write!(out, " has {bytes} bytes, and at most {limit} are possible"),
            None => write!(out, " has more than {limit} bytes"),
        }
    }
}

/// The process that has something, if that is known.
struct Holder(Option<u32>);

impl fmt::Display for Holder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |process| write!(out, " by process {process}"))
    }
}

/// Where a transaction waits.
struct WaitsAt<'e>(Option<&'e NamedKey>);

impl fmt::Display for WaitsAt<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |key: &NamedKey| write!(out, ", {}{key}", if key.is_known() { "at " } else { "" });
        self.0.map_or(Ok(()), at)
    }
}

boxed! {
    /// A key is longer than [`MAX_KEY_BYTES`].
    KeyTooLong, "{}" (Long("key", name, *bytes, *limit)) {
        /// Its length, where it was measured.
        bytes: Option<usize>,
        /// The limit.
        limit: usize,
        /// The table, or the secondary index behind its table, where it is known.
        name: Option<String>,
    }
    /// A row is longer than the limit.
    RowTooLong, "{}" (Long("row", name, Some(*bytes), *limit)) {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
        /// The table, where it is known.
        name: Option<String>,
    }
    /// The time was over before the transaction committed, or before a change of a table or its indexes was made.
    TimedOut, "{}" (Late(*after_ms, change, key, opponent)) {
        /// The time that there was, in milliseconds.
        after_ms: u64,
        /// The table or index that was to be made or changed, in words. `None`: it was a transaction.
        change: Option<String>,
        /// Where it waited or conflicted at last, where that is known.
        key: Option<NamedKey>,
        /// What it waited for, where the protocol knows it.
        opponent: Option<Opponent>,
    }
    /// The transaction conflicted, as often as the options allow where it is run again.
    Conflicts, "{}" (Conflicted(*attempts, abort, key)) {
        /// How often it was tried.
        attempts: u64,
        /// The last conflict.
        abort: Abort,
        /// Its key in words, without values where the protocol knows none.
        key: NamedKey,
    }
    /// No such table, or it was dropped.
    NoSuchTable, "{} does not exist" (OneLine(name)) {
        /// The table.
        table: TableId,
        /// Its name, where it was dropped not long ago.
        name: String,
    }
    /// The id, or a handle with it, is of a table of another database.
    OtherDatabase, "{} belongs to another database" (OneLine(name)) {
        /// The table.
        table: TableId,
        /// Its name.
        name: String,
    }
    /// The handle is of an index that was made at run time for another table.
    OtherTable, "{} is not an index of {}" (OneLine(name), OneLine(other)) {
        /// The index.
        index: IndexId,
        /// Its table.
        own: TableId,
        /// The table with which it was used.
        table: TableId,
        /// The name of the index, behind that of its table.
        name: String,
        /// The name of the other table.
        other: String,
    }
    /// No such index, or it was dropped, or is still being filled.
    NoSuchIndex, "{} does not exist" (OneLine(name)) {
        /// The table.
        table: TableId,
        /// The index.
        index: IndexId,
        /// Its name behind that of its table, also where it was dropped.
        name: String,
    }
    /// An ordered scan was asked of an index without order.
    NoOrder, "{} has no order" (OneLine(name)) {
        /// The table.
        table: TableId,
        /// The index.
        index: IndexId,
        /// Its name, behind that of its table.
        name: String,
    }
    /// A row does not fit the layout of its table, or an update makes something of it that it cannot be.
    WrongRow, "the row does not fit {}: {}" (OneLine(name), OneLine(why)) {
        /// The table.
        table: TableId,
        /// Its name.
        name: String,
        /// What is wrong with the row.
        why: String,
    }
    /// A row was to be written under another key than its own.
    WrongKey, "key {named} was given for the row of key {own_named}" {
        /// The table.
        table: TableId,
        /// The key that was given.
        key: KeyPreview,
        /// The key that the row's columns make.
        own: KeyPreview,
        /// The key that was given, in words.
        named: NamedKey,
        /// The row's own key, in words.
        own_named: NamedKey,
    }
    /// A planned transaction touched a key that it had not declared.
    Undeclared, "key {named} was not declared" {
        /// The table.
        table: TableId,
        /// The index of the key: a secondary one where the entry of a row may not be written.
        index: IndexId,
        /// The key.
        key: KeyPreview,
        /// The key in words.
        named: NamedKey,
    }
    /// The transaction waits for another transaction that the same thread has open, or conflicts again and again with what the thread commits
    /// meanwhile: that could not end.
    WaitsForItself, "the transaction would wait in vain for its own thread, for what that has open or commits meanwhile{}" (WaitsAt(named.as_ref())) {
        /// The table of the row or range, or [`TableId::NONE`] where it is not one that is waited for.
        table: TableId,
        /// The encoded key, where one is known.
        key: Option<KeyPreview>,
        /// The same in words, where there is a table.
        named: Option<NamedKey>,
    }
    /// A future has no value.
    NoValue, "{}" (OneLine(text)) {
        /// Why.
        why: FutureError,
        /// The same in words.
        text: String,
    }
    /// A sum or another aggregate, or a restriction, has no answer.
    NoAnswer, "{}" (OneLine(text)) {
        /// Why.
        why: AggregateError,
        /// The same in words.
        text: String,
    }
}

impl Error {
    /// [`Error::KeyTooLong`], with the key's length where it was measured.
    #[cold]
    pub fn key_too_long(bytes: Option<usize>) -> Self {
        KeyTooLong { bytes, limit: MAX_KEY_BYTES, name: None }.into()
    }

    /// [`Error::RowTooLong`].
    #[cold]
    pub fn row_too_long(bytes: usize, limit: usize) -> Self {
        RowTooLong { bytes, limit, name: None }.into()
    }

    /// The same error; [`Error::KeyTooLong`] names the index and [`Error::RowTooLong`] the table, unless they do so already.
    #[cold]
    #[must_use]
    pub fn in_index(mut self, table: TableId, index: IndexId) -> Self {
        let (name, index) = match &mut self {
            Self::KeyTooLong(of) => (&mut of.name, index),
            Self::RowTooLong(of) => (&mut of.name, IndexId::PRIMARY),
            _ => return self,
        };
        let primary = index == IndexId::PRIMARY;
        name.get_or_insert_with(|| if primary { tables::table(table) } else { tables::index(table, index) });
        self
    }

    /// [`Error::TimedOut`], of which no more is known.
    #[cold]
    pub fn timed_out(after_ms: u64) -> Self {
        TimedOut { after_ms, change: None, key: None, opponent: None }.into()
    }

    /// The same error; one of [`Error::TimedOut`] tells where the transaction waited, unless it does so already.
    #[cold]
    #[must_use]
    pub fn waiting_at(mut self, table: TableId, index: IndexId, key: Option<&KeyPreview>) -> Self {
        if let Self::TimedOut(of) = &mut self {
            of.key.get_or_insert_with(|| tables::key(table, index, key));
        }
        self
    }

    /// The same error; one of [`Error::TimedOut`] tells for whom it waited, unless it does so already.
    #[cold]
    #[must_use]
    pub fn waiting_for(mut self, opponent: Option<Opponent>) -> Self {
        if let Self::TimedOut(of) = &mut self {
            of.opponent = of.opponent.or(opponent);
        }
        self
    }

    /// The same error; one of [`Error::TimedOut`] tells what was to be made.
    #[cold]
    #[must_use]
    pub fn making(mut self, change: impl FnOnce() -> String) -> Self {
        if let Self::TimedOut(of) = &mut self {
            of.change = Some(change());
        }
        self
    }

    /// [`Error::Conflicts`].
    #[cold]
    pub fn conflicts(attempts: u64, abort: Abort) -> Self {
        Conflicts { attempts, abort, key: abort.named_key() }.into()
    }

    /// [`Error::NoSuchTable`].
    #[cold]
    pub fn no_such_table(table: TableId) -> Self {
        NoSuchTable { table, name: tables::table(table) }.into()
    }

    /// [`Error::OtherDatabase`].
    #[cold]
    pub fn other_database(table: TableId) -> Self {
        OtherDatabase { table, name: tables::table(table) }.into()
    }

    /// [`Error::OtherTable`].
    #[cold]
    pub fn other_table(index: IndexId, own: TableId, table: TableId) -> Self {
        OtherTable { index, own, table, name: tables::index(own, index), other: tables::table(table) }.into()
    }

    /// [`Error::NoSuchIndex`].
    #[cold]
    pub fn no_such_index(table: TableId, index: IndexId) -> Self {
        NoSuchIndex { table, index, name: tables::index(table, index) }.into()
    }

    /// [`Error::NoOrder`].
    #[cold]
    pub fn no_order(table: TableId, index: IndexId) -> Self {
        NoOrder { table, index, name: tables::index(table, index) }.into()
    }

    /// [`Error::WrongRow`].
    #[cold]
    pub fn wrong_row(table: TableId, why: impl Into<String>) -> Self {
        WrongRow { table, name: tables::table(table), why: why.into() }.into()
    }

    /// [`Error::WrongKey`]: the key that was given, and that of the row.
    #[cold]
    pub fn wrong_key<K: EncodedKey>(table: TableId, key: K, own: &[u8]) -> Self {
        let (named, own_named) = (tables::whole_key(table, key), tables::whole_key(table, own));
        WrongKey { table, key: KeyPreview::new(key), own: KeyPreview::new(own), named, own_named }.into()
    }

    /// [`Error::Undeclared`].
    #[cold]
    pub fn undeclared(table: TableId, index: IndexId, key: KeyPreview) -> Self {
        Undeclared { table, index, key, named: tables::key(table, index, Some(&key)) }.into()
    }

    /// [`Error::WaitsForItself`].
    #[cold]
    pub fn waits_for_itself(table: TableId, key: Option<KeyPreview>) -> Self {
        Self::waits_in_index(table, IndexId::PRIMARY, key)
    }

    /// [`Error::WaitsForItself`], at a key of any index.
    #[cold]
    pub fn waits_in_index(table: TableId, index: IndexId, key: Option<KeyPreview>) -> Self {
        let named = (table != TableId::NONE).then(|| tables::key(table, index, key.as_ref()));
        WaitsForItself { table, key, named }.into()
    }
}

impl From<AggregateError> for Error {
    #[cold]
    fn from(why: AggregateError) -> Self {
        let text = why.to_string();
        NoAnswer { why, text }.into()
    }
}

impl From<FutureError> for Error {
    #[cold]
    fn from(why: FutureError) -> Self {
        let text = why.to_string();
        NoValue { why, text }.into()
    }
}

details! {
    /// The log of the database has stopped.
    LogStopped by log_stopped, "the log has stopped ({}): what was not durable may be there or not when the database is opened again" (OneLine(reason)) {
        /// What failed: operation, file, and why.
        reason: String,
    }
    /// A transaction is durable, and not at as many standbys as its answer waits for.
    NotReplicated by not_replicated, "it is done and durable here, and {} of {} standbys have acknowledged it: one that takes over may lack it" (*acknowledged, *replicas) {
        /// How many standbys that are connected have it durably.
        acknowledged: usize,
        /// How many are to have it before an answer leaves.
        replicas: usize,
    }
    /// A database is open already.
    InUse by in_use, "the database at {} is in use{}" (OneLine(path), Holder(*process)) {
        /// Its path.
        path: String,
        /// The process that has it open, if that is known.
        process: Option<u32>,
    }
    /// The database was opened to be read alone.
    OpenedReadOnly by opened_read_only, "{} cannot be changed: the database at {} was opened read-only" (OneLine(table), OneLine(path)) {
        /// The table that was to be changed, made or dropped.
        table: String,
        /// The database's path.
        path: String,
    }
    /// A standby cannot follow its primary.
    NotFollowing by not_following, "the standby at {} does not follow its primary: {}" (OneLine(path), OneLine(reason)) {
        /// The standby's path.
        path: String,
        /// Why not.
        reason: String,
    }
    /// There is no database.
    NoDatabase by no_database, "there is no database at {}: {}" (OneLine(path), OneLine(reason)) {
        /// The path.
        path: String,
        /// What is there instead.
        reason: String,
    }
    /// There is a database.
    DatabaseExists by database_exists, "there is a database at {} already" (OneLine(path)) {
        /// Its path.
        path: String,
    }
    /// Files are not what was written.
    Corrupt by corrupt, "the database at {} is damaged: {}" (OneLine(path), OneLine(reason)) {
        /// Its path.
        path: String,
        /// Which file, where, and what is wrong.
        reason: String,
    }
    /// Another version wrote it.
    OtherFormat by other_format, "the database at {} was written by another version: {}" (OneLine(path), OneLine(reason)) {
        /// Its path.
        path: String,
        /// Which file, and its format.
        reason: String,
    }
    /// An operation on a file was refused.
    Inaccessible by inaccessible, "the database at {} cannot be used: {}" (OneLine(path), OneLine(reason)) {
        /// Its path.
        path: String,
        /// What was tried on which file, and why that failed.
        reason: String,
    }
    /// The disk has no room for what the database would have to write.
    DiskFull by disk_full, "the database at {} has no room: {}" (OneLine(path), OneLine(reason)) {
        /// Its path.
        path: String,
        /// What cannot be written.
        reason: String,
    }
    /// A transaction changes more than the log takes at once.
    TransactionTooLong by transaction_too_long, "the transaction is too long for the log: its changes have {bytes} bytes there, and at most {limit} are possible at once" {
        /// How many bytes it would log.
        bytes: usize,
        /// The limit.
        limit: usize,
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
    /// A text or bytes are longer than their column holds.
    TooLong by too_long, "{} holds at most {limit} bytes, and {bytes} were given" (OneLine(column)) {
        /// The column, behind its table where that is known: `user.email`.
        column: String,
        /// The length in bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    }
    /// A column whose values do not come in batches of numbers.
    NotNumeric by not_numeric, "{} of type {column_type} does not come in batches" (OneLine(column)) {
        /// The column, behind its table: `user.email`.
        column: String,
        /// Its type.
        column_type: String,
    }
    /// The protocol does not offer this.
    Unsupported by unsupported, "{protocol} does not offer {what}" {
        /// The protocol's name.
        protocol: &'static str,
        /// What was asked for.
        what: &'static str,
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
