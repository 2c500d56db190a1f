//! A table: its primary index holds the records, each secondary index is a further map from secondary key to a record
//! that holds the primary key (§4.4).

use polychron_engine::stores::{self, Records, StoreTable};
use polychron_index::Handle;
use polychron_memory::Guard;

use super::record::{HEADER_BYTES, Record};

/// One index and the records it leads to.
pub(super) type Store = stores::Store<RowRecords>;

/// A table.
pub(super) type MaflingoTable = StoreTable<Store>;

/// The records behind the indexes.
#[derive(Debug)]
pub(super) enum RowRecords {}

impl Records for RowRecords {
    const HEADER_BYTES: usize = HEADER_BYTES;

    /// Its older versions were retired when they were superseded.
    unsafe fn retire(handle: Handle, guard: &Guard<'_>) {
        // SAFETY: the caller promises that the handle is one of ours, and not retired yet.
        let record = unsafe { Record::from_handle(handle) };
        // SAFETY: the caller promises that nobody who pins from now on can reach it.
        unsafe { guard.retire(record.memory(), record.bytes()) };
    }
}
