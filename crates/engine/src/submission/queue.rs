//! The queue of submitted procedures, which makes batches of them.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::task::Waker;
use std::time::Duration;

use polychron_base::clock::Clock;
use polychron_sync::{Condvar, Mutex, MutexGuard, Process};

use super::admission::Tasks;
use super::answer::{Service, Submission, pair};
use super::batch::{Batch, Item, Lane, Lined};
use super::held::{Giving, Held};
use super::lock;
use crate::Worker;
use crate::drive::catch;
use crate::futures::Attempt;
use crate::options::Submissions;

/// Empty batches that are kept. More of them than threads are there only while many full ones wait.
const SPARE: usize = 64;

/// For how long a thread that has nothing to do lets others go on with what they execute before it looks whether they did, in microseconds,
/// and how often that is doubled while it finds nothing to do.
const PAUSE_US: u64 = 1000;
const DOUBLINGS: u32 = 6;
/// For how long it goes on watching when no thread executes anything, so that not each batch has to call some thread to watch.
const GRACE_US: u64 = 64_000;

/// The state that clients and the service's threads share.
pub(super) struct Queue<W> {
    state: Mutex<State<W>>,
    /// A thread that executes may have something to do.
    work: Condvar,
    /// The same, for those that look at the others from time to time: they are called when all that have nothing to do are such.
    watch: Condvar,
    /// A client that waits may submit now.
    room: Condvar,
    clock: Arc<dyn Clock>,
    batch_size: usize,
    batch_time_ns: u64,
    most_waiting: usize,
    protocol: &'static str,
    /// Which process has the threads.
    process: Process,
    /// The list of answers that may not leave yet; `None` if answers never wait.
    held: Option<Arc<Held>>,
}

/// The next task of a thread.
pub(super) enum Work<W> {
    /// Execute a batch.
    Batch(Arc<Batch<W>>),
    /// Help with those that have not gone on for a while.
    Help(Vec<Arc<Batch<W>>>),
}

/// The other threads, as an idle thread has seen them.
#[derive(Default)]
pub(super) struct Watch {
    /// The batches that were being executed, and how far each was.
    seen: Vec<(u64, (usize, usize))>,
    /// It has let the others go on since.
    has_paused: bool,
    /// The number of times that there was nothing to help with.
    vain: u32,
}

impl Watch {
    /// The batches that have not gone on since the last time.
    fn look<W: Worker + 'static>(&mut self, running: &[Arc<Batch<W>>]) -> Vec<Arc<Batch<W>>> {
        let now = |batch: &Arc<Batch<W>>| (batch.number, batch.progress());
        let stands = |batch: &&Arc<Batch<W>>| self.has_paused && self.seen.contains(&now(batch));
        let stuck: Vec<_> = running.iter().filter(stands).map(Arc::clone).collect();
        self.seen.clear();
        self.seen.extend(running.iter().map(now));
        if std::mem::take(&mut self.has_paused) && stuck.is_empty() {
            self.vain = 0;
        }
        stuck
    }

    fn pause(&self) -> Duration {
        Duration::from_micros(if self.seen.is_empty() { GRACE_US } else { PAUSE_US << self.vain })
    }

    /// The thread has tried to help.
    pub(super) fn tried(&mut self, helped: bool) {
        self.vain = if helped { 0 } else { (self.vain + 1).min(DOUBLINGS) };
    }
}

struct State<W> {
    /// The batch that is being filled.
    forming: Arc<Batch<W>>,
    /// Full batches.
    closed: VecDeque<Arc<Batch<W>>>,
    /// Empty ones, which keep their memory.
    spare: Vec<Arc<Batch<W>>>,
    /// Batches that are being executed.
    running: Vec<Arc<Batch<W>>>,
    /// Procedures in `forming` and `closed`.
    waiting: usize,
    /// Threads that have nothing to do.
    idle: usize,
    /// Of these, those that look at the others from time to time.
    watching: usize,
    /// Threads of clients that wait for room.
    held_up: usize,
    /// Tasks that do.
    tasks: Tasks,
    /// No more procedures are taken in.
    is_ending: bool,
    batches: u64,
}

impl<W: Worker + 'static> State<W> {
    /// Takes an executed batch back, whose memory is reused, unless some thread helps with it still or there are enough.
    fn put_back(&mut self, mut batch: Arc<Batch<W>>) -> Option<Arc<Batch<W>>> {
        self.running.retain(|other| !Arc::ptr_eq(other, &batch));
        match Arc::get_mut(&mut batch).filter(|_| self.spare.len() < SPARE) {
            Some(executed) => executed.clear(),
            None => return Some(batch),
        }
        self.spare.push(batch);
        None
    }
}

impl<W: Worker + 'static> Queue<W> {
    pub(super) fn new(
        options: &Submissions,
        clock: Arc<dyn Clock>,
        protocol: &'static str,
        held: Option<Arc<Held>>,
    ) -> Self {
        let state = State {
            forming: Arc::default(),
            closed: VecDeque::new(),
            spare: Vec::new(),
            running: Vec::new(),
            waiting: 0,
            idle: 0,
            watching: 0,
            held_up: 0,
            tasks: Tasks::default(),
            is_ending: false,
            batches: 0,
        };
        Self {
            state: Mutex::new(state),
            work: Condvar::new(),
            watch: Condvar::new(),
            room: Condvar::new(),
            clock,
            batch_size: options.batch_size.max(1),
            batch_time_ns: options.batch_time_us.saturating_mul(1000),
            most_waiting: options.most_waiting.max(1),
            protocol,
            process: Process::here(),
            held,
        }
    }

    /// Held by a thread that answers.
    pub(super) fn giving(&self) -> Option<Giving> {
        self.held.as_ref().map(Held::give)
    }

    /// The identity of this service.
    pub(super) fn service(&self) -> Service {
        Service::of(self, self.protocol, self.process)
    }

    fn has_room(&self, state: &State<W>) -> bool {
        !self.is_full(state) || state.is_ending
    }

    /// As many wait, or their answers do, as may: nothing more comes into the batch that is forming before others are begun, and where it is all there is it waits
    /// for nothing.
    fn is_full(&self, state: &State<W>) -> bool {
        let held = self.held.as_ref().map_or(0, |held| held.count());
        state.waiting + held >= self.most_waiting
    }

    /// Whether the caller might wait for itself: a procedure, and a thread that executes.
    fn must_not_wait(&self) -> bool {
        Attempt::is_running() || self.service().is_served()
    }

    /// Takes a procedure in. `Err` gives it back: there is no room, and the caller does not want to wait.
    pub(super) fn submit<I: Item + 'static>(
        &self,
        (item, holds): (I, bool),
        waits: bool,
    ) -> Result<Submission<I::Output, I::Error>, I>
    where
        Lined<I>: Lane<W>,
    {
        let Some(state) = self.wait_for_room(waits) else { return Err(item) };
        Ok(self.take_in(state, (item, holds)))
    }

    /// `None`: there is no room, and the caller does not want to wait.
    #[inline(never)]
    fn wait_for_room(&self, waits: bool) -> Option<MutexGuard<'_, State<W>>> {
        let mut state = lock(&self.state);
        while !self.has_room(&state) {
            if !waits {
                return None;
            }
            if self.must_not_wait() {
                break;
            }
            state.held_up += 1;
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.held_up -= 1;
        }
        Some(state)
    }

    /// Takes a procedure in for a task. `Err` gives it back: there is no room, and the task of the number that is answered, which had the
    /// one that is given, is woken when there is.
    pub(super) fn submit_or_wait<I: Item + 'static>(
        &self,
        (item, holds): (I, bool),
        number: u64,
        waker: Waker,
    ) -> Result<Submission<I::Output, I::Error>, (I, u64)>
    where
        Lined<I>: Lane<W>,
    {
        let mut state = lock(&self.state);
        if self.has_room(&state) || self.must_not_wait() {
            return Ok(self.take_in(state, (item, holds)));
        }
        let (number, before) = state.tasks.put(number, waker);
        drop(state);
        drop(before);
        Err((item, number))
    }

    pub(super) fn with_tasks<O>(&self, work: impl FnOnce(&mut Tasks) -> O) -> O {
        work(&mut lock(&self.state).tasks)
    }

    fn take_in<I: Item + 'static>(
        &self,
        state: MutexGuard<'_, State<W>>,
        (item, holds): (I, bool),
    ) -> Submission<I::Output, I::Error>
    where
        Lined<I>: Lane<W>,
    {
        let (submission, reply) = pair(self.service(), self.held.as_ref().map(|held| (Arc::clone(held), holds)));
        let mut taken = Some((item, reply));
        // Where the service is ending, the reply says so when it is dropped.
        self.put(state, &mut |forming| {
            if let Some((item, reply)) = taken.take() {
                forming.push(item, reply);
            }
        });
        submission
    }

    /// Pushes something into the batch that is forming, unless the service is ending. Compiled once for all types of procedures.
    #[inline(never)]
    fn put(&self, mut state: MutexGuard<'_, State<W>>, push: &mut dyn FnMut(&mut Batch<W>)) {
        if state.is_ending {
            return;
        }
        let forming = Arc::get_mut(&mut state.forming).expect("nobody else has a batch that is being filled");
        if forming.count == 0 && self.batch_time_ns > 0 {
            forming.opened_ns = self.clock.now_ns();
        }
        push(forming);
        state.waiting += 1;
        let (begun, full) = (state.forming.count == 1, state.forming.count >= self.batch_size);
        let is_due = begun || full || self.is_full(&state);
        if full {
            let next = state.spare.pop().unwrap_or_default();
            let closed = std::mem::replace(&mut state.forming, next);
            state.closed.push_back(closed);
        }
        // Those that come in between find a thread that waits for the batch already.
        let call = if is_due { self.who_is_free(&state) } else { None };
        drop(state);
        if let Some(free) = call {
            free.notify_one();
        }
    }

    /// Answers that were held have left.
    pub(super) fn made_room(&self, count: usize) {
        let mut state = lock(&self.state);
        let call = state.held_up > 0;
        let tasks = state.tasks.take(count);
        drop(state);
        if call {
            self.room.notify_all();
        }
        wake(tasks);
    }

    /// Waits for the next work of the calling thread, which has executed the given batch, if any. `None`: there will be no more work.
    pub(super) fn next(&self, watch: &mut Watch, executed: Option<Arc<Batch<W>>>) -> Option<Work<W>> {
        // Declared first, so that it is dropped outside of the lock.
        let _dropped;
        let mut state = lock(&self.state);
        _dropped = executed.and_then(|batch| state.put_back(batch));
        let mut batch = loop {
            if let Some(batch) = state.closed.pop_front() {
                break batch;
            }
            let wait_ns = match state.forming.count {
                0 => None,
                _ if state.is_ending || self.is_full(&state) => Some(0),
                _ => Some(self.left_ns(state.forming.opened_ns)),
            };
            match wait_ns {
                Some(0) => {
                    let next = state.spare.pop().unwrap_or_default();
                    break std::mem::replace(&mut state.forming, next);
                }
                None if state.is_ending => return None,
                _ => {}
            }
            let was_busy = !watch.seen.is_empty();
            let stuck = watch.look(&state.running);
            if !stuck.is_empty() {
                // What this thread begins may last, too: another one watches meanwhile.
                let free = if state.watching == 0 { self.who_is_free(&state) } else { None };
                free.into_iter().for_each(Condvar::notify_one);
                return Some(Work::Help(stuck));
            }
            let watches = was_busy || !state.running.is_empty();
            let left = wait_ns.map(Duration::from_nanos);
            state = self.wait(state, left, watches.then(|| watch.pause()), watch);
        };
        state.waiting -= batch.count;
        state.batches += 1;
        Arc::get_mut(&mut batch).expect("nobody has it yet").number = state.batches;
        state.running.push(Arc::clone(&batch));
        let call = state.held_up > 0;
        // More may have come than may wait, from this service's own threads; a thread that waits for a batch to fill has not heard of it. Or
        // none would notice if this batch took long.
        let is_due = self.is_full(&state) || state.watching == 0;
        let free = if is_due { self.who_is_free(&state) } else { None };
        let tasks = state.tasks.take(batch.count);
        drop(state);
        if call {
            self.room.notify_all();
        }
        if let Some(free) = free {
            free.notify_one();
        }
        wake(tasks);
        Some(Work::Batch(batch))
    }

    /// Waits until there may be something to do: a batch that is filled is due in the time that is `left`, and after the `pause` others may
    /// be found that have not gone on.
    fn wait<'s>(
        &'s self,
        mut state: MutexGuard<'s, State<W>>,
        left: Option<Duration>,
        pause: Option<Duration>,
        watch: &mut Watch,
    ) -> MutexGuard<'s, State<W>> {
        state.idle += 1;
        state.watching += usize::from(pause.is_some());
        let called = if pause.is_some() { &self.watch } else { &self.work };
        state = match left.into_iter().chain(pause).min() {
            None => called.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(time) => {
                let (state, how) = called.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner);
                watch.has_paused = how.timed_out() && pause == Some(time);
                state
            }
        };
        state.watching -= usize::from(pause.is_some());
        state.idle -= 1;
        state
    }

    /// Wakes a thread that has nothing to do.
    fn who_is_free(&self, state: &State<W>) -> Option<&Condvar> {
        let others = (state.idle > 0).then_some(&self.watch);
        if state.idle > state.watching { Some(&self.work) } else { others }
    }

    /// Whether there is a batch to execute.
    pub(super) fn has_batch(&self) -> bool {
        let state = lock(&self.state);
        !state.closed.is_empty() || state.forming.count > 0 && self.left_ns(state.forming.opened_ns) == 0
    }

    /// The time for which a batch that was opened then may still be filled.
    fn left_ns(&self, opened_ns: u64) -> u64 {
        match self.batch_time_ns {
            0 => 0,
            time_ns => opened_ns.saturating_add(time_ns).saturating_sub(self.clock.now_ns()),
        }
    }

    /// Takes no more procedures in; those that are here are executed.
    pub(super) fn end(&self) {
        let tasks = {
            let mut state = lock(&self.state);
            state.is_ending = true;
            state.tasks.take(usize::MAX)
        };
        self.work.notify_all();
        self.watch.notify_all();
        self.room.notify_all();
        wake(tasks);
    }

    /// Batches that were begun.
    pub(super) fn batches(&self) -> u64 {
        lock(&self.state).batches
    }
}

/// Wakes tasks. Wakers are user code; one that panics is not the service's end.
fn wake(tasks: Vec<Waker>) {
    for waker in tasks {
        let _ = catch(|| waker.wake());
    }
}
