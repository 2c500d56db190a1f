//! What this protocol counts besides: predicate logs and trees, and what has not been collected. A worker's counts are written by it
//! alone; the next one in its slot goes on with them.

use polychron_engine::{Figure, FigureValue};
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
    pub(super) fn figures(all: &[CachePadded<Self>], clock: &Clock) -> Vec<Figure> {
        let sum = |count: fn(&Self) -> &AtomicU64| all.iter().map(|one| count(one).load(Ordering::Relaxed)).sum();
        let mut held = Held::default();
        clock.held(&mut held);
        let behind = clock.latest().saturating_sub(held.oldest());
        let history = clock.history();
        let (trees, kept) = (sum(|one| &one.trees), history.buffers());
        let mean = |name, total, of| Figure { name, value: FigureValue::Mean(total, of) };
        vec![
            mean("predicate_log_bytes", sum(|one| &one.log_bytes), sum(|one| &one.logs)),
            Figure { name: "predicate_trees", value: FigureValue::Count(trees) },
            mean("predicate_tree_nodes", sum(|one| &one.tree_nodes), trees),
            mean("predicate_tree_build_ns", sum(|one| &one.build_ns), trees),
            Figure { name: "images_compared", value: FigureValue::Count(sum(|one| &one.compared)) },
            Figure { name: "conditions_tested", value: FigureValue::Count(sum(|one| &one.tested)) },
            Figure { name: "images_walked", value: FigureValue::Count(sum(|one| &one.walked)) },
            Figure { name: "records_lent", value: FigureValue::Count(sum(|one| &one.lent)) },
            Figure { name: "records_gathered", value: FigureValue::Count(sum(|one| &one.gathered)) },
            Figure { name: "records_rebuilt", value: FigureValue::Count(sum(|one| &one.rebuilt)) },
            Figure { name: "stretches_that_moved", value: FigureValue::Count(sum(|one| &one.moved)) },
            Figure { name: "scan_ns", value: FigureValue::Count(sum(|one| &one.scan_ns)) },
            Figure { name: "scan_version_ns", value: FigureValue::Count(sum(|one| &one.version_ns)) },
            Figure { name: "scan_find_versioned_ns", value: FigureValue::Count(sum(|one| &one.find_versioned_ns)) },
            Figure { name: "scan_find_plain_ns", value: FigureValue::Count(sum(|one| &one.find_plain_ns)) },
            Figure { name: "undo_buffers_kept", value: FigureValue::Level(kept as f64) },
            Figure { name: "undo_bytes", value: FigureValue::Level(history.bytes as f64) },
            Figure { name: "undo_bytes_at_most", value: FigureValue::Level(history.most_bytes as f64) },
            Figure { name: "commits_since_oldest_read", value: FigureValue::Level(behind as f64) },
        ]
    }
}
