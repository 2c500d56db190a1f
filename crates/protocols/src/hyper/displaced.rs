//! Deleted records that open transactions still see leave their index for one beside it.
//!
//! A row that a snapshot, or an older transaction that may write, sees keeps its record when it is deleted. If its key stayed in the index,
//! a queue would be scanned through all that was deleted since that transaction began. So when collection has pruned a record that is
//! absent, the record is *displaced*, under its latch:
//!
//! 1. its key goes into the index beside;
//! 2. `until` is raised to the commit time of the deletion, which is its newest before-image;
//! 3. the record is marked, so that nothing is put on it from now on: a key that comes back gets another record, as with a closed one;
//! 4. its key leaves the index.
//!
//! A transaction that began at or after `until` sees no such row and looks at the index alone. One that began before and finds no row of a
//! key looks beside, and its scans go along both. It looks at `until` behind the index: whatever it misses there because of step 4, step 2
//! tells it to look for.
//!
//! An older transaction that may write so reads the row, and conflicts when it writes the row: the deletion was committed since its start.
//! It also looks beside when the index has taken a key that it inserts, because a key that it sees must be refused.
//!
//! Once no thread still sees the row, the record is closed as others are, and its key leaves the index beside.

use polychron_base::Error;
use polychron_base::key::EncodedKey;
use polychron_engine::mutations::left_out;
use polychron_engine::rows::Visit;
use polychron_engine::stores::{Both, Store};
use polychron_engine::{Projection, RowVisitor, Scan};
use polychron_index::{AnyIndex, Inserted};
use polychron_memory::Guard;
use polychron_sync::atomic::{AtomicU64, Ordering};

use super::rows::{Latched, Record};
use super::steps::Step;
use super::table::{Relation, RowNumbers};
use super::transaction::HyperTransaction;
use super::view::{Shown, view};

/// The index beside, and the latest deletion of what went there.
#[derive(Debug)]
pub(super) struct Displaced {
    /// None where there was no memory for it: then deleted records stay where they are.
    store: Option<Store<RowNumbers>>,
    /// A thread that began then or later sees nothing of what lies beside.
    until: AtomicU64,
}

impl Displaced {
    pub(super) fn new(store: Option<Store<RowNumbers>>) -> Self {
        Self { store, until: AtomicU64::new(0) }
    }

    /// The index beside.
    #[inline]
    pub(super) fn index(&self) -> Option<&AnyIndex> {
        self.store.as_ref().map(Store::index)
    }

    /// Whether rows that are seen at this timestamp may lie beside.
    #[inline]
    pub(super) fn concern(&self, timestamp: u64) -> bool {
        // Acquire: pairs with the release in `displace`.
        timestamp < self.until.load(Ordering::Acquire)
    }
}

impl Relation {
    /// Displaces an absent record whose newest before-image was committed at a timestamp.
    pub(super) fn displace(
        &self,
        latched: &mut Latched<'_>,
        record: Record<'_>,
        key: &[u8],
        at: u64,
        guard: &Guard<'_>,
    ) {
        debug_assert!(!latched.is_present() && latched.is_in_index(), "only what was deleted goes");
        let Some(beside) = self.displaced.index() else { return };
        // Another record of the key may lie there, and without memory everything stays where it is.
        if !matches!(beside.insert(key, record.handle(), &mut (), guard), Ok(Inserted::New)) {
            return;
        }
        // Release: pairs with the acquire in `concern`.
        self.displaced.until.fetch_max(at, Ordering::Release);
        latched.displace();
        let removed = self.index().remove(key, record.handle(), guard);
        debug_assert!(removed, "an open record is in its index, and only the holder of its latch removes it");
    }
}

impl<'w> HyperTransaction<'w> {
    /// Whether rows that the transaction sees may lie beside an index. To be asked behind a look at the index.
    #[inline]
    pub(super) fn may_see_beside(&self, store: &Relation) -> bool {
        let step = if self.snapshot { Step::LookBeside } else { Step::WritersLookBeside };
        store.displaced.concern(self.start) && !left_out(step)
    }

    #[cold]
    fn find_beside<K: EncodedKey>(&self, store: &'w Relation, key: K) -> Option<Record<'w>> {
        let handle = store.displaced.index()?.find(key, &self.guard)?;
        Some(store.record(handle))
    }

    /// The record of a key that shows a row, and what it shows of some columns, in the row buffer. No observation is logged.
    #[inline]
    pub(super) fn find_seen<K: EncodedKey>(
        &mut self,
        store: &'w Relation,
        key: K,
        projection: &Projection,
    ) -> Option<(Record<'w>, Shown)> {
        let found = self.lookup(store, key).map(|record| (record, self.see(record, projection)));
        if let Some(found) = found.filter(|(_, seen)| seen.present) {
            return Some(found);
        }
        let beside = if self.may_see_beside(store) { self.find_beside(store, key) } else { None };
        beside.map(|record| (record, self.see(record, projection))).filter(|(_, seen)| seen.present)
    }

    /// As [`Self::find_seen`], with the row's first words in place of the row buffer.
    pub(super) fn find_shown<K: EncodedKey>(
        &mut self,
        store: &'w Relation,
        key: K,
        words: &mut [u64],
    ) -> Option<Record<'w>> {
        let found = self.lookup(store, key).filter(|record| self.shows(*record, words));
        if found.is_some() || !self.may_see_beside(store) {
            return found;
        }
        self.find_beside(store, key).filter(|record| self.shows(*record, words))
    }

    #[inline]
    fn shows(&self, record: Record<'w>, words: &mut [u64]) -> bool {
        view(record, 0..words.len(), words, (self.start, self.id), &self.guard).present
    }

    /// Whether the transaction sees a row of a key beside an index, which has just taken the same key from it.
    #[inline]
    pub(super) fn has_beside<K: EncodedKey>(&self, store: &'w Relation, key: K) -> bool {
        store.displaced.concern(self.start)
            && !left_out(Step::InsertBeside)
            && self.find_beside(store, key).is_some_and(|record| self.shows(record, &mut []))
    }

    /// As `visit_batches`, along both indexes, from where the buffer for that says.
    #[cold]
    pub(super) fn visit_both<V: RowVisitor>(
        &mut self,
        store: &'w Relation,
        visit: &mut Visit<'_, 'w, Relation, V>,
    ) -> Result<(), Error> {
        let mut both = std::mem::take(&mut self.state.buffers.both);
        let outcome = self.visit_parts(store, visit, &mut both);
        self.state.buffers.both = both;
        outcome
    }

    fn visit_parts<V: RowVisitor>(
        &mut self,
        store: &'w Relation,
        visit: &mut Visit<'_, 'w, Relation, V>,
        both: &mut Both,
    ) -> Result<(), Error> {
        let Some(beside) = store.displaced.index() else { return Ok(()) };
        let scan: &Scan<'_> = visit.scan;
        loop {
            // Between two parts the guard may be renewed.
            self.step()?;
            let more = both.fill((store.index(), beside), scan, &self.guard);
            while let Some(handle) = both.next(scan.direction) {
                let record = store.record(handle);
                if self.visit_record(record, visit)?.is_break() {
                    self.log_range(visit.table, store, scan, both.key());
                    return Ok(());
                }
            }
            if !more {
                self.log_range(visit.table, store, scan, None);
                return Ok(());
            }
        }
    }
}
