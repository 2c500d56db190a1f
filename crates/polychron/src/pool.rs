//! Workers for calls that bring none: any thread may transact on a database without keeping a worker itself.
//!
//! A call borrows the worker that its thread gave back last, or another idle one, or a new one. The first way takes one exchange of a
//! pointer on a cache line that few other threads use, and giving it back another one; no lock is taken.
//!
//! When all slots are taken a call waits for a call of another thread to end, first come, first served: what comes back is handed to
//! whoever has waited longest. It waits only for what can come: a loan whose thread waits for another loan cannot end before it, so when all loans
//! are such ones, or the thread's own, or there is none (sessions have the slots), the answer is [`Error::TooManyWorkers`]. So of calls that wait for
//! each other inside of their transactions the last one fails, and the others go on.
//!
//! **No worker comes back unseen.** A call that waits counts itself in `waiting` and then looks through all places; one that gives a worker
//! back puts it in its place and then loads `waiting`. A sequentially consistent fence lies between the two in both, so the worker is found, or taken out
//! again and handed on.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use polychron_engine::open::{Open, WorkerOwner};
use polychron_engine::redo::Answers;
use polychron_engine::{Error, Interactive, Mode, Protocol, limits};
use polychron_sync::atomic::{AtomicUsize, Ordering};
use polychron_sync::{AtomicCell, CachePadded, fence_behind_exchange};

/// The most workers that are kept while nobody uses them, beside those in their threads' places.
const IDLE_MAX: usize = 64;

/// How often a call that waits within limits looks at them.
const LOOK: Duration = Duration::from_millis(1);

/// Places for workers that threads gave back. Threads share them by their numbers.
const PLACES: usize = 32;

/// Idle workers, and who waits for one.
pub(crate) struct Pool<P: Protocol>(Arc<Shared<P>>);

impl<P: Protocol> Clone for Pool<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// A worker that a thread left behind, or none.
type Place<P> = AtomicCell<Option<Box<<P as Protocol>::Worker>>>;

pub(crate) struct Shared<P: Protocol> {
    places: [CachePadded<Place<P>>; PLACES],
    /// How many calls wait, or are about to.
    waiting: AtomicUsize,
    state: Mutex<State<P>>,
    /// Behind the workers: the last use of a database ends its log.
    #[cfg(feature = "durability")]
    home: std::sync::OnceLock<crate::durable::Home>,
}

struct State<P: Protocol> {
    idle: Vec<Box<P::Worker>>,
    waiting: VecDeque<Arc<Waiting<P>>>,
    /// Workers of the pool: idle, in places, and borrowed; and those that calls wait for or make.
    workers: usize,
    /// The loans of threads that wait for one more.
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
    /// A worker that came back.
    Worker(Box<P::Worker>),
    /// A slot may be free.
    Chance,
}

/// A worker that goes back to its pool.
pub(crate) struct Borrowed<'p, P: Protocol> {
    pool: &'p Pool<P>,
    worker: Option<Box<P::Worker>>,
}

/// A worker that a transaction has for itself, which goes back to its pool when that has ended.
pub struct Loan<P: Protocol>(Pool<P>);

impl<P: Protocol> fmt::Debug for Loan<P> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Loan").finish_non_exhaustive()
    }
}

/// Workers for those who give them back when they have nothing to do. Dropped behind the last of them.
#[cfg(feature = "sql")]
pub(crate) struct Source<P: Protocol> {
    pool: Weak<Shared<P>>,
    /// The last use of a database ends its log.
    #[cfg(feature = "durability")]
    _home: Option<crate::durable::Home>,
    /// Behind the workers.
    protocol: Arc<P>,
}

/// Tells the pool that a slot is free; dropped behind the worker that had it.
pub(crate) struct Slot<P: Protocol>(Weak<Shared<P>>);

thread_local! {
    /// Which place is the thread's; 0 before it is first asked for. Without destructor, as the counts below.
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// The number of the calling thread: threads that live at the same time have different places, as far as there are some.
#[inline]
fn own_number(number: &Cell<usize>) -> usize {
    if number.get() == 0 {
        number.set(polychron_sync::new_number() as usize);
    }
    number.get()
}

/// The number of the calling thread.
#[inline]
pub(crate) fn thread_number() -> usize {
    NUMBER.with(own_number)
}

/// Pools of which a thread counts the workers that it has borrowed.
const COUNTED: usize = 8;

thread_local! {
    /// How many workers this thread has borrowed, by pool: calls inside of transactions borrow more than one. It has no destructor, so destructors of
    /// other variables of the thread may still use it.
    static OWN: [Cell<(usize, usize)>; COUNTED] = const { [const { Cell::new((0, 0)) }; COUNTED] };
}

impl<P: Protocol> Shared<P> {
    fn state(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the calling thread leaves its worker.
    fn place(&self) -> &Place<P> {
        &self.places[thread_number() % PLACES]
    }

    /// A worker that some thread left behind.
    fn take_from_places(&self) -> Option<Box<P::Worker>> {
        self.places.iter().find_map(|place| place.take())
    }

    /// Lets whoever has waited longest try for a slot, now that so many workers are gone.
    fn slot_is_free(&self, gone: usize) {
        let mut state = self.state();
        state.workers -= gone;
        state.give(Given::Chance);
    }

    /// Gives a worker to whoever has waited longest, or keeps it, or drops it.
    #[cold]
    fn hand_on(&self, worker: Box<P::Worker>) {
        let mut state = self.state();
        let left = match state.give(Given::Worker(worker)) {
            Some(Given::Worker(worker)) if state.idle.len() < IDLE_MAX => {
                state.idle.push(worker);
                None
            }
            Some(Given::Worker(worker)) => Some(worker),
            Some(Given::Chance) | None => None,
        };
        drop(state);
        if let Some(worker) = left {
            // A worker leaves its slot when it is dropped, which need not happen under the lock.
            drop(worker);
            self.slot_is_free(1);
        }
    }
}

impl<P: Protocol> State<P> {
    /// Gives something to the client that has waited longest, or back to the caller. That client does not count as waiting from
    /// now on, and a worker takes the place of the one that was waited for.
    fn give(&mut self, given: Given<P>) -> Option<Given<P>> {
        let Some(first) = self.waiting.pop_front() else { return Some(given) };
        self.held_by_waiting -= first.own;
        self.workers -= usize::from(matches!(given, Given::Worker(_)));
        *first.given.lock().unwrap_or_else(PoisonError::into_inner) = Some(given);
        first.ready.notify_one();
        None
    }
}

impl<P: Protocol> Waiting<P> {
    /// Waits until something is given; `None`: the caller waits no longer.
    fn wait(&self) -> Option<Given<P>> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(given) = given.take() {
                return Some(given);
            }
            if !limits::are_set() {
                given = self.ready.wait(given).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            // Nobody wakes this thread when its time is over, so it looks for itself.
            if limits::check().is_err() {
                return None;
            }
            given = self.ready.wait_timeout(given, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl<P: Protocol> Pool<P> {
    pub(crate) fn new() -> Self {
        let state = State { idle: Vec::new(), waiting: VecDeque::new(), workers: 0, held_by_waiting: 0 };
        let places = std::array::from_fn(|_| CachePadded::new(Place::<P>::default()));
        Self(Arc::new(Shared {
            places,
            waiting: AtomicUsize::new(0),
            state: Mutex::new(state),
            #[cfg(feature = "durability")]
            home: std::sync::OnceLock::new(),
        }))
    }

    /// The database has its files here.
    #[cfg(feature = "durability")]
    pub(crate) fn keep(&self, home: crate::durable::Home) {
        assert!(self.0.home.set(home).is_ok(), "a database is opened once");
    }

    /// Where the database has its files, if it has any.
    #[cfg(feature = "durability")]
    pub(crate) fn home(&self) -> Option<&crate::durable::Home> {
        self.0.home.get()
    }

    /// Refuses a process that was forked from the one that has opened a database with a path.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        #[cfg(feature = "durability")]
        if let Some(home) = self.home() {
            return home.check_process();
        }
        Ok(())
    }

    /// An idle worker, or a new one, or one that is waited for. Calls inside of a transaction get another worker than the transaction
    /// has.
    #[inline]
    pub(crate) fn borrow(&self, protocol: &Arc<P>) -> Result<Borrowed<'_, P>, Error> {
        self.check_process()?;
        // Nobody overtakes those who wait.
        if self.0.waiting.load(Ordering::Relaxed) == 0
            && let Some(worker) = self.0.place().take()
        {
            self.change_own(1);
            return Ok(Borrowed { pool: self, worker: Some(worker) });
        }
        self.borrow_slowly(protocol)
    }

    #[cold]
    fn borrow_slowly(&self, protocol: &Arc<P>) -> Result<Borrowed<'_, P>, Error> {
        let mut state = self.0.state();
        let idle = if state.waiting.is_empty() { state.idle.pop().or_else(|| self.0.take_from_places()) } else { None };
        state.workers += usize::from(idle.is_none());
        drop(state);
        // From here on the worker, or the count of it, goes back with this.
        let mut borrowed = Borrowed { pool: self, worker: idle };
        self.change_own(1);
        if borrowed.worker.is_none() {
            borrowed.worker = Some(match protocol.worker() {
                Err(full @ Error::TooManyWorkers { .. }) => {
                    self.0.waiting.fetch_add(1, Ordering::SeqCst);
                    // Pairs with the fence of a call that gives its worker back.
                    fence_behind_exchange();
                    let worker = self.wait(protocol, full);
                    // Whoever loads an old count looks for somebody who waits and finds nobody.
                    self.0.waiting.fetch_sub(1, Ordering::Relaxed);
                    worker?
                }
                other => Box::new(other?),
            });
        }
        Ok(borrowed)
    }

    /// Waits for a worker on behalf of a call that has none yet, and is counted as if it had one.
    fn wait(&self, protocol: &Arc<P>, full: Error) -> Result<Box<P::Worker>, Error> {
        let own = self.change_own(0);
        let (mut comes_again, mut has_looked) = (false, false);
        loop {
            let mut state = self.0.state();
            if let Some(worker) = state.idle.pop().or_else(|| self.0.take_from_places()) {
                state.workers -= 1;
                return Ok(worker);
            }
            // None is idle, so all workers are lent. The own ones include the one that is waited for, and so do those of others that wait.
            if state.workers <= state.held_by_waiting + own {
                drop(state);
                // The last loan may have ended, and left its slot, since the slots were found to be taken.
                match protocol.worker() {
                    Err(Error::TooManyWorkers { .. }) if !has_looked => has_looked = true,
                    Err(Error::TooManyWorkers { .. }) => return Err(full),
                    other => return other.map(Box::new),
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
            match waiting.wait().map_or_else(|| self.leave(&waiting), Ok)? {
                Given::Worker(worker) => return Ok(worker),
                Given::Chance => match protocol.worker() {
                    Err(Error::TooManyWorkers { .. }) => comes_again = true,
                    other => return other.map(Box::new),
                },
            }
        }
    }

    /// A call waits no longer. What it was given meanwhile it has.
    #[cold]
    fn leave(&self, waiting: &Arc<Waiting<P>>) -> Result<Given<P>, Error> {
        let mut state = self.0.state();
        if let Some(position) = state.waiting.iter().position(|other| Arc::ptr_eq(other, waiting)) {
            state.waiting.remove(position);
            state.held_by_waiting -= waiting.own;
            limits::check()?;
            return Ok(Given::Chance);
        }
        drop(state);
        // It is given before the call leaves the queue.
        Ok(waiting.given.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or(Given::Chance))
    }

    /// A worker that does not come back. When all slots are taken, the idle workers give up theirs.
    pub(crate) fn take(&self, protocol: &Arc<P>) -> Result<P::Worker, Error> {
        self.check_process()?;
        match protocol.worker() {
            Err(Error::TooManyWorkers { .. }) => {
                let mut state = self.0.state();
                let mut idle = std::mem::take(&mut state.idle);
                idle.extend(std::iter::from_fn(|| self.0.take_from_places()));
                state.workers -= idle.len();
                drop(state);
                drop(idle);
                protocol.worker()
            }
            other => other,
        }
    }

    /// Workers as [`Pool::take`] gives them.
    #[cfg(feature = "sql")]
    pub(crate) fn source(&self, protocol: &Arc<P>) -> Source<P> {
        Source {
            pool: Arc::downgrade(&self.0),
            #[cfg(feature = "durability")]
            _home: self.home().cloned(),
            protocol: protocol.clone(),
        }
    }

    /// What to drop behind a worker that was taken.
    pub(crate) fn slot(&self) -> Slot<P> {
        Slot(Arc::downgrade(&self.0))
    }

    /// Changes how many workers this thread has borrowed, and answers how many.
    #[inline]
    fn change_own(&self, by: isize) -> usize {
        let pool = Arc::as_ptr(&self.0).addr();
        OWN.with(|own| match own[0].get() {
            // A pool that has the first count has no other one: it gets another one only while this one is another pool's.
            (other, count) if other == pool => changed(&own[0], pool, count, by),
            _ => change_in_list(own, pool, by),
        })
    }
}

/// Changes a count, and answers what it is then.
#[inline]
fn changed(own: &Cell<(usize, usize)>, pool: usize, count: usize, by: isize) -> usize {
    let count = count.saturating_add_signed(by);
    own.set((pool, count));
    count
}

/// Changes the count of a pool that does not have the first one. A thread with calls of more databases open than are counted may have borrowed all
/// of the others' workers: it does not wait for one more.
#[cold]
fn change_in_list(list: &[Cell<(usize, usize)>], pool: usize, by: isize) -> usize {
    let counted = list.iter().find(|own| own.get().1 > 0 && own.get().0 == pool);
    let Some(own) = counted.or_else(|| list.iter().find(|own| own.get().1 == 0)) else { return usize::MAX / 2 };
    let count = if own.get().0 == pool { own.get().1 } else { 0 };
    changed(own, pool, count, by)
}

impl<P: Protocol> Borrowed<'_, P> {
    pub(crate) fn worker(&mut self) -> &mut P::Worker {
        self.worker.as_mut().expect("the worker is here until the borrow ends")
    }
}

impl<P: Protocol<Worker: Interactive>> Borrowed<'_, P> {
    /// Begins a transaction that keeps the worker until it ends, in this thread.
    pub(crate) fn open(mut self, answers: &Answers, mode: Mode) -> Result<Open<'static, P::Worker, Loan<P>>, Error> {
        let (pool, worker) = (self.pool.clone(), self.worker.take());
        // The loan goes on: it ends in `take_back`.
        std::mem::forget(self);
        Open::own(worker.expect("the worker is here until the borrow ends"), Loan(pool), answers, mode)
    }
}

impl<P: Protocol> WorkerOwner<P::Worker> for Loan<P> {
    fn take_back(self, worker: Box<P::Worker>) {
        drop(Borrowed { pool: &self.0, worker: Some(worker) });
    }
}

impl<P: Protocol> Drop for Borrowed<'_, P> {
    #[inline]
    fn drop(&mut self) {
        self.pool.change_own(-1);
        let shared = &self.pool.0;
        // What a panic in the protocol itself leaves behind is used by nobody.
        let Some(worker) = self.worker.take_if(|_| !std::thread::panicking()) else {
            drop(self.worker.take());
            return shared.slot_is_free(1);
        };
        let place = shared.place();
        let other = place.swap(Some(worker));
        // Pairs with the fence of a call that waits: it finds the worker, or is seen here.
        fence_behind_exchange();
        if let Some(other) = other {
            shared.hand_on(other);
        }
        if shared.waiting.load(Ordering::Relaxed) != 0
            && let Some(worker) = place.take()
        {
            shared.hand_on(worker);
        }
    }
}

#[cfg(feature = "sql")]
impl<P: Protocol> polychron_sql::Workers<P::Driven> for Source<P> {
    fn take(&self) -> Result<P::Driven, Error> {
        let worker = match self.pool.upgrade() {
            Some(shared) => Pool(shared).take(&self.protocol),
            // The database itself is gone, and with it all who may wait.
            None => self.protocol.worker(),
        };
        worker.map(Into::into)
    }

    fn give_back(&self, worker: Box<P::Driven>) {
        drop(worker);
        self.pool.upgrade().iter().for_each(|shared| shared.slot_is_free(0));
    }
}

/// A connection gives its last worker back without saying so.
#[cfg(feature = "sql")]
impl<P: Protocol> Drop for Source<P> {
    fn drop(&mut self) {
        self.pool.upgrade().iter().for_each(|shared| shared.slot_is_free(0));
    }
}

impl<P: Protocol> Drop for Slot<P> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.slot_is_free(0);
        }
    }
}
