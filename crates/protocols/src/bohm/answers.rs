//! The procedures of a client and their answers, which executors leave and the client, or a helper, takes.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use polychron_engine::{Procedure, drive};

use super::attempt::{Answer, Ended, attempt};
use super::entry::Entry;
use super::execution::Executor;
use super::guesses::{Guess, guess};
use super::notices::{Delivered, Opened, SharedJob};
use super::planned::{HandedIn, OwnBatch, Ran, RunProcedure};
use super::transaction::BohmTransaction;
use super::worker::BohmWorker;

/// Client batches that a worker has under way at most, so that planning and executing go on while it fills the next.
const UNDER_WAY: usize = 3;

/// A client's procedures and their answers, for the pipeline.
pub(super) struct Job<P: Procedure> {
    procedures: *mut P,
    answers: *mut Option<Answer<P>>,
}

/// Values that a client keeps. Those that it does not take, because its own code panics, are dropped one by one: destructors may panic, too.
pub(super) struct Kept<T>(pub(super) Vec<T>);

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        self.0.drain(..).for_each(drive::discard);
    }
}

/// What the procedures of a job have left: that of a job of one procedure takes nothing from the heap.
struct Answers<P: Procedure> {
    /// The answer of a procedure that is alone.
    alone: Option<Answer<P>>,
    many: Vec<Option<Answer<P>>>,
}

impl<P: Procedure> Answers<P> {
    fn new(count: usize) -> Self {
        let many = if count > 1 { (0..count).map(|_| None).collect() } else { Vec::new() };
        Self { alone: None, many }
    }

    fn as_mut_ptr(&mut self) -> *mut Option<Answer<P>> {
        if self.many.is_empty() { &raw mut self.alone } else { self.many.as_mut_ptr() }
    }
}

impl<P: Procedure> Drop for Answers<P> {
    fn drop(&mut self) {
        drive::discard(self.alone.take());
        self.many.drain(..).for_each(drive::discard);
    }
}

impl<P: Procedure> Job<P> {
    /// Runs a procedure of the job and leaves its answer.
    pub(super) const RUN: RunProcedure = run::<P>;

    /// One for models.
    #[cfg(all(test, loom))]
    pub(super) fn new(procedures: *mut P, answers: *mut Option<Answer<P>>) -> Self {
        Self { procedures, answers }
    }

    /// The procedure at a position, and its answer.
    ///
    /// # Safety
    /// The position is one of the job. The client keeps both, and no other thread uses them, as long as they are borrowed.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "procedures go from executor to executor")]
    pub(super) unsafe fn at(&self, position: usize) -> (&mut P, &mut Option<Answer<P>>) {
        // SAFETY: the caller says so.
        unsafe { (&mut *self.procedures.add(position), &mut *self.answers.add(position)) }
    }
}

/// Runs a procedure, and leaves its answer.
///
/// # Safety
/// `job` is a [`Job`] of `P` whose client waits, and no other thread runs the procedure at this position.
unsafe fn run<P: Procedure>(job: *const (), position: usize, transaction: &mut BohmTransaction<'_>) -> Ran {
    // SAFETY: the caller says so.
    let (procedure, answer) = unsafe { (*job.cast::<Job<P>>()).at(position) };
    let (ran, outcome) = attempt(transaction, &mut |transaction| procedure.run(transaction));
    // An earlier run may have left an answer.
    drive::discard(std::mem::replace(answer, outcome));
    ran
}

/// Runs the procedure of a planned transaction, and leaves its answer.
pub(super) fn run_procedure(transaction: &mut BohmTransaction<'_>) -> Ran {
    let executing = transaction.planned.as_ref().expect("a planned transaction");
    let client_batch = executing.client_batch();
    let (run, job) = (client_batch.content().run, std::ptr::with_exposed_provenance(client_batch.content().job));
    let procedure = executing.procedure();
    // SAFETY: the client keeps job and procedures until the client batch is complete, and this thread executes the transaction.
    unsafe { run(job, procedure, transaction) }
}

/// The client batches of a client that are under way. However the client ends, the procedures of others must not outlive it.
struct UnderWay<'w> {
    client_batches: VecDeque<HandedIn>,
    worker: &'w mut BohmWorker,
    /// Where others may deliver the answers.
    opened: Option<&'w Opened<'w>>,
    /// Others were under way already, and this client comes right behind them.
    is_nested: bool,
}

impl UnderWay<'_> {
    fn hand_in(&mut self, client_batch: OwnBatch) {
        let client_batch = self.worker.hand_in(client_batch);
        self.opened.iter().for_each(|opened| opened.add(&client_batch));
        self.client_batches.push_back(client_batch);
    }

    /// Waits for the answers of the oldest client batch, and does what is due meanwhile.
    fn await_oldest(&mut self) -> Option<HandedIn> {
        let client_batch = self.client_batches.pop_front()?;
        self.worker.await_client_batch(&client_batch);
        self.opened.iter().for_each(|opened| opened.take_back(&client_batch));
        Some(client_batch)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        while let Some(client_batch) = self.await_oldest() {
            self.worker.keep_client_batch(client_batch);
        }
        self.worker.under_way = std::mem::take(&mut self.client_batches);
        self.worker.is_under_way = self.is_nested;
        if !self.is_nested {
            self.worker.executor.local.release();
        }
    }
}

impl BohmWorker {
    /// Has procedures executed once, and passes the answers to `done`, or other threads pass them to `shared_done`. What `others` hands in comes right
    /// behind them.
    pub(super) fn execute_once<P: Procedure, D: Fn(usize, Result<P::Output, P::Error>) + Sync>(
        &mut self,
        procedures: &mut [P],
        done: &mut impl FnMut(usize, &mut P, Answer<P>),
        shared_done: Option<&D>,
        others: impl FnOnce(&mut Self),
    ) {
        let count = procedures.len();
        let mut answers = Answers::<P>::new(count);
        let job = Job::<P> { procedures: procedures.as_mut_ptr(), answers: answers.as_mut_ptr() };
        let shared = Arc::clone(&self.shared);
        // The tables and stores that the procedures name are found in this epoch, and stay while they are under way.
        self.executor.local.hold();
        let Some(done_by_any) = shared_done else { return self.execute_job(&job, count, None, done, others) };
        let answers_of_any = SharedJob::new(&job, count, done_by_any);
        shared.notices.open(&answers_of_any, |opened| {
            let delivered = |position| answers_of_any.delivered(position);
            self.execute_job(&job, count, Some((opened, &delivered)), done, others);
        });
    }

    /// Has the procedures of a job executed, and takes the answers that no other thread has delivered.
    fn execute_job<P: Procedure>(
        &mut self,
        job: &Job<P>,
        count: usize,
        answering: Option<(&Opened<'_>, &dyn Fn(usize) -> Delivered)>,
        done: &mut impl FnMut(usize, &mut P, Answer<P>),
        others: impl FnOnce(&mut Self),
    ) {
        let mut others = Some(others);
        let shared = Arc::clone(&self.shared);
        let opened = answering.map(|(opened, _)| opened);
        let is_nested = std::mem::replace(&mut self.is_under_way, true);
        let client_batches = std::mem::take(&mut self.under_way);
        let mut under_way = UnderWay { client_batches, worker: self, opened, is_nested };
        let mut next = 0;
        let mut guesses: Vec<Guess> = Vec::new();
        loop {
            while under_way.client_batches.len() < UNDER_WAY && (next < count || !guesses.is_empty()) {
                let first = next;
                next = count.min(next + shared.options.batch_size.saturating_sub(guesses.len()));
                let filled = under_way.worker.fill_client_batch(job, first..next, guesses.drain(..));
                under_way.hand_in(filled);
            }
            if let Some(others) = others.take() {
                others(under_way.worker);
            }
            let Some(client_batch) = under_way.await_oldest() else { break };
            let batch = client_batch.batch().expect("its transactions were executed");
            shared.acknowledged.raise(batch);
            if !client_batch.is_certain() {
                under_way.worker.executor.state.ticket.raise(shared.journal_ticket(batch));
            }
            let delivered = |position| answering.map_or(Delivered::No, |(_, delivered)| delivered(position));
            for in_batch in 0..client_batch.content().count {
                let again = under_way.worker.take_answer(job, &client_batch, in_batch, delivered, done);
                guesses.extend(again);
            }
            under_way.worker.keep_client_batch(client_batch);
        }
        drop(under_way);
    }

    /// Hands in the client batch of a transaction that a client drives, which has no job, and names no store.
    pub(super) fn hand_in_interactive(&self, client_batch: OwnBatch) -> HandedIn {
        let content = client_batch.content();
        assert!(content.interactive && content.entries.iter().all(Entry::is_of_no_store), "nothing has to stay for it");
        self.hand_in(client_batch)
    }

    /// Hands a client batch in.
    fn hand_in(&self, client_batch: OwnBatch) -> HandedIn {
        // SAFETY: `execute_once` waits until all of its transactions are executed, and holds the epoch until it has taken the client batch back, which
        // keeps stores; it has each procedure in one client batch at a time. One that is interactive needs nothing.
        let client_batch = unsafe { self.shared.pipeline.hand_in(client_batch) };
        if !self.shared.takes_turns() {
            self.shared.planning.wake_one();
        }
        client_batch
    }

    /// Fills a client batch with procedures that are planned again, and with new ones.
    fn fill_client_batch<P: Procedure>(
        &mut self,
        job: &Job<P>,
        new: Range<usize>,
        guesses: impl Iterator<Item = Guess>,
    ) -> OwnBatch {
        let Executor { local, state } = &mut self.executor;
        assert!(local.is_held(), "the tables stay while the procedures are under way");
        // SAFETY: the epoch is held until the procedures are complete, and a later transaction renews the list before it looks at it.
        unsafe { state.tables.renew(&self.shared.base.catalog) };
        let mut client_batch = self.empty_client_batch();
        self.prepare(&mut client_batch);
        for next in guesses.map(Ok).chain(new.map(Err)) {
            let (position, guess) = match &next {
                Ok(guess) => (guess.position, Some(guess)),
                Err(position) => (*position, None),
            };
            // SAFETY: the procedure is one of the job, and is not under way.
            let (procedure, _) = unsafe { job.at(position) };
            self.add(&mut client_batch, procedure, position, guess);
            client_batch.content_mut().attempts.push(guess.map_or(0, |guess| guess.attempts));
        }
        let content = client_batch.content_mut();
        content.job = std::ptr::from_ref(job).expose_provenance();
        content.run = Job::<P>::RUN;
        client_batch
    }

    /// Passes on the answer of a procedure whose transaction is complete, unless another thread has. Returns what is known of one that is to be planned
    /// again.
    #[inline]
    fn take_answer<P: Procedure>(
        &self,
        job: &Job<P>,
        client_batch: &HandedIn,
        in_batch: usize,
        delivered: impl Fn(usize) -> Delivered,
        done: &mut impl FnMut(usize, &mut P, Answer<P>),
    ) -> Option<Guess> {
        let position = client_batch.content().procedures[in_batch] as usize;
        let counters = &self.counters;
        match delivered(position) {
            Delivered::No => {}
            Delivered::Committed => {
                counters.committed();
                return None;
            }
            Delivered::Refused => {
                counters.refused();
                return None;
            }
        }
        let is_again = client_batch.complete(in_batch).expect("it was executed").is_again();
        debug_assert!(client_batch.content().job == std::ptr::from_ref(job).addr(), "the client batch is of this job");
        // SAFETY: the transaction was executed, and no other thread has claimed the answer.
        let (procedure, answer) = unsafe { job.at(position) };
        if is_again {
            counters.reconnoitred();
            let guess = guess(client_batch, in_batch, position, client_batch.content().attempts[in_batch] + 1);
            let given_up = guess.given_up(self.shared.base.common.retry.attempts);
            drive::discard(std::mem::replace(answer, given_up.map(|error| Err(Ended::by(error)))));
            if answer.is_none() {
                return Some(guess);
            }
        }
        let answer = answer.take().expect("a procedure that was executed has left an answer");
        if answer.is_ok() {
            counters.committed()
        } else {
            counters.refused()
        }
        done(position, procedure, answer);
        None
    }
}
