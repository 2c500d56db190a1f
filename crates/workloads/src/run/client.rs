//! The loop of one thread in a run.

use std::time::Duration;

use hdrhistogram::Histogram;
use polychron_base::Error;
use polychron_base::clock::{Clock, SystemClock};
use polychron_engine::{Isolation, Mode};
use polychron_sync::CachePadded;
use polychron_sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use super::Settings;
use super::slots::Slot;
use crate::{Client, Transact};

/// The most kinds of transactions a workload has.
pub(super) const MAX_KINDS: usize = 16;

/// Of the transactions of a kind one in so many is timed, the first among them: reading the clock twice takes some 25 ns, which
/// small transactions would feel.
const TIMED_EVERY: u64 = 8;

/// Latencies above this count as this.
const LONGEST_NS: u64 = 1_000_000_000_000;

/// The phase of a run. Threads read it between transactions.
#[derive(Debug, Default)]
pub(super) struct Phase(AtomicU8);

impl Phase {
    pub(super) const WARMUP: u8 = 0;
    pub(super) const MEASURED: u8 = 1;
    pub(super) const OVER: u8 = 2;

    /// Relaxed: the phase orders nothing, and everything counted is read again after the threads are joined.
    pub(super) fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, phase: u8) {
        self.0.store(phase, Ordering::Relaxed);
    }
}

/// A thread's counts: written by it alone, read by the thread that reports.
#[derive(Debug, Default)]
pub(super) struct Tally {
    completed: [AtomicU64; MAX_KINDS],
    rolled_back: AtomicU64,
    has_drawn: AtomicBool,
}

/// The counts of all threads at one time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) completed: [u64; MAX_KINDS],
    pub(super) rolled_back: u64,
}

impl Counts {
    pub(super) fn of(tallies: &[CachePadded<Tally>]) -> Self {
        let mut counts = Self::default();
        for tally in tallies {
            counts.rolled_back += tally.rolled_back.load(Ordering::Relaxed);
            for (sum, count) in counts.completed.iter_mut().zip(&tally.completed) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        counts
    }

    pub(super) fn total(&self) -> u64 {
        self.completed.iter().sum()
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            completed: std::array::from_fn(|kind| self.completed[kind] - before.completed[kind]),
            rolled_back: self.rolled_back - before.rolled_back,
        }
    }
}

impl Tally {
    /// Transactions of all kinds that were completed.
    pub(super) fn total(&self) -> u64 {
        self.completed.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Whether the thread has drawn what it executes, if it draws that beforehand.
    pub(super) fn has_drawn(&self) -> bool {
        self.has_drawn.load(Ordering::Relaxed)
    }

    fn set_drawn(&self) {
        self.has_drawn.store(true, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn complete_one(&self) {
        Self::add(&self.completed[0]);
    }

    #[inline]
    fn add(counter: &AtomicU64) {
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// A transaction that stopped the run.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: usize,
    pub(super) error: Error,
}

/// Times some of the transactions of each kind, from when they are handed over.
pub(super) struct Timer {
    pub(super) clock: SystemClock,
    pub(super) latencies: Vec<Histogram<u64>>,
    /// For each kind, the number of transactions to skip before the next is timed.
    left: [u64; MAX_KINDS],
}

impl Timer {
    fn new(kinds: usize) -> Self {
        let empty = Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("the bounds are constants that fit");
        Self { clock: SystemClock::new(), latencies: vec![empty; kinds], left: [0; MAX_KINDS] }
    }

    pub(super) fn reset(&mut self) {
        self.latencies.iter_mut().for_each(Histogram::reset);
        self.left = [0; MAX_KINDS];
    }

    /// Whether this transaction is to be timed.
    #[inline]
    pub(super) fn is_due(&mut self, kind: usize) -> bool {
        let left = &mut self.left[kind];
        *left = if *left == 0 { TIMED_EVERY } else { *left } - 1;
        *left == TIMED_EVERY - 1
    }

    #[inline]
    pub(super) fn record(&mut self, kind: usize, begun_ns: u64) {
        self.latencies[kind].saturating_record(self.clock.now_ns() - begun_ns);
    }
}

/// Lets a thread execute so many transactions a second and no more.
struct Pace {
    clock: SystemClock,
    interval_ns: f64,
    /// The number of transactions that were begun.
    begun: u64,
}

impl Pace {
    /// The longest sleep of a thread, short enough that the end of a run does not wait for it.
    const NAP: Duration = Duration::from_millis(50);

    /// The pace of one thread, if there is a bound.
    fn of(settings: &Settings) -> Option<Self> {
        let interval_ns = settings.threads as f64 * 1e9 / settings.rate;
        (settings.rate > 0.0).then(|| Self { clock: SystemClock::new(), interval_ns, begun: 0 })
    }

    /// Waits until `count` more are due, or briefly. A thread that is late does not make up for more than that time.
    fn wait(&mut self, count: u64) {
        let due_ns = self.begun as f64 * self.interval_ns;
        let now_ns = self.clock.now_ns() as f64;
        let early_ns = due_ns - now_ns;
        if early_ns > 0.0 {
            std::thread::sleep(Self::NAP.min(Duration::from_nanos(early_ns as u64)));
        } else if -early_ns > Self::NAP.as_nanos() as f64 {
            self.begun = (now_ns / self.interval_ns) as u64;
        }
        self.begun += count;
    }
}

/// One thread's loop and what it gathers.
pub(super) struct Loop<'r, C: Client> {
    pub(super) client: C,
    pub(super) tally: &'r Tally,
    pub(super) phase: &'r Phase,
    pub(super) timer: Timer,
    batch: Vec<C::Procedure>,
    kinds: Vec<usize>,
    batch_size: usize,
    pregenerate: usize,
    pace: Option<Pace>,
    pub(super) under_way: usize,
    pub(super) isolation: Isolation,
}

impl<'r, C: Client> Loop<'r, C> {
    pub(super) fn new(
        client: C,
        kinds: usize,
        (tally, phase): (&'r Tally, &'r Phase),
        settings: &Settings,
        isolation: Isolation,
    ) -> Self {
        if settings.pregenerate == 0 || settings.submit > 0 {
            tally.set_drawn();
        }
        Self {
            client,
            tally,
            phase,
            isolation,
            timer: Timer::new(kinds),
            batch: Vec::with_capacity(settings.batch),
            kinds: Vec::with_capacity(settings.batch),
            batch_size: settings.batch,
            pregenerate: settings.pregenerate,
            pace: Pace::of(settings),
            under_way: settings.submit,
        }
    }

    /// Executes transactions until the run is over, and returns the latencies of the measured interval by kind.
    pub(super) fn run(mut self, worker: &mut dyn Slot<C::Procedure>) -> Result<Vec<Histogram<u64>>, Failure> {
        let is_over = || self.phase.get() == Phase::OVER;
        let mut drawn: Vec<C::Procedure> =
            (0..self.pregenerate).map_while(|_| (!is_over()).then(|| self.client.next())).collect();
        self.tally.set_drawn();
        let (mut position, mut is_first_round) = (0, true);
        let mut phase = Phase::WARMUP;
        loop {
            let now = self.phase.get();
            if now == Phase::OVER {
                return Ok(self.timer.latencies);
            }
            if now != phase {
                self.timer.reset();
                phase = now;
            }
            if let Some(pace) = &mut self.pace {
                pace.wait(self.batch_size as u64);
            }
            if !drawn.is_empty() {
                // The drawn transactions are gone through again and again.
                let end = (position + self.batch_size).min(drawn.len());
                let batch = &mut drawn[position..end];
                if !is_first_round {
                    batch.iter_mut().for_each(|procedure| self.client.again(procedure));
                }
                self.execute(worker, batch)?;
                position = end % drawn.len();
                is_first_round &= position > 0;
            } else if self.batch_size == 1 {
                let mut procedure = self.client.next();
                self.execute(worker, std::slice::from_mut(&mut procedure))?;
            } else {
                let mut batch = std::mem::take(&mut self.batch);
                batch.clear();
                batch.extend((0..self.batch_size).map(|_| self.client.next()));
                let executed = self.execute(worker, &mut batch);
                self.batch = batch;
                executed?;
            }
        }
    }

    #[inline]
    fn execute(&mut self, worker: &mut dyn Slot<C::Procedure>, procedures: &mut [C::Procedure]) -> Result<(), Failure> {
        match procedures {
            [single] => {
                let begun_ns = if self.timer.is_due(single.kind()) { Some(self.timer.clock.now_ns()) } else { None };
                self.execute_single(worker, single, begun_ns)
            }
            several => {
                // All are handed over now, those too that wait until the others are done.
                let begun_ns = self.timer.clock.now_ns();
                let writing = partition(several);
                let (writers, readers) = several.split_at_mut(writing);
                self.execute_batch(worker, writers, begun_ns)?;
                readers.iter_mut().try_for_each(|reader| {
                    let is_due = self.timer.is_due(reader.kind());
                    self.execute_single(worker, reader, is_due.then_some(begun_ns))
                })
            }
        }
    }

    #[inline]
    pub(super) fn execute_single(
        &mut self,
        worker: &mut dyn Slot<C::Procedure>,
        procedure: &mut C::Procedure,
        begun_ns: Option<u64>,
    ) -> Result<(), Failure> {
        let kind = procedure.kind();
        let outcome = worker.execute(procedure);
        if let Some(begun_ns) = begun_ns {
            self.timer.record(kind, begun_ns);
        }
        count(self.tally, kind, outcome, self.isolation)?;
        self.client.finished(procedure);
        Ok(())
    }

    fn execute_batch(
        &mut self,
        worker: &mut dyn Slot<C::Procedure>,
        procedures: &mut [C::Procedure],
        begun_ns: u64,
    ) -> Result<(), Failure> {
        self.kinds.clear();
        self.kinds.extend(procedures.iter().map(Transact::kind));
        let mut failure = None;
        let &mut Self { isolation, tally, ref kinds, ref mut timer, .. } = self;
        worker.execute_batch(procedures, &mut |position, outcome| {
            if timer.is_due(kinds[position]) {
                timer.record(kinds[position], begun_ns);
            }
            if let Err(failed) = count(tally, kinds[position], outcome, isolation) {
                failure.get_or_insert(failed);
            }
        });
        match failure {
            Some(failure) => Err(failure),
            None => {
                procedures.iter().for_each(|procedure| self.client.finished(procedure));
                Ok(())
            }
        }
    }
}

/// Counts a completed transaction; hands a failure back.
#[inline]
pub(super) fn count(
    tally: &Tally,
    kind: usize,
    outcome: Result<(), Error>,
    isolation: Isolation,
) -> Result<(), Failure> {
    match outcome {
        Ok(()) => {}
        Err(Error::RolledBack) => Tally::add(&tally.rolled_back),
        // Without isolation procedures meet what they rule out, such as keys that were drawn twice.
        Err(Error::Duplicate { .. } | Error::Other(_)) if isolation == Isolation::Nothing => {
            Tally::add(&tally.rolled_back);
        }
        Err(error) => return Err(Failure { kind, error }),
    }
    Tally::add(&tally.completed[kind]);
    Ok(())
}

/// Moves the procedures that write before those that want a snapshot, and tells how many write.
fn partition<P: Transact>(procedures: &mut [P]) -> usize {
    let mut writing = 0;
    for position in 0..procedures.len() {
        if procedures[position].mode() == Mode::ReadWrite {
            procedures.swap(writing, position);
            writing += 1;
        }
    }
    writing
}
