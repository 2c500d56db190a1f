//! Figures 5 to 8: YCSB, and throughput and latency by batch.

use polychron_workloads::run::Report;
use polychron_workloads::ycsb::YcsbOptions;

use super::contenders::{BOHM, Contender, Division, HEKATON, LOCKING, OCC, SNAPSHOTS, contenders};
use super::{HIGH, LOW, THROUGHPUT};
use crate::figure::Point;
use crate::measure::Bench;
use crate::runner::Work;
use crate::{Ended, Figure};

/// Figure 5, high contention.
const THRESHOLD: &str = "“The throughput of every system does not scale beyond a certain threshold due to the high contention in the workload […].” (§4.2.1)";
const POORLY: &str = "“Hekaton and SI perform particularly poorly when there are a large number of concurrently executing threads because under high contention, they \
     are prone to large numbers of aborts.” (§4.2.1)";
const OUTPERFORMED: &str = "“The reason why BOHM is outperformed by the locking implementation is that individual transactions are subject to greater overhead.” \
     (§4.2.1)";
const TWICE: &str = "“Nonetheless, BOHM’s lack of aborts allow it to achieve over twice the throughput of the other multi-versioned systems (Hekaton and SI) when \
     there are large numbers of concurrently running threads.” (§4.2.1)";
const DEGRADES: &str = "“We find that OCC’s throughput begins to degrade between 8 and 12 threads […].” (§4.2.1)";
/// Figure 5, low contention.
const MUCH_SMALLER: &str = "“Locking once again outperforms the other concurrency control protocols; however, the difference is much smaller.” (§4.2.1)";
const ALIKE: &str = "In the lower Figure 5 BOHM, Hekaton and SI are alike.";
/// Figure 6, high contention.
const MULTI_VERSIONED: &str = "“As expected, the multi-versioned implementations outperform the single-versioned implementations due to their ability to achieve higher \
     concurrency, and SI outperforms most of the other systems due to the larger amount of concurrency possible when serializable isolation is \
     not required.” (§4.2.2)";
const THAN_SI: &str = "“Surprisingly, however, BOHM significantly outperforms SI.” (§4.2.2)";
const LIKE_SI: &str = "“Like SI, Hekaton also suffers from aborts and wasted work under high contention.” (§4.2.2)";
/// Figure 6, low contention.
const OCC_AHEAD: &str = "“OCC outperforms both BOHM and locking as it employs a light-weight concurrency control protocol, and does not suffer from aborts under \
     low contention.” (§4.2.2)";
const CLOSE: &str = "“Note however, that BOHM is very close in performance to OCC, despite the additional overhead of maintaining multiple versions.” (§4.2.2)";
const TWENTY_CORES: &str =
    "“However, we find that this is not the case; Hekaton and SI are unable to scale beyond 20 cores.” (§4.2.2)";
/// Figure 7.
const IDENTICAL: &str = "“The graph indicates that both Hekaton and SI have identical performance under low to medium contention, as they are both limited by the \
     timestamp counter bottleneck.” (§4.2.2)";
const NEW_BOTTLENECK: &str = "“Only under high contention does a new bottleneck appear, and prevents the timestamp counter from being the primary limitation of \
     performance.” (§4.2.2)";
const AHEAD: &str = "In Figure 7 BOHM is ahead of Hekaton and SI, with high contention too.";
/// Figure 8.
const LONG_READERS: &str = "“When a small fraction of the transactions are read-only (1%), we find that the multi-version systems outperform OCC and locking by about an \
     order of magnitude (the y-axis uses a log-scale).” (§4.2.3)";
const SIGNIFICANTLY: &str = "“We also find that BOHM significantly outperforms Hekaton and SI.” (§4.2.3)";
const ONLY_READERS: &str = "“When the workload consists of 100% read-only transactions, all systems exhibit nearly identical performance.” (§4.2.3)";
/// Not a figure of the paper.
const BATCHES: &str =
    "Coordination is paid once a batch, by one barrier; the paper does not measure what that does to latency.";

/// Threads from which the paper sees aborts bound throughput.
const MANY: usize = 12;
/// Cores beyond which a shared counter does not scale.
const CORES_OF_A_COUNTER: usize = 21;

/// Procedures that a client hands over at once.
pub(super) const BATCH: usize = 1000;

/// Long readers in a batch, about: with more of them a batch would take seconds.
const LONG_READERS_A_BATCH: f64 = 10.0;

/// Reads of a long reader.
const LONG_READS: usize = 10_000;

/// 10RMW.
pub(super) fn ten_updates(bench: &Bench<'_>, theta: f64) -> YcsbOptions {
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
pub(super) fn expect(figure: &mut Figure, quote: &str, claim: &str, [higher, lower]: [&str; 2], x: usize) {
    let values = [figure.point_of(higher, x), figure.point_of(lower, x)];
    figure.expect_higher(quote, claim, values);
}

/// What locking and BOHM make of another load, with the most threads.
pub(super) fn aside(bench: &Bench<'_>, figure: &mut Figure, work: &Work) -> Result<Figure, Ended> {
    let division = Division::in_turns(bench.settings.threads);
    let series = contenders(bench, &mut figure.clone(), &[LOCKING, BOHM], &[division]);
    bench.aside(figure, &series, |contender| Ok(contender.run(bench, work, division, BATCH)?.committed_tps))
}

/// How far locking is ahead of BOHM.
pub(super) fn ahead(figure: &Figure, x: usize) -> Option<Point> {
    Some(figure.point_of(LOCKING, x)?.over(figure.point_of(BOHM, x)?))
}

/// Expects that the last threads that were added make a system not much faster.
fn expect_no_scaling(bench: &Bench<'_>, figure: &mut Figure, quote: &str, series: &str, threads: usize) {
    let claim = format!("{series} gains less than a quarter by the last threads");
    if bench.has_threads(threads, figure, quote, &claim) {
        let last = figure.last();
        let values = [last, last.saturating_sub(1)].map(|x| figure.point_of(series, x));
        figure.expect_times(quote, &claim, values, 0.0..=1.25);
    }
}

/// Figure 5.
pub(super) fn updates(bench: &Bench<'_>, figure: &mut Figure, theta: f64) -> Result<(), Ended> {
    let measured = over_threads(bench, figure, &Work::Ycsb(ten_updates(bench, theta)), BATCH);
    if theta == HIGH {
        contended_updates(bench, figure)
    } else {
        uncontended_updates(bench, figure)?
    }
    measured
}

const OPTIMISTIC: [(&str, &str); 2] = [("Hekaton", HEKATON), ("snapshot isolation", SNAPSHOTS)];

fn contended_updates(bench: &Bench<'_>, figure: &mut Figure) {
    let last = figure.last();
    for series in [LOCKING, BOHM, OCC, HEKATON, SNAPSHOTS] {
        expect_no_scaling(bench, figure, THRESHOLD, series, MANY);
    }
    for (name, series) in OPTIMISTIC {
        expect(figure, POORLY, &format!("locking is faster than {name}"), [LOCKING, series], last);
    }
    expect(figure, OUTPERFORMED, "locking is faster than BOHM", [LOCKING, BOHM], last);
    for (name, series) in OPTIMISTIC {
        expect(figure, TWICE, &format!("BOHM is faster than {name}"), [BOHM, series], last);
        let claim = format!("at least twice as fast as {name}");
        if bench.has_threads(MANY, figure, TWICE, &claim) {
            let values = [BOHM, series].map(|series| figure.point_of(series, last));
            figure.expect_times(TWICE, &claim, values, 2.0..=f64::MAX);
        }
    }
    let claim = "OCC is slower with the most threads than with eight";
    if bench.has_threads(MANY, figure, DEGRADES, claim) {
        let eight = figure.x_values.iter().position(|threads| threads == "8").unwrap_or_default();
        let values = [eight, last].map(|x| figure.point_of(OCC, x));
        figure.expect_higher(DEGRADES, claim, values);
    }
}

fn uncontended_updates(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let last = figure.last();
    for (name, series) in [("BOHM", BOHM), ("OCC", OCC)].into_iter().chain(OPTIMISTIC) {
        expect(figure, MUCH_SMALLER, &format!("locking is faster than {name}"), [LOCKING, series], last);
    }
    let contended = aside(bench, figure, &Work::Ycsb(ten_updates(bench, HIGH)))?;
    let gains = [ahead(&contended, 0), ahead(figure, last)];
    figure.expect_higher(MUCH_SMALLER, "locking is further ahead of BOHM with skew 0.9", gains);
    for (name, series) in OPTIMISTIC {
        let values = [BOHM, series].map(|series| figure.point_of(series, last));
        figure.expect_alike(ALIKE, &format!("BOHM and {name} are alike"), values);
    }
    Ok(())
}

/// Figure 6.
pub(super) fn reads(bench: &Bench<'_>, figure: &mut Figure, theta: f64) -> Result<(), Ended> {
    let measured = over_threads(bench, figure, &Work::Ycsb(two_updates(bench, theta)), BATCH);
    if theta == HIGH {
        contended_reads(figure)
    } else {
        uncontended_reads(bench, figure)
    }
    measured
}

fn contended_reads(figure: &mut Figure) {
    let last = figure.last();
    for (name, series) in [("BOHM", BOHM)].into_iter().chain(OPTIMISTIC) {
        for (single, other) in [("OCC", OCC), ("locking", LOCKING)] {
            expect(figure, MULTI_VERSIONED, &format!("{name} is faster than {single}"), [series, other], last);
        }
    }
    expect(figure, MULTI_VERSIONED, "snapshot isolation is faster than Hekaton", [SNAPSHOTS, HEKATON], last);
    expect(figure, THAN_SI, "BOHM is faster than snapshot isolation", [BOHM, SNAPSHOTS], last);
    expect(figure, LIKE_SI, "BOHM is faster than Hekaton", [BOHM, HEKATON], last);
}

fn uncontended_reads(bench: &Bench<'_>, figure: &mut Figure) {
    let last = figure.last();
    for (name, series) in [("BOHM", BOHM), ("locking", LOCKING)] {
        expect(figure, OCC_AHEAD, &format!("OCC is faster than {name}"), [OCC, series], last);
    }
    let values = [BOHM, OCC].map(|series| figure.point_of(series, last));
    figure.expect_alike(CLOSE, "BOHM is close to OCC", values);
    for (name, series) in OPTIMISTIC {
        expect(figure, TWENTY_CORES, &format!("BOHM is faster than {name}"), [BOHM, series], last);
        expect_no_scaling(bench, figure, TWENTY_CORES, series, CORES_OF_A_COUNTER);
    }
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
    let medium = skews.iter().position(|(_, skew)| *skew == 0.6).unwrap_or_default();
    for (x, when) in [(0, "without skew"), (medium, "with skew 0.6")] {
        let values = [HEKATON, SNAPSHOTS].map(|series| figure.point_of(series, x));
        figure.expect_alike(IDENTICAL, &format!("Hekaton and snapshot isolation are alike {when}"), values);
    }
    for (name, series) in OPTIMISTIC {
        let values = [0, last].map(|x| figure.point_of(series, x));
        figure.expect_higher(NEW_BOTTLENECK, &format!("high skew costs {name} throughput"), values);
    }
    for (name, series) in OPTIMISTIC {
        let claim = format!("BOHM is faster than {name} with high skew");
        expect(figure, AHEAD, &claim, [BOHM, series], last);
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
    expect_long_readers(bench, figure, one);
    measured
}

/// What is said of one percent of long readers, and of nothing else.
fn expect_long_readers(bench: &Bench<'_>, figure: &mut Figure, one: usize) {
    let single = [("OCC", OCC), ("locking", LOCKING)];
    for (name, other) in single {
        for (versions, series) in [("BOHM", BOHM)].into_iter().chain(OPTIMISTIC) {
            let claim = format!("{versions} is faster than {name} with 1 % long readers");
            expect(figure, LONG_READERS, &claim, [series, other], one);
        }
        let claim = format!("BOHM makes at least eight times what {name} makes");
        if bench.has_threads(MANY, figure, LONG_READERS, &claim) {
            let values = [BOHM, other].map(|series| figure.point_of(series, one));
            figure.expect_times(LONG_READERS, &claim, values, 8.0..=f64::MAX);
        }
    }
    for (name, series) in OPTIMISTIC {
        let claim = format!("BOHM is faster than {name} with 1 % long readers");
        expect(figure, SIGNIFICANTLY, &claim, [BOHM, series], one);
    }
    for (name, series) in single.into_iter().chain(OPTIMISTIC) {
        let values = [BOHM, series].map(|series| figure.point_of(series, figure.last()));
        figure.expect_alike(ONLY_READERS, &format!("BOHM and {name} are alike with long readers only"), values);
    }
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
    figure.expect_higher(BATCHES, "large batches make BOHM faster than single transactions", values);
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
