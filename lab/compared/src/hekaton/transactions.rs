//! The table of transactions: their outcomes, the threads that wait for these, and which timestamps are still read.
//!
//! A worker has a slot, and runs one transaction at a time in it. A stamp that is an id leads there; where the slot has gone on to
//! another transaction, the stamp has been finished and is read again.
//!
//! *Drawing.* A transaction says that it is drawing its end before it draws it. A thread that reads at a timestamp after that end has drawn
//! from the counter later, so it sees at least that, and waits for the number. So no reader takes a transaction for a running one that ends
//! before the reader's timestamp.

use std::sync::PoisonError;

use polychron_engine::mutations::left_out;
use polychron_sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use polychron_sync::{Backoff, CachePadded, Mutex, publish};

use super::steps::Step;
use super::version::{INFINITY, Record, Stamp, Top, TransactionId, Version};

/// States, in the low bits of a slot's status; the generation is above.
const ACTIVE: u64 = 0;
const DRAWING: u64 = 1;
const PREPARING: u64 = 2;
const COMMITTED: u64 = 3;
const ABORTED: u64 = 4;
const STATE: u64 = 7;
/// Some thread depends on the outcome.
const AWAITED: u64 = 8;
const GENERATION_SHIFT: u32 = 4;

/// The word of dependencies: their count, whether one has failed, and above them the generation.
const FAILED: u64 = 1 << 23;
const COUNT: u64 = FAILED - 1;
const DEPENDENCIES_SHIFT: u32 = 24;

/// The part of a transaction's generation that its word of dependencies holds.
fn dependencies_of(generation: u64) -> u64 {
    generation << DEPENDENCIES_SHIFT >> DEPENDENCIES_SHIFT
}

/// The `reading` word of a slot that reads nothing.
const IDLE: u64 = u64::MAX;

#[derive(Debug)]
struct Slot {
    status: AtomicU64,
    end: AtomicU64,
    dependencies: AtomicU64,
    /// The timestamp that is read; its lowest bit says that no other timestamp will be.
    reading: AtomicU64,
    /// The thread that began it.
    thread: AtomicU64,
    dependents: Mutex<Vec<TransactionId>>,
}

/// What becomes of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It runs; it will end later than everything that was drawn so far.
    Active,
    /// It ends then, if its validation passes.
    Preparing(u64),
    /// It ended then.
    Committed(u64),
    /// It was undone.
    Aborted,
    /// Its stamps have been finished: they are to be read again.
    Gone,
}

/// What a record shows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look {
    /// A version.
    Row(Version, Basis),
    /// Nothing.
    Nothing(Basis, Blank),
}

/// What an answer rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Basis {
    /// What has happened.
    Finished,
    /// That this transaction, which is preparing, commits.
    On(TransactionId),
    /// A write of the requester.
    Own,
}

/// Why a record shows no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blank {
    /// Its latest version is over.
    Over(Version),
    /// It has only versions that the timestamp does not see.
    Unseen,
    /// It no longer serves a key.
    Closed,
}

/// The timestamps at which something is read, or may be from now on.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// From here on all of them.
    pub(super) from: u64,
    /// Before that, these.
    pub(super) single: Vec<u64>,
}

impl Held {
    /// The oldest of them.
    pub(super) fn oldest(&self) -> u64 {
        self.single.iter().copied().min().map_or(self.from, |single| single.min(self.from))
    }

    /// Whether any lies between begin and end.
    pub(super) fn sees(&self, begin: u64, end: u64) -> bool {
        end > self.from || self.single.iter().any(|&timestamp| begin <= timestamp && timestamp < end)
    }
}

/// The counter and the table. See the head of the module.
#[derive(Debug)]
pub(super) struct Transactions {
    counter: CachePadded<AtomicU64>,
    used: CachePadded<AtomicUsize>,
    slots: Box<[CachePadded<Slot>]>,
}

impl Transactions {
    pub(super) fn new(slots: usize) -> Self {
        let slot = || Slot {
            status: AtomicU64::new(ABORTED),
            end: AtomicU64::new(0),
            dependencies: AtomicU64::new(0),
            reading: AtomicU64::new(IDLE),
            thread: AtomicU64::new(0),
            dependents: Mutex::default(),
        };
        Self {
            counter: CachePadded::new(AtomicU64::new(1)),
            used: CachePadded::new(AtomicUsize::new(0)),
            slots: (0..slots).map(|_| CachePadded::new(slot())).collect(),
        }
    }

    /// A worker takes a slot that no other thread has.
    pub(super) fn enter(&self, slot: usize) {
        // Pairs with the fence in `held`: see there.
        self.used.fetch_max(slot + 1, Ordering::SeqCst);
    }

    /// The next timestamp. Acquire and release: a thread that draws later sees what every thread did that drew before.
    #[inline]
    fn draw(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::AcqRel)
    }

    /// The timestamp that was drawn last.
    #[inline]
    pub(super) fn latest(&self) -> u64 {
        // Pairs with `draw`, as another draw would.
        self.counter.load(Ordering::SeqCst) - 1
    }

    /// Begins a transaction that may write: answers its id and the timestamp that it reads. `known` is any timestamp drawn before.
    #[inline]
    pub(super) fn begin(&self, slot: usize, known: u64) -> (TransactionId, u64) {
        let own = &self.slots[slot];
        let generation = (own.status.load(Ordering::Relaxed) >> GENERATION_SHIFT) + 1;
        // A bound at first: a thread that looks for what is read from then on, and misses this, has read the counter before the draw, for
        // it would have acquired this store otherwise.
        own.reading.store(known << 1, Ordering::Relaxed);
        own.dependencies.store(dependencies_of(generation) << DEPENDENCIES_SHIFT, Ordering::Relaxed);
        // Relaxed: threads look for their own number only.
        own.thread.store(polychron_sync::this_thread(), Ordering::Relaxed);
        // Release: a thread that finds this generation sees the stamps of the one before finished.
        own.status.store(generation << GENERATION_SHIFT | ACTIVE, Ordering::Release);
        let timestamp = self.draw();
        own.reading.store(timestamp << 1, Ordering::Relaxed);
        (TransactionId::new(slot, generation), timestamp)
    }

    /// Begins a snapshot: answers the timestamp that it reads.
    pub(super) fn begin_snapshot(&self, slot: usize, known: u64) -> u64 {
        let own = &self.slots[slot];
        // Barrier: pairs with the fence in `held`. A thread that misses this has read the counter before it is read here.
        publish(&own.reading, known << 1);
        let timestamp = self.latest();
        own.reading.store(timestamp << 1 | 1, Ordering::Relaxed);
        timestamp
    }

    /// The worker reads nothing from now on.
    #[inline]
    pub(super) fn end(&self, slot: usize) {
        // Release: pairs with the acquire in `held`; what was read was read before its memory is freed.
        self.slots[slot].reading.store(IDLE, Ordering::Release);
    }

    /// Which timestamps are read now or from now on.
    pub(super) fn held(&self, held: &mut Held) {
        held.from = self.latest();
        held.single.clear();
        // SeqCst: pairs with `enter` and `begin_snapshot`.
        fence(Ordering::SeqCst);
        let used = self.used.load(Ordering::SeqCst);
        for slot in &self.slots[..used] {
            // Pairs with `end`.
            let reading = slot.reading.load(Ordering::Acquire);
            if reading == IDLE {
                continue;
            }
            if reading & 1 == 1 {
                held.single.push(reading >> 1);
            } else {
                held.from = held.from.min(reading >> 1);
            }
        }
    }

    #[inline]
    fn own(&self, id: TransactionId) -> &Slot {
        &self.slots[id.slot()]
    }

    #[inline]
    fn set(&self, id: TransactionId, state: u64) -> u64 {
        // Acquire and release: the row of a preparing transaction is seen by a thread that sees the state; the list of dependents by its
        // owner.
        self.own(id).status.swap(id.generation() << GENERATION_SHIFT | state, Ordering::AcqRel)
    }

    /// The transaction ends: draws its end, which all can see from now on.
    #[inline]
    pub(super) fn prepare(&self, id: TransactionId, drawn: impl FnOnce()) -> u64 {
        let own = self.own(id);
        let generation = id.generation() << GENERATION_SHIFT;
        if !left_out(Step::AnnounceEnd) {
            // No thread can depend on it yet. The draw releases it to all that draw later.
            own.status.store(generation | DRAWING, Ordering::Release);
        }
        let end = self.draw();
        drawn();
        // Release: a thread that sees this number sees the generation that it belongs to.
        own.end.store(end, Ordering::Release);
        own.status.store(generation | PREPARING, Ordering::Release);
        end
    }

    /// The transaction has committed, or is undone; those that depend on it are told.
    #[inline]
    pub(super) fn decide(&self, id: TransactionId, committed: bool) {
        let before = self.set(id, if committed { COMMITTED } else { ABORTED });
        if before & AWAITED != 0 {
            self.notify(id, committed);
        }
    }

    #[cold]
    fn notify(&self, id: TransactionId, committed: bool) {
        let mut dependents = self.own(id).dependents.lock().unwrap_or_else(PoisonError::into_inner);
        for dependent in dependents.drain(..) {
            let word = &self.own(dependent).dependencies;
            let mut seen = word.load(Ordering::Relaxed);
            // A thread that has ended since no longer waits.
            while seen >> DEPENDENCIES_SHIFT == dependencies_of(dependent.generation()) {
                let updated = (seen - 1) | if committed { 0 } else { FAILED };
                // Release: pairs with the acquire in `pending`.
                match word.compare_exchange_weak(seen, updated, Ordering::Release, Ordering::Relaxed) {
                    Ok(_) => break,
                    Err(now) => seen = now,
                }
            }
        }
    }

    /// Makes `id` commit only if `on` does. `false`: that is decided, or `on` is no longer preparing.
    pub(super) fn depend(&self, id: TransactionId, on: TransactionId) -> bool {
        let other = self.own(on);
        let mut dependents = other.dependents.lock().unwrap_or_else(PoisonError::into_inner);
        let preparing = on.generation() << GENERATION_SHIFT | PREPARING;
        let awaited = preparing | AWAITED;
        // A thread that decides swaps the status: it finds this, and then the list behind the lock.
        let noted = other.status.compare_exchange(preparing, awaited, Ordering::AcqRel, Ordering::Acquire);
        if noted.is_err_and(|status| status != awaited) {
            return false;
        }
        self.own(id).dependencies.fetch_add(1, Ordering::Relaxed);
        dependents.push(id);
        true
    }

    /// Whether the outcome of others is awaited; `None`: one has failed.
    #[inline]
    pub(super) fn pending(&self, id: TransactionId) -> Option<bool> {
        // Pairs with the release in `notify`.
        let word = self.own(id).dependencies.load(Ordering::Acquire);
        (word & FAILED == 0).then_some(word & COUNT != 0)
    }

    /// Waits for the outcome of others. `false`: one has failed.
    #[inline]
    pub(super) fn await_others(&self, id: TransactionId) -> bool {
        let mut backoff = Backoff::new();
        loop {
            match self.pending(id) {
                None => return false,
                Some(false) => return true,
                Some(true) => backoff.wait(),
            }
        }
    }

    /// Waits until a preparing transaction has been decided.
    pub(super) fn await_outcome(&self, id: TransactionId) {
        let mut backoff = Backoff::new();
        while matches!(self.outcome(id), Outcome::Preparing(_)) {
            backoff.wait();
        }
    }

    /// Whether a transaction runs in the calling thread: it does not end before the caller goes on.
    pub(super) fn is_open_here(&self, id: TransactionId) -> bool {
        let slot = self.own(id);
        // Acquire: pairs with the release in `begin`: any thread that has begun has stored the thread before. In this order, because a
        // thread may have the number of one that had the slot before it ended.
        slot.status.load(Ordering::Acquire) == id.generation() << GENERATION_SHIFT | ACTIVE
            && slot.thread.load(Ordering::Relaxed) == polychron_sync::this_thread()
    }

    #[inline]
    fn outcome(&self, id: TransactionId) -> Outcome {
        let slot = self.own(id);
        let mut backoff = Backoff::new();
        loop {
            // Acquire: pairs with the releases of any thread that sets it.
            let status = slot.status.load(Ordering::Acquire);
            if status >> GENERATION_SHIFT != id.generation() {
                return Outcome::Gone;
            }
            let state = status & STATE;
            match state {
                ACTIVE => return Outcome::Active,
                ABORTED => return Outcome::Aborted,
                DRAWING => backoff.wait(),
                _ => {
                    let end = slot.end.load(Ordering::Acquire);
                    // A number of the next generation would have come with its status.
                    if slot.status.load(Ordering::Acquire) >> GENERATION_SHIFT != id.generation() {
                        return Outcome::Gone;
                    }
                    return if state == PREPARING { Outcome::Preparing(end) } else { Outcome::Committed(end) };
                }
            }
        }
    }

    /// Whether a version's writer has been undone, or is gone.
    pub(super) fn is_undone(&self, version: Version) -> bool {
        match version.begin() {
            Stamp::At(begin) => begin == INFINITY,
            Stamp::By(id) => matches!(self.outcome(id), Outcome::Aborted | Outcome::Gone),
        }
    }

    /// What a record shows at a timestamp to `me`.
    #[inline]
    pub(super) fn look(&self, record: Record, timestamp: u64, me: TransactionId) -> Look {
        let Top::Version(latest) = record.top() else { return Look::Nothing(Basis::Finished, Blank::Closed) };
        let mut version = latest;
        loop {
            if let Some(basis) = self.has_begun(version, timestamp, me) {
                return self.look_at_end(version, basis, version == latest, timestamp, me);
            }
            match version.next() {
                Some(next) => version = next,
                None => return Look::Nothing(Basis::Finished, Blank::Unseen),
            }
        }
    }

    /// Whether a version has begun at a timestamp, and on what that rests.
    #[inline]
    fn has_begun(&self, version: Version, timestamp: u64, me: TransactionId) -> Option<Basis> {
        loop {
            let id = match version.begin() {
                Stamp::At(begin) => return (begin <= timestamp).then_some(Basis::Finished),
                Stamp::By(id) if id == me => return Some(Basis::Own),
                Stamp::By(id) => id,
            };
            match self.outcome(id) {
                Outcome::Active if left_out(Step::PassUncommitted) => return Some(Basis::Finished),
                Outcome::Active | Outcome::Aborted => return None,
                Outcome::Preparing(end) => return (end <= timestamp).then_some(Basis::On(id)),
                Outcome::Committed(end) => return (end <= timestamp).then_some(Basis::Finished),
                Outcome::Gone => {}
            }
        }
    }

    /// What a version shows that has begun.
    #[inline]
    fn look_at_end(&self, version: Version, basis: Basis, is_top: bool, timestamp: u64, me: TransactionId) -> Look {
        let blank = if is_top { Blank::Over(version) } else { Blank::Unseen };
        match self.end_at(version, timestamp, me) {
            End::Open => Look::Row(version, basis),
            End::Over(Basis::Finished) => Look::Nothing(basis, blank),
            End::Over(end) => Look::Nothing(end, blank),
        }
    }

    /// Whether a version that has begun is over at a timestamp.
    #[inline]
    pub(super) fn end_at(&self, version: Version, timestamp: u64, me: TransactionId) -> End {
        loop {
            let id = match version.end() {
                Stamp::At(end) if end > timestamp => return End::Open,
                Stamp::At(_) => return End::Over(Basis::Finished),
                Stamp::By(id) if id == me => return End::Over(Basis::Own),
                Stamp::By(id) => id,
            };
            match self.outcome(id) {
                Outcome::Preparing(end) if end <= timestamp => return End::Over(Basis::On(id)),
                Outcome::Committed(end) if end <= timestamp => return End::Over(Basis::Finished),
                Outcome::Gone => {}
                _ => return End::Open,
            }
        }
    }
}

/// Whether a version is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It is not.
    Open,
    /// It is.
    Over(Basis),
}
