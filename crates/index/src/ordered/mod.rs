//! The ordered index: a trie of B+-trees over 8-byte key slices.
//!
//! A key is cut into big-endian slices of 8 bytes. The tree of the first layer orders keys by their first slice; where
//! several keys go on beyond an equal slice, the leaf's entry points to a tree of the next layer. A key that is alone
//! beyond its slice keeps its rest in an allocation beside the entry. A key of up to 8 bytes costs one layer and nothing
//! besides.
//!
//! Readers write nothing shared: they validate node versions. Writers latch leaves, and for splits and removals the nodes
//! above. `docs/ordered-index.md` states who may change what under which latch, and why stamps tell the truth.

mod finger;
mod insert;
mod interior;
mod load;
mod lookup;
#[cfg(all(test, loom))]
mod model;
mod node;
mod permutation;
mod remove;
mod scan;
mod split;
mod stamps;
mod statistics;
mod suffix;
mod version;

pub use finger::Finger;
pub use load::BulkLoadError;
pub use lookup::{Cursor, Step};
pub use scan::{Direction, Visitor};
pub(crate) use stamps::{resolved, stamp_holds, stamp_holds_alone};
pub use statistics::OrderedStatistics;

use node::{Header, KIND_LAYER, KIND_SUFFIX, Leaf, Node};
use polychron_memory::{Guard, OutOfMemory};
use polychron_sync::atomic::{AtomicPtr, Ordering};
use suffix::Suffix;
use version::Latched;

/// An ordered map from byte strings of up to 1024 bytes to handles.
///
/// All guards given to one index belong to the memory it was made in. An index that is dropped without
/// [`destroy`](Self::destroy) or [`retire`](Self::retire) leaves its nodes to the memory, which frees them with itself.
#[derive(Debug)]
pub struct OrderedIndex {
    /// The root of the first layer. Changed under the latch of the node it points to.
    root: AtomicPtr<Header>,
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<OrderedIndex>();
};

impl OrderedIndex {
    /// An empty index.
    pub fn new(guard: &Guard<'_>) -> Result<Self, OutOfMemory> {
        let leaf = Leaf::allocate(0, &[], guard)?;
        drop(Latched::newborn(leaf.node()));
        Ok(Self::with_root(leaf.node()))
    }

    fn with_root(root: Node<'_>) -> Self {
        Self { root: AtomicPtr::new(root.as_raw()) }
    }

    #[inline]
    fn root<'g>(&self, _guard: &'g Guard<'_>) -> Node<'g> {
        // Acquire: pairs with the Release in `set_root`.
        let root = self.root.load(Ordering::Acquire);
        // SAFETY: the root was in the tree just now, so it is not freed before the guard ends.
        unsafe { Node::from_raw(root) }.expect("an index always has a root")
    }

    #[inline]
    fn is_root(&self, node: Node<'_>) -> bool {
        // Acquire: a root that was split or collapsed is released after `set_root`, so any thread that saw it stable sees the new one.
        self.root.load(Ordering::Acquire) == node.as_raw()
    }

    /// Under the latch of the old root.
    fn set_root(&self, root: Node<'_>) {
        // Release: pairs with the Acquire in `root` and `is_root`.
        self.root.store(root.as_raw(), Ordering::Release);
    }

    /// Gives all memory of the index back at once. What the handles name is the caller's.
    ///
    /// # Safety
    /// No other guard is alive under which this index was used, and no stamp of it will be asked for.
    pub unsafe fn destroy(self, guard: &Guard<'_>) {
        // SAFETY: the caller promises to be alone.
        unsafe { tear_down(self.root(guard), &mut |part| part.free(guard)) }
    }

    /// Gives all memory of the index back once the guards that exist now are dropped.
    pub fn retire(self, guard: &Guard<'_>) {
        // SAFETY: the index is owned, so no thread works on it, and none that pins later can reach its nodes.
        unsafe { tear_down(self.root(guard), &mut |part| part.retire(guard)) }
    }
}

/// Something that was allocated for a tree.
enum Part<'g> {
    Node(Node<'g>),
    Suffix(node::Value),
}

impl Part<'_> {
    /// # Safety
    /// No thread can reach the part.
    unsafe fn free(self, guard: &Guard<'_>) {
        // SAFETY: as promised by the caller.
        unsafe {
            match self {
                Part::Node(node) => node.free(guard),
                Part::Suffix(value) => Suffix::free(value, guard),
            }
        }
    }

    /// # Safety
    /// No thread who pins from now on can reach the part.
    unsafe fn retire(self, guard: &Guard<'_>) {
        // SAFETY: as promised by the caller.
        unsafe {
            match self {
                Part::Node(node) => node.retire(guard),
                Part::Suffix(value) => Suffix::retire(value, guard),
            }
        }
    }
}

/// Hands out every part of a tree, each after what hangs below it.
///
/// # Safety
/// No other thread changes the tree. `free` may free what it is handed.
unsafe fn tear_down<'g>(root: Node<'g>, free: &mut impl FnMut(Part<'g>)) {
    match root.kind() {
        Err(interior) => {
            for index in 0..=interior.count() {
                // SAFETY: the tree is at rest, so its children are nodes.
                if let Some(child) = unsafe { Node::from_raw(interior.child(index)) } {
                    // SAFETY: as promised by the caller.
                    unsafe { tear_down(child, free) };
                }
            }
        }
        Ok(leaf) => {
            for entry in leaf.entries().iter() {
                match entry.kind {
                    KIND_SUFFIX => free(Part::Suffix(entry.value)),
                    KIND_LAYER => {
                        // SAFETY: the tree is at rest, so the entry names the root of a layer.
                        if let Some(layer) = unsafe { Node::from_raw(entry.value) } {
                            // SAFETY: as promised by the caller.
                            unsafe { tear_down(layer, free) };
                        }
                    }
                    _ => {}
                }
            }
        }
    }
    free(Part::Node(root));
}
