//! Figure 4: how many threads plan, and how many execute.

use polychron_workloads::increment::IncrementOptions;

use super::THROUGHPUT;
use super::contenders::{BOHM, CICADA, Contender, Division, OCC, contenders};
use super::ycsb::BATCH;
use crate::measure::Bench;
use crate::runner::Work;
use crate::{Ended, Figure};

const INCREASES: &str = "“This is why the throughput of each configuration initially increases as more execution threads are added.” (§4.1)";
const CONTROL: &str = "“As we increase the number of concurrency control threads (represented by the four separate lines in Figure 4), the maximum throughput of \
     the system increases.” (§4.1)";

const FEW_CORES: &str = "This needs four threads and as many cores.";

/// The divisions of the threads: in turns, a thread for each, four threads in two ways where there are more, and each way to divide more
/// than two.
fn xs(threads: usize) -> Vec<Division> {
    let ways = (1..threads).map(|control| Division { control, execution: threads - control });
    let four = [Division { control: 1, execution: 3 }, Division::of(4)];
    let small = [Division::TURNS, Division::of(2)].into_iter().chain(four.into_iter().filter(|_| threads > 4));
    small.chain(ways.filter(|division| division.threads() > 2)).collect()
}

/// Figure 4.
pub(super) fn divisions(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let divisions = xs(bench.settings.threads);
    "Where one thread does both it takes turns. Beside it systems that are not divided, with as many threads in all."
        .clone_into(&mut figure.note);
    let series = contenders(bench, figure, &[BOHM, OCC, CICADA], &divisions);
    let work = Work::Increment(IncrementOptions { records: bench.settings.records, ..IncrementOptions::default() });
    let measure =
        |contender: &Contender, division: &Division| Ok([contender.run(bench, &work, *division, BATCH)?.committed_tps]);
    let named: Vec<_> = divisions.iter().map(|division| (division.name(), *division)).collect();
    let measured = bench.sweep(figure, [THROUGHPUT], &named, &series, measure);
    let values = [figure.point_of(BOHM, 1), figure.point_of(BOHM, 0)];
    figure.expect_higher(INCREASES, "a thread for each is faster than turns", values);
    let expect = |figure: &mut Figure, quote, claim, more: Division| match divisions
        .iter()
        .position(|division| *division == more)
    {
        Some(x) => figure.expect_higher(quote, claim, [x, 1].map(|x| figure.point_of(BOHM, x))),
        None => figure.cannot_show(quote, claim, FEW_CORES),
    };
    let more = Division { control: 1, execution: 3 };
    expect(figure, INCREASES, "beside one for concurrency control three threads execute more than one", more);
    expect(figure, CONTROL, "twice the threads of both kinds are faster", Division::of(4));
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_divided_in_every_way() {
        let names = |threads| xs(threads).into_iter().map(Division::name).collect::<Vec<_>>();
        assert_eq!(names(1), ["in turns", "1 + 1"]);
        assert_eq!(names(2), ["in turns", "1 + 1"]);
        assert_eq!(names(4), ["in turns", "1 + 1", "1 + 3", "2 + 2", "3 + 1"]);
        assert_eq!(names(5), ["in turns", "1 + 1", "1 + 3", "2 + 2", "1 + 4", "2 + 3", "3 + 2", "4 + 1"]);
    }
}
