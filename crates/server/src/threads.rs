//! Threads of sessions. A session has one while its client speaks, or holds a transaction that cannot be parked; a silent one is with `silent`.
//!
//! What wants a thread gets an idle one, or else a new one: it may hold up what others wait for, so it never waits for their ends. So there are as many threads
//! as clients that are not silent, and those that had nothing to do for some seconds end.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use polychron::Protocol;
use polychron_base::clock::Duration;
use polychron_sql::SqlState;

use crate::Shared;
use crate::answers::Answers;
use crate::error::End;
use crate::session::{self, Begun, Pause, Session};
use crate::startup::Newcomer;

/// Statements go down as deep as their expressions nest.
const STACK: usize = 8 << 20;
/// How long a thread waits for something to do.
const IDLE: Duration = Duration::from_secs(2);

/// What a thread does.
pub(crate) enum Task<P: Protocol> {
    /// A client has come, or has waited.
    Begin(Box<Newcomer>),
    /// A client is silent no longer.
    GoOn(Box<Session<P>>),
    /// A client was silent in its transaction for too long.
    Expire(Box<Session<P>>),
}

struct State<P: Protocol> {
    /// What waits for a thread.
    tasks: VecDeque<Task<P>>,
    /// Threads that wait for a task, or begin.
    idle: usize,
    /// The system gave no thread when one was wanted.
    lacks: bool,
    is_over: bool,
}

/// The threads of a server.
pub(crate) struct Threads<P: Protocol> {
    state: Mutex<State<P>>,
    changed: Condvar,
}

impl<P: Protocol> Default for Threads<P> {
    fn default() -> Self {
        let state = State { tasks: VecDeque::new(), idle: 0, lacks: false, is_over: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl<P: Protocol> Threads<P> {
    fn state(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next task for the calling thread, which is counted as idle; `None`: it is to end, and is counted no longer.
    fn next(&self) -> Option<Task<P>> {
        let mut state = self.state();
        loop {
            let task = state.tasks.pop_front();
            if task.is_some() || state.is_over {
                state.idle -= 1;
                return task;
            }
            let (again, waited) = self.changed.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = again;
            if waited.timed_out() && state.tasks.is_empty() {
                state.idle -= 1;
                return None;
            }
        }
    }

    /// Has all threads end once there is nothing to do.
    pub(crate) fn end(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }
}

/// Has a thread do something.
pub(crate) fn run<P: Protocol>(shared: &Arc<Shared<P>>, task: Task<P>) {
    shared.threads.state().tasks.push_back(task);
    if !staff(shared) {
        // Its thread tries again, now and then.
        shared.silent.wake();
    }
}

/// Sees to a thread for each task; `false`: the system gives none, and what waits has it from threads that become idle, or the next time.
pub(crate) fn staff<P: Protocol>(shared: &Arc<Shared<P>>) -> bool {
    let threads = &shared.threads;
    loop {
        let mut state = threads.state();
        if state.idle >= state.tasks.len() {
            state.lacks = false;
            threads.changed.notify_one();
            return true;
        }
        state.idle += 1;
        drop(state);
        let own = shared.clone();
        let spawned = thread::Builder::new().name("session".to_owned()).stack_size(STACK).spawn(move || work(&own));
        if spawned.is_err() {
            let mut state = threads.state();
            state.idle -= 1;
            state.lacks = true;
            return false;
        }
    }
}

/// Whether something waits for a thread that the system has not given.
pub(crate) fn lacks<P: Protocol>(shared: &Shared<P>) -> bool {
    shared.threads.state().lacks
}

fn work<P: Protocol>(shared: &Arc<Shared<P>>) {
    while let Some(task) = shared.threads.next() {
        perform(shared, task);
        shared.threads.state().idle += 1;
    }
}

/// Begins a session. `None`: its client waits, and `silent` has it.
fn begun<P: Protocol>(shared: &Arc<Shared<P>>, newcomer: Box<Newcomer>) -> Result<Option<Box<Session<P>>>, End> {
    let mut newcomer = newcomer;
    loop {
        match session::begin(shared, newcomer)? {
            Begun::Session(session) => return Ok(Some(session)),
            Begun::Later(later, time) => match shared.silent.add_newcomer(later, time) {
                Ok(()) => return Ok(None),
                // It keeps this thread.
                Err(back) => {
                    newcomer = back;
                    newcomer.pause()?;
                }
            },
        }
    }
}

fn perform<P: Protocol>(shared: &Arc<Shared<P>>, task: Task<P>) {
    let (socket, place) = match &task {
        Task::Begin(newcomer) => (newcomer.socket.clone(), newcomer.place.clone()),
        Task::GoOn(session) | Task::Expire(session) => (session.wire.socket.clone(), session.place().clone()),
    };
    let mut task = Some(task);
    let served = catch_unwind(AssertUnwindSafe(|| {
        let mut session = match task.take() {
            Some(Task::Begin(newcomer)) => match begun(shared, newcomer)? {
                Some(session) => session,
                None => return Ok(()),
            },
            Some(Task::GoOn(session)) => session,
            Some(Task::Expire(_)) | None => return Err(Session::<P>::expired()),
        };
        loop {
            match session.serve()? {
                Pause::Ended => return Err(End::Gone),
                Pause::Silent(ends_after) => match shared.silent.add(session, ends_after) {
                    Ok(()) => return Ok(()),
                    // It keeps this thread.
                    Err(back) => session = back,
                },
            }
        }
    }));
    let served = served.unwrap_or_else(|_| Err(End::fatal(SqlState::INTERNAL_ERROR, "the session has panicked")));
    let Err(end) = served else { return };
    if let End::Fatal(error) = end {
        let mut answers = Answers::default();
        answers.fatal(&error);
        let _ = answers.write(&socket);
    }
    socket.end();
    // Now the server need not wait for it.
    drop(place);
}
