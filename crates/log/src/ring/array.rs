//! The memory of rings, which counts against a limit.

use std::sync::Arc;

use polychron_sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How much memory rings may take together, and take.
pub(crate) struct Budget {
    used: AtomicUsize,
    limit: usize,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Self {
        Self { used: AtomicUsize::new(0), limit }
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes so many bytes, unless the limit does not leave as much; the error is how many are in use.
    fn take(&self, bytes: usize) -> Result<(), usize> {
        let within = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.limit);
        // Relaxed: it counts, and orders nothing.
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).map(drop)
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The words of a ring, a power of two.
pub(super) struct Array {
    words: Box<[AtomicU64]>,
    budget: Arc<Budget>,
}

impl Array {
    /// So many words; the error is how many bytes are in use.
    pub(super) fn new(words: usize, budget: &Arc<Budget>) -> Result<Self, usize> {
        budget.take(8 * words)?;
        Ok(Self { words: (0..words).map(|_| AtomicU64::new(0)).collect(), budget: Arc::clone(budget) })
    }

    #[inline]
    pub(super) fn words(&self) -> &[AtomicU64] {
        &self.words
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        self.budget.give_back(8 * self.words.len());
    }
}

/// The bytes of a transaction that is too long for its ring.
pub(super) struct Long {
    pub(super) bytes: Vec<u8>,
    /// How many were taken of the budget.
    taken: usize,
    budget: Arc<Budget>,
}

impl Long {
    pub(super) fn new(budget: &Arc<Budget>) -> Self {
        Self { bytes: Vec::new(), taken: 0, budget: Arc::clone(budget) }
    }

    /// Makes room for so many bytes altogether; the error is how many more that takes, and how many are in use.
    pub(super) fn reserve(&mut self, bytes: usize) -> Result<(), (usize, usize)> {
        if bytes <= self.taken {
            return Ok(());
        }
        // Twice as many each time, so that bytes are moved a bounded number of times.
        let more = bytes.max(2 * self.taken) - self.taken;
        self.budget.take(more).map_err(|used| (more, used))?;
        self.taken += more;
        self.bytes.reserve_exact(self.taken - self.bytes.len());
        Ok(())
    }
}

impl Drop for Long {
    fn drop(&mut self) {
        self.budget.give_back(self.taken);
    }
}
