//! The part of a run that is compiled for each protocol: the execution of a workload's procedures by its workers. The measuring loop
//! calls it through trait objects, once for each transaction or batch, and is compiled once for each workload.

use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};

use hdrhistogram::Histogram;
use polychron_base::Error;
use polychron_engine::redo::Answers;
use polychron_engine::submission::{Service, Submission, Submitter};
use polychron_engine::{Mode, Procedure, Protocol, Worker};

use super::Settings;
use super::client::{Failure, Loop};
use super::submitting::{self, Shared};
use crate::{Transact, Workload};

/// A worker for each thread, and the service to which the threads submit.
pub(super) trait Slots<W: Workload>: Sync {
    /// Lets a client work on thread `thread`, once for each thread, until the run is over: the latencies of the measured interval by
    /// kind.
    fn run(&self, thread: usize, client: Loop<'_, W::Client>) -> Result<Vec<Histogram<u64>>, Failure>;
}

/// A worker, as one workload's loop sees it.
pub(super) trait Slot<P> {
    /// Executes a procedure as it wants to run.
    fn execute(&mut self, procedure: &mut P) -> Result<(), Error>;

    /// Executes procedures, which write, together, and tells the outcome of each.
    fn execute_batch(&mut self, procedures: &mut [P], done: &mut dyn FnMut(usize, Result<(), Error>));
}

/// A worker whose answers leave when they are durable, as the database wants it: what is measured is what clients get. Those of a batch wait once.
struct Answering<W> {
    worker: W,
    answers: Answers,
}

impl<W: Worker, P: Transact> Slot<P> for Answering<W> {
    fn execute(&mut self, procedure: &mut P) -> Result<(), Error> {
        let outcome = match procedure.mode() {
            Mode::ReadWrite => self.worker.execute(procedure),
            Mode::Snapshot => self.worker.snapshot(procedure),
        };
        if self.answers.is_empty() {
            return used(outcome);
        }
        self.answers.give(self.worker.take_ticket(), used(outcome))
    }

    fn execute_batch(&mut self, procedures: &mut [P], done: &mut dyn FnMut(usize, Result<(), Error>)) {
        let waits = !self.answers.is_empty();
        let mut outcomes = Vec::with_capacity(if waits { procedures.len() } else { 0 });
        // One closure for both, since batches are compiled for each.
        self.worker.execute_batch(procedures, &mut |position, outcome| match used(outcome) {
            outcome if waits => outcomes.push((position, outcome)),
            outcome => done(position, outcome),
        });
        if !waits {
            return;
        }
        let ticket = self.worker.take_ticket();
        outcomes.into_iter().for_each(|(position, outcome)| done(position, self.answers.give(ticket, outcome)));
    }
}

/// The answer counts as used, so that the compiler keeps the work that made it.
fn used<O>(outcome: Result<O, Error>) -> Result<(), Error> {
    outcome.map(|output| drop(black_box(output)))
}

/// The executor of submitted procedures, as one workload's loop sees it.
pub(super) trait Submits<P: Procedure> {
    fn submit(&self, procedure: Shared<P>) -> Submission<P::Output, P::Error>;
}

impl<D: Protocol, P: Procedure + 'static> Submits<P> for Service<D> {
    fn submit(&self, procedure: Shared<P>) -> Submission<P::Output, P::Error> {
        Submitter::submit(self, procedure)
    }
}

/// The workers and the service of one protocol.
pub(super) struct Taken<P: Protocol> {
    /// The worker of each thread, until the thread takes it.
    workers: Vec<Mutex<Option<P::Worker>>>,
    service: Option<Service<P>>,
    answers: Answers,
}

/// Takes what the threads need.
pub(super) fn slot<P: Protocol>(database: &Arc<P>, settings: &Settings) -> Result<Taken<P>, Error> {
    let of_a_thread = |_| database.worker().map(|worker| Mutex::new(Some(worker)));
    let workers = (0..settings.threads).map(of_a_thread).collect::<Result<_, _>>()?;
    let answers = Answers::new(database.storage().journal().clone());
    Ok(Taken { workers, service: submitting::start(database, settings)?, answers })
}

impl<P: Protocol, W: Workload> Slots<W> for Taken<P> {
    fn run(&self, thread: usize, client: Loop<'_, W::Client>) -> Result<Vec<Histogram<u64>>, Failure> {
        let worker = self.workers[thread].lock().unwrap_or_else(PoisonError::into_inner).take();
        let worker = worker.expect("each thread runs once");
        let mut worker = Answering { worker, answers: self.answers.clone() };
        match &self.service {
            None => client.run(&mut worker),
            Some(service) => client.submit(&mut worker, service),
        }
    }
}
