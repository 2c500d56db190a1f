//! Distributions of numbers, exact to an eighth of their size: counts in buckets that one thread writes and any thread reads.

use std::fmt;

use polychron_sync::atomic::{AtomicU64, Ordering};

/// Buckets for each power of two; numbers below this have a bucket each.
const PARTS: u64 = 8;
/// Enough for numbers below 2³²; larger ones count as the largest of them.
const BUCKETS: usize = PARTS as usize * 30;

/// The bucket of a number.
#[inline]
fn bucket(number: u64) -> usize {
    let number = number.min(u64::from(u32::MAX));
    if number < PARTS {
        return number as usize;
    }
    let power = number.ilog2();
    (PARTS * u64::from(power - 2) + (number >> (power - 3)) % PARTS) as usize
}

/// The largest number of a bucket.
fn largest(bucket: usize) -> u64 {
    let next = bucket as u64 + 1;
    if next < PARTS { next - 1 } else { ((PARTS + next % PARTS) << (next / PARTS - 1)) - 1 }
}

/// A distribution under way.
#[derive(Debug)]
pub struct Counting {
    buckets: Box<[AtomicU64; BUCKETS]>,
}

impl Default for Counting {
    fn default() -> Self {
        Self { buckets: Box::new(std::array::from_fn(|_| AtomicU64::new(0))) }
    }
}

impl Counting {
    /// Counts a number; only one thread may.
    #[inline]
    pub fn count(&self, number: u64) {
        let count = &self.buckets[bucket(number)];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// Threads that count into the same distribution have so many buckets for each number, by their own numbers.
const STRIPES: usize = 8;

/// A distribution under way that any thread may count into.
#[derive(Debug, Default)]
pub struct SharedDistribution {
    stripes: [Counting; STRIPES],
}

impl SharedDistribution {
    /// Counts a number, on the thread with this number: those of different numbers seldom write to the same words.
    #[inline]
    pub fn count(&self, number: u64, thread: usize) {
        self.stripes[thread % STRIPES].buckets[bucket(number)].fetch_add(1, Ordering::Relaxed);
    }

    /// The counts so far.
    pub fn sum(&self) -> Distribution {
        let mut sum = Distribution::default();
        self.stripes.iter().for_each(|stripe| sum.add(stripe));
        sum
    }
}

/// The distribution of some numbers.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Distribution {
    /// Empty, or a count for each bucket.
    counts: Vec<u64>,
}

impl fmt::Debug for Distribution {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("Distribution");
        shown.field("total", &self.total());
        for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999), ("most", 1.0)] {
            if let Some(number) = self.quantile(share) {
                shown.field(name, &number);
            }
        }
        shown.finish()
    }
}

impl Distribution {
    /// Adds what a thread has counted so far.
    pub fn add(&mut self, counting: &Counting) {
        self.counts.resize(BUCKETS, 0);
        for (sum, count) in self.counts.iter_mut().zip(counting.buckets.iter()) {
            *sum += count.load(Ordering::Relaxed);
        }
    }

    /// The difference to an earlier state of the same distribution.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let earlier = before.counts.iter().copied().chain(std::iter::repeat(0));
        Self { counts: self.counts.iter().zip(earlier).map(|(now, before)| now - before).collect() }
    }

    /// How many numbers do not exceed a power of two less one.
    pub fn below_power(&self, power: u32) -> u64 {
        let numbers = self.counts.iter().enumerate();
        numbers.take_while(|(at, _)| largest(*at) < 1 << power).map(|(_, count)| count).sum()
    }

    /// The number of recorded numbers.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// A number that at least this share of all numbers does not exceed, at most an eighth too large; `None` of none.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let total = self.total();
        let wanted = ((total as f64 * share).ceil() as u64).clamp(1, total.max(1));
        let mut sum = 0;
        let reaches = |count: &u64| {
            sum += count;
            sum >= wanted
        };
        self.counts.iter().position(reaches).map(largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_no_wider_than_an_eighth() {
        for number in (0..5000).chain((10..33).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1])) {
            let top = largest(bucket(number));
            let number = number.min(u64::from(u32::MAX));
            assert!(number <= top && top <= number + number / 8, "{number} {top}");
            assert_eq!(bucket(top), bucket(number));
            assert_eq!(bucket((top + 1).min(u64::from(u32::MAX))), (bucket(number) + 1).min(BUCKETS - 1));
        }
    }

    #[test]
    fn quantiles_are_of_what_came_since() {
        let counting = Counting::default();
        let (mut before, mut after) = (Distribution::default(), Distribution::default());
        assert_eq!(before.quantile(0.5), None);
        (0..100).for_each(|_| counting.count(7));
        before.add(&counting);
        assert_eq!((before.quantile(0.0), before.quantile(1.0)), (Some(7), Some(7)));
        (1..=1000).for_each(|number| counting.count(number));
        after.add(&counting);
        let since = after.since(&before);
        for share in [0.001, 0.5, 0.999, 1.0] {
            let (exact, found) = ((1000.0 * share) as u64, since.quantile(share).unwrap());
            assert!(exact <= found && found <= exact + exact / 8, "{share}: {found}");
        }
        assert_eq!(after.since(&after).quantile(0.5), None);
        assert_eq!(before.since(&Distribution::default()), before);
    }
}
