//! Deleted records that only snapshots see leave their index for one beside it.
//!
//! A row that a snapshot sees keeps its record when it is deleted. Would its key stay in the index, a queue would be scanned through all that
//! was deleted since the snapshot began. So when collection has thinned a record that is absent, and its newest image was committed no later
//! than any transaction began that may write, the record is *displaced*, under its latch:
//!
//! 1. its key goes into the index beside;
//! 2. `until` is raised to the commit time of that image;
//! 3. the record is marked, so that nothing is put on it any more: a key that comes back gets another record, as with a closed one;
//! 4. its key leaves the index.
//!
//! Every transaction that may write began later, now and from now on, so it sees no such row and looks at the index alone. A snapshot that
//! began before `until` and finds no row of a key looks beside, and its scans go along both. It looks at `until` behind the index: what it
//! misses there because of step 4 it is told of by step 2.
//!
//! When nobody sees the row any more, the record is closed as others are, and its key leaves the index beside.

use std::ops::ControlFlow;

use polychron_base::Stop;
use polychron_base::key::EncodedKey;
use polychron_engine::mutations::left_out;
use polychron_engine::redo::Redo;
use polychron_engine::rows::Visit;
use polychron_engine::stores::{Both, Store};
use polychron_engine::{Projection, Scan};
use polychron_index::{AnyIndex, Inserted};
use polychron_memory::Guard;
use polychron_schema::RowRef;
use polychron_sync::atomic::{AtomicU64, Ordering};

use super::rows::{Latched, Record};
use super::steps::Step;
use super::table::{Relation, RowNumbers};
use super::transaction::HyperTransaction;

/// The index beside, and the latest deletion of what went there.
#[derive(Debug)]
pub(super) struct Displaced {
    /// None where there was no memory for it: then deleted records stay where they are.
    store: Option<Store<RowNumbers>>,
    /// Who began then or later sees nothing of what lies beside.
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

    /// Whether rows that are seen at this moment may lie beside.
    #[inline]
    pub(super) fn concern(&self, moment: u64) -> bool {
        // Acquire: pairs with the release in `displace`.
        moment < self.until.load(Ordering::Acquire) && !left_out(Step::LookBeside)
    }
}

impl Relation {
    /// Displaces an absent record whose newest image was committed at a moment that is no later than any transaction began that may write.
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
        debug_assert!(removed, "an open record is in its index, and only who has its latch takes it out");
    }
}

impl<'w, R: Redo> HyperTransaction<'w, R> {
    /// A snapshot has found no row of a key in the index. One may lie beside that it sees; its columns are brought then.
    #[cold]
    pub(super) fn read_beside<K: EncodedKey>(
        &mut self,
        store: &'w Relation,
        key: K,
        projection: &Projection,
    ) -> Option<Record<'w>> {
        let handle = store.displaced.index().and_then(|beside| beside.find(key, &self.guard))?;
        // SAFETY: the handle was found under this transaction's guard, and is of a record of these rows.
        let record = unsafe { store.record(handle) };
        self.see(record, projection).present.then_some(record)
    }

    /// As `visit_batches`, of a snapshot, along both indexes, from where the buffer for that says.
    #[cold]
    pub(super) fn visit_both<V: FnMut(RowRef<'_>) -> ControlFlow<()>>(
        &mut self,
        store: &'w Relation,
        visit: &mut Visit<'_, 'w, Relation, V>,
    ) -> Result<(), Stop> {
        let mut both = std::mem::take(&mut self.state.buffers.both);
        let outcome = self.visit_parts(store, visit, &mut both);
        self.state.buffers.both = both;
        outcome
    }

    fn visit_parts<V: FnMut(RowRef<'_>) -> ControlFlow<()>>(
        &mut self,
        store: &'w Relation,
        visit: &mut Visit<'_, 'w, Relation, V>,
        both: &mut Both,
    ) -> Result<(), Stop> {
        let Some(beside) = store.displaced.index() else { return Ok(()) };
        let scan: &Scan<'_> = visit.scan;
        loop {
            // Between two parts the guard may be renewed.
            self.step()?;
            let more = both.fill((store.index(), beside), scan, &self.guard);
            while let Some(handle) = both.next(scan.direction) {
                // SAFETY: the handle was found under this transaction's guard.
                let record = unsafe { store.record(handle) };
                if self.visit_record(record, visit)?.is_break() {
                    return Ok(());
                }
            }
            if !more {
                return Ok(());
            }
        }
    }
}
