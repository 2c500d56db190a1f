//! Figures 3, 4 and 5: TPC-C.

use polychron_workloads::run::Report;
use polychron_workloads::tpcc::{Indexes, TpccOptions, Transactions};

use crate::figure::Point;
use crate::measure::{Bench, System};
use crate::{Ended, Figure};

pub(super) const THROUGHPUT: &str = "transactions a second";

/// §4.4: Figures 3a and 3b.
const OTHERS_SCALE_POORLY: &str = "“All schemes except Cicada scale poorly because they suffer frequent conflicts at record and index updates.” (§4.4)";
const THREE_TIMES: &str = "“Cicada achieves up to 3X higher throughput than the next fastest design.” (§4.4)";
const SCALES: &str = "“Note that Cicada’s throughput continues to scale up to 12 threads for 1-warehouse TPC-C and 28 threads for 4-warehouse TPC-C.” (§4.4)";
/// Figure 3c.
const OVERHEAD: &str = "“ERMIA and Hekaton’s throughput is lower than others, due to MVCC overhead.” (§4.4)";
const RATE: &str = "“In contrast, Cicada’s 28-thread throughput is 2.07 M tps.” (§4.4)";
const THAN_SILO: &str = "“Using the same TPC-C implementation on DBx1000, Cicada is 5.54% faster than Silo’.” (§4.4)";
/// Figure 4.
const CHEAPER: &str =
    "“With cheaper index updates, most systems, notably Silo’ and TicToc, show better scalability.” (§4.4)";
const OUTPERFORMS: &str = "“However, Cicada still outperforms compared systems.” (§4.4)";
const ONE_WAREHOUSE: &str = "“Cicada’s 1-warehouse throughput is 33.2% higher than Silo’.” (§4.4)";
const OWN_WAREHOUSE: &str = "“Cicada maintains up to 10.7% higher throughput than other systems and scales linearly with more core count.” (§4.4)";
/// Figure 5.
const LARGER_GAIN: &str = "“The result is largely similar to TPC-C with deferred index updates and no phantom avoidance in Figure 4, but Cicada shows an even larger \
     performance gain […].” (§4.4)";

/// The paper's threads: how far Cicada is ahead where all of them meet.
pub(super) const MANY: usize = 28;
/// The threads to which it scales on one warehouse.
const SOME: usize = 12;

/// TPC-C with so many warehouses, or one for each thread.
pub(super) fn options(bench: &Bench<'_>, warehouses: Option<u16>, threads: usize) -> TpccOptions {
    TpccOptions {
        warehouses: warehouses.unwrap_or(threads.try_into().unwrap_or(u16::MAX)),
        scale: bench.settings.scale,
        ..TpccOptions::default()
    }
}

/// Names of protocols and of series.
pub(super) const CICADA: &str = "cicada";
pub(super) const SILO: &str = "maflingo (the paper's Silo)";
const HEKATON: &str = "hekaton";
const LOCKING: &str = "locking-no-wait (the paper's 2PL)";
const VERSIONED: &str = "cicada, multi-version indexes";

/// Cicada and those systems of the paper that are in the list.
pub(super) fn systems(bench: &Bench<'_>, figure: &mut Figure) -> Vec<(&'static str, System)> {
    let all = [
        (CICADA, System::of(CICADA)),
        (SILO, System::of("maflingo")),
        (HEKATON, System::of("hekaton")),
        (LOCKING, System::of("locking-no-wait")),
    ];
    bench.known(figure, all)
}

/// The same, with Cicada on multi-version indexes beside.
fn systems_and_indexes(bench: &Bench<'_>, figure: &mut Figure) -> Vec<(&'static str, System)> {
    let versioned = System::of(CICADA).with("indexes=multi-version");
    let mut all = systems(bench, figure);
    all.splice(1..1, bench.known(figure, [(VERSIONED, versioned)]));
    all
}

/// The names of the paper's other systems in a figure.
fn others(figure: &Figure) -> Vec<String> {
    let names = figure.panels[0].series.iter().map(|series| &series.name);
    names.filter(|name| !name.starts_with(CICADA)).cloned().collect()
}

/// What is said of Cicada and each other system, at a place.
pub(super) fn expect_ahead_at(figure: &mut Figure, quote: &str, x: usize, when: &str) {
    for name in others(figure) {
        let ahead = [figure.point_of(CICADA, x), figure.point_of(&name, x)];
        figure.expect_higher(quote, &format!("`cicada` is faster than {name} {when}"), ahead);
    }
}

/// The same with the most threads.
pub(super) fn expect_ahead(figure: &mut Figure, quote: &str) {
    expect_ahead_at(figure, quote, figure.last(), "with the most threads");
}

/// That Cicada makes so many times what the next fastest makes, at the place where it is ahead most.
pub(super) fn expect_far_ahead(bench: &Bench<'_>, figure: &mut Figure, quote: &str, times: f64, threads: usize) {
    let claim = format!("at best `cicada` makes at least {times} times what the next fastest makes");
    if !bench.has_threads(threads, figure, quote, &claim) {
        return;
    }
    let by_median = |one: &Point, other: &Point| one.median.total_cmp(&other.median);
    let others = others(figure);
    let ahead = |x| {
        let next = others.iter().filter_map(|name| figure.point_of(name, x)).max_by(by_median)?;
        Some(figure.point_of(CICADA, x)?.over(next))
    };
    let most = (0..figure.x_values.len()).filter_map(ahead).max_by(by_median);
    figure.expect_within(quote, &claim, most, times..=f64::MAX);
}

/// How many times as fast a system is with the most threads as with one.
fn gain(figure: &Figure, name: &str) -> Option<Point> {
    Some(figure.point_of(name, figure.last())?.over(figure.point_of(name, 0)?))
}

fn over_threads(bench: &Bench<'_>, figure: &mut Figure, options: impl Fn(usize) -> TpccOptions) -> Result<(), Ended> {
    let systems = systems_and_indexes(bench, figure);
    let measure = |system: &System, threads: &usize| {
        let report: Report = bench.run(system, options(*threads), *threads)?;
        Ok([report.committed_tps])
    };
    bench.sweep(figure, [THROUGHPUT], &bench.threads(), &systems, measure)
}

/// Figure 3.
pub(super) fn mix(bench: &Bench<'_>, figure: &mut Figure, warehouses: Option<u16>) -> Result<(), Ended> {
    "Phantoms are avoided. The paper's Cicada has multi-version indexes here. Delivery is deferred, as the specification has it."
        .clone_into(&mut figure.note);
    let measured = over_threads(bench, figure, |threads| options(bench, warehouses, threads));
    match warehouses {
        Some(warehouses) => expect_scaling(bench, figure, warehouses),
        None => expect_low_overhead(bench, figure),
    }
    measured
}

/// Figures 3a and 3b.
fn expect_scaling(bench: &Bench<'_>, figure: &mut Figure, warehouses: u16) {
    for name in others(figure) {
        let claim = format!("`cicada` gains more by threads than {name}");
        if bench.has_threads(2, figure, OTHERS_SCALE_POORLY, &claim) {
            let gains = [gain(figure, CICADA), gain(figure, &name)];
            figure.expect_higher(OTHERS_SCALE_POORLY, &claim, gains);
        }
    }
    expect_ahead(figure, THREE_TIMES);
    if warehouses == 1 {
        expect_far_ahead(bench, figure, THREE_TIMES, 3.0, SOME);
    }
    let claim = "`cicada` is faster with the most threads than with one";
    if bench.has_threads(2, figure, SCALES, claim) {
        let scaled = [figure.last(), 0].map(|x| figure.point_of(CICADA, x));
        figure.expect_higher(SCALES, claim, scaled);
    }
}

/// Figure 3c.
fn expect_low_overhead(bench: &Bench<'_>, figure: &mut Figure) {
    let last = figure.last();
    let pair = |figure: &Figure, one, other| [one, other].map(|name| figure.point_of(name, last));
    for other in [SILO, LOCKING] {
        let points = pair(figure, other, HEKATON);
        figure.expect_higher(OVERHEAD, &format!("{HEKATON} is slower than {other}"), points);
    }
    let points = pair(figure, CICADA, HEKATON);
    figure.expect_higher(RATE, "`cicada` is faster than `hekaton`", points);
    let claim = "`cicada` makes at least 2.07 M a second";
    if bench.has_threads(MANY, figure, RATE, claim) {
        figure.expect_within(RATE, claim, points[0], 2.07e6..=f64::MAX);
    }
    let points = pair(figure, CICADA, SILO);
    figure.expect_times(THAN_SILO, "at least 1.055 times as fast with the most threads", points, 1.055..=f64::MAX);
}

/// Figure 4, as far as there is something of its kind.
pub(super) fn ordered(bench: &Bench<'_>, figure: &mut Figure, warehouses: Option<u16>) -> Result<(), Ended> {
    "The paper switches phantom avoidance off and defers index updates. Here Cicada's index updates are always deferred, and \
     phantoms are always avoided, so that runs without it cannot be shown. Instead all tables have an ordered index, where \
     Figure 3 has hash indexes for those that need no order: index work weighs most."
        .clone_into(&mut figure.note);
    let measured = over_threads(bench, figure, |threads| all_ordered(options(bench, warehouses, threads)));
    if warehouses.is_none() {
        expect_ahead(figure, OWN_WAREHOUSE);
        expect_far_ahead(bench, figure, OWN_WAREHOUSE, 1.107, MANY);
        let near = 0.8 * bench.settings.threads as f64;
        let claim = format!("`cicada` with the most threads makes at least {near:.1} times what it makes with one");
        if bench.has_threads(2, figure, OWN_WAREHOUSE, &claim) {
            figure.expect_within(OWN_WAREHOUSE, &claim, gain(figure, CICADA), near..=f64::MAX);
        }
        return measured;
    }
    let why = "Index updates are always as cheap here, and TicToc is not among the systems.";
    figure.cannot_show(CHEAPER, "others scale better than in Figure 3", why);
    expect_ahead(figure, OUTPERFORMS);
    let claim = "`cicada` makes at least 1.332 times what the paper's Silo makes";
    if warehouses == Some(1) && bench.has_threads(MANY, figure, ONE_WAREHOUSE, claim) {
        let points = [CICADA, SILO].map(|name| figure.point_of(name, figure.last()));
        figure.expect_times(ONE_WAREHOUSE, claim, points, 1.332..=f64::MAX);
    }
    measured
}

fn all_ordered(options: TpccOptions) -> TpccOptions {
    TpccOptions { index: Indexes::Ordered, ..options }
}

/// Figure 5.
pub(super) fn np(bench: &Bench<'_>, figure: &mut Figure, warehouses: Option<u16>) -> Result<(), Ended> {
    let options = |threads| options(bench, warehouses, threads);
    let measured =
        over_threads(bench, figure, |threads| TpccOptions { transactions: Transactions::Np, ..options(threads) });
    expect_ahead(figure, LARGER_GAIN);
    measured?;
    let most = bench.settings.threads;
    let whole_mix = bench.aside(figure, &[(CICADA, System::of(CICADA)), (SILO, System::of("maflingo"))], |system| {
        Ok(bench.run(system, all_ordered(options(most)), most)?.committed_tps)
    })?;
    let gain = |figure: &Figure, x| Some(figure.point_of(CICADA, x)?.over(figure.point_of(SILO, x)?));
    let gains = [gain(figure, figure.last()), gain(&whole_mix, 0)];
    figure.expect_higher(LARGER_GAIN, "`cicada` gains more over the paper's Silo than in Figure 4", gains);
    Ok(())
}
