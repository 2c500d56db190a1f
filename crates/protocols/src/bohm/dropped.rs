//! Stores of tables and indexes that were dropped. Superseded versions that wait to be collected lead to those above, and the newest versions are
//! freed with their store. So a store stays until no such version is left.

use std::sync::{Arc, PoisonError};

use polychron_sync::Mutex;
use polychron_sync::atomic::{AtomicBool, Ordering, fence};

use super::protocol::Shared;
use super::table::BohmStore;

/// Stores that no thread still finds, or will soon.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    any: AtomicBool,
    stores: Mutex<Vec<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    store: Arc<BohmStore>,
    /// No later batch has written into it; known when no other thread has the store.
    last: Option<u64>,
}

impl Dropped {
    /// Keeps a store that was dropped.
    pub(super) fn keep(&self, store: Arc<BohmStore>) {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        stores.push(Waiting { store, last: None });
        // Relaxed, here and below: a hint only; the lock carries the data.
        self.any.store(true, Ordering::Relaxed);
    }

    /// Drops the stores whose last batch is finished, if no open snapshot is older: versions that were superseded by then are freed without a look at
    /// those above. Answers whether there were some. The caller does not have the deferred drops' guard.
    pub(super) fn let_go(&self, shared: &Shared) -> bool {
        if !self.any.load(Ordering::Relaxed) {
            return false;
        }
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        for waiting in &mut *stores {
            if waiting.last.is_none() && Arc::strong_count(&waiting.store) == 1 {
                // Acquire: pairs with the release of the reference that was dropped last; what its thread has written was sequenced before.
                fence(Ordering::Acquire);
                waiting.last = Some(shared.pipeline.sequenced());
            }
        }
        let oldest = shared.snapshots.watermark(shared.pipeline.finished());
        let gone: Vec<_> = stores.extract_if(.., |waiting| waiting.last.is_some_and(|last| last <= oldest)).collect();
        self.any.store(!stores.is_empty(), Ordering::Relaxed);
        drop(stores);
        for Waiting { store, last } in &gone {
            // Nothing that waits lies below the last intent. The partition that planned it frees it, after the one below, which names it as the
            // version above.
            // SAFETY: no other thread has the store, and no later batch has written into it.
            let close = |last| store.intents.newest().and_then(|newest| unsafe { store.intents.close(newest, last) });
            if let Some(superseded) = last.and_then(close) {
                shared.partition(store.hash()).leave_superseded(superseded);
            }
        }
        // The deferred drops free their memory, and the caller does not hold them.
        !gone.is_empty()
    }
}
