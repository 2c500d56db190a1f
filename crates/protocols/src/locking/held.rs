//! The locks that a transaction holds, and those that its next attempt will acquire.
//!
//! Requests lie in a stack of the worker: the n-th lock of a transaction is the n-th request. A small table beside it has the names that are held,
//! so that a lock that is held already costs no access to the shared table.

use polychron_base::room::{KeptList, ROOM};
use polychron_engine::mutations::pass;

use super::locks::{Answer, LockTable, Requests};
use super::steps::Point;
use super::wounds::{SpinBudget, Wounds};

/// Slots of the table of names, at first.
const FEWEST_SLOTS: usize = 64;

/// A lock by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lock {
    pub(super) name: u64,
    pub(super) exclusive: bool,
}

/// Whether a lock was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is held.
    Held,
    /// Another transaction holds it, or this one was wounded while it waited.
    Refused,
    /// Another transaction of the same thread holds it, which would wait for itself; or others do that may wait for that one.
    Own,
}

/// A slot of the table of names.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    name: u64,
    position: u32,
    /// The transaction that wrote it; the slot is empty for all others.
    era: u32,
}

/// The locks of a worker's running transaction.
#[derive(Debug)]
pub(super) struct Held {
    requests: Requests,
    slots: Vec<Slot>,
    era: u32,
    /// The requester of every request.
    pub(super) own: Wounds,
}

impl Held {
    /// No locks of a table.
    pub(super) fn new(table: &LockTable) -> Self {
        let slots = vec![Slot::default(); FEWEST_SLOTS];
        Self { requests: Requests::new(table), slots, era: 1, own: Wounds::default() }
    }

    /// The locks that are held, in the order in which they were acquired.
    #[inline]
    pub(super) fn locks(&self) -> &[Lock] {
        self.requests.locks()
    }

    /// The slot of a name, or the empty one where it would be.
    #[inline]
    fn slot(&self, name: u64) -> usize {
        let mask = self.slots.len() - 1;
        // The upper half of a name chooses its bucket; the lower one is as good.
        let mut at = name as usize & mask;
        while self.slots[at].era == self.era && self.slots[at].name != name {
            at = (at + 1) & mask;
        }
        at
    }

    /// The position of a lock that is held.
    #[inline]
    fn find(&self, name: u64) -> Option<usize> {
        let slot = self.slots[self.slot(name)];
        (slot.era == self.era).then_some(slot.position as usize)
    }

    #[inline]
    fn note(&mut self, name: u64, position: usize) {
        let at = self.slot(name);
        self.slots[at] = Slot { name, position: position as u32, era: self.era };
    }

    #[cold]
    fn grow(&mut self) {
        self.slots = vec![Slot::default(); 2 * self.slots.len()];
        for position in 0..self.locks().len() {
            self.note(self.locks()[position].name, position);
        }
    }

    /// Whether a lock is held, shared at least.
    #[inline]
    pub(super) fn has(&self, name: u64) -> bool {
        self.find(name).is_some()
    }

    /// A transaction of this age begins, in this thread.
    pub(super) fn begin(&mut self, age: u64) {
        debug_assert!(self.locks().is_empty(), "the transaction before released its locks");
        self.own.begin(age);
    }

    /// Acquires a lock that is not held, or makes a shared one exclusive; waits for it as `spin_budget` says. A transaction that queues requests
    /// locks that are not held. `around` calls the wait.
    #[inline(always)]
    pub(super) fn acquire(
        &mut self,
        lock: Lock,
        spin_budget: SpinBudget,
        around: impl FnOnce(&mut dyn FnMut()),
    ) -> Taken {
        let queued = |wait: &mut dyn FnMut()| {
            pass(Point::Queued);
            around(wait);
        };
        if let Some(position) = self.find(lock.name) {
            if lock.exclusive && !self.locks()[position].exclusive {
                let answer = self.requests.upgrade(position, &self.own, spin_budget, queued);
                return self.outcome(answer);
            }
            return Taken::Held;
        }
        let answer = self.requests.acquire(lock, &self.own, spin_budget, queued);
        if answer != Answer::Granted {
            return self.outcome(answer);
        }
        let held = self.locks().len();
        if 2 * held > self.slots.len() {
            self.grow();
        } else {
            self.note(lock.name, held - 1);
        }
        Taken::Held
    }

    fn outcome(&self, answer: Answer) -> Taken {
        match answer {
            Answer::Granted => Taken::Held,
            Answer::Own => Taken::Own,
            _ if self.own.is_worn_out() => Taken::Own,
            _ => Taken::Refused,
        }
    }

    /// Releases the lock that was acquired last.
    pub(super) fn release_latest(&mut self) {
        let Some(lock) = self.locks().last() else { return };
        // No name came behind it, so none is looked for beyond its slot.
        let slot = self.slot(lock.name);
        self.slots[slot].era = self.era.wrapping_sub(1);
        self.requests.release_from(self.locks().len() - 1);
    }

    /// Releases all locks.
    #[inline]
    pub(super) fn release(&mut self) {
        self.requests.release_from(0);
        self.era = self.era.wrapping_add(1);
        if self.era == 0 {
            self.slots.fill(Slot::default());
            self.era = 1;
        }
        if self.slots.len() > 2 * ROOM {
            self.shrink();
        }
    }

    /// Frees what a huge transaction has needed. No lock is held.
    #[cold]
    fn shrink(&mut self) {
        self.requests.shrink();
        self.slots = vec![Slot::default(); FEWEST_SLOTS];
    }

    /// How many locks have memory.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn room(&self) -> usize {
        self.requests.room().max(self.slots.len() / 2)
    }
}

/// The locks that an attempt acquires before it runs.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    locks: Vec<Lock>,
    /// Whether they are for the next transaction.
    pub(super) in_force: bool,
}

impl Wanted {
    /// Forgets all locks.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.locks.forget();
        self.in_force = false;
    }

    /// How many locks have memory.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn room(&self) -> usize {
        self.locks.room()
    }

    /// Adds a lock.
    #[inline]
    pub(super) fn add(&mut self, lock: Lock) {
        self.locks.push(lock);
    }

    /// The locks in the global order, each once and in its strongest mode.
    #[inline]
    pub(super) fn in_order(&mut self) -> &[Lock] {
        self.locks.sort_unstable_by_key(|lock| (lock.name, !lock.exclusive));
        self.locks.dedup_by_key(|lock| lock.name);
        &self.locks
    }

    /// Takes over all locks that an attempt held, and the one that it was refused.
    pub(super) fn remember(&mut self, held: &Held, missing: Option<Lock>) {
        self.locks.clear();
        self.locks.extend_from_slice(held.locks());
        self.locks.extend(missing);
    }
}
