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
//! * A version is written by one worker alone ([`NewVersion`]) and then installed by a compare-and-swap on the link before it. From then on
//!   only `rts`, `status` and `next` change: `rts` grows, `status` goes from pending to its end, `next` changes when a version is
//!   installed or unlinked behind it.
//! * The list is sorted by `wts`, latest first. Who reads ([`Reader`]) goes no further than to the version that is visible to it; what lies
//!   below may be freed. Who has the collection latch ([`Latched`]) goes everywhere.
//! * The head's version is claimed by a compare-and-swap of its status from unused to pending. It is unused only when nobody
//!   can hold it, so whoever claims it is alone with it until it is installed.
//! * A closed record stays closed until its memory serves another key, which is when nobody can hold it.
//!
//! Records and versions carry the lifetime of the guard under which they are found. What stays beyond an operation is an address.

mod latched;
mod list;
mod version;

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use polychron_index::Handle;
use polychron_memory::Guard;
use polychron_sync::MODELLED;
use polychron_sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::marks::Marks;
pub(super) use latched::{Bottom, Closed, Latched, Unlinked};
pub(super) use list::{Link, Reader, Seen};
pub(super) use version::{NewVersion, Status, Version, VersionAddress, raise};

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

/// A record, whose head stays for `'g`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'g> {
    head: NonNull<Head>,
    guard: PhantomData<&'g ()>,
}

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordAddress(NonNull<Head>);

// SAFETY: it is an address; what lies there is shared through atomics, and rows behind a link do not change.
unsafe impl Send for RecordAddress {}

impl RecordAddress {
    /// The address that an index holds.
    #[inline]
    pub(super) fn of(handle: Handle) -> Self {
        let address = ptr::with_exposed_provenance_mut(handle.get() as usize);
        Self(NonNull::new(address).expect("a handle is not zero"))
    }

    /// The address of a head in a page.
    #[inline]
    pub(super) fn at(start: NonNull<u8>) -> Self {
        Self(start.cast())
    }

    /// The record there.
    ///
    /// # Safety
    /// A record was created there, and its page stays for as long as `holder` is borrowed: a guard under which it was found, or what owns the page.
    #[inline]
    pub(super) unsafe fn under<K: ?Sized>(self, _holder: &K) -> Record<'_> {
        Record { head: self.0, guard: PhantomData }
    }

    /// What the index holds for the record.
    #[inline]
    pub(super) fn handle(self) -> Handle {
        Handle::new(self.0.as_ptr().expose_provenance() as u64).expect("a record's address is not zero")
    }

    /// The record's number in the hash table of a transaction's writes.
    #[inline]
    pub(super) fn number(self) -> u64 {
        self.0.as_ptr().addr() as u64
    }

    /// Brings the first lines of the record into the caches.
    #[inline]
    pub(super) fn prefetch(self, lines: usize) {
        let start = self.0.as_ptr().cast::<u8>().cast_const();
        for line in 0..lines {
            polychron_sync::prefetch_read(start.wrapping_add(64 * line));
        }
    }
}

impl<'g> Record<'g> {
    /// Makes a record, which has no version.
    ///
    /// # Safety
    /// At `start` there is room for a head, aligned to 64, that stays for `'g`; nobody else knows it.
    pub(super) unsafe fn create(start: NonNull<u8>) -> Self {
        let record = Self { head: start.cast(), guard: PhantomData };
        let version = VersionHeader {
            wts: AtomicU64::new(0),
            rts: AtomicU64::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            words: AtomicU32::new(0),
            status: AtomicU8::new(Status::Unused as u8),
            marks: Marks::default(),
        };
        // SAFETY: the caller promises room and to be alone.
        unsafe { record.head.write(Head { latest: AtomicPtr::new(ptr::null_mut()), version }) };
        record
    }

    /// Where it lies.
    #[inline]
    pub(super) fn address(self) -> RecordAddress {
        RecordAddress(self.head)
    }

    /// What the index holds for the record.
    #[inline]
    pub(super) fn handle(self) -> Handle {
        self.address().handle()
    }

    #[inline]
    fn head(self) -> &'g Head {
        // SAFETY: a record was created there, and whoever made this value has seen to it that its page stays for `'g`.
        unsafe { self.head.as_ref() }
    }

    /// What is known of collecting it.
    #[inline]
    pub(super) fn marks(self) -> &'g Marks {
        &self.head().version.marks
    }

    /// Whether this is the latest version, and others may be installed above it.
    #[inline]
    pub(super) fn leads_to(self, version: VersionAddress) -> bool {
        // SeqCst: as in `list::follow`.
        ptr::eq(self.head().latest.load(Ordering::SeqCst), version.0.as_ptr())
    }

    /// Whether nothing is installed any more above the latest version.
    pub(super) fn is_sealed(self) -> bool {
        // Acquire: pairs with `Latched::seal`.
        let raw = self.head().latest.load(Ordering::Acquire);
        raw != CLOSED && raw.addr() & SEALED != 0
    }

    /// Brings the first lines of the record into the caches.
    #[inline]
    pub(super) fn prefetch(self, lines: usize) {
        self.address().prefetch(lines);
    }

    /// Brings the latest version into the caches, if it lies outside of the head, which was fetched a while ago.
    #[inline]
    pub(super) fn prefetch_latest(self) {
        self.prefetch_latest_lines(MOST_LINES / 2);
    }

    /// The same with so many lines of it.
    #[inline]
    pub(super) fn prefetch_latest_lines(self, lines: usize) {
        if let Link::To(version) = list::follow(&self.head().latest)
            && !self.is_inline(version.address())
        {
            version.prefetch(lines);
        }
    }

    #[inline]
    fn inline(self) -> Version<'g> {
        // SAFETY: the version lies inside of the head, which stays as long as the record; its pointer keeps the provenance of the page, so that the
        // row behind may be reached through it.
        unsafe { Version::at(NonNull::new_unchecked(&raw mut (*self.head.as_ptr()).version)) }
    }

    /// Whether a version is the head's own.
    #[inline]
    pub(super) fn is_inline(self, version: VersionAddress) -> bool {
        self.inline().address() == version
    }

    /// What the head's version has become.
    #[inline]
    pub(super) fn inline_status(self) -> Status {
        self.inline().status()
    }

    /// Frees the head's version, which was retired.
    ///
    /// # Safety
    /// Nobody can hold it any more.
    pub(super) unsafe fn free_inline(self) {
        debug_assert_eq!(self.inline_status(), Status::Retired, "only its collector changes a retired version");
        // SAFETY: as promised.
        unsafe { self.inline().end(Status::Unused) };
    }

    /// Claims the head's version; it is the caller's alone then (§3.3).
    ///
    /// # Safety
    /// The head has room for the row.
    #[inline]
    pub(super) unsafe fn claim_version(self, reader: Reader<'g>, row: &[u64]) -> Option<NewVersion<'g>> {
        let status = &self.head().version.status;
        if status.load(Ordering::Relaxed) != Status::Unused as u8 {
            return None;
        }
        let (unused, pending) = (Status::Unused as u8, Status::Pending as u8);
        // Acquire: pairs with the release in `end` of whoever freed it, who knew that nobody reads it any more.
        let claimed = status.compare_exchange(unused, pending, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // SAFETY: it was claimed just now, and the caller promises the room.
        claimed.then(|| unsafe { NewVersion::write(self.inline(), reader, row, true) })
    }

    /// Gives a record that nobody else knows its first version.
    pub(super) fn install_first(self, version: NewVersion<'g>) -> Version<'g> {
        let first = version.version();
        let installed = list::install(&self.head().latest, None, version);
        debug_assert!(installed.is_ok(), "nobody else knows the record");
        first
    }

    /// Makes a record that was closed ready for another key.
    ///
    /// # Safety
    /// Nobody can find or hold the record or a version of it.
    pub(super) unsafe fn reset(self) {
        let head = self.head();
        head.latest.store(ptr::null_mut(), Ordering::Relaxed);
        head.version.marks.reset();
        // SAFETY: as promised.
        unsafe { self.inline().end(Status::Unused) };
    }

    /// Frees all versions that lie outside of the head.
    ///
    /// # Safety
    /// Nobody uses the record or a version of it, now or later.
    pub(super) unsafe fn free_versions(self, guard: &Guard<'_>) {
        let mut link = list::follow(&self.head().latest);
        while let Link::To(version) = link {
            link = list::follow(version.next());
            if !self.is_inline(version.address()) {
                // SAFETY: the version is in the list of a record that nobody uses.
                unsafe { version.free(guard) };
            }
        }
    }
}
