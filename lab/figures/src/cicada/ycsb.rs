//! Figures 6 and 11: YCSB.

use polychron_workloads::ycsb::YcsbOptions;

use super::tpcc::{CICADA, SILO, THROUGHPUT, expect_ahead, systems};
use crate::measure::{Bench, System};
use crate::{Ended, Figure};

pub(super) const CONTENDED: &str = "“Cicada’s throughput is higher than others when using the same thread count; with 28 threads, Cicada’s throughput is 37.1% higher than \
     TicToc’s. Cicada’s performance decreases only slightly when many threads execute transactions.” (§4.5)";
pub(super) const WRITES: &str = "“All schemes experience lower throughput with higher Zipf skew of the key popularity distribution because of increased conflicts on a few \
     popular keys. Cicada maintains higher throughput than compared systems under both low and high skew.” (§4.5)";
pub(super) const READS: &str = "“Systems achieve slightly higher performance with moderate skew (e.g., 0.8) due to locality of memory reads, but they eventually show lower \
     performance with high skew (e.g., 0.99).” “Cicada again maintains the highest throughput across all contention levels, achieving up to 69.2% \
     higher throughput than the next best.” (§4.5)";
pub(super) const TINY_WRITES: &str = "“Cicada has more out-of-transaction processing, such as timestamp allocation and garbage collection, than 1VCC designs such as Silo and \
     TicToc. The overhead is most apparent on write-intensive YCSB as shown in Figures 11a and 11b.” “Cicada achieves 8.7% lower throughput than \
     TicToc on the write-intensive YCSB with 28 threads and skew of 0.99.” (Appendix B)";
pub(super) const TINY_READS: &str =
    "“Cicada’s read-intensive YCSB performance is similar to or higher than Silo’ and TicToc.” (Appendix B)";

/// Requests of a transaction.
pub(super) const SIXTEEN: usize = 16;
/// As above, for Figure 11.
pub(super) const ONE: usize = 1;

/// YCSB as the paper has it.
pub(super) fn options(bench: &Bench<'_>, requests: usize, read_share: f64, theta: f64) -> YcsbOptions {
    YcsbOptions { records: bench.settings.records, requests, read_share, theta, ..YcsbOptions::default() }
}

/// Figures 6a and 11a: over threads, contended.
pub(super) fn threads(bench: &Bench<'_>, figure: &mut Figure, requests: usize) -> Result<(), Ended> {
    let systems = systems(bench, figure);
    let measure = |system: &System, threads: &usize| {
        Ok([bench.run(system, options(bench, requests, 0.5, 0.99), *threads)?.committed_tps])
    };
    let measured = bench.sweep(figure, [THROUGHPUT], &bench.threads(), &systems, measure);
    if requests == ONE {
        expect_behind(figure, figure.last(), "with the most threads");
    } else {
        expect_ahead(figure);
    }
    measured
}

/// That Cicada pays more outside of tiny transactions than Silo does.
fn expect_behind(figure: &mut Figure, x: usize, when: &str) {
    let claim = format!("`{CICADA}` is slower than {SILO} {when}");
    figure.expect_higher(&claim, [figure.point_of(SILO, x), figure.point_of(CICADA, x)]);
}

/// Figures 6b, 6c, 11b and 11c: over the skew.
pub(super) fn skews(bench: &Bench<'_>, figure: &mut Figure, requests: usize, read_share: f64) -> Result<(), Ended> {
    let skews: &[f64] = if bench.settings.quick { &[0.0, 0.8, 0.99] } else { &[0.0, 0.4, 0.6, 0.8, 0.9, 0.95, 0.99] };
    let skews: Vec<_> = skews.iter().map(|skew| (skew.to_string(), *skew)).collect();
    let most = bench.settings.threads;
    let systems = systems(bench, figure);
    let measure = |system: &System, theta: &f64| {
        Ok([bench.run(system, options(bench, requests, read_share, *theta), most)?.committed_tps])
    };
    let measured = bench.sweep(figure, [THROUGHPUT], &skews, &systems, measure);
    let last = figure.last();
    for (x, when) in [(0, "without skew"), (last, "with skew 0.99")] {
        let values = [figure.point_of(CICADA, x), figure.point_of(SILO, x)];
        match (requests, read_share < 0.9) {
            (ONE, true) => expect_behind(figure, x, when),
            (ONE, false) => {
                figure.expect_not_lower(&format!("`{CICADA}` is as fast as {SILO} or faster {when}"), values)
            }
            _ => figure.expect_higher(&format!("`{CICADA}` is faster than {SILO} {when}"), values),
        }
    }
    if requests != ONE {
        let names: Vec<_> = figure.panels[0].series.iter().map(|series| series.name.clone()).collect();
        for name in names {
            let moderate = skews.iter().position(|(_, skew)| *skew == 0.8).unwrap_or_default();
            let before = if read_share < 0.9 { (0, "none") } else { (moderate, "0.8") };
            let values = [figure.point_of(&name, before.0), figure.point_of(&name, last)];
            figure.expect_higher(&format!("{name} is slower with skew 0.99 than with {}", before.1), values);
        }
    }
    measured
}
