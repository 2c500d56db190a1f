//! What this protocol counts besides: predicate logs and trees, and what has not been collected. A worker's counts are written by it
//! alone; the next one in its slot goes on with them.

use polychron_engine::{Metric, MetricValue};
use polychron_sync::CachePadded;
use polychron_sync::atomic::{AtomicU64, Ordering};

use super::clock::{Clock, Held};

macro_rules! counts {
    ($($name:ident),*) => {
        /// One worker's counts.
        #[derive(Debug, Default)]
        pub(super) struct Counts {
            $(pub(super) $name: AtomicU64),*
        }
    };
}

counts!(
    logs,
    log_bytes,
    trees,
    tree_nodes,
    build_ns,
    compared,
    walked,
    tested,
    lent,
    gathered,
    rebuilt,
    moved,
    scan_ns,
    version_ns,
    find_versioned_ns,
    find_plain_ns
);

/// Adds to a count that only the calling thread writes.
#[inline]
pub(super) fn add(count: &AtomicU64, amount: u64) {
    count.store(count.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
}

impl Counts {
    /// All workers' counts together.
    pub(super) fn metrics(all: &[CachePadded<Self>], clock: &Clock) -> Vec<Metric> {
        let sum = |count: fn(&Self) -> &AtomicU64| all.iter().map(|one| count(one).load(Ordering::Relaxed)).sum();
        let mut held = Held::default();
        clock.held(&mut held);
        let behind = clock.latest().saturating_sub(held.oldest());
        let history = clock.history();
        let (trees, kept) = (sum(|one| &one.trees), history.buffers());
        let mean = |name, total, of| Metric { name, value: MetricValue::Mean(total, of) };
        vec![
            mean("predicate_log_bytes", sum(|one| &one.log_bytes), sum(|one| &one.logs)),
            Metric { name: "predicate_trees", value: MetricValue::Count(trees) },
            mean("predicate_tree_nodes", sum(|one| &one.tree_nodes), trees),
            mean("predicate_tree_build_ns", sum(|one| &one.build_ns), trees),
            Metric { name: "before_images_compared", value: MetricValue::Count(sum(|one| &one.compared)) },
            Metric { name: "conditions_tested", value: MetricValue::Count(sum(|one| &one.tested)) },
            Metric { name: "before_images_walked", value: MetricValue::Count(sum(|one| &one.walked)) },
            Metric { name: "records_lent", value: MetricValue::Count(sum(|one| &one.lent)) },
            Metric { name: "records_gathered", value: MetricValue::Count(sum(|one| &one.gathered)) },
            Metric { name: "records_rebuilt", value: MetricValue::Count(sum(|one| &one.rebuilt)) },
            Metric { name: "slot_ranges_that_moved", value: MetricValue::Count(sum(|one| &one.moved)) },
            Metric { name: "scan_ns", value: MetricValue::Count(sum(|one| &one.scan_ns)) },
            Metric { name: "scan_version_ns", value: MetricValue::Count(sum(|one| &one.version_ns)) },
            Metric { name: "scan_find_versioned_ns", value: MetricValue::Count(sum(|one| &one.find_versioned_ns)) },
            Metric { name: "scan_find_plain_ns", value: MetricValue::Count(sum(|one| &one.find_plain_ns)) },
            Metric { name: "undo_buffers_kept", value: MetricValue::Level(kept as f64) },
            Metric { name: "undo_bytes", value: MetricValue::Level(history.bytes as f64) },
            Metric { name: "undo_bytes_at_most", value: MetricValue::Level(history.most_bytes as f64) },
            Metric { name: "commits_since_oldest_read", value: MetricValue::Level(behind as f64) },
        ]
    }
}
