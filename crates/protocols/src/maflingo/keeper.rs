//! Who gives back the memory of dropped tables: a place in the epochs that belongs to no worker.

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};

use polychron_base::Error;
use polychron_memory::{Guard, Local, Memory};
use polychron_sync::atomic::{AtomicBool, Ordering};

use super::fill::for_each_record;
use super::reclaim::{Orphans, Reclaimer};
use super::table::{MaflingoTable, Store};

/// The database's own slot.
#[derive(Debug)]
pub(super) struct Keeper {
    local: Mutex<Local>,
    closing: AtomicBool,
}

impl Keeper {
    pub(super) fn new(memory: &Arc<Memory>) -> Result<Self, Error> {
        Ok(Self { local: Mutex::new(memory.register()?), closing: AtomicBool::new(false) })
    }

    /// From now on dropped stores leave their memory to the memory's own end.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// Runs `work` inside an epoch.
    pub(super) fn with_guard<O>(&self, work: impl FnOnce(&Guard<'_>) -> O) -> O {
        let local = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        work(&local.pin())
    }

    /// Does what reclamation no worker is left to do.
    pub(super) fn tidy(&self, orphans: &Orphans, tables: &[Option<Arc<MaflingoTable>>]) {
        let local = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        Reclaimer::default().drain(orphans, tables, local.worker_id().position(), &local.pin());
    }

    /// Gives back a store that nobody can reach any more, and all records it leads to.
    pub(super) fn clear(&self, store: &mut Store) {
        if self.closing.load(Ordering::Relaxed) {
            return;
        }
        self.with_guard(|guard| {
            for_each_record(store, guard, &mut |_, record| {
                // A transaction may still hold the record: it is retired, not freed. Its older versions were retired when
                // they were superseded.
                // SAFETY: the index goes with its last user, so nobody finds the record from now on.
                unsafe { guard.retire(record.memory(), record.bytes()) };
            });
            // SAFETY: the store is being dropped, so no thread uses the index, and nobody looks at the field again.
            unsafe { ManuallyDrop::take(&mut store.index).destroy(guard) };
        });
    }
}
