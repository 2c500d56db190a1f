//! The lock table: a fixed array of buckets, each with a latch and a list of requests.
//!
//! A lock has a *name*, 64 bits that are made of an index and a key. Two keys of one name share a lock, which is never wrong: a transaction that
//! holds it holds both. Absent keys have names like others. The order of names is the global order of locks.
//!
//! A bucket is one word: the address of its first request, and a latch in the lowest bit. Its list has the requests of all its names in the order
//! in which they came. A request is granted when none before it, of the same name, is incompatible, whether that one is granted or waits: so no
//! request is overtaken for ever. The thread that unlinks a request grants what can be granted then. Requests lie in the memory of their transactions
//! ([`Requests`]); other threads read them under the bucket's latch only, `granted` aside.
//!
//! A request that waits by age is ahead of the younger ones that wait, and its transaction has wounded the younger ones that block it. No younger one
//! blocks it later: a new request goes behind the older ones that wait. So the transaction looks once, and then sleeps until it is granted the lock
//! or wounded itself.
//!
//! A shared lock becomes exclusive when no other transaction holds it. A request that waits for that by age blocks all younger ones from then on,
//! so that those that it has wounded do not come back before it.

mod opponents;
mod requests;

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use polychron_engine::lazy::Condition;
use polychron_sync::Backoff;
use polychron_sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::held::Lock;
use super::wounds::Requester;

pub(super) use self::requests::Requests;

/// The part of a request that its bucket's latch protects.
#[derive(Debug)]
struct State {
    next: Cell<*mut Request>,
    name: u64,
    requester: Requester,
    exclusive: Cell<bool>,
    /// It holds the lock shared, and waits until it is the only holder.
    upgrades: Cell<bool>,
    /// It requests no lock, but waits until a condition is released.
    watches: bool,
    /// The condition of a condition lock, which blocks no other request; null in other requests.
    condition: Cell<*const Condition>,
}

impl State {
    const fn new(lock: Lock, requester: Requester) -> Self {
        let (next, condition) = (Cell::new(null_mut()), Cell::new(null()));
        let (exclusive, upgrades) = (Cell::new(lock.exclusive), Cell::new(false));
        Self { next, name: lock.name, requester, exclusive, upgrades, watches: false, condition }
    }

    /// Whether it is a lock, or waits for one.
    #[inline]
    fn is_lock(&self) -> bool {
        self.condition.get().is_null() && !self.watches
    }

    /// Whether it blocks another request that comes behind it.
    #[inline]
    fn blocks(&self, requester: Requester, exclusive: bool) -> bool {
        let upgrades = || self.upgrades.get() && !requester.is_older(self.requester);
        self.is_lock() && (exclusive || self.exclusive.get() || upgrades())
    }
}

/// A request for a lock, or the lock.
#[derive(Debug)]
struct Request {
    state: UnsafeCell<State>,
    /// Its owner waits for this.
    granted: AtomicBool,
}

// SAFETY: `state` is touched under the latch of the request's bucket only, or while the request is in no list, by its owner.
unsafe impl Send for Request {}
// SAFETY: as above.
unsafe impl Sync for Request {}

impl Default for Request {
    fn default() -> Self {
        let state = State::new(Lock { name: 0, exclusive: false }, Requester::none());
        Self { state: UnsafeCell::new(state), granted: AtomicBool::new(false) }
    }
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The lock is held.
    Granted,
    /// The request is in the list, behind so many others, and will be granted.
    Queued(usize),
    /// Another transaction holds the lock; the request is in no list.
    Refused,
    /// As [`Answer::Refused`], by another transaction of the same thread, which would wait for itself; or by others that may wait for that one.
    Own,
}

/// A bucket whose latch is held.
struct Queue<'b> {
    bucket: &'b AtomicPtr<Request>,
    /// The bucket's word after the latch is released.
    first: Cell<*mut Request>,
}

impl Drop for Queue<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the acquire in `latch`.
        self.bucket.store(self.first.get(), Ordering::Release);
    }
}

/// A request in the list of a bucket whose latch is held: no other thread unlinks it, or changes its state, while the latch is borrowed.
#[derive(Clone, Copy)]
struct Entry<'q> {
    request: &'q Request,
    queue: PhantomData<&'q Queue<'q>>,
}

impl<'q> Entry<'q> {
    #[inline]
    fn state(self) -> &'q State {
        // SAFETY: the bucket is latched for as long as the entry is used, and what changes under the latch is in cells.
        unsafe { &*self.request.state.get() }
    }

    /// Whether it waits in the queue without holding anything.
    #[inline]
    fn waits(self) -> bool {
        let state = self.state();
        !self.request.granted.load(Ordering::Relaxed) && state.is_lock() && !state.upgrades.get()
    }

    fn is(self, request: &Request) -> bool {
        std::ptr::eq(self.request, request)
    }

    /// Sets `granted`, and wakes the owner.
    fn signal(self) {
        // Release: pairs with the acquire in `Requests::wait`.
        self.request.granted.store(true, Ordering::Release);
        self.state().requester.wake();
    }
}

/// The requests of a bucket in their order.
struct Entries<'q> {
    at: *mut Request,
    queue: PhantomData<&'q Queue<'q>>,
}

impl<'q> Iterator for Entries<'q> {
    type Item = Entry<'q>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'q>> {
        // SAFETY: requests stay in the list, and in memory, until they are unlinked, which takes the latch that is borrowed here.
        let request = unsafe { self.at.as_ref() }?;
        let entry = Entry { request, queue: self.queue };
        self.at = entry.state().next.get();
        Some(entry)
    }
}

impl Queue<'_> {
    #[inline]
    fn entries(&self) -> Entries<'_> {
        Entries { at: self.first.get(), queue: PhantomData }
    }

    /// Calls `visit` with the requests of a name in their order, until it returns `false`. Returns the request before that one in the bucket, or
    /// the bucket's last.
    #[inline]
    fn each<'q>(&'q self, name: u64, mut visit: impl FnMut(Entry<'q>) -> bool) -> Option<Entry<'q>> {
        let mut last = None;
        for entry in self.entries() {
            if entry.state().name == name && !visit(entry) {
                break;
            }
            last = Some(entry);
        }
        last
    }

    /// The entry of a request.
    fn find(&self, request: &Request) -> Entry<'_> {
        self.entries().find(|entry| entry.is(request)).expect("a request that is held is in its bucket")
    }

    /// Inserts a request behind another one, or first.
    ///
    /// # Safety
    /// The request is the caller's and in no list; the bucket is that of its name, and `before` is in it. It does not move before it is unlinked.
    #[inline]
    unsafe fn insert(&self, before: Option<Entry<'_>>, request: &Request, state: State, granted: bool) {
        let link = before.map_or(&self.first, |before| &before.state().next);
        state.next.set(link.replace(std::ptr::from_ref(request).cast_mut()));
        // SAFETY: as the caller promises, no other thread reads it before the latch is released.
        unsafe { *request.state.get() = state };
        request.granted.store(granted, Ordering::Relaxed);
    }

    /// Unlinks a request. Returns whether it was a condition lock.
    #[inline]
    fn unlink(&mut self, request: &Request) -> bool {
        let mut link = &self.first;
        for entry in self.entries() {
            let state = entry.state();
            if entry.is(request) {
                link.set(state.next.get());
                return !state.condition.get().is_null();
            }
            link = &state.next;
        }
        unreachable!("a request that is held is in its bucket");
    }

    /// Grants the requests that are not blocked, and wakes their owners.
    ///
    /// Those that hold the lock come before those that wait. Of those that wait the first is granted, and each shared one behind shared ones; behind
    /// one that is to become exclusive only those that are older.
    #[inline]
    fn grant(&self, name: u64) {
        let (mut first, mut holders) = (true, 0);
        // The oldest one that is to become exclusive.
        let mut upgrading: Option<Entry<'_>> = None;
        self.each(name, |entry| {
            let (waits, state) = (entry.waits(), entry.state());
            if !state.is_lock() {
                return true;
            }
            let passes = upgrading.is_none_or(|other| state.requester.is_older(other.state().requester));
            let grantable = first || !state.exclusive.get() && passes;
            if state.upgrades.get() && passes {
                upgrading = Some(entry);
            }
            if waits && grantable {
                entry.signal();
            }
            holders += usize::from(!waits || grantable);
            first = false;
            !state.exclusive.get()
        });
        if let Some(entry) = upgrading.filter(|_| holders == 1) {
            let state = entry.state();
            state.exclusive.set(true);
            state.upgrades.set(false);
            entry.signal();
        }
    }

    /// Wakes the transactions that wait until a condition is released.
    fn signal_watchers(&self, name: u64) {
        self.each(name, |entry| {
            if entry.state().watches {
                entry.signal();
            }
            true
        });
    }
}

/// The table; a copy is the same table.
#[derive(Clone, Debug)]
pub(super) struct LockTable {
    buckets: Arc<[AtomicPtr<Request>]>,
    shift: u32,
}

const LATCHED: usize = 1;

impl LockTable {
    pub(super) fn new(buckets: usize) -> Self {
        let count = buckets.next_power_of_two().max(2);
        let buckets = (0..count).map(|_| AtomicPtr::new(null_mut())).collect();
        Self { buckets, shift: 64 - count.trailing_zeros() }
    }

    #[inline]
    fn bucket(&self, name: u64) -> &AtomicPtr<Request> {
        &self.buckets[(name >> self.shift) as usize]
    }

    /// Starts bringing the bucket of a name into the cache.
    #[inline]
    pub(super) fn prefetch(&self, name: u64) {
        polychron_sync::prefetch_read(std::ptr::from_ref(self.bucket(name)).cast::<u8>());
    }

    #[inline]
    fn latch(&self, name: u64) -> Queue<'_> {
        let bucket = self.bucket(name);
        let mut backoff = Backoff::new();
        loop {
            let first = bucket.load(Ordering::Relaxed);
            let latched = first.map_addr(|address| address | LATCHED);
            // Acquire: pairs with the release in `Queue::drop`.
            if first.addr() & LATCHED == 0
                && bucket.compare_exchange(first, latched, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Queue { bucket, first: Cell::new(first) };
            }
            backoff.wait();
        }
    }

    /// Whether any transaction waits for a lock.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn has_waiters(&self) -> bool {
        (0..self.buckets.len() as u64).any(|bucket| self.latch(bucket << self.shift).entries().any(Entry::waits))
    }

    /// Calls `visit` with the conditions that other transactions hold at a name.
    #[inline]
    pub(super) fn conditions(&self, name: u64, own: Requester, mut visit: impl FnMut(&Condition)) {
        let queue = self.latch(name);
        queue.each(name, |other| {
            let other = other.state();
            // SAFETY: a condition in a list stays, and does not change: see `Requests::hold_condition`.
            if let Some(condition) = unsafe { other.condition.get().as_ref() }
                && !other.requester.is(own)
            {
                visit(condition);
            }
            true
        });
    }
}
