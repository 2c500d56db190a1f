//! What the operators of a plan have done, for EXPLAIN ANALYZE.

use std::cell::{Cell, RefCell};

use hashbrown::HashMap;

use crate::plan::Node;

/// What an operator has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// The rows that it has given.
    pub(crate) rows: u64,
    /// How often it ran.
    pub(crate) loops: u64,
}

/// What an operator is known by: a plan stays where it is while it runs.
pub(super) fn address(node: &Node) -> usize {
    std::ptr::from_ref(node).addr()
}

/// The counts of all operators, by their addresses.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    counts: RefCell<HashMap<usize, Counts>>,
    read: Cell<u64>,
}

impl Profile {
    /// An operator has run, and given so many rows.
    pub(super) fn note(&self, node: &Node, rows: u64) {
        if matches!(node, Node::Scan(_)) {
            self.read.set(self.read.get() + rows);
        }
        let mut counts = self.counts.borrow_mut();
        let own = counts.entry(address(node)).or_default();
        (own.rows, own.loops) = (own.rows + rows, own.loops + 1);
    }

    /// What an operator has done.
    pub(crate) fn of(&self, node: &Node) -> Counts {
        self.counts.borrow().get(&address(node)).copied().unwrap_or_default()
    }

    /// The rows of tables that were read.
    pub(crate) fn read(&self) -> u64 {
        self.read.get()
    }
}
