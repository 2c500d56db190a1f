//! The time that clocks are made of: the machine's, or that of a model checker or an interpreter, in which nothing passes by itself.
//! There each look takes a while, so that who waits for time sees it pass, and one schedule always has the same times.

#[cfg(not(any(loom, shuttle, miri)))]
use polychron_base::clock::{Clock, SystemClock};
#[cfg(any(test, loom, shuttle, miri))]
use polychron_sync::atomic::{AtomicU64, Ordering};

/// How long a look takes there.
#[cfg(any(test, loom, shuttle, miri))]
const LOOK_NS: u64 = 100;

/// The time since the database was opened.
#[derive(Debug)]
pub(super) struct Time {
    #[cfg(not(any(loom, shuttle, miri)))]
    clock: SystemClock,
    /// What has passed by looks, or because a test says so.
    #[cfg(any(test, loom, shuttle, miri))]
    passed_ns: AtomicU64,
}

impl Time {
    /// Begins now.
    pub(super) fn new() -> Self {
        Self {
            #[cfg(not(any(loom, shuttle, miri)))]
            clock: SystemClock::new(),
            #[cfg(any(test, loom, shuttle, miri))]
            passed_ns: AtomicU64::new(LOOK_NS),
        }
    }

    /// Nanoseconds since then.
    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        // Relaxed: a reading orders nothing.
        #[cfg(any(loom, shuttle, miri))]
        return self.passed_ns.fetch_add(LOOK_NS, Ordering::Relaxed);
        #[cfg(all(test, not(any(loom, shuttle, miri))))]
        return self.clock.now_ns() + self.passed_ns.load(Ordering::Relaxed);
        #[cfg(not(any(test, loom, shuttle, miri)))]
        self.clock.now_ns()
    }

    /// Lets time pass at once.
    #[cfg(test)]
    pub(super) fn pass(&self, ns: u64) {
        self.passed_ns.fetch_add(ns, Ordering::Relaxed);
    }
}
