//! A table: for each of its indexes one store a partition, or one store alone when the table is not divided
//! (`record.rs` draws a record).

use std::ops::Bound;
use std::sync::Arc;

use polychron_base::key::{EncodedKey, Key16};
use polychron_engine::catalog;
use polychron_engine::stores::{IndexRef, Keyed, Record, Records, RowRecords, Store, StoreTable, Undoable};
use polychron_index::AnyIndex;
use polychron_memory::Guard;
use polychron_schema::{ColumnType, Layout, TableDefinition};

use super::locks::wrapped;

/// The index of one partition.
pub(super) type Entries = Store<RowRecords>;

/// A table.
pub(super) type Table = StoreTable<Index>;

/// An index in all partitions.
#[derive(Debug)]
pub struct Index {
    /// One for each partition; a single one when the table is not divided.
    pub(super) stores: Box<[Entries]>,
    /// Where the partition column's value stands in the index's keys; `None` when not at a fixed place.
    pub(super) column: Option<KeyColumn>,
    /// Whether keys of rows in different partitions must differ, too: it is unique and lacks the partition column.
    pub(super) unique_over_all: bool,
}

impl Keyed for Index {
    type Records = RowRecords;

    #[inline]
    fn entries(&self) -> &Entries {
        &self.stores[0]
    }

    fn set_dropped(&self) {
        self.stores.iter().for_each(|store| store.set_dropped());
    }

    #[inline]
    fn locate<'t>(table: &'t Table, key: &Key16) -> Option<(&'t AnyIndex, usize)> {
        let partition = partition_of(table, *key).unwrap_or(0);
        Some((table.primary.stores[partition].index(), table.lines(RowRecords::HEADER_BYTES)))
    }
}

/// A whole number at a fixed place of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyColumn {
    offset: usize,
    width: usize,
    signed: bool,
}

impl KeyColumn {
    /// The place of the table's partition column in keys over `columns`: it must be a whole number that is never NULL, and
    /// all columns before it must have a fixed width.
    pub(super) fn find(definition: &TableDefinition, layout: &Layout, columns: &[usize]) -> Option<Self> {
        let wanted = definition.partition_column?;
        let position = columns.iter().position(|&column| column == wanted)?;
        let width = |&column: &usize| {
            let column = &layout.columns()[column];
            Some(column.column_type.key_width()? + usize::from(column.slot.is_nullable()))
        };
        let offset = columns[..position].iter().map(width).sum::<Option<usize>>()?;
        let column = &layout.columns()[wanted];
        let signed = match column.column_type {
            ColumnType::U8 | ColumnType::U16 | ColumnType::U32 | ColumnType::U64 => false,
            ColumnType::I8 | ColumnType::I16 | ColumnType::I32 | ColumnType::I64 => true,
            _ => return None,
        };
        let width = column.column_type.key_width()?;
        (!column.slot.is_nullable()).then_some(Self { offset, width, signed })
    }

    /// The column's value in a key; signed ones as by `as u64`.
    #[inline]
    pub(super) fn value<K: EncodedKey>(self, key: K) -> u64 {
        let (slice, shift) = (self.offset / 8, 8 * (self.offset % 8) as u32);
        let mut bits = key.slice(slice) << shift;
        if shift > 0 {
            bits |= key.slice(slice + 1) >> (64 - shift);
        }
        let unused = 64 - 8 * self.width as u32;
        if self.signed { ((bits ^ 1 << 63) as i64 >> unused) as u64 } else { bits >> unused }
    }

    /// The one value that all keys between two bounds have, if that can be told.
    pub(super) fn value_of_range(self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Option<u64> {
        let end = self.offset + self.width;
        let (Bound::Included(low) | Bound::Excluded(low)) = lower else { return None };
        let prefix = low.get(..end)?;
        let same = match upper {
            Bound::Included(high) | Bound::Excluded(high) if high.get(..end) == Some(prefix) => true,
            Bound::Excluded(high) => is_successor(prefix, high),
            _ => false,
        };
        same.then(|| self.value(low))
    }
}

/// Whether `high` is the least byte string above all that begin with `prefix`.
fn is_successor(prefix: &[u8], high: &[u8]) -> bool {
    let Some(last) = prefix.iter().rposition(|&byte| byte != u8::MAX) else { return false };
    high.len() == last + 1 && high[..last] == prefix[..last] && high[last] == prefix[last] + 1
}

impl Index {
    /// Whether the table is divided.
    #[inline]
    pub(super) fn is_divided(&self) -> bool {
        self.stores.len() > 1
    }
}

/// The partition of a primary key; `None` when the table is not divided.
#[inline]
pub(super) fn partition_of<K: EncodedKey>(table: &Table, key: K) -> Option<usize> {
    let Index { stores, column, .. } = &*table.primary;
    column.filter(|_| stores.len() > 1).map(|column| wrapped(column.value(key), stores.len()))
}

/// Where an entry stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) index_ref: IndexRef,
    pub(super) partition: usize,
}

/// The tables as the undo log sees them.
pub(super) struct Undone<'t>(pub(super) &'t [Option<Arc<Table>>]);

impl Undoable for Undone<'_> {
    type At = Entry;

    #[inline]
    fn index(&self, at: Entry) -> &AnyIndex {
        let table = catalog::known(self.0, at.index_ref.table).expect("tables stay while a transaction runs");
        let index = table.store(at.index_ref.index).expect("indexes stay while a transaction runs");
        index.stores[at.partition].index()
    }

    unsafe fn give_back(&self, record: Record, guard: &Guard<'_>) {
        // SAFETY: no thread finds records but under the partition's locks, which the caller holds.
        unsafe { record.free(guard) };
    }
}
