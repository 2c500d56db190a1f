//! Workers that stand aside between two operations: they are in their epochs until they are told to leave.
//!
//! A worker that comes back and was told starts anew: what it had found is no longer protected. A transaction that is validated by what
//! it has found cannot do that. Its worker *shows its finds* ([`Finds`]): a leader that finds it aside in an epoch that has ended long ago
//! notes the addresses once, and only then is the epoch left. What is noted is not freed before the worker's pin ends, and everything else
//! is. So `left` passes over such a worker, and `readonly`, by which more than memory is measured, does not.
//!
//! The leader has the lock of the finds from before it tells the worker until the addresses are noted, and the worker takes it when it comes
//! back and was told; so the two never look at the finds at once.

use std::fmt;
use std::ptr::NonNull;

use polychron_sync::{MODELLED, Mutex, MutexGuard};

use super::*;
use crate::memory::lock;

/// For how many epochs a worker that shows its finds is left alone: short transactions are never asked.
const LONG: u64 = if MODELLED { 1 } else { 8 };

/// Addresses sorted for each epoch, at most on average: a thread that has found very much is asked seldom.
const ADDRESSES_PER_EPOCH: usize = 4096;

/// The finds of a worker that stands aside: blocks that it goes on using.
///
/// # Safety
/// [`Finds::each`] hands over an address inside of every block that the worker may look at behind its return and has found before it stood
/// aside. It reads only what the worker changes in its epochs, and not while it stands aside.
pub unsafe trait Finds: Send + Sync {
    /// Hands the addresses over, in any order.
    ///
    /// # Safety
    /// The worker stands aside until this returns, and what it did before happened before.
    unsafe fn each(&self, note: &mut dyn FnMut(usize));
}

/// The way in which one worker shows its finds, if it does.
type Shown = Mutex<Option<Arc<dyn Finds>>>;
type Asked<'n> = MutexGuard<'n, Option<Arc<dyn Finds>>>;

/// The finds that were shown by workers that have left their epochs.
pub(super) struct Noted {
    /// Indexed by slot. A thread that has the lock has the finds, too: a leader, or the worker as it comes back.
    shown: Box<[Shown]>,
    /// For leaders.
    notes: Mutex<Notes>,
    /// All addresses of the notes, sorted.
    addresses: Mutex<Arc<Vec<usize>>>,
}

/// The addresses of each slot.
#[derive(Debug, Default)]
struct Notes {
    of: Vec<(usize, Vec<usize>)>,
    /// The epoch in which they may be changed again.
    due: u64,
}

impl fmt::Debug for Noted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Noted").field("notes", &self.notes).finish_non_exhaustive()
    }
}

impl Noted {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            shown: (0..slots).map(|_| Mutex::new(None)).collect(),
            notes: Mutex::default(),
            addresses: Mutex::new(Arc::default()),
        }
    }
}

/// The oldest epochs in which workers are.
pub(super) struct Oldest {
    /// Of all, those too that have left it with their finds noted.
    pub(super) pinned: u64,
    /// Of all but those.
    pub(super) unnoted: u64,
}

#[inline]
fn is_aside(word: u64) -> bool {
    word != IDLE && word & ASIDE != 0
}

impl Slot {
    /// The worker, which is pinned in an epoch and follows no links between versions, stands aside: when it is told to leave, it has left
    /// its epoch. The caller owns the slot.
    #[inline]
    pub(crate) fn stand_aside(&self) {
        // Release: pairs with the acquire load of the leader's scan.
        self.active.store(self.active.load(Ordering::Relaxed) | ASIDE, Ordering::Release);
    }

    /// The worker comes back from aside, if it is there. `false`: it was told to leave the epoch, and may have done so
    /// ([`Epochs::has_stayed`]).
    #[inline]
    pub(crate) fn come_back(&self) -> bool {
        let word = self.active.load(Ordering::Relaxed);
        if word & ASIDE == 0 {
            return true;
        }
        let epoch = word & !ASIDE;
        self.active.store(epoch, Ordering::Relaxed);
        // Barrier: pairs with the one in `oldest_active`. Either the leader sees the word behind it, or this load sees the leader's.
        barriers::light();
        self.notified.load(Ordering::Relaxed) != epoch
    }
}

impl Epochs {
    /// [`Slot::stand_aside`] of one.
    #[cfg(all(test, loom))]
    pub(crate) fn stand_aside(&self, slot: usize) {
        self.slots[slot].stand_aside();
    }

    /// The worker comes back from aside, if it is there. `false`: it was told to leave the epoch meanwhile, and must be pinned anew. The
    /// caller owns the slot and is pinned.
    #[cfg(all(test, loom))]
    pub(crate) fn come_back(&self, slot: usize) -> bool {
        self.slots[slot].come_back() || self.has_stayed(slot)
    }

    /// The words of a slot.
    pub(crate) fn slot(&self, slot: usize) -> NonNull<Slot> {
        NonNull::from(&*self.slots[slot])
    }

    /// Whether a worker that was told to leave came back before its finds were noted. The caller owns the slot and has come back.
    #[cold]
    pub(crate) fn has_stayed(&self, slot: usize) -> bool {
        let Slot { active, gone, shows, .. } = &*self.slots[slot];
        // Where a leader looks at the finds just now, this waits for it.
        shows.load(Ordering::Relaxed) && {
            let _finds = lock(&self.noted.shown[slot]);
            gone.load(Ordering::Relaxed) != active.load(Ordering::Relaxed)
        }
    }

    /// From now on the worker shows what it has found, or no longer does. The caller owns the slot and is in no epoch.
    pub(crate) fn show_finds(&self, slot: usize, finds: Option<Arc<dyn Finds>>) {
        self.slots[slot].shows.store(finds.is_some(), Ordering::Relaxed);
        let old = std::mem::replace(&mut *lock(&self.noted.shown[slot]), finds);
        drop(old);
    }

    /// A number that changes with the addresses that are noted, odd if there are any.
    #[inline]
    pub(crate) fn noted(&self) -> u64 {
        // Acquire: pairs with the release in `change_notes`: uses of what is no longer noted came before.
        self.horizons.noted.load(Ordering::Acquire)
    }

    /// The addresses that are noted, sorted: those of the number that was read before, or newer ones.
    pub(crate) fn noted_addresses(&self) -> Arc<Vec<usize>> {
        Arc::clone(&lock(&self.noted.addresses))
    }

    /// The oldest epochs in which workers are. Those that stand aside in old ones are told to leave.
    pub(super) fn oldest_active(&self, slots: &[CachePadded<Slot>], current: u64) -> Oldest {
        // Acquire: as in `scan`; what a worker did before it stood aside happened before, too.
        let words = || slots.iter().enumerate().map(|(at, slot)| (at, slot, slot.active.load(Ordering::Acquire)));
        let may_note = current >= lock(&self.noted.notes).due;
        let (mut notifies, mut asked) = (false, Vec::new());
        for (at, slot, word) in words() {
            let epoch = word & !ASIDE;
            // Relaxed, as below: only leaders write it.
            if !is_aside(word) || epoch >= current || slot.gone.load(Ordering::Relaxed) == epoch {
                continue;
            }
            if slot.shows.load(Ordering::Relaxed) {
                let is_long = epoch + LONG <= current && may_note;
                // A thread that comes back just now has them.
                let Some(Ok(finds)) = is_long.then(|| self.noted.shown[at].try_lock()) else { continue };
                asked.push((at, finds));
            }
            slot.notified.store(epoch, Ordering::Relaxed);
            notifies = true;
        }
        // Barrier: pairs with the one in `come_back`. A thread that stands aside behind it sees what it was told when it comes back.
        let is_heard = notifies && barriers::heavy();
        self.change_notes(slots, current, if is_heard { asked } else { Vec::new() });
        let mut oldest = Oldest { pinned: IDLE, unnoted: IDLE };
        for (_, slot, word) in words().filter(|(.., word)| *word != IDLE) {
            let epoch = word & !ASIDE;
            let is_notified = is_aside(word) && is_heard && slot.notified.load(Ordering::Relaxed) == epoch;
            if is_notified && !slot.shows.load(Ordering::Relaxed) {
                slot.gone.store(epoch, Ordering::Relaxed);
            }
            // Acquire: pairs with the release in `unpin`.
            oldest.pinned = oldest.pinned.min(slot.since.load(Ordering::Acquire));
            if !is_aside(word) || slot.gone.load(Ordering::Relaxed) != epoch {
                oldest.pinned = oldest.pinned.min(epoch);
                oldest.unnoted = oldest.unnoted.min(epoch);
            }
        }
        oldest
    }

    /// Notes what workers show that were asked and still stand aside, and forgets what was noted of those whose pins have ended. The caller
    /// leads, and has passed the barrier if it has asked.
    fn change_notes(&self, slots: &[CachePadded<Slot>], current: u64, asked: Vec<(usize, Asked<'_>)>) {
        let mut notes = lock(&self.noted.notes);
        if current < notes.due || notes.of.is_empty() && asked.is_empty() {
            return;
        }
        let before = notes.of.len();
        // Acquire: pairs with the release in `unpin`.
        notes.of.retain(|(at, _)| slots[*at].since.load(Ordering::Acquire) != IDLE);
        let mut is_changed = notes.of.len() < before;
        // The locks are freed at the end, when all is published.
        for (at, finds) in &asked {
            // Acquire: as in `oldest_active`.
            let (slot, word) = (&slots[*at], slots[*at].active.load(Ordering::Acquire));
            let epoch = word & !ASIDE;
            let Some(finds) =
                finds.as_ref().filter(|_| is_aside(word) && slot.notified.load(Ordering::Relaxed) == epoch)
            else {
                continue;
            };
            let mut addresses = Vec::new();
            // SAFETY: the worker stands aside behind the barrier, so when it comes back it sees that it was told, and waits for the lock.
            unsafe { finds.each(&mut |address| addresses.push(address)) };
            // What it has found in epochs before and goes on using is among these.
            notes.of.retain(|(of, _)| of != at);
            notes.of.push((*at, addresses));
            slot.gone.store(epoch, Ordering::Relaxed);
            if slot.since.load(Ordering::Relaxed) == IDLE {
                slot.since.store(epoch, Ordering::Relaxed);
            }
            is_changed = true;
        }
        if is_changed {
            let mut addresses: Vec<usize> = notes.of.iter().flat_map(|(_, addresses)| addresses).copied().collect();
            notes.due = current + (addresses.len() / ADDRESSES_PER_EPOCH) as u64;
            addresses.sort_unstable();
            let number = (self.horizons.noted.load(Ordering::Relaxed) | 1) + if addresses.is_empty() { 1 } else { 2 };
            *lock(&self.noted.addresses) = Arc::new(addresses);
            // Release: pairs with the acquire in `noted`. Before `left` is published, so a thread that sees that sees this.
            self.horizons.noted.store(number, Ordering::Release);
        }
    }
}
