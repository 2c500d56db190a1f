//! Division of full nodes.
//!
//! A division climbs first: it latches the nodes above as far as they are full, and allocates all it needs. Only then does
//! it change anything, with every node concerned marked dirty, so readers see the tree before or after, never between.

use super::OrderedIndex;
use super::insert::{discard, entry_for};
use super::interior::{INTERIOR_WIDTH, Interior};
use super::lookup::{Position, stamp_of};
use super::node::{Entries, Entry, Header, KIND_LAYER, Leaf, Node, class};
use super::version::Latched;
use crate::Handle;
use crate::stamp::{Change, Changes};
use polychron_base::key::EncodedKey;
use polychron_memory::{Guard, OutOfMemory};
use polychron_sync::Backoff;
use std::ptr;

/// Full interior nodes on one path. A root divides only after its children divided seven times, so this is never reached.
pub(super) const MAX_HEIGHT: usize = 24;

/// Latches the node above `child`, which is latched; `None` for the root of the index.
pub(super) fn latch_parent<'g>(child: Node<'g>) -> Option<Latched<'g>> {
    let mut backoff = Backoff::new();
    loop {
        let parent = child.parent()?;
        let latched = Latched::wait(parent);
        if !latched.is_deleted() && child.parent() == Some(parent) {
            return Some(latched);
        }
        drop(latched);
        backoff.wait();
    }
}

/// Where the half that is split off last finds its place.
enum Top<'g> {
    /// In an interior node with room.
    Room(Latched<'g>, &'g Interior),
    /// Under a new root of the layer, whose place in the leaf above is latched.
    Layer(Latched<'g>, &'g Leaf),
    /// Under a new root of the index.
    Index,
}

/// The full interior nodes above a leaf, latched, with the new nodes for their right halves.
struct Climb<'g> {
    full: [Option<(Latched<'g>, &'g Interior, &'g Interior)>; MAX_HEIGHT],
    height: usize,
    /// The node below `top`.
    last: Node<'g>,
    top: Top<'g>,
    new_root: Option<&'g Interior>,
}

impl<'g> Climb<'g> {
    fn new(leaf: Node<'g>, guard: &'g Guard<'_>) -> Result<Self, OutOfMemory> {
        let mut climb =
            Self { full: [const { None }; MAX_HEIGHT], height: 0, last: leaf, top: Top::Index, new_root: None };
        loop {
            let Some(latched) = latch_parent(climb.last) else { break };
            match latched.node().kind() {
                Ok(leaf) => {
                    climb.top = Top::Layer(latched, leaf);
                    break;
                }
                Err(interior) if interior.count() < INTERIOR_WIDTH => {
                    climb.top = Top::Room(latched, interior);
                    return Ok(climb);
                }
                Err(interior) => {
                    let right = Interior::allocate(guard).inspect_err(|_| climb.discard(guard))?;
                    climb.last = interior.node();
                    climb.full[climb.height] = Some((latched, interior, right));
                    climb.height += 1;
                }
            }
        }
        climb.new_root = Some(Interior::allocate(guard).inspect_err(|_| climb.discard(guard))?);
        Ok(climb)
    }

    /// Gives the new nodes back.
    fn discard(&self, guard: &Guard<'_>) {
        for (_, _, right) in self.full.iter().flatten() {
            // SAFETY: the new nodes were not published.
            unsafe { right.node().free(guard) };
        }
        if let Some(root) = self.new_root {
            // SAFETY: as above.
            unsafe { root.node().free(guard) };
        }
    }

    /// Releases all latches, those of the new nodes too.
    fn release(mut self) {
        for (latched, _, right) in self.full[..self.height].iter_mut().filter_map(Option::take) {
            drop(Latched::newborn(right.node()));
            drop(latched);
        }
        if let Some(root) = self.new_root {
            drop(Latched::newborn(root.node()));
        }
        drop(self.top);
    }

    /// Hangs `right` in beside `left`, dividing the full nodes.
    fn finish(
        &mut self,
        index: &OrderedIndex,
        mut left: Node<'g>,
        mut separator: u64,
        mut right: Node<'g>,
        append: bool,
    ) {
        for (latched, interior, new) in self.full[..self.height].iter_mut().flatten() {
            latched.change_structure();
            separator = divide_interior(interior, new, left, separator, right, append);
            left = interior.node();
            right = new.node();
        }
        match &mut self.top {
            Top::Room(latched, interior) => {
                latched.change_content();
                interior.insert_child(interior.index_of(left), separator, right);
            }
            Top::Layer(latched, leaf) => {
                latched.change_content();
                let slot = leaf.slot_of_layer(left);
                let root = self.new_root.expect("a layer that grows was given a new root");
                root.node().set_parent(Some(leaf.node()));
                // SAFETY: both halves are nodes of the tree, latched by this division.
                unsafe { root.fill(&[separator], &[left.as_raw(), right.as_raw()]) };
                leaf.set_value(slot, root.node().as_raw());
            }
            Top::Index => {
                let root = self.new_root.expect("an index that grows was given a new root");
                // SAFETY: as above.
                unsafe { root.fill(&[separator], &[left.as_raw(), right.as_raw()]) };
                index.set_root(root.node());
            }
        }
    }
}

/// Divides a full interior node, with one child more, between itself and `new`; returns the separator of the two.
fn divide_interior(
    interior: &Interior,
    new: &Interior,
    left: Node<'_>,
    separator: u64,
    right: Node<'_>,
    append: bool,
) -> u64 {
    let at = interior.index_of(left);
    let mut slices = [0; INTERIOR_WIDTH + 1];
    let mut children: [*mut Header; INTERIOR_WIDTH + 2] = [ptr::null_mut(); INTERIOR_WIDTH + 2];
    children[0] = interior.child(0);
    for index in 0..=INTERIOR_WIDTH {
        let source = if index > at { index - 1 } else { index };
        (slices[index], children[index + 1]) = if index == at {
            (separator, right.as_raw())
        } else {
            (interior.slice(source), interior.child(source + 1))
        };
    }
    let kept = if append && at == INTERIOR_WIDTH { INTERIOR_WIDTH - 1 } else { INTERIOR_WIDTH / 2 };
    // SAFETY: all children are nodes of the tree, and both nodes are latched.
    unsafe {
        new.fill(&slices[kept + 1..], &children[kept + 1..]);
        interior.fill(&slices[..kept], &children[..=kept]);
    }
    slices[kept]
}

/// Whether an insertion of rank `rank` belongs to an ascending run, which leaves full nodes behind.
fn ascends(rank: usize, behind_last: bool, leaf: &Leaf) -> bool {
    leaf.continues_run(rank) || (behind_last && leaf.next().is_none())
}

/// The position at which the entries of a full leaf, including the new one, are divided: never between two with the same slice.
fn division(merged: &[Entry], rank: usize, ascends: bool, leaf: &Leaf) -> usize {
    let last = merged.len() - 1;
    let wanted = if ascends {
        // Behind the new entry, so that the run has no other keys to its right in the leaf where it goes on.
        (rank + 1).min(last)
    } else if rank == 0 && leaf.prev().is_none() {
        1
    } else {
        merged.len() / 2
    };
    let boundary = |at: usize| merged[at - 1].slice != merged[at].slice;
    (0..merged.len())
        .flat_map(|distance| [wanted.checked_sub(distance), Some(wanted + distance)])
        .flatten()
        .find(|at| (1..=last).contains(at) && boundary(*at))
        .expect("at most ten entries share a slice")
}

impl OrderedIndex {
    /// Inserts the key into a full leaf, which is divided.
    pub(super) fn split<K: EncodedKey>(
        &self,
        position: Position<'_>,
        mut latched: Latched<'_>,
        key: K,
        handle: Handle,
        changes: &mut impl Changes,
        guard: &Guard<'_>,
    ) -> Result<(), OutOfMemory> {
        let left = position.leaf;
        let entry = entry_for(key, position.depth, handle, guard)?;
        let (rank, count) = (left.rank(entry.slice, class(entry.kind)), left.permutation().count());
        let append = ascends(rank, rank == count, left);
        let mut moved = Entries::new();
        let at = if append && rank == count && left.last_slice() < entry.slice {
            // All stay, and the run goes on in the new leaf.
            moved.push(entry);
            count
        } else {
            let old = left.entries();
            let mut merged = Entries::new();
            old[..rank].iter().for_each(|kept| merged.push(*kept));
            merged.push(entry);
            old[rank..].iter().for_each(|kept| merged.push(*kept));
            let at = division(&merged, rank, append, left);
            merged[at..].iter().for_each(|kept| moved.push(*kept));
            at
        };
        let separator = moved[0].slice;

        // SAFETY: the entry was not published.
        let right = Leaf::allocate(separator, &moved, guard).inspect_err(|_| unsafe { discard(&entry, guard) })?;
        let mut climb = Climb::new(left.node(), guard).inspect_err(|_| {
            // SAFETY: neither the entry nor the leaf was published.
            unsafe {
                discard(&entry, guard);
                right.node().free(guard);
            }
        })?;

        // From here on nothing fails.
        latched.change_structure();
        right.set_next(left.next());
        right.set_prev(Some(left));
        for moved in moved.iter().filter(|moved| moved.kind == KIND_LAYER) {
            // SAFETY: the entry names the root of a layer, held by the latched leaf.
            if let Some(root) = unsafe { Node::from_raw(moved.value) } {
                root.set_parent(Some(right.node()));
            }
        }
        if let Some(next) = left.next() {
            next.set_prev(Some(right));
        }
        left.set_next(Some(right));
        if rank < at {
            left.truncate(at - 1);
            left.insert_entry(rank, entry);
        } else {
            left.truncate(at);
        }
        let state = left.count_insertion();
        climb.finish(self, left.node(), separator, right.node(), append);
        let new = stamp_of(right, right.state());
        climb.release();
        drop(Latched::newborn(right.node()));
        drop(latched);
        changes.change(Change::Added { of: position.stamp(), new });
        changes.change(Change::Moved { before: position.stamp(), after: stamp_of(left, state) });
        Ok(())
    }
}
