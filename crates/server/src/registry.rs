//! Which sessions there are: whom a cancel request means, how many there may be, and who ends with the server.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use polychron_base::clock::Duration;
use polychron_sql::{CancelHandle, LogIn, SqlError, SqlState};
use polychron_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::Options;
use crate::socket::Socket;

/// The longest key of a cancel request. It has 32 bytes from 3.2 on, and 4 before.
pub(crate) const KEY: usize = 32;

/// What is known of a client.
struct Entry {
    socket: Arc<Socket>,
    /// Of one that has shown who it is.
    admitted: Option<Admitted>,
    is_idle: Arc<AtomicBool>,
    watched: Arc<Watched>,
}

/// What others see of a session, and say to it.
#[derive(Debug, Default)]
struct Watched {
    is_ended: AtomicBool,
    received: AtomicU64,
    sent: AtomicU64,
}

/// How many clients there are, and what has gone over the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) admitted: usize,
    pub(crate) unauthenticated: usize,
    /// All that have come.
    pub(crate) came: u64,
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

struct Admitted {
    /// The number of its role, which may be called otherwise since.
    role: i64,
    key: Vec<u8>,
    cancel: CancelHandle,
}

#[derive(Default)]
struct State {
    next: i32,
    /// In the order in which they came.
    entries: BTreeMap<i32, Entry>,
    /// How many of them have shown who they are.
    admitted: usize,
    /// All that have come, and the bytes of those that are gone.
    past: Counts,
}

struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    is_stopping: AtomicBool,
    max_connections: usize,
    /// How many of them are superusers' alone.
    reserved: usize,
    max_unauthenticated: usize,
}

/// The sessions of a server. Clones are the same.
#[derive(Clone)]
pub(crate) struct Registry(Arc<Inner>);

impl std::fmt::Debug for Registry {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Registry").finish_non_exhaustive()
    }
}

/// A client's place among the sessions, which it leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    registry: Registry,
    pub(crate) number: i32,
    /// It waits for its client, outside of transactions.
    is_idle: Arc<AtomicBool>,
    watched: Arc<Watched>,
}

impl Registry {
    pub(crate) fn new(options: &Options) -> Self {
        let (state, changed, is_stopping) = (Mutex::default(), Condvar::new(), AtomicBool::new(false));
        let Options { max_connections, superuser_reserved_connections: reserved, max_unauthenticated, .. } = *options;
        Self(Arc::new(Inner { state, changed, is_stopping, max_connections, reserved, max_unauthenticated }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        // In one order with the stores and loads of `is_idle`: either the session sees that the server ends, or `stop` sees that it waits.
        self.0.is_stopping.load(Ordering::SeqCst)
    }

    /// A client has come. Where too many have not shown who they are, the one that has waited longest goes.
    pub(crate) fn enter(&self, socket: &Arc<Socket>) -> Place {
        let mut state = self.state();
        let unknown = state.entries.len() - state.admitted;
        if unknown >= self.0.max_unauthenticated
            && let Some(oldest) = state.entries.values().find(|entry| entry.admitted.is_none())
        {
            oldest.socket.shut_down(Shutdown::Both);
        }
        let number = state.free_number();
        let is_idle = Arc::<AtomicBool>::default();
        let (admitted, watched) = (None, Arc::<Watched>::default());
        state.past.came += 1;
        let entry = Entry { socket: socket.clone(), admitted, is_idle: is_idle.clone(), watched: watched.clone() };
        state.entries.insert(number, entry);
        Place { registry: self.clone(), number, is_idle, watched }
    }

    /// How many threads clients have that have not shown who they are: beyond this, acceptors wait.
    pub(crate) fn wait_for_room(&self) {
        let most = self.0.max_unauthenticated + 1;
        let mut state = self.state();
        while state.entries.len() - state.admitted > most && !self.is_stopping() {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the statement of the session with this number and key, if there is one.
    pub(crate) fn cancel(&self, number: i32, key: &[u8]) {
        let handle = {
            let state = self.state();
            let admitted = state.entries.get(&number).and_then(|entry| entry.admitted.as_ref());
            admitted.filter(|admitted| is_same(&admitted.key, key)).map(|admitted| admitted.cancel.clone())
        };
        if let Some(handle) = handle {
            handle.cancel();
        }
    }

    /// Has the session of this number end: its next read finds the end of the stream.
    pub(crate) fn terminate(&self, number: i32) {
        if let Some(entry) = self.state().entries.get(&number) {
            entry.watched.is_ended.store(true, Ordering::SeqCst);
            entry.socket.shut_down(Shutdown::Read);
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let state = self.state();
        let mut counts = state.past;
        counts.admitted = state.admitted;
        counts.unauthenticated = state.entries.len() - state.admitted;
        state.entries.values().for_each(|entry| entry.watched.add_to(&mut counts));
        counts
    }

    /// Has all sessions end.
    pub(crate) fn stop(&self) {
        self.0.is_stopping.store(true, Ordering::SeqCst);
        let state = self.state();
        for entry in
            state.entries.values().filter(|entry| entry.is_idle.load(Ordering::SeqCst) || entry.admitted.is_none())
        {
            entry.socket.shut_down(Shutdown::Read);
        }
        drop(state);
        self.0.changed.notify_all();
    }

    pub(crate) fn wait_for_stop(&self) {
        let mut state = self.state();
        while !self.is_stopping() {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until all sessions have ended; those that go on for longer are ended.
    pub(crate) fn wait_for_sessions(&self, grace: Duration) {
        let is_busy = |state: &mut State| !state.entries.is_empty();
        let waited = self.0.changed.wait_timeout_while(self.state(), grace, is_busy);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        while !state.entries.is_empty() {
            for entry in state.entries.values() {
                if let Some(admitted) = &entry.admitted {
                    admitted.cancel.cancel();
                }
                entry.socket.shut_down(Shutdown::Both);
            }
            // A statement that began just now is cancelled the next time.
            let again = Duration::from_millis(50);
            let waited = self.0.changed.wait_timeout(state, again);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Watched {
    fn add_to(&self, counts: &mut Counts) {
        // Relaxed: nothing hangs on them.
        counts.received += self.received.load(Ordering::Relaxed);
        counts.sent += self.sent.load(Ordering::Relaxed);
    }
}

/// Greater numbers are those of connections without a server.
const LAST: i32 = (1 << 30) - 1;

impl State {
    /// A number that no session has.
    fn free_number(&mut self) -> i32 {
        loop {
            self.next = if self.next >= LAST { 1 } else { self.next + 1 };
            if !self.entries.contains_key(&self.next) {
                return self.next;
            }
        }
    }
}

/// Compares without telling by the time where they differ.
fn is_same(known: &[u8], given: &[u8]) -> bool {
    known.len() == given.len() && known.iter().zip(given).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

impl Place {
    /// The client has shown that it is this role.
    ///
    /// # Errors
    /// There are as many sessions as may be, or the role has as many as it may have.
    pub(crate) fn admit(&self, name: &str, log_in: &LogIn, key: &[u8], cancel: CancelHandle) -> Result<(), SqlError> {
        let (role, limit) = (log_in.number(), log_in.connection_limit());
        let refused = |message: String| Err(SqlError::new(SqlState::TOO_MANY_CONNECTIONS, message));
        let mut state = self.registry.state();
        if state.admitted >= self.registry.0.max_connections {
            return refused("sorry, too many clients already".to_owned());
        }
        if !log_in.is_superuser() && state.admitted + self.registry.0.reserved >= self.registry.0.max_connections {
            let message = "remaining connection slots are reserved for non-replication superuser connections";
            return refused(message.to_owned());
        }
        let is_own = |entry: &&Entry| entry.admitted.as_ref().is_some_and(|admitted| admitted.role == role);
        if limit.is_some_and(|limit| state.entries.values().filter(is_own).count() >= limit) {
            return refused(format!("too many connections for role \"{name}\""));
        }
        if let Some(entry) = state.entries.get_mut(&self.number) {
            entry.admitted = Some(Admitted { role, key: key.to_vec(), cancel });
            state.admitted += 1;
        }
        drop(state);
        self.registry.0.changed.notify_all();
        Ok(())
    }

    /// The session waits for its client, outside of transactions. The answer is whether it may: otherwise the server ends.
    pub(crate) fn set_idle(&self, is_idle: bool) -> bool {
        self.is_idle.store(is_idle, Ordering::SeqCst);
        !self.registry.is_stopping()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.registry.is_stopping() || self.watched.is_ended.load(Ordering::SeqCst)
    }

    /// So many bytes have come and gone so far.
    pub(crate) fn note_bytes(&self, received: u64, sent: u64) {
        self.watched.received.store(received, Ordering::Relaxed);
        self.watched.sent.store(sent, Ordering::Relaxed);
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.registry.state();
        if let Some(entry) = state.entries.remove(&self.number) {
            state.admitted -= usize::from(entry.admitted.is_some());
            entry.watched.add_to(&mut state.past);
        }
        drop(state);
        self.registry.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_same_or_not() {
        assert!(is_same(&[1, 2, 3, 4], &[1, 2, 3, 4]));
        assert!(!is_same(&[1, 2, 3, 4], &[1, 2, 3, 5]));
        assert!(!is_same(&[1, 2, 3, 4], &[1, 2, 3]));
        assert!(!is_same(&[1, 2, 3, 4], &[]));
    }
}
