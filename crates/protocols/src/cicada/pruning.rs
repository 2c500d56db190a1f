//! A long reader holds back what it can see, and not all that came after it.
//!
//! Between the version that a reader sees and the latest one there may be thousands that nobody sees: readers who run look at their own
//! timestamps, a transaction that begins from now on looks at the horizon or later. When the oldest reader has fallen behind, records are
//! *pruned*: of the versions that are stable, the latest stays, and of those behind it the ones that are visible at a timestamp that
//! somebody holds. The others are unlinked. Readers may hold them, so their memory waits for the epochs.

use polychron_engine::mutations::left_out;
use polychron_engine::stores::OwnedKey;
use polychron_memory::Guard;
use polychron_sync::atomic::{Ordering, fence};

use super::clocks::HeldSpans;
use super::garbage::{Entry, Garbage, Item};
use super::reclaim::{Reclaimer, Site, Waiting};
use super::record::{Closed, Latched, Link, Queued, Record, Status, Unlinked};
use super::steps::Step;
use super::table::Store;
use super::timestamp::Timestamp;

/// Items that wait and are looked at again in one go: more than come to wait in the time.
const LOOKED_AT_AGAIN: usize = 8;

/// What pruning did to a record.
#[derive(Clone, Copy, Debug, Default)]
struct Pruned {
    /// The latest version, if it is not stable yet: the record is to be looked at again when it is.
    unstable: Option<Timestamp>,
    /// Of the earliest version that is kept for a reader, the one that took over from it: when nobody looks behind that, it is garbage.
    kept_until: Option<Timestamp>,
    /// The timestamp of the latest one who keeps one and has read for long.
    kept_by: Option<Timestamp>,
    /// Whether versions were unlinked.
    has_unlinked: bool,
}

impl Pruned {
    fn keep_by(&mut self, timestamp: Option<Timestamp>) {
        let is_later = |now: Timestamp| timestamp.is_none_or(|timestamp| now.is_after(timestamp));
        self.kept_by = self.kept_by.filter(|now| is_later(*now)).or(timestamp);
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

impl Reclaimer {
    /// Prunes the records of queued items that only long readers hold back, in about `limit` steps ([`Reclaimer::step`]). Answers how many it took.
    #[cold]
    pub(super) fn prune(&mut self, limit: usize, spans: &HeldSpans<'_>, site: &Site<'_>) -> usize {
        let begun = self.collected.steps;
        let spent = |this: &Self| (this.collected.steps - begun) as usize;
        let mut again = Vec::new();
        while spent(self) < limit {
            let is_stable = |garbage: &mut Garbage| !garbage.wts.is_after(spans.stable());
            let Some(garbage) = self.garbage.pop_front_if(is_stable) else { break };
            self.collected.steps += 1;
            if let Some(garbage) = self.prune_item(garbage, spans, site) {
                again.push(garbage);
            }
        }
        self.garbage.extend(again);
        self.look_again(spans, site);
        // The time for which they wait begins.
        self.free_deferred(limit, site);
        self.give_back_room();
        spent(self)
    }

    /// Looks at some of the items that wait, in turns, and prunes those again for which a transaction waited that has ended.
    fn look_again(&mut self, spans: &HeldSpans<'_>, site: &Site<'_>) {
        // Otherwise they are being looked through already.
        if self.held_left > 0 {
            return;
        }
        for _ in 0..LOOKED_AT_AGAIN.min(self.held.len()) {
            let Some(waiting) = self.held.pop_front() else { return };
            self.collected.steps += 1;
            let item = waiting.garbage.item;
            let known = item.found(site);
            if known.is_none() && !site.comes_later(item.place()) {
                // Where the store has gone, so has the record.
                continue;
            }
            let latched = known.filter(|_| !spans.holds(waiting.by)).and_then(|(_, record)| record.try_latch());
            let Some(latched) = latched else {
                self.held.push_back(waiting);
                continue;
            };
            latched.record().marks().clear_waiting(waiting.garbage.entry.kind());
            drop(latched);
            let again = self.prune_item(waiting.garbage, spans, site);
            self.garbage.extend(again);
        }
    }

    /// Answers the item if it is to be queued again.
    fn prune_item(&mut self, garbage: Garbage, spans: &HeldSpans<'_>, site: &Site<'_>) -> Option<Garbage> {
        let Some((store, record)) = garbage.item.found(site) else {
            return site.comes_later(garbage.item.place()).then_some(garbage);
        };
        let kind = garbage.entry.kind();
        let Some(mut latched) = record.try_latch() else { return Some(garbage) };
        if record.marks().is_sliced() {
            return Some(garbage);
        }
        record.marks().clear_queued(kind);
        // SeqCst: as in `take_marks`.
        fence(Ordering::SeqCst);
        let mut forgotten = self.forget(&latched, &garbage, store, spans, site);
        let mut pruned = Pruned::default();
        if matches!(forgotten, Forgetting::Not) {
            pruned = self.prune_latched(&mut latched, garbage.item, spans, site);
            // What was aborted may have been in the way.
            if pruned.has_unlinked && pruned.unstable.is_none() && kind == Queued::Leaving {
                forgotten = self.forget(&latched, &garbage, store, spans, site);
            }
        }
        let Pruned { unstable, kept_until, kept_by, .. } = pruned;
        match (forgotten, unstable, kept_until, kind) {
            (Forgetting::Done, ..) | (_, None, None, Queued::Versions) => None,
            (Forgetting::Later, ..) => record.marks().note_queued(kind).then_some(garbage),
            // A transaction that keeps it will have ended soon, and does not make it wait for the oldest reader.
            (_, None, Some(_), _) if kept_by.is_none() => record.marks().note_queued(kind).then_some(garbage),
            (_, Some(wts), ..) => record.marks().note_queued(kind).then_some(Garbage { wts, ..garbage }),
            (_, None, kept_until, _) => {
                let wts = kept_until.unwrap_or(garbage.wts);
                if let (Entry::Key(key), Some(_), Link::To(latest)) = (&garbage.entry, kept_until, latched.latest())
                    && latest.status() == Status::Deleted
                    && !latest.wts().is_after(spans.stable())
                    && !record.is_sealed()
                {
                    store.displace(key, &latched, latest, site.guard);
                }
                if record.marks().note_waiting(kind) {
                    let by = kept_by.unwrap_or(site.min_rts());
                    self.held.push_back(Waiting { garbage: Garbage { wts, ..garbage }, by });
                }
                None
            }
        }
    }

    /// Closes a deleted record that shows a row or node at no timestamp that anybody holds. No multi-version index names it there
    /// either; out of a single-version index it is taken. Whatever else is garbage of it goes with it.
    fn forget(
        &mut self,
        latched: &Latched<'_>,
        garbage: &Garbage,
        store: &Store,
        spans: &HeldSpans<'_>,
        site: &Site<'_>,
    ) -> Forgetting {
        let record = latched.record();
        let unseen = match (latched.latest(), &garbage.entry) {
            // The record may be closed already, and its slot serve another key.
            (Link::To(_) | Link::End, Entry::Key(key)) if !leads_to(store, key, record, site.guard) => {
                return Forgetting::Done;
            }
            // The deletion has an item of its own.
            (Link::Closed, _) | (Link::End, Entry::Stays | Entry::Unlinked) => return Forgetting::Done,
            (Link::End, Entry::Key(_)) => None,
            (Link::To(_), entry) => match latched.unseen(spans, &mut self.collected.steps) {
                None => return Forgetting::Not,
                Some(_) if matches!(entry, Entry::Stays) => return Forgetting::Done,
                unseen => unseen,
            },
        };
        // A version that was unlinked from the head, and may still be held, keeps the head for a while.
        if record.inline_status() == Status::Retired {
            return Forgetting::Later;
        }
        let closed = unseen.map_or_else(|| latched.close(site.horizon), |unseen| latched.close_unseen(unseen));
        let Some(closed) = closed else { return Forgetting::Later };
        if let Entry::Key(key) = &garbage.entry {
            remove_key(store, key, &closed, site.guard);
        }
        self.defer_record(closed, garbage.item, site.guard);
        Forgetting::Done
    }

    fn prune_latched(
        &mut self,
        latched: &mut Latched<'_>,
        item: Item,
        spans: &HeldSpans<'_>,
        site: &Site<'_>,
    ) -> Pruned {
        let (mut pruned, record) = (Pruned::default(), latched.record());
        let mut cursor = latched.cursor();
        while let Link::To(version) = cursor.link() {
            self.collected.steps += 1;
            let (wts, status) = (version.wts(), cursor.status());
            let counts = status.is_some_and(Status::counts);
            let unstable = wts.is_after(spans.stable()) && !(left_out(Step::KeepUnsettled) && counts);
            if unstable || status == Some(Status::Pending) {
                pruned.unstable.get_or_insert(wts);
                cursor.pass();
                continue;
            }
            let successor = cursor.successor(spans);
            if cursor.is_bottom(site.horizon) {
                // What is left of many goes on by itself.
                let _is_all = self.free_below(cursor, record, item, site);
                pruned.kept_until = successor.or(pruned.kept_until);
                pruned.keep_by(successor.map(|_| spans.earliest().unwrap_or(site.min_rts())));
                break;
            }
            match cursor.unlink_unseen(spans, site.guard) {
                None => {
                    pruned.kept_until = successor.or(pruned.kept_until);
                    pruned.keep_by(successor.and_then(|successor| spans.sees_for_long(wts, successor)));
                    cursor.pass();
                }
                Some(Unlinked::Not) => {}
                Some(unlinked) => {
                    self.defer_version(unlinked, item);
                    pruned.has_unlinked = true;
                }
            }
        }
        pruned
    }
}

/// Whether a key of a single-version index leads to a record.
fn leads_to(store: &Store, key: &OwnedKey, record: Record<'_>, guard: &Guard<'_>) -> bool {
    match key {
        OwnedKey::Short(key) => store.leads_to(*key, record, guard),
        OwnedKey::Long(key) => store.leads_to(&**key, record, guard),
    }
}

/// Removes the key of a closed record from a single-version index.
fn remove_key(store: &Store, key: &OwnedKey, closed: &Closed<'_>, guard: &Guard<'_>) {
    match key {
        OwnedKey::Short(key) => store.remove_key(*key, closed, guard),
        OwnedKey::Long(key) => store.remove_key(&**key, closed, guard),
    }
}
