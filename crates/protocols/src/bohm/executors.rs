//! How many threads execute at a time (§4.1 of the paper suggests that thread counts follow the load).
//!
//! Where transactions wait for each other's rows all the time, a second thread does not run more of them: it takes the rows out of the
//! first one's cache, and makes it wait. Then one thread executes, and the others plan, until it is tried again.

use polychron_base::clock::{Clock, SystemClock};
use polychron_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use polychron_sync::{CachePadded, SpinGuard, SpinLatch};

/// Transactions after which a thread looks at how many of them waited for another thread.
const SAMPLE: u32 = 256;
/// Of so many transactions one may wait for another thread.
const MOST_STALLS: u32 = 32;
/// In so much time one may wait, however many transactions it takes: to wait for a row costs some microseconds, and half of such a transaction.
/// Long ones may wait more often before one thread alone does more than several.
const STALL_NS: u64 = 250_000;
/// Transactions that one thread executes before several try again.
const ALONE: usize = 16 * 1024;

/// Which threads may execute.
#[derive(Debug, Default)]
pub(super) struct Executors {
    is_alone: CachePadded<AtomicBool>,
    /// Held by the one thread that executes; transactions until several do again.
    alone: CachePadded<SpinLatch<usize>>,
    /// Transactions that waited for one that another thread was executing.
    stalls: AtomicU64,
    time: SystemClock,
}

/// What a thread has seen since it looked last.
#[derive(Debug, Default)]
pub(super) struct Seen {
    executed: u32,
    pub(super) stalls: u32,
    /// When it looked.
    at_ns: u64,
}

/// Leave to execute a chunk.
pub(super) type Leave<'e> = Option<SpinGuard<'e, usize>>;

impl Executors {
    /// Asks for leave to execute. `None`: another thread does, and is enough; unless it has been at it for so long that the caller slept
    /// meanwhile: then it runs a long procedure.
    #[inline]
    pub(super) fn enter(&self, has_slept: bool) -> Option<Leave<'_>> {
        // Relaxed, here and below: any number of threads may execute, so nothing depends on when one sees it.
        if !self.is_alone.load(Ordering::Relaxed) {
            return Some(None);
        }
        match self.alone.try_lock() {
            None if has_slept => Some(None),
            alone => alone.map(Some),
        }
    }

    /// So many transactions were executed with this leave.
    #[inline]
    pub(super) fn leave(&self, leave: Leave<'_>, executed: usize, seen: &mut Seen) {
        match leave {
            Some(mut left) => {
                *left = left.saturating_sub(executed);
                if *left == 0 {
                    self.is_alone.store(false, Ordering::Relaxed);
                }
            }
            None => {
                seen.executed += executed as u32;
                if seen.executed >= SAMPLE {
                    self.judge(seen);
                }
            }
        }
    }

    #[cold]
    fn judge(&self, seen: &mut Seen) {
        self.stalls.fetch_add(seen.stalls.into(), Ordering::Relaxed);
        let now = self.time.now_ns();
        let elapsed = now - seen.at_ns;
        let is_crowded = seen.stalls > seen.executed / MOST_STALLS && u64::from(seen.stalls) * STALL_NS > elapsed;
        *seen = Seen { at_ns: now, ..Seen::default() };
        if is_crowded && let Some(mut left) = self.alone.try_lock() {
            *left = ALONE;
            self.is_alone.store(true, Ordering::Relaxed);
        }
    }

    /// Transactions that waited for one that another thread was executing.
    pub(super) fn stalls(&self) -> u64 {
        self.stalls.load(Ordering::Relaxed)
    }
}
