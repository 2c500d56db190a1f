//! Figures 6 and 11: YCSB.

use polychron_workloads::ycsb::{Ycsb, YcsbOptions};

use super::tpcc::THROUGHPUT;
use crate::measure::{Bench, System};
use crate::{Ended, Figure};

pub(super) const CONTENDED: &str = "Cicada is faster than all others at every number of threads, by 37.1 % than the next one with 28, and hardly slows down \
     with many.";
pub(super) const WRITES: &str = "More skew costs every system throughput. Cicada is ahead at low skew, where inlining saves misses, and at high skew, \
     where versions and regulated waits help.";
pub(super) const READS: &str = "Moderate skew (0.8) helps through locality, high skew (0.99) costs through conflicts. Cicada is up to 69.2 % faster than \
     the next one: no extra reads, and fewer misses.";
pub(super) const TINY_WRITES: &str = "With one request a transaction the work outside of it weighs most; Cicada has more of that than single-version designs, \
     and is 8.7 % slower than TicToc with skew 0.99 and 28 threads.";
pub(super) const TINY_READS: &str = "Mostly reads: Cicada is about as fast as Silo and TicToc, or faster.";

/// Requests of a transaction.
pub(super) const SIXTEEN: usize = 16;
/// As above, for Figure 11.
pub(super) const ONE: usize = 1;

const FEW_CORES: &str = "On few cores conflicts are rare even with this skew, so that versions save little of them; and the single-version design \
     here is a newer one than the paper compares with: it prefetches, and copies short rows cheaply.";
const CACHES: &str =
    "The caches of this machine hold a large part of the table, so that skew helps as locality before it hurts.";

/// YCSB as the paper has it.
pub(super) fn options(bench: &Bench<'_>, requests: usize, read_share: f64, theta: f64) -> YcsbOptions {
    YcsbOptions { records: bench.settings.records, requests, read_share, theta, ..YcsbOptions::default() }
}

fn systems() -> [(&'static str, System); 2] {
    [("Cicada", System::cicada(|_| ())), ("Maflingo (the paper's Silo)", System::Maflingo)]
}

/// Figures 6a and 11a: over threads, contended.
pub(super) fn threads(bench: &Bench<'_>, figure: &mut Figure, requests: usize) -> Result<(), Ended> {
    let measure = |system: &System, threads: &usize| {
        Ok([bench.run::<Ycsb>(system, &options(bench, requests, 0.5, 0.99), *threads)?.committed_tps])
    };
    let measured = bench.sweep(figure, [THROUGHPUT], &bench.threads(), &systems(), measure);
    let last = figure.last();
    let values = [figure.point(0, last), figure.point(1, last)];
    if requests == ONE {
        let swapped = [values[1], values[0]];
        figure.expect_higher("Cicada pays more outside of tiny transactions that write", swapped, FEW_CORES);
    } else {
        figure.expect_higher("Cicada is faster than Maflingo with the most threads", values, FEW_CORES);
    }
    measured
}

/// Figures 6b, 6c, 11b and 11c: over the skew.
pub(super) fn skews(bench: &Bench<'_>, figure: &mut Figure, requests: usize, read_share: f64) -> Result<(), Ended> {
    let skews: &[f64] = if bench.settings.quick { &[0.0, 0.8, 0.99] } else { &[0.0, 0.4, 0.6, 0.8, 0.9, 0.95, 0.99] };
    let skews: Vec<_> = skews.iter().map(|skew| (skew.to_string(), *skew)).collect();
    let most = bench.settings.threads;
    let measure = |system: &System, theta: &f64| {
        Ok([bench.run::<Ycsb>(system, &options(bench, requests, read_share, *theta), most)?.committed_tps])
    };
    let measured = bench.sweep(figure, [THROUGHPUT], &skews, &systems(), measure);
    for (x, name) in [(0, "without skew"), (figure.last(), "with skew 0.99")] {
        let values = [figure.point(0, x), figure.point(1, x)];
        if requests == ONE && read_share < 0.9 {
            let claim = format!("Cicada pays more outside of tiny transactions that write, {name}");
            figure.expect_higher(&claim, [values[1], values[0]], FEW_CORES);
        } else {
            figure.expect_higher(&format!("Cicada is faster than Maflingo {name}"), values, FEW_CORES);
        }
    }
    if read_share < 0.9 {
        let values = [figure.point(0, 0), figure.point(0, figure.last())];
        figure.expect_higher("high skew costs Cicada throughput", values, CACHES);
    }
    measured
}
