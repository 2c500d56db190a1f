//! Changes of rows: each changes the entries that lead to the row, in the same transaction, and leaves nothing behind when it fails.

use std::ops::ControlFlow;
use std::sync::Arc;

use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId, TableId};
use polychron_schema::{Changes, KeyScratch, Projection, RowBuffer, RowMut, RowRef};

use super::transaction::{alter, table_of};
use super::{At, Lookup, Point, Primitives, Rewrite, Step};
use crate::Insertion;
use crate::mutations::{left_out, pass};
use crate::stores::{IndexRef, Keyed, StoreTable};

#[inline]
fn key_of<'s, S: Keyed>(store: &S, row: RowRef<'_>, scratch: &'s mut KeyScratch) -> Result<&'s [u8], Error> {
    store.extractor().extract(row, scratch).map_err(|error| {
        let IndexRef { table, index } = store.index_ref();
        Error::from(error).in_index(table, index)
    })
}

/// Runs an operation of several steps. If it fails on its way, or a key is taken, its writes are undone: the client may catch the error
/// and go on, and must then find nothing of it. What the error has told it of a row that was `found` stays protected.
#[inline]
fn whole_or_not<'t, P: Primitives<'t>, K: EncodedKey>(
    transaction: &mut P,
    found: Option<At<'t, P::Store, K>>,
    operation: impl FnOnce(&mut P) -> Result<Insertion, Error>,
) -> Result<Insertion, Error> {
    let mark = transaction.set_mark();
    let outcome = operation(transaction);
    if !matches!(outcome, Ok(Insertion::Inserted)) && !transaction.flags().doomed && !left_out(Step::UndoOperations) {
        transaction.undo_to(mark)?;
        if let Some(at) = found {
            transaction.has_refused(at);
        }
    }
    transaction.forget_mark(mark);
    outcome
}

#[inline(always)]
pub(super) fn change_row<'t, P: Primitives<'t>, K: EncodedKey>(
    transaction: &mut P,
    at: At<'t, P::Store, K>,
    projection: &Projection,
    change: impl FnOnce(&mut RowMut<'_>),
) -> Result<bool, Error> {
    let found = transaction.find(at, Lookup::to_change(projection))?;
    let Some(found) = found else { return Ok(false) };
    let change = match transaction.change_in_place(at.table, found, change) {
        ControlFlow::Continue(change) => change,
        ControlFlow::Break(outcome) => return outcome.map(|()| true),
    };
    let mut row = transaction.copy(at.table, found, projection);
    let mut changes = Changes::NONE;
    change(&mut RowMut::new(&mut row, &mut changes, at.table.layout.shape()));
    transaction.has_looked(at, projection, !changes.is_empty());
    let mut outcome = Ok(());
    if !changes.is_empty() {
        outcome = if at.table.has_secondaries && at.table.affected(changes.columns()).next().is_some() {
            match change_indexed(transaction, at, found, changes, &row) {
                Ok(Insertion::Inserted) => Ok(()),
                Ok(Insertion::Duplicate(index)) => {
                    // The row as it was to be, whatever of it was brought.
                    let row = transaction.buffers().new.as_row();
                    Err(at.table.constraints.duplicate(at.table.id, index, row))
                }
                Err(error) => Err(error),
            }
        } else {
            transaction.overwrite(at, Rewrite { found, row: &mut row, changes })
        };
    }
    transaction.give_back(row);
    outcome.map(|()| true)
}

/// Writes a row of which indexed columns may change, and moves its entries. Of `row` the changed columns are right.
#[cold]
fn change_indexed<'t, P: Primitives<'t>, K: EncodedKey>(
    transaction: &mut P,
    at: At<'t, P::Store, K>,
    found: P::Found,
    changes: Changes,
    row: &RowBuffer,
) -> Result<Insertion, Error> {
    let buffers = transaction.buffers();
    let (mut old, mut new) = (std::mem::take(&mut buffers.old), std::mem::take(&mut buffers.new));
    let outcome = change_indexed_in(transaction, at, found, changes, row, (&mut old, &mut new));
    let buffers = transaction.buffers();
    (buffers.old, buffers.new) = (old, new);
    outcome
}

fn change_indexed_in<'t, P: Primitives<'t>, K: EncodedKey>(
    transaction: &mut P,
    at: At<'t, P::Store, K>,
    found: P::Found,
    changes: Changes,
    row: &RowBuffer,
    (old, new): (&mut RowBuffer, &mut RowBuffer),
) -> Result<Insertion, Error> {
    transaction.copy_whole(at, found, old)?;
    if changes.whole_row() {
        new.copy_from(row.as_bytes());
    } else {
        // Columns that the projection left out are in the old row only.
        new.copy_from(old.as_bytes());
        let words = new.words_mut();
        for bytes in changes.runs(&at.table.layout, old.len()) {
            let run = bytes.start / 8..bytes.end / 8;
            words[run.clone()].copy_from_slice(&row.as_words()[run]);
        }
    }
    let link = transaction.link(found);
    whole_or_not(transaction, Some(at), |this| match move_entries(this, at.table, link, changes, old, new)? {
        Insertion::Inserted => this.overwrite(at, Rewrite { found, row: new, changes }).map(|()| Insertion::Inserted),
        duplicate => Ok(duplicate),
    })
}

/// Moves the entries of a row whose indexed columns change, up to the first one whose key is taken.
fn move_entries<'t, P: Primitives<'t>>(
    transaction: &mut P,
    table: &'t StoreTable<P::Store>,
    link: P::Link,
    changes: Changes,
    old: &RowBuffer,
    new: &RowBuffer,
) -> Result<Insertion, Error> {
    let mut primary = KeyScratch::new();
    let primary = key_of(&*table.primary, old.as_row(), &mut primary)?;
    for store in table.affected(changes.columns()) {
        let (mut before, mut after) = (KeyScratch::new(), KeyScratch::new());
        let before = key_of(&**store, old.as_row(), &mut before)?;
        let after = key_of(&**store, new.as_row(), &mut after)?;
        if before == after {
            continue;
        }
        transaction.delete_entry(At::entry(table, store, before))?;
        if !add_entry(transaction, At::entry(table, store, after), link, primary)? {
            return Ok(Insertion::Duplicate(store.index_ref().index));
        }
    }
    Ok(Insertion::Inserted)
}

/// Adds an entry. `false`: its key is taken.
#[inline]
fn add_entry<'t, P: Primitives<'t>>(
    transaction: &mut P,
    at: At<'t, P::Store, &[u8]>,
    row: P::Link,
    primary: &[u8],
) -> Result<bool, Error> {
    let mut buffer = std::mem::take(&mut transaction.buffers().entry);
    let words = transaction.entry(row, primary, &mut buffer);
    let inserted = transaction.insert_entry(at, words);
    transaction.buffers().entry = buffer;
    if inserted? || left_out(Step::RefuseDuplicates) {
        return Ok(true);
    }
    transaction.check_taken(at, primary)?;
    Ok(false)
}

#[inline]
pub(super) fn add_row<'t, P: Primitives<'t>, K: EncodedKey>(
    transaction: &mut P,
    at: At<'t, P::Store, K>,
    row: RowRef<'_>,
) -> Result<Insertion, Error> {
    if at.table.has_secondaries {
        return whole_or_not(transaction, None::<At<'t, P::Store, K>>, |this| match insert_row(this, at, row)? {
            Some(link) => add_entries(this, at.table, link, row),
            None => Ok(Insertion::Duplicate(IndexId::PRIMARY)),
        });
    }
    let inserted = insert_row(transaction, at, row)?;
    Ok(inserted.map_or(Insertion::Duplicate(IndexId::PRIMARY), |_| Insertion::Inserted))
}

/// Inserts a row without its entries.
#[inline]
fn insert_row<'t, P: Primitives<'t>, K: EncodedKey>(
    transaction: &mut P,
    at: At<'t, P::Store, K>,
    row: RowRef<'_>,
) -> Result<Option<P::Link>, Error> {
    let inserted = transaction.insert(at, row.as_words())?;
    if inserted.is_none() {
        transaction.check_present(at)?;
    }
    Ok(inserted)
}

/// Adds the entries of a row, up to the first one whose key is taken.
fn add_entries<'t, P: Primitives<'t>>(
    transaction: &mut P,
    table: &'t StoreTable<P::Store>,
    link: P::Link,
    row: RowRef<'_>,
) -> Result<Insertion, Error> {
    let mut primary = KeyScratch::new();
    let primary = key_of(&*table.primary, row, &mut primary)?;
    for store in table.secondaries() {
        let mut scratch = KeyScratch::new();
        let key = key_of(&**store, row, &mut scratch)?;
        if !add_entry(transaction, At::entry(table, store, key), link, primary)? {
            return Ok(Insertion::Duplicate(store.index_ref().index));
        }
    }
    Ok(Insertion::Inserted)
}

/// The number of times that a put looks again for a row that others insert and delete meanwhile.
const MOST_LOOKS: u32 = 16;

/// Writes a row whatever is there. With secondary indexes the row that is there must be known.
pub(super) fn put_row<'t, P: Primitives<'t>, K: EncodedKey>(
    transaction: &mut P,
    at: At<'t, P::Store, K>,
    row: RowRef<'_>,
) -> Result<Insertion, Error> {
    if !at.table.has_secondaries {
        return transaction.put(at, row.as_words()).map(|()| Insertion::Inserted);
    }
    let mut looks = 0;
    let found = loop {
        if let Some(found) = transaction.find(at, Lookup::to_change(&Projection::ALL))? {
            break found;
        }
        pass(Point::PutFoundNothing);
        match add_row(transaction, at, row)? {
            // It came meanwhile, and a put knows no duplicate of its own key. That it was not there before is read as well, and the validation refuses it.
            Insertion::Duplicate(IndexId::PRIMARY) if looks < MOST_LOOKS && !left_out(Step::LookAgain) => looks += 1,
            outcome => return Ok(outcome),
        }
    };
    let mut whole = std::mem::take(&mut transaction.buffers().whole);
    whole.copy_from(row.as_bytes());
    let outcome = change_indexed(transaction, at, found, Changes::ALL, &whole);
    transaction.buffers().whole = whole;
    outcome
}

#[inline]
pub(super) fn delete_row<'t, P: Primitives<'t>, K: EncodedKey>(
    transaction: &mut P,
    at: At<'t, P::Store, K>,
) -> Result<bool, Error> {
    let wanted = if at.table.has_secondaries { &Projection::ALL } else { &Projection::NONE };
    let found = transaction.find(at, Lookup::to_delete(wanted))?;
    let Some(found) = found else { return Ok(false) };
    if !at.table.has_secondaries {
        return transaction.delete(at, found).map(|()| true);
    }
    let mut old = std::mem::take(&mut transaction.buffers().old);
    let outcome = whole_or_not(transaction, Some(at), |this| {
        this.copy_whole(at, found, &mut old)?;
        at.table.secondaries().try_for_each(|store| {
            let mut scratch = KeyScratch::new();
            let key = key_of(&**store, old.as_row(), &mut scratch)?;
            this.delete_entry(At::entry(at.table, store, key))
        })?;
        this.delete(at, found).map(|()| Insertion::Inserted)
    });
    transaction.buffers().old = old;
    outcome.map(|_| true)
}

/// Locks the row of a key that is about to be written, where the protocol can ([`Primitives::lock`]).
///
/// # Errors
/// [`Error::Conflict`], [`Error::ReadOnly`], and what the protocol's own wait answers.
pub fn lock_row<'t, P: Primitives<'t>, K: EncodedKey>(
    transaction: &mut P,
    table: TableId,
    key: K,
) -> Result<(), Error> {
    alter(transaction, |this| this.lock(At::row(table_of(this, table)?, key)))
}

/// Makes the entry of a row in an index that is being filled, if the row exists. An entry that its writer made already is left.
///
/// # Errors
/// [`Error::Duplicate`] when another row has the key.
pub fn make_entry<'t, P: Primitives<'t>>(
    transaction: &mut P,
    table: TableId,
    index: IndexId,
    primary: &[u8],
) -> Result<(), Error> {
    transaction.operate(|this| {
        let table = table_of(this, table)?;
        make_entry_in(this, table, table.store(index)?, primary)
    })
}

fn make_entry_in<'t, P: Primitives<'t>>(
    transaction: &mut P,
    table: &'t StoreTable<P::Store>,
    store: &'t Arc<P::Store>,
    primary: &[u8],
) -> Result<(), Error> {
    let Some(found) = transaction.find(At::row(table, primary), Lookup::to_read(&Projection::ALL))? else {
        return Ok(());
    };
    let mut scratch = KeyScratch::new();
    let key = key_of(&**store, transaction.row(found), &mut scratch)?;
    let mut buffer = RowBuffer::new();
    let words = transaction.entry(transaction.link(found), primary, &mut buffer);
    if !transaction.insert_entry(At::entry(table, store, key), words)? {
        let there = transaction.find(At::entry(table, store, key), Lookup::to_read(&Projection::ALL))?;
        if there.is_none_or(|entry| transaction.row(entry).as_words() != words) {
            let row = transaction
                .find(At::row(table, primary), Lookup::to_read(&Projection::ALL))?
                .map(|found| transaction.row(found));
            let index = store.index_ref().index;
            return Err(match row {
                Some(row) => table.constraints.duplicate(table.id, index, row),
                None => Error::duplicate(table.id, index),
            });
        }
    }
    transaction.hold_filled(At::row(table, primary), found)
}
