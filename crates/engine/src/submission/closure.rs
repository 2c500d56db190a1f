//! Closures that are submitted: transactions of a protocol that plans nothing.

use std::fmt;
use std::marker::PhantomData;

use polychron_base::Error;

use super::batch::{Item, Lane, Lined, execute};
use super::lock;
use crate::drive::{self, Failure, catch};
use crate::{Interactive, Mode};

/// A closure that answers with `O` or fails with `E`.
pub(super) struct Closure<F, O, E> {
    body: F,
    answers: PhantomData<fn() -> (O, E)>,
}

impl<F, O, E> Closure<F, O, E> {
    pub(super) fn new(body: F) -> Self {
        Self { body, answers: PhantomData }
    }
}

impl<F, O, E> fmt::Debug for Closure<F, O, E> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Closure").finish_non_exhaustive()
    }
}

impl<F: Send + 'static, O: Send + 'static, E: From<Error> + Send + 'static> Item for Closure<F, O, E> {
    type Output = O;
    type Error = E;
}

/// They are executed one by one, in the order in which they came. Each is taken out first, so that a thread that helps takes the next.
impl<W, F, O, E> Lane<W> for Lined<Closure<F, O, E>>
where
    W: Interactive + 'static,
    F: FnMut(&mut W::Transaction<'_>) -> Result<O, E> + Send + 'static,
    O: Send + 'static,
    E: From<Error> + Send + 'static,
{
    fn execute(&self, worker: &mut W, others: &[Box<dyn Lane<W>>]) {
        // A thread that has one locked takes it out just now, so this waits for it: nothing of the batch is left behind.
        while self.execute_next(|item| Some(lock(item)), |closure| run(worker, closure)) {}
        execute(others, worker);
    }

    fn execute_one(&self, worker: &mut W) -> bool {
        self.execute_next(|item| item.try_lock().ok(), |closure| run(worker, closure))
    }

    fn is_handed_over(&self) -> bool {
        false
    }

    fn progress(&self) -> (usize, usize) {
        self.begun_and_answered()
    }

    fn clear(&mut self) {
        self.forget();
    }
}

fn run<W, F, O, E>(worker: &mut W, mut closure: Closure<F, O, E>) -> Result<O, Failure<E>>
where
    W: Interactive,
    F: FnMut(&mut W::Transaction<'_>) -> Result<O, E>,
    E: From<Error>,
{
    // What makes the error, and what drops the closure, may be user code that panics.
    let ended = catch(|| drive::transact(worker, Mode::ReadWrite, &mut closure.body).map_err(Failure::Own));
    drive::discard(closure);
    ended.unwrap_or_else(|panic| Err(Error::panicked(panic.text()).into()))
}
