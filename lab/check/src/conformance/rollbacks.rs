//! Transactions that roll back of their own accord, because of what they saw: that it was consistent they are told only if it was, as if
//! they had committed without having written anything.

use polychron_engine::{Interactive, Isolation, Protocol};

use super::cases::{Case, Step, cases, flag, number, one, values, wrote};
use super::verdict::Verdict;
use crate::Setup;

/// Snapshot isolation shows consistent states, also to who rolls back.
const SKEWS: &[&str] = &[];

cases! {
    /// A sum of two rows, between which another transaction moves a part of it.
    reads {
        rows: [(1, 10), (2, 20)],
        steps: [|_, rows| rows.get(1).map(one), |_, rows| rows.get(2).map(one)],
        steps: [|_, rows| rows.add(1, 10).map(flag), |_, rows| rows.add(2, -10).map(flag)],
        rollbacks: [0],
        turns: [0, 1, 1, 1, 0, 0],
    }

    /// The same, where it has written the first row, too.
    reads_beside_a_write {
        rows: [(1, 10), (2, 20), (3, 30)],
        steps: [
            |_, rows| rows.get(1).map(one),
            |seen, rows| rows.put(3, number(seen, 0)).map(wrote),
            |_, rows| rows.get(2).map(one),
        ],
        steps: [|_, rows| rows.add(1, 10).map(flag), |_, rows| rows.add(2, -10).map(flag)],
        rollbacks: [0],
        turns: [0, 0, 1, 1, 1, 0, 0],
    }

    /// A key that it inserts and another transaction, which began before, inserts and commits with a change that it reads then.
    insertion {
        rows: [(1, 10)],
        steps: [|_, rows| rows.insert(5, 50).map(flag), |_, rows| rows.add(1, 1).map(flag)],
        steps: [|_, rows| rows.insert(5, 55).map(flag), |_, rows| rows.get(1).map(one)],
        rollbacks: [1],
        turns: [1, 0, 0, 0, 1, 1],
    }

    /// The same, where the other one began later.
    insertion_before_a_later_one {
        rows: [(1, 10)],
        steps: [|_, rows| rows.insert(5, 50).map(flag), |_, rows| rows.get(1).map(one)],
        steps: [|_, rows| rows.insert(5, 55).map(flag), |_, rows| rows.add(1, 1).map(flag)],
        rollbacks: [0],
        turns: [0, 1, 1, 1, 0, 0],
    }

    /// A key that another transaction has inserted and committed since it began, with a change of what it has read.
    insertion_that_comes_late {
        rows: [(1, 10)],
        steps: [|_, rows| rows.get(1).map(one), |_, rows| rows.insert(5, 50).map(flag)],
        steps: [|_, rows| rows.insert(5, 55).map(flag), |_, rows| rows.add(1, 1).map(flag)],
        rollbacks: [0],
        turns: [0, 1, 1, 1, 0, 0],
    }

    /// A row that it deletes, and that another transaction has deleted and committed, with a change of what it has read.
    deletion_that_comes_late {
        rows: [(1, 10), (5, 50)],
        steps: [|_, rows| rows.get(1).map(one), |_, rows| rows.delete(5).map(flag)],
        steps: [|_, rows| rows.delete(5).map(flag), |_, rows| rows.add(1, 1).map(flag)],
        rollbacks: [0],
        turns: [0, 1, 1, 1, 0, 0],
    }

    /// A range into which a row comes, with a change of what it reads then.
    range {
        rows: [(1, 10), (5, 50)],
        steps: [|_, rows| rows.range(2..9).map(values), |_, rows| rows.get(1).map(one)],
        steps: [|_, rows| rows.insert(6, 60).map(flag), |_, rows| rows.add(1, 1).map(flag)],
        rollbacks: [0],
        turns: [0, 1, 1, 1, 0, 0],
    }
}
