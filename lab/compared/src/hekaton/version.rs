//! Records and their versions: the words of both, and the rules for touching them.
//!
//! ```text
//!  record   latest version │ state
//!  version  begin │ end │ next older version │ length (32) capacity (32) │ row …
//! ```
//!
//! * A *stamp* of a version (its begin, its end) is a timestamp, or the id of the transaction that is writing it. An id in the end is
//!   the write lock.
//! * A version's row changes only while its begin is the id of a running transaction, and then by that transaction alone. No thread
//!   else reads it before that transaction is preparing.
//! * The list of a record is sorted, latest first. What is not committed is on top of what is.
//! * `next` of a version changes under the record's collection latch, when the version is finished; or before it is linked.

use std::ptr::NonNull;

use polychron_index::{Handle, handle_of, pointer_of};
use polychron_memory::{Guard, OutOfMemory};
use polychron_schema::RowRef;
use polychron_sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The end of a version that is not over, and the beginning of one that never was.
pub(super) const INFINITY: u64 = !MARK;

/// Says that a stamp is the id of a transaction.
const MARK: u64 = 1 << 63;

/// A transaction: its worker's slot, and which of that worker's transactions it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransactionId(pub(super) u64);

impl TransactionId {
    const SLOT_BITS: u32 = 12;
    /// Slots that an id can distinguish.
    pub(super) const MAX_SLOTS: usize = 1 << Self::SLOT_BITS;
    /// No thread's.
    pub(super) const NONE: Self = Self(0);

    #[inline]
    pub(super) fn new(slot: usize, generation: u64) -> Self {
        Self(MARK | generation << Self::SLOT_BITS | slot as u64)
    }

    #[inline]
    pub(super) fn slot(self) -> usize {
        self.0 as usize % Self::MAX_SLOTS
    }

    #[inline]
    pub(super) fn generation(self) -> u64 {
        (self.0 & !MARK) >> Self::SLOT_BITS
    }
}

/// A version's begin or end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    /// It was then.
    At(u64),
    /// It depends on what becomes of this transaction.
    By(TransactionId),
}

impl Stamp {
    #[inline]
    fn of(word: u64) -> Self {
        if word & MARK == 0 { Self::At(word) } else { Self::By(TransactionId(word)) }
    }

    /// The timestamp, where that is finished.
    #[inline]
    pub(super) fn finished(self) -> Option<u64> {
        match self {
            Self::At(timestamp) if timestamp != INFINITY => Some(timestamp),
            _ => None,
        }
    }
}

#[repr(C)]
struct Header {
    begin: AtomicU64,
    end: AtomicU64,
    next: AtomicPtr<Header>,
    length: AtomicU32,
    capacity: u32,
}

const HEADER_BYTES: usize = size_of::<Header>();
const _: () = assert!(polychron_sync::MODELLED || HEADER_BYTES == 32);

/// A version of a row, which a guard or the transaction's timestamp keeps alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version(NonNull<Header>);

// SAFETY: a version is touched under the rules at the head of this file.
unsafe impl Send for Version {}

impl Version {
    /// A version with this row that `writer` is about to link in front of `next`.
    #[inline]
    pub(super) fn new(
        writer: TransactionId,
        row: &[u64],
        next: Option<Self>,
        guard: &Guard<'_>,
    ) -> Result<Self, OutOfMemory> {
        let memory = guard.allocate(HEADER_BYTES + 8 * row.len())?.cast::<Header>();
        let header = Header {
            begin: AtomicU64::new(writer.0),
            end: AtomicU64::new(INFINITY),
            next: AtomicPtr::new(address(next)),
            length: AtomicU32::new(row.len() as u32),
            capacity: row.len() as u32,
        };
        // SAFETY: the memory is large enough, aligned to at least 16, and ours alone until the version is linked.
        unsafe { memory.write(header) };
        let version = Self(memory);
        // SAFETY: there are as many words behind the header as the row has.
        unsafe { version.first_word().copy_from_nonoverlapping(row.as_ptr(), row.len()) };
        Ok(version)
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: any thread that has a version keeps it alive.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    fn first_word(self) -> *mut u64 {
        // SAFETY: the row begins right behind the header, in the same allocation.
        unsafe { self.0.as_ptr().cast::<u8>().add(HEADER_BYTES).cast() }
    }

    /// Since when it can be seen. Acquiring: pairs with the releases of `set_begin` and of linking it, so that the row is whole.
    #[inline]
    pub(super) fn begin(self) -> Stamp {
        Stamp::of(self.header().begin.load(Ordering::Acquire))
    }

    /// Until when. Acquiring: pairs with `set_end` and `lock`.
    #[inline]
    pub(super) fn end(self) -> Stamp {
        Stamp::of(self.header().end.load(Ordering::Acquire))
    }

    /// Writes the beginning: by the transaction whose id stands there. Sequentially consistent for a thread that takes an aborted version
    /// out ([`Record::pop`]); also a release, so that a thread that sees the timestamp sees the row.
    #[inline]
    pub(super) fn set_begin(self, timestamp: u64) {
        self.header().begin.store(timestamp, Ordering::SeqCst);
    }

    /// Whether it was given up.
    pub(super) fn is_aborted(self) -> bool {
        // Pairs with `set_begin`: see `Record::pop`.
        self.header().begin.load(Ordering::SeqCst) == INFINITY
    }

    /// Writes the end: by the transaction that locked the version.
    #[inline]
    pub(super) fn set_end(self, timestamp: u64) {
        // Pairs with the acquire in `end`.
        self.header().end.store(timestamp, Ordering::Release);
    }

    /// Locks the version for a writer, if no thread has.
    #[inline]
    pub(super) fn lock(self, writer: TransactionId) -> bool {
        // Acquire: what the one before did is seen. Release: pairs with `end`.
        let locked = self.header().end.compare_exchange(INFINITY, writer.0, Ordering::AcqRel, Ordering::Relaxed);
        locked.is_ok()
    }

    /// The version before this one.
    #[inline]
    pub(super) fn next(self) -> Option<Self> {
        // Pairs with the releases of `set_next` and of linking this version.
        NonNull::new(self.header().next.load(Ordering::Acquire)).map(Self)
    }

    /// Says which version comes before.
    #[inline]
    pub(super) fn set_next(self, next: Option<Self>) {
        // Pairs with the acquire in `next`.
        self.header().next.store(address(next), Ordering::Release);
    }

    /// The row. Its bytes stay as they are for as long as the caller keeps the version.
    #[inline]
    pub(super) fn row<'r>(self) -> RowRef<'r> {
        let length = self.header().length.load(Ordering::Relaxed) as usize;
        // SAFETY: so many words are initialised; they change no more once another transaction may read them, and a transaction
        // does not hold the row of its own version while it changes it.
        RowRef::from_words(unsafe { std::slice::from_raw_parts(self.first_word(), length) })
    }

    /// Writes another row into a version that no other thread reads yet. `false`: it has no room.
    #[inline]
    pub(super) fn overwrite(self, row: &[u64]) -> bool {
        if row.len() > self.header().capacity as usize {
            return false;
        }
        // SAFETY: there is room, and the caller is the only one that reads or writes the row.
        unsafe { self.first_word().copy_from_nonoverlapping(row.as_ptr(), row.len()) };
        self.header().length.store(row.len() as u32, Ordering::Relaxed);
        true
    }

    /// Its memory, for giving it back.
    #[inline]
    pub(super) fn memory(self) -> (NonNull<u8>, usize) {
        (self.0.cast(), HEADER_BYTES + 8 * self.header().capacity as usize)
    }

    /// Gives the memory back once all guards that exist now are gone.
    ///
    /// # Safety
    /// A thread that pins from now on does not find the version; it is freed once.
    pub(super) unsafe fn retire(self, guard: &Guard<'_>) {
        let (memory, bytes) = self.memory();
        // SAFETY: the caller promises the same.
        unsafe { guard.retire(memory, bytes) };
    }

    /// Gives the memory back at once.
    ///
    /// # Safety
    /// No thread finds the version, or has found it; it is freed once.
    pub(super) unsafe fn free(self, guard: &Guard<'_>) {
        let (memory, bytes) = self.memory();
        // SAFETY: the caller promises the same.
        unsafe { guard.free(memory, bytes) };
    }

    /// Starts bringing the version into the cache.
    #[inline]
    pub(super) fn prefetch(self, lines: usize) {
        for line in 0..lines {
            polychron_sync::prefetch_read(self.0.as_ptr().cast::<u8>().wrapping_add(64 * line));
        }
    }
}

#[inline]
fn address(version: Option<Version>) -> *mut Header {
    version.map_or(std::ptr::null_mut(), |version| version.0.as_ptr())
}

#[repr(C)]
struct Body {
    latest: AtomicPtr<Header>,
    state: AtomicU64,
}

const BODY_BYTES: usize = size_of::<Body>();

/// Bits of a record's state; above them is the count of its owners: the index is one, each item of a collector's
/// queue is one.
const COLLECTING: u64 = 1;
const KEPT: u64 = 2;
const KEPT_TOMBSTONE: u64 = 4;
const DEFERRED_DROPS: u64 = 8;

/// What stands for `latest` when the record no longer serves a key.
fn closed() -> *mut Header {
    std::ptr::without_provenance_mut(1)
}

/// What a key leads to: the list of the row's versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record(NonNull<Body>);

// SAFETY: a record is touched through its atomic words alone.
unsafe impl Send for Record {}

/// The top of a record's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Top {
    /// A version.
    Version(Version),
    /// The record no longer serves a key.
    Closed,
}

impl Record {
    /// A record with one version, kept by the index that it is going to be put into.
    #[inline]
    pub(super) fn new(version: Version, guard: &Guard<'_>) -> Result<Self, OutOfMemory> {
        let memory = guard.allocate(BODY_BYTES)?.cast::<Body>();
        let body = Body { latest: AtomicPtr::new(version.0.as_ptr()), state: AtomicU64::new(DEFERRED_DROPS) };
        // SAFETY: the memory is large enough, aligned to at least 16, and ours alone.
        unsafe { memory.write(body) };
        Ok(Self(memory))
    }

    /// Gives back a record that no index has taken.
    ///
    /// # Safety
    /// No other thread has seen it.
    pub(super) unsafe fn free(self, guard: &Guard<'_>) {
        // SAFETY: the caller promises the same.
        unsafe { guard.free(self.0.cast(), BODY_BYTES) };
    }

    #[inline]
    pub(super) fn handle(self) -> Handle {
        handle_of(self.0)
    }

    /// The record behind a handle.
    ///
    /// # Safety
    /// The handle came from [`Record::handle`] through an index, under a guard that lives as long as the record is used.
    #[inline]
    pub(super) unsafe fn from_handle(handle: Handle) -> Self {
        Self(pointer_of(handle))
    }

    #[inline]
    fn body(&self) -> &Body {
        // SAFETY: a guard or a deferred drops' share keeps the record alive.
        unsafe { self.0.as_ref() }
    }

    /// The top of the list. Acquiring: pairs with `replace_top`.
    #[inline]
    pub(super) fn top(self) -> Top {
        let latest = self.body().latest.load(Ordering::Acquire);
        match NonNull::new(latest) {
            Some(version) if latest != closed() => Top::Version(Version(version)),
            _ => Top::Closed,
        }
    }

    /// The latest version, if the record is open.
    #[inline]
    pub(super) fn latest(self) -> Option<Version> {
        match self.top() {
            Top::Version(version) => Some(version),
            Top::Closed => None,
        }
    }

    /// Puts `to` in the place of the top `from`; `None` closes the record.
    ///
    /// Sequentially consistent for `pop`; an acquire, and a release that pairs with `top`.
    #[inline]
    pub(super) fn replace_top(self, from: Version, to: Option<Version>) -> bool {
        let to = to.map_or(closed(), |version| version.0.as_ptr());
        let latest = &self.body().latest;
        latest.compare_exchange(from.0.as_ptr(), to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Takes an aborted version off the top, and whatever aborted version comes to the top by that. One that has another on top of it is
    /// left to a thread that takes that one off: of the two, one sees that it is on top and aborted, because each stores first and looks
    /// then, sequentially consistently. `true`: the record has no version left and is closed.
    pub(super) fn pop(self, version: Version, mut retire: impl FnMut(Version)) -> bool {
        let mut top = version;
        while top.is_aborted() {
            let next = top.next();
            if !self.replace_top(top, next) {
                return false;
            }
            retire(top);
            match next {
                Some(next) => top = next,
                None => return true,
            }
        }
        false
    }

    /// Takes the collection latch, if it is free.
    pub(super) fn try_collect(self) -> bool {
        // Pairs with `end_collection`.
        self.body().state.fetch_or(COLLECTING, Ordering::Acquire) & COLLECTING == 0
    }

    /// Gives the collection latch back.
    pub(super) fn end_collection(self) {
        // Pairs with `try_collect`.
        self.body().state.fetch_and(!COLLECTING, Ordering::Release);
    }

    /// Says that an item waits for a long snapshot to end, a tombstone's or another one; `false` if one does already.
    pub(super) fn keep_item(self, is_tombstone: bool) -> bool {
        let bit = if is_tombstone { KEPT_TOMBSTONE } else { KEPT };
        // Only items ask, and each of them is looked at under the collection latch.
        self.body().state.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// Takes that back.
    pub(super) fn let_item_go(self, is_tombstone: bool) {
        let bit = if is_tombstone { KEPT_TOMBSTONE } else { KEPT };
        self.body().state.fetch_and(!bit, Ordering::Relaxed);
    }

    /// One more keeps the record: a thread that asks knows that some thread does already.
    #[inline]
    pub(super) fn share(self) {
        self.body().state.fetch_add(DEFERRED_DROPS, Ordering::Relaxed);
    }

    /// One fewer keeps the record; the last one gives its memory back.
    ///
    /// # Safety
    /// The share was the caller's.
    #[inline]
    pub(super) unsafe fn release(self, guard: &Guard<'_>) {
        // Release: what the others did with the record came before; acquire: and is seen by the last one.
        if self.body().state.fetch_sub(DEFERRED_DROPS, Ordering::AcqRel) / DEFERRED_DROPS == 1 {
            // SAFETY: the index has given up its share, so no thread finds the record from now on.
            unsafe { guard.retire(self.0.cast(), BODY_BYTES) };
        }
    }

    /// Closes the record, whatever it holds, and answers what that was.
    pub(super) fn close(self) -> Option<Version> {
        // Pairs with `replace_top`.
        let latest = self.body().latest.swap(closed(), Ordering::SeqCst);
        NonNull::new(latest).filter(|_| latest != closed()).map(Version)
    }

    /// Starts bringing the record into the cache.
    #[inline]
    pub(super) fn prefetch(self) {
        polychron_sync::prefetch_read(self.0.as_ptr());
    }
}
