//! Figures 7 to 10 and Table 2: what each part of the design is worth (§4.6).

use std::time::Duration;

use polychron_workloads::tpcc::{Tpcc, TpccOptions, Transactions};
use polychron_workloads::ycsb::{Ycsb, YcsbOptions};

use super::tpcc::THROUGHPUT;
use super::{tpcc, ycsb};
use crate::figure::{Panel, Point, Series, Verdict, number};
use crate::measure::{Bench, System};
use crate::{Ended, Figure};

pub(super) const CLOCKS: &str = "Cicada makes 56.5 M transactions a second with 28 threads; with timestamps from one shared counter it makes 6.22 M, \
     and other multi-version designs 3.5 to 5.1 M.";
pub(super) const INLINING: &str = "Inlining helps, most of all where records are small and the indirection weighs most; the gain fades with larger ones. \
     (Above 216 bytes there is nothing to inline but the index.)";
pub(super) const COLLECTION: &str =
    "Collecting every 100 ms in place of every 10 µs costs 36.0 % with 28 warehouses, 27.2 % with 4 and 2.2 % with 1.";
pub(super) const WAITS: &str = "The best longest wait depends on the load and is often near zero, however many aborts there are; contention regulation \
     comes close to it by itself.";
pub(super) const OPTIMISATIONS: &str = "Without waiting for pending versions −13.2 %, without the latest-version rule −4.9 %, without sorting by contention \
     −12.7 %, without the early check −9.5 %.";

const ONE_COUNTER: &str = "A counter's line travels between two cores only, which costs some tens of nanoseconds; the paper's 28 cores queue for it.";
const IN_CACHE: &str = "The table, or what is hot of it, lies in the caches of this machine, so that an indirection costs a hit and no miss.";
const LITTLE_GARBAGE: &str = "Two threads make a fourteenth of the garbage of 28, which the large caches of this machine hold for longer; and workers \
     share what is too much with the background thread.";
const FEW_CONFLICTS: &str = "With two threads a conflict needs two transactions on the same key at the same time; so few are saved or found early \
     that the difference lies within the noise.";
const FLAT: &str = "With few conflicts the throughput hardly depends on the wait, so that the hill is flat, and the climb walks about on it.";

/// Figure 7.
pub(super) fn clocks(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let systems = [
        ("Cicada", System::cicada(|_| ())),
        ("Cicada with a shared counter", System::cicada(|options| options.central_clock = true)),
        ("Maflingo (the paper's Silo)", System::Maflingo),
    ];
    let measure = |system: &System, threads: &usize| {
        Ok([bench.run::<Ycsb>(system, &ycsb::options(bench, 1, 0.95, 0.99), *threads)?.committed_tps])
    };
    let measured = bench.sweep(figure, [THROUGHPUT], &bench.threads(), &systems, measure);
    let last = figure.last();
    let values = [figure.point(0, last), figure.point(1, last)];
    figure.expect_higher("clocks are faster than a shared counter with the most threads", values, ONE_COUNTER);
    measured
}

/// Figure 8.
pub(super) fn inlining(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let sizes: &[u32] = if bench.settings.quick { &[8, 100, 200, 1000] } else { &[8, 40, 100, 200, 400, 1000, 2000] };
    let sizes: Vec<_> = sizes.iter().map(|size| (size.to_string(), *size)).collect();
    let systems = [
        ("Cicada", System::cicada(|_| ())),
        ("Cicada without inlining", System::cicada(|options| options.ablation.inlining = false)),
        ("Maflingo (the paper's Silo)", System::Maflingo),
    ];
    let most = bench.settings.threads;
    let measure = |system: &System, &record_size: &u32| {
        let options = YcsbOptions { record_size, ..ycsb::options(bench, 16, 0.95, 0.0) };
        Ok([bench.run::<Ycsb>(system, &options, most)?.committed_tps])
    };
    let measured = bench.sweep(figure, [THROUGHPUT], &sizes, &systems, measure);
    "Its smallest record has 8 bytes, the paper's 10. Indexes hold addresses and are not inlined, so that the gain ends where \
     rows do not fit in their heads any more."
        .clone_into(&mut figure.note);
    let values = [figure.point(0, 0), figure.point(1, 0)];
    figure.expect_higher("inlining speeds up the smallest records", values, IN_CACHE);
    let gain = |x| Some(figure.point(0, x)?.over(figure.point(1, x)?));
    let values = [gain(0), gain(figure.last())];
    figure.expect_higher("its gain is larger for small records than for large ones", values, IN_CACHE);
    measured
}

/// Figure 9.
pub(super) fn collection(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let all = [("10 µs", 10), ("100 µs", 100), ("1 ms", 1000), ("10 ms", 10_000), ("100 ms", 100_000)];
    let step = if bench.settings.quick { 2 } else { 1 };
    let intervals: Vec<_> =
        all.iter().step_by(step).map(|&(name, us)| (name.to_owned(), Duration::from_micros(us))).collect();
    let warehouses = [("a warehouse for each thread", None), ("4 warehouses", Some(4)), ("1 warehouse", Some(1))];
    let most = bench.settings.threads;
    let measure = |warehouses: &Option<u16>, interval: &Duration| {
        let system = collecting_every(*interval);
        Ok([bench.run::<Tpcc>(&system, &tpcc::options(bench, *warehouses, most), most)?.committed_tps])
    };
    let measured = bench.sweep(figure, [THROUGHPUT], &intervals, &warehouses, measure);
    for (series, (name, _)) in warehouses.iter().enumerate() {
        let values = [figure.point(series, 0), figure.point(series, figure.last())];
        figure.expect_higher(&format!("10 µs are faster than 100 ms with {name}"), values, LITTLE_GARBAGE);
    }
    measured
}

/// Cicada that collects so often, the background thread included.
pub(super) fn collecting_every(interval: Duration) -> System {
    System::cicada(|options| {
        options.collection_interval = interval;
        options.background_interval = options.background_interval.max(interval);
    })
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
            Load::Ycsb => bench.run::<Ycsb>(system, &ycsb::options(bench, 1, 0.5, 0.99), most)?,
            Load::Tpcc | Load::TpccNp => {
                let transactions = if load == Load::Tpcc { Transactions::Full } else { Transactions::Np };
                let options = TpccOptions { transactions, ..tpcc::options(bench, Some(1), most) };
                bench.run::<Tpcc>(system, &options, most)?
            }
        };
        Ok([report.committed_tps, report.abort_rate * 100.0])
    };
    let panels = [THROUGHPUT, "aborts, % of all attempts"];
    let series = [("regulated", false), ("fixed", true)];
    let measure =
        |&fixed: &bool, wait: &Duration| run(&System::cicada(|options| options.fixed_backoff = fixed.then_some(*wait)));
    let measured = bench.sweep(figure, panels, &xs, &series, measure);
    if load != Load::Ycsb {
        "With one warehouse, where the paper has 4 for 28 threads.".clone_into(&mut figure.note);
    }
    figure.note += " The regulated runs do not depend on the horizontal axis; each place has one, which shows how far runs \
                    differ. The paper shows the share of time lost to aborts, here it is the share of attempts.";
    let last = figure.last();
    let best = (0..=last).filter_map(|x| figure.point(1, x)).map(|point| point.y).fold(0.0, f64::max);
    let regulated = figure.panels[0].series[0].points.iter().flatten().map(|point| point.y).fold(0.0, f64::max);
    let verdict = match regulated / best {
        _ if measured.is_err() => Verdict::NotMeasured,
        share if share >= 0.9 => Verdict::Agrees,
        _ => Verdict::Differs,
    };
    let numbers = format!("{} regulated, {} with the best fixed wait", number(regulated), number(best));
    figure.find("regulation reaches nine tenths of the best fixed wait", verdict, numbers, FLAT);
    measured
}

/// Table 2.
pub(super) fn optimisations(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let left_out = [
        ("waiting", System::cicada(|options| options.ablation.wait_for_pending = false), -13.2),
        ("latest only", System::cicada(|options| options.ablation.write_latest_only = false), -4.9),
        ("sorting", System::cicada(|options| options.ablation.sort_by_contention = false), -12.7),
        ("early check", System::cicada(|options| options.ablation.check_early = false), -9.5),
    ];
    let names: Vec<_> = left_out.iter().map(|&(name, ..)| name.to_owned()).collect();
    let paper = |&(_, _, y): &(&str, System, f64)| Some(Point { y, least: y, most: y });
    let of_paper = Series { name: "the paper, 28 threads".to_owned(), points: left_out.iter().map(paper).collect() };
    let most = bench.settings.threads;
    let here = Series { name: format!("here, {most} threads"), points: vec![None; names.len()] };
    figure.x_values = names;
    figure.panels = vec![Panel { y_name: "throughput, % more or less".to_owned(), series: vec![here, of_paper] }];
    let options = ycsb::options(bench, 16, 0.5, 0.99);
    let run = |what: &str, system: &System| {
        (bench.status)(&format!("  left out {what}"));
        Ok(bench.run::<Ycsb>(system, &options, most)?.committed_tps)
    };
    let whole = System::cicada(|_| ());
    for (x, (name, without, of_paper)) in left_out.iter().enumerate() {
        let mut runs = Vec::new();
        // The whole and what is left of it run in turns, and at least three times: the differences are small.
        for _ in 0..bench.settings.repeat.max(3) {
            let (whole, without) = (run("nothing", &whole)?, run(name, without)?);
            runs.push((without / whole.max(f64::MIN_POSITIVE) - 1.0) * 100.0);
        }
        let point = Point::of(runs);
        figure.panels[0].series[0].points[x] = Some(point);
        let verdict = match (point.least, point.most) {
            (_, most) if most < 0.0 => Verdict::Agrees,
            (least, _) if least > 0.0 => Verdict::Differs,
            _ => Verdict::TooClose,
        };
        let numbers = format!("{:+.1} % ({:+.1} to {:+.1})", point.y, point.least, point.most);
        let claim = format!("without {name} there is less throughput ({of_paper:+.1} % in the paper)");
        figure.find(&claim, verdict, numbers, FEW_CONFLICTS);
    }
    Ok(())
}
