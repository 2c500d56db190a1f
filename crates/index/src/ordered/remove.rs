//! Removal of keys, and of the leaves, interior nodes and layers that become empty by it.
//!
//! None of this changes a stamp. A leaf that is unlinked hands its range to a neighbour, or to the leaf that held its
//! layer, and forwards its stamps there.

use super::OrderedIndex;
use super::interior::Interior;
use super::lookup::{Hit, Position, handle_of, value_of};
use super::node::{KIND_SUFFIX, Leaf, Node};
use super::split::{MAX_HEIGHT, latch_parent};
use super::suffix::Suffix;
use super::version::Latched;
use crate::Handle;
use polychron_base::key::EncodedKey;
use polychron_memory::Guard;
use polychron_sync::Backoff;

/// How an attempt to take an empty leaf out ended.
enum TakenOut {
    Done,
    /// The leaf is all there is; it stays.
    Kept,
    /// A neighbour is latched by another thread, whom to wait for could be a deadlock.
    Blocked,
}

/// The node above an empty leaf and the single-child nodes over it.
enum Above<'g> {
    Interior(Latched<'g>, &'g Interior),
    Layer(Latched<'g>, &'g Leaf),
    Index,
}

/// An empty leaf with all that goes when it goes.
struct Doomed<'g> {
    latched: Latched<'g>,
    leaf: &'g Leaf,
    /// Interior nodes that have no other child, bottom up.
    path: [Option<Latched<'g>>; MAX_HEIGHT],
    height: usize,
    /// The last of the path, or the leaf.
    top: Node<'g>,
}

impl<'g> Doomed<'g> {
    fn climb(latched: Latched<'g>, leaf: &'g Leaf) -> (Self, Above<'g>) {
        let mut doomed = Self { latched, leaf, path: [const { None }; MAX_HEIGHT], height: 0, top: leaf.node() };
        loop {
            let Some(parent) = latch_parent(doomed.top) else { return (doomed, Above::Index) };
            match parent.node().kind() {
                Ok(leaf) => return (doomed, Above::Layer(parent, leaf)),
                Err(interior) if interior.count() > 0 => return (doomed, Above::Interior(parent, interior)),
                Err(interior) => {
                    doomed.top = interior.node();
                    doomed.path[doomed.height] = Some(parent);
                    doomed.height += 1;
                }
            }
        }
    }

    /// Marks everything unlinked; called before the links around it change.
    fn delete(&mut self) {
        self.latched.delete();
        self.delete_path();
    }

    fn delete_path(&mut self) {
        self.path.iter_mut().flatten().for_each(Latched::delete);
    }

    /// Releases the latches and gives the memory back.
    fn retire(self, guard: &Guard<'_>) {
        let leaf = self.leaf.node();
        drop(self.latched);
        // SAFETY: the caller has unlinked the leaf.
        unsafe { leaf.retire(guard) };
        retire_all(self.path, guard);
    }
}

fn retire_all(path: [Option<Latched<'_>>; MAX_HEIGHT], guard: &Guard<'_>) {
    for latched in path.into_iter().flatten() {
        let node = latched.node();
        drop(latched);
        // SAFETY: the caller has unlinked the path.
        unsafe { node.retire(guard) };
    }
}

/// The neighbours of a doomed leaf, latched: its heir, and the leaf to its left when the heir is on the right.
struct Neighbours<'g> {
    heir: &'g Leaf,
    heir_latched: Latched<'g>,
    left: Option<(Latched<'g>, &'g Leaf)>,
}

impl<'g> Neighbours<'g> {
    fn latch(leaf: &'g Leaf, heir_is_left: bool) -> Option<Self> {
        let left = match leaf.prev() {
            Some(left) => {
                let latched = Latched::attempt(left.node())?;
                if latched.is_deleted() || left.next().map(Leaf::node) != Some(leaf.node()) {
                    return None;
                }
                Some((latched, left))
            }
            None => None,
        };
        if heir_is_left {
            let (heir_latched, heir) = left?;
            return Some(Self { heir, heir_latched, left: None });
        }
        // The right neighbour cannot be unlinked while this leaf is latched.
        let heir = leaf.next()?;
        Some(Self { heir, heir_latched: Latched::attempt(heir.node())?, left })
    }

    /// Links past the leaf and gives its range to the heir.
    fn bypass(&mut self, leaf: &'g Leaf, heir_is_left: bool) {
        self.heir_latched.change_structure();
        if heir_is_left {
            let next = leaf.next();
            self.heir.set_next(next);
            if let Some(next) = next {
                next.set_prev(Some(self.heir));
            }
        } else {
            self.heir.set_low(leaf.low());
            self.heir.set_prev(self.left.as_ref().map(|(_, left)| *left));
            if let Some((latched, left)) = &mut self.left {
                latched.change_structure();
                left.set_next(Some(self.heir));
            }
        }
        leaf.set_forward(self.heir);
    }
}

impl OrderedIndex {
    /// Removes a key for good if it still maps to `expected`; tells whether it did. Changes no stamp.
    pub fn remove<K: EncodedKey>(&self, key: K, expected: Handle, guard: &Guard<'_>) -> bool {
        let Some((position, hit, mut latched)) = self.latch_expected(key, expected, guard) else { return false };
        latched.change_content();
        position.leaf.remove_entry(hit.slot);
        let empty = position.leaf.permutation().count() == 0;
        drop(latched);
        if hit.kind == KIND_SUFFIX {
            // SAFETY: the entry is out, so no new guard finds the suffix.
            unsafe { Suffix::retire(hit.value, guard) };
        }
        if empty {
            self.clean_up(key, guard);
        }
        true
    }

    /// Makes a key map to `new` if it still maps to `expected`; tells whether it did. Changes no stamp.
    pub fn replace<K: EncodedKey>(&self, key: K, expected: Handle, new: Handle, guard: &Guard<'_>) -> bool {
        let Some((position, hit, _latched)) = self.latch_expected(key, expected, guard) else { return false };
        if hit.kind == KIND_SUFFIX {
            // SAFETY: the leaf is latched at the validated version.
            unsafe { Suffix::from_value(hit.value) }.set_handle(new);
        } else {
            // The kind stays, so a reader may take the old or the new value: the version need not change.
            position.leaf.set_value(hit.slot, value_of(new));
        }
        true
    }

    /// Latches the leaf in which the key maps to `expected`.
    fn latch_expected<'g, K: EncodedKey>(
        &self,
        key: K,
        expected: Handle,
        guard: &'g Guard<'_>,
    ) -> Option<(Position<'g>, Hit, Latched<'g>)> {
        let mut backoff = Backoff::new();
        loop {
            let position = self.locate(key, guard);
            if position.handle(key) != Some(expected) {
                return None;
            }
            let Some(latched) = Latched::at(position.leaf.node(), position.version) else {
                backoff.wait();
                continue;
            };
            // A handle may be replaced without a change of the version; look again under the latch.
            let hit = position.hit.expect("a key that is present has an entry");
            let present = if hit.kind == KIND_SUFFIX {
                // SAFETY: the leaf is latched at the validated version.
                unsafe { Suffix::from_value(hit.value) }.handle()
            } else {
                handle_of(position.leaf.value(hit.slot))
            };
            return (present == expected).then_some((position, hit, latched));
        }
    }

    /// Takes the leaf that covers the key out as long as it is empty, and then the one that took over if that is.
    fn clean_up<K: EncodedKey>(&self, key: K, guard: &Guard<'_>) {
        let mut backoff = Backoff::new();
        loop {
            let position = self.locate(key, guard);
            let Some(latched) = Latched::at(position.leaf.node(), position.version) else {
                backoff.wait();
                continue;
            };
            if position.leaf.permutation().count() != 0 {
                return;
            }
            match self.unlink_leaf(latched, position.leaf, guard) {
                TakenOut::Done => {}
                TakenOut::Kept => return,
                TakenOut::Blocked => backoff.wait(),
            }
        }
    }

    fn unlink_leaf<'g>(&self, latched: Latched<'g>, leaf: &'g Leaf, guard: &'g Guard<'_>) -> TakenOut {
        let (doomed, above) = Doomed::climb(latched, leaf);
        match above {
            Above::Index if doomed.height == 0 => TakenOut::Kept,
            Above::Index => self.make_root(doomed, guard),
            Above::Layer(parent, holder) => take_layer_out(doomed, parent, holder, guard),
            Above::Interior(parent, interior) => self.unlink(doomed, parent, interior, guard),
        }
    }

    /// The leaf is the only one of the index, under interior nodes that are of no use: they go.
    fn make_root(&self, mut doomed: Doomed<'_>, guard: &Guard<'_>) -> TakenOut {
        doomed.delete_path();
        doomed.leaf.node().set_parent(None);
        self.set_root(doomed.leaf.node());
        drop(doomed.latched);
        retire_all(doomed.path, guard);
        TakenOut::Done
    }

    /// Takes the leaf out from under `interior`, which has other children.
    fn unlink<'g>(
        &self,
        mut doomed: Doomed<'g>,
        mut parent: Latched<'g>,
        interior: &'g Interior,
        guard: &'g Guard<'_>,
    ) -> TakenOut {
        let index = interior.index_of(doomed.top);
        // With one child left, a root is of no use; what holds it must be latched before the neighbours are.
        let holder = if interior.count() == 1 { latch_parent(interior.node()) } else { None };
        let collapses = interior.count() == 1 && holder.as_ref().is_none_or(|holder| !holder.node().is_interior());
        let heir_is_left = index > 0;
        let Some(mut neighbours) = Neighbours::latch(doomed.leaf, heir_is_left) else { return TakenOut::Blocked };

        doomed.delete();
        parent.change_content();
        neighbours.bypass(doomed.leaf, heir_is_left);
        interior.remove_child(index);
        drop(neighbours);
        if collapses {
            self.collapse_root(parent, interior, holder, guard);
        } else {
            drop(parent);
        }
        doomed.retire(guard);
        TakenOut::Done
    }

    /// Makes the only child of a root the root. The root is latched and dirty, and so is the leaf that holds it, if any.
    fn collapse_root(
        &self,
        mut root: Latched<'_>,
        interior: &Interior,
        holder: Option<Latched<'_>>,
        guard: &Guard<'_>,
    ) {
        root.delete();
        // SAFETY: the child is in the tree, and its parent is latched.
        let child = unsafe { Node::from_raw(interior.child(0)) }.expect("one child is left");
        match holder {
            Some(mut holder) => {
                holder.change_content();
                // SAFETY: the caller has seen that a holder is a leaf.
                let leaf = unsafe { holder.node().as_leaf() };
                child.set_parent(Some(leaf.node()));
                leaf.set_value(leaf.slot_of_layer(interior.node()), child.as_raw());
            }
            None => {
                child.set_parent(None);
                self.set_root(child);
            }
        }
        drop(root);
        // SAFETY: nothing still points to the old root.
        unsafe { interior.node().retire(guard) };
    }
}

/// The leaf is the only one of its layer: the layer goes.
fn take_layer_out(mut doomed: Doomed<'_>, mut parent: Latched<'_>, holder: &Leaf, guard: &Guard<'_>) -> TakenOut {
    doomed.delete();
    parent.change_content();
    holder.remove_entry(holder.slot_of_layer(doomed.top));
    doomed.leaf.set_forward(holder);
    drop(parent);
    doomed.retire(guard);
    TakenOut::Done
}
