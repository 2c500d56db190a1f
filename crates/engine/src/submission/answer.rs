//! An answer that is still to come: who submitted the procedure has one end of it, the thread that executes it the other.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use polychron_base::Error;
use polychron_sync::{Condvar, Mutex, Process};

use super::held::{Held, Kept};
use super::lock;
use crate::drive::{Failure, catch, discard};
use crate::futures::Attempt;
use crate::nested::Seen;
use crate::redo::Ticket;

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

/// The state that both ends share.
struct Slot<O, E> {
    state: Mutex<State<O, E>>,
    answered: Condvar,
    /// The changes that the answer depends on. They are kept when the answer has been taken.
    behind: Mutex<Behind>,
    /// The service whose threads give the answer.
    service: Service,
}

/// The state of the dependencies of an answer.
enum Behind {
    /// Nothing: there is none yet. These want to know when that is durable.
    Unknown(Vec<Reply<(), Error>>),
    /// It is durable with this, or was when the answer was given.
    Known(Option<(Ticket, Arc<Held>)>),
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
        if !self.service.process.is_here() {
            // No thread here gives it.
            return Some(Error::OtherProcess);
        }
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

/// The answer, and what the thread that gave it has seen by then: the procedure's own commit, or a later one.
struct Answer<O, E>(Result<O, Failure<E>>, Seen);

enum State<O, E> {
    /// The waiter to notify, and the answer if it exists but may not leave yet.
    Pending(Told, Option<Answer<O, E>>),
    Answered(Answer<O, E>),
    Taken,
}

/// The tasks to be woken, and whether a thread waits.
#[derive(Default)]
struct Told {
    waker: Option<Waker>,
    waits: bool,
}

impl<O, E> State<O, E> {
    /// The answer, which is gone then, and whose transaction later snapshots of the calling thread contain; `Err` hands back who was to be told so far.
    fn take(&mut self) -> Result<Result<O, Failure<E>>, Option<Waker>> {
        match std::mem::replace(self, Self::Taken) {
            Self::Answered(Answer(answer, seen)) => {
                seen.note();
                Ok(answer)
            }
            Self::Taken => Ok(Err(Failure::Engine(Error::AnswerTaken))),
            Self::Pending(mut told, kept) => {
                let waker = told.waker.take();
                *self = Self::Pending(told, kept);
                Err(waker)
            }
        }
    }

    /// The waiter to notify, if there is no answer yet.
    fn told(&mut self) -> Option<&mut Told> {
        if let Self::Pending(told, _) = self { Some(told) } else { None }
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
                    if let Some(told) = state.told() {
                        *told = Told { waker, waits: true };
                    }
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
                state.told()?.waker = waker;
                None
            }
        }
    }

    /// Another claim, to the durability of this one's answer: it is answered when all is durable that the answer depends on. So an answer that leaves at once
    /// ([`Durability::Eventual`](crate::redo::Durability::Eventual)) can be taken early, and acted upon when it can no more be lost. It may be asked for before the
    /// answer is there and as long as it was not taken. Where the database has no log it is answered with the procedure.
    ///
    /// # Errors
    /// Inside: [`Error::LogStopped`], and [`Error::Closed`] where the procedure was not executed.
    pub fn durable(&self) -> Submission<(), Error> {
        let (claim, mut reply) = pair(self.slot.service, None);
        match &mut *lock(&self.slot.behind) {
            Behind::Unknown(waiting) => waiting.push(reply),
            Behind::Known(behind) => reply.answer_behind(behind.clone(), Ok(())),
        }
        claim
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
                let refusal =
                    self.slot.refusal().filter(|error| Attempt::is_running() || matches!(error, Error::OtherProcess));
                if let Some(refusal) = refusal {
                    drop(state);
                    return Poll::Ready(Err(refusal.into()));
                }
                if let Some(told) = state.told() {
                    told.waker = Some(waker);
                }
                drop(state);
                drop(before);
                Poll::Pending
            }
        }
    }
}

/// The executing thread's end. An answer is given once; the claim learns when none was.
pub(super) struct Reply<O, E> {
    slot: Option<Arc<Slot<O, E>>>,
    /// The list for an answer that may not leave yet, and whether this answer can be one.
    held: Option<(Arc<Held>, bool)>,
}

/// Both ends of an answer that the threads of this service will give, held back where it has to be, and the flag says that it is wanted.
pub(super) fn pair<O, E>(service: Service, held: Option<(Arc<Held>, bool)>) -> (Submission<O, E>, Reply<O, E>) {
    let state = Mutex::new(State::Pending(Told::default(), None));
    let slot =
        Arc::new(Slot { state, answered: Condvar::new(), behind: Mutex::new(Behind::Unknown(Vec::new())), service });
    (Submission { slot: Arc::clone(&slot) }, Reply { slot: Some(slot), held })
}

impl<O: Send + 'static, E: Send + 'static> Reply<O, E> {
    /// Gives the answer, and tells who waits for it, when all is durable that it may depend on.
    pub(super) fn answer(&mut self, answer: Result<O, Failure<E>>) {
        let (held, holds) =
            self.held.take().map_or((None, false), |(held, holds)| (Some((held.ticket(), held)), holds));
        let held = held.filter(|(ticket, _)| *ticket != Ticket::DONE);
        if let Some(slot) = &self.slot {
            let before = std::mem::replace(&mut *lock(&slot.behind), Behind::Known(held.clone()));
            if let Behind::Unknown(waiting) = before {
                waiting.into_iter().for_each(|mut reply| reply.answer_behind(held.clone(), Ok(())));
            }
        }
        self.answer_behind(held.filter(|_| holds), answer);
    }

    /// Gives the answer when this is durable.
    fn answer_behind(&mut self, held: Option<(Ticket, Arc<Held>)>, answer: Result<O, Failure<E>>) {
        let answer = Answer(answer, Seen::here());
        let Some(slot) = self.slot.take() else { return discard(answer) };
        match held {
            // Nobody takes it now or later.
            Some(_) if Arc::strong_count(&slot) == 1 => slot.give(answer),
            Some((ticket, held)) => {
                if let State::Pending(_, kept) = &mut *lock(&slot.state) {
                    *kept = Some(answer);
                }
                held.push(ticket, slot);
            }
            None => slot.give(answer),
        }
    }
}

impl<O, E> Reply<O, E> {
    /// Gives an answer that depends on nothing.
    pub(super) fn answer_at_once(&mut self, answer: Result<O, Failure<E>>) {
        if let Some(slot) = self.slot.take() {
            slot.give(Answer(answer, Seen::here()));
        }
    }
}

impl<O, E> Slot<O, E> {
    fn give(self: Arc<Self>, answer: Answer<O, E>) {
        let before = std::mem::replace(&mut *lock(&self.state), State::Answered(answer));
        let State::Pending(Told { waker, waits }, _) = before else { return };
        if waits {
            self.answered.notify_all();
        }
        // Wakers, and the destructors of answers that no thread wants, are user code. It may panic, which is not the service's end.
        let _ = catch(move || {
            waker.into_iter().for_each(Waker::wake);
            drop(self);
        });
    }
}

impl<O: Send, E: Send> Kept for Slot<O, E> {
    fn let_go(self: Arc<Self>, waited: Result<(), Error>) {
        let kept = match &mut *lock(&self.state) {
            State::Pending(_, kept) => kept.take(),
            State::Answered(_) | State::Taken => None,
        };
        let Some(Answer(answer, seen)) = kept else { return };
        let answer = match waited {
            Ok(()) => answer,
            Err(stopped) => {
                discard(answer);
                Err(Failure::Engine(stopped))
            }
        };
        self.give(Answer(answer, seen));
    }
}

/// One that was given already.
impl<O, E> Default for Reply<O, E> {
    fn default() -> Self {
        Self { slot: None, held: None }
    }
}

impl<O, E> Drop for Reply<O, E> {
    fn drop(&mut self) {
        self.answer_at_once(Err(Failure::Engine(Error::Closed)));
    }
}

polychron_sync::thread_local! {
    /// The number of the service for which this thread executes.
    static SERVES: Cell<u64> = const { Cell::new(0) };
}

/// The identity of a service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    number: u64,
    protocol: &'static str,
    process: Process,
}

impl Service {
    /// None: what belongs to it was answered before it began.
    pub(super) fn none() -> Self {
        Self { number: 0, protocol: "", process: Process::here() }
    }

    /// The service whose threads share this.
    pub(super) fn of<T>(shared: &T, protocol: &'static str, process: Process) -> Self {
        Self { number: std::ptr::from_ref(shared).addr() as u64, protocol, process }
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
