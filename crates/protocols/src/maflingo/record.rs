//! Records: the header words of §4.1 and §5, the row in the same allocation, and the rules for touching them.
//!
//! ```text
//!  word 0  data version   15 … 0 latch (owner + 1, 0 = free) │ counter │ given up │ pruned │ claimed │ moved │ unlinked │ absent │ dirty
//!  word 1  transaction id epoch (42) │ counter (12) │ worker (10)
//!  word 2  previous version
//!  word 3  length in words (32) │ capacity in words (32)
//!  word 4… the row, or a secondary entry's primary key
//! ```
//!
//! * Only the owner of the latch changes a record that others can reach.
//! * A reader takes the data version, then the other words with acquiring loads, then compares the data version, its latch
//!   aside. The owner sets *dirty* first and stores every further word with a release, so a reader that saw any of the new
//!   words also sees *dirty* or a later counter, and tries again.
//! * The row of a record that serves as an older version never changes again; its link to the version before, and its
//!   *pruned* bit, are changed by a thread that holds the latch of the chain's head (`versions.rs`). *Pruned* is set once, when the
//!   version has left its chain.
//! * *Unlinked* is set once, after the index has forgotten the record, and never taken back. *Moved* comes with it when
//!   the key leads to a larger record instead: what was read here, a row or its absence, has then been superseded.
//! * An insertion that has not committed is absent with an id of zero, and has its row inside already. Others take it for a tombstone.
//! * *Claimed* keeps a record without a row in the index while a transaction that is going to write on it runs (`reclaim.rs`).
//! * *Given up* says that the inserter has rolled back while another transaction had claimed the record, which is a tombstone since.
//! * The latch's owner may be the *background*: then neither row nor id changes under it. Such a latch fails no validation,
//!   and a thread that wants the latch waits for it.

mod latch;
mod tid;

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use polychron_engine::contested::RowAddress;
use polychron_engine::mutations::{left_out, pass};
use polychron_index::{Handle, handle_of, pointer_of};
use polychron_memory::{Guard, Hold, OutOfMemory, Snapshot};
use polychron_schema::RowBuffer;
use polychron_sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use polychron_sync::{MODELLED, spin_hint};

use super::steps::{Point, Step};
pub(super) use tid::Tid;

// Of the data version word. From the last one on changes are counted.
polychron_base::bits! { u64: DIRTY, ABSENT, UNLINKED, MOVED, CLAIMED, PRUNED, GIVEN_UP, COUNTER }
const LATCH_SHIFT: u32 = 48;
const LATCH_MASK: u64 = !0 << LATCH_SHIFT;
/// The latch of any thread that reclaims memory: no worker's number.
const BACKGROUND: u64 = LATCH_MASK;
const _: () = assert!((Tid::MAX_WORKERS as u64) < BACKGROUND >> LATCH_SHIFT);

#[repr(C)]
struct Header {
    version: AtomicU64,
    tid: AtomicU64,
    previous: AtomicPtr<Header>,
    length: AtomicU32,
    capacity: u32,
}

pub(super) const HEADER_BYTES: usize = size_of::<Header>();
const _: () = assert!(MODELLED || HEADER_BYTES == 32);
/// Of a word of the row.
const WORD_BYTES: usize = size_of::<AtomicU64>();
const _: () = assert!(MODELLED || WORD_BYTES == 8);

/// Where a record lies, for what is kept beyond a guard. Whether it is still there is for its owner to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Address(NonNull<Header>);

// SAFETY: an address is a number until `Address::under`.
unsafe impl Send for Address {}

impl Address {
    /// The record that lies here.
    ///
    /// # Safety
    /// It was not given back before the guard was taken, or the guard shows it (`aside.rs`); only [`Record::free`] gives it back sooner than the
    /// guard ends.
    #[inline]
    pub(super) unsafe fn under<'g>(self, _guard: &'g Guard<'_>) -> Record<'g> {
        Record(self, PhantomData)
    }

    /// The number that it is.
    #[inline]
    pub(super) fn addr(self) -> usize {
        self.0.as_ptr().addr()
    }
}

impl From<Address> for RowAddress {
    fn from(record: Address) -> Self {
        Self(record.addr())
    }
}

/// A record that a guard keeps alive: it is touched through its atomic words alone, under the rules at the head of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'g>(Address, PhantomData<&'g ()>);

/// An older version, by a thread that is to give it back and alone may do so.
#[derive(Debug)]
pub(super) struct Older {
    version: Address,
    /// The epoch whose snapshots, and all newer ones, do without the version.
    superseded_at: u64,
}

impl Older {
    /// # Safety
    /// Only links lead to the version, which snapshots older than the epoch follow, and they alone; no other thread gives it back.
    #[inline]
    pub(super) unsafe fn new(version: Record<'_>, superseded_at: u64) -> Self {
        Self { version: version.address(), superseded_at }
    }

    #[inline]
    pub(super) fn superseded_at(&self) -> u64 {
        self.superseded_at
    }

    /// The version.
    #[inline]
    pub(super) fn under<'g>(&self, guard: &'g Guard<'_>) -> Record<'g> {
        // SAFETY: it was not given back, and is not as long as this stands; and then not before the guard ends.
        unsafe { self.version.under(guard) }
    }

    /// Leaves the version to the memory's epochs.
    #[inline]
    pub(super) fn retire(self, guard: &Guard<'_>) {
        let version = self.under(guard);
        let (memory, bytes, until) = (version.0.0.cast(), version.bytes(), self.superseded_at);
        // SAFETY: as `new` was promised; what did not move is a copy, to which links alone have ever led.
        unsafe {
            if version.state().moved() {
                guard.retire_found_versions(memory, bytes, until);
            } else {
                guard.retire_versions(memory, bytes, until);
            }
        }
    }

    /// Gives the version back when it has left its chain, or answers with it.
    pub(super) fn retire_pruned(self, guard: &Guard<'_>) -> Result<(), Self> {
        let version = self.under(guard);
        if !version.is_pruned() {
            return Err(self);
        }
        let (memory, bytes) = (version.0.0.cast(), version.bytes());
        // SAFETY: it has left its chain and its index, and no other version leads to it, so only guards that exist now can reach it; where
        // it did not move, only those that follow links from versions to versions.
        unsafe {
            if version.state().moved() { guard.retire(memory, bytes) } else { guard.retire_pruned(memory, bytes) }
        }
        Ok(())
    }
}

impl Default for Seen {
    fn default() -> Self {
        Self { tid: Tid::ZERO, present: false, moved: false }
    }
}

/// What a read found; short enough to go by registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// The id of the transaction that wrote it.
    pub(super) tid: Tid,
    /// Whether there is a row: the record is neither a tombstone nor an insertion that has not committed.
    pub(super) present: bool,
    /// Whether the key leads to a larger record by now.
    pub(super) moved: bool,
}

/// The state of a record while it is checked or latched.
#[derive(Clone, Copy, Debug)]
pub(super) struct State(u64);

impl State {
    /// Whether there is no row.
    #[inline]
    pub(super) fn absent(self) -> bool {
        self.0 & ABSENT != 0
    }

    /// Whether the index has forgotten the record.
    #[inline]
    pub(super) fn unlinked(self) -> bool {
        self.0 & UNLINKED != 0
    }

    /// Whether the key leads to a larger record by now.
    #[inline]
    pub(super) fn moved(self) -> bool {
        self.0 & MOVED != 0
    }

    /// Whether the inserter has left the record to others.
    pub(super) fn given_up(self) -> bool {
        self.0 & GIVEN_UP != 0
    }

    /// Whether a transaction may be about to write on the tombstone.
    #[inline]
    pub(super) fn claimed(self) -> bool {
        self.0 & CLAIMED != 0
    }

    /// Whether no thread holds the latch, and the key leads here as far as there is a row.
    #[inline]
    pub(super) fn is_undisturbed(self) -> bool {
        self.0 & (LATCH_MASK | MOVED) == 0
    }

    /// Whether `worker` holds the latch.
    #[inline]
    pub(super) fn latched_by(self, worker: usize) -> bool {
        self.0 & LATCH_MASK == latch_of(worker)
    }

    /// The worker whose transaction holds the latch, if one does.
    pub(super) fn owner(self) -> Option<usize> {
        let owner = self.0 & LATCH_MASK;
        (owner != 0 && owner != BACKGROUND).then(|| (owner >> LATCH_SHIFT) as usize - 1)
    }

    /// Whether a transaction of a worker other than `worker` holds the latch.
    #[inline]
    pub(super) fn latched_by_other(self, worker: usize) -> bool {
        let owner = self.0 & LATCH_MASK;
        owner != 0 && owner != latch_of(worker) && owner != BACKGROUND
    }
}

/// What came of claiming a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// It stays in the index for as long as the caller is pinned.
    Held,
    /// The index has forgotten the record already.
    Gone,
    /// Some thread kept the latch.
    Latched,
}

#[inline]
fn latch_of(worker: usize) -> u64 {
    (worker as u64 + 1) << LATCH_SHIFT
}

fn fill(words: &mut [MaybeUninit<AtomicU64>], row: impl Iterator<Item = u64>) {
    words.iter_mut().zip(row).for_each(|(place, word)| *place = MaybeUninit::new(AtomicU64::new(word)));
}

impl<'g> Record<'g> {
    /// Bytes of a record for rows of up to `capacity` words.
    #[inline]
    pub(super) fn bytes_for(capacity: usize) -> usize {
        HEADER_BYTES + WORD_BYTES * capacity
    }

    /// Bytes of this record.
    #[inline]
    pub(super) fn bytes(self) -> usize {
        Self::bytes_for(self.capacity())
    }

    /// Where it lies.
    #[inline]
    pub(super) fn address(self) -> Address {
        self.0
    }

    /// Gives the memory back at once.
    ///
    /// # Safety
    /// No index and no version leads to the record, and no other thread has found it; the caller uses it no more.
    #[inline]
    pub(super) unsafe fn free(self, guard: &Guard<'_>) {
        // SAFETY: as the caller promises; it was allocated with this size.
        unsafe { guard.free(self.0.0.cast(), self.bytes()) };
    }

    /// Gives the memory back when no guard of the present is left.
    ///
    /// # Safety
    /// No index and no version leads to the record; it is freed once.
    #[inline]
    pub(super) unsafe fn retire(self, guard: &Guard<'_>) {
        // SAFETY: as the caller promises; it was allocated with this size.
        unsafe { guard.retire(self.0.0.cast(), self.bytes()) };
    }

    /// A new record that is absent and holds `row` already.
    #[inline]
    pub(super) fn absent(row: &[u64], guard: &'g Guard<'_>) -> Result<Self, OutOfMemory> {
        Self::allocate(ABSENT, Tid::ZERO, None, (row.len(), row.len()), |words| fill(words, row.iter().copied()), guard)
    }

    /// A new record that has a row of this id.
    #[inline]
    pub(super) fn present(row: &[u64], tid: Tid, guard: &'g Guard<'_>) -> Result<Self, OutOfMemory> {
        Self::allocate(0, tid, None, (row.len(), row.len()), |words| fill(words, row.iter().copied()), guard)
    }

    /// A new record that is absent and latched by `worker`, with room for a row of `capacity` words that is written later. No thread
    /// else can reach it yet, so the latch costs no interlocked instruction (§4.5).
    pub(super) fn latched_empty(worker: usize, capacity: usize, guard: &'g Guard<'_>) -> Result<Self, OutOfMemory> {
        let (version, zeros) = (latch_of(worker) | ABSENT, std::iter::repeat_n(0, capacity));
        Self::allocate(version, Tid::ZERO, None, (0, capacity), |words| fill(words, zeros), guard)
    }

    /// A copy of this record as an older version: it will never change. The caller holds this record's latch.
    #[inline]
    pub(super) fn copy_as_version<'h>(self, guard: &'h Guard<'_>) -> Result<Record<'h>, OutOfMemory> {
        let absent = self.header().version.load(Ordering::Relaxed) & ABSENT;
        let length = if absent == 0 { self.length() } else { 0 };
        let copy = |words: &mut _| polychron_sync::copy_words(&self.words()[..length], words);
        Record::allocate(absent, self.tid(), self.previous(), (length, length), copy, guard)
    }

    /// A record; `fill` writes each of the `capacity` words of its row's place.
    #[inline]
    fn allocate(
        version: u64,
        tid: Tid,
        previous: Option<Address>,
        (length, capacity): (usize, usize),
        fill: impl FnOnce(&mut [MaybeUninit<AtomicU64>]),
        guard: &'g Guard<'_>,
    ) -> Result<Self, OutOfMemory> {
        let memory = guard.allocate(Self::bytes_for(capacity))?.cast::<Header>();
        let header = Header {
            version: AtomicU64::new(version),
            tid: AtomicU64::new(tid.0),
            previous: AtomicPtr::new(previous.map_or(std::ptr::null_mut(), |record| record.0.as_ptr())),
            length: AtomicU32::new(length as u32),
            capacity: capacity as u32,
        };
        // SAFETY: the memory is large enough, aligned to at least 16, and ours alone until the record is linked.
        unsafe { memory.write(header) };
        let record = Self(Address(memory), PhantomData);
        // SAFETY: there are `capacity` words behind the header, ours alone.
        fill(unsafe { std::slice::from_raw_parts_mut(record.first_word().cast(), capacity) });
        Ok(record)
    }

    /// What the index holds for the record.
    #[inline]
    pub(super) fn handle(self) -> Handle {
        handle_of(self.0.0)
    }

    /// The record behind a handle.
    ///
    /// # Safety
    /// `handle` came from [`Record::handle`] through an index, under this guard.
    #[inline]
    pub(super) unsafe fn from_handle(handle: Handle, guard: &'g Guard<'_>) -> Self {
        // SAFETY: what an index leads to under a guard stays until that ends.
        unsafe { Address(pointer_of(handle)).under(guard) }
    }

    /// Starts bringing the first lines of the record behind a handle into the cache, without a look at it.
    #[inline]
    pub(super) fn prefetch_behind(handle: Handle, lines: usize) {
        let start = pointer_of::<u8>(handle).as_ptr();
        (0..lines).for_each(|line| polychron_sync::prefetch_read(start.wrapping_add(64 * line)));
    }

    #[inline]
    fn header(self) -> &'g Header {
        // SAFETY: the guard keeps it alive, as `under` says.
        unsafe { self.0.0.as_ref() }
    }

    #[inline]
    fn first_word(self) -> *mut AtomicU64 {
        // SAFETY: the row begins right behind the header in the same allocation.
        unsafe { self.0.0.as_ptr().cast::<u8>().add(HEADER_BYTES).cast() }
    }

    /// All words of the row's place, used or not.
    #[inline]
    pub(super) fn words(self) -> &'g [AtomicU64] {
        // SAFETY: the allocation has `capacity` initialised words behind the header.
        unsafe { std::slice::from_raw_parts(self.first_word(), self.capacity()) }
    }

    /// How many words the row may have without moving.
    #[inline]
    pub(super) fn capacity(self) -> usize {
        self.header().capacity as usize
    }

    /// The row's length in words; stable only under the latch.
    #[inline]
    pub(super) fn length(self) -> usize {
        self.header().length.load(Ordering::Acquire) as usize
    }

    /// The id of the last writer. Acquiring: pairs with the release in `publish`, so that what follows sees its row.
    #[inline]
    pub(super) fn tid(self) -> Tid {
        Tid(self.header().tid.load(Ordering::Acquire))
    }

    /// Whether another transaction has written on this record, which the caller has put into the index: it has the key, and the row inside
    /// may be its.
    #[inline]
    pub(super) fn is_overtaken(self) -> bool {
        self.tid() != Tid::ZERO && !left_out(Step::RefuseOvertaken)
    }

    /// Where the version before this one is, or was. Acquiring: pairs with the release in `set_previous`, so that the version is whole.
    #[inline]
    pub(super) fn previous(self) -> Option<Address> {
        NonNull::new(self.header().previous.load(Ordering::Acquire)).map(Address)
    }

    /// The version before this one, where this one is too new for a snapshot.
    #[inline]
    pub(super) fn version_before(self, snapshot: &'g Snapshot<'_>) -> Option<Self> {
        if self.tid().epoch() <= snapshot.epoch() {
            return None;
        }
        // This version's epoch is behind the snapshot, which may see the one before it and so keeps it; the guard protects the reader.
        self.previous().map(|address| Self(address, PhantomData))
    }

    /// The version before this one, where this one is newer than what is held.
    pub(super) fn held_before(self, hold: &'g Hold<'_>) -> Option<Self> {
        if self.tid().epoch() <= hold.collectable() {
            return None;
        }
        // The version before was not collectable when the horizon was taken, and is not freed while it is held.
        self.previous().map(|address| Self(address, PhantomData))
    }

    /// The state for validation. Sequentially consistent: pairs with the latching of other transactions, so that of two
    /// transactions that each write what the other read, at least one sees the other's latch (§4.2.1).
    #[inline]
    pub(super) fn state(self) -> State {
        State(self.header().version.load(Ordering::SeqCst))
    }

    /// Copies words `range` of the row to the same place of `row`, which gets the row's length, and tells what was seen (Figure 5-2). Waits
    /// while the record is dirty, which lasts as long as one row is copied.
    #[inline(always)]
    pub(super) fn read(self, range: std::ops::Range<usize>, row: &mut RowBuffer) -> Seen {
        match self.read_once(range.clone(), row) {
            Some(seen) => seen,
            None => self.read_again(range, row),
        }
    }

    #[cold]
    fn read_again(self, range: std::ops::Range<usize>, row: &mut RowBuffer) -> Seen {
        loop {
            spin_hint();
            if let Some(seen) = self.read_once(range.clone(), row) {
                return seen;
            }
        }
    }

    /// One try; `None` where the record was being written.
    #[inline(always)]
    fn read_once(self, range: std::ops::Range<usize>, row: &mut RowBuffer) -> Option<Seen> {
        let (header, all) = (self.header(), self.words());
        // Pairs with the release that ended the last write.
        let before = header.version.load(Ordering::Acquire);
        if before & DIRTY != 0 {
            return None;
        }
        let present = before & ABSENT == 0;
        let words = self.length().min(all.len());
        let copy = row.overwrite_words(words);
        if present {
            let end = range.end.min(words);
            let start = range.start.min(end);
            polychron_sync::load_words(&all[start..end], &mut copy[start..end]);
        }
        pass(Point::Copied);
        let tid = self.tid();
        // The loads above acquire, so this one is not taken before them.
        let after = header.version.load(Ordering::Relaxed);
        let whole = (before ^ after) & !LATCH_MASK == 0 || left_out(Step::ReadTwice);
        whole.then_some(Seen { tid, present, moved: before & MOVED != 0 })
    }

    /// Copies the row that the record has, or had last, or is going to have: best effort, for explaining a conflict.
    #[cold]
    pub(super) fn peek(self, row: &mut RowBuffer) -> bool {
        let version = &self.header().version;
        // Pairs with the release that ended the last write.
        let before = version.load(Ordering::Acquire);
        let words = self.length().min(self.capacity());
        polychron_sync::load_words(&self.words()[..words], row.overwrite_words(words));
        // The loads above acquire, so this one is not taken before them.
        let after = version.load(Ordering::Relaxed);
        before & DIRTY == 0 && (before ^ after) & !LATCH_MASK == 0 && words > 0
    }

    /// As [`Record::read`], of the version that a snapshot sees (§4.7).
    pub(super) fn read_at(
        self,
        snapshot: &'g Snapshot<'_>,
        range: std::ops::Range<usize>,
        row: &mut RowBuffer,
    ) -> Seen {
        let epoch = if left_out(Step::CompareEpochs) { u64::MAX } else { snapshot.epoch() };
        self.read_version(epoch, range, row, |record| record.version_before(snapshot))
    }

    /// Reads the newest version of an epoch or an earlier one, along links that `older` follows.
    pub(super) fn read_version(
        self,
        epoch: u64,
        range: std::ops::Range<usize>,
        row: &mut RowBuffer,
        older: impl Fn(Self) -> Option<Self>,
    ) -> Seen {
        let mut at = Some(self);
        while let Some(record) = at {
            let seen = record.read(range.clone(), row);
            if seen.tid.epoch() <= epoch {
                return seen;
            }
            // What is linked here now was written before this record was, or is a later writer's copy of what was read:
            // either way the walk goes on from newer to older, and ends at the first version that is old enough.
            at = older(record);
        }
        Seen::default()
    }

    /// Begins changing a latched record (Figure 5-1, steps 1 and 2).
    #[inline]
    pub(super) fn begin_write(self) {
        let version = &self.header().version;
        if left_out(Step::MarkDirty) {
            return;
        }
        // Every word stored after this one is stored with a release, so any thread that sees one of them sees the dirty bit.
        version.store(version.load(Ordering::Relaxed) | DIRTY, Ordering::Relaxed);
    }

    /// Stores words of the row at `start` (between `begin_write` and `publish`).
    #[inline]
    pub(super) fn write_words(self, start: usize, words: &[u64]) {
        polychron_sync::store_words(&self.words()[start..start + words.len()], words);
    }

    /// Sets the row's length (between `begin_write` and `publish`).
    #[inline]
    pub(super) fn set_length(self, words: usize) {
        // Pairs with the acquiring load in `length`.
        self.header().length.store(words as u32, Ordering::Release);
    }

    /// Links an older version, under the latch of the chain's head.
    #[inline]
    pub(super) fn set_previous(self, previous: Option<Address>) {
        let pointer = previous.map_or(std::ptr::null_mut(), |record| record.0.as_ptr());
        // Pairs with the acquiring load in `previous`.
        self.header().previous.store(pointer, Ordering::Release);
    }

    /// Ends a change: the id, then, in one store, the end of *dirty*, the next counter, and the latch's end (Figure 5-1).
    #[inline]
    pub(super) fn publish(self, tid: Tid, present: bool) {
        let header = self.header();
        // Pairs with the acquiring load in `tid`.
        header.tid.store(tid.0, Ordering::Release);
        let old = header.version.load(Ordering::Relaxed);
        let absent = if present { 0 } else { ABSENT };
        let new = ((old & !(LATCH_MASK | DIRTY | ABSENT)) + COUNTER) & !LATCH_MASK | absent;
        // Pairs with the acquiring load at the start of a read.
        header.version.store(new, Ordering::Release);
    }
}
