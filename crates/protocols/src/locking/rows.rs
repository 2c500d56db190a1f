//! Rows and their secondary entries, locked and written in place, each change noted in the undo log.

use polychron_base::error::KeyPreview;
use polychron_base::key::EncodedKey;
use polychron_base::{Abort, Error, IndexId, Reason, Stop};
use polychron_engine::mutations::left_out;
use polychron_engine::stores::{Place, Record, entry_words, key_in_entry, words_of};
use polychron_engine::{Insertion, Projection};
use polychron_index::Inserted;
use polychron_schema::{Changes, KeyScratch, RowBuffer, RowMut, RowRef};

use super::held::{Lock, Taken};
use super::locks::Answer;
use super::options::Policy;
use super::steps::Step;
use super::table::{Index, Table, Undone, name_of};
use super::transaction::LockingTransaction;
use super::worker::State;

/// A whole row that takes the place of another.
#[derive(Clone, Copy)]
struct Changed<'r> {
    row: &'r RowBuffer,
    changes: Changes,
}

pub(super) fn bytes_of<K: EncodedKey>(key: K) -> Vec<u8> {
    let mut bytes = vec![0; key.len()];
    key.write_to(&mut bytes);
    bytes
}

/// A wait for another transaction of the same thread would not end.
#[cold]
pub(super) fn own_wait<K: EncodedKey>(place: Place, key: K) -> Stop {
    Error::WaitsForItself { table: place.table, key: Some(KeyPreview::new(key)) }.into()
}

impl<P: Policy> LockingTransaction<'_, P> {
    /// The transaction is over: somebody else holds what it wants.
    #[cold]
    pub(super) fn conflict(
        &mut self,
        reason: Reason,
        place: Place,
        key: Option<KeyPreview>,
        missing: Option<Lock>,
    ) -> Stop {
        self.state.last_abort = Some(Abort { reason, table: place.table, index: place.index, key });
        if P::IN_ORDER && !self.doomed {
            self.state.wanted.remember(&self.state.held, missing);
        }
        self.doomed = true;
        Stop::conflict()
    }

    /// After a conflict there are only conflicts.
    #[inline]
    pub(super) fn alive(&self) -> Result<(), Stop> {
        if self.doomed && !left_out(Step::StayDoomed) { Err(Stop::conflict()) } else { Ok(()) }
    }

    /// Whether an older transaction wants what this one has.
    #[inline]
    pub(super) fn is_wounded(&self) -> bool {
        self.state.held.own.wounded() && !left_out(Step::GiveWay)
    }

    /// Why a lock could not be had.
    #[cold]
    pub(super) fn reason(&self) -> Reason {
        if self.is_wounded() { Reason::Wounded } else { Reason::Locked }
    }

    /// Locks a key of an index, present or not, and waits for it by age if at all.
    #[inline]
    pub(super) fn lock<K: EncodedKey>(&mut self, index: &Index, key: K, exclusive: bool) -> Result<(), Stop> {
        self.alive()?;
        let lock = Lock { name: name_of(index.store.place, key), exclusive };
        let left_alone = match exclusive {
            false => left_out(Step::LockReads),
            true => left_out(Step::LockWrites) || left_out(Step::Upgrade) && self.state.held.has(lock.name),
        };
        if left_alone {
            return Ok(());
        }
        if left_out(Step::HoldLocks) {
            self.state.held.release(&self.shared.locks);
        }
        if !self.is_wounded() {
            let (State { held, fingers, .. }, guard) = (&mut *self.state, &mut self.guard);
            // A wait may last as long as a client does nothing.
            let aside = |wait: &dyn Fn() -> Answer| {
                guard.stand_aside();
                let answer = wait();
                if !guard.come_back() {
                    fingers.clear();
                }
                answer
            };
            match held.take(&self.shared.locks, lock, held.own.patience(), aside) {
                Taken::Held => return Ok(()),
                Taken::Own => return Err(own_wait(index.store.place, key)),
                Taken::Refused => {}
            }
        }
        Err(self.conflict(self.reason(), index.store.place, Some(KeyPreview::new(key)), Some(lock)))
    }

    /// The record of a key that is locked, unless it is deleted.
    #[inline]
    pub(super) fn find<K: EncodedKey>(&mut self, index: &Index, key: K) -> Option<Record> {
        // SAFETY: the fingers were cleared when the transaction took its guard, and whenever it had left its epoch.
        let handle = unsafe { self.state.fingers.find(&index.store, key, &self.guard) }?;
        // SAFETY: the handle is of this index, and the caller has locked the key.
        let record = unsafe { Record::from_handle(handle) };
        (!record.is_deleted()).then_some(record)
    }

    pub(super) fn undo_to(&mut self, position: usize) {
        let state = &mut *self.state;
        state.log.undo_to(position, &Undone(&state.tables), &self.guard);
    }

    /// Runs one operation; when it fails or refuses, what it did is undone.
    #[inline]
    pub(super) fn whole_or_not(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<Insertion, Stop>,
    ) -> Result<Insertion, Stop> {
        self.operate(|this| {
            let before = this.state.log.len();
            let outcome = work(this);
            if !matches!(outcome, Ok(Insertion::Inserted)) && !left_out(Step::UndoOperations) {
                this.undo_to(before);
            }
            outcome
        })
    }

    /// Locks a key exclusively and inserts it, if it is absent. `false`: it is present.
    #[inline]
    fn insert<K: EncodedKey>(&mut self, index: &Index, key: K, row: &[u64]) -> Result<bool, Stop> {
        self.lock(index, key, true)?;
        let place = index.store.place;
        let state = &mut *self.state;
        let record = Record::new(row, &self.guard).map_err(Error::from)?;
        // SAFETY: as in `find`.
        let inserted = unsafe { state.fingers.insert(&index.store, key, record.handle(), &mut (), &self.guard) };
        match inserted {
            Ok(Inserted::New) => {
                state.log.inserted(place, key, record);
                return self.respect_ranges(index, key).map(|()| true);
            }
            Ok(Inserted::Existing(found)) => {
                let handle = found.handle.expect("an existing key has a handle");
                // SAFETY: the handle is of this index, and the key is locked.
                let old = unsafe { Record::from_handle(handle) };
                if old.is_deleted() && index.store.index().replace(key, handle, record.handle(), &self.guard) {
                    state.log.replaced(place, key, old, record);
                    return Ok(true);
                }
            }
            Err(_) => {}
        }
        // SAFETY: the index did not take the record.
        unsafe { record.free(&self.guard) };
        inserted.map_err(Error::from)?;
        Ok(false)
    }

    /// A key that has just come into the index must be in no range that another transaction has locked.
    #[inline]
    fn respect_ranges<K: EncodedKey>(&mut self, index: &Index, key: K) -> Result<(), Stop> {
        if !index.ranges.are_there() {
            return Ok(());
        }
        // As in `lock`.
        self.guard.stand_aside();
        let state = &mut *self.state;
        let answer = index.ranges.admit(&state.held.own, self.owner, &mut state.in_the_way, bytes_of(key));
        self.come_back();
        match answer {
            Answer::Granted => Ok(()),
            _ if left_out(Step::RespectRanges) => Ok(()),
            Answer::Own => Err(own_wait(index.store.place, key)),
            _ => Err(self.conflict(self.reason(), index.store.place, Some(KeyPreview::new(key)), None)),
        }
    }

    /// Locks a key exclusively and marks its record as deleted. `false`: it is absent.
    #[inline]
    fn delete<K: EncodedKey>(&mut self, index: &Index, key: K) -> Result<bool, Stop> {
        self.lock(index, key, true)?;
        let Some(record) = self.find(index, key) else { return Ok(false) };
        record.set_deleted(true);
        self.state.log.deleted(index.store.place, key, record);
        Ok(true)
    }

    /// Inserts a row and its entries.
    #[inline]
    pub(super) fn add_row<K: EncodedKey>(&mut self, table: &Table, key: K, row: RowRef<'_>) -> Result<Insertion, Stop> {
        if !self.insert(&table.primary, key, row.as_words())? {
            return Ok(Insertion::Duplicate(IndexId::PRIMARY));
        }
        if !table.has_secondaries {
            return Ok(Insertion::Inserted);
        }
        let mut primary = KeyScratch::new();
        let primary = table.primary.key_of(row, &mut primary)?;
        for index in table.secondaries() {
            let mut scratch = KeyScratch::new();
            let key = index.key_of(row, &mut scratch)?;
            if !self.add_entry(index, key, primary)? {
                return Ok(Insertion::Duplicate(index.store.place.index));
            }
        }
        Ok(Insertion::Inserted)
    }

    /// Adds an entry. `false`: the key is taken in this unique index.
    fn add_entry(&mut self, index: &Index, key: &[u8], primary: &[u8]) -> Result<bool, Stop> {
        let mut buffer = std::mem::take(&mut self.state.buffers.entry);
        let inserted = self.insert(index, key, entry_words(primary, &mut buffer));
        self.state.buffers.entry = buffer;
        let inserted = inserted? || left_out(Step::RefuseDuplicates);
        // That it is taken is an answer of the index.
        self.asks_secondary |= !inserted;
        Ok(inserted)
    }

    /// Makes a row's entry in an index that is being filled, unless its writer has.
    pub(super) fn make_entry(&mut self, table: &Table, index: &Index, primary: &[u8]) -> Result<(), Stop> {
        self.lock(&table.primary, primary, false)?;
        let Some(record) = self.find(&table.primary, primary) else { return Ok(()) };
        let mut scratch = KeyScratch::new();
        // SAFETY: the row is locked, and nothing is written to it here.
        let key = index.key_of(RowRef::from_words(unsafe { record.words() }), &mut scratch)?;
        if self.add_entry(index, key, primary)? {
            return Ok(());
        }
        // SAFETY: the entry is locked by the attempt to insert it, and nothing is written to it.
        let same = self.find(index, key).is_some_and(|entry| key_in_entry(unsafe { entry.words() }) == primary);
        if same { Ok(()) } else { Err(Error::Duplicate { table: table.id, index: index.store.place.index }.into()) }
    }

    /// Writes a row whatever is there.
    pub(super) fn overwrite_row<K: EncodedKey>(
        &mut self,
        table: &Table,
        key: K,
        row: RowRef<'_>,
    ) -> Result<Insertion, Stop> {
        self.lock(&table.primary, key, true)?;
        let Some(record) = self.find(&table.primary, key) else { return self.add_row(table, key, row) };
        let mut buffer = std::mem::take(&mut self.state.buffers.row);
        buffer.copy_from(row.as_bytes());
        let outcome = self.change(table, key, record, Changed { row: &buffer, changes: Changes::ALL });
        self.state.buffers.row = buffer;
        outcome
    }

    /// Lets `change` change a row. `None`: there is none.
    #[inline]
    pub(super) fn change_row<K: EncodedKey>(
        &mut self,
        table: &Table,
        key: K,
        projection: &Projection,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<Option<Insertion>, Stop> {
        self.lock(&table.primary, key, true)?;
        let Some(record) = self.find(&table.primary, key) else { return Ok(None) };
        let mut range = words_of(projection);
        if table.has_secondaries && table.affected(projection.columns).next().is_some() {
            range = 0..usize::MAX;
        }
        // SAFETY: the key is locked, and nothing is written before the slice is used up.
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
        let outcome = self.change(table, key, record, Changed { row: &buffer, changes });
        self.state.buffers.row = buffer;
        outcome.map(Some)
    }

    #[inline]
    fn change<K: EncodedKey>(
        &mut self,
        table: &Table,
        key: K,
        record: Record,
        changed: Changed<'_>,
    ) -> Result<Insertion, Stop> {
        let Changed { row, changes } = changed;
        if table.has_secondaries && table.affected(changes.columns()).next().is_some() {
            let moved = self.move_entries(table, record, changed)?;
            if moved != Insertion::Inserted {
                return Ok(moved);
            }
        }
        let place = table.primary.store.place;
        let log = &mut self.state.log;
        // SAFETY: the key is locked exclusively, and nothing is written before the slice is used up.
        let old = unsafe { record.words() };
        let length = old.len();
        if !changes.whole_row() {
            // Without variable columns changed, only words of the fixed part are written, which every row has.
            let words = words_of(&changes.hull());
            log.overwritten(place, record, words.start, &old[words.clone()], length);
            record.write(words.start, &row.as_words()[words], length);
        } else if row.as_words().len() <= record.capacity() {
            log.overwritten(place, record, 0, old, length);
            record.write(0, row.as_words(), row.as_words().len());
        } else {
            let larger = Record::new(row.as_words(), &self.guard).map_err(Error::from)?;
            let index = table.primary.store.index();
            let replaced = index.replace(key, record.handle(), larger.handle(), &self.guard);
            assert!(replaced, "the record was found under the lock that is still held");
            log.replaced(place, key, record, larger);
        }
        Ok(Insertion::Inserted)
    }

    /// Moves the entries of a row whose indexed columns change.
    #[cold]
    fn move_entries(&mut self, table: &Table, record: Record, changed: Changed<'_>) -> Result<Insertion, Stop> {
        // SAFETY: the key is locked, and the row itself is not written here.
        let old = RowRef::from_words(unsafe { record.words() });
        let mut primary = KeyScratch::new();
        let primary = table.primary.key_of(old, &mut primary)?;
        for index in table.affected(changed.changes.columns()) {
            let (mut before, mut after) = (KeyScratch::new(), KeyScratch::new());
            let before = index.key_of(old, &mut before)?;
            let after = index.key_of(changed.row.as_row(), &mut after)?;
            if before == after {
                continue;
            }
            self.delete(index, before)?;
            if !self.add_entry(index, after, primary)? {
                return Ok(Insertion::Duplicate(index.store.place.index));
            }
        }
        Ok(Insertion::Inserted)
    }

    /// Deletes a row and its entries. `false`: there is none.
    #[inline]
    pub(super) fn remove_row<K: EncodedKey>(&mut self, table: &Table, key: K) -> Result<bool, Stop> {
        self.lock(&table.primary, key, true)?;
        let Some(record) = self.find(&table.primary, key) else { return Ok(false) };
        if table.has_secondaries {
            // SAFETY: the key is locked, and the row itself is not written here.
            let row = RowRef::from_words(unsafe { record.words() });
            for index in table.secondaries() {
                let mut scratch = KeyScratch::new();
                self.delete(index, index.key_of(row, &mut scratch)?)?;
            }
        }
        record.set_deleted(true);
        self.state.log.deleted(table.primary.store.place, key, record);
        Ok(true)
    }
}
