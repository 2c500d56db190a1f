//! Procedures, and what they declare.

use polychron_base::key::EncodedKey;
use polychron_base::{Error, TableId};
use polychron_schema::{Key, KeyPrefix, KeyRef, KeyScratch, Row};

use crate::futures::Resolved;
use crate::{Table, Transaction};

/// A stored procedure: one transaction's logic, generic over the protocol.
///
/// It may be run several times before it commits, and some protocols run it on reads that do not fit together before they
/// notice, so it must not have effects outside of the transaction, and state it keeps in `self` must be reset at its start.
///
/// It and its answer can be sent to other threads: protocols that plan procedures run them where they see fit.
pub trait Procedure: Send {
    /// Its result.
    type Output: Send;
    /// Its error: its own ones, and those of the engine.
    type Error: From<Error> + Send;

    /// The logic.
    ///
    /// # Errors
    /// Any. It rolls the transaction back, and comes to the caller as it is, unless the transaction conflicts: then the procedure is run again.
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Self::Output, Self::Error>;

    /// The transaction has committed: the futures of its run have their values, which are learnt here for nothing. A panic here is
    /// answered as [`Error::Panicked`](crate::Error::Panicked); the transaction has committed nevertheless.
    #[inline]
    fn committed(&mut self, _output: &mut Self::Output, _resolved: &Resolved) {}

    /// Names what [`Procedure::run`] will touch: every row that it may write, and the rows that it is known to read.
    ///
    /// Planned protocols (a log planned before it is executed, two-phase locking in a global order, partitioned stores) run by it; others use it to
    /// prefetch. Only writes must be named: by their keys, or by a [prefix](Declare::prefix) where the
    /// keys show in the run only. Where not even that is known, [`Declare::unknown`] says so; a write that is neither named nor
    /// announced ends the transaction with an error in a protocol that plans. Any row may be read, named or not: naming reads
    /// makes them faster. So a procedure that only reads never says `unknown`.
    ///
    /// The default says that nothing is known, not even whether it writes.
    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.unknown();
    }
}

/// Receives what a procedure declares.
pub trait Declare {
    /// The row of `key` may be touched in the way that `access` tells. A key may be named several times; every way in which it is
    /// named may happen.
    ///
    /// A key has at most [`MAX_KEY_BYTES`](polychron_base::key::MAX_KEY_BYTES). A protocol that plans answers a procedure that names a longer one
    /// with [`Error::KeyTooLong`](polychron_base::Error::KeyTooLong(_)), and does not run it; others take no notice. What is named of tables that are
    /// not there, or under keys that no row of the table can have, is of no consequence.
    fn key<K: EncodedKey>(&mut self, table: TableId, key: K, access: Access);

    /// A row of a typed table, by its key: as [`Declare::key`]. A key that no row can have is of no consequence.
    ///
    /// ```
    /// # use polychron_engine::{Access, Declare, Row, Table};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// fn declare<D: Declare>(accounts: &Table<Account>, declaration: &mut D) {
    ///     declaration.row(accounts, 7, Access::Update);
    /// }
    /// ```
    #[inline]
    fn row<R: Row>(&mut self, table: &Table<R>, key: KeyRef<'_, R>, access: Access) {
        if key.check().is_ok() {
            self.key(table.id, key.encode(&mut KeyScratch::new()), access);
        }
    }

    /// Rows of a typed table whose keys begin with these columns: as [`Declare::prefix`].
    #[inline]
    fn rows<'k, R: Row, P: KeyPrefix<KeyRef<'k, R>>>(&mut self, table: &Table<R>, prefix: P, access: Access) {
        let mut scratch = KeyScratch::new();
        prefix.encode_prefix(&mut scratch);
        if let Ok(bytes) = scratch.checked() {
            self.prefix(table.id, bytes, access);
        }
    }

    /// Rows whose encoded primary key begins with these bytes (the first columns of the key) may be touched in the way that
    /// `access` tells, under keys that only the run knows.
    ///
    /// This says more than [`Declare::unknown`] and takes its place for protocols that look at prefixes. For all others it is the
    /// same, which is what the default does. A prefix is as long as a key at most.
    fn prefix<K: EncodedKey>(&mut self, _table: TableId, _prefix: K, _access: Access) {
        self.unknown();
    }

    /// The transaction stays within this partition (and others it names): see [`crate::TableDefinition`]'s partition column.
    fn partition(&mut self, _partition: u64) {}

    /// There may be writes besides those that are named. Reads that are not named need no mention.
    fn unknown(&mut self) {}
}

/// The purpose of a declared key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read only.
    Read,
    /// Updated in columns that no index keys on; neither inserted nor deleted.
    Update,
    /// Inserted, overwritten, deleted, or updated in any column.
    Write,
    /// Inserted: the key is expected to be absent.
    Insert,
}
