//! Rows and their secondary indexes: every change of a row changes the entries that lead to it, in the same transaction, and
//! the caller writes only the row.

use std::ops::ControlFlow;

use polychron_base::error::KeyPreview;
use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId, Stop};
use polychron_engine::mutations::left_out;
use polychron_engine::redo::Redo;
use polychron_engine::stores::{check_row, entry_words, key_in_entry};
use polychron_engine::{Insertion, Scan};
use polychron_schema::{Changes, KeyScratch, RowMut, RowRef};

use super::steps::Step;
use super::table::{HekatonTable, Store};
use super::transaction::{Found, HekatonTransaction, Remember};

impl<R: Redo> HekatonTransaction<'_, R> {
    /// Changes a row: a copy of it, which becomes the new version.
    #[inline]
    pub(super) fn change_row<K: EncodedKey>(
        &mut self,
        table: &HekatonTable,
        key: K,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<bool, Stop> {
        let place = table.primary.place;
        let Found::Row(record, version) = self.find(&table.primary, key, Remember::Rows)? else { return Ok(false) };
        if !left_out(Step::RefuseOverwritten) {
            self.check_unwritten(version, place)?;
        }
        let mut row = std::mem::take(&mut self.state.buffers.row);
        let words = version.row().as_words();
        row.overwrite_words(words.len()).copy_from_slice(words);
        let mut changes = Changes::NONE;
        change(&mut RowMut::new(&mut row, &mut changes, table.layout.shape()));
        let mut outcome = Ok(());
        if !changes.is_empty() {
            let before = self.state.sets.writes().len();
            if table.has_secondaries && table.affected(changes.columns()).next().is_some() {
                outcome = self.change_entries(table, changes, version.row(), row.as_row());
            }
            if outcome.is_ok() {
                outcome = self.write_version(place, (record, version), key, row.as_words());
            }
            outcome = self.all_or_nothing(before, outcome);
        }
        self.state.buffers.row = row;
        outcome.map(|()| true)
    }

    /// Moves the secondary entries of a row whose indexed columns change.
    #[cold]
    fn change_entries(
        &mut self,
        table: &HekatonTable,
        changes: Changes,
        old: RowRef<'_>,
        new: RowRef<'_>,
    ) -> Result<(), Stop> {
        let mut primary = KeyScratch::new();
        let primary = table.primary.extractor.extract(old, &mut primary).map_err(Error::from)?;
        for store in table.affected(changes.columns()) {
            let (mut before, mut after) = (KeyScratch::new(), KeyScratch::new());
            let before = store.extractor.extract(old, &mut before).map_err(Error::from)?;
            let after = store.extractor.extract(new, &mut after).map_err(Error::from)?;
            if before == after {
                continue;
            }
            self.delete_entry(store, before)?;
            if !self.add_entry(store, after, primary)? {
                self.stand_by()?;
                return Err(Error::Duplicate { table: table.id, index: store.place.index }.into());
            }
        }
        Ok(())
    }

    #[inline]
    fn add_entry(&mut self, store: &Store, key: &[u8], primary: &[u8]) -> Result<bool, Stop> {
        let mut buffer = std::mem::take(&mut self.state.buffers.entry);
        let outcome = self.insert_entry(store, key, entry_words(primary, &mut buffer));
        self.state.buffers.entry = buffer;
        outcome.map(|inserted| inserted || left_out(Step::RefuseDuplicates))
    }

    /// Inserts a row and its entries.
    #[inline]
    pub(super) fn add_row<K: EncodedKey>(
        &mut self,
        table: &HekatonTable,
        key: K,
        row: RowRef<'_>,
    ) -> Result<Insertion, Stop> {
        check_row(table, row)?;
        let before = self.state.sets.writes().len();
        if !self.insert_entry(&table.primary, key, row.as_words())? {
            self.stand_by()?;
            return Ok(Insertion::Duplicate(IndexId::PRIMARY));
        }
        if table.has_secondaries {
            let outcome = self.add_entries(table, row, before);
            return self.all_or_nothing(before, outcome);
        }
        Ok(Insertion::Inserted)
    }

    /// A key is taken. That is the answer if what this transaction has read on condition has happened: an entry may be there only because
    /// the transaction that moved it, and whose row was read, has been undone since.
    #[cold]
    fn stand_by(&mut self) -> Result<(), Stop> {
        if self.depends_on.is_some() && !self.await_others() { Err(self.cascade()) } else { Ok(()) }
    }

    /// Undoes the writes from `before` on when an operation failed on its way: the caller may catch the error and go on,
    /// and must then find nothing of it.
    #[inline]
    fn all_or_nothing<O>(&mut self, before: usize, outcome: Result<O, Stop>) -> Result<O, Stop> {
        if outcome.is_err() && !self.doomed && !left_out(Step::UndoOperations) {
            self.undo_writes(before);
        }
        outcome
    }

    /// Adds the entries of a row that was written at `before`; takes all back when a unique key is taken.
    fn add_entries(&mut self, table: &HekatonTable, row: RowRef<'_>, before: usize) -> Result<Insertion, Stop> {
        let mut primary = KeyScratch::new();
        let primary = table.primary.extractor.extract(row, &mut primary).map_err(Error::from)?;
        for store in table.secondaries() {
            let mut scratch = KeyScratch::new();
            let key = store.extractor.extract(row, &mut scratch).map_err(Error::from)?;
            if !self.add_entry(store, key, primary)? {
                self.stand_by()?;
                if !left_out(Step::UndoOperations) {
                    self.undo_writes(before);
                }
                return Ok(Insertion::Duplicate(store.place.index));
            }
        }
        Ok(Insertion::Inserted)
    }

    /// Makes the entry of a row in one index, if the row exists. An entry that its writer made already is left.
    ///
    /// Where reads are not validated, the row is written again as it is: so whoever changes it meanwhile conflicts.
    pub(super) fn make_entry(&mut self, table: &HekatonTable, store: &Store, primary: &[u8]) -> Result<(), Stop> {
        let Found::Row(record, version) = self.find(&table.primary, primary, Remember::Rows)? else { return Ok(()) };
        let mut scratch = KeyScratch::new();
        let key = store.extractor.extract(version.row(), &mut scratch).map_err(Error::from)?;
        if !self.add_entry(store, key, primary)? {
            let same = match self.find(store, key, Remember::Rows)? {
                Found::Row(_, entry) => key_in_entry(entry.row().as_words()) == primary,
                Found::Nothing => false,
            };
            if !same {
                return Err(Error::Duplicate { table: table.id, index: store.place.index }.into());
            }
        }
        if self.shared.options.level.validates() || left_out(Step::LockFilledRows) {
            return Ok(());
        }
        self.write_version(table.primary.place, (record, version), primary, version.row().as_words())
    }

    /// Writes a row whatever is there. Without secondary indexes nothing is read; with them the old row must be known.
    pub(super) fn overwrite_row<K: EncodedKey>(
        &mut self,
        table: &HekatonTable,
        key: K,
        row: RowRef<'_>,
    ) -> Result<Insertion, Stop> {
        check_row(table, row)?;
        if table.has_secondaries {
            let before = self.state.sets.writes().len();
            let outcome = match self.remove_row(table, key) {
                Ok(_) => self.add_row(table, key, row),
                Err(stop) => Err(stop),
            };
            if matches!(outcome, Ok(Insertion::Duplicate(_))) {
                self.undo_writes(before);
            }
            return self.all_or_nothing(before, outcome);
        }
        self.put_entry(&table.primary, key, row.as_words())?;
        Ok(Insertion::Inserted)
    }

    /// Deletes a row and its entries.
    #[inline]
    pub(super) fn remove_row<K: EncodedKey>(&mut self, table: &HekatonTable, key: K) -> Result<bool, Stop> {
        if !table.has_secondaries {
            return self.delete_entry(&table.primary, key);
        }
        let place = table.primary.place;
        let Found::Row(record, version) = self.find(&table.primary, key, Remember::Nothing)? else {
            return Ok(false);
        };
        let before = self.state.sets.writes().len();
        let mut outcome = self.end_version(place, (record, version), key);
        for store in table.secondaries() {
            if outcome.is_err() {
                break;
            }
            let mut scratch = KeyScratch::new();
            outcome = match store.extractor.extract(version.row(), &mut scratch) {
                Ok(entry) => self.delete_entry(store, entry).map(drop),
                Err(error) => Err(Error::from(error).into()),
            };
        }
        self.all_or_nothing(before, outcome).map(|()| true)
    }

    /// Visits the rows of a range of any index.
    pub(super) fn visit_rows(
        &mut self,
        scan: &Scan<'_>,
        table: &HekatonTable,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        if scan.limit == 0 {
            return Ok(());
        }
        let mut left = scan.limit;
        let mut visit = |row: RowRef<'_>| {
            if !scan.restrictions.iter().all(|restriction| restriction.holds(&table.layout, row)) {
                return ControlFlow::Continue(());
            }
            left -= 1;
            let flow = visitor(row);
            if left == 0 { ControlFlow::Break(()) } else { flow }
        };
        if scan.index == IndexId::PRIMARY {
            return self.scan_entries(scan, table, &mut |_, version| Ok(visit(version.row())));
        }
        self.scan_entries(scan, table, &mut |transaction, entry| {
            match transaction.find(&table.primary, key_in_entry(entry.row().as_words()), Remember::Rows)? {
                Found::Row(_, version) => Ok(visit(version.row())),
                // The entry was written by a transaction that has been undone since, or is going to be.
                Found::Nothing => Err(transaction.inconsistent(table)),
            }
        })
    }

    /// A secondary entry leads to no row.
    #[cold]
    fn inconsistent(&mut self, table: &HekatonTable) -> Stop {
        debug_assert!(!self.snapshot || left_out(Step::RefuseOverwritten), "a snapshot is consistent");
        self.conflict(polychron_base::Reason::Inconsistent, table.primary.place, None)
    }

    /// The key in a record's row, for explaining an abort.
    pub(super) fn key_in(&self, table: &HekatonTable, index: IndexId, row: RowRef<'_>) -> Option<KeyPreview> {
        if index != IndexId::PRIMARY {
            return Some(KeyPreview::new(key_in_entry(row.as_words())));
        }
        let mut scratch = KeyScratch::new();
        table.primary.extractor.extract(row, &mut scratch).ok().map(KeyPreview::new)
    }
}
