//! Answers that may not leave yet, because something that they depend on is not durable.
//!
//! An answer comes here by itself, not with its batch, behind all that was sealed when it was given. A thread of the service waits for the first of them
//! as a client would, and so flushes where nobody else does, and lets go all that are due by then.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use polychron_base::Error;
use polychron_sync::atomic::{AtomicUsize, Ordering};
use polychron_sync::{Condvar, Mutex};

use super::lock;
use crate::drive::catch;
use crate::redo::{Answers, Durability, Journal, Ticket};

/// An answer that may not leave yet.
pub(super) trait Kept: Send + Sync {
    /// Lets it go, or what has come in its place.
    fn let_go(self: Arc<Self>, waited: Result<(), Error>);
}

/// The answers of a service that wait.
pub(super) struct Held {
    /// These always wait.
    answers: Answers,
    state: Mutex<State>,
    changed: Condvar,
    /// The number of held answers, as last told to the threads that wait for room.
    count: AtomicUsize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Ticket, Arc<dyn Kept>)>,
    /// Threads that may give answers, and the service itself.
    giving: usize,
}

/// A handle of a thread that may give answers, or that may start such a thread.
pub(super) struct Giving(Arc<Held>);

impl Held {
    /// Of a database that has this journal.
    pub(super) fn new(journal: &Journal) -> Arc<Self> {
        Arc::new(Self {
            answers: Answers::new(journal.clone()).with(Durability::Immediate),
            state: Mutex::default(),
            changed: Condvar::new(),
            count: AtomicUsize::new(0),
        })
    }

    /// From now on answers may come, until what is returned is dropped.
    pub(super) fn give(self: &Arc<Self>) -> Giving {
        lock(&self.state).giving += 1;
        Giving(Arc::clone(self))
    }

    /// The number of held answers. Up to one for each thread that executes procedures of a batch may be added at once.
    pub(super) fn count(&self) -> usize {
        // Relaxed: the queue's lock orders this with the look for those who wait for room.
        self.count.load(Ordering::Relaxed)
    }

    /// The ticket for which an answer waits that is given now.
    #[inline]
    pub(super) fn ticket(&self) -> Ticket {
        self.answers.journal().sealed()
    }

    /// Keeps an answer.
    pub(super) fn push(&self, ticket: Ticket, kept: Arc<dyn Kept>) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut state = lock(&self.state);
        let is_first = state.waiting.is_empty();
        state.waiting.push_back((ticket, kept));
        drop(state);
        if is_first {
            self.changed.notify_one();
        }
    }

    /// Lets answers go as they are due, and returns how many, until no more come.
    pub(super) fn serve(&self, let_go: impl Fn(usize)) {
        let mut due = Vec::new();
        while let Some(first) = self.first() {
            // What each of them learns is asked below, for it takes no time then.
            let _ = self.wait(first);
            let mut state = lock(&self.state);
            while let Some(next) = state.waiting.pop_front_if(|(ticket, _)| *ticket <= first) {
                due.push(next);
            }
            drop(state);
            let count = due.len();
            due.drain(..).for_each(|(ticket, kept)| kept.let_go(self.wait(ticket)));
            self.count.fetch_sub(count, Ordering::Relaxed);
            let_go(count);
        }
    }

    /// The ticket for which the first held answer waits, if there is one.
    fn first(&self) -> Option<Ticket> {
        let mut state = lock(&self.state);
        loop {
            match state.waiting.front() {
                Some(&(ticket, _)) => return Some(ticket),
                None if state.giving == 0 => return None,
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Waits, whatever becomes of a flush in this thread.
    fn wait(&self, ticket: Ticket) -> Result<(), Error> {
        catch(|| self.answers.give(ticket, Ok(()))).unwrap_or_else(|panic| Err(panic.into_error()))
    }
}

impl Drop for Giving {
    fn drop(&mut self) {
        lock(&self.0.state).giving -= 1;
        self.0.changed.notify_one();
    }
}
