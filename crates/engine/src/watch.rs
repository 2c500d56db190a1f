//! Reports what no client would notice by itself: memory that fills up, and transactions that stay open.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::thread::{Thread, current};
use std::time::Duration;

use polychron_base::Error;
use polychron_base::clock::{Clock, SystemClock};
use polychron_memory::MemoryStatistics;
use polychron_sync::atomic::{AtomicU64, Ordering};
use polychron_sync::{Mutex, this_thread};

use crate::background::Background;
use crate::{Event, Events, Protocol};

/// The interval between two looks of the thread.
const INTERVAL: Duration = Duration::from_millis(100);
/// The time for which a transaction must be open to be reported, in nanoseconds.
const LONG_NS: u64 = 1_000_000_000;
/// The mark above the soft one, in percent of the limit.
const HIGH_PERCENT: u8 = 95;
/// The hysteresis of a mark: the use must fall this far below it before passing it is reported again, in percent of the limit.
const BELOW_PERCENT: u8 = 5;

/// The thread that looks, until this is dropped.
#[derive(Debug)]
pub struct Watch(#[expect(dead_code, reason = "its drop ends the thread")] Background);

impl Watch {
    /// Begins to watch a database, if anybody listens.
    ///
    /// # Errors
    /// [`Error::Options`]: the system gives no thread.
    pub fn start<P: Protocol>(database: &Arc<P>, events: &Events) -> Result<Option<Self>, Error> {
        if !events.is_heard() {
            return Ok(None);
        }
        let events = events.clone();
        let seen = Mutex::new(Seen::new(database.memory().soft_percent()));
        let background = Background::start("polychron-watch", INTERVAL, database, move |database| {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.look(database, &events);
        })?;
        Ok(Some(Self(background)))
    }
}

/// The reports.
#[derive(Debug)]
struct Seen {
    marks: [Mark; 2],
    open: Vec<Known>,
    clock: SystemClock,
}

#[derive(Debug)]
struct Mark {
    percent: u8,
    passed: bool,
}

/// A transaction that was open at the last look.
#[derive(Debug)]
struct Known {
    transaction: OpenTransaction,
    since_ns: u64,
    due_ns: u64,
}

impl Seen {
    fn new(soft_percent: u8) -> Self {
        let mark = |percent| Mark { percent, passed: false };
        Self { marks: [mark(soft_percent), mark(HIGH_PERCENT)], open: Vec::new(), clock: SystemClock::new() }
    }

    fn look<P: Protocol>(&mut self, database: &P, events: &Events) {
        if let Some(MemoryStatistics { used_bytes, limit_bytes, .. }) = database.statistics().memory {
            for mark in self.marks.iter_mut().filter_map(|mark| mark.passes(used_bytes, limit_bytes).then_some(mark)) {
                events.report(&Event::Memory { mark_percent: mark.percent, used_bytes, limit_bytes });
            }
        }
        let mut open = Vec::new();
        database.storage().counters().each_open(|transaction| open.push(transaction));
        self.see_open(open, self.clock.now_ns(), |time, thread| events.report(&Event::Open { time, thread }));
    }

    /// Reports those of the open transactions that are due.
    fn see_open(&mut self, open: Vec<OpenTransaction>, now_ns: u64, mut report: impl FnMut(Duration, &Thread)) {
        let was_open = std::mem::take(&mut self.open);
        let mut known: HashMap<_, _> = was_open.into_iter().map(|known| (known.transaction.key(), known)).collect();
        for transaction in open {
            let new = |transaction| Known { transaction, since_ns: now_ns, due_ns: LONG_NS };
            let mut known = known.remove(&transaction.key()).unwrap_or_else(|| new(transaction));
            let time_ns = now_ns - known.since_ns;
            if time_ns >= known.due_ns {
                known.due_ns = 2 * time_ns;
                report(Duration::from_nanos(time_ns), &known.transaction.thread);
            }
            self.open.push(known);
        }
    }
}

/// Whether a worker has a transaction open. The worker writes it, the watching thread reads it.
#[derive(Debug, Default)]
pub(crate) struct OpenState {
    /// Grows by one when a transaction begins and when it ends: odd while one is open.
    changes: AtomicU64,
    /// The thread that began the last one, as a number ([`this_thread`]).
    number: AtomicU64,
    thread: Mutex<Option<Thread>>,
}

/// An open transaction.
#[derive(Debug)]
pub(crate) struct OpenTransaction {
    /// Which worker's: where its state lies.
    worker: usize,
    changes: u64,
    thread: Thread,
}

impl OpenTransaction {
    fn key(&self) -> (usize, u64) {
        (self.worker, self.changes)
    }
}

impl OpenState {
    pub(crate) fn begin(&self) {
        let here = this_thread();
        if self.number.load(Ordering::Relaxed) != here {
            self.number.store(here, Ordering::Relaxed);
            *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(current());
        }
        // Odd whatever was before: a transaction that was leaked did not end. Relaxed: the thread lies behind a lock, and who reads the one
        // of a transaction that has just ended reports nothing of it.
        self.changes.store((self.changes.load(Ordering::Relaxed) + 1) | 1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.changes.store((self.changes.load(Ordering::Relaxed) + 1) & !1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Option<OpenTransaction> {
        let changes = self.changes.load(Ordering::Relaxed);
        if changes.is_multiple_of(2) {
            return None;
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        Some(OpenTransaction { worker: std::ptr::from_ref(self).addr(), changes, thread })
    }
}

impl Mark {
    /// Whether the use has passed the mark just now.
    fn passes(&mut self, used_bytes: usize, limit_bytes: usize) -> bool {
        let at = |percent: u8| limit_bytes / 100 * usize::from(percent);
        let was = self.passed;
        self.passed = used_bytes >= at(if was { self.percent.saturating_sub(BELOW_PERCENT) } else { self.percent });
        self.passed && !was
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_passed_once_until_the_use_has_fallen() {
        let mut mark = Mark { percent: 80, passed: false };
        let passes = [79, 80, 100, 76, 85, 74, 80].map(|percent| mark.passes(percent * 10, 1000));
        assert_eq!(passes, [false, true, false, false, false, false, true]);
    }

    #[test]
    fn a_transaction_is_reported_whenever_its_time_has_doubled() {
        let state = OpenState::default();
        let mut seen = Seen::new(80);
        let mut look = |tenths: u64| {
            let mut reported = None;
            seen.see_open(state.get().into_iter().collect(), tenths * 100_000_000, |time, _| reported = Some(time));
            reported.map(|time| time.as_millis() / 100)
        };
        assert_eq!([0, 20].map(&mut look), [None, None]);
        state.begin();
        assert_eq!([20, 29, 31, 41, 42, 63, 64].map(&mut look), [None, None, Some(11), None, Some(22), None, Some(44)]);
        // Another one, that follows while nobody looks, has a time of its own.
        state.end();
        state.begin();
        assert_eq!([100, 109, 110].map(&mut look), [None, None, Some(10)]);
        // A leaked one has not ended.
        state.begin();
        assert_eq!([110, 119, 120].map(&mut look), [None, None, Some(10)]);
        state.end();
        assert_eq!([130, 190].map(&mut look), [None, None]);
    }
}
