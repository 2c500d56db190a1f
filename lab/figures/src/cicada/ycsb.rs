//! Figures 6 and 11: YCSB.

use polychron_workloads::ycsb::YcsbOptions;

use super::tpcc::{CICADA, MANY, SILO, THROUGHPUT, expect_ahead, expect_ahead_at, expect_far_ahead, systems};
use crate::measure::{Bench, System};
use crate::{Ended, Figure};

/// Figure 6a.
const CONTENDED: &str = "“Cicada’s throughput is higher than others when using the same thread count; with 28 threads, Cicada’s throughput is 37.1% higher than \
     TicToc’s.” (§4.5)";
const STAYS: &str = "“Cicada’s performance decreases only slightly when many threads execute transactions […].” (§4.5)";
/// Figure 6b.
const SKEW_COSTS: &str = "“All schemes experience lower throughput with higher Zipf skew of the key popularity distribution because of increased conflicts on a few \
     popular keys.” (§4.5)";
const WRITES: &str = "“Cicada maintains higher throughput than compared systems under both low and high skew.” (§4.5)";
/// Figure 6c.
const LOCALITY: &str = "“Systems achieve slightly higher performance with moderate skew (e.g., 0.8) due to locality of memory reads, but they eventually show lower \
     performance with high skew (e.g., 0.99).” (§4.5)";
const READS: &str = "“Cicada again maintains the highest throughput across all contention levels, achieving up to 69.2% higher throughput than the next best.” (§4.5)";
/// Figure 11.
const TINY_WRITES: &str =
    "“The overhead is most apparent on write-intensive YCSB as shown in Figures 11a and 11b.” (Appendix B)";
const THAN_TICTOC: &str = "“Cicada achieves 8.7% lower throughput than TicToc on the write-intensive YCSB with 28 threads and skew of 0.99.” (Appendix B)";
const TINY_READS: &str =
    "“Cicada’s read-intensive YCSB performance is similar to or higher than Silo’ and TicToc.” (Appendix B)";

const NO_TICTOC: &str = "TicToc is not among the systems.";

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
        figure.cannot_show(THAN_TICTOC, "`cicada` makes 8.7 % less than TicToc", NO_TICTOC);
        return measured;
    }
    expect_ahead(figure, CONTENDED);
    figure.cannot_show(CONTENDED, "`cicada` makes 37.1 % more than TicToc", NO_TICTOC);
    let claim = "with the most threads `cicada` makes at least four fifths of its best";
    if bench.has_threads(MANY, figure, STAYS, claim) {
        let all = (0..figure.x_values.len()).filter_map(|x| figure.point_of(CICADA, x));
        let best = all.max_by(|one, other| one.median.total_cmp(&other.median));
        figure.expect_times(STAYS, claim, [figure.point_of(CICADA, figure.last()), best], 0.8..=f64::MAX);
    }
    measured
}

/// That Cicada pays more outside of tiny transactions than Silo does.
fn expect_behind(figure: &mut Figure, x: usize, when: &str) {
    let claim = format!("`{CICADA}` is slower than {SILO} {when}");
    figure.expect_higher(TINY_WRITES, &claim, [figure.point_of(SILO, x), figure.point_of(CICADA, x)]);
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
    let ends = [(0, "without skew"), (last, "with skew 0.99")];
    match (requests, read_share < 0.9) {
        (ONE, true) => ends.into_iter().for_each(|(x, when)| expect_behind(figure, x, when)),
        (ONE, false) => {
            for (x, when) in ends {
                let values = [CICADA, SILO].map(|name| figure.point_of(name, x));
                let claim = format!("`{CICADA}` is as fast as {SILO} or faster {when}");
                figure.expect_not_lower(TINY_READS, &claim, values);
            }
        }
        (_, true) => {
            expect_by_skew(figure, SKEW_COSTS, [(0, "without skew"), (last, "with 0.99")]);
            ends.into_iter().for_each(|(x, when)| expect_ahead_at(figure, WRITES, x, when));
        }
        (_, false) => {
            let moderate = skews.iter().position(|(_, skew)| *skew == 0.8).unwrap_or_default();
            for name in names(figure) {
                let values = [moderate, 0].map(|x| figure.point_of(&name, x));
                let claim = format!("{name} is as fast with skew 0.8 as without or faster");
                figure.expect_not_lower(LOCALITY, &claim, values);
            }
            expect_by_skew(figure, LOCALITY, [(moderate, "with 0.8"), (last, "with 0.99")]);
            let levels = [ends[0], (moderate, "with skew 0.8"), ends[1]];
            levels.into_iter().for_each(|(x, when)| expect_ahead_at(figure, READS, x, when));
            expect_far_ahead(bench, figure, READS, 1.692, MANY);
        }
    }
    measured
}

fn names(figure: &Figure) -> Vec<String> {
    figure.panels[0].series.iter().map(|series| series.name.clone()).collect()
}

/// That every system is slower with more skew.
fn expect_by_skew(figure: &mut Figure, quote: &str, [less, more]: [(usize, &str); 2]) {
    for name in names(figure) {
        let values = [less.0, more.0].map(|x| figure.point_of(&name, x));
        figure.expect_higher(quote, &format!("{name} is slower {} than {}", more.1, less.1), values);
    }
}
