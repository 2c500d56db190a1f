//! Rows and their secondary indexes: every change of a row changes the entries that lead to it, in the same transaction, and
//! the caller writes only the row.

use std::ops::ControlFlow;

use polychron_base::error::KeyPreview;
use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId, Reason, Stop};
use polychron_engine::mutations::left_out;
use polychron_engine::redo::Redo;
use polychron_engine::stores::{check_row, entry_words, key_in_entry};
use polychron_engine::{Insertion, Scan};
use polychron_schema::{Changes, KeyScratch, RowBuffer, RowMut, RowRef};

use super::sets::{Kind, Target, Write};
use super::steps::Step;
use super::table::{CicadaTable, Store};
use super::transaction::CicadaTransaction;

impl<R: Redo> CicadaTransaction<'_, R> {
    /// Changes a row: a copy of it, which becomes the new version.
    #[inline]
    pub(super) fn change_row<K: EncodedKey>(
        &mut self,
        table: &CicadaTable,
        key: K,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<bool, Stop> {
        let store = &*table.primary;
        let Some((target, source)) = self.find_row(store, key)? else { return Ok(false) };
        self.check_early(target, source, store.place())?;
        let mut row = std::mem::take(&mut self.state.buffers.row);
        let words = self.row(source).as_words();
        row.overwrite_words(words.len()).copy_from_slice(words);
        let mut changes = Changes::NONE;
        change(&mut RowMut::new(&mut row, &mut changes, table.layout.shape()));
        let mut outcome = Ok(true);
        if !changes.is_empty() {
            if table.has_secondaries && table.affected(changes.columns()).next().is_some() {
                let before = self.state.sets.writes.set_floor();
                let mut old = std::mem::take(&mut self.state.buffers.old);
                old.copy_from(self.row(source).as_bytes());
                let moved = self.change_entries(table, changes, &old, &row);
                self.state.buffers.old = old;
                outcome = self.all_or_nothing(before, moved).map(|()| true);
            }
            if outcome.is_ok() {
                let key = (R::ENABLED || target == Target::Key).then_some(key);
                let write = Write::new(target, store.place(), Kind::Put);
                self.state.sets.writes.push(write, key, Some(&mut row));
            }
        }
        self.state.buffers.row = row;
        outcome
    }

    /// Moves the secondary entries of a row whose indexed columns change.
    #[cold]
    fn change_entries(
        &mut self,
        table: &CicadaTable,
        changes: Changes,
        old: &RowBuffer,
        new: &RowBuffer,
    ) -> Result<(), Stop> {
        let mut primary = KeyScratch::new();
        let primary = table.primary.entries.extractor.extract(old.as_row(), &mut primary).map_err(Error::from)?;
        for store in table.affected(changes.columns()) {
            let (mut before, mut after) = (KeyScratch::new(), KeyScratch::new());
            let before = store.entries.extractor.extract(old.as_row(), &mut before).map_err(Error::from)?;
            let after = store.entries.extractor.extract(new.as_row(), &mut after).map_err(Error::from)?;
            if before == after {
                continue;
            }
            self.delete_entry(store, before)?;
            if !self.add_entry(store, after, primary)? {
                self.check_taken(table, store, after, primary)?;
                return Err(Error::Duplicate { table: table.id, index: store.place().index }.into());
            }
        }
        Ok(())
    }

    /// A secondary key is taken. That is a duplicate if another row has the key; if the entry leads to the very row that is written,
    /// or to one that has another key, the entry and what was read of the rows are of different transactions, and the
    /// caller is told of the conflict, not of a duplicate that may never have been.
    #[cold]
    fn check_taken(&mut self, table: &CicadaTable, store: &Store, key: &[u8], primary: &[u8]) -> Result<(), Stop> {
        if let Some((_, entry)) = self.find_row(store, key)? {
            let owner = key_in_entry(self.row(entry).as_words()).to_vec();
            if owner != primary
                && let Some((_, source)) = self.find_row(&table.primary, &owner[..])?
            {
                let mut scratch = KeyScratch::new();
                if store.entries.extractor.extract(self.row(source), &mut scratch).is_ok_and(|owned| owned == key) {
                    return Ok(());
                }
            }
        }
        Err(self.conflict(Reason::Inconsistent, store.place(), None))
    }

    #[inline]
    fn add_entry(&mut self, store: &Store, key: &[u8], primary: &[u8]) -> Result<bool, Stop> {
        if !store.entries.is_ready() && !self.follows_unknowing(store) {
            return Err(self.conflict(Reason::Inconsistent, store.place(), None));
        }
        let mut entry = std::mem::take(&mut self.state.buffers.entry);
        entry_words(primary, &mut entry);
        let outcome = self.insert_entry(store, key, &mut entry);
        self.state.buffers.entry = entry;
        outcome.map(|inserted| inserted || left_out(Step::RefuseDuplicates))
    }

    /// Whether this transaction comes after all that write the table and do not know a new index of it: then it sees what they
    /// did to the rows whose entries it makes. There is a moment in which nobody can tell.
    #[cold]
    fn follows_unknowing(&self, store: &Store) -> bool {
        left_out(Step::FollowUnknowing)
            || store.known_after().is_some_and(|unknowing| self.state.clock.adjusted > unknowing)
    }

    /// Inserts a row and its entries.
    #[inline]
    pub(super) fn add_row<K: EncodedKey>(
        &mut self,
        table: &CicadaTable,
        key: K,
        row: RowRef<'_>,
    ) -> Result<Insertion, Stop> {
        check_row(table, row)?;
        let mut before = 0;
        if table.has_secondaries {
            before = self.state.sets.writes.set_floor();
        }
        let mut buffer = std::mem::take(&mut self.state.buffers.row);
        buffer.copy_from(row.as_bytes());
        let inserted = self.insert_entry(&table.primary, key, &mut buffer);
        self.state.buffers.row = buffer;
        if !inserted? {
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
            self.state.sets.undo_writes(before);
        }
        outcome
    }

    /// Adds the entries of a row that was written at `before`; takes all back when a unique key is taken.
    fn add_entries(&mut self, table: &CicadaTable, row: RowRef<'_>, before: usize) -> Result<Insertion, Stop> {
        let mut primary = KeyScratch::new();
        let primary = table.primary.entries.extractor.extract(row, &mut primary).map_err(Error::from)?;
        for store in table.secondaries() {
            let mut scratch = KeyScratch::new();
            let key = store.entries.extractor.extract(row, &mut scratch).map_err(Error::from)?;
            if !self.add_entry(store, key, primary)? {
                self.check_taken(table, store, key, primary)?;
                if !left_out(Step::UndoOperations) {
                    self.state.sets.undo_writes(before);
                }
                return Ok(Insertion::Duplicate(store.place().index));
            }
        }
        Ok(Insertion::Inserted)
    }

    /// Makes the entry of a row in one index, if the row exists. An entry that its writer made already is left.
    pub(super) fn make_entry(&mut self, table: &CicadaTable, store: &Store, primary: &[u8]) -> Result<(), Stop> {
        let Some((_, source)) = self.find_row(&table.primary, primary)? else { return Ok(()) };
        let mut scratch = KeyScratch::new();
        let key = store.entries.extractor.extract(self.row(source), &mut scratch).map_err(Error::from)?;
        if self.add_entry(store, key, primary)? {
            return Ok(());
        }
        if let Some((_, entry)) = self.find_row(store, key)?
            && key_in_entry(self.row(entry).as_words()) == primary
        {
            return Ok(());
        }
        Err(Error::Duplicate { table: table.id, index: store.place().index }.into())
    }

    /// Writes a row whatever is there. Without secondary indexes nothing is observed; with them the old row must be known.
    pub(super) fn overwrite_row<K: EncodedKey>(
        &mut self,
        table: &CicadaTable,
        key: K,
        row: RowRef<'_>,
    ) -> Result<Insertion, Stop> {
        check_row(table, row)?;
        if table.has_secondaries {
            let before = self.state.sets.writes.set_floor();
            let outcome = match self.remove_row(table, key) {
                Ok(_) => self.add_row(table, key, row),
                Err(stop) => Err(stop),
            };
            if matches!(outcome, Ok(Insertion::Duplicate(_))) {
                self.state.sets.undo_writes(before);
            }
            return self.all_or_nothing(before, outcome);
        }
        let mut buffer = std::mem::take(&mut self.state.buffers.row);
        buffer.copy_from(row.as_bytes());
        let put = self.put_entry(&table.primary, key, &mut buffer);
        self.state.buffers.row = buffer;
        put.map(|()| Insertion::Inserted)
    }

    /// Deletes a row and its entries.
    #[inline]
    pub(super) fn remove_row<K: EncodedKey>(&mut self, table: &CicadaTable, key: K) -> Result<bool, Stop> {
        if !table.has_secondaries {
            return self.delete_entry(&table.primary, key);
        }
        let Some((target, source)) = self.find_row(&table.primary, key)? else { return Ok(false) };
        self.check_early(target, source, table.primary.place())?;
        let before = self.state.sets.writes.set_floor();
        let mut old = std::mem::take(&mut self.state.buffers.old);
        old.copy_from(self.row(source).as_bytes());
        let mut outcome = Ok(true);
        for store in table.secondaries() {
            let mut scratch = KeyScratch::new();
            outcome = match store.entries.extractor.extract(old.as_row(), &mut scratch) {
                Ok(entry) => self.delete_entry(store, entry),
                Err(error) => Err(Error::from(error).into()),
            };
            if outcome.is_err() {
                break;
            }
        }
        self.state.buffers.old = old;
        self.all_or_nothing(before, outcome)?;
        if let Some(nodes) = &table.primary.versioned {
            let deleted = self.delete_versioned(&table.primary, nodes, key);
            return self.all_or_nothing(before, deleted);
        }
        let write = Write::new(target, table.primary.place(), Kind::Delete);
        self.state.sets.writes.push(write, Some(key), None);
        Ok(true)
    }

    /// Visits the rows of a range of any index.
    pub(super) fn visit_rows(
        &mut self,
        scan: &Scan<'_>,
        table: &CicadaTable,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        let mut left = scan.limit;
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
            return self.scan_entries(scan, table, &mut |transaction, source| Ok(visit(transaction.row(source))));
        }
        self.scan_entries(scan, table, &mut |transaction, source| {
            let mut entry = std::mem::take(&mut transaction.state.buffers.entry);
            entry.copy_from(transaction.row(source).as_bytes());
            let found = transaction.find_row(&table.primary, key_in_entry(entry.as_words()));
            transaction.state.buffers.entry = entry;
            match found? {
                Some((_, source)) => Ok(visit(transaction.row(source))),
                // The entry and the row did not stand together; validation would find that out too.
                None => Err(transaction.inconsistent(table)),
            }
        })
    }

    /// A secondary entry leads to no row: what was read does not stand together.
    #[cold]
    fn inconsistent(&mut self, table: &CicadaTable) -> Stop {
        debug_assert!(!self.snapshot, "a snapshot is consistent");
        self.conflict(Reason::Inconsistent, table.primary.place(), None)
    }

    /// The key in a record's row, for explaining an abort.
    pub(super) fn key_in(&self, table: &CicadaTable, index: IndexId, row: RowRef<'_>) -> Option<KeyPreview> {
        if index != IndexId::PRIMARY {
            return Some(KeyPreview::new(key_in_entry(row.as_words())));
        }
        let mut scratch = KeyScratch::new();
        table.primary.entries.extractor.extract(row, &mut scratch).ok().map(KeyPreview::new)
    }
}
