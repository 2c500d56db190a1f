//! Counts: of each worker, written by it alone and read by anyone, and sums over them.

use polychron_base::{Abort, Reason};
use polychron_memory::MemoryStatistics;
use polychron_sync::atomic::{AtomicU64, Ordering};
use polychron_sync::{CachePadded, Mutex, try_lock};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, PoisonError};

use crate::distribution::{Counting, Distribution};
use crate::events::Events;
use crate::hot_keys::{HotKey, HotKeys};
use crate::watch::{OpenState, OpenTransaction};

const REASONS: usize = Reason::ALL.len();

/// One worker's counts. Its owner adds with a plain load and store; others may read at any time.
#[derive(Debug, Default)]
pub struct Counters {
    commits: CachePadded<AtomicU64>,
    snapshots: AtomicU64,
    refusals: AtomicU64,
    reconnaissance: AtomicU64,
    staleness_us: AtomicU64,
    staleness_max_us: AtomicU64,
    staleness: Counting,
    aborts: [AtomicU64; REASONS],
    hot_keys: HotKeys,
    events: Events,
    open: OpenState,
}

/// Adds to a counter that only the calling thread writes.
#[inline]
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
}

impl Counters {
    /// Nothing was counted. No transaction runs.
    fn clear(&self) {
        let counts =
            [&self.snapshots, &self.refusals, &self.reconnaissance, &self.staleness_us, &self.staleness_max_us];
        counts
            .into_iter()
            .chain([&*self.commits])
            .chain(&self.aborts)
            .for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// Counts a committed transaction.
    #[inline]
    pub fn committed(&self) {
        add(&self.commits, 1);
    }

    /// Counts a finished snapshot that was `staleness_us` microseconds old when it began.
    #[inline]
    pub fn snapshot(&self, staleness_us: u64) {
        add(&self.snapshots, 1);
        add(&self.staleness_us, staleness_us);
        self.staleness.count(staleness_us);
        if staleness_us > self.staleness_max_us.load(Ordering::Relaxed) {
            self.staleness_max_us.store(staleness_us, Ordering::Relaxed);
        }
    }

    /// Counts a conflict of a transaction that has conflicted so often.
    pub fn aborted(&self, abort: &Abort, attempts: u64) {
        add(&self.aborts[abort.reason as usize], 1);
        self.hot_keys.count(abort);
        self.events.conflict(abort, attempts);
    }

    /// The listener of the worker's events.
    #[inline]
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// A transaction begins on the calling thread. It is noted where somebody listens.
    #[inline]
    pub(crate) fn open(&self) {
        if self.events.is_heard() {
            self.open.begin();
        }
    }

    /// It has ended.
    #[inline]
    pub(crate) fn close(&self) {
        if self.events.is_heard() {
            self.open.end();
        }
    }

    /// Counts a transaction that its procedure, or a refusal, ended.
    #[inline]
    pub fn refused(&self) {
        add(&self.refusals, 1);
    }

    /// Counts a run that found out what its transaction writes.
    #[inline]
    pub fn reconnoitred(&self) {
        add(&self.reconnaissance, 1);
    }

    /// Committed transactions so far.
    #[inline]
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    fn add_to(&self, sum: &mut Statistics) {
        sum.commits += self.commits();
        sum.snapshots += self.snapshots.load(Ordering::Relaxed);
        sum.refusals += self.refusals.load(Ordering::Relaxed);
        sum.reconnaissance += self.reconnaissance.load(Ordering::Relaxed);
        sum.staleness_sum_us += self.staleness_us.load(Ordering::Relaxed);
        sum.staleness_max_us = sum.staleness_max_us.max(self.staleness_max_us.load(Ordering::Relaxed));
        sum.staleness.add(&self.staleness);
        for (total, count) in sum.aborts.iter_mut().zip(&self.aborts) {
            *total += count.load(Ordering::Relaxed);
        }
        self.hot_keys.add_to(&mut sum.hot_keys);
    }
}

/// The counters of all workers of a database, those of gone workers included.
#[derive(Debug, Default)]
pub struct Registry(Arc<Registrations>);

#[derive(Debug, Default)]
struct Registrations {
    workers: Mutex<Vec<Arc<Counters>>>,
    gone: Mutex<Statistics>,
    events: Events,
}

/// A registered worker's counts. They stay in the sum when the worker leaves, by dropping this.
#[derive(Debug)]
pub struct Registered {
    counters: Arc<Counters>,
    registrations: Arc<Registrations>,
}

impl Deref for Registered {
    type Target = Counters;

    #[inline]
    fn deref(&self) -> &Counters {
        &self.counters
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let Registrations { workers, gone, .. } = &*self.registrations;
        let mut workers = workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.retain(|other| !Arc::ptr_eq(other, &self.counters));
        self.counters.add_to(&mut gone.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Registry {
    /// No workers yet. What they do is reported to whoever listens.
    pub fn new(events: Events) -> Self {
        Self(Arc::new(Registrations { events, ..Registrations::default() }))
    }

    /// The listener of events.
    pub fn events(&self) -> &Events {
        &self.0.events
    }

    /// Adds a worker.
    pub fn register(&self) -> Registered {
        let counters = Arc::new(Counters { events: self.0.events.clone(), ..Counters::default() });
        self.0.workers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&counters));
        Registered { counters, registrations: Arc::clone(&self.0) }
    }

    /// Hands over which transactions are open, if somebody listens.
    pub(crate) fn each_open(&self, mut with: impl FnMut(OpenTransaction)) {
        let workers = self.0.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.iter().filter_map(|counters| counters.open.get()).for_each(&mut with);
    }

    /// Committed transactions of all workers. `None` while another thread holds the registry, to sum or to register.
    pub fn try_commits(&self) -> Option<u64> {
        let workers = try_lock(&self.0.workers)?;
        let gone = try_lock(&self.0.gone)?;
        Some(gone.commits + workers.iter().map(|counters| counters.commits()).sum::<u64>())
    }

    /// Forgets what was counted so far. No transaction runs: nobody but who loads a database has it yet.
    pub fn forget(&self) {
        let workers = self.0.workers.lock().unwrap_or_else(PoisonError::into_inner);
        *self.0.gone.lock().unwrap_or_else(PoisonError::into_inner) = Statistics::default();
        workers.iter().for_each(|counters| counters.clear());
    }

    /// The sum over all workers.
    pub fn sum(&self) -> Statistics {
        let workers = self.0.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sum = self.0.gone.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for counters in workers.iter() {
            counters.add_to(&mut sum);
        }
        sum
    }
}

/// Counts of a database since it was opened.
#[derive(Clone, Default)]
pub struct Statistics {
    /// Committed read-write transactions.
    pub commits: u64,
    /// Finished snapshots.
    pub snapshots: u64,
    /// Transactions ended by their procedure or by a refusal.
    pub refusals: u64,
    /// Runs that found out what their transaction writes, and left nothing; no conflicts.
    pub reconnaissance: u64,
    /// Conflicts, by [`Reason`].
    pub aborts: [u64; REASONS],
    /// The keys at which transactions conflicted most often, most often first; [`HotKey::conflicts`] is too small by at most a 33rd of all conflicts.
    pub hot_keys: Vec<HotKey>,
    /// Sum over all snapshots of how old each was when it began, in microseconds.
    pub staleness_sum_us: u64,
    /// The oldest of them, in microseconds.
    pub staleness_max_us: u64,
    /// The sum of their ages, in microseconds.
    pub staleness: Distribution,
    /// Memory, where the protocol uses the engine's.
    pub memory: Option<MemoryStatistics>,
    /// The metrics of this protocol alone, as far as they cost no walk over the tables.
    pub metrics: Vec<Metric>,
}

impl fmt::Debug for Statistics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let aborts: BTreeMap<_, _> = self.aborts_by_reason().collect();
        out.debug_struct("Statistics")
            .field("commits", &self.commits)
            .field("snapshots", &self.snapshots)
            .field("refusals", &self.refusals)
            .field("reconnaissance", &self.reconnaissance)
            .field("aborts", &aborts)
            .field("hot_keys", &self.hot_keys)
            .field("staleness_us", &self.staleness)
            .field("staleness_max_us", &self.staleness_max_us)
            .field("memory", &self.memory)
            .field("metrics", &self.metrics)
            .finish_non_exhaustive()
    }
}

impl Statistics {
    /// All conflicts.
    pub fn conflicts(&self) -> u64 {
        self.aborts.iter().sum()
    }

    /// Conflicts with their reasons' names, those that happened.
    pub fn aborts_by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Reason::ALL.iter().map(|&reason| (reason.name(), self.aborts[reason as usize])).filter(|&(_, count)| count > 0)
    }
}

/// Something that one protocol counts and others do not.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Words in lower case with underscores between them, the unit last.
    pub name: &'static str,
    /// Its value.
    pub value: MetricValue,
}

/// The kind of number in a [`Metric`].
#[derive(Clone, Debug, PartialEq)]
pub enum MetricValue {
    /// A count of events since the database was opened.
    Count(u64),
    /// An average: a sum since the database was opened, and of how many.
    Mean(u64, u64),
    /// Something as it is now, or at most was.
    Level(f64),
    /// A level over time: seconds since the database was opened, and values.
    Course(Vec<(f64, f64)>),
}

impl MetricValue {
    /// The difference to an earlier value of the same metric. A level stays as it is.
    #[must_use]
    pub fn since(&self, before: Option<&Self>) -> Self {
        match (self, before) {
            (Self::Count(now), Some(Self::Count(before))) => Self::Count(now - before),
            (Self::Mean(sum, of), Some(Self::Mean(sum_before, of_before))) => {
                Self::Mean(sum - sum_before, of - of_before)
            }
            _ => self.clone(),
        }
    }
}

/// The numbers of extra versions of records: `records[n]` records have `n` versions besides the newest; the last entry counts
/// all that have as many or more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// Records by number of extra versions.
    pub records: [u64; 8],
}

impl Versions {
    /// Counts a record with `extra` versions besides the newest.
    pub fn count(&mut self, extra: usize) {
        self.records[extra.min(self.records.len() - 1)] += 1;
    }

    /// The cumulative share of records with at most 0, 1, 2, … extra versions.
    pub fn cumulative(&self) -> Vec<f64> {
        let total = self.records.iter().sum::<u64>().max(1) as f64;
        let mut sum = 0;
        self.records
            .iter()
            .map(|count| {
                sum += count;
                sum as f64 / total
            })
            .collect()
    }
}
