//! Advisory locks: what sessions lock by numbers, and nothing of the database.
//!
//! Whoever comes first has a lock first. A session that has one already gets it again without waiting behind others, which would wait for it. Who would wait for itself, over others that wait,
//! is refused at once (`40P01`): a cycle of waits closes with the last one of them.
//!
//! Statements are run again where they conflict, and locks are not undone: so a session keeps what its transaction has asked with the answers, and gives them again, in their order. Where the statements come
//! another way then, what they do not ask again is given back. A wait is none of the engine's transaction, if that can be run again: it ends before, and begins anew behind, so that it holds up nobody and
//! sees what was committed meanwhile.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use hashbrown::{HashMap, HashSet};
use polychron_base::clock::Duration;
use polychron_engine::limits::{self, Limits};
use polychron_sync::atomic::{AtomicBool, Ordering};

use crate::error::{SqlError, SqlState};
use crate::watch::Activity;

/// The most locks of a database, each session's counted by itself, and the most calls of a transaction.
const MOST: usize = 1_000_000;
/// How long a wait looks away.
const NAP: Duration = Duration::from_millis(10);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is locked. One number and two numbers never are the same lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    One(i64),
    Two(i32, i32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Lock { waits: bool, is_of_transaction: bool },
    Unlock,
    UnlockAll,
}

/// A call of one of the functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    what: What,
    pub(crate) is_shared: bool,
}

impl Call {
    pub(crate) fn is_unlock(self) -> bool {
        self.what == What::Unlock
    }

    /// Whether its answer tells something.
    pub(crate) fn is_asking(self) -> bool {
        matches!(self.what, What::Unlock | What::Lock { waits: false, .. })
    }
}

const fn locks(waits: bool, is_of_transaction: bool, is_shared: bool) -> Call {
    Call { what: What::Lock { waits, is_of_transaction }, is_shared }
}

/// The functions by their names.
pub(crate) const CALLS: [(&str, Call); 11] = [
    ("pg_advisory_lock", locks(true, false, false)),
    ("pg_advisory_lock_shared", locks(true, false, true)),
    ("pg_advisory_xact_lock", locks(true, true, false)),
    ("pg_advisory_xact_lock_shared", locks(true, true, true)),
    ("pg_try_advisory_lock", locks(false, false, false)),
    ("pg_try_advisory_lock_shared", locks(false, false, true)),
    ("pg_try_advisory_xact_lock", locks(false, true, false)),
    ("pg_try_advisory_xact_lock_shared", locks(false, true, true)),
    ("pg_advisory_unlock", Call { what: What::Unlock, is_shared: false }),
    ("pg_advisory_unlock_shared", Call { what: What::Unlock, is_shared: true }),
    ("pg_advisory_unlock_all", Call { what: What::UnlockAll, is_shared: false }),
];

/// How often a session has a lock: of itself and of its transaction, each exclusive and shared.
#[derive(Clone, Copy, Debug, Default)]
struct Counts([[u32; 2]; 2]);

impl Counts {
    fn has(&self, is_shared: bool) -> bool {
        let at = usize::from(is_shared);
        self.0[0][at] + self.0[1][at] > 0
    }

    fn is_empty(&self) -> bool {
        !self.has(false) && !self.has(true)
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    session: u64,
    is_shared: bool,
}

#[derive(Debug, Default)]
struct OneLock {
    holders: HashMap<u64, Counts>,
    /// In the order in which they came.
    waiters: Vec<Waiter>,
}

impl OneLock {
    /// The sessions that stand in the way of a request, behind so many waiters.
    fn in_the_way(&self, session: u64, is_shared: bool, behind: usize) -> impl Iterator<Item = u64> {
        let holders = self.holders.iter();
        let holders = holders
            .filter(move |(own, counts)| **own != session && (!is_shared || counts.has(false)))
            .map(|(own, _)| *own);
        let passes = self.holders.contains_key(&session);
        let waiters = self.waiters[..behind].iter().filter(move |it| !(passes || is_shared && it.is_shared));
        holders.chain(waiters.map(|it| it.session))
    }
}

#[derive(Debug, Default)]
struct State {
    locks: HashMap<Key, OneLock>,
    /// What each session waits for.
    waits: HashMap<u64, Key>,
    /// How many locks sessions have.
    held: usize,
}

/// The advisory locks of a database.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    state: Mutex<State>,
    changed: Condvar,
}

/// A lock that a session has, or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seen {
    pub(crate) key: Key,
    pub(crate) session: u64,
    pub(crate) is_shared: bool,
    pub(crate) is_granted: bool,
}

/// A request for a lock.
#[derive(Clone, Copy, Debug)]
struct Request {
    session: u64,
    key: Key,
    is_shared: bool,
    is_of_transaction: bool,
}

impl State {
    /// Gives a lock, unless others stand in the way of a request behind so many waiters.
    fn grant(&mut self, of: Request, behind: Option<usize>) -> Result<bool, SqlError> {
        let lock = self.locks.entry(of.key).or_default();
        let behind = behind.unwrap_or(lock.waiters.len());
        if lock.in_the_way(of.session, of.is_shared, behind).next().is_some() {
            return Ok(false);
        }
        let is_new = !lock.holders.contains_key(&of.session);
        let counts = lock.holders.entry(of.session).or_default();
        let count = &mut counts.0[usize::from(of.is_of_transaction)][usize::from(of.is_shared)];
        let is_full = is_new && self.held >= MOST;
        if is_full || *count == u32::MAX {
            self.tidy(of.key, of.session);
            let detail = format!("All sessions together have {MOST} advisory locks at most.");
            return Err(SqlError::out_of_memory(detail));
        }
        *count += 1;
        self.held += usize::from(is_new);
        Ok(true)
    }

    /// Forgets what nobody has or wants.
    fn tidy(&mut self, key: Key, session: u64) {
        let Some(lock) = self.locks.get_mut(&key) else { return };
        if lock.holders.get(&session).is_some_and(Counts::is_empty) {
            lock.holders.remove(&session);
        }
        if lock.holders.is_empty() && lock.waiters.is_empty() {
            self.locks.remove(&key);
        }
    }

    /// Takes a lock back once; whether the session has it.
    fn release(&mut self, of: Request) -> bool {
        let Some(counts) = self.locks.get_mut(&of.key).and_then(|lock| lock.holders.get_mut(&of.session)) else {
            return false;
        };
        let count = &mut counts.0[usize::from(of.is_of_transaction)][usize::from(of.is_shared)];
        if *count == 0 {
            return false;
        }
        *count -= 1;
        self.held -= usize::from(counts.is_empty());
        self.tidy(of.key, of.session);
        true
    }

    /// Takes all locks of a session back, those of its transaction too if that is over.
    fn release_all(&mut self, session: u64, with_transaction: bool) {
        let mut freed = 0;
        self.locks.retain(|_, lock| {
            if let Some(counts) = lock.holders.get_mut(&session) {
                counts.0[0] = [0; 2];
                if with_transaction {
                    counts.0[1] = [0; 2];
                }
                if counts.is_empty() {
                    lock.holders.remove(&session);
                    freed += 1;
                }
            }
            !lock.holders.is_empty() || !lock.waiters.is_empty()
        });
        self.held -= freed;
    }

    /// The sessions that one waits for.
    fn waits_for(&self, session: u64) -> Vec<u64> {
        let Some(lock) = self.waits.get(&session).and_then(|key| self.locks.get(key)) else { return Vec::new() };
        let Some(at) = lock.waiters.iter().position(|it| it.session == session) else { return Vec::new() };
        lock.in_the_way(session, lock.waiters[at].is_shared, at).collect()
    }

    /// Whether a session waits for itself, over others.
    fn is_stuck(&self, session: u64) -> bool {
        let (mut seen, mut open) = (HashSet::new(), self.waits_for(session));
        while let Some(next) = open.pop() {
            if next == session {
                return true;
            }
            if seen.insert(next) {
                open.extend(self.waits_for(next));
            }
        }
        false
    }

    fn leave(&mut self, of: Request) {
        self.waits.remove(&of.session);
        if let Some(lock) = self.locks.get_mut(&of.key) {
            lock.waiters.retain(|it| it.session != of.session);
        }
        self.tidy(of.key, of.session);
    }
}

impl Locks {
    fn take_at_once(&self, of: Request) -> Result<bool, SqlError> {
        let mut state = lock(&self.state);
        let granted = state.grant(of, None);
        if !matches!(granted, Ok(true)) {
            state.tidy(of.key, of.session);
        }
        granted
    }

    /// Waits for a lock within the statement's limits, and for so long at most.
    fn wait(&self, of: Request, longest: Option<Duration>) -> Result<(), SqlError> {
        let longest = longest.map(Limits::timeout);
        let mut state = lock(&self.state);
        if state.grant(of, None)? {
            return Ok(());
        }
        state.waits.insert(of.session, of.key);
        let waiter = Waiter { session: of.session, is_shared: of.is_shared };
        state.locks.entry(of.key).or_default().waiters.push(waiter);
        if state.is_stuck(of.session) {
            state.leave(of);
            self.changed.notify_all();
            let detail = "The session waits for an advisory lock of one that waits for this session.";
            return Err(SqlError::new(SqlState::DEADLOCK_DETECTED, "deadlock detected").with_detail(detail));
        }
        let ended = loop {
            let waiters = state.locks.get(&of.key).map_or(&[][..], |lock| &lock.waiters);
            let at = waiters.iter().position(|it| it.session == of.session);
            match state.grant(of, at) {
                Ok(false) => {}
                granted => break granted.map(drop),
            }
            if let Err(error) = limits::check() {
                break Err(SqlError::of_engine(error));
            }
            if longest.as_ref().is_some_and(|longest| longest.check().is_err()) {
                let message = "canceling statement due to lock timeout";
                break Err(SqlError::new(SqlState::LOCK_NOT_AVAILABLE, message));
            }
            state = self.changed.wait_timeout(state, NAP).unwrap_or_else(PoisonError::into_inner).0;
        };
        state.leave(of);
        drop(state);
        // Others may have waited for the wait alone.
        self.changed.notify_all();
        ended
    }

    fn change<O>(&self, change: impl FnOnce(&mut State) -> O) -> O {
        let changed = change(&mut lock(&self.state));
        self.changed.notify_all();
        changed
    }

    /// What sessions have, and wait for.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        let state = lock(&self.state);
        let mut seen = Vec::new();
        for (key, lock) in &state.locks {
            let key = *key;
            for (session, counts) in &lock.holders {
                let modes = [false, true].into_iter().filter(|is_shared| counts.has(*is_shared));
                seen.extend(modes.map(|is_shared| Seen { key, session: *session, is_shared, is_granted: true }));
            }
            let waiter = |it: &Waiter| Seen { key, session: it.session, is_shared: it.is_shared, is_granted: false };
            seen.extend(lock.waiters.iter().map(waiter));
        }
        drop(state);
        seen.sort_unstable();
        seen
    }
}

/// The part of a session in advisory locks.
#[derive(Debug, Default)]
pub(crate) struct Own {
    calls: Mutex<Calls>,
    locks: OnceLock<(Arc<Locks>, u64)>,
    /// Whether the session has asked for something. One thread at a time has the session, and looks at it without the lock.
    is_used: AtomicBool,
    /// Whether it ever has.
    has_asked: AtomicBool,
    /// Whether a wait ends the engine's transaction first, and whether each does because transactions are planned.
    leaves: AtomicBool,
    is_planned: bool,
}

/// What a transaction has asked.
#[derive(Debug, Default)]
struct Calls {
    /// Each with its answer.
    all: Vec<(Call, Key, bool)>,
    /// How many of them were asked again since it was begun anew.
    again: usize,
    /// What it has to wait for before it is run again.
    wanted: Option<(Call, Key)>,
}

impl Own {
    /// That of a connection whose transactions are planned.
    pub(crate) fn planned() -> Self {
        Self { is_planned: true, ..Self::default() }
    }

    pub(crate) fn connect(&self, locks: &Arc<Locks>, session: u64) {
        let _ = self.locks.set((locks.clone(), session));
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.is_used.store(true, Ordering::Relaxed);
        lock(&self.calls)
    }

    fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    fn request(&self, call: Call, key: Key) -> Option<(&Locks, Request)> {
        let (locks, session) = self.locks.get()?;
        let is_of_transaction = matches!(call.what, What::Lock { is_of_transaction: true, .. });
        Some((locks, Request { session: *session, key, is_shared: call.is_shared, is_of_transaction }))
    }

    /// Gives back what calls have locked.
    fn undo(&self, calls: &[(Call, Key, bool)]) {
        for (call, key, is_done) in calls.iter().rev() {
            if let (What::Lock { .. }, true, Some((locks, request))) = (call.what, is_done, self.request(*call, *key)) {
                locks.change(|state| state.release(request));
            }
        }
    }

    /// What a call does, or has done before the transaction was begun anew.
    ///
    /// # Errors
    /// The lock is not to be had; or what the transaction ends with that is to wait for it.
    pub(crate) fn answer(&self, call: Call, key: Key, activity: Option<&Activity>) -> Result<bool, SqlError> {
        let Some((locks, request)) = self.request(call, key) else {
            return Err(SqlError::unsupported("advisory locks without a session"));
        };
        self.has_asked.store(true, Ordering::Relaxed);
        let mut calls = self.calls();
        let again = calls.again;
        match calls.all.get(again) {
            Some((own, of, is_done)) if (*own, *of) == (call, key) => {
                let is_done = *is_done;
                calls.again += 1;
                return Ok(is_done);
            }
            // It has come another way, where it has read something else.
            Some(_) => self.undo(&calls.all.split_off(again)),
            None => {}
        }
        if calls.all.len() == MOST {
            let detail = format!("A transaction calls functions of advisory locks {MOST} times at most.");
            return Err(SqlError::out_of_memory(detail));
        }
        let is_done = match call.what {
            What::Unlock => locks.change(|state| state.release(request)),
            What::UnlockAll => {
                locks.change(|state| state.release_all(request.session, false));
                true
            }
            What::Lock { waits, .. } => match locks.take_at_once(request)? {
                false if waits && (self.is_planned || self.leaves.load(Ordering::Relaxed)) => {
                    calls.wanted = Some((call, key));
                    return Err(SqlError::internal("a transaction has to wait for an advisory lock"));
                }
                false if waits => {
                    locks.wait(request, longest_wait(activity))?;
                    true
                }
                is_done => is_done,
            },
        };
        calls.all.push((call, key, is_done));
        calls.again += 1;
        Ok(is_done)
    }

    /// In this statement a wait ends the transaction of the engine first, or does not.
    pub(crate) fn set_leaving(&self, leaves: bool) {
        self.leaves.store(leaves, Ordering::Relaxed);
    }

    /// Whether the transaction has ended to wait.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_used() && self.calls().wanted.is_some()
    }

    /// Waits for what the transaction has ended for, and tells whether there was something.
    ///
    /// # Errors
    /// The lock is not to be had.
    pub(crate) fn provide(&self, activity: Option<&Activity>) -> Result<bool, SqlError> {
        if !self.is_used() {
            return Ok(false);
        }
        let Some((call, key)) = self.calls().wanted.take() else { return Ok(false) };
        let Some((locks, request)) = self.request(call, key) else { return Ok(false) };
        locks.wait(request, longest_wait(activity))?;
        self.calls().all.push((call, key, true));
        Ok(true)
    }

    /// The statements of the transaction run from the beginning.
    pub(crate) fn repeat(&self) {
        if self.is_used() {
            self.calls().again = 0;
        }
    }

    /// How much the transaction has asked.
    pub(crate) fn mark(&self) -> usize {
        if self.is_used() { self.calls().all.len() } else { 0 }
    }

    /// What came behind is undone: locks of the transaction are given back.
    pub(crate) fn return_to(&self, mark: usize) {
        if !self.is_used() {
            return;
        }
        let mut calls = self.calls();
        let mark = mark.min(calls.all.len());
        let behind = calls.all.split_off(mark);
        calls.again = calls.again.min(mark);
        drop(calls);
        self.undo_of_transaction(&behind);
    }

    fn undo_of_transaction(&self, calls: &[(Call, Key, bool)]) {
        let is_own = |call: &Call| matches!(call.what, What::Lock { is_of_transaction: true, .. });
        calls.iter().filter(|(call, ..)| is_own(call)).for_each(|call| self.undo(&[*call]));
    }

    /// The transaction has ended: its locks go, and what it has not asked again.
    pub(crate) fn end(&self) {
        if !self.is_used() {
            return;
        }
        let mut calls = self.calls();
        let again = calls.again;
        let unasked = calls.all.split_off(again);
        let asked = std::mem::take(&mut *calls).all;
        drop(calls);
        self.undo(&unasked);
        self.undo_of_transaction(&asked);
        self.is_used.store(false, Ordering::Relaxed);
    }

    /// Gives all locks of the session back.
    pub(crate) fn close(&self) {
        self.end();
        if let Some((locks, session)) = self.locks.get().filter(|_| self.has_asked.load(Ordering::Relaxed)) {
            locks.change(|state| state.release_all(*session, true));
        }
    }
}

fn longest_wait(activity: Option<&Activity>) -> Option<Duration> {
    activity.and_then(Activity::settings).and_then(|settings| settings.lock_timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(session: u64, number: i64, is_shared: bool) -> Request {
        Request { session, key: Key::One(number), is_shared, is_of_transaction: false }
    }

    #[test]
    fn whoever_has_a_lock_gets_it_again() {
        let locks = Locks::default();
        let take = |session, is_shared| locks.take_at_once(request(session, 1, is_shared)).unwrap();
        assert!(take(1, false) && take(1, true) && take(1, false) && !take(2, true));
        let give = |session, is_shared| locks.change(|state| state.release(request(session, 1, is_shared)));
        assert!(give(1, false) && !give(2, true) && !take(2, true) && give(1, false) && !give(1, false));
        assert!(take(2, true) && !take(3, false) && give(1, true) && give(2, true) && take(3, false));
        locks.change(|state| state.release_all(3, false));
        let state = lock(&locks.state);
        assert!(state.locks.is_empty() && state.held == 0, "{state:?}");
    }

    #[test]
    fn waiters_come_in_their_order() {
        let mut state = State::default();
        assert!(state.grant(request(1, 1, true), None).unwrap());
        let wait = |state: &mut State, session, is_shared| {
            state.waits.insert(session, Key::One(1));
            state.locks.get_mut(&Key::One(1)).unwrap().waiters.push(Waiter { session, is_shared });
        };
        wait(&mut state, 2, false);
        assert!(!state.grant(request(3, 1, true), None).unwrap(), "an exclusive request waits before it");
        assert!(state.grant(request(1, 1, true), None).unwrap(), "others wait for it");
        wait(&mut state, 3, true);
        assert_eq!((state.waits_for(2), state.waits_for(3)), (vec![1], vec![2]));
        assert!(!state.is_stuck(3));
        state.locks.entry(Key::One(2)).or_default();
        assert!(state.grant(request(3, 2, false), None).unwrap());
        state.waits.insert(1, Key::One(2));
        state.locks.get_mut(&Key::One(2)).unwrap().waiters.push(Waiter { session: 1, is_shared: true });
        assert!(state.is_stuck(1) && state.is_stuck(2) && state.is_stuck(3));
        state.leave(request(2, 1, false));
        assert!(!state.is_stuck(1) && state.grant(request(3, 1, true), Some(0)).unwrap());
    }

    #[test]
    fn what_is_asked_again_is_not_done_again() {
        let locks = Arc::new(Locks::default());
        let (own, other) = (Own::default(), Own::default());
        own.connect(&locks, 1);
        other.connect(&locks, 2);
        let call = |name: &str| CALLS.iter().find(|(own, _)| *own == name).unwrap().1;
        let ask = |own: &Own, name: &str, key| own.answer(call(name), Key::One(key), None).unwrap();
        for _ in 0..3 {
            own.repeat();
            assert!(ask(&own, "pg_advisory_lock", 1) && ask(&own, "pg_advisory_xact_lock", 2));
            assert!(ask(&own, "pg_advisory_lock", 3));
        }
        // It comes another way.
        own.repeat();
        assert!(ask(&own, "pg_advisory_lock", 1));
        own.end();
        assert!(!ask(&other, "pg_try_advisory_lock", 1));
        assert!(ask(&other, "pg_try_advisory_lock", 2) && ask(&other, "pg_try_advisory_lock", 3));
        other.end();
        assert!(ask(&own, "pg_advisory_unlock", 1) && !ask(&own, "pg_advisory_unlock", 1));
        other.close();
        assert_eq!(locks.seen(), []);
    }
}
