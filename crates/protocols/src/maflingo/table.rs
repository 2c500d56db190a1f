//! A table: its primary index holds the records, each secondary index is a further map from secondary key to a record
//! that holds the primary key (§4.4). Beside each that has an order there is a second one for what only snapshots see.

use std::ops::Deref;

use polychron_base::Error;
use polychron_base::key::EncodedKey;
use polychron_engine::stores::{self, Base, Keyed, Records, StoreDefinition, StoreTable};
use polychron_index::{AnyIndex, Handle};
use polychron_memory::Guard;

use super::displaced::Displaced;
use super::record::{HEADER_BYTES, Record};

/// A table.
pub(super) type MaflingoTable = StoreTable<Store>;

/// One index and the records it leads to.
#[derive(Debug)]
pub struct Store {
    entries: stores::Store<RowRecords>,
    /// Deleted rows that only snapshots see.
    pub(super) displaced: Displaced,
}

impl Store {
    pub(super) fn new(base: &Base<Self>, definition: &StoreDefinition) -> Result<Self, Error> {
        let entries = base.store(definition)?;
        let is_ordered = matches!(entries.index(), AnyIndex::Ordered(_));
        let beside = if is_ordered { base.store_beside(definition) } else { None };
        Ok(Self { entries, displaced: Displaced::new(beside) })
    }
}

impl Deref for Store {
    type Target = stores::Store<RowRecords>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.entries
    }
}

impl Keyed for Store {
    type Records = RowRecords;

    #[inline]
    fn entries(&self) -> &stores::Store<RowRecords> {
        &self.entries
    }
}

/// The records behind the indexes.
#[derive(Debug)]
pub enum RowRecords {}

impl Records for RowRecords {
    const HEADER_BYTES: usize = HEADER_BYTES;

    /// Its older versions were retired when they were superseded.
    unsafe fn retire(handle: Handle, guard: &Guard<'_>) {
        // SAFETY: the caller promises that the handle is one of ours and not retired yet, and that no thread that pins from now on can reach
        // it.
        unsafe { Record::from_handle(handle, guard).retire(guard) };
    }
}

/// Records behind one index, which is all that such an index leads to.
pub(super) type Entries = stores::Store<RowRecords>;

/// The record to which a key leads.
pub(super) fn find<'g, K: EncodedKey>(entries: &Entries, key: K, guard: &'g Guard<'_>) -> Option<Record<'g>> {
    let handle = entries.index().get(key, guard).handle;
    // SAFETY: the handle was found under the guard.
    handle.map(|handle| unsafe { Record::from_handle(handle, guard) })
}

/// Visits all records.
pub(super) fn for_each<'g>(entries: &Entries, guard: &'g Guard<'_>, visit: &mut impl FnMut(Record<'g>)) {
    stores::for_each(entries.index(), guard, &mut |_, handle| {
        // SAFETY: the handle was found under the guard.
        visit(unsafe { Record::from_handle(handle, guard) });
    });
}

/// Takes a key out that leads to a record, does `then` with the record, and gives it back. The caller has seen to its older versions.
pub(super) fn remove<'g, K: EncodedKey>(
    entries: &Entries,
    key: K,
    record: Record<'g>,
    guard: &Guard<'_>,
    then: impl FnOnce(Record<'g>),
) {
    let removed = entries.index().remove(key, record.handle(), guard);
    debug_assert!(removed, "only the holder of the record's latch, or of its tombstone, removes it");
    then(record);
    if removed {
        // SAFETY: the index has just forgotten the record, which is in no other one, so only guards that exist now can reach it.
        unsafe { record.retire(guard) };
    }
}
