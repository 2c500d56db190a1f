//! The memory of client batches, which is reused.

use std::sync::{Arc, PoisonError};

use polychron_sync::Mutex;

use super::{ClientBatch, HandedIn, OwnBatch};

/// The client batches that no client uses, and all of them: none is freed while the database is open, because a version may still name a
/// transaction of long ago.
#[derive(Debug, Default)]
pub(in super::super) struct ClientBatches {
    idle: Mutex<Vec<OwnBatch>>,
    /// Those whose clients have their answers already, while some thread has not counted the last transactions.
    lingering: Mutex<Vec<HandedIn>>,
    all: Mutex<Vec<Arc<ClientBatch>>>,
}

impl ClientBatches {
    pub(in super::super) fn take(&self) -> OwnBatch {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.is_empty() {
            let mut lingering = self.lingering.lock().unwrap_or_else(PoisonError::into_inner);
            for client_batch in std::mem::take(&mut *lingering) {
                match client_batch.take_back() {
                    Ok(own) => idle.push(own),
                    Err(other) => lingering.push(other),
                }
            }
        }
        idle.pop().unwrap_or_else(|| {
            let made = Arc::new(ClientBatch::new());
            self.all.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&made));
            OwnBatch(made)
        })
    }

    pub(in super::super) fn put_back(&self, client_batch: OwnBatch) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client_batch);
    }

    /// Puts back one in which threads may still count, though all its transactions were executed.
    pub(in super::super) fn put_back_later(&self, client_batch: HandedIn) {
        self.lingering.lock().unwrap_or_else(PoisonError::into_inner).push(client_batch);
    }
}
