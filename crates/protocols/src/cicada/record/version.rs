//! Versions: their types say which thread may do what with one. A [`NewVersion`] is its writer's alone; an [`Installed`] one can be found,
//! and its writer ends it; a [`Version`] is anybody's to read.

use std::ptr::NonNull;

use polychron_memory::Guard;
use polychron_schema::RowRef;
use polychron_sync::Backoff;
use polychron_sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::{MOST_LINES, Record, VERSION_BYTES, Version, VersionAddress, VersionHeader, WORDS_BITS};
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
    /// A head's version that was unlinked, but may still be read.
    Retired,
}

impl Status {
    #[inline]
    pub(super) const fn from(byte: u8) -> Self {
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

impl<'g> Version<'g> {
    #[inline]
    pub(in crate::cicada) fn words(self) -> usize {
        (self.words_of().words.load(Ordering::Relaxed) & ((1 << WORDS_BITS) - 1)) as usize
    }

    /// Its memory, and how many bytes it has; not for the version of a head.
    #[inline]
    pub(super) fn memory(self) -> (NonNull<u8>, usize) {
        (self.address().start(), VERSION_BYTES + 8 * self.words())
    }

    /// Brings a row that lies outside of its head into the caches, its first line aside, which is being read.
    #[inline]
    pub(in crate::cicada) fn prefetch_row(self) {
        let (start, bytes) = self.memory();
        for offset in (64..bytes.min(64 * MOST_LINES)).step_by(64) {
            polychron_sync::prefetch_read(start.as_ptr().cast_const().wrapping_add(offset));
        }
    }

    /// The row.
    #[inline]
    pub(in crate::cicada) fn row(self) -> RowRef<'g> {
        // The row begins where the header ends, in the same block.
        let row = self.address().start().as_ptr().cast::<VersionHeader>().wrapping_add(1).cast::<u64>();
        // SAFETY: rows do not change once their version can be found, and the memory stays for `'g`.
        RowRef::from_words(unsafe { std::slice::from_raw_parts(row, self.words()) })
    }

    #[inline]
    pub(in crate::cicada) fn wts(self) -> Timestamp {
        Timestamp(self.words_of().wts.load(Ordering::Relaxed))
    }

    #[inline]
    pub(in crate::cicada) fn rts(self) -> Timestamp {
        // SeqCst: a writer reads it behind its installation (`commit.rs`).
        Timestamp(self.words_of().rts.load(Ordering::SeqCst))
    }

    /// Whether a transaction later than its writer has read it.
    #[inline]
    pub(in crate::cicada) fn was_read(self) -> bool {
        // Relaxed: a hint.
        self.words_of().rts.load(Ordering::Relaxed) != self.wts().0
    }

    /// Makes sure that the read timestamp is not before `timestamp` (§3.4): most often it is later already.
    #[inline]
    pub(in crate::cicada) fn raise_rts(self, timestamp: Timestamp) {
        raise(&self.words_of().rts, timestamp);
    }

    #[inline]
    pub(in crate::cicada) fn status(self) -> Status {
        // Acquire: pairs with the release in `Installed::end`.
        Status::from(self.words_of().status.load(Ordering::Acquire))
    }

    /// Waits until the version is no longer pending.
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

    /// The link behind this version.
    #[inline]
    pub(super) fn next(self) -> &'g AtomicPtr<VersionHeader> {
        &self.words_of().next
    }

    /// Whether this version is the next one.
    #[inline]
    pub(in crate::cicada) fn leads_to(self, version: VersionAddress) -> bool {
        // SeqCst: as in `list::follow`.
        self.next().load(Ordering::SeqCst).addr() as u64 == version.number()
    }

    /// Whether there is a version behind this one.
    #[inline]
    pub(in crate::cicada) fn has_older(self) -> bool {
        // SeqCst: as in `list::follow`.
        !self.next().load(Ordering::SeqCst).is_null()
    }
}

/// A version that is its writer's alone: it was allocated, or claimed in its record's head, and is in no list yet. Its row is written.
#[derive(Debug)]
pub(in crate::cicada) struct NewVersion<'g> {
    pub(super) record: Record<'g>,
    pub(super) version: Version<'g>,
}

impl NewVersion<'_> {
    /// Gives it back: no other thread has seen it.
    pub(in crate::cicada) fn discard(self, guard: &Guard<'_>) {
        if self.record.is_inline(self.version.address()) {
            // Release: pairs with the acquire in `Record::claim`.
            self.version.words_of().status.store(Status::Unused as u8, Ordering::Release);
        } else {
            let (memory, bytes) = self.version.memory();
            // SAFETY: it was allocated with this size, this value had it alone, and it is in no list.
            unsafe { guard.free(memory, bytes) };
        }
    }
}

/// A version that its writer has installed, and has not ended yet.
#[derive(Debug)]
pub(in crate::cicada) struct Installed<'g> {
    pub(super) version: Version<'g>,
}

/// Where such a version lies. There is one for each, as there is of the version.
#[derive(Debug)]
pub(in crate::cicada) struct InstalledAddress(VersionAddress);

impl<'g> Installed<'g> {
    /// The version.
    #[inline]
    pub(in crate::cicada) fn version(&self) -> Version<'g> {
        self.version
    }

    /// Makes it a row.
    #[inline]
    pub(in crate::cicada) fn commit(self) {
        self.end(Status::Committed);
    }

    /// Makes it a deletion.
    #[inline]
    pub(in crate::cicada) fn delete(self) {
        self.end(Status::Deleted);
    }

    /// Makes it count for nothing.
    #[inline]
    pub(in crate::cicada) fn abort(self) {
        self.end(Status::Aborted);
    }

    #[inline]
    fn end(self, status: Status) {
        // Release: pairs with the acquire in `status`.
        self.version.words_of().status.store(status as u8, Ordering::Release);
    }

    /// Keeps it beyond its guard's borrow.
    #[inline]
    pub(in crate::cicada) fn keep(self) -> InstalledAddress {
        InstalledAddress(self.version.address())
    }
}

impl InstalledAddress {
    /// Where it lies.
    #[inline]
    pub(in crate::cicada) fn address(&self) -> VersionAddress {
        self.0
    }

    /// The version again, which the transaction that has installed it has kept.
    #[inline]
    pub(in crate::cicada) fn of(self, version: Version<'_>) -> Installed<'_> {
        assert!(version.address() == self.0, "it is that version");
        Installed { version }
    }
}

/// Raises a shared timestamp to at least `timestamp`; writes only when it must.
#[inline]
pub(in crate::cicada) fn raise(word: &AtomicU64, timestamp: Timestamp) {
    // SeqCst, the load too: a thread that finds it late enough relies on the store of the one that raised it, before what it reads next.
    let mut seen = word.load(Ordering::SeqCst);
    while Timestamp(seen).is_before(timestamp) {
        match word.compare_exchange_weak(seen, timestamp.0, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}
