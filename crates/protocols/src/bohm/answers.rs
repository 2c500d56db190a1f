//! What a client's procedures leave, where executors put it and their client takes it.

use polychron_base::Error;
use polychron_engine::futures::Scope;
use polychron_engine::{Procedure, drive};

/// What the pipeline is told of a client's procedures.
pub(super) struct Job<P: Procedure> {
    pub(super) procedures: *mut P,
    pub(super) answers: *mut Left<P::Output>,
}

/// What the run of a procedure has left: its answer, and the scope of its futures.
pub(super) type Left<O> = Option<Result<(O, Scope), Error>>;

/// Room for what the procedures of a client leave. What is not taken, because the client's own code panics, is dropped one by one: destructors may
/// panic, too.
pub(super) struct Answers<O>(Vec<Left<O>>);

impl<O> Answers<O> {
    pub(super) fn new(count: usize) -> Self {
        Self((0..count).map(|_| None).collect())
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut Left<O> {
        self.0.as_mut_ptr()
    }
}

impl<O> Drop for Answers<O> {
    fn drop(&mut self) {
        self.0.drain(..).flatten().for_each(drive::discard);
    }
}

impl<P: Procedure> Job<P> {
    /// The procedure at a position, and its answer.
    ///
    /// # Safety
    /// The client waits, and both are the caller's as long as they are borrowed.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "procedures go from executor to executor")]
    pub(super) unsafe fn at(&self, position: usize) -> (&mut P, &mut Left<P::Output>) {
        // SAFETY: the caller says so.
        unsafe { (&mut *self.procedures.add(position), &mut *self.answers.add(position)) }
    }
}
