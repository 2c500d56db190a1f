//! The lock table: a fixed array of buckets, a latch and a list of requests in each.
//!
//! A lock has a *name*, 64 bits that are made of an index and a key. Two keys of one name share a lock, which is never wrong:
//! whoever holds it holds both. Absent keys have names like others. The order of names is the global order of locks.
//!
//! A bucket is one word: the address of its first request, and a latch in the lowest bit. Its list has the requests of all its
//! names in the order in which they came. A request is granted when none before it, of the same name, is incompatible,
//! whether that one is granted or waits: so nobody is overtaken for ever. Whoever takes a request out grants what can be
//! granted then. Requests lie in their workers' pools; others touch them under the bucket's latch only, `granted` aside.
//!
//! Who waits by age comes before the younger ones that wait, and has wounded the younger ones that are in its way. No younger one
//! comes into its way later: whoever asks is behind the older ones that wait. So it looks once, and then sleeps until it is granted
//! the lock or wounded itself.
//!
//! A shared lock becomes exclusive when nobody else holds it. Who waits for that by age is in the way of all younger ones
//! from the moment at which it asks, so that those that gave way for it do not come back before it.

use std::cell::UnsafeCell;
use std::ptr::{NonNull, null, null_mut};

use polychron_engine::lazy::Condition;
use polychron_engine::mutations::left_out;
use polychron_sync::Backoff;
use polychron_sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::held::Lock;
use super::steps::Step;
use super::wounds::{Requester, SpinBudget, Wounds};

/// What a request says, under the latch of its bucket.
#[derive(Debug)]
struct Said {
    next: *mut Request,
    name: u64,
    requester: Requester,
    exclusive: bool,
    /// It holds the lock shared, and waits until it holds it alone.
    upgrades: bool,
    /// It wants no lock, but to know when a condition is held no more.
    watches: bool,
    /// What a condition lock holds; null in other requests. A condition lock is in nobody's way.
    condition: *const Condition,
}

impl Said {
    const fn new(lock: Lock, requester: Requester) -> Self {
        let Lock { name, exclusive } = lock;
        Self { next: null_mut(), name, requester, exclusive, upgrades: false, watches: false, condition: null() }
    }

    /// Whether it takes part in the queue.
    #[inline]
    fn is_lock(&self) -> bool {
        self.condition.is_null() && !self.watches
    }

    /// Whether it is in the way of another request that comes behind it.
    #[inline]
    fn blocks(&self, requester: Requester, exclusive: bool) -> bool {
        self.is_lock() && (exclusive || self.exclusive || self.upgrades && !requester.is_older(self.requester))
    }
}

/// A wish for a lock, or the lock.
#[derive(Debug)]
pub(super) struct Request {
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

impl Request {
    /// # Safety
    /// The bucket of the request is latched by the caller, who uses no other reference to what it says.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "the latch makes it exclusive")]
    unsafe fn said(&self) -> &mut Said {
        // SAFETY: as the caller promises.
        unsafe { &mut *self.said.get() }
    }

    /// Whether it waits in the queue without holding anything.
    ///
    /// # Safety
    /// As [`Request::said`].
    #[inline]
    unsafe fn waits(&self) -> bool {
        // SAFETY: as the caller promises.
        let said = unsafe { self.said() };
        !self.granted.load(Ordering::Relaxed) && said.is_lock() && !said.upgrades
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

/// The table.
#[derive(Debug)]
pub(super) struct LockTable {
    buckets: Box<[AtomicPtr<Request>]>,
    shift: u32,
}

const LATCHED: usize = 1;

fn is_latched(word: *mut Request) -> bool {
    word.addr() & LATCHED != 0
}

/// A bucket's latch.
struct Latched<'b> {
    bucket: &'b AtomicPtr<Request>,
    /// What the bucket's word will be.
    first: *mut Request,
}

impl Drop for Latched<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the acquire of the next who latches the bucket.
        self.bucket.store(self.first, Ordering::Release);
    }
}

impl Latched<'_> {
    /// Calls `visit` with the requests of a name in their order, until it says `false`; answers the request before that one in the
    /// bucket, or the bucket's last.
    #[inline]
    fn each(&self, name: u64, mut visit: impl FnMut(&Request) -> bool) -> *mut Request {
        let (mut last, mut at) = (null_mut(), self.first);
        // SAFETY: requests stay in the list until they are taken out, under the latch that is held here.
        while let Some(request) = unsafe { at.as_ref() } {
            // SAFETY: the bucket is latched, and this reference ends with the statement.
            let (next, same) = unsafe { (request.said().next, request.said().name == name) };
            if same && !visit(request) {
                break;
            }
            (last, at) = (at, next);
        }
        last
    }

    /// Puts a request behind another one, or first.
    #[inline]
    fn insert(&mut self, before: *mut Request, request: &Request) {
        let added = std::ptr::from_ref(request).cast_mut();
        // SAFETY: `before` is in the list of the latched bucket.
        let link = match unsafe { before.as_ref() } {
            // SAFETY: as above.
            Some(before) => &mut unsafe { before.said() }.next,
            None => &mut self.first,
        };
        // SAFETY: the request is its owner's, who has latched the bucket.
        unsafe { request.said() }.next = std::mem::replace(link, added);
    }

    #[inline]
    fn take_out(&mut self, request: &Request) {
        // SAFETY: the request is in the list of the latched bucket.
        let next = unsafe { request.said() }.next;
        let wanted = std::ptr::from_ref(request).cast_mut();
        if self.first == wanted {
            self.first = next;
            return;
        }
        let mut at = self.first;
        // SAFETY: as in `each`.
        while let Some(before) = unsafe { at.as_ref() } {
            // SAFETY: as in `each`.
            let said = unsafe { before.said() };
            if said.next == wanted {
                said.next = next;
                return;
            }
            at = said.next;
        }
        unreachable!("a request that is held is in its bucket");
    }
}

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
    fn latch(&self, name: u64) -> Latched<'_> {
        let bucket = self.bucket(name);
        let mut backoff = Backoff::new();
        loop {
            let first = bucket.load(Ordering::Relaxed);
            let latched = first.map_addr(|address| address | LATCHED);
            // Acquire: pairs with the release of whoever latched the bucket before.
            if !is_latched(first)
                && bucket.compare_exchange(first, latched, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Latched { bucket, first };
            }
            backoff.wait();
        }
    }

    /// Whether anybody waits for a lock.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn has_waiters(&self) -> bool {
        (0..self.buckets.len() as u64).any(|bucket| {
            let latched = self.latch(bucket << self.shift);
            let mut at = latched.first;
            // SAFETY: as in `Latched::each`.
            while let Some(request) = unsafe { at.as_ref() } {
                // SAFETY: the bucket is latched.
                if unsafe { request.waits() } {
                    return true;
                }
                // SAFETY: as above.
                at = unsafe { request.said() }.next;
            }
            false
        })
    }

    /// Asks for a lock. A request that has to wait goes into the list only when `wait` says so.
    ///
    /// # Safety
    /// The request is the caller's and in no list. Until [`LockTable::release`] it stays where it is.
    #[inline]
    pub(super) unsafe fn ask(
        &self,
        request: &Request,
        lock: Lock,
        requester: Requester,
        spin_budget: SpinBudget,
    ) -> Answer {
        let Lock { name, exclusive } = lock;
        let mut bucket = self.latch(name);
        let (mut ahead, mut blocked, mut own) = (0, false, false);
        let before = bucket.each(name, |other| {
            // SAFETY: `each` visits requests of the latched bucket.
            let (waits, other) = unsafe { (other.waits(), other.said()) };
            if spin_budget == SpinBudget::Wound && waits && requester.is_older(other.requester) {
                return false;
            }
            ahead += 1;
            if other.blocks(requester, exclusive) {
                blocked = true;
                own |= other.requester.thread == requester.thread;
                if spin_budget == SpinBudget::Wound {
                    // SAFETY: the other's request is in the latched bucket.
                    unsafe { requester.wound(other.requester) };
                }
            }
            spin_budget != SpinBudget::Refuse || !blocked
        });
        if own {
            return Answer::Own;
        }
        if blocked && spin_budget == SpinBudget::Refuse {
            return Answer::Refused;
        }
        // SAFETY: the request is the caller's, and in no list yet.
        *unsafe { request.said() } = Said::new(lock, requester);
        request.granted.store(!blocked, Ordering::Relaxed);
        bucket.insert(before, request);
        if blocked { Answer::Queued(ahead) } else { Answer::Granted }
    }

    /// Waits until a queued request is granted. Else its transaction was wounded first ([`Answer::Refused`]), or waits inside of another one
    /// for too long ([`Answer::Own`]); the request is in no list any more, or holds what it held before it was to become exclusive.
    ///
    /// # Safety
    /// The request is the caller's, and in the table.
    pub(super) unsafe fn wait(&self, request: &Request, name: u64, own: &Wounds, ahead: usize) -> Answer {
        // Acquire: pairs with the release in `grant`, so that what the last holder did is seen.
        let granted = || request.granted.load(Ordering::Acquire);
        let ends = own.wait(ahead, granted);
        if granted() {
            return Answer::Granted;
        }
        let mut bucket = self.latch(name);
        if granted() {
            return Answer::Granted;
        }
        // SAFETY: the bucket is latched.
        let said = unsafe { request.said() };
        if said.upgrades {
            said.upgrades = false;
            request.granted.store(true, Ordering::Relaxed);
        } else {
            bucket.take_out(request);
        }
        bucket.grant(name);
        if ends { Answer::Refused } else { Answer::Own }
    }

    /// Makes a shared lock exclusive, if nobody else holds it. Where `spin_budget` says so, the younger ones that hold it are wounded, and
    /// the request waits for the others: [`LockTable::wait`] says how that ends.
    ///
    /// # Safety
    /// The request is the caller's, and granted.
    pub(super) unsafe fn upgrade(
        &self,
        request: &Request,
        name: u64,
        requester: Requester,
        spin_budget: SpinBudget,
    ) -> Answer {
        let bucket = self.latch(name);
        let (mut answer, mut others) = (Answer::Granted, 0);
        bucket.each(name, |other| {
            // SAFETY: `each` visits requests of the latched bucket.
            let (waits, said) = unsafe { (other.waits(), other.said()) };
            if std::ptr::eq(other, request) || waits || !said.is_lock() {
                return true;
            }
            others += 1;
            if answer != Answer::Own {
                answer = if said.requester.thread == requester.thread { Answer::Own } else { Answer::Refused };
            }
            if spin_budget == SpinBudget::Wound {
                // SAFETY: the other's request is in the latched bucket.
                unsafe { requester.wound(said.requester) };
            }
            true
        });
        if left_out(Step::UpgradeAlone) {
            answer = Answer::Granted;
        }
        // SAFETY: the bucket is latched.
        let said = unsafe { request.said() };
        match answer {
            Answer::Granted => said.exclusive = true,
            Answer::Refused if spin_budget == SpinBudget::Wound => {
                said.upgrades = true;
                request.granted.store(false, Ordering::Relaxed);
                answer = Answer::Queued(others);
            }
            _ => {}
        }
        answer
    }

    /// Gives a lock back, and grants what it was in the way of.
    ///
    /// # Safety
    /// The request is the caller's, and in the table.
    #[inline]
    pub(super) unsafe fn release(&self, request: &Request, name: u64) {
        let mut bucket = self.latch(name);
        bucket.take_out(request);
        // SAFETY: the bucket is latched.
        if unsafe { request.said() }.condition.is_null() {
            bucket.grant(name);
        } else {
            bucket.call_watchers(name);
        }
    }

    /// Makes a shared lock a condition lock, and grants what it was in the way of.
    ///
    /// # Safety
    /// The request is the caller's, and granted. The condition stays as it is until the request is given back.
    pub(super) unsafe fn become_condition(&self, request: &Request, name: u64, condition: NonNull<Condition>) {
        let bucket = self.latch(name);
        // SAFETY: the bucket is latched.
        unsafe { request.said() }.condition = condition.as_ptr();
        bucket.grant(name);
    }

    /// Calls `visit` with the conditions that others hold at a name.
    #[inline]
    pub(super) fn conditions(&self, name: u64, own: Requester, mut visit: impl FnMut(&Condition)) {
        let bucket = self.latch(name);
        bucket.each(name, |other| {
            // SAFETY: `each` visits requests of the latched bucket.
            let other = unsafe { other.said() };
            // SAFETY: a condition in a list stays as it is, as `become_condition` asks for.
            if let Some(condition) = unsafe { other.condition.as_ref() }
                && !other.requester.is(own)
            {
                visit(condition);
            }
            true
        });
    }

    /// Waits until the condition at an address is held at a name no more. [`Answer::Own`]: its holder runs in the same thread, or may wait for it;
    /// [`Answer::Refused`]: an older one wants what the caller has.
    ///
    /// # Safety
    /// The request is the caller's and in no list.
    pub(super) unsafe fn outlast(&self, request: &Request, name: u64, address: usize, own: &Wounds) -> Answer {
        loop {
            // SAFETY: as the caller promises; it is taken out again below.
            let answer = unsafe { self.watch(request, name, address, own.requester()) };
            if !matches!(answer, Answer::Queued(_)) {
                return answer;
            }
            let ends = own.wait(1, || request.granted.load(Ordering::Relaxed));
            self.latch(name).take_out(request);
            if own.wounded() {
                return Answer::Refused;
            }
            if !ends {
                return Answer::Own;
            }
        }
    }

    /// Whether a condition is still held at a name: then its holder is wounded, if it is younger, and the request, which is in no list,
    /// waits for one to be given back there.
    unsafe fn watch(&self, request: &Request, name: u64, address: usize, own: Requester) -> Answer {
        let mut bucket = self.latch(name);
        let mut answer = Answer::Granted;
        let last = bucket.each(name, |other| {
            // SAFETY: `each` visits requests of the latched bucket.
            let other = unsafe { other.said() };
            if other.condition.addr() == address {
                answer = if other.requester.thread == own.thread { Answer::Own } else { Answer::Queued(1) };
                // SAFETY: the other's request is in the latched bucket.
                unsafe { own.wound(other.requester) };
            }
            true
        });
        if matches!(answer, Answer::Queued(_)) {
            let watch = Said::new(Lock { name, exclusive: false }, own);
            // SAFETY: the request is the caller's, and in no list yet.
            *unsafe { request.said() } = Said { watches: true, ..watch };
            request.granted.store(false, Ordering::Relaxed);
            bucket.insert(last, request);
        }
        answer
    }
}

impl Latched<'_> {
    /// Grants what nothing is in the way of, and wakes who waits for it.
    ///
    /// Those that hold the lock come before those that wait. Of those that wait the first goes, and whatever is shared behind
    /// shared ones; behind one that is to become exclusive only who is older than that.
    #[inline]
    fn grant(&self, name: u64) {
        let (mut first, mut holders) = (true, 0);
        // The oldest one that is to become exclusive.
        let mut upgrading: Option<(NonNull<Request>, Requester)> = None;
        self.each(name, |request| {
            // SAFETY: `each` visits requests of the latched bucket.
            let (waits, said) = unsafe { (request.waits(), request.said()) };
            if !said.is_lock() {
                return true;
            }
            let passes = upgrading.is_none_or(|(_, other)| said.requester.is_older(other));
            let grantable = first || !said.exclusive && passes;
            if said.upgrades && passes {
                upgrading = Some((NonNull::from(request), said.requester));
            }
            if waits && grantable {
                request.announce(said.requester);
            }
            holders += usize::from(!waits || grantable);
            first = false;
            !said.exclusive
        });
        if let Some((request, requester)) = upgrading.filter(|_| holders == 1) {
            // SAFETY: the request is in the list of the latched bucket.
            let request = unsafe { request.as_ref() };
            // SAFETY: as above.
            let said = unsafe { request.said() };
            (said.exclusive, said.upgrades) = (true, false);
            request.announce(requester);
        }
    }

    /// Wakes those that wait for a condition to be given back.
    fn call_watchers(&self, name: u64) {
        self.each(name, |request| {
            // SAFETY: `each` visits requests of the latched bucket.
            let Said { watches, requester, .. } = *unsafe { request.said() };
            if watches {
                request.announce(requester);
            }
            true
        });
    }
}

impl Request {
    /// Grants it, and wakes its owner. The caller has latched its bucket.
    fn announce(&self, requester: Requester) {
        // Release: pairs with the acquire in `wait`.
        self.granted.store(true, Ordering::Release);
        // SAFETY: the request is in the latched bucket.
        unsafe { requester.slot() }.wake();
    }
}
