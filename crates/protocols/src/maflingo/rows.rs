//! Rows and their secondary indexes (§4.4): every change of a row changes the entries that lead to it, in the same
//! transaction, and the caller writes only the row.
//!
//! An entry is a record like any other; its words are the primary key's length in bytes and the key itself.

use std::ops::ControlFlow;

use polychron_base::error::KeyPreview;
use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId, Reason, Stop};
use polychron_engine::mutations::left_out;
use polychron_engine::redo::Redo;
use polychron_engine::stores::{check_row, entry_words, key_in_entry, words_of};
use polychron_engine::{Insertion, Projection, Scan};
use polychron_schema::{Changes, KeyScratch, RowBuffer, RowMut, RowRef};

use super::record::Record;
use super::sets::Kind;
use super::steps::Step;
use super::table::{MaflingoTable, Store};
use super::transaction::{Found, MaflingoTransaction};

/// Sets up to this length are validated before a procedure is told of a duplicate.
const SMALL_SETS: usize = 256;

impl<R: Redo> MaflingoTransaction<'_, R> {
    /// Changes a row in place.
    #[inline]
    pub(super) fn change_row<K: EncodedKey>(
        &mut self,
        table: &MaflingoTable,
        key: K,
        projection: &Projection,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<bool, Stop> {
        let Found::Row(record) = self.find(&table.primary, key, words_of(projection))? else { return Ok(false) };
        let mut changes = Changes::NONE;
        change(&mut RowMut::new(&mut self.state.buffers.row, &mut changes, table.layout.shape()));
        if changes.is_empty() {
            return Ok(true);
        }
        if table.has_secondaries && table.affected(changes.columns()).next().is_some() {
            let before = self.state.sets.writes.len();
            let moved = self.change_entries(table, key, changes);
            self.all_or_nothing(before, moved)?;
        }
        let buffer = &self.state.buffers.row;
        let writes = &mut self.state.sets.writes;
        if changes.whole_row() {
            let data = writes.keep(buffer.as_words());
            self.push_write(record, table.primary.place, Kind::Put, key, 0, data);
        } else {
            let words = words_of(&changes.hull());
            let data = writes.keep(&buffer.as_words()[words.clone()]);
            self.push_write(record, table.primary.place, Kind::Patch, key, words.start, data);
            if self.state.sets.writes.is_much_patched(record) {
                self.write_whole_row(table, key, record)?;
            }
        }
        Ok(true)
    }

    /// Puts one whole row on top of the patches of a record, so that reading an own write goes back over a few of them, however often
    /// the row is changed. What is read of the record itself was read under protection before its first patch.
    #[cold]
    fn write_whole_row<K: EncodedKey>(&mut self, table: &MaflingoTable, key: K, record: Record) -> Result<(), Stop> {
        let place = table.primary.place;
        let latest = self.state.sets.writes.latest(record);
        if !latest.is_some_and(|latest| self.read_own(record, latest, 0..usize::MAX).present) {
            // There was a row when it was patched.
            return Err(self.conflict(Reason::StaleRead, place, Some(record)));
        }
        let data = self.state.sets.writes.keep(self.state.buffers.row.as_words());
        self.push_write(record, place, Kind::Put, key, 0, data);
        Ok(())
    }

    /// Moves the secondary entries of a row whose indexed columns change. The changed row is in the row buffer, with at
    /// least the changed columns; the old row is read again, whole.
    #[cold]
    fn change_entries<K: EncodedKey>(&mut self, table: &MaflingoTable, key: K, changes: Changes) -> Result<(), Stop> {
        let changed = std::mem::take(&mut self.state.buffers.row);
        let outcome = self.change_entries_to(table, key, changes, &changed);
        self.state.buffers.row = changed;
        outcome
    }

    fn change_entries_to<K: EncodedKey>(
        &mut self,
        table: &MaflingoTable,
        key: K,
        changes: Changes,
        changed: &RowBuffer,
    ) -> Result<(), Stop> {
        let mut primary = KeyScratch::new();
        let Found::Row(_) = self.find(&table.primary, key, 0..usize::MAX)? else { return Ok(()) };
        let old = std::mem::take(&mut self.state.buffers.row);
        // Columns that the projection left out are in the old row only.
        let mut new = old.clone();
        if changes.whole_row() {
            new.copy_from(changed.as_bytes());
        } else {
            let words = words_of(&changes.hull());
            new.words_mut()[words.clone()].copy_from_slice(&changed.as_words()[words]);
        }
        let primary = table.primary.extractor.extract(old.as_row(), &mut primary).map_err(Error::from)?;
        for store in table.affected(changes.columns()) {
            let (mut before, mut after) = (KeyScratch::new(), KeyScratch::new());
            let before = store.extractor.extract(old.as_row(), &mut before).map_err(Error::from)?;
            let after = store.extractor.extract(new.as_row(), &mut after).map_err(Error::from)?;
            if before == after {
                continue;
            }
            self.delete_entry(store, before)?;
            if !self.add_entry(store, after, primary)? {
                self.check_duplicate(store, after, primary)?;
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
        table: &MaflingoTable,
        key: K,
        row: RowRef<'_>,
    ) -> Result<Insertion, Stop> {
        check_row(table, row)?;
        let before = self.state.sets.writes.len();
        let words = row.as_words();
        if !self.insert_entry(&table.primary, key, words)? {
            self.check_small_sets()?;
            return Ok(Insertion::Duplicate(IndexId::PRIMARY));
        }
        if table.has_secondaries {
            let outcome = self.add_entries(table, row, before);
            return self.all_or_nothing(before, outcome);
        }
        Ok(Insertion::Inserted)
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

    /// Adds the entries of a row whose record was written at `before`; takes all back when a unique key is taken.
    fn add_entries(&mut self, table: &MaflingoTable, row: RowRef<'_>, before: usize) -> Result<Insertion, Stop> {
        let mut primary = KeyScratch::new();
        let primary = table.primary.extractor.extract(row, &mut primary).map_err(Error::from)?;
        for store in table.secondaries() {
            let mut scratch = KeyScratch::new();
            let key = store.extractor.extract(row, &mut scratch).map_err(Error::from)?;
            if !self.add_entry(store, key, primary)? {
                self.check_duplicate(store, key, primary)?;
                if !left_out(Step::UndoOperations) {
                    self.undo_writes(before);
                }
                return Ok(Insertion::Duplicate(store.place.index));
            }
        }
        Ok(Insertion::Inserted)
    }

    /// Before a procedure is told that another row has a key: that has to come of reads that stand together. An entry that leads to
    /// the row itself does not, whether or not the index is unique: it is of a state in which the row had the key already.
    #[cold]
    fn check_duplicate(&mut self, store: &Store, key: &[u8], primary: &[u8]) -> Result<(), Stop> {
        let row = std::mem::take(&mut self.state.buffers.row);
        let found = self.find(store, key, 0..usize::MAX);
        let entry = std::mem::replace(&mut self.state.buffers.row, row);
        if !matches!(found?, Found::Row(_)) || key_in_entry(entry.as_words()) == primary {
            return Err(self.conflict_over(Reason::Inconsistent, store.place, None, Some(KeyPreview::new(primary))));
        }
        self.check_small_sets()
    }

    /// Validates what was read, where that takes few steps: answers that end most procedures are not given on a stale read. What large
    /// transactions were told is validated at their end, like everything else.
    #[cold]
    fn check_small_sets(&mut self) -> Result<(), Stop> {
        let sets = &self.state.sets;
        if sets.reads.len() + sets.nodes.len() <= SMALL_SETS { self.validate() } else { Ok(()) }
    }

    /// Makes the entry of a row in one index, if the row exists. An entry that its writer made already is left.
    pub(super) fn make_entry(&mut self, table: &MaflingoTable, store: &Store, primary: &[u8]) -> Result<(), Stop> {
        let Found::Row(_) = self.find(&table.primary, primary, 0..usize::MAX)? else { return Ok(()) };
        let row = std::mem::take(&mut self.state.buffers.row);
        let mut scratch = KeyScratch::new();
        let key = store.extractor.extract(row.as_row(), &mut scratch).map_err(Error::from)?;
        if !self.add_entry(store, key, primary)? {
            let same = matches!(self.find(store, key, 0..usize::MAX)?, Found::Row(_))
                && key_in_entry(self.state.buffers.row.as_words()) == primary;
            if !same {
                return Err(Error::Duplicate { table: table.id, index: store.place.index }.into());
            }
        }
        Ok(())
    }

    /// Writes a row whatever is there. Without secondary indexes nothing is read; with them the old row must be known.
    pub(super) fn overwrite_row<K: EncodedKey>(
        &mut self,
        table: &MaflingoTable,
        key: K,
        row: RowRef<'_>,
    ) -> Result<Insertion, Stop> {
        check_row(table, row)?;
        if table.has_secondaries {
            let before = self.state.sets.writes.len();
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
    pub(super) fn remove_row<K: EncodedKey>(&mut self, table: &MaflingoTable, key: K) -> Result<bool, Stop> {
        if !table.has_secondaries {
            return self.delete_entry(&table.primary, key);
        }
        let Found::Row(record) = self.find(&table.primary, key, 0..usize::MAX)? else { return Ok(false) };
        let old = std::mem::take(&mut self.state.buffers.old);
        let row = std::mem::replace(&mut self.state.buffers.row, old);
        let (before, mut outcome) = (self.state.sets.writes.len(), Ok(true));
        for store in table.secondaries() {
            let mut scratch = KeyScratch::new();
            outcome = match store.extractor.extract(row.as_row(), &mut scratch) {
                Ok(entry) => self.delete_entry(store, entry),
                Err(error) => Err(Error::from(error).into()),
            };
            if outcome.is_err() {
                break;
            }
        }
        self.state.buffers.old = row;
        self.all_or_nothing(before, outcome)?;
        self.push_write(record, table.primary.place, Kind::Delete, key, 0, Default::default());
        Ok(true)
    }

    /// Visits the rows of a range of any index.
    pub(super) fn visit_rows(
        &mut self,
        scan: &Scan<'_>,
        table: &MaflingoTable,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        let mut left = scan.limit;
        let mut wanted = words_of(&scan.projection);
        if !scan.restrictions.is_empty() {
            wanted = 0..usize::MAX;
        }
        let mut visit = |row: RowRef<'_>| {
            if !scan.restrictions.iter().all(|restriction| restriction.holds(&table.layout, row)) {
                return ControlFlow::Continue(());
            }
            left -= 1;
            let flow = visitor(row);
            if left == 0 { ControlFlow::Break(()) } else { flow }
        };
        if scan.limit == 0 {
            return Ok(());
        }
        if scan.index == IndexId::PRIMARY {
            return self.scan_entries(scan, table, wanted, &mut |transaction| Ok(visit(transaction.row())));
        }
        self.scan_entries(scan, table, 0..usize::MAX, &mut |transaction| {
            let entry = std::mem::take(&mut transaction.state.buffers.entry);
            let entry = std::mem::replace(&mut transaction.state.buffers.row, entry);
            let found = transaction.find(&table.primary, key_in_entry(entry.as_words()), wanted.clone());
            transaction.state.buffers.entry = entry;
            match found? {
                Found::Row(_) => Ok(visit(transaction.row())),
                // The entry and the row did not stand together; validation would find that out too.
                _ => Err(transaction.inconsistent(table)),
            }
        })
    }

    /// The secondary entry in its buffer leads to no row: what was read is of different times.
    #[cold]
    fn inconsistent(&mut self, table: &MaflingoTable) -> Stop {
        debug_assert!(self.snapshot.is_none(), "a snapshot is consistent");
        let key = KeyPreview::new(key_in_entry(self.state.buffers.entry.as_words()));
        self.conflict_over(Reason::Inconsistent, table.primary.place, None, Some(key))
    }

    /// The key in a record's words, for explaining an abort.
    pub(super) fn key_in(&self, table: &MaflingoTable, index: IndexId, words: &[u64]) -> Option<KeyPreview> {
        if index != IndexId::PRIMARY {
            return Some(KeyPreview::new(key_in_entry(words)));
        }
        let mut scratch = KeyScratch::new();
        table.primary.extractor.extract(RowRef::from_words(words), &mut scratch).ok().map(KeyPreview::new)
    }
}
