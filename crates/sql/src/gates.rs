//! Which transactions use which tables: a definition that changes or drops a table closes it, and waits for those that began with the table as it was.
//!
//! A session notes the tables of a statement before it runs, and then looks whether the catalog is still the one that the statement was bound to. A definition
//! replaces the catalog by one that says that the table is closed, and then looks at what the sessions have noted. So either the session sees the new
//! catalog, and binds again, or the definition sees the session, and waits. Each publishes a word and then looks at the other's ([`publish`]).
//!
//! What is noted stays when the transaction ends, and is in use no longer. A statement that runs again then says by one word that it is.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use polychron_base::TableId;
use polychron_base::clock::Duration;
use polychron_engine::limits::{self, Limits};
use polychron_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use polychron_sync::publish;

use crate::error::{SqlError, SqlState};
use crate::resident;
use crate::watch::{Activity, Watch};

/// How long a wait looks away.
const NAP: Duration = Duration::from_millis(2);
/// After how many times a wait looks whether it is one of a cycle.
const LOOKS: u32 = 64;

/// The sessions of a database.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    sessions: Mutex<(u64, Vec<Weak<Slot>>)>,
    pub(crate) watch: Arc<Watch>,
    /// For which tables sessions wait, and whether they wait for those who use them, too.
    waiting: Mutex<HashMap<u64, (Vec<TableId>, bool)>>,
    /// Something was opened, or a transaction has ended.
    changed: (Mutex<()>, Condvar),
}

/// What a session waits for.
pub(crate) struct Wait<'w> {
    pub(crate) session: u64,
    /// Tables that others have closed.
    pub(crate) tables: &'w [TableId],
    /// Transactions of others that use the tables hold the session up, too.
    pub(crate) for_users: bool,
}

/// A session is among those that wait.
struct Noted<'g>(&'g Gates, u64);

impl<'g> Noted<'g> {
    fn new(gates: &'g Gates, wait: &Wait<'_>) -> Self {
        lock(&gates.waiting).insert(wait.session, (wait.tables.to_vec(), wait.for_users));
        Self(gates, wait.session)
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        lock(&self.0.waiting).remove(&self.1);
    }
}

/// What the open transaction of a session uses.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The session's number; no other one has it.
    pub(crate) session: u64,
    /// What it does, for others to see.
    pub(crate) activity: Arc<Activity>,
    watch: Arc<Watch>,
    /// [`IN_USE`] while the noted tables are in use, [`PARKED`] while they are those of a transaction that is parked, or 0.
    in_use: AtomicU64,
    /// The transaction is parked, and a definition has taken one of its tables. Changed under the lock of the tables.
    is_outdated: AtomicBool,
    /// A definition waits for the transaction.
    is_awaited: AtomicBool,
    /// The bound statement whose tables are noted, and no others; or 0. Here and below only the session looks.
    noted: AtomicU64,
    /// How many statements the session has bound.
    bound: AtomicU64,
    /// It has closed tables, too.
    has_closed: AtomicBool,
    tables: Mutex<Vec<TableId>>,
}

const IN_USE: u64 = 1;
const PARKED: u64 = 2;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slot {
    fn new(session: u64, watch: &Arc<Watch>) -> Self {
        let (activity, watch) = (watch.admit(session), watch.clone());
        let (in_use, is_outdated, is_awaited, noted, bound, has_closed, tables) = Default::default();
        Self { session, activity, watch, in_use, is_outdated, is_awaited, noted, bound, has_closed, tables }
    }

    /// The number of a statement that the session binds.
    pub(crate) fn new_statement(&self) -> u64 {
        // Relaxed, as of all that only the session looks at.
        self.bound.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn is_in_use(&self) -> bool {
        // Acquire: pairs with the release by which a transaction ends.
        self.in_use.load(Ordering::Acquire) == IN_USE
    }

    /// Whether a definition waits for the transaction, which may be parked.
    pub(crate) fn is_awaited(&self) -> bool {
        // Relaxed: who may park it looks again and again.
        self.is_awaited.load(Ordering::Relaxed)
    }

    /// The transaction is parked: definitions may take its tables.
    pub(crate) fn park(&self) {
        let _tables = lock(&self.tables);
        self.is_awaited.store(false, Ordering::Relaxed);
        if self.is_in_use() {
            // Release: as where it ends.
            self.in_use.store(PARKED, Ordering::Release);
        }
    }

    /// The transaction goes on that was parked, with its tables in use, unless a definition has taken one of them.
    pub(crate) fn unpark(&self) -> bool {
        let _tables = lock(&self.tables);
        // Relaxed: under the lock, as where it is set.
        if self.is_outdated.swap(false, Ordering::Relaxed) {
            self.end();
            return false;
        }
        if self.in_use.load(Ordering::Relaxed) == PARKED {
            publish(&self.in_use, IN_USE);
        }
        true
    }

    /// A definition takes tables, unless the transaction uses one of them. One that is parked does not go on with them.
    fn give_up(&self, tables: &[TableId]) -> bool {
        let own = lock(&self.tables);
        let is_used = own.iter().any(|table| tables.contains(table));
        match self.in_use.load(Ordering::Acquire) {
            IN_USE => !is_used,
            PARKED => {
                if is_used {
                    self.is_outdated.store(true, Ordering::Relaxed);
                }
                true
            }
            _ => true,
        }
    }

    /// Notes tables, and tells how many there were before.
    pub(crate) fn enter(&self, tables: &[TableId]) -> usize {
        self.noted.store(0, Ordering::Relaxed);
        let mut own = lock(&self.tables);
        if !self.is_in_use() {
            own.clear();
        }
        let before = own.len();
        for table in tables {
            if !own.contains(table) {
                own.push(*table);
            }
        }
        drop(own);
        publish(&self.in_use, IN_USE);
        before
    }

    /// As [`Slot::enter`], of a bound statement by its number: its tables may still be noted.
    pub(crate) fn enter_again(&self, tables: &[TableId], statement: u64) -> usize {
        if self.noted.load(Ordering::Relaxed) != statement {
            let before = self.enter(tables);
            if before == 0 {
                self.noted.store(statement, Ordering::Relaxed);
            }
            return before;
        }
        if self.is_in_use() {
            return usize::MAX;
        }
        publish(&self.in_use, IN_USE);
        0
    }

    /// Forgets the tables that were noted behind the first ones.
    pub(crate) fn leave(&self, first: usize) {
        self.noted.store(0, Ordering::Relaxed);
        lock(&self.tables).truncate(first);
        if first == 0 {
            self.end();
        }
    }

    /// The noted tables are in use no longer.
    fn end(&self) {
        // Release: what the transaction has done comes before it.
        self.in_use.store(0, Ordering::Release);
    }

    pub(crate) fn note_closed(&self) {
        self.has_closed.store(true, Ordering::Relaxed);
    }

    /// The transaction has ended; whether it has closed tables.
    pub(crate) fn clear(&self) -> bool {
        if self.is_awaited() {
            self.is_awaited.store(false, Ordering::Relaxed);
        }
        if self.in_use.load(Ordering::Relaxed) == PARKED {
            let _tables = lock(&self.tables);
            self.is_outdated.store(false, Ordering::Relaxed);
            self.end();
        }
        self.end();
        let has_closed = self.has_closed.load(Ordering::Relaxed);
        if has_closed {
            self.has_closed.store(false, Ordering::Relaxed);
        }
        has_closed
    }

    /// Whether the transaction uses one of these tables, for which a definition waits then.
    fn is_waited_for(&self, tables: &[TableId]) -> bool {
        let is_used = self.is_in_use() && lock(&self.tables).iter().any(|table| tables.contains(table));
        if is_used {
            self.is_awaited.store(true, Ordering::Relaxed);
        }
        is_used
    }

    /// Those of the tables that are not among the first ones noted.
    pub(crate) fn not_among(&self, first: usize, tables: &[TableId]) -> Vec<TableId> {
        let own = lock(&self.tables);
        tables.iter().copied().filter(|table| !own[..first].contains(table)).collect()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.watch.leave(&self.activity);
    }
}

impl Gates {
    /// The tables that are in use, with their sessions.
    pub(crate) fn held(&self) -> Vec<(u64, TableId)> {
        let slots: Vec<_> = lock(&self.sessions).1.iter().filter_map(Weak::upgrade).collect();
        let held = slots.iter().filter(|slot| slot.is_in_use());
        held.flat_map(|slot| lock(&slot.tables).iter().map(|table| (slot.session, *table)).collect::<Vec<_>>())
            .collect()
    }

    /// The place of a new session.
    pub(crate) fn admit(&self) -> Arc<Slot> {
        let mut sessions = lock(&self.sessions);
        sessions.0 += 1;
        let slot = Arc::new(Slot::new(sessions.0, &self.watch));
        sessions.1.retain(|slot| slot.strong_count() > 0);
        sessions.1.push(Arc::downgrade(&slot));
        slot
    }

    /// Whether a transaction of another session uses one of the tables. Those that may be parked are, if one asks again and again.
    pub(crate) fn are_used(&self, tables: &[TableId], session: u64) -> bool {
        let sessions = lock(&self.sessions);
        let others = sessions.1.iter().filter_map(Weak::upgrade).filter(|slot| slot.session != session);
        // All of them are told.
        others.filter(|slot| slot.is_waited_for(tables)).count() > 0
    }

    /// Takes tables from the parked transactions of other sessions, unless one of the tables is in use.
    pub(crate) fn take(&self, tables: &[TableId], session: u64) -> bool {
        let sessions = lock(&self.sessions);
        let mut others = sessions.1.iter().filter_map(Weak::upgrade).filter(|slot| slot.session != session);
        others.all(|slot| slot.give_up(tables))
    }

    /// Waits until this holds, for as long as `time` says. `closers` tells who has closed tables.
    ///
    /// # Errors
    /// The time is over, or the session waits for itself in the end. Of the sessions of a cycle the first one that finds it fails.
    pub(crate) fn wait(
        &self,
        time: Option<Duration>,
        wait: &Wait<'_>,
        closers: &dyn Fn(&[TableId]) -> Vec<u64>,
        mut holds: impl FnMut() -> bool,
    ) -> Result<(), SqlError> {
        if holds() {
            return Ok(());
        }
        let _noted = Noted::new(self, wait);
        let (own, mut looks) = (time.map(Limits::timeout), 0_u32);
        while !holds() {
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS) && self.waits_for_itself(wait.session, closers) {
                let detail = "The session waits for tables of others, and one of these waits for its tables.";
                return Err(SqlError::new(SqlState::DEADLOCK_DETECTED, "deadlock detected").with_detail(detail));
            }
            // Those of the statement come first.
            limits::check().map_err(SqlError::of_engine)?;
            if own.as_ref().is_some_and(|own| own.check().is_err()) {
                let message = "canceling statement due to lock timeout";
                return Err(SqlError::new(SqlState::LOCK_NOT_AVAILABLE, message));
            }
            // One of this thread's own may be waited for.
            resident::park_idle();
            let guard = lock(&self.changed.0);
            drop(self.changed.1.wait_timeout(guard, NAP));
        }
        Ok(())
    }

    /// Whether the session waits for one that waits for it, at once or over others. It waits no longer then.
    fn waits_for_itself(&self, session: u64, closers: &dyn Fn(&[TableId]) -> Vec<u64>) -> bool {
        let mut waiting = lock(&self.waiting);
        // Looked at under the lock: who waits holds what it held when it began to.
        let held = self.held();
        let (mut seen, mut next) = (HashSet::new(), vec![session]);
        while let Some(one) = next.pop() {
            let Some((tables, for_users)) = waiting.get(&one) else { continue };
            let users = held.iter().filter(|(_, table)| *for_users && tables.contains(table)).map(|(user, _)| *user);
            for other in closers(tables).into_iter().chain(users).filter(|other| *other != one) {
                if other == session {
                    waiting.remove(&session);
                    return true;
                }
                if seen.insert(other) {
                    next.push(other);
                }
            }
        }
        false
    }

    /// A table was opened: who waits looks again.
    pub(crate) fn notify(&self) {
        self.changed.1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TableId = TableId::new(1, 1);
    const OTHER: TableId = TableId::new(1, 2);

    #[test]
    fn a_statement_that_runs_again_uses_its_tables_alone() {
        let gates = Gates::default();
        let slot = gates.admit();
        let used = || [ONE, OTHER].map(|table| gates.are_used(&[table], 0));
        assert_eq!((slot.enter_again(&[ONE], 1), used()), (0, [true, false]));
        assert!(!gates.are_used(&[ONE], slot.session), "a session does not wait for itself");
        assert_eq!((slot.clear(), used()), (false, [false, false]));
        assert_eq!((slot.enter_again(&[ONE], 1), used()), (0, [true, false]));
        // In a transaction the tables of all statements are in use.
        assert_eq!((slot.enter_again(&[OTHER], 2), used()), (1, [true, true]));
        slot.leave(1);
        assert_eq!(used(), [true, false]);
        let before = slot.enter_again(&[ONE], 1);
        slot.leave(before);
        assert_eq!(used(), [true, false], "it was in use before");
        slot.enter_again(&[OTHER], 2);
        slot.clear();
        assert_eq!((slot.enter_again(&[OTHER], 2), used()), (0, [false, true]));
        let before = slot.enter_again(&[OTHER], 2);
        slot.leave(before);
        assert_eq!(used(), [false, true]);
        slot.leave(0);
        assert_eq!(used(), [false, false]);
        assert_eq!((slot.enter_again(&[ONE], 1), used()), (0, [true, false]));
    }

    #[test]
    fn a_parked_transaction_gives_its_tables_up() {
        let gates = Gates::default();
        let slot = gates.admit();
        slot.enter(&[ONE]);
        assert!(!gates.take(&[ONE], 0), "it is in use");
        slot.park();
        assert!(!gates.are_used(&[ONE], 0) && gates.take(&[OTHER], 0) && slot.unpark());
        assert!(gates.are_used(&[ONE], 0), "it goes on with its table");
        slot.park();
        assert!(gates.take(&[ONE], slot.session) && slot.unpark(), "nobody takes tables from itself");
        slot.park();
        assert!(gates.take(&[ONE], 0) && !slot.unpark());
        assert!(!gates.are_used(&[ONE], 0));
        // The next transaction begins as any other.
        slot.enter(&[ONE]);
        slot.park();
        assert!(gates.take(&[ONE], 0) && !slot.clear());
        slot.enter(&[ONE]);
        slot.park();
        assert!(slot.unpark());
    }

    #[test]
    fn what_was_closed_is_told_once() {
        let slot = Gates::default().admit();
        slot.note_closed();
        assert_eq!([slot.clear(), slot.clear()], [true, false]);
    }
}
