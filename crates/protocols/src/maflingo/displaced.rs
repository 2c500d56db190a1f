//! Deleted rows that only snapshots see leave their index for one beside it.
//!
//! A row that a long snapshot sees keeps its record when it is deleted. Would its key stay in the index, a queue would be scanned through
//! all that was deleted since the snapshot began. So a tombstone that has become the past, and that a snapshot looks behind, is *displaced*
//! (`reclaim.rs`), under its latch:
//!
//! 1. its key goes into the index beside;
//! 2. `until` is raised to its epoch;
//! 3. its key leaves the index;
//! 4. the record is marked as unlinked.
//!
//! To a transaction that may write, that is a tombstone that was unlinked. A snapshot that is older than `until` and finds no row of a key
//! looks beside, and its scans go along both. It looks at `until` behind the index: what it misses there because of step 3 it is told of by
//! step 2. If the key comes back it does so on another record, in a later epoch than the tombstone's: of the two records
//! one at most has a row for a snapshot. But a row that *moves* to a larger record, is deleted and displaced between a scan's two looks
//! lies in both: on its old record, which the first look found, and on the larger one, whose chain goes on with the old one. So a scan that
//! has seen a row of a key passes by what else lies under it.
//!
//! When no snapshot is older than the tombstone, it leaves the index beside, and is retired.

use std::ops::Range;

use polychron_base::key::EncodedKey;
use polychron_engine::mutations::left_out;
use polychron_engine::stores;
use polychron_index::{AnyIndex, Inserted};
use polychron_memory::Guard;
use polychron_sync::atomic::{AtomicU64, Ordering};

use super::record::{Record, Tid};
use super::steps::Step;
use super::table::{self, Entries, Store};
use super::transaction::{Found, Reader};
use super::worker::State;

/// The index beside, and the latest deletion of what went there.
#[derive(Debug)]
pub(super) struct Displaced {
    /// None beside an index without an order, which no thread scans, and where there was no memory for it: tombstones stay where they are
    /// then.
    store: Option<Entries>,
    /// Snapshots of this epoch or a later one see nothing of what lies beside.
    until: AtomicU64,
}

impl Displaced {
    pub(super) fn new(store: Option<Entries>) -> Self {
        Self { store, until: AtomicU64::new(0) }
    }

    /// The index beside, and what it leads to.
    pub(super) fn entries(&self) -> Option<&Entries> {
        self.store.as_ref()
    }

    /// The index beside.
    #[inline]
    pub(super) fn index(&self) -> Option<&AnyIndex> {
        self.store.as_ref().map(stores::Store::index)
    }

    /// Whether rows that a snapshot of this epoch sees may lie beside.
    #[inline]
    pub(super) fn concern(&self, epoch: u64) -> bool {
        // Acquire: pairs with the release in `displace`.
        epoch < self.until.load(Ordering::Acquire) && !left_out(Step::LookBeside)
    }

    /// The record that lies beside for a key.
    pub(super) fn find<'g, K: EncodedKey>(&self, key: K, guard: &'g Guard<'_>) -> Option<Record<'g>> {
        table::find(self.store.as_ref()?, key, guard)
    }
}

impl Store {
    /// Displaces a tombstone, whose latch the caller holds, and gives the latch back. `false`: it stays where it is, latched.
    pub(super) fn displace<K: EncodedKey>(&self, key: K, record: Record<'_>, tid: Tid, guard: &Guard<'_>) -> bool {
        let Some(beside) = self.displaced.index() else { return false };
        // Another record of the key may lie there, and there may be no memory.
        if !matches!(beside.insert(key, record.handle(), &mut (), guard), Ok(Inserted::New)) {
            return false;
        }
        // Release: pairs with the acquire in `concern`.
        self.displaced.until.fetch_max(tid.epoch(), Ordering::Release);
        let removed = self.index().remove(key, record.handle(), guard);
        debug_assert!(removed, "the record was linked and latched");
        record.unlink();
        true
    }
}

impl State {
    /// A key has no row in the index: for a snapshot it may have one beside.
    #[inline]
    pub(super) fn or_beside<'g, K: EncodedKey>(
        &mut self,
        reader: Reader<'g>,
        store: &Store,
        key: K,
        range: Range<usize>,
        missed: Found<'g>,
    ) -> Found<'g> {
        match reader.snapshot {
            Some(snapshot) if store.displaced.concern(snapshot.epoch()) => {
                self.find_beside(reader, store, key, range).unwrap_or(missed)
            }
            _ => missed,
        }
    }

    #[cold]
    fn find_beside<'g, K: EncodedKey>(
        &mut self,
        reader: Reader<'g>,
        store: &Store,
        key: K,
        range: Range<usize>,
    ) -> Option<Found<'g>> {
        let record = store.displaced.find(key, reader.guard)?;
        self.see(reader, record, range).then_some(Found::Row(record))
    }

    /// Reads the row of a record as a snapshot sees it, if it has one.
    pub(super) fn see<'g>(&mut self, reader: Reader<'g>, record: Record<'g>, range: Range<usize>) -> bool {
        let row = &mut self.buffers.row;
        reader.snapshot.is_some_and(|snapshot| record.read_at(snapshot, range, row).present)
    }
}
