//! Snapshot isolation: which histories it allows that no serial order explains.
//!
//! A history of snapshot isolation has no cycle in which every anti-dependency is followed by a dependency (Cerone and Gotsman,
//! *Analysing Snapshot Isolation*, PODC 2016; Fekete and others found the two anti-dependencies in a row that the other cycles
//! have). So the graph is looked at with every transaction in it twice: as one that was come to by an anti-dependency, which can be left
//! by dependencies alone, and as one that was not.

use super::facts::{Facts, NONE};
use super::graph::{Edge, Graph, Kind};
use super::{Anomaly, Explanation, Verdict, cycle, words};
use crate::history::History;

/// Judges a history that has no serial order, as was `found`. What snapshot isolation forbids is looked for among what is certain: how the
/// rest is to be completed was concluded from there being a serial order.
pub(super) fn judge(history: &History, strict: bool, mut found: Vec<Explanation>) -> Verdict {
    let mut facts = Facts::new(history);
    let mut broken = std::mem::take(&mut facts.findings);
    let graph = Graph::new(&facts, strict);
    if let Some(cycle) = replaced_twice(&graph).or_else(|| lone_cycle(&graph)) {
        let explained = cycle::explain(&facts, graph.nodes, &graph.edges);
        broken.extend(explained.into_iter().filter(|it| !matches!(it.anomaly, Anomaly::G2Item | Anomaly::G2)));
        if broken.is_empty() {
            broken.push(in_words(&facts, &cycle));
        }
    }
    if broken.is_empty() { Verdict::Skewed(found.swap_remove(0)) } else { super::anomalous(broken) }
}

/// Two transactions that replaced the same state. One of the two edges between them is a write dependency, whichever it is; the graph
/// calls both anti-dependencies, and notes no operation.
fn replaced_twice(graph: &Graph) -> Option<Vec<Edge>> {
    let forth = graph.edges.iter().find(|edge| edge.kind == Kind::Anti && edge.operation == NONE)?;
    let back =
        graph.edges.iter().find(|edge| (edge.from, edge.to) == (forth.to, forth.from) && edge.operation == NONE)?;
    Some(vec![*forth, *back])
}

/// A cycle without two anti-dependencies in a row.
fn lone_cycle(graph: &Graph) -> Option<Vec<Edge>> {
    const UNDER_WAY: u8 = 1;
    const DONE: u8 = 2;
    // A node stands for a transaction, and behind all of them once more for one that was come to by an anti-dependency.
    let mut marks = vec![0u8; 2 * graph.nodes];
    for root in 0..graph.nodes {
        if marks[root] != 0 {
            continue;
        }
        marks[root] = UNDER_WAY;
        let mut path: Vec<(usize, usize, Option<Edge>)> = vec![(root, 0, None)];
        while let Some((node, at, _)) = path.last_mut() {
            let by_anti = *node >= graph.nodes;
            let present = (*node % graph.nodes) as u32;
            let Some(&number) = graph.out(present).get(*at) else {
                marks[*node] = DONE;
                path.pop();
                continue;
            };
            *at += 1;
            let edge = graph.edges[number as usize];
            if by_anti && edge.kind.is_anti() {
                continue;
            }
            let next = edge.to as usize + if edge.kind.is_anti() { graph.nodes } else { 0 };
            match marks[next] {
                0 => {
                    marks[next] = UNDER_WAY;
                    path.push((next, 0, Some(edge)));
                }
                UNDER_WAY => {
                    let first = path.iter().position(|(node, ..)| *node == next)?;
                    let inside = path[first + 1..].iter().filter_map(|(.., edge)| *edge);
                    return Some(inside.chain([edge]).collect());
                }
                _ => {}
            }
        }
    }
    None
}

fn in_words(facts: &Facts<'_>, cycle: &[Edge]) -> Explanation {
    let seen: Vec<&Edge> = cycle.iter().filter(|edge| edge.kind != Kind::RealTime).collect();
    let attempts = seen.iter().map(|edge| facts.attempt(edge.from).id).collect();
    let antis = cycle.iter().filter(|edge| edge.kind.is_anti()).count();
    let anomaly = match antis {
        0 | 1 => Anomaly::GSingle,
        _ if cycle.len() == 2 => Anomaly::LostUpdate,
        _ => Anomaly::LongFork,
    };
    let story = seen.iter().map(|edge| words::edge(facts, edge)).collect();
    Explanation { anomaly, real_time: seen.len() < cycle.len(), attempts, story }
}
