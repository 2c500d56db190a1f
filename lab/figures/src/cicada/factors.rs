//! Figures 7 to 10 and Table 2: what each part of the design is worth (§4.6).

use std::time::Duration;

use polychron_workloads::tpcc::{TpccOptions, Transactions};
use polychron_workloads::ycsb::YcsbOptions;

use super::tpcc::{CICADA, MANY, SILO, THROUGHPUT};
use super::{tpcc, ycsb};
use crate::figure::{Panel, Point, Series, of_paper};
use crate::measure::{Bench, System};
use crate::{Ended, Figure};

/// Figure 7.
const CLOCKS: &str = "“Cicada processes 56.5 M tps for a YCSB workload using 1 request per transaction, 95% read/5% RMW, Zipf skew of 0.99, and 28 threads.” (§4.6)";
const ADD: &str = "“Modifying Cicada to use traditional timestamp allocation with atomic fetch-and-add on a shared counter drops throughput to 6.22 M tps.” \
     (§4.6)";
const CENTRALIZED: &str = "“Other MVCC designs such as Hekaton that use centralized timestamping reach only 3.50–5.10 M tps for 28 threads.” (§4.6)";
/// Figure 8.
const INLINING: &str = "“Best-effort inlining improves throughput under this uncontended workload especially for small record size because the indirection accounts \
     for a large fraction of the processing cost for small records, but the benefit gradually diminishes with large records.” (§4.6)";
/// Figure 9.
const COLLECTION: &str = "“Performing garbage collection only every 100 ms drops throughput by 36.0% for 28-warehouse TPC-C, 27.2% for 4-warehouse TPC-C, and 2.2% for \
     1-warehouse TPC-C vs. the default 10 µs garbage collection interval.” (§4.6)";
/// Figure 10.
const SMALL_WAITS: &str = "“The graphs show that the optimal maximum backoff time is workload dependent, and it can be desirable to use small (often zero) maximum \
     backoff time for the best throughput even though the abort rate may stay high.” (§4.6)";
const REGULATION: &str = "“Cicada achieves nearly optimal performance under both workloads.” (§4.6)";
/// Table 2.
const OPTIMISATIONS: &str = "“By omitting any single optimization, Cicada achieves 4.9–13.2% lower throughput.” (§4.6)";

const COUNTER: &str = "cicada with a shared counter";

/// Figure 7.
pub(super) fn clocks(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let systems = [
        (CICADA, System::of(CICADA)),
        (COUNTER, System::of(CICADA).with("central-clock=yes")),
        (SILO, System::of("maflingo")),
        ("hekaton", System::of("hekaton")),
    ];
    let systems = bench.known(figure, systems);
    let measure = |system: &System, threads: &usize| {
        Ok([bench.run(system, ycsb::options(bench, 1, 0.95, 0.99), *threads)?.committed_tps])
    };
    let measured = bench.sweep(figure, [THROUGHPUT], &bench.threads(), &systems, measure);
    let last = figure.last();
    let claim = "`cicada` makes at least 56.5 M a second";
    if bench.has_threads(MANY, figure, CLOCKS, claim) {
        figure.expect_within(CLOCKS, claim, figure.point_of(CICADA, last), 56.5e6..=f64::MAX);
    }
    for (quote, other, times) in [(ADD, COUNTER, 9.0), (CENTRALIZED, "hekaton", 11.0)] {
        let values = [CICADA, other].map(|name| figure.point_of(name, last));
        figure.expect_higher(quote, &format!("`cicada` is faster than {other} with the most threads"), values);
        let claim = format!("at least {times} times as fast");
        if bench.has_threads(MANY, figure, quote, &claim) {
            figure.expect_times(quote, &claim, values, times..=f64::MAX);
        }
    }
    measured
}

/// Figure 8.
pub(super) fn inlining(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let sizes: &[u32] = if bench.settings.quick { &[8, 100, 200, 1000] } else { &[8, 40, 100, 200, 400, 1000, 2000] };
    let sizes: Vec<_> = sizes.iter().map(|size| (size.to_string(), *size)).collect();
    let systems = [
        (CICADA, System::of(CICADA)),
        ("cicada without inlining", System::of(CICADA).with("inlining=no")),
        (SILO, System::of("maflingo")),
    ];
    let most = bench.settings.threads;
    let measure = |system: &System, &record_size: &u32| {
        let options = YcsbOptions { record_size, ..ycsb::options(bench, 16, 0.95, 0.0) };
        Ok([bench.run(system, options, most)?.committed_tps])
    };
    let measured = bench.sweep(figure, [THROUGHPUT], &sizes, &systems, measure);
    "Its smallest record has 8 bytes, the paper's 10. Indexes hold addresses and are not inlined, so that the gain ends where \
     rows no longer fit in their heads."
        .clone_into(&mut figure.note);
    let values = [figure.point(0, 0), figure.point(1, 0)];
    figure.expect_higher(INLINING, "inlining speeds up the smallest records", values);
    let gain = |x| Some(figure.point(0, x)?.over(figure.point(1, x)?));
    let values = [gain(0), gain(figure.last())];
    figure.expect_higher(INLINING, "its gain is larger for small records than for large ones", values);
    measured
}

/// Figure 9.
pub(super) fn collection(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let all = [("10 µs", 10), ("100 µs", 100), ("1 ms", 1000), ("10 ms", 10_000), ("100 ms", 100_000)];
    let step = if bench.settings.quick { 2 } else { 1 };
    let intervals: Vec<_> =
        all.iter().step_by(step).map(|&(name, us)| (name.to_owned(), Duration::from_micros(us))).collect();
    let warehouses = [("a warehouse for each thread", None), ("4 warehouses", Some(4)), ("1 warehouse", Some(1))];
    let of_paper = [36.0, 27.2, 2.2];
    let most = bench.settings.threads;
    let measure = |warehouses: &Option<u16>, interval: &Duration| {
        let system = collecting_every(*interval);
        Ok([bench.run(&system, tpcc::options(bench, *warehouses, most), most)?.committed_tps])
    };
    let measured = bench.sweep(figure, [THROUGHPUT], &intervals, &warehouses, measure);
    for ((series, (name, _)), percent) in warehouses.iter().enumerate().zip(of_paper) {
        let [often, seldom] = [0, figure.last()].map(|x| figure.point(series, x));
        figure.expect_higher(COLLECTION, &format!("10 µs are faster than 100 ms with {name}"), [often, seldom]);
        let left = 1.0 - percent / 100.0;
        let claim = format!("100 ms cost at least {percent} % with {name}: a share of at most {left:.3} is left");
        if bench.has_threads(MANY, figure, COLLECTION, &claim) {
            figure.expect_times(COLLECTION, &claim, [seldom, often], 0.0..=left);
        }
    }
    measured
}

/// Cicada that collects so often, the background thread included.
pub(super) fn collecting_every(interval: Duration) -> System {
    System::of(CICADA).with(format!("collection-us={}", interval.as_micros()))
}

/// The loads of Figure 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    Tpcc,
    TpccNp,
    Ycsb,
}

/// Figure 10.
pub(super) fn waits(bench: &Bench<'_>, figure: &mut Figure, load: Load) -> Result<(), Ended> {
    let waits: &[u64] = if bench.settings.quick { &[0, 5, 50] } else { &[0, 1, 2, 5, 10, 20, 50, 100] };
    let xs: Vec<_> = waits.iter().map(|us| (us.to_string(), Duration::from_micros(*us))).collect();
    let most = bench.settings.threads;
    let run = |system: &System| -> Result<[f64; 2], Ended> {
        let report = match load {
            Load::Ycsb => bench.run(system, ycsb::options(bench, 1, 0.5, 0.99), most)?,
            Load::Tpcc | Load::TpccNp => {
                let transactions = if load == Load::Tpcc { Transactions::Full } else { Transactions::Np };
                let options = TpccOptions { transactions, ..tpcc::options(bench, Some(1), most) };
                bench.run(system, options, most)?
            }
        };
        Ok([report.committed_tps, report.abort_rate * 100.0])
    };
    let panels = [THROUGHPUT, "aborts, % of all attempts"];
    let series = [("regulated", false), ("fixed", true)];
    let measure = |&fixed: &bool, wait: &Duration| {
        let wait = if fixed { wait.as_micros().to_string() } else { "regulated".to_owned() };
        run(&System::of(CICADA).with(format!("backoff-us={wait}")))
    };
    let measured = bench.sweep(figure, panels, &xs, &series, measure);
    if load != Load::Ycsb {
        "With one warehouse, where the paper has 4 for 28 threads.".clone_into(&mut figure.note);
    }
    figure.note += " The regulated runs do not depend on the horizontal axis; each place has one, which shows how far runs \
                    differ. The paper shows the share of time lost to aborts, here it is the share of attempts.";
    let last = figure.last();
    let best = |series: usize, places: std::ops::Range<usize>| {
        let points = places.filter_map(|x| figure.point(series, x));
        points.max_by(|one, other| one.median.total_cmp(&other.median))
    };
    let shorter = [best(1, 0..last), figure.point(1, last)];
    let best = [best(0, 0..last + 1), best(1, 0..last + 1)];
    figure.expect_higher(SMALL_WAITS, "a shorter fixed wait is better than the longest one", shorter);
    figure.expect_times(REGULATION, "regulation reaches nine tenths of the best fixed wait", best, 0.9..=f64::MAX);
    measured
}

/// Table 2.
pub(super) fn optimisations(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let left_out = [
        ("waiting", System::of(CICADA).with("wait-for-pending=no"), -13.2),
        ("latest only", System::of(CICADA).with("write-latest-only=no"), -4.9),
        ("sorting", System::of(CICADA).with("sort-by-contention=no"), -12.7),
        ("early check", System::of(CICADA).with("check-early=no"), -9.5),
    ];
    let names: Vec<_> = left_out.iter().map(|&(name, ..)| name.to_owned()).collect();
    let paper = |&(_, _, y): &(&str, System, f64)| Some(of_paper(y));
    let of_paper = Series { name: "the paper, 28 threads".to_owned(), points: left_out.iter().map(paper).collect() };
    let most = bench.settings.threads;
    let here = Series { name: format!("here, {most} threads"), points: vec![None; names.len()] };
    figure.x_values = names;
    figure.panels = vec![Panel { y_name: "throughput, % more or less".to_owned(), series: vec![here, of_paper] }];
    let options = ycsb::options(bench, 16, 0.5, 0.99);
    let run = |what: &str, system: &System| {
        (bench.status)(&format!("  left out {what}"));
        Ok(bench.run(system, options.clone(), most)?.committed_tps)
    };
    let whole = System::of(CICADA);
    for (x, (name, without, of_paper)) in left_out.iter().enumerate() {
        let mut runs = Vec::new();
        // The whole and what is left of it run in turns, and at least three times: the differences are small.
        for _ in 0..bench.settings.repeat.max(3) {
            let (whole, without) = (run("nothing", &whole)?, run(name, without)?);
            runs.push((without / whole.max(f64::MIN_POSITIVE) - 1.0) * 100.0);
        }
        let point = Point::of(runs);
        figure.panels[0].series[0].points[x] = Some(point);
        let claim = format!("without {name} there is less throughput ({of_paper:+.1} % in the paper)");
        figure.expect_within(OPTIMISATIONS, &claim, Some(point), f64::MIN..=0.0);
    }
    let claim = "each costs 4.9 to 13.2 %, by its median";
    if bench.has_threads(MANY, figure, OPTIMISATIONS, claim) {
        let medians = figure.panels[0].series[0].points.iter().flatten().map(|point| point.median);
        figure.expect_within(OPTIMISATIONS, claim, Some(Point::of(medians.collect())), -13.2..=-4.9);
    }
    Ok(())
}
