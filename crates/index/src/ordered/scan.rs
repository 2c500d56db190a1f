//! Scans in both directions.
//!
//! A scan copies a leaf, validates the copy, and hands out the copy's stamp and entries. It goes on over the leaf's link
//! after it has made sure that the leaf still has the range and links it had; otherwise it starts over from the root,
//! after the last key it handed out. So every key that is in the range throughout the scan is seen exactly once.

use super::OrderedIndex;
use super::interior::Interior;
use super::lookup::{handle_of, stamp_of};
use super::node::{Entry, KIND_LAYER, KIND_SUFFIX, Leaf, Node, Snapshot, class, prefetch_node};
use super::suffix::Suffix;
use super::version::{DELETED, INTERIOR, same_structure};
use crate::{Handle, Stamp};
use polychron_base::key::{EncodedKey, MAX_KEY_BYTES};
use polychron_memory::Guard;
use polychron_sync::Backoff;
use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow};

/// The order in which a scan visits keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending.
    Forward,
    /// Descending.
    Backward,
}

/// Receives what a scan finds.
pub trait Visitor {
    /// A leaf that covers part of the range, before its entries. A leaf that changed under the scan may come again.
    fn node(&mut self, stamp: Stamp);

    /// An entry, in order. `Break` ends the scan; leaves beyond are not reported.
    fn entry(&mut self, key: &[u8], handle: Handle) -> ControlFlow<()>;
}

/// Room for the longest key in whole slices.
const BUFFER: usize = MAX_KEY_BYTES + 8;

/// The position at which a scan begins, or resumes.
struct Start {
    bytes: [u8; BUFFER],
    len: usize,
    inclusive: bool,
    bounded: bool,
}

impl Start {
    fn begin(&mut self, bound: Bound<&[u8]>) {
        match bound {
            Bound::Included(key) => self.set(key, true),
            Bound::Excluded(key) => self.set(key, false),
            Bound::Unbounded => {}
        }
    }

    fn set(&mut self, key: &[u8], inclusive: bool) {
        // No key is longer than the buffer, so a bound that is may be cut without changing what it admits.
        self.len = key.len().min(BUFFER);
        self.bytes[..self.len].copy_from_slice(&key[..self.len]);
        (self.inclusive, self.bounded) = (inclusive, true);
    }

    #[inline]
    fn key(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// How the visit of a layer ended.
enum Flow {
    /// The layer is exhausted, the range perhaps not.
    Exhausted,
    /// The range is exhausted, or the visitor had enough.
    Stop,
    /// The tree changed under the scan.
    Restart,
}

/// An entry's relation to a bound.
enum Side {
    Outside,
    Inside,
    /// The entry is a layer, and the bound lies in it.
    Within,
}

struct Scan<'s, 'g, 'l, V> {
    index: &'s OrderedIndex,
    guard: &'g Guard<'l>,
    forward: bool,
    start: Start,
    end: Option<(&'s [u8], bool)>,
    /// The key that is being assembled; the slices of the layers above are in place.
    key: [u8; BUFFER],
    /// The length of the key that was handed out last, as long as that is in place and the scan does not resume behind it yet.
    handed_out: Option<usize>,
    visitor: &'s mut V,
}

/// The number of leaves that a longer scan prefetches.
const LEAVES_AHEAD: usize = 4;

/// Fetches the leaves to come: the neighbour, and after a while several. A leaf knows only its neighbours, so the others are
/// found through the node above. All of it is a guess that nothing but speed depends on.
#[derive(Default)]
struct Ahead<'g> {
    above: Option<&'g Interior>,
    /// The place of the leaf under the node above.
    index: usize,
    /// Leaves visited under the node above.
    visited: usize,
    /// Whether the node above the current leaf was asked for.
    fetched: bool,
}

impl<'g> Ahead<'g> {
    #[inline]
    fn prefetch(&mut self, leaf: &'g Leaf, copy: &Snapshot, forward: bool) {
        if let Some(above) = self.above
            && let Some(index) = if forward { Some(self.index + 1) } else { self.index.checked_sub(1) }
            && above.child_at(index) == Some(leaf.node().as_raw())
        {
            self.index = index;
            self.visited += 1;
            let farthest = self.visited.min(LEAVES_AHEAD);
            let nearest = if self.visited > LEAVES_AHEAD { farthest } else { farthest - 1 };
            for distance in nearest..=farthest {
                let beyond = if forward { Some(index + distance) } else { index.checked_sub(distance) };
                if let Some(beyond) = beyond.and_then(|beyond| above.child_at(beyond)) {
                    prefetch_node(beyond);
                }
            }
            if index != 0 && above.child_at(index + 1).is_some() {
                return;
            }
        } else {
            self.enter(leaf, copy.low);
        }
        if forward {
            prefetch_node(copy.next);
        } else if let Some(prev) = leaf.prev() {
            prefetch_node(prev.node().as_raw());
        }
    }

    /// Notes the node above. When the scan came to it over a leaf's link, it is fetched first and noted at the next leaf.
    #[inline]
    fn enter(&mut self, leaf: &'g Leaf, low: u64) {
        let Some(parent) = leaf.node().parent() else { return };
        if self.visited > 0 && !self.fetched {
            prefetch_node(parent.as_raw());
            self.fetched = true;
            return;
        }
        if let Err(above) = parent.kind() {
            (self.above, self.index, self.visited, self.fetched) = (Some(above), above.index_for(low), 1, false);
        }
    }
}

/// The way into a layer.
#[derive(Clone, Copy)]
enum Entrance<'g> {
    Index,
    /// A root, and the leaf that held it with the leaf's version.
    Layer(Node<'g>, &'g Leaf, u64),
}

impl OrderedIndex {
    /// Visits the keys between two bounds in order.
    pub fn scan<V: Visitor>(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
        visitor: &mut V,
        guard: &Guard<'_>,
    ) {
        if is_empty(lower, upper) {
            return;
        }
        let forward = direction == Direction::Forward;
        let (first, last) = if forward { (lower, upper) } else { (upper, lower) };
        let end = match last {
            Bound::Included(key) => Some((key, true)),
            Bound::Excluded(key) => Some((key, false)),
            Bound::Unbounded => None,
        };
        // Made where it lies: it is long.
        let start = Start { bytes: [0; BUFFER], len: 0, inclusive: true, bounded: false };
        let mut scan = Scan { index: self, guard, forward, start, end, key: [0; BUFFER], handed_out: None, visitor };
        scan.start.begin(first);
        let mut backoff = Backoff::new();
        while let Flow::Restart = scan.layer(0, Entrance::Index, scan.start.bounded, scan.end.is_some()) {
            scan.resume_behind();
            backoff.wait();
        }
    }
}

/// Whether no key can lie between the bounds.
fn is_empty(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> bool {
    match (lower, upper) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => low >= high,
    }
}

/// The position of an entry relative to a bound that shares the slices of the layers above.
#[inline(never)]
fn compare(entry: &Entry, bound: &[u8], depth: usize) -> Option<Ordering> {
    let position = (entry.slice, class(entry.kind)).cmp(&(bound.slice(depth), class(bound.len() - 8 * depth)));
    if position != Ordering::Equal || entry.kind < KIND_SUFFIX {
        return Some(position);
    }
    if entry.kind == KIND_LAYER {
        return None;
    }
    // SAFETY: entries handed here come from a validated copy of a leaf, under the scan's guard.
    Some(unsafe { Suffix::from_value(entry.value) }.compare(bound, depth + 1))
}

impl<'g, V: Visitor> Scan<'_, 'g, '_, V> {
    /// Visits a layer. `on_start` and `on_end` tell whether the bounds share the slices of the layers above.
    fn layer(&mut self, depth: usize, entrance: Entrance<'g>, mut on_start: bool, on_end: bool) -> Flow {
        let Some((mut leaf, mut version)) = self.descend(depth, entrance, on_start) else { return Flow::Restart };
        let mut ahead = Ahead::default();
        loop {
            let Some((copy, seen)) = copy_leaf(leaf, version) else { return Flow::Restart };
            ahead.prefetch(leaf, &copy, self.forward);
            self.visitor.node(stamp_of(leaf, copy.state));
            match self.entries(depth, leaf, seen, &copy, on_start, on_end) {
                Flow::Exhausted => {}
                flow => return flow,
            }
            on_start = false;
            let neighbour = if self.forward {
                self.right_of(depth, leaf, seen, &copy, on_end)
            } else {
                self.left_of(depth, leaf, seen, &copy, on_end)
            };
            (leaf, version) = match neighbour {
                Ok(neighbour) => neighbour,
                Err(flow) => return flow,
            };
        }
    }

    /// The leaf in which the visit of a layer begins.
    fn descend(&self, depth: usize, entrance: Entrance<'g>, on_start: bool) -> Option<(&'g Leaf, u64)> {
        let slice = match (on_start, self.forward) {
            (true, _) => self.start.key().slice(depth),
            (false, true) => 0,
            (false, false) => u64::MAX,
        };
        let mut node = match entrance {
            Entrance::Index => self.index.root(self.guard),
            Entrance::Layer(root, ..) => root,
        };
        let mut version = node.version().stable();
        let connected = match entrance {
            Entrance::Index => self.index.is_root(node),
            Entrance::Layer(_, leaf, seen) => leaf.version().is(seen),
        };
        if !connected || version & DELETED != 0 {
            return None;
        }
        while version & INTERIOR != 0 {
            // SAFETY: the bit says so.
            let child = unsafe { node.as_interior() }.child_for(slice);
            if node.version().is(version) {
                // SAFETY: the pointer was in the node when the version was validated.
                let child = unsafe { Node::from_raw(child) }?;
                let child_version = child.version().stable();
                if node.version().is(version) {
                    if child_version & DELETED != 0 {
                        return None;
                    }
                    (node, version) = (child, child_version);
                    continue;
                }
            }
            let now = node.version().stable();
            if !same_structure(now, version) {
                return None;
            }
            version = now;
        }
        // SAFETY: the bit says so.
        Some((unsafe { node.as_leaf() }, version))
    }

    /// Hands the entries of a copied leaf out.
    fn entries(
        &mut self,
        depth: usize,
        leaf: &'g Leaf,
        version: u64,
        copy: &Snapshot,
        mut on_start: bool,
        mut on_end: bool,
    ) -> Flow {
        let count = copy.permutation.count();
        let entry_at = |step: usize, forward| copy.entry(if forward { step } else { count - 1 - step });
        let start = if on_start { self.start.key().slice(depth) } else { 0 };
        let end = self.end.filter(|_| on_end).map_or(0, |(bound, _)| bound.slice(depth));
        // If the last entry comes before the end, so do the others.
        on_end &= count > 0 && !self.is_before(entry_at(count - 1, self.forward).slice, end);
        for step in 0..count {
            let entry = entry_at(step, self.forward);
            let mut starts_within = false;
            if on_start {
                if self.is_before(entry.slice, start) {
                    continue;
                }
                match self.side_of_start(&entry, depth) {
                    Side::Outside => continue,
                    Side::Inside => {}
                    Side::Within => starts_within = true,
                }
                on_start = false;
            }
            let mut ends_within = false;
            if on_end && !self.is_before(entry.slice, end) {
                match self.side_of_end(&entry, depth) {
                    Side::Outside => return Flow::Stop,
                    Side::Inside => {}
                    Side::Within => ends_within = true,
                }
            }
            if entry.kind == KIND_LAYER {
                // The key that was handed out last is about to be overwritten.
                self.resume_behind();
                self.assemble(depth, entry.slice);
                // SAFETY: the value is from a validated copy, under the scan's guard.
                let Some(root) = (unsafe { Node::from_raw(entry.value) }) else { return Flow::Restart };
                match self.layer(depth + 1, Entrance::Layer(root, leaf, version), starts_within, ends_within) {
                    Flow::Exhausted => {}
                    flow => return flow,
                }
            } else if self.emit(depth, &entry).is_break() {
                return Flow::Stop;
            }
        }
        Flow::Exhausted
    }

    /// Whether the scan comes to all keys with one slice before those with another.
    #[inline]
    fn is_before(&self, slice: u64, other: u64) -> bool {
        if self.forward { slice < other } else { slice > other }
    }

    fn side_of_start(&self, entry: &Entry, depth: usize) -> Side {
        match compare(entry, self.start.key(), depth) {
            None => Side::Within,
            Some(Ordering::Equal) if self.start.inclusive => Side::Inside,
            Some(Ordering::Greater) if self.forward => Side::Inside,
            Some(Ordering::Less) if !self.forward => Side::Inside,
            Some(_) => Side::Outside,
        }
    }

    fn side_of_end(&self, entry: &Entry, depth: usize) -> Side {
        let Some((bound, inclusive)) = self.end else { return Side::Inside };
        match compare(entry, bound, depth) {
            None => Side::Within,
            Some(Ordering::Equal) if inclusive => Side::Inside,
            Some(Ordering::Less) if self.forward => Side::Inside,
            Some(Ordering::Greater) if !self.forward => Side::Inside,
            Some(_) => Side::Outside,
        }
    }

    #[inline]
    fn assemble(&mut self, depth: usize, slice: u64) {
        self.key[8 * depth..8 * depth + 8].copy_from_slice(&slice.to_be_bytes());
    }

    /// Hands one key out, which is the place to resume after.
    #[inline]
    fn emit(&mut self, depth: usize, entry: &Entry) -> ControlFlow<()> {
        self.assemble(depth, entry.slice);
        let (len, handle) = if entry.kind == KIND_SUFFIX {
            // SAFETY: the value is from a validated copy, under the scan's guard.
            let suffix = unsafe { Suffix::from_value(entry.value) };
            suffix.write_to(&mut self.key[8 * depth + 8..]);
            (8 * depth + 8 + suffix.len(), suffix.handle())
        } else {
            (8 * depth + entry.kind, handle_of(entry.value))
        };
        self.handed_out = Some(len);
        self.visitor.entry(&self.key[..len], handle)
    }

    /// If the scan must start over, it does so behind the key that was handed out last.
    #[inline]
    fn resume_behind(&mut self) {
        if let Some(len) = self.handed_out.take() {
            self.start.set(&self.key[..len], false);
        }
    }

    /// The next leaf of a forward scan.
    fn right_of(
        &self,
        depth: usize,
        leaf: &'g Leaf,
        version: u64,
        copy: &Snapshot,
        on_end: bool,
    ) -> Result<(&'g Leaf, u64), Flow> {
        // SAFETY: the link is from a validated copy: the leaf was in the tree under the guard.
        let Some(next) = (unsafe { Node::from_raw(copy.next) }) else { return Err(Flow::Exhausted) };
        let next_version = next.version().stable();
        // SAFETY: leaves are linked to leaves only.
        let next = unsafe { next.as_leaf() };
        let low = next.low();
        if !leaf.version().same_structure(version) {
            return Err(Flow::Restart);
        }
        match self.end {
            Some((bound, _)) if on_end && low > bound.slice(depth) => Err(Flow::Stop),
            _ => Ok((next, next_version)),
        }
    }

    /// The next leaf of a backward scan. The link to the left may be behind; the left leaf's own link decides.
    fn left_of(
        &self,
        depth: usize,
        leaf: &'g Leaf,
        version: u64,
        copy: &Snapshot,
        on_end: bool,
    ) -> Result<(&'g Leaf, u64), Flow> {
        if let Some((bound, _)) = self.end
            && on_end
            && copy.low <= bound.slice(depth)
        {
            return Err(Flow::Stop);
        }
        let mut backoff = Backoff::new();
        loop {
            let prev = leaf.prev();
            let found = prev.map(|prev| (prev, prev.version().stable()));
            let linked = match found {
                Some((prev, seen)) => {
                    prev.next().map(Leaf::node) == Some(leaf.node()) && prev.version().is(seen) && seen & DELETED == 0
                }
                None => true,
            };
            if !leaf.version().same_structure(version) {
                return Err(Flow::Restart);
            }
            match found {
                None => return Err(Flow::Exhausted),
                Some(found) if linked => return Ok(found),
                Some(_) => backoff.wait(),
            }
        }
    }
}

/// A validated copy of a leaf and the version it is of; `None` when the leaf has another range than at `version`.
#[inline]
fn copy_leaf(leaf: &Leaf, mut version: u64) -> Option<(Snapshot, u64)> {
    loop {
        if version & DELETED != 0 {
            return None;
        }
        let copy = leaf.snapshot();
        if leaf.version().is(version) {
            return Some((copy, version));
        }
        let now = leaf.version().stable();
        if !same_structure(now, version) {
            return None;
        }
        version = now;
    }
}
