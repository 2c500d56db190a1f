//! The processor's time-stamp counter where it can be relied on, the standard library's clock elsewhere.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Reads time in ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counter {
    /// Whether ticks are those of the time-stamp counter; otherwise they are nanoseconds.
    is_tsc: bool,
    /// Nanoseconds of 2^32 ticks.
    scale: u64,
}

/// Bits of [`Counter::scale`] behind the point.
const FRACTION: u32 = 32;

/// How long the time-stamp counter is compared with the clock: a reading is wrong by some 30 ns, which makes 3 millionths.
const CALIBRATION: Duration = Duration::from_millis(10);

/// Readings of which the quickest counts, so that an interruption in the midst of one does not.
const READINGS: usize = 8;

impl Counter {
    /// The counter of this machine. All of a process tick alike: the first one is calibrated.
    pub(super) fn of_this_machine() -> Self {
        static COUNTER: OnceLock<Counter> = OnceLock::new();
        *COUNTER.get_or_init(|| {
            let scale = tsc_is_reliable().then(calibrate).flatten();
            Self { is_tsc: scale.is_some(), scale: scale.unwrap_or(1 << FRACTION) }
        })
    }

    /// Ticks since some beginning of the machine's or the process's.
    #[inline]
    pub(super) fn ticks(self) -> u64 {
        if self.is_tsc { tsc() } else { elapsed_ns() }
    }

    /// Nanoseconds of so many ticks.
    #[inline]
    pub(super) fn nanoseconds(self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.scale)) >> FRACTION) as u64
    }
}

/// Nanoseconds since this was called first.
fn elapsed_ns() -> u64 {
    static BEGINNING: OnceLock<Instant> = OnceLock::new();
    BEGINNING.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// The scale of the time-stamp counter; `None` where it does not move forward as a counter should.
fn calibrate() -> Option<u64> {
    let (first_ticks, first_ns) = read_both();
    let wanted = first_ns + CALIBRATION.as_nanos() as u64;
    let (ticks, ns) = std::iter::repeat_with(read_both).find(|&(_, ns)| ns >= wanted)?;
    let (ticks, ns) = (ticks.checked_sub(first_ticks)?, ns - first_ns);
    let scale = (u128::from(ns) << FRACTION).checked_div(u128::from(ticks))?;
    // A counter that ticks less often than every microsecond, or more than a thousand times a nanosecond, is none.
    u64::try_from(scale).ok().filter(|scale| (1 << (FRACTION - 10)..1 << (FRACTION + 10)).contains(scale))
}

/// Ticks and nanoseconds at one time, as far as both can be read together.
fn read_both() -> (u64, u64) {
    let once = || {
        let before = tsc();
        let ns = elapsed_ns();
        let after = tsc();
        (after.wrapping_sub(before), before.wrapping_add(after.wrapping_sub(before) / 2), ns)
    };
    let (_, ticks, ns) = (0..READINGS).map(|_| once()).min_by_key(|&(took, ..)| took).unwrap_or_else(once);
    (ticks, ns)
}

/// Whether the counter ticks at one rate whatever the processor's own rate and sleep. An interpreter has none.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn tsc_is_reliable() -> bool {
    use std::arch::x86_64::__cpuid;

    const ADVANCED_POWER_MANAGEMENT: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;
    __cpuid(0x8000_0000).eax >= ADVANCED_POWER_MANAGEMENT && __cpuid(ADVANCED_POWER_MANAGEMENT).edx & INVARIANT != 0
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn tsc_is_reliable() -> bool {
    false
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn tsc() -> u64 {
    // SAFETY: the instruction reads a register and touches no memory; every processor of this architecture has it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
fn tsc() -> u64 {
    elapsed_ns()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_nanoseconds() {
        // A counter of 2.5 GHz.
        let counter = Counter { is_tsc: true, scale: (1 << FRACTION) * 2 / 5 };
        assert_eq!([0, 5, 2_500_000_000].map(|ticks| counter.nanoseconds(ticks) / 10), [0, 0, 99_999_999]);
        // Over ten years nothing overflows.
        let years = 2_500_000_000 * 86_400 * 3650;
        assert!(counter.nanoseconds(years) / 1_000_000_000 >= 86_400 * 3650 - 1);
        let nanoseconds = Counter { is_tsc: false, scale: 1 << FRACTION };
        assert_eq!([0, 1, u64::MAX].map(|ticks| nanoseconds.nanoseconds(ticks)), [0, 1, u64::MAX]);
    }
}
