//! Collection: at every commit, what no transaction undoes any more goes (§2.4 of the paper).
//!
//! * A buffer that committed no later than every moment that is read is *old*: its images leave their chains, with all that is older, and
//!   the buffer goes when no guard is left under which anybody may stand on it.
//! * Behind a long snapshot, a buffer that no transaction will validate against is *thinned*: an image leaves its chain when no moment
//!   that is read lies between it and the next older one, and older ones that are undone with it keep all that it keeps. Where little of
//!   a buffer is needed, that moves to memory of its own, and the buffer goes at once: so it serves again while it is in the cache. Where the
//!   slot's [`Restored`](super::restored::Restored) words tell that older images put back all that a new one does, those are not even looked at.
//! * A record that shows no row to anybody is closed, its key leaves the index, and its slot serves again.

use std::sync::Arc;

use polychron_engine::mutations::left_out;
use polychron_engine::redo::Redo;
use polychron_memory::{Epochs, Guard};

use super::chains::LongChains;
use super::clock::{Again, Clock, Committed, Held, History, Old};
use super::counts::{Counts, add};
use super::level::Level;
use super::rows::{Latched, Record};
use super::steps::Step;
use super::table::{HyperTable, Relation};
use super::transaction::HyperTransaction;
use super::undo::{Buffer, Copies, FIRST_ID, Kind, Undo};

/// Images that are seen to at one commit, besides twice as many as it has made itself: so a backlog drains in slices, and is not added to.
const AT_ONCE: usize = 16;
/// Images that are looked at under one latch while a chain is thinned, or as many as had to be passed.
const THINNED_AT_ONCE: u64 = 1024;
/// Commits behind a transaction that may write that are looked through at once for deletions.
const LOOKED_AT_ONCE: usize = 64;
/// Of those that are looked at again.
const LOOKED_AT_AGAIN: usize = 16;
/// Images that a row may have between its insertion and its deletion to be closed while a transaction that may write is open.
const LIFE: usize = 64;
/// Kept buffers that are looked at in one slice of a sweep.
const SWEPT_AT_ONCE: usize = 128;

/// What makes it true that the slot tells.
const RESTORED_STEPS: [Step; 3] = [Step::RestoredMoments, Step::RestoredWords, Step::RestoredByOthers];

/// One image that has gone, of so many that are kept, has the list gone through.
const SWEEP_AT: usize = 4;

/// Buffers that one worker has taken from the list to see to.
#[derive(Debug, Default)]
pub(super) struct Collector {
    old: Vec<Old>,
    thin: Vec<Committed>,
    /// Whose deletions are to be looked at, of rows that nobody may see, and how often they were.
    unseen: Vec<(Committed, u32)>,
    /// Of which nothing is left in any chain.
    dead: Vec<Buffer>,
    /// What was found to be needed by snapshots.
    needed: Vec<Committed>,
    /// Images of kept buffers that have left their chains, and are not told to the list yet.
    gone: usize,
    /// Images that may be cut out of their chains until the slice is over.
    room: usize,
    /// Rows whose chains are long, and by when all their images have been cut.
    cut: LongChains,
    /// The same of those that were thinned, for the moments that were read then.
    thinned: LongChains,
    thinned_for: (u64, Vec<u64>),
    /// Images that were looked at.
    walked: u64,
}

/// Where collection happens.
pub(super) struct Site<'s> {
    pub(super) clock: &'s Clock,
    pub(super) tables: &'s [Option<Arc<HyperTable>>],
    pub(super) epochs: &'s Epochs,
    pub(super) guard: &'s Guard<'s>,
    pub(super) counts: &'s Counts,
}

impl<L: Level, R: Redo> HyperTransaction<'_, L, R> {
    /// Sees to what the commit has taken from the list.
    #[inline]
    pub(super) fn collect(&mut self) {
        let shared = self.shared;
        let site = Site {
            clock: &shared.clock,
            tables: &self.state.tables,
            epochs: shared.memory.epochs(),
            guard: &self.guard,
            counts: &shared.counts[self.state.slot],
        };
        self.state.collector.work(&self.state.held, &site);
    }
}

impl Collector {
    /// Takes from the list what may be collected, for a slice of some more images than the caller has `made`; under its lock. Whether anything
    /// was taken.
    #[inline]
    pub(super) fn take_ready(&mut self, held: &Held, history: &mut History, made: usize) -> bool {
        self.room = AT_ONCE + 2 * made;
        let oldest = held.oldest();
        let mut room = self.room;
        if let Some(unfinished) = history.unfinished.pop() {
            self.old.push(unfinished);
            room = 0;
        }
        while room > 0
            && let Some(next) = history.recent.pop_front_if(|next| next.at <= oldest)
        {
            room = room.saturating_sub(next.images.max(1));
            self.old.push(history.forget_old(next));
        }
        if !held.single.is_empty() {
            let mut room = self.room;
            while room > 0
                && let Some(next) = history.recent.pop_front_if(|next| next.at <= held.from)
            {
                room = room.saturating_sub(next.images.max(1));
                self.thin.push(history.forget(next));
            }
        }
        if !history.recent.is_empty() {
            self.take_unseen(held, history);
        }
        if history.kept_images > 0 || history.is_sweeping || !history.kept.is_empty() {
            self.take_kept(oldest, history, room);
        }
        !self.old.is_empty() || !self.thin.is_empty() || !self.dead.is_empty()
    }

    /// Notes deletions behind a transaction that may write, and behind the backlog that one has left: images that may be compared stay, and others
    /// wait for their turn, but rows that nobody sees need not.
    fn take_unseen(&mut self, held: &Held, history: &mut History) {
        let calm = held.calm();
        for _ in 0..LOOKED_AT_AGAIN {
            let Some(again) = history.again.pop_front_if(|again| again.after <= calm) else { break };
            // What has left the list was collected meanwhile.
            self.unseen.extend(history.find(again.at).map(|committed| (committed, again.times)));
        }
        if calm <= history.looked_through {
            return;
        }
        let first = history.recent.partition_point(|committed| committed.at <= history.looked_through);
        let mut by = calm;
        for (number, committed) in history.recent.range(first..).enumerate() {
            if committed.at > calm {
                break;
            }
            if number == LOOKED_AT_ONCE {
                by = committed.at - 1;
                break;
            }
            if committed.has_deleted {
                self.unseen.push((*committed, 0));
            }
        }
        history.looked_through = by;
    }

    /// Closes rows that came and went behind everybody who reads the past: so those who look for rows do not meet them. Their images stay in
    /// their buffers.
    #[inline(never)]
    fn close_unseen(&mut self, held: &Held, site: &Site<'_>) {
        let mut unseen = std::mem::take(&mut self.unseen);
        for (committed, times) in unseen.drain(..) {
            let mut is_seen = false;
            for image in committed.buffer.images().filter(|image| image.kind() == Kind::Delete) {
                if let Some((store, record)) = site.find(image) {
                    self.walked += 1;
                    is_seen |= !close_if_unseen(store, record, image, held, site);
                }
            }
            if let Some(again) = Again::new(committed.at, times + 1, held.later).filter(|_| is_seen) {
                site.clock.history().again.push_back(again);
            }
        }
        self.unseen = unseen;
    }

    fn take_kept(&mut self, oldest: u64, history: &mut History, mut room: usize) {
        while room > 0
            && let Some(next) = history.pop_kept(oldest)
        {
            room = room.saturating_sub(next.images.max(1));
            self.old.push(Old { next: next.buffer.images().next(), buffer: next.buffer });
        }
        history.gone_images += std::mem::take(&mut self.gone);
        if history.is_sweeping || SWEEP_AT * history.gone_images > history.kept_images + AT_ONCE {
            self.sweep(history, SWEPT_AT_ONCE);
        }
    }

    /// Looks for kept buffers of which nothing is left, and for those of which little is: these are thinned again. Goes on where the slice
    /// before has stopped, and at most so far.
    #[cold]
    pub(super) fn sweep(&mut self, history: &mut History, most: usize) {
        if !history.is_sweeping {
            history.is_sweeping = true;
            history.gone_images = 0;
        }
        for _ in 0..most {
            let Some(kept) = history.kept.pop_front() else {
                history.is_sweeping = false;
                std::mem::swap(&mut history.kept, &mut history.swept);
                return;
            };
            let linked = kept.buffer.linked().count();
            if linked > 0 && 2 * linked > kept.images {
                history.swept.push_back(kept);
                continue;
            }
            history.kept_images -= kept.images;
            let kept = history.forget(kept);
            if linked == 0 {
                self.dead.push(kept.buffer);
            } else {
                self.thin.push(kept);
            }
        }
    }

    /// Sees to what was taken.
    #[inline]
    pub(super) fn work(&mut self, held: &Held, site: &Site<'_>) {
        if !self.old.is_empty() {
            self.cut_out(held.oldest(), site);
        }
        if !self.thin.is_empty() {
            self.thin_out(held, site);
        }
        if !self.unseen.is_empty() {
            self.close_unseen(held, site);
        }
        for buffer in self.dead.drain(..) {
            // SAFETY: as in `cut_out`; it was in the list of those that are kept, and is not any more.
            unsafe { buffer.retire(site.guard) };
        }
        add(&site.counts.walked, std::mem::take(&mut self.walked));
    }

    #[inline]
    fn cut_out(&mut self, oldest: u64, site: &Site<'_>) {
        let (mut room, mut old) = (self.room, std::mem::take(&mut self.old));
        for Old { buffer, mut next } in old.drain(..) {
            let by = oldest.max(buffer.stamp());
            while let Some(image) = next
                && room > 0
            {
                if let Some((store, record)) = site.find(image) {
                    self.cut(store, record, image, by, site);
                }
                next = image.sibling();
                room -= 1;
            }
            if next.is_some() {
                // The next commit of any worker goes on with it.
                site.clock.history().unfinished.push(Old { buffer, next });
                continue;
            }
            // SAFETY: its images have left their chains, or their tables are gone.
            unsafe { buffer.retire(site.guard) };
        }
        self.old = old;
    }

    /// Takes all images that were committed by a moment, of which `image` is one, out of their chain, for nobody undoes them any more. The
    /// chain is cut once: whoever comes with another one of them finds it short.
    #[inline]
    fn cut(&mut self, store: &Relation, record: Record<'_>, image: Undo, by: u64, site: &Site<'_>) {
        self.walked += 1;
        if self.cut.has(image) {
            return;
        }
        let mut latched = record.latch();
        let (mut newer, mut next, mut steps): (Option<Undo>, _, _) = (None, latched.version(), 0);
        while let Some(present) = next.filter(|present| present.stamp() > by) {
            newer = next;
            next = present.older();
            steps += 1;
        }
        self.walked += steps;
        if steps > LongChains::LEAST {
            self.cut.note(image, by);
        }
        let Some(first) = next else { return };
        if let Some(newer) = newer {
            newer.set_older(None);
            return;
        }
        latched.set_version(None);
        if !latched.is_present() && !latched.is_closed() {
            latched.set_closed(true);
            drop(latched);
            site.unlink(store, record, first.key());
        }
    }

    #[inline(never)]
    fn thin_out(&mut self, held: &Held, site: &Site<'_>) {
        if (held.from, &held.single) != (self.thinned_for.0, &self.thinned_for.1) {
            self.thinned.clear();
            self.thinned_for.0 = held.from;
            self.thinned_for.1.clone_from(&held.single);
        }
        let mut thin_list = std::mem::take(&mut self.thin);
        for committed in thin_list.drain(..) {
            let buffer = committed.buffer;
            let (mut left, mut images, mut bytes) = (0, 0, 0);
            let moment = held.latest_before(committed.at);
            for image in buffer.images() {
                // Where the table is gone, its chains are, too; the buffer goes when it is old.
                if let Some((store, record)) = site.find(image) {
                    left += self.thin(store, record, image, moment, held, site);
                }
                if !image.has_left() {
                    images += 1;
                    bytes += image.bytes();
                }
            }
            self.gone += usize::saturating_sub(left, committed.images - images);
            if 2 * bytes < committed.bytes && images > 0 {
                move_out(&mut self.needed, committed, bytes, site);
            } else {
                keep_or_retire(&mut self.needed, Committed { images, ..committed }, site);
            }
        }
        self.thin = thin_list;
        if !self.needed.is_empty() {
            let mut history = site.clock.history();
            self.needed.drain(..).for_each(|needed| history.keep(needed));
        }
    }

    /// Takes every image out of a slot's chain that no moment that is read needs, of which `image` may be one; answers how many those were.
    /// `moment` is the latest one before its commit that is read.
    fn thin(
        &mut self,
        store: &Relation,
        record: Record<'_>,
        image: Undo,
        moment: Option<u64>,
        held: &Held,
        site: &Site<'_>,
    ) -> usize {
        self.walked += 1;
        let mut latched = record.latch();
        let left = if moment.is_some_and(|moment| is_known_to_go(&latched, image, moment)) {
            debug_assert!(!is_needed_now(image, site), "what is known of a slot is true");
            let older = image.older();
            latched.set_version(older);
            if older.is_some() {
                latched.settle();
            }
            leave(image, site.guard);
            1
        } else {
            let left = if self.thinned.has(image) { 0 } else { self.thin_chain(&mut latched, image, held, site) };
            if let Some(moment) = moment.filter(|_| !image.has_left()) {
                latched.note_restored(image, moment);
                // From now on the slot counts its words, so that they do not speak for it.
                image.set_over_settled(left_out(Step::RestoredByOthers) && image.is_over_settled());
            }
            left
        };
        left + usize::from(close_if_blank(store, record, latched, held, site))
    }

    /// Looks at a chain, of which `image` was found: past those that were committed too late, and at so many behind them.
    fn thin_chain(&mut self, latched: &mut Latched<'_>, image: Undo, held: &Held, site: &Site<'_>) -> usize {
        let (mut newer, mut next): (Option<Undo>, _) = (None, latched.version());
        let (mut left, mut late, mut looked_at) = (0, 0, 0);
        while let Some(present) = next
            && looked_at < late.max(THINNED_AT_ONCE)
        {
            next = present.older();
            let is_late = present.stamp() > held.from;
            late += u64::from(is_late);
            looked_at += u64::from(!is_late);
            if is_late || is_needed(present, held) {
                newer = Some(present);
                continue;
            }
            match newer {
                Some(newer) => newer.set_older(next),
                None => latched.set_version(next),
            }
            leave(present, site.guard);
            left += 1;
        }
        self.walked += late + looked_at;
        if late > LongChains::LEAST && next.is_none() {
            self.thinned.note(image, held.from);
        }
        if latched.version().is_some_and(|image| image.stamp() <= held.from || left_out(Step::AwaitWriters)) {
            latched.settle();
        }
        left
    }
}

impl Site<'_> {
    /// The slot of an image, if its table is there.
    #[inline]
    fn find(&self, image: Undo) -> Option<(&Relation, Record<'_>)> {
        let place = image.place();
        let table = self.tables.get(place.table.position())?.as_deref()?;
        let store = table.store(place.index).ok()?;
        // SAFETY: the image is of a slot of these rows.
        Some((store, unsafe { store.rows.record(image.row()) }))
    }

    /// Takes the key of a closed record out of its index. Its latch is not held any more.
    fn unlink(&self, store: &Relation, record: Record<'_>, key: &[u8]) {
        store.index().remove(key, record.handle(), self.guard);
        store.rows.give_back(record, self.epochs);
    }
}

/// Whether an image is needed by a snapshot of now: `Held` is older, and others may have taken out since what nobody needs any more.
fn is_needed_now(image: Undo, site: &Site<'_>) -> bool {
    let mut held = Held::default();
    site.clock.held(&mut held);
    let is_looked_at = image.stamp() <= held.from && held.latest_before(image.stamp()).is_some();
    is_looked_at && is_needed(image, &held) && !RESTORED_STEPS.into_iter().any(left_out)
}

/// Whether the newest image is not needed, as can be told without a look at older ones.
#[inline]
fn is_known_to_go(latched: &Latched<'_>, image: Undo, moment: u64) -> bool {
    latched.version() == Some(image) && image.is_over_settled() && latched.restored().has(image, moment)
}

/// Moves what is needed of a buffer, images of so many bytes, to memory of its own. Where there is none, it stays.
#[cold]
fn move_out(needed: &mut Vec<Committed>, committed: Committed, bytes: usize, site: &Site<'_>) {
    let buffer = committed.buffer;
    if let Ok(mut copies) = Copies::new(buffer, bytes, site.guard) {
        let mut moved = 0;
        for image in buffer.linked() {
            // Where the table is gone, snapshots may still have it.
            let Some((_, record)) = site.find(image) else { continue };
            let Some(copy) = copies.copy(image) else { break };
            if replace(record, image, copy) {
                moved += 1;
            } else {
                copy.leave();
            }
        }
        let (buffer, bytes) = copies.buffer();
        keep_or_retire(needed, Committed { buffer, bytes, images: moved, ..committed }, site);
    }
    keep_or_retire(needed, Committed { images: buffer.linked().count(), ..committed }, site);
}

/// Keeps a buffer if any of its images is in a chain.
fn keep_or_retire(needed: &mut Vec<Committed>, committed: Committed, site: &Site<'_>) {
    if committed.images > 0 {
        needed.push(committed);
    } else {
        // SAFETY: none of its images is in a chain; it was in a list, and is not any more.
        unsafe { committed.buffer.retire(site.guard) };
    }
}

/// Puts a copy in the place of an image that is needed. `false`: somebody else has taken it out of its chain.
pub(super) fn replace(record: Record<'_>, image: Undo, copy: Undo) -> bool {
    let mut latched = record.latch();
    let settled = latched.is_settled();
    let (mut newer, mut next) = (None, latched.version());
    while let Some(present) = next.filter(|present| *present != image) {
        newer = next;
        next = present.older();
    }
    if image.has_left() {
        return false;
    }
    image.leave();
    if next.is_none() {
        return false;
    }
    copy.set_older(image.older());
    copy.own_tail(image.own_tail(false));
    let after = if left_out(Step::MoveOut) { image.older() } else { Some(copy) };
    match newer {
        Some(newer) => Undo::set_older(newer, after),
        None => latched.set_version(after),
    }
    if settled {
        latched.settle();
    }
    true
}

/// A record that came and went where nobody looks shows nothing before and nothing after. Whether it was one.
fn close_if_blank(
    store: &Relation,
    record: Record<'_>,
    mut latched: Latched<'_>,
    held: &Held,
    site: &Site<'_>,
) -> bool {
    if latched.is_present() || latched.is_closed() {
        return false;
    }
    let Some(image) = latched.version() else { return false };
    let is_last = image.kind() == Kind::Insert && image.older().is_none() && image.stamp() <= held.from;
    if !is_last {
        return false;
    }
    latched.set_version(None);
    latched.set_closed(true);
    leave(image, site.guard);
    drop(latched);
    site.unlink(store, record, image.key());
    true
}

/// Closes a record whose newest image is a deletion, if it was inserted so late that no moment that is read shows a row. `false`: there are such
/// moments, and may be none later.
fn close_if_unseen(store: &Relation, record: Record<'_>, deletion: Undo, held: &Held, site: &Site<'_>) -> bool {
    let mut latched = record.latch();
    if latched.version() != Some(deletion) || latched.is_present() || latched.is_closed() {
        return true;
    }
    let last = std::iter::successors(Some(deletion), |image| image.older()).take(LIFE).last();
    let Some(came) = last.filter(|last| last.kind() == Kind::Insert && last.older().is_none()) else { return true };
    if !held.is_unseen(came.stamp(), deletion.stamp()) {
        return false;
    }
    latched.set_version(None);
    latched.set_closed(true);
    // The slot serves another key soon, of which its images say nothing.
    std::iter::successors(Some(deletion), |image| image.older()).for_each(|image| leave(image, site.guard));
    drop(latched);
    site.unlink(store, record, deletion.key());
    true
}

/// An image has left its chain, under the latch of its slot.
fn leave(image: Undo, guard: &Guard<'_>) {
    if image.own_tail(false)
        && let Some(Some(tail)) = image.tail()
    {
        // SAFETY: the image owned it, and is not found from now on.
        unsafe { tail.retire(guard) };
    }
    image.leave();
}

/// Whether any moment that is read needs an image.
fn is_needed(image: Undo, held: &Held) -> bool {
    let stamp = image.stamp();
    if stamp >= FIRST_ID || stamp > held.from {
        return true;
    }
    // One that is old is cut by who has its buffer, who then sees whether the slot is to be closed.
    let Some(moment) = held.latest_before(stamp) else { return true };
    let older = image.older().filter(|older| older.stamp() > moment);
    older.map_or_else(|| !is_blank(image), |older| !is_covered(image, older, moment))
}

/// Whether an image is only a lock.
fn is_blank(image: Undo) -> bool {
    image.kind() == Kind::Update && image.pieces().next().is_none() && image.tail().is_none()
}

/// Whether images from `older` on that are undone at `moment` put back all that `image` does.
fn is_covered(image: Undo, older: Undo, moment: u64) -> bool {
    let undone = || std::iter::successors(Some(older), |undo| undo.older()).take_while(|undo| undo.stamp() > moment);
    let has_tail = |undo: Undo| undo.kind() == Kind::Insert || undo.tail().is_some();
    let has_word = |undo: Undo, word: usize| {
        undo.kind() == Kind::Insert || undo.pieces().any(|(first, piece)| (first..first + piece.len()).contains(&word))
    };
    let mut words = image.pieces().flat_map(|(first, piece)| first..first + piece.len());
    left_out(Step::KeepWords)
        || words.all(|word| undone().any(|undo| has_word(undo, word)))
            && (image.tail().is_none() || undone().any(has_tail))
}
