//! What a transaction finds in indexes, and keeps beyond a borrow: addresses, which its own guard turns back into records and versions.
//!
//! What was found stays while the guard stays in its epoch and the transaction holds its timestamp. A row that was read, and the record in which it is,
//! stay with the span of the transaction (`clocks/held.rs`), also when that leaves its epoch between two operations (`aside.rs`). Each such time has a
//! name, a [`Stay`], which goes with the address, and is compared when that is turned back.

use std::ops::Deref;

use polychron_base::TableId;
use polychron_base::key::EncodedKey;
use polychron_engine::contested::RowAddress;
use polychron_engine::mutations::left_out;
use polychron_engine::stores::{Batch, Both, Fingers, Hints, IndexRef, NodeSet, WorkerBase};
use polychron_engine::{Direction, Scan};
use polychron_index::{Handle, Inserted, Lookup, Stamp};
use polychron_memory::{Guard, Local, OutOfMemory};
use polychron_sync::new_number;

use super::array::{NewRecord, TakenRecord};
use super::clocks::Held;
use super::protocol::Shared;
use super::record::{
    Address, Guarded, Installed, InstalledAddress, Kind, OfRecord, OfVersion, Reader, Record, RecordAddress, Seen,
    Version, VersionAddress,
};
use super::steps::Step;
use super::table::Store;
use super::timestamp::Timestamp;
use super::transaction::CicadaTransaction;
use super::worker::State;

/// Names a time for which a guard keeps what was found: no other one of this process has the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stay(u64);

impl Stay {
    /// Names no time at which anything is found.
    const NONE: Self = Self(0);
    /// Names no time, and no guard says of itself that it is there at such a time.
    pub(super) const NEVER: Self = Self(1);
}

/// The names that a worker gives. It has 2⁴⁰ of them, and then others.
#[derive(Debug)]
pub(super) struct Stays(u64);

impl Stays {
    const BITS: u32 = 40;

    pub(super) fn new() -> Self {
        Self(u64::from(new_number()) << Self::BITS)
    }

    #[inline]
    fn next(&mut self) -> Stay {
        let next = Stay(self.0);
        self.0 += 1;
        if self.0.trailing_zeros() >= Self::BITS {
            *self = Self::new();
        }
        next
    }
}

/// A record or a version that a transaction has found, beyond the borrow of its guard.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptAddress<K> {
    address: Address<K>,
    /// What keeps it.
    stay: Stay,
}

/// A record that a transaction has found.
pub(super) type Kept = KeptAddress<OfRecord>;
/// A version that a transaction has found.
pub(super) type KeptVersion = KeptAddress<OfVersion>;

impl<K: Kind> KeptAddress<K> {
    /// What lies there.
    ///
    /// # Panics
    /// If something else has kept it than what the guard still does.
    #[inline]
    pub(super) fn under<'g>(self, guard: &'g OwnGuard<'_>) -> Guarded<'g, K> {
        guard.check(self.stay);
        // SAFETY: the guard has kept it so far, and does so while it is borrowed: to leave the epoch or to end the transaction it must be borrowed anew.
        unsafe { self.address.under(guard) }
    }

    /// Where it lies.
    #[inline]
    pub(super) fn address(self) -> Address<K> {
        self.address
    }
}

/// A row that a transaction sees, and its record, within the borrow of its guard.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowHere<'g> {
    record: Record<'g>,
    version: Version<'g>,
}

/// The same beyond the borrow: one time keeps both, so one is compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptRow {
    record: RecordAddress,
    version: VersionAddress,
    span: Stay,
}

impl KeptRow {
    /// What lies there, as of [`KeptAddress::under`].
    #[inline]
    pub(super) fn under<'g>(self, guard: &'g OwnGuard<'_>) -> (Record<'g>, Version<'g>) {
        (self.record().under(guard), self.version().under(guard))
    }

    /// The record.
    #[inline]
    pub(super) fn record(self) -> Kept {
        KeptAddress { address: self.record, stay: self.span }
    }

    /// The version that is the row.
    #[inline]
    pub(super) fn version(self) -> KeptVersion {
        KeptAddress { address: self.version, stay: self.span }
    }
}

impl<K: Kind> PartialEq for KeptAddress<K> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}

impl<K: Kind> Eq for KeptAddress<K> {}

impl From<Kept> for RowAddress {
    #[inline]
    fn from(record: Kept) -> Self {
        record.address.into()
    }
}

impl From<RecordAddress> for RowAddress {
    #[inline]
    fn from(record: RecordAddress) -> Self {
        Self(record.number() as usize)
    }
}

/// A record that is kept as long as the epoch, whatever becomes of the transaction that has found it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    record: RecordAddress,
    epoch: Stay,
}

/// A version that a transaction has installed, and its record.
#[derive(Debug)]
pub(super) struct KeptInstalled {
    record: RecordAddress,
    version: InstalledAddress,
    span: Stay,
}

impl KeptInstalled {
    /// The record and the version, while the version is pending.
    #[inline]
    pub(super) fn parts<'g>(&self, guard: &'g OwnGuard<'_>) -> (Record<'g>, Version<'g>) {
        guard.check(self.span);
        // SAFETY: the transaction has not ended, and this is there, so the version is pending: nobody unlinks it, or closes its record.
        unsafe { (self.record.under(guard), self.version.address().under(guard)) }
    }

    /// The record, and the version, to end that.
    #[inline]
    pub(super) fn under<'g>(self, guard: &'g OwnGuard<'_>) -> (Record<'g>, Installed<'g>) {
        let (record, version) = self.parts(guard);
        (record, self.version.of(version))
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
    // Dropped first: what the timestamp keeps is in its epoch, too.
    held: Option<Held<'w>>,
    guard: Guard<'w>,
    timestamp: Timestamp,
    /// The guard's time in its epoch, if it is there; and if it may still come back to it.
    here: Stay,
    epoch: Stay,
    /// The time for which the slot holds the transaction's floor, while it does; and the last such time.
    open: Stay,
    span: Stay,
    /// The guard's time in its epoch, transactions that follow each other included; and whether one has ended there, and no other has begun.
    pinned: Stay,
    ended_here: bool,
}

impl<'w> Deref for OwnGuard<'w> {
    type Target = Guard<'w>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.guard
    }
}

impl<'w> OwnGuard<'w> {
    /// The worker of the guard has begun to hold that. `is_here`: the guard neither rests nor stands aside.
    #[inline]
    pub(super) fn new(guard: Guard<'w>, held: Held<'w>, stays: &mut Stays, is_here: bool) -> Self {
        let (timestamp, epoch, span) = (held.timestamp(), stays.next(), stays.next());
        let (here, open, pinned) = (if is_here { epoch } else { Stay::NONE }, span, epoch);
        Self { held: Some(held), guard, timestamp, here, epoch, open, span, pinned, ended_here: false }
    }

    /// Begins a transaction that is not a client's, if the clocks admit one.
    pub(super) fn begin(shared: &'w Shared, state: &mut State, local: &'w Local, beginning: Beginning) -> Option<Self> {
        let (clocks, slot) = (&shared.clocks, state.base.slot);
        let held = match beginning {
            Beginning::InRound => clocks.begin_in_round(slot, &mut state.clock),
            Beginning::InBetween => clocks.begin_standing(slot, &mut state.clock)?,
        };
        Some(Self::new(local.pin(), held, &mut state.stays, true))
    }

    /// The transaction ends; its guard stays.
    #[inline]
    pub(super) fn end(&mut self) {
        self.ended_here |= self.is_here();
        (self.here, self.open) = (Stay::NONE, Stay::NONE);
        self.held = None;
    }

    /// The step that is tested by leaving it out: the slot gives its timestamp up while the transaction goes on.
    #[inline]
    pub(super) fn end_too_early(&mut self) {
        if left_out(Step::EndLast) {
            self.held = None;
        }
    }

    /// The slot, whose transaction had ended, has begun anew, if the clocks have admitted it.
    fn reopen(&mut self, begun: Option<Held<'w>>, stays: &mut Stays) -> bool {
        let Some(held) = begun else { return false };
        (self.timestamp, self.held) = (held.timestamp(), Some(held));
        (self.epoch, self.span) = (stays.next(), stays.next());
        (self.here, self.open, self.ended_here) = (self.epoch, self.span, false);
        true
    }

    /// The transaction stands aside.
    #[inline]
    pub(super) fn stand_aside(&mut self) {
        self.here = Stay::NONE;
        self.guard.stand_aside();
    }

    /// It comes back. `false`: it has left its epoch.
    #[inline]
    pub(super) fn come_back(&mut self, base: &mut WorkerBase<Store>, stays: &mut Stays) -> bool {
        let has_stayed = self.guard.come_back();
        if !has_stayed {
            base.forget_found();
            self.epoch = stays.next();
            self.pinned = self.epoch;
        }
        if self.held.is_some() {
            self.here = self.epoch;
        }
        has_stayed
    }

    /// The snapshot leaves its epoch, until it is renewed.
    #[inline]
    pub(super) fn rest(&mut self) {
        self.here = Stay::NONE;
        self.guard.rest();
    }

    /// The snapshot leaves its epoch for the present one.
    #[inline]
    pub(super) fn renew(&mut self, base: &mut WorkerBase<Store>, stays: &mut Stays) {
        base.leave_epoch();
        self.guard.refresh();
        self.epoch = stays.next();
        (self.here, self.pinned) = (self.epoch, self.epoch);
    }

    /// The transaction's timestamp: where it is in the serial order; what a snapshot reads at.
    #[inline]
    pub(super) fn timestamp(&self) -> Timestamp {
        self.timestamp
    }

    /// What the transaction reads at.
    #[inline]
    pub(super) fn reader(&self) -> Reader<'_> {
        Reader::at(self.held.as_ref().expect("the transaction has not ended"), &self.guard)
    }

    /// What the transaction sees of a record ([`Reader::search`]).
    #[inline]
    pub(super) fn search<'g>(
        &'g self,
        record: Record<'g>,
        later: Option<Version<'g>>,
        wait: bool,
    ) -> Seen<Version<'g>> {
        self.reader().search(record, later, wait)
    }

    /// The guard's time in its epoch while it holds the transaction's timestamp; none elsewhere.
    #[inline]
    pub(super) fn here(&self) -> Stay {
        self.here
    }

    /// Whether there is such a time.
    #[inline]
    pub(super) fn is_here(&self) -> bool {
        self.here != Stay::NONE
    }

    /// The time for which it holds the transaction's floor; none elsewhere.
    #[inline]
    pub(super) fn open(&self) -> Stay {
        self.open
    }

    #[inline]
    fn check(&self, stay: Stay) {
        if stay != self.open && stay != self.here {
            kept_too_long();
        }
    }

    /// Keeps what was found, in the epoch of this guard, beyond the borrow.
    #[inline]
    pub(super) fn keep<'g, K: Kind>(&'g self, found: Guarded<'g, K>) -> KeptAddress<K> {
        KeptAddress { address: found.address(), stay: self.epoch }
    }

    /// The row that this transaction has seen in a record, if it has seen one there.
    #[inline]
    pub(super) fn row_in<'g>(&'g self, record: Record<'g>, seen: &Seen<Version<'g>>) -> Option<RowHere<'g>> {
        seen.version.filter(|_| seen.is_row).map(|version| RowHere { record, version })
    }

    /// Keeps a row that this transaction sees, and its record, as long as it holds its floor.
    #[inline]
    pub(super) fn keep_row<'g>(&'g self, RowHere { record, version }: RowHere<'g>) -> KeptRow {
        KeptRow { record: record.address(), version: version.address(), span: self.span }
    }

    /// Keeps a record that the transaction has taken.
    #[inline]
    pub(super) fn keep_taken(&self, record: &TakenRecord) -> Kept {
        KeptAddress { address: record.under(self).address(), stay: self.span }
    }

    /// Keeps a version that was installed.
    #[inline]
    pub(super) fn keep_installed<'g>(&'g self, record: Record<'g>, installed: Installed<'g>) -> KeptInstalled {
        KeptInstalled { record: record.address(), version: installed.keep(), span: self.span }
    }

    /// Keeps a record beyond the end of the transaction.
    #[inline]
    pub(super) fn note<'g>(&'g self, found: Record<'g>) -> Noted {
        Noted { record: found.address(), epoch: self.pinned }
    }

    /// The record that was noted, if the guard is still in that epoch.
    #[inline]
    pub(super) fn noted(&self, noted: Noted) -> Option<Record<'_>> {
        if noted.epoch != self.pinned || !(self.is_here() || self.ended_here) {
            return None;
        }
        // SAFETY: it was found in the epoch in which the guard is: between two transactions none leaves it.
        Some(unsafe { noted.record.under(self) })
    }

    /// Looks a key up near where the last one was.
    #[inline]
    pub(super) fn get<K: EncodedKey>(&self, fingers: &mut Fingers, store: &Store, key: K) -> (Option<Kept>, Stamp) {
        // SAFETY: the worker's fingers are cleared when a transaction begins (`WorkerBase::begin`), and when its guard leaves the epoch (above).
        let Lookup { handle, stamp } = unsafe { fingers.get(&store.entries, key, &self.guard) };
        (handle.map(|handle| self.kept(handle)), stamp)
    }

    /// The same of the record alone, which is not to be kept.
    #[inline]
    pub(super) fn find<K: EncodedKey>(&self, fingers: &mut Fingers, store: &Store, key: K) -> Option<Record<'_>> {
        // SAFETY: as above.
        unsafe { fingers.find(&store.entries, key, &self.guard) }.map(|handle| self.found(handle))
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
            let record = record.publish().address();
            return Ok(Some(KeptInstalled { record, version, span: self.span }));
        }
        // It takes its version along.
        record.give_back(self.guard.worker_id().position(), &self.guard);
        inserted.map(|_| None)
    }

    /// The record that a key was found to lead to a while ago, in this transaction or for its batch, in the epoch in which the guard still is: one that
    /// leaves it outdates its hints ([`WorkerBase::leave_epoch`], [`WorkerBase::forget_found`]).
    #[inline]
    pub(super) fn hinted<K: EncodedKey>(&self, hints: &mut Hints, table: TableId, key: K) -> Option<Record<'_>> {
        hints.find(table, key).map(|handle| self.found(handle))
    }

    /// The record that a key has in the index, without a finger.
    #[inline]
    pub(super) fn find_anew<K: EncodedKey>(&self, store: &Store, key: K) -> Option<Kept> {
        store.index().find(key, &self.guard).map(|handle| self.kept(handle))
    }

    /// The record that a key has in the index beside.
    #[inline]
    pub(super) fn find_beside<K: EncodedKey>(&self, store: &Store, key: K) -> Option<Kept> {
        store.displaced.index()?.find(key, &self.guard).map(|handle| self.kept(handle))
    }

    /// The index of the first stamp that no longer holds.
    #[inline]
    pub(super) fn first_broken(&self, nodes: &NodeSet) -> Option<IndexRef> {
        // SAFETY: the stamps were taken in the epoch in which the guard is: they are cleared when it leaves that (`Sets::forget_found`).
        unsafe { nodes.first_broken() }
    }

    /// A record that an index of a store names, found in the epoch in which the guard is: within an operation of its transaction, as all lookups are.
    #[inline]
    fn found(&self, handle: Handle) -> Record<'_> {
        debug_assert!(self.is_here());
        // SAFETY: the guard has kept it so far, and does so while it is borrowed: to leave the epoch it must be borrowed anew.
        unsafe { RecordAddress::of(handle).under(self) }
    }

    /// The same beyond the borrow.
    #[inline]
    fn kept(&self, handle: Handle) -> Kept {
        KeptAddress { address: RecordAddress::of(handle), stay: self.epoch }
    }
}

#[cold]
#[inline(never)]
fn kept_too_long() -> ! {
    panic!("a record or a version was kept for longer than its transaction keeps it");
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

    /// A record of those that were collected last, under this guard.
    #[inline]
    pub(super) fn get(&self, position: usize, guard: &OwnGuard<'_>) -> Option<Kept> {
        self.0.get(position).map(|handle| guard.kept(handle))
    }

    /// Brings such a record into the caches.
    #[inline]
    pub(super) fn prefetch(&self, position: usize, lines: usize) {
        if let Some(handle) = self.0.get(position) {
            RecordAddress::of(handle).prefetch(lines);
        }
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

    /// The next of those that were collected last, under this guard.
    pub(super) fn next(&mut self, direction: Direction, guard: &OwnGuard<'_>) -> Option<Kept> {
        self.0.next(direction).map(|handle| guard.kept(handle))
    }
}

impl CicadaTransaction<'_> {
    /// The transaction gets another timestamp. The floor stays, and so does every version that was read: none can be taken for another one.
    pub(super) fn draw_timestamp_again(&mut self) -> bool {
        let Some(held) = &mut self.guard.held else { return false };
        let is_drawn = held.draw_again(&mut self.state.clock);
        self.guard.timestamp = held.timestamp();
        is_drawn
    }

    /// A transaction that has found nothing yet begins again, if the clocks admit it.
    pub(super) fn begin_untouched(&mut self) -> bool {
        self.guard.end();
        let State { base, clock, stays, sets, .. } = &mut *self.state;
        // There are none; but they have been of the transaction that ends here.
        sets.reads.clear();
        self.guard.reopen(self.shared.clocks.begin(base.slot, clock), stays)
    }

    /// Another transaction begins under the guard of one that has ended, if the clocks admit it.
    pub(super) fn begin_anew(&mut self) -> bool {
        let State { base, clock, stays, .. } = &mut *self.state;
        self.guard.reopen(self.shared.clocks.begin_standing(base.slot, clock), stays)
    }
}
