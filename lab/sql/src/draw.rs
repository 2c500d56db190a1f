//! What a seed draws.

use polychron_base::random::Random;

/// A generator of a seed, with what drawing statements needs.
#[derive(Debug)]
pub struct Draw {
    random: Random,
}

impl Draw {
    /// The generator of a seed.
    pub fn of(seed: u64) -> Self {
        Self { random: Random::from_seed(seed) }
    }

    /// An integer in `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.random.below(n as u64) as usize
    }

    /// An integer in `lo..=hi`.
    pub fn within(&mut self, lo: usize, hi: usize) -> usize {
        lo + self.below(hi - lo + 1)
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of them.
    pub fn one<'i, T>(&mut self, of: &'i [T]) -> &'i T {
        &of[self.below(of.len())]
    }

    /// One of these texts.
    pub fn word(&mut self, of: &[&'static str]) -> &'static str {
        of[self.below(of.len())]
    }

    /// So many of them at the most, each once, in a drawn order.
    pub fn some<T: Clone>(&mut self, of: &[T], count: usize) -> Vec<T> {
        let mut left = of.to_vec();
        (0..count.min(of.len())).map(|_| left.swap_remove(self.below(left.len()))).collect()
    }
}
