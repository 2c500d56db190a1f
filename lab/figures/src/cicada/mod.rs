//! Cicada: Figures 3 to 11, Table 2, and the rates and ages that section 4.6 gives in its text.

mod factors;
mod snapshots;
mod tpcc;
mod ycsb;

use crate::{Kind, Paper, Plan};

pub(crate) const PAPER: Paper = Paper {
    name: "cicada",
    citation: "Hyeontaek Lim, Michael Kaminsky, David G. Andersen: Cicada: Dependably Fast Multi-Core In-Memory Transactions. \
               SIGMOD 2017.",
    scope: "The paper measures with up to 28 threads on 28 cores, against seven systems. Here are as many threads as cores, and of \
            those systems Silo's protocol, as Maflingo. What shows only where many cores meet cannot show on few: claims that \
            need them are marked, and the reason is given where one does not hold.",
    records: 10_000_000,
    plans: PLANS,
};

const THREADS: &str = "threads";

const PLANS: &[Plan] = &[
    Plan::lines("3a", "TPC-C, 1 warehouse", THREADS, |bench, figure| tpcc::mix(bench, figure, Some(1))),
    Plan::lines("3b", "TPC-C, 4 warehouses", THREADS, |bench, figure| tpcc::mix(bench, figure, Some(4))),
    Plan::lines("3c", "TPC-C, a warehouse for each thread", THREADS, |bench, figure| tpcc::mix(bench, figure, None)),
    Plan::lines("4a", "TPC-C, 1 warehouse, ordered indexes", THREADS, |bench, figure| {
        tpcc::ordered(bench, figure, Some(1))
    }),
    Plan::lines("4b", "TPC-C, 4 warehouses, ordered indexes", THREADS, |bench, figure| {
        tpcc::ordered(bench, figure, Some(4))
    }),
    Plan::lines("4c", "TPC-C, a warehouse for each thread, ordered indexes", THREADS, |bench, figure| {
        tpcc::ordered(bench, figure, None)
    }),
    Plan::lines("5a", "NewOrder and Payment, 1 warehouse", THREADS, |bench, figure| tpcc::np(bench, figure, Some(1))),
    Plan::lines("5b", "NewOrder and Payment, 4 warehouses", THREADS, |bench, figure| tpcc::np(bench, figure, Some(4))),
    Plan::lines("5c", "NewOrder and Payment, a warehouse for each thread", THREADS, |bench, figure| {
        tpcc::np(bench, figure, None)
    }),
    Plan::lines("6a", "YCSB, half writes, skew 0.99, 16 requests", THREADS, |bench, figure| {
        ycsb::threads(bench, figure, ycsb::SIXTEEN)
    }),
    Plan::lines("6b", "YCSB, half writes, 16 requests", "skew", |bench, figure| {
        ycsb::skews(bench, figure, ycsb::SIXTEEN, 0.5)
    }),
    Plan::lines("6c", "YCSB, 95 % reads, 16 requests", "skew", |bench, figure| {
        ycsb::skews(bench, figure, ycsb::SIXTEEN, 0.95)
    }),
    Plan::lines("7", "Clocks and a shared counter: YCSB, 95 % reads, skew 0.99, 1 request", THREADS, factors::clocks),
    Plan::lines("8", "Inlining: YCSB, 95 % reads, uniform, 16 requests", "bytes of a record", factors::inlining),
    Plan::lines("9", "Collection interval: TPC-C", "interval", factors::collection),
    Plan::lines("10 top", "Wait after conflicts: TPC-C", "longest wait, µs", |bench, figure| {
        factors::waits(bench, figure, factors::Load::Tpcc)
    }),
    Plan::lines("10 middle", "Wait after conflicts: NewOrder and Payment", "longest wait, µs", |bench, figure| {
        factors::waits(bench, figure, factors::Load::TpccNp)
    }),
    Plan::lines(
        "10 bottom",
        "Wait after conflicts: YCSB, half writes, skew 0.99, 1 request",
        "longest wait, µs",
        |bench, figure| factors::waits(bench, figure, factors::Load::Ycsb),
    ),
    Plan::lines("11a", "YCSB, half writes, skew 0.99, 1 request", THREADS, |bench, figure| {
        ycsb::threads(bench, figure, ycsb::ONE)
    }),
    Plan::lines("11b", "YCSB, half writes, 1 request", "skew", |bench, figure| {
        ycsb::skews(bench, figure, ycsb::ONE, 0.5)
    }),
    Plan::lines("11c", "YCSB, 95 % reads, 1 request", "skew", |bench, figure| {
        ycsb::skews(bench, figure, ycsb::ONE, 0.95)
    }),
    Plan {
        id: "table 2",
        title: "Without one optimisation: YCSB, half writes, skew 0.99, 16 requests",
        kind: Kind::Bars,
        x_name: "left out",
        draw: factors::optimisations,
    },
    Plan {
        id: "staleness",
        title: "Age of snapshots: OrderStatus and StockLevel of TPC-C (§4.6)",
        kind: Kind::Bars,
        x_name: "age",
        draw: snapshots::staleness,
    },
    Plan {
        id: "scans",
        title: "Scans of a whole table in a snapshot (§4.6)",
        kind: Kind::Bars,
        x_name: "rows",
        draw: snapshots::scans,
    },
    Plan {
        id: "space",
        title: "Space overhead of versions: TPC-C (§4.6)",
        kind: Kind::Bars,
        x_name: "collection interval",
        draw: snapshots::space,
    },
];

#[cfg(test)]
mod tests {
    use super::PAPER;

    #[test]
    fn every_figure_of_the_paper_is_planned_once() {
        let ids: Vec<_> = PAPER.ids().collect();
        let of_paper =
            ["3a", "3b", "3c", "4a", "4b", "4c", "5a", "6a", "6b", "6c", "7", "8", "9", "10 top", "11a", "table 2"];
        assert!(of_paper.iter().all(|id| ids.contains(id)), "{ids:?}");
        assert!(ids.iter().enumerate().all(|(at, id)| !ids[..at].contains(id)), "{ids:?}");
    }
}
