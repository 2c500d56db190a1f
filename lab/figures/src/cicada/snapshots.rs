//! What section 4.6 says of snapshots in its text: their age, scans, and the space that versions take.

use std::time::Duration;

use polychron_workloads::run::{IndexChoice, Report};
use polychron_workloads::scan::{ROWS_A_SECOND, ScanOptions};
use polychron_workloads::tpcc::TpccOptions;

use super::tpcc::CICADA;
use super::{factors, tpcc};
use crate::figure::{Panel, Point, Series, of_paper};
use crate::measure::{Bench, System};
use crate::{Ended, Figure};

pub(super) const STALENESS: &str = "“For read-only TPC-C transactions (OrderStatus and StockLevel), Cicada’s average and 99.9-th percentile staleness is 117 µs and 724 µs. This \
     staleness is orders of magnitude smaller than that of previous epoch-based snapshots, which reaches tens to hundreds of ms.” (§4.6)";
pub(super) const SCANS: &str = "“Best-effort inlining also accelerates scans.” “Cicada scans 356 M records per second (rps) with inlining, but only 203 M rps without \
     inlining.” (§4.6)";
pub(super) const SPACE: &str = "“The infrequent garbage collection causes high space overhead (the total version count / the total record count – 100%) of 9.89%. In \
     contrast, rapid garbage collection in Cicada limits the space overhead to 1.83%.” (§4.6)";

/// A bar beside the paper's own.
fn beside_the_paper(figure: &mut Figure, xs: &[(&str, f64)], y_name: &str) {
    figure.x_values = xs.iter().map(|&(name, _)| name.to_owned()).collect();
    let paper = |&(_, y): &(&str, f64)| Some(of_paper(y));
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
        let report: Report = bench.run(&System::of(CICADA), options.clone(), most)?;
        if let Some(staleness) = report.staleness_us {
            runs[0].push(staleness.mean);
            runs[1].push(staleness.p999 as f64);
        }
    }
    if !runs[0].is_empty() {
        figure.panels[0].series[0].points = runs.map(|runs| Some(Point::of(runs))).to_vec();
    }
    figure.expect_within("on average snapshots are at most 117 µs old", figure.point(0, 0), 0.0..=117.0);
    figure.expect_within("at the 99.9th percentile they are at most 724 µs old", figure.point(0, 1), 0.0..=724.0);
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
    let systems =
        [("rows in their heads", System::of(CICADA)), ("rows outside", System::of(CICADA).with("inlining=no"))];
    let measure = |system: &System, &writers: &usize| {
        let options = ScanOptions {
            records: bench.settings.records.max(2),
            record_size: 100,
            writers,
            index: IndexChoice::Hash,
            ..ScanOptions::default()
        };
        let report = bench.run(system, options, 1 + writers)?;
        Ok([report.metrics.get(ROWS_A_SECOND).copied().unwrap_or_default() as f64])
    };
    let measured = bench.sweep(figure, ["rows a second, one thread"], &xs, &systems, measure);
    "Whole tables of 100-byte rows along the record array, one column, one scanning thread; the paper scans short ranges by an index."
        .clone_into(&mut figure.note);
    let values = [figure.point(0, 0), figure.point(1, 0)];
    figure.expect_higher("inlining speeds scans up", values);
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
            let report = bench
                .for_at_least(us as f64 * 6e-6, |bench| bench.run(&system, tpcc::options(bench, None, most), most))?;
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
    figure.expect_higher("seldom collecting takes more space", values);
    Ok(())
}
