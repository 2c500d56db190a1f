//! The memory of a ring, which counts against a limit.

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
}

/// The words of a ring, a power of two or none.
pub(super) struct Array {
    words: Box<[AtomicU64]>,
    budget: Arc<Budget>,
}

impl Array {
    pub(super) fn empty(budget: &Arc<Budget>) -> Self {
        Self { words: Box::default(), budget: Arc::clone(budget) }
    }

    /// So many words, unless the limit does not leave as much; the error is how many bytes are in use.
    pub(super) fn new(words: usize, budget: &Arc<Budget>) -> Result<Self, usize> {
        let within = |used: usize| used.checked_add(8 * words).filter(|used| *used <= budget.limit);
        // Relaxed: it counts, and orders nothing.
        budget.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within)?;
        Ok(Self { words: (0..words).map(|_| AtomicU64::new(0)).collect(), budget: Arc::clone(budget) })
    }

    #[inline]
    pub(super) fn words(&self) -> &[AtomicU64] {
        &self.words
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(8 * self.words.len(), Ordering::Relaxed);
    }
}
