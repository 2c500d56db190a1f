//! The read set: addresses of records and versions, which the transaction's guard keeps. All of them lie in one list, so that one look at the guard tells
//! for all whether it still does.

use polychron_base::room::KeptList;
use polychron_engine::stores::IndexRef;

use super::kept::{OwnGuard, Stay};
use super::record::{Record, RecordAddress, Seen, Version, VersionAddress};
use super::timestamp::Timestamp;

/// A record that was read.
#[derive(Clone, Copy, Debug)]
struct Read {
    record: RecordAddress,
    version: Option<VersionAddress>,
    later: Option<VersionAddress>,
    place: IndexRef,
    is_row: bool,
    is_node: bool,
}

impl Read {
    /// Under the guard that keeps the list, as the caller has found out.
    #[inline]
    fn under<'g>(&self, guard: &'g OwnGuard<'_>) -> Reading<'g> {
        let &Self { record, version, later, place, is_row, is_node } = self;
        // SAFETY: they were read under the guard, which keeps them until it is borrowed to leave its epoch, or to end the transaction; or they are
        // rows that the transaction has read, and their records (`forget_found`).
        let (record, version, later) = unsafe {
            let under = |version: VersionAddress| version.under(guard);
            (record.under(guard), version.map(under), later.map(under))
        };
        Reading { record, version, later, place, is_row, is_node }
    }
}

/// A record that was read, under the guard of the transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading<'g> {
    pub(super) record: Record<'g>,
    /// The version that was visible; `None` when there was none.
    pub(super) version: Option<Version<'g>>,
    /// Where a repeated search begins (§3.5).
    pub(super) later: Option<Version<'g>>,
    pub(super) place: IndexRef,
    /// Whether the version was a row, or a node.
    pub(super) is_row: bool,
    /// Whether the record is a node of a multi-version index.
    pub(super) is_node: bool,
}

impl Reading<'_> {
    /// Whether the version that was visible is the first one still where a repeated search begins, so that nothing can have come in between.
    #[inline]
    fn is_first(&self) -> bool {
        let Some(version) = self.version.map(Version::address) else { return false };
        self.later.map_or_else(|| self.record.leads_to(version), |later| later.leads_to(version))
    }
}

/// What a transaction has read.
#[derive(Debug)]
pub(super) struct Reads {
    list: Vec<Read>,
    /// The guard's stay in its epoch, which keeps all in the list, and the span, which keeps rows and their records. While there is no list they are
    /// nobody's.
    here: Stay,
    span: Stay,
    /// Reads before this position hold nothing that only an epoch keeps.
    bare: usize,
    /// Something was read that is not in the list.
    is_partial: bool,
}

impl Default for Reads {
    fn default() -> Self {
        Self { list: Vec::new(), here: Stay::NEVER, span: Stay::NEVER, bare: 0, is_partial: false }
    }
}

impl Reads {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Forgets the reads from `len` on.
    #[inline]
    pub(super) fn truncate(&mut self, len: usize) {
        self.list.truncate(len);
        self.is_partial = true;
    }

    /// Whether the guard keeps what is in the list.
    #[inline]
    fn is_kept_by(&self, guard: &OwnGuard<'_>) -> bool {
        self.here == guard.here()
    }

    /// The transaction of the guard has read a record.
    #[inline]
    pub(super) fn push<'g>(
        &mut self,
        guard: &'g OwnGuard<'_>,
        record: Record<'g>,
        seen: &Seen<Version<'g>>,
        (place, is_node): (IndexRef, bool),
    ) {
        if !self.is_kept_by(guard) {
            self.begin(guard);
        }
        let (version, later) = (seen.version.map(Version::address), seen.later.map(Version::address));
        self.list.push(Read { record: record.address(), version, later, place, is_row: seen.is_row, is_node });
    }

    /// The first read under this guard.
    #[cold]
    fn begin(&mut self, guard: &OwnGuard<'_>) {
        assert!(self.list.is_empty() && guard.is_here(), "a read set is one transaction's");
        (self.here, self.span) = (guard.here(), guard.open());
    }

    /// The reads from a position on, under the guard of the transaction.
    #[inline]
    pub(super) fn from<'g>(&self, first: usize, guard: &'g OwnGuard<'_>) -> impl Iterator<Item = Reading<'g>> {
        let list = &self.list[first..];
        assert!(list.is_empty() || self.is_kept_by(guard), "a read set is looked at under the guard that keeps it");
        list.iter().map(|read| read.under(guard))
    }

    /// All of them.
    #[inline]
    pub(super) fn iter<'g>(&self, guard: &'g OwnGuard<'_>) -> impl Iterator<Item = Reading<'g>> {
        self.from(0, guard)
    }

    /// One of them.
    #[inline]
    pub(super) fn get<'g>(&self, position: usize, guard: &'g OwnGuard<'_>) -> Reading<'g> {
        assert!(self.is_kept_by(guard), "a read set is looked at under the guard that keeps it");
        self.list[position].under(guard)
    }

    /// The first one, from a position on, of which it takes a search to find out whether it would be read again.
    #[inline]
    pub(super) fn first_doubtful(&self, from: usize, guard: &OwnGuard<'_>) -> Option<usize> {
        self.from(from, guard).position(|read| !read.is_first()).map(|passed| from + passed)
    }

    /// The indexes of the records.
    #[inline]
    pub(super) fn places(&self) -> impl Iterator<Item = IndexRef> {
        self.list.iter().map(|read| read.place)
    }

    /// The record that was read last.
    #[inline]
    pub(super) fn last_record(&self) -> Option<RecordAddress> {
        self.list.last().map(|read| read.record)
    }

    /// Notes where a repeated search of a read begins.
    #[inline]
    pub(super) fn set_later<'g>(&mut self, read: usize, later: Option<Version<'g>>, guard: &'g OwnGuard<'_>) {
        assert!(self.is_kept_by(guard), "what is kept with the others was found under their guard");
        self.list[read].later = later.map(Version::address);
        self.bare = self.bare.min(read);
    }

    /// Repeated searches begin at the heads.
    pub(super) fn clear_later(&mut self) {
        self.list.iter_mut().for_each(|read| read.later = None);
    }

    /// What was read are nodes of a multi-version index, or not.
    pub(super) fn set_nodes(&mut self, are_nodes: bool) {
        self.list.iter_mut().for_each(|read| read.is_node = are_nodes);
    }

    /// The guard has left the epoch in which everything so far was found: only versions of rows and their records are kept still. Answers how many reads
    /// were looked at.
    pub(super) fn forget_found(&mut self, guard: &OwnGuard<'_>) -> usize {
        if self.here == Stay::NEVER {
            return 0;
        }
        assert!(self.span == guard.open() && guard.is_here(), "the transaction still holds its floor");
        self.here = guard.here();
        let looked_at = self.list.len() - self.bare;
        let mut kept = self.bare;
        for position in self.bare..self.list.len() {
            let read = self.list[position];
            if read.is_row {
                self.list[kept] = Read { later: None, ..read };
                kept += 1;
            }
        }
        self.list.truncate(kept);
        self.is_partial |= self.list.len() < self.bare + looked_at;
        self.bare = self.list.len();
        looked_at
    }

    /// Forgets everything.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.list.forget();
        (self.bare, self.here, self.span, self.is_partial) = (0, Stay::NEVER, Stay::NEVER, false);
    }

    /// The timestamp of the newest version that was read; `None` if not all that was read are versions in this list.
    pub(super) fn newest(&self, guard: &OwnGuard<'_>) -> Option<Timestamp> {
        if self.is_partial {
            return None;
        }
        let mut newest = None;
        for read in self.iter(guard) {
            let wts = read.version.filter(|_| !read.is_node)?.wts();
            newest = newest.filter(|newest: &Timestamp| newest.is_after(wts)).or(Some(wts));
        }
        newest
    }

    /// Whether anything was read that showed no row.
    #[cfg(test)]
    pub(super) fn has_absent(&self) -> bool {
        self.list.iter().any(|read| !read.is_row)
    }

    /// Entries that there is room for.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.list.room()
    }
}
