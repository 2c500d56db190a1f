//! Telemetry for other crates: `tracing` events, and metrics.

#[cfg(feature = "metrics")]
use polychron_engine::{MetricValue, Protocol};

#[cfg(feature = "tracing")]
use crate::Event;

/// Makes a `tracing` event of what happened.
#[cfg(feature = "tracing")]
pub(crate) fn trace(event: &Event<'_>) {
    match event {
        Event::Conflict { abort, attempts, .. } => {
            let reason = abort.reason.name();
            let (table, index, key) = (abort.table, abort.index, abort.key.as_ref().map(tracing::field::display));
            tracing::debug!(reason, %table, %index, key, attempts, "a transaction conflicted");
        }
        Event::Slow { time, conflicts, committed, .. } => {
            tracing::warn!(?time, conflicts, committed, "a transaction was slow");
        }
        Event::Memory { mark_percent, used_bytes, limit_bytes, .. } => {
            tracing::warn!(mark_percent, used_bytes, limit_bytes, "memory fills up");
        }
        Event::Opening { stage, done, of, time, .. } => {
            let stage = stage.name();
            tracing::debug!(stage, done, of, ?time, "a database is being opened");
        }
        Event::ArchiveFails { reason, .. } => tracing::warn!(reason, "the archive fails"),
        Event::Open { time, thread, .. } => {
            tracing::warn!(?time, thread = thread.name(), id = ?thread.id(), "a transaction stays open");
        }
        _ => {}
    }
}

#[cfg(feature = "metrics")]
impl<P: Protocol> crate::Database<P> {
    /// Records what the database has counted with the recorder of the crate `metrics`, as absolute numbers: call it whenever they are collected.
    ///
    /// Counters: `polychron_commits`, `polychron_snapshots`, `polychron_refusals`, `polychron_conflicts` by `reason`, and what the protocol counts.
    /// Gauges: `polychron_memory_used_bytes`, `polychron_memory_reserved_bytes`, `polychron_memory_limit_bytes`, and levels of the protocol; for each
    /// kind of request ([`Database::request`](crate::Database::request)) `polychron_request_seconds` by `request` and `quantile`.
    pub fn record_metrics(&self) {
        use metrics::{counter, gauge};

        let statistics = self.statistics();
        counter!("polychron_commits").absolute(statistics.commits);
        counter!("polychron_snapshots").absolute(statistics.snapshots);
        counter!("polychron_refusals").absolute(statistics.refusals);
        for (reason, conflicts) in statistics.aborts_by_reason() {
            counter!("polychron_conflicts", "reason" => reason).absolute(conflicts);
        }
        if let Some(memory) = &statistics.memory {
            gauge!("polychron_memory_used_bytes").set(memory.used_bytes as f64);
            gauge!("polychron_memory_reserved_bytes").set(memory.reserved_bytes as f64);
            gauge!("polychron_memory_limit_bytes").set(memory.limit_bytes as f64);
        }
        for metric in &statistics.metrics {
            let name = format!("polychron_{}", metric.name);
            match metric.value {
                MetricValue::Count(count) => counter!(name).absolute(count),
                MetricValue::Level(level) => gauge!(name).set(level),
                MetricValue::Mean(sum, of) if of > 0 => gauge!(name).set(sum as f64 / of as f64),
                MetricValue::Mean(..) | MetricValue::Course(_) => {}
            }
        }
        for request in self.requests() {
            let name = request.name.clone();
            counter!("polychron_requests_completed", "request" => name.clone()).absolute(request.completed);
            counter!("polychron_requests_failed", "request" => name.clone()).absolute(request.failed);
            for (quantile, share) in [("0.5", 0.5), ("0.99", 0.99), ("0.999", 0.999)] {
                let Some(latency) = request.latency(share) else { continue };
                let labels = [("request", name.clone()), ("quantile", quantile.to_owned())];
                gauge!("polychron_request_seconds", &labels).set(latency.as_secs_f64());
            }
        }
    }
}
