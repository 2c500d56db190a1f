//! Where transaction ids come from: the worker itself (§4.1), or, for comparison, a shared counter (§6.4).

use polychron_sync::CachePadded;
use polychron_sync::atomic::{AtomicU64, Ordering};

/// The source of a commit's ticket.
pub trait TidSource: Send + Sync + 'static {
    /// The protocol's name with this source.
    const NAME: &'static str;
    /// The protocol's line in lists.
    const SUMMARY: &'static str;

    /// Called once in each commit that writes, between validation and writing.
    fn ticket(counter: &CachePadded<AtomicU64>);
}

/// The worker draws ids alone: nothing shared is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalTid;

impl TidSource for LocalTid {
    const NAME: &'static str = "maflingo";
    const SUMMARY: &'static str =
        "optimistic, in place, epochs (Silo): short transactions with few conflicts, and snapshots a moment old";

    #[inline]
    fn ticket(_: &CachePadded<AtomicU64>) {}
}

/// Every commit also changes one shared word, as designs with a central counter do.
#[derive(Clone, Copy, Debug, Default)]
pub struct GlobalTid;

impl TidSource for GlobalTid {
    const NAME: &'static str = "global-tid";
    const SUMMARY: &'static str = "maflingo with one shared counter in every commit: for comparison";

    #[inline]
    fn ticket(counter: &CachePadded<AtomicU64>) {
        // A compare-and-swap loop rather than an addition, as in the thesis; nobody reads meaning into the number.
        let mut seen = counter.load(Ordering::Relaxed);
        while let Err(now) = counter.compare_exchange_weak(seen, seen + 1, Ordering::AcqRel, Ordering::Relaxed) {
            seen = now;
        }
    }
}
