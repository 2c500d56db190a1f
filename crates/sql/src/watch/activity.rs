//! What one session does.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use hashbrown::HashMap;
use polychron_base::clock::Duration;
use polychron_base::{Abort, TableId};
use polychron_sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::numbers::{Numbers, StatementCounts, StatementSums, TableCounts, TableSums, Use, add};
use super::slow::Slow;
use super::{Client, lock, shape, shown};
use crate::context::now;
use crate::error::{SqlError, SqlState};
use crate::interrupts::CancelHandle;
use crate::resident::now_ns;
use crate::roles::{RoleId, User};
use crate::settings::Settings;

/// The latest conflicts that a session keeps.
const CONFLICTS: usize = 32;
/// The most shapes of statements, and of places of conflicts, that a session counts.
const SHAPES: usize = 512;
/// What statements are counted as whose shapes are too many.
const OTHERS: &str = "(others)";

/// The session reads the clock.
const TIMED: u32 = 1;
/// Its statements are refused.
const ENDED: u32 = 2;

/// What a session does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SessionState {
    /// It waits for its client, outside of transactions.
    Idle = 0,
    /// It runs a statement.
    Active = 1,
    /// It waits for its client, in a transaction.
    InTransaction = 2,
    /// The same, of a transaction that has failed.
    InFailedTransaction = 3,
}

impl SessionState {
    /// As PostgreSQL calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Active => "active",
            Self::InTransaction => "idle in transaction",
            Self::InFailedTransaction => "idle in transaction (aborted)",
        }
    }

    fn of(number: u32) -> Self {
        [Self::Idle, Self::Active, Self::InTransaction, Self::InFailedTransaction][number as usize % 4]
    }
}

/// What is done to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Cancel,
    Terminate,
}

/// A session. It alone writes what is not behind a lock, in one thread at a time; others read.
pub(crate) struct Activity {
    pub(crate) session: u64,
    number: AtomicU32,
    flags: AtomicU32,
    state: AtomicU32,
    /// When its latest statement and transaction began and its state changed, in nanoseconds of the process; 0: unknown, or there is none.
    statement_since: AtomicU64,
    transaction_since: AtomicU64,
    state_since: AtomicU64,
    /// The bound statement whose text is noted, or 0.
    noted: AtomicU64,
    pub(super) numbers: Numbers,
    about: Mutex<About>,
    conflicts: Mutex<VecDeque<Conflict>>,
    statements: Mutex<HashMap<Arc<str>, Arc<StatementCounts>>>,
    tables: Mutex<HashMap<TableId, Arc<TableCounts>>>,
    slow: Mutex<Slow>,
    /// From how long on transactions are told, in nanoseconds; 0: none are.
    log_after_ns: AtomicU64,
}

impl std::fmt::Debug for Activity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Activity").field("session", &self.session).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct About {
    text: Arc<str>,
    /// Of the statement whose text this is.
    counts: Option<Arc<StatementCounts>>,
    settings: Option<Settings>,
    client: Option<Client>,
    cancel: Option<CancelHandle>,
    began_us: i64,
}

impl About {
    fn application(&self) -> &str {
        self.settings.as_ref().map_or("", |settings| settings.client.application())
    }
}

/// A conflict of a session.
#[derive(Clone, Debug)]
pub(crate) struct Conflict {
    at_us: i64,
    abort: Abort,
    attempt: u64,
    was_told: bool,
    text: Arc<str>,
}

/// A session, as others see it.
#[derive(Clone, Debug)]
pub struct SessionSeen {
    /// Its number, that of a process in PostgreSQL.
    pub number: u32,
    /// What it does.
    pub state: SessionState,
    /// Its role.
    pub role: String,
    /// What its client calls itself.
    pub application: String,
    /// Whether it serves a client, and not the program that has the database.
    pub is_of_client: bool,
    /// Where the client is; nothing on a unix socket.
    pub address: Option<String>,
    /// When it began, in microseconds since 1970.
    pub began_us: i64,
    /// For how long it has run its latest statement, or had.
    pub statement_for: Option<Duration>,
    /// How long its transaction is open.
    pub transaction_for: Option<Duration>,
    /// For how long it has been in this state.
    pub state_for: Option<Duration>,
    /// Its latest statement.
    pub text: String,
}

/// A conflict, as others see it.
#[derive(Clone, Debug)]
pub struct ConflictSeen {
    /// When, in microseconds since 1970.
    pub at_us: i64,
    /// The session's number.
    pub number: u32,
    /// Why, where, and with whom.
    pub abort: Abort,
    /// The transaction's conflicts so far.
    pub attempt: u64,
    /// The client was told. Otherwise the transaction was run again without its notice.
    pub was_told: bool,
    /// The statement.
    pub text: String,
}

/// A statement that runs: what it has to say at its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    /// 0: it is not timed.
    since: u64,
    ended: u64,
}

impl Activity {
    pub(super) fn new(session: u64, number: u32, log_after: Option<Duration>) -> Self {
        let about = About { began_us: now(), ..About::default() };
        let activity = Self {
            session,
            number: AtomicU32::new(number),
            flags: AtomicU32::new(0),
            state: AtomicU32::new(0),
            statement_since: AtomicU64::new(0),
            transaction_since: AtomicU64::new(0),
            state_since: AtomicU64::new(0),
            noted: AtomicU64::new(0),
            numbers: Numbers::default(),
            about: Mutex::new(about),
            conflicts: Mutex::default(),
            statements: Mutex::default(),
            tables: Mutex::default(),
            slow: Mutex::default(),
            log_after_ns: AtomicU64::new(0),
        };
        activity.set_log_after(log_after);
        activity
    }

    pub(crate) fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    fn set_flag(&self, flag: u32) {
        self.flags.fetch_or(flag, Ordering::Relaxed);
    }

    pub(crate) fn introduce(&self, client: Client, cancel: CancelHandle) {
        self.number.store(client.number, Ordering::Relaxed);
        let mut about = lock(&self.about);
        (about.client, about.cancel) = (Some(client), Some(cancel));
        drop(about);
        self.state_since.store(now_ns(), Ordering::Relaxed);
        self.set_flag(TIMED);
    }

    /// There is a handle that ends its statements.
    pub(crate) fn set_cancel(&self, handle: &CancelHandle) {
        lock(&self.about).cancel = Some(handle.clone());
    }

    pub(crate) fn set_settings(&self, settings: &Settings) {
        lock(&self.about).settings = Some(settings.clone());
        if settings.log_after != self.log_after() {
            self.set_log_after(settings.log_after);
        }
    }

    /// The role that the session is.
    pub(crate) fn role(&self) -> (RoleId, String) {
        let about = lock(&self.about);
        let of = |settings: &Settings| settings.path.user.session.clone();
        about.settings.as_ref().map_or_else(|| User::default().session, of)
    }

    /// The settings that hold for it.
    pub(crate) fn settings(&self) -> Option<Settings> {
        lock(&self.about).settings.clone()
    }

    pub(crate) fn log_after(&self) -> Option<Duration> {
        let ns = self.log_after_ns.load(Ordering::Relaxed);
        (ns > 0).then(|| Duration::from_nanos(ns))
    }

    pub(crate) fn set_log_after(&self, time: Option<Duration>) {
        let ns = time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1));
        self.log_after_ns.store(ns, Ordering::Relaxed);
        if ns > 0 {
            self.set_flag(TIMED);
        }
    }

    /// Cancels its statement, or ends the session at its next one and has its server do so at once; whether that could be.
    pub(crate) fn act(&self, deed: Deed) -> bool {
        let about = lock(&self.about);
        let cancelled = about.cancel.as_ref().map(CancelHandle::cancel);
        if deed == Deed::Cancel {
            // In PostgreSQL, too, one that runs nothing was told.
            return cancelled.is_some();
        }
        self.set_flag(ENDED);
        about.client.iter().for_each(|client| (client.end)());
        true
    }

    /// A statement begins.
    ///
    /// # Errors
    /// Others have ended the session.
    #[inline]
    pub(crate) fn begin(&self) -> Result<Begun, SqlError> {
        let flags = self.flags.load(Ordering::Relaxed);
        let since = if flags == 0 { 0 } else { self.begin_timed(flags)? };
        self.state.store(SessionState::Active as u32, Ordering::Relaxed);
        Ok(Begun { since, ended: self.numbers.ended() })
    }

    fn begin_timed(&self, flags: u32) -> Result<u64, SqlError> {
        if flags & ENDED != 0 {
            let message = "terminating connection due to administrator command";
            return Err(SqlError::new(SqlState::ADMIN_SHUTDOWN, message));
        }
        let since = now_ns().max(1);
        self.statement_since.store(since, Ordering::Relaxed);
        self.state_since.store(since, Ordering::Relaxed);
        if self.transaction_since.load(Ordering::Relaxed) == 0 {
            self.transaction_since.store(since, Ordering::Relaxed);
        }
        Ok(since)
    }

    /// The text that runs.
    pub(crate) fn text(&self) -> Arc<str> {
        lock(&self.about).text.clone()
    }

    /// The text of the statement that begins, which is not bound yet or not kept.
    pub(crate) fn note_text(&self, text: &str) {
        self.noted.store(0, Ordering::Relaxed);
        let counts = self.counts_of(text);
        let mut about = lock(&self.about);
        about.text = shown(text).into();
        about.counts = Some(counts);
    }

    /// The bound statement that runs now, by its number.
    #[inline]
    pub(crate) fn note_bound(&self, number: u64, text: &Arc<str>, counts: &Arc<StatementCounts>) {
        if self.noted.load(Ordering::Relaxed) != number {
            self.noted.store(number, Ordering::Relaxed);
            let mut about = lock(&self.about);
            about.text = text.clone();
            about.counts = Some(counts.clone());
        }
    }

    /// The noted statement, which is not bound, has ended.
    pub(crate) fn count_noted(&self, rows: Option<u64>) {
        if let Some(counts) = &lock(&self.about).counts {
            rows.map_or_else(|| counts.failed(), |rows| counts.ran(rows));
        }
    }

    /// What statements of this text are counted in.
    pub(crate) fn counts_of(&self, text: &str) -> Arc<StatementCounts> {
        let shape = shape(text);
        let mut statements = lock(&self.statements);
        let is_full = statements.len() >= SHAPES;
        match statements.get(&*shape) {
            Some(counts) => counts.clone(),
            None => statements.entry(if is_full { OTHERS.into() } else { shape.into() }).or_default().clone(),
        }
    }

    /// What is counted of a table.
    pub(crate) fn counts_of_table(&self, table: TableId) -> Arc<TableCounts> {
        lock(&self.tables).entry(table).or_default().clone()
    }

    pub(crate) fn count_uses(&self, uses: impl IntoIterator<Item = (TableId, Use)>, rows: u64) {
        for (table, what) in uses {
            self.counts_of_table(table).count(what, rows);
        }
    }

    /// A transaction has conflicted, so often so far.
    #[cold]
    pub(crate) fn note_conflict(&self, abort: &Abort, attempt: u64) {
        let text = lock(&self.about).text.clone();
        let mut conflicts = lock(&self.conflicts);
        if conflicts.len() == CONFLICTS {
            conflicts.pop_front();
        }
        conflicts.push_back(Conflict { at_us: now(), abort: *abort, attempt, was_told: false, text });
        drop(conflicts);
        let mut places = lock(&self.numbers.conflicts);
        if places.len() < SHAPES || places.contains_key(&(abort.table, abort.reason)) {
            *places.entry((abort.table, abort.reason)).or_default() += 1;
        }
        drop(places);
        if self.log_after_ns.load(Ordering::Relaxed) > 0 {
            lock(&self.slow).conflicted(abort.reason);
        }
    }

    /// The open transaction was run again, or could not be.
    #[cold]
    pub(crate) fn note_replay(&self, has_helped: bool) {
        add(&self.numbers.replays[usize::from(!has_helped)], 1);
    }

    /// A transaction that spans statements has ended.
    pub(crate) fn end_transaction(&self, has_committed: bool) {
        add(&self.numbers.transactions[usize::from(!has_committed)], 1);
        let since = self.transaction_since.load(Ordering::Relaxed);
        if since == 0 {
            return;
        }
        self.transaction_since.store(0, Ordering::Relaxed);
        let time_ns = now_ns().saturating_sub(since);
        self.numbers.transaction_times.count(time_ns / 1000);
        let after = self.log_after_ns.load(Ordering::Relaxed);
        if after > 0 {
            self.end_logged(time_ns, has_committed, time_ns >= after);
        }
    }

    #[cold]
    fn end_logged(&self, time_ns: u64, has_committed: bool, is_slow: bool) {
        let about = lock(&self.about);
        // The statement that ends it runs still.
        let runs = if self.state.load(Ordering::Relaxed) == SessionState::Active as u32 {
            let since = self.statement_since.load(Ordering::Relaxed);
            Some((about.text.clone(), now_ns().saturating_sub(since)))
        } else {
            None
        };
        let application = about.application().to_owned();
        drop(about);
        let mut slow = std::mem::take(&mut *lock(&self.slow));
        if let Some((text, ns)) = runs {
            slow.ran(text, ns);
        }
        if is_slow {
            slow.tell((self.number(), &application), time_ns, has_committed);
        }
        // Where it is told stays.
        lock(&self.slow).log = slow.log;
    }

    /// Where slow transactions are told.
    pub(crate) fn set_log(&self, log: super::SlowLog) {
        lock(&self.slow).log = Some(log);
    }

    fn end_timed(&self, since: u64, state: SessionState) {
        let now = now_ns();
        let time_ns = now.saturating_sub(since);
        self.numbers.statement_times.count(time_ns / 1000);
        self.state_since.store(now, Ordering::Relaxed);
        let about = lock(&self.about);
        if let Some(counts) = &about.counts {
            counts.took(time_ns / 1000);
        }
        if state != SessionState::Idle && self.log_after_ns.load(Ordering::Relaxed) > 0 {
            lock(&self.slow).ran(about.text.clone(), time_ns);
        }
    }

    #[cold]
    fn note_told(&self) {
        add(&self.numbers.told, 1);
        if let Some(latest) = lock(&self.conflicts).back_mut() {
            latest.was_told = true;
        }
    }

    pub(super) fn add_statements_to(&self, sums: &mut HashMap<Arc<str>, StatementSums>, most: usize) {
        for (shape, counts) in &*lock(&self.statements) {
            let is_full = sums.len() >= most && !sums.contains_key(shape);
            counts.add_to(sums.entry(if is_full { OTHERS.into() } else { shape.clone() }).or_default());
        }
    }

    pub(super) fn add_tables_to(&self, sums: &mut HashMap<TableId, TableSums>) {
        lock(&self.tables).iter().for_each(|(table, counts)| counts.add_to(sums.entry(*table).or_default()));
    }

    pub(super) fn add_conflicts_to(&self, all: &mut Vec<ConflictSeen>) {
        let seen = |conflict: &Conflict| ConflictSeen {
            at_us: conflict.at_us,
            number: self.number(),
            abort: conflict.abort,
            attempt: conflict.attempt,
            was_told: conflict.was_told,
            text: shown(&conflict.text).into_owned(),
        };
        all.extend(lock(&self.conflicts).iter().map(seen));
    }

    pub(crate) fn seen(&self) -> SessionSeen {
        let role = self.role().1;
        let about = lock(&self.about);
        let now = now_ns();
        let time = |since: &AtomicU64| {
            let since = since.load(Ordering::Relaxed);
            (since > 0).then(|| Duration::from_nanos(now.saturating_sub(since)))
        };
        SessionSeen {
            number: self.number(),
            role,
            state: SessionState::of(self.state.load(Ordering::Relaxed)),
            application: about.application().to_owned(),
            is_of_client: about.client.is_some(),
            address: about.client.as_ref().and_then(|client| client.address.clone()),
            began_us: about.began_us,
            statement_for: time(&self.statement_since),
            transaction_for: time(&self.transaction_since),
            state_for: time(&self.state_since),
            text: shown(&about.text).into_owned(),
        }
    }

    /// A statement has ended so, and left the session in this state. `has_block`: a transaction that spans statements has ended with it, and is counted by itself.
    #[inline]
    pub(crate) fn end(&self, begun: Begun, ended: Option<&SqlError>, state: SessionState, has_block: bool) {
        add(&self.numbers.statements[usize::from(ended.is_some())], 1);
        let is_over = state == SessionState::Idle && !has_block && self.numbers.ended() == begun.ended;
        if let Some(error) = ended
            && error.state() == SqlState::SERIALIZATION_FAILURE
        {
            self.note_told();
        }
        if begun.since > 0 {
            self.end_timed(begun.since, state);
        }
        if is_over {
            self.end_transaction(ended.is_none());
        }
        self.state.store(state as u32, Ordering::Relaxed);
    }
}
