//! Where submitted procedures wait, and become batches.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::task::Waker;
use std::time::Duration;

use polychron_base::clock::Clock;
use polychron_sync::{Condvar, Mutex, MutexGuard};

use super::admission::Tasks;
use super::answer::{Service, Submission, pair};
use super::batch::Batch;
use super::lock;
use crate::drive::catch;
use crate::futures::Attempt;
use crate::options::Submissions;
use crate::{Procedure, Worker};

/// Empty batches that are kept. More of them than threads are there only while many full ones wait.
const SPARE: usize = 64;

/// What clients and the service's threads share.
pub(super) struct Queue<W> {
    state: Mutex<State<W>>,
    /// A thread that executes may have something to do.
    work: Condvar,
    /// A client that waits may submit now.
    room: Condvar,
    clock: Arc<dyn Clock>,
    batch_size: usize,
    batch_time_ns: u64,
    most_waiting: usize,
    protocol: &'static str,
}

struct State<W> {
    /// The batch that is being filled.
    forming: Batch<W>,
    /// Full batches.
    closed: VecDeque<Batch<W>>,
    /// Empty ones, which keep their memory.
    spare: Vec<Batch<W>>,
    /// Procedures in `forming` and `closed`.
    waiting: usize,
    /// Threads that have nothing to do.
    idle: usize,
    /// Threads of clients that wait for room.
    held_up: usize,
    /// Tasks that do.
    tasks: Tasks,
    /// No more procedures are taken in.
    is_ending: bool,
    batches: u64,
}

impl<W: Worker + 'static> Queue<W> {
    pub(super) fn new(options: &Submissions, clock: Arc<dyn Clock>, protocol: &'static str) -> Self {
        let state = State {
            forming: Batch::default(),
            closed: VecDeque::new(),
            spare: Vec::new(),
            waiting: 0,
            idle: 0,
            held_up: 0,
            tasks: Tasks::default(),
            is_ending: false,
            batches: 0,
        };
        Self {
            state: Mutex::new(state),
            work: Condvar::new(),
            room: Condvar::new(),
            clock,
            batch_size: options.batch_size.max(1),
            batch_time_ns: options.batch_time_us.saturating_mul(1000),
            most_waiting: options.most_waiting.max(1),
            protocol,
        }
    }

    /// What tells this service from all others that there are.
    pub(super) fn service(&self) -> Service {
        Service::of(self, self.protocol)
    }

    fn has_room(&self, state: &State<W>) -> bool {
        !self.is_full(state) || state.is_ending
    }

    /// As many wait as may: nothing more comes into the batch that is forming before others are begun, and where it is all there is it waits for
    /// nothing.
    fn is_full(&self, state: &State<W>) -> bool {
        state.waiting >= self.most_waiting
    }

    /// Whether the caller might wait for itself: a procedure, and a thread that executes.
    fn must_not_wait(&self) -> bool {
        Attempt::is_running() || self.service().is_served()
    }

    /// Takes a procedure in. `Err` gives it back: there is no room, and the caller does not want to wait.
    pub(super) fn submit<P: Procedure + 'static>(&self, procedure: P, waits: bool) -> Result<Submission<P::Output>, P> {
        let mut state = lock(&self.state);
        while !self.has_room(&state) {
            if !waits {
                drop(state);
                return Err(procedure);
            }
            if self.must_not_wait() {
                break;
            }
            state.held_up += 1;
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.held_up -= 1;
        }
        Ok(self.take_in(state, procedure))
    }

    /// Takes a procedure in for a task. `Err` gives it back: there is no room, and the task of the number that is answered, which had the one
    /// that is given, is woken when there is.
    pub(super) fn submit_or_wait<P: Procedure + 'static>(
        &self,
        procedure: P,
        number: u64,
        waker: Waker,
    ) -> Result<Submission<P::Output>, (P, u64)> {
        let mut state = lock(&self.state);
        if self.has_room(&state) || self.must_not_wait() {
            return Ok(self.take_in(state, procedure));
        }
        let (number, before) = state.tasks.put(number, waker);
        drop(state);
        drop(before);
        Err((procedure, number))
    }

    pub(super) fn with_tasks<O>(&self, work: impl FnOnce(&mut Tasks) -> O) -> O {
        work(&mut lock(&self.state).tasks)
    }

    fn take_in<P: Procedure + 'static>(
        &self,
        mut state: MutexGuard<'_, State<W>>,
        procedure: P,
    ) -> Submission<P::Output> {
        let (submission, reply) = pair(self.service());
        if state.is_ending {
            // The reply says so when it is dropped.
            drop(state);
            return submission;
        }
        if state.forming.count == 0 && self.batch_time_ns > 0 {
            state.forming.opened_ns = self.clock.now_ns();
        }
        state.forming.push(procedure, reply);
        state.waiting += 1;
        let (begun, full) = (state.forming.count == 1, state.forming.count >= self.batch_size);
        let is_due = begun || full || self.is_full(&state);
        if full {
            let next = state.spare.pop().unwrap_or_default();
            let closed = std::mem::replace(&mut state.forming, next);
            state.closed.push_back(closed);
        }
        // Those that come in between find a thread that waits for the batch already.
        let call = is_due && state.idle > 0;
        drop(state);
        if call {
            self.work.notify_one();
        }
        submission
    }

    /// The next batch to execute, when there is one. `None`: there will be none any more.
    pub(super) fn next(&self) -> Option<Batch<W>> {
        let mut state = lock(&self.state);
        let batch = loop {
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
            state.idle += 1;
            state = match wait_ns {
                None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(ns) => {
                    let waited = self.work.wait_timeout(state, Duration::from_nanos(ns));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            state.idle -= 1;
        };
        state.waiting -= batch.count;
        state.batches += 1;
        let call = state.held_up > 0;
        // More may have come than may wait, from this service's own threads; whoever waits for a batch to fill has not heard of it.
        let is_due = state.idle > 0 && self.is_full(&state);
        let tasks = state.tasks.take(batch.count);
        drop(state);
        if call {
            self.room.notify_all();
        }
        if is_due {
            self.work.notify_one();
        }
        wake(tasks);
        Some(batch)
    }

    /// How long a batch that was opened then may still be filled.
    fn left_ns(&self, opened_ns: u64) -> u64 {
        match self.batch_time_ns {
            0 => 0,
            time_ns => opened_ns.saturating_add(time_ns).saturating_sub(self.clock.now_ns()),
        }
    }

    /// An executed batch, whose memory serves again.
    pub(super) fn put_back(&self, batch: Batch<W>) {
        let mut state = lock(&self.state);
        if state.spare.len() < SPARE {
            state.spare.push(batch);
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
        self.room.notify_all();
        wake(tasks);
    }

    /// Batches that were begun.
    pub(super) fn batches(&self) -> u64 {
        lock(&self.state).batches
    }
}

/// Wakes tasks. Wakers are somebody's code; one that panics is not the service's end.
fn wake(tasks: Vec<Waker>) {
    for waker in tasks {
        let _ = catch(|| waker.wake());
    }
}
