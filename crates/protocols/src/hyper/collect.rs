//! Collection at every commit: frees what no transaction undoes (§2.4 of the paper).
//!
//! * A buffer is *old* when it committed no later than every timestamp that is read. Its before-images and all older
//!   ones leave their chains. The buffer is freed when no guard that could have found it is left.
//! * Behind a long snapshot, a buffer that no transaction will validate against is *pruned*. A before-image leaves its
//!   chain when no timestamp that is read lies between it and the next older one, and the older ones that are undone
//!   with it restore all that it restores. If little of a buffer is needed, that is copied and the buffer is freed at
//!   once, while it is in the cache. Before-images that the slot's [`Restored`](super::restored::Restored) words show
//!   to be redundant are not visited.
//! * A record that no transaction can see is closed, its key leaves the index, and its slot is reused.

mod replace;
mod sweeps;

use std::sync::Arc;

use polychron_base::room::ROOM;
use polychron_engine::catalog::{self, Catalog};
use polychron_engine::mutations::left_out;
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

pub(super) use replace::replace;

/// Before-images processed per commit, besides twice as many as it made itself, so that a backlog shrinks in slices.
const AT_ONCE: usize = 16;
/// Before-images that are looked at under one latch while a chain is pruned, or as many as had to be passed.
const PRUNED_AT_ONCE: u64 = 1024;
/// Commits with deletions that are looked at again at once.
const LOOKED_AT_AGAIN: usize = 16;
/// Kept buffers that are looked at in one slice of a sweep.
const SWEPT_AT_ONCE: usize = 128;

/// The steps on which `Restored` words rely.
const RESTORED_STEPS: [Step; 3] = [Step::RestoredTimestamps, Step::RestoredWords, Step::RestoredByOthers];

/// The list is swept when one of so many kept before-images has left its chain.
const SWEEP_AT: usize = 4;

/// Buffers that one worker has taken from the list.
#[derive(Debug, Default)]
pub(super) struct Collector {
    /// The worker's slot of the clock.
    slot: usize,
    old: Vec<Old>,
    to_prune: Vec<Committed>,
    /// What is pruned while it stays in its list, and how often its deletions were looked at.
    behind: Vec<(Committed, u32)>,
    /// The same of what is left of it.
    left: Vec<(Committed, u32)>,
    /// Positions of what a sweep has found.
    swept: Vec<(u64, usize)>,
    /// Before-images of other buffers that have left their chains: the positions of their buffers, and counts.
    others: Vec<((u64, usize), usize)>,
    /// Buffers of which nothing is left in any chain.
    dead: Vec<Buffer>,
    /// What was found to be needed by snapshots.
    needed: Vec<Committed>,
    /// Before-images of kept buffers that have left their chains and are not yet counted in the list.
    gone: usize,
    /// Before-images that may be cut out of their chains until the slice is over.
    room: usize,
    /// Rows whose chains are long, and by when all their before-images have been cut.
    cut: LongChains,
    /// The same of those that were pruned, for the timestamps that were read then.
    pruned: LongChains,
    pruned_for: (u64, Vec<u64>),
    /// Before-images that were looked at.
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

impl HyperTransaction<'_> {
    /// Sees to what the commit has taken from the list.
    #[inline]
    pub(super) fn collect(&mut self) {
        let shared = self.shared;
        let site = Site {
            clock: &shared.clock,
            tables: &self.state.base.tables,
            catalog: &shared.base.catalog,
            dropped: &shared.dropped,
            epochs: shared.base.memory.epochs(),
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
        [self.old.capacity(), self.to_prune.capacity(), self.behind.capacity()]
            .into_iter()
            .fold(self.dead.capacity(), usize::max)
    }

    /// Takes from the list what may be collected, under its lock: a slice of somewhat more before-images than the
    /// caller has `made`. Returns whether anything was taken.
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
            room = room.saturating_sub(next.before_images.max(1));
            self.old.push(history.forget_old(next));
        }
        while room > 0
            && let Some(next) = history.pop_behind(oldest)
        {
            room = room.saturating_sub(next.before_images.max(1));
            self.old.push(Old::new(next.buffer));
        }
        if !held.single.is_empty() {
            let mut room = self.room;
            while room > 0
                && let Some(next) = history.recent.pop_front_if(|next| next.at <= held.from)
            {
                room = room.saturating_sub(next.before_images.max(1));
                self.to_prune.push(history.forget(next));
            }
            while room > 0
                && let Some(next) = history.pop_behind(held.from)
            {
                room = room.saturating_sub(next.before_images.max(1));
                self.to_prune.push(next);
            }
        }
        if held.upto > held.from {
            self.take_behind(held, history, clock);
        } else if history.behind.is_empty() {
            history.again.clear();
        }
        if history.kept_before_images > 0 || history.is_sweeping || !history.kept.is_empty() {
            self.take_kept(oldest, history, room);
        }
        history.give_back_room();
        !self.old.is_empty() || !self.to_prune.is_empty() || !self.behind.is_empty() || !self.dead.is_empty()
    }

    /// Takes what lies behind a transaction that may write or validates. It stays in its list, where that transaction
    /// will look.
    #[inline(never)]
    fn take_behind(&mut self, held: &mut Held, history: &mut History, clock: &Clock) {
        clock.add_listed(held);
        for _ in 0..LOOKED_AT_AGAIN {
            let Some(again) = history.again.pop_front_if(|again| again.after <= held.upto) else { break };
            // What has left the list was collected meanwhile.
            let committed = history.take_to_prune(again.position, self.slot);
            self.behind.extend(committed.map(|committed| (committed, again.times)));
        }
        // Of an older backlog the rest comes first.
        if history.recent.front().is_some_and(|next| next.at > held.from) {
            let mut room = self.room;
            while room > 0
                && let Some(next) = history.put_behind(held.upto, self.slot)
            {
                room = room.saturating_sub(next.before_images.max(1));
                self.behind.push((next, 0));
            }
        }
        if history.behind_swept.is_some() || SWEEP_AT * history.behind_gone > history.behind_before_images + AT_ONCE {
            self.sweep_behind(history, SWEPT_AT_ONCE);
        }
    }

    fn take_kept(&mut self, oldest: u64, history: &mut History, mut room: usize) {
        while room > 0
            && let Some(next) = history.pop_kept(oldest)
        {
            room = room.saturating_sub(next.before_images.max(1));
            self.old.push(Old::new(next.buffer));
        }
        history.gone_before_images += std::mem::take(&mut self.gone);
        if history.is_sweeping || SWEEP_AT * history.gone_before_images > history.kept_before_images + AT_ONCE {
            self.sweep(history, SWEPT_AT_ONCE);
        }
    }

    /// Sees to what was taken.
    #[inline]
    pub(super) fn work(&mut self, held: &Held, site: &Site<'_>) {
        if !self.old.is_empty() {
            self.cut_out(held.oldest(), site);
        }
        if !self.to_prune.is_empty() {
            self.prune_buffers(held, site);
        }
        if !self.behind.is_empty() {
            self.prune_behind(held, site);
        }
        for buffer in self.dead.drain(..) {
            // SAFETY: none of its before-images is in a chain; it was in a list, and no longer is.
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
                // SAFETY: the buffer belongs to this worker, which retires it below.
                let before_image = unsafe { kept.under(site.guard) };
                site.visit(before_image, |store, record| self.cut(store, record, before_image, by, site));
                next = before_image.sibling().map(Undo::kept);
                room -= 1;
            }
            if next.is_some() {
                // The next commit of any worker goes on with it.
                site.clock.history().unfinished.push(Old { buffer, next });
                continue;
            }
            // SAFETY: its before-images have left their chains, or no thread still has their tables.
            unsafe { buffer.retire(site.guard) };
        }
        old.shrink_to(ROOM);
        self.old = old;
    }

    /// Takes all before-images committed up to `by`, `before_image` among them, out of their chain. The chain is cut
    /// once: later calls for the same chain find it short.
    #[inline]
    fn cut(&mut self, store: &Relation, record: Record<'_>, before_image: Undo<'_>, by: u64, site: &Site<'_>) {
        self.walked += 1;
        if self.cut.has(before_image) {
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
            self.cut.note(before_image, by);
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
    fn prune_buffers(&mut self, held: &Held, site: &Site<'_>) {
        if (held.from, &held.single) != (self.pruned_for.0, &self.pruned_for.1) {
            self.pruned.clear();
            self.pruned_for.0 = held.from;
            self.pruned_for.1.clone_from(&held.single);
        }
        let mut prune_list = std::mem::take(&mut self.to_prune);
        for committed in prune_list.drain(..) {
            self.prune_one(committed, held, site);
        }
        self.gone += self.others.drain(..).map(|(_, before_images)| before_images).sum::<usize>();
        prune_list.shrink_to(ROOM);
        self.to_prune = prune_list;
        if !self.needed.is_empty() {
            let mut history = site.clock.history();
            self.needed.drain(..).for_each(|needed| history.keep(needed));
        }
        self.needed.shrink_to(ROOM);
    }

    /// Prunes what lies behind a transaction that may write. The buffer stays in its list until its remainder replaces
    /// it, so that a validation finds one or the other.
    #[inline(never)]
    fn prune_behind(&mut self, held: &Held, site: &Site<'_>) {
        let mut list = std::mem::take(&mut self.behind);
        for (committed, times) in list.drain(..) {
            self.prune_one(committed, held, site);
            self.left.extend(self.needed.drain(..).map(|needed| (needed, times)));
        }
        let mut history = site.clock.history();
        history.end_pruning(self.slot);
        for (left, times) in self.left.drain(..) {
            history.keep_behind(left);
            if left.has_deleted && left.buffer.linked().any(|before_image| before_image.kind() == Kind::Delete) {
                history.again.extend(Again::new(left.position(), times + 1, held.later));
            }
        }
        for (position, before_images) in self.others.drain(..) {
            self.dead.extend(history.have_left(position, before_images));
        }
        drop(history);
        list.shrink_to(ROOM);
        self.behind = list;
        self.left.shrink_to(ROOM);
        self.others.shrink_to(ROOM);
    }

    /// Unlinks the before-images of a buffer, and older ones, that no transaction needs, and notes what is left.
    fn prune_one(&mut self, committed: Committed, held: &Held, site: &Site<'_>) {
        let buffer = committed.buffer;
        let (mut before_images, mut bytes) = (0, 0);
        let timestamp = held.latest_before(committed.at);
        for before_image in buffer.before_images() {
            if before_image.has_left() {
                continue;
            }
            // If the table was dropped, so are its chains; the buffer is freed when it is old.
            site.visit(before_image, |store, record| self.prune(store, record, before_image, timestamp, held, site));
            if !before_image.has_left() {
                before_images += 1;
                bytes += before_image.bytes();
            }
        }
        if 2 * bytes < committed.bytes && before_images > 0 {
            self.move_out(committed, bytes, site);
        } else {
            self.keep_or_retire(Committed { before_images, ..committed });
        }
    }

    /// Counts a before-image that left its chain while the buffer `pruned` was pruned.
    fn note_left(&mut self, before_image: Undo<'_>, pruned: Buffer) {
        let buffer = before_image.buffer();
        if buffer == pruned {
            return;
        }
        let position = (buffer.stamp(), buffer.address());
        match self.others.last_mut() {
            Some((last, before_images)) if *last == position => *before_images += 1,
            _ => self.others.push((position, 1)),
        }
    }

    /// Copies the needed before-images of a buffer, of so many bytes, to memory of their own. They stay if memory is
    /// short.
    #[cold]
    fn move_out(&mut self, committed: Committed, bytes: usize, site: &Site<'_>) {
        let buffer = committed.buffer;
        if let Ok(mut copies) = Copies::new(buffer, bytes, site.guard) {
            let mut moved = 0;
            for before_image in buffer.linked() {
                let copied = site.visit(before_image, |_, record| {
                    let copy = copies.copy(before_image)?;
                    let is_replaced = replace(record, before_image, copy, site.guard);
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
            self.keep_or_retire(Committed { buffer, bytes, before_images: moved, ..committed });
        }
        self.keep_or_retire(Committed { before_images: buffer.linked().count(), ..committed });
    }

    /// Keeps a buffer if any of its before-images is in a chain.
    fn keep_or_retire(&mut self, committed: Committed) {
        if committed.before_images > 0 {
            self.needed.push(committed);
        } else {
            self.dead.push(committed.buffer);
        }
    }

    /// Unlinks every before-image of a slot's chain that no timestamp that is read needs. `timestamp` is the latest
    /// one that is read before the commit of `before_image`.
    fn prune(
        &mut self,
        store: &Relation,
        record: Record<'_>,
        before_image: Undo<'_>,
        timestamp: Option<u64>,
        held: &Held,
        site: &Site<'_>,
    ) {
        self.walked += 1;
        let mut latched = record.latch();
        if timestamp.is_some_and(|timestamp| is_known_to_go(&latched, before_image, timestamp, site)) {
            debug_assert!(!is_needed_now(before_image, site), "what is known of a slot is true");
            let older = before_image.older();
            latched.set_version(older);
            if older.is_some() {
                latched.mark_all_visible();
            }
            leave(before_image, site.guard);
        } else {
            if !self.pruned.has(before_image) {
                self.prune_chain(&mut latched, before_image, held, site);
            }
            if let Some(timestamp) = timestamp.filter(|_| !before_image.has_left()) {
                latched.note_restored(before_image, timestamp);
                // From now on the slot counts its words.
                before_image
                    .set_over_all_visible(left_out(Step::RestoredByOthers) && before_image.is_over_all_visible());
            }
        }
        if let Some(closed) = close_or_displace(store, record, latched, held, site) {
            self.note_left(closed, before_image.buffer());
        }
    }

    /// Prunes a chain: skips before-images that were committed too late, and visits a limited number behind them.
    fn prune_chain(&mut self, latched: &mut Latched<'_>, before_image: Undo<'_>, held: &Held, site: &Site<'_>) {
        let (mut newer, mut next): (Option<Undo<'_>>, _) = (None, latched.version(site.guard));
        let (mut late, mut looked_at) = (0, 0);
        while let Some(present) = next
            && looked_at < late.max(PRUNED_AT_ONCE)
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
            self.note_left(present, before_image.buffer());
        }
        self.walked += late + looked_at;
        if late > LongChains::LEAST && next.is_none() {
            self.pruned.note(before_image, held.from);
        }
        if latched
            .version(site.guard)
            .is_some_and(|before_image| before_image.stamp() <= held.from || left_out(Step::AwaitWriters))
        {
            latched.mark_all_visible();
        }
    }
}

impl Site<'_> {
    /// Visits the slot of a before-image, if its table and its page exist. Otherwise the before-image has left its
    /// chain.
    #[inline]
    fn visit<O>(&self, before_image: Undo<'_>, visit: impl FnOnce(&Relation, Record<'_>) -> O) -> Option<O> {
        let index_ref = before_image.index_ref();
        let known = catalog::known(self.tables, index_ref.table);
        let kept;
        let store = match known.and_then(|table| table.store(index_ref.index).ok()) {
            Some(store) => store,
            None => {
                kept = self.dropped.find(self.catalog, index_ref)?;
                &kept
            }
        };
        Some(visit(store, store.rows.find(before_image.row())?))
    }

    /// Removes the key of a closed record from its index, without the latch.
    fn unlink(&self, store: &Relation, record: Record<'_>, key: &[u8], is_beside: bool) {
        let index = if is_beside { store.displaced.index() } else { Some(store.index()) };
        // A thread that finds a closed record in its index may have removed it.
        let _ = index.map(|index| index.remove(key, record.handle(), self.guard));
        if store.rows.free(record, self.epochs) {
            store.rows.release_pages(self.epochs, self.guard);
        }
    }
}

/// Whether a current snapshot needs a before-image. `Held` is older; other workers may have unlinked some since.
fn is_needed_now(before_image: Undo<'_>, site: &Site<'_>) -> bool {
    let mut held = Held::default();
    site.clock.held(&mut held);
    let is_looked_at = before_image.stamp() <= held.from && held.latest_before(before_image.stamp()).is_some();
    is_looked_at && is_needed(before_image, &held) && !RESTORED_STEPS.into_iter().any(left_out)
}

/// Whether the newest before-image is known not to be needed, without a look at older ones.
#[inline]
fn is_known_to_go(latched: &Latched<'_>, before_image: Undo<'_>, timestamp: u64, site: &Site<'_>) -> bool {
    latched.version(site.guard) == Some(before_image)
        && before_image.is_over_all_visible()
        && latched.restored().has(before_image, timestamp)
}

/// Closes a record that no transaction can see, and displaces one that only older transactions see. Returns the
/// before-image that left its chain when the record was closed; its memory stays under the guard.
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
    let before_image = latched.version(site.guard)?;
    let is_last =
        before_image.kind() == Kind::Insert && before_image.older().is_none() && before_image.stamp() <= held.upto;
    if !is_last {
        let at = before_image.stamp();
        // Recent transactions that see it will end soon.
        if latched.is_in_index() && at <= held.upto {
            store.displace(&mut latched, record, before_image.key(), at, site.guard);
        }
        return None;
    }
    latched.set_version(None);
    let is_beside = latched.close();
    leave(before_image, site.guard);
    drop(latched);
    site.unlink(store, record, before_image.key(), is_beside);
    Some(before_image)
}

/// Marks a before-image as unlinked, under the latch of its slot.
fn leave(before_image: Undo<'_>, guard: &Guard<'_>) {
    if before_image.own_out_of_line(false)
        && let Some(Some(out_of_line)) = before_image.out_of_line()
    {
        // SAFETY: the before-image owned it, and is not found from now on.
        unsafe { out_of_line.address().retire(guard) };
    }
    before_image.leave();
}
