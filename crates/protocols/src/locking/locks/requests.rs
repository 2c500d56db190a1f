//! The requests of a transaction, which lie in memory of their own.

use std::sync::Arc;

use polychron_base::room::{KeptList, ROOM};
use polychron_engine::lazy::Condition;
use polychron_engine::mutations::left_out;
use polychron_sync::atomic::Ordering;

use super::super::held::Lock;
use super::super::steps::Step;
use super::super::wounds::{Requester, SpinBudget, Wounds};
use super::{Answer, LockTable, Request, State};

/// Requests that are allocated at a time; they never move.
const CHUNK: usize = 64;

/// The requests of a transaction: a stack, of which the n-th is in the table for the n-th lock. They are released when this is dropped.
#[derive(Debug)]
pub(in super::super) struct Requests {
    table: LockTable,
    locks: Vec<Lock>,
    /// As many requests as there are locks are in the table; no other thread knows the others.
    chunks: Vec<Arc<[Request]>>,
    /// The conditions of condition locks, and behind them unused ones. The requests point to the former, which do not change.
    conditions: Vec<Arc<Condition>>,
    conditions_used: usize,
    /// So many of the first requests are condition locks.
    converted: usize,
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.release_from(0);
    }
}

#[inline]
fn nth(chunks: &[Arc<[Request]>], position: usize) -> &Request {
    &chunks[position / CHUNK][position % CHUNK]
}

impl Requests {
    /// No requests in a table.
    pub(in super::super) fn new(table: &LockTable) -> Self {
        let (locks, chunks, conditions) = (Vec::new(), Vec::new(), Vec::new());
        Self { table: table.clone(), locks, chunks, conditions, conditions_used: 0, converted: 0 }
    }

    /// The locks that are held, in the order in which they were acquired.
    #[inline]
    pub(in super::super) fn locks(&self) -> &[Lock] {
        &self.locks
    }

    /// Those that are not condition locks.
    #[inline]
    pub(in super::super) fn unconverted(&self) -> &[Lock] {
        &self.locks[self.converted..]
    }

    #[inline]
    fn make_room(&mut self) {
        if self.locks.len() == CHUNK * self.chunks.len() {
            self.chunks.push((0..CHUNK).map(|_| Request::default()).collect());
        }
    }

    /// Acquires a lock that is not held. A request that has to wait goes into the list only when `spin_budget` says so; `around` calls the wait.
    #[inline]
    pub(in super::super) fn acquire(
        &mut self,
        lock: Lock,
        own: &Wounds,
        spin_budget: SpinBudget,
        around: impl FnOnce(&mut dyn FnMut()),
    ) -> Answer {
        match self.request(lock, own.requester(), spin_budget) {
            Answer::Queued(ahead) => self.wait_around(self.locks.len() - 1, own, ahead, around),
            answer => answer,
        }
    }

    // Called for each lock of each transaction, from two places; out of line it costs 40 instructions more.
    #[inline(always)]
    fn request(&mut self, lock: Lock, requester: Requester, spin_budget: SpinBudget) -> Answer {
        self.make_room();
        let Lock { name, exclusive } = lock;
        let request = nth(&self.chunks, self.locks.len());
        let queue = self.table.latch(name);
        let (mut ahead, mut blocked, mut own) = (0, false, false);
        let before = queue.each(name, |other| {
            let (waits, other) = (other.waits(), other.state());
            if spin_budget == SpinBudget::Wound && waits && requester.is_older(other.requester) {
                return false;
            }
            ahead += 1;
            if other.blocks(requester, exclusive) {
                blocked = true;
                own |= other.requester.thread == requester.thread;
                requester.conflicts_with(other.requester, spin_budget);
            }
            spin_budget != SpinBudget::Refuse || !blocked
        });
        if own {
            return Answer::Own;
        }
        if blocked && spin_budget == SpinBudget::Refuse {
            return Answer::Refused;
        }
        // SAFETY: the request is above the stack's top, so in no list; it comes to be below it, and chunks do not move.
        unsafe { queue.insert(before, request, State::new(lock, requester), !blocked) };
        self.locks.push(lock);
        if blocked { Answer::Queued(ahead) } else { Answer::Granted }
    }

    /// Has `around` wait for a request that was queued.
    #[cold]
    fn wait_around(
        &mut self,
        position: usize,
        own: &Wounds,
        ahead: usize,
        around: impl FnOnce(&mut dyn FnMut()),
    ) -> Answer {
        let mut answer = None;
        around(&mut || answer = answer.or_else(|| Some(self.wait(position, own, ahead))));
        answer.unwrap_or_else(|| self.wait(position, own, ahead))
    }

    /// Waits until a queued request is granted. Otherwise its transaction was wounded first ([`Answer::Refused`]), or waits inside of another one
    /// for too long ([`Answer::Own`]); then the request is in no list, or holds what it held before its upgrade.
    fn wait(&mut self, position: usize, own: &Wounds, ahead: usize) -> Answer {
        let (name, request) = (self.locks[position].name, nth(&self.chunks, position));
        // Acquire: pairs with the release in `Entry::signal`, so that the writes of the last holder are visible.
        let granted = || request.granted.load(Ordering::Acquire);
        let ends = own.wait(ahead, granted);
        if granted() {
            return Answer::Granted;
        }
        let mut queue = self.table.latch(name);
        if granted() {
            return Answer::Granted;
        }
        let state = queue.find(request).state();
        if !ends {
            queue.note_opponent(name, state, own.requester());
        }
        if state.upgrades.replace(false) {
            request.granted.store(true, Ordering::Relaxed);
        } else {
            assert_eq!(position + 1, self.locks.len(), "the lock that was requested last is waited for");
            queue.unlink(request);
            self.locks.pop();
        }
        queue.grant(name);
        if ends { Answer::Refused } else { Answer::Own }
    }

    /// Makes a shared lock exclusive, if no other transaction holds it. Where `spin_budget` says so, the younger ones that hold it are wounded, and
    /// `around` waits for the others.
    pub(in super::super) fn upgrade(
        &mut self,
        position: usize,
        own: &Wounds,
        spin_budget: SpinBudget,
        around: impl FnOnce(&mut dyn FnMut()),
    ) -> Answer {
        let answer = match self.request_upgrade(position, own.requester(), spin_budget) {
            Answer::Queued(ahead) => self.wait_around(position, own, ahead, around),
            answer => answer,
        };
        self.locks[position].exclusive |= answer == Answer::Granted;
        answer
    }

    fn request_upgrade(&self, position: usize, requester: Requester, spin_budget: SpinBudget) -> Answer {
        let (name, request) = (self.locks[position].name, nth(&self.chunks, position));
        let queue = self.table.latch(name);
        let (mut answer, mut others) = (Answer::Granted, 0);
        queue.each(name, |other| {
            let (waits, state) = (other.waits(), other.state());
            if other.is(request) || waits || !state.is_lock() {
                return true;
            }
            others += 1;
            if answer != Answer::Own {
                answer = if state.requester.thread == requester.thread { Answer::Own } else { Answer::Refused };
            }
            requester.conflicts_with(state.requester, spin_budget);
            true
        });
        if left_out(Step::UpgradeAlone) {
            answer = Answer::Granted;
        }
        match answer {
            Answer::Granted => queue.find(request).state().exclusive.set(true),
            Answer::Refused if spin_budget == SpinBudget::Wound => {
                queue.find(request).state().upgrades.set(true);
                request.granted.store(false, Ordering::Relaxed);
                answer = Answer::Queued(others);
            }
            _ => {}
        }
        answer
    }

    /// Releases the locks from the `first` one on, and grants the requests that they blocked.
    #[inline]
    pub(in super::super) fn release_from(&mut self, first: usize) {
        for (position, lock) in self.locks.iter().enumerate().skip(first) {
            let mut queue = self.table.latch(lock.name);
            if queue.unlink(nth(&self.chunks, position)) {
                queue.signal_watchers(lock.name);
            } else {
                queue.grant(lock.name);
            }
        }
        self.locks.truncate(first);
        self.converted = self.converted.min(first);
        if first == 0 {
            self.conditions_used = 0;
        }
    }

    /// As [`Requests::release_from`], of those that are not condition locks.
    pub(in super::super) fn release_unconverted(&mut self) {
        self.release_from(self.converted);
    }

    /// Converts the shared locks to condition locks of a condition, and grants the requests that they blocked.
    pub(in super::super) fn hold_condition(&mut self, condition: &Condition, truth: bool) {
        if self.conditions_used == self.conditions.len() {
            self.conditions.push(Arc::default());
        }
        // In use from now on until `release_from` has unlinked all requests, so it does not change before.
        let kept = &mut self.conditions[self.conditions_used];
        self.conditions_used += 1;
        let unshared = Arc::get_mut(kept).expect("conditions are not shared");
        unshared.copy_from(condition);
        unshared.truth = truth;
        for (position, lock) in self.locks.iter().enumerate().skip(self.converted) {
            let queue = self.table.latch(lock.name);
            queue.find(nth(&self.chunks, position)).state().condition.set(Arc::as_ptr(kept));
            queue.grant(lock.name);
        }
        self.converted = self.locks.len();
    }

    /// Waits until the condition at an address is released at a name. [`Answer::Own`]: its holder runs in the same thread, or may wait for it;
    /// [`Answer::Refused`]: an older transaction has wounded the caller.
    pub(in super::super) fn await_condition(&mut self, name: u64, address: usize, own: &Wounds) -> Answer {
        loop {
            let answer = self.watch(name, address, own.requester());
            if !matches!(answer, Answer::Queued(_)) {
                return answer;
            }
            let request = nth(&self.chunks, self.locks.len() - 1);
            let ends = own.wait(1, || request.granted.load(Ordering::Relaxed));
            self.table.latch(name).unlink(request);
            self.locks.pop();
            if own.wounded() {
                return Answer::Refused;
            }
            if !ends {
                return Answer::Own;
            }
        }
    }

    /// Looks whether a condition is still held at a name. If it is, its holder is wounded when it is younger, and a request waits until one is
    /// released there.
    fn watch(&mut self, name: u64, address: usize, own: Requester) -> Answer {
        self.make_room();
        let queue = self.table.latch(name);
        let mut answer = Answer::Granted;
        let last = queue.each(name, |other| {
            if other.state().condition.get().addr() == address {
                let requester = other.state().requester;
                answer = if requester.thread == own.thread { Answer::Own } else { Answer::Queued(1) };
                own.wound(requester);
            }
            true
        });
        if matches!(answer, Answer::Queued(_)) {
            let lock = Lock { name, exclusive: false };
            let (state, request) = (State::new(lock, own), nth(&self.chunks, self.locks.len()));
            // SAFETY: the request is above the stack's top, so in no list; it comes to be below it, and chunks do not move.
            unsafe { queue.insert(last, request, State { watches: true, ..state }, false) };
            self.locks.push(lock);
        }
        answer
    }

    /// Frees what a huge transaction has needed.
    pub(in super::super) fn shrink(&mut self) {
        self.locks.give_back_room();
        self.chunks.truncate((ROOM / CHUNK).max(self.locks.len().div_ceil(CHUNK)));
    }

    /// How many locks have memory.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(in super::super) fn room(&self) -> usize {
        self.locks.room().max(CHUNK * self.chunks.len())
    }
}
