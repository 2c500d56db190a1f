//! Back-off: how a thread waits a short while for another one.

use std::time::Duration;

use crate::{MODELLED, spin_hint, thread};

/// Waits longer each time it is asked: first spinning, then giving the processor away, then asleep.
#[derive(Debug, Default)]
pub struct Backoff {
    step: u32,
}

impl Backoff {
    /// From this step on the thread yields: 2^6 hints are about the cost of a switch.
    const YIELD_STEP: u32 = 7;
    /// From this step on it sleeps. A thread that is waited for does not run then, and a scheduler that counts each yield as a used time
    /// slice would let the thread itself starve: Linux's since version 6.6.
    const SLEEP_STEP: u32 = Self::YIELD_STEP + 4;
    /// From here on no sleep is longer.
    const LAST_STEP: u32 = Self::SLEEP_STEP + 3;

    /// A back-off that has not waited yet.
    #[inline]
    pub const fn new() -> Self {
        Self { step: 0 }
    }

    /// Waits: 1, 2, 4, ... 64 spin hints, then four times a yield of the thread, from then on asleep for 50 to 400 µs.
    #[inline]
    pub fn wait(&mut self) {
        if self.step >= Self::YIELD_STEP {
            self.wait_long();
            return;
        }
        let hints = if cfg!(any(loom, shuttle)) { 1 } else { 1 << self.step };
        for _ in 0..hints {
            spin_hint();
        }
        self.step += 1;
    }

    #[cold]
    fn wait_long(&mut self) {
        if self.step < Self::SLEEP_STEP {
            thread::yield_now();
        } else {
            nap(1 << (self.step - Self::SLEEP_STEP));
        }
        self.step = Self::LAST_STEP.min(self.step + 1);
    }

    /// Whether the spinning is over and each further wait yields or sleeps: the time to give up for a thread that waits boundedly.
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

/// Sleeps for `length` times 50 µs, for a thread that waits for others which may wait for its processor. Where threads outnumber processors,
/// this is soon over, while a thread that yields again and again starves; see [`Backoff`].
#[cold]
pub fn nap(length: u32) {
    if MODELLED {
        thread::yield_now();
    } else {
        std::thread::sleep(Duration::from_micros(50) * length);
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
