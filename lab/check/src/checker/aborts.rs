//! Aborts that no cycle explains.
//!
//! An aborted attempt is *explained* when it would have closed a cycle, had it committed at its end: it comes before
//! those that replaced what it had read, or put a row where it had found none, and behind those whose states it read, and
//! behind those that read or wrote what it meant to write. Of the others only those count that were under way at the same
//! time. Where no path leads from the former to the latter, the abort was not needed.

use std::collections::HashMap;

use super::facts::{Facts, NONE, State};
use super::graph::Graph;
use super::interpret::{Install, Observations, Own};
use crate::history::{Attempt, Attributes, Outcome, RangeRead, Version};

/// How many attempts were aborted by the engine, and how many of these without need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aborts {
    /// Aborted by the engine.
    pub all: usize,
    /// No cycle explains them.
    pub unexplained: usize,
}

/// What one aborted attempt would have come before, and what it would have come behind.
#[derive(Default)]
struct Neighbours {
    before: Vec<u32>,
    behind: Vec<u32>,
}

struct Judge<'f> {
    facts: &'f Facts<'f>,
    graph: &'f Graph,
    positions: Vec<u32>,
    /// Transactions by their end, and those of each thread.
    by_end: Vec<u32>,
    of_thread: HashMap<u32, Vec<u32>>,
    marks: Vec<u32>,
    search: u32,
}

/// Counts the aborts of a history with this serial order of the graph's nodes.
pub(super) fn count(facts: &Facts<'_>, graph: &Graph, order: &[u32], strict: bool) -> Aborts {
    let mut positions = vec![0; graph.nodes];
    order.iter().enumerate().for_each(|(position, &node)| positions[node as usize] = position as u32);
    let mut by_end: Vec<u32> = (0..facts.parts.len() as u32).filter(|&it| !facts.attempt(it).snapshot).collect();
    by_end.sort_unstable_by_key(|&transaction| facts.attempt(transaction).end);
    let mut of_thread: HashMap<u32, Vec<u32>> = HashMap::new();
    for &transaction in &by_end {
        of_thread.entry(facts.attempt(transaction).thread).or_default().push(transaction);
    }
    let mut judge = Judge { facts, graph, positions, by_end, of_thread, marks: vec![0; graph.nodes], search: 0 };
    let mut aborts = Aborts::default();
    let aborted = facts.history.attempts.iter().filter(|it| it.outcome == Outcome::Aborted && !it.snapshot);
    for attempt in aborted {
        aborts.all += 1;
        aborts.unexplained += usize::from(!judge.is_explained(attempt, strict));
    }
    aborts
}

impl Judge<'_> {
    fn is_explained(&mut self, attempt: &Attempt, strict: bool) -> bool {
        let mut seen = Observations::default();
        seen.interpret(self.facts.history, attempt, &mut Own::default());
        let Some(mut neighbours) = self.read_from(attempt, &seen) else { return true };
        if !seen.findings.is_empty() {
            return true;
        }
        for other in self.beside(attempt) {
            self.meets(&seen, other, &mut neighbours);
        }
        if strict {
            let acknowledged = self.by_end.partition_point(|&it| self.facts.attempt(it).end < attempt.begin);
            neighbours.behind.extend(acknowledged.checked_sub(1).map(|last| self.by_end[last]));
        }
        self.leads(&neighbours)
    }

    /// Transactions that were under way together with the attempt.
    fn beside(&self, attempt: &Attempt) -> Vec<u32> {
        // The transactions of one thread follow each other.
        let beside = |of_thread: &Vec<u32>| {
            let start = of_thread.partition_point(|&it| self.facts.attempt(it).end < attempt.begin);
            let end = of_thread.partition_point(|&it| self.facts.attempt(it).begin < attempt.end);
            of_thread[start..end.max(start)].to_vec()
        };
        self.of_thread.values().flat_map(beside).collect()
    }

    /// Whose states the attempt read, and who replaced them. `None`: it read what never was.
    fn read_from(&self, attempt: &Attempt, seen: &Observations) -> Option<Neighbours> {
        let mut neighbours = Neighbours::default();
        for read in &seen.reads {
            let state = self.facts.state(self.facts.state_of(read.version, read.item)?);
            neighbours.behind.push(state.writer);
            if state.next != NONE {
                let replaced_by = self.facts.state(state.next).writer;
                if self.facts.attempt(replaced_by).begin < attempt.end {
                    neighbours.before.push(replaced_by);
                }
            }
        }
        Some(neighbours)
    }

    /// What a transaction beside the attempt has to do with it.
    fn meets(&self, seen: &Observations, other: u32, neighbours: &mut Neighbours) {
        let facts = self.facts;
        let install = |item| seen.installs.iter().find(|install: &&Install| install.item == item);
        for state in facts.states_of(other) {
            let state = facts.state(state);
            let item = facts.item(state.item).item;
            if install(item).is_some() {
                neighbours.behind.push(other);
            }
            self.meets_presence(seen, other, state, neighbours);
            let Some((version, attributes)) = state.row else { continue };
            let missed = |range: &RangeRead| {
                range.table == item.table
                    && range.covers(item.key, &attributes)
                    && !range.rows.contains(&(item.key, version))
            };
            let unseen = seen.absences.iter().any(|absence| absence.item == item)
                || seen.ranges.iter().any(|looked| {
                    let own = &seen.own_keys[looked.own.clone()];
                    !own.contains(&item.key) && missed(facts.range_read(looked.operation))
                });
            if unseen {
                neighbours.before.push(other);
            }
        }
        let read = facts.reads(other).any(|(read, _)| install(read.item).is_some());
        let missed = facts.absences(other).any(|(absence, _)| install(absence.item).is_some());
        let covers = |install: &Install, range: &RangeRead| {
            let row = install.state.filter(|_| install.item.table == range.table);
            row.is_some_and(|(_, attributes)| range.covers(install.item.key, &attributes))
        };
        let mut ranges = facts.ranges(other).iter().map(|looked| facts.range_read(looked.operation));
        if read || missed || ranges.any(|range| seen.installs.iter().any(|install| covers(install, range))) {
            neighbours.behind.push(other);
        }
    }

    /// What another's state has to do with rows that the attempt was told of: it brought one there, or ended its being there.
    fn meets_presence(&self, seen: &Observations, other: u32, state: &State, neighbours: &mut Neighbours) {
        let facts = self.facts;
        let item = facts.item(state.item).item;
        for looked in &seen.presences {
            let range = facts.range_read(looked.operation);
            let covers = |row: Option<(Version, Attributes)>| {
                range.table == item.table && row.is_some_and(|(_, attributes)| range.covers(item.key, &attributes))
            };
            let was_there = state.previous != NONE && covers(facts.state(state.previous).row);
            match (was_there, covers(state.row)) {
                (true, false) => neighbours.before.push(other),
                (false, true) => neighbours.behind.push(other),
                _ => {}
            }
        }
    }

    /// Whether a path leads from what the attempt comes before to what it comes behind.
    fn leads(&mut self, neighbours: &Neighbours) -> bool {
        let Some(bound) = neighbours.behind.iter().map(|&node| self.positions[node as usize]).max() else {
            return false;
        };
        self.search += 1;
        let mut queue: Vec<u32> = Vec::new();
        let mut at = 0;
        for &node in &neighbours.before {
            self.visit(node, bound, &mut queue);
        }
        while let Some(&node) = queue.get(at) {
            at += 1;
            if neighbours.behind.contains(&node) {
                return true;
            }
            for &edge in self.graph.out(node) {
                let to = self.graph.edges[edge as usize].to;
                self.visit(to, bound, &mut queue);
            }
        }
        false
    }

    fn visit(&mut self, node: u32, bound: u32, queue: &mut Vec<u32>) {
        if self.marks[node as usize] != self.search && self.positions[node as usize] <= bound {
            self.marks[node as usize] = self.search;
            queue.push(node);
        }
    }
}
