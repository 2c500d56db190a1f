//! Interior nodes: ascending separators and the children between them.

use super::node::{Header, Node};
use super::version::INTERIOR;
use polychron_memory::{Guard, OutOfMemory};
use polychron_sync::MODELLED;
use polychron_sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::ptr::{self, NonNull};

/// Separators of an interior node.
pub(super) const INTERIOR_WIDTH: usize = 22;

/// An interior node. Unused separators are `u64::MAX`.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Interior {
    header: Header,
    count: AtomicU64,
    slices: [AtomicU64; INTERIOR_WIDTH],
    children: [AtomicPtr<Header>; INTERIOR_WIDTH + 1],
}

const _: () = assert!(INTERIOR_WIDTH < 32, "the search takes five steps");
const _: () = assert!(MODELLED || size_of::<Interior>() == 384);

// Loads are Acquire and stores are Release, and pair with each other as `version.rs` explains.
impl Interior {
    /// A new interior node, born latched and dirty. `children` is one longer than `slices`.
    pub(super) fn allocate<'g>(guard: &'g Guard<'_>) -> Result<&'g Interior, OutOfMemory> {
        let interior = Interior {
            header: Header::newborn(INTERIOR),
            count: AtomicU64::new(0),
            slices: std::array::from_fn(|_| AtomicU64::new(u64::MAX)),
            children: std::array::from_fn(|_| AtomicPtr::default()),
        };
        let memory = guard.allocate(size_of::<Interior>())?.cast::<Interior>();
        // SAFETY: as in `Leaf::allocate`.
        unsafe {
            memory.write(interior);
            Ok(memory.as_ref())
        }
    }

    #[inline]
    pub(super) fn node(&self) -> Node<'_> {
        // SAFETY: the reference covers the whole node.
        unsafe { Node::new(NonNull::from(self).cast()) }
    }

    /// Number of separators; there is one child more.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire) as usize
    }

    /// The index of the child whose range has `slice`; unvalidated. A search by halves without a branch: its few steps
    /// leave the processor free for the next cursor's.
    #[inline]
    pub(super) fn index_for(&self, slice: u64) -> usize {
        let mut index = 0;
        for half in [16, 8, 4, 2, 1] {
            let probe = (index + half - 1).min(INTERIOR_WIDTH - 1);
            let below = self.slices[probe].load(Ordering::Acquire) <= slice;
            index = if below { index + half } else { index };
        }
        // Unused separators are all ones, which a slice may equal; hence the minimum.
        index.min(self.count()).min(INTERIOR_WIDTH)
    }

    /// The child whose range has `slice`; unvalidated, so it may be null or stale.
    #[inline]
    pub(super) fn child_for(&self, slice: u64) -> *mut Header {
        self.child(self.index_for(slice))
    }

    /// A child if there is one at that index; unvalidated.
    #[inline]
    pub(super) fn child_at(&self, index: usize) -> Option<*mut Header> {
        if index <= INTERIOR_WIDTH { Some(self.child(index)).filter(|child| !child.is_null()) } else { None }
    }

    #[inline]
    pub(super) fn child(&self, index: usize) -> *mut Header {
        self.children[index].load(Ordering::Acquire)
    }

    pub(super) fn slice(&self, index: usize) -> u64 {
        self.slices[index].load(Ordering::Acquire)
    }

    /// The index of a child. Under the latch.
    pub(super) fn index_of(&self, child: Node<'_>) -> usize {
        (0..=self.count())
            .find(|index| self.child(*index) == child.as_raw())
            .expect("the child's parent pointer names this node")
    }

    /// Fills the node and adopts the children. Under the latch, marked dirty.
    ///
    /// # Safety
    /// The children are nodes of the tree; `children` is one longer than `slices`.
    pub(super) unsafe fn fill(&self, slices: &[u64], children: &[*mut Header]) {
        debug_assert_eq!(slices.len() + 1, children.len());
        for index in 0..INTERIOR_WIDTH {
            self.slices[index].store(slices.get(index).copied().unwrap_or(u64::MAX), Ordering::Release);
        }
        for index in 0..=INTERIOR_WIDTH {
            let child = children.get(index).copied().unwrap_or(ptr::null_mut());
            self.children[index].store(child, Ordering::Release);
            // SAFETY: the caller hands nodes of the tree.
            if let Some(child) = unsafe { Node::from_raw(child) }
                && child.parent() != Some(self.node())
            {
                child.set_parent(Some(self.node()));
            }
        }
        self.count.store(slices.len() as u64, Ordering::Release);
    }

    /// Adds a child to the right of child `index`. Under the latch, marked dirty, not full.
    pub(super) fn insert_child(&self, index: usize, separator: u64, child: Node<'_>) {
        let count = self.count();
        debug_assert!(count < INTERIOR_WIDTH);
        for position in (index..count).rev() {
            self.slices[position + 1].store(self.slice(position), Ordering::Release);
            self.children[position + 2].store(self.child(position + 1), Ordering::Release);
        }
        self.slices[index].store(separator, Ordering::Release);
        self.children[index + 1].store(child.as_raw(), Ordering::Release);
        child.set_parent(Some(self.node()));
        self.count.store(count as u64 + 1, Ordering::Release);
    }

    /// Takes child `index` out; its range goes to the child on the left, or for the first one to that on the right.
    /// Under the latch, marked dirty, with at least two children.
    pub(super) fn remove_child(&self, index: usize) {
        let count = self.count();
        debug_assert!(count > 0);
        for position in index.saturating_sub(1)..count - 1 {
            self.slices[position].store(self.slice(position + 1), Ordering::Release);
        }
        for position in index..count {
            self.children[position].store(self.child(position + 1), Ordering::Release);
        }
        self.slices[count - 1].store(u64::MAX, Ordering::Release);
        self.children[count].store(ptr::null_mut(), Ordering::Release);
        self.count.store(count as u64 - 1, Ordering::Release);
    }
}
