//! Back-off: how a thread waits a short while for another one.

use crate::{spin_hint, thread};

/// Waits longer each time it is asked, first spinning, then giving the processor away.
#[derive(Debug, Default)]
pub struct Backoff {
    step: u32,
}

impl Backoff {
    /// From this step on the thread yields: 2^6 hints are about the cost of a switch.
    const YIELD_STEP: u32 = 7;

    /// A back-off that has not waited yet.
    #[inline]
    pub const fn new() -> Self {
        Self { step: 0 }
    }

    /// Waits: 1, 2, 4, ... 64 spin hints, from then on one yield of the thread a call.
    #[inline]
    pub fn wait(&mut self) {
        if self.step >= Self::YIELD_STEP {
            thread::yield_now();
            return;
        }
        let hints = if cfg!(any(loom, shuttle)) { 1 } else { 1 << self.step };
        for _ in 0..hints {
            spin_hint();
        }
        self.step += 1;
    }

    /// Whether the spinning is over and each further wait yields: the moment to give up for who waits boundedly.
    #[inline]
    pub const fn is_yielding(&self) -> bool {
        self.step >= Self::YIELD_STEP
    }

    /// Starts over with the shortest wait.
    #[inline]
    pub const fn reset(&mut self) {
        self.step = 0;
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn spinning_is_bounded() {
        let mut backoff = Backoff::new();
        for _ in 0..Backoff::YIELD_STEP {
            assert!(!backoff.is_yielding());
            backoff.wait();
        }
        assert!(backoff.is_yielding());
        backoff.wait();
        backoff.reset();
        assert!(!backoff.is_yielding());
    }
}
