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
//! * The row of a record that serves as an older version never changes any more; its link to the version before, and its
//!   *pruned* bit, are changed by who holds the latch of the chain's head (`versions.rs`). *Pruned* is set once, when the
//!   version has left its chain.
//! * *Unlinked* is set once, after the index has forgotten the record, and never taken back. *Moved* comes with it when
//!   the key leads to a larger record instead: what was read here, a row or its absence, has then been superseded.
//! * An insertion that has not committed is absent with an id of zero, and has its row inside already. Others take it for a tombstone.
//! * *Claimed* keeps a record without a row in the index while a transaction that is going to write on it runs (`reclaim.rs`).
//! * *Given up* says that the inserter has rolled back while another transaction had claimed the record, which is a tombstone since.
//! * The latch's owner may be the *background*: then neither row nor id changes under it. Such a latch fails no validation,
//!   and who wants the latch waits for it.

use std::ptr::NonNull;

use polychron_engine::contested::RowAddress;
use polychron_engine::mutations::{left_out, pass};
use polychron_index::Handle;
use polychron_memory::{Guard, OutOfMemory};
use polychron_schema::RowBuffer;
use polychron_sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use polychron_sync::{Backoff, MODELLED, spin_hint};

use super::steps::{Point, Step};

/// Bits of the data version word.
const DIRTY: u64 = 1;
const ABSENT: u64 = 2;
const UNLINKED: u64 = 4;
const MOVED: u64 = 8;
const CLAIMED: u64 = 16;
const PRUNED: u64 = 32;
const GIVEN_UP: u64 = 64;
const COUNTER: u64 = 128;
const LATCH_SHIFT: u32 = 48;
const LATCH_MASK: u64 = !0 << LATCH_SHIFT;
/// The latch of whoever reclaims memory: no worker's number.
const BACKGROUND: u64 = LATCH_MASK;
const _: () = assert!((Tid::MAX_WORKERS as u64) < BACKGROUND >> LATCH_SHIFT);

/// How often a committing transaction looks at a foreign latch before it gives up (§4.2, phase 1). In a model each look is
/// another thread's turn, so a few are many.
const LATCH_SPINS: u32 = if MODELLED { 4 } else { 256 };

/// How often reclamation does: there is always something else that it can do first.
const BACKGROUND_SPINS: u32 = 16;

/// Transaction ids (§4.1): epoch, counter, worker, from the most to the least significant bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tid(pub(super) u64);

impl Tid {
    /// The id with which every record begins.
    pub(super) const ZERO: Self = Self(0);
    const WORKER_BITS: u32 = 10;
    /// Epochs of 2 ms take 278 years to use up the 42 bits above, and the shortest that sessions can ask for, of 16 µs, two years. A
    /// worker, or a chain of dependent transactions, that uses up the counter within an epoch ends the epoch early.
    const COUNTER_BITS: u32 = 12;
    const EPOCH_SHIFT: u32 = Self::WORKER_BITS + Self::COUNTER_BITS;
    /// Workers that the id can tell apart.
    pub(super) const MAX_WORKERS: usize = 1 << Self::WORKER_BITS;

    /// The epoch in which the transaction committed.
    #[inline]
    pub(super) fn epoch(self) -> u64 {
        self.0 >> Self::EPOCH_SHIFT
    }

    /// Who drew it.
    pub(super) fn worker(self) -> usize {
        self.0 as usize & (Self::MAX_WORKERS - 1)
    }

    /// The smallest id of `worker` in `epoch` that exceeds `floor`; `None` when the epoch's counter is used up.
    #[inline]
    pub(super) fn after(floor: Self, epoch: u64, worker: usize) -> Option<Self> {
        debug_assert!(floor.epoch() <= epoch, "an id from the future was observed");
        let base = Self(epoch << Self::EPOCH_SHIFT).max(floor).0 >> Self::WORKER_BITS;
        let next = Self((base + 1) << Self::WORKER_BITS | worker as u64);
        (next.epoch() == epoch).then_some(next)
    }
}

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

/// A record that the guard of the running transaction keeps alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Record(NonNull<Header>);

// SAFETY: a record is only touched through its atomic words, under the rules at the head of this file.
unsafe impl Send for Record {}

impl From<Record> for RowAddress {
    fn from(record: Record) -> Self {
        Self(record.memory().as_ptr().addr())
    }
}

impl Default for Seen {
    fn default() -> Self {
        Self { tid: Tid::ZERO, present: false, moved: false, words: 0 }
    }
}

/// What a read found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// The id of the transaction that wrote it.
    pub(super) tid: Tid,
    /// Whether there is a row: the record is neither a tombstone nor an insertion that has not committed.
    pub(super) present: bool,
    /// Whether the key leads to a larger record by now.
    pub(super) moved: bool,
    /// The row's length in words.
    pub(super) words: usize,
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
    /// Somebody kept the latch.
    Latched,
}

#[inline]
fn latch_of(worker: usize) -> u64 {
    (worker as u64 + 1) << LATCH_SHIFT
}

impl Record {
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

    /// The record's memory, for giving it back.
    #[inline]
    pub(super) fn memory(self) -> NonNull<u8> {
        self.0.cast()
    }

    /// A new record that is absent and holds `row` already.
    #[inline]
    pub(super) fn absent(row: &[u64], guard: &Guard<'_>) -> Result<Self, OutOfMemory> {
        Self::allocate(ABSENT, Tid::ZERO, None, row.len(), row.iter().copied(), guard)
    }

    /// A new record that is absent and latched by `worker`, with room for a row of `capacity` words that is written later. Nobody
    /// else can reach it yet, so the latch costs no interlocked instruction (§4.5).
    pub(super) fn latched_empty(worker: usize, capacity: usize, guard: &Guard<'_>) -> Result<Self, OutOfMemory> {
        let row = std::iter::repeat_n(0, capacity);
        Self::allocate(latch_of(worker) | ABSENT, Tid::ZERO, None, 0, row, guard)
    }

    /// A copy of this record as an older version: it will never change. The caller holds this record's latch.
    #[inline]
    pub(super) fn copy_as_version(self, guard: &Guard<'_>) -> Result<Self, OutOfMemory> {
        let absent = self.header().version.load(Ordering::Relaxed) & ABSENT;
        let length = if absent == 0 { self.length() } else { 0 };
        let row = self.words()[..length].iter().map(|word| word.load(Ordering::Relaxed));
        Self::allocate(absent, self.tid(), self.previous(), length, row, guard)
    }

    /// A record with these words; its capacity is how many they are.
    #[inline]
    fn allocate(
        version: u64,
        tid: Tid,
        previous: Option<Self>,
        length: usize,
        row: impl ExactSizeIterator<Item = u64>,
        guard: &Guard<'_>,
    ) -> Result<Self, OutOfMemory> {
        let capacity = row.len();
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
        let record = Self(memory);
        let first = record.first_word();
        for (position, word) in row.enumerate() {
            // SAFETY: there are `capacity` words behind the header, and the iterator has as many.
            unsafe { first.add(position).write(AtomicU64::new(word)) };
        }
        Ok(record)
    }

    /// What the index holds for the record.
    #[inline]
    pub(super) fn handle(self) -> Handle {
        let address = self.0.as_ptr().expose_provenance() as u64;
        Handle::new(address).expect("a pointer that is not null")
    }

    /// The record behind a handle.
    ///
    /// # Safety
    /// `handle` came from [`Record::handle`] through an index, under a guard that lives as long as the record is used.
    #[inline]
    pub(super) unsafe fn from_handle(handle: Handle) -> Self {
        let pointer = std::ptr::with_exposed_provenance_mut(handle.get() as usize);
        // SAFETY: handles are never zero.
        Self(unsafe { NonNull::new_unchecked(pointer) })
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: records are reached under a guard that keeps them alive (`from_handle`), or are not linked yet.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    fn first_word(self) -> *mut AtomicU64 {
        // SAFETY: the row begins right behind the header in the same allocation.
        unsafe { self.0.as_ptr().cast::<u8>().add(HEADER_BYTES).cast() }
    }

    /// All words of the row's place, used or not.
    #[inline]
    pub(super) fn words(&self) -> &[AtomicU64] {
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

    /// The version before this one. Acquiring: pairs with the release in `set_previous`, so that the version is whole.
    #[inline]
    pub(super) fn previous(self) -> Option<Self> {
        NonNull::new(self.header().previous.load(Ordering::Acquire)).map(Self)
    }

    /// The state for validation. Sequentially consistent: pairs with the latching of other transactions, so that of two
    /// transactions that each write what the other read, at least one sees the other's latch (§4.2.1).
    #[inline]
    pub(super) fn state(self) -> State {
        State(self.header().version.load(Ordering::SeqCst))
    }

    /// Starts bringing the first lines of the record into the cache.
    #[inline]
    pub(super) fn prefetch(self, lines: usize) {
        for line in 0..lines {
            polychron_sync::prefetch_read(self.0.as_ptr().cast::<u8>().wrapping_add(64 * line));
        }
    }

    /// Copies words `range` of the row to the same place of `row` and tells what was seen (Figure 5-2). Waits while the
    /// record is dirty, which lasts as long as one row is copied.
    #[inline]
    pub(super) fn read(self, range: std::ops::Range<usize>, row: &mut [u64]) -> Seen {
        let header = self.header();
        loop {
            // Pairs with the release that ended the last write.
            let before = header.version.load(Ordering::Acquire);
            if before & DIRTY == 0 {
                let present = before & ABSENT == 0;
                let words = self.length().min(self.capacity());
                if present {
                    let end = range.end.min(words).min(row.len());
                    let start = range.start.min(end);
                    polychron_sync::load_words(&self.words()[start..end], &mut row[start..end]);
                }
                pass(Point::Copied);
                let tid = self.tid();
                // The loads above acquire, so this one is not taken before them.
                let after = header.version.load(Ordering::Relaxed);
                if (before ^ after) & !LATCH_MASK == 0 || left_out(Step::ReadTwice) {
                    return Seen { tid, present, moved: before & MOVED != 0, words };
                }
            }
            spin_hint();
        }
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

    /// As [`Record::read`], of the version that a snapshot at `epoch` sees (§4.7), into a buffer that is made long enough.
    pub(super) fn read_at(self, epoch: u64, range: std::ops::Range<usize>, row: &mut RowBuffer) -> Seen {
        let mut at = Some(self);
        while let Some(record) = at {
            let seen = record.read(range.clone(), row.overwrite_words(record.capacity()));
            if seen.tid.epoch() <= epoch {
                row.overwrite_words(seen.words);
                return seen;
            }
            // What is linked here now was written before this record was, or is a later writer's copy of what was read:
            // either way the walk goes on from newer to older, and ends at the first version that is old enough.
            at = record.previous();
        }
        Seen::default()
    }

    /// Latches the record for `worker`, or answers `None` after some spins. A record that `worker` latched already is not
    /// asked again: callers latch each record once.
    ///
    /// Sequentially consistent: see [`Record::state`].
    #[inline]
    pub(super) fn latch(self, worker: usize) -> Option<State> {
        self.latch_as(latch_of(worker), LATCH_SPINS)
    }

    /// Latches the record for reclamation. The caller changes neither the row nor the id, and is quick.
    pub(super) fn latch_in_background(self) -> Option<State> {
        self.latch_as(BACKGROUND, BACKGROUND_SPINS)
    }

    #[inline]
    fn latch_as(self, owner: u64, spins: u32) -> Option<State> {
        let version = &self.header().version;
        for _ in 0..spins {
            let free = version.load(Ordering::Relaxed);
            if free & LATCH_MASK == 0 {
                let latched = free | owner;
                if version.compare_exchange_weak(free, latched, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                    return Some(State(latched));
                }
            } else if free & LATCH_MASK == BACKGROUND {
                self.wait_for_background();
            }
            spin_hint();
        }
        None
    }

    /// Waits until reclamation gives the latch back, for it must not make anybody give up.
    #[cold]
    fn wait_for_background(self) {
        let mut backoff = Backoff::new();
        while self.header().version.load(Ordering::Relaxed) & LATCH_MASK == BACKGROUND {
            backoff.wait();
        }
    }

    /// Claims a tombstone. The word is only changed while the latch is free, so its owner sees a settled claim.
    #[cold]
    pub(super) fn claim(self) -> Claim {
        let version = &self.header().version;
        for _ in 0..LATCH_SPINS {
            let free = version.load(Ordering::Relaxed);
            if free & UNLINKED != 0 {
                return Claim::Gone;
            }
            if free & LATCH_MASK == 0 {
                // Even a claim that stands already is made anew: pairs with the acquire of the latch in `latch`, so that
                // who takes the claim back does so before this or sees the epoch in which the caller is pinned.
                if version.compare_exchange_weak(free, free | CLAIMED, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                    return Claim::Held;
                }
            } else if free & LATCH_MASK == BACKGROUND {
                self.wait_for_background();
            }
            spin_hint();
        }
        Claim::Latched
    }

    /// Leaves an own insertion, which others have claimed, to them. It is not latched: who has the latch either gives it back with the
    /// bits as they are, or writes the record, and then it has an id and the mark says nothing any more.
    #[cold]
    pub(super) fn give_up(self) {
        // The queue to which the record goes carries it to whoever takes the record out.
        self.header().version.fetch_or(GIVEN_UP, Ordering::Relaxed);
    }

    /// Takes all claims of a latched record back.
    pub(super) fn disclaim(self) {
        let version = &self.header().version;
        // The latch's end, which follows, releases this.
        version.store(version.load(Ordering::Relaxed) & !CLAIMED, Ordering::Relaxed);
    }

    /// Gives the latch back with nothing changed.
    #[inline]
    pub(super) fn unlatch(self) {
        // Pairs with the acquiring load of the next reader. One step, because a record that moved may be marked meanwhile.
        self.header().version.fetch_and(!LATCH_MASK, Ordering::Release);
    }

    /// Whether this older version is a tombstone. It does not change.
    pub(super) fn is_absent_version(self) -> bool {
        self.header().version.load(Ordering::Relaxed) & ABSENT != 0
    }

    /// Whether this older version has left its chain. Acquiring: pairs with the release in `mark_pruned`, so that who
    /// retires the version does so behind its unlinking.
    #[inline]
    pub(super) fn is_pruned(self) -> bool {
        self.header().version.load(Ordering::Acquire) & PRUNED != 0
    }

    /// Marks an older version that has left its chain. The caller holds the latch of the chain's head.
    pub(super) fn mark_pruned(self) {
        // Pairs with the acquire in `is_pruned`. A record that moved may be latched by who does not know that yet.
        self.header().version.fetch_or(PRUNED, Ordering::Release);
    }

    /// Marks a latched record as forgotten by the index, and unlatches it.
    pub(super) fn unlink(self) {
        let version = &self.header().version;
        let unlinked = (version.load(Ordering::Relaxed) | UNLINKED) & !LATCH_MASK;
        // Pairs with the acquiring load of the next reader.
        version.store(unlinked, Ordering::Release);
    }

    /// Marks a latched record as superseded by a larger one to which the index leads now, and unlatches it.
    pub(super) fn move_away(self) {
        let version = &self.header().version;
        let moved = (version.load(Ordering::Relaxed) | UNLINKED | MOVED) & !LATCH_MASK;
        // Pairs with the acquiring load of the next reader.
        version.store(moved, Ordering::Release);
    }

    /// Begins changing a latched record (Figure 5-1, steps 1 and 2).
    #[inline]
    pub(super) fn begin_write(self) {
        let version = &self.header().version;
        if left_out(Step::MarkDirty) {
            return;
        }
        // Every word stored after this one is stored with a release, so whoever sees one of them sees the dirty bit.
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
    pub(super) fn set_previous(self, previous: Option<Self>) {
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
