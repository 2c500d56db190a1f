//! Collection: at every commit, what no transaction undoes any more goes (§2.4 of the paper).
//!
//! * A buffer that committed no later than every timestamp that is read is *old*: its images leave their chains, with all that is older, and
//!   the buffer goes when no guard is left under which anybody may stand on it.
//! * Behind a long snapshot, a buffer that no transaction will validate against is *thinned*: an image leaves its chain when no timestamp
//!   that is read lies between it and the next older one, and older ones that are undone with it keep all that it keeps. Where little of
//!   a buffer is needed, that moves to memory of its own, and the buffer goes at once: so it serves again while it is in the cache. Where the
//!   slot's [`Restored`](super::restored::Restored) words tell that older images put back all that a new one does, those are not even looked at.
//! * A record that shows no row to anybody is closed, its key leaves the index, and its slot serves again.

mod sweeps;

use std::sync::Arc;

use polychron_base::room::ROOM;
use polychron_engine::catalog::{self, Catalog};
use polychron_engine::mutations::left_out;
use polychron_engine::redo::Redo;
use polychron_memory::{Epochs, Guard};

use super::chains::LongChains;
use super::clock::{Again, Clock, Committed, Held, History, Old};
use super::counts::{Counts, add};
use super::elsewhere::Dropped;
use super::needed::is_needed;
use super::rows::{Latched, Record};
use super::steps::Step;
use super::table::{HyperTable, Relation};
use super::transaction::HyperTransaction;
use super::undo::{Buffer, Copies, Kind, Undo};

/// Images that are seen to at one commit, besides twice as many as it has made itself: so a backlog drains in slices, and is not added to.
const AT_ONCE: usize = 16;
/// Images that are looked at under one latch while a chain is thinned, or as many as had to be passed.
const THINNED_AT_ONCE: u64 = 1024;
/// Commits with deletions that are looked at again at once.
const LOOKED_AT_AGAIN: usize = 16;
/// Kept buffers that are looked at in one slice of a sweep.
const SWEPT_AT_ONCE: usize = 128;

/// What makes it true that the slot tells.
const RESTORED_STEPS: [Step; 3] = [Step::RestoredTimestamps, Step::RestoredWords, Step::RestoredByOthers];

/// One image that has gone, of so many that are kept, has the list gone through.
const SWEEP_AT: usize = 4;

/// Buffers that one worker has taken from the list to see to.
#[derive(Debug, Default)]
pub(super) struct Collector {
    /// The worker's slot of the clock.
    slot: usize,
    old: Vec<Old>,
    thin: Vec<Committed>,
    /// What is thinned while it stays in its list, and how often its deletions were looked at.
    behind: Vec<(Committed, u32)>,
    /// The same of what is left of it.
    left: Vec<(Committed, u32)>,
    /// Places of what a sweep has found.
    swept: Vec<(u64, usize)>,
    /// Images that have left their chains besides those of the buffer that was thinned: places of their buffers, and how many in a row.
    others: Vec<((u64, usize), usize)>,
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
    /// The same of those that were thinned, for the timestamps that were read then.
    thinned: LongChains,
    thinned_for: (u64, Vec<u64>),
    /// Images that were looked at.
    walked: u64,
}

/// Where collection happens.
pub(super) struct Site<'s> {
    pub(super) clock: &'s Clock,
    /// The tables that the collector knows, and where others are found.
    pub(super) tables: &'s [Option<Arc<HyperTable>>],
    pub(super) catalog: &'s Catalog<HyperTable>,
    pub(super) dropped: &'s Dropped,
    pub(super) epochs: &'s Epochs,
    pub(super) guard: &'s Guard<'s>,
    pub(super) counts: &'s Counts,
}

impl<R: Redo> HyperTransaction<'_, R> {
    /// Sees to what the commit has taken from the list.
    #[inline]
    pub(super) fn collect(&mut self) {
        let shared = self.shared;
        let site = Site {
            clock: &shared.clock,
            tables: &self.state.base.tables,
            catalog: &shared.catalog,
            dropped: &shared.dropped,
            epochs: shared.memory.epochs(),
            guard: &self.guard,
            counts: &shared.counts[self.state.base.slot],
        };
        self.state.collector.work(&self.state.held, &site);
    }
}

impl Collector {
    pub(super) fn new(slot: usize) -> Self {
        Self { slot, ..Self::default() }
    }

    /// The most buffers that a list has room for.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn buffers_room(&self) -> usize {
        [self.old.capacity(), self.thin.capacity(), self.behind.capacity()]
            .into_iter()
            .fold(self.dead.capacity(), usize::max)
    }

    /// Takes from the list what may be collected, for a slice of some more images than the caller has `made`; under its lock. Whether anything
    /// was taken.
    #[inline]
    pub(super) fn take_ready(&mut self, held: &mut Held, history: &mut History, clock: &Clock, made: usize) -> bool {
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
        while room > 0
            && let Some(next) = history.pop_behind(oldest)
        {
            room = room.saturating_sub(next.images.max(1));
            self.old.push(Old::new(next.buffer));
        }
        if !held.single.is_empty() {
            let mut room = self.room;
            while room > 0
                && let Some(next) = history.recent.pop_front_if(|next| next.at <= held.from)
            {
                room = room.saturating_sub(next.images.max(1));
                self.thin.push(history.forget(next));
            }
            while room > 0
                && let Some(next) = history.pop_behind(held.from)
            {
                room = room.saturating_sub(next.images.max(1));
                self.thin.push(next);
            }
        }
        if held.upto > held.from {
            self.take_behind(held, history, clock);
        } else if history.behind.is_empty() {
            history.again.clear();
        }
        if history.kept_images > 0 || history.is_sweeping || !history.kept.is_empty() {
            self.take_kept(oldest, history, room);
        }
        history.give_back_room();
        !self.old.is_empty() || !self.thin.is_empty() || !self.behind.is_empty() || !self.dead.is_empty()
    }

    /// Takes what lies behind a transaction that may write, or behind who compares: it stays in its list, for those will look there.
    #[inline(never)]
    fn take_behind(&mut self, held: &mut Held, history: &mut History, clock: &Clock) {
        clock.add_listed(held);
        for _ in 0..LOOKED_AT_AGAIN {
            let Some(again) = history.again.pop_front_if(|again| again.after <= held.upto) else { break };
            // What has left the list was collected meanwhile.
            let committed = history.take_in_hand(again.position, self.slot);
            self.behind.extend(committed.map(|committed| (committed, again.times)));
        }
        // Of an older backlog the rest comes first.
        if history.recent.front().is_some_and(|next| next.at > held.from) {
            let mut room = self.room;
            while room > 0
                && let Some(next) = history.put_behind(held.upto, self.slot)
            {
                room = room.saturating_sub(next.images.max(1));
                self.behind.push((next, 0));
            }
        }
        if history.behind_swept.is_some() || SWEEP_AT * history.behind_gone > history.behind_images + AT_ONCE {
            self.sweep_behind(history, SWEPT_AT_ONCE);
        }
    }

    fn take_kept(&mut self, oldest: u64, history: &mut History, mut room: usize) {
        while room > 0
            && let Some(next) = history.pop_kept(oldest)
        {
            room = room.saturating_sub(next.images.max(1));
            self.old.push(Old::new(next.buffer));
        }
        history.gone_images += std::mem::take(&mut self.gone);
        if history.is_sweeping || SWEEP_AT * history.gone_images > history.kept_images + AT_ONCE {
            self.sweep(history, SWEPT_AT_ONCE);
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
        if !self.behind.is_empty() {
            self.thin_behind(held, site);
        }
        for buffer in self.dead.drain(..) {
            // SAFETY: none of its images is in a chain; it was in a list, and is not any more.
            unsafe { buffer.retire(site.guard) };
        }
        self.dead.shrink_to(ROOM);
        add(&site.counts.walked, std::mem::take(&mut self.walked));
    }

    #[inline]
    fn cut_out(&mut self, oldest: u64, site: &Site<'_>) {
        let (mut room, mut old) = (self.room, std::mem::take(&mut self.old));
        for Old { buffer, mut next } in old.drain(..) {
            let by = oldest.max(buffer.stamp());
            while let Some(kept) = next
                && room > 0
            {
                // SAFETY: the buffer is in this worker's hands, who gives it back below.
                let image = unsafe { kept.under(site.guard) };
                site.visit(image, |store, record| self.cut(store, record, image, by, site));
                next = image.sibling().map(Undo::kept);
                room -= 1;
            }
            if next.is_some() {
                // The next commit of any worker goes on with it.
                site.clock.history().unfinished.push(Old { buffer, next });
                continue;
            }
            // SAFETY: its images have left their chains, or nobody has their tables any more.
            unsafe { buffer.retire(site.guard) };
        }
        old.shrink_to(ROOM);
        self.old = old;
    }

    /// Takes all images that were committed by a timestamp, of which `image` is one, out of their chain, for nobody undoes them any more. The
    /// chain is cut once: whoever comes with another one of them finds it short.
    #[inline]
    fn cut(&mut self, store: &Relation, record: Record<'_>, image: Undo<'_>, by: u64, site: &Site<'_>) {
        self.walked += 1;
        if self.cut.has(image) {
            return;
        }
        let mut latched = record.latch();
        let (mut newer, mut next, mut steps): (Option<Undo<'_>>, _, _) = (None, latched.version(site.guard), 0);
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
            let is_beside = latched.close();
            drop(latched);
            site.unlink(store, record, first.key(), is_beside);
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
            self.thin_one(committed, held, site);
        }
        self.gone += self.others.drain(..).map(|(_, images)| images).sum::<usize>();
        thin_list.shrink_to(ROOM);
        self.thin = thin_list;
        if !self.needed.is_empty() {
            let mut history = site.clock.history();
            self.needed.drain(..).for_each(|needed| history.keep(needed));
        }
        self.needed.shrink_to(ROOM);
    }

    /// Thins what lies behind a transaction that may write. It stays in its list until what is left of it comes there: whoever lists what was
    /// committed since finds the one or the other.
    #[inline(never)]
    fn thin_behind(&mut self, held: &Held, site: &Site<'_>) {
        let mut list = std::mem::take(&mut self.behind);
        for (committed, times) in list.drain(..) {
            self.thin_one(committed, held, site);
            self.left.extend(self.needed.drain(..).map(|needed| (needed, times)));
        }
        let mut history = site.clock.history();
        history.empty_hand(self.slot);
        for (left, times) in self.left.drain(..) {
            history.keep_behind(left);
            if left.has_deleted && left.buffer.linked().any(|image| image.kind() == Kind::Delete) {
                history.again.extend(Again::new(left.position(), times + 1, held.later));
            }
        }
        for (position, images) in self.others.drain(..) {
            self.dead.extend(history.have_left(position, images));
        }
        drop(history);
        list.shrink_to(ROOM);
        self.behind = list;
        self.left.shrink_to(ROOM);
        self.others.shrink_to(ROOM);
    }

    /// Takes out of their chains what nobody needs of a buffer and of what is older, and notes what is left of it.
    fn thin_one(&mut self, committed: Committed, held: &Held, site: &Site<'_>) {
        let buffer = committed.buffer;
        let (mut images, mut bytes) = (0, 0);
        let timestamp = held.latest_before(committed.at);
        for image in buffer.images() {
            if image.has_left() {
                continue;
            }
            // Where the table is gone, its chains are, too; the buffer goes when it is old.
            site.visit(image, |store, record| self.thin(store, record, image, timestamp, held, site));
            if !image.has_left() {
                images += 1;
                bytes += image.bytes();
            }
        }
        if 2 * bytes < committed.bytes && images > 0 {
            self.move_out(committed, bytes, site);
        } else {
            self.keep_or_retire(Committed { images, ..committed });
        }
    }

    /// An image has left its chain while a buffer was thinned.
    fn note_left(&mut self, image: Undo<'_>, thinned: Buffer) {
        let buffer = image.buffer();
        if buffer == thinned {
            return;
        }
        let position = (buffer.stamp(), buffer.address());
        match self.others.last_mut() {
            Some((last, images)) if *last == position => *images += 1,
            _ => self.others.push((position, 1)),
        }
    }

    /// Moves what is needed of a buffer, images of so many bytes, to memory of its own. Where there is none, it stays.
    #[cold]
    fn move_out(&mut self, committed: Committed, bytes: usize, site: &Site<'_>) {
        let buffer = committed.buffer;
        if let Ok(mut copies) = Copies::new(buffer, bytes, site.guard) {
            let mut moved = 0;
            for image in buffer.linked() {
                let copied = site.visit(image, |_, record| {
                    let copy = copies.copy(image)?;
                    let is_replaced = replace(record, image, copy, site.guard);
                    if !is_replaced {
                        copy.leave();
                    }
                    Some(is_replaced)
                });
                match copied {
                    Some(Some(is_replaced)) => moved += usize::from(is_replaced),
                    // There is no room for more.
                    Some(None) => break,
                    None => {}
                }
            }
            let (buffer, bytes) = copies.buffer();
            self.keep_or_retire(Committed { buffer, bytes, images: moved, ..committed });
        }
        self.keep_or_retire(Committed { images: buffer.linked().count(), ..committed });
    }

    /// Keeps a buffer if any of its images is in a chain.
    fn keep_or_retire(&mut self, committed: Committed) {
        if committed.images > 0 {
            self.needed.push(committed);
        } else {
            self.dead.push(committed.buffer);
        }
    }

    /// Takes every image out of a slot's chain that no timestamp that is read needs, of which `image` may be one.
    /// `timestamp` is the latest one before its commit that is read.
    fn thin(
        &mut self,
        store: &Relation,
        record: Record<'_>,
        image: Undo<'_>,
        timestamp: Option<u64>,
        held: &Held,
        site: &Site<'_>,
    ) {
        self.walked += 1;
        let mut latched = record.latch();
        if timestamp.is_some_and(|timestamp| is_known_to_go(&latched, image, timestamp, site)) {
            debug_assert!(!is_needed_now(image, site), "what is known of a slot is true");
            let older = image.older();
            latched.set_version(older);
            if older.is_some() {
                latched.mark_all_visible();
            }
            leave(image, site.guard);
        } else {
            if !self.thinned.has(image) {
                self.thin_chain(&mut latched, image, held, site);
            }
            if let Some(timestamp) = timestamp.filter(|_| !image.has_left()) {
                latched.note_restored(image, timestamp);
                // From now on the slot counts its words, so that they do not speak for it.
                image.set_over_all_visible(left_out(Step::RestoredByOthers) && image.is_over_all_visible());
            }
        }
        if let Some(closed) = close_or_displace(store, record, latched, held, site) {
            self.note_left(closed, image.buffer());
        }
    }

    /// Looks at a chain, of which `image` was found: past those that were committed too late, and at so many behind them.
    fn thin_chain(&mut self, latched: &mut Latched<'_>, image: Undo<'_>, held: &Held, site: &Site<'_>) {
        let (mut newer, mut next): (Option<Undo<'_>>, _) = (None, latched.version(site.guard));
        let (mut late, mut looked_at) = (0, 0);
        while let Some(present) = next
            && looked_at < late.max(THINNED_AT_ONCE)
        {
            next = present.older();
            let stamp = present.stamp();
            let is_late = stamp > held.upto;
            late += u64::from(is_late);
            looked_at += u64::from(!is_late);
            if is_late || is_needed(present, held) {
                newer = Some(present);
                continue;
            }
            if let Some(older) = next.filter(|_| stamp > held.from && !left_out(Step::StandForNewer)) {
                older.take_over(present);
            }
            match newer {
                Some(newer) => newer.set_older(next),
                None => latched.set_version(next),
            }
            leave(present, site.guard);
            self.note_left(present, image.buffer());
        }
        self.walked += late + looked_at;
        if late > LongChains::LEAST && next.is_none() {
            self.thinned.note(image, held.from);
        }
        if latched.version(site.guard).is_some_and(|image| image.stamp() <= held.from || left_out(Step::AwaitWriters)) {
            latched.mark_all_visible();
        }
    }
}

impl Site<'_> {
    /// Visits the slot of an image, if anybody has its table and the slot's page is there: where it has left, the image has left its chain, too.
    #[inline]
    fn visit<O>(&self, image: Undo<'_>, visit: impl FnOnce(&Relation, Record<'_>) -> O) -> Option<O> {
        let index_ref = image.index_ref();
        let known = catalog::known(self.tables, index_ref.table);
        let kept;
        let store = match known.and_then(|table| table.store(index_ref.index).ok()) {
            Some(store) => store,
            None => {
                kept = self.dropped.find(self.catalog, index_ref)?;
                &kept
            }
        };
        // The image is of a slot of these rows.
        Some(visit(store, store.rows.find(image.row())?))
    }

    /// Takes the key of a closed record out of the index that it is in. Its latch is not held any more.
    fn unlink(&self, store: &Relation, record: Record<'_>, key: &[u8], is_beside: bool) {
        let index = if is_beside { store.displaced.index() } else { Some(store.index()) };
        // Who meets a closed record in its index helps.
        let _ = index.map(|index| index.remove(key, record.handle(), self.guard));
        if store.rows.give_back(record, self.epochs) {
            store.rows.release_pages(self.epochs, self.guard);
        }
    }
}

/// Whether an image is needed by a snapshot of now: `Held` is older, and others may have taken out since what nobody needs any more.
fn is_needed_now(image: Undo<'_>, site: &Site<'_>) -> bool {
    let mut held = Held::default();
    site.clock.held(&mut held);
    let is_looked_at = image.stamp() <= held.from && held.latest_before(image.stamp()).is_some();
    is_looked_at && is_needed(image, &held) && !RESTORED_STEPS.into_iter().any(left_out)
}

/// Whether the newest image is not needed, as can be told without a look at older ones.
#[inline]
fn is_known_to_go(latched: &Latched<'_>, image: Undo<'_>, timestamp: u64, site: &Site<'_>) -> bool {
    latched.version(site.guard) == Some(image)
        && image.is_over_all_visible()
        && latched.restored().has(image, timestamp)
}

/// Puts a copy in the place of an image that is needed. `false`: somebody else has taken it out of its chain.
pub(super) fn replace(record: Record<'_>, image: Undo<'_>, copy: Undo<'_>, guard: &Guard<'_>) -> bool {
    let mut latched = record.latch();
    let all_visible = latched.is_all_visible();
    let (mut newer, mut next) = (None, latched.version(guard));
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
    // What it has taken over since it was copied.
    copy.take_over(image);
    let after = if left_out(Step::MoveOut) { image.older() } else { Some(copy) };
    match newer {
        Some(newer) => Undo::set_older(newer, after),
        None => latched.set_version(after),
    }
    if all_visible {
        latched.mark_all_visible();
    }
    true
}

/// A record that came and went where nobody looks shows nothing before and nothing after: it is closed. One that only older transactions
/// see is displaced. The image that left its chain when it was closed; its memory stays under the guard.
fn close_or_displace<'s>(
    store: &Relation,
    record: Record<'_>,
    mut latched: Latched<'_>,
    held: &Held,
    site: &Site<'s>,
) -> Option<Undo<'s>> {
    if latched.is_present() || latched.is_closed() {
        return None;
    }
    let image = latched.version(site.guard)?;
    let is_last = image.kind() == Kind::Insert && image.older().is_none() && image.stamp() <= held.upto;
    if !is_last {
        let at = image.stamp();
        // Whoever began lately and sees it will have ended soon.
        if latched.is_in_index() && at <= held.upto {
            store.displace(&mut latched, record, image.key(), at, site.guard);
        }
        return None;
    }
    latched.set_version(None);
    let is_beside = latched.close();
    leave(image, site.guard);
    drop(latched);
    site.unlink(store, record, image.key(), is_beside);
    Some(image)
}

/// An image has left its chain, under the latch of its slot.
fn leave(image: Undo<'_>, guard: &Guard<'_>) {
    if image.own_tail(false)
        && let Some(Some(tail)) = image.tail()
    {
        // SAFETY: the image owned it, and is not found from now on.
        unsafe { tail.address().retire(guard) };
    }
    image.leave();
}
