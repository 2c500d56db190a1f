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

use super::clock::{Clock, Committed, Held, History};
use super::level::Level;
use super::rows::{Latched, Record};
use super::steps::Step;
use super::table::{HyperTable, Relation};
use super::transaction::HyperTransaction;
use super::undo::{Buffer, Copies, FIRST_ID, Kind, Undo};

/// Buffers that are taken at most at one commit.
const AT_ONCE: usize = 64;

/// What makes it true that the slot tells.
const RESTORED_STEPS: [Step; 3] = [Step::RestoredMoments, Step::RestoredWords, Step::RestoredByOthers];

/// One image that has gone, of so many that are kept, has the list gone through.
const SWEEP_AT: usize = 4;

/// Buffers that one worker has taken from the list to see to.
#[derive(Debug, Default)]
pub(super) struct Collector {
    old: Vec<Buffer>,
    thin: Vec<Committed>,
    /// Of which nothing is left in any chain.
    dead: Vec<Buffer>,
    /// What was found to be needed by snapshots.
    needed: Vec<Committed>,
    /// Images of kept buffers that have left their chains, and are not told to the list yet.
    gone: usize,
}

/// Where collection happens.
pub(super) struct Site<'s> {
    pub(super) clock: &'s Clock,
    pub(super) tables: &'s [Option<Arc<HyperTable>>],
    pub(super) epochs: &'s Epochs,
    pub(super) guard: &'s Guard<'s>,
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
        };
        self.state.collector.work(&self.state.held, &site);
    }
}

impl Collector {
    /// Takes from the list what may be collected; under its lock. Whether anything was taken.
    #[inline]
    pub(super) fn take_ready(&mut self, held: &Held, history: &mut History) -> bool {
        let oldest = held.oldest();
        let old = |committed: &mut Committed| committed.at <= oldest;
        for _ in 0..AT_ONCE {
            let Some(next) = history.recent.pop_front_if(old) else { break };
            self.old.push(history.forget(next).buffer);
        }
        if !held.single.is_empty() {
            for _ in 0..AT_ONCE {
                let Some(next) = history.recent.pop_front_if(|next| next.at <= held.from) else { break };
                self.thin.push(history.forget(next));
            }
        }
        if !history.kept.is_empty() {
            self.take_kept(oldest, history);
        }
        !self.old.is_empty() || !self.thin.is_empty() || !self.dead.is_empty()
    }

    fn take_kept(&mut self, oldest: u64, history: &mut History) {
        for _ in 0..AT_ONCE {
            let Some(next) = history.pop_kept(oldest) else { break };
            self.old.push(next.buffer);
        }
        history.gone_images += std::mem::take(&mut self.gone);
        if SWEEP_AT * history.gone_images > history.kept_images + AT_ONCE {
            self.sweep(history);
        }
    }

    /// Looks for kept buffers of which nothing is left, and for those of which little is: these are thinned again.
    #[cold]
    pub(super) fn sweep(&mut self, history: &mut History) {
        let (dead, thin) = (&mut self.dead, &mut self.thin);
        let (mut images, mut bytes) = (0, 0);
        history.kept.retain(|kept| {
            let linked = kept.buffer.linked().count();
            if linked == 0 {
                dead.push(kept.buffer);
            } else if 2 * linked <= kept.images {
                thin.push(*kept);
            } else {
                images += kept.images;
                return true;
            }
            bytes += kept.bytes;
            false
        });
        history.bytes -= bytes;
        (history.kept_images, history.gone_images) = (images, 0);
    }

    /// Sees to what was taken.
    #[inline]
    pub(super) fn work(&mut self, held: &Held, site: &Site<'_>) {
        for buffer in self.old.drain(..) {
            for image in buffer.images() {
                if let Some((store, record)) = site.find(image) {
                    cut(store, record, image, site);
                }
            }
            // SAFETY: its images have left their chains, or their tables are gone.
            unsafe { buffer.retire(site.guard) };
        }
        if !self.thin.is_empty() {
            self.thin_out(held, site);
        }
        for buffer in self.dead.drain(..) {
            // SAFETY: as above; it was in the list of those that are kept, and is not any more.
            unsafe { buffer.retire(site.guard) };
        }
    }

    #[inline(never)]
    fn thin_out(&mut self, held: &Held, site: &Site<'_>) {
        for committed in self.thin.drain(..) {
            let buffer = committed.buffer;
            let (mut left, mut images, mut bytes) = (0, 0, 0);
            let moment = held.latest_before(committed.at);
            for image in buffer.images() {
                // Where the table is gone, its chains are, too; the buffer goes when it is old.
                if let Some((store, record)) = site.find(image) {
                    left += thin(store, record, image, moment, held, site);
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
        if !self.needed.is_empty() {
            let mut history = site.clock.history();
            self.needed.drain(..).for_each(|needed| history.keep(needed));
        }
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

/// Takes an image that nobody undoes any more, and all that is older, out of its chain.
#[inline]
fn cut(store: &Relation, record: Record<'_>, image: Undo, site: &Site<'_>) {
    let mut latched = record.latch();
    if latched.version() != Some(image) {
        let mut newer = latched.version();
        while let Some(next) = newer {
            let older = next.older();
            if older == Some(image) {
                next.set_older(None);
                break;
            }
            newer = older;
        }
        return;
    }
    latched.set_version(None);
    if !latched.is_present() && !latched.is_closed() {
        latched.set_closed(true);
        drop(latched);
        site.unlink(store, record, image.key());
    }
}

/// Takes every image out of a slot's chain that no moment that is read needs, of which `image` may be one; answers how many those were.
/// `moment` is the latest one before its commit that is read.
fn thin(store: &Relation, record: Record<'_>, image: Undo, moment: Option<u64>, held: &Held, site: &Site<'_>) -> usize {
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
        let left = thin_chain(&mut latched, held, site);
        if let Some(moment) = moment.filter(|_| !image.has_left()) {
            latched.note_restored(image, moment);
            // From now on the slot counts its words, so that they do not speak for it.
            image.set_over_settled(left_out(Step::RestoredByOthers) && image.is_over_settled());
        }
        left
    };
    left + usize::from(close_if_blank(store, record, latched, held, site))
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

/// Looks at the whole chain.
fn thin_chain(latched: &mut Latched<'_>, held: &Held, site: &Site<'_>) -> usize {
    let (mut newer, mut next): (Option<Undo>, _) = (None, latched.version());
    let mut left = 0;
    while let Some(image) = next {
        next = image.older();
        if is_needed(image, held) {
            newer = Some(image);
            continue;
        }
        match newer {
            Some(newer) => newer.set_older(next),
            None => latched.set_version(next),
        }
        leave(image, site.guard);
        left += 1;
    }
    if latched.version().is_some_and(|image| image.stamp() <= held.from || left_out(Step::AwaitWriters)) {
        latched.settle();
    }
    left
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
        keep_or_retire(needed, Committed { at: committed.at, buffer, bytes, images: moved }, site);
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
