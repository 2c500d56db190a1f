//! Requesters of locks: how they wait, and how an older transaction has a younger one give way.
//!
//! A transaction with an age, which its next attempts keep, *wounds* younger ones that block it: it sets a flag that the younger one sees at its next
//! operation, and wakes it if it waits. A transaction is wounded under the latch of a list in which it has a request, and it unlinks its requests
//! before it ends. So the flag is never set for a transaction that has ended. The memory of the flag is never freed: slots of workers that have left
//! are reused by later workers.
//!
//! A transaction without an age is younger than all that have one, and wounds none.
//!
//! A transaction whose thread has another one open does not sleep: those that block it may wait for the one that is open, and none would wake it.
//! It polls for as long as its [`Endurance`] lasts, and then no longer waits until it ends.

use std::cell::Cell;
use std::sync::{Arc, PoisonError};

use polychron_base::error::Opponent;
use polychron_engine::limits;
use polychron_engine::nested::Endurance;
use polychron_memory::{Local, Memory};
use polychron_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use polychron_sync::{MODELLED, Parker, nap};

/// What to do about a lock that another transaction holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpinBudget {
    /// Refuse the request.
    Refuse,
    /// Queue for it: the caller acquires locks in the global order.
    Queue,
    /// Wound younger transactions, and wait for older ones.
    Wound,
}

/// The age of a transaction that has none: younger than all.
pub(super) const UNAGED: u64 = u64::MAX;

/// The part of a worker that others read.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// An older transaction requests what the transaction of this worker holds.
    wounded: AtomicBool,
    /// A range that the worker waits for was released.
    called: AtomicBool,
    parker: Parker,
    /// The number of the worker that has the slot.
    worker: AtomicU32,
    /// One more than the number of the worker that has wounded this one, or holds what this one did not wait for; for messages alone.
    opponent: AtomicU32,
}

/// Slots of workers that have left.
static SPARE: std::sync::Mutex<Vec<&'static Slot>> = std::sync::Mutex::new(Vec::new());

impl Slot {
    /// So many others ahead of a request are worth spinning for.
    const FEW: usize = 2;

    /// A slot for a worker. It is never freed, so requesters need not count references to it; there are as many as there ever were workers at a time.
    fn take() -> &'static Self {
        // Objects that a model checker tracks must not outlive its run.
        let spare = if MODELLED { None } else { SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop() };
        spare.unwrap_or_else(|| Box::leak(Box::default()))
    }

    /// Makes the slot of a worker that leaves available to later ones.
    fn free(&'static self) {
        if !MODELLED {
            SPARE.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        }
    }

    fn wake(&self) {
        self.parker.wake();
    }

    /// To be called before [`Requester::call`] may be.
    pub(super) fn expect_call(&self) {
        self.called.store(false, Ordering::Relaxed);
    }

    fn call(&self) {
        // Relaxed: a requester that is called latches the list and looks.
        self.called.store(true, Ordering::Relaxed);
        self.wake();
    }

    pub(super) fn is_called(&self) -> bool {
        self.called.load(Ordering::Relaxed)
    }
}

/// A transaction, as others see it in its requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requester {
    pub(super) thread: u64,
    /// The smaller, the older. Ages are unique, [`UNAGED`] aside.
    age: u64,
    slot: Option<&'static Slot>,
}

impl Requester {
    /// The requester of a request that is in no list.
    pub(super) const fn none() -> Self {
        Self { thread: 0, age: UNAGED, slot: None }
    }

    /// Whether it is the same transaction.
    #[inline]
    pub(super) fn is(self, other: Self) -> bool {
        self.slot.map(std::ptr::from_ref) == other.slot.map(std::ptr::from_ref)
    }

    /// Whether it comes before another one.
    #[inline]
    pub(super) fn is_older(self, other: Self) -> bool {
        self.age < other.age
    }

    /// Wakes the worker, which waits for what the caller has just stored.
    #[inline]
    pub(super) fn wake(self) {
        if let Some(slot) = self.slot {
            slot.wake();
        }
    }

    /// Wakes the worker, which waits for [`Slot::is_called`].
    pub(super) fn call(self) {
        if let Some(slot) = self.slot {
            slot.call();
        }
    }

    /// Another transaction holds what this one requests.
    #[cold]
    pub(super) fn conflicts_with(self, other: Self, spin_budget: SpinBudget) {
        match spin_budget {
            SpinBudget::Wound => self.wound(other),
            SpinBudget::Refuse => self.records_opponent(other),
            SpinBudget::Queue => {}
        }
    }

    /// Notes a transaction as the opponent of this one.
    #[cold]
    pub(super) fn records_opponent(self, other: Self) {
        if let (Some(own), Some(other)) = (self.slot, other.slot) {
            own.opponent.store(other.worker.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// Wounds a younger one, unless it runs in the same thread, which does not wait for itself. The caller has latched a list in which the other
    /// has a request: otherwise a later transaction of its worker may be wounded.
    #[inline]
    pub(super) fn wound(self, other: Self) {
        if self.is_older(other)
            && self.thread != other.thread
            && let Some(slot) = other.slot
        {
            other.records_opponent(self);
            // Release: pairs with the acquire in `opponent`. Nothing else is read by it; a wounded transaction releases its locks under their latches.
            if !slot.wounded.swap(true, Ordering::Release) {
                slot.wake();
            }
        }
    }
}

/// The slot of a worker, and the age of its transaction.
#[derive(Debug)]
pub(super) struct Wounds {
    slot: &'static Slot,
    age: u64,
    thread: u64,
    /// The worker's memory and its slot there, by which it finds out whether the thread has another transaction open.
    worker: Option<(Arc<Memory>, usize)>,
    /// The transaction has waited in vain inside of another one.
    worn_out: Cell<bool>,
}

impl Default for Wounds {
    fn default() -> Self {
        Self { slot: Slot::take(), age: UNAGED, thread: 0, worker: None, worn_out: Cell::new(false) }
    }
}

impl Drop for Wounds {
    /// The worker has no request in any list.
    fn drop(&mut self) {
        self.slot.free();
    }
}

impl Wounds {
    /// Assigns it to a worker.
    pub(super) fn belong_to(&mut self, worker: &Local) {
        let slot = worker.worker_id().position();
        self.slot.worker.store(slot as u32, Ordering::Relaxed);
        self.worker = Some((Arc::clone(worker.memory()), slot));
    }

    /// A transaction begins, in this thread. The one before has no request in any list.
    #[inline]
    pub(super) fn begin(&mut self, age: u64) {
        self.slot.wounded.store(false, Ordering::Relaxed);
        self.slot.opponent.store(0, Ordering::Relaxed);
        (self.age, self.thread) = (age, polychron_sync::this_thread());
        self.worn_out.set(false);
    }

    /// Waits until `done` is true, or the transaction is wounded. So many others are `ahead` of it: behind few the wait may be short, behind more
    /// it is not, and spinning would keep them from a processor.
    ///
    /// `false`: the transaction is inside of another one of its thread, and waited for as long as that makes sense, or its caller waits no
    /// longer.
    pub(super) fn wait(&self, ahead: usize, done: impl Fn() -> bool) -> bool {
        let slot = self.slot;
        let done = || done() || slot.wounded.load(Ordering::Relaxed);
        let spins = if ahead <= Slot::FEW { Parker::SPINS } else { 0 };
        if Parker::spin(spins, done) {
            return true;
        }
        if self.worker.as_ref().is_some_and(|(memory, slot)| memory.epochs().is_another_pinned_here(*slot)) {
            return self.wait_inside(done);
        }
        if limits::are_set() {
            return Self::wait_within_limits(done);
        }
        slot.parker.wait(0, done);
        true
    }

    /// No thread wakes this one when its time is over, so it polls. `false`: the caller waits no longer.
    #[cold]
    fn wait_within_limits(done: impl Fn() -> bool) -> bool {
        while !done() {
            if limits::check().is_err() {
                return done();
            }
            nap(1);
        }
        true
    }

    #[cold]
    fn wait_inside(&self, done: impl Fn() -> bool) -> bool {
        let mut endurance = Endurance::begin();
        while !done() {
            if limits::check().is_err() {
                return done();
            }
            if self.worn_out.get() || !endurance.wait() {
                self.worn_out.set(true);
                return done();
            }
        }
        true
    }

    /// Whether the transaction has waited in vain, and is not to be run again for what others hold.
    pub(super) fn is_worn_out(&self) -> bool {
        self.worn_out.get() && !self.wounded()
    }

    #[inline]
    pub(super) fn requester(&self) -> Requester {
        Requester { thread: self.thread, age: self.age, slot: Some(self.slot) }
    }

    /// The part that others read.
    pub(super) fn slot(&self) -> &Slot {
        self.slot
    }

    /// Whether an older transaction requests what this one holds.
    #[inline]
    pub(super) fn wounded(&self) -> bool {
        self.slot.wounded.load(Ordering::Relaxed)
    }

    /// The worker that has just wounded the transaction, or holds what it did not wait for. It is returned once.
    #[cold]
    pub(super) fn opponent(&self) -> Option<Opponent> {
        // Acquire: pairs with the release in `wound`.
        self.slot.wounded.load(Ordering::Acquire);
        let worker = self.slot.opponent.swap(0, Ordering::Relaxed);
        worker.checked_sub(1).map(|worker| Opponent::of_worker(worker as usize))
    }

    pub(super) fn age(&self) -> u64 {
        self.age
    }

    /// What a running transaction does about locks of others: it waits if it has an age, which decides the one that gives way.
    #[inline]
    pub(super) fn spin_budget(&self) -> SpinBudget {
        if self.age == UNAGED { SpinBudget::Refuse } else { SpinBudget::Wound }
    }
}
