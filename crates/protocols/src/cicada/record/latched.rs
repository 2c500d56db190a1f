//! Lists of versions, for those who collect them: they have the record's latch, and no other thread frees any of it meanwhile.
//!
//! What may be freed, unlinked and closed is checked here: against a horizon, or against all timestamps that are held. Both stay true once they were
//! true (`clocks.rs`).

use std::ptr;

use polychron_engine::mutations::left_out;
use polychron_memory::Guard;
use polychron_sync::atomic::{AtomicPtr, Ordering};

use super::list::{Link, follow, give_back};
use super::{CLOSED, Record, RecordAddress, SEALED, Status, Version, VersionHeader};
use crate::cicada::clocks::{HeldSpans, Horizon};
use crate::cicada::steps::Step;
use crate::cicada::timestamp::Timestamp;

/// A record whose collection latch is held; given back when this is dropped.
#[derive(Debug)]
pub(in crate::cicada) struct Latched<'g>(Record<'g>);

/// A link in the list of a latched record. There is one at a time, and it goes down: what it has led to is above what it frees.
#[derive(Debug)]
pub(in crate::cicada) struct Cursor<'l> {
    record: Record<'l>,
    link: &'l AtomicPtr<VersionHeader>,
    /// What it led to last, and what that was then.
    seen: Option<(Version<'l>, Status)>,
    /// The timestamp of the version above the link, of those that count: the one that has superseded what is below.
    successor: Option<Timestamp>,
}

/// Where a version lies that was unlinked.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(in crate::cicada) enum Unlinked {
    /// In the head of this record, where it is retired: it is to be freed when no guard is left that could hold it.
    Inline(RecordAddress),
    /// Elsewhere; it was retired.
    Outside,
    /// The link has changed, and nothing was done.
    Not,
}

/// That a latched record has been deleted by this version, and is seen as it was before at no timestamp that is held, now or later.
#[derive(Clone, Copy, Debug)]
pub(in crate::cicada) struct Unseen<'l>(Version<'l>);

/// A record that was closed just now, with its versions. It is removed from its index before it is freed.
#[derive(Debug)]
#[must_use]
pub(in crate::cicada) struct Closed<'l> {
    record: Record<'l>,
    latest: Option<Version<'l>>,
}

impl<'g> Record<'g> {
    /// Takes the collection latch if it is free.
    #[inline]
    pub(in crate::cicada) fn try_latch(self) -> Option<Latched<'g>> {
        // Not `then_some`: a value that is not wanted would be dropped, and release a latch that another thread has.
        if self.marks().try_latch() { Some(Latched(self)) } else { None }
    }

    /// Waits for the latch. Its holder waits for nobody.
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
        self.top().link()
    }

    /// The list from the latest version on.
    #[inline]
    pub(in crate::cicada) fn cursor(&mut self) -> Cursor<'_> {
        self.top()
    }

    #[inline]
    fn top(&self) -> Cursor<'_> {
        Cursor { record: self.0, link: &self.0.words_of().latest, seen: None, successor: None }
    }

    /// The list from the latest version on that everybody sees, and how many lie above.
    pub(in crate::cicada) fn bottom(&mut self, horizon: Horizon) -> Option<(Cursor<'_>, u64)> {
        let (mut cursor, mut above) = (self.cursor(), 0);
        while let Link::To(_) = cursor.link() {
            if cursor.is_bottom(horizon) {
                return Some((cursor, above));
            }
            above += 1;
            cursor.pass();
        }
        None
    }

    /// Closes a record whose latest version is a deletion that everybody sees, or that has none.
    pub(in crate::cicada) fn close(&self, horizon: Horizon) -> Option<Closed<'_>> {
        let mut top = self.top();
        match top.link() {
            Link::To(latest) => {
                let is_deleted = top.status() == Some(Status::Deleted) || left_out(Step::CloseOnlyDeleted);
                if is_deleted && top.is_bottom(horizon) { self.close_above(Some(latest)) } else { None }
            }
            Link::End => self.close_above(None),
            Link::Closed => None,
        }
    }

    /// Whether the record has been deleted, and is seen as it was before at no timestamp that is held. Counts the versions that it looks at.
    pub(in crate::cicada) fn unseen(&self, spans: &HeldSpans<'_>, steps: &mut u64) -> Option<Unseen<'_>> {
        let mut cursor = self.top();
        let Link::To(last) = cursor.link() else { return None };
        if last.status() != Status::Deleted || last.wts().is_after(spans.stable()) {
            return None;
        }
        cursor.pass();
        let mut successor = last.wts();
        while let Link::To(version) = cursor.link() {
            *steps += 1;
            cursor.pass();
            match version.status() {
                Status::Committed if spans.sees(version.wts(), successor) && !left_out(Step::KeepRows) => return None,
                Status::Committed | Status::Deleted => successor = version.wts(),
                _ => {}
            }
        }
        Some(Unseen(last))
    }

    /// Closes a record that was deleted, and is seen as it was before at no timestamp that is held.
    pub(in crate::cicada) fn close_unseen<'l>(&'l self, unseen: Unseen<'l>) -> Option<Closed<'l>> {
        self.close_above(Some(unseen.0))
    }

    /// Closes a record all of whose versions were aborted.
    pub(in crate::cicada) fn close_aborted(&self) -> Option<Closed<'_>> {
        let mut cursor = self.top();
        let Link::To(latest) = cursor.link() else { return None };
        while let Link::To(version) = cursor.link() {
            if version.status() != Status::Aborted {
                return None;
            }
            cursor.pass();
        }
        self.close_above(Some(latest))
    }

    /// Closes the record, if its latest version is still this one.
    fn close_above<'l>(&'l self, latest: Option<Version<'l>>) -> Option<Closed<'l>> {
        let raw = latest.map_or(ptr::null_mut(), raw);
        let link = &self.0.words_of().latest;
        // AcqRel: nobody reads anything behind the mark; the order is that of the list's other changes.
        let exchange = |latest| link.compare_exchange(latest, CLOSED, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let closed = left_out(Step::CloseRecords)
            || exchange(raw)
            || !raw.is_null() && exchange(raw.map_addr(|address| address | SEALED));
        closed.then_some(Closed { record: self.0, latest })
    }

    /// Lets nothing more be installed above the latest version, if that is still this one. Readers see the list as before.
    pub(in crate::cicada) fn seal(&self, latest: Version<'_>) -> bool {
        let latest = raw(latest);
        let sealed = latest.map_addr(|address| address | SEALED);
        // AcqRel: as in `close_above`.
        self.0.words_of().latest.compare_exchange(latest, sealed, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

fn raw(version: Version<'_>) -> *mut VersionHeader {
    version.address().start().as_ptr().cast()
}

impl<'l> Cursor<'l> {
    /// What the link leads to.
    #[inline]
    pub(in crate::cicada) fn link(&mut self) -> Link<'l> {
        // SAFETY: the record's latch is held for `'l`.
        let link = unsafe { follow(self.link) };
        self.seen = if let Link::To(version) = link { Some((version, version.status())) } else { None };
        link
    }

    /// What the version was to which the link has led, when it did.
    #[inline]
    pub(in crate::cicada) fn status(&self) -> Option<Status> {
        self.seen.map(|(_, status)| status)
    }

    /// The timestamp of the stable version that has superseded the one to which the link has led.
    #[inline]
    pub(in crate::cicada) fn successor(&self, spans: &HeldSpans<'_>) -> Option<Timestamp> {
        self.successor.filter(|successor| !successor.is_after(spans.stable()) || left_out(Step::KeepUnsettled))
    }

    /// Goes on behind the version to which the link has led.
    #[inline]
    pub(in crate::cicada) fn pass(&mut self) {
        if let Some((version, status)) = self.seen.take() {
            self.link = version.next();
            self.supersede(version, status);
        }
    }

    #[inline]
    fn supersede(&mut self, version: Version<'l>, status: Status) {
        if status.counts() {
            self.successor = Some(version.wts());
        }
    }

    /// Whether the version to which the link has led is a row or a deletion that no horizon lies before: all transactions that run or
    /// come see the latest such one, and no reader goes to what lies below.
    #[inline]
    pub(in crate::cicada) fn is_bottom(&self, horizon: Horizon) -> bool {
        let is_past = |wts: Timestamp| !wts.is_after(horizon.timestamp()) || left_out(Step::CollectSuperseded);
        self.seen.is_some_and(|(version, status)| status.counts() && is_past(version.wts()))
    }

    /// Frees versions below the one to which the link has led, up to `limit` of them, if that is a bottom version. Answers how many, and whether
    /// these were all.
    #[inline]
    pub(in crate::cicada) fn free_below(self, horizon: Horizon, limit: u64, guard: &Guard<'_>) -> (u64, bool) {
        let Some((version, _)) = self.seen.filter(|_| self.is_bottom(horizon)) else { return (0, true) };
        let below = version.next();
        // SAFETY: the record is latched, and no other cursor is there. All transactions that run began when this version had ended, and stop here.
        let (freed, rest) = unsafe {
            let cut_off = follow(below);
            // Relaxed, and no exchange: a thread that installs does so above this version, so only the latch's holder changes the link, and no other thread
            // follows it.
            below.store(ptr::null_mut(), Ordering::Relaxed);
            give_back(self.record, cut_off, limit, guard, true)
        };
        if let Some(rest) = rest {
            below.store(raw(rest), Ordering::Relaxed);
        }
        (freed, rest.is_none())
    }

    /// Unlinks the version to which the link has led, if it was aborted: no transaction keeps it beyond its guard.
    pub(in crate::cicada) fn unlink_aborted(&mut self, guard: &Guard<'_>) -> Unlinked {
        match self.seen {
            Some((version, Status::Aborted)) => self.unlink(version, Status::Aborted, guard),
            _ => Unlinked::Not,
        }
    }

    /// The same if it was aborted, or if it is seen at no timestamp that is held, now or later; `None` if it is seen.
    pub(in crate::cicada) fn unlink_unseen(&mut self, spans: &HeldSpans<'_>, guard: &Guard<'_>) -> Option<Unlinked> {
        let (version, status) = self.seen?;
        let is_seen = status.counts()
            && match self.successor(spans) {
                None => !left_out(Step::KeepLatest),
                Some(successor) => spans.sees(version.wts(), successor) && !left_out(Step::KeepSeen),
            };
        let goes = status.counts() || status == Status::Aborted;
        (goes && !is_seen).then(|| self.unlink(version, status, guard))
    }

    /// Unlinks a version, if the link still leads to it; what lies behind follows.
    fn unlink(&mut self, version: Version<'l>, status: Status, guard: &Guard<'_>) -> Unlinked {
        let next = version.next().load(Ordering::Acquire);
        // AcqRel: passes on what was released with `next`.
        if self.link.compare_exchange(raw(version), next, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Unlinked::Not;
        }
        self.supersede(version, status);
        if self.record.is_inline(version.address()) {
            // Release: as in `Installed::end`.
            version.words_of().status.store(Status::Retired as u8, Ordering::Release);
            return Unlinked::Inline(self.record.address());
        }
        let (memory, bytes) = version.memory();
        // SAFETY: the version was allocated with this size. It was aborted, or is seen at no timestamp that is held, now or later, so only the guards of
        // those that have found it keep it; and a thread that pins from now on does not find it.
        unsafe { guard.retire(memory, bytes) };
        Unlinked::Outside
    }
}

impl<'l> Closed<'l> {
    /// The record.
    pub(in crate::cicada) fn record(&self) -> Record<'l> {
        self.record
    }

    /// Retires the versions that lie outside of the head. Answers where that lies: it is to be given back when no guard is left that could hold it.
    pub(in crate::cicada) fn retire(self, guard: &Guard<'_>) -> RecordAddress {
        let latest = self.latest.map_or(Link::End, Link::To);
        // SAFETY: the record is closed, so a thread that pins from now on does not find the versions. No transaction keeps one beyond its guard: see the callers that close.
        unsafe { give_back(self.record, latest, u64::MAX, guard, false) };
        self.record.address()
    }
}
