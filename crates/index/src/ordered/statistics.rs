//! Counting what a tree consists of.

use super::OrderedIndex;
use super::node::{KIND_LAYER, KIND_SUFFIX, Node};
use super::suffix::Suffix;
use super::version::DELETED;
use polychron_memory::Guard;

/// Counts of the parts of a tree. They are exact if no thread changes the tree meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderedStatistics {
    /// Keys.
    pub keys: usize,
    /// Trees: one, and one for each slice that several keys share.
    pub layers: usize,
    /// Leaves of all layers.
    pub leaves: usize,
    /// Interior nodes of all layers.
    pub interiors: usize,
    /// Bytes allocated for nodes and suffixes.
    pub bytes: usize,
    /// Nodes on the longest way from the root to a leaf through all layers.
    pub depth: usize,
}

impl OrderedIndex {
    /// Walks the whole tree and counts.
    pub fn statistics(&self, guard: &Guard<'_>) -> OrderedStatistics {
        let mut statistics = OrderedStatistics { layers: 1, ..OrderedStatistics::default() };
        count(self.root(guard), 1, &mut statistics);
        statistics
    }
}

fn count(node: Node<'_>, depth: usize, statistics: &mut OrderedStatistics) {
    statistics.depth = statistics.depth.max(depth);
    statistics.bytes += node.bytes();
    match node.kind() {
        Err(interior) => {
            statistics.interiors += 1;
            let children = loop {
                let version = node.version().stable();
                let children: [_; super::interior::INTERIOR_WIDTH + 1] =
                    std::array::from_fn(|index| interior.child(index));
                let count = interior.count();
                if node.version().is(version) {
                    break children.into_iter().take(count + 1);
                }
            };
            for child in children {
                // SAFETY: the pointers were in the node at a validated version, under the guard.
                if let Some(child) = unsafe { Node::from_raw(child) } {
                    count(child, depth + 1, statistics);
                }
            }
        }
        Ok(leaf) => {
            statistics.leaves += 1;
            let entries = loop {
                let version = node.version().stable();
                let entries = leaf.entries();
                if node.version().is(version) {
                    break (version & DELETED == 0).then_some(entries);
                }
            };
            for entry in entries.iter().flat_map(|entries| entries.iter()) {
                match entry.kind {
                    KIND_LAYER => {
                        statistics.layers += 1;
                        // SAFETY: as above.
                        if let Some(root) = unsafe { Node::from_raw(entry.value) } {
                            count(root, depth + 1, statistics);
                        }
                    }
                    KIND_SUFFIX => {
                        statistics.keys += 1;
                        // SAFETY: as above.
                        statistics.bytes += unsafe { Suffix::from_value(entry.value) }.bytes();
                    }
                    _ => statistics.keys += 1,
                }
            }
        }
    }
}
