//! What a worker counts here besides what workers of all protocols count. Its worker alone writes; others read.

use polychron_engine::{Metric, MetricValue};
use polychron_sync::atomic::{AtomicU64, Ordering};

/// Where a transaction is; where it is when it conflicts is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its procedure runs (§3.2).
    #[default]
    Running,
    /// Its reads are checked before anything is installed (§3.5).
    CheckingEarly,
    /// Pending versions are installed (§3.4).
    Installing,
    /// Reads and writes are checked (§3.4).
    Checking,
    /// A row is written once more as it is, which is no transaction of the user's.
    Rewriting,
}

/// Stages by their names in metrics.
const STAGES: [(Stage, &str); 5] = [
    (Stage::Running, "aborts_while_running"),
    (Stage::CheckingEarly, "aborts_at_the_early_check"),
    (Stage::Installing, "aborts_while_installing"),
    (Stage::Checking, "aborts_at_the_check"),
    (Stage::Rewriting, "aborted_rewrites"),
];

/// One worker's counts, or those of all that had its slot.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) boosts: Count,
    pub(super) promotions: Count,
    /// How far the clock was behind another one whenever it looked.
    pub(super) skew: Sample,
    /// How long what was collected had waited.
    pub(super) lag: Sample,
    /// Versions that were collected, and those that were looked at for it.
    pub(super) collected_versions: Count,
    pub(super) collection_steps: Count,
    /// Waits after conflicts.
    pub(super) waits: Sample,
    aborts: [Count; STAGES.len()],
}

/// A number that one thread changes.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(super) fn add(&self, amount: u64) {
        self.0.store(self.get() + amount, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Numbers that one thread notes.
#[derive(Debug, Default)]
pub(super) struct Sample {
    of: Count,
    sum: Count,
    most: Count,
}

impl Sample {
    #[inline]
    pub(super) fn note(&self, number: u64) {
        self.note_many(1, number, number);
    }

    /// Notes so many numbers with this sum, of which this is the largest.
    #[inline]
    pub(super) fn note_many(&self, of: u64, sum: u64, most: u64) {
        self.of.add(of);
        self.sum.add(sum);
        self.note_most(most);
    }

    /// Notes a number that is not one of the sample, but may be larger than all of them.
    #[inline]
    pub(super) fn note_most(&self, number: u64) {
        self.most.add(number.saturating_sub(self.most.get()));
    }
}

impl Counts {
    /// Counts a conflict.
    pub(super) fn abort(&self, stage: Stage) {
        self.aborts[stage as usize].add(1);
    }
}

/// The metrics of all workers together.
pub(super) fn metrics<'c>(all: impl Iterator<Item = &'c Counts> + Clone) -> Vec<Metric> {
    let sum = |count: &dyn Fn(&Counts) -> u64| all.clone().map(count).sum::<u64>();
    let count = |name, count: &dyn Fn(&Counts) -> u64| Metric { name, value: MetricValue::Count(sum(count)) };
    let mean = |name, sample: fn(&Counts) -> &Sample| {
        let (total, of) = (sum(&|counts| sample(counts).sum.get()), sum(&|counts| sample(counts).of.get()));
        Metric { name, value: MetricValue::Mean(total, of) }
    };
    let most = |name, sample: fn(&Counts) -> &Sample| {
        let most = all.clone().map(|counts| sample(counts).most.get()).max().unwrap_or(0);
        Metric { name, value: MetricValue::Level(most as f64) }
    };
    let mut metrics = vec![
        count("clock_boosts", &|counts| counts.boosts.get()),
        count("promoted_rows", &|counts| counts.promotions.get()),
        mean("clock_skew_mean_ns", |counts| &counts.skew),
        most("clock_skew_max_ns", |counts| &counts.skew),
        count("collected_records", &|counts| counts.lag.of.get()),
        count("collected_versions", &|counts| counts.collected_versions.get()),
        count("collection_steps", &|counts| counts.collection_steps.get()),
        mean("collection_lag_mean_ns", |counts| &counts.lag),
        most("collection_lag_max_ns", |counts| &counts.lag),
        count("backoff_waits", &|counts| counts.waits.of.get()),
        mean("backoff_mean_ns", |counts| &counts.waits),
    ];
    metrics.extend(STAGES.iter().map(|&(stage, name)| count(name, &|counts| counts.aborts[stage as usize].get())));
    metrics
}
