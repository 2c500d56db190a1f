//! HyPer's MVCC: Figures 7 and 8, scans (`scans.rs`).

mod scans;

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

/// A figure drawn with lines.
const fn lines(
    id: &'static str,
    title: &'static str,
    x_name: &'static str,
    claim: &'static str,
    draw: fn(&crate::measure::Bench<'_>, &mut crate::Figure) -> Result<(), crate::Ended>,
) -> Plan {
    Plan { id, title, claim, kind: Kind::Lines, x_name, draw }
}

const DIRTY: &str = "dirty records, %";

const PLANS: &[Plan] = &[
    lines("7", "Scans of a column with versions", DIRTY, scans::VERSIONS, scans::versions),
    lines("8", "Scans with and without VersionedPositions", DIRTY, scans::SYNOPSES, scans::synopses),
];

#[cfg(test)]
mod tests {
    use super::PAPER;

    #[test]
    fn every_figure_of_the_paper_is_planned_once() {
        let ids: Vec<_> = PAPER.ids().collect();
        assert_eq!(ids, ["7", "8"]);
    }
}
