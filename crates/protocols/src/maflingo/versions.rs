//! Older versions leave their chains before the snapshots end that are older than they.
//!
//! An older version is given to the memory's epochs when it is made, and goes when no snapshot is older than its end
//! (§4.8). Behind a snapshot that stays open for long, that would keep every version newer than it. So while one is open,
//! a worker queues the versions it makes, and as soon as they have become the past it takes out those that no open snapshot
//! sees. `docs/protocols/maflingo.md` proves that readers do not notice. Three rules make it cheap:
//!
//! * Without a long snapshot nothing is queued, and a worker looks for one once an epoch.
//! * A thread that walks a chain unlinks all that can go, whichever thread made it, and marks it; its maker finds the mark.
//! * A version that stays is looked at again only when a snapshot ends that it was kept for.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use polychron_base::key::EncodedKey;
use polychron_base::room::KeptList;
use polychron_engine::catalog;
use polychron_engine::mutations::{left_out, pass};
use polychron_engine::stores::{IndexRef, OwnedKey};
use polychron_memory::{Guard, Hold};

use super::record::{Older, Record, State};
use super::steps::{Point, Step};
use super::table::{self, MaflingoTable, Store};

/// A snapshot is long when it lies so many epochs behind the newest possible. What is made before that stays until the
/// snapshot ends: little, and short snapshots cost nothing.
const LONG_EPOCHS: u64 = 8;

/// Versions queued before the next pass over the queue.
const AT_ONCE: usize = 64;

/// Versions looked at in a pass: more than come in between, so that a backlog shrinks, and few enough that no thread waits for it.
const SLICE: usize = 256;

/// What can be seen: the horizons and the open snapshots of one time, and while it lives no version is freed that ends
/// after its `collectable`.
pub(super) struct View<'g, 'v> {
    hold: Hold<'g>,
    past: u64,
    /// Among them the held horizon.
    open: &'v [u64],
}

impl<'g, 'v> View<'g, 'v> {
    /// The view of this time; `None` when it cannot be told just now. `open` is its memory.
    pub(super) fn new(guard: &Guard<'g>, open: &'v mut Vec<u64>) -> Option<Self> {
        let hold = guard.hold_versions()?;
        // Read before the list is made: a snapshot that the list misses reads here or later.
        let mut past = guard.epochs().past();
        let known = guard.epochs().open_snapshots(open);
        pass(Point::Listed);
        if left_out(Step::HorizonBeforeList) {
            past = guard.epochs().past();
        }
        known.then_some(Self { hold, past, open })
    }

    #[inline]
    pub(super) fn past(&self) -> u64 {
        self.past
    }

    /// The oldest open snapshot that sees what was current from epoch `from` until epoch `until`.
    fn oldest_between(&self, from: u64, until: u64) -> Option<u64> {
        if left_out(Step::KeepSeen) {
            return None;
        }
        let first = self.open.partition_point(|&epoch| epoch < from);
        self.open.get(first).copied().filter(|&epoch| epoch < until)
    }

    /// Whether any snapshot, open or to come, may see what was current from epoch `from` until epoch `until`.
    fn sees(&self, from: u64, until: u64) -> bool {
        until > self.past && !left_out(Step::KeepRecent) || self.oldest_between(from, until).is_some()
    }
}

/// Whether a long snapshot is open.
pub(super) fn long_snapshot(guard: &Guard<'_>) -> bool {
    guard.epochs().past() > guard.epochs().collectable() + LONG_EPOCHS
}

/// Takes every version that no snapshot sees out of the chain behind `head`, whose latch the caller holds. Answers
/// whether a row stays in it.
///
/// A link is followed only where the record before it is newer than the held horizon: then that record's version was not
/// collectable when the horizon was taken, and is not freed.
pub(super) fn prune<'g>(head: Record<'g>, view: &'g View<'_, '_>) -> bool {
    let (mut newer, mut row) = (head, false);
    while let Some(version) = newer.held_before(&view.hold) {
        if view.sees(version.tid().epoch(), newer.tid().epoch()) {
            row |= !version.is_absent_version();
            newer = version;
        } else {
            newer.set_previous(version.previous());
            version.mark_pruned();
        }
    }
    row
}

/// Marks what is left of the chain behind a tombstone that the index has forgotten. The caller holds its latch.
pub(super) fn abandon<'g>(head: Record<'g>, view: &'g View<'_, '_>) {
    let mut newer = head;
    while let Some(version) = newer.held_before(&view.hold) {
        version.mark_pruned();
        newer = version;
    }
}

/// Prunes behind a record that was found under a key, if it still is the head of its chain.
fn prune_behind<'g>(found: Option<Record<'g>>, view: &'g View<'_, '_>, is_head: impl FnOnce(State) -> bool) {
    if let Some(head) = found
        && let Some(state) = head.latch_in_background()
    {
        if is_head(state) {
            prune(head, view);
        }
        head.unlatch();
    }
}

/// The record to which a key leads now, and the one that lies beside.
fn find<'g>(key: &OwnedKey, store: &Store, guard: &'g Guard<'_>) -> (Option<Record<'g>>, Option<Record<'g>>) {
    match key {
        OwnedKey::Short(key) => find_key(*key, store, guard),
        OwnedKey::Long(key) => find_key(&**key, store, guard),
    }
}

fn find_key<'g, K: EncodedKey>(
    key: K,
    store: &Store,
    guard: &'g Guard<'_>,
) -> (Option<Record<'g>>, Option<Record<'g>>) {
    // In this order, in which a record goes from one to the other.
    (table::find(store, key, guard), store.displaced.find(key, guard))
}

/// The store of a place, unless it was dropped.
pub(super) fn store_at(tables: &[Option<Arc<MaflingoTable>>], index_ref: IndexRef) -> Option<&Store> {
    let table = catalog::known(tables, index_ref.table)?;
    table.store(index_ref.index).ok().map(|store| &**store)
}

/// An older version that belongs to the queue it is in: linked, or marked as pruned.
#[derive(Debug)]
pub(super) struct Superseded {
    pub(super) index_ref: IndexRef,
    pub(super) key: OwnedKey,
    pub(super) version: Older,
}

/// What became of a queued version.
enum Processed {
    /// It is retired.
    Retired,
    /// The snapshot sees it.
    Kept(Superseded, u64),
    /// Some thread is at its chain.
    Later(Superseded),
}

/// One worker's queue of versions.
#[derive(Debug, Default)]
pub(super) struct Pruner {
    /// Whether a long snapshot was open when this was looked at.
    active: bool,
    /// The epoch in which it was.
    looked_in: u64,
    /// Whether it is time for a pass.
    due: bool,
    added: usize,
    /// Versions in the order in which they were superseded, more or less.
    queue: VecDeque<Superseded>,
    /// Versions that an open snapshot sees, though not the oldest one, by that snapshot.
    kept: BTreeMap<u64, Vec<Superseded>>,
    open: Vec<u64>,
}

impl Pruner {
    /// Whether versions are to be queued.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    /// Takes a version over.
    #[cold]
    pub(super) fn push(&mut self, superseded: Superseded) {
        self.queue.push_back(superseded);
        self.added += 1;
        self.due |= self.added >= AT_ONCE;
    }

    /// Versions that the queue has room for.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.queue.room()
    }

    /// Whether nothing is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.kept.is_empty()
    }

    /// Whether it may be time for a pass.
    #[inline]
    pub(super) fn is_due(&mut self, guard: &Guard<'_>) -> bool {
        if guard.epoch() != self.looked_in {
            self.look(guard);
        }
        self.due
    }

    #[cold]
    fn look(&mut self, guard: &Guard<'_>) {
        self.looked_in = guard.epoch();
        self.active = long_snapshot(guard);
        self.due = self.active || !self.is_empty();
    }

    /// A pass: processes what has become the past, a slice of it or all.
    /// `then` does what else a view is needed for.
    #[cold]
    pub(super) fn pass(
        &mut self,
        tables: &[Option<Arc<MaflingoTable>>],
        all: bool,
        guard: &Guard<'_>,
        then: impl FnOnce(&View<'_, '_>),
    ) {
        // Where there is no view now, the next epoch or the next versions ask again.
        (self.due, self.added) = (false, 0);
        let Self { queue, kept, open, due, .. } = self;
        // Taken, so that the view may borrow it.
        let mut memory = std::mem::take(open);
        if let Some(view) = View::new(guard, &mut memory) {
            let mut left = if all { usize::MAX } else { SLICE };
            // Those of snapshots that have ended go first, and so many at a time.
            while left > 0
                && let Some((&ended, kept_for)) =
                    kept.iter_mut().find(|(epoch, _)| view.open.binary_search(epoch).is_err())
            {
                let from = kept_for.len().saturating_sub(left);
                left -= kept_for.len() - from;
                kept_for.drain(from..).rev().for_each(|superseded| queue.push_front(superseded));
                if kept_for.is_empty() {
                    kept.remove(&ended);
                }
            }
            for _ in 0..if all { queue.len() } else { SLICE } {
                let past = |superseded: &mut Superseded| superseded.version.superseded_at() <= view.past;
                let Some(superseded) = queue.pop_front_if(past) else { break };
                match process(superseded, tables, &view, guard) {
                    Processed::Retired => {}
                    Processed::Kept(superseded, epoch) => kept.entry(epoch).or_default().push(superseded),
                    Processed::Later(superseded) => queue.push_back(superseded),
                }
            }
            // What is left of a backlog is the next transaction's.
            *due = !all && (left == 0 || queue.front().is_some_and(|next| next.version.superseded_at() <= view.past));
            then(&view);
        }
        queue.give_back_room();
        self.open = memory;
    }

    /// Leaves everything to the memory's epochs when the worker leaves.
    pub(super) fn leave(&mut self, guard: &Guard<'_>) {
        std::mem::take(&mut self.kept).into_values().flatten().for_each(|superseded| superseded.version.retire(guard));
        self.queue.drain(..).for_each(|superseded| superseded.version.retire(guard));
    }
}

/// Takes a version out of its chain, or finds out why it must stay.
fn process(
    superseded: Superseded,
    tables: &[Option<Arc<MaflingoTable>>],
    view: &View<'_, '_>,
    guard: &Guard<'_>,
) -> Processed {
    let (version, until) = (superseded.version.under(guard), superseded.version.superseded_at());
    let from = version.tid().epoch();
    if !version.is_pruned() {
        // What the oldest snapshot sees goes when it ends, or is seen by the next one too. What none is older than goes.
        let Some(store) = store_at(tables, superseded.index_ref).filter(|_| from > view.hold.collectable()) else {
            superseded.version.retire(guard);
            return Processed::Retired;
        };
        if let Some(epoch) = view.oldest_between(from, until) {
            return Processed::Kept(superseded, epoch);
        }
        let (head, beside) = find(&superseded.key, store, guard);
        prune_behind(head, view, |state| !state.unlinked());
        if !version.is_pruned() {
            // One that has left the index beside since is as old as the held horizon, and nothing is looked at behind it.
            prune_behind(beside, view, |_| true);
        }
    }
    let Superseded { index_ref, key, version } = superseded;
    match version.retire_pruned(guard) {
        Ok(()) => Processed::Retired,
        Err(version) => Processed::Later(Superseded { index_ref, key, version }),
    }
}
