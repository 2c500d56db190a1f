//! Loading rows into stores without transactions: see [`Worker::load`](crate::Worker::load).

use polychron_base::{Error, IndexId};
use polychron_index::{Handle, Inserted};
use polychron_memory::Guard;
use polychron_schema::{KeyScratch, RowBuffer};

use super::{Fingers, Keyed, Keys, Records, Store, StoreTable, check_row, entry_words};
use crate::load::LoadedRow;

/// Loads a record of a protocol. No other thread uses the database, and later transactions find the record as one that was always there.
pub trait Loading {
    /// The representation of one index.
    type Store: Keyed;
    /// The link from an entry to its row, where that is not the primary key.
    type Link: Copy;

    /// Makes a record, and has the index lead to it. `None`: its key is taken. Then the database is given up, and the memory of what no index leads to goes
    /// with it.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    fn load(
        &self,
        store: &Self::Store,
        key: &[u8],
        words: &[u64],
        indexes: &mut Indexes<'_>,
    ) -> Result<Option<Self::Link>, Error>;

    /// The words of an entry that leads to a row.
    #[inline]
    fn entry<'b>(&self, _row: Self::Link, primary: &[u8], buffer: &'b mut RowBuffer) -> &'b [u64] {
        entry_words(primary, buffer)
    }
}

/// The indexes of a table into which is loaded, and where the last keys went.
#[derive(Debug)]
pub struct Indexes<'g> {
    fingers: Fingers,
    guard: &'g Guard<'g>,
    /// The position of the index that is being filled.
    entries: usize,
}

impl<'g> Indexes<'g> {
    /// Nothing was loaded yet.
    fn new(guard: &'g Guard<'_>) -> Self {
        Self { fingers: Fingers::default(), guard, entries: 0 }
    }

    /// It is the turn of an index of the table.
    fn turn_to<S: Keyed>(&mut self, store: &S) {
        self.entries = std::ptr::from_ref(store.entries()).addr();
    }

    /// The guard under which is loaded.
    #[inline]
    pub fn guard(&self) -> &'g Guard<'g> {
        self.guard
    }

    /// Has the index lead to a record. Whether the key was free.
    ///
    /// # Panics
    /// If it is another index than that of the store for which [`Loading::load`] was called.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    #[inline]
    pub fn insert<R: Records>(&mut self, store: &Store<R>, key: &[u8], record: Handle) -> Result<bool, Error> {
        assert_eq!(std::ptr::from_ref(store).addr(), self.entries, "the index is not that of the store");
        // SAFETY: the fingers were made under the guard, which was not renewed: others have it, too. And one finger is of one index: stores of one table, which
        // are borrowed for as long, have numbers of their own.
        let inserted = unsafe { self.fingers.insert(store, key, record, &mut (), self.guard) }?;
        Ok(matches!(inserted, Inserted::New))
    }
}

/// Loads rows and their entries; those of each index in the order of their keys, so that neighbours are found near each other.
///
/// # Errors
/// As [`Worker::load`](crate::Worker::load).
pub fn load_rows<L: Loading>(
    loading: &L,
    table: &StoreTable<L::Store>,
    rows: &[LoadedRow<'_>],
    guard: &Guard<'_>,
) -> Result<(), Error> {
    let mut indexes = Indexes::new(guard);
    let taken = |index, row| table.constraints.duplicate(table.id, index, row);
    let mut links = Vec::with_capacity(if table.has_secondaries { rows.len() } else { 0 });
    indexes.turn_to(&*table.primary);
    for &LoadedRow { key, row } in rows {
        check_row(table, row)?;
        let link = loading.load(&table.primary, key, row.as_words(), &mut indexes)?;
        let link = link.ok_or_else(|| taken(IndexId::PRIMARY, row))?;
        if table.has_secondaries {
            links.push(link);
        }
    }
    let (mut keys, mut order, mut buffer) = (Keys::default(), Vec::new(), RowBuffer::new());
    for store in table.secondaries() {
        collect(&**store, rows, &mut keys)?;
        sort(&keys, &mut order);
        indexes.turn_to(&**store);
        for &(_, at) in &order {
            let words = loading.entry(links[at], rows[at].key, &mut buffer);
            if loading.load(store, keys.get(at), words, &mut indexes)?.is_none() {
                return Err(taken(store.index_ref().index, rows[at].row));
            }
        }
    }
    Ok(())
}

/// The keys that rows have in a secondary index.
fn collect<S: Keyed>(store: &S, rows: &[LoadedRow<'_>], keys: &mut Keys) -> Result<(), Error> {
    keys.clear();
    let extractor = store.extractor();
    for LoadedRow { row, .. } in rows {
        let mut scratch = KeyScratch::new();
        let index_ref = store.index_ref();
        let key = extractor.extract(*row, &mut scratch);
        keys.push(key.map_err(|error| Error::from(error).in_index(index_ref.table, index_ref.index))?);
    }
    Ok(())
}

/// The order of keys: their positions, each behind its key's first bytes, which most often tell it from others.
fn sort(keys: &Keys, order: &mut Vec<(u128, usize)>) {
    order.clear();
    order.extend((0..keys.len()).map(|at| {
        let (key, mut first) = (keys.get(at), [0; 16]);
        let len = key.len().min(first.len());
        first[..len].copy_from_slice(&key[..len]);
        (u128::from_be_bytes(first), at)
    }));
    order.sort_unstable_by(|(first, one), (second, other)| {
        first.cmp(second).then_with(|| keys.get(*one).cmp(keys.get(*other)))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_order() {
        let ends = [&[][..], &[0], &[0, 0], &[0, 0, 7], &[1], &[255, 1]];
        let mut long = Vec::new();
        for length in [0, 1, 14, 15, 16, 17, 40] {
            for end in ends {
                long.push([&vec![5; length], end].concat());
            }
        }
        let mut keys = Keys::default();
        long.iter().for_each(|key| keys.push(key));
        let mut order = Vec::new();
        sort(&keys, &mut order);
        let sorted: Vec<_> = order.iter().map(|&(_, at)| keys.get(at)).collect();
        long.sort_unstable();
        assert_eq!(sorted, long);
    }
}
