//! Figures 7 to 9: the sum of a column, of which some records have versions.

use polychron_workloads::run::{IndexChoice, Report};
use polychron_workloads::scan::{Ask, PLAIN_ROWS_A_SECOND, ROWS_A_SECOND, ScanOptions, SnapshotTime};

use crate::figure::Point;
use crate::measure::Bench;
use crate::runner::Work;
use crate::{Ended, Figure};

/// Figure 7. Realistic are up to 0.01 %.
const SUSTAINS: &str = "“For all cases, the results show that our MVCC implementation sustains the high scan throughput of our single-version concurrency control \
     implementation for realistic numbers of dirty records.” (§4.1)";
const UNREALISTIC: &str = "In Figure 7 scans of many versions are slower from 0.1 % dirty records on.";
/// Figure 8.
const IMPROVED: &str =
    "“Compared to not using VersionedPositions at all, scan performance is improved by more than 5.5×.” (§4.1)";
const RECORDS: &str = "“The experiment suggests that increasing or decreasing the number of records per VersionedPositions degrades scan performance.” (§4.1)";
/// Figure 9.
const BREAKDOWN: &str = "“A breakdown of CPU cycles in Figure 9 shows that our MVCC functions are very cheap for realistic numbers of versioned records.” (§4.1)";
const MORE_VERSIONS: &str = "In Figure 9 more goes to retrieving versions, the more records have some.";

/// What the vertical axes show.
const RATE: &str = "records a second";
/// Names of series.
const PLAIN: &str = "plain slice";
const SINGLE: &str = "partitioned-store (single-version)";
const NEWEST: &str = "newest";
const OLDEST_4: &str = "oldest, 4 versions";
const OLDEST_16: &str = "oldest, 16 versions";
const NONE: &str = "no synopses";
const OF_1024: &str = "synopses of 1024";
const OF_16: &str = "synopses of 16";
const OF_65536: &str = "synopses of 65536";

/// Rows of these tables for each of the others': a scan of the others takes microseconds.
const SCALE: u64 = 5;

/// A line.
#[derive(Clone, Copy, Debug)]
struct Contender {
    protocol: &'static str,
    /// Options of the protocol.
    options: &'static [&'static str],
    /// How often each dirty record was changed; 0: there are none.
    versions: u64,
    snapshot_time: SnapshotTime,
    /// The figure of the workload that is drawn.
    figure: &'static str,
}

const fn over_columns(options: &'static [&'static str], versions: u64, snapshot_time: SnapshotTime) -> Contender {
    Contender { protocol: "hyper", options, versions, snapshot_time, figure: ROWS_A_SECOND }
}

const COLUMNS: &[&str] = &["backend=columns"];

impl Contender {
    /// Runs it on a table of which so many percent of the records are dirty.
    fn run(&self, bench: &Bench<'_>, percent: f64) -> Result<f64, Ended> {
        Ok(self.report(bench, percent)?.metrics.get(self.figure).copied().unwrap_or_default() as f64)
    }

    fn report(&self, bench: &Bench<'_>, percent: f64) -> Result<Report, Ended> {
        let records = bench.settings.records * SCALE;
        let dirty = ((records as f64 * percent / 100.0) as u64).max(1);
        let options = ScanOptions {
            records,
            ask: Ask::Sum,
            dirty: if self.versions == 0 { 0 } else { dirty },
            versions: self.versions.max(1),
            snapshot_time: self.snapshot_time,
            plain: true,
            index: IndexChoice::Ordered,
            ..ScanOptions::default()
        };
        let protocol_options: Vec<_> = self.options.iter().map(|&option| option.to_owned()).collect();
        bench.run_listed(self.protocol, &protocol_options, &Work::Scan(options), 1, (1, 0))
    }
}

const SINGLE_VERSION: [(&str, Contender); 2] = [
    (PLAIN, Contender { figure: PLAIN_ROWS_A_SECOND, ..over_columns(COLUMNS, 0, SnapshotTime::Newest) }),
    (SINGLE, Contender { protocol: "partitioned-store", ..over_columns(&[], 0, SnapshotTime::Newest) }),
];

/// Percentages of dirty records. With `--quick` there are few records.
fn xs(bench: &Bench<'_>) -> Vec<(String, f64)> {
    let percents: &[f64] = if bench.settings.quick { &[0.001, 0.01, 0.1] } else { &[0.0001, 0.001, 0.01, 0.1] };
    percents.iter().map(|percent| (percent.to_string(), *percent)).collect()
}

/// The place of 0.01 %.
fn realistic(figure: &Figure) -> usize {
    figure.last().saturating_sub(1)
}

/// Measures the lines whose protocols there are.
fn sweep(bench: &Bench<'_>, figure: &mut Figure, contenders: &[(&'static str, Contender)]) -> Result<(), Ended> {
    let options = |contender: &Contender| contender.options.iter().map(|&option| option.to_owned()).collect::<Vec<_>>();
    let is_there = |contender: &Contender| bench.runner.accepts(contender.protocol, &options(contender)).is_ok();
    let (found, missing): (Vec<_>, Vec<_>) = contenders.iter().copied().partition(|(_, contender)| is_there(contender));
    figure.note = format!(
        "{} records. The plain slice, and the single-version store, have no dirty records. An open transaction that may write keeps all versions; each \
         change is followed by eight scans.",
        bench.settings.records * SCALE
    );
    for (series, _) in missing {
        figure.note = format!("{} Left out, since this build does not have it: {series}.", figure.note);
    }
    bench.sweep(figure, [RATE], &xs(bench), &found, |contender, percent| Ok([contender.run(bench, *percent)?]))
}

/// Figure 7.
pub(super) fn versions(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let lines = [
        (NEWEST, over_columns(COLUMNS, 4, SnapshotTime::Newest)),
        (OLDEST_4, over_columns(COLUMNS, 4, SnapshotTime::Oldest)),
        (OLDEST_16, over_columns(COLUMNS, 16, SnapshotTime::Oldest)),
    ];
    let measured = sweep(bench, figure, &[&SINGLE_VERSION[..], &lines].concat());
    let x = realistic(figure);
    let values = [figure.point_of(NEWEST, x), figure.point_of(PLAIN, x)];
    figure.expect_alike(SUSTAINS, "the newest state, 0.01 % dirty, as fast as a plain slice", values);
    let values = [figure.point_of(OLDEST_4, x), figure.point_of(NEWEST, x)];
    figure.expect_alike(SUSTAINS, "the oldest state, 4 versions, 0.01 % dirty, as fast as the newest", values);
    let values = [figure.point_of(OLDEST_16, 0), figure.point_of(OLDEST_16, figure.last())];
    figure.expect_higher(UNREALISTIC, "0.1 % dirty with 16 versions is slower than few", values);
    measured
}

/// Figure 8.
pub(super) fn synopses(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let of = |options| over_columns(options, 4, SnapshotTime::Oldest);
    let lines = [
        SINGLE_VERSION[0],
        (NONE, of(&["backend=columns", "synopsis=none", "before-images=records"])),
        (OF_1024, of(COLUMNS)),
        (OF_16, of(&["backend=columns", "synopsis=16"])),
        (OF_65536, of(&["backend=columns", "synopsis=65536"])),
    ];
    let measured = sweep(bench, figure, &lines);
    let x = realistic(figure);
    for (quote, claim, other) in [
        (IMPROVED, "synopses are faster than none, 0.01 % dirty", NONE),
        (RECORDS, "1024 records are better than 16", OF_16),
        (RECORDS, "1024 records are better than 65536", OF_65536),
    ] {
        let values = [figure.point_of(OF_1024, x), figure.point_of(other, x)];
        figure.expect_higher(quote, claim, values);
    }
    let values = [OF_1024, NONE].map(|series| figure.point_of(series, x));
    figure.expect_times(IMPROVED, "at least 5.5 times as fast", values, 5.5..=f64::MAX);
    measured
}

/// The parts of a scan that the protocol times, in the paper's words.
const PARTS: [(&str, &str); 4] = [
    ("scan", "scan_ns"),
    ("retrieve version", "scan_version_ns"),
    ("find first versioned", "scan_find_versioned_ns"),
    ("find first unversioned", "scan_find_plain_ns"),
];

/// Figure 9.
pub(super) fn breakdown(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let contender = over_columns(&["backend=columns", "timed-scans=yes"], 4, SnapshotTime::Oldest);
    let xs = xs(bench);
    let x_values: Vec<_> = xs.iter().map(|(value, _)| value.clone()).collect();
    figure.frame(&x_values, &["share of the time, %"], &PARTS.map(|(name, _)| name));
    figure.note = format!(
        "{} records. The scan looks at the clock between its parts, which costs it some 20 ns each time; this is in the part that ends there. \
         Positions of versioned records are looked up for each 1024 records, and slots between them are looked at one by one.",
        bench.settings.records * SCALE
    );
    for (x, (value, percent)) in xs.iter().enumerate() {
        let mut runs = PARTS.map(|_| Vec::new());
        for _ in 0..bench.settings.repeat.max(1) {
            (bench.status)(&format!("  {} {value}", figure.x_name));
            let report = contender.report(bench, *percent)?;
            let of =
                |name: &str| report.protocol_metrics.get(name).and_then(serde_json::Value::as_f64).unwrap_or_default();
            let parts = PARTS.map(|(_, name)| of(name));
            let all = parts.iter().sum::<f64>().max(1.0);
            runs.iter_mut().zip(parts).for_each(|(runs, part)| runs.push(100.0 * part / all));
        }
        for (series, runs) in figure.panels[0].series.iter_mut().zip(runs) {
            series.points[x] = Some(Point::of(runs));
        }
    }
    let realistic = realistic(figure);
    let values = [figure.point(0, realistic), figure.point(1, realistic)];
    figure.expect_higher(BREAKDOWN, "0.01 % dirty: the scan itself takes more than retrieving versions", values);
    let values = [figure.point(1, figure.last()), figure.point(1, 0)];
    figure.expect_higher(MORE_VERSIONS, "the more dirty records, the more goes to retrieving versions", values);
    Ok(())
}
