//! Histories made interactively and at random.

mod aborts;
mod named;
mod oracle;
mod outside;
mod random;

use crate::history::{Attempt, History, Item, Marks, Operation, Outcome, RangeRead, Replaced, Version, Which};

/// A row of the one table.
fn item(key: u64) -> Item {
    Item { table: 0, key }
}

/// The version of a transaction's write.
fn v(transaction: u64, write: u64) -> Version {
    Version::new(transaction, write)
}

fn read(key: u64, seen: Version) -> Operation {
    Operation::Read { item: item(key), seen: Some(seen) }
}

fn absent(key: u64) -> Operation {
    Operation::Read { item: item(key), seen: None }
}

fn insert(key: u64, version: Version) -> Operation {
    Operation::Write { item: item(key), version, replaced: Replaced::Absent, attributes: Default::default() }
}

fn write(key: u64, version: Version, over: Version) -> Operation {
    Operation::Write { item: item(key), version, replaced: Replaced::Version(over), attributes: Default::default() }
}

fn blind(key: u64, version: Version) -> Operation {
    Operation::Write { item: item(key), version, replaced: Replaced::Unknown, attributes: Default::default() }
}

fn delete(key: u64, over: Version) -> Operation {
    Operation::Delete { item: item(key), replaced: Replaced::Version(over) }
}

fn scan(lower: u64, upper: u64, rows: &[(u64, Version)]) -> Operation {
    let (lower, upper, rows) = ((lower, lower), (upper, upper), rows.to_vec());
    let (which, marks) = (Which::All, Marks::ALL);
    Operation::Range(Box::new(RangeRead { table: 0, index: 0, lower, upper, backward: false, which, marks, rows }))
}

/// A range of one value, of which some row is there.
fn present(index: u8, value: u64) -> RangeRead {
    let (lower, upper) = if index == 0 { ((value, value), (value, value)) } else { ((value, 0), (value, u64::MAX)) };
    let (which, marks, rows) = (Which::All, Marks::ALL, Vec::new());
    RangeRead { table: 0, index, lower, upper, backward: false, which, marks, rows }
}

/// A history of transactions that all ran at the same time, numbered from 1.
fn concurrent(transactions: &[&[Operation]]) -> History {
    let mut history = History::default();
    for (operations, id) in transactions.iter().zip(1..) {
        add(&mut history, id, (0, 100 + id), Outcome::Committed, operations);
    }
    history
}

fn add(history: &mut History, id: u64, (begin, end): (u64, u64), outcome: Outcome, operations: &[Operation]) {
    let attempt = Attempt { id, thread: id as u32, begin, end, outcome, snapshot: false, session: 0, operations: 0..0 };
    history.push(attempt, operations.iter().cloned());
}
