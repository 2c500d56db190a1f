//! A long reader holds back what it can see, and not all that came after it.
//!
//! Between the version that a reader sees and the latest one there may be thousands that nobody sees: readers who run look at their own
//! moments, whoever begins from now on looks at the horizon or later. When the oldest reader has fallen behind, records are
//! *thinned*: of the versions that are settled, the latest stays, and of those behind it the ones that are visible at a moment that
//! somebody holds. The others are taken out. Readers may stand on them, so their memory waits for the epochs.

use polychron_engine::mutations::left_out;
use polychron_engine::stores::Place;

use super::reclaim::{Garbage, Reclaimer, Site, free_all};
use super::record::{Link, Record, Status};
use super::steps::Step;
use super::table::Store;
use super::timestamp::Timestamp;

/// What thinning did to a record.
#[derive(Clone, Copy, Debug, Default)]
struct Thinned {
    taken_out: usize,
    kept: usize,
}

impl Reclaimer {
    /// Thins the records of up to `limit` queued items that only long readers hold back. `held` are the moments at which somebody
    /// reads.
    #[cold]
    pub(super) fn thin(&mut self, limit: usize, settled: Timestamp, held: &[Timestamp], site: &Site<'_>) {
        for _ in 0..limit {
            let is_settled = |garbage: &mut Garbage| !garbage.wts.is_after(settled);
            let Some(garbage) = self.garbage.pop_front_if(is_settled) else { return };
            let thinned = self.thin_record(garbage.place, garbage.record, settled, held, site);
            // What was taken out had an item of its own, which waits for what is kept.
            if garbage.key.is_some() || thinned.is_none_or(|thinned| thinned.taken_out == 0 && thinned.kept > 0) {
                self.held.push_back(garbage);
            }
        }
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
