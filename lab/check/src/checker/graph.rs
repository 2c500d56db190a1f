//! The direct serialization graph, and an order of its transactions that is kept while edges are added.

use super::facts::{Facts, NONE};
use super::presences;
use crate::history::{Outcome, Replaced};

/// Why one transaction comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It wrote a state that the other replaced.
    Write,
    /// It wrote a state that the other read.
    Read,
    /// It ended a state, and the other saw that it was over.
    Gone,
    /// It read a state that the other replaced, or found a row absent that the other inserted.
    Anti,
    /// It read a range in which a row is missing that the other put there.
    AntiRange,
    /// It was acknowledged before the other began.
    RealTime,
    /// It was acknowledged before its session called for the other, a snapshot, or that session had read what it wrote.
    Session,
}

impl Kind {
    pub(super) fn is_anti(self) -> bool {
        matches!(self, Self::Anti | Self::AntiRange)
    }
}

/// An edge: `from` comes before `to`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) kind: Kind,
    /// Of [`Kind::Read`], [`Kind::Write`] and [`Kind::Gone`] the state that `from` wrote; of anti-dependencies the state
    /// that `to` wrote.
    pub(super) state: u32,
    /// The operation of `from` (anti-dependencies) or `to` (reads) that saw it.
    pub(super) operation: u32,
}

/// Edges that are certain, found from both ends.
pub(super) struct Graph {
    /// Transactions, and behind them one node for each time of an acknowledgement.
    pub(super) nodes: usize,
    pub(super) edges: Vec<Edge>,
    out: Adjacency,
    into: Adjacency,
}

/// Edges by node.
struct Adjacency {
    starts: Vec<u32>,
    edges: Vec<u32>,
}

impl Adjacency {
    fn new(nodes: usize, edges: &[Edge], end: impl Fn(&Edge) -> u32) -> Self {
        let mut starts = vec![0u32; nodes + 1];
        for edge in edges {
            starts[end(edge) as usize + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let mut next = starts.clone();
        let mut sorted = vec![0; edges.len()];
        for (number, edge) in edges.iter().enumerate() {
            let position = &mut next[end(edge) as usize];
            sorted[*position as usize] = number as u32;
            *position += 1;
        }
        Self { starts, edges: sorted }
    }

    fn of(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.edges[self.starts[node] as usize..self.starts[node + 1] as usize]
    }
}

impl Graph {
    /// The certain edges of a history, with real time or without.
    pub(super) fn new(facts: &Facts<'_>, strict: bool) -> Self {
        let mut edges = Vec::with_capacity(facts.seen.reads.len() * 2);
        for transaction in 0..facts.parts.len() as u32 {
            row_edges(facts, transaction, &mut edges);
        }
        for state in 0..facts.states.len() as u32 {
            state_edges(facts, state, &mut edges);
        }
        let time_nodes = if strict { real_time(facts, &mut edges) } else { 0 };
        if strict {
            sessions(facts, &mut edges);
            presences::edges(facts, &mut edges);
        }
        edges.retain(|edge| edge.from != edge.to);
        Self::of(facts.parts.len() + time_nodes, edges)
    }

    /// A graph of these edges.
    pub(super) fn of(nodes: usize, edges: Vec<Edge>) -> Self {
        let out = Adjacency::new(nodes, &edges, |edge| edge.from);
        let into = Adjacency::new(nodes, &edges, |edge| edge.to);
        Self { nodes, edges, out, into }
    }

    pub(super) fn out(&self, node: u32) -> &[u32] {
        self.out.of(node)
    }

    pub(super) fn into(&self, node: u32) -> &[u32] {
        self.into.of(node)
    }

    /// All nodes, each behind those that come before it, and otherwise as in `wanted`. `None`: there is a cycle.
    pub(super) fn order(&self, wanted: &[u32]) -> Option<Vec<u32>> {
        const UNDER_WAY: u8 = 1;
        const DONE: u8 = 2;
        let mut marks = vec![0u8; self.nodes];
        let mut order = Vec::with_capacity(self.nodes);
        let mut stack: Vec<(u32, usize)> = Vec::new();
        let rest = 0..self.nodes as u32;
        for root in wanted.iter().copied().chain(rest) {
            if marks[root as usize] == 0 {
                marks[root as usize] = UNDER_WAY;
                stack.push((root, 0));
            }
            while let Some((node, at)) = stack.last_mut() {
                if let Some(&edge) = self.into(*node).get(*at) {
                    *at += 1;
                    let before = self.edges[edge as usize].from;
                    match marks[before as usize] {
                        0 => {
                            marks[before as usize] = UNDER_WAY;
                            stack.push((before, 0));
                        }
                        UNDER_WAY => return None,
                        _ => {}
                    }
                } else {
                    marks[*node as usize] = DONE;
                    order.push(*node);
                    stack.pop();
                }
            }
        }
        Some(order)
    }
}

/// Edges that follow from what a transaction saw of single rows.
fn row_edges(facts: &Facts<'_>, transaction: u32, edges: &mut Vec<Edge>) {
    for (read, state) in facts.reads(transaction) {
        if state == NONE {
            continue;
        }
        let operation = read.operation as u32;
        let seen = facts.state(state);
        edges.push(Edge { from: seen.writer, to: transaction, kind: Kind::Read, state, operation });
        if seen.next != NONE {
            let to = facts.state(seen.next).writer;
            edges.push(Edge { from: transaction, to, kind: Kind::Anti, state: seen.next, operation });
        }
        let behind = facts.behind_state.get(&state).map_or(&[][..], Vec::as_slice);
        edges.extend(behind.iter().map(|&state| {
            let to = facts.state(state).writer;
            Edge { from: transaction, to, kind: Kind::Anti, state, operation }
        }));
    }
    for (absence, item) in facts.absences(transaction) {
        let behind = facts.behind_nothing.get(&item).map_or(&[][..], Vec::as_slice);
        edges.extend(behind.iter().map(|&state| {
            let to = facts.state(state).writer;
            Edge { from: transaction, to, kind: Kind::Anti, state, operation: absence.operation as u32 }
        }));
        if item == NONE || facts.item(item).blind || facts.item(item).open == NONE {
            continue;
        }
        // The row was inserted and never deleted, so who found it absent came before.
        let state = facts.item(item).open;
        let to = facts.state(state).writer;
        edges.push(Edge { from: transaction, to, kind: Kind::Anti, state, operation: absence.operation as u32 });
    }
}

/// Edges between who wrote a state and who replaced it.
fn state_edges(facts: &Facts<'_>, number: u32, edges: &mut Vec<Edge>) {
    let state = facts.state(number);
    if state.previous != NONE {
        let before = facts.state(state.previous);
        let edge =
            Edge { from: before.writer, to: state.writer, kind: Kind::Write, state: state.previous, operation: NONE };
        edges.push(edge);
        if before.next != number && !matches!(state.replaced, Replaced::Behind(_)) {
            // Both replaced the same state: each saw it, and the other wrote over it.
            let (one, other) = (state.writer, facts.state(before.next).writer);
            edges.push(Edge { from: one, to: other, kind: Kind::Anti, state: before.next, operation: NONE });
            edges.push(Edge { from: other, to: one, kind: Kind::Anti, state: number, operation: NONE });
        }
    }
    let item = facts.item(state.item);
    if state.row.is_none() && !item.blind && item.open != NONE && item.open != state.birth {
        let to = facts.state(item.open).writer;
        edges.push(Edge { from: state.writer, to, kind: Kind::Gone, state: number, operation: NONE });
    }
}

/// What a session was told of before it calls for a snapshot.
#[derive(Default)]
struct Acknowledged {
    session: (u32, u32),
    /// Its last commit that wrote.
    written: Option<u32>,
    /// What only read since its last snapshot, or was rolled back.
    readers: Vec<u32>,
    snapshot: Option<u32>,
}

/// Edges to each snapshot from what its session was told of before it called for it: the last commit with writes, the writers of all rows that
/// it has read, and its last snapshot. A commit that only read is not itself before the snapshot: in real time it may come behind others that
/// the session knows nothing of.
fn sessions(facts: &Facts<'_>, edges: &mut Vec<Edge>) {
    let session = |transaction: u32| {
        let attempt = facts.attempt(transaction);
        (attempt.thread, attempt.session)
    };
    let mut transactions: Vec<u32> = (0..facts.parts.len() as u32).collect();
    transactions.sort_unstable_by_key(|&transaction| (session(transaction), facts.attempt(transaction).begin));
    let mut acknowledged = Acknowledged::default();
    for to in transactions {
        let attempt = facts.attempt(to);
        if acknowledged.session != session(to) {
            acknowledged = Acknowledged { session: session(to), ..Acknowledged::default() };
        }
        if attempt.snapshot {
            let is_acknowledged = |before: &u32| facts.attempt(*before).end < attempt.begin;
            for from in acknowledged.written.into_iter().chain(acknowledged.snapshot).filter(is_acknowledged) {
                edges.push(Edge { from, to, kind: Kind::Session, state: NONE, operation: NONE });
            }
            for &reader in acknowledged.readers.iter().filter(|reader| is_acknowledged(reader)) {
                for (_, state) in facts.reads(reader).filter(|&(_, state)| state != NONE) {
                    let from = facts.state(state).writer;
                    edges.push(Edge { from, to, kind: Kind::Session, state, operation: NONE });
                }
            }
        }
        match attempt.outcome {
            Outcome::Committed | Outcome::RolledBack if attempt.snapshot => {
                acknowledged.snapshot = Some(to);
                acknowledged.readers.clear();
            }
            Outcome::RolledBack => acknowledged.readers.push(to),
            Outcome::Committed if facts.states_of(to).is_empty() => acknowledged.readers.push(to),
            Outcome::Committed => acknowledged.written = Some(to),
            _ => {}
        }
    }
}

/// Edges from each transaction to those that began after its acknowledgement, through a chain of times.
fn real_time(facts: &Facts<'_>, edges: &mut Vec<Edge>) -> usize {
    let count = facts.parts.len() as u32;
    let mut present: Vec<u32> = (0..count).filter(|&it| !facts.attempt(it).snapshot).collect();
    present.sort_unstable_by_key(|&transaction| facts.attempt(transaction).end);
    let edge = |from, to| Edge { from, to, kind: Kind::RealTime, state: NONE, operation: NONE };
    for (position, &transaction) in present.iter().enumerate() {
        let time_node = count + position as u32;
        edges.push(edge(transaction, time_node));
        if position > 0 {
            edges.push(edge(time_node - 1, time_node));
        }
        let begin = facts.attempt(transaction).begin;
        let acknowledged = present.partition_point(|&other| facts.attempt(other).end < begin) as u32;
        if acknowledged > 0 {
            edges.push(edge(count + acknowledged - 1, transaction));
        }
    }
    present.len()
}
