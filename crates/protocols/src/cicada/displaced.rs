//! Deleted records that only old readers see leave their index for one beside it.
//!
//! A row that a long reader sees keeps its record when it is deleted, and in a single-version index the key would keep its entry: a queue whose head is
//! deleted would be scanned through all that was deleted since the reader began. When the deletion is stable, the record is *displaced*:
//!
//! 1. its key goes into the index beside;
//! 2. `until` is raised to the timestamp of the deletion;
//! 3. the record is sealed, so that no version is installed there from now on: a key that comes back gets another record, as with a closed
//!    one;
//! 4. its key leaves the index.
//!
//! A transaction with a timestamp at or after `until` sees none of these rows and looks at the index alone. A snapshot of an earlier timestamp that misses a
//! key looks beside, and its scans go along both. It looks at `until` behind the index, so what it misses there because of step 4 it learns of by step
//! 2. A transaction that may write and is so old has been overtaken: it conflicts where it misses a key or scans.
//!
//! The item of the record waits for the oldest reader, as it did before, and then the record is closed and its key leaves the index beside.

use std::ops::ControlFlow;

use polychron_base::key::EncodedKey;
use polychron_base::{Error, Reason};
use polychron_engine::Scan;
use polychron_engine::midway::Midway;
use polychron_engine::stores::{self, OwnedKey};
use polychron_index::{AnyIndex, Inserted};
use polychron_memory::Guard;
use polychron_sync::atomic::{AtomicU64, Ordering};

use super::kept::Ranges;
use super::record::{Closed, Latched, Record, Version};
use super::table::{Heads, Store};
use super::timestamp::Timestamp;
use super::transaction::{CicadaTransaction, Found, Source};

/// The index beside, and the latest deletion of what went there.
#[derive(Debug)]
pub(super) struct Displaced {
    pub(super) entries: Option<stores::Store<Heads>>,
    /// Zero: there is none that anybody sees.
    pub(super) until: AtomicU64,
}

impl Displaced {
    /// The index beside; a multi-version index needs none.
    #[inline]
    pub(super) fn index(&self) -> Option<&AnyIndex> {
        self.entries.as_ref().map(stores::Store::index)
    }

    /// Whether rows that are seen at this timestamp may lie beside.
    #[inline]
    pub(super) fn concern(&self, timestamp: Timestamp) -> bool {
        // Acquire: pairs with the release in `raise`.
        let until = self.until.load(Ordering::Acquire);
        until != 0 && timestamp.is_before(Timestamp(until))
    }

    fn raise(&self, deletion: Timestamp) {
        let later = |until: u64| (until == 0 || Timestamp(until).is_before(deletion)).then_some(deletion.0);
        // Release: pairs with the acquire in `concern`. An error says that it is late enough.
        let _ = self.until.fetch_update(Ordering::AcqRel, Ordering::Relaxed, later);
    }

    /// Forgets until when there was something once nobody is so old: otherwise it would come to lie in the future.
    pub(super) fn renew(&self, stable: Timestamp) {
        let until = self.until.load(Ordering::Relaxed);
        if until != 0 && !stable.is_before(Timestamp(until)) {
            // A thread that has raised it meanwhile keeps it.
            let _ = self.until.compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl Store {
    /// Displaces a deleted record that old readers see; `deletion` is its latest version, which is stable.
    pub(super) fn displace(&self, key: &OwnedKey, record: &Latched<'_>, deletion: Version<'_>, guard: &Guard<'_>) {
        match key {
            OwnedKey::Short(key) => self.displace_key(*key, record, deletion, guard),
            OwnedKey::Long(key) => self.displace_key(&**key, record, deletion, guard),
        }
    }

    fn displace_key<K: EncodedKey>(&self, key: K, latched: &Latched<'_>, deletion: Version<'_>, guard: &Guard<'_>) {
        let record = latched.record();
        let Some(beside) = self.displaced.index() else { return };
        // Another record of the key may lie there, and without memory everything stays where it is.
        let inserted = beside.insert(key, record.handle(), &mut (), guard);
        if !matches!(inserted, Ok(Inserted::New)) {
            return;
        }
        self.displaced.raise(deletion.wts());
        let from = if latched.seal(deletion) { self.index() } else { beside };
        let removed = from.remove(key, record.handle(), guard);
        assert!(removed, "the record was in both, and only the holder of its latch removes it");
    }

    /// Whether a key leads to a record, in the index or beside.
    pub(super) fn leads_to<K: EncodedKey>(&self, key: K, record: Record<'_>, guard: &Guard<'_>) -> bool {
        let handle = Some(record.handle());
        self.index().find(key, guard) == handle
            || record.is_sealed() && self.displaced.index().and_then(|beside| beside.find(key, guard)) == handle
    }

    /// Removes the key of a record that was closed just now from the index in which it is.
    pub(super) fn remove_key<K: EncodedKey>(&self, key: K, closed: &Closed<'_>, guard: &Guard<'_>) {
        let handle = closed.record().handle();
        let removed = self.index().remove(key, handle, guard)
            || self.displaced.index().is_some_and(|beside| beside.remove(key, handle, guard));
        assert!(removed, "the record was in one of them, and only the holder of its latch removes it");
    }
}

impl CicadaTransaction<'_> {
    /// A key has no row in the index, for a reader so old that the row may lie beside.
    #[cold]
    pub(super) fn look_beside<K: EncodedKey>(&mut self, store: &Store, key: K, missed: Found) -> Result<Found, Error> {
        if !self.snapshot {
            return Err(self.conflict(Reason::Inconsistent, store.place(), None));
        }
        let beside = self.guard.find_beside(store, key);
        Ok(beside.map_or(missed, |record| self.read_record(record, store.place())))
    }

    /// As a scan of the index, along both. Answers whether the visitor stopped.
    #[cold]
    pub(super) fn scan_both(
        &mut self,
        scan: &Scan<'_>,
        store: &Store,
        visitor: &mut impl FnMut(&mut Self, Source) -> Result<ControlFlow<()>, Error>,
    ) -> Result<bool, Error> {
        if !self.snapshot {
            return Err(self.conflict(Reason::Inconsistent, store.place(), None));
        }
        let mut both = Ranges::default();
        loop {
            // Between two parts the guard may be renewed.
            self.midway = Midway::at_once();
            self.step()?;
            let more = both.fill(store, scan, &self.guard);
            while let Some(record) = both.next(scan.direction, &self.guard) {
                let found = self.read_record(record, store.place());
                if let Found::Row(source) = found
                    && visitor(self, source)?.is_break()
                {
                    return Ok(true);
                }
            }
            if !more {
                return Ok(false);
            }
        }
    }
}
