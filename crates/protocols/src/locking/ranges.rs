//! The locked ranges of an ordered index.
//!
//! * A scan locks its range, then looks at the index, then locks the keys that it finds there. An insertion locks its key, puts
//!   it into the index, then looks for ranges. Between the two steps of each there is a full barrier, so that of a scan and an
//!   insertion beside each other at least one sees the other: the scan finds the key, which is locked, or the insertion
//!   finds the range.
//! * Only insertions look for ranges. Rows that are there are protected by the locks of their keys, deleted ones too: they
//!   stay in the index until their transaction has ended.
//! * A transaction that was turned away puts its *wish*, for a range or for an insertion, into the queue before the next attempt
//!   runs, and waits until no incompatible one of another transaction is before it. All wishes for one index go into
//!   its queue together. What comes later gives way to it.

use std::ops::Bound;

use polychron_sync::atomic::{AtomicU64, Ordering, fence};
use polychron_sync::{Backoff, SpinLatch, publish};

use super::locks::Answer;
use super::wounds::{Asker, Patience};

/// A range of keys, or one that is to be inserted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// No key comes between the bounds.
    Range(Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// The key comes into no range.
    Insertion(Vec<u8>),
}

impl Wish {
    /// Whether a range has this key.
    fn covers(&self, key: &[u8]) -> bool {
        let Self::Range(lower, upper) = self else { return false };
        let above = match lower {
            Bound::Included(lower) => &lower[..] <= key,
            Bound::Excluded(lower) => &lower[..] < key,
            Bound::Unbounded => true,
        };
        let below = match upper {
            Bound::Included(upper) => key <= &upper[..],
            Bound::Excluded(upper) => key < &upper[..],
            Bound::Unbounded => true,
        };
        above && below
    }

    fn excludes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Insertion(key), range) | (range, Self::Insertion(key)) => range.covers(key),
            _ => false,
        }
    }
}

#[derive(Debug)]
struct Entry {
    /// The transaction's worker.
    owner: u64,
    asker: Asker,
    wish: Wish,
}

/// The queue of an index.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// How many entries there are, for insertions, which find none most of the time.
    count: AtomicU64,
    queue: SpinLatch<Vec<Entry>>,
}

impl Ranges {
    /// Locks a range, unless another transaction's insertion is in the queue that it would exclude.
    pub(super) fn try_lock(&self, owner: u64, asker: Asker, range: Wish) -> bool {
        let mut queue = self.queue.lock();
        if queue.iter().any(|entry| entry.owner != owner && entry.wish.excludes(&range)) {
            return false;
        }
        queue.push(Entry { owner, asker, wish: range });
        // The barrier in it pairs with the one in `admits`.
        publish(&self.count, queue.len() as u64);
        true
    }

    /// Makes the latest range of a transaction smaller: it was visited so far.
    pub(super) fn narrow(&self, owner: u64, change: impl FnOnce(&mut Bound<Vec<u8>>, &mut Bound<Vec<u8>>)) {
        let mut queue = self.queue.lock();
        let own = queue.iter_mut().rev().find(|entry| entry.owner == owner);
        if let Some(Entry { wish: Wish::Range(lower, upper), .. }) = own {
            change(lower, upper);
        }
    }

    /// Whether no range of another transaction has the key, which is in the index. Where `patience` says so, the younger ones of
    /// those that have a range which does are wounded.
    #[inline]
    pub(super) fn admits(&self, owner: u64, asker: Asker, patience: Patience, key: impl FnOnce() -> Vec<u8>) -> Answer {
        // SeqCst: the full barrier that pairs with the one in `try_lock` and `wait_for`: the key is in the index before the count
        // is read.
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) == 0 {
            return Answer::Granted;
        }
        let key = key();
        let mut answer = Answer::Granted;
        let queue = self.queue.lock();
        for entry in queue.iter().filter(|entry| entry.owner != owner && entry.wish.covers(&key)) {
            if answer != Answer::Own {
                answer = if entry.asker.thread == asker.thread { Answer::Own } else { Answer::Refused };
            }
            if patience == Patience::Wound {
                // SAFETY: the other's range is in the latched queue.
                unsafe { asker.wound(entry.asker) };
            }
        }
        answer
    }

    /// Puts wishes into the queue, and waits until nothing is before them that excludes them. `false`: the wait would be for
    /// this same thread.
    pub(super) fn wait_for<'w>(&self, owner: u64, asker: Asker, wishes: impl Iterator<Item = &'w Wish>) -> bool {
        let mut queue = self.queue.lock();
        queue.extend(wishes.map(|wish| Entry { owner, asker, wish: wish.clone() }));
        // The barrier in it pairs with the one in `admits`.
        publish(&self.count, queue.len() as u64);
        drop(queue);
        let mut backoff = Backoff::new();
        while let Some(other) = self.waits_for(owner) {
            if other == asker.thread {
                return false;
            }
            backoff.wait();
        }
        true
    }

    /// The thread of a transaction whose wish is before one of this owner's, and excludes it.
    fn waits_for(&self, owner: u64) -> Option<u64> {
        let queue = self.queue.lock();
        let own = queue.iter().enumerate().filter(|(_, entry)| entry.owner == owner);
        own.flat_map(|(at, entry)| queue[..at].iter().filter(|before| before.wish.excludes(&entry.wish)))
            .find(|before| before.owner != owner)
            .map(|before| before.asker.thread)
    }

    /// Takes out what a transaction has here, and keeps it for the next attempt.
    pub(super) fn release(&self, owner: u64, mut keep: impl FnMut(Wish)) {
        let mut queue = self.queue.lock();
        let mut at = 0;
        while at < queue.len() {
            if queue[at].owner == owner { keep(queue.remove(at).wish) } else { at += 1 }
        }
        publish(&self.count, queue.len() as u64);
    }
}
