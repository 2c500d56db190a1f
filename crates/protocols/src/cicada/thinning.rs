//! A long reader holds back what it can see, and not all that came after it.
//!
//! Between the version that a reader sees and the latest one there may be thousands that nobody sees: readers who run look at their own
//! moments, whoever begins from now on looks at the horizon or later. When the oldest reader has fallen behind, records are
//! *thinned*: of the versions that are settled, the latest stays, and of those behind it the ones that are visible at a moment that
//! somebody holds. The others are taken out. Readers may stand on them, so their memory waits for the epochs.

use polychron_engine::mutations::left_out;
use polychron_engine::stores::{OwnedKey, Place};
use polychron_memory::Guard;

use super::reclaim::{Entry, Garbage, Reclaimer, Site, free_all};
use super::record::{Link, Record, Status, Version};
use super::steps::Step;
use super::table::Store;
use super::timestamp::Timestamp;

/// What thinning did to a record.
#[derive(Clone, Copy, Debug, Default)]
struct Thinned {
    taken_out: usize,
    kept: usize,
}

/// What came of forgetting a record.
enum Forgetting {
    /// It is forgotten, or an item that will come says that it may be.
    Done,
    Later,
    /// Somebody sees it.
    Not,
}

impl Reclaimer {
    /// Thins the records of up to `limit` queued items that only long readers hold back. `held` are the moments at which somebody
    /// reads.
    #[cold]
    pub(super) fn thin(&mut self, limit: usize, settled: Timestamp, held: &[Timestamp], site: &Site<'_>) {
        let mut again = Vec::new();
        for _ in 0..limit {
            let is_settled = |garbage: &mut Garbage| !garbage.wts.is_after(settled);
            let Some(garbage) = self.garbage.pop_front_if(is_settled) else { break };
            match self.forget(&garbage, settled, held, site) {
                Forgetting::Done => continue,
                Forgetting::Later => {
                    again.push(garbage);
                    continue;
                }
                Forgetting::Not => {}
            }
            let thinned = self.thin_record(garbage.place, garbage.record, settled, held, site);
            // What was taken out had an item of its own, which waits for what is kept.
            if !matches!(garbage.entry, Entry::Stays)
                || thinned.is_none_or(|thinned| thinned.taken_out == 0 && thinned.kept > 0)
            {
                self.held.push_back(garbage);
            }
        }
        self.garbage.extend(again);
        // The time for which they wait begins.
        self.see_to_graves(site);
    }

    /// Closes a deleted record that shows a row or node at no moment that anybody holds. No multi-version index names it there
    /// either; out of a single-version index it is taken. Whatever else is garbage of it goes with it.
    fn forget(&mut self, garbage: &Garbage, settled: Timestamp, held: &[Timestamp], site: &Site<'_>) -> Forgetting {
        let record = garbage.record;
        let Some(store) = site.store(garbage.place) else { return Forgetting::Done };
        if !record.try_latch() {
            return Forgetting::Later;
        }
        let forgetting = match (record.latest().link(), &garbage.entry) {
            (Link::To(latest), _) if !is_unseen(latest, settled, held) => Forgetting::Not,
            // The deletion has an item of its own.
            (Link::To(_), Entry::Stays) | (Link::Closed, _) | (Link::End, Entry::Stays | Entry::Unlinked { .. }) => {
                Forgetting::Done
            }
            (Link::End, Entry::Key(_)) => Forgetting::Not,
            // The record may be closed already, and its place serve another key.
            (Link::To(_), Entry::Key(key)) if !leads_to(store, key, record, site.guard) => Forgetting::Done,
            // A version that was taken out of the head, and may still be looked at, keeps the head for a while.
            (Link::To(latest), _)
                if record.inline_status() == Status::Retired || !record.latest().close(Some(latest)) =>
            {
                Forgetting::Later
            }
            (Link::To(latest), entry) => {
                let is_node = matches!(entry, Entry::Unlinked { is_node: true });
                if let Entry::Key(key) = entry {
                    take_out(store, key, record, site.guard);
                }
                self.bury_record(record, latest, store, is_node, site.guard);
                Forgetting::Done
            }
        };
        record.unlatch();
        forgetting
    }

    /// `None`: somebody else collects there just now.
    fn thin_record(
        &mut self,
        place: Place,
        record: Record,
        settled: Timestamp,
        held: &[Timestamp],
        site: &Site<'_>,
    ) -> Option<Thinned> {
        let Some(store) = site.store(place) else { return Some(Thinned::default()) };
        if !record.try_latch() {
            return None;
        }
        let thinned = self.thin_latched(record, store, settled, held, site);
        record.unlatch();
        Some(thinned)
    }

    fn thin_latched(
        &mut self,
        record: Record,
        store: &Store,
        settled: Timestamp,
        held: &[Timestamp],
        site: &Site<'_>,
    ) -> Thinned {
        let mut thinned = Thinned::default();
        let mut place = record.latest();
        // The version that takes over from the one that is looked at.
        let mut successor: Option<Timestamp> = None;
        while let Link::To(version) = place.link() {
            let wts = version.wts();
            let stands = matches!(version.status(), Status::Committed | Status::Deleted);
            let unsettled = wts.is_after(settled) && !(left_out(Step::KeepUnsettled) && stands);
            if unsettled || !stands && successor.is_none() {
                place = version.next();
                continue;
            }
            let is_seen = successor.map_or(!left_out(Step::KeepLatest), |successor| {
                let sees = |moment: &Timestamp| !wts.is_after(*moment) && moment.is_before(successor);
                held.iter().any(sees) && !left_out(Step::KeepSeen)
            });
            if stands && !wts.is_after(site.min_rts) {
                free_all(record, version.next().cut(), site.guard);
                thinned.kept += usize::from(successor.is_some());
                break;
            }
            if stands && is_seen {
                thinned.kept += usize::from(successor.is_some());
                place = version.next();
            } else if place.take_out(version) {
                self.bury_version(record, version, store, site);
                thinned.taken_out += 1;
            }
            if stands {
                successor = Some(wts);
            }
        }
        thinned
    }
}

/// Whether a key of a single-version index leads to a record.
fn leads_to(store: &Store, key: &OwnedKey, record: Record, guard: &Guard<'_>) -> bool {
    let handle = match key {
        OwnedKey::Short(key) => store.index().find(*key, guard),
        OwnedKey::Long(key) => store.index().find(&**key, guard),
    };
    handle == Some(record.handle())
}

/// Takes the key of a closed record out of a single-version index.
fn take_out(store: &Store, key: &OwnedKey, record: Record, guard: &Guard<'_>) {
    let removed = match key {
        OwnedKey::Short(key) => store.index().remove(*key, record.handle(), guard),
        OwnedKey::Long(key) => store.index().remove(&**key, record.handle(), guard),
    };
    debug_assert!(removed, "the record was in the index, and only who has its latch takes it out");
}

/// Whether a record whose latest version this is has been deleted, and is seen as it was before at no moment that is held.
fn is_unseen(last: Version, settled: Timestamp, held: &[Timestamp]) -> bool {
    let held = if left_out(Step::KeepRows) { &[] } else { held };
    if last.status() != Status::Deleted || last.wts().is_after(settled) {
        return false;
    }
    let (mut place, mut successor) = (last.next(), last.wts());
    while let Link::To(version) = place.link() {
        place = version.next();
        match version.status() {
            Status::Committed if held.iter().any(|at| !version.wts().is_after(*at) && at.is_before(successor)) => {
                return false;
            }
            Status::Committed | Status::Deleted => successor = version.wts(),
            _ => {}
        }
    }
    true
}
