//! The lock table: a fixed array of buckets, a latch and a list of requests in each.
//!
//! A lock has a *name*, 64 bits that are made of an index and a key. Two keys of one name share a lock, which is never wrong:
//! whoever holds it holds both. Absent keys have names like others. The order of names is the global order of locks.
//!
//! A bucket is one word: the address of its first request, and a latch in the lowest bit. Its list has the requests of all its
//! names in the order in which they came. A request is granted when none before it, of the same name, is incompatible,
//! whether that one is granted or waits: so nobody is overtaken for ever. Whoever takes a request out grants what can be
//! granted then. Requests lie with their transactions ([`Requests`]); others touch them under the bucket's latch only, `granted` aside.
//!
//! Who waits by age comes before the younger ones that wait, and has wounded the younger ones that are in its way. No younger one
//! comes into its way later: whoever asks is behind the older ones that wait. So it looks once, and then sleeps until it is granted
//! the lock or wounded itself.
//!
//! A shared lock becomes exclusive when nobody else holds it. Who waits for that by age is in the way of all younger ones
//! from the moment at which it asks, so that those that gave way for it do not come back before it.

mod opponents;
use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use polychron_base::room::{KeptList, ROOM};
use polychron_engine::lazy::Condition;
use polychron_engine::mutations::left_out;
use polychron_sync::Backoff;
use polychron_sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::held::Lock;
use super::steps::Step;
use super::wounds::{Requester, SpinBudget, Wounds};

/// Requests that are allocated at a time; they never move.
pub(super) const CHUNK: usize = 64;

/// What a request says to who has latched its bucket.
#[derive(Debug)]
struct Said {
    next: Cell<*mut Request>,
    name: u64,
    requester: Requester,
    exclusive: Cell<bool>,
    /// It holds the lock shared, and waits until it holds it alone.
    upgrades: Cell<bool>,
    /// It wants no lock, but to know when a condition is held no more.
    watches: bool,
    /// What a condition lock holds; null in other requests. A condition lock is in nobody's way.
    condition: Cell<*const Condition>,
}

impl Said {
    const fn new(lock: Lock, requester: Requester) -> Self {
        let (next, condition) = (Cell::new(null_mut()), Cell::new(null()));
        let (exclusive, upgrades) = (Cell::new(lock.exclusive), Cell::new(false));
        Self { next, name: lock.name, requester, exclusive, upgrades, watches: false, condition }
    }

    /// Whether it takes part in the queue.
    #[inline]
    fn is_lock(&self) -> bool {
        self.condition.get().is_null() && !self.watches
    }

    /// Whether it is in the way of another request that comes behind it.
    #[inline]
    fn blocks(&self, requester: Requester, exclusive: bool) -> bool {
        let upgrades = || self.upgrades.get() && !requester.is_older(self.requester);
        self.is_lock() && (exclusive || self.exclusive.get() || upgrades())
    }
}

/// A wish for a lock, or the lock.
#[derive(Debug)]
struct Request {
    said: UnsafeCell<Said>,
    /// Its owner waits for this.
    granted: AtomicBool,
}

// SAFETY: `said` is touched under the latch of the request's bucket only, or while the request is in no list, by its owner.
unsafe impl Send for Request {}
// SAFETY: as above.
unsafe impl Sync for Request {}

impl Default for Request {
    fn default() -> Self {
        let said = Said::new(Lock { name: 0, exclusive: false }, Requester::nobody());
        Self { said: UnsafeCell::new(said), granted: AtomicBool::new(false) }
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The lock is held.
    Granted,
    /// The request is in the list, behind so many others, and will be granted.
    Queued(usize),
    /// Somebody else holds the lock; the request is in no list.
    Refused,
    /// As [`Answer::Refused`], by another transaction of the same thread, which would wait for itself; or by others that may wait for that one.
    Own,
}

/// A bucket whose latch is held.
struct Queue<'b> {
    bucket: &'b AtomicPtr<Request>,
    /// What the bucket's word will be.
    first: Cell<*mut Request>,
}

impl Drop for Queue<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the acquire of the next who latches the bucket.
        self.bucket.store(self.first.get(), Ordering::Release);
    }
}

/// A request in the list of a bucket whose latch is held: nobody takes it out, or changes what it says, while the latch is lent.
#[derive(Clone, Copy)]
struct Entry<'q> {
    request: &'q Request,
    queue: PhantomData<&'q Queue<'q>>,
}

impl<'q> Entry<'q> {
    #[inline]
    fn said(self) -> &'q Said {
        // SAFETY: the bucket is latched for as long as the entry is used, and what changes under the latch is in cells.
        unsafe { &*self.request.said.get() }
    }

    /// Whether it waits in the queue without holding anything.
    #[inline]
    fn waits(self) -> bool {
        let said = self.said();
        !self.request.granted.load(Ordering::Relaxed) && said.is_lock() && !said.upgrades.get()
    }

    fn is(self, request: &Request) -> bool {
        std::ptr::eq(self.request, request)
    }

    /// Grants it, and wakes its owner.
    fn announce(self) {
        // Release: pairs with the acquire in `wait`.
        self.request.granted.store(true, Ordering::Release);
        self.said().requester.wake();
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
        // SAFETY: requests stay in the list, and in memory, until they are taken out, which takes the latch that is lent here.
        let request = unsafe { self.at.as_ref() }?;
        let entry = Entry { request, queue: self.queue };
        self.at = entry.said().next.get();
        Some(entry)
    }
}

impl Queue<'_> {
    #[inline]
    fn entries(&self) -> Entries<'_> {
        Entries { at: self.first.get(), queue: PhantomData }
    }

    /// Calls `visit` with the requests of a name in their order, until it says `false`; answers the request before that one in the
    /// bucket, or the bucket's last.
    #[inline]
    fn each<'q>(&'q self, name: u64, mut visit: impl FnMut(Entry<'q>) -> bool) -> Option<Entry<'q>> {
        let mut last = None;
        for entry in self.entries() {
            if entry.said().name == name && !visit(entry) {
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

    /// Puts a request behind another one, or first.
    ///
    /// # Safety
    /// The request is the caller's and in no list; the bucket is that of its name, and `before` is in it. It stays where it is until it is
    /// taken out.
    #[inline]
    unsafe fn insert(&self, before: Option<Entry<'_>>, request: &Request, said: Said, granted: bool) {
        let link = before.map_or(&self.first, |before| &before.said().next);
        said.next.set(link.replace(std::ptr::from_ref(request).cast_mut()));
        // SAFETY: as the caller promises, nobody else looks at it before the latch is given back.
        unsafe { *request.said.get() = said };
        request.granted.store(granted, Ordering::Relaxed);
    }

    /// Takes a request out; answers whether it was that of a condition.
    #[inline]
    fn take_out(&mut self, request: &Request) -> bool {
        let mut link = &self.first;
        for entry in self.entries() {
            let said = entry.said();
            if entry.is(request) {
                link.set(said.next.get());
                return !said.condition.get().is_null();
            }
            link = &said.next;
        }
        unreachable!("a request that is held is in its bucket");
    }

    /// Grants what nothing is in the way of, and wakes who waits for it.
    ///
    /// Those that hold the lock come before those that wait. Of those that wait the first goes, and whatever is shared behind
    /// shared ones; behind one that is to become exclusive only who is older than that.
    #[inline]
    fn grant(&self, name: u64) {
        let (mut first, mut holders) = (true, 0);
        // The oldest one that is to become exclusive.
        let mut upgrading: Option<Entry<'_>> = None;
        self.each(name, |entry| {
            let (waits, said) = (entry.waits(), entry.said());
            if !said.is_lock() {
                return true;
            }
            let passes = upgrading.is_none_or(|other| said.requester.is_older(other.said().requester));
            let grantable = first || !said.exclusive.get() && passes;
            if said.upgrades.get() && passes {
                upgrading = Some(entry);
            }
            if waits && grantable {
                entry.announce();
            }
            holders += usize::from(!waits || grantable);
            first = false;
            !said.exclusive.get()
        });
        if let Some(entry) = upgrading.filter(|_| holders == 1) {
            let said = entry.said();
            said.exclusive.set(true);
            said.upgrades.set(false);
            entry.announce();
        }
    }

    /// Wakes those that wait for a condition to be given back.
    fn call_watchers(&self, name: u64) {
        self.each(name, |entry| {
            if entry.said().watches {
                entry.announce();
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
            // Acquire: pairs with the release of whoever latched the bucket before.
            if first.addr() & LATCHED == 0
                && bucket.compare_exchange(first, latched, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Queue { bucket, first: Cell::new(first) };
            }
            backoff.wait();
        }
    }

    /// Whether anybody waits for a lock.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn has_waiters(&self) -> bool {
        (0..self.buckets.len() as u64).any(|bucket| self.latch(bucket << self.shift).entries().any(Entry::waits))
    }

    /// Calls `visit` with the conditions that others hold at a name.
    #[inline]
    pub(super) fn conditions(&self, name: u64, own: Requester, mut visit: impl FnMut(&Condition)) {
        let queue = self.latch(name);
        queue.each(name, |other| {
            let other = other.said();
            // SAFETY: a condition in a list stays as it is, as `Requests::hold` asks for.
            if let Some(condition) = unsafe { other.condition.get().as_ref() }
                && !other.requester.is(own)
            {
                visit(condition);
            }
            true
        });
    }
}

/// The requests of a transaction: a stack, of which the n-th is in the table for the n-th lock. What is in the table when it is dropped is
/// given back.
#[derive(Debug)]
pub(super) struct Requests {
    table: LockTable,
    locks: Vec<Lock>,
    /// As many requests as there are locks are in the table; nobody else knows of the others.
    chunks: Vec<Box<[Request]>>,
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.release_from(0);
    }
}

#[inline]
fn nth(chunks: &[Box<[Request]>], position: usize) -> &Request {
    &chunks[position / CHUNK][position % CHUNK]
}

impl Requests {
    /// No requests in a table.
    pub(super) fn new(table: &LockTable) -> Self {
        Self { table: table.clone(), locks: Vec::new(), chunks: Vec::new() }
    }

    /// The locks that are held, in the order in which they were taken.
    #[inline]
    pub(super) fn locks(&self) -> &[Lock] {
        &self.locks
    }

    #[inline]
    fn make_room(&mut self) {
        if self.locks.len() == CHUNK * self.chunks.len() {
            self.chunks.push((0..CHUNK).map(|_| Request::default()).collect());
        }
    }

    /// Takes a lock that is not held. A request that has to wait goes into the list only when `spin_budget` says so; the wait is done by
    /// `around`.
    #[inline]
    pub(super) fn take(
        &mut self,
        lock: Lock,
        own: &Wounds,
        spin_budget: SpinBudget,
        around: impl FnOnce(&mut dyn FnMut()),
    ) -> Answer {
        match self.ask(lock, own.requester(), spin_budget) {
            Answer::Queued(ahead) => self.wait_around(self.locks.len() - 1, own, ahead, around),
            answer => answer,
        }
    }

    #[inline]
    fn ask(&mut self, lock: Lock, requester: Requester, spin_budget: SpinBudget) -> Answer {
        self.make_room();
        let Lock { name, exclusive } = lock;
        let request = nth(&self.chunks, self.locks.len());
        let queue = self.table.latch(name);
        let (mut ahead, mut blocked, mut own) = (0, false, false);
        let before = queue.each(name, |other| {
            let (waits, other) = (other.waits(), other.said());
            if spin_budget == SpinBudget::Wound && waits && requester.is_older(other.requester) {
                return false;
            }
            ahead += 1;
            if other.blocks(requester, exclusive) {
                blocked = true;
                own |= other.requester.thread == requester.thread;
                requester.meets(other.requester, spin_budget);
            }
            spin_budget != SpinBudget::Refuse || !blocked
        });
        if own {
            return Answer::Own;
        }
        if blocked && spin_budget == SpinBudget::Refuse {
            return Answer::Refused;
        }
        // SAFETY: the request is above the stack's top, so in no list; it comes to be below it.
        unsafe { queue.insert(before, request, Said::new(lock, requester), !blocked) };
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

    /// Waits until a queued request is granted. Else its transaction was wounded first ([`Answer::Refused`]), or waits inside of another one
    /// for too long ([`Answer::Own`]); the request is in no list any more, or holds what it held before it was to become exclusive.
    fn wait(&mut self, position: usize, own: &Wounds, ahead: usize) -> Answer {
        let (name, request) = (self.locks[position].name, nth(&self.chunks, position));
        // Acquire: pairs with the release in `announce`, so that what the last holder did is seen.
        let granted = || request.granted.load(Ordering::Acquire);
        let ends = own.wait(ahead, granted);
        if granted() {
            return Answer::Granted;
        }
        let mut queue = self.table.latch(name);
        if granted() {
            return Answer::Granted;
        }
        let said = queue.find(request).said();
        if !ends {
            queue.note_opponent(name, said, own.requester());
        }
        if said.upgrades.replace(false) {
            request.granted.store(true, Ordering::Relaxed);
        } else {
            assert_eq!(position + 1, self.locks.len(), "the lock that was asked for last is waited for");
            queue.take_out(request);
            self.locks.pop();
        }
        queue.grant(name);
        if ends { Answer::Refused } else { Answer::Own }
    }

    /// Makes a shared lock exclusive, if nobody else holds it. Where `spin_budget` says so, the younger ones that hold it are wounded, and
    /// `around` waits for the others.
    pub(super) fn upgrade(
        &mut self,
        position: usize,
        own: &Wounds,
        spin_budget: SpinBudget,
        around: impl FnOnce(&mut dyn FnMut()),
    ) -> Answer {
        let answer = match self.ask_upgrade(position, own.requester(), spin_budget) {
            Answer::Queued(ahead) => self.wait_around(position, own, ahead, around),
            answer => answer,
        };
        self.locks[position].exclusive |= answer == Answer::Granted;
        answer
    }

    fn ask_upgrade(&self, position: usize, requester: Requester, spin_budget: SpinBudget) -> Answer {
        let (name, request) = (self.locks[position].name, nth(&self.chunks, position));
        let queue = self.table.latch(name);
        let (mut answer, mut others) = (Answer::Granted, 0);
        queue.each(name, |other| {
            let (waits, said) = (other.waits(), other.said());
            if other.is(request) || waits || !said.is_lock() {
                return true;
            }
            others += 1;
            if answer != Answer::Own {
                answer = if said.requester.thread == requester.thread { Answer::Own } else { Answer::Refused };
            }
            requester.meets(said.requester, spin_budget);
            true
        });
        if left_out(Step::UpgradeAlone) {
            answer = Answer::Granted;
        }
        match answer {
            Answer::Granted => queue.find(request).said().exclusive.set(true),
            Answer::Refused if spin_budget == SpinBudget::Wound => {
                queue.find(request).said().upgrades.set(true);
                request.granted.store(false, Ordering::Relaxed);
                answer = Answer::Queued(others);
            }
            _ => {}
        }
        answer
    }

    /// Gives the locks from the `first` one on back, and grants what they were in the way of.
    #[inline]
    pub(super) fn release_from(&mut self, first: usize) {
        for (position, lock) in self.locks.iter().enumerate().skip(first) {
            let mut queue = self.table.latch(lock.name);
            if queue.take_out(nth(&self.chunks, position)) {
                queue.call_watchers(lock.name);
            } else {
                queue.grant(lock.name);
            }
        }
        self.locks.truncate(first);
    }

    /// Makes the shared locks from the `first` one on condition locks, and grants what they were in the way of.
    ///
    /// # Safety
    /// The condition stays where and as it is until they are given back.
    pub(super) unsafe fn hold(&self, first: usize, condition: &Condition) {
        for (position, lock) in self.locks.iter().enumerate().skip(first) {
            let queue = self.table.latch(lock.name);
            queue.find(nth(&self.chunks, position)).said().condition.set(condition);
            queue.grant(lock.name);
        }
    }

    /// Waits until the condition at an address is held at a name no more. [`Answer::Own`]: its holder runs in the same thread, or may wait for it;
    /// [`Answer::Refused`]: an older one wants what the caller has.
    pub(super) fn outlast(&mut self, name: u64, address: usize, own: &Wounds) -> Answer {
        loop {
            let answer = self.watch(name, address, own.requester());
            if !matches!(answer, Answer::Queued(_)) {
                return answer;
            }
            let request = nth(&self.chunks, self.locks.len() - 1);
            let ends = own.wait(1, || request.granted.load(Ordering::Relaxed));
            self.table.latch(name).take_out(request);
            self.locks.pop();
            if own.wounded() {
                return Answer::Refused;
            }
            if !ends {
                return Answer::Own;
            }
        }
    }

    /// Whether a condition is still held at a name: then its holder is wounded, if it is younger, and a request waits for one to be given
    /// back there.
    fn watch(&mut self, name: u64, address: usize, own: Requester) -> Answer {
        self.make_room();
        let queue = self.table.latch(name);
        let mut answer = Answer::Granted;
        let last = queue.each(name, |other| {
            if other.said().condition.get().addr() == address {
                let requester = other.said().requester;
                answer = if requester.thread == own.thread { Answer::Own } else { Answer::Queued(1) };
                own.wound(requester);
            }
            true
        });
        if matches!(answer, Answer::Queued(_)) {
            let lock = Lock { name, exclusive: false };
            let (said, request) = (Said::new(lock, own), nth(&self.chunks, self.locks.len()));
            // SAFETY: the request is above the stack's top, so in no list; it comes to be below it.
            unsafe { queue.insert(last, request, Said { watches: true, ..said }, false) };
            self.locks.push(lock);
        }
        answer
    }

    /// Gives back what a huge transaction has needed.
    pub(super) fn give_back_room(&mut self) {
        self.locks.give_back_room();
        self.chunks.truncate((ROOM / CHUNK).max(self.locks.len().div_ceil(CHUNK)));
    }

    /// Locks that there is room for.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn room(&self) -> usize {
        self.locks.room().max(CHUNK * self.chunks.len())
    }
}
