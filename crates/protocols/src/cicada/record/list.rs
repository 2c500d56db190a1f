//! Lists of versions, for those who read and write them.

use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::ptr::{self, NonNull};

use polychron_engine::mutations::left_out;
use polychron_memory::Guard;
use polychron_sync::atomic::{AtomicPtr, Ordering};

use super::{CLOSED, Guarded, Installed, NewVersion, Record, SEALED, Status, Version, VersionAddress, VersionHeader};
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
    /// Nothing: the record is closed.
    Closed,
}

/// Follows a link.
///
/// # Safety
/// What it leads to stays for `'g`: it is the link before a version that the caller may see at a timestamp that is held for as long, or the caller
/// has the record's latch.
#[inline]
pub(super) unsafe fn follow<'g>(link: &'g AtomicPtr<VersionHeader>) -> Link<'g> {
    // SeqCst: acquires what the installer wrote; and in validation it comes behind the raised read timestamps in the one
    // order of all (`commit.rs`). On x86-64 it is a load like any other.
    let raw = link.load(Ordering::SeqCst);
    if raw == CLOSED {
        return Link::Closed;
    }
    match NonNull::new(raw.map_addr(|address| address & !SEALED)) {
        None => Link::End,
        Some(start) => Link::To(Guarded { address: VersionAddress::at(start.cast()), holder: PhantomData }),
    }
}

/// Gives back the versions from a link on, up to `limit` of them: at once, or when no guard is left that could hold one. The head's own is unused
/// then if that is at once, and stays as it is otherwise. Answers how many, and the first of the others.
///
/// # Safety
/// No thread finds them from now on, or comes to hold one; nor does any hold one if they are freed at once.
#[inline(always)]
pub(super) unsafe fn give_back<'g>(
    record: Record<'_>,
    mut link: Link<'g>,
    limit: u64,
    guard: &Guard<'_>,
    at_once: bool,
) -> (u64, Option<Version<'g>>) {
    let mut freed = 0;
    while let Link::To(version) = link {
        if freed == limit {
            return (freed, Some(version));
        }
        freed += 1;
        let (memory, bytes) = version.memory();
        // SAFETY: versions outside of their heads were allocated with this size, and the caller promises the rest.
        unsafe {
            link = follow(version.next());
            match (record.is_inline(version.address()), at_once) {
                // Release: pairs with the acquire in `Record::claim`.
                (true, true) => version.words_of().status.store(Status::Unused as u8, Ordering::Release),
                (true, false) => {}
                (false, true) => guard.free(memory, bytes),
                (false, false) => guard.retire(memory, bytes),
            }
        }
    }
    (freed, None)
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
    /// A reader has found it.
    pub(super) found: (),
}

impl<V> Seen<V> {
    /// Nothing at all.
    pub(in crate::cicada) const NOTHING: Self =
        Self { version: None, is_row: false, later: None, closed: false, found: () };

    /// The same with other names for the versions.
    #[inline]
    pub(in crate::cicada) fn map<W>(self, name: impl Fn(V) -> W) -> Seen<W> {
        let Self { version, is_row, later, closed, found } = self;
        Seen { version: version.map(&name), is_row, later: later.map(&name), closed, found }
    }
}

impl<'g> Reader<'g> {
    /// Reads what is held.
    #[inline]
    pub(in crate::cicada) fn at(held: &'g Held<'_>, _guard: &'g Guard<'_>) -> Self {
        Self { timestamp: held.timestamp(), guard: PhantomData }
    }

    /// # Safety
    /// While the guard is held no version is freed that is visible at the timestamp, and none that is later.
    #[cfg(test)]
    pub(in crate::cicada) unsafe fn at_timestamp(_guard: &'g Guard<'_>, timestamp: Timestamp) -> Self {
        Self { timestamp, guard: PhantomData }
    }

    #[inline]
    pub(in crate::cicada) fn timestamp(self) -> Timestamp {
        self.timestamp
    }

    /// The latest version of a record.
    #[inline]
    pub(in crate::cicada) fn latest(self, record: Record<'g>) -> Link<'g> {
        Walk { link: &record.words_of().latest, reader: self }.follow()
    }

    /// The row of a record, if its latest version is that, and visible.
    #[inline]
    pub(in crate::cicada) fn latest_row(self, record: Record<'g>) -> Option<Seen<Version<'g>>> {
        let Link::To(version) = self.latest(record) else { return None };
        if version.wts().is_after(self.timestamp) || version.status() != Status::Committed {
            return None;
        }
        Some(Seen { version: Some(version), is_row: true, ..Seen::NOTHING })
    }

    /// The versions of a record, from the latest one to the one that is visible to this reader, pending and aborted ones included.
    #[inline]
    pub(in crate::cicada) fn versions(self, record: Record<'g>) -> impl Iterator<Item = Version<'g>> {
        let (mut walk, mut seen) = (Walk { link: &record.words_of().latest, reader: self }, None);
        std::iter::from_fn(move || {
            if let Some(version) = seen {
                walk = walk.behind(version)?;
            }
            seen = if let Link::To(version) = walk.follow() { Some(version) } else { None };
            seen
        })
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
        let mut walk = Walk { link: start.map_or_else(|| &record.words_of().latest, Version::next), reader: self };
        loop {
            let version = match walk.follow() {
                Link::To(version) => version,
                Link::End => return seen,
                Link::Closed => return Seen { closed: true, ..seen },
            };
            let wts = version.wts();
            // What lies behind a visible version is not followed: the search ends there.
            walk.link = version.next();
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

    /// Finds where a version of this timestamp belongs in a list; `None`: the record is closed. Each later version is shown to `look`, which may end
    /// the search.
    #[inline]
    pub(in crate::cicada) fn position<B>(
        self,
        record: Record<'g>,
        mut look: impl FnMut(Version<'g>) -> ControlFlow<B>,
    ) -> ControlFlow<B, Option<Position<'g>>> {
        let mut walk = Walk { link: &record.words_of().latest, reader: self };
        loop {
            let below = match walk.follow() {
                Link::To(version) if version.wts().is_after(self.timestamp) && !left_out(Step::InstallInOrder) => {
                    look(version)?;
                    walk.link = version.next();
                    continue;
                }
                Link::To(version) => Some(version),
                Link::End => None,
                Link::Closed => return ControlFlow::Continue(None),
            };
            return ControlFlow::Continue(Some(Position { record, timestamp: self.timestamp, link: walk.link, below }));
        }
    }

    /// The place right above a version of a record, if that is the latest one and not later than this reader.
    #[inline]
    pub(in crate::cicada) fn position_above(self, record: Record<'g>, below: Version<'g>) -> Option<Position<'g>> {
        let link = &record.words_of().latest;
        let fits = !below.wts().is_after(self.timestamp) && record.leads_to(below.address());
        fits.then_some(Position { record, timestamp: self.timestamp, link, below: Some(below) })
    }
}

/// A link at or above the version that is visible to a reader.
#[derive(Clone, Copy, Debug)]
struct Walk<'g> {
    link: &'g AtomicPtr<VersionHeader>,
    reader: Reader<'g>,
}

impl<'g> Walk<'g> {
    /// What the link leads to.
    #[inline]
    fn follow(self) -> Link<'g> {
        // SAFETY: it leads to a version that the reader may see. For as long as its timestamp is held, which is `'g`, that stays.
        unsafe { follow(self.link) }
    }

    /// The link behind a version to which this one has led; none behind the visible one, where versions may be gone.
    #[inline]
    fn behind(self, version: Version<'g>) -> Option<Self> {
        let goes_on = version.wts().is_after(self.reader.timestamp) || !version.status().counts();
        goes_on.then(|| Self { link: version.next(), ..self })
    }
}

/// Where a version of some timestamp belongs in the list of a record: all versions above are later, and what is below is not.
#[derive(Clone, Copy, Debug)]
pub(in crate::cicada) struct Position<'g> {
    record: Record<'g>,
    timestamp: Timestamp,
    link: &'g AtomicPtr<VersionHeader>,
    below: Option<Version<'g>>,
}

impl<'g> Position<'g> {
    /// The version below.
    #[inline]
    pub(in crate::cicada) fn below(&self) -> Option<Version<'g>> {
        self.below
    }

    /// Puts a version here, if nothing has changed meanwhile.
    #[inline]
    pub(in crate::cicada) fn install(self, new: NewVersion<'g>) -> Result<Installed<'g>, NewVersion<'g>> {
        assert!(new.record == self.record && new.version.wts() == self.timestamp, "it belongs here");
        let installed = exchange(self.link, self.below, new)?;
        if left_out(Step::InstallPending) {
            installed.version.words_of().status.store(Status::Committed as u8, Ordering::Release);
        }
        Ok(installed)
    }
}

/// Puts a version before what the link leads to, if that is still `old`.
#[inline]
fn exchange<'g>(
    link: &AtomicPtr<VersionHeader>,
    old: Option<Version<'g>>,
    new: NewVersion<'g>,
) -> Result<Installed<'g>, NewVersion<'g>> {
    let raw = |version: Version<'_>| version.address().start().as_ptr().cast::<VersionHeader>();
    let (old, version) = (old.map_or(ptr::null_mut(), raw), new.version);
    // Relaxed: the version is installed by the exchange below, which releases it.
    version.next().store(old, Ordering::Relaxed);
    // SeqCst: releases the version; and comes before the load of read timestamps in the one order of all.
    match link.compare_exchange(old, raw(version), Ordering::SeqCst, Ordering::Relaxed) {
        Ok(_) => Ok(Installed { version }),
        Err(_) => Err(new),
    }
}

impl<'g> NewVersion<'g> {
    /// Installs the first version of a record that no other thread knows.
    ///
    /// # Panics
    /// If the record has a version.
    pub(in crate::cicada) fn install_first(self) -> Installed<'g> {
        let latest = &self.record.words_of().latest;
        exchange(latest, None, self).expect("no other thread knows the record, so nothing was installed before")
    }
}
