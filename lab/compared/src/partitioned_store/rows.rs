//! Rows and their secondary entries, written in place under the partitions' locks, each change noted in the undo log.

use polychron_base::error::KeyPreview;
use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId};
use polychron_engine::mutations::left_out;
use polychron_engine::stores::{Keyed, Record, UndoLog, entry_words, words_of};
use polychron_engine::{Insertion, Projection};
use polychron_index::Inserted;
use polychron_memory::Guard;
use polychron_schema::{Changes, KeyScratch, RowBuffer, RowMut, RowRef};

use super::steps::Step;
use super::table::{At, Entries, Index, Table, Undone, partition_of};
use super::transaction::PartitionedTransaction;

#[cold]
pub(super) fn undeclared<K: EncodedKey>(table: &Table, key: K) -> Error {
    Error::Undeclared { table: table.id, key: KeyPreview::new(key) }
}

/// The record of a key, unless the transaction deleted it. The caller holds the store's lock.
#[inline]
pub(super) fn find<K: EncodedKey>(store: &Entries, key: K, guard: &Guard<'_>) -> Option<Record> {
    let handle = store.index().get(key, guard).handle?;
    // SAFETY: the handle is of this store, whose lock the caller holds.
    let record = unsafe { Record::from_handle(handle) };
    (!record.is_deleted()).then_some(record)
}

/// Inserts a key that is absent. `false`: it is present.
#[inline]
fn insert<K: EncodedKey>(
    index: &Index,
    partition: usize,
    key: K,
    row: &[u64],
    log: &mut UndoLog<At>,
    guard: &Guard<'_>,
) -> Result<bool, Error> {
    let store = &index.stores[partition];
    let at = At { place: store.place, partition };
    let record = Record::new(row, guard)?;
    let inserted = store.index().insert(key, record.handle(), &mut (), guard);
    match inserted {
        Ok(Inserted::New) => {
            log.inserted(at, key, record);
            return Ok(true);
        }
        Ok(Inserted::Existing(found)) => {
            let handle = found.handle.expect("an existing key has a handle");
            // SAFETY: the handle is of this store, whose lock the caller holds.
            let old = unsafe { Record::from_handle(handle) };
            if old.is_deleted() && store.index().replace(key, handle, record.handle(), guard) {
                log.replaced(at, key, old, record);
                return Ok(true);
            }
        }
        Err(_) => {}
    }
    // SAFETY: the index did not take the record.
    unsafe { record.free(guard) };
    inserted?;
    Ok(false)
}

/// Deletes a key. `false`: it is absent.
#[inline]
fn delete<K: EncodedKey>(index: &Index, partition: usize, key: K, log: &mut UndoLog<At>, guard: &Guard<'_>) -> bool {
    let store = &index.stores[partition];
    let Some(record) = find(store, key, guard) else { return false };
    record.set_deleted(true);
    log.deleted(At { place: store.place, partition }, key, record);
    true
}

/// A whole row that takes the place of another.
#[derive(Clone, Copy)]
struct Changed<'r> {
    row: &'r RowBuffer,
    changes: Changes,
}

impl PartitionedTransaction<'_> {
    /// The partition in which a key may be read.
    #[inline]
    pub(super) fn readable<K: EncodedKey>(&self, table: &Table, key: K) -> Result<usize, Error> {
        match partition_of(table, key, self.locks) {
            // Whoever writes a table that is not divided holds all locks, and this transaction holds at least one.
            None => Ok(0),
            Some(partition) if self.state.partitions.contains(partition) || left_out(Step::RefuseUndeclared) => {
                Ok(partition)
            }
            Some(_) => Err(undeclared(table, key)),
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
            return Err(undeclared(table, key));
        }
        self.readable(table, key)
    }

    pub(super) fn undo_to(&mut self, position: usize) {
        let state = &mut *self.state;
        state.log.undo_to(position, &Undone(&state.tables), &self.guard);
    }

    /// Runs one operation; when it fails or refuses, what it did is undone.
    #[inline]
    pub(super) fn whole_or_not(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<Insertion, Error>,
    ) -> Result<Insertion, Error> {
        let before = self.state.log.len();
        let outcome = work(self);
        if !matches!(outcome, Ok(Insertion::Inserted)) && !left_out(Step::UndoOperations) {
            self.undo_to(before);
        }
        outcome
    }

    /// Inserts a row and its entries.
    #[inline]
    pub(super) fn add_row<K: EncodedKey>(
        &mut self,
        table: &Table,
        partition: usize,
        key: K,
        row: RowRef<'_>,
    ) -> Result<Insertion, Error> {
        if !insert(&table.primary, partition, key, row.as_words(), &mut self.state.log, &self.guard)? {
            return Ok(Insertion::Duplicate(IndexId::PRIMARY));
        }
        if !table.has_secondaries {
            return Ok(Insertion::Inserted);
        }
        let mut primary = KeyScratch::new();
        let primary = table.primary.extractor().extract(row, &mut primary)?;
        for index in table.secondaries() {
            let mut scratch = KeyScratch::new();
            let key = index.extractor().extract(row, &mut scratch)?;
            if !self.add_entry(table, index, partition, key, primary)? {
                return Ok(Insertion::Duplicate(index.id()));
            }
        }
        Ok(Insertion::Inserted)
    }

    /// Adds an entry. `false`: the key is taken in this unique index.
    fn add_entry(
        &mut self,
        table: &Table,
        index: &Index,
        partition: usize,
        key: &[u8],
        primary: &[u8],
    ) -> Result<bool, Error> {
        if index.unique_over_all {
            if !self.state.partitions.all() && !left_out(Step::RefuseSharedEntries) {
                return Err(undeclared(table, primary));
            }
            let taken = || index.stores.iter().any(|store| find(store, key, &self.guard).is_some());
            if !left_out(Step::SearchAllPartitions) && taken() {
                return Ok(false);
            }
        }
        let state = &mut *self.state;
        let words = entry_words(primary, &mut state.buffers.entry);
        let inserted = insert(index, partition, key, words, &mut state.log, &self.guard)?;
        Ok(inserted || left_out(Step::RefuseDuplicates))
    }

    /// Writes a row whatever is there.
    pub(super) fn overwrite_row<K: EncodedKey>(
        &mut self,
        table: &Table,
        partition: usize,
        key: K,
        row: RowRef<'_>,
    ) -> Result<Insertion, Error> {
        let Some(record) = find(&table.primary.stores[partition], key, &self.guard) else {
            return self.add_row(table, partition, key, row);
        };
        let mut buffer = std::mem::take(&mut self.state.buffers.row);
        buffer.copy_from(row.as_bytes());
        let changed = Changed { row: &buffer, changes: Changes::ALL };
        let outcome = self.change(table, partition, key, record, changed);
        self.state.buffers.row = buffer;
        outcome
    }

    /// Lets `change` change a row. `None`: there is none.
    #[inline]
    pub(super) fn change_row<K: EncodedKey>(
        &mut self,
        table: &Table,
        partition: usize,
        key: K,
        projection: &Projection,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<Option<Insertion>, Error> {
        let Some(record) = find(&table.primary.stores[partition], key, &self.guard) else { return Ok(None) };
        let mut range = words_of(projection);
        if table.has_secondaries && table.affected(projection.columns).next().is_some() {
            range = 0..usize::MAX;
        }
        // SAFETY: the transaction holds the partition's lock, and nothing is written before the slice is used up.
        let words = unsafe { record.words() };
        let end = range.end.min(words.len());
        let range = range.start.min(end)..end;
        let buffer = &mut self.state.buffers.row;
        buffer.overwrite_words(words.len())[range.clone()].copy_from_slice(&words[range]);
        let mut changes = Changes::NONE;
        change(&mut RowMut::new(buffer, &mut changes, table.layout.shape()));
        if changes.is_empty() {
            return Ok(Some(Insertion::Inserted));
        }
        let buffer = std::mem::take(&mut self.state.buffers.row);
        let outcome = self.change(table, partition, key, record, Changed { row: &buffer, changes });
        self.state.buffers.row = buffer;
        outcome.map(Some)
    }

    #[inline]
    fn change<K: EncodedKey>(
        &mut self,
        table: &Table,
        partition: usize,
        key: K,
        record: Record,
        changed: Changed<'_>,
    ) -> Result<Insertion, Error> {
        let Changed { row, changes } = changed;
        if table.has_secondaries && table.affected(changes.columns()).next().is_some() {
            let moved = self.move_entries(table, partition, record, changed)?;
            if moved != Insertion::Inserted {
                return Ok(moved);
            }
        }
        let store = &table.primary.stores[partition];
        let at = At { place: store.place, partition };
        let log = &mut self.state.log;
        // SAFETY: the transaction holds the partition's lock, and nothing is written before the slice is used up.
        let old = unsafe { record.words() };
        let length = old.len();
        if !changes.whole_row() {
            // Without variable columns changed, only words of the fixed part are written, which every row has.
            let words = words_of(&changes.hull());
            log.overwritten(at, record, words.start, &old[words.clone()], length);
            record.write(words.start, &row.as_words()[words], length);
        } else if row.as_words().len() <= record.capacity() {
            log.overwritten(at, record, 0, old, length);
            record.write(0, row.as_words(), row.as_words().len());
        } else {
            let larger = Record::new(row.as_words(), &self.guard)?;
            let replaced = store.index().replace(key, record.handle(), larger.handle(), &self.guard);
            assert!(replaced, "the record was found under the lock that is still held");
            log.replaced(at, key, record, larger);
        }
        Ok(Insertion::Inserted)
    }

    /// Moves the entries of a row whose indexed columns change.
    #[cold]
    fn move_entries(
        &mut self,
        table: &Table,
        partition: usize,
        record: Record,
        changed: Changed<'_>,
    ) -> Result<Insertion, Error> {
        // SAFETY: the transaction holds the partition's lock, and the row itself is not written here.
        let old = RowRef::from_words(unsafe { record.words() });
        let mut primary = KeyScratch::new();
        let primary = table.primary.extractor().extract(old, &mut primary)?;
        for index in table.affected(changed.changes.columns()) {
            let (mut before, mut after) = (KeyScratch::new(), KeyScratch::new());
            let before = index.extractor().extract(old, &mut before)?;
            let after = index.extractor().extract(changed.row.as_row(), &mut after)?;
            if before == after {
                continue;
            }
            delete(index, partition, before, &mut self.state.log, &self.guard);
            if !self.add_entry(table, index, partition, after, primary)? {
                return Ok(Insertion::Duplicate(index.id()));
            }
        }
        Ok(Insertion::Inserted)
    }

    /// Deletes a row and its entries. `false`: there is none.
    #[inline]
    pub(super) fn remove_row<K: EncodedKey>(&mut self, table: &Table, partition: usize, key: K) -> Result<bool, Error> {
        let store = &table.primary.stores[partition];
        let Some(record) = find(store, key, &self.guard) else { return Ok(false) };
        let log = &mut self.state.log;
        if table.has_secondaries {
            // SAFETY: the transaction holds the partition's lock, and the row itself is not written here.
            let row = RowRef::from_words(unsafe { record.words() });
            for index in table.secondaries() {
                let mut scratch = KeyScratch::new();
                delete(index, partition, index.extractor().extract(row, &mut scratch)?, log, &self.guard);
            }
        }
        record.set_deleted(true);
        log.deleted(At { place: store.place, partition }, key, record);
        Ok(true)
    }
}
