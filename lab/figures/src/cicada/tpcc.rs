//! Figures 3, 4 and 5: TPC-C.

use polychron_workloads::run::Report;
use polychron_workloads::tpcc::{Indexes, Tpcc, TpccOptions, Transactions};

use crate::measure::{Bench, System};
use crate::{Ended, Figure};

pub(super) const THROUGHPUT: &str = "transactions a second";

pub(super) const ONE_WAREHOUSE: &str = "All but Cicada scale poorly under contention: conflicts at rows and early index updates. Cicada scales up to 12 \
     threads and is up to three times as fast as the next one.";
pub(super) const FOUR_WAREHOUSES: &str = "As with one warehouse; Cicada scales up to 28 threads.";
pub(super) const OWN_WAREHOUSE: &str = "Without contention single-version designs have it easier, and Cicada is still 5.5 % faster than Silo in the same \
     benchmark: 2.07 M transactions a second on 28 threads.";
pub(super) const ONE_DEFERRED: &str = "With index updates deferred and no phantom avoidance in any system, the others scale better; Cicada on a single-version \
     index makes 33.2 % more than Silo.";
pub(super) const FOUR_DEFERRED: &str = "Cheaper index updates help all; Cicada stays ahead.";
pub(super) const OWN_DEFERRED: &str = "Cicada is up to 10.7 % faster than the others, and scales with the cores.";
pub(super) const NP: &str = "Largely as Figure 4, with a larger gain for Cicada: short transactions that are prone to conflict show its cheap \
     execution and its resolution of conflicts.";

const FEW_CORES: &str = "Two threads on two cores meet in few transactions, so there is little contention for versions and regulated waits to \
     save; what is left is the price of a version for each write.";
const SCALING: &str = "More threads than free cores, or other programs on them, leave nothing to scale into.";

/// TPC-C with so many warehouses, or one for each thread.
pub(super) fn options(bench: &Bench<'_>, warehouses: Option<u16>, threads: usize) -> TpccOptions {
    TpccOptions {
        warehouses: warehouses.unwrap_or(threads.try_into().unwrap_or(u16::MAX)),
        scale: bench.settings.scale,
        ..TpccOptions::default()
    }
}

fn systems() -> [(&'static str, System); 2] {
    [("Cicada", System::cicada(|_| ())), ("Maflingo (the paper's Silo)", System::Maflingo)]
}

fn over_threads(bench: &Bench<'_>, figure: &mut Figure, options: impl Fn(usize) -> TpccOptions) -> Result<(), Ended> {
    let measure = |system: &System, threads: &usize| {
        let report: Report = bench.run::<Tpcc>(system, &options(*threads), *threads)?;
        Ok([report.committed_tps])
    };
    let measured = bench.sweep(figure, [THROUGHPUT], &bench.threads(), &systems(), measure);
    let last = figure.last();
    let ahead = [figure.point(0, last), figure.point(1, last)];
    figure.expect_higher("Cicada is faster than Maflingo with the most threads", ahead, FEW_CORES);
    if last > 0 {
        let scaled = [figure.point(0, last), figure.point(0, 0)];
        figure.expect_higher("Cicada is faster with the most threads than with one", scaled, SCALING);
    }
    measured
}

/// Figure 3.
pub(super) fn mix(bench: &Bench<'_>, figure: &mut Figure, warehouses: Option<u16>) -> Result<(), Ended> {
    "Cicada runs here on single-version indexes with deferred updates and phantom avoidance; the paper's figure has its \
     multi-version indexes. Delivery is deferred, as the specification has it."
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
