//! What goes on in a database: which sessions there are, what they run, what they have counted, and which conflicts they have met.
//!
//! Each session writes its own counters with plain loads and stores, and whoever asks gathers them. What a session has counted stays in the sums when it ends.
//! Clocks are read only by sessions that are timed: those of a server.

mod activity;
mod numbers;
mod shapes;
mod slow;
mod uses;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hashbrown::HashMap;
use polychron_base::TableId;
use polychron_engine::{Protocol, Statistics};

use crate::connection::Connection;
use crate::database::SqlDatabase;
use crate::error::{SqlError, SqlState};
use crate::roles::RoleId;

pub(crate) use activity::{Activity, Begun, Deed};
pub use activity::{ConflictSeen, SessionSeen, SessionState};
pub use numbers::{ConflictCount, StatementSums, Sums, TableSums};
pub(crate) use numbers::{StatementCounts, TableCounts, Use};

pub(crate) use shapes::{shape, shown};
pub use slow::SlowLog;

/// The most shapes of statements that are kept of sessions that have ended.
const MOST_SHAPES: usize = 2_000;
/// The conflicts that are kept of sessions that have ended.
const MOST_CONFLICTS: usize = 256;
/// Numbers of sessions without a server begin here: those of servers are smaller.
const FIRST_OWN: u64 = 1 << 30;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All sessions of a database.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    state: Mutex<State>,
    /// Where slow transactions are told.
    pub(crate) log: OnceLock<SlowLog>,
}

/// What goes on in a database, for the relations that show it.
pub(crate) struct Present {
    pub(crate) watch: Arc<Watch>,
    /// Tables in use, and closed ones, with their sessions.
    pub(crate) held: Vec<(u64, TableId)>,
    pub(crate) closed: Vec<(u64, TableId)>,
    /// Advisory locks.
    pub(crate) locks: Vec<crate::advisory::Seen>,
    pub(crate) statistics: Statistics,
}

/// A database that tells what goes on.
pub(crate) trait Live {
    fn present(&self) -> Present;
}

#[derive(Debug, Default)]
struct State {
    sessions: Vec<Arc<Activity>>,
    /// What sessions have counted that have ended.
    gone: Sums,
    statements: HashMap<Arc<str>, StatementSums>,
    tables: HashMap<TableId, TableSums>,
    conflicts: Vec<ConflictSeen>,
    opened: u64,
}

impl Watch {
    /// A session comes.
    pub(crate) fn admit(&self, session: u64) -> Arc<Activity> {
        let log_after = self.log.get().and_then(|log| log.after);
        let number = FIRST_OWN + session % FIRST_OWN;
        let activity = Arc::new(Activity::new(session, number as u32, log_after));
        self.log.get().into_iter().for_each(|log| activity.set_log(log.clone()));
        let mut state = lock(&self.state);
        state.sessions.push(activity.clone());
        state.opened += 1;
        activity
    }

    /// A session has ended: what it has counted stays.
    pub(crate) fn leave(&self, activity: &Arc<Activity>) {
        let mut state = lock(&self.state);
        let Some(at) = state.sessions.iter().position(|own| Arc::ptr_eq(own, activity)) else { return };
        state.sessions.swap_remove(at);
        let State { gone, statements, tables, conflicts, .. } = &mut *state;
        activity.numbers.add_to(gone);
        activity.add_statements_to(statements, MOST_SHAPES);
        activity.add_tables_to(tables);
        activity.add_conflicts_to(conflicts);
        conflicts.sort_by_key(|conflict| conflict.at_us);
        let surplus = conflicts.len().saturating_sub(MOST_CONFLICTS);
        conflicts.drain(..surplus);
    }

    /// The sessions that there are, in the order in which they came.
    pub(crate) fn sessions(&self) -> Vec<Arc<Activity>> {
        let mut sessions = lock(&self.state).sessions.clone();
        sessions.sort_by_key(|activity| activity.session);
        sessions
    }

    pub(crate) fn sums(&self) -> Sums {
        let state = lock(&self.state);
        let mut sums = state.gone.clone();
        state.sessions.iter().for_each(|activity| activity.numbers.add_to(&mut sums));
        sums.sessions = state.opened;
        sums
    }

    pub(crate) fn statements(&self) -> Vec<(Arc<str>, StatementSums)> {
        let state = lock(&self.state);
        let mut all = state.statements.clone();
        state.sessions.iter().for_each(|activity| activity.add_statements_to(&mut all, usize::MAX));
        drop(state);
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by(|(left, _), (right, _)| left.cmp(right));
        all
    }

    pub(crate) fn tables(&self) -> HashMap<TableId, TableSums> {
        let state = lock(&self.state);
        let mut all = state.tables.clone();
        state.sessions.iter().for_each(|activity| activity.add_tables_to(&mut all));
        all
    }

    /// The latest conflicts, the oldest first.
    pub(crate) fn conflicts(&self) -> Vec<ConflictSeen> {
        let state = lock(&self.state);
        let mut all = state.conflicts.clone();
        state.sessions.iter().for_each(|activity| activity.add_conflicts_to(&mut all));
        drop(state);
        all.sort_by_key(|conflict| conflict.at_us);
        all
    }

    fn find(&self, number: i64) -> Option<Arc<Activity>> {
        lock(&self.state).sessions.iter().find(|activity| i64::from(activity.number()) == number).cloned()
    }

    /// Does this to the session of this number; whether it could be. `of` are the roles whose sessions may be acted on, if not all.
    ///
    /// # Errors
    /// The session is another role's.
    pub(crate) fn act(&self, deed: Deed, number: i64, of: Option<&BTreeSet<RoleId>>) -> Result<bool, SqlError> {
        let Some(activity) = self.find(number) else { return Ok(false) };
        if of.is_some_and(|roles| !roles.contains(&activity.role().0)) {
            let what = if deed == Deed::Cancel { "query is being canceled" } else { "process is being terminated" };
            let message = format!("must be a member of the role whose {what}, which is no superuser");
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        Ok(activity.act(deed))
    }
}

impl<P: Protocol> Live for SqlDatabase<P> {
    fn present(&self) -> Present {
        Present {
            watch: self.gates.watch.clone(),
            held: self.gates.held(),
            closed: self.catalog().closed.iter().map(|(table, session)| (*session, *table)).collect(),
            locks: self.locks.seen(),
            statistics: self.protocol.statistics(),
        }
    }
}

impl<P: Protocol> SqlDatabase<P> {
    fn watch(&self) -> &Watch {
        &self.gates.watch
    }

    /// The sessions that there are, and what they do.
    pub fn sessions(&self) -> Vec<SessionSeen> {
        self.watch().sessions().iter().map(|activity| activity.seen()).collect()
    }

    /// What all sessions have counted, those that have ended among them.
    pub fn sums(&self) -> Sums {
        self.watch().sums()
    }

    /// What has been counted of statements, by their texts without constants.
    pub fn statements(&self) -> Vec<(Arc<str>, StatementSums)> {
        self.watch().statements()
    }

    /// The latest conflicts, the oldest first: of each session a few.
    pub fn conflicts(&self) -> Vec<ConflictSeen> {
        self.watch().conflicts()
    }

    /// Ends the statement that the session of this number runs; whether it could be.
    pub fn cancel(&self, number: i64) -> bool {
        self.watch().act(Deed::Cancel, number, None).is_ok_and(|done| done)
    }

    /// Ends the session of this number; whether there is one.
    pub fn terminate(&self, number: i64) -> bool {
        self.watch().act(Deed::Terminate, number, None).is_ok_and(|done| done)
    }

    /// Tells transactions that take long to `log`: those of sessions that come from now on. The first log stays.
    pub fn log_slow(&self, log: SlowLog) {
        let _ = self.watch().log.set(log);
    }
}

/// Who is at the other end of a connection, as a server knows it.
pub struct Client {
    /// Its number, which no other session has; below 2³⁰.
    pub number: u32,
    /// Its address; nothing on a unix socket.
    pub address: Option<String>,
    /// What ends its session.
    pub end: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Client").field("number", &self.number).field("address", &self.address).finish_non_exhaustive()
    }
}

impl<P: Protocol> Connection<P> {
    /// The connection serves this client: it is timed from now on, and can be cancelled.
    pub fn introduce(&mut self, client: Client) {
        let handle = self.cancel_handle();
        self.slot.activity.introduce(client, handle);
    }
}
