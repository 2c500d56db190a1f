//! The time that clocks are made of: the machine's, or that of a model checker or an interpreter, in which nothing passes by itself.
//! There each look takes a while, so that who waits for time sees it pass, and one schedule always has the same times.

#[cfg(not(any(loom, shuttle, miri)))]
use polychron_base::clock::{Clock, SystemClock};
#[cfg(any(loom, shuttle, miri))]
use polychron_sync::atomic::{AtomicU64, Ordering};

/// How long a look takes there.
#[cfg(any(loom, shuttle, miri))]
const LOOK_NS: u64 = 100;

/// The time since the database was opened.
#[derive(Debug)]
pub(super) struct Time(#[cfg(not(any(loom, shuttle, miri)))] SystemClock, #[cfg(any(loom, shuttle, miri))] AtomicU64);

impl Time {
    /// Begins now.
    pub(super) fn new() -> Self {
        #[cfg(not(any(loom, shuttle, miri)))]
        return Self(SystemClock::new());
        #[cfg(any(loom, shuttle, miri))]
        Self(AtomicU64::new(LOOK_NS))
    }

    /// Nanoseconds since then.
    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        #[cfg(not(any(loom, shuttle, miri)))]
        return self.0.now_ns();
        #[cfg(any(loom, shuttle, miri))]
        // Relaxed: a reading orders nothing.
        self.0.fetch_add(LOOK_NS, Ordering::Relaxed)
    }
}
