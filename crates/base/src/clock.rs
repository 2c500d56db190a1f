//! Clocks: the only door to the passing of time, so that tests can hold it still.

mod counter;

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use counter::Counter;

pub use std::time::{Duration, SystemTime};

/// The time of the day by the machine's calendar clock, which may be set back; for what is stored, not for measuring.
pub fn calendar_time() -> SystemTime {
    SystemTime::now()
}

fn machine_ns() -> u64 {
    calendar_time().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// Measures the time since a fixed point.
pub trait Clock: Send + Sync {
    /// Nanoseconds since the clock's own beginning; never goes back.
    fn now_ns(&self) -> u64;

    /// Nanoseconds since 1970 by the calendar clock, which may be set back; for what is stored, not for measuring.
    fn calendar_ns(&self) -> u64 {
        machine_ns()
    }
}

/// The machine's clock: one read of the processor's time-stamp counter where that is reliable, and else of the system's monotonic clock.
///
/// The first clock of a process calibrates the counter, which takes some milliseconds.
#[derive(Clone, Debug)]
pub struct SystemClock(Source);

#[derive(Clone, Debug)]
enum Source {
    /// The counter, and its value when the clock began.
    Counter(Counter, u64),
    /// The system's clock, when this one began.
    System(Instant),
}

impl SystemClock {
    /// A clock that begins now.
    pub fn new() -> Self {
        Self(match Counter::get() {
            Some(counter) => Source::Counter(counter, Counter::ticks()),
            None => Source::System(Instant::now()),
        })
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
        match self.0 {
            Source::Counter(counter, start) => counter.ns_since(start),
            Source::System(start) => start.elapsed().as_nanos() as u64,
        }
    }
}

/// A clock that moves only when it is told to. Its calendar is the machine's until it is set.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ns: Mutex<u64>,
    calendar_ns: Mutex<Option<u64>>,
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

    /// Sets the calendar, forward or back.
    pub fn set_calendar_ns(&self, to_ns: u64) {
        *self.calendar_ns.lock().unwrap_or_else(PoisonError::into_inner) = Some(to_ns);
    }
}

impl Clock for ManualClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        *self.now_ns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn calendar_ns(&self) -> u64 {
        let set = *self.calendar_ns.lock().unwrap_or_else(PoisonError::into_inner);
        set.unwrap_or_else(machine_ns)
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

    #[test]
    fn the_system_clock_keeps_pace_with_the_system() {
        let clocks = [SystemClock::new(), SystemClock(Source::System(Instant::now()))];
        for clock in clocks {
            let (outer, begin_ns, inner) = (Instant::now(), clock.now_ns(), Instant::now());
            std::thread::sleep(Duration::from_millis(20));
            let (least, end_ns, most) = (inner.elapsed(), clock.now_ns(), outer.elapsed());
            // A thousandth is far more than the error of the calibration, and far less than a wrong rate.
            let bounds = least.mul_f64(0.999)..=most.mul_f64(1.001);
            let passed = Duration::from_nanos(end_ns - begin_ns);
            assert!(bounds.contains(&passed), "{passed:?} is not in {bounds:?}: {clock:?}");
        }
    }

    #[test]
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
