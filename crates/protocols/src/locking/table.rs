//! A table: an index and its records for each key, and the locked ranges of each index.

use std::sync::Arc;

use polychron_base::key::{EncodedKey, HashSeed};
use polychron_engine::catalog;
use polychron_engine::stores::{IndexRef, Keyed, RowRecords, Store, StoreTable};

use super::ranges::Ranges;

/// An index, the records it leads to, and the ranges that are locked in it.
#[derive(Debug)]
pub struct Index {
    pub(super) store: Store<RowRecords>,
    pub(super) ranges: Ranges,
}

/// A table.
pub(super) type Table = StoreTable<Index>;

impl Index {
    /// The name of a key's lock.
    #[inline]
    pub(super) fn name_of<K: EncodedKey>(&self, key: K) -> u64 {
        name_of(self.store.index_ref, key, self.store.hash_seed)
    }
}

impl Keyed for Index {
    type Records = RowRecords;

    #[inline]
    fn entries(&self) -> &Store<RowRecords> {
        &self.store
    }
}

/// The name of a key's lock.
#[inline]
pub(super) fn name_of<K: EncodedKey>(index_ref: IndexRef, key: K, seed: HashSeed) -> u64 {
    let index = (index_ref.table.position() as u64) << 32 | index_ref.index.position() as u64;
    // The golden ratio spreads the indexes; keys are hashed already.
    key.hash(seed).wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// The index of a reference, while a transaction runs that has used it.
#[inline]
pub(super) fn index_at(tables: &[Option<Arc<Table>>], index_ref: IndexRef) -> &Index {
    let table = catalog::known(tables, index_ref.table).expect("tables stay while a transaction runs");
    table.store(index_ref.index).expect("indexes stay while a transaction runs")
}
