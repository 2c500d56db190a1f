//! HyPer's MVCC: Figures 7 to 9, scans (`scans.rs`); Figures 10 and 11 and what sections 4.2 to 4.4 say in their text (`transactions.rs`).

mod scans;
mod transactions;

use crate::{Kind, Paper, Plan};

pub(crate) const PAPER: Paper = Paper {
    name: "hyper",
    citation: "Thomas Neumann, Tobias Mühlbauer, Alfons Kemper: Fast Serializable Multi-Version Concurrency Control for Main-Memory \
               Database Systems. SIGMOD 2015.",
    scope: "The paper measures inside HyPer, whose queries are compiled, on 20 cores and tables of 100 M records. Here a scan is a loop \
            over column batches, and there are as many threads as cores.",
    records: 10_000_000,
    plans: PLANS,
};

/// A figure drawn with bars.
const fn bars(
    id: &'static str,
    title: &'static str,
    draw: fn(&crate::measure::Bench<'_>, &mut crate::Figure) -> Result<(), crate::Ended>,
) -> Plan {
    Plan { id, title, kind: Kind::Bars, x_name: "", draw }
}

const DIRTY: &str = "dirty records, %";
const SHARE: &str = "share, %";

const PLANS: &[Plan] = &[
    Plan::lines("7", "Scans of a column with versions", DIRTY, scans::versions),
    Plan::lines("8", "Scans with and without VersionedPositions", DIRTY, scans::synopses),
    Plan::lines("9", "What a scan of the oldest state does", DIRTY, scans::breakdown),
    bars("rates", "Insertions, updates, deletions (§4.2)", transactions::rates),
    bars("10a", "TPC-C on one thread", transactions::systems),
    Plan::lines("10b", "Top-customer among interleaved TPC-C", SHARE, transactions::top_customer),
    Plan::lines("10c", "Aborts of interleaved TPC-C", "warehouses", transactions::aborts),
    Plan::lines("11a", "TPC-C on several threads", "threads", transactions::scaling),
    Plan::lines("11b", "TPC-C across partitions", SHARE, transactions::crossing),
    Plan::lines("11c", "TPC-C with read-only transactions", SHARE, transactions::read_only),
    Plan::lines("tatp", "TATP (§4.3)", "threads", transactions::tatp),
    bars("logging", "The cost of predicate logs (§4.4)", transactions::logging),
];
