//! Whether what is overwritten is kept for snapshots (§4.8).
//!
//! A copy of every row that a new epoch overwrites is worth its price where a snapshot may look at it. So versions are kept from the first
//! snapshot on, until none has begun for a while and none is open.
//!
//! * A snapshot that begins where none are kept switches the keeping on, and waits until the epoch in which it did so is past. A commit reads its
//!   epoch first and then whether versions are kept, both sequentially consistently: one of a later epoch finds that they are. So what was
//!   overwritten without a version is older than every snapshot that begins then.
//! * The clock's thread switches off in two steps. It announces that it may, and looks for open snapshots behind a barrier. A snapshot is
//!   entered in its slot first, with a barrier, and looks at the announcement then. So either the clock's thread finds the snapshot, or the
//!   snapshot the announcement, and begins again.
//! * A record that is overwritten without a version has no link from then on: what it led to was superseded in an earlier epoch than the one that
//!   the record has now, and may be freed.

use polychron_engine::mutations::left_out;
use polychron_memory::Epochs;
use polychron_sync::atomic::{AtomicBool, AtomicU8, Ordering};
use polychron_sync::{CachePadded, SpinLatch};

use super::steps::Step;

/// Nothing is kept.
const OFF: u8 = 0;
/// Versions are kept; whether a snapshot may begin is not decided.
const CHANGING: u8 = 1;
/// Versions are kept, and were since the end of an epoch that is past.
const ON: u8 = 2;

/// Ticks without a new snapshot after which nothing more is kept: a second, with epochs of 2 ms.
const QUIET_TICKS: u32 = 500;

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    state: CachePadded<AtomicU8>,
    /// Whether a snapshot has begun since the last tick.
    has_begun: CachePadded<AtomicBool>,
    /// Held by a thread that changes the state, with the number of ticks without a new snapshot.
    quiet: SpinLatch<u32>,
}

impl Keeping {
    /// Whether a commit that has read its epoch keeps what it overwrites. SeqCst: see the head.
    #[inline]
    pub(super) fn is_needed(&self) -> bool {
        self.state.load(Ordering::SeqCst) != OFF
    }

    /// Whether all that a snapshot can see was kept which has just been opened.
    #[inline]
    pub(super) fn has_kept(&self) -> bool {
        // Written once between two ticks.
        if !self.has_begun.load(Ordering::Relaxed) {
            self.has_begun.store(true, Ordering::Relaxed);
        }
        // SeqCst: behind the barrier with which the snapshot was opened, see the head.
        self.state.load(Ordering::SeqCst) == ON
    }

    /// Has versions kept for snapshots that begin after the return. `wait_until_past` does so for an epoch.
    #[cold]
    pub(super) fn begin(&self, epochs: &Epochs, wait_until_past: impl FnOnce(u64)) {
        let mut quiet = self.quiet.lock();
        if self.state.load(Ordering::Relaxed) != ON {
            self.state.store(CHANGING, Ordering::SeqCst);
            let epoch = epochs.current();
            if !left_out(Step::AwaitKeeping) {
                wait_until_past(epoch);
            }
            self.state.store(ON, Ordering::SeqCst);
        }
        *quiet = 0;
    }

    /// The clock has moved. `open` is memory.
    pub(super) fn tick(&self, epochs: &Epochs) {
        let Some(mut quiet) = self.quiet.try_lock() else { return };
        *quiet = if self.has_begun.swap(false, Ordering::Relaxed) { 0 } else { *quiet + 1 };
        if *quiet < QUIET_TICKS || self.state.load(Ordering::Relaxed) != ON {
            return;
        }
        *quiet = 0;
        self.state.store(CHANGING, Ordering::SeqCst);
        let mut open = Vec::new();
        // With a barrier before the look at the slots.
        let is_known = epochs.open_snapshots(&mut open);
        let is_used = !is_known || !open.is_empty();
        self.state.store(if is_used && !left_out(Step::KeepForOpen) { ON } else { OFF }, Ordering::SeqCst);
    }
}
