//! What stands in the place of a standby's log: it refuses changes that do not come from the primary.

use std::cell::Cell;
use std::sync::OnceLock;

use polychron_base::error::table_name;
use polychron_engine::definitions::StoredCatalog;
use polychron_engine::redo::{Change, Durability, Log, Order, Ticket};
use polychron_engine::{Error, TableId};

thread_local! {
    /// The standby that this thread may change.
    static ADMITTED: Cell<usize> = const { Cell::new(0) };
}

/// Refuses changes that do not come from the primary.
pub(super) struct Guard {
    pub(super) path: String,
    /// Set once all is loaded.
    pub(super) is_loaded: OnceLock<()>,
}

impl Guard {
    fn is_admitted(&self) -> bool {
        self.is_loaded.get().is_none() || ADMITTED.get() == self.number()
    }

    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Does something that may change the standby.
    pub(super) fn admit<O>(&self, act: impl FnOnce() -> O) -> O {
        struct Restore(usize);
        impl Drop for Restore {
            fn drop(&mut self) {
                ADMITTED.set(self.0);
            }
        }
        let _restore = Restore(ADMITTED.replace(self.number()));
        act()
    }
}

impl Log for Guard {
    fn admit(&self, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn stage(&self, _: usize, table: TableId, _: &[u8], _: Change<'_>) -> Result<(), Error> {
        if self.is_admitted() { Ok(()) } else { Err(Error::opened_read_only(table_name(table), self.path.clone())) }
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

    fn define(&self, _: &StoredCatalog) -> Result<(), Error> {
        let refused = || Error::opened_read_only("the list of tables".to_owned(), self.path.clone());
        if self.is_admitted() { Ok(()) } else { Err(refused()) }
    }
}
