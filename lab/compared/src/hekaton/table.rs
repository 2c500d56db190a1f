//! What tables are made of: each index leads to records, which are lists of versions; those of a secondary index hold primary keys.

use polychron_engine::stores::{self, Records, StoreTable};
use polychron_index::Handle;
use polychron_memory::Guard;
use polychron_sync::Backoff;

use super::version::Record;

/// One index and the records it leads to.
pub(super) type Store = stores::Store<VersionLists>;

/// A table.
pub(super) type HekatonTable = StoreTable<Store>;

/// The records behind the indexes.
#[derive(Debug)]
pub enum VersionLists {}

impl Records for VersionLists {
    /// A record leads to its versions; its own line is one.
    const HEADER_BYTES: usize = 0;

    unsafe fn retire(handle: Handle, guard: &Guard<'_>) {
        // SAFETY: the caller promises that the handle is one of ours, and the guard keeps the record.
        let record = unsafe { Record::from_handle(handle) };
        let mut backoff = Backoff::new();
        while !record.try_collect() {
            backoff.wait();
        }
        let mut version = record.close();
        record.end_collection();
        while let Some(gone) = version {
            version = gone.next();
            // SAFETY: the record is closed, so a thread that pins from now on finds none of its versions; collectors find it closed.
            unsafe { gone.retire(guard) };
        }
        // SAFETY: the share of the index, which goes.
        unsafe { record.release(guard) };
    }
}
