//! Orders of a protocol that counts the transactions that seal.

use polychron_sync::CachePadded;
use polychron_sync::atomic::{AtomicU64, Ordering};

use super::{Journal, Step, Ticket, Watch};
use crate::mutations::left_out;

/// The word of a worker that seals nothing.
const IDLE: u64 = u64::MAX;

/// Numbers the transactions that seal, and tells up to which number all have done so. A worker first says that its number will be later than the last
/// one, then draws it, and takes that back when it has sealed: who looks meanwhile finds either the word or the sealed changes.
#[derive(Debug)]
pub struct Orders {
    last: CachePadded<AtomicU64>,
    /// Of each worker a number before the one with which it is sealing.
    sealing: Box<[CachePadded<AtomicU64>]>,
}

impl Orders {
    /// For so many workers.
    pub fn new(workers: usize) -> Self {
        Self {
            last: CachePadded::default(),
            sealing: (0..workers).map(|_| CachePadded::new(AtomicU64::new(IDLE))).collect(),
        }
    }

    /// The last number that the caller may know of.
    #[inline]
    pub fn last(&self) -> u64 {
        // Relaxed: what hands on changes that were read hands on this, too.
        self.last.load(Ordering::Relaxed)
    }

    /// Seals what a worker has staged, with the next number. Those who write the same key exclude one another, and draw in that order.
    #[inline]
    pub fn seal(&self, journal: &Journal, worker: usize) -> Ticket {
        if journal.is_empty() {
            return Ticket::DONE;
        }
        self.draw(worker, |order| journal.seal(worker, || order.into()))
    }

    /// Ends a transaction: seals what it has staged, if it has changed anything, and answers what its client waits for. A transaction that has changed
    /// nothing waits for what it has read.
    #[inline]
    pub fn end(&self, journal: &Journal, worker: usize, has_changed: bool, watch: &Watch) -> Ticket {
        match has_changed {
            true => self.seal(journal, worker),
            false => journal.ticket_of(watch, || self.last().into()),
        }
    }

    fn draw<O>(&self, worker: usize, seal: impl FnOnce(u64) -> O) -> O {
        let own = &self.sealing[worker];
        // Release: pairs with the acquire in `ended`; what this worker sealed before is sealed for who sees the word.
        own.store(self.last(), Ordering::Release);
        // AcqRel: pairs with the acquire in `ended`; who sees this number sees the word, or what came behind it.
        let order = 1 + self.last.fetch_add(1, Ordering::AcqRel);
        let sealed = seal(order);
        // Release: as above.
        own.store(IDLE, Ordering::Release);
        sealed
    }

    /// All transactions with numbers up to this one have sealed.
    pub fn ended(&self) -> u64 {
        // Acquire, here and below: see `draw`.
        let last = self.last.load(Ordering::Acquire);
        if left_out(Step::AwaitSealing) {
            return last;
        }
        self.sealing.iter().map(|own| own.load(Ordering::Acquire)).fold(last, u64::min)
    }
}

#[cfg(all(test, loom))]
mod model {
    use polychron_sync::model::explore;
    use polychron_sync::{Arc, thread};

    use super::*;

    /// Two workers seal twice each. Whatever number a third thread is told, all up to there were sealed.
    #[test]
    fn all_up_to_the_end_are_sealed() {
        explore(3, || {
            let orders = Arc::new(Orders::new(2));
            let sealed: Arc<[AtomicU64; 5]> = Arc::default();
            let workers = [0, 1].map(|worker| {
                let (orders, sealed) = (Arc::clone(&orders), Arc::clone(&sealed));
                thread::spawn(move || {
                    for _ in 0..2 {
                        orders.draw(worker, |order| sealed[order as usize].store(1, Ordering::Relaxed));
                    }
                })
            });
            let ended = orders.ended();
            assert!((1..=ended).all(|order| sealed[order as usize].load(Ordering::Relaxed) == 1));
            let _ = workers.map(|worker| worker.join().unwrap());
            assert_eq!(orders.ended(), 4);
        });
    }
}
