//! What section 4.6 says of snapshots in its text: their age, scans, and the space that versions take.

use std::time::Duration;

use polychron_workloads::run::{IndexChoice, Report};
use polychron_workloads::scan::{ROWS_A_SECOND, ScanOptions};
use polychron_workloads::tpcc::TpccOptions;

use super::tpcc::{CICADA, MANY};
use super::{factors, tpcc};
use crate::figure::{Panel, Point, Series, of_paper};
use crate::measure::{Bench, System};
use crate::{Ended, Figure};

const STALENESS: &str = "“For read-only TPC-C transactions (OrderStatus and StockLevel), Cicada’s average and 99.9-th percentile staleness is 117 µs and 724 µs.” (§4.6)";
const OF_EPOCHS: &str = "“This staleness is orders of magnitude smaller than that of previous epoch-based snapshots, which reaches tens to hundreds of ms.” (§4.6)";
const SCANS: &str = "“Best-effort inlining also accelerates scans.” (§4.6)";
const SCAN_RATES: &str =
    "“Cicada scans 356 M records per second (rps) with inlining, but only 203 M rps without inlining.” (§4.6)";
const SELDOM: &str = "“The infrequent garbage collection causes high space overhead (the total version count / the total record count – 100%) of 9.89%.” (§4.6)";
const RAPID: &str = "“In contrast, rapid garbage collection in Cicada limits the space overhead to 1.83%.” (§4.6)";

/// Snapshots of epochs: with ours, and with those of 40 ms that Silo has.
const OUR_EPOCHS: &str = "maflingo, epochs of 2 ms";
const SILOS_EPOCHS: &str = "maflingo, epochs of 40 ms";

/// What a run measures at least, so that some epochs pass.
const EPOCHS_SECONDS: f64 = 0.2;

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
    let of_epochs = |us: u64| System::of("maflingo").with("own-commits=no").with(format!("epoch-us={us}"));
    let of_epochs = [(OUR_EPOCHS, of_epochs(2000)), (SILOS_EPOCHS, of_epochs(40_000))];
    let of_epochs = bench.known(figure, of_epochs);
    let series = of_epochs.iter().map(|(name, _)| Series { name: (*name).to_owned(), points: vec![None; 2] });
    let panel = Panel { y_name: "snapshots of epochs, µs".to_owned(), series: series.collect() };
    figure.panels.push(panel);
    figure.panels[0].series[0].points = ages(bench, &System::of(CICADA), &options)?;
    for (series, (_, system)) in of_epochs.iter().enumerate() {
        figure.panels[1].series[series].points = ages(bench, system, &options)?;
    }
    let mean = figure.point(0, 0);
    figure.expect_within(STALENESS, "on average snapshots are at most 117 µs old", mean, 0.0..=117.0);
    let claim = "at the 99.9th percentile they are at most 724 µs old";
    figure.expect_within(STALENESS, claim, figure.point(0, 1), 0.0..=724.0);
    let of_silo = figure.point_in(1, SILOS_EPOCHS, 0);
    let claim = "snapshots of 40 ms epochs are on average at least a hundred times as old";
    figure.expect_times(OF_EPOCHS, claim, [of_silo, mean], 100.0..=f64::MAX);
    figure.expect_within(OF_EPOCHS, "they are 10 to 999 ms old", of_silo, 10_000.0..=999_999.0);
    figure.note += " A fifth more of the two read-only transactions than in the standard mix, so that short runs see enough of them. Silo's epochs are of \
                    40 ms; those of `maflingo` are of 2 ms unless it is told otherwise.";
    Ok(())
}

/// The mean age of a system's snapshots, and that of the 99.9th percentile, in microseconds.
fn ages(bench: &Bench<'_>, system: &System, options: &TpccOptions) -> Result<Vec<Option<Point>>, Ended> {
    let mut runs = [Vec::new(), Vec::new()];
    for _ in 0..bench.settings.repeat.max(1) {
        (bench.status)("  snapshots");
        let run = |bench: &Bench<'_>| bench.run(system, options.clone(), bench.settings.threads);
        let report: Report = bench.for_at_least(EPOCHS_SECONDS, run)?;
        if let Some(staleness) = report.staleness_us {
            runs[0].push(staleness.mean);
            runs[1].push(staleness.p999 as f64);
        }
    }
    Ok(runs.map(|runs| (!runs.is_empty()).then(|| Point::of(runs))).to_vec())
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
    figure.expect_higher(SCANS, "inlining speeds scans up", values);
    figure.expect_times(SCAN_RATES, "at least 1.75 times as fast with inlining", values, 1.75..=f64::MAX);
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
    figure.expect_higher(SELDOM, "seldom collecting takes more space", values);
    let claim = "collecting every 100 ms takes at least 9.89 %";
    if bench.has_threads(MANY, figure, SELDOM, claim) {
        figure.expect_within(SELDOM, claim, values[0], 9.89..=f64::MAX);
    }
    figure.expect_within(RAPID, "collecting every 10 µs takes at most 1.83 %", values[1], 0.0..=1.83);
    Ok(())
}
