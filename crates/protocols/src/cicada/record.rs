//! Records: a head, and a list of versions from the latest to the earliest (§3.2, Figure 2).
//!
//! ```text
//! head      word 0   latest version, or CLOSED
//!           word 1…  a version whose row lies in the head, with its own header as below (§3.3)
//! version   word 0   wts
//!           word 1   rts
//!           word 2   next: the version before this one
//!           word 3   length in words (28) │ in heads only: cache lines (4) │ status (8) │ in heads only: latch (8), queued (2 × 8)
//!           word 4…  the row, or a secondary entry's primary key
//! ```
//!
//! * A version is written by one worker alone ([`NewVersion`]) and then installed by a compare-and-swap on the link before it. From then on
//!   only `rts`, `status` and `next` change: `rts` grows, its writer ends it ([`Installed`]), `next` changes when a version is
//!   installed or unlinked behind it.
//! * The list is sorted by `wts`, latest first. A reader ([`Reader`]) goes no further than to the version that is visible to it; what lies
//!   below may be freed. The holder of the collection latch ([`Latched`]) goes everywhere.
//! * The head's version is claimed by a compare-and-swap of its status from unused to pending. It is unused only when no thread
//!   can hold it, so the thread that claims it is alone with it until it is installed.
//! * A closed record stays closed until its memory serves another key, which is when no thread can hold it.
//!
//! Records and versions carry the lifetime of the guard under which they are found. What stays beyond an operation is an address.

mod address;
mod latched;
mod list;
mod marks;
#[cfg(test)]
mod tests;
mod version;

use std::ptr::{self, NonNull};

use polychron_index::Handle;
use polychron_memory::{Guard, OutOfMemory};
use polychron_sync::MODELLED;
use polychron_sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::timestamp::Timestamp;
pub(super) use address::{Address, Guarded, Kind, Tagged};
pub(super) use latched::{Closed, Cursor, Latched, Unlinked};
pub(super) use list::{Link, Reader, Seen};
use marks::Marks;
pub(super) use marks::Queued;
pub(super) use version::{Installed, InstalledAddress, NewVersion, Status, raise};

/// A version's header; its row follows.
#[derive(Debug)]
#[repr(C)]
pub(super) struct VersionHeader {
    wts: AtomicU64,
    rts: AtomicU64,
    next: AtomicPtr<VersionHeader>,
    /// The row's words, and the cache lines of the head in whose version this is.
    words: AtomicU32,
    status: AtomicU8,
    marks: Marks,
}

/// A record's head; the row of its version follows.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Head {
    latest: AtomicPtr<VersionHeader>,
    version: VersionHeader,
}

/// At such an address lies a record's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfRecord {}

/// At such an address lies a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfVersion {}

impl Kind for OfRecord {
    type Words = Head;
}

impl Kind for OfVersion {
    type Words = VersionHeader;
}

/// A record, whose head stays for `'g`.
pub(super) type Record<'g> = Guarded<'g, OfRecord>;
/// Where a record lies.
pub(super) type RecordAddress = Address<OfRecord>;
/// A version that can be found, whose memory stays for `'g`.
pub(super) type Version<'g> = Guarded<'g, OfVersion>;
/// Where a version lies.
pub(super) type VersionAddress = Address<OfVersion>;

/// Lines of a row that are fetched: longer ones are rarely read whole.
const MOST_LINES: usize = 8;
/// Bits of a row's length in words; the rest are for the lines of a head.
const WORDS_BITS: u32 = 28;
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
/// The bit of a link to the latest version behind which nothing more is installed, though readers go on there.
const SEALED: usize = 1;

impl VersionHeader {
    fn new(status: Status, lines: u32) -> Self {
        Self {
            wts: AtomicU64::new(0),
            rts: AtomicU64::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            words: AtomicU32::new(lines << WORDS_BITS),
            status: AtomicU8::new(status as u8),
            marks: Marks::default(),
        }
    }
}

impl Head {
    /// The head of a record without a version, in so many bytes, which are whole cache lines.
    pub(super) fn new(bytes: usize) -> Self {
        let lines = bytes as u32 / 64;
        assert!(
            bytes >= HEAD_BYTES && bytes.is_multiple_of(64) && lines < 1 << (u32::BITS - WORDS_BITS),
            "it has room"
        );
        Self { latest: AtomicPtr::new(ptr::null_mut()), version: VersionHeader::new(Status::Unused, lines) }
    }
}

impl RecordAddress {
    /// The address that an index holds.
    #[inline]
    pub(super) fn of(handle: Handle) -> Self {
        let start = ptr::with_exposed_provenance_mut(handle.get() as usize);
        Self::at(NonNull::new(start).expect("a handle is not zero"))
    }

    /// What an index holds for the record.
    #[inline]
    pub(super) fn handle(self) -> Handle {
        Handle::new(self.start().as_ptr().expose_provenance() as u64).expect("a record's address is not zero")
    }
}

impl<'g> Record<'g> {
    /// What an index holds for the record.
    #[inline]
    pub(super) fn handle(self) -> Handle {
        self.address().handle()
    }

    /// What is known of collecting it.
    #[inline]
    pub(super) fn marks(self) -> &'g Marks {
        &self.words_of().version.marks
    }

    /// Whether this is the latest version, and others may be installed above it.
    #[inline]
    pub(super) fn leads_to(self, version: VersionAddress) -> bool {
        // SeqCst: as in `list::follow`.
        self.words_of().latest.load(Ordering::SeqCst).addr() as u64 == version.number()
    }

    /// Whether nothing more is installed above the latest version.
    pub(super) fn is_sealed(self) -> bool {
        // Acquire: pairs with `Latched::seal`.
        let raw = self.words_of().latest.load(Ordering::Acquire);
        raw != CLOSED && raw.addr() & SEALED != 0
    }

    /// Brings the latest version into the caches, if it lies outside of the head, which was fetched a while ago.
    #[inline]
    pub(super) fn prefetch_latest(self) {
        self.prefetch_latest_lines(MOST_LINES / 2);
    }

    /// The same with so many lines of it.
    #[inline]
    pub(super) fn prefetch_latest_lines(self, lines: usize) {
        // Relaxed: nothing is read there. A mark at the address makes no difference.
        if let Some(latest) = NonNull::new(self.words_of().latest.load(Ordering::Relaxed)) {
            let latest = VersionAddress::at(latest.cast());
            if !self.is_inline(latest) {
                latest.prefetch(lines);
            }
        }
    }

    /// Whether a version is the head's own.
    #[inline]
    pub(super) fn is_inline(self, version: VersionAddress) -> bool {
        version.number() == self.address().number() + std::mem::offset_of!(Head, version) as u64
    }

    /// What the head's version has become.
    #[inline]
    pub(super) fn inline_status(self) -> Status {
        // Acquire: as in `Version::status`.
        Status::from(self.words_of().version.status.load(Ordering::Acquire))
    }

    /// Claims the head's version, if it is free.
    #[inline]
    fn claim(self) -> bool {
        let status = &self.words_of().version.status;
        let (unused, pending) = (Status::Unused as u8, Status::Pending as u8);
        // Acquire: pairs with the release of the thread that freed it, which knew that no reader is left.
        status.load(Ordering::Relaxed) == unused
            && status.compare_exchange(unused, pending, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Whether the record has no version.
    pub(super) fn is_empty(self) -> bool {
        self.words_of().latest.load(Ordering::Relaxed).is_null()
    }

    /// The head's lines, as they stand beside the length of its row; and the words that its row may have.
    #[inline]
    fn room(self) -> (u32, usize) {
        // Relaxed: the lines never change.
        let lines = self.words_of().version.words.load(Ordering::Relaxed) >> WORDS_BITS;
        (lines << WORDS_BITS, (64 * lines as usize - HEAD_BYTES) / 8)
    }

    /// Writes a version: in the head if that is allowed, free and large enough, else in memory of its own (§3.3).
    #[inline(always)]
    pub(super) fn new_version(
        self,
        timestamp: Timestamp,
        row: &[u64],
        inlines: bool,
        guard: &'g Guard<'_>,
    ) -> Result<NewVersion<'g>, OutOfMemory> {
        let (lines, room) = self.room();
        let is_inline = inlines && row.len() <= room && self.claim();
        let outside = if is_inline {
            None
        } else {
            assert!(row.len() < 1 << WORDS_BITS, "a row has less than 2 GiB");
            Some(guard.allocate(VERSION_BYTES + 8 * row.len())?)
        };
        // SAFETY: the version was claimed or allocated just now, so it is the caller's alone; it has room for the row, and blocks are aligned to 16.
        // The pointer into the head keeps the provenance of the page, so that the row behind may be reached through it.
        let version = unsafe {
            let start: NonNull<VersionHeader> = match outside {
                Some(block) => {
                    block.cast().write(VersionHeader::new(Status::Pending, 0));
                    block.cast()
                }
                None => NonNull::new_unchecked(&raw mut (*self.address().start().cast::<Head>().as_ptr()).version),
            };
            start.add(1).cast::<u64>().as_ptr().copy_from_nonoverlapping(row.as_ptr(), row.len());
            VersionAddress::at(start.cast()).under(guard)
        };
        let header = version.words_of();
        header.wts.store(timestamp.0, Ordering::Relaxed);
        header.rts.store(timestamp.0, Ordering::Relaxed);
        let lines = if outside.is_none() { lines } else { 0 };
        header.words.store(lines | row.len() as u32, Ordering::Relaxed);
        Ok(NewVersion { record: self, version })
    }

    /// Frees the head's version, which was retired.
    ///
    /// # Safety
    /// No thread can still hold it.
    pub(super) unsafe fn free_inline(self) {
        debug_assert_eq!(self.inline_status(), Status::Retired, "only its collector changes a retired version");
        // Release: pairs with the acquire in `claim`.
        self.words_of().version.status.store(Status::Unused as u8, Ordering::Release);
    }

    /// Takes all versions, and makes the record ready for another key. Outdated collectors may still look at it, unless versions are freed
    /// `at_once`.
    ///
    /// # Safety
    /// No transaction can find or hold the record or a version of it, and no guard is left under which one was found that is not retired.
    pub(super) unsafe fn clear(self, guard: &Guard<'_>, at_once: bool) {
        let head = self.words_of();
        // SAFETY: as promised.
        unsafe { list::give_back(self, list::follow(&head.latest), u64::MAX, guard, at_once) };
        head.latest.store(ptr::null_mut(), Ordering::Relaxed);
        head.version.marks.reset();
        // Release: pairs with the acquire in `claim`.
        head.version.status.store(Status::Unused as u8, Ordering::Release);
    }
}
