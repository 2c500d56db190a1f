//! Lists of versions, for those who collect them: they have the record's latch, and nobody else frees any of it meanwhile.

use std::ptr;

use polychron_engine::mutations::left_out;
use polychron_memory::Guard;
use polychron_sync::atomic::{AtomicPtr, Ordering};

use super::list::{Link, follow};
use super::{CLOSED, Record, SEALED, Status, Version, VersionAddress, VersionHeader};
use crate::cicada::clocks::Horizon;
use crate::cicada::steps::Step;

/// A record whose collection latch is held; given back when this is dropped.
#[derive(Debug)]
pub(in crate::cicada) struct Latched<'g>(Record<'g>);

/// A link in the list of a latched record.
#[derive(Debug)]
pub(in crate::cicada) struct Cursor<'l> {
    record: Record<'l>,
    link: &'l AtomicPtr<VersionHeader>,
    /// What it led to last.
    seen: Option<Version<'l>>,
}

/// Where a version lies that was unlinked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cicada) enum Unlinked {
    /// In its head, where it is retired: it is to be freed when no guard is left that could hold it.
    Inline,
    /// Elsewhere; it was retired.
    Outside,
    /// The link has changed, and nothing was done.
    Not,
}

/// The latest version that everybody sees who runs or comes, in a latched record: nobody looks at what lies below.
#[derive(Clone, Copy, Debug)]
pub(in crate::cicada) struct Bottom<'l> {
    record: Record<'l>,
    version: Version<'l>,
}

/// A record that was closed just now, with its versions.
#[derive(Debug)]
#[must_use]
pub(in crate::cicada) struct Closed<'g> {
    record: Record<'g>,
    latest: Option<Version<'g>>,
}

impl<'g> Record<'g> {
    /// Takes the collection latch if it is free.
    #[inline]
    pub(in crate::cicada) fn try_latch(self) -> Option<Latched<'g>> {
        // Not `then_some`: a value that is not wanted would be dropped, and give back a latch that somebody else has.
        if self.marks().try_latch() { Some(Latched(self)) } else { None }
    }

    /// Waits for the latch. Whoever has it asks nobody.
    pub(in crate::cicada) fn latch(self) -> Latched<'g> {
        self.marks().latch();
        Latched(self)
    }
}

impl Drop for Latched<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.marks().unlatch();
    }
}

impl<'g> Latched<'g> {
    /// The record.
    #[inline]
    pub(in crate::cicada) fn record(&self) -> Record<'g> {
        self.0
    }

    /// The latest version.
    #[inline]
    pub(in crate::cicada) fn latest(&self) -> Link<'_> {
        follow(&self.0.head().latest)
    }

    /// The list from the latest version on.
    #[inline]
    pub(in crate::cicada) fn cursor(&self) -> Cursor<'_> {
        Cursor { record: self.0, link: &self.0.head().latest, seen: None }
    }

    /// Closes the record, if its latest version is still this one, or if it has none.
    ///
    /// # Safety
    /// The version is a deletion, or was aborted, and so were all since the latest row that a transaction may keep beyond its guard.
    pub(in crate::cicada) unsafe fn close<'l>(&'l self, latest: Option<Version<'l>>) -> Option<Closed<'l>> {
        let raw = latest.map_or(ptr::null_mut(), |version| version.address().0.as_ptr());
        // AcqRel: nobody reads anything behind the mark; the order is that of the list's other changes.
        let exchange = |latest| {
            let link = &self.0.head().latest;
            link.compare_exchange(latest, CLOSED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let closed = left_out(Step::CloseRecords)
            || exchange(raw)
            || !raw.is_null() && exchange(raw.map_addr(|address| address | SEALED));
        closed.then_some(Closed { record: self.0, latest })
    }

    /// Lets nothing be installed above the latest version any more, if that is still this one. Readers see the list as before.
    pub(in crate::cicada) fn seal(&self, latest: Version<'_>) -> bool {
        let latest = latest.address().0.as_ptr();
        let sealed = latest.map_addr(|address| address | SEALED);
        // AcqRel: as in `close`.
        self.0.head().latest.compare_exchange(latest, sealed, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

impl<'l> Cursor<'l> {
    /// What the link leads to.
    #[inline]
    pub(in crate::cicada) fn link(&mut self) -> Link<'l> {
        let link = follow(self.link);
        self.seen = if let Link::To(version) = link { Some(version) } else { None };
        link
    }

    /// Goes on behind the version to which the link has led.
    #[inline]
    pub(in crate::cicada) fn pass(&mut self) {
        if let Some(version) = self.seen.take() {
            self.link = version.next();
        }
    }

    /// The version to which the link has led, if it is a row or a deletion that no horizon lies before: the collector's is `min_rts`.
    #[inline]
    pub(in crate::cicada) fn bottom(&self, horizon: Horizon) -> Option<Bottom<'l>> {
        let version = self.seen?;
        let is_past = !version.wts().is_after(horizon.timestamp()) || left_out(Step::CollectSuperseded);
        let is_bottom = is_past && version.status().counts();
        is_bottom.then_some(Bottom { record: self.record, version })
    }

    /// Unlinks a version, if the link still leads to it; what lies behind follows.
    ///
    /// # Safety
    /// No transaction keeps the version beyond its guard, or comes to see it.
    pub(in crate::cicada) unsafe fn unlink(&mut self, version: Version<'l>, guard: &Guard<'_>) -> Unlinked {
        let next = version.next().load(Ordering::Acquire);
        let raw = version.address().0.as_ptr();
        // AcqRel: passes on what was released with `next`.
        if self.link.compare_exchange(raw, next, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Unlinked::Not;
        }
        // SAFETY: nobody who pins from now on finds it; the head's is freed when nobody can hold it.
        unsafe {
            if self.record.is_inline(version.address()) {
                version.end(Status::Retired);
                return Unlinked::Inline;
            }
            version.retire(guard);
        }
        Unlinked::Outside
    }
}

impl<'l> Bottom<'l> {
    /// The same version again, when some of what lies below is freed.
    ///
    /// # Safety
    /// It was the bottom version of this record, and nobody else has freed any of the record since.
    pub(in crate::cicada) unsafe fn again(latched: &'l Latched<'_>, version: VersionAddress) -> Self {
        // SAFETY: it is the latest version that everybody sees, which stays until a later one is the bottom version.
        Self { record: latched.0, version: unsafe { version.under(latched) } }
    }

    /// The version.
    #[inline]
    pub(in crate::cicada) fn version(&self) -> Version<'l> {
        self.version
    }

    /// Frees versions below, up to `limit` of them: all transactions that run began when this one had ended, and stop here. Answers how many,
    /// and whether these were all.
    pub(in crate::cicada) fn free_below(&self, limit: u64, guard: &Guard<'_>) -> (u64, bool) {
        let below = self.version.next();
        // Acquire: pairs with the installations of what is cut off. A link of its own, which nobody else follows.
        let rest = AtomicPtr::new(below.swap(ptr::null_mut(), Ordering::Acquire));
        let (mut link, mut freed) = (follow(&rest), 0);
        while let Link::To(version) = link {
            if freed == limit {
                // Relaxed: nobody has looked at the rest meanwhile, or will.
                below.store(version.address().0.as_ptr(), Ordering::Relaxed);
                return (freed, false);
            }
            freed += 1;
            link = follow(version.next());
            // SAFETY: nobody can hold it.
            unsafe {
                if self.record.is_inline(version.address()) {
                    version.end(Status::Unused);
                } else {
                    version.free(guard);
                }
            }
        }
        (freed, true)
    }
}

impl Closed<'_> {
    /// Retires the versions that lie outside of the head; the head is to be given back when no guard is left that could hold it.
    pub(in crate::cicada) fn retire(self, guard: &Guard<'_>) {
        let mut link = self.latest.map_or(Link::End, Link::To);
        while let Link::To(version) = link {
            link = follow(version.next());
            if !self.record.is_inline(version.address()) {
                // SAFETY: the record is closed, so nobody who pins from now on finds the version.
                unsafe { version.retire(guard) };
            }
        }
    }
}
