//! The locked ranges of an ordered index.
//!
//! * A scan locks its range, then looks at the index, then locks the keys that it finds there. An insertion locks its key, puts
//!   it into the index, then looks for ranges. Between the two steps of each there is a full barrier, so that of a scan and an
//!   insertion beside each other at least one sees the other: the scan finds the key, which is locked, or the insertion
//!   finds the range.
//! * Only insertions look for ranges. Rows that are there are protected by the locks of their keys, deleted ones too: they
//!   stay in the index until their transaction has ended.
//! * A range is always granted. An insertion that waits does so for the ranges that were there when it first looked: a scan
//!   that locks a range later finds the key, and waits for that. So an insertion is not overtaken by scans for ever.

use std::ops::Bound;

use polychron_sync::atomic::{AtomicU64, Ordering, fence};
use polychron_sync::{SpinGuard, SpinLatch, publish};

use super::intervals::{Id, Intervals};
use super::locks::Answer;
use super::wounds::{Requester, SpinBudget, Wounds};

/// A range that conflicts with an insertion: its node, and its number, which no other range of that node has.
pub(super) type Conflicting = (Id, u64);

/// An insertion that waits.
#[derive(Debug)]
struct Waiting {
    requester: Requester,
    key: Vec<u8>,
}

#[derive(Debug, Default)]
struct Locked {
    ranges: Intervals,
    /// Insertions that wait for some of them.
    waiting: Vec<Waiting>,
}

impl Locked {
    /// Wakes the insertions of keys that a range covers, which is about to be removed or narrowed.
    fn call(&self, id: Id) {
        for waiting in self.waiting.iter().filter(|waiting| self.ranges.covers(id, &waiting.key)) {
            waiting.requester.call();
        }
    }
}

/// The locked ranges of an index.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// How many there are, for insertions, which find none most of the time.
    count: AtomicU64,
    locked: SpinLatch<Locked>,
}

impl Ranges {
    /// Locks a range. It may be one that is held already, made larger: the second value tells which.
    pub(super) fn lock(
        &self,
        requester: Requester,
        owner: u64,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> (Id, bool) {
        let mut locked = self.locked.lock();
        let locks = locked.ranges.add(requester, owner, lower, upper);
        // The barrier in it pairs with the one in `admits`.
        publish(&self.count, locked.ranges.len() as u64);
        locks
    }

    /// Makes a range smaller: it was visited so far.
    pub(super) fn narrow(&self, id: Id, lower: Option<&[u8]>, upper: Option<&[u8]>) {
        let mut locked = self.locked.lock();
        locked.call(id);
        locked.ranges.narrow(id, lower, upper);
    }

    /// Releases a range.
    pub(super) fn release(&self, id: Id) {
        let mut locked = self.locked.lock();
        locked.call(id);
        locked.ranges.remove(id);
        // Insertions that see an old count look in vain.
        self.count.store(locked.ranges.len() as u64, Ordering::Relaxed);
    }

    /// Whether there are ranges that may have a key which has just come into the index.
    #[inline]
    pub(super) fn are_there(&self) -> bool {
        // SeqCst: the full barrier that pairs with the one in `lock`: the key is in the index before the count is read.
        fence(Ordering::SeqCst);
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Whether no range of another transaction has the key, which is in the index: those that have it are wounded and waited for, if the
    /// transaction waits at all.
    pub(super) fn admit(&self, own: &Wounds, owner: u64, conflicting: &mut Vec<Conflicting>, key: Vec<u8>) -> Answer {
        let requester = own.requester();
        let mut locked = self.locked.lock();
        conflicting.clear();
        let mut is_own = false;
        locked.ranges.each_with(&key, |id, number, (other, other_owner)| {
            if other_owner != owner {
                conflicting.push((id, number));
                is_own |= other.thread == requester.thread;
            }
        });
        if is_own {
            return Answer::Own;
        }
        if own.spin_budget() != SpinBudget::Wound
            && let Some(&(id, _)) = conflicting.first()
        {
            requester.records_opponent(locked.ranges.requester(id));
            return Answer::Refused;
        }
        if conflicting.is_empty() {
            return Answer::Granted;
        }
        for &(id, _) in &*conflicting {
            requester.wound(locked.ranges.requester(id));
        }
        locked.waiting.push(Waiting { requester, key });
        self.await_release(own, conflicting, locked)
    }

    /// Waits until some ranges are released, or no longer have the key. The transaction is in the list of those that wait.
    fn await_release<'l>(
        &'l self,
        own: &Wounds,
        conflicting: &mut Vec<Conflicting>,
        locked: SpinGuard<'l, Locked>,
    ) -> Answer {
        let (mut latched, mut ends) = (Some(locked), true);
        loop {
            let mut locked = latched.take().unwrap_or_else(|| self.locked.lock());
            let at =
                locked.waiting.iter().position(|it| it.requester.is(own.requester())).expect("it is removed below");
            let key = &locked.waiting[at].key;
            conflicting.retain(|&(id, number)| locked.ranges.is_there(id, number) && locked.ranges.covers(id, key));
            if conflicting.is_empty() || own.wounded() || !ends {
                if let Some(&(id, _)) = conflicting.first().filter(|_| !ends) {
                    own.requester().records_opponent(locked.ranges.requester(id));
                }
                locked.waiting.swap_remove(at);
                return match ends || own.wounded() {
                    _ if conflicting.is_empty() => Answer::Granted,
                    true => Answer::Refused,
                    false => Answer::Own,
                };
            }
            own.slot().expect_call();
            drop(locked);
            ends = own.wait(conflicting.len(), || own.slot().is_called());
        }
    }
}
