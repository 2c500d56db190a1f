//! The tables that are closed, each by a session that changes or drops it.

use polychron_base::TableId;

use super::Catalog;

impl Catalog {
    /// The tables that the session has closed.
    pub(crate) fn closed_by(&self, session: u64) -> Vec<TableId> {
        self.closed.iter().filter(|(_, by)| **by == session).map(|(table, _)| *table).collect()
    }

    /// The same with these tables closed to all sessions but one.
    #[must_use]
    pub(crate) fn closing(&self, tables: &[TableId], session: u64) -> Self {
        let mut next = self.next();
        next.closed.extend(tables.iter().map(|table| (*table, session)));
        next
    }

    /// The same with those open that the session has closed, but for these.
    #[must_use]
    pub(crate) fn opening(&self, kept: &[TableId], session: u64) -> Self {
        let mut next = self.next();
        next.closed.retain(|table, by| *by != session || kept.contains(table));
        next
    }

    /// The sessions that have closed one of the tables.
    pub(crate) fn closers(&self, tables: &[TableId]) -> Vec<u64> {
        tables.iter().filter_map(|table| self.closed.get(table).copied()).collect()
    }

    /// Whether one of the tables is closed to a session.
    pub(crate) fn is_closed(&self, tables: &[TableId], session: u64) -> bool {
        tables.iter().any(|table| self.closed.get(table).is_some_and(|by| *by != session))
    }
}
