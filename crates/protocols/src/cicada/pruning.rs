//! A long reader holds back what it can see, and not all that came after it.
//!
//! Between the version that a reader sees and the latest one there may be thousands that nobody sees: readers who run look at their own
//! moments, whoever begins from now on looks at the horizon or later. When the oldest reader has fallen behind, records are
//! *pruned*: of the versions that are settled, the latest stays, and of those behind it the ones that are visible at a moment that
//! somebody holds. The others are taken out. Readers may stand on them, so their memory waits for the epochs.

use polychron_engine::mutations::left_out;
use polychron_engine::stores::OwnedKey;
use polychron_memory::Guard;
use polychron_sync::atomic::{Ordering, fence};

use super::clocks::Span;
use super::marks::Queued;
use super::reclaim::{DeferredFree, Entry, Garbage, Reclaimer, Site, Waiting};
use super::record::{Link, Record, Status, Version};
use super::steps::Step;
use super::table::Store;
use super::timestamp::Timestamp;

/// Items that wait and are looked at again in one go: more than come to wait in the time.
const LOOKED_AT_AGAIN: usize = 8;

/// What pruning did to a record.
#[derive(Clone, Copy, Debug, Default)]
struct Pruned {
    /// The latest version, if it is not settled yet: the record is to be looked at again when it is.
    unsettled: Option<Timestamp>,
    /// Of the earliest version that is kept for a reader, the one that took over from it: when nobody looks behind that, it is garbage.
    kept_until: Option<Timestamp>,
    /// The moment of the latest one who keeps one and has read for long.
    kept_by: Option<Timestamp>,
    /// Whether versions were taken out.
    took_out: bool,
}

impl Pruned {
    fn keep_by(&mut self, moment: Option<Timestamp>) {
        let is_later = |now: Timestamp| moment.is_none_or(|moment| now.is_after(moment));
        self.kept_by = self.kept_by.filter(|now| is_later(*now)).or(moment);
    }
}

/// What came of forgetting a record.
enum Forgetting {
    /// It is forgotten, or an item that will come says that it may be.
    Done,
    Later,
    /// Somebody sees it, or will.
    Not,
}

/// The moments that count when records are pruned.
#[derive(Clone, Copy)]
struct Moments<'m> {
    settled: Timestamp,
    /// Those at which somebody reads: `from` grows, and `to`.
    held: &'m [Span],
    /// How many of them, the first ones, are held for long.
    lasting: usize,
}

impl Moments<'_> {
    /// Whether somebody sees what was there from `from` on and not from `until` on.
    #[inline]
    fn sees(&self, from: Timestamp, until: Timestamp) -> bool {
        Self::find(self.held, from, until).is_some()
    }

    /// The moment of somebody who sees it and has read for long.
    #[inline]
    fn sees_for_long(&self, from: Timestamp, until: Timestamp) -> Option<Timestamp> {
        Self::find(&self.held[..self.lasting], from, until)
    }

    /// Whether somebody holds a moment.
    fn holds(&self, moment: Timestamp) -> bool {
        let next = self.held.partition_point(|span| span.from.is_before(moment));
        self.held.get(next).is_some_and(|span| span.from == moment)
    }

    #[inline]
    fn find(held: &[Span], from: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let next = held.partition_point(|span| span.to.is_before(from));
        held.get(next).map(|span| span.from).filter(|moment| moment.is_before(until))
    }
}

impl Reclaimer {
    /// Prunes the records of up to `limit` queued items that only long readers hold back. `held` are the moments at which somebody
    /// reads, the first `lasting` of them for long. Answers how many were looked at.
    #[cold]
    pub(super) fn prune(
        &mut self,
        limit: usize,
        settled: Timestamp,
        (held, lasting): (&[Span], usize),
        site: &Site<'_>,
    ) -> usize {
        let (mut again, mut done) = (Vec::new(), 0);
        let moments = Moments { settled, held, lasting };
        while done < limit {
            let is_settled = |garbage: &mut Garbage| !garbage.wts.is_after(settled);
            let Some(garbage) = self.garbage.pop_front_if(is_settled) else { break };
            done += 1;
            if let Some(garbage) = self.prune_item(garbage, moments, site) {
                again.push(garbage);
            }
        }
        self.garbage.extend(again);
        self.look_again(moments, site);
        // The time for which they wait begins.
        self.free_deferred(site);
        self.give_back_room();
        done
    }

    /// Looks at some of the items that wait, in turns, and prunes those again for which somebody waited who has ended.
    fn look_again(&mut self, moments: Moments<'_>, site: &Site<'_>) {
        // Otherwise they are being looked through already.
        if self.held_left > 0 {
            return;
        }
        for _ in 0..LOOKED_AT_AGAIN.min(self.held.len()) {
            let Some(waiting) = self.held.pop_front() else { return };
            self.collected.steps += 1;
            let Garbage { place, record, .. } = waiting.garbage;
            let is_known = site.store(place).is_some();
            if !is_known && !site.comes_later(place) {
                // Where the store has gone, so has the record.
                continue;
            }
            if !is_known || moments.holds(waiting.by) || !record.marks().try_latch() {
                self.held.push_back(waiting);
                continue;
            }
            record.marks().clear_waiting(waiting.garbage.entry.kind());
            record.marks().unlatch();
            let again = self.prune_item(waiting.garbage, moments, site);
            self.garbage.extend(again);
        }
    }

    /// Answers the item if it is to be queued again.
    fn prune_item(&mut self, garbage: Garbage, moments: Moments<'_>, site: &Site<'_>) -> Option<Garbage> {
        let Some(store) = site.store(garbage.place) else {
            return site.comes_later(garbage.place).then_some(garbage);
        };
        let (record, kind) = (garbage.record, garbage.entry.kind());
        if !record.marks().try_latch() {
            return Some(garbage);
        }
        if record.marks().is_sliced() {
            record.marks().unlatch();
            return Some(garbage);
        }
        record.marks().clear_queued(kind);
        // SeqCst: as in `take_marks`.
        fence(Ordering::SeqCst);
        let mut forgotten = self.forget(&garbage, store, moments, site);
        let mut pruned = Pruned::default();
        if matches!(forgotten, Forgetting::Not) {
            pruned = self.prune_latched(record, store, moments, site);
            // What was aborted may have been in the way.
            if pruned.took_out && pruned.unsettled.is_none() && kind == Queued::Leaving {
                forgotten = self.forget(&garbage, store, moments, site);
            }
        }
        let Pruned { unsettled, kept_until, kept_by, .. } = pruned;
        let again = match (forgotten, unsettled, kept_until, kind) {
            (Forgetting::Done, ..) | (_, None, None, Queued::Versions) => None,
            (Forgetting::Later, ..) => record.marks().note_queued(kind).then_some(garbage),
            // Who keeps it will have ended soon, and does not make it wait for the oldest reader.
            (_, None, Some(_), _) if kept_by.is_none() => record.marks().note_queued(kind).then_some(garbage),
            (_, Some(wts), ..) => record.marks().note_queued(kind).then_some(Garbage { wts, ..garbage }),
            (_, None, kept_until, _) => {
                let wts = kept_until.unwrap_or(garbage.wts);
                if let (Entry::Key(key), Some(_), Link::To(latest)) =
                    (&garbage.entry, kept_until, record.latest().link())
                    && latest.status() == Status::Deleted
                    && !latest.wts().is_after(moments.settled)
                    && !record.latest().is_sealed()
                {
                    store.displace(key, record, latest, site.guard);
                }
                if record.marks().note_waiting(kind) {
                    let by = kept_by.unwrap_or(site.min_rts);
                    self.held.push_back(Waiting { garbage: Garbage { wts, ..garbage }, by });
                }
                None
            }
        };
        record.marks().unlatch();
        again
    }

    /// Closes a deleted record that shows a row or node at no moment that anybody holds. No multi-version index names it there
    /// either; out of a single-version index it is taken. Whatever else is garbage of it goes with it.
    fn forget(&mut self, garbage: &Garbage, store: &Store, moments: Moments<'_>, site: &Site<'_>) -> Forgetting {
        let record = garbage.record;
        match (record.latest().link(), &garbage.entry) {
            // The record may be closed already, and its place serve another key.
            (Link::To(_) | Link::End, Entry::Key(key)) if !leads_to(store, key, record, site.guard) => Forgetting::Done,
            (Link::To(latest), _) if !self.is_unseen(latest, moments) => Forgetting::Not,
            // The deletion has an item of its own.
            (Link::To(_), Entry::Stays) | (Link::Closed, _) | (Link::End, Entry::Stays | Entry::Unlinked { .. }) => {
                Forgetting::Done
            }
            // As below.
            (Link::End, Entry::Key(_)) if record.inline_status() == Status::Retired || !record.latest().close(None) => {
                Forgetting::Later
            }
            (Link::End, Entry::Key(key)) => {
                take_out(store, key, record, site.guard);
                self.defer(DeferredFree { place: store.place(), record, whole: true, is_node: false, epoch: None });
                Forgetting::Done
            }
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
                self.defer_record(record, latest, store, is_node, site.guard);
                Forgetting::Done
            }
        }
    }

    fn prune_latched(&mut self, record: Record, store: &Store, moments: Moments<'_>, site: &Site<'_>) -> Pruned {
        let mut pruned = Pruned::default();
        let mut place = record.latest();
        // The version that takes over from the one that is looked at.
        let mut successor: Option<Timestamp> = None;
        while let Link::To(version) = place.link() {
            self.collected.steps += 1;
            let wts = version.wts();
            let status = version.status();
            let stands = matches!(status, Status::Committed | Status::Deleted);
            let unsettled = wts.is_after(moments.settled) && !(left_out(Step::KeepUnsettled) && stands);
            if unsettled || status == Status::Pending {
                pruned.unsettled.get_or_insert(wts);
                place = version.next();
                continue;
            }
            let is_seen = stands
                && successor.map_or(!left_out(Step::KeepLatest), |successor| {
                    moments.sees(wts, successor) && !left_out(Step::KeepSeen)
                });
            if stands && !wts.is_after(site.min_rts) {
                // What is left of many goes on by itself.
                let _is_all = self.free_below(record, version, store.place(), site);
                pruned.kept_until = successor.or(pruned.kept_until);
                pruned.keep_by(successor.map(|_| moments.held.first().map_or(site.min_rts, |span| span.from)));
                break;
            }
            if is_seen {
                pruned.kept_until = successor.or(pruned.kept_until);
                pruned.keep_by(successor.and_then(|successor| moments.sees_for_long(wts, successor)));
                place = version.next();
            } else if place.take_out(version) {
                self.defer_version(record, version, store, site);
                self.collected.versions += 1;
                pruned.took_out = true;
            }
            if stands {
                successor = Some(wts);
            }
        }
        pruned
    }

    /// Whether a record whose latest version this is has been deleted, and is seen as it was before at no moment that is held.
    fn is_unseen(&mut self, last: Version, moments: Moments<'_>) -> bool {
        if last.status() != Status::Deleted || last.wts().is_after(moments.settled) {
            return false;
        }
        let (mut place, mut successor) = (last.next(), last.wts());
        while let Link::To(version) = place.link() {
            self.collected.steps += 1;
            place = version.next();
            match version.status() {
                Status::Committed if moments.sees(version.wts(), successor) && !left_out(Step::KeepRows) => {
                    return false;
                }
                Status::Committed | Status::Deleted => successor = version.wts(),
                _ => {}
            }
        }
        true
    }
}

/// Whether a key of a single-version index leads to a record.
fn leads_to(store: &Store, key: &OwnedKey, record: Record, guard: &Guard<'_>) -> bool {
    match key {
        OwnedKey::Short(key) => store.leads_to(*key, record, guard),
        OwnedKey::Long(key) => store.leads_to(&**key, record, guard),
    }
}

/// Takes the key of a closed record out of a single-version index.
fn take_out(store: &Store, key: &OwnedKey, record: Record, guard: &Guard<'_>) {
    match key {
        OwnedKey::Short(key) => store.take_out(*key, record, guard),
        OwnedKey::Long(key) => store.take_out(&**key, record, guard),
    }
}
