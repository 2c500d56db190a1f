//! Seeded randomness: the same seed gives the same draws on every machine and in every release.

use std::hash::{BuildHasher as _, RandomState};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

use crate::clock::calendar_time;

/// A number that nothing else draws, to tell things apart for good.
pub fn unpredictable() -> u128 {
    let hash = |what: u64| u128::from(RandomState::new().hash_one((calendar_time(), std::process::id(), what)));
    hash(0) << 64 | hash(1)
}

/// A small fast generator (xoshiro256++), not fit for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    generator: Xoshiro256PlusPlus,
}

impl Random {
    /// The generator of a seed.
    #[inline]
    pub fn from_seed(seed: u64) -> Self {
        Self { generator: Xoshiro256PlusPlus::seed_from_u64(seed) }
    }

    /// One of many independent generators of a seed: one a worker, so that what a worker draws does not depend on the others.
    #[inline]
    pub fn stream(seed: u64, stream: u64) -> Self {
        Self::from_seed(scramble(seed ^ scramble(stream.wrapping_add(GOLDEN))))
    }

    /// Any 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.generator.next_u64()
    }

    /// An integer in `0..n`, each equally likely.
    ///
    /// # Panics
    /// When `n` is zero (in builds with debug assertions; otherwise the answer is 0).
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        debug_assert!(n > 0, "there is no integer below zero");
        // Lemire's method: the high half of a product is the draw; the low half tells the rare draws to reject.
        let mut product = u128::from(self.next_u64()) * u128::from(n);
        if (product as u64) < n {
            let threshold = n.wrapping_neg().checked_rem(n).unwrap_or(0);
            while (product as u64) < threshold {
                product = u128::from(self.next_u64()) * u128::from(n);
            }
        }
        (product >> 64) as u64
    }

    /// An integer in `lo..=hi`, each equally likely.
    ///
    /// # Panics
    /// When `lo > hi`.
    #[inline]
    pub fn range_inclusive(&mut self, lo: u64, hi: u64) -> u64 {
        assert!(lo <= hi, "the range is empty");
        match (hi - lo).checked_add(1) {
            Some(width) => lo + self.below(width),
            None => self.next_u64(),
        }
    }

    /// A number in `0.0..1.0` with 53 random bits.
    #[inline]
    pub fn unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Whether an event of the given probability happens this time.
    #[inline]
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit_f64() < probability
    }

    /// Fills a buffer with random bytes.
    #[inline]
    pub fn fill(&mut self, buffer: &mut [u8]) {
        self.generator.fill_bytes(buffer);
    }
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64's finisher: a permutation of the 64-bit integers in which every input bit reaches every output bit.
#[inline]
fn scramble(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// Zipf's distribution over `0..items` after Gray et al. ("Quickly generating billion-record synthetic databases", 1994):
/// item `i` is drawn with a probability close to `1 / ((i + 1)^theta * zeta)`.
///
/// The first two items are exact; the others follow the inverse of the continuous distribution, as in YCSB. Gray's
/// formula has a gap at `theta == 1`, where its limit (an exponential) is used, and holds as it stands above 1.
/// `theta == 0` draws uniformly. Item 0 is the most popular: permute them to spread the popular ones.
#[derive(Clone, Debug)]
pub struct Zipf {
    items: u64,
    theta: f64,
    zeta: f64,
    second: f64,
    eta: f64,
    alpha: f64,
}

impl Zipf {
    /// The distribution over `items` items with skew `theta`. The sum zeta is computed here, once, in microseconds.
    ///
    /// # Panics
    /// When `items` is zero or `theta` is not within `0.0..=1.2`.
    pub fn new(items: u64, theta: f64) -> Self {
        assert!(items > 0, "a distribution needs an item");
        assert!((0.0..=1.2).contains(&theta), "theta lies within 0 and 1.2");
        let zeta = zeta(items, theta);
        let second = 1.0 + 0.5f64.powf(theta);
        let tail = 1.0 - second / zeta;
        let (eta, alpha) = if items <= 2 {
            (0.0, 1.0)
        } else if is_harmonic(theta) {
            // The exponent that takes `2 / items` at the end of the exact part to 1 at the end of the range.
            ((2.0 / items as f64).ln() / tail, 0.0)
        } else {
            ((1.0 - (2.0 / items as f64).powf(1.0 - theta)) / tail, 1.0 / (1.0 - theta))
        };
        Self { items, theta, zeta, second, eta, alpha }
    }

    /// How many items there are.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// An item.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        if self.theta == 0.0 {
            return random.below(self.items);
        }
        let unit = random.unit_f64();
        let scaled = unit * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < self.second {
            return 1;
        }
        let share = if self.alpha == 0.0 {
            (self.eta * (1.0 - unit)).exp()
        } else {
            (self.eta * unit - self.eta + 1.0).powf(self.alpha)
        };
        ((self.items as f64 * share) as u64).min(self.items - 1)
    }
}

/// Gray's formula divides by `1 - theta`; this near to 1 the limit is the better number.
fn is_harmonic(theta: f64) -> bool {
    (theta - 1.0).abs() < 1e-6
}

/// The sum of `i^-theta` for `i` in `1..=items`: the head term by term, the tail by the Euler–Maclaurin formula, whose
/// first left-out term is below 1e-11 here.
fn zeta(items: u64, theta: f64) -> f64 {
    const HEAD: u64 = 1000;
    let head: f64 = (1..=items.min(HEAD)).map(|item| (item as f64).powf(-theta)).sum();
    if items <= HEAD {
        return head;
    }
    let (from, to) = (HEAD as f64, items as f64);
    let integral = if is_harmonic(theta) {
        (to / from).ln()
    } else {
        (to.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta)
    };
    let ends = (to.powf(-theta) - from.powf(-theta)) / 2.0;
    let slopes = theta / 12.0 * (from.powf(-theta - 1.0) - to.powf(-theta - 1.0));
    head + integral + ends + slopes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_fixes_the_draws() {
        let mut first = Random::from_seed(1);
        let mut second = Random::from_seed(1);
        let mut other = Random::from_seed(2);
        let draws: Vec<u64> = (0..10).map(|_| first.next_u64()).collect();
        assert!(draws.iter().all(|draw| *draw == second.next_u64()));
        assert!(draws.iter().any(|draw| *draw != other.next_u64()));
        let (mut left, mut right) = (Random::stream(1, 0), Random::stream(1, 1));
        assert_ne!(left.next_u64(), right.next_u64());
    }

    #[test]
    fn draws_stay_in_their_range() {
        let mut random = Random::from_seed(3);
        let mut seen = [false; 10];
        for _ in 0..1000 {
            seen[random.below(10) as usize] = true;
            assert!((5..=7).contains(&random.range_inclusive(5, 7)));
            assert!((0.0..1.0).contains(&random.unit_f64()));
        }
        assert!(seen.iter().all(|seen| *seen));
        random.range_inclusive(0, u64::MAX);
        assert_eq!(random.below(1), 0);
        let mut buffer = [0; 37];
        random.fill(&mut buffer);
        assert!(buffer.iter().any(|byte| *byte != 0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "sums up more than an interpreter can")]
    fn zeta_equals_the_plain_sum() {
        for theta in [0.0, 0.5, 0.99, 1.0, 1.2] {
            for items in [1u64, 2, 999, 1000, 1001, 50_000] {
                let plain: f64 = (1..=items).map(|item| (item as f64).powf(-theta)).sum();
                assert!((zeta(items, theta) / plain - 1.0).abs() < 1e-9, "{items} items, theta {theta}");
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "sums up more than an interpreter can")]
    fn zipf_draws_have_their_probabilities() {
        const DRAWS: u64 = 100_000;
        const ITEMS: u64 = 1000;
        for theta in [0.0, 0.4, 0.99, 1.0, 1.2] {
            let zipf = Zipf::new(ITEMS, theta);
            let mut random = Random::from_seed(4);
            let mut counts = vec![0u64; ITEMS as usize];
            for _ in 0..DRAWS {
                counts[zipf.draw(&mut random) as usize] += 1;
            }
            let (mut counted, mut wanted) = (0.0, 0.0);
            for (item, count) in counts.iter().enumerate() {
                counted += *count as f64 / DRAWS as f64;
                wanted += ((item + 1) as f64).powf(-theta) / zeta(ITEMS, theta);
                // The continuous part is an approximation; its error is largest just behind the exact items.
                assert!((counted - wanted).abs() < 0.04, "theta {theta}, item {item}: {counted} for {wanted}");
            }
        }
    }

    #[test]
    fn few_items_are_all_drawn() {
        for items in 1..=3 {
            for theta in [0.0, 0.5, 1.0, 1.2] {
                let zipf = Zipf::new(items, theta);
                let mut random = Random::from_seed(5);
                let mut seen = vec![false; items as usize];
                for _ in 0..1000 {
                    seen[zipf.draw(&mut random) as usize] = true;
                }
                assert!(seen.iter().all(|seen| *seen));
            }
        }
    }
}
