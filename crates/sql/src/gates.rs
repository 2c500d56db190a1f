//! Which transactions use which tables: a definition that changes or drops a table closes it, and waits for those that began with the table as it was.
//!
//! A session notes the tables of a statement before it runs, and then looks whether the catalog is still the one that the statement was bound to. A definition
//! replaces the catalog by one that says that the table is closed, and then looks at what the sessions have noted. So either the session sees the new
//! catalog, and binds again, or the definition sees the session, and waits.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use polychron_base::TableId;
use polychron_base::clock::Duration;
use polychron_engine::limits;

use crate::error::{SqlError, SqlState};

/// How long a wait looks away.
const NAP: Duration = Duration::from_millis(2);

/// The sessions of a database.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    sessions: Mutex<(u64, Vec<Weak<Slot>>)>,
    /// Something was opened, or a transaction has ended.
    changed: (Mutex<()>, Condvar),
}

/// What the open transaction of a session uses.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The session's number; no other one has it.
    pub(crate) session: u64,
    tables: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    tables: Vec<TableId>,
    /// It has closed tables, too.
    has_closed: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slot {
    /// Notes tables, and tells how many there were before.
    pub(crate) fn enter(&self, tables: &[TableId]) -> usize {
        let own = &mut lock(&self.tables).tables;
        let before = own.len();
        for table in tables {
            if !own.contains(table) {
                own.push(*table);
            }
        }
        before
    }

    /// Forgets the tables that were noted behind the first ones.
    pub(crate) fn leave(&self, first: usize) {
        lock(&self.tables).tables.truncate(first);
    }

    pub(crate) fn note_closed(&self) {
        lock(&self.tables).has_closed = true;
    }

    /// The transaction has ended; whether it has closed tables.
    pub(crate) fn clear(&self) -> bool {
        let mut own = lock(&self.tables);
        own.tables.clear();
        std::mem::take(&mut own.has_closed)
    }

    fn uses(&self, tables: &[TableId]) -> bool {
        lock(&self.tables).tables.iter().any(|table| tables.contains(table))
    }

    /// Those of the tables that are not among the first ones noted.
    pub(crate) fn not_among(&self, first: usize, tables: &[TableId]) -> Vec<TableId> {
        let own = lock(&self.tables);
        tables.iter().copied().filter(|table| !own.tables[..first].contains(table)).collect()
    }
}

impl Gates {
    /// The place of a new session.
    pub(crate) fn admit(&self) -> Arc<Slot> {
        let mut sessions = lock(&self.sessions);
        sessions.0 += 1;
        let slot = Arc::new(Slot { session: sessions.0, tables: Mutex::default() });
        sessions.1.retain(|slot| slot.strong_count() > 0);
        sessions.1.push(Arc::downgrade(&slot));
        slot
    }

    /// Whether a transaction of another session uses one of the tables.
    pub(crate) fn are_used(&self, tables: &[TableId], session: u64) -> bool {
        let sessions = lock(&self.sessions);
        let mut others = sessions.1.iter().filter_map(Weak::upgrade).filter(|slot| slot.session != session);
        others.any(|slot| slot.uses(tables))
    }

    /// Waits until this holds, for as long as `time` says.
    pub(crate) fn wait(&self, time: Option<Duration>, mut holds: impl FnMut() -> bool) -> Result<(), SqlError> {
        limits::patiently(time, || {
            while !holds() {
                if limits::check().is_err() {
                    let message = "canceling statement due to lock timeout";
                    return Err(SqlError::new(SqlState::LOCK_NOT_AVAILABLE, message));
                }
                let guard = lock(&self.changed.0);
                drop(self.changed.1.wait_timeout(guard, NAP));
            }
            Ok(())
        })
    }

    /// A table was opened: who waits looks again.
    pub(crate) fn notify(&self) {
        self.changed.1.notify_all();
    }
}
