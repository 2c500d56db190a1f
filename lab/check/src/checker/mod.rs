//! Checks histories: is there a serial order that explains every answer, and if not, why not?
//!
//! It trusts nothing but the recorded answers. `docs/checker.md` says what is recorded, how versions are ordered, and what
//! is sound and complete.

mod aborts;
mod anomaly;
mod cycle;
mod facts;
mod graph;
mod interpret;
mod presences;
mod replay;
mod skew;
mod solver;
#[cfg(test)]
mod tests;
mod words;

pub use aborts::Aborts;
pub use anomaly::{Anomaly, Explanation};

use polychron_engine::Isolation;

use crate::history::History;
use facts::{Facts, NONE};
use graph::{Edge, Graph};
use solver::{Solution, Solver};

/// What a history shows.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Every answer is explained by a serial order: the ids of the attempts, first to last.
    Serializable(Vec<u64>),
    /// There is none, and snapshot isolation, which was promised, allows what is in the way.
    Skewed(Explanation),
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
    examine(history, strict).0
}

/// Checks a history for what was promised.
pub fn check_at(history: &History, strict: bool, promised: Isolation) -> Verdict {
    examine_at(history, strict, promised).0
}

/// As [`examine`], for what was promised.
pub fn examine_at(history: &History, strict: bool, promised: Isolation) -> (Verdict, Option<Aborts>) {
    match examine(history, strict) {
        (Verdict::Anomalous(explanations), _) if promised == Isolation::Snapshot => {
            (skew::judge(history, strict, explanations), None)
        }
        examined => examined,
    }
}

/// Checks a history, and counts the aborts that were not needed where the rest is as it should be.
pub fn examine(history: &History, strict: bool) -> (Verdict, Option<Aborts>) {
    let mut facts = Facts::new(history);
    let findings = std::mem::take(&mut facts.findings);
    let graph = Graph::new(&facts, strict);
    let count = facts.parts.len() as u32;
    let solution = match graph.order(&by_time(&facts)) {
        None => Solution::Cycle(Vec::new(), None),
        Some(order) => Solver::new(&facts, &graph, order).solve(),
    };
    match solution {
        Solution::Cycle(closing, other) => {
            let explain = |closing: Vec<_>| {
                let edges: Vec<_> = graph.edges.iter().copied().chain(closing).collect();
                cycle::explain(&facts, graph.nodes, &edges)
            };
            let without = |other: Edge| closing[..closing.len() - 1].iter().copied().chain([other]).collect();
            let other = other.and_then(|edge| explain(without(edge)).into_iter().next());
            let mut explanations = explain(closing);
            if let (Some(first), Some(other)) = (explanations.first_mut(), other) {
                first.story.push("Nor had the row been deleted by then:".to_owned());
                first.story.extend(other.story);
            }
            explanations.extend(findings);
            (anomalous(explanations), None)
        }
        _ if !findings.is_empty() => (anomalous(findings), None),
        Solution::Undecided => (Verdict::Undecided, None),
        Solution::Order(order) => {
            let aborts = aborts::count(&facts, &graph, &order, strict);
            let transactions = order.into_iter().filter(|&node| node < count);
            (Verdict::Serializable(transactions.map(|it| facts.attempt(it).id).collect()), Some(aborts))
        }
    }
}

/// The transactions as they may well have followed each other: by their ends; snapshots behind what they saw.
fn by_time(facts: &Facts<'_>) -> Vec<u32> {
    let time = |transaction: u32| {
        let attempt = facts.attempt(transaction);
        let seen = facts.reads(transaction).filter(|(_, state)| attempt.snapshot && *state != NONE);
        let latest = seen.map(|(_, state)| facts.attempt(facts.state(state).writer).end).max();
        (latest.unwrap_or(attempt.end), attempt.snapshot)
    };
    let mut transactions: Vec<u32> = (0..facts.parts.len() as u32).collect();
    transactions.sort_by_cached_key(|&transaction| time(transaction));
    transactions
}

fn anomalous(mut explanations: Vec<Explanation>) -> Verdict {
    assert!(!explanations.is_empty(), "an anomaly has an explanation");
    explanations.sort_by_key(|it| (it.real_time, it.anomaly, it.attempts.len()));
    Verdict::Anomalous(explanations)
}
