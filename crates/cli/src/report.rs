//! The final report.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use indicatif::{HumanBytes, HumanCount};
use polychron_workloads::run::{Latencies, Report, Staleness};
use serde_json::Value;

use crate::output::terminal_width;

/// A number with its thousands set apart.
pub fn thousands(number: u64) -> String {
    HumanCount(number).to_string()
}

/// A duration in microseconds, the unit of all durations of a report but its own.
pub fn microseconds(us: f64) -> String {
    if us < 1000.0 { format!("{us:.1} µs") } else { format!("{} µs", thousands(us.round() as u64)) }
}

/// An empty table in our style; on a terminal it is no wider than that, and cells wrap.
fn table() -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    if let Some(width) = terminal_width() {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    table
}

/// Two columns of text.
pub fn two_columns<'t>(header: [&str; 2], rows: impl IntoIterator<Item = (&'t str, &'t str)>) -> String {
    let mut table = table();
    table.set_header(header);
    for (left, right) in rows {
        table.add_row([left, right]);
    }
    table.to_string()
}

/// Columns of text, and of numbers wherever a cell of the first row begins with a digit.
pub fn columns<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let mut table = table();
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    let is_number =
        |column: usize| rows.first().is_some_and(|row| row[column].starts_with(|c: char| c.is_ascii_digit()));
    for column in (0..N).filter(|&column| is_number(column)) {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// The report as text, throughput and verdict in its last lines, where a terminal shows them without scrolling.
pub fn render(report: &Report) -> String {
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
    let interrupted = if report.interrupted { ", ended early" } else { "" };
    let threads = if report.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", report.threads) };
    let batch =
        if report.batch == 1 { String::new() } else { format!(", in batches of {}", thousands(report.batch as u64)) };
    let submitted = match report.submitted {
        0 => String::new(),
        count => format!(", {} submitted and under way each", thousands(count as u64)),
    };
    row("measured", format!("{:.1} s on {threads}{submitted}{batch}{interrupted}", report.seconds));
    row("latency", latency_text(&report.latency_us));
    for (kind, &count) in report.completed_by_kind.iter().filter(|&(_, &count)| count > 0) {
        row(&format!("  {kind}"), kind_text(report, kind, count));
        if let Some(latency) = report.latency_us_by_kind.get(kind) {
            row("    latency", latency_text(latency));
        }
    }
    if report.rolled_back > 0 {
        row("rolled back by themselves", thousands(report.rolled_back));
    }
    for (name, &metric) in &report.metrics {
        row(name, thousands(metric));
    }
    row("aborts", format!("{:.2} % of all attempts", report.abort_rate * 100.0));
    for (reason, &count) in &report.aborts {
        row(&format!("  {reason}"), thousands(count));
    }
    if let Some(bytes) = report.peak_rss_bytes {
        row("peak memory of the process", HumanBytes(bytes).to_string());
    }
    if let Some(growth) = report.course.growth(report.grows) {
        let quarters =
            report.course.quarters.map(|quarter| HumanBytes(quarter.resident_bytes as u64).to_string()).join(", ");
        let what = if report.grows { "of what each transaction adds" } else { "of it" };
        row("  by quarter", format!("{quarters}; {:+.1} % {what} from the second to the last", (growth - 1.0) * 100.0));
    }
    row("longest stall of a client", microseconds(report.course.longest_stall_seconds * 1e6));
    if let Some(memory) = &report.memory {
        row("memory of the database", format!("{} used", HumanBytes(memory.used_bytes as u64)));
    }
    if let Some(versions) = &report.versions {
        row("records by extra versions", versions_text(&versions.records));
        // Behind the most that a record has, every share is the whole.
        let most = versions.records.iter().rposition(|&count| count > 0).unwrap_or(0);
        let shares = versions.cumulative[..=most].iter().map(|share| format!("{:.2} %", share * 100.0));
        row("  at most 0, 1, 2, …", shares.collect::<Vec<_>>().join(", "));
    }
    if let Some(staleness) = &report.staleness_us {
        let Staleness { mean, p999, max } = *staleness;
        let [mean, p999, max] = [mean, p999 as f64, max as f64].map(microseconds);
        row("snapshot staleness", format!("{mean} on average, {p999} at p99.9, {max} at most"));
    }
    for (name, text) in report.protocol_metrics.iter().map(|(name, metric)| named_metric(name, metric)) {
        row(&name, text);
    }
    let mut table = table();
    table.set_header([format!("{} on {}", report.workload, report.protocol), String::new()]);
    for (name, value) in rows {
        table.add_row([name, value]);
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let throughput = thousands(report.committed_tps as u64);
    format!("{table}\nthroughput: {throughput} transactions/s\nconsistency: {}", report.checks)
}

fn latency_text(latency: &Latencies) -> String {
    let Latencies { p50, p99, p999, .. } = latency;
    let [p50, p99, p999] = [*p50, *p99, *p999].map(microseconds);
    format!("p50 {p50}, p99 {p99}, p99.9 {p999}")
}

/// What was completed of one kind.
fn kind_text(report: &Report, kind: &str, count: u64) -> String {
    let share = count as f64 * 100.0 / report.completed.max(1) as f64;
    let a_second = report.tps_by_kind.get(kind).copied().unwrap_or_default();
    format!("{} ({share:.1} %), {}/s", thousands(count), thousands(a_second as u64))
}

/// The name of one of the protocol's own metrics, and its value; durations have the unit of all others.
fn named_metric(name: &str, metric: &Value) -> (String, String) {
    let units = [("_ns", 1e-3), ("_us", 1.0)];
    let duration = units.iter().find_map(|(unit, us)| Some((name.strip_suffix(unit)?, metric.as_f64()? * us)));
    match duration {
        Some((name, us)) => (name.replace('_', " "), microseconds(us)),
        None => (name.replace('_', " "), metric_text(metric)),
    }
}

/// One of the protocol's own metrics; of a course its range.
fn metric_text(metric: &Value) -> String {
    let number = |number: f64| {
        if number.fract() == 0.0 && number >= 0.0 { thousands(number as u64) } else { format!("{number:.2}") }
    };
    match metric {
        Value::Array(points) => {
            let levels: Vec<f64> = points.iter().filter_map(|point| point.get(1)?.as_f64()).collect();
            let Some(last) = levels.last() else { return "none yet".to_owned() };
            let (least, most) = levels.iter().fold((*last, *last), |(least, most), &it| (least.min(it), most.max(it)));
            format!("{} at last, {} to {}", number(*last), number(least), number(most))
        }
        other => other.as_f64().map_or_else(|| "none".to_owned(), number),
    }
}

fn versions_text(records: &[u64]) -> String {
    let last = records.iter().rposition(|&count| count > 0).unwrap_or(0);
    let counts = records[..=last].iter().enumerate().map(|(extra, &count)| format!("{extra}: {}", thousands(count)));
    counts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::{metric_text, microseconds, named_metric};

    #[test]
    fn durations_have_one_unit() {
        assert_eq!([0.25, 12.34, 999.9, 12_345.6].map(microseconds), ["0.2 µs", "12.3 µs", "999.9 µs", "12,346 µs"]);
        let metric = |name: &str, value: f64| named_metric(name, &serde_json::json!(value)).1;
        assert_eq!([metric("lag_max_ns", 9_207_113.0), metric("wait_us", 7.0)], ["9,207 µs", "7.0 µs"]);
        assert_eq!(named_metric("clock_skew_max_ns", &serde_json::json!(1.0)).0, "clock skew max");
        assert_eq!(
            named_metric("lag_mean_ns", &serde_json::Value::Null),
            ("lag mean ns".to_owned(), "none".to_owned())
        );
    }

    #[test]
    fn metrics_are_numbers_courses_or_nothing() {
        let text = |json: &str| metric_text(&serde_json::from_str(json).unwrap());
        let texts = ["12345", "0.125", "null", "[]", "[[0.1, 3.0], [0.2, 0.5], [0.3, 1.0]]"].map(text);
        assert_eq!(texts, ["12,345", "0.12", "none", "none yet", "1 at last, 0.50 to 3"]);
    }
}
