//! What a procedure may ask for.

use std::ops::{Bound, ControlFlow};

use polychron_base::key::{EncodedKey, MAX_KEY_BYTES};
use polychron_base::{Error, IndexId, TableId};
use polychron_engine::mutations::left_out;
use polychron_engine::redo::visit_to_stop;
use polychron_engine::rows::Finding;
use polychron_engine::{
    Constraints, Counters, Direction, Insertion, LazyFutures, Mode, Prefetch, Projection, Queries, RowMut, RowRef,
    RowVisitor, Savepoints, Scan, TableDefinition, Transaction, steady,
};
use polychron_schema::{Changes, IndexKind, KeyExtractor, MAX_ROW_BYTES};

use super::commit::Undo;
use super::protocol::Serial;
use super::steps::Step;
use super::table::{SerialTable, Tables, is_empty, is_point};
use super::worker::Buffers;

/// A running transaction: its worker has the tables, and it is rolled back when it is dropped.
#[derive(Debug)]
pub struct SerialTransaction<'w> {
    pub(super) database: &'w Serial,
    pub(super) buffers: &'w mut Buffers,
    pub(super) counters: &'w Counters,
    pub(super) mode: Mode,
    /// It has said what its client waits for.
    pub(super) has_sealed: bool,
}

/// The bytes of an encoded key.
struct KeyBytes {
    bytes: [u8; MAX_KEY_BYTES],
    len: usize,
}

impl KeyBytes {
    fn new<K: EncodedKey>(key: K) -> Self {
        let mut bytes = [0; MAX_KEY_BYTES];
        let len = key.write_to(&mut bytes);
        Self { bytes, len }
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl<'w> SerialTransaction<'w> {
    /// `buffers` have the tables.
    pub(super) fn new(database: &'w Serial, buffers: &'w mut Buffers, counters: &'w Counters, mode: Mode) -> Self {
        Self { database, buffers, counters, mode, has_sealed: false }
    }

    pub(super) fn tables(&self) -> &Tables {
        self.buffers.tables.as_deref().expect("a running transaction has the tables")
    }

    pub(super) fn tables_mut(&mut self) -> &mut Tables {
        self.buffers.tables.as_deref_mut().expect("a running transaction has the tables")
    }

    fn writable(&mut self) -> Result<(), Error> {
        // A log that has stopped takes no changes.
        self.buffers.watch.give_up();
        if self.mode == Mode::Snapshot && !left_out(Step::RefuseSnapshotWrites) { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Visits a range while the log has stopped.
    #[cold]
    fn scan_watched(
        &mut self,
        scan: &Scan<'_>,
        visitor: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let tables = self.buffers.tables.as_deref().expect("a running transaction has the tables");
        let table = tables.get(scan.table)?;
        let extractor = KeyExtractor::primary(&table.definition)?;
        let stopped_at = visit_to_stop(scan, &extractor, visitor, |scan, look| table.visit(scan, look))?;
        self.buffers.watch.read_range(&extractor, scan, stopped_at.as_deref());
        Ok(())
    }

    /// Makes `row` the row of `key`, or tells which unique index forbids it.
    fn write(&mut self, table: TableId, key: &[u8], row: &[u64]) -> Result<Insertion, Error> {
        let bytes = size_of_val(row);
        if bytes > MAX_ROW_BYTES {
            return Err(Error::row_too_long(bytes, MAX_ROW_BYTES).in_index(table, IndexId::PRIMARY));
        }
        let entry = self.tables().get(table)?;
        if let Some(index) = entry.duplicate(key, row)?
            && !left_out(Step::RefuseDuplicates)
        {
            return Ok(Insertion::Duplicate(index));
        }
        let before = self.tables_mut().replace(table, key, Some(row.into()))?;
        let length = self.buffers.undo.len();
        self.log(Undo { table, key: key.to_vec(), before });
        // The write is the one that was logged last.
        self.tables().check_limit(bytes).inspect_err(|_| self.undo_to(length))?;
        Ok(Insertion::Inserted)
    }
}

impl Transaction for SerialTransaction<'_> {
    fn read_row<K: EncodedKey>(&mut self, table: TableId, key: K, projection: &Projection) -> Finding<RowRef<'_>> {
        steady!(table, key => self.read_row(table, key, projection));
        let key = KeyBytes::new(key);
        let Buffers { tables, watch, .. } = &mut *self.buffers;
        let known = tables.as_deref().expect("a running transaction has the tables").get(table)?;
        if watch.is_on() {
            watch.read_key(table, &KeyExtractor::primary(&known.definition)?, key.as_slice());
        }
        let row = known.rows.get(key.as_slice());
        Ok(row.map(|words| RowRef::from_words(words)))
    }

    fn update_unchecked<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<bool, Error> {
        steady!(table, key => self.update_unchecked(table, key, projection, change));
        self.writable()?;
        let key = KeyBytes::new(key);
        // Borrowed beside the buffer.
        let tables = self.buffers.tables.as_deref().expect("a running transaction has the tables");
        let entry = tables.get(table)?;
        let Some(words) = entry.rows.get(key.as_slice()) else { return Ok(false) };
        // The row is changed in the buffer; should the change panic or break a rule, the table is untouched.
        let mut row = std::mem::take(&mut self.buffers.row);
        row.copy_from(RowRef::from_words(words).as_bytes());
        let mut changes = Changes::NONE;
        change(&mut RowMut::new(&mut row, &mut changes, entry.layout.shape()));
        let written = self.write(table, key.as_slice(), row.as_words());
        let updated = written.and_then(|insertion| match insertion {
            Insertion::Inserted => Ok(true),
            Insertion::Duplicate(index) => Err(self.constraints(table)?.duplicate(table, index, row.as_row())),
        });
        self.buffers.row = row;
        updated
    }

    fn insert_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Error> {
        steady!(table, key => self.insert_unchecked(table, key, row));
        self.writable()?;
        let key = KeyBytes::new(key);
        if self.tables().get(table)?.rows.contains_key(key.as_slice()) {
            return Ok(Insertion::Duplicate(IndexId::PRIMARY));
        }
        self.write(table, key.as_slice(), &words_of(row))
    }

    fn put_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Error> {
        steady!(table, key => self.put_unchecked(table, key, row));
        self.writable()?;
        let key = KeyBytes::new(key);
        self.write(table, key.as_slice(), &words_of(row))
    }

    fn delete_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K) -> Result<bool, Error> {
        steady!(table, key => self.delete_unchecked(table, key));
        self.writable()?;
        let key = KeyBytes::new(key).as_slice().to_vec();
        let Some(before) = self.tables_mut().replace(table, &key, None)? else { return Ok(false) };
        // Never refused: it makes room.
        self.log(Undo { table, key, before: Some(before) });
        Ok(true)
    }

    fn scan_unchecked(&mut self, scan: &Scan<'_>, visitor: &mut impl RowVisitor) -> Result<(), Error> {
        if self.buffers.watch.is_on() {
            return self.scan_watched(scan, visitor);
        }
        self.tables().get(scan.table)?.visit(scan, visitor)
    }

    fn mark(&mut self) -> Result<usize, Error> {
        Ok(self.buffers.undo.len())
    }

    fn undo_unchecked(&mut self, position: usize) -> Result<(), Error> {
        self.undo_to(position);
        Ok(())
    }

    fn savepoints(&mut self) -> &mut Savepoints {
        &mut self.buffers.savepoints
    }

    fn definition(&self, table: TableId) -> Result<&TableDefinition, Error> {
        Ok(&self.tables().get(table)?.definition)
    }

    fn constraints(&self, table: TableId) -> Result<&Constraints, Error> {
        Ok(&self.tables().get(table)?.constraints)
    }
}

impl Queries for SerialTransaction<'_> {}

impl LazyFutures for SerialTransaction<'_> {}

impl Prefetch for SerialTransaction<'_> {}

impl SerialTable {
    /// Visits a range.
    fn visit(&self, scan: &Scan<'_>, visitor: &mut impl RowVisitor) -> Result<(), Error> {
        let kind = match scan.index {
            IndexId::PRIMARY => self.definition.primary_kind,
            secondary => self.secondary(secondary)?.kind,
        };
        if kind == IndexKind::Hash && !is_point(scan.lower, scan.upper) {
            return Err(Error::no_order(scan.table, scan.index));
        }
        if is_empty(scan.lower, scan.upper) {
            return Ok(());
        }
        let range: (Bound<&[u8]>, Bound<&[u8]>) = (scan.lower, scan.upper);
        match scan.index {
            IndexId::PRIMARY => visit(self, scan, self.rows.range::<[u8], _>(range).map(|(_, row)| row), visitor),
            secondary => {
                let entries = self.secondary(secondary)?.entries.range::<[u8], _>(range);
                visit(self, scan, entries.map(|(_, primary)| &self.rows[primary]), visitor)
            }
        }
    }
}

/// Visits rows in the scan's direction until the limit is reached or the visitor has enough.
fn visit<'t>(
    table: &SerialTable,
    scan: &Scan<'_>,
    rows: impl DoubleEndedIterator<Item = &'t Box<[u64]>>,
    visitor: &mut impl RowVisitor,
) -> Result<(), Error> {
    let mut left = scan.limit;
    let mut visit_one = |words: &[u64]| {
        let row = RowRef::from_words(words);
        if left == 0 {
            return ControlFlow::Break(());
        }
        if !scan.restrictions.iter().all(|restriction| restriction.holds(&table.layout, row)) {
            return ControlFlow::Continue(());
        }
        left -= 1;
        visitor(row)
    };
    // Whether the visitor stopped early makes no difference here: nothing is remembered of what was seen.
    let _ = match scan.direction {
        Direction::Forward => rows.map(|row| &row[..]).try_for_each(&mut visit_one),
        Direction::Backward => rows.rev().map(|row| &row[..]).try_for_each(&mut visit_one),
    };
    Ok(())
}

/// A row as whole words.
fn words_of(row: RowRef<'_>) -> Vec<u64> {
    let (chunks, rest) = row.as_bytes().as_chunks::<8>();
    debug_assert!(rest.is_empty(), "rows are whole words");
    chunks.iter().map(|chunk| u64::from_ne_bytes(*chunk)).collect()
}
