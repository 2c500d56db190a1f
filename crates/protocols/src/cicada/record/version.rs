//! Versions: who may do what with one at which time of its life is said by types. A [`NewVersion`] is its writer's alone; a [`Version`] can be found.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use polychron_memory::{Guard, OutOfMemory};
use polychron_schema::RowRef;
use polychron_sync::Backoff;
use polychron_sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::{MOST_LINES, Reader, VERSION_BYTES, VersionHeader};
use crate::cicada::marks::Marks;
use crate::cicada::timestamp::Timestamp;

/// What a version has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::cicada) enum Status {
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
    /// Not there any more: a head's version that was unlinked, but may still be looked at.
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

    /// Whether the version counts: it is a row or the deletion of one.
    #[inline]
    pub(in crate::cicada) const fn counts(self) -> bool {
        matches!(self, Self::Committed | Self::Deleted)
    }
}

/// A version that can be found, whose memory stays for `'g`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cicada) struct Version<'g> {
    header: NonNull<VersionHeader>,
    guard: PhantomData<&'g ()>,
}

/// Where a version lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cicada) struct VersionAddress(pub(super) NonNull<VersionHeader>);

// SAFETY: it is an address; what lies there is shared through atomics, and rows behind a link do not change.
unsafe impl Send for VersionAddress {}

impl VersionAddress {
    /// The version there.
    ///
    /// # Safety
    /// It was found, and its memory stays for as long as `holder` is borrowed: the guard under which it was, or the latch of its record.
    #[inline]
    pub(in crate::cicada) unsafe fn under<K>(self, _holder: &K) -> Version<'_> {
        Version { header: self.0, guard: PhantomData }
    }
}

impl<'g> Version<'g> {
    /// The version at an address.
    ///
    /// # Safety
    /// There is one, and it stays for `'g`.
    #[inline]
    pub(super) unsafe fn at(header: NonNull<VersionHeader>) -> Self {
        Self { header, guard: PhantomData }
    }

    /// Where it lies.
    #[inline]
    pub(in crate::cicada) fn address(self) -> VersionAddress {
        VersionAddress(self.header)
    }

    #[inline]
    fn header(self) -> &'g VersionHeader {
        // SAFETY: whoever made this value has seen to it that the memory stays for `'g`.
        unsafe { self.header.as_ref() }
    }

    #[inline]
    pub(in crate::cicada) fn words(self) -> usize {
        self.header().words.load(Ordering::Relaxed) as usize
    }

    /// Bytes of its memory; not for the version of a head.
    #[inline]
    fn bytes(self) -> usize {
        VERSION_BYTES + 8 * self.words()
    }

    /// Brings a row that lies outside of its head into the caches, its first line aside, which is being read.
    #[inline]
    pub(in crate::cicada) fn prefetch_row(self) {
        let start = self.header.as_ptr().cast::<u8>().cast_const();
        for offset in (64..self.bytes().min(64 * MOST_LINES)).step_by(64) {
            polychron_sync::prefetch_read(start.wrapping_add(offset));
        }
    }

    /// Brings the first lines of a version that lies outside of its head into the caches.
    #[inline]
    pub(super) fn prefetch(self, lines: usize) {
        let start = self.header.as_ptr().cast::<u8>().cast_const();
        for line in 0..lines {
            polychron_sync::prefetch_read(start.wrapping_add(64 * line));
        }
    }

    #[inline]
    fn row_start(self) -> *mut u64 {
        // The row begins where the header ends, in the same block.
        self.header.as_ptr().wrapping_add(1).cast()
    }

    /// The row.
    #[inline]
    pub(in crate::cicada) fn row(self) -> RowRef<'g> {
        // SAFETY: rows do not change once their version can be found, and the memory stays for `'g`.
        RowRef::from_words(unsafe { std::slice::from_raw_parts(self.row_start(), self.words()) })
    }

    #[inline]
    pub(in crate::cicada) fn wts(self) -> Timestamp {
        Timestamp(self.header().wts.load(Ordering::Relaxed))
    }

    #[inline]
    pub(in crate::cicada) fn rts(self) -> Timestamp {
        // SeqCst: a writer's look behind its installation (`commit.rs`).
        Timestamp(self.header().rts.load(Ordering::SeqCst))
    }

    /// Makes sure that the read timestamp is not before `timestamp` (§3.4): most often it is later already.
    #[inline]
    pub(in crate::cicada) fn raise_rts(self, timestamp: Timestamp) {
        raise(&self.header().rts, timestamp);
    }

    #[inline]
    pub(in crate::cicada) fn status(self) -> Status {
        // Acquire: pairs with the release in `end`.
        Status::from(self.header().status.load(Ordering::Acquire))
    }

    /// Waits until the version is not pending any more.
    #[inline]
    pub(in crate::cicada) fn ended(self) -> Status {
        let mut backoff = Backoff::new();
        loop {
            let status = self.status();
            if status != Status::Pending {
                return status;
            }
            backoff.wait();
        }
    }

    /// Says what the version has become.
    ///
    /// # Safety
    /// The version is pending, and the caller's; or it is unlinked, and nobody can hold it any more if it becomes unused.
    #[inline]
    pub(in crate::cicada) unsafe fn end(self, status: Status) {
        // Release: pairs with the acquire in `status` and in `claim_version`.
        self.header().status.store(status as u8, Ordering::Release);
    }

    /// The link behind this version.
    #[inline]
    pub(super) fn next(self) -> &'g AtomicPtr<VersionHeader> {
        &self.header().next
    }

    /// Whether there is a version behind this one.
    #[inline]
    pub(in crate::cicada) fn has_older(self) -> bool {
        // SeqCst: as in `list::follow`.
        !self.next().load(Ordering::SeqCst).is_null()
    }

    /// Gives its memory back at once.
    ///
    /// # Safety
    /// It lies outside of its head, and nobody can hold or find it.
    #[inline]
    pub(super) unsafe fn free(self, guard: &Guard<'_>) {
        // SAFETY: it was allocated with this size (`NewVersion::allocate`), and the caller promises the rest.
        unsafe { guard.free(self.header.cast(), self.bytes()) };
    }

    /// Gives its memory back when no guard is left that could hold it.
    ///
    /// # Safety
    /// It lies outside of its head, nobody who pins from now on finds it, and no transaction keeps it beyond its guard.
    #[inline]
    pub(super) unsafe fn retire(self, guard: &Guard<'_>) {
        // SAFETY: as in `free`.
        unsafe { guard.retire(self.header.cast(), self.bytes()) };
    }
}

/// A version that is its writer's alone: it was allocated, or claimed in a head, and is in no list yet. Its row is written.
#[derive(Debug)]
pub(in crate::cicada) struct NewVersion<'g> {
    version: Version<'g>,
    is_inline: bool,
}

impl<'g> NewVersion<'g> {
    /// A version outside of its head.
    #[inline]
    pub(in crate::cicada) fn allocate(
        reader: Reader<'g>,
        row: &[u64],
        guard: &'g Guard<'_>,
    ) -> Result<Self, OutOfMemory> {
        let version = guard.allocate(VERSION_BYTES + 8 * row.len())?.cast::<VersionHeader>();
        let header = VersionHeader {
            wts: AtomicU64::new(0),
            rts: AtomicU64::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            words: AtomicU32::new(0),
            status: AtomicU8::new(Status::Pending as u8),
            marks: Marks::default(),
        };
        // SAFETY: the block has room for the header and the row, is aligned to 16, and nobody else's.
        unsafe {
            version.write(header);
            Ok(Self::write(Version::at(version), reader, row, false))
        }
    }

    /// Writes the version.
    ///
    /// # Safety
    /// The version is the caller's alone, and has room for the row.
    #[inline]
    pub(super) unsafe fn write(version: Version<'g>, reader: Reader<'g>, row: &[u64], is_inline: bool) -> Self {
        let (header, timestamp) = (version.header(), reader.timestamp());
        header.wts.store(timestamp.0, Ordering::Relaxed);
        header.rts.store(timestamp.0, Ordering::Relaxed);
        header.words.store(row.len() as u32, Ordering::Relaxed);
        // SAFETY: as promised.
        unsafe { version.row_start().copy_from_nonoverlapping(row.as_ptr(), row.len()) };
        Self { version, is_inline }
    }

    /// The version as it will be found.
    #[inline]
    pub(super) fn version(&self) -> Version<'g> {
        self.version
    }

    /// Gives it back: nobody has seen it.
    pub(in crate::cicada) fn discard(self, guard: &Guard<'_>) {
        // SAFETY: this value had it alone, and it is in no list.
        unsafe {
            if self.is_inline {
                self.version.end(Status::Unused);
            } else {
                self.version.free(guard);
            }
        }
    }
}

/// Raises a shared timestamp to at least `timestamp`; writes only when it must.
#[inline]
pub(in crate::cicada) fn raise(word: &AtomicU64, timestamp: Timestamp) {
    // SeqCst, the load too: who finds it late enough relies on the store of whoever raised it, before its own next looks.
    let mut seen = word.load(Ordering::SeqCst);
    while Timestamp(seen).is_before(timestamp) {
        match word.compare_exchange_weak(seen, timestamp.0, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}
