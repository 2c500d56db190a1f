//! Records that are written in place, as protocols use them whose locks keep all others away.

use std::sync::Arc;

use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId};
use polychron_index::{AnyIndex, Handle, Inserted};
use polychron_memory::{Guard, OutOfMemory};
use polychron_schema::{KeyScratch, RowRef};

use super::{IndexRef, Keyed, Record, RowRecords, Store, StoreTable, UndoLog, Undoable};
use crate::catalog;
use crate::redo::Journal;

/// The tables of a running transaction, as its undo log sees them.
#[derive(Debug)]
pub struct InPlace<'t, S>(pub &'t [Option<Arc<StoreTable<S>>>]);

impl<S: Keyed> Undoable for InPlace<'_, S> {
    type At = IndexRef;

    #[inline]
    fn index(&self, IndexRef { table, index }: IndexRef) -> &AnyIndex {
        let table = catalog::known(self.0, table).expect("tables stay while a transaction runs");
        table.store(index).expect("indexes stay while a transaction runs").entries().index()
    }
}

impl Store<RowRecords> {
    /// The record of a key, unless it is deleted.
    ///
    /// # Safety
    /// As for [`Record::from_handle`].
    #[inline]
    pub unsafe fn record<K: EncodedKey>(&self, key: K, guard: &Guard<'_>) -> Option<Record> {
        // SAFETY: the handle is of this store; the rest is the caller's promise.
        let record = unsafe { Record::from_handle(self.index().get(key, guard).handle?) };
        (!record.is_deleted()).then_some(record)
    }
}

/// The outcome of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// The key is new in the index.
    New,
    /// The record stands in the place of one that the transaction has deleted.
    Again,
    /// There is such a record, and nothing has changed.
    Taken,
}

impl<A: Copy> UndoLog<A> {
    /// Inserts a record whose key is absent. `link` brings its handle into the index.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    ///
    /// # Safety
    /// The transaction holds the locks for writing what the key leads to.
    #[inline]
    pub unsafe fn insert<K: EncodedKey>(
        &mut self,
        at: A,
        (index, key): (&AnyIndex, K),
        row: &[u64],
        guard: &Guard<'_>,
        link: impl FnOnce(Handle) -> Result<Inserted, OutOfMemory>,
    ) -> Result<Placed, Error> {
        let record = Record::new(row, guard)?;
        let inserted = link(record.handle());
        match inserted {
            Ok(Inserted::New) => {
                self.inserted(at, key, record);
                return Ok(Placed::New);
            }
            Ok(Inserted::Existing(found)) => {
                let handle = found.handle.expect("an existing key has a handle");
                // SAFETY: the handle is of this index, and the caller holds the locks.
                let old = unsafe { Record::from_handle(handle) };
                if old.is_deleted() && index.replace(key, handle, record.handle(), guard) {
                    self.replaced(at, key, old, record);
                    return Ok(Placed::Again);
                }
            }
            Err(_) => {}
        }
        // SAFETY: the index did not take the record.
        unsafe { record.free(guard) };
        inserted?;
        Ok(Placed::Taken)
    }
}

impl UndoLog<IndexRef> {
    /// Stages the changes of rows for the log, as they are now; `words` has those of a record that was changed.
    ///
    /// # Errors
    /// As [`Log::stage`](crate::redo::Log::stage).
    #[inline]
    pub fn stage<'r, S: Keyed>(
        &self,
        journal: &Journal,
        slot: usize,
        tables: &[Option<Arc<StoreTable<S>>>],
        words: impl Fn(Record) -> &'r [u64],
    ) -> Result<(), Error> {
        if journal.is_empty() {
            return Ok(());
        }
        let mut scratch = KeyScratch::new();
        self.visit(words, |IndexRef { table: id, index }, key, row, change| {
            let Some(table) = catalog::known(tables, id) else { return Ok(()) };
            if index != IndexId::PRIMARY {
                return Ok(());
            }
            let key = match key {
                Some(key) => key,
                None => table.primary.extractor().extract(RowRef::from_words(row), &mut scratch)?,
            };
            journal.stage(slot, id, key, change)
        })
    }
}
