//! When the latest epochs began: how old a snapshot is.

use polychron_base::clock::{Clock, SystemClock};
use polychron_sync::MODELLED;
use polychron_sync::atomic::{AtomicU64, Ordering};

/// Epochs whose beginnings are remembered: far more than lie between a snapshot and the present.
const REMEMBERED: usize = if MODELLED { 1 } else { 1024 };

/// The beginnings of the latest epochs, written by a thread that moves the clock.
#[derive(Debug)]
pub(crate) struct Beginnings {
    clock: SystemClock,
    /// In nanoseconds; epoch `e` at `e` modulo the length.
    began_ns: Box<[AtomicU64]>,
}

impl Beginnings {
    pub(crate) fn new() -> Self {
        let clock = SystemClock::new();
        let now = clock.now_ns();
        Self { began_ns: (0..REMEMBERED).map(|_| AtomicU64::new(now)).collect(), clock }
    }

    /// Notes that an epoch is about to begin.
    pub(crate) fn note(&self, epoch: u64) {
        if !MODELLED {
            self.began_ns[epoch as usize % REMEMBERED].store(self.clock.now_ns(), Ordering::Relaxed);
        }
    }

    /// Nanoseconds since an epoch began. Of one that is no longer remembered: since the oldest remembered one began.
    pub(crate) fn since_ns(&self, epoch: u64, current: u64) -> u64 {
        if MODELLED {
            return 0;
        }
        // One is left out, for it may be overwritten just now.
        let oldest = (current + 2).saturating_sub(REMEMBERED as u64);
        let began = self.began_ns[epoch.max(oldest) as usize % REMEMBERED].load(Ordering::Relaxed);
        self.clock.now_ns().saturating_sub(began)
    }
}
