//! Numbers that only have to differ.

use core::sync::atomic::{AtomicU32, Ordering};

/// Hands out numbers, each once (short of 2^32 of them), to a whole process. Model checkers look through it: it outlives
/// their executions, and nothing depends on the order of its numbers.
#[derive(Debug)]
pub struct Numbers(AtomicU32);

impl Numbers {
    /// A source that begins at zero.
    #[expect(clippy::new_without_default, reason = "it stands in statics")]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// A number that was not handed out before.
    #[inline]
    pub fn next(&self) -> u32 {
        // Relaxed: the numbers only have to differ.
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}
