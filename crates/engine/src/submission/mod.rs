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
//! The driver is compiled once for each protocol, not for each type of procedure: a submission, a batch and an attempt each take one or two virtual
//! calls, the operations of a transaction none.
//!
//! A procedure that lasts holds up no thread while a thread is free. Idle threads look at the others from time to time: where one has begun
//! nothing and answered nothing since, they take procedures out of its batch that were not begun, and execute them. A protocol that plans
//! batches helps itself ([`crate::Worker::help_others`]).
//!
//! In a database with a journal, an answer leaves when all changes that it may depend on are durable (`held.rs`). Each answer waits by itself, so a long
//! procedure does not delay the answers of others. Waiting answers count against the bound of the queue.
//!
//! Lines that several threads write: the queue's lock and what it protects, once for each procedure by its client and once for each
//! batch by the thread that executes it; an answer, once by the thread that gives it.

mod admission;
mod answer;
mod batch;
mod closure;
mod held;
mod queue;

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, PoisonError};

use polychron_base::Error;
use polychron_base::clock::Clock;
use polychron_sync::thread::{self, Builder, JoinHandle};
use polychron_sync::{Mutex, MutexGuard, Process, nap};

use crate::futures::Attempt;
use crate::options::Submissions;
use crate::redo::Answers;
use crate::{Interactive, Procedure, Protocol};

use admission::Admission;
pub use answer::Submission;
use batch::Batch;
use closure::Closure;
use held::{Giving, Held};
use queue::{Queue, Watch, Work};

/// The time for which a service that ends waits for procedures that may themselves wait for the ending thread, in milliseconds.
const LONGEST_WAIT_MS: u32 = 1000;

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let spawned = Builder::new().name(name.into()).spawn(run);
    spawned.map_err(|error| Error::options(format!("a thread could not be started: {error}")))
}

type TransactionOf<'w, P> = <<P as Protocol>::Worker as Interactive>::Transaction<'w>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Threads that execute what is submitted. When it is dropped, everything that was submitted is executed first, and answered.
///
/// Answers leave when what they depend on is durable, as the database wants it; where a client wants it otherwise it has a [`Submitter`] of its own.
pub struct Service<P: Protocol> {
    usual: Submitter<P>,
    /// Until it ends.
    giving: Option<Giving>,
    threads: Vec<JoinHandle<()>>,
    process: Process,
}

/// Hands procedures over to a [`Service`].
pub struct Submitter<P: Protocol> {
    queue: Arc<Queue<P::Worker>>,
    /// Whether answers wait until all that they depend on is durable.
    holds: bool,
}

impl<P: Protocol> Deref for Service<P> {
    type Target = Submitter<P>;

    #[inline]
    fn deref(&self) -> &Submitter<P> {
        &self.usual
    }
}

impl<P: Protocol> fmt::Debug for Submitter<P> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Submitter").field("holds", &self.holds).finish_non_exhaustive()
    }
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
        let journal = protocol.storage().journal();
        let held = (!journal.is_empty()).then(|| Held::new(journal));
        let giving = held.as_ref().map(Held::give);
        let queue = Arc::new(Queue::new(options, clock, protocol.name(), held.clone()));
        let usual = Submitter { queue, holds: Answers::new(journal.clone()).holds() };
        let mut service = Self { usual, giving, threads: Vec::new(), process: Process::here() };
        if let Some(held) = held {
            let answering = service.spawn_answering(held)?;
            service.threads.push(answering);
        }
        for number in 0..options.threads.max(1) {
            match worker().and_then(|worker| service.spawn(protocol, worker)) {
                Ok(thread) => service.threads.push(thread),
                Err(error) if number == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(service)
    }

    /// A handle that submits procedures. With `holds`, their answers wait until the changes that they depend on are durable.
    pub fn submitter(&self, holds: bool) -> Submitter<P> {
        Submitter { queue: Arc::clone(&self.queue), holds }
    }

    /// The thread that lets answers go.
    fn spawn_answering(&self, held: Arc<Held>) -> Result<JoinHandle<()>, Error> {
        let queue = Arc::clone(&self.queue);
        let run = move || {
            queue.service().serve();
            held.serve(|count| queue.made_room(count));
        };
        start("polychron-answer", run)
    }

    fn spawn(&self, protocol: &Arc<P>, mut worker: P::Worker) -> Result<JoinHandle<()>, Error> {
        let (queue, protocol) = (Arc::clone(&self.queue), Arc::clone(protocol));
        let giving = queue.giving();
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
            drop(giving);
        };
        start("polychron-submit", run)
    }
}

impl<P: Protocol> Submitter<P> {
    /// Whether answers wait for what they depend on.
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// Hands a procedure over. Waits while as many as the options allow are waiting to be executed.
    pub fn submit<R: Procedure + 'static>(&self, procedure: R) -> Submission<R::Output, R::Error> {
        let submitted = self.queue.submit((procedure, self.holds), true);
        submitted.unwrap_or_else(|_| unreachable!("who waits for room gets it"))
    }

    /// Hands a procedure over as soon as there is room for it: the task waits, not its thread.
    pub async fn submit_async<R: Procedure + 'static>(&self, procedure: R) -> Submission<R::Output, R::Error> {
        Admission::new(&self.queue, (procedure, self.holds)).await
    }

    /// Hands a procedure over if there is room for it.
    ///
    /// # Errors
    /// The procedure, when there is none.
    pub fn try_submit<R: Procedure + 'static>(&self, procedure: R) -> Result<Submission<R::Output, R::Error>, R> {
        self.queue.submit((procedure, self.holds), false)
    }

    /// As [`Submitter::submit`], a closure: it becomes one transaction, as [`drive::transact`](crate::drive::transact) executes it.
    pub fn submit_closure<O: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        body: impl FnMut(&mut TransactionOf<'_, P>) -> Result<O, E> + Send + 'static,
    ) -> Submission<O, E>
    where
        P::Worker: Interactive,
    {
        let submitted = self.queue.submit((Closure::new(body), self.holds), true);
        submitted.unwrap_or_else(|_| unreachable!("who waits for room gets it"))
    }

    /// As [`Submitter::submit_async`], a closure.
    pub async fn submit_closure_async<O: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        body: impl FnMut(&mut TransactionOf<'_, P>) -> Result<O, E> + Send + 'static,
    ) -> Submission<O, E>
    where
        P::Worker: Interactive,
    {
        Admission::new(&self.queue, (Closure::new(body), self.holds)).await
    }

    /// The number of batches that were begun.
    pub fn batches(&self) -> u64 {
        self.queue.batches()
    }
}

impl<O, E> Submission<O, E> {
    /// One that was answered before it began: with what kept it from being taken in.
    pub fn refused(error: Error) -> Self {
        let (submission, mut reply) = answer::pair(answer::Service::none(), None);
        reply.answer_at_once(Err(error.into()));
        submission
    }
}

impl<P: Protocol> Service<P> {
    /// Ends it: everything that was submitted is executed, and answered. `false`: not before this returns. What was submitted may wait for a transaction that
    /// the calling thread has open, and that would be for ever; so it is executed when that has ended.
    pub fn end(mut self) -> bool {
        self.finish()
    }

    fn finish(&mut self) -> bool {
        if !self.process.is_here() {
            // There are no such threads in a process that was forked.
            self.threads.drain(..).for_each(std::mem::forget);
            self.giving.take().into_iter().for_each(std::mem::forget);
            return false;
        }
        self.queue.end();
        self.giving = None;
        // A procedure or an answer may hold the last reference to the database. Then the thread that drops it goes on by itself
        // until all is executed.
        if self.queue.service().is_served() {
            self.threads.clear();
        }
        if Attempt::is_running() && !self.finishes_soon() {
            self.threads.clear();
            return false;
        }
        for thread in self.threads.drain(..) {
            // It runs nothing whose panic is not caught.
            let _ = thread.join();
        }
        true
    }

    /// Whether all threads end within a while.
    fn finishes_soon(&self) -> bool {
        let is_finished = || self.threads.iter().all(thread::is_finished);
        (0..LONGEST_WAIT_MS).any(|_| {
            let finished = is_finished();
            if !finished {
                nap(20);
            }
            finished
        })
    }
}

impl<P: Protocol> Drop for Service<P> {
    fn drop(&mut self) {
        self.finish();
    }
}
