//! The loss of a log that has stopped: all that is below can still be read.

use std::sync::PoisonError;

use polychron_engine::mutations::left_out;
use polychron_sync::atomic::Ordering;

use super::Log;
use crate::disk::Disk;
use crate::frame::Order;
use crate::steps::Step;

/// Of a log that has stopped: what was sealed and is not durable.
pub(super) enum Lost {
    /// It is not known, or the log has not stopped.
    Unknown,
    /// All of it has this order or a higher one.
    From(Option<Order>),
}

impl<D: Disk> Log<D> {
    /// The log stops: what was sealed by now is lost, and so is what is sealed from now on by transactions that had staged before.
    pub(super) fn note_lost(&self, taken: Option<Order>) {
        // Release: pairs with the acquire of a seal whose ring is looked at below before it seals.
        self.is_stopped.store(true, Ordering::Release);
        let lost = &mut *self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let sealed = self.rings.lowest();
        *lost = Lost::From(taken.into_iter().chain(sealed).min());
    }

    /// Something is sealed in a log that has stopped, and no other thread has read it yet.
    #[cold]
    pub(super) fn is_lost(&self, order: Order) {
        if let Lost::From(lowest) = &mut *self.lost.lock().unwrap_or_else(PoisonError::into_inner)
            && !left_out(Step::LoseLate)
        {
            *lowest = Some(lowest.map_or(order, |lowest| lowest.min(order)));
        }
    }

    /// Whether the log has stopped, and all up to this order is durable all the same.
    #[cold]
    pub(super) fn is_kept(&self, read: Order) -> bool {
        match &*self.lost.lock().unwrap_or_else(PoisonError::into_inner) {
            Lost::Unknown => false,
            Lost::From(lowest) => lowest.is_none_or(|lowest| read < lowest),
        }
    }
}
