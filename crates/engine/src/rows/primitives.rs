//! The operations that a protocol gives to the row layer.

use std::ops::ControlFlow;
use std::sync::Arc;

use polychron_base::Error;
use polychron_base::key::EncodedKey;
use polychron_schema::{Changes, Projection, RowBuffer, RowMut, RowRef};

use super::{Buffers, Visit, follow_key};
use crate::catalog::Seen;
use crate::redo::Watch;
use crate::stores::{Hints, Keyed, StoreTable, entry_words, words_of};
use crate::{Queries, RowVisitor, Savepoints, TableId};

/// Operations of a running transaction on records. `'t` is how long the tables stay: as long as the transaction runs.
///
/// The transaction reads its own writes everywhere. What a method is told of a key, present or absent, stays so until the commit, or the
/// transaction conflicts. A method that fails has changed nothing, unless the transaction is doomed.
pub trait Primitives<'t>: Queries + Sized {
    /// The representation of one index.
    type Store: Keyed + 'static;
    /// A reference to a record that the transaction sees. It is valid until the next operation.
    ///
    /// A protocol may rely on that where memory is concerned: only the row layer makes an [`At`] and a [`Visit`], so it alone gets a record, and hands it
    /// back to the transaction that has found it, before the next operation. It writes only what [`Primitives::find`] has found to be written, under its key.
    type Found: Copy;
    /// The link from an entry to its row, where that is not the primary key.
    type Link: Copy;

    /// Whether [`Primitives::overwrite`] looks at the changed columns of a row alone.
    const OVERWRITES_COLUMNS: bool = false;

    /// The tables that the transaction knows: they stay at least until its present operation ends, and are not to be had for longer.
    ///
    /// ```compile_fail
    /// # use polychron_base::{Error, TableId};
    /// # use polychron_engine::rows::Primitives;
    /// # use polychron_engine::stores::StoreTable;
    /// fn keep<'t, P: Primitives<'t>>(transaction: &P, id: TableId) -> Result<&'t StoreTable<P::Store>, Error> {
    ///     transaction.tables().table(id)
    /// }
    /// ```
    ///
    /// ```
    /// # use polychron_base::{Error, TableId};
    /// # use polychron_engine::rows::Primitives;
    /// # use polychron_engine::stores::StoreTable;
    /// fn look<'a, 't, P: Primitives<'t>>(transaction: &'a P, id: TableId) -> Result<&'a StoreTable<P::Store>, Error> {
    ///     transaction.tables().table(id)
    /// }
    /// ```
    fn tables(&self) -> &Seen<StoreTable<Self::Store>>;

    /// Runs one operation of the client's, between two of which it may do nothing for long. A doomed transaction conflicts here.
    #[inline(always)]
    fn operate<O>(&mut self, operation: impl FnOnce(&mut Self) -> Result<O, Error>) -> Result<O, Error> {
        self.flags().check()?;
        operation(self)
    }

    /// The rights of the transaction.
    fn flags(&self) -> Flags;

    /// Finds the record of a key. What it is looked up for is a constant wherever the row layer asks.
    fn find<K: EncodedKey>(&mut self, at: At<'t, Self::Store, K>, lookup: Lookup<'_>) -> Finding<Self::Found>;

    /// The words of the record that was found last.
    fn row(&self, found: Self::Found) -> RowRef<'_>;

    /// A copy of the record that was found last, in a buffer that goes back by [`Primitives::give_back`]. Of its words only those of the
    /// projection need be right where [`Primitives::OVERWRITES_COLUMNS`].
    #[inline(always)]
    fn copy(
        &mut self,
        _table: &'t StoreTable<Self::Store>,
        found: Self::Found,
        projection: &Projection,
    ) -> Box<RowBuffer> {
        let mut row = self.buffers().take_changing();
        let words = self.row(found).as_words();
        let wanted = if Self::OVERWRITES_COLUMNS { words_of(projection) } else { 0..words.len() };
        let end = wanted.end.min(words.len());
        let wanted = wanted.start.min(end)..end;
        row.overwrite_words(words.len())[wanted.clone()].copy_from_slice(&words[wanted]);
        row
    }

    /// Takes back what [`Primitives::copy`] gave.
    #[inline(always)]
    fn give_back(&mut self, buffer: Box<RowBuffer>) {
        self.buffers().changing = Some(buffer);
    }

    /// Brings the whole row of a record that was found into `row`, as it was before [`Primitives::copy`].
    fn copy_whole<K: EncodedKey>(
        &mut self,
        _at: At<'t, Self::Store, K>,
        found: Self::Found,
        row: &mut RowBuffer,
    ) -> Result<(), Error> {
        row.copy_from(self.row(found).as_bytes());
        Ok(())
    }

    /// Lets `change` change a row where it will lie, or hands it back.
    #[inline]
    fn change_in_place<F: FnOnce(&mut RowMut<'_>)>(
        &mut self,
        _table: &'t StoreTable<Self::Store>,
        _found: Self::Found,
        change: F,
    ) -> ControlFlow<Result<(), Error>, F> {
        ControlFlow::Continue(change)
    }

    /// Code of the client has looked at the projection of a row, and has changed it or not. If it has not, what it looked at is protected
    /// as if it had been read.
    #[inline]
    fn has_looked<K: EncodedKey>(&mut self, _at: At<'t, Self::Store, K>, _projection: &Projection, _has_changed: bool) {
    }

    /// Writes the changed columns of a row that was found to be written.
    fn overwrite<K: EncodedKey>(
        &mut self,
        at: At<'t, Self::Store, K>,
        rewrite: Rewrite<'_, Self::Found>,
    ) -> Result<(), Error>;

    /// Inserts a record whose key is absent. `None`: the key has one.
    fn insert<K: EncodedKey>(&mut self, at: At<'t, Self::Store, K>, words: &[u64])
    -> Result<Option<Self::Link>, Error>;

    /// The link to a row that was found.
    fn link(&self, found: Self::Found) -> Self::Link;

    /// Writes a row whatever is there, in a table without secondary indexes. Nothing need be observed.
    fn put<K: EncodedKey>(&mut self, at: At<'t, Self::Store, K>, words: &[u64]) -> Result<(), Error> {
        let Some(found) = self.find(at, Lookup::to_change(&Projection::NONE))? else {
            return self.insert(at, words).map(drop);
        };
        let mut row = std::mem::take(&mut self.buffers().whole);
        row.overwrite_words(words.len()).copy_from_slice(words);
        let outcome = self.overwrite(at, Rewrite { found, row: &mut row, changes: Changes::ALL });
        self.buffers().whole = row;
        outcome
    }

    /// Deletes a record that was found to be deleted.
    fn delete<K: EncodedKey>(&mut self, at: At<'t, Self::Store, K>, found: Self::Found) -> Result<(), Error>;

    /// The words of an entry that leads to a row.
    #[inline]
    fn entry<'b>(&self, _row: Self::Link, primary: &[u8], buffer: &'b mut RowBuffer) -> &'b [u64] {
        entry_words(primary, buffer)
    }

    /// Inserts an entry of a secondary index. `false`: its key is taken.
    #[inline]
    fn insert_entry(&mut self, at: At<'t, Self::Store, &[u8]>, words: &[u64]) -> Result<bool, Error> {
        Ok(self.insert(at, words)?.is_some())
    }

    /// Deletes an entry of a secondary index. While that is being filled, there may be none.
    #[inline]
    fn delete_entry(&mut self, at: At<'t, Self::Store, &[u8]>) -> Result<(), Error> {
        match self.find(at, Lookup::to_delete(&Projection::NONE))? {
            Some(found) => self.delete(at, found),
            None => Ok(()),
        }
    }

    /// Before the client is told that the key of a row is taken: an error ends most procedures, and must not rest on reads that never
    /// were mutually consistent.
    #[inline]
    fn check_present<K: EncodedKey>(&mut self, _at: At<'t, Self::Store, K>) -> Result<(), Error> {
        Ok(())
    }

    /// Before the client is told that the key of an entry of this row is taken.
    #[inline]
    fn check_taken(&mut self, _at: At<'t, Self::Store, &[u8]>, _primary: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    /// Locks the row of a key that is about to be written, if there is one, whatever was committed there since the transaction began: see
    /// [`lock_row`](super::lock_row). Nothing to do where no such lock is needed.
    fn lock<K: EncodedKey>(&mut self, _at: At<'t, Self::Store, K>) -> Result<(), Error> {
        Ok(())
    }

    /// The entry of a row has been made in an index that is being filled: who changes the row meanwhile must conflict. Nothing to do where
    /// reads are protected.
    #[inline]
    fn hold_filled(&mut self, _at: At<'t, Self::Store, &[u8]>, _row: Self::Found) -> Result<(), Error> {
        Ok(())
    }

    /// A write of a row that was found has been refused, and is undone: the client, who may go on, knows that there is such a row, and that
    /// its columns did not prevent the refusal. That is protected as if it had been read. Nothing to do where a row that is found to be
    /// written is.
    #[inline]
    fn has_refused<K: EncodedKey>(&mut self, _at: At<'t, Self::Store, K>) {}

    /// Finds the row to which an entry leads: by default, by its primary key. `None`: it has gone, and the entry with it.
    #[inline]
    fn follow(
        &mut self,
        table: &'t StoreTable<Self::Store>,
        entry: Self::Found,
        projection: &Projection,
    ) -> Finding<Self::Found> {
        follow_key(self, table, entry, projection)
    }

    /// Visits what a range has. The range, as far as it was visited, is protected.
    fn scan<V: RowVisitor>(&mut self, visit: &mut Visit<'_, 't, Self::Store, V>) -> Result<(), Error>;

    /// The number of writes so far: a position that [`Primitives::undo_to`] can return to.
    fn set_mark(&mut self) -> usize;

    /// The same, of a savepoint, which stays.
    fn set_savepoint(&mut self) -> usize {
        self.set_mark()
    }

    /// The operation that has set a mark is over.
    #[inline]
    fn forget_mark(&mut self, _mark: usize) {}

    /// Undoes the writes from this one on.
    fn undo_to(&mut self, mark: usize) -> Result<(), Error>;

    /// Memory of the row layer.
    fn buffers(&mut self) -> &mut Buffers;

    /// See [`Transaction::savepoints`](crate::Transaction::savepoints).
    #[inline]
    fn saved(&mut self) -> &mut Savepoints {
        &mut self.buffers().savepoints
    }

    /// What the transaction reads while the log has stopped.
    #[inline]
    fn watch(&mut self) -> &mut Watch {
        &mut self.buffers().watch
    }

    /// The keys that were asked for, where lookups follow together when the first row is.
    #[inline]
    fn hints(&mut self) -> Option<&mut Hints> {
        None
    }

    /// Whether the rows that the procedure declares are on their way ([`Prefetch::has_prefetched`](crate::Prefetch::has_prefetched)).
    #[inline]
    fn are_on_their_way(&self) -> bool {
        false
    }

    /// Starts bringing the row of a key into the caches ([`Prefetch::prefetch_row`](crate::Prefetch::prefetch_row)). By default the key is kept
    /// with the hints, if there are any, so that the lookups of several keys overlap, and so do the misses on their records. What they find stays
    /// as a hint, and the key is not looked up again.
    #[inline]
    fn fetch<K: EncodedKey>(&mut self, table: TableId, key: K) {
        if let Some(hints) = self.hints() {
            hints.ask(table, key);
        }
    }

    /// See [`Transaction::is_reconnaissance`](crate::Transaction::is_reconnaissance).
    #[inline]
    fn only_plans(&self) -> bool {
        false
    }

    /// See [`Transaction::protect_reads`](crate::Transaction::protect_reads).
    #[inline]
    fn protect_all_reads(&mut self, _protect: bool) {}
}

/// The rights of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Flags {
    /// It may not write.
    pub read_only: bool,
    /// It has conflicted.
    pub doomed: bool,
}

impl Flags {
    /// After a conflict every call conflicts.
    ///
    /// # Errors
    /// [`Error::Conflict`].
    #[inline(always)]
    pub fn check(self) -> Result<(), Error> {
        if self.doomed { Err(Error::Conflict) } else { Ok(()) }
    }
}

/// A key of an index of a table that the transaction knows. Only the row layer makes one: see [`Primitives::Found`].
#[derive(Debug)]
pub struct At<'t, S, K> {
    /// The table.
    pub table: &'t StoreTable<S>,
    /// The representation of the index.
    pub store: &'t Arc<S>,
    /// The key.
    pub key: K,
    _made_by: RowLayer,
}

/// The row layer, which alone has this.
#[derive(Clone, Copy, Debug)]
struct RowLayer;

impl<S, K: Copy> Clone for At<'_, S, K> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<S, K: Copy> Copy for At<'_, S, K> {}

impl<'t, S, K> At<'t, S, K> {
    /// The row of a key.
    #[inline]
    pub(crate) fn row(table: &'t StoreTable<S>, key: K) -> Self {
        Self { table, store: &table.primary, key, _made_by: RowLayer }
    }

    /// The entry of a key.
    #[inline]
    pub(crate) fn entry(table: &'t StoreTable<S>, store: &'t Arc<S>, key: K) -> Self {
        Self { table, store, key, _made_by: RowLayer }
    }
}

/// The result of a lookup; `None`: there is no such record.
pub type Finding<F> = Result<Option<F>, Error>;

/// The purpose of a lookup.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'p> {
    /// The columns that are wanted of it.
    pub projection: &'p Projection,
    /// The change of it.
    pub intent: Intent,
}

impl<'p> Lookup<'p> {
    /// It is going to be read.
    #[inline(always)]
    pub fn to_read(projection: &'p Projection) -> Self {
        Self { projection, intent: Intent::Read }
    }

    /// It is going to be read, and what is found need not stand.
    #[inline(always)]
    pub fn unprotected(projection: &'p Projection) -> Self {
        Self { projection, intent: Intent::ReadUnprotected }
    }

    /// It is going to be overwritten.
    #[inline(always)]
    pub fn to_change(projection: &'p Projection) -> Self {
        Self { projection, intent: Intent::Change }
    }

    /// It is going to be deleted.
    #[inline(always)]
    pub fn to_delete(projection: &'p Projection) -> Self {
        Self { projection, intent: Intent::Delete }
    }
}

/// The change of a record that is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// It is read.
    Read,
    /// It is read, and the answer need not stand.
    ReadUnprotected,
    /// It is overwritten.
    Change,
    /// It is deleted.
    Delete,
}

/// A row as it is going to be.
#[derive(Debug)]
pub struct Rewrite<'r, F> {
    /// The record that was found to be changed.
    pub found: F,
    /// The row, of which the changed columns are right.
    pub row: &'r mut RowBuffer,
    /// The columns that change.
    pub changes: Changes,
}
