//! The shortest cycles of a graph that has some, and what they are called.

use std::collections::HashMap;

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};

use super::anomaly::{Anomaly, Explanation};
use super::facts::{Facts, NONE};
use super::graph::{Edge, Kind};
use super::words;

/// Components that are looked into, and starting points in each: enough to find a short cycle, not all.
const MOST_COMPONENTS: usize = 32;
const MOST_STARTS: usize = 4000;

/// One explanation for each group of transactions that depend on each other, the worst anomaly first.
pub(super) fn explain(facts: &Facts<'_>, nodes: usize, edges: &[Edge]) -> Vec<Explanation> {
    let mut graph: DiGraph<(), ()> = DiGraph::with_capacity(nodes, edges.len());
    for _ in 0..nodes {
        graph.add_node(());
    }
    for edge in edges {
        graph.add_edge(NodeIndex::new(edge.from as usize), NodeIndex::new(edge.to as usize), ());
    }
    let mut groups = kosaraju_scc(&graph);
    drop(graph);
    groups.retain(|group| group.len() > 1);
    groups.sort_by_key(Vec::len);
    groups.truncate(MOST_COMPONENTS);
    let transactions = facts.parts.len() as u32;
    let mut component_of = vec![NONE; nodes];
    for (number, group) in groups.iter().enumerate() {
        group.iter().for_each(|node| component_of[node.index()] = number as u32);
    }
    let mut inside: Vec<Vec<Edge>> = vec![Vec::new(); groups.len()];
    for edge in edges.iter().filter(|edge| edge.kind != Kind::RealTime) {
        let component = component_of[edge.from as usize];
        if component != NONE && component == component_of[edge.to as usize] {
            inside[component as usize].push(*edge);
        }
    }
    let mut explanations: Vec<Explanation> = Vec::new();
    for (group, edges) in groups.iter().zip(inside) {
        let members = group.iter().map(|node| node.index() as u32).filter(|&node| node < transactions).collect();
        let component = Component::new(facts, members, edges);
        explanations.extend(component.cycle().map(|(cycle, real_time)| in_words(facts, &cycle, real_time)));
    }
    explanations.sort_by_key(|it| (it.real_time, it.anomaly, it.attempts.len()));
    explanations
}

fn in_words(facts: &Facts<'_>, cycle: &[Edge], real_time: bool) -> Explanation {
    let attempts = cycle.iter().map(|edge| facts.attempt(edge.from).id).collect();
    let mut story: Vec<String> = cycle.iter().map(|edge| words::edge(facts, edge)).collect();
    for edge in cycle {
        story.push(facts.history.describe(facts.attempt(edge.from)));
    }
    let real_time = real_time || cycle.iter().any(|edge| edge.kind == Kind::Session);
    Explanation { anomaly: name(facts, cycle), real_time, attempts, story }
}

/// Transactions each of which comes before each other one.
struct Component<'f> {
    facts: &'f Facts<'f>,
    edges: Vec<Edge>,
    /// The members by the time they began; and where each stands there.
    members: Vec<u32>,
    positions: HashMap<u32, u32>,
    /// Edges of each member, by its place.
    out: Vec<Vec<u32>>,
}

type Filter = fn(&Edge) -> bool;

fn is_write(edge: &Edge) -> bool {
    edge.kind == Kind::Write || (edge.kind == Kind::Gone && edge.operation == NONE)
}

fn is_read(edge: &Edge) -> bool {
    edge.kind == Kind::Read || (edge.kind == Kind::Gone && edge.operation != NONE)
}

/// Each kind of cycle: an edge that it must have, and what the others may be.
const CLASSES: [(Filter, Filter); 5] = [
    (is_write, is_write),
    (is_read, |edge| is_write(edge) || is_read(edge)),
    (|edge| edge.kind.is_anti(), |edge| is_write(edge) || is_read(edge) || edge.kind == Kind::Session),
    (|edge| edge.kind == Kind::Anti, |edge| edge.kind != Kind::AntiRange),
    (|edge| edge.kind.is_anti(), |_| true),
];

impl<'f> Component<'f> {
    fn new(facts: &'f Facts<'f>, mut members: Vec<u32>, edges: Vec<Edge>) -> Self {
        members.sort_unstable_by_key(|&member| facts.attempt(member).begin);
        let positions: HashMap<u32, u32> =
            members.iter().enumerate().map(|(position, &member)| (member, position as u32)).collect();
        let mut out = vec![Vec::new(); members.len()];
        for (number, edge) in edges.iter().enumerate() {
            out[positions[&edge.from] as usize].push(number as u32);
        }
        Self { facts, edges, members, positions, out }
    }

    /// The shortest cycle of the worst kind, without real time where there is one.
    fn cycle(&self) -> Option<(Vec<Edge>, bool)> {
        for real_time in [false, true] {
            let mut best: Option<Vec<Edge>> = None;
            for (number, &(first, rest)) in CLASSES.iter().enumerate() {
                let cycle = self.shortest(first, rest, real_time);
                // Between rows and ranges the shorter cycle tells more.
                let shorter = |it: &Vec<Edge>| best.as_ref().is_none_or(|best| it.len() < best.len());
                if let Some(cycle) = cycle.filter(shorter) {
                    best = Some(cycle);
                }
                if best.is_some() && number != 3 {
                    break;
                }
            }
            if let Some(best) = best {
                return Some((best, real_time));
            }
        }
        None
    }

    fn shortest(&self, first: Filter, rest: Filter, real_time: bool) -> Option<Vec<Edge>> {
        let mut best: Option<Vec<Edge>> = None;
        for edge in self.edges.iter().filter(|edge| first(edge)).take(MOST_STARTS) {
            let bound = best.as_ref().map_or(usize::MAX, |best| best.len() - 1);
            if bound < 2 {
                break;
            }
            if let Some(mut path) = self.path(edge.to, edge.from, rest, real_time, bound - 1) {
                path.insert(0, *edge);
                best = Some(path);
            }
        }
        best
    }

    /// The shortest path of at most so many edges.
    fn path(&self, from: u32, to: u32, allowed: Filter, real_time: bool, most: usize) -> Option<Vec<Edge>> {
        let count = self.members.len();
        let mut arrived: Vec<Option<Edge>> = vec![None; count];
        let (start, goal) = (self.positions[&from] as usize, self.positions[&to] as usize);
        let mut level = vec![start];
        // Members from here on have been reached by real time.
        let mut reached = count;
        for _ in 0..most {
            let mut next = Vec::new();
            let mut arrive = |edge: Edge, position: usize, next: &mut Vec<usize>| {
                if position != start && arrived[position].is_none() {
                    arrived[position] = Some(edge);
                    next.push(position);
                }
            };
            for &position in &level {
                for &number in &self.out[position] {
                    let edge = self.edges[number as usize];
                    if allowed(&edge) {
                        arrive(edge, self.positions[&edge.to] as usize, &mut next);
                    }
                }
                let attempt = self.facts.attempt(self.members[position]);
                if !real_time || attempt.snapshot {
                    continue;
                }
                let began = |&member: &u32| self.facts.attempt(member).begin <= attempt.end;
                let later = self.members.partition_point(began);
                for other in later..reached {
                    let (from, to) = (self.members[position], self.members[other]);
                    if !self.facts.attempt(to).snapshot {
                        let edge = Edge { from, to, kind: Kind::RealTime, state: NONE, operation: NONE };
                        arrive(edge, other, &mut next);
                    }
                }
                reached = reached.min(later);
            }
            if arrived[goal].is_some() {
                return Some(self.walk_back(&arrived, start, goal));
            }
            if next.is_empty() {
                return None;
            }
            level = next;
        }
        None
    }

    fn walk_back(&self, arrived: &[Option<Edge>], start: usize, goal: usize) -> Vec<Edge> {
        let mut path = Vec::new();
        let mut position = goal;
        while position != start {
            let Some(edge) = arrived[position] else { break };
            path.push(edge);
            position = self.positions[&edge.from] as usize;
        }
        path.reverse();
        path
    }
}

/// What a cycle is called.
fn name(facts: &Facts<'_>, cycle: &[Edge]) -> Anomaly {
    let antis = cycle.iter().filter(|edge| edge.kind.is_anti()).count();
    let item = |edge: &Edge| facts.state(edge.state).item;
    let writes_same = |one: &Edge, other: &Edge| {
        one.kind == Kind::Anti && (other.kind == Kind::Anti || is_write(other)) && item(one) == item(other)
    };
    if let [one, other] = cycle
        && (writes_same(one, other) || writes_same(other, one))
    {
        return Anomaly::LostUpdate;
    }
    let neighbours = cycle.iter().zip(cycle.iter().cycle().skip(1));
    match antis {
        0 if cycle.iter().any(is_read) => Anomaly::G1c,
        0 => Anomaly::G0,
        1 => Anomaly::GSingle,
        _ if !neighbours.into_iter().any(|(one, next)| one.kind.is_anti() && next.kind.is_anti()) => Anomaly::LongFork,
        _ if cycle.iter().any(|edge| edge.kind == Kind::AntiRange) => Anomaly::G2,
        _ => Anomaly::G2Item,
    }
}
