//! The numbers of a server at one time, and how they are told.

use std::fmt::Write as _;

use polychron::Protocol;
use polychron_base::error::table_name;
use polychron_engine::{Distribution, MetricValue, Statistics};
use polychron_sql::{SessionSeen, SessionState, Sums};
use serde_json::{Value, json};

use crate::Shared;
use crate::registry::Counts;

/// The transactions that the page shows.
const OLDEST: usize = 10;
/// The keys that the page shows.
const HOTTEST: usize = 10;
/// Bounds of histograms: powers of two, in microseconds.
const POWERS: std::ops::RangeInclusive<u32> = 4..=26;

/// The numbers at one time.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    sums: Sums,
    sessions: Vec<SessionSeen>,
    statistics: Statistics,
    counts: Counts,
    protocol: &'static str,
}

const STATES: [SessionState; 4] =
    [SessionState::Idle, SessionState::Active, SessionState::InTransaction, SessionState::InFailedTransaction];

impl Sample {
    pub(crate) fn of<P: Protocol>(shared: &Shared<P>) -> Self {
        let database = shared.database.sql_database();
        Self {
            sums: database.sums(),
            sessions: database.sessions(),
            statistics: shared.database.statistics(),
            counts: shared.registry.counts(),
            protocol: database.protocol().name(),
        }
    }

    fn in_state(&self, state: SessionState) -> usize {
        self.sessions.iter().filter(|session| session.is_of_client && session.state == state).count()
    }

    fn oldest_s(&self) -> f64 {
        let ages = self.sessions.iter().filter_map(|session| session.transaction_for);
        ages.max().map_or(0.0, |age| age.as_secs_f64())
    }

    fn memory(&self) -> Vec<(&'static str, usize)> {
        self.statistics.memory.as_ref().map_or_else(Vec::new, |memory| {
            vec![
                ("limit", memory.limit_bytes),
                ("reserved", memory.reserved_bytes),
                ("mapped", memory.mapped_bytes),
                ("huge_pages", memory.huge_page_bytes),
                ("used", memory.used_bytes),
                ("retired", memory.retired_bytes),
                ("large", memory.large_bytes),
            ]
        })
    }

    /// In the text format of Prometheus.
    pub(crate) fn metrics(&self) -> String {
        let Self { sums, counts, statistics, .. } = self;
        let mut out = Text::default();
        out.pair("statements_total", "Requests to run statements.", ["ok", "error"], sums.statements);
        out.pair(
            "transactions_total",
            "Transactions that have ended.",
            ["committed", "rolled_back"],
            sums.transactions,
        );
        out.histogram("statement_seconds", "Time of statements.", &sums.statement_us, sums.statement_sum_us);
        out.histogram("transaction_seconds", "Time of transactions.", &sums.transaction_us, sums.transaction_sum_us);
        out.head(
            "conflicts_total",
            "counter",
            "Conflicts of transactions of SQL: each had the transaction run again, or was told.",
        );
        for conflict in sums.conflicts() {
            let labels = [("reason", conflict.reason.name()), ("table", &*table_name(conflict.table).to_string())];
            out.line("conflicts_total", &labels, conflict.count);
        }
        out.single("conflicts_told_total", "counter", "Conflicts that clients were told.", sums.told);
        out.pair("replays_total", "Open transactions run again.", ["helped", "failed"], sums.replays);
        out.head("attempts_total", "counter", "Attempts of transactions of the engine, by how they have ended.");
        out.line("attempts_total", &[("outcome", "committed")], statistics.commits);
        out.line("attempts_total", &[("outcome", "conflict")], statistics.conflicts());
        out.line("attempts_total", &[("outcome", "refused")], statistics.refusals);
        out.single("snapshots_total", "counter", "Snapshots that have ended.", statistics.snapshots);
        out.head("sessions", "gauge", "Sessions of clients by state.");
        for state in STATES {
            out.line("sessions", &[("state", state.name())], self.in_state(state));
        }
        out.single("oldest_transaction_seconds", "gauge", "Age of the oldest open transaction.", self.oldest_s());
        out.head("connections", "gauge", "Connections by state.");
        out.line("connections", &[("state", "admitted")], counts.admitted);
        out.line("connections", &[("state", "unauthenticated")], counts.unauthenticated);
        out.single("connections_total", "counter", "Connections so far.", counts.came);
        out.single("received_bytes_total", "counter", "Bytes of admitted clients.", counts.received);
        out.single("sent_bytes_total", "counter", "Bytes to admitted clients.", counts.sent);
        out.head("memory_bytes", "gauge", "Memory by kind.");
        for (kind, bytes) in self.memory() {
            out.line("memory_bytes", &[("kind", kind)], bytes);
        }
        for metric in &statistics.metrics {
            out.metric(metric.name, &metric.value);
        }
        out.0
    }

    /// As JSON for the page, with what has changed since an earlier sample of so many seconds before.
    pub(crate) fn news(&self, before: &Self, seconds: f64) -> Value {
        let rate = |now: [u64; 2], before: [u64; 2]| {
            [0, 1].map(|at| now[at].saturating_sub(before[at]) as f64 / seconds.max(0.001))
        };
        let since = self.sums.statement_us.since(&before.sums.statement_us);
        let ms = |share| since.quantile(share).map(|us| us as f64 / 1e3);
        let mut open: Vec<_> = self.sessions.iter().filter(|it| it.transaction_for.is_some()).collect();
        open.sort_by_key(|session| std::cmp::Reverse(session.transaction_for));
        let transaction = |session: &&SessionSeen| {
            json!({
                "pid": session.number,
                "state": session.state.name(),
                "seconds": session.transaction_for.map(|age| age.as_secs_f64()),
                "application": session.application,
                "text": session.text,
                "can_end": session.is_of_client,
            })
        };
        let reasons = self.statistics.aborts_by_reason();
        let key = |hot: &polychron_engine::HotKey| {
            let key = polychron_base::error::key_name(hot.table, hot.index, hot.key.as_ref());
            json!({ "key": key.to_string(), "conflicts": hot.conflicts })
        };
        json!({
            "protocol": self.protocol,
            "statements": rate(self.sums.statements, before.sums.statements),
            "transactions": rate(self.sums.transactions, before.sums.transactions),
            "ms": { "p50": ms(0.5), "p99": ms(0.99), "p99.9": ms(0.999) },
            "conflicts": reasons.map(|(reason, count)| json!({ "reason": reason, "count": count })).collect::<Vec<_>>(),
            "hot_keys": self.statistics.hot_keys.iter().take(HOTTEST).map(key).collect::<Vec<_>>(),
            "open": open.iter().take(OLDEST).map(transaction).collect::<Vec<_>>(),
            "sessions": STATES.map(|state| json!({ "state": state.name(), "count": self.in_state(state) })),
            "memory": self.memory().into_iter().map(|(kind, bytes)| json!({ "kind": kind, "bytes": bytes })).collect::<Vec<_>>(),
        })
    }
}

#[derive(Default)]
struct Text(String);

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP polychron_{name} {help}\n# TYPE polychron_{name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<_> = labels.iter().map(|(name, text)| format!("{name}=\"{}\"", escaped(text))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "polychron_{name}{labels} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.head(name, kind, help);
        self.line(name, &[], value);
    }

    fn pair(&mut self, name: &str, help: &str, outcomes: [&str; 2], values: [u64; 2]) {
        self.head(name, "counter", help);
        outcomes.iter().zip(values).for_each(|(outcome, value)| self.line(name, &[("outcome", outcome)], value));
    }

    fn histogram(&mut self, name: &str, help: &str, times: &Distribution, sum_us: u64) {
        self.head(name, "histogram", help);
        let (bucket, total) = (format!("{name}_bucket"), times.total());
        for power in POWERS {
            let bound = ((1_u64 << power) as f64 / 1e6).to_string();
            self.line(&bucket, &[("le", &bound)], times.below_power(power));
        }
        self.line(&bucket, &[("le", "+Inf")], total);
        self.line(&format!("{name}_sum"), &[], sum_us as f64 / 1e6);
        self.line(&format!("{name}_count"), &[], total);
    }

    /// A number of the protocol alone.
    fn metric(&mut self, name: &str, value: &MetricValue) {
        let name = format!("protocol_{name}");
        match value {
            MetricValue::Count(count) => self.single(&format!("{name}_total"), "counter", "Of the protocol.", count),
            MetricValue::Mean(sum, of) => {
                self.head(&name, "summary", "Of the protocol.");
                self.line(&format!("{name}_sum"), &[], sum);
                self.line(&format!("{name}_count"), &[], of);
            }
            MetricValue::Level(level) => self.single(&name, "gauge", "Of the protocol.", level),
            // Its last value is what it is now.
            MetricValue::Course(course) => {
                if let Some((_, level)) = course.last() {
                    self.single(&name, "gauge", "Of the protocol.", level);
                }
            }
        }
    }
}
