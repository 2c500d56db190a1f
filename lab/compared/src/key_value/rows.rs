//! Atomic operations on one key, and how secondary entries follow the rows.
//!
//! Entries are kept up one key after the other, so for a timestamp a scan of a secondary index may miss a row that is being
//! changed. The order keeps that harmless: new entries are added before the row is written, and what is taken away
//! afterwards is taken from the row that was really replaced, which is copied under its latch.

use std::ops::Range;

use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId};
use polychron_engine::Insertion;
use polychron_engine::stores::{entry_words, key_in_entry, words_of};
use polychron_index::Inserted;
use polychron_memory::Guard;
use polychron_schema::{Changes, KeyScratch, RowBuffer, RowRef};

use super::record::{Latched, Record};
use super::table::{Entries, Table};

/// The get: finds the record of a key and copies words `range` of its row into `row`.
#[inline]
pub(super) fn get<K: EncodedKey>(
    store: &Entries,
    key: K,
    range: Range<usize>,
    row: &mut RowBuffer,
    guard: &Guard<'_>,
) -> Option<Record> {
    loop {
        let handle = store.index().get(key, guard).handle?;
        // SAFETY: the handle was found under the guard.
        let record = unsafe { Record::from_handle(handle) };
        if read_into(record, range.clone(), row) {
            return Some(record);
        }
        // The row was deleted or moved to a larger record after the lookup.
        polychron_sync::spin_hint();
    }
}

/// Reads into a buffer as long as the record can be, of which only the wanted words are written.
#[inline]
pub(super) fn read_into(record: Record, range: Range<usize>, row: &mut RowBuffer) -> bool {
    let capacity = record.capacity();
    let Some(words) = record.read(range, row.overwrite_words(capacity)) else { return false };
    if words < capacity {
        row.overwrite_words(words);
    }
    true
}

/// Latches the record of a key.
#[inline]
fn latch<K: EncodedKey>(store: &Entries, key: K, guard: &Guard<'_>) -> Option<Latched> {
    loop {
        let handle = store.index().get(key, guard).handle?;
        // SAFETY: the handle was found under the guard.
        if let Some(latched) = unsafe { Record::from_handle(handle) }.latch() {
            return Some(latched);
        }
        polychron_sync::spin_hint();
    }
}

/// Inserts a key that is absent. `false`: it is present.
#[inline]
pub(super) fn insert<K: EncodedKey>(store: &Entries, key: K, row: &[u64], guard: &Guard<'_>) -> Result<bool, Error> {
    let record = Record::new(row, guard)?;
    let inserted = store.index().insert(key, record.handle(), &mut (), guard);
    if matches!(inserted, Ok(Inserted::New)) {
        return Ok(true);
    }
    // SAFETY: the index did not take the record.
    unsafe { record.free(guard) };
    inserted?;
    Ok(false)
}

/// The put: writes the whole row, whether or not there is one. What was there goes to `old`, if that is wanted.
/// `false`: nothing was there.
pub(super) fn put<K: EncodedKey>(
    store: &Entries,
    key: K,
    row: &[u64],
    old: Option<&mut RowBuffer>,
    guard: &Guard<'_>,
) -> Result<bool, Error> {
    loop {
        if let Some(latched) = latch(store, key, guard) {
            keep(&latched, old);
            replace(store, key, latched, row, guard)?;
            return Ok(true);
        }
        if insert(store, key, row, guard)? {
            return Ok(false);
        }
    }
}

/// Gives a latched record another row, in place where it fits.
#[inline]
fn replace<K: EncodedKey>(
    store: &Entries,
    key: K,
    latched: Latched,
    row: &[u64],
    guard: &Guard<'_>,
) -> Result<(), Error> {
    if row.len() <= latched.record().capacity() {
        latched.write(0, row, row.len());
        return Ok(());
    }
    let larger = Record::new(row, guard)?;
    let replaced = store.index().replace(key, latched.record().handle(), larger.handle(), guard);
    debug_assert!(replaced, "the record was linked and latched");
    latched.unlink(guard);
    Ok(())
}

/// Deletes a key. What was there goes to `old`, if that is wanted. `false`: nothing was there.
#[inline]
fn delete<K: EncodedKey>(store: &Entries, key: K, old: Option<&mut RowBuffer>, guard: &Guard<'_>) -> bool {
    let Some(latched) = latch(store, key, guard) else { return false };
    keep(&latched, old);
    remove(store, key, latched, guard);
    true
}

fn remove<K: EncodedKey>(store: &Entries, key: K, latched: Latched, guard: &Guard<'_>) {
    let removed = store.index().remove(key, latched.record().handle(), guard);
    debug_assert!(removed, "the record was linked and latched");
    latched.unlink(guard);
}

#[inline]
fn keep(latched: &Latched, old: Option<&mut RowBuffer>) {
    if let Some(old) = old {
        latched.copy_to(old.overwrite_words(latched.length()));
    }
}

/// The put after a get: writes what changed of the row in `row`. The record that the get found is latched again unless it
/// was unlinked meanwhile. `false`: the row is gone.
#[inline]
pub(super) fn patch<K: EncodedKey>(
    store: &Entries,
    key: K,
    record: Record,
    changes: Changes,
    row: &RowBuffer,
    old: Option<&mut RowBuffer>,
    guard: &Guard<'_>,
) -> Result<bool, Error> {
    let latched = match record.latch() {
        Some(latched) => latched,
        None => match latch(store, key, guard) {
            Some(latched) => latched,
            None => return Ok(false),
        },
    };
    keep(&latched, old);
    if changes.whole_row() {
        replace(store, key, latched, row.as_words(), guard)?;
    } else {
        // Without variable columns changed, only words of the fixed part are written, which every row has.
        let words = words_of(&changes.bounding_range());
        let length = latched.length();
        latched.write(words.start, &row.as_words()[words], length);
    }
    Ok(true)
}

/// Adds the entry of a row. `false`: another row has the key in this unique index.
fn add_entry(store: &Entries, key: &[u8], primary: &[u8], guard: &Guard<'_>) -> Result<bool, Error> {
    let mut buffer = RowBuffer::new();
    if insert(store, key, entry_words(primary, &mut buffer), guard)? {
        return Ok(true);
    }
    let found = get(store, key, 0..usize::MAX, &mut buffer, guard);
    Ok(found.is_some() && key_in_entry(buffer.as_words()) == primary)
}

/// Takes the entry of a row away, unless another row has the key meanwhile.
fn remove_entry(store: &Entries, key: &[u8], primary: &[u8], guard: &Guard<'_>) {
    let Some(latched) = latch(store, key, guard) else { return };
    let mut buffer = RowBuffer::new();
    keep(&latched, Some(&mut buffer));
    if key_in_entry(buffer.as_words()) == primary {
        remove(store, key, latched, guard);
    }
}

/// Takes the entries of `row` away from these stores.
fn remove_entries<'s>(
    stores: impl Iterator<Item = &'s std::sync::Arc<Entries>>,
    row: RowRef<'_>,
    primary: &[u8],
    guard: &Guard<'_>,
) -> Result<(), Error> {
    for store in stores {
        let mut scratch = KeyScratch::new();
        remove_entry(store, store.extractor.extract(row, &mut scratch)?, primary, guard);
    }
    Ok(())
}

/// Adds the entries of a new row, which is there already. When a unique key is taken, those added go again.
pub(super) fn add_entries(table: &Table, row: RowRef<'_>, guard: &Guard<'_>) -> Result<Insertion, Error> {
    let mut primary = KeyScratch::new();
    let primary = table.primary.extractor.extract(row, &mut primary)?;
    for (position, store) in table.secondaries().enumerate() {
        let mut scratch = KeyScratch::new();
        let added = match store.extractor.extract(row, &mut scratch) {
            Ok(key) => add_entry(store, key, primary, guard),
            Err(error) => Err(error.into()),
        };
        if !matches!(added, Ok(true)) {
            remove_entries(table.secondaries().take(position), row, primary, guard)?;
            added?;
            return Ok(Insertion::Duplicate(store.index_ref.index));
        }
    }
    Ok(Insertion::Inserted)
}

/// Inserts a row and its entries.
#[inline]
pub(super) fn insert_row<K: EncodedKey>(
    table: &Table,
    key: K,
    row: RowRef<'_>,
    guard: &Guard<'_>,
) -> Result<Insertion, Error> {
    if !insert(&table.primary, key, row.as_words(), guard)? {
        return Ok(Insertion::Duplicate(IndexId::PRIMARY));
    }
    if !table.has_secondaries {
        return Ok(Insertion::Inserted);
    }
    let added = add_entries(table, row, guard);
    if !matches!(added, Ok(Insertion::Inserted)) {
        delete(&table.primary, key, None, guard);
    }
    added
}

/// Deletes a row and its entries.
#[inline]
pub(super) fn delete_row<K: EncodedKey>(table: &Table, key: K, guard: &Guard<'_>) -> Result<bool, Error> {
    if !table.has_secondaries {
        return Ok(delete(&table.primary, key, None, guard));
    }
    let mut old = RowBuffer::new();
    if !delete(&table.primary, key, Some(&mut old), guard) {
        return Ok(false);
    }
    let mut primary = KeyScratch::new();
    let primary = table.primary.extractor.extract(old.as_row(), &mut primary)?;
    remove_entries(table.secondaries(), old.as_row(), primary, guard)?;
    Ok(true)
}

/// Writes a row and its entries, whether or not there is one.
pub(super) fn put_row<K: EncodedKey>(
    table: &Table,
    key: K,
    row: RowRef<'_>,
    guard: &Guard<'_>,
) -> Result<Insertion, Error> {
    if !table.has_secondaries {
        put(&table.primary, key, row.as_words(), None, guard)?;
        return Ok(Insertion::Inserted);
    }
    let mut old = RowBuffer::new();
    loop {
        match get(&table.primary, key, 0..usize::MAX, &mut old, guard) {
            None => match insert_row(table, key, row, guard)? {
                Insertion::Duplicate(IndexId::PRIMARY) => {}
                insertion => return Ok(insertion),
            },
            Some(record) => {
                let mut new = RowBuffer::new();
                new.copy_from(row.as_bytes());
                match change_row(table, key, record, Changes::ALL, &old, &new, guard)? {
                    Changed::Done => return Ok(Insertion::Inserted),
                    Changed::Duplicate(index) => return Ok(Insertion::Duplicate(index)),
                    Changed::Gone => {}
                }
            }
        }
    }
}

/// What changing a row came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changed {
    Done,
    Gone,
    /// Another row has the new key in this unique index.
    Duplicate(IndexId),
}

/// Changes a row whose indexed columns may change: `seen` is the whole row as it was read, `row` as it is to be.
pub(super) fn change_row<K: EncodedKey>(
    table: &Table,
    key: K,
    record: Record,
    changes: Changes,
    seen: &RowBuffer,
    row: &RowBuffer,
    guard: &Guard<'_>,
) -> Result<Changed, Error> {
    let mut primary = KeyScratch::new();
    let primary = table.primary.extractor.extract(seen.as_row(), &mut primary)?;
    let affected = || table.affected(changes.columns());
    // Entries that the row has already stay: only those that were added go.
    let undo =
        |store: &std::sync::Arc<Entries>| take_entry(store, row.as_row(), seen.as_row(), primary, guard).map(drop);
    for (position, store) in affected().enumerate() {
        let mut scratch = KeyScratch::new();
        let added = match store.extractor.extract(row.as_row(), &mut scratch) {
            Ok(key) => add_entry(store, key, primary, guard),
            Err(error) => Err(error.into()),
        };
        if !matches!(added, Ok(true)) {
            affected().take(position).try_for_each(undo)?;
            added?;
            return Ok(Changed::Duplicate(store.index_ref.index));
        }
    }
    let mut old = RowBuffer::new();
    match patch(&table.primary, key, record, changes, row, Some(&mut old), guard) {
        Ok(true) => {}
        Ok(false) => {
            remove_entries(affected(), row.as_row(), primary, guard)?;
            return Ok(Changed::Gone);
        }
        Err(error) => {
            affected().try_for_each(undo)?;
            return Err(error);
        }
    }
    let mut new = old.clone();
    if changes.whole_row() {
        new.copy_from(row.as_row().as_bytes());
    } else {
        let words = words_of(&changes.bounding_range());
        new.words_mut()[words.clone()].copy_from_slice(&row.as_words()[words]);
    }
    for store in affected() {
        // When another's put came between, the row that stands now is not the one that was foreseen.
        if take_entry(store, row.as_row(), new.as_row(), primary, guard)? {
            let mut scratch = KeyScratch::new();
            add_entry(store, store.extractor.extract(new.as_row(), &mut scratch)?, primary, guard)?;
        }
        take_entry(store, old.as_row(), new.as_row(), primary, guard)?;
    }
    Ok(Changed::Done)
}

/// Takes the entry of `from` away unless `to` has the same, and says whether it did. This needs no memory.
fn take_entry(
    store: &Entries,
    from: RowRef<'_>,
    to: RowRef<'_>,
    primary: &[u8],
    guard: &Guard<'_>,
) -> Result<bool, Error> {
    let (mut before, mut after) = (KeyScratch::new(), KeyScratch::new());
    let (before, after) = (store.extractor.extract(from, &mut before)?, store.extractor.extract(to, &mut after)?);
    if before != after {
        remove_entry(store, before, primary, guard);
    }
    Ok(before != after)
}

/// Takes an entry out that leads to no row, or to one that has another key in this index.
pub(super) fn sweep_entry(table: &Table, store: &Entries, key: &[u8], guard: &Guard<'_>) -> Result<(), Error> {
    let (mut entry, mut row) = (RowBuffer::new(), RowBuffer::new());
    if get(store, key, 0..usize::MAX, &mut entry, guard).is_none() {
        return Ok(());
    }
    let primary = key_in_entry(entry.as_words());
    let mut scratch = KeyScratch::new();
    let stands = get(&table.primary, primary, 0..usize::MAX, &mut row, guard).is_some()
        && store.extractor.extract(row.as_row(), &mut scratch)? == key;
    if !stands {
        remove_entry(store, key, primary, guard);
    }
    Ok(())
}

/// Makes the entry of a row in an index that is being filled, as often as the row changes meanwhile.
pub(super) fn fill_entry(table: &Table, store: &Entries, primary: &[u8], guard: &Guard<'_>) -> Result<(), Error> {
    let (mut row, mut again) = (RowBuffer::new(), RowBuffer::new());
    loop {
        if get(&table.primary, primary, 0..usize::MAX, &mut row, guard).is_none() {
            return Ok(());
        }
        let mut scratch = KeyScratch::new();
        let key = store.extractor.extract(row.as_row(), &mut scratch)?;
        let added = add_entry(store, key, primary, guard)?;
        let found = get(&table.primary, primary, 0..usize::MAX, &mut again, guard);
        if found.is_some() && again.as_words() == row.as_words() {
            if added {
                return Ok(());
            }
            return Err(Error::duplicate(table.id, store.index_ref.index));
        }
        remove_entry(store, key, primary, guard);
    }
}
