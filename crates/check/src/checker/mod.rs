//! Checks histories: is there a serial order that explains every answer, and if not, why not?
//!
//! It trusts nothing but the recorded answers. `docs/checker.md` says what is recorded, how versions are ordered, and what
//! is sound and complete.

mod anomaly;
mod circle;
mod facts;
mod graph;
mod interpret;
mod replay;
mod solver;
#[cfg(test)]
mod tests;
mod words;

pub use anomaly::{Anomaly, Explanation};

use crate::history::History;
use facts::Facts;
use graph::Graph;
use solver::{Solution, Solver};

/// What a history shows.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Every answer is explained by a serial order: the ids of the attempts, first to last.
    Serializable(Vec<u64>),
    /// There is none. The worst anomaly is the first.
    Anomalous(Vec<Explanation>),
    /// Neither was shown: the history leaves too much open.
    Undecided,
}

impl Verdict {
    /// The worst anomaly, if there is one.
    pub fn anomaly(&self) -> Option<&Explanation> {
        match self {
            Self::Anomalous(explanations) => explanations.first(),
            _ => None,
        }
    }
}

/// Checks a history; with `strict`, the serial order must agree with real time, snapshots aside.
pub fn check(history: &History, strict: bool) -> Verdict {
    let mut facts = Facts::new(history);
    let findings = std::mem::take(&mut facts.findings);
    let graph = Graph::new(&facts, strict);
    let count = facts.parts.len() as u32;
    let mut wanted: Vec<u32> = (0..count).collect();
    wanted.sort_by_key(|&transaction| facts.attempt(transaction).end);
    let closing = match graph.order(&wanted) {
        None => Vec::new(),
        Some(order) => match Solver::new(&facts, &graph, order).solve() {
            Solution::Order(_) if !findings.is_empty() => return anomalous(findings),
            Solution::Order(order) => {
                return Verdict::Serializable(order.into_iter().map(|it| facts.attempt(it).id).collect());
            }
            Solution::Undecided if !findings.is_empty() => return anomalous(findings),
            Solution::Undecided => return Verdict::Undecided,
            Solution::Circle(edges) => edges,
        },
    };
    let edges: Vec<_> = graph.edges.iter().copied().chain(closing).collect();
    let mut explanations = circle::explain(&facts, graph.nodes, &edges);
    explanations.extend(findings);
    anomalous(explanations)
}

fn anomalous(mut explanations: Vec<Explanation>) -> Verdict {
    assert!(!explanations.is_empty(), "an anomaly has an explanation");
    explanations.sort_by_key(|it| (it.real_time, it.anomaly, it.attempts.len()));
    Verdict::Anomalous(explanations)
}
