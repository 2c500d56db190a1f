//! Ranges of keys, and which of them have a key: a search tree by the lower ends, each of whose nodes knows the greatest upper end below
//! it. The tree is a treap: a node has a drawn priority, which no node below it exceeds, so that its depth is logarithmic as
//! expected, whatever the order in which ranges come.
//!
//! Nodes lie in one array, and keep the memory of their ends for the next range: once it is large enough nothing is allocated.

use std::cmp::Ordering;
use std::ops::Bound;

use super::wounds::Requester;

/// The node of a range.
pub(super) type Id = u32;

const NONE: Id = Id::MAX;

/// An end of a range, between keys: infinity, or just before, at, or behind a key.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    /// -1 and 1 are the infinities.
    infinity: i8,
    key: Vec<u8>,
    offset: i8,
}

impl End {
    /// Becomes the bound of a range; the offset and the infinity are those of a bound that has not the key, or any.
    fn set(&mut self, bound: Bound<&[u8]>, outside: i8) {
        self.key.clear();
        (self.infinity, self.offset) = match bound {
            Bound::Included(_) => (0, 0),
            Bound::Excluded(_) => (0, outside),
            Bound::Unbounded => (-outside, 0),
        };
        if let Bound::Included(key) | Bound::Excluded(key) = bound {
            self.key.extend_from_slice(key);
        }
    }

    fn compare(&self, key: &[u8]) -> Ordering {
        self.infinity.cmp(&0).then_with(|| self.key[..].cmp(key)).then(self.offset.cmp(&0))
    }
}

#[derive(Debug)]
struct Node {
    lower: End,
    upper: End,
    /// The number of the transaction's worker.
    owner: u64,
    /// Distinguishes the range from all others of this node; 0 while the node is free.
    number: u64,
    requester: Requester,
    priority: u64,
    left: Id,
    right: Id,
    /// The node with the greatest upper end of this one and those below it.
    farthest: Id,
}

/// Ranges of keys. See the module.
#[derive(Debug, Default)]
pub(super) struct Intervals {
    nodes: Vec<Node>,
    free: Vec<Id>,
    root: Option<Id>,
    count: usize,
    numbers: u64,
    /// Nodes that were looked at, for tests.
    #[cfg(test)]
    pub(super) steps: std::cell::Cell<usize>,
}

/// Spreads numbers over all words (the finalizer of SplitMix64).
fn spread(number: u64) -> u64 {
    let word = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

impl Intervals {
    /// How many ranges there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Whether a range is still there.
    pub(super) fn is_there(&self, id: Id, number: u64) -> bool {
        self.node(id).number == number
    }

    /// The transaction that holds a range.
    pub(super) fn requester(&self, id: Id) -> Requester {
        self.node(id).requester
    }

    /// Whether a range has a key.
    pub(super) fn covers(&self, id: Id, key: &[u8]) -> bool {
        let node = self.node(id);
        node.lower.compare(key).is_le() && node.upper.compare(key).is_ge()
    }

    /// Adds a range. One of the same transaction with the same lower end is made larger where it is: then the second value is
    /// true.
    pub(super) fn add(
        &mut self,
        requester: Requester,
        owner: u64,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> (Id, bool) {
        let id = self.free_node();
        let node = &mut self.nodes[id as usize];
        (node.owner, node.requester, node.left, node.right, node.farthest) = (owner, requester, NONE, NONE, id);
        node.lower.set(lower, 1);
        node.upper.set(upper, -1);
        let same = self.same_lower(id);
        if same != NONE {
            self.free.push(id);
            if self.node(same).upper < self.node(id).upper {
                let upper = std::mem::take(&mut self.nodes[id as usize].upper);
                self.change(same, |node| node.upper = upper);
            }
            return (same, true);
        }
        self.numbers += 1;
        let node = &mut self.nodes[id as usize];
        (node.number, node.priority) = (self.numbers, spread(self.numbers));
        self.root = Some(self.insert(self.root(), id));
        self.count += 1;
        (id, false)
    }

    /// Makes a range smaller; a new end is the last key that it has.
    pub(super) fn narrow(&mut self, id: Id, lower: Option<&[u8]>, upper: Option<&[u8]>) {
        self.change(id, |node| {
            if let Some(key) = lower {
                node.lower.set(Bound::Included(key), 1);
            }
            if let Some(key) = upper {
                node.upper.set(Bound::Included(key), -1);
            }
        });
    }

    /// Takes a range out.
    pub(super) fn remove(&mut self, id: Id) {
        self.detach(id);
        self.nodes[id as usize].number = 0;
        self.free.push(id);
        self.count -= 1;
    }

    /// Calls `visit` with every range that has a key: its node, its number, and its owner.
    pub(super) fn each_with(&self, key: &[u8], mut visit: impl FnMut(Id, u64, (Requester, u64))) {
        self.search(self.root(), key, &mut visit);
    }

    fn search(&self, at: Id, key: &[u8], visit: &mut impl FnMut(Id, u64, (Requester, u64))) {
        if at == NONE || self.node(self.node(at).farthest).upper.compare(key).is_lt() {
            return;
        }
        let node = self.node(at);
        self.search(node.left, key, visit);
        if node.lower.compare(key).is_le() {
            if node.upper.compare(key).is_ge() {
                visit(at, node.number, (node.requester, node.owner));
            }
            self.search(node.right, key, visit);
        }
    }

    fn root(&self) -> Id {
        self.root.unwrap_or(NONE)
    }

    fn node(&self, id: Id) -> &Node {
        #[cfg(test)]
        self.steps.set(self.steps.get() + 1);
        &self.nodes[id as usize]
    }

    fn free_node(&mut self) -> Id {
        self.free.pop().unwrap_or_else(|| {
            let id = self.nodes.len() as Id;
            let (requester, lower, upper) = (Requester::none(), End::default(), End::default());
            let node = Node {
                lower,
                upper,
                owner: 0,
                number: 0,
                requester,
                priority: 0,
                left: NONE,
                right: NONE,
                farthest: id,
            };
            self.nodes.push(node);
            id
        })
    }

    fn order(&self, left: Id, right: Id) -> Ordering {
        let (left, right) = (self.node(left), self.node(right));
        left.lower.cmp(&right.lower).then(left.owner.cmp(&right.owner)).then(left.number.cmp(&right.number))
    }

    /// A range with the same owner and lower end as one that is not in the tree.
    fn same_lower(&self, id: Id) -> Id {
        let mut at = self.root();
        while at != NONE {
            let (node, sought) = (self.node(at), self.node(id));
            at = match sought.lower.cmp(&node.lower).then(sought.owner.cmp(&node.owner)) {
                Ordering::Less => node.left,
                Ordering::Greater => node.right,
                Ordering::Equal => return at,
            };
        }
        NONE
    }

    /// Takes a range out, changes it, and puts it in again.
    fn change(&mut self, id: Id, change: impl FnOnce(&mut Node)) {
        self.detach(id);
        let node = &mut self.nodes[id as usize];
        change(node);
        (node.left, node.right, node.farthest) = (NONE, NONE, id);
        self.root = Some(self.insert(self.root(), id));
    }

    fn detach(&mut self, id: Id) {
        let root = self.unlink(self.root(), id);
        self.root = (root != NONE).then_some(root);
    }

    /// Sees to the farthest node after those below a node have changed.
    fn renew(&mut self, at: Id) {
        let mut farthest = at;
        for below in [self.node(at).left, self.node(at).right] {
            if below != NONE {
                let other = self.node(below).farthest;
                if self.node(farthest).upper < self.node(other).upper {
                    farthest = other;
                }
            }
        }
        self.nodes[at as usize].farthest = farthest;
    }

    /// Puts a node into a tree, and answers the tree's root.
    fn insert(&mut self, at: Id, id: Id) -> Id {
        if at == NONE {
            return id;
        }
        if self.node(at).priority < self.node(id).priority {
            let (left, right) = self.split(at, id);
            let node = &mut self.nodes[id as usize];
            (node.left, node.right) = (left, right);
            self.renew(id);
            return id;
        }
        if self.order(id, at).is_lt() {
            let left = self.insert(self.node(at).left, id);
            self.nodes[at as usize].left = left;
        } else {
            let right = self.insert(self.node(at).right, id);
            self.nodes[at as usize].right = right;
        }
        self.renew(at);
        at
    }

    /// Splits a tree into what comes before a node and what comes behind it.
    fn split(&mut self, at: Id, id: Id) -> (Id, Id) {
        if at == NONE {
            return (NONE, NONE);
        }
        let parts = if self.order(at, id).is_lt() {
            let (left, right) = self.split(self.node(at).right, id);
            self.nodes[at as usize].right = left;
            (at, right)
        } else {
            let (left, right) = self.split(self.node(at).left, id);
            self.nodes[at as usize].left = right;
            (left, at)
        };
        self.renew(at);
        parts
    }

    /// Puts two trees together, of which the left one comes before the right one.
    fn merge(&mut self, left: Id, right: Id) -> Id {
        if left == NONE || right == NONE {
            return left.min(right);
        }
        let root = if self.node(left).priority > self.node(right).priority {
            let below = self.merge(self.node(left).right, right);
            self.nodes[left as usize].right = below;
            left
        } else {
            let below = self.merge(left, self.node(right).left);
            self.nodes[right as usize].left = below;
            right
        };
        self.renew(root);
        root
    }

    /// Takes a node out of a tree that has it, and answers the tree's root.
    fn unlink(&mut self, at: Id, id: Id) -> Id {
        if at == id {
            let Node { left, right, .. } = self.nodes[id as usize];
            return self.merge(left, right);
        }
        if self.order(id, at).is_lt() {
            let left = self.unlink(self.node(at).left, id);
            self.nodes[at as usize].left = left;
        } else {
            let right = self.unlink(self.node(at).right, id);
            self.nodes[at as usize].right = right;
        }
        self.renew(at);
        at
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use polychron_base::random::Random;

    use super::*;

    fn bound(random: &mut Random, key: &[u8; 2]) -> Bound<&'static [u8]> {
        let key: &'static [u8] = Box::leak(Box::new(*key));
        match random.below(8) {
            0 => Bound::Unbounded,
            1..4 => Bound::Excluded(key),
            _ => Bound::Included(key),
        }
    }

    fn has(range: &(Bound<Vec<u8>>, Bound<Vec<u8>>), key: &[u8]) -> bool {
        std::ops::RangeBounds::contains(range, &key.to_vec())
    }

    /// What the tree finds is what a list finds, whatever came, went and became smaller.
    #[test]
    fn it_finds_what_a_list_finds() {
        let mut random = Random::stream(7, 0);
        let (mut tree, mut list) = (Intervals::default(), Vec::new());
        for _ in 0..polychron_base::sizes::scaled(4000, 200) {
            let key = [random.below(4) as u8, random.below(8) as u8];
            match random.below(4) {
                0 | 1 => {
                    let end = [key[0].saturating_add(random.below(2) as u8), random.below(8) as u8];
                    let (lower, upper) = (bound(&mut random, &key), bound(&mut random, &end));
                    let owner = list.len() as u64 % 3;
                    let (id, _) = tree.add(Requester::none(), owner, lower, upper);
                    list.retain(|(other, _)| *other != id);
                    let node = tree.node(id);
                    assert_eq!(node.owner, owner);
                    let upper = if tree.covers(id, &[9]) { Bound::Unbounded } else { upper.map(<[u8]>::to_vec) };
                    let mut larger = End::default();
                    larger.set(upper.as_ref().map(|key| &key[..]), -1);
                    assert!(node.upper >= larger, "a range became smaller");
                    // One that was there is as large as it was, at least.
                    let upper = match (node.upper.infinity, node.upper.offset) {
                        (1, _) => Bound::Unbounded,
                        (_, 0) => Bound::Included(node.upper.key.clone()),
                        _ => Bound::Excluded(node.upper.key.clone()),
                    };
                    list.push((id, (lower.map(<[u8]>::to_vec), upper)));
                }
                2 if !list.is_empty() => {
                    let (id, _) = list.swap_remove(random.below(list.len() as u64) as usize);
                    tree.remove(id);
                }
                _ => {
                    let len = list.len() as u64;
                    let Some((id, range)) = list.get_mut(random.below(len.max(1)) as usize) else { continue };
                    if has(range, &key) {
                        let upward = random.below(2) == 0;
                        tree.narrow(*id, upward.then_some(&key), (!upward).then_some(&key));
                        *(if upward { &mut range.0 } else { &mut range.1 }) = Bound::Included(key.to_vec());
                    }
                }
            }
            let key = [random.below(4) as u8, random.below(8) as u8];
            let mut found = Vec::new();
            tree.each_with(&key, |id, _, _| found.push(id));
            let mut expected: Vec<_> = list.iter().filter(|(_, range)| has(range, &key)).map(|(id, _)| *id).collect();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!((found, tree.len()), (expected, list.len()));
        }
    }

    /// What it costs to add a range, to ask for a key, and to take the range out grows with the depth of the tree, not with the number
    /// of ranges.
    #[test]
    fn steps_are_logarithmic() {
        let count = polychron_base::sizes::scaled(1 << 14, 64) as u32;
        let mut tree = Intervals::default();
        let key = |at: u32| (2 * at).to_be_bytes();
        let ids: Vec<_> = (0..count)
            .map(|at| tree.add(Requester::none(), 0, Bound::Included(&key(at)), Bound::Included(&key(at))).0)
            .collect();
        for at in 0..count {
            tree.each_with(&key(at), |id, _, _| assert_eq!(id, ids[at as usize]));
        }
        ids.iter().for_each(|&id| tree.remove(id));
        // Some ten looks at nodes at each level of a tree that is at most three times as deep as need be.
        let most = 3 * 3 * 10 * count.ilog2() as usize * count as usize;
        assert!(tree.steps.get() < most, "{} steps, which is more than {most}", tree.steps.get());
        assert_eq!((tree.len(), tree.nodes.len()), (0, count as usize));
    }

    /// The same range again and again is one range.
    #[test]
    fn a_range_that_is_locked_again_is_one() {
        let mut tree = Intervals::default();
        let (id, _) = tree.add(Requester::none(), 0, Bound::Unbounded, Bound::Excluded(&[5]));
        assert_eq!(tree.add(Requester::none(), 0, Bound::Unbounded, Bound::Included(&[5])), (id, true));
        assert!(tree.covers(id, &[5]));
        assert_eq!(tree.add(Requester::none(), 0, Bound::Unbounded, Bound::Included(&[4])), (id, true));
        assert!(tree.covers(id, &[5]) && tree.len() == 1);
        assert!(!tree.add(Requester::none(), 1, Bound::Unbounded, Bound::Included(&[4])).1, "another transaction's");
    }
}
