//! A table: for its primary key and for each secondary index a store, which is an index and the records it leads to. The
//! rows of a secondary index's records are primary keys.

use std::sync::Arc;

use polychron_base::Error;
use polychron_base::key::{EncodedKey, Key16};
use polychron_engine::Scan;
use polychron_engine::stores::{self, DeferredDrops, Hinted, IndexRef, Keyed, Records, StoreDefinition, StoreTable};
use polychron_index::{AnyIndex, Handle};
use polychron_memory::Guard;
use polychron_schema::{IndexKind, TableDefinition};
use polychron_sync::atomic::{AtomicU64, Ordering};

use super::array::RecordArray;
use super::bins::Bins;
use super::displaced::Displaced;
use super::gaps::PrefixLengths;
use super::protocol::Shared;
use super::record::{HEAD_BYTES, LONGEST_INLINE_BYTES, Reader, Record, RecordAddress};
use super::timestamp::Timestamp;
use super::versioned::Versioned;

/// A table.
pub(super) type CicadaTable = StoreTable<Store>;

/// What a variable column is taken to need in a head, in bytes.
const VARIABLE_BYTES: usize = 24;

/// Records are given back by their array, not one by one.
#[derive(Debug)]
pub enum Heads {}

impl Records for Heads {
    const HEADER_BYTES: usize = HEAD_BYTES;

    unsafe fn retire(_: Handle, _: &Guard<'_>) {}
}

/// One index and its records.
#[derive(Debug)]
pub struct Store {
    /// The single-version index; it stays empty where there is a multi-version one.
    pub(super) entries: stores::Store<Heads>,
    pub(super) records: RecordArray,
    pub(super) versioned: Option<Versioned>,
    pub(super) lengths: PrefixLengths,
    /// Deleted records that only old readers see.
    pub(super) displaced: Displaced,
    /// A clock reading that no transaction is ahead of which writes the table and does not know this index; zero while it is not known.
    known_after: AtomicU64,
    /// Snapshots of this timestamp or a later one find everything here.
    ready_from: AtomicU64,
    deferred_drops: Arc<DeferredDrops>,
}

impl Keyed for Store {
    type Records = Heads;

    const FETCHES_MORE: bool = true;

    #[inline]
    fn entries(&self) -> &stores::Store<Heads> {
        &self.entries
    }

    fn check_scan(&self, scan: &Scan<'_>) -> Result<(), Error> {
        let Some(nodes) = &self.versioned else { return self.entries.scanned(scan).map(drop) };
        let IndexRef { table, index } = self.entries.index_ref;
        if !self.entries.is_ready() {
            return Err(Error::no_such_index(table, index));
        }
        if nodes.ordered || scan.point().is_some() { Ok(()) } else { Err(Error::no_order(table, index)) }
    }

    #[inline]
    fn locate<'t>(table: &'t CicadaTable, _: &Key16) -> Option<(&'t AnyIndex, usize)> {
        if table.primary.versioned.is_some() {
            return None;
        }
        Some((table.primary.index(), table.primary.records.lines()))
    }

    /// The latest version, where it does not lie in its head. The head must have come, so asking too early waits for it.
    #[inline]
    fn fetch_more(table: &CicadaTable, record: Hinted<'_>) {
        // SAFETY: the index gave it just now, under a guard that is held.
        unsafe { RecordAddress::of(record.handle()).under(table) }.prefetch_latest();
    }
}

impl Store {
    pub(super) fn new(shared: &Shared, table: &TableDefinition, definition: &StoreDefinition) -> Result<Self, Error> {
        let Shared { base, options, clocks, .. } = shared;
        let is_primary = definition.index_ref.index == polychron_base::IndexId::PRIMARY;
        let row_bytes = if !options.parts().inlining {
            usize::MAX
        } else if is_primary {
            inlined_bytes(table)?
        } else {
            // A secondary entry of a short primary key fits in one line with its head.
            0
        };
        let name = if is_primary { None } else { table.indexes.last().map(|index| &index.name[..]) };
        let is_versioned = options.indexes.is_versioned(&table.name, name);
        let entries = match is_versioned {
            true => base.store(&StoreDefinition { kind: IndexKind::Ordered, ..definition.clone() }),
            false => base.store(definition),
        }?;
        let make_nodes = || {
            let (inlines, stable) = (options.parts().inlining, clocks.min_rts());
            base.deferred_drops.with_guard(|guard| Versioned::new(definition, inlines, stable, guard))
        };
        let versioned = is_versioned.then(make_nodes).transpose()?;
        // Without memory for it, deleted records stay where they are.
        let beside = if is_versioned { None } else { base.store_beside(definition) };
        let displaced = Displaced { entries: beside, until: AtomicU64::new(0) };
        Ok(Self {
            displaced,
            entries,
            versioned,
            records: RecordArray::new(row_bytes),
            lengths: PrefixLengths::default(),
            known_after: AtomicU64::new(0),
            ready_from: AtomicU64::new(0),
            deferred_drops: Arc::clone(&base.deferred_drops),
        })
    }

    #[inline]
    pub(super) fn place(&self) -> IndexRef {
        self.entries.index_ref
    }

    #[inline]
    pub(super) fn index(&self) -> &AnyIndex {
        self.entries.index()
    }

    /// A transaction that writes the table and does not know this index is not ahead of this clock reading.
    pub(super) fn set_known_after(&self, clock: u64) {
        self.known_after.store(clock.max(1), Ordering::Relaxed);
    }

    /// That reading, once it is known.
    pub(super) fn known_after(&self) -> Option<u64> {
        // Relaxed: it is a number, and what it tells of was known before it was stored.
        Some(self.known_after.load(Ordering::Relaxed)).filter(|&clock| clock != 0)
    }

    /// The record that a key has; it need not have a row.
    #[inline]
    pub(super) fn record_at<'g, K: EncodedKey>(
        &'g self,
        key: K,
        reader: Reader<'g>,
        guard: &'g Guard<'_>,
    ) -> Option<Record<'g>> {
        match &self.versioned {
            Some(nodes) => nodes.record_at(key, reader),
            // SAFETY: the handle was found under the guard.
            None => self.index().get(key, guard).handle.map(|handle| unsafe { RecordAddress::of(handle).under(guard) }),
        }
    }

    /// Visits the records to which the keys of a single-version index lead.
    pub(super) fn for_each_entry<'g>(&self, guard: &'g Guard<'_>, visit: &mut impl FnMut(&[u8], Record<'g>)) {
        stores::for_each(self.index(), guard, &mut |key, handle| {
            // SAFETY: the handle was found under the guard.
            visit(key, unsafe { RecordAddress::of(handle).under(guard) });
        });
    }

    /// Visits all records of rows, or of nodes, and slots where none is.
    pub(super) fn for_each_record<'g>(&'g self, is_node: bool, guard: &'g Guard<'_>, visit: impl FnMut(Record<'g>)) {
        match &self.versioned {
            Some(nodes) if is_node => nodes.for_each(guard, visit),
            None if is_node => {}
            _ => self.records.for_each(guard, visit),
        }
    }

    /// Where the heads of rows lie, or those of nodes.
    #[inline]
    pub(super) fn records_of(&self, is_node: bool) -> &RecordArray {
        match &self.versioned {
            Some(versioned) if is_node => &versioned.nodes,
            _ => &self.records,
        }
    }

    /// Gives back the memory of slots that serve nobody.
    pub(super) fn free_pages(&self, bins: &Bins, guard: &Guard<'_>) {
        self.records.free_pages(bins, guard);
        if let Some(versioned) = &self.versioned {
            versioned.nodes.free_pages(bins, guard);
        }
    }

    /// The index leads to every row; snapshots of an earlier timestamp than `filled` do not read it.
    pub(super) fn set_ready_from(&self, filled: Timestamp) {
        self.ready_from.store(filled.0, Ordering::Relaxed);
        // Releases the store above, too.
        self.entries.set_ready();
    }

    /// Forgets from when on the index is complete, when no snapshot can be older.
    pub(super) fn renew_ready_from(&self, stable: Timestamp) {
        let from = self.ready_from.load(Ordering::Relaxed);
        if from != 0 && !stable.is_before(Timestamp(from)) {
            self.ready_from.store(0, Ordering::Relaxed);
        }
    }

    /// Whether a snapshot of this timestamp may read the index.
    pub(super) fn is_ready_at(&self, timestamp: Timestamp) -> bool {
        let ready = self.entries.is_ready();
        let from = self.ready_from.load(Ordering::Relaxed);
        ready && (from == 0 || !timestamp.is_before(Timestamp(from)))
    }
}

/// How much room for the row a head gets: enough for the fixed columns and something for each variable one.
fn inlined_bytes(definition: &TableDefinition) -> Result<usize, Error> {
    let layout = definition.layout()?;
    let shape = layout.shape();
    let fixed = shape.fixed_bytes as usize;
    let whole = fixed + VARIABLE_BYTES * shape.variable_count as usize;
    Ok(if fixed <= LONGEST_INLINE_BYTES { whole.min(LONGEST_INLINE_BYTES) } else { whole })
}

impl Drop for Store {
    /// The last user of a dropped table or index gives its memory back; when the whole database goes, its memory goes at once.
    fn drop(&mut self) {
        if !self.deferred_drops.is_closing() {
            let Self { records, versioned, deferred_drops, .. } = self;
            deferred_drops.with_guard(|guard| {
                records.free_all(guard);
                if let Some(versioned) = versioned {
                    versioned.free_all(guard);
                }
            });
        }
    }
}
