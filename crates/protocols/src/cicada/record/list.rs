//! Lists of versions, for those who read and write them.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use polychron_engine::mutations::left_out;
use polychron_memory::Guard;
use polychron_sync::atomic::{AtomicPtr, Ordering};

use super::{CLOSED, NewVersion, Record, RecordAddress, SEALED, Status, Version, VersionAddress, VersionHeader};
use crate::cicada::clocks::Held;
use crate::cicada::steps::Step;
use crate::cicada::timestamp::Timestamp;

/// What a link of a version list leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cicada) enum Link<'g> {
    /// A version.
    To(Version<'g>),
    /// Nothing: the list ends.
    End,
    /// Nothing any more: the record is closed.
    Closed,
}

/// Follows a link. What it leads to stays for `'g` if it is the link before a version that whoever follows it may see, or if they have the latch.
#[inline]
pub(super) fn follow<'g>(link: &'g AtomicPtr<VersionHeader>) -> Link<'g> {
    // SeqCst: acquires what the installer wrote; and in validation it comes behind the raised read timestamps in the one
    // order of all (`commit.rs`). On x86-64 it is a load like any other.
    let raw = link.load(Ordering::SeqCst);
    if raw == CLOSED {
        return Link::Closed;
    }
    match NonNull::new(raw.map_addr(|address| address & !SEALED)) {
        None => Link::End,
        // SAFETY: see above; the callers, all in these files, keep to it.
        Some(version) => Link::To(unsafe { Version::at(version) }),
    }
}

/// Puts a version before what the link leads to, if that is still `old`.
#[inline]
pub(super) fn install<'g>(
    link: &AtomicPtr<VersionHeader>,
    old: Option<VersionAddress>,
    new: NewVersion<'g>,
) -> Result<Version<'g>, NewVersion<'g>> {
    let old = old.map_or(ptr::null_mut(), |version| version.0.as_ptr());
    let version = new.version();
    // Relaxed: the version is installed by the exchange below, which releases it.
    version.next().store(old, Ordering::Relaxed);
    // SeqCst: releases the version; and comes before the load of read timestamps in the one order of all.
    match link.compare_exchange(old, version.address().0.as_ptr(), Ordering::SeqCst, Ordering::Relaxed) {
        Ok(_) => Ok(version),
        Err(_) => Err(new),
    }
}

/// A timestamp at which somebody reads and writes, under a guard. While it is held, no version is freed that is visible at it, and none that is later.
#[derive(Clone, Copy, Debug)]
pub(in crate::cicada) struct Reader<'g> {
    timestamp: Timestamp,
    guard: PhantomData<&'g ()>,
}

/// What a transaction sees of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cicada) struct Seen<V> {
    /// The visible version; it may be a deletion.
    pub(in crate::cicada) version: Option<V>,
    /// Whether that is a row.
    pub(in crate::cicada) is_row: bool,
    /// The earliest version later than the transaction. A version that changes what is visible lies behind it (§3.5).
    pub(in crate::cicada) later: Option<V>,
    /// Whether the record is closed: nothing to be seen, now or later.
    pub(in crate::cicada) closed: bool,
}

impl<V> Seen<V> {
    /// Nothing at all.
    pub(in crate::cicada) const NOTHING: Self = Self { version: None, is_row: false, later: None, closed: false };

    /// The same with other names for the versions.
    #[inline]
    pub(in crate::cicada) fn map<W>(self, name: impl Fn(V) -> W) -> Seen<W> {
        let Self { version, is_row, later, closed } = self;
        Seen { version: version.map(&name), is_row, later: later.map(&name), closed }
    }
}

impl<'g> Reader<'g> {
    /// # Safety
    /// While the guard is held no horizon passes the timestamp (`clocks.rs`).
    #[inline]
    pub(in crate::cicada) unsafe fn new(_guard: &'g Guard<'_>, timestamp: Timestamp) -> Self {
        Self { timestamp, guard: PhantomData }
    }

    /// Reads what is held.
    #[inline]
    pub(in crate::cicada) fn at(held: &'g Held<'_>, guard: &'g Guard<'_>) -> Self {
        // SAFETY: it is held until `held` is dropped, which is borrowed.
        unsafe { Self::new(guard, held.timestamp()) }
    }

    /// A record that was found by such a reader.
    ///
    /// # Safety
    /// The guard, or what the timestamp holds, keeps it.
    #[inline]
    pub(in crate::cicada) unsafe fn record(self, address: RecordAddress) -> Record<'g> {
        Record { head: address.0, guard: PhantomData }
    }

    /// A version that was seen by such a reader.
    ///
    /// # Safety
    /// The guard, or what the timestamp holds, keeps it.
    #[inline]
    pub(in crate::cicada) unsafe fn version(self, address: VersionAddress) -> Version<'g> {
        // SAFETY: as promised.
        unsafe { Version::at(address.0) }
    }

    #[inline]
    pub(in crate::cicada) fn timestamp(self) -> Timestamp {
        self.timestamp
    }

    /// The latest version of a record.
    #[inline]
    pub(in crate::cicada) fn latest(self, record: Record<'g>) -> Link<'g> {
        follow(&record.head().latest)
    }

    /// The list of a record, from the latest version on, as far as this reader may see it.
    #[inline]
    pub(in crate::cicada) fn walk(self, record: Record<'g>) -> Walk<'g> {
        Walk { link: &record.head().latest, reader: self }
    }

    /// Finds the version that is visible (§3.2). The search begins behind `later`, a version that is later than this reader, or its own.
    ///
    /// A pending version that would be visible is waited for, or passed over. The caller's own pending version, which has just that
    /// timestamp, is passed over in any case.
    #[inline]
    pub(in crate::cicada) fn search(
        self,
        record: Record<'g>,
        later: Option<Version<'g>>,
        wait: bool,
    ) -> Seen<Version<'g>> {
        let timestamp = self.timestamp;
        let mut seen = Seen { later, ..Seen::NOTHING };
        // What lies behind any other version may be gone.
        let start = later.filter(|later| later.wts().is_after(timestamp) || later.status() == Status::Pending);
        let mut link = start.map_or_else(|| &record.head().latest, Version::next);
        loop {
            let version = match follow(link) {
                Link::To(version) => version,
                Link::End => return seen,
                Link::Closed => return Seen { closed: true, ..seen },
            };
            let wts = version.wts();
            link = version.next();
            if wts.is_after(timestamp) {
                seen.later = Some(version);
                continue;
            }
            let mut status = version.status();
            if status == Status::Pending && wait && wts != timestamp {
                status = version.ended();
            }
            let counts = status.counts()
                || left_out(Step::PassOverAborted) && status == Status::Aborted
                || left_out(Step::PassOverOwn) && wts == timestamp;
            if counts {
                seen.version = Some(version);
                seen.is_row = status != Status::Deleted;
                return seen;
            }
        }
    }
}

/// A link in the list of a record, at or above the version that is visible to a reader.
#[derive(Clone, Copy, Debug)]
pub(in crate::cicada) struct Walk<'g> {
    link: &'g AtomicPtr<VersionHeader>,
    reader: Reader<'g>,
}

impl<'g> Walk<'g> {
    /// What the link leads to.
    #[inline]
    pub(in crate::cicada) fn link(&self) -> Link<'g> {
        follow(self.link)
    }

    /// Goes on behind a version to which the link has led. `false`: that is visible, and what lies behind may be gone.
    #[inline]
    pub(in crate::cicada) fn pass(&mut self, version: Version<'g>) -> bool {
        let goes_on = version.wts().is_after(self.reader.timestamp) || !version.status().counts();
        if goes_on {
            self.link = version.next();
        }
        goes_on
    }

    /// Puts a version here, before `old`, if that is still what the link leads to.
    #[inline]
    pub(in crate::cicada) fn install(
        self,
        old: Option<Version<'g>>,
        new: NewVersion<'g>,
    ) -> Result<Version<'g>, NewVersion<'g>> {
        install(self.link, old.map(Version::address), new)
    }
}
