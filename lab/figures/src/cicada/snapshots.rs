//! What section 4.6 says of snapshots in its text: their age, scans, and the space that versions take.

use std::time::Duration;

use polychron_workloads::run::{IndexChoice, Report};
use polychron_workloads::scan::{Scan, ScanOptions};
use polychron_workloads::tpcc::{Tpcc, TpccOptions};

use super::{factors, tpcc};
use crate::figure::{Panel, Point, Series, Verdict, number};
use crate::measure::{Bench, System};
use crate::{Ended, Figure};

pub(super) const STALENESS: &str = "Snapshots of OrderStatus and StockLevel are 117 µs old on average and 724 µs at the 99.9th percentile, where snapshots by \
     epochs are tens to hundreds of milliseconds old.";
pub(super) const SCANS: &str = "356 M records a second with inlining and 203 M without, on 28 threads: 12.7 M and 7.3 M a thread, in scans of 1 to 100 records.";
pub(super) const SPACE: &str = "Versions that wait for their collection are 1.83 % of all records with an interval of 10 µs, and 9.89 % with 100 ms.";

const PREEMPTED: &str = "Where there are more threads than free cores, one that is taken off its core in the midst of a transaction holds the \
     horizon back for as long as it is.";
const IN_CACHE: &str = "A small table lies in the caches, where rows outside of their heads cost little more.";

/// A bar beside the paper's own.
fn beside_the_paper(figure: &mut Figure, xs: &[(&str, f64)], y_name: &str) {
    figure.x_values = xs.iter().map(|&(name, _)| name.to_owned()).collect();
    let paper = |&(_, y): &(&str, f64)| Some(Point { y, least: y, most: y });
    let here = Series { name: "here".to_owned(), points: vec![None; xs.len()] };
    let of_paper = Series { name: "the paper".to_owned(), points: xs.iter().map(paper).collect() };
    figure.panels = vec![Panel { y_name: y_name.to_owned(), series: vec![here, of_paper] }];
}

/// The age of snapshots.
pub(super) fn staleness(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    beside_the_paper(figure, &[("mean", 117.0), ("99.9th percentile", 724.0)], "µs");
    let most = bench.settings.threads;
    let options = TpccOptions { snapshots: true, read_only_percent: 20, ..tpcc::options(bench, None, most) };
    let mut runs = [Vec::new(), Vec::new()];
    for _ in 0..bench.settings.repeat.max(1) {
        (bench.status)("  snapshots");
        let report: Report = bench.run::<Tpcc>(&System::cicada(|_| ()), &options, most)?;
        if let Some(staleness) = report.staleness_us {
            runs[0].push(staleness.mean);
            runs[1].push(staleness.p999 as f64);
        }
    }
    let mut verdict = Verdict::NotMeasured;
    if !runs[0].is_empty() {
        let points = runs.map(Point::of);
        verdict = if points[0].y < 1000.0 { Verdict::Agrees } else { Verdict::Differs };
        figure.panels[0].series[0].points = points.map(Some).to_vec();
    }
    let numbers = figure.point(0, 0).map_or_else(String::new, |mean| format!("{} µs on average", number(mean.y)));
    figure.find("snapshots are less than a millisecond old on average", verdict, numbers, PREEMPTED);
    "A fifth more of the two read-only transactions than in the standard mix, so that short runs see enough of them."
        .clone_into(&mut figure.note);
    Ok(())
}

/// Scans of a whole table.
pub(super) fn scans(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let mut xs = vec![("alone".to_owned(), 0)];
    if bench.settings.threads > 1 {
        xs.push(("beside a writer".to_owned(), 1));
    }
    let systems = [
        ("rows in their heads", System::cicada(|_| ())),
        ("rows outside", System::cicada(|options| options.ablation.inlining = false)),
    ];
    let measure = |system: &System, &writers: &usize| {
        let options = ScanOptions {
            records: bench.settings.records.max(2),
            record_size: 100,
            writers,
            index: IndexChoice::Hash,
            ..ScanOptions::default()
        };
        let report = bench.run::<Scan>(system, &options, 1 + writers)?;
        Ok([report.metrics.values().next().copied().unwrap_or_default() as f64])
    };
    let measured = bench.sweep(figure, ["rows a second, one thread"], &xs, &systems, measure);
    "Whole tables of 100-byte rows along the record array, one column, one scanning thread; the paper scans short ranges by an index."
        .clone_into(&mut figure.note);
    let values = [figure.point(0, 0), figure.point(1, 0)];
    figure.expect_higher("inlining speeds scans up", values, IN_CACHE);
    measured
}

/// The space that versions take.
pub(super) fn space(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let xs = [("10 µs", 10, 1.83), ("100 ms", 100_000, 9.89)];
    beside_the_paper(figure, &xs.map(|(name, _, paper)| (name, paper)), "versions that wait, % of all records");
    let most = bench.settings.threads;
    for (x, (name, us, _)) in xs.into_iter().enumerate() {
        let system = factors::collecting_every(Duration::from_micros(us));
        let mut runs = Vec::new();
        for _ in 0..bench.settings.repeat.max(1) {
            (bench.status)(&format!("  collection interval {name}"));
            // Long enough for what is made to be collected several times.
            let report = bench.for_at_least(us as f64 * 6e-6, |bench| {
                bench.run::<Tpcc>(&system, &tpcc::options(bench, None, most), most)
            })?;
            let figure = |name| report.protocol_metrics.get(name).and_then(serde_json::Value::as_f64).unwrap_or(0.0);
            // So many arrive in a second, and wait for so long; so many are there (Little's law).
            let waiting =
                figure("collected_records") / report.seconds.max(1e-9) * figure("collection_lag_mean_ns") / 1e9;
            let records: u64 = report.versions.iter().flat_map(|versions| &versions.records).sum();
            runs.push(waiting * 100.0 / records.max(1) as f64);
        }
        figure.panels[0].series[0].points[x] = Some(Point::of(runs));
    }
    "Here: records that wait in queues for their collection, on average over the run, of all that there are at its end. Small \
     tables and few threads make the share another one; the direction counts."
        .clone_into(&mut figure.note);
    let values = [figure.point(0, 1), figure.point(0, 0)];
    figure.expect_higher("seldom collecting takes more space", values, PREEMPTED);
    Ok(())
}
