//! The log of a database that is only read: it refuses changes.

use std::cell::Cell;
use std::sync::{Mutex, OnceLock, PoisonError};

use polychron_base::error::table_name;
use polychron_engine::definitions::StoredCatalog;
use polychron_engine::redo::{Change, Durability, Log, Order, Ticket};
use polychron_engine::{Error, TableId};

thread_local! {
    /// The database that this thread may change.
    static ADMITTED: Cell<usize> = const { Cell::new(0) };
}

/// Refuses changes, once all is loaded, but for those that are admitted: a standby's, which come from its primary.
pub(crate) struct Refusing {
    path: String,
    /// The tables, once all is loaded.
    tables: OnceLock<Mutex<StoredCatalog>>,
}

impl Refusing {
    /// Refuses nothing yet.
    pub(crate) fn new(path: &str) -> Self {
        Self { path: path.to_owned(), tables: OnceLock::new() }
    }

    /// Refuses from now on; these are the tables.
    pub(crate) fn begin(&self, tables: &StoredCatalog) {
        self.tables.get_or_init(|| Mutex::new(tables.clone()));
    }

    /// Does something that may change the database.
    pub(crate) fn admit<O>(&self, act: impl FnOnce() -> O) -> O {
        struct Restore(usize);
        impl Drop for Restore {
            fn drop(&mut self) {
                ADMITTED.set(self.0);
            }
        }
        let _restore = Restore(ADMITTED.replace(self.number()));
        act()
    }

    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn is_admitted(&self) -> bool {
        self.tables.get().is_none() || ADMITTED.get() == self.number()
    }

    fn refuse(&self, table: String) -> Error {
        Error::opened_read_only(table, self.path.clone())
    }
}

/// The name of the first table that is not the same in both.
fn first_changed(old: &StoredCatalog, new: &StoredCatalog) -> String {
    let (old, new) = (old.tables(), new.tables());
    let changed = old.keys().chain(new.keys()).find(|position| old.get(*position) != new.get(*position));
    let named = changed.and_then(|position| new.get(position).or_else(|| old.get(position)));
    named.map_or_else(String::new, |table| table.definition.name.clone())
}

impl Log for Refusing {
    fn admit(&self, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn stage(&self, _: usize, table: TableId, _: &[u8], _: Change<'_>) -> Result<(), Error> {
        if self.is_admitted() { Ok(()) } else { Err(self.refuse(table_name(table))) }
    }

    fn discard(&self, _: usize) {}

    fn seal(&self, _: usize, _: Order) -> Ticket {
        Ticket::DONE
    }

    fn ticket(&self, _: Order) -> Ticket {
        Ticket::DONE
    }

    fn sealed(&self) -> Ticket {
        Ticket::DONE
    }

    fn wait(&self, _: Ticket) -> Result<(), Error> {
        Ok(())
    }

    fn durability(&self) -> Durability {
        Durability::OnCheckpoint
    }

    fn define(&self, tables: &StoredCatalog) -> Result<(), Error> {
        let Some(present) = self.tables.get() else { return Ok(()) };
        let mut present = present.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_admitted() {
            return Err(self.refuse(first_changed(&present, tables)));
        }
        present.clone_from(tables);
        Ok(())
    }
}
