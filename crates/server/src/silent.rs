//! Sessions whose clients are silent: one thread waits for all of them.
//!
//! A session comes here whole, with its transaction parked and without a worker, and leaves when its client sends something or goes, or its time is over.
//! Clients that have said nothing since they came are here, too.
//! What comes here is in the list before its socket is watched, both under one lock, so whatever happens to the socket finds it.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::Shutdown;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use polychron::Protocol;
use polychron_base::clock::{Clock as _, Duration, SystemClock};

use crate::Shared;
use crate::session::Session;
use crate::startup::Newcomer;
use crate::threads::{self, Task};
use crate::watch::Watch;

/// How long it waits where the system gives no threads.
const BREATH: Duration = Duration::from_millis(50);

/// A session, and when its transaction ends.
struct Entry<P: Protocol> {
    session: Box<Session<P>>,
    ends_at: Option<u64>,
}

struct State<P: Protocol> {
    /// By the numbers of their places.
    entries: HashMap<i32, Entry<P>>,
    /// Clients that have said nothing yet, or wait before they may try again, by the same numbers, and when their time is over.
    newcomers: HashMap<i32, (Box<Newcomer>, u64)>,
    /// Those with an end, in its order.
    ends: BTreeSet<(u64, i32)>,
    is_over: bool,
}

/// The silent sessions of a server.
pub(crate) struct Silent<P: Protocol> {
    state: Mutex<State<P>>,
    watch: Watch,
    clock: SystemClock,
}

impl<P: Protocol> State<P> {
    fn take(&mut self, number: i32, watch: &Watch) -> Option<Box<Session<P>>> {
        let Entry { session, ends_at } = self.entries.remove(&number)?;
        watch.remove(&session.wire.socket);
        if let Some(ends_at) = ends_at {
            self.ends.remove(&(ends_at, number));
        }
        Some(session)
    }

    fn take_newcomer(&mut self, number: i32, watch: &Watch) -> Option<Box<Newcomer>> {
        let (newcomer, ends_at) = self.newcomers.remove(&number)?;
        watch.remove(&newcomer.socket);
        self.ends.remove(&(ends_at, number));
        Some(newcomer)
    }

    /// What is to be done for a client whose socket can be read.
    fn task(&mut self, number: i32, watch: &Watch) -> Option<Task<P>> {
        match self.take_newcomer(number, watch) {
            Some(newcomer) => Some(Task::Begin(newcomer)),
            None => self.take(number, watch).map(Task::GoOn),
        }
    }
}

impl<P: Protocol> Silent<P> {
    pub(crate) fn new() -> io::Result<Self> {
        let state = State { entries: HashMap::new(), newcomers: HashMap::new(), ends: BTreeSet::new(), is_over: false };
        Ok(Self { state: Mutex::new(state), watch: Watch::new()?, clock: SystemClock::new() })
    }

    fn state(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a session over. Its transaction ends after this time, if it is given.
    ///
    /// # Errors
    /// It has something to tell its client, or the system watches no more sockets: the session goes on where it is.
    pub(crate) fn add(
        &self,
        mut session: Box<Session<P>>,
        ends_after: Option<Duration>,
    ) -> Result<(), Box<Session<P>>> {
        session.shrink();
        let (socket, number) = (session.wire.socket.clone(), session.place().number);
        let ends_at = ends_after
            .map(|time| self.clock.now_ns().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)));
        let mut state = self.state();
        // It was told something meanwhile, and goes on at once. What comes from now on finds it here.
        if session.hears() {
            return Err(session);
        }
        state.entries.insert(number, Entry { session, ends_at });
        if self.watch.add(&socket, number).is_err() {
            return state.entries.remove(&number).map_or(Ok(()), |entry| Err(entry.session));
        }
        if let Some(ends_at) = ends_at {
            let is_first = state.ends.first().is_none_or(|first| ends_at < first.0);
            state.ends.insert((ends_at, number));
            if is_first {
                self.watch.wake();
            }
        }
        Ok(())
    }

    /// Waits for the first words of a client, for this time at most, or for the end of the time that it waits itself; then a thread goes on with it.
    ///
    /// # Errors
    /// The system watches no more sockets: a thread waits for the client.
    pub(crate) fn add_newcomer(&self, newcomer: Box<Newcomer>, time: Duration) -> Result<(), Box<Newcomer>> {
        let (socket, number) = (newcomer.socket.clone(), newcomer.place.number);
        let ends_at = self.clock.now_ns().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let mut state = self.state();
        if state.is_over {
            return Err(newcomer);
        }
        state.newcomers.insert(number, (newcomer, ends_at));
        if self.watch.add(&socket, number).is_err() {
            return state.newcomers.remove(&number).map_or(Ok(()), |(newcomer, _)| Err(newcomer));
        }
        let is_first = state.ends.first().is_none_or(|first| ends_at < first.0);
        state.ends.insert((ends_at, number));
        if is_first {
            self.watch.wake();
        }
        Ok(())
    }

    /// Waits, and tells which sessions go on and whose time is over; `None`: the server is at its end.
    fn wait(&self, longest: Option<Duration>) -> Option<Vec<Task<P>>> {
        let first = self.state().ends.first().map(|first| first.0);
        let until_first = first.map(|at| Duration::from_nanos(at.saturating_sub(self.clock.now_ns())));
        let time = match (until_first, longest) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let numbers = self.watch.wait(time);
        let mut state = self.state();
        if state.is_over {
            return None;
        }
        let mut tasks: Vec<_> = numbers.into_iter().filter_map(|number| state.task(number, &self.watch)).collect();
        let (now, mut gone) = (self.clock.now_ns(), Vec::new());
        while let Some((_, number)) = state.ends.first().copied().filter(|first| first.0 <= now) {
            if let Some(newcomer) = state.take_newcomer(number, &self.watch) {
                if newcomer.is_delayed() {
                    tasks.push(Task::Begin(newcomer));
                } else {
                    newcomer.socket.shut_down(Shutdown::Both);
                    gone.push(newcomer);
                }
                continue;
            }
            tasks.extend(state.take(number, &self.watch).map(Task::Expire));
        }
        drop(state);
        // They leave the registry, which is locked for that.
        drop(gone);
        Some(tasks)
    }

    /// A session was told something. It is the answer, to go on, if it is here and its client can be told now.
    pub(crate) fn rouse(&self, number: i32) -> Option<Box<Session<P>>> {
        let mut state = self.state();
        let hears = !state.is_over && state.entries.get(&number).is_some_and(|entry| entry.session.hears());
        if hears { state.take(number, &self.watch) } else { None }
    }

    /// Has the thread look around.
    pub(crate) fn wake(&self) {
        self.watch.wake();
    }

    /// Has the thread end.
    pub(crate) fn end(&self) {
        self.state().is_over = true;
        self.watch.wake();
    }
}

/// Starts the thread that waits for silent clients.
pub(crate) fn start<P: Protocol>(shared: &Arc<Shared<P>>) -> io::Result<JoinHandle<()>> {
    let shared = shared.clone();
    thread::Builder::new().name("silent".to_owned()).spawn(move || {
        let mut longest = None;
        while let Some(tasks) = shared.silent.wait(longest) {
            tasks.into_iter().for_each(|task| threads::run(&shared, task));
            // Where `run` has found no thread, it has woken this one once more.
            let lacks = threads::lacks(&shared) && !threads::staff(&shared);
            longest = lacks.then_some(BREATH);
        }
    })
}
