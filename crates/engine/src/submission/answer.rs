//! An answer that is still to come: who submitted the procedure has one end of it, the thread that executes it the other.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use polychron_base::Error;
use polychron_sync::{Condvar, Mutex};

use super::lock;
use crate::drive::{Failure, catch, discard};
use crate::futures::Attempt;
use crate::nested::Seen;

/// A procedure that was submitted: it is executed sometime, and this is the claim to its answer.
///
/// It can be waited for by a thread ([`Submission::wait`]) or awaited under any executor. The answer is what
/// [`crate::Worker::execute`] would have given. A thread that drops it gives up the answer alone: the procedure is executed like any other.
#[must_use = "the procedure is executed in any case, but its answer, and what went wrong, is only here"]
pub struct Submission<O, E = Error> {
    slot: Arc<Slot<O, E>>,
}

impl<O, E> fmt::Debug for Submission<O, E> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Submission").finish_non_exhaustive()
    }
}

/// Where the two ends meet.
struct Slot<O, E> {
    state: Mutex<State<O, E>>,
    answered: Condvar,
    /// Whose threads give the answer.
    service: Service,
}

/// An answer that no thread has taken goes here, whichever end is dropped last. Its destructor is user code.
impl<O, E> Drop for Slot<O, E> {
    fn drop(&mut self) {
        let state = std::mem::replace(&mut *lock(&self.state), State::Taken);
        discard(state);
    }
}

impl<O, E> Slot<O, E> {
    /// Why the calling thread must not wait here.
    fn refusal(&self) -> Option<Error> {
        let what = if Attempt::is_running() {
            "waiting for a submission inside a procedure"
        } else if self.service.is_served() {
            "waiting for a submission on a thread that executes them"
        } else {
            return None;
        };
        Some(Error::unsupported(self.service.protocol, what))
    }
}

enum State<O, E> {
    /// The tasks to be woken, and whether a thread waits.
    Pending(Option<Waker>, bool),
    /// The answer, and what the thread that gave it has seen by then: the procedure's own commit, or a later one.
    Answered(Result<O, Failure<E>>, Seen),
    Taken,
}

impl<O, E> State<O, E> {
    /// The answer, which is gone then, and whose transaction later snapshots of the calling thread contain; `Err` hands back who was to be told so far.
    fn take(&mut self) -> Result<Result<O, Failure<E>>, Option<Waker>> {
        match std::mem::replace(self, Self::Taken) {
            Self::Answered(answer, seen) => {
                seen.note();
                Ok(answer)
            }
            Self::Taken => Ok(Err(Failure::Engine(Error::AnswerTaken))),
            Self::Pending(waker, waits) => {
                *self = Self::Pending(None, waits);
                Err(waker)
            }
        }
    }
}

impl<O, E: From<Error>> Submission<O, E> {
    /// Waits until the procedure was executed.
    ///
    /// # Errors
    /// As [`crate::Worker::execute`]; [`Error::AnswerTaken`] when the answer was taken before; [`Error::Unsupported`] where the answer is
    /// not there and waiting for it might never end: in a procedure, whose own transaction the submitted one may have to wait for, and on a
    /// thread that executes what is submitted.
    pub fn wait(self) -> Result<O, E> {
        let mut state = lock(&self.slot.state);
        loop {
            match state.take() {
                Ok(answer) => {
                    // What makes the error may be user code.
                    drop(state);
                    return answer.map_err(Failure::into_own);
                }
                Err(waker) => {
                    if let Some(refusal) = self.slot.refusal() {
                        drop(state);
                        return Err(refusal.into());
                    }
                    *state = State::Pending(waker, true);
                    state = self.slot.answered.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
                }
            }
        }
    }

    /// The answer, if there is one; it can be taken once.
    ///
    /// # Errors
    /// Inside: as [`Submission::wait`].
    pub fn try_take(&mut self) -> Option<Result<O, E>> {
        let mut state = lock(&self.slot.state);
        match state.take() {
            Ok(answer) => {
                drop(state);
                Some(answer.map_err(Failure::into_own))
            }
            Err(waker) => {
                let State::Pending(kept, _) = &mut *state else { return None };
                *kept = waker;
                None
            }
        }
    }

    /// Whether the procedure was executed.
    pub fn is_answered(&self) -> bool {
        !matches!(*lock(&self.slot.state), State::Pending(..))
    }
}

impl<O, E: From<Error>> Future for Submission<O, E> {
    type Output = Result<O, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Wakers are user code, which may come back here: none is cloned or dropped under the lock.
        let waker = context.waker().clone();
        let mut state = lock(&self.slot.state);
        match state.take() {
            Ok(answer) => {
                drop(state);
                Poll::Ready(answer.map_err(Failure::into_own))
            }
            Err(before) => {
                // A service's thread may look here for a task, which does not wait.
                if Attempt::is_running() {
                    drop(state);
                    return Poll::Ready(Err(self.slot.refusal().expect("a procedure does not wait").into()));
                }
                if let State::Pending(kept, _) = &mut *state {
                    *kept = Some(waker);
                }
                drop(state);
                drop(before);
                Poll::Pending
            }
        }
    }
}

/// The executing thread's end. An answer is given once; the claim learns when none was.
pub(super) struct Reply<O, E>(Option<Arc<Slot<O, E>>>);

/// Both ends of an answer that the threads of this service will give.
pub(super) fn pair<O, E>(service: Service) -> (Submission<O, E>, Reply<O, E>) {
    let slot = Arc::new(Slot { state: Mutex::new(State::Pending(None, false)), answered: Condvar::new(), service });
    (Submission { slot: Arc::clone(&slot) }, Reply(Some(slot)))
}

impl<O, E> Reply<O, E> {
    /// Gives the answer, and tells who waits for it.
    pub(super) fn answer(&mut self, answer: Result<O, Failure<E>>) {
        let Some(slot) = self.0.take() else { return };
        let before = std::mem::replace(&mut *lock(&slot.state), State::Answered(answer, Seen::here()));
        let State::Pending(waker, waits) = before else { return };
        if waits {
            slot.answered.notify_all();
        }
        // Wakers, and the destructors of answers that no thread wants, are user code. It may panic, which is not the service's end.
        let _ = catch(move || {
            waker.into_iter().for_each(Waker::wake);
            drop(slot);
        });
    }
}

/// One that was given already.
impl<O, E> Default for Reply<O, E> {
    fn default() -> Self {
        Self(None)
    }
}

impl<O, E> Drop for Reply<O, E> {
    fn drop(&mut self) {
        self.answer(Err(Failure::Engine(Error::Closed)));
    }
}

polychron_sync::thread_local! {
    /// The number of the service for which this thread executes.
    static SERVES: Cell<u64> = const { Cell::new(0) };
}

/// What tells a service from all others that there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    number: u64,
    protocol: &'static str,
}

impl Service {
    /// None: what belongs to it was answered before it began.
    pub(super) const NONE: Self = Self { number: 0, protocol: "" };

    /// The service whose threads share this.
    pub(super) fn of<T>(shared: &T, protocol: &'static str) -> Self {
        Self { number: std::ptr::from_ref(shared).addr() as u64, protocol }
    }

    /// From now on the calling thread executes for it.
    pub(super) fn serve(self) {
        SERVES.with(|serves| serves.set(self.number));
    }

    /// Whether the calling thread executes for it.
    pub(super) fn is_served(self) -> bool {
        SERVES.try_with(Cell::get).is_ok_and(|number| number == self.number)
    }
}
