//! Versions of the catalog, and since which of them a table is there.
//!
//! A definition fills a new table in its own transaction, and shows it when that has committed. An open transaction of the engine that began before may find
//! the table, but not its rows, so it must not use it (`Session::renew`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use polychron_base::TableId;
use polychron_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use polychron_sync::publish;

/// What the sessions of a database share of its catalog's versions.
#[derive(Debug)]
pub(crate) struct Versions {
    /// That of the catalog. No other database has had it.
    catalog: AtomicU64,
    /// The versions that have shown tables which transactions have defined.
    shown: Mutex<HashMap<TableId, u64>>,
    /// A table has taken the place of another one.
    has_replaced: AtomicBool,
}

impl Versions {
    pub(crate) fn new(first: u64) -> Self {
        Self { catalog: AtomicU64::new(first), shown: Mutex::default(), has_replaced: AtomicBool::new(false) }
    }

    fn shown(&self) -> MutexGuard<'_, HashMap<TableId, u64>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The version of the catalog.
    pub(crate) fn get(&self) -> u64 {
        // Acquire: pairs with `set`. What that version shows was committed.
        self.catalog.load(Ordering::Acquire)
    }

    /// The catalog has this version now.
    pub(crate) fn set(&self, version: u64) {
        publish(&self.catalog, version);
    }

    /// A version that is about to be set shows these tables; `replaces`: one of them in the place of another one.
    pub(crate) fn show(&self, tables: impl Iterator<Item = TableId>, version: u64, replaces: bool) {
        self.shown().extend(tables.map(|table| (table, version)));
        // Relaxed: `set` follows.
        self.has_replaced.fetch_or(replaces, Ordering::Relaxed);
    }

    /// A table is gone.
    pub(crate) fn forget(&self, table: TableId) {
        self.shown().remove(&table);
    }

    /// Whether one of these tables was shown behind this version.
    pub(crate) fn are_newer(&self, tables: &[TableId], version: u64) -> bool {
        let shown = self.shown();
        tables.iter().any(|table| shown.get(table).is_some_and(|since| *since > version))
    }

    /// Whether a table has taken the place of another one since the database was opened. A snapshot may be older than its rows.
    pub(crate) fn has_replaced(&self) -> bool {
        self.has_replaced.load(Ordering::Relaxed)
    }
}
