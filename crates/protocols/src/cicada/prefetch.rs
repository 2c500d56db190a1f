//! Batches: the index lines and then the records of procedures that wait are brought into the caches while others run.
//!
//! Where a look-up found a record it leaves a hint, and the transaction that asks for the key goes straight there. That is safe because
//! a record serves one key until it is closed, and its place no other one while the batch holds its guard: a record that shows a
//! row is not closed. A snapshot renews its guard, but in a place that serves another key by then it sees nothing. In every
//! other case the key is looked up again.

use std::sync::Arc;

use polychron_base::TableId;
use polychron_base::key::Key16;
use polychron_engine::stores::Prefetched;
use polychron_index::{AnyIndex, Handle};

use super::record::Record;
use super::table::CicadaTable;

/// The tables as look-ups see them that are made ahead.
pub(super) struct Declared<'t>(pub(super) &'t [Option<Arc<CicadaTable>>]);

impl Prefetched for Declared<'_> {
    const HAS_MORE: bool = true;

    #[inline]
    fn locate(&self, table: TableId, _key: &Key16) -> Option<(&AnyIndex, usize)> {
        let table = polychron_engine::catalog::known(self.0, table)?;
        if table.primary.versioned.is_some() {
            return None;
        }
        Some((table.primary.index(), table.primary.records.lines()))
    }

    /// The latest version, where rows do not fit into heads. The head must have come, so asking too early waits for it.
    #[inline]
    fn fetch_more(&self, table: TableId, handle: Handle) {
        if let Some(table) = polychron_engine::catalog::known(self.0, table)
            && !table.primary.fits_inline
        {
            // SAFETY: the handle was found just now, under the guard that is held.
            unsafe { Record::from_handle(handle) }.prefetch_latest();
        }
    }
}
