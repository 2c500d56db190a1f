//! Stores of tables and indexes that were dropped. What waits to be collected leads from superseded versions to those above, and the newest
//! ones go with their store: so that stays until no such version leads anywhere any more.

use std::sync::{Arc, PoisonError};

use polychron_sync::Mutex;
use polychron_sync::atomic::{AtomicBool, Ordering, fence};

use super::collection::{Readers, Superseded};
use super::protocol::Shared;
use super::table::BohmStore;

/// Stores that nobody finds any more, or will not soon.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    any: AtomicBool,
    stores: Mutex<Vec<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    store: Arc<BohmStore>,
    /// No later batch has written into it; known when nobody else has the store any more.
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

    /// Lets those go whose last batch is finished, and which no open snapshot is older than: versions that were superseded by then are given
    /// back without a look at those above. Answers whether there were some. The caller has no guard of the deferred drops'.
    pub(super) fn let_go(&self, shared: &Shared) -> bool {
        if !self.any.load(Ordering::Relaxed) {
            return false;
        }
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        for waiting in &mut *stores {
            if waiting.last.is_none() && Arc::strong_count(&waiting.store) == 1 {
                // Acquire: pairs with the release of who gave up the store last; what it has written was sequenced before.
                fence(Ordering::Acquire);
                waiting.last = Some(shared.pipeline.sequenced());
            }
        }
        let oldest = shared.snapshots.watermark(shared.pipeline.finished());
        let gone: Vec<_> = stores.extract_if(.., |waiting| waiting.last.is_some_and(|last| last <= oldest)).collect();
        self.any.store(!stores.is_empty(), Ordering::Relaxed);
        drop(stores);
        for Waiting { store, last } in &gone {
            // The last intent lies above none that waits. It goes through the partition that planned it, behind the one below, of which it is the
            // version above.
            let newest = store.intents.newest().and_then(|newest| store.intents.close(newest));
            if let (Some(old), Some(batch)) = (newest, *last) {
                let readers = Readers::Guards;
                shared.partition(store.hash()).leave_superseded(Superseded { old, batch, readers });
            }
        }
        // Their memory is given back by the deferred drops, which the caller does not hold.
        !gone.is_empty()
    }
}
