//! Stores: what protocols share whose rows are records behind an index. Offered, never required.
//!
//! A [`Store`] is an index and the records it leads to; a [`StoreTable`] has one for its primary key and one for each
//! secondary index, whose records hold primary keys as words ([`entry_words`]). What a record is, and which transactions may see it, is
//! the protocol's own.

mod base;
mod batch;
mod both;
mod deferred;
mod fingers;
mod hints;
mod in_place;
mod kept_key;
pub mod knobs;
mod loading;
mod nodes;
mod protocol;
mod record;
mod rows;
mod table;
mod undo;
mod worker;
mod write_table;

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use polychron_base::key::HashSeed;
use polychron_base::{Error, IndexId, TableId};
use polychron_index::hash::HashIndex;
use polychron_index::ordered::OrderedIndex;
use polychron_index::{AnyIndex, Handle};
use polychron_memory::Guard;
use polychron_schema::{IndexKind, KeyExtractor};
use polychron_sync::atomic::{AtomicU64, Ordering};

use crate::Scan;

pub use base::Base;
pub use batch::Batch;
pub use both::{Both, Point};
pub use deferred::{DeferredDrops, Keys, OwnedKey, for_each, wait_for};
pub use fingers::Fingers;
pub use hints::{Hinted, Hints};
pub use in_place::{InPlace, Placed};
pub use kept_key::KeySpan;
pub use knobs::Knobs;
pub use loading::{Indexes, Loading, load_rows};
pub use nodes::{NodeSet, NodeStep};
pub use protocol::StoreProtocol;
pub use record::{Record, RowRecords, is_too_roomy};
pub use rows::{check_row, entry_words, key_in_entry, words_of};
pub use table::{Keyed, StoreDefinition, StoreTable, has_dropped};
pub use undo::{UndoLog, Undoable};
pub use worker::{GROUP, Parts, PartsMut, StoreWorker, WorkerBase};
pub use write_table::WriteTable;

/// An index of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexRef {
    /// The table.
    pub table: TableId,
    /// The index.
    pub index: IndexId,
}

/// A protocol's records, as a store needs them: where their rows begin, and how their memory is freed.
pub trait Records: 'static {
    /// Bytes before the row.
    const HEADER_BYTES: usize;

    /// Retires the record behind a handle.
    ///
    /// # Safety
    /// The handle is one of this protocol's records, retired once; threads that pin from now on cannot reach it.
    unsafe fn retire(handle: Handle, guard: &Guard<'_>);
}

/// The epoch that an index has which is not filled yet.
const UNREADY: u64 = u64::MAX - 1;
/// The epoch that an index has which was dropped: for good.
const DROPPED: u64 = u64::MAX;

/// One index and the records it leads to.
#[derive(Debug)]
pub struct Store<R: Records> {
    /// Which index it is.
    pub index_ref: IndexRef,
    /// Makes the index's key of a row.
    pub extractor: KeyExtractor,
    /// The seed of its keys' hashes.
    pub hash_seed: HashSeed,
    /// Given back interactively, because that takes a guard.
    index: ManuallyDrop<AnyIndex>,
    /// The epoch from which on the index leads to every row. A new secondary index has none until it is filled, and a dropped one, which
    /// some writers no longer maintain, has none again.
    ready: AtomicU64,
    deferred_drops: Arc<DeferredDrops>,
    records: PhantomData<fn() -> R>,
}

impl<R: Records> Store<R> {
    /// An empty store.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn new(
        definition: &StoreDefinition,
        deferred_drops: &Arc<DeferredDrops>,
        guard: &Guard<'_>,
    ) -> Result<Self, Error> {
        let index = match definition.kind {
            IndexKind::Ordered => OrderedIndex::new(guard).map(AnyIndex::Ordered)?,
            IndexKind::Hash => {
                HashIndex::new(definition.expected_rows, definition.hash_seed, guard).map(AnyIndex::Hash)?
            }
        };
        Ok(Self {
            index_ref: definition.index_ref,
            extractor: definition.extractor.clone(),
            hash_seed: definition.hash_seed,
            index: ManuallyDrop::new(index),
            ready: AtomicU64::new(if definition.is_ready { 0 } else { UNREADY }),
            deferred_drops: Arc::clone(deferred_drops),
            records: PhantomData,
        })
    }

    /// The index.
    #[inline]
    pub fn index(&self) -> &AnyIndex {
        &self.index
    }

    /// The index, when it may be read and can answer the scan: one without order answers ranges of one key only.
    ///
    /// # Errors
    /// [`Error::NoSuchIndex`] while it is being filled and when it was dropped, [`Error::NoOrder`].
    #[inline]
    pub fn scanned(&self, scan: &Scan<'_>) -> Result<&AnyIndex, Error> {
        let IndexRef { table, index } = self.index_ref;
        if !self.is_ready() {
            return Err(Error::no_such_index(table, index));
        }
        match &*self.index {
            AnyIndex::Hash(_) if scan.point().is_none() => Err(Error::no_order(table, index)),
            index => Ok(index),
        }
    }

    /// Whether the index may be read in the present.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.ready() < UNREADY
    }

    /// Whether the index was dropped: transactions that know that do not keep it up.
    #[inline]
    pub fn is_dropped(&self) -> bool {
        self.ready() == DROPPED
    }

    /// The index is going to be dropped. Called before the catalog has the list of tables without it.
    pub fn set_dropped(&self) {
        // Pairs with the acquire in `ready`. No thread has to see it before the list: a thread that leaves the index alone has begun with
        // that.
        self.ready.store(DROPPED, Ordering::Release);
    }

    /// Whether the index may be read as of the end of an epoch in the past.
    #[inline]
    pub fn is_ready_at(&self, epoch: u64) -> bool {
        // No epoch ever comes to be `UNREADY` or `DROPPED`.
        epoch >= self.ready()
    }

    #[inline]
    fn ready(&self) -> u64 {
        // Pairs with the release in `set_ready_from`: a thread that sees it set sees every entry that filling made. And with that in
        // `set_dropped`; but what makes that known is the catalog's version and whatever leads from there to the reader.
        self.ready.load(Ordering::Acquire)
    }

    /// The index leads to every row, whenever it is read from now on: for protocols that read the present only.
    pub fn set_ready(&self) {
        self.set_ready_from(0);
    }

    /// The index leads to every row from now on; a thread that reads the past finds them all from the end of `epoch` on.
    pub fn set_ready_from(&self, epoch: u64) {
        // Release: pairs with the acquire in `ready`. An index that was dropped while it was filled remains so.
        let _ = self.ready.compare_exchange(UNREADY, epoch, Ordering::Release, Ordering::Relaxed);
    }
}

impl<R: Records> Drop for Store<R> {
    /// The last user of a dropped table or index gives its memory back; when the whole database goes, its memory goes at
    /// once and nothing is walked.
    fn drop(&mut self) {
        if self.deferred_drops.is_closing() {
            return;
        }
        self.deferred_drops.with_guard(|guard| {
            for_each(&self.index, guard, &mut |_, handle| {
                // A running transaction may still hold the record: it is retired, not freed.
                // SAFETY: the index goes with its last user, so no thread finds the record from now on.
                unsafe { R::retire(handle, guard) };
            });
            // SAFETY: the store is being dropped, so no thread uses the index, and no thread looks at the field again.
            unsafe { ManuallyDrop::take(&mut self.index).destroy(guard) };
        });
    }
}
