//! The procedures of a client and their answers, which executors leave and the client, or a helper, takes.

use polychron_engine::{Procedure, drive};

use super::attempt::{Answer, attempt};
use super::planned::{Ran, RunProcedure};
use super::transaction::BohmTransaction;

/// A client's procedures and their answers, for the pipeline.
pub(super) struct Job<P: Procedure> {
    pub(super) procedures: *mut P,
    pub(super) answers: *mut Option<Answer<P>>,
}

/// Values that a client keeps. Those that it does not take, because its own code panics, are dropped one by one: destructors may panic, too.
pub(super) struct Kept<T>(pub(super) Vec<T>);

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        self.0.drain(..).for_each(drive::discard);
    }
}

impl<P: Procedure> Job<P> {
    /// Runs a procedure of the job and leaves its answer.
    pub(super) const RUN: RunProcedure = run::<P>;

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
    let content = executing.client_batch().content();
    let (run, job) = (content.run, std::ptr::with_exposed_provenance(content.job));
    let procedure = content.procedures[executing.body().place as usize] as usize;
    // SAFETY: the client keeps job and procedures until the client batch is complete, and this thread executes the transaction.
    unsafe { run(job, procedure, transaction) }
}
