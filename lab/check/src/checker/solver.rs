//! A serial order, or the proof that there is none.
//!
//! Most of the graph is certain. What a history does not tell is when a transaction looked that found a row absent which
//! was inserted and deleted again: before the insertion or after the deletion. So an order that agrees with the certain
//! edges is replayed; where an answer does not fit, there is a choice of two edges. One that would close a cycle is out,
//! and the other follows; else one is guessed. When both close cycles, the guesses that these rest on are undone, latest
//! first. A replay in which every answer fits is a proof; a cycle that rests on no guess is an anomaly.

use std::collections::HashMap;

use super::facts::{Facts, NONE};
use super::graph::{Edge, Graph};
use super::replay::{Choice, Replay};

/// What was found.
pub(super) enum Solution {
    /// The nodes of the graph in a serial order that explains every answer.
    Order(Vec<u32>),
    /// These edges follow from the history, and run in a cycle together with the certain ones. The last one is one side of a choice whose
    /// other side, if there is one, closes a cycle as well.
    Cycle(Vec<Edge>, Option<Edge>),
    /// Too many choices.
    Undecided,
}

/// An edge that was added, and the guesses it rests on.
struct Added {
    edge: Edge,
    guesses: Vec<u32>,
    /// The edge that was added before this one at the same start, and at the same end.
    next_out: u32,
    next_into: u32,
}

/// A guess: what else could be, and how much had been added before.
#[derive(Clone, Copy)]
struct Guess {
    other: Edge,
    added: usize,
    about: About,
    /// Whether `other` is the first side of the choice.
    other_is_first: bool,
}

/// What a choice is about: who looked, at which state, and who ended that.
type About = (u32, u32, u32);

pub(super) struct Solver<'f> {
    facts: &'f Facts<'f>,
    graph: &'f Graph,
    /// Nodes by their place in the order, and back.
    order: Vec<u32>,
    positions: Vec<u32>,
    added: Vec<Added>,
    /// The edge that was added last at each node.
    last_out: Vec<u32>,
    last_into: Vec<u32>,
    guesses: Vec<Guess>,
    /// Which side of a choice was taken last. What is undone with a wrong guess is mostly right, and taken again.
    taken: HashMap<About, bool>,
    /// In which search a node was seen, and by which edge.
    marks: Vec<u32>,
    search: u32,
    arrived_by: Vec<u32>,
    /// The first place whose node has changed.
    lowest: usize,
}

/// Transactions that are replayed before choices are made.
const STRIDE: usize = 512;
/// Replays and undone guesses without getting any farther, before giving up.
const MOST_TRIES: usize = 10_000;

impl<'f> Solver<'f> {
    /// Starts from an order that agrees with the graph.
    pub(super) fn new(facts: &'f Facts<'f>, graph: &'f Graph, order: Vec<u32>) -> Self {
        let mut positions = vec![0; graph.nodes];
        order.iter().enumerate().for_each(|(position, &node)| positions[node as usize] = position as u32);
        Self {
            facts,
            graph,
            order,
            positions,
            added: Vec::new(),
            last_out: vec![NONE; graph.nodes],
            last_into: vec![NONE; graph.nodes],
            guesses: Vec::new(),
            taken: HashMap::new(),
            marks: vec![0; graph.nodes],
            search: 0,
            arrived_by: vec![0; graph.nodes],
            lowest: 0,
        }
    }

    /// Looks for a serial order, some transactions after the others, so that what is decided stays decided.
    pub(super) fn solve(mut self) -> Solution {
        let mut replay = Replay::new(self.facts);
        let (mut done, mut farthest, mut tries) = (0, 0, 0);
        while done < self.order.len() {
            let end = self.order.len().min(done + STRIDE);
            let choices = replay.run(&self.order, done..end);
            if choices.is_empty() {
                done = end;
                if done > farthest {
                    (farthest, tries) = (done, 0);
                }
                continue;
            }
            self.lowest = done;
            for choice in choices {
                match self.choose(&choice) {
                    Ok(()) => {}
                    Err(None) => tries += 1,
                    Err(Some(edge)) => {
                        let certain = self.added.iter().filter(|added| added.guesses.is_empty());
                        let edges = certain.map(|added| added.edge).chain([edge]).collect();
                        let is_last = (edge.from, edge.to) == (choice.first.from, choice.first.to);
                        return Solution::Cycle(edges, choice.second.filter(|_| is_last));
                    }
                }
            }
            tries += 1;
            if tries > MOST_TRIES {
                return Solution::Undecided;
            }
            done = self.lowest;
            replay.rewind(done);
        }
        Solution::Order(self.order)
    }

    fn agrees(&self, edge: &Edge) -> bool {
        self.positions[edge.from as usize] < self.positions[edge.to as usize]
    }

    /// Makes the order agree with one side of a choice. `Err(None)`: guesses were undone. `Err(Some)`: an edge that follows
    /// from the history closes a cycle.
    fn choose(&mut self, choice: &Choice) -> Result<(), Option<Edge>> {
        // An edge that was added for another choice may have decided this one.
        if self.agrees(&choice.first) || choice.second.as_ref().is_some_and(|edge| self.agrees(edge)) {
            return Ok(());
        }
        let Some(second) = choice.second else {
            match self.cycle(&choice.first) {
                None => self.add(choice.first, Vec::new()),
                Some(guesses) => return self.undo(guesses, choice.first),
            }
            return Ok(());
        };
        let about = (choice.first.from, choice.first.state, second.from);
        let first = self.taken.get(&about).copied().unwrap_or_else(|| self.is_likelier(&choice.first, &second));
        let (edge, other) = if first { (choice.first, second) } else { (second, choice.first) };
        let Some(guesses) = self.cycle(&edge) else {
            let guess = self.guesses.len() as u32;
            self.guesses.push(Guess { other, added: self.added.len(), about, other_is_first: !first });
            self.taken.insert(about, first);
            self.add(edge, vec![guess]);
            return Ok(());
        };
        match self.cycle(&other) {
            None => {
                self.taken.insert(about, !first);
                self.add(other, guesses);
            }
            // Without guesses each side is out for certain, so the other follows. The first tells more: what was seen.
            Some(more) => return self.undo(union(guesses, more), choice.first),
        }
        Ok(())
    }

    /// Which of two edges is rather so: the one that agrees with time, or else the one that moves less.
    fn is_likelier(&self, first: &Edge, second: &Edge) -> bool {
        let agrees = |edge: &Edge| {
            let (from, to) = (self.facts.attempt(edge.from), self.facts.attempt(edge.to));
            from.end < to.begin
        };
        let far = |edge: &Edge| self.positions[edge.from as usize] - self.positions[edge.to as usize];
        match (agrees(first), agrees(second)) {
            (true, false) => true,
            // What a snapshot shows may be long past.
            (false, true) if !self.facts.attempt(second.to).snapshot => false,
            _ => far(first) <= far(second),
        }
    }

    /// Undoes the latest of the guesses that a contradiction rests on, and does the other thing instead.
    fn undo(&mut self, mut guesses: Vec<u32>, mut closing: Edge) -> Result<(), Option<Edge>> {
        while let Some(latest) = guesses.pop() {
            let Guess { other, added, about, other_is_first } = self.guesses[latest as usize];
            closing = other;
            self.taken.insert(about, other_is_first);
            self.guesses.truncate(latest as usize);
            self.remove_behind(added);
            match self.cycle(&closing) {
                None => {
                    self.add(closing, guesses);
                    return Err(None);
                }
                Some(more) => guesses = union(guesses, more),
            }
        }
        Err(Some(closing))
    }

    fn remove_behind(&mut self, count: usize) {
        while self.added.len() > count {
            let Some(Added { edge, next_out, next_into, .. }) = self.added.pop() else { return };
            self.last_out[edge.from as usize] = next_out;
            self.last_into[edge.to as usize] = next_into;
        }
    }

    /// The guesses behind the cycle that an edge would close; `None`: it closes none.
    fn cycle(&mut self, edge: &Edge) -> Option<Vec<u32>> {
        if edge.from == edge.to {
            return Some(Vec::new());
        }
        if !self.reach(edge.to, edge.from) {
            return None;
        }
        let mut guesses = Vec::new();
        let mut node = edge.from;
        while node != edge.to {
            let by = self.arrived_by[node as usize] as usize;
            let certain = self.graph.edges.len();
            if by >= certain {
                guesses = union(guesses, self.added[by - certain].guesses.clone());
            }
            node = self.edge(by).from;
        }
        Some(guesses)
    }

    fn edge(&self, number: usize) -> &Edge {
        let certain = self.graph.edges.len();
        if number < certain { &self.graph.edges[number] } else { &self.added[number - certain].edge }
    }

    /// The numbers of the edges that begin, or end, at a node.
    fn edges_of(&self, node: u32, forward: bool, edges: &mut Vec<u32>) {
        edges.clear();
        edges.extend_from_slice(if forward { self.graph.out(node) } else { self.graph.into(node) });
        let last = if forward { &self.last_out } else { &self.last_into };
        let mut number = last[node as usize];
        while number != NONE {
            edges.push(self.graph.edges.len() as u32 + number);
            let Added { next_out, next_into, .. } = self.added[number as usize];
            number = if forward { next_out } else { next_into };
        }
    }

    /// Searches forward from `start`, as far as the place of `goal`, breadth first. What was seen is marked.
    fn reach(&mut self, start: u32, goal: u32) -> bool {
        let bound = self.positions[goal as usize];
        self.search += 1;
        self.marks[start as usize] = self.search;
        let (mut queue, mut edges) = (vec![start], Vec::new());
        let mut at = 0;
        while let Some(&node) = queue.get(at) {
            at += 1;
            self.edges_of(node, true, &mut edges);
            for &number in &edges {
                let to = self.edge(number as usize).to;
                if self.marks[to as usize] == self.search || self.positions[to as usize] > bound {
                    continue;
                }
                self.marks[to as usize] = self.search;
                self.arrived_by[to as usize] = number;
                if to == goal {
                    return true;
                }
                queue.push(to);
            }
        }
        false
    }

    /// Nodes between the places of an edge's ends: those behind its end, or before its start, each in order.
    fn region(&mut self, edge: &Edge, forward: bool) -> Vec<u32> {
        let (start, goal) = if forward { (edge.to, edge.from) } else { (edge.from, edge.to) };
        let bound = self.positions[goal as usize];
        self.search += 1;
        self.marks[start as usize] = self.search;
        let (mut found, mut edges) = (vec![start], Vec::new());
        let mut at = 0;
        while let Some(&node) = found.get(at) {
            at += 1;
            self.edges_of(node, forward, &mut edges);
            for &number in &edges {
                let edge = self.edge(number as usize);
                let next = if forward { edge.to } else { edge.from };
                let position = self.positions[next as usize];
                let beyond = if forward { position > bound } else { position < bound };
                if self.marks[next as usize] != self.search && !beyond {
                    self.marks[next as usize] = self.search;
                    found.push(next);
                }
            }
        }
        found.sort_unstable_by_key(|&node| self.positions[node as usize]);
        found
    }

    /// Adds an edge that closes no cycle, and mends the order (after Pearce and Kelly).
    fn add(&mut self, edge: Edge, guesses: Vec<u32>) {
        if !self.agrees(&edge) {
            let behind = self.region(&edge, true);
            let mut moved = self.region(&edge, false);
            moved.extend(behind);
            let mut positions: Vec<u32> = moved.iter().map(|&node| self.positions[node as usize]).collect();
            positions.sort_unstable();
            self.lowest = self.lowest.min(positions[0] as usize);
            for (node, position) in moved.into_iter().zip(positions) {
                self.positions[node as usize] = position;
                self.order[position as usize] = node;
            }
        }
        let number = self.added.len() as u32;
        let next_out = std::mem::replace(&mut self.last_out[edge.from as usize], number);
        let next_into = std::mem::replace(&mut self.last_into[edge.to as usize], number);
        self.added.push(Added { edge, guesses, next_out, next_into });
    }
}

/// Both sets of guesses, sorted.
fn union(mut one: Vec<u32>, other: Vec<u32>) -> Vec<u32> {
    one.extend(other);
    one.sort_unstable();
    one.dedup();
    one
}
