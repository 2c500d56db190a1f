//! A worker comes to a thread, which is pinned to the worker's processor where the options say so.

use polychron_sync::atomic::Ordering;

use super::Worker;
use crate::memory::OWN_SLOTS;
use crate::system;

impl Worker {
    #[cold]
    pub(super) fn come_to_thread(&self, here: u64) {
        self.thread.set(here);
        self.shared().epochs.set_thread(self.id.position(), here);
        if self.shared().options.pin_workers {
            self.pin_thread();
        }
    }

    /// Pins the calling thread to the worker's processor. The database's own workers run on threads that have no processor of their own.
    fn pin_thread(&self) {
        let shared = self.shared();
        let Some(number) = self.id.position().checked_sub(OWN_SLOTS) else { return };
        let Some(place) = shared.topology.place(number).filter(|place| system::pin_to(place.processor)) else { return };
        if self.pool.node() != place.node {
            // What it has of the other node is for others.
            shared.dissolve(&self.pool);
            self.pool.set_node(place.node);
        }
        if self.pinned_to.replace(Some(place.node)).is_none() {
            shared.pinned[place.node].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The worker ends.
    pub(super) fn unpin_thread(&self) {
        if let Some(node) = self.pinned_to.take() {
            self.shared().pinned[node].fetch_sub(1, Ordering::Relaxed);
        }
    }
}
