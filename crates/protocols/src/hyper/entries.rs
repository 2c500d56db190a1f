//! Rows and their secondary indexes: every change of a row changes the entries that lead to it, in the same transaction, and
//! the caller writes only the row. An entry whose key changes is deleted and inserted anew (§2.5 of the paper).

use std::ops::{Bound, Range};

use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId, Reason, Stop};
use polychron_engine::mutations::left_out;
use polychron_engine::redo::Redo;
use polychron_engine::stores::check_row;
use polychron_engine::{Insertion, Projection};
use polychron_schema::{Changes, ColumnSet, KeyScratch, RowBuffer, RowMut, RowRef};

use super::rows::Record;
use super::steps::Step;
use super::table::{HyperTable, Relation};
use super::transaction::HyperTransaction;
use super::writes::{Conflict, NewRow};

impl<'w, R: Redo> HyperTransaction<'w, R> {
    /// Logs that a key of an index was seen to lead to a row, or to none.
    pub(super) fn log_key(&mut self, table: &HyperTable, index: IndexId, key: &[u8]) {
        if self.logs() {
            let bounds = (Bound::Included(key), Bound::Included(key));
            self.state.log.path(table.id, index, bounds, &[], ColumnSet::EMPTY, None);
        }
    }

    /// Changes a row in place. Of a row of which no indexed column changes only what the change looks at is read.
    #[inline]
    pub(super) fn change_row<K: EncodedKey>(
        &mut self,
        table: &'w HyperTable,
        key: K,
        projection: &Projection,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<bool, Stop> {
        let Some((record, seen)) = self.find_seen(&table.primary, key, projection) else {
            self.log_point(table.id, key, ColumnSet::EMPTY);
            return Ok(false);
        };
        if let Err(conflict) = self.check_version(seen.version, seen.settled) {
            return Err(self.refuse(conflict, &table.primary, key));
        }
        let mut row = std::mem::take(&mut self.state.buffers.other);
        std::mem::swap(&mut row, &mut self.state.buffers.row);
        let mut changes = Changes::NONE;
        let logs = self.logs();
        if logs {
            self.state.log.begin_to_show(table.id);
        }
        change(&mut RowMut::new(&mut row, &mut changes, table.layout.shape()));
        if logs {
            self.state.log.has_shown();
        }
        let outcome = if changes.is_empty() {
            // Nothing is written, so nothing but a predicate protects what was looked at.
            if !left_out(Step::LogLooks) {
                self.log_point(table.id, key, projection.columns);
            }
            Ok(())
        } else if table.has_secondaries && table.affected(changes.columns()).next().is_some() {
            self.write_indexed(table, record, key, changes, &row)
        } else {
            self.write_changes(table, record, key, changes, &row)
        };
        self.state.buffers.other = row;
        outcome.map(|()| true)
    }

    /// Writes the changed columns of a row.
    #[inline]
    fn write_changes<K: EncodedKey>(
        &mut self,
        table: &'w HyperTable,
        record: Record<'w>,
        key: K,
        changes: Changes,
        row: &RowBuffer,
    ) -> Result<(), Stop> {
        let pieces = word_pieces(table, changes);
        let new = NewRow { words: row.as_words(), columns: changes.columns(), whole: changes.whole_row() };
        self.overwrite(&table.primary, record, key, new, pieces)
    }

    /// Writes the changed columns of a row, and moves the entries that lead to it.
    #[cold]
    fn write_indexed<K: EncodedKey>(
        &mut self,
        table: &'w HyperTable,
        record: Record<'w>,
        key: K,
        changes: Changes,
        row: &RowBuffer,
    ) -> Result<(), Stop> {
        self.see(record, &Projection::ALL);
        let mut new = std::mem::take(&mut self.state.buffers.whole);
        if changes.whole_row() {
            new.copy_from(row.as_row().as_bytes());
        } else {
            new.copy_from(self.state.buffers.row.as_row().as_bytes());
            let words = new.len() / 8;
            for piece in word_pieces(table, changes) {
                new.overwrite_words(words)[piece.clone()].copy_from_slice(&row.as_words()[piece]);
            }
        }
        let before = self.state.writing.images().len();
        let mut outcome = self.write_changes(table, record, key, changes, row);
        if outcome.is_ok() {
            outcome = self.change_entries(table, record, changes, new.as_row());
        }
        self.state.buffers.whole = new;
        self.all_or_nothing(before, outcome)
    }

    /// Moves the secondary entries of a row whose indexed columns change.
    fn change_entries(
        &mut self,
        table: &'w HyperTable,
        record: Record<'w>,
        changes: Changes,
        new: RowRef<'_>,
    ) -> Result<(), Stop> {
        let old = std::mem::take(&mut self.state.buffers.row);
        let outcome = table.affected(changes.columns()).try_for_each(|store| {
            let (mut before, mut after) = (KeyScratch::new(), KeyScratch::new());
            let before = store.extractor.extract(old.as_row(), &mut before).map_err(Error::from)?;
            let after = store.extractor.extract(new, &mut after).map_err(Error::from)?;
            if before == after {
                return Ok(());
            }
            self.delete_entry(store, before)?;
            if self.add_entry(table, store, after, record.id())? {
                return Ok(());
            }
            Err(Error::Duplicate { table: table.id, index: store.place().index }.into())
        });
        self.state.buffers.row = old;
        outcome
    }

    #[inline]
    fn add_entry(&mut self, table: &'w HyperTable, store: &'w Relation, key: &[u8], row: u64) -> Result<bool, Stop> {
        if self.insert_record(store, key, &[row])?.is_some() || left_out(Step::RefuseDuplicates) {
            return Ok(true);
        }
        if store.is_dropped() {
            // The row may have gone, and its entry not.
            return Err(self.conflict(Reason::Inconsistent, store.place(), Some(key)));
        }
        if !left_out(Step::LogDuplicates) {
            self.log_key(table, store.place().index, key);
        }
        Ok(false)
    }

    fn delete_entry(&mut self, store: &'w Relation, key: &[u8]) -> Result<(), Stop> {
        match self.find_shown(store, key, &mut []) {
            Some(entry) => self.erase(store, entry, key),
            // The index is being filled, and has not come to this row.
            None => Ok(()),
        }
    }

    /// Inserts a row and its entries.
    #[inline]
    pub(super) fn add_row<K: EncodedKey>(
        &mut self,
        table: &'w HyperTable,
        key: K,
        row: RowRef<'_>,
    ) -> Result<Insertion, Stop> {
        check_row(table, row)?;
        let before = self.state.writing.images().len();
        let Some(record) = self.insert_record(&table.primary, key, row.as_words())? else {
            if !left_out(Step::LogDuplicates) {
                self.log_point(table.id, key, ColumnSet::EMPTY);
            }
            return Ok(Insertion::Duplicate(IndexId::PRIMARY));
        };
        if table.has_secondaries {
            let outcome = self.add_entries(table, record, row);
            return self.all_inserted_or_nothing(before, outcome);
        }
        Ok(Insertion::Inserted)
    }

    /// Undoes the writes from `before` on when an operation failed on its way: the caller may catch the error and go on,
    /// and must then find nothing of it.
    #[inline]
    fn all_or_nothing<O>(&mut self, before: usize, outcome: Result<O, Stop>) -> Result<O, Stop> {
        if outcome.is_err() && !self.doomed && !left_out(Step::UndoOperations) {
            self.undo_to(before);
        }
        outcome
    }

    /// As [`Self::all_or_nothing`]; a duplicate is a failure, too.
    fn all_inserted_or_nothing(&mut self, before: usize, outcome: Result<Insertion, Stop>) -> Result<Insertion, Stop> {
        if matches!(outcome, Ok(Insertion::Duplicate(_))) && !left_out(Step::UndoOperations) {
            self.undo_to(before);
        }
        self.all_or_nothing(before, outcome)
    }

    /// Adds the entries of a row that was inserted, up to the first unique key that is taken.
    fn add_entries(&mut self, table: &'w HyperTable, record: Record<'w>, row: RowRef<'_>) -> Result<Insertion, Stop> {
        for store in table.secondaries() {
            let mut scratch = KeyScratch::new();
            let key = store.extractor.extract(row, &mut scratch).map_err(Error::from)?;
            if !self.add_entry(table, store, key, record.id())? {
                return Ok(Insertion::Duplicate(store.place().index));
            }
        }
        Ok(Insertion::Inserted)
    }

    /// Makes the entry of a row in one index, if the row exists. An entry that its writer made already is left.
    ///
    /// The row is written, too, with nothing changed: so whoever changes it meanwhile conflicts.
    pub(super) fn make_entry(
        &mut self,
        table: &'w HyperTable,
        store: &'w Relation,
        primary: &[u8],
    ) -> Result<(), Stop> {
        let Some((record, _)) = self.find_seen(&table.primary, primary, &Projection::ALL) else { return Ok(()) };
        let row = std::mem::take(&mut self.state.buffers.row);
        let outcome = self.make_entry_of(table, store, record, row.as_row());
        self.state.buffers.row = row;
        outcome?;
        if left_out(Step::LockFilledRows) {
            return Ok(());
        }
        let same = NewRow { words: &[], columns: ColumnSet::EMPTY, whole: false };
        self.overwrite(&table.primary, record, primary, same, std::iter::empty())
    }

    fn make_entry_of(
        &mut self,
        table: &'w HyperTable,
        store: &'w Relation,
        record: Record<'w>,
        row: RowRef<'_>,
    ) -> Result<(), Stop> {
        let mut scratch = KeyScratch::new();
        let key = store.extractor.extract(row, &mut scratch).map_err(Error::from)?;
        if self.add_entry(table, store, key, record.id())? {
            return Ok(());
        }
        let mut leads_to = [0];
        let shows = self.find_shown(store, key, &mut leads_to).is_some() && leads_to == [record.id()];
        if shows { Ok(()) } else { Err(Error::Duplicate { table: table.id, index: store.place().index }.into()) }
    }

    /// Writes a row whatever is there. Without secondary indexes nothing is read; with them the old row must be known.
    pub(super) fn overwrite_row<K: EncodedKey>(
        &mut self,
        table: &'w HyperTable,
        key: K,
        row: RowRef<'_>,
    ) -> Result<Insertion, Stop> {
        check_row(table, row)?;
        if table.has_secondaries {
            let before = self.state.writing.images().len();
            let outcome = match self.remove_row(table, key) {
                Ok(_) => self.add_row(table, key, row),
                Err(stop) => Err(stop),
            };
            return self.all_inserted_or_nothing(before, outcome);
        }
        let store = &table.primary;
        if let Some((record, _)) = self.find_seen(store, key, &Projection::NONE) {
            let pieces = std::iter::once(0..store.rows.words());
            let new = NewRow { words: row.as_words(), columns: ColumnSet::ALL, whole: true };
            self.overwrite(store, record, key, new, pieces)?;
        } else if self.insert_record(store, key, row.as_words())?.is_none() {
            return Err(self.refuse(Conflict { reason: Reason::InsertedFirst, stamp: 0 }, store, key));
        }
        Ok(Insertion::Inserted)
    }

    /// Deletes a row and its entries.
    #[inline]
    pub(super) fn remove_row<K: EncodedKey>(&mut self, table: &'w HyperTable, key: K) -> Result<bool, Stop> {
        let wanted = if table.has_secondaries { &Projection::ALL } else { &Projection::NONE };
        let Some((record, _)) = self.find_seen(&table.primary, key, wanted) else {
            self.log_point(table.id, key, ColumnSet::EMPTY);
            return Ok(false);
        };
        let before = self.state.writing.images().len();
        let mut outcome = self.erase(&table.primary, record, key);
        if outcome.is_ok() && table.has_secondaries {
            let row = std::mem::take(&mut self.state.buffers.row);
            outcome = table.secondaries().try_for_each(|store| {
                let mut scratch = KeyScratch::new();
                let entry = store.extractor.extract(row.as_row(), &mut scratch).map_err(Error::from)?;
                self.delete_entry(store, entry)
            });
            self.state.buffers.row = row;
        }
        self.all_or_nothing(before, outcome).map(|()| true)
    }
}

/// The words that changes touch.
#[inline]
fn word_pieces(table: &HyperTable, changes: Changes) -> impl Iterator<Item = Range<usize>> + Clone {
    let fixed_bytes = table.primary.rows.words() * 8;
    changes.pieces(&table.layout, fixed_bytes).map(|bytes| bytes.start / 8..bytes.end / 8)
}
