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

/// The counts of all operators, by their addresses: a plan stays where it is while it runs.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    counts: RefCell<HashMap<*const Node, Counts>>,
    read: Cell<u64>,
}

impl Profile {
    /// An operator has run, and given so many rows.
    pub(super) fn note(&self, node: &Node, rows: u64) {
        if matches!(node, Node::Scan(_)) {
            self.read.set(self.read.get() + rows);
        }
        let mut counts = self.counts.borrow_mut();
        let own = counts.entry(node).or_default();
        (own.rows, own.loops) = (own.rows + rows, own.loops + 1);
    }

    /// What an operator has done.
    pub(crate) fn of(&self, node: &Node) -> Counts {
        self.counts.borrow().get(&std::ptr::from_ref(node)).copied().unwrap_or_default()
    }

    /// The rows of tables that were read.
    pub(crate) fn read(&self) -> u64 {
        self.read.get()
    }
}
