//! What one thread does in a run.

use std::hint::black_box;

use hdrhistogram::Histogram;
use polychron_base::Error;
use polychron_base::clock::{Clock, SystemClock};
use polychron_engine::{Isolation, Mode, Worker};
use polychron_sync::CachePadded;
use polychron_sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::Settings;
use crate::{Client, Transact};

/// The most kinds of transactions a workload has.
pub(super) const MAX_KINDS: usize = 16;

/// Every so many transactions one is timed: reading the clock twice takes some 25 ns, which small transactions would feel.
const TIMED_EVERY: u64 = 8;

/// Latencies above this count as this.
const LONGEST_NS: u64 = 1_000_000_000_000;

/// Where a run stands. Threads look at it between transactions.
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
}

/// The counts of all threads at one moment.
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

/// One thread's loop and what it gathers.
pub(super) struct Loop<'r, C: Client> {
    client: C,
    tally: &'r Tally,
    phase: &'r Phase,
    clock: SystemClock,
    latencies: Histogram<u64>,
    batch: Vec<C::Procedure>,
    kinds: Vec<usize>,
    batch_size: usize,
    pregenerate: usize,
    since_timed: u64,
    isolation: Isolation,
}

impl<'r, C: Client> Loop<'r, C> {
    pub(super) fn new(
        client: C,
        tally: &'r Tally,
        phase: &'r Phase,
        settings: &Settings,
        isolation: Isolation,
    ) -> Self {
        let latencies = Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("the bounds are constants that fit");
        Self {
            client,
            tally,
            phase,
            isolation,
            clock: SystemClock::new(),
            latencies,
            batch: Vec::with_capacity(settings.batch),
            kinds: Vec::with_capacity(settings.batch),
            batch_size: settings.batch,
            pregenerate: settings.pregenerate,
            since_timed: 0,
        }
    }

    /// Executes transactions until the run is over, and returns the latencies of the measured interval.
    pub(super) fn run<W: Worker>(mut self, worker: &mut W) -> Result<Histogram<u64>, Failure> {
        let mut drawn: Vec<C::Procedure> = (0..self.pregenerate).map(|_| self.client.next()).collect();
        let mut position = 0;
        let mut phase = Phase::WARMUP;
        loop {
            let now = self.phase.get();
            if now == Phase::OVER {
                return Ok(self.latencies);
            }
            if now != phase {
                self.latencies.reset();
                phase = now;
            }
            if !drawn.is_empty() {
                // The drawn transactions are gone through again and again.
                let end = (position + self.batch_size).min(drawn.len());
                self.execute(worker, &mut drawn[position..end])?;
                position = end % drawn.len();
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
    fn execute<W: Worker>(&mut self, worker: &mut W, procedures: &mut [C::Procedure]) -> Result<(), Failure> {
        match procedures {
            [single] => self.execute_single(worker, single),
            several => {
                let writing = partition(several);
                let (writers, readers) = several.split_at_mut(writing);
                self.execute_batch(worker, writers)?;
                readers.iter_mut().try_for_each(|reader| self.execute_single(worker, reader))
            }
        }
    }

    #[inline]
    fn execute_single<W: Worker>(&mut self, worker: &mut W, procedure: &mut C::Procedure) -> Result<(), Failure> {
        self.since_timed += 1;
        let timed = self.since_timed >= TIMED_EVERY;
        let begun = if timed { self.clock.now_ns() } else { 0 };
        let outcome = match procedure.mode() {
            Mode::ReadWrite => worker.execute(procedure),
            Mode::Snapshot => worker.snapshot(procedure),
        };
        if timed {
            self.since_timed = 0;
            self.latencies.saturating_record(self.clock.now_ns() - begun);
        }
        count(self.tally, procedure.kind(), outcome, self.isolation)?;
        self.client.finished(procedure);
        Ok(())
    }

    fn execute_batch<W: Worker>(&mut self, worker: &mut W, procedures: &mut [C::Procedure]) -> Result<(), Failure> {
        self.kinds.clear();
        self.kinds.extend(procedures.iter().map(Transact::kind));
        let begun = self.clock.now_ns();
        let mut failure = None;
        let &mut Self { isolation, tally, ref clock, ref kinds, ref mut latencies, ref mut since_timed, .. } = self;
        worker.execute_batch(procedures, &mut |position, outcome| {
            *since_timed += 1;
            if *since_timed >= TIMED_EVERY {
                *since_timed = 0;
                latencies.saturating_record(clock.now_ns() - begun);
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
fn count<O>(tally: &Tally, kind: usize, outcome: Result<O, Error>, isolation: Isolation) -> Result<(), Failure> {
    match outcome {
        // The answer counts as used, so that the compiler keeps the work that made it.
        Ok(output) => drop(black_box(output)),
        Err(Error::RolledBack) => Tally::add(&tally.rolled_back),
        // Without isolation procedures meet what they rule out, such as keys that were drawn twice.
        Err(Error::Duplicate { .. } | Error::Procedure(_)) if isolation == Isolation::Nothing => {
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
