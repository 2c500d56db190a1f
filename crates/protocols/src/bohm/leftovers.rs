//! Chunks that wait for a transaction which some thread is still executing. No thread has them.

use std::collections::VecDeque;
use std::sync::PoisonError;

use polychron_sync::Mutex;
use polychron_sync::atomic::{AtomicUsize, Ordering};

use super::pipeline::Chunk;
use super::planned::Blocker;

/// Chunks that are examined to find one that no longer has to wait; the others come later.
const LOOKED_AT: usize = 16;

/// A transaction that was not executed yet, and what it waits for.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Its position in the batch.
    pub(super) position: usize,
    pub(super) blocker: Blocker,
}

impl Waiting {
    /// Whether the transaction that it waits for is no longer being executed.
    fn is_ready(&self) -> bool {
        !self.blocker.is_executing()
    }
}

/// A chunk with transactions that wait.
#[derive(Debug)]
pub(super) struct Leftover {
    pub(super) chunk: Chunk,
    pub(super) left: Vec<Waiting>,
}

impl Leftover {
    fn is_ready(&self, last: u64) -> bool {
        self.chunk.batch() <= last && self.left.iter().any(Waiting::is_ready)
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    count: AtomicUsize,
    chunks: Mutex<VecDeque<Leftover>>,
}

impl Leftovers {
    /// Whether there is none, as far as the caller sees.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Leaves a chunk to any thread, for when it no longer has to wait.
    pub(super) fn leave(&self, leftover: Leftover) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner).push_back(leftover);
    }

    /// Takes a chunk of a batch up to this one that no longer has to wait.
    #[inline]
    pub(super) fn take(&self, last: u64) -> Option<Leftover> {
        if self.is_empty() { None } else { self.look(last) }
    }

    /// Whether there is one to take.
    pub(super) fn has_ready(&self) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let looked_at = LOOKED_AT.min(chunks.len());
        let found = chunks.iter().take(looked_at).any(|leftover| leftover.is_ready(u64::MAX));
        chunks.rotate_left(if found { 0 } else { looked_at });
        found
    }

    #[cold]
    fn look(&self, last: u64) -> Option<Leftover> {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..LOOKED_AT.min(chunks.len()) {
            let leftover = chunks.pop_front().expect("there are so many");
            if leftover.is_ready(last) {
                self.count.fetch_sub(1, Ordering::Relaxed);
                return Some(leftover);
            }
            chunks.push_back(leftover);
        }
        None
    }
}
