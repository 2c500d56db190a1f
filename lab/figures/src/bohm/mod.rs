//! BOHM: Figures 4 to 9, and what batches do to latency, of which the paper has no figure.
//!
//! All systems are measured alike: each client hands over batches, since a planner lives on them, and draws the inputs of a
//! batch before.

mod contenders;
mod increment;
mod smallbank;
mod ycsb;

use crate::{Paper, Plan};

pub(crate) const PAPER: Paper = Paper {
    name: "bohm",
    citation: "Jose M. Faleiro, Daniel J. Abadi: Rethinking Serializable Multiversion Concurrency Control. PVLDB 8(11), 2015.",
    scope: "The paper measures with up to 40 threads on 40 cores. Here are as many threads as cores; the clients that hand \
            transactions over run on the same cores. Its OCC is Silo's protocol, here Maflingo; Cicada, which is younger, is \
            measured beside. What shows only where many cores meet (queues for one counter, aborts that rise with the threads, \
            scaling) cannot show on few: such claims are marked, with the reason.",
    records: 1_000_000,
    plans: PLANS,
};

const THREADS: &str = "threads";

/// What the vertical axes show.
const THROUGHPUT: &str = "transactions a second";

/// Skews of high and of low contention.
const HIGH: f64 = 0.9;
const LOW: f64 = 0.0;

const PLANS: &[Plan] = &[
    Plan::lines("4", "Concurrency control and execution: increments", "division", increment::divisions),
    Plan::lines("5 top", "YCSB, 10RMW, skew 0.9", THREADS, |bench, figure| ycsb::updates(bench, figure, HIGH)),
    Plan::lines("5 bottom", "YCSB, 10RMW, no skew", THREADS, |bench, figure| ycsb::updates(bench, figure, LOW)),
    Plan::lines("6 top", "YCSB, 2RMW-8R, skew 0.9", THREADS, |bench, figure| ycsb::reads(bench, figure, HIGH)),
    Plan::lines("6 bottom", "YCSB, 2RMW-8R, no skew", THREADS, |bench, figure| ycsb::reads(bench, figure, LOW)),
    Plan::lines("7", "YCSB, 2RMW-8R, the most threads", "skew", ycsb::skews),
    Plan::lines("8", "YCSB, 10RMW and long readers, no skew", "long readers, %", ycsb::long_readers),
    Plan::lines("9 top", "SmallBank, 50 customers, 50 µs of spinning", THREADS, |bench, figure| {
        smallbank::threads(bench, figure, smallbank::FEW)
    }),
    Plan::lines("9 bottom", "SmallBank, 100,000 customers, 50 µs of spinning", THREADS, |bench, figure| {
        smallbank::threads(bench, figure, smallbank::MANY)
    }),
    Plan::lines("batches", "Throughput and latency by batch: YCSB, 10RMW, no skew", "batch", ycsb::batches),
];

#[cfg(test)]
mod tests {
    use super::PAPER;

    #[test]
    fn every_figure_of_the_paper_is_planned_once() {
        let ids: Vec<_> = PAPER.ids().collect();
        assert_eq!(ids, ["4", "5 top", "5 bottom", "6 top", "6 bottom", "7", "8", "9 top", "9 bottom", "batches"]);
    }
}
