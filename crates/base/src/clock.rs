//! Clocks: the only door to the passing of time, so that tests can hold it still.

use std::sync::{Mutex, PoisonError};

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

/// The machine's clock: one read of the processor's time-stamp counter where that is reliable.
///
/// The first clock of a process calibrates the counter, which takes some milliseconds.
#[derive(Clone, Debug)]
pub struct SystemClock {
    clock: quanta::Clock,
    start: u64,
}

impl SystemClock {
    /// A clock that begins now.
    pub fn new() -> Self {
        // An interpreter has no time-stamp counter; its clock moves with the steps it takes.
        let clock = if cfg!(miri) { quanta::Clock::mock().0 } else { quanta::Clock::new() };
        let start = clock.raw();
        Self { clock, start }
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
        self.clock.delta_as_nanos(self.start, self.clock.raw())
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
