//! The report of a run.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use polychron_engine::{Metric, MetricValue, Statistics, Versions};
use serde::Serialize;

use super::course::Course;
use super::machine::Machine;

/// All that a run measured, as it is written to JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The workload's name.
    pub workload: String,
    /// The protocol's name.
    pub protocol: String,
    /// The workload's options.
    pub options: serde_json::Value,
    /// Threads that executed transactions.
    pub threads: usize,
    /// Procedures handed over at once; of what is submitted the largest batch.
    pub batch: usize,
    /// Transactions that each thread submitted and had under way; 0 where it executed them.
    pub submitted: usize,
    /// Length of the measured interval in seconds.
    pub seconds: f64,
    /// Whether the run was ended before its time.
    pub interrupted: bool,
    /// The seed of all inputs.
    pub seed: u64,
    /// Transactions completed in the measured interval: committed, or rolled back because their procedure wanted that.
    pub completed: u64,
    /// The part of `completed` that rolled itself back.
    pub rolled_back: u64,
    /// Completed transactions a second, over all threads.
    pub committed_tps: f64,
    /// Completed transactions by kind.
    pub completed_by_kind: BTreeMap<String, u64>,
    /// Completed transactions a second by kind.
    pub tps_by_kind: BTreeMap<String, f64>,
    /// Further counts of the workload.
    pub metrics: BTreeMap<String, u64>,
    /// Conflicts as a share of all attempts.
    pub abort_rate: f64,
    /// Conflicts by reason.
    pub aborts: BTreeMap<String, u64>,
    /// Latencies of single transactions in microseconds, from handing a transaction (or the batch that it is part of) over, or
    /// submitting it, until its client has the answer.
    pub latency_us: Latencies,
    /// The same by kind, of the kinds of which any was timed.
    pub latency_us_by_kind: BTreeMap<String, Latencies>,
    /// The most memory the process has had at once, where the system tells it.
    pub peak_rss_bytes: Option<u64>,
    /// How memory and progress went over the measured interval.
    pub course: Course,
    /// Whether the workload leaves more and more rows behind.
    pub grows: bool,
    /// Memory of the database at the end, where the protocol uses the engine's.
    pub memory: Option<MemoryReport>,
    /// Records by extra versions, where records can have them.
    pub versions: Option<VersionReport>,
    /// How old snapshots were when they began, where there were any.
    pub staleness_us: Option<Staleness>,
    /// Metrics that only this protocol has, each name with its unit: a number, or pairs of seconds since the database
    /// was opened and a number, or nothing where there is nothing to take the average of.
    pub protocol_metrics: BTreeMap<String, serde_json::Value>,
    /// Rows loaded, and how long that took; roughly so when the load was ended before its time.
    pub load: Load,
    /// `passed`, or the condition that does not hold and its rows, or why nothing was checked.
    pub checks: String,
    /// The conditions that hold.
    pub conditions: Vec<String>,
    /// The machine.
    pub machine: Machine,
    /// The commit that was built, as far as known.
    pub commit: String,
}

impl Report {
    /// Whether every check held that the protocol's promises make hold. Where nothing was checked, nothing failed.
    pub fn passed(&self) -> bool {
        [Self::PASSED, Self::NOT_PROMISED, Self::NOT_LOADED].contains(&self.checks.as_str())
    }

    /// The value of [`Report::checks`] for a run that was ended while it loaded.
    pub const NOT_LOADED: &'static str = "not checked: ended while loading";

    /// The value of [`Report::checks`] when all conditions hold.
    pub const PASSED: &'static str = "passed";

    /// The value of [`Report::checks`] for a protocol without isolation, for which nothing is checked.
    pub const NOT_PROMISED: &'static str = "not promised by this protocol";
}

/// Percentiles of latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latencies {
    /// Half of the transactions were faster.
    pub p50: f64,
    /// 99 % were faster.
    pub p99: f64,
    /// 99.9 % were faster.
    pub p999: f64,
    /// The slowest that was timed.
    pub max: f64,
    /// The number of timed transactions.
    pub samples: u64,
}

/// The latencies of all transactions and of each kind, from those by thread and kind in nanoseconds.
pub(super) fn latencies(kinds: &[&str], by_thread: &[Vec<Histogram<u64>>]) -> (Latencies, BTreeMap<String, Latencies>) {
    let merged = |chosen: &mut dyn Iterator<Item = &Histogram<u64>>| {
        let first = chosen.next().cloned()?;
        Some(chosen.fold(first, |sum, next| sum + next)).filter(|sum| !sum.is_empty())
    };
    let all = merged(&mut by_thread.iter().flatten()).as_ref().map(Latencies::of).unwrap_or_default();
    let by_kind = kinds.iter().enumerate().filter_map(|(position, kind)| {
        let of_kind = merged(&mut by_thread.iter().filter_map(|kinds| kinds.get(position)))?;
        Some(((*kind).to_owned(), Latencies::of(&of_kind)))
    });
    (all, by_kind.collect())
}

impl Latencies {
    /// The percentiles of latencies in nanoseconds.
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max() as f64 / 1e3,
            samples: histogram.len(),
        }
    }
}

/// Rows loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Load {
    /// How many.
    pub rows: u64,
    /// In how many seconds.
    pub seconds: f64,
}

/// The database's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryReport {
    /// Bytes allocated and not freed.
    pub used_bytes: usize,
    /// Bytes taken from the system for rows, versions and indexes.
    pub reserved_bytes: usize,
    /// Bytes that wait until no snapshot or reader can see them.
    pub retired_bytes: usize,
}

impl MemoryReport {
    pub(super) fn of(statistics: &Statistics) -> Option<Self> {
        let memory = statistics.memory.as_ref()?;
        Some(Self {
            used_bytes: memory.used_bytes,
            reserved_bytes: memory.reserved_bytes,
            retired_bytes: memory.retired_bytes,
        })
    }
}

/// Extra versions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VersionReport {
    /// `records[n]` records have `n` versions besides the newest; the last entry counts all with as many or more.
    pub records: Vec<u64>,
    /// The share of records with at most 0, 1, 2, … extra versions.
    pub cumulative: Vec<f64>,
}

impl From<Versions> for VersionReport {
    fn from(versions: Versions) -> Self {
        Self { records: versions.records.to_vec(), cumulative: versions.cumulative() }
    }
}

/// How old snapshots were when they began, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Staleness {
    /// On average.
    pub mean: f64,
    /// 99.9 % were younger; up to an eighth too large.
    pub p999: u64,
    /// At most, since the database was opened.
    pub max: u64,
}

impl Staleness {
    /// Of the snapshots between two times.
    pub(super) fn between(before: &Statistics, after: &Statistics) -> Option<Self> {
        let snapshots = after.snapshots - before.snapshots;
        let sum = after.staleness_sum_us - before.staleness_sum_us;
        let p999 = after.staleness.since(&before.staleness).quantile(0.999)?;
        (snapshots > 0).then(|| Self {
            mean: sum as f64 / snapshots as f64,
            p999: p999.min(after.staleness_max_us),
            max: after.staleness_max_us,
        })
    }
}

/// The protocol's own metrics: what came between two times, and what it tells of its tables.
pub(super) fn protocol_metrics(
    before: &Statistics,
    after: &Statistics,
    inspected: &[Metric],
) -> BTreeMap<String, serde_json::Value> {
    let earlier = |name| before.metrics.iter().find(|metric| metric.name == name).map(|metric| &metric.value);
    let value = |metric: &Metric| match metric.value.since(earlier(metric.name)) {
        MetricValue::Count(count) => count.into(),
        MetricValue::Mean(_, 0) => serde_json::Value::Null,
        MetricValue::Mean(sum, of) => (sum as f64 / of as f64).into(),
        MetricValue::Level(level) => level.into(),
        MetricValue::Course(points) => points.iter().map(|&(seconds, level)| vec![seconds, level]).collect(),
    };
    after.metrics.iter().chain(inspected).map(|metric| (metric.name.to_owned(), value(metric))).collect()
}
