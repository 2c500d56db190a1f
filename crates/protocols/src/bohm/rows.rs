//! Rows and their secondary entries.

use std::sync::Arc;

use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId, Stop};
use polychron_engine::Insertion;
use polychron_engine::mutations::left_out;
use polychron_engine::stores::{entry_words, key_in_entry};
use polychron_schema::{Changes, KeyScratch, RowBuffer, RowMut, RowRef};

use super::planned::Put;
use super::steps::Step;
use super::table::{BohmStore, BohmTable};
use super::transaction::{BohmTransaction, Position};
use super::version::Version;

impl BohmTransaction<'_> {
    /// The place for a write of a key, whether it has a row or not.
    #[inline]
    fn place<K: EncodedKey>(&mut self, store: &Arc<BohmStore>, key: K) -> Result<Position, Stop> {
        if let Some(position) = self.own_written(store, key) {
            return Ok(position);
        }
        let want = self.unplanned_want(store, key)?;
        self.unplanned(store, key, want, store.row_words)
    }

    /// The place for a write of a key that has a row, and the row. `deletes`: no other row will be put there, so the room is made no
    /// larger than needed, and can be had when memory is short.
    #[inline]
    fn place_of_row<K: EncodedKey>(
        &mut self,
        store: &Arc<BohmStore>,
        key: K,
        deletes: bool,
    ) -> Result<Option<(Position, Version)>, Stop> {
        if let Some(position) = self.own_written(store, key) {
            return Ok(self.present(position)?.map(|row| (position, row)));
        }
        let want = self.unplanned_want(store, key)?;
        let Some(row) = self.see(store, key)? else { return Ok(None) };
        // SAFETY: the version has a row, and nothing is put.
        let words = if deletes { unsafe { row.words_to_take_over() } } else { store.row_words };
        Ok(Some((self.unplanned(store, key, want, words)?, row)))
    }

    /// Changes a row.
    #[inline]
    pub(super) fn change_row<K: EncodedKey>(
        &mut self,
        table: &BohmTable,
        key: K,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<bool, Stop> {
        let Some((position, source)) = self.place_of_row(&table.primary, key, false)? else { return Ok(false) };
        let is_fixed = !table.has_secondaries && table.layout.shape().variable_count == 0;
        // What was put before is changed aside: code that panics on its way leaves it as it was.
        if is_fixed && self.entry(position).version.get() != Some(source) {
            self.change_in_place(table, position, source, change)?;
            return Ok(true);
        }
        let mut row = std::mem::take(&mut self.state.buffers.row);
        // SAFETY: the version has a row, and nothing is put while it is copied.
        let words = unsafe { source.words() };
        row.overwrite_words(words.len()).copy_from_slice(words);
        let mut changes = Changes::NONE;
        change(&mut RowMut::new(&mut row, &mut changes, table.layout.shape()));
        let mut outcome = Ok(true);
        if !changes.is_empty() {
            outcome = if table.has_secondaries && table.affected(changes.columns()).next().is_some() {
                self.change_indexed(table, position, source, changes, &row).map(|()| true)
            } else {
                self.put(position, row.as_words()).map(|()| true)
            };
        }
        self.state.buffers.row = row;
        outcome
    }

    /// Changes a row of fixed length in the version that will hold it, and has none yet. Where the change panics it has none still.
    #[inline]
    fn change_in_place(
        &mut self,
        table: &BohmTable,
        position: Position,
        source: Version,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<(), Stop> {
        self.save(position);
        let entry = self.entry(position);
        let version = entry.version.get().expect("a written key has a version");
        let mut changes = Changes::NONE;
        // SAFETY: the transaction is executed here, and views of its rows borrow it; the source has a row.
        unsafe {
            version.put(source.words(), &self.guard)?;
            let row = RowMut::in_place(version.words_mut(), &mut changes, table.layout.shape());
            change(&mut row.expect("rows of the table have one length"));
        }
        if !changes.is_empty() {
            entry.put.set(Put::Row);
        }
        Ok(())
    }

    /// Puts a row whose entries move.
    #[cold]
    fn change_indexed(
        &mut self,
        table: &BohmTable,
        position: Position,
        source: Version,
        changes: Changes,
        row: &RowBuffer,
    ) -> Result<(), Stop> {
        let mut old = std::mem::take(&mut self.state.buffers.old);
        // SAFETY: the version has a row, and nothing is put while it is copied.
        old.copy_from(RowRef::from_words(unsafe { source.words() }).as_bytes());
        let outcome = self.whole_or_not(|this| {
            if let Some(index) = this.move_entries(table, changes, &old, row)? {
                return Ok(Insertion::Duplicate(index));
            }
            this.put(position, row.as_words())?;
            Ok(Insertion::Inserted)
        });
        self.state.buffers.old = old;
        match outcome? {
            Insertion::Inserted => Ok(()),
            Insertion::Duplicate(index) => Err(Error::Duplicate { table: table.id, index }.into()),
        }
    }

    /// Moves the entries of a row whose indexed columns change; answers the index that has the new key already.
    fn move_entries(
        &mut self,
        table: &BohmTable,
        changes: Changes,
        old: &RowBuffer,
        new: &RowBuffer,
    ) -> Result<Option<IndexId>, Stop> {
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
                return Ok(Some(store.place().index));
            }
        }
        Ok(None)
    }

    /// Inserts a row and its entries.
    #[inline]
    pub(super) fn add_row<K: EncodedKey>(
        &mut self,
        table: &BohmTable,
        key: K,
        row: RowRef<'_>,
    ) -> Result<Insertion, Stop> {
        let position = self.place(&table.primary, key)?;
        if self.present(position)?.is_some() {
            return Ok(Insertion::Duplicate(IndexId::PRIMARY));
        }
        self.put(position, row.as_words())?;
        if table.has_secondaries {
            let mut primary = KeyScratch::new();
            let primary = table.primary.entries.extractor.extract(row, &mut primary).map_err(Error::from)?;
            for store in table.secondaries() {
                let mut scratch = KeyScratch::new();
                let key = store.entries.extractor.extract(row, &mut scratch).map_err(Error::from)?;
                if !self.add_entry(store, key, primary)? {
                    return Ok(Insertion::Duplicate(store.place().index));
                }
            }
        }
        Ok(Insertion::Inserted)
    }

    /// Writes a row whatever is there, in a table without secondary indexes.
    #[inline]
    pub(super) fn overwrite_row<K: EncodedKey>(
        &mut self,
        table: &BohmTable,
        key: K,
        row: RowRef<'_>,
    ) -> Result<Insertion, Stop> {
        let position = self.place(&table.primary, key)?;
        self.put(position, row.as_words())?;
        Ok(Insertion::Inserted)
    }

    /// Deletes a row and its entries. `false`: there is none.
    pub(super) fn remove_row<K: EncodedKey>(&mut self, table: &BohmTable, key: K) -> Result<bool, Stop> {
        let Some((position, source)) = self.place_of_row(&table.primary, key, true)? else { return Ok(false) };
        if table.has_secondaries {
            let mut old = std::mem::take(&mut self.state.buffers.old);
            // SAFETY: the version has a row, and nothing is put while it is copied.
            old.copy_from(RowRef::from_words(unsafe { source.words() }).as_bytes());
            let outcome = table.secondaries().try_for_each(|store| {
                let mut scratch = KeyScratch::new();
                let key = store.entries.extractor.extract(old.as_row(), &mut scratch).map_err(Error::from)?;
                self.delete_entry(store, key)
            });
            self.state.buffers.old = old;
            outcome?;
        }
        self.put_deletion(position);
        Ok(true)
    }

    /// Makes an entry of a secondary index. `false`: the index is unique, and has the key.
    pub(super) fn add_entry(&mut self, store: &Arc<BohmStore>, key: &[u8], primary: &[u8]) -> Result<bool, Stop> {
        if store.unique {
            self.enter_index(store)?;
            if self.see(store, key)?.is_some() && !left_out(Step::RefuseDuplicates) {
                return Ok(false);
            }
        }
        let position = self.place_of_entry(store, key)?;
        let mut entry = std::mem::take(&mut self.state.buffers.entry);
        let outcome = self.put(position, entry_words(primary, &mut entry));
        self.state.buffers.entry = entry;
        outcome.map(|()| true)
    }

    /// Whether a unique index has an entry of the key, which leads to this row.
    pub(super) fn leads_to(&mut self, store: &BohmStore, key: &[u8], primary: &[u8]) -> Result<bool, Stop> {
        let Some(version) = self.see(store, key)? else { return Ok(false) };
        // SAFETY: the version has a row, which is not written while it is compared.
        Ok(key_in_entry(unsafe { version.words() }) == primary)
    }

    fn delete_entry(&mut self, store: &Arc<BohmStore>, key: &[u8]) -> Result<(), Stop> {
        let position = self.place_of_entry(store, key)?;
        self.put_deletion(position);
        Ok(())
    }

    fn place_of_entry(&mut self, store: &Arc<BohmStore>, key: &[u8]) -> Result<Position, Stop> {
        if let Some(position) = self.own_written(store, key) {
            return Ok(position);
        }
        let want = self.entries_want(store, key)?;
        self.unplanned(store, key, want, store.row_words)
    }

    /// Before a secondary index is read: all transactions before this one are executed that may write entries of it.
    pub(super) fn enter_index(&mut self, store: &BohmStore) -> Result<(), Stop> {
        if store.place().index == IndexId::PRIMARY || left_out(Step::AwaitIntents) {
            return Ok(());
        }
        self.await_intents(&store.intents)
    }
}
