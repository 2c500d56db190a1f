//! Figures 3, 4 and 5: TPC-C.

use polychron_workloads::run::Report;
use polychron_workloads::tpcc::{Indexes, TpccOptions, Transactions};

use crate::measure::{Bench, System};
use crate::{Ended, Figure};

pub(super) const THROUGHPUT: &str = "transactions a second";

pub(super) const ONE_WAREHOUSE: &str = "“All schemes except Cicada scale poorly because they suffer frequent conflicts at record and index updates.” “Cicada achieves up to 3X \
     higher throughput than the next fastest design.” “Cicada’s throughput continues to scale up to 12 threads for 1-warehouse TPC-C and 28 \
     threads for 4-warehouse TPC-C.” (§4.4)";
pub(super) const FOUR_WAREHOUSES: &str = "“All schemes except Cicada scale poorly because they suffer frequent conflicts at record and index updates.” “Cicada’s throughput continues \
     to scale up to […] 28 threads for 4-warehouse TPC-C.” (§4.4)";
pub(super) const OWN_WAREHOUSE: &str = "“ERMIA and Hekaton’s throughput is lower than others, due to MVCC overhead. In contrast, Cicada’s 28-thread throughput is 2.07 M tps.” \
     “Using the same TPC-C implementation on DBx1000, Cicada is 5.54% faster than Silo’.” (§4.4)";
pub(super) const ONE_DEFERRED: &str = "“With cheaper index updates, most systems, notably Silo’ and TicToc, show better scalability.” “However, Cicada still outperforms compared \
     systems.” “Cicada’s 1-warehouse throughput is 33.2% higher than Silo’.” (§4.4)";
pub(super) const FOUR_DEFERRED: &str = "“With cheaper index updates, most systems, notably Silo’ and TicToc, show better scalability.” “However, Cicada still outperforms compared \
     systems.” (§4.4)";
pub(super) const OWN_DEFERRED: &str = "“Cicada maintains up to 10.7% higher throughput than other systems and scales linearly with more core count.” (§4.4)";
pub(super) const NP: &str = "“The result is largely similar to TPC-C with deferred index updates and no phantom avoidance in Figure 4, but Cicada shows an even larger \
     performance gain.” (§4.4)";

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

/// What is said of Cicada and each other system.
pub(super) fn expect_ahead(figure: &mut Figure) {
    let last = figure.last();
    let names: Vec<_> = figure.panels[0].series.iter().map(|series| series.name.clone()).collect();
    for name in names.iter().filter(|name| !name.starts_with(CICADA)) {
        let ahead = [figure.point_of(CICADA, last), figure.point_of(name, last)];
        figure.expect_higher(&format!("`cicada` is faster than {name} with the most threads"), ahead);
    }
}

fn over_threads(bench: &Bench<'_>, figure: &mut Figure, options: impl Fn(usize) -> TpccOptions) -> Result<(), Ended> {
    let systems = systems_and_indexes(bench, figure);
    let measure = |system: &System, threads: &usize| {
        let report: Report = bench.run(system, options(*threads), *threads)?;
        Ok([report.committed_tps])
    };
    let measured = bench.sweep(figure, [THROUGHPUT], &bench.threads(), &systems, measure);
    expect_ahead(figure);
    let last = figure.last();
    if last > 0 {
        let scaled = [figure.point(0, last), figure.point(0, 0)];
        figure.expect_higher("`cicada` is faster with the most threads than with one", scaled);
    }
    measured
}

/// Figure 3.
pub(super) fn mix(bench: &Bench<'_>, figure: &mut Figure, warehouses: Option<u16>) -> Result<(), Ended> {
    "Phantoms are avoided. The paper's Cicada has multi-version indexes here. Delivery is deferred, as the specification has it."
        .clone_into(&mut figure.note);
    over_threads(bench, figure, |threads| options(bench, warehouses, threads))
}

/// Figure 4, as far as there is something of its kind.
pub(super) fn ordered(bench: &Bench<'_>, figure: &mut Figure, warehouses: Option<u16>) -> Result<(), Ended> {
    "The paper switches phantom avoidance off and defers index updates. Here Cicada's index updates are always deferred, and \
     phantoms are always avoided, so that runs without it cannot be shown. Instead all tables have an ordered index, where \
     Figure 3 has hash indexes for those that need no order: index work weighs most."
        .clone_into(&mut figure.note);
    over_threads(bench, figure, |threads| TpccOptions {
        index: Indexes::Ordered,
        ..options(bench, warehouses, threads)
    })
}

/// Figure 5.
pub(super) fn np(bench: &Bench<'_>, figure: &mut Figure, warehouses: Option<u16>) -> Result<(), Ended> {
    over_threads(bench, figure, |threads| TpccOptions {
        transactions: Transactions::Np,
        ..options(bench, warehouses, threads)
    })
}
