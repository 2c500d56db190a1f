//! The positions up to which standbys are durable, and the waits for so many of them.
//!
//! Each standby counts once, however often it is connected, and while it is. What so many have had once counts for ever.

use std::collections::{BTreeMap, VecDeque};
use std::sync::PoisonError;

use polychron_base::clock::{Clock, Duration};
use polychron_engine::mutations::left_out;
use polychron_sync::atomic::{AtomicU64, Ordering};
use polychron_sync::{CachePadded, Condvar, Mutex, MutexGuard};

use super::finished::Finished;
use crate::frame::Order;
use crate::steps::ShipStep;

/// An answer is late by at most one of so many parts of the time that it may wait.
const PARTS: u64 = 32;

/// Standbys that answers wait for.
pub(crate) struct Replicas {
    /// How many are to have it before an answer leaves; 0: none waits.
    wanted: usize,
    limit_ns: u64,
    /// The last epoch when the database was opened: what was read then may be at no standby.
    opened: u64,
    /// The last epoch that so many have.
    replicated: CachePadded<AtomicU64>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Those that are connected, by their numbers.
    standbys: BTreeMap<u128, Replica>,
    /// Since when epochs are durable here, at times that are far enough apart.
    since: VecDeque<(u64, u64)>,
    /// Nothing more is heard of standbys.
    is_over: bool,
}

/// The position of a standby.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Replica {
    /// The connection that said so.
    pub(crate) connection: u64,
    /// All up to this epoch.
    pub(crate) epoch: u64,
    /// All transactions up to this order.
    pub(crate) consistent: Order,
}

/// How far standbys have come that are connected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replication {
    /// How many standbys answers wait for.
    pub replicas: usize,
    /// The last log epoch that is durable here.
    pub durable: u64,
    /// The last one that so many standbys have durably.
    pub replicated: u64,
    /// The last one that each standby has that is connected, in no order.
    pub acknowledged: Vec<u64>,
}

/// So many standbys have what is waited for, and that is not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooFew(pub(crate) usize);

impl Replicas {
    /// For a log whose last epoch is this one.
    pub(crate) fn new(wanted: usize, limit: Duration, opened: u64) -> Self {
        Self {
            wanted,
            limit_ns: u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX),
            opened,
            replicated: CachePadded::new(AtomicU64::new(0)),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// How many standbys answers wait for.
    #[inline]
    pub(crate) fn wanted(&self) -> usize {
        self.wanted
    }

    /// The last epoch that so many standbys have.
    #[inline]
    pub(crate) fn replicated(&self) -> u64 {
        self.replicated.load(Ordering::Acquire) // pairs with the release in `acknowledge`
    }

    /// The last epoch that was found when the database was opened.
    #[inline]
    pub(crate) fn opened(&self) -> u64 {
        self.opened
    }

    /// Waits until so many standbys have an epoch, of which this one is the last that is durable here.
    pub(crate) fn wait(&self, epoch: u64, durable: u64, clock: &dyn Clock) -> Result<(), TooFew> {
        if self.wanted == 0 || self.replicated() >= epoch || left_out(ShipStep::AwaitReplicas) {
            return Ok(());
        }
        let mut state = self.lock();
        let until_ns = state.end_of(epoch, durable, clock.now_ns(), self.limit_ns);
        loop {
            // Under the lock under which it changes, so no change is missed.
            if self.replicated() >= epoch {
                return Ok(());
            }
            let left_ns = until_ns.saturating_sub(clock.now_ns());
            if left_ns == 0 || state.is_over {
                return Err(TooFew(state.standbys.values().filter(|replica| replica.epoch >= epoch).count()));
            }
            let waited = self.changed.wait_timeout(state, Duration::from_nanos(left_ns));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// All up to this epoch is durable here.
    pub(crate) fn flushed(&self, epoch: u64, now_ns: u64) {
        if self.wanted > 0 {
            self.lock().flushed(epoch, now_ns, self.limit_ns);
        }
    }

    /// A standby has this durably, and so does what answers wait for as far as enough others have it.
    pub(crate) fn acknowledge(&self, standby: u128, replica: Replica, finished: &Finished) {
        let mut state = self.lock();
        let number = if left_out(ShipStep::CountOnce) { replica.connection.into() } else { standby };
        let known = state.standbys.entry(number).or_default();
        // A later connection of the same standby has taken this one's place.
        if replica.connection < known.connection {
            return;
        }
        *known = replica;
        if self.wanted == 0 {
            return;
        }
        let epoch = state.of_so_many(self.wanted, |replica| replica.epoch);
        finished.raise(state.of_so_many(self.wanted, |replica| replica.consistent));
        if epoch > self.replicated() {
            // Release: pairs with the acquire in `replicated`.
            self.replicated.store(epoch, Ordering::Release);
            drop(state);
            self.changed.notify_all();
        }
    }

    /// A connection has ended.
    pub(crate) fn leave(&self, connection: u64) {
        self.lock().standbys.retain(|_, replica| replica.connection != connection);
    }

    /// Nothing more is heard of standbys: whoever waits for them learns that there are too few.
    pub(crate) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// How far standbys have come.
    pub(crate) fn status(&self, durable: u64) -> Replication {
        let acknowledged = self.lock().standbys.values().map(|replica| replica.epoch).collect();
        let replicated = if self.wanted == 0 { durable } else { self.replicated() };
        Replication { replicas: self.wanted, durable, replicated, acknowledged }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The position that so many standbys have reached.
    fn of_so_many<V: Ord + Default>(&self, count: usize, value: impl Fn(&Replica) -> V) -> V {
        let mut values: Vec<V> = self.standbys.values().map(value).collect();
        values.sort_unstable_by(|one, other| other.cmp(one));
        values.into_iter().nth(count - 1).unwrap_or_default()
    }

    /// All up to this epoch is durable at this time. Times are kept that are at least a part of the limit from the one before the last, so that they are
    /// few, and only while there are answers to decide on.
    fn flushed(&mut self, epoch: u64, now_ns: u64, limit_ns: u64) {
        if self.since.back().is_some_and(|(last, _)| *last >= epoch) {
            return;
        }
        let before = self.since.len().checked_sub(2).map(|at| self.since[at].1);
        if before.is_some_and(|before_ns| now_ns.saturating_sub(before_ns) < limit_ns / PARTS) {
            self.since.pop_back();
        }
        self.since.push_back((epoch, now_ns));
        while self.since.get(1).is_some_and(|(_, since_ns)| since_ns.saturating_add(limit_ns) <= now_ns) {
            self.since.pop_front();
        }
    }

    /// Until when an answer waits for an epoch: so long from when that became durable here, whoever asks, so that answers which wait one behind the
    /// other wait no longer than one does.
    fn end_of(&mut self, epoch: u64, durable: u64, now_ns: u64, limit_ns: u64) -> u64 {
        self.flushed(durable.max(epoch), now_ns, limit_ns);
        let since = self.since.iter().find(|(flushed, _)| *flushed >= epoch);
        since.map_or(now_ns, |(_, since_ns)| *since_ns).saturating_add(limit_ns)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use polychron_base::clock::ManualClock;
    use polychron_base::random::Random;

    use super::*;

    fn replica(connection: u64, epoch: u64) -> Replica {
        Replica { connection, epoch, consistent: Order::from(epoch) }
    }

    #[test]
    fn so_many_standbys_have_it() {
        let (replicas, finished, clock) =
            (Replicas::new(2, Duration::ZERO, 3), Finished::default(), ManualClock::new());
        let has = |epoch| replicas.wait(epoch, 9, &clock);
        replicas.acknowledge(1, replica(1, 7), &finished);
        assert_eq!((has(5), has(8)), (Err(TooFew(1)), Err(TooFew(0))));
        // The same one by another connection.
        replicas.acknowledge(1, replica(2, 7), &finished);
        replicas.acknowledge(1, replica(1, 8), &finished);
        assert_eq!((has(5), has(8)), (Err(TooFew(1)), Err(TooFew(0))));
        replicas.leave(1);
        replicas.acknowledge(2, replica(3, 5), &finished);
        assert_eq!((has(5), has(6)), (Ok(()), Err(TooFew(1))));
        assert!(finished.covers(Order::from(5)) && !finished.covers(Order::from(6)));
        // What both had counts on.
        replicas.leave(3);
        replicas.acknowledge(3, replica(4, 2), &finished);
        assert_eq!((has(5), has(6)), (Ok(()), Err(TooFew(1))));
        let status = Replication { replicas: 2, durable: 9, replicated: 5, acknowledged: vec![7, 2] };
        assert_eq!(replicas.status(9), status);
    }

    /// However epochs and times come, each answer waits from when its epoch was durable, a part of the limit longer at most, and few times are kept.
    #[test]
    fn answers_wait_from_when_their_epoch_was_durable() {
        for seed in 0..200 {
            let (mut random, mut state, limit_ns) = (Random::from_seed(seed), State::default(), 32_000);
            let (mut now_ns, mut flushed) = (0, Vec::new());
            for epoch in 1..2000 {
                now_ns += random.below([10, 1000, 5000][seed as usize % 3]);
                flushed.push(now_ns);
                state.flushed(epoch, now_ns, limit_ns);
                assert!(state.since.len() < 3 * PARTS as usize);
                let asked = 1 + random.below(epoch);
                let (end_ns, due_ns) =
                    (state.end_of(asked, epoch, now_ns, limit_ns), flushed[asked as usize - 1] + limit_ns);
                assert!(end_ns >= due_ns || end_ns <= now_ns && due_ns <= now_ns, "seed {seed}");
                assert!(end_ns <= due_ns + limit_ns / PARTS || end_ns <= now_ns, "seed {seed}: {end_ns}, {due_ns}");
            }
        }
    }

    /// Counts how often it is looked at.
    struct Counted(AtomicU64);

    impl Clock for Counted {
        fn now_ns(&self) -> u64 {
            self.0.fetch_add(1, Ordering::Relaxed)
        }
    }

    #[test]
    fn the_end_wakes_who_waits() {
        let (replicas, clock) = (Replicas::new(1, Duration::MAX, 0), Counted(AtomicU64::new(0)));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| replicas.wait(1, 1, &clock));
            // The second time it has the lock, until it sleeps.
            while clock.0.load(Ordering::Relaxed) < 2 {
                std::thread::yield_now();
            }
            replicas.end();
            assert_eq!(waits.join().unwrap(), Err(TooFew(0)));
        });
        assert_eq!(replicas.wait(2, 2, &clock), Err(TooFew(0)));
    }
}

#[cfg(all(test, loom))]
mod model {
    use polychron_base::clock::ManualClock;
    use polychron_sync::model::explore;
    use polychron_sync::{Arc, thread};

    use super::*;

    /// No wake-up is lost: there, time does not pass, so that a thread which missed one would wait for ever.
    #[test]
    fn every_wait_ends() {
        explore(3, || {
            let (replicas, finished) = (Arc::new(Replicas::new(2, Duration::MAX, 0)), Arc::new(Finished::default()));
            let standbys = [1, 2].map(|standby: u64| {
                let (replicas, finished) = (Arc::clone(&replicas), Arc::clone(&finished));
                thread::spawn(move || {
                    let replica = |epoch| Replica { connection: standby, epoch, consistent: Order::from(epoch) };
                    (1..=standby).for_each(|epoch| replicas.acknowledge(standby.into(), replica(epoch), &finished));
                })
            });
            assert_eq!(replicas.wait(1, 1, &ManualClock::new()), Ok(()));
            assert!(finished.covers(Order::from(1)));
            let _ = standbys.map(|standby| standby.join().unwrap());
            assert_eq!(replicas.replicated(), 1);
        });
    }

    /// Nor is that of the end.
    #[test]
    fn the_end_is_seen() {
        explore(3, || {
            let replicas = Arc::new(Replicas::new(1, Duration::MAX, 0));
            let its = Arc::clone(&replicas);
            let ends = thread::spawn(move || its.end());
            assert_eq!(replicas.wait(1, 1, &ManualClock::new()), Err(TooFew(0)));
            ends.join().unwrap();
        });
    }
}
