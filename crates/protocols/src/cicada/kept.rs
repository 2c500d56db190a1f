//! What a transaction finds in indexes, and keeps in its sets: addresses, which its own guard turns back into records and versions.
//!
//! A record that was found stays with the guard; a version that was seen, and the record in which it is, stay with the span of the transaction, too
//! (`clocks/held.rs`), when that leaves its epoch between two operations (`aside.rs`).

use std::ops::Deref;

use polychron_base::TableId;
use polychron_base::key::EncodedKey;
use polychron_engine::contested::RowAddress;
use polychron_engine::stores::{Batch, Both, Fingers, Hints, IndexRef, NodeSet};
use polychron_engine::{Direction, Scan};
use polychron_index::{Handle, Inserted, Lookup, Stamp};
use polychron_memory::{Guard, Local, OutOfMemory};

use super::array::NewRecord;
use super::clocks::Clocks;
use super::protocol::Shared;
use super::record::{Address, Guarded, Installed, InstalledAddress, Kind, OfRecord, OfVersion, Reader, RecordAddress};
use super::table::Store;
use super::timestamp::Timestamp;
use super::transaction::CicadaTransaction;
use super::worker::State;

/// A record or a version in the sets of a transaction, or one that it has found in the operation that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeptAddress<K>(Address<K>);

/// A record in the sets of a transaction.
pub(super) type Kept = KeptAddress<OfRecord>;
/// A version in the sets of a transaction.
pub(super) type KeptVersion = KeptAddress<OfVersion>;

impl<K: Kind> KeptAddress<K> {
    /// What lies there.
    ///
    /// # Safety
    /// The transaction of the guard has found it, and keeps it: a record in the epoch in which the guard is; a version there, too, if the
    /// transaction has not ended since; and by the transaction's span the version of a row that it has read, and its record.
    #[inline]
    pub(super) unsafe fn under<'g>(self, guard: &'g OwnGuard<'_>) -> Guarded<'g, K> {
        // SAFETY: as promised.
        unsafe { self.0.under(guard) }
    }

    /// Where it lies.
    #[inline]
    pub(super) fn address(self) -> Address<K> {
        self.0
    }
}

impl<K: Kind> From<Guarded<'_, K>> for KeptAddress<K> {
    #[inline]
    fn from(found: Guarded<'_, K>) -> Self {
        Self(found.address())
    }
}

impl From<Kept> for RowAddress {
    #[inline]
    fn from(record: Kept) -> Self {
        Self(record.0.number() as usize)
    }
}

/// A version that a transaction has installed, and its record.
#[derive(Debug)]
pub(super) struct KeptInstalled {
    record: Kept,
    version: InstalledAddress,
}

impl KeptInstalled {
    pub(super) fn new(record: Kept, installed: Installed<'_>) -> Self {
        Self { record, version: installed.keep() }
    }

    /// The record.
    #[inline]
    pub(super) fn record(&self) -> Kept {
        self.record
    }

    /// The version.
    #[inline]
    pub(super) fn version(&self) -> KeptVersion {
        KeptAddress(self.version.address())
    }

    /// The version, under the guard of its transaction, which ends it.
    ///
    /// # Safety
    /// As for [`KeptAddress::under`].
    #[inline]
    pub(super) unsafe fn under<'g>(self, guard: &'g OwnGuard<'_>) -> Installed<'g> {
        // SAFETY: as promised.
        let version = unsafe { self.version().under(guard) };
        self.version.of(version)
    }
}

/// What is begun besides the transactions of clients.
#[derive(Clone, Copy, Debug)]
pub(super) enum Beginning {
    /// A transaction of a round of renewal.
    InRound,
    /// One that writes what is there once more.
    InBetween,
}

/// The guard and the timestamp of a transaction, under which all is found that is in its sets. It ends the transaction when it is dropped.
#[derive(Debug)]
pub(super) struct OwnGuard<'w> {
    guard: Guard<'w>,
    clocks: &'w Clocks,
    timestamp: Timestamp,
    /// Whether the slot holds the timestamp.
    is_open: bool,
}

impl<'w> Deref for OwnGuard<'w> {
    type Target = Guard<'w>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.guard
    }
}

impl Drop for OwnGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.end();
    }
}

impl<'w> OwnGuard<'w> {
    /// # Safety
    /// The guard's slot has begun at this timestamp, which nothing else ends. Fingers and hints of the guard's worker are cleared when the epoch is left
    /// in which they were found.
    #[inline]
    pub(super) unsafe fn new(guard: Guard<'w>, clocks: &'w Clocks, timestamp: Timestamp) -> Self {
        Self { guard, clocks, timestamp, is_open: true }
    }

    /// Begins a transaction that is not a client's, if the clocks admit one.
    pub(super) fn begin(shared: &'w Shared, state: &mut State, local: &'w Local, beginning: Beginning) -> Option<Self> {
        let (clocks, slot) = (&shared.clocks, state.base.slot);
        let timestamp = match beginning {
            Beginning::InRound => clocks.begin_in_round(slot, &mut state.clock),
            Beginning::InBetween => clocks.begin_standing(slot, &mut state.clock)?,
        };
        // SAFETY: the slot has begun just now.
        Some(unsafe { Self::new(local.pin(), clocks, timestamp) })
    }

    /// The transaction ends; its guard stays.
    #[inline]
    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.is_open) {
            // SAFETY: `new` was promised that it is this one's. Who reads at it has borrowed this guard, and what is kept beyond is not looked at, as
            // who calls `under` promises.
            unsafe { self.clocks.end(self.slot()) };
        }
    }

    /// The slot, whose transaction had ended, has begun at another timestamp, if the clocks have admitted it.
    fn reopen(&mut self, begun: Option<Timestamp>) -> bool {
        self.timestamp = begun.unwrap_or(self.timestamp);
        self.is_open = begun.is_some();
        self.is_open
    }

    #[inline]
    fn slot(&self) -> usize {
        self.guard.worker_id().position()
    }

    /// The transaction's timestamp: where it is in the serial order; what a snapshot reads at.
    #[inline]
    pub(super) fn timestamp(&self) -> Timestamp {
        self.timestamp
    }

    /// What the transaction reads at.
    #[inline]
    pub(super) fn reader(&self) -> Reader<'_> {
        assert!(self.is_open, "the transaction has not ended");
        // SAFETY: the slot holds the timestamp until `end`, for which nobody may borrow this guard.
        unsafe { Reader::new(&self.guard, self.timestamp) }
    }

    /// Looks a key up near where the last one was.
    #[inline]
    pub(super) fn get<K: EncodedKey>(&self, fingers: &mut Fingers, store: &Store, key: K) -> (Option<Kept>, Stamp) {
        // SAFETY: as `new` was promised, fingers are cleared whenever the guard is another one, or is renewed.
        let Lookup { handle, stamp } = unsafe { fingers.get(&store.entries, key, &self.guard) };
        (handle.map(kept), stamp)
    }

    /// The same of the record alone.
    #[inline]
    pub(super) fn find<K: EncodedKey>(&self, fingers: &mut Fingers, store: &Store, key: K) -> Option<Kept> {
        // SAFETY: as above.
        unsafe { fingers.find(&store.entries, key, &self.guard) }.map(kept)
    }

    /// Inserts the key of a new record, whose first version was installed, if that is absent; otherwise both are given back.
    #[inline]
    pub(super) fn insert<K: EncodedKey>(
        &self,
        fingers: &mut Fingers,
        store: &Store,
        (key, record, version): (K, NewRecord<'_>, InstalledAddress),
        nodes: &mut NodeSet,
    ) -> Result<Option<KeptInstalled>, OutOfMemory> {
        // SAFETY: as above.
        let inserted = unsafe { fingers.insert(&store.entries, key, record.address().handle(), nodes, &self.guard) };
        if matches!(inserted, Ok(Inserted::New)) {
            return Ok(Some(KeptInstalled { record: record.publish().into(), version }));
        }
        // It takes its version along.
        record.give_back(self.guard.worker_id().position(), &self.guard);
        inserted.map(|_| None)
    }

    /// The record that a key was found to lead to a while ago, in this transaction or for its batch, whose guard still stands; or earlier in a
    /// snapshot, which keeps the table and with it the pages of its records.
    #[inline]
    pub(super) fn hinted<K: EncodedKey>(&self, hints: &mut Hints, table: TableId, key: K) -> Option<Kept> {
        hints.find(table, key).map(kept)
    }

    /// The record that a key has in the index, without a finger.
    #[inline]
    pub(super) fn find_anew<K: EncodedKey>(&self, store: &Store, key: K) -> Option<Kept> {
        store.index().find(key, &self.guard).map(kept)
    }

    /// The record that a key has in the index beside.
    #[inline]
    pub(super) fn find_beside<K: EncodedKey>(&self, store: &Store, key: K) -> Option<Kept> {
        store.displaced.index()?.find(key, &self.guard).map(kept)
    }

    /// The index of the first stamp that does not hold any more.
    #[inline]
    pub(super) fn first_broken(&self, nodes: &NodeSet) -> Option<IndexRef> {
        // SAFETY: as `new` was promised, the stamps were taken in the epoch in which the guard is.
        unsafe { nodes.first_broken() }
    }

    /// The guard, to leave its epoch.
    #[inline]
    pub(super) fn epoch_mut(&mut self) -> &mut Guard<'w> {
        &mut self.guard
    }
}

/// A record that an index of a store names.
#[inline]
fn kept(handle: Handle) -> Kept {
    KeptAddress(RecordAddress::of(handle))
}

/// Records of a range, some at a time: see [`Batch`].
#[derive(Debug, Default)]
pub(super) struct Range(Batch);

impl Range {
    /// Begins a scan of at most so many entries, as far as is known.
    pub(super) fn begin(&mut self, limit: usize) {
        self.0.begin(limit, false);
    }

    /// The same with keys and stamps.
    pub(super) fn begin_guarded(&mut self, limit: usize) {
        self.0.begin_guarded(limit);
    }

    /// Collects the next records. `false`: there are no more.
    pub(super) fn fill(&mut self, store: &Store, scan: &Scan<'_>, guard: &OwnGuard<'_>) -> bool {
        self.0.fill(store.index(), scan, guard)
    }

    /// A record of those that were collected last.
    #[inline]
    pub(super) fn get(&self, position: usize) -> Option<Kept> {
        self.0.get(position).map(kept)
    }
}

impl Deref for Range {
    type Target = Batch;

    #[inline]
    fn deref(&self) -> &Batch {
        &self.0
    }
}

/// Records of a range of an index and of the one beside it, some at a time: see [`Both`].
#[derive(Debug, Default)]
pub(super) struct Ranges(Both);

impl Ranges {
    /// Collects the next records. `false`: there are no more behind these.
    pub(super) fn fill(&mut self, store: &Store, scan: &Scan<'_>, guard: &OwnGuard<'_>) -> bool {
        store.displaced.index().is_some_and(|beside| self.0.fill((store.index(), beside), scan, guard))
    }

    /// The next of those that were collected last.
    pub(super) fn next(&mut self, direction: Direction) -> Option<Kept> {
        self.0.next(direction).map(kept)
    }
}

impl CicadaTransaction<'_> {
    /// The transaction gets another timestamp. The floor stays, and so does every version that was read: none can be taken for another one.
    pub(super) fn draw_timestamp_again(&mut self) -> bool {
        let State { base, clock, .. } = &mut *self.state;
        let drawn = self.shared.clocks.draw_again(base.slot, clock);
        self.guard.timestamp = drawn.unwrap_or(self.guard.timestamp);
        drawn.is_some()
    }

    /// A transaction that has found nothing yet begins again, if the clocks admit it.
    pub(super) fn begin_untouched(&mut self) -> bool {
        self.guard.end();
        let State { base, clock, .. } = &mut *self.state;
        let begun = self.shared.clocks.begin(base.slot, clock);
        self.guard.reopen(begun)
    }

    /// Another transaction begins under the guard of one that has ended, if the clocks admit it.
    pub(super) fn begin_anew(&mut self) -> bool {
        let State { base, clock, .. } = &mut *self.state;
        let begun = self.shared.clocks.begin_standing(base.slot, clock);
        self.guard.reopen(begun)
    }
}
