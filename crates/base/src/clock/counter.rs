//! The time-stamp counter of the processor, which is read in a few nanoseconds.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Bits of a fixed-point number behind its point.
const FRACTION: u32 = 32;
/// The time over which the counter is compared with the system's clock: long beside the uncertainty of both ends, which is some 50 ns.
const CALIBRATION: Duration = Duration::from_millis(5);
/// Comparisons at each end. The narrowest one counts: in the others the thread may have lost its processor.
const COMPARISONS: usize = 64;

/// A calibrated counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counter {
    /// Nanoseconds a tick, in fixed point.
    tick_ns: u64,
}

impl Counter {
    /// The counter of this machine, if it runs at one rate on all processors. The first call of a process calibrates it.
    pub(super) fn get() -> Option<Self> {
        static CALIBRATED: OnceLock<Option<Counter>> = OnceLock::new();
        *CALIBRATED.get_or_init(Self::calibrate)
    }

    fn calibrate() -> Option<Self> {
        if !is_steady() {
            return None;
        }
        let begin = Comparison::narrowest();
        std::thread::sleep(CALIBRATION);
        Self::between(begin, Comparison::narrowest())
    }

    fn between(begin: Comparison, end: Comparison) -> Option<Self> {
        let ns = end.time.duration_since(begin.time).as_nanos();
        let ticks = end.ticks.checked_sub(begin.ticks).filter(|&ticks| ticks > 0)?;
        let tick_ns = u64::try_from((ns << FRACTION) / u128::from(ticks)).ok().filter(|&tick_ns| tick_ns > 0)?;
        Some(Self { tick_ns })
    }

    /// The counter now.
    #[inline]
    pub(super) fn ticks() -> u64 {
        read()
    }

    /// Nanoseconds since the counter had this value. Processors may differ by a few ticks, so the difference may be below zero, which counts as zero.
    #[inline]
    pub(super) fn ns_since(self, start: u64) -> u64 {
        let ticks = read().saturating_sub(start);
        ((u128::from(ticks) * u128::from(self.tick_ns)) >> FRACTION) as u64
    }
}

/// The counter and the system's clock at one time.
#[derive(Clone, Copy, Debug)]
struct Comparison {
    ticks: u64,
    time: Instant,
}

impl Comparison {
    fn narrowest() -> Self {
        let of_all = (0..COMPARISONS).map(|_| {
            let before = read();
            let time = Instant::now();
            let ticks = read().saturating_sub(before);
            (ticks, Self { ticks: before + ticks / 2, time })
        });
        of_all.min_by_key(|(width, _)| *width).expect("there are some").1
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn read() -> u64 {
    // SAFETY: every processor of this architecture has the instruction, which reads a register.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Whether the counter goes on at one rate, whatever the processors do.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn is_steady() -> bool {
    /// Asks for the last question of this kind that the processor answers.
    const LAST: u32 = 0x8000_0000;
    /// Asks for what the processor has to do with power and time.
    const POWER: u32 = 0x8000_0007;
    /// The answer that the counter is invariant.
    const INVARIANT: u32 = 1 << 8;
    let asked = std::arch::x86_64::__cpuid;
    asked(LAST).eax >= POWER && asked(POWER).edx & INVARIANT != 0
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
fn read() -> u64 {
    0
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
fn is_steady() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(ticks: u64, time: Instant) -> Comparison {
        Comparison { ticks, time }
    }

    #[test]
    fn the_rate_is_that_between_two_comparisons() {
        let (begin, end) = (Instant::now(), Duration::from_millis(5));
        let counter = Counter::between(comparison(1000, begin), comparison(15_001_000, begin + end));
        let counter = counter.expect("the counter went on");
        let ns = (u128::from(15_000_000_000_u64) * u128::from(counter.tick_ns)) >> FRACTION;
        assert!((4_999_990_000..=5_000_000_000).contains(&ns), "{ns} ns");
    }

    #[test]
    fn a_counter_that_stands_or_goes_back_is_no_clock() {
        let (begin, end) = (Instant::now(), Duration::from_millis(5));
        assert!(Counter::between(comparison(1000, begin), comparison(1000, begin + end)).is_none());
        assert!(Counter::between(comparison(1000, begin), comparison(999, begin + end)).is_none());
        assert!(Counter::between(comparison(1000, begin), comparison(2000, begin)).is_none());
    }
}
