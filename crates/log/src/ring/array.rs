//! The memory of rings, which counts against a limit.

use std::collections::VecDeque;
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

/// A transaction that is too long for its ring, in pieces.
pub(super) struct Long {
    pieces: VecDeque<PieceBytes>,
    bytes: usize,
    budget: Arc<Budget>,
}

/// Some of its changes, of which the first one has this number.
pub(super) struct PieceBytes {
    pub(super) first: u32,
    pub(super) bytes: Vec<u8>,
    count: u32,
    /// How many bytes were taken of the budget.
    taken: usize,
    budget: Arc<Budget>,
}

impl Long {
    pub(super) fn new(budget: &Arc<Budget>) -> Self {
        Self { pieces: VecDeque::new(), bytes: 0, budget: Arc::clone(budget) }
    }

    /// How many bytes all changes have.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds changes that are encoded already, as a piece; the error is how many bytes that takes, and how many are in use.
    pub(super) fn push_piece(
        &mut self,
        bytes: usize,
        count: impl FnOnce(&mut Vec<u8>) -> u32,
    ) -> Result<(), (usize, usize)> {
        let mut piece = self.begin(bytes)?;
        piece.count = count(&mut piece.bytes);
        self.bytes += piece.bytes.len();
        self.pieces.push_back(piece);
        Ok(())
    }

    /// Adds a change of up to so many bytes, which `write` appends, to a piece that has no more than `piece_bytes` but for a single longer change; the
    /// error is as of [`push_piece`](Self::push_piece).
    pub(super) fn push(
        &mut self,
        most: usize,
        piece_bytes: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), (usize, usize)> {
        if self.pieces.back().is_none_or(|last| last.bytes.len() + most > last.taken.min(piece_bytes)) {
            // As long as all so far, so that neither are there many pieces nor is much taken in vain.
            let piece = self.begin(self.bytes.min(piece_bytes).max(most))?;
            self.pieces.back_mut().into_iter().for_each(PieceBytes::shrink);
            self.pieces.push_back(piece);
        }
        let Some(last) = self.pieces.back_mut() else { unreachable!("it was pushed") };
        let before = last.bytes.len();
        write(&mut last.bytes);
        self.bytes += last.bytes.len() - before;
        last.count += 1;
        Ok(())
    }

    fn begin(&self, bytes: usize) -> Result<PieceBytes, (usize, usize)> {
        self.budget.take(bytes).map_err(|used| (bytes, used))?;
        // Each change has two bytes, and the options keep a transaction's bytes below 2^32.
        let first = self.pieces.back().map_or(0, |last| last.first + last.count);
        let budget = Arc::clone(&self.budget);
        Ok(PieceBytes { first, bytes: Vec::with_capacity(bytes), count: 0, taken: bytes, budget })
    }

    /// The changes of each piece that was not taken.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(|piece| &*piece.bytes)
    }

    /// The next piece, and whether there are more.
    pub(super) fn take(&mut self) -> Option<(PieceBytes, bool)> {
        let piece = self.pieces.pop_front()?;
        Some((piece, !self.pieces.is_empty()))
    }
}

impl PieceBytes {
    /// Gives back what it does not need.
    fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        let spare = self.taken - self.bytes.len();
        self.taken -= spare;
        self.budget.give_back(spare);
    }
}

impl Drop for PieceBytes {
    fn drop(&mut self) {
        self.budget.give_back(self.taken);
    }
}
