//! What a procedure may ask for: a sequence of operations, each atomic by itself.

use std::ops::ControlFlow;

use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId, TableId};
use polychron_engine::stores::{Batch, check_row, key_in_entry, words_of};
use polychron_engine::{
    Commit, Constraints, Insertion, LazyFutures, Mode, Prefetch, Projection, Protocol, Queries, Savepoints, Scan,
    TableDefinition, Transaction, steady,
};
use polychron_memory::Guard;
use polychron_schema::{Changes, RowBuffer, RowMut, RowRef};

use super::protocol::KeyValue;
use super::record::{HEADER_BYTES, Record};
use super::rows::{self, Changed};
use super::table::Table;
use super::worker::State;

/// Memory that operations use one after the other.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// The row that was read last.
    row: RowBuffer,
    /// A row as it was before a change, or a secondary entry.
    other: RowBuffer,
    batch: Batch,
}

/// A running procedure.
#[derive(Debug)]
pub struct KeyValueTransaction<'w> {
    pub(super) state: &'w mut State,
    pub(super) guard: Guard<'w>,
    pub(super) read_only: bool,
    /// Operations that wrote.
    pub(super) writes: usize,
}

impl<'w> KeyValueTransaction<'w> {
    #[inline]
    fn writable(&mut self) -> Result<(), Error> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        self.writes += 1;
        Ok(())
    }

    /// Changes a row with entries: the whole row is read, so that its entries can follow.
    #[cold]
    fn update_indexed<K: EncodedKey>(
        &mut self,
        table: &Table,
        key: K,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<bool, Error> {
        let Self { state, guard, .. } = self;
        let Buffers { row, other: seen, .. } = &mut state.buffers;
        let Some(record) = rows::get(&table.primary, key, 0..usize::MAX, row, guard) else { return Ok(false) };
        seen.copy_from(row.as_bytes());
        let mut changes = Changes::NONE;
        change(&mut RowMut::new(row, &mut changes, table.layout.shape()));
        if changes.is_empty() {
            return Ok(true);
        }
        match rows::change_row(table, key, record, changes, seen, row, guard)? {
            Changed::Done => Ok(true),
            Changed::Gone => Ok(false),
            Changed::Duplicate(index) => Err(Error::duplicate(table.id, index)),
        }
    }

    /// Visits one record of a scan.
    #[inline]
    fn visit(
        &mut self,
        table: &Table,
        scan: &Scan<'_>,
        record: Record,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Option<ControlFlow<()>> {
        let Buffers { row, other, .. } = &mut self.state.buffers;
        let range = if scan.restrictions.is_empty() { words_of(&scan.projection) } else { 0..usize::MAX };
        if scan.index == IndexId::PRIMARY {
            if !rows::read_into(record, range.clone(), row) {
                // The row may have moved to a larger record; that is found by its key, which the old record still has.
                let mut scratch = polychron_schema::KeyScratch::new();
                record.last_words(row);
                let key = table.primary.extractor.extract(row.as_row(), &mut scratch).ok()?;
                rows::get(&table.primary, key, range, row, &self.guard)?;
            }
        } else {
            if !rows::read_into(record, 0..usize::MAX, other) {
                return None;
            }
            rows::get(&table.primary, key_in_entry(other.as_words()), range, row, &self.guard)?;
        }
        let row = row.as_row();
        let wanted = scan.restrictions.iter().all(|restriction| restriction.holds(&table.layout, row));
        wanted.then(|| visitor(row))
    }
}

impl Transaction for KeyValueTransaction<'_> {
    #[inline]
    fn read_row<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Error> {
        steady!(table, key => self.read_row(table, key, projection));
        let table = self.state.base.tables.table(table)?;
        let row = &mut self.state.buffers.row;
        let found = rows::get(&table.primary, key, words_of(projection), row, &self.guard);
        Ok(found.map(|_| row.as_row()))
    }

    #[inline]
    fn update_unchecked<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<bool, Error> {
        steady!(table, key => self.update_unchecked(table, key, projection, change));
        self.writable()?;
        // SAFETY: the guard stands for as long as the procedure.
        let table = unsafe { self.state.base.tables.table_during(table)? };
        if table.has_secondaries && table.affected(projection.columns).next().is_some() {
            return self.update_indexed(table, key, change);
        }
        let row = &mut self.state.buffers.row;
        let found = rows::get(&table.primary, key, words_of(projection), row, &self.guard);
        let Some(record) = found else { return Ok(false) };
        let mut changes = Changes::NONE;
        change(&mut RowMut::new(row, &mut changes, table.layout.shape()));
        if changes.is_empty() {
            return Ok(true);
        }
        rows::patch(&table.primary, key, record, changes, row, None, &self.guard)
    }

    #[inline]
    fn insert_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Error> {
        steady!(table, key => self.insert_unchecked(table, key, row));
        self.writable()?;
        let table = self.state.base.tables.table(table)?;
        check_row(table, row)?;
        rows::insert_row(table, key, row, &self.guard)
    }

    #[inline]
    fn put_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Error> {
        steady!(table, key => self.put_unchecked(table, key, row));
        self.writable()?;
        let table = self.state.base.tables.table(table)?;
        check_row(table, row)?;
        rows::put_row(table, key, row, &self.guard)
    }

    #[inline]
    fn delete_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K) -> Result<bool, Error> {
        steady!(table, key => self.delete_unchecked(table, key));
        self.writable()?;
        rows::delete_row(self.state.base.tables.table(table)?, key, &self.guard)
    }

    fn scan_unchecked(
        &mut self,
        scan: &Scan<'_>,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        // SAFETY: the guard stands for as long as the procedure.
        let table = unsafe { self.state.base.tables.table_during(scan.table)? };
        let index = table.store(scan.index)?.scanned(scan)?;
        let mut left = scan.limit;
        if left == 0 {
            return Ok(());
        }
        let lines = (words_of(&scan.projection).end.min(56) * 8 + HEADER_BYTES).div_ceil(64);
        let mut batch = std::mem::take(&mut self.state.buffers.batch);
        batch.begin(left, false);
        'scan: while batch.fill(index, scan, &self.guard) {
            for position in 0..batch.len() + Batch::AHEAD {
                // SAFETY: the handles were found under this procedure's guard.
                let record = |position| batch.get(position).map(|handle| unsafe { Record::from_handle(handle) });
                if let Some(record) = record(position) {
                    record.prefetch(lines);
                }
                let Some(record) = position.checked_sub(Batch::AHEAD).and_then(record) else { continue };
                if let Some(flow) = self.visit(table, scan, record, visitor) {
                    left -= 1;
                    if flow.is_break() || left == 0 {
                        break 'scan;
                    }
                }
            }
        }
        self.state.buffers.batch = batch;
        Ok(())
    }

    fn mark(&mut self) -> Result<usize, Error> {
        Ok(self.writes)
    }

    /// Works only when nothing was written since.
    fn undo_unchecked(&mut self, position: usize) -> Result<(), Error> {
        if self.writes > position {
            return Err(Error::unsupported(KeyValue::NAME, "undoing writes"));
        }
        Ok(())
    }

    fn savepoints(&mut self) -> &mut Savepoints {
        &mut self.state.base.rows.savepoints
    }

    fn definition(&self, table: TableId) -> Result<&TableDefinition, Error> {
        Ok(&self.state.base.tables.table(table)?.definition)
    }

    #[inline]
    fn constraints(&self, table: TableId) -> Result<&Constraints, Error> {
        Ok(&self.state.base.tables.table(table)?.constraints)
    }
}

impl Queries for KeyValueTransaction<'_> {}

impl LazyFutures for KeyValueTransaction<'_> {}

impl Prefetch for KeyValueTransaction<'_> {
    #[inline]
    fn prefetch_row<K: EncodedKey>(&mut self, table: TableId, key: K) {
        if let Ok(table) = self.state.base.tables.table(table) {
            table.primary.index().prefetch(key, &self.guard);
        }
    }
}

impl Commit for KeyValueTransaction<'_> {
    /// Nothing: every write was visible at once.
    #[inline]
    fn commit(self) -> Result<(), Error> {
        Ok(())
    }

    /// Undoes nothing. The procedure's own answer is reported, so that a workload whose procedures roll back by design can
    /// be run; what it had written stays.
    fn roll_back(self) -> bool {
        true
    }
}

impl KeyValueTransaction<'_> {
    pub(super) fn new<'w>(state: &'w mut State, guard: Guard<'w>, mode: Mode) -> KeyValueTransaction<'w> {
        KeyValueTransaction { state, guard, read_only: mode == Mode::Snapshot, writes: 0 }
    }
}
