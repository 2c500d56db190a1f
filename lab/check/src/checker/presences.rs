//! Rows of which some client was told that they are there, but not in which state: refusals of writes whose key another row has.
//!
//! The row is one of those that were in the range some time, from the state that brought it there to the one that ended that. Real time
//! rules out those that were gone before the call or came after its answer. Where one is left, its writers stand before and behind who was
//! told; where several are left, nothing follows.

use std::collections::HashMap;

use super::facts::{Facts, NONE};
use super::graph::{Edge, Kind};
use super::interpret::Looked;
use crate::history::{Position, RangeRead};

/// The neighbouring states of a row that lie in a range, and the state that ended them, if one did.
#[derive(Clone, Copy)]
struct Stay {
    first: u32,
    end: u32,
}

/// The states by their values in the indexes that some client was told of.
type ByValue = HashMap<(u32, u8, u64), Vec<u32>>;

/// The edges that follow in real time from what transactions were told of.
pub(super) fn edges(facts: &Facts<'_>, edges: &mut Vec<Edge>) {
    if facts.seen.presences.is_empty() {
        return;
    }
    let states = by_value(facts);
    for transaction in 0..facts.parts.len() as u32 {
        for looked in facts.presences(transaction) {
            let Some(Stay { first, end }) = only_stay(facts, &states, transaction, looked) else { continue };
            let operation = looked.operation as u32;
            let from = facts.state(first).writer;
            edges.push(Edge { from, to: transaction, kind: Kind::Read, state: first, operation });
            if end != NONE {
                let to = facts.state(end).writer;
                edges.push(Edge { from: transaction, to, kind: Kind::Anti, state: end, operation });
            }
        }
    }
}

fn by_value(facts: &Facts<'_>) -> ByValue {
    let mut indexes: Vec<(u32, u8)> = Vec::new();
    for looked in &facts.seen.presences {
        let range = facts.range_read(looked.operation);
        if !indexes.contains(&(range.table, range.index)) {
            indexes.push((range.table, range.index));
        }
    }
    let mut states = ByValue::new();
    for number in 0..facts.states.len() as u32 {
        let state = facts.state(number);
        let item = facts.item(state.item).item;
        let Some((_, attributes)) = state.row else { continue };
        for &(table, index) in indexes.iter().filter(|(table, _)| *table == item.table) {
            let (value, _): Position = RangeRead::position(index, item.key, &attributes);
            states.entry((table, index, value)).or_default().push(number);
        }
    }
    states
}

/// The one row that a transaction may have been told of. `None`: that is not known.
fn only_stay(facts: &Facts<'_>, states: &ByValue, transaction: u32, looked: &Looked) -> Option<Stay> {
    let range = facts.range_read(looked.operation);
    let own = &facts.seen.own_keys[looked.own.clone()];
    let covers = |number: u32| {
        let state = facts.state(number);
        let key = facts.item(state.item).item.key;
        state.row.is_some_and(|(_, attributes)| range.covers(key, &attributes))
    };
    let mut found = None;
    for &first in states.get(&(range.table, range.index, range.lower.0))? {
        let item = facts.item(facts.state(first).item);
        let previous = facts.state(first).previous;
        let is_first = covers(first) && (previous == NONE || !covers(previous));
        if !is_first || own.contains(&item.item.key) {
            continue;
        }
        // Of what was written without looking, no client knows what ended it.
        if item.blind {
            return None;
        }
        let mut end = facts.state(first).next;
        while end != NONE && covers(end) {
            end = facts.state(end).next;
        }
        let stay = Stay { first, end };
        if is_possible(facts, transaction, stay) && found.replace(stay).is_some() {
            return None;
        }
    }
    found
}

/// Whether a row that was there for so long was there at some time between a transaction's call and its answer.
fn is_possible(facts: &Facts<'_>, transaction: u32, Stay { first, end }: Stay) -> bool {
    let attempt = facts.attempt(transaction);
    let writer = |state: u32| facts.attempt(facts.state(state).writer);
    writer(first).begin < attempt.end && (end == NONE || attempt.begin < writer(end).end)
}
