//! Submitting procedures: they are handed over without waiting for them, gathered into batches, and executed by threads that the
//! service has for this.
//!
//! ```text
//!   clients ──submit──► the batch that is forming ──full, or its time is over──► a thread: Worker::execute_batch
//!      ▲                                                                            │
//!      └───────────────────────── wait, or await ◄──────── answer ──────────────────┘
//! ```
//!
//! Procedures of any types may come, and closures where the protocol executes transactions step by step. Those that meet in a batch are executed together, or one type after the other, as the protocol does it
//! ([`crate::Worker::execute_batch_with`]). Nothing is promised of the order in which submitted procedures take effect, but that each does
//! so between its submission and its answer.
//!
//! A procedure that lasts holds up no thread while a thread is free. Idle threads look at the others from time to time: where one has begun
//! nothing and answered nothing since, they take procedures out of its batch that were not begun, and execute them. A protocol that plans
//! batches helps itself ([`crate::Worker::help_others`]).
//!
//! Lines that several threads write: the queue's lock and what it protects, once for each procedure by its client and once for each
//! batch by the thread that executes it; an answer, once by the thread that gives it.

mod admission;
mod answer;
mod batch;
mod closure;
mod queue;

use std::fmt;
use std::sync::{Arc, PoisonError};

use polychron_base::Error;
use polychron_base::clock::Clock;
use polychron_sync::thread::{Builder, JoinHandle};
use polychron_sync::{Mutex, MutexGuard};

use crate::options::Submissions;
use crate::{Interactive, Procedure, Protocol};

use admission::Admission;
pub use answer::Submission;
use batch::Batch;
use closure::Closure;
use queue::{Queue, Watch, Work};

type TransactionOf<'w, P> = <<P as Protocol>::Worker as Interactive>::Transaction<'w>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Threads that execute what is submitted. When it is dropped, everything that was submitted is executed first.
pub struct Service<P: Protocol> {
    queue: Arc<Queue<P::Worker>>,
    threads: Vec<JoinHandle<()>>,
}

impl<P: Protocol> fmt::Debug for Service<P> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Service").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

impl<P: Protocol> Service<P> {
    /// Starts the threads. `worker` gives each of them its worker: where there are fewer slots than threads are wanted there
    /// are fewer threads. The clock tells when a batch has waited long enough.
    ///
    /// # Errors
    /// [`Error::TooManyWorkers`] when there is no slot at all; [`Error::Options`] when the system gives no thread.
    pub fn start(
        protocol: &Arc<P>,
        options: &Submissions,
        clock: Arc<dyn Clock>,
        mut worker: impl FnMut() -> Result<P::Worker, Error>,
    ) -> Result<Self, Error> {
        let queue = Arc::new(Queue::new(options, clock, protocol.name()));
        let mut service = Self { queue, threads: Vec::new() };
        for number in 0..options.threads.max(1) {
            match worker().and_then(|worker| service.spawn(protocol, worker)) {
                Ok(thread) => service.threads.push(thread),
                Err(error) if number == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(service)
    }

    fn spawn(&self, protocol: &Arc<P>, mut worker: P::Worker) -> Result<JoinHandle<()>, Error> {
        let (queue, protocol) = (Arc::clone(&self.queue), Arc::clone(protocol));
        let run = move || {
            queue.service().serve();
            let mut watch = Watch::default();
            let mut executed = None;
            while let Some(work) = queue.next(&mut watch, executed.take()) {
                match work {
                    Work::Batch(batch) => {
                        batch.execute(&mut worker);
                        executed = Some(batch);
                    }
                    Work::Help(stuck) => {
                        let help = |batch: &&Arc<Batch<_>>| batch.help(&mut worker, || queue.has_batch());
                        watch.tried(stuck.iter().filter(help).count() > 0);
                    }
                }
            }
            // The database outlives its worker.
            drop(worker);
            drop(protocol);
        };
        let spawned = Builder::new().name("polychron-submit".into()).spawn(run);
        spawned.map_err(|error| Error::options(format!("a thread could not be started: {error}")))
    }

    /// Hands a procedure over. Waits while as many as the options allow are waiting to be executed.
    pub fn submit<R: Procedure + 'static>(&self, procedure: R) -> Submission<R::Output, R::Error> {
        let submitted = self.queue.submit(procedure, true);
        submitted.unwrap_or_else(|_| unreachable!("who waits for room gets it"))
    }

    /// Hands a procedure over as soon as there is room for it: the task waits, not its thread.
    pub async fn submit_async<R: Procedure + 'static>(&self, procedure: R) -> Submission<R::Output, R::Error> {
        Admission::new(&self.queue, procedure).await
    }

    /// Hands a procedure over if there is room for it.
    ///
    /// # Errors
    /// The procedure, when there is none.
    pub fn try_submit<R: Procedure + 'static>(&self, procedure: R) -> Result<Submission<R::Output, R::Error>, R> {
        self.queue.submit(procedure, false)
    }

    /// As [`Service::submit`], a closure: it becomes one transaction, as [`drive::transact`](crate::drive::transact) executes it.
    pub fn submit_closure<O: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        body: impl FnMut(&mut TransactionOf<'_, P>) -> Result<O, E> + Send + 'static,
    ) -> Submission<O, E>
    where
        P::Worker: Interactive,
    {
        let submitted = self.queue.submit(Closure::new(body), true);
        submitted.unwrap_or_else(|_| unreachable!("who waits for room gets it"))
    }

    /// As [`Service::submit_async`], a closure.
    pub async fn submit_closure_async<O: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        body: impl FnMut(&mut TransactionOf<'_, P>) -> Result<O, E> + Send + 'static,
    ) -> Submission<O, E>
    where
        P::Worker: Interactive,
    {
        Admission::new(&self.queue, Closure::new(body)).await
    }

    /// How many batches were begun.
    pub fn batches(&self) -> u64 {
        self.queue.batches()
    }
}

impl<O, E> Submission<O, E> {
    /// One that was answered before it began: with what kept it from being taken in.
    pub fn refused(error: Error) -> Self {
        let (submission, mut reply) = answer::pair(answer::Service::NONE);
        reply.answer(Err(error.into()));
        submission
    }
}

impl<P: Protocol> Drop for Service<P> {
    fn drop(&mut self) {
        self.queue.end();
        // A procedure or an answer may hold the last reference to the database. Then the thread that drops it goes on by itself
        // until all is executed.
        let own = self.queue.service().is_served();
        for thread in self.threads.drain(..).filter(|_| !own) {
            // It runs nothing whose panic is not caught.
            let _ = thread.join();
        }
    }
}
