//! The last consistent point that is durable: one thread at a time moves it on, and any thread compares with it.

use polychron_sync::atomic::{AtomicU64, Ordering};

use crate::frame::Order;

/// Up to which order all transactions have ended durably.
#[derive(Default)]
pub(crate) struct Finished {
    era: AtomicU64,
    timestamp: AtomicU64,
}

impl Finished {
    /// Moves it on. One thread at a time.
    pub(crate) fn raise(&self, to: Order) {
        let now = Order { era: self.era.load(Ordering::Relaxed), timestamp: self.timestamp.load(Ordering::Relaxed) };
        if to <= now {
            return;
        }
        // Releases: they pair with the acquires in `covers`. A reader that sees the new era sees no timestamp of the old one.
        if to.era > now.era {
            self.timestamp.store(0, Ordering::Release);
            self.era.store(to.era, Ordering::Release);
        }
        self.timestamp.store(to.timestamp, Ordering::Release);
    }

    /// Whether an order lies at it or before. A point that moves just now may count as one before.
    #[inline]
    pub(crate) fn covers(&self, order: Order) -> bool {
        let era = self.era.load(Ordering::Acquire);
        // One of a later era makes no harm: what it covers with the former era lies before the new point, too.
        let timestamp = self.timestamp.load(Ordering::Acquire);
        order <= Order { era, timestamp }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn it_covers_what_lies_before() {
        let finished = Finished::default();
        let order = |era, timestamp| Order { era, timestamp };
        assert!(finished.covers(order(0, 0)) && !finished.covers(order(0, 1)));
        finished.raise(order(0, 7));
        finished.raise(order(0, 5));
        assert!(finished.covers(order(0, 7)) && !finished.covers(order(0, 8)));
        finished.raise(order(1, 3));
        assert!(finished.covers(order(0, 8)) && finished.covers(order(1, 3)) && !finished.covers(order(1, 4)));
    }
}

#[cfg(all(test, loom))]
mod model {
    use polychron_sync::model::explore;
    use polychron_sync::{Arc, thread};

    use super::*;

    #[test]
    fn no_timestamp_is_of_another_era() {
        explore(3, || {
            let finished = Arc::new(Finished::default());
            finished.raise(Order { era: 0, timestamp: 9 });
            let (other, read) = (Arc::clone(&finished), Arc::clone(&finished));
            let writer = thread::spawn(move || {
                other.raise(Order { era: 1, timestamp: 2 });
                other.raise(Order { era: 1, timestamp: 5 });
            });
            let reader = thread::spawn(move || {
                // The timestamp of one era with the other one would cover these.
                assert!(!read.covers(Order { era: 1, timestamp: 6 }));
                read.covers(Order { era: 1, timestamp: 1 })
            });
            writer.join().unwrap();
            let is_covered = reader.join().unwrap();
            assert!(finished.covers(Order { era: 1, timestamp: 5 }) || is_covered);
        });
    }
}
