//! What a client's procedures leave, where executors put it and their client takes it.

use polychron_engine::{Procedure, drive};

use super::attempt::Answer;

/// What the pipeline is told of a client's procedures.
pub(super) struct Job<P: Procedure> {
    pub(super) procedures: *mut P,
    pub(super) answers: *mut Option<Answer<P>>,
}

/// What is kept for a client. What it does not take, because its own code panics, is dropped one by one: destructors may panic, too.
pub(super) struct Kept<T>(pub(super) Vec<T>);

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        self.0.drain(..).for_each(drive::discard);
    }
}

impl<P: Procedure> Job<P> {
    /// The procedure at a position, and its answer.
    ///
    /// # Safety
    /// The client waits, and both are the caller's as long as they are borrowed.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "procedures go from executor to executor")]
    pub(super) unsafe fn at(&self, position: usize) -> (&mut P, &mut Option<Answer<P>>) {
        // SAFETY: the caller says so.
        unsafe { (&mut *self.procedures.add(position), &mut *self.answers.add(position)) }
    }
}
