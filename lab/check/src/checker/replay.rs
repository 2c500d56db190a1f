//! Running a history's transactions one after the other, and comparing what they saw with what they would have seen.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::{Bound, Range};

use super::facts::{Facts, NONE};
use super::graph::{Edge, Kind};
use crate::history::{Item, Position, RangeRead};

/// One of two edges must hold. Without a second, the first must.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub(super) first: Edge,
    pub(super) second: Option<Edge>,
}

/// The tables while transactions are run in some order.
pub(super) struct Replay<'f> {
    facts: &'f Facts<'f>,
    /// The state of each item.
    present: Vec<u32>,
    /// What stood where a transaction wrote, by its place in the order.
    undo: Vec<(usize, u32, u32)>,
    /// Which indexes anybody read a range of.
    indexes: BTreeSet<(u32, u8)>,
    /// What stands in them: table, index and position, with the state.
    entries: BTreeMap<(u32, u8, Position), u32>,
    choices: Vec<Choice>,
    known: HashSet<(u32, u32)>,
}

impl<'f> Replay<'f> {
    pub(super) fn new(facts: &'f Facts<'f>) -> Self {
        let read = facts.seen.ranges.iter().map(|range| facts.range_read(range.operation));
        let indexes = read.map(|range| (range.table, range.index)).collect();
        Self {
            facts,
            present: vec![NONE; facts.items.len()],
            undo: Vec::new(),
            indexes,
            entries: BTreeMap::new(),
            choices: Vec::new(),
            known: HashSet::new(),
        }
    }

    /// Runs the transactions at these places of an order. The answer is what has to be decided because of answers that do
    /// not fit.
    pub(super) fn run(&mut self, order: &[u32], positions: Range<usize>) -> Vec<Choice> {
        self.known.clear();
        let count = self.facts.parts.len() as u32;
        for position in positions {
            let transaction = order[position];
            if transaction >= count {
                continue;
            }
            self.check_rows(transaction);
            for range in self.facts.ranges(transaction) {
                let own = &self.facts.seen.own_keys[range.own.clone()];
                self.check_range(transaction, range.operation, own);
            }
            for number in self.facts.states_of(transaction) {
                let state = self.facts.state(number);
                let before = self.set(state.item, if state.row.is_some() { number } else { NONE });
                self.undo.push((position, state.item, before));
            }
        }
        std::mem::take(&mut self.choices)
    }

    /// Takes back what ran at this place and behind it.
    pub(super) fn rewind(&mut self, position: usize) {
        while let Some((_, item, before)) = self.undo.pop_if(|(at, ..)| *at >= position) {
            self.set(item, before);
        }
    }

    /// Puts another state in the place of an item's, and returns that.
    fn set(&mut self, item: u32, state: u32) -> u32 {
        let before = std::mem::replace(&mut self.present[item as usize], state);
        let Item { table, key } = self.facts.item(item).item;
        for &(_, index) in self.indexes.range((table, 0)..=(table, u8::MAX)) {
            let position = |state| {
                let row = if state == NONE { None } else { self.facts.state(state).row };
                row.map(|(_, attributes)| (table, index, RangeRead::position(index, key, &attributes)))
            };
            if let Some(entry) = position(before) {
                self.entries.remove(&entry);
            }
            if let Some(entry) = position(state) {
                self.entries.insert(entry, state);
            }
        }
        before
    }

    fn check_rows(&mut self, transaction: u32) {
        let facts = self.facts;
        for (read, state) in facts.reads(transaction) {
            if state == NONE {
                continue;
            }
            let item = facts.state(state).item;
            let present = self.present[item as usize];
            if present != NONE && present != state {
                self.other_life(transaction, state, present, read.operation);
            }
        }
        for (absence, item) in facts.absences(transaction) {
            if item != NONE && self.present[item as usize] != NONE {
                let birth = facts.state(self.present[item as usize]).birth;
                self.unseen(transaction, birth, facts.last_of_life(birth), absence.operation, Kind::Anti);
            }
        }
    }

    /// A row was read in one life where another one stands: one of the lives comes before the other.
    fn other_life(&mut self, transaction: u32, seen: u32, present: u32, operation: usize) {
        let facts = self.facts;
        let (birth, intruder) = (facts.state(seen).birth, facts.state(present).birth);
        if birth == intruder || facts.item(facts.state(seen).item).opaque {
            return;
        }
        let last = facts.last_of_life(intruder);
        let (operation, to) = (operation as u32, facts.state(intruder).writer);
        let first = Edge { from: transaction, to, kind: Kind::Anti, state: intruder, operation };
        let (from, to) = (facts.state(last).writer, facts.state(birth).writer);
        let second = Edge { from, to, kind: Kind::Gone, state: last, operation: NONE };
        self.offer(first, Some(second), intruder);
    }

    fn check_range(&mut self, transaction: u32, operation: usize, own: &[u64]) {
        let range = self.facts.range_read(operation);
        let (lower, upper) = (range.lower, range.upper);
        if lower > upper {
            return;
        }
        let position = |position| (range.table, range.index, position);
        let bounds = (Bound::Included(position(lower)), Bound::Included(position(upper)));
        let mut seen: Vec<u64> = range.rows.iter().map(|row| row.0).chain(own.iter().copied()).collect();
        seen.sort_unstable();
        let entries = self.entries.range(bounds);
        let missed = |key: &u64, state: u32| {
            let row = self.facts.state(state).row;
            row.is_some_and(|(_, attributes)| range.covers(*key, &attributes)) && seen.binary_search(key).is_err()
        };
        let unseen = entries.filter(|((_, _, (_, key)), state)| missed(key, **state));
        let unseen: Vec<u32> = unseen.map(|(_, &state)| state).collect();
        for state in unseen {
            let (first, last) = self.positions(state, range);
            self.unseen(transaction, first, last, operation, Kind::AntiRange);
        }
    }

    /// The neighbouring states of a life that lie in the range, too.
    fn positions(&self, state: u32, range: &RangeRead) -> (u32, u32) {
        let facts = self.facts;
        let covered = |state: u32| {
            let state = facts.state(state);
            let key = facts.item(state.item).item.key;
            state.row.is_some_and(|(_, attributes)| range.covers(key, &attributes))
        };
        let (mut first, mut last) = (state, state);
        while facts.state(first).previous != NONE && covered(facts.state(first).previous) {
            first = facts.state(first).previous;
        }
        while facts.state(last).next != NONE && covered(facts.state(last).next) {
            last = facts.state(last).next;
        }
        (first, last)
    }

    /// The transaction did not see the states from `first` to `last`: it came before the first, or after their end.
    fn unseen(&mut self, transaction: u32, first: u32, last: u32, operation: usize, kind: Kind) {
        let facts = self.facts;
        let item = facts.item(facts.state(first).item);
        let before =
            Edge { from: transaction, to: facts.state(first).writer, kind, state: first, operation: operation as u32 };
        // Where a life ends by a deletion, its last state is the deletion.
        let end = if facts.state(last).row.is_none() { last } else { facts.state(last).next };
        if item.opaque || (end == NONE && item.blind) {
            // Any blind write may have ended it.
            return;
        }
        let after = (end != NONE).then(|| Edge {
            from: facts.state(end).writer,
            to: transaction,
            kind: Kind::Gone,
            state: end,
            operation: operation as u32,
        });
        self.offer(before, after, first);
    }

    fn offer(&mut self, first: Edge, second: Option<Edge>, state: u32) {
        if self.known.insert((first.from, state)) {
            self.choices.push(Choice { first, second });
        }
    }
}
