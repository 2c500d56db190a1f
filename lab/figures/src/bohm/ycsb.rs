//! Figures 5 to 8: YCSB, and throughput and latency by batch.

use polychron_workloads::run::Report;
use polychron_workloads::ycsb::YcsbOptions;

use super::contenders::{BOHM, Contender, Division, HEKATON, LOCKING, OCC, SNAPSHOTS, contenders};
use super::{HIGH, LOW, THROUGHPUT};
use crate::measure::Bench;
use crate::runner::Work;
use crate::{Ended, Figure};

pub(super) const UPDATES_HIGH: &str = "“The throughput of every system does not scale beyond a certain threshold due to the high contention in the workload.” “Hekaton and SI \
     perform particularly poorly when there are a large number of concurrently executing threads because under high contention, they are prone to \
     large numbers of aborts.” (§4.2.1) Locking is ahead of BOHM, and BOHM of Hekaton and SI.";
pub(super) const UPDATES_LOW: &str = "“Locking once again outperforms the other concurrency control protocols; however, the difference is much smaller.” (§4.2.1)";
pub(super) const READS_HIGH: &str = "“As expected, the multi-versioned implementations outperform the single-versioned implementations due to their ability to achieve higher \
     concurrency, and SI outperforms most of the other systems due to the larger amount of concurrency possible when serializable isolation is \
     not required.” (§4.2.2)";
pub(super) const READS_LOW: &str = "“OCC outperforms both BOHM and locking.” “BOHM is very close in performance to OCC, despite the additional overhead of maintaining multiple \
     versions.” “Hekaton and SI are unable to scale beyond 20 cores.” (§4.2.2)";
pub(super) const SKEWS: &str = "With 40 threads Hekaton and snapshot isolation make the same at low and medium skew, bound by their counter; at high skew \
     aborts bound them.";
pub(super) const LONG_READERS: &str = "“When a small fraction of the transactions are read-only (1%), we find that the multi-version systems outperform OCC and locking by about an \
     order of magnitude.” “We also find that BOHM significantly outperforms Hekaton and SI.” (§4.2.3)";
pub(super) const BATCHES: &str =
    "Coordination is paid once a batch, by one barrier; the paper does not measure what that does to latency.";

/// Procedures that a client hands over at once.
pub(super) const BATCH: usize = 1000;

/// Long readers in a batch, about: with more of them a batch would take seconds.
const LONG_READERS_A_BATCH: f64 = 10.0;

/// Reads of a long reader.
const LONG_READS: usize = 10_000;

const DEGRADES: &str = "This needs more than eight threads, and as many cores.";

/// 10RMW.
fn ten_updates(bench: &Bench<'_>, theta: f64) -> YcsbOptions {
    let records = bench.settings.records;
    YcsbOptions { records, record_size: 1000, requests: 10, writes: Some(10), theta, ..YcsbOptions::default() }
}

/// 2RMW-8R.
fn two_updates(bench: &Bench<'_>, theta: f64) -> YcsbOptions {
    YcsbOptions { writes: Some(2), ..ten_updates(bench, theta) }
}

/// Each contender over the threads.
pub(super) fn over_threads(bench: &Bench<'_>, figure: &mut Figure, work: &Work, batch: usize) -> Result<(), Ended> {
    let xs: Vec<_> = bench.threads().into_iter().map(|(name, threads)| (name, Division::in_turns(threads))).collect();
    let divisions: Vec<_> = xs.iter().map(|(_, division)| *division).collect();
    format!("In batches of {batch}. BOHM's clients plan and execute in turns.").clone_into(&mut figure.note);
    let series = contenders(bench, figure, &[], &divisions);
    let measure =
        |contender: &Contender, division: &Division| Ok([contender.run(bench, work, *division, batch)?.committed_tps]);
    bench.sweep(figure, [THROUGHPUT], &xs, &series, measure)
}

/// Expects the first series above the second one at a place.
fn expect(figure: &mut Figure, claim: &str, [higher, lower]: [&str; 2], x: usize) {
    let values = [figure.point_of(higher, x), figure.point_of(lower, x)];
    figure.expect_higher(claim, values);
}

/// Figure 5.
pub(super) fn updates(bench: &Bench<'_>, figure: &mut Figure, theta: f64) -> Result<(), Ended> {
    let measured = over_threads(bench, figure, &Work::Ycsb(ten_updates(bench, theta)), BATCH);
    let last = figure.last();
    expect(figure, "locking is faster than BOHM", [LOCKING, BOHM], last);
    if theta == HIGH {
        expect(figure, "BOHM is faster than Hekaton", [BOHM, HEKATON], last);
        expect(figure, "BOHM is faster than snapshot isolation", [BOHM, SNAPSHOTS], last);
        figure.cannot_show("OCC degrades from 8 to 12 threads on", DEGRADES);
    } else {
        for (name, series) in [("Hekaton", HEKATON), ("snapshot isolation", SNAPSHOTS)] {
            let values = [figure.point_of(BOHM, last), figure.point_of(series, last)];
            figure.expect_alike(&format!("BOHM and {name} are alike (the figure)"), values);
        }
    }
    measured
}

/// Figure 6.
pub(super) fn reads(bench: &Bench<'_>, figure: &mut Figure, theta: f64) -> Result<(), Ended> {
    let measured = over_threads(bench, figure, &Work::Ycsb(two_updates(bench, theta)), BATCH);
    let last = figure.last();
    if theta == HIGH {
        expect(figure, "BOHM is faster than OCC", [BOHM, OCC], last);
        expect(figure, "BOHM is faster than locking", [BOHM, LOCKING], last);
        expect(figure, "snapshot isolation is faster than Hekaton", [SNAPSHOTS, HEKATON], last);
        expect(figure, "BOHM is faster than snapshot isolation", [BOHM, SNAPSHOTS], last);
        expect(figure, "BOHM is faster than Hekaton", [BOHM, HEKATON], last);
    } else {
        expect(figure, "OCC is faster than locking", [OCC, LOCKING], last);
        let values = [figure.point_of(BOHM, last), figure.point_of(OCC, last)];
        figure.expect_alike("BOHM is close to OCC", values);
        expect(figure, "BOHM is faster than Hekaton, which queues for a counter", [BOHM, HEKATON], last);
        let pair = [BOHM, SNAPSHOTS];
        expect(figure, "BOHM is faster than snapshot isolation, which queues for a counter", pair, last);
    }
    measured
}

/// Figure 7.
pub(super) fn skews(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let skews: &[f64] = if bench.settings.quick { &[LOW, 0.6, HIGH] } else { &[LOW, 0.2, 0.4, 0.6, 0.8, HIGH, 0.95] };
    let skews: Vec<_> = skews.iter().map(|skew| (skew.to_string(), *skew)).collect();
    let division = Division::in_turns(bench.settings.threads);
    format!("In batches of {BATCH}.").clone_into(&mut figure.note);
    let series = contenders(bench, figure, &[], &[division]);
    let measure = |contender: &Contender, theta: &f64| {
        let work = Work::Ycsb(two_updates(bench, *theta));
        Ok([contender.run(bench, &work, division, BATCH)?.committed_tps])
    };
    let measured = bench.sweep(figure, [THROUGHPUT], &skews, &series, measure);
    let last = figure.last();
    let values = [figure.point_of(HEKATON, 0), figure.point_of(SNAPSHOTS, 0)];
    figure.expect_alike("Hekaton and snapshot isolation are alike without skew", values);
    for (name, series) in [("Hekaton", HEKATON), ("snapshot isolation", SNAPSHOTS)] {
        let values = [figure.point_of(series, 0), figure.point_of(series, last)];
        figure.expect_higher(&format!("high skew costs {name} throughput"), values);
        let claim = format!("BOHM is faster than {name} with high skew");
        expect(figure, &claim, [BOHM, series], last);
    }
    measured
}

/// Procedures of a batch, of which this percentage is long readers.
fn batch_with_long_readers(percent: f64) -> usize {
    ((LONG_READERS_A_BATCH * 100.0 / percent) as usize).clamp(1, BATCH)
}

/// Figure 8.
pub(super) fn long_readers(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let percents: &[f64] = if bench.settings.quick { &[1.0, 10.0, 100.0] } else { &[0.01, 0.1, 1.0, 10.0, 100.0] };
    let percents: Vec<_> = percents.iter().map(|percent| (percent.to_string(), *percent)).collect();
    let division = Division::in_turns(bench.settings.threads);
    format!(
        "Long readers are serializable transactions like the others. In batches of {BATCH}, or smaller ones with about ten long readers; \
         the paper's vertical axis is logarithmic, so that small numbers are best read in the tables."
    )
    .clone_into(&mut figure.note);
    let series = contenders(bench, figure, &[], &[division]);
    let long_reads = LONG_READS.min(usize::try_from(bench.settings.records).unwrap_or(LONG_READS));
    let measure = |contender: &Contender, percent: &f64| {
        let options = YcsbOptions { long_readers: *percent, long_reads, ..ten_updates(bench, LOW) };
        let batch = batch_with_long_readers(*percent);
        let report = contender.run(bench, &Work::Ycsb(options), division, batch)?;
        let of_kind = |kind| report.tps_by_kind.get(kind).copied().unwrap_or_default();
        Ok([report.committed_tps, of_kind("write"), of_kind("long-read")])
    };
    let panels = [THROUGHPUT, "updates a second", "long readers a second"];
    let measured = bench.sweep(figure, panels, &percents, &series, measure);
    let one = percents.iter().position(|(_, percent)| *percent == 1.0).unwrap_or_default();
    for (name, series) in [("OCC", OCC), ("locking", LOCKING)] {
        let claim = format!("BOHM is faster than {name} with 1 % long readers");
        expect(figure, &claim, [BOHM, series], one);
    }
    for (name, series) in [("Hekaton", HEKATON), ("snapshot isolation", SNAPSHOTS)] {
        let claim = format!("BOHM is faster than {name} with 1 % long readers");
        expect(figure, &claim, [BOHM, series], one);
    }
    for (name, series) in [("Hekaton", HEKATON), ("OCC", OCC), ("locking", LOCKING)] {
        let values = [figure.point_of(BOHM, figure.last()), figure.point_of(series, figure.last())];
        figure.expect_alike(&format!("BOHM and {name} are alike with long readers only"), values);
    }
    measured
}

/// Throughput and latency by batch.
pub(super) fn batches(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let sizes: &[usize] = if bench.settings.quick { &[1, 100, 10_000] } else { &[1, 10, 100, 1000, 10_000] };
    let sizes: Vec<_> = sizes.iter().map(|size| (size.to_string(), *size)).collect();
    let division = Division::in_turns(bench.settings.threads);
    "Latencies are those of single transactions, from when their batch is handed over; a batch has one client, and there are as many \
     clients as threads. Where transactions are submitted each client has twice a batch of them under way, and batches are closed when they \
     are full or a thread is free."
        .clone_into(&mut figure.note);
    let mut series = contenders(bench, figure, &[], &[division]);
    let submitted = series.iter().find(|(name, _)| *name == BOHM).map(|(_, contender)| contender.submitted());
    series.extend(submitted);
    let work = Work::Ycsb(ten_updates(bench, LOW));
    let measure = |contender: &Contender, batch: &usize| {
        let Report { committed_tps, latency_us, .. } = contender.run(bench, &work, division, *batch)?;
        Ok([committed_tps, latency_us.p50, latency_us.p99])
    };
    let panels = [THROUGHPUT, "median latency, µs", "latency of the 99th percentile, µs"];
    let measured = bench.sweep(figure, panels, &sizes, &series, measure);
    let last = figure.last();
    let values = [figure.point_of(BOHM, last), figure.point_of(BOHM, 0)];
    figure.expect_higher("large batches make BOHM faster than single transactions", values);
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_hold_about_ten_long_readers() {
        assert_eq!([0.01, 1.0, 10.0, 100.0].map(batch_with_long_readers), [1000, 1000, 100, 10]);
    }
}
