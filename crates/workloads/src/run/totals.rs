//! Sums that clients keep for a workload's checks.

use std::sync::Arc;

use polychron_sync::atomic::{AtomicI64, Ordering};

/// `N` sums over all clients that have ended.
#[derive(Debug)]
pub struct Totals<const N: usize> {
    sums: Arc<[AtomicI64; N]>,
}

/// One client's part, added to the totals when the client is dropped.
#[derive(Debug)]
pub struct Part<const N: usize> {
    sums: [i64; N],
    totals: Arc<[AtomicI64; N]>,
}

impl<const N: usize> Default for Totals<N> {
    fn default() -> Self {
        Self { sums: Arc::new([const { AtomicI64::new(0) }; N]) }
    }
}

impl<const N: usize> Totals<N> {
    /// A client's part.
    pub fn part(&self) -> Part<N> {
        Part { sums: [0; N], totals: Arc::clone(&self.sums) }
    }

    /// One of the sums. The threads of the clients were joined, which orders their additions before this.
    pub fn get(&self, position: usize) -> i64 {
        self.sums[position].load(Ordering::Relaxed)
    }
}

impl<const N: usize> Part<N> {
    /// Adds to one of the sums.
    #[inline]
    pub fn add(&mut self, position: usize, amount: i64) {
        self.sums[position] += amount;
    }
}

impl<const N: usize> Drop for Part<N> {
    fn drop(&mut self) {
        for (total, sum) in self.totals.iter().zip(self.sums) {
            total.fetch_add(sum, Ordering::Relaxed);
        }
    }
}
