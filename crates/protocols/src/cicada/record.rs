//! Records: a head, and a list of versions from the latest to the earliest (§3.2, Figure 2).
//!
//! ```text
//! head      word 0   latest version, or CLOSED
//!           word 1…  a version whose row lies in the head, with its own header as below (§3.3)
//! version   word 0   wts
//!           word 1   rts
//!           word 2   next: the version before this one
//!           word 3   length in words (32) │ status (8) │ in heads only: collection latch (8), queued (2 × 8)
//!           word 4…  the row, or a secondary entry's primary key
//! ```
//!
//! * A version is written by one worker alone and then installed by a compare-and-swap on the link before it. From then on
//!   only `rts`, `status` and `next` change: `rts` grows, `status` goes from pending to its end, `next` changes when a version is
//!   installed or taken out behind it.
//! * The list is sorted by `wts`, latest first.
//! * The head's version is claimed by a compare-and-swap of its status from unused to pending. It is unused only when nobody
//!   can hold it, so whoever claims it is alone with it until it is installed.
//! * A closed record stays closed until its memory serves another key, which is when nobody can hold it.

use std::ptr::{self, NonNull};

use polychron_engine::contested::RowAddress;
use polychron_engine::mutations::left_out;
use polychron_index::Handle;
use polychron_memory::{Guard, OutOfMemory};
use polychron_schema::RowRef;
use polychron_sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
use polychron_sync::{Backoff, MODELLED};

use super::marks::Marks;
use super::steps::Step;
use super::timestamp::Timestamp;

/// What a version has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    /// A version in a head that is free.
    Unused = 0,
    /// Installed by a transaction that is still validating.
    Pending,
    /// A row.
    Committed,
    /// There is no row from here on.
    Deleted,
    /// As if it were not there.
    Aborted,
    /// Not there any more: a head's version that was taken out of the list, but may still be looked at.
    Retired,
}

impl Status {
    #[inline]
    const fn from(byte: u8) -> Self {
        match byte {
            0 => Self::Unused,
            1 => Self::Pending,
            2 => Self::Committed,
            3 => Self::Deleted,
            4 => Self::Aborted,
            _ => Self::Retired,
        }
    }
}

/// A version's header; its row follows.
#[repr(C)]
struct VersionHeader {
    wts: AtomicU64,
    rts: AtomicU64,
    next: AtomicPtr<VersionHeader>,
    words: AtomicU32,
    status: AtomicU8,
    marks: Marks,
}

/// A record's head; the row of its version follows.
#[repr(C)]
struct Head {
    latest: AtomicPtr<VersionHeader>,
    version: VersionHeader,
}

/// Lines of a row that are fetched: longer ones are rarely read whole.
const MOST_LINES: usize = 8;
const VERSION_BYTES: usize = size_of::<VersionHeader>();
/// Bytes of a head before its row.
pub(super) const HEAD_BYTES: usize = size_of::<Head>();
/// The longest row that lies in a head (§3.3).
pub(super) const LONGEST_INLINE_BYTES: usize = 216;

const _: () = {
    assert!(MODELLED || VERSION_BYTES == 32 && HEAD_BYTES == 40, "as in the paper, four lines hold a row of 216 bytes");
    assert!(MODELLED || HEAD_BYTES + LONGEST_INLINE_BYTES == 256);
};

/// What the latest version of a closed record is; no version lies at an odd address.
const CLOSED: *mut VersionHeader = ptr::without_provenance_mut(1);
/// The bit of a link to the latest version behind which nothing is installed any more, though readers go on there.
const SEALED: usize = 1;

/// A version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version(NonNull<VersionHeader>);

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record(NonNull<Head>);

impl From<Record> for RowAddress {
    #[inline]
    fn from(record: Record) -> Self {
        Self(record.0.as_ptr().addr())
    }
}

/// What a link of a version list leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// A version.
    To(Version),
    /// Nothing: the list ends.
    End,
    /// Nothing any more: the record is closed.
    Closed,
}

/// A place in a version list into which a version can be put.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'r>(&'r AtomicPtr<VersionHeader>);

// SAFETY: both are addresses; what they lead to is shared through atomics, and rows behind a link do not change.
unsafe impl Send for Record {}
// SAFETY: as above.
unsafe impl Send for Version {}

impl<'r> Place<'r> {
    /// What the place leads to.
    #[inline]
    pub(super) fn link(self) -> Link {
        // SeqCst: acquires what the installer wrote; and in validation it comes behind the raised read timestamps in the one
        // order of all (`commit.rs`). On x86-64 it is a load like any other.
        let raw = self.0.load(Ordering::SeqCst);
        if raw == CLOSED {
            return Link::Closed;
        }
        match NonNull::new(raw.map_addr(|address| address & !SEALED)) {
            None => Link::End,
            Some(version) => Link::To(Version(version)),
        }
    }

    /// Whether the place leads to this version.
    #[inline]
    pub(super) fn leads_to(self, version: Version) -> bool {
        // SeqCst: as in `link`.
        ptr::eq(self.0.load(Ordering::SeqCst), version.0.as_ptr())
    }

    /// Puts `new` before what the place leads to, if that is still `old`.
    #[inline]
    pub(super) fn install(self, old: Option<Version>, new: Version) -> bool {
        let old = old.map_or(ptr::null_mut(), |version| version.0.as_ptr());
        // Relaxed: the version is installed by the exchange below, which releases it.
        new.header().next.store(old, Ordering::Relaxed);
        // SeqCst: releases the version; and comes before the load of read timestamps in the one order of all.
        self.0.compare_exchange(old, new.0.as_ptr(), Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Takes `old` out; what lies behind it takes its place.
    pub(super) fn take_out(self, old: Version) -> bool {
        let next = old.header().next.load(Ordering::Acquire);
        // AcqRel: passes on what was released with `next`.
        self.0.compare_exchange(old.0.as_ptr(), next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Closes the record whose head this is, if it leads where it did.
    pub(super) fn close(self, top: Option<Version>) -> bool {
        let top = top.map_or(ptr::null_mut(), |version| version.0.as_ptr());
        // AcqRel: nobody reads anything behind the mark; the order is that of the list's other changes.
        let close = |top| self.0.compare_exchange(top, CLOSED, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        close(top) || !top.is_null() && close(top.map_addr(|address| address | SEALED))
    }

    /// Lets nothing be installed above the latest version any more, if that is still this one. Readers see the list as before.
    pub(super) fn seal(self, top: Version) -> bool {
        let top = top.0.as_ptr();
        let sealed = top.map_addr(|address| address | SEALED);
        // AcqRel: as in `close`.
        self.0.compare_exchange(top, sealed, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether it is sealed.
    pub(super) fn is_sealed(self) -> bool {
        // Acquire: pairs with `seal`.
        let raw = self.0.load(Ordering::Acquire);
        raw != CLOSED && raw.addr() & SEALED != 0
    }

    /// Cuts the list off here and returns what was behind.
    pub(super) fn cut(self) -> Option<Version> {
        // Acquire: pairs with the installations of what is cut off.
        NonNull::new(self.0.swap(ptr::null_mut(), Ordering::Acquire)).map(Version)
    }

    /// Puts the rest of a list back that was cut off here. Nobody has looked at it meanwhile, or will.
    pub(super) fn put_back(self, rest: Version) {
        self.0.store(rest.0.as_ptr(), Ordering::Relaxed);
    }
}

impl Version {
    /// Takes memory for a version with a row of so many words.
    #[inline]
    pub(super) fn allocate(words: usize, guard: &Guard<'_>) -> Result<Self, OutOfMemory> {
        let version = guard.allocate(VERSION_BYTES + 8 * words)?.cast::<VersionHeader>();
        let header = VersionHeader {
            wts: AtomicU64::new(0),
            rts: AtomicU64::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            words: AtomicU32::new(words as u32),
            status: AtomicU8::new(Status::Pending as u8),
            marks: Marks::default(),
        };
        // SAFETY: the block is large enough, aligned to 16, and nobody else's.
        unsafe { version.write(header) };
        Ok(Self(version))
    }

    #[inline]
    fn header(&self) -> &VersionHeader {
        // SAFETY: a version is held only while its memory is kept: by the transaction's timestamp, by its guard, or because
        // nobody else knows it yet.
        unsafe { self.0.as_ref() }
    }

    /// Its memory, with its length; not for the version of a head.
    #[inline]
    pub(super) fn memory(self) -> (NonNull<u8>, usize) {
        (self.0.cast(), VERSION_BYTES + 8 * self.words())
    }

    #[inline]
    pub(super) fn words(self) -> usize {
        self.header().words.load(Ordering::Relaxed) as usize
    }

    /// Brings a row that lies outside of its head into the caches, its first line aside, which is being read.
    #[inline]
    pub(super) fn prefetch_row(self) {
        let start = self.0.as_ptr().cast::<u8>().cast_const();
        for offset in (64..(VERSION_BYTES + 8 * self.words()).min(64 * MOST_LINES)).step_by(64) {
            polychron_sync::prefetch_read(start.wrapping_add(offset));
        }
    }

    /// Writes the version before it is installed.
    ///
    /// # Safety
    /// The version is the caller's alone, and has room for the row.
    #[inline]
    pub(super) unsafe fn fill(self, timestamp: Timestamp, row: &[u64]) {
        let header = self.header();
        header.wts.store(timestamp.0, Ordering::Relaxed);
        header.rts.store(timestamp.0, Ordering::Relaxed);
        header.words.store(row.len() as u32, Ordering::Relaxed);
        // SAFETY: the caller promises room behind the header, and to be alone.
        unsafe { self.row_pointer().copy_from_nonoverlapping(row.as_ptr(), row.len()) };
    }

    #[inline]
    fn row_pointer(self) -> *mut u64 {
        // SAFETY: the row begins where the header ends, in the same block.
        unsafe { self.0.as_ptr().add(1).cast() }
    }

    /// The row.
    ///
    /// # Safety
    /// The version is held for `'v`: the transaction that found it runs.
    #[inline]
    pub(super) unsafe fn row<'v>(self) -> RowRef<'v> {
        // SAFETY: rows do not change once their version can be found, and the caller keeps the memory.
        RowRef::from_words(unsafe { std::slice::from_raw_parts(self.row_pointer(), self.words()) })
    }

    #[inline]
    pub(super) fn wts(self) -> Timestamp {
        Timestamp(self.header().wts.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn rts(self) -> Timestamp {
        // SeqCst: a writer's look behind its installation (`commit.rs`).
        Timestamp(self.header().rts.load(Ordering::SeqCst))
    }

    /// Makes sure that the read timestamp is not before `timestamp` (§3.4): most often it is later already.
    #[inline]
    pub(super) fn raise_rts(self, timestamp: Timestamp) {
        raise(&self.header().rts, timestamp);
    }

    #[inline]
    pub(super) fn status(self) -> Status {
        // Acquire: pairs with the release in `end`.
        Status::from(self.header().status.load(Ordering::Acquire))
    }

    /// Says what the version has become.
    #[inline]
    pub(super) fn end(self, status: Status) {
        // Release: pairs with the acquire in `status` and in `claim_version`.
        self.header().status.store(status as u8, Ordering::Release);
    }

    /// Waits until the version is not pending any more.
    #[inline]
    pub(super) fn settled(self) -> Status {
        let mut backoff = Backoff::new();
        loop {
            let status = self.status();
            if status != Status::Pending {
                return status;
            }
            backoff.wait();
        }
    }

    /// The place behind this version.
    #[inline]
    pub(super) fn next<'v>(self) -> Place<'v> {
        // SAFETY: as for the version itself; the place is used only as long as it.
        Place(unsafe { &self.0.as_ref().next })
    }
}

/// Raises a shared timestamp to at least `timestamp`; writes only when it must.
#[inline]
pub(super) fn raise(word: &AtomicU64, timestamp: Timestamp) {
    // SeqCst, the load too: who finds it late enough relies on the store of whoever raised it, before its own next looks.
    let mut seen = word.load(Ordering::SeqCst);
    while Timestamp(seen).is_before(timestamp) {
        match word.compare_exchange_weak(seen, timestamp.0, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

impl Record {
    /// The record at an address in a page, which is not one yet.
    ///
    /// # Safety
    /// There is room for a head, and nobody else knows the place.
    pub(super) unsafe fn create(place: NonNull<u8>) -> Self {
        let record = Self(place.cast());
        let version = VersionHeader {
            wts: AtomicU64::new(0),
            rts: AtomicU64::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            words: AtomicU32::new(0),
            status: AtomicU8::new(Status::Unused as u8),
            marks: Marks::default(),
        };
        // SAFETY: the caller promises room and to be alone; pages are aligned to 64.
        unsafe { record.0.write(Head { latest: AtomicPtr::new(ptr::null_mut()), version }) };
        record
    }

    /// The record at an address where one was created.
    ///
    /// # Safety
    /// One was, and its page lives.
    pub(super) unsafe fn at(place: NonNull<u8>) -> Self {
        Self(place.cast())
    }

    /// The record that an index names.
    ///
    /// # Safety
    /// The handle is one of this protocol's records, found under a guard that is still held.
    #[inline]
    pub(super) unsafe fn from_handle(handle: Handle) -> Self {
        let address = ptr::with_exposed_provenance_mut(handle.get() as usize);
        // SAFETY: a handle is never zero.
        Self(unsafe { NonNull::new_unchecked(address) })
    }

    /// What the index holds for the record.
    #[inline]
    pub(super) fn handle(self) -> Handle {
        Handle::new(self.0.as_ptr().expose_provenance() as u64).expect("a record's address is not zero")
    }

    /// The record's number in the hash table of a transaction's writes.
    #[inline]
    pub(super) fn address(self) -> u64 {
        self.0.as_ptr().addr() as u64
    }

    #[inline]
    fn head<'r>(self) -> &'r Head {
        // SAFETY: records lie in pages that are given back with their table, which outlives its transactions, or when all places in
        // them are free and no guard is left that was there before.
        unsafe { self.0.as_ref() }
    }

    /// What is known of collecting it.
    #[inline]
    pub(super) fn marks<'r>(self) -> &'r Marks {
        &self.head().version.marks
    }

    /// The place before the latest version.
    #[inline]
    pub(super) fn latest<'r>(self) -> Place<'r> {
        Place(&self.head().latest)
    }

    /// Brings the first lines of the record into the caches.
    #[inline]
    pub(super) fn prefetch(self, lines: usize) {
        let start = self.0.as_ptr().cast::<u8>().cast_const();
        for line in 0..lines {
            polychron_sync::prefetch_read(start.wrapping_add(64 * line));
        }
    }

    /// Brings the latest version into the caches, if it lies outside of the head, which was fetched a while ago.
    #[inline]
    pub(super) fn prefetch_latest(self) {
        self.prefetch_latest_lines(MOST_LINES / 2);
    }

    /// The same with so many lines of it.
    #[inline]
    pub(super) fn prefetch_latest_lines(self, lines: usize) {
        if let Link::To(version) = self.latest().link()
            && !self.is_inline(version)
        {
            let start = version.0.as_ptr().cast::<u8>().cast_const();
            for line in 0..lines {
                polychron_sync::prefetch_read(start.wrapping_add(64 * line));
            }
        }
    }

    #[inline]
    fn inline(self) -> Version {
        // SAFETY: the version lies inside of the head; its pointer keeps the provenance of the page, so that the row behind
        // may be reached through it.
        Version(unsafe { NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).version) })
    }

    /// Whether a version is the head's own.
    #[inline]
    pub(super) fn is_inline(self, version: Version) -> bool {
        self.inline() == version
    }

    /// What the head's version has become.
    #[inline]
    pub(super) fn inline_status(self) -> Status {
        self.inline().status()
    }

    /// Frees the head's version, which was retired and nobody can hold any more.
    pub(super) fn free_inline(self) {
        debug_assert_eq!(self.inline_status(), Status::Retired, "only its collector changes a retired version");
        self.inline().end(Status::Unused);
    }

    /// Claims the head's version; it is the caller's alone then (§3.3).
    #[inline]
    pub(super) fn claim_version(self) -> Option<Version> {
        let status = &self.head().version.status;
        if status.load(Ordering::Relaxed) != Status::Unused as u8 {
            return None;
        }
        let (unused, pending) = (Status::Unused as u8, Status::Pending as u8);
        // Acquire: pairs with the release in `end` of whoever freed it, who knew that nobody reads it any more.
        let claimed = status.compare_exchange(unused, pending, Ordering::Acquire, Ordering::Relaxed).is_ok();
        claimed.then(|| self.inline())
    }

    /// Makes a record that was closed ready for another key.
    ///
    /// # Safety
    /// Nobody can find or hold the record or a version of it.
    pub(super) unsafe fn reset(self) {
        let head = self.head();
        head.latest.store(ptr::null_mut(), Ordering::Relaxed);
        head.version.marks.reset();
        self.inline().end(Status::Unused);
    }
}

/// What a transaction sees of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The visible version; it may be a deletion.
    pub(super) version: Option<Version>,
    /// Whether that is a row.
    pub(super) is_row: bool,
    /// The earliest version later than the transaction. A version that changes what is visible lies behind it (§3.5).
    pub(super) later: Option<Version>,
    /// Whether the record is closed: nothing to be seen, now or later.
    pub(super) closed: bool,
}

/// Finds the version that is visible at `timestamp` (§3.2). The search begins behind `later`, a version that is later than that.
///
/// A pending version that would be visible is waited for, or passed over. The caller's own pending version, which has just that
/// timestamp, is passed over in any case.
#[inline]
pub(super) fn search(record: Record, timestamp: Timestamp, later: Option<Version>, wait: bool) -> Seen {
    let mut seen = Seen { version: None, is_row: false, later, closed: false };
    let mut place = later.map_or_else(|| record.latest(), Version::next);
    loop {
        let version = match place.link() {
            Link::To(version) => version,
            Link::End => return seen,
            Link::Closed => return Seen { closed: true, ..seen },
        };
        let wts = version.wts();
        place = version.next();
        if wts.is_after(timestamp) {
            seen.later = Some(version);
            continue;
        }
        let mut status = version.status();
        if status == Status::Pending && wait && wts != timestamp {
            status = version.settled();
        }
        let counts = matches!(status, Status::Committed | Status::Deleted)
            || left_out(Step::PassOverAborted) && status == Status::Aborted
            || left_out(Step::PassOverOwn) && wts == timestamp;
        if counts {
            seen.version = Some(version);
            seen.is_row = status != Status::Deleted;
            return seen;
        }
    }
}
