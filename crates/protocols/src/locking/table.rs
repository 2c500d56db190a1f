//! A table: an index and its records for each key, and the locked ranges of each index.

use std::sync::Arc;

use polychron_base::key::{EncodedKey, Key16};
use polychron_base::{Error, TableId};
use polychron_engine::catalog;
use polychron_engine::stores::{Keyed, Place, Prefetched, Record, Records, RowRecords, Store, StoreTable, Undoable};
use polychron_index::AnyIndex;
use polychron_memory::Guard;
use polychron_schema::{KeyExtractor, KeyScratch, RowRef};

use super::ranges::Ranges;

/// An index, the records it leads to, and the ranges that are locked in it.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) store: Store<RowRecords>,
    pub(super) ranges: Ranges,
}

impl Index {
    /// The index's key of a row.
    #[inline]
    pub(super) fn key_of<'s>(&self, row: RowRef<'_>, scratch: &'s mut KeyScratch) -> Result<&'s [u8], Error> {
        Ok(self.store.extractor.extract(row, scratch)?)
    }
}

/// A table.
pub(super) type Table = StoreTable<Index>;

impl Keyed for Index {
    #[inline]
    fn place(&self) -> Place {
        self.store.place
    }

    #[inline]
    fn extractor(&self) -> &KeyExtractor {
        &self.store.extractor
    }

    fn set_dropped(&self) {
        self.store.set_dropped();
    }

    fn is_dropped(&self) -> bool {
        self.store.is_dropped()
    }
}

/// The name of a key's lock.
#[inline]
pub(super) fn name_of<K: EncodedKey>(place: Place, key: K) -> u64 {
    let index = (place.table.position() as u64) << 32 | place.index.position() as u64;
    // The golden ratio spreads the indexes; keys are hashed already.
    key.hash().wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// The tables as the undo log sees them.
pub(super) struct Undone<'t>(pub(super) &'t [Option<Arc<Table>>]);

/// The index of a place, while a transaction runs that has been there.
#[inline]
pub(super) fn index_at(tables: &[Option<Arc<Table>>], place: Place) -> &Index {
    let table = catalog::known(tables, place.table).expect("tables stay while a transaction runs");
    table.store(place.index).expect("indexes stay while a transaction runs")
}

impl Undoable for Undone<'_> {
    type At = Place;

    #[inline]
    fn index(&self, at: Place) -> &AnyIndex {
        index_at(self.0, at).store.index()
    }

    unsafe fn give_back(&self, record: Record, guard: &Guard<'_>) {
        // Whoever has collected its handle finds it deleted, and looks again.
        record.set_deleted(true);
        // SAFETY: the index has forgotten it, as the caller promises.
        unsafe { record.retire(guard) };
    }
}

/// The tables as a batch of procedures sees them.
pub(super) struct Declared<'t>(pub(super) &'t [Option<Arc<Table>>]);

impl Prefetched for Declared<'_> {
    #[inline]
    fn locate(&self, table: TableId, _key: &Key16) -> Option<(&AnyIndex, usize)> {
        let table = polychron_engine::catalog::known(self.0, table)?;
        Some((table.primary.store.index(), table.lines(RowRecords::HEADER_BYTES)))
    }
}
