//! Every serial order, tried one after the other.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Attempt, Attributes, History, Item, Operation, Outcome, RangeRead, Replaced, Version};

/// The rows that are there.
pub(super) type Rows = BTreeMap<Item, (Version, Attributes)>;

/// What a range of these rows gives.
pub(super) fn look(rows: &Rows, range: &RangeRead) -> Vec<(u64, Version)> {
    let of_table = rows.iter().filter(|(item, _)| item.table == range.table);
    let mut found: Vec<_> = of_table
        .filter(|(item, (_, attributes))| range.covers(item.key, attributes))
        .map(|(item, (version, attributes))| {
            (RangeRead::position(range.index, item.key, attributes), item.key, *version)
        })
        .collect();
    found.sort_unstable_by_key(|row| row.0);
    if range.backward {
        found.reverse();
    }
    found.into_iter().map(|(_, key, version)| (key, version)).collect()
}

/// What stands there.
pub(super) fn replaced(rows: &Rows, item: Item) -> Replaced {
    rows.get(&item).map_or(Replaced::Absent, |(version, _)| Replaced::Version(*version))
}

/// Runs an attempt; whether all its answers are those of these rows.
fn run(history: &History, attempt: &Attempt, rows: &mut Rows) -> bool {
    let start = rows.clone();
    let mut savepoints: Vec<Rows> = Vec::new();
    for operation in history.operations_of(attempt) {
        let fits = match operation {
            Operation::Read { item, seen } => rows.get(item).map(|row| row.0) == *seen,
            Operation::Range(range) => look(rows, range) == range.rows,
            Operation::Present(range) => !look(rows, range).is_empty(),
            Operation::Write { item, version, replaced: before, attributes } => {
                let fits = *before == Replaced::Unknown || *before == replaced(rows, *item);
                rows.insert(*item, (*version, *attributes));
                fits
            }
            Operation::Delete { item, replaced: before } => {
                let fits = *before == Replaced::Unknown || *before == replaced(rows, *item);
                rows.remove(item);
                fits
            }
            Operation::Savepoint => {
                savepoints.push(rows.clone());
                true
            }
            Operation::RollBackTo(number) => {
                if let Some(saved) = savepoints.get(*number) {
                    *rows = saved.clone();
                    savepoints.truncate(number + 1);
                }
                true
            }
            Operation::Torn { .. } | Operation::Contradiction { .. } => false,
        };
        if !fits {
            return false;
        }
    }
    if attempt.outcome == Outcome::RolledBack {
        *rows = start;
    }
    true
}

/// Whether some serial order explains a history.
pub(super) fn is_serializable(history: &History, strict: bool) -> bool {
    let counts = |it: &&Attempt| matches!(it.outcome, Outcome::Committed | Outcome::RolledBack);
    let mut left: Vec<&Attempt> = history.attempts.iter().filter(counts).collect();
    extend(history, strict, &mut left, &Rows::new())
}

/// Whether a committed attempt has changed anything in the end.
fn leaves_something(history: &History, attempt: &Attempt) -> bool {
    let mut changes: BTreeMap<Item, (bool, bool)> = BTreeMap::new();
    for operation in history.operations_of(attempt) {
        let (item, was_there, is_there) = match operation {
            Operation::Write { item, replaced, .. } => (*item, *replaced != Replaced::Absent, true),
            Operation::Delete { item, replaced } => (*item, *replaced != Replaced::Absent, false),
            _ => continue,
        };
        changes.entry(item).or_insert((was_there, is_there)).1 = is_there;
    }
    attempt.outcome == Outcome::Committed && changes.values().any(|&(before, after)| before || after)
}

/// Attempts that a snapshot must come behind: its session was told of them, or has read what they wrote.
fn acknowledged(history: &History, snapshot: &Attempt) -> BTreeSet<u64> {
    let session = |it: &Attempt| (it.thread, it.session);
    let is_acknowledged = |it: &&Attempt| {
        let has_answers = matches!(it.outcome, Outcome::Committed | Outcome::RolledBack);
        session(it) == session(snapshot) && it.end < snapshot.begin && has_answers
    };
    let mut acknowledged = BTreeSet::new();
    for attempt in history.attempts.iter().filter(is_acknowledged) {
        if attempt.snapshot || leaves_something(history, attempt) {
            acknowledged.insert(attempt.id);
        }
        for operation in history.operations_of(attempt) {
            match operation {
                Operation::Read { seen, .. } => acknowledged.extend(seen.map(Version::attempt)),
                Operation::Range(range) => acknowledged.extend(range.rows.iter().map(|row| row.1.attempt())),
                _ => {}
            }
        }
    }
    acknowledged
}

fn extend(history: &History, strict: bool, left: &mut Vec<&Attempt>, rows: &Rows) -> bool {
    if left.is_empty() {
        return true;
    }
    for position in 0..left.len() {
        let attempt = left[position];
        let late = |other: &&Attempt| !other.snapshot && !attempt.snapshot && other.end < attempt.begin;
        let own = |other: &&Attempt| attempt.snapshot && acknowledged(history, attempt).contains(&other.id);
        if strict && left.iter().any(|other| late(other) || own(other)) {
            continue;
        }
        let mut then = rows.clone();
        if run(history, attempt, &mut then) {
            left.remove(position);
            let found = extend(history, strict, left, &then);
            left.insert(position, attempt);
            if found {
                return true;
            }
        }
    }
    false
}
