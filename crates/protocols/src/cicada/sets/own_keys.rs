//! The keys that a transaction has written, in order, for its scans.
//!
//! A treap: a search tree by key that is a heap by random numbers, which the numbers of its nodes give. Nodes lie in a list that is kept, and the list is
//! a stack, because writes are undone from the last one on. So neither adding nor undoing takes memory from the heap.

use std::cmp::Ordering;
use std::ops::Bound;

use polychron_base::key::{EncodedKey, Key16};
use polychron_base::room::KeptList;
use polychron_engine::stores::IndexRef;

use super::{Kind, Target, WriteSet};

/// No node.
const NONE: u32 = u32::MAX;

/// The sides of a node.
const LESS: usize = 0;
const GREATER: usize = 1;

#[derive(Clone, Copy, Debug)]
struct Node {
    /// The first write of the key.
    position: u32,
    children: [u32; 2],
}

/// What leads to a node: a side of another one, or nothing for the root.
type Link = Option<(u32, usize)>;

/// First writes of keys, in the order of the keys.
#[derive(Debug)]
pub(super) struct KeyTree {
    nodes: Vec<Node>,
    root: u32,
    /// The nodes on the way to the one that a walk has come to, for the next walk.
    path: Vec<u32>,
    /// Makes the ranks unpredictable: clients know no order of keys for which the tree is deep.
    salt: u64,
}

impl Default for KeyTree {
    fn default() -> Self {
        Self { nodes: Vec::new(), root: NONE, path: Vec::new(), salt: 0 }
    }
}

impl KeyTree {
    /// Which of two nodes is nearer to the root.
    #[inline]
    fn rank(&self, node: u32) -> u64 {
        let mixed = (u64::from(node) ^ self.salt).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
    }

    #[inline]
    fn at(&self, link: Link) -> u32 {
        link.map_or(self.root, |(node, side)| self.nodes[node as usize].children[side])
    }

    #[inline]
    fn set(&mut self, link: Link, to: u32) {
        match link {
            Some((node, side)) => self.nodes[node as usize].children[side] = to,
            None => self.root = to,
        }
    }

    /// Adds a write, given how the key of a write compares with its key, which is none of those that are here.
    fn add(&mut self, position: u32, compare: impl Fn(u32) -> Ordering) {
        let new = self.nodes.len() as u32;
        self.nodes.push(Node { position, children: [NONE; 2] });
        let side_of_new = |nodes: &[Node], other: u32| usize::from(compare(nodes[other as usize].position).is_lt());
        let mut link = None;
        let mut other = self.at(link);
        while other != NONE && self.rank(other) > self.rank(new) {
            link = Some((other, side_of_new(&self.nodes, other)));
            other = self.at(link);
        }
        self.set(link, new);
        // What was there is divided: lesser keys go to one side of the new node, greater ones to the other.
        let mut ends = [Some((new, LESS)), Some((new, GREATER))];
        while other != NONE {
            let side = side_of_new(&self.nodes, other);
            self.set(ends[1 - side], other);
            ends[1 - side] = Some((other, side));
            other = self.at(Some((other, side)));
        }
        ends.into_iter().for_each(|end| self.set(end, NONE));
    }

    /// Removes the write that was added last, given how the key of a write compares with its key.
    fn remove_last(&mut self, compare: impl Fn(u32) -> Ordering) {
        let last = self.nodes.len() as u32 - 1;
        let mut link = None;
        while self.at(link) != last {
            let node = self.at(link);
            link = Some((node, usize::from(compare(self.nodes[node as usize].position).is_lt())));
        }
        let [mut less, mut greater] = self.nodes[last as usize].children;
        while less != NONE && greater != NONE {
            if self.rank(less) > self.rank(greater) {
                self.set(link, less);
                link = Some((less, GREATER));
                less = self.at(link);
            } else {
                self.set(link, greater);
                link = Some((greater, LESS));
                greater = self.at(link);
            }
        }
        self.set(link, if less == NONE { greater } else { less });
        self.nodes.pop();
    }

    /// Visits writes in the order of their keys, from the first one that is not `before`, until `visit` answers `false`.
    fn walk(&mut self, before: impl Fn(u32) -> bool, mut visit: impl FnMut(u32) -> bool) {
        let mut path = std::mem::take(&mut self.path);
        path.clear();
        let mut node = self.root;
        while let Some(&Node { position, children }) = self.nodes.get(node as usize) {
            let is_before = before(position);
            if !is_before {
                path.push(node);
            }
            node = children[usize::from(is_before)];
        }
        while let Some(node) = path.pop() {
            let Node { position, children } = self.nodes[node as usize];
            if !visit(position) {
                break;
            }
            let mut next = children[GREATER];
            while let Some(node) = self.nodes.get(next as usize) {
                path.push(next);
                next = node.children[LESS];
            }
        }
        self.path = path;
    }

    pub(super) fn clear(&mut self) {
        self.nodes.forget();
        self.path.forget();
        self.root = NONE;
    }

    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.nodes.room().max(self.path.room())
    }
}

impl WriteSet {
    /// The positions of the keys of an index that have a row by this transaction alone, in the order of the keys.
    pub(in crate::cicada) fn own_keys(
        &mut self,
        place: IndexRef,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        positions: &mut Vec<u32>,
    ) {
        positions.clear();
        let mut ordered = std::mem::take(&mut self.ordered);
        if ordered.salt == 0 {
            ordered.salt = Key16::new(0, 0).hash(self.hash_seed) | 1;
        }
        for position in self.ordered_to..self.writes.len() {
            let write = &self.writes[position];
            if write.target == Target::Key && write.prior.is_none() {
                ordered.add(position as u32, |other| self.compare_with(other, write.place, self.key(write)));
            }
        }
        self.ordered_to = self.writes.len();
        let is_before = |position: u32| {
            let (key, inclusive) = match lower {
                Bound::Included(key) => (key, true),
                Bound::Excluded(key) => (key, false),
                Bound::Unbounded => (&[][..], true),
            };
            let compared = self.compare_with(position, place, key);
            compared.is_lt() || compared.is_eq() && !inclusive
        };
        ordered.walk(is_before, |position| {
            self.count_step();
            let write = self.get(position);
            let key = self.key(write);
            let is_above = match upper {
                Bound::Included(upper) => key > upper,
                Bound::Excluded(upper) => key >= upper,
                Bound::Unbounded => false,
            };
            if write.place != place || is_above {
                return false;
            }
            let is_put = |position: &u32| self.get(*position).kind == Kind::Put;
            positions.extend(self.latest_of_key(place, key).filter(is_put));
            true
        });
        self.ordered = ordered;
    }

    /// The key of a write that is undone is no longer among the ordered ones. It is the last write.
    pub(super) fn forget_own_key(&mut self, position: u32) {
        let mut ordered = std::mem::take(&mut self.ordered);
        let write = self.get(position);
        ordered.remove_last(|other| self.compare_with(other, write.place, self.key(write)));
        self.ordered = ordered;
    }

    /// How the key of a write compares with another one.
    #[inline]
    fn compare_with(&self, position: u32, place: IndexRef, key: &[u8]) -> Ordering {
        self.count_step();
        let write = self.get(position);
        let index = |place: IndexRef| (place.table, place.index);
        index(write.place).cmp(&index(place)).then_with(|| self.key(write).cmp(key))
    }

    #[inline]
    fn count_step(&self) {
        #[cfg(test)]
        self.steps.set(self.steps.get() + 1);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use polychron_base::random::Random;
    use polychron_base::sizes::scaled;

    use super::*;

    #[test]
    fn walks_follow_the_order_of_keys() {
        const KEYS: u64 = 1 << 16;
        let mut random = Random::from_seed(5);
        let mut tree = KeyTree { salt: 7, ..KeyTree::default() };
        let mut keys: Vec<u64> = Vec::new();
        for _ in 0..scaled(4000, 200) {
            let key = random.below(KEYS);
            if random.below(3) > 0 && !keys.contains(&key) {
                tree.add(keys.len() as u32, |other| keys[other as usize].cmp(&key));
                keys.push(key);
            } else if let Some(&last) = keys.last() {
                tree.remove_last(|other| keys[other as usize].cmp(&last));
                keys.pop();
            }
            let from = random.below(KEYS);
            let mut found = Vec::new();
            tree.walk(
                |position| keys[position as usize] < from,
                |position| {
                    found.push(keys[position as usize]);
                    found.len() < 5
                },
            );
            let mut expected: Vec<u64> = keys.iter().copied().filter(|key| *key >= from).collect();
            expected.sort_unstable();
            expected.truncate(5);
            assert_eq!(found, expected);
        }
        tree.clear();
        tree.walk(|_| false, |_| unreachable!("nothing is left"));
    }
}
