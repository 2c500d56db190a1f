//! Clocks: the only door to the passing of time, so that tests can hold it still.

mod counter;

use std::sync::{Mutex, PoisonError};

use counter::Counter;

pub use std::time::{Duration, SystemTime};

/// The time of the day by the machine's calendar clock, which may be set back; for what is stored, not for measuring.
pub fn calendar_time() -> SystemTime {
    SystemTime::now()
}

/// Measures the time since a fixed point.
pub trait Clock: Send + Sync {
    /// Nanoseconds since the clock's own beginning; never goes back.
    fn now_ns(&self) -> u64;
}

/// The machine's clock: one read of the processor's time-stamp counter where that is reliable.
///
/// The first clock of a process calibrates the counter, which takes some milliseconds.
#[derive(Clone, Debug)]
pub struct SystemClock {
    counter: Counter,
    start: u64,
}

impl SystemClock {
    /// A clock that begins now.
    pub fn new() -> Self {
        let counter = Counter::of_this_machine();
        Self { counter, start: counter.ticks() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        // Another processor's counter may be some ticks behind the one that was read first.
        self.counter.nanoseconds(self.counter.ticks().saturating_sub(self.start))
    }
}

/// A clock that moves only when it is told to.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ns: Mutex<u64>,
}

impl ManualClock {
    /// A clock that stands at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock forward.
    pub fn advance_ns(&self, by_ns: u64) {
        *self.now_ns.lock().unwrap_or_else(PoisonError::into_inner) += by_ns;
    }
}

impl Clock for ManualClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        *self.now_ns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_clock_moves_only_when_set() {
        let clock = ManualClock::new();
        assert_eq!(clock.now_ns(), 0);
        clock.advance_ns(5);
        clock.advance_ns(7);
        assert_eq!(clock.now_ns(), 12);
    }

    /// The shorter interval lies within the longer one, so that a pause between two readings changes nothing.
    #[test]
    #[cfg_attr(miri, ignore = "an interpreter's time is its own")]
    fn the_system_clock_goes_as_fast_as_the_standard_librarys() {
        let clock = SystemClock::new();
        let sleep = || std::thread::sleep(Duration::from_millis(20));
        let (outer, inner) = (clock.now_ns(), std::time::Instant::now());
        sleep();
        let inner = inner.elapsed().as_nanos() as f64;
        let outer = (clock.now_ns() - outer) as f64;
        assert!(outer >= inner * 0.999, "{outer} ns are less than {inner} ns");
        let (outer, inner) = (std::time::Instant::now(), clock.now_ns());
        sleep();
        let inner = (clock.now_ns() - inner) as f64;
        let outer = outer.elapsed().as_nanos() as f64;
        assert!(inner <= outer * 1.001, "{inner} ns are more than {outer} ns");
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads the time-stamp counter")]
    fn the_system_clock_never_goes_back() {
        let clock = SystemClock::new();
        let mut last = clock.now_ns();
        for _ in 0..1000 {
            let now = clock.now_ns();
            assert!(now >= last);
            last = now;
        }
    }
}
