//! Workers for calls that bring none: any thread may transact on a database without keeping a worker itself.
//!
//! A call borrows an idle worker, or a new one. When all slots are taken it waits for a call of another thread to end, first come,
//! first served: what comes back is handed to whoever has waited longest. It waits only for what can come: a loan whose
//! thread waits for another loan cannot end before it, so when all loans are such ones, or the thread's own, or there is none (sessions
//! have the slots), the answer is [`Error::TooManyWorkers`]. So of calls that wait for each other inside of their transactions the last
//! one fails, and the others go on.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use polychron_engine::{Error, Protocol};

/// The most workers that are kept while nobody uses them.
const IDLE_MAX: usize = 64;

/// Idle workers, and who waits for one.
pub(crate) struct Pool<P: Protocol>(Arc<Shared<P>>);

impl<P: Protocol> Clone for Pool<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

pub(crate) struct Shared<P: Protocol>(Mutex<State<P>>);

struct State<P: Protocol> {
    idle: Vec<P::Worker>,
    waiting: VecDeque<Arc<Waiting<P>>>,
    /// Workers that calls have borrowed.
    loans: usize,
    /// Those of threads that wait for one more.
    held_by_waiting: usize,
}

/// A call that waits.
struct Waiting<P: Protocol> {
    /// The loans of its thread, the one that waits included.
    own: usize,
    given: Mutex<Option<Given<P>>>,
    ready: Condvar,
}

enum Given<P: Protocol> {
    /// A worker that came back, with its loan.
    Worker(P::Worker),
    /// A slot may be free.
    Chance,
}

/// A worker that goes back to its pool.
pub(crate) struct Borrowed<'p, P: Protocol> {
    pool: &'p Pool<P>,
    worker: Option<P::Worker>,
}

/// Tells the pool that a slot is free; dropped behind the worker that had it.
pub(crate) struct Slot<P: Protocol>(Weak<Shared<P>>);

/// Pools of which a thread counts the workers that it has borrowed.
const COUNTED: usize = 8;

thread_local! {
    /// How many workers this thread has borrowed, by pool: calls inside of transactions borrow more than one. It has no destructor, so destructors of
    /// other variables of the thread may still use it.
    static OWN: [Cell<(usize, usize)>; COUNTED] = const { [const { Cell::new((0, 0)) }; COUNTED] };
}

impl<P: Protocol> Shared<P> {
    fn state(&self) -> MutexGuard<'_, State<P>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets whoever has waited longest try for a slot, now that so many loans have ended.
    fn slot_is_free(&self, ended: usize) {
        let mut state = self.state();
        state.loans -= ended;
        state.give(Given::Chance);
    }
}

impl<P: Protocol> State<P> {
    /// Gives something to whoever has waited longest, or back to the caller. Whoever is given something does not count as waiting from
    /// now on.
    fn give(&mut self, given: Given<P>) -> Option<Given<P>> {
        let Some(first) = self.waiting.pop_front() else { return Some(given) };
        self.held_by_waiting -= first.own;
        *first.given.lock().unwrap_or_else(PoisonError::into_inner) = Some(given);
        first.ready.notify_one();
        None
    }
}

impl<P: Protocol> Waiting<P> {
    fn wait(&self) -> Given<P> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(given) = given.take() {
                return given;
            }
            given = self.ready.wait(given).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<P: Protocol> Pool<P> {
    pub(crate) fn new() -> Self {
        let state = State { idle: Vec::new(), waiting: VecDeque::new(), loans: 0, held_by_waiting: 0 };
        Self(Arc::new(Shared(Mutex::new(state))))
    }

    /// An idle worker, or a new one, or one that is waited for. Calls inside of a transaction get another worker than the transaction
    /// has.
    pub(crate) fn borrow(&self, protocol: &Arc<P>) -> Result<Borrowed<'_, P>, Error> {
        let mut state = self.0.state();
        // Nobody overtakes those who wait.
        let idle = if state.waiting.is_empty() { state.idle.pop() } else { None };
        state.loans += 1;
        drop(state);
        // From here on the loan ends with the answer, or with this.
        let mut borrowed = Borrowed { pool: self, worker: idle };
        self.change_own(1);
        if borrowed.worker.is_none() {
            borrowed.worker = Some(match protocol.worker() {
                Err(full @ Error::TooManyWorkers { .. }) => self.wait(protocol, full)?,
                other => other?,
            });
        }
        Ok(borrowed)
    }

    /// Waits for a worker on behalf of a loan that has none yet.
    fn wait(&self, protocol: &Arc<P>, full: Error) -> Result<P::Worker, Error> {
        let own = self.change_own(0);
        let (mut comes_again, mut has_looked) = (false, false);
        loop {
            let mut state = self.0.state();
            if let Some(worker) = state.idle.pop() {
                return Ok(worker);
            }
            // The own loans include the one that waits, and so do those of others that wait.
            if state.loans <= state.held_by_waiting + own {
                drop(state);
                // The last loan may have ended, and left its slot, since the slots were found to be taken.
                match protocol.worker() {
                    Err(Error::TooManyWorkers { .. }) if !has_looked => has_looked = true,
                    Err(Error::TooManyWorkers { .. }) => return Err(full),
                    other => return other,
                }
                continue;
            }
            state.held_by_waiting += own;
            let waiting = Arc::new(Waiting { own, given: Mutex::new(None), ready: Condvar::new() });
            if comes_again {
                state.waiting.push_front(Arc::clone(&waiting));
            } else {
                state.waiting.push_back(Arc::clone(&waiting));
            }
            drop(state);
            match waiting.wait() {
                Given::Worker(worker) => return Ok(worker),
                Given::Chance => match protocol.worker() {
                    Err(Error::TooManyWorkers { .. }) => comes_again = true,
                    other => return other,
                },
            }
        }
    }

    /// A worker that does not come back. When all slots are taken, the idle workers give up theirs.
    pub(crate) fn take(&self, protocol: &Arc<P>) -> Result<P::Worker, Error> {
        match protocol.worker() {
            Err(Error::TooManyWorkers { .. }) => {
                let idle = std::mem::take(&mut self.0.state().idle);
                drop(idle);
                protocol.worker()
            }
            other => other,
        }
    }

    /// What to drop behind a worker that was taken.
    pub(crate) fn slot(&self) -> Slot<P> {
        Slot(Arc::downgrade(&self.0))
    }

    /// Changes how many workers this thread has borrowed, and answers how many. A thread with calls of more databases open than are counted may have
    /// borrowed all of the others': it does not wait for one more.
    fn change_own(&self, by: isize) -> usize {
        let pool = Arc::as_ptr(&self.0).addr();
        OWN.with(|own| {
            let find = |wanted: &dyn Fn((usize, usize)) -> bool| own.iter().find(|count| wanted(count.get()));
            let Some(place) =
                find(&|(other, count)| count > 0 && other == pool).or_else(|| find(&|(_, count)| count == 0))
            else {
                return usize::MAX / 2;
            };
            let count = if place.get().0 == pool { place.get().1 } else { 0 }.saturating_add_signed(by);
            place.set((pool, count));
            count
        })
    }
}

impl<P: Protocol> Borrowed<'_, P> {
    pub(crate) fn worker(&mut self) -> &mut P::Worker {
        self.worker.as_mut().expect("the worker is here until the borrow ends")
    }
}

impl<P: Protocol> Drop for Borrowed<'_, P> {
    fn drop(&mut self) {
        self.pool.change_own(-1);
        let shared = &self.pool.0;
        // What a panic in the protocol itself leaves behind is used by nobody.
        if let Some(worker) = self.worker.take_if(|_| !std::thread::panicking()) {
            let mut state = shared.state();
            match state.give(Given::Worker(worker)) {
                Some(Given::Worker(worker)) if state.idle.len() < IDLE_MAX => state.idle.push(worker),
                Some(Given::Worker(worker)) => self.worker = Some(worker),
                _ => {}
            }
            if self.worker.is_none() {
                state.loans -= 1;
                return;
            }
        }
        // A worker leaves its slot when it is dropped; that need not happen under the lock. The loan ends behind it, or when there never
        // was a worker.
        drop(self.worker.take());
        shared.slot_is_free(1);
    }
}

impl<P: Protocol> Drop for Slot<P> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.slot_is_free(0);
        }
    }
}
