//! The one constant by which tests shrink under slow tools.

use std::time::Duration;

/// By what the sizes of tests are divided: 1 in an ordinary build, more where each step is interpreted (Miri), modelled
/// (loom, shuttle) or instrumented (`--cfg polychron_slow`: sanitizers).
pub const SHRINK: usize = if cfg!(any(miri, loom, shuttle)) {
    200
} else if cfg!(polychron_slow) {
    20
} else {
    1
};

/// The size of a test (keys, rounds, rows) under the tool at hand: `size` divided by [`SHRINK`], but at least `least`.
pub const fn scaled(size: usize, least: usize) -> usize {
    let shrunk = size / SHRINK;
    if shrunk < least { least } else { shrunk }
}

/// An interval at which something goes on beside a test: as much longer as sizes are smaller, so that a thread which a slow tool
/// always finds late does not take all of its time.
pub const fn slowed(interval: Duration) -> Duration {
    interval.saturating_mul(SHRINK as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_shrink_to_the_least_and_no_further() {
        assert_eq!(scaled(1_000_000, 1), 1_000_000 / SHRINK);
        assert_eq!(scaled(7, 9), 9);
        assert_eq!(slowed(Duration::from_millis(2)).as_millis(), 2 * SHRINK as u128);
    }
}
