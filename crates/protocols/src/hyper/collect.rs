//! Collection: at every commit, what no transaction undoes any more goes (§2.4 of the paper).
//!
//! * A buffer that committed no later than every moment that is read is *old*: its images leave their chains, with all that is older, and
//!   the buffer goes when no guard is left under which anybody may stand on it.
//! * Behind a long snapshot, a buffer that no transaction will validate against is *thinned*: an image leaves its chain when no moment
//!   that is read lies between it and the next older one, and older ones that are undone with it keep all that it keeps.
//! * A record that shows no row to anybody is closed, its key leaves the index, and its slot serves again.

use std::sync::Arc;

use polychron_engine::redo::Redo;
use polychron_memory::{Epochs, Guard};

use super::clock::{Clock, Committed, Held, History};
use super::level::Level;
use super::rows::{Latched, Record};
use super::table::{HyperTable, Relation};
use super::transaction::HyperTransaction;
use super::undo::{Buffer, FIRST_ID, Kind, Undo};

/// Buffers that are taken at most at one commit.
const AT_ONCE: usize = 64;

/// Buffers that one worker has taken from the list to see to.
#[derive(Debug, Default)]
pub(super) struct Collector {
    old: Vec<Buffer>,
    thin: Vec<Committed>,
    /// Of which nothing is left in any chain.
    dead: Vec<Buffer>,
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
            history.bytes -= next.bytes;
            self.old.push(next.buffer);
        }
        if !held.single.is_empty() {
            for _ in 0..AT_ONCE {
                let Some(next) = history.recent.pop_front_if(|next| next.at <= held.from) else { break };
                self.thin.push(next);
            }
        }
        if !history.kept.is_empty() {
            self.take_kept(oldest, history);
        }
        !self.old.is_empty() || !self.thin.is_empty() || !self.dead.is_empty()
    }

    #[cold]
    fn take_kept(&mut self, oldest: u64, history: &mut History) {
        while let Some(next) = history.kept.pop_front_if(|next| next.at <= oldest) {
            history.bytes -= next.bytes;
            self.old.push(next.buffer);
        }
        if history.kept.len() >= 2 * history.swept + AT_ONCE {
            self.sweep(history);
        }
    }

    /// Looks for kept buffers of which nothing is left.
    pub(super) fn sweep(&mut self, history: &mut History) {
        history.kept.retain(|kept| {
            let is_dead = kept.buffer.is_unlinked();
            if is_dead {
                self.dead.push(kept.buffer);
                history.bytes -= kept.bytes;
            }
            !is_dead
        });
        history.swept = history.kept.len();
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

    #[cold]
    fn thin_out(&mut self, held: &Held, site: &Site<'_>) {
        for committed in &self.thin {
            for image in committed.buffer.images() {
                // Where the table is gone, its chains are, too; the buffer goes when it is old.
                if let Some((store, record)) = site.find(image) {
                    thin(store, record, held, site);
                }
            }
        }
        site.clock.history().kept.extend(self.thin.drain(..));
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

/// Takes every image out of a slot's chain that no moment that is read needs.
fn thin(store: &Relation, record: Record<'_>, held: &Held, site: &Site<'_>) {
    let mut latched = record.latch();
    let (mut newer, mut next): (Option<Undo>, _) = (None, latched.version());
    while let Some(image) = next {
        next = image.older();
        if is_needed(image, store.rows.words(), held) {
            newer = Some(image);
            continue;
        }
        match newer {
            Some(newer) => newer.set_older(next),
            None => latched.set_version(next),
        }
        leave(image, site.guard);
    }
    close_if_blank(store, record, latched, held, site);
}

/// A record that came and went where nobody looks shows nothing before and nothing after.
fn close_if_blank(store: &Relation, record: Record<'_>, mut latched: Latched<'_>, held: &Held, site: &Site<'_>) {
    let Some(image) = latched.version() else { return };
    let is_last = image.kind() == Kind::Insert && image.older().is_none() && image.stamp() <= held.from;
    if is_last && !latched.is_present() && !latched.is_closed() {
        latched.set_version(None);
        latched.set_closed(true);
        drop(latched);
        leave(image, site.guard);
        site.unlink(store, record, image.key());
    }
}

/// An image has left its chain.
fn leave(image: Undo, guard: &Guard<'_>) {
    if image.own_tail(false)
        && let Some(Some(tail)) = image.tail()
    {
        // SAFETY: the image owned it, and is not found from now on.
        unsafe { tail.retire(guard) };
    }
    image.buffer().unlink();
}

/// Whether any moment that is read needs an image.
fn is_needed(image: Undo, words: usize, held: &Held) -> bool {
    let stamp = image.stamp();
    if stamp >= FIRST_ID || stamp > held.from {
        return true;
    }
    // One that is old is cut by who has its buffer, who then sees whether the slot is to be closed.
    let Some(moment) = held.latest_before(stamp) else { return true };
    let Some(older) = image.older().filter(|older| older.stamp() > moment) else { return true };
    !is_covered(image, older, moment, words)
}

/// Whether images from `older` on that are undone at `moment` put back all that `image` does.
fn is_covered(image: Undo, older: Undo, moment: u64, words: usize) -> bool {
    let mut missing: Vec<usize> = image.pieces().flat_map(|(first, piece)| first..first + piece.len()).collect();
    let mut tail_missing = image.tail().is_some();
    let mut next = Some(older).filter(|older| older.stamp() > moment);
    debug_assert!(missing.iter().all(|word| *word < words));
    while let Some(present) = next {
        if missing.is_empty() && !tail_missing || present.kind() == Kind::Insert {
            return true;
        }
        for (first, piece) in present.pieces() {
            missing.retain(|word| !(first..first + piece.len()).contains(word));
        }
        tail_missing &= present.tail().is_none();
        next = present.older().filter(|older| older.stamp() > moment);
    }
    missing.is_empty() && !tail_missing
}
