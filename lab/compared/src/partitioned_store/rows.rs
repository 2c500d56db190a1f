//! Records as the row layer of the engine wants them: written in place under the partitions' locks, each change noted in the undo log.

use polychron_base::error::KeyPreview;
use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId, TableId};
use polychron_engine::catalog::Seen;
use polychron_engine::mutations::left_out;
use polychron_engine::rows::{At, Buffers, Finding, Flags, Intent, Lookup, Primitives, Rewrite, Visit};
use polychron_engine::stores::{Keyed, Placed, Record, UndoLog, key_in_entry};
use polychron_engine::{Projection, Queries, RowVisitor};
use polychron_memory::Guard;
use polychron_schema::{Changes, RowRef};

use super::steps::Step;
use super::table::{Entries, Entry, Index, Table, Undone, partition_of};
use super::transaction::PartitionedTransaction;

#[cold]
pub(super) fn undeclared<K: EncodedKey>(table: &Table, index: IndexId, key: K) -> Error {
    Error::undeclared(table.id, index, KeyPreview::new(key))
}

/// The record of a key, unless the transaction deleted it. The caller holds the store's lock.
#[inline]
pub(super) fn find<K: EncodedKey>(store: &Entries, key: K, guard: &Guard<'_>) -> Option<Record> {
    // SAFETY: the caller holds the lock.
    unsafe { store.record(key, guard) }
}

/// Inserts a key that is absent. `false`: it is present.
#[inline]
fn insert<K: EncodedKey>(
    index: &Index,
    partition: usize,
    key: K,
    row: &[u64],
    log: &mut UndoLog<Entry>,
    guard: &Guard<'_>,
) -> Result<bool, Error> {
    let store = &index.stores[partition];
    let at = Entry { index_ref: store.index_ref, partition };
    let link = |handle| store.index().insert(key, handle, &mut (), guard);
    // SAFETY: the caller holds the store's lock.
    let placed = unsafe { log.insert(at, (store.index(), key), row, guard, link) }?;
    Ok(placed != Placed::Taken)
}

impl PartitionedTransaction<'_> {
    /// The partition in which a key may be read.
    #[inline]
    pub(super) fn readable<K: EncodedKey>(&self, table: &Table, key: K) -> Result<usize, Error> {
        match partition_of(table, key) {
            // Any thread that writes a table that is not divided holds all locks, and this transaction holds at least one.
            None => Ok(0),
            Some(partition) if self.state.partitions.contains(partition) || left_out(Step::RefuseUndeclared) => {
                Ok(partition)
            }
            Some(_) => Err(undeclared(table, IndexId::PRIMARY, key)),
        }
    }

    /// The partition in which a key may be written.
    #[inline]
    pub(super) fn writable<K: EncodedKey>(&self, table: &Table, key: K) -> Result<usize, Error> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        let shared = !table.primary.is_divided() && !self.state.partitions.all();
        if shared && !left_out(Step::RefuseSharedWrites) {
            return Err(undeclared(table, IndexId::PRIMARY, key));
        }
        self.readable(table, key)
    }

    pub(super) fn undo_log_to(&mut self, position: usize) {
        let state = &mut *self.state;
        state.log.undo_to(position, &Undone(&state.base.tables), &self.guard);
    }

    /// Writes a row whose partition is locked.
    #[inline]
    fn write_row<K: EncodedKey>(
        &mut self,
        table: &Table,
        partition: usize,
        key: K,
        record: Record,
        row: &[u64],
        changes: Changes,
    ) -> Result<(), Error> {
        let store = &table.primary.stores[partition];
        let at = Entry { index_ref: store.index_ref, partition };
        let log = &mut self.state.log;
        // SAFETY: the transaction holds the partition's lock, and the key led to the record.
        let written = unsafe { log.overwrite(at, (store.index(), key), record, (row, changes), &self.guard) };
        written.map_err(Error::from)
    }
}

/// A record whose partition is locked.
#[derive(Clone, Copy, Debug)]
pub struct FoundRow {
    pub(super) record: Record,
    pub(super) partition: usize,
}

impl<'w> Primitives<'w> for PartitionedTransaction<'w> {
    type Store = Index;
    type Found = FoundRow;
    type Link = ();

    const OVERWRITES_COLUMNS: bool = true;

    #[inline]
    fn tables(&self) -> &Seen<Table> {
        &self.state.base.tables
    }

    #[inline]
    fn flags(&self) -> Flags {
        Flags { read_only: self.read_only, doomed: false }
    }

    #[inline]
    fn find<K: EncodedKey>(&mut self, at: At<'w, Index, K>, lookup: Lookup<'_>) -> Finding<FoundRow> {
        let is_row = at.store.index_ref().index == IndexId::PRIMARY;
        let partition = match lookup.intent {
            // An entry lies where its row does, which was found just before.
            _ if !is_row => self.partition,
            Intent::Read | Intent::ReadUnprotected => self.readable(at.table, at.key)?,
            Intent::Change | Intent::Delete => self.writable(at.table, at.key)?,
        };
        let found = find(&at.store.stores[partition], at.key, &self.guard);
        self.partition = partition;
        Ok(found.map(|record| FoundRow { record, partition }))
    }

    #[inline]
    fn row(&self, found: FoundRow) -> RowRef<'_> {
        // SAFETY: the lock is held as long as the transaction lives, which writes nothing while the row is borrowed.
        RowRef::from_words(unsafe { found.record.words() })
    }

    #[inline]
    fn overwrite<K: EncodedKey>(
        &mut self,
        at: At<'w, Index, K>,
        Rewrite { found, row, changes }: Rewrite<'_, FoundRow>,
    ) -> Result<(), Error> {
        self.write_row(at.table, found.partition, at.key, found.record, row.as_words(), changes)
    }

    #[inline]
    fn insert<K: EncodedKey>(&mut self, at: At<'w, Index, K>, words: &[u64]) -> Result<Option<()>, Error> {
        let partition = self.writable(at.table, at.key)?;
        self.partition = partition;
        let inserted = insert(at.store, partition, at.key, words, &mut self.state.log, &self.guard)?;
        Ok(inserted.then_some(()))
    }

    #[inline]
    fn link(&self, _: FoundRow) {}

    #[inline]
    fn put<K: EncodedKey>(&mut self, at: At<'w, Index, K>, words: &[u64]) -> Result<(), Error> {
        match self.find(at, Lookup::to_change(&Projection::NONE))? {
            Some(FoundRow { record, partition }) => {
                self.write_row(at.table, partition, at.key, record, words, Changes::ALL)
            }
            None => self.insert(at, words).map(drop),
        }
    }

    #[inline]
    fn delete<K: EncodedKey>(&mut self, at: At<'w, Index, K>, found: FoundRow) -> Result<(), Error> {
        let FoundRow { record, partition } = found;
        record.set_deleted(true);
        self.state.log.deleted(Entry { index_ref: at.store.index_ref(), partition }, at.key, record);
        Ok(())
    }

    /// It lies in the partition of the row.
    fn insert_entry(&mut self, at: At<'w, Index, &[u8]>, words: &[u64]) -> Result<bool, Error> {
        if at.store.unique_over_all {
            if !self.state.partitions.all() && !left_out(Step::RefuseSharedEntries) {
                return Err(undeclared(at.table, IndexId::PRIMARY, key_in_entry(words)));
            }
            let taken = || at.store.stores.iter().any(|store| find(store, at.key, &self.guard).is_some());
            if !left_out(Step::SearchAllPartitions) && taken() {
                return Ok(false);
            }
        }
        insert(at.store, self.partition, at.key, words, &mut self.state.log, &self.guard)
    }

    #[inline]
    fn follow(&mut self, table: &'w Table, entry: FoundRow, _: &Projection) -> Finding<FoundRow> {
        // SAFETY: the partition is locked, and nothing is written here.
        let key = key_in_entry(unsafe { entry.record.words() });
        let partition = partition_of(table, key).unwrap_or(0);
        let row = find(&table.primary.stores[partition], key, &self.guard);
        debug_assert!(row.is_some(), "an entry leads to a row");
        Ok(row.map(|record| FoundRow { record, partition }))
    }

    fn scan<V: RowVisitor>(&mut self, visit: &mut Visit<'_, 'w, Index, V>) -> Result<(), Error> {
        self.visit_rows(visit)
    }

    fn set_mark(&mut self) -> usize {
        self.state.log.len()
    }

    fn undo_to(&mut self, mark: usize) -> Result<(), Error> {
        self.undo_log_to(mark);
        Ok(())
    }

    fn buffers(&mut self) -> &mut Buffers {
        &mut self.state.base.rows
    }

    #[inline]
    fn fetch<K: EncodedKey>(&mut self, table: TableId, key: K) {
        if let Ok(table) = self.state.base.tables.table(table) {
            let partition = partition_of(table, key).unwrap_or(0);
            table.primary.stores[partition].index().prefetch(key, &self.guard);
        }
    }
}

impl Queries for PartitionedTransaction<'_> {}
