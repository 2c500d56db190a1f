//! The version word of a node: a latch for writers and a change detector for readers that write nothing.
//!
//! A reader notes the version while no change is under way, reads what it needs, and looks at the version again. A writer
//! holds the latch, marks the node dirty before its first store, and leaves a larger version behind. Every field of a
//! node is stored with Release and loaded with Acquire: a reader that saw one store of a writer therefore sees the dirty
//! mark (or a later version) when it looks again, without a fence.

use super::node::Node;
use polychron_sync::Backoff;
use polychron_sync::atomic::{AtomicU64, Ordering};

/// A writer holds the node.
pub(super) const LATCHED: u64 = 1;
/// The node is being changed.
pub(super) const DIRTY: u64 = 2;
/// The node was unlinked of the tree. It never changes again.
pub(super) const DELETED: u64 = 4;
/// The node is an interior node; otherwise it is a leaf.
pub(super) const INTERIOR: u64 = 8;
/// Counts changes that leave the node's range and its next link as they are.
const CONTENT: u64 = 1 << 4;
/// Counts changes of the node's range or its next link. A carry out of the content counter does no harm.
const STRUCTURE: u64 = 1 << STRUCTURE_SHIFT;
const STRUCTURE_SHIFT: u32 = 34;

/// The version word.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Version(AtomicU64);

impl Version {
    pub(super) fn new(bits: u64) -> Self {
        Self(AtomicU64::new(bits))
    }

    /// The word as it is.
    #[inline]
    pub(super) fn load(&self) -> u64 {
        // Acquire: pairs with the Release in `Latched::drop`.
        self.0.load(Ordering::Acquire)
    }

    /// The word as a validator must read it.
    #[inline]
    pub(super) fn load_sequential(&self) -> u64 {
        // SeqCst: pairs with the compare-and-swap of `try_latch_at`; see `stamp_holds`.
        self.0.load(Ordering::SeqCst)
    }

    /// Waits until no change is under way; returns the version without the latch bit.
    #[inline]
    pub(super) fn stable(&self) -> u64 {
        let version = self.load();
        if version & DIRTY == 0 {
            return version & !LATCHED;
        }
        self.wait_until_stable()
    }

    #[cold]
    fn wait_until_stable(&self) -> u64 {
        let mut backoff = Backoff::new();
        loop {
            let version = self.load();
            if version & DIRTY == 0 {
                return version & !LATCHED;
            }
            backoff.wait();
        }
    }

    /// Whether the node is still as it was when `seen` was noted.
    #[inline]
    pub(super) fn is(&self, seen: u64) -> bool {
        self.load() & !LATCHED == seen
    }

    /// Whether the node still has the range and the next link it had when `seen` was noted. Waits for a change under way.
    #[inline]
    pub(super) fn same_structure(&self, seen: u64) -> bool {
        same_structure(self.stable(), seen)
    }

    fn try_latch_at(&self, seen: u64) -> bool {
        // SeqCst: taking the latch is the insertion's side of the agreement with `stamp_holds`. It also acquires what the
        // latch's holder before did (Release in `Latched::drop`).
        self.0.compare_exchange(seen, seen | LATCHED, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

/// Whether two stable versions of one node agree in structure, and the node is in the tree.
#[inline]
pub(super) fn same_structure(now: u64, seen: u64) -> bool {
    (now ^ seen) >> STRUCTURE_SHIFT == 0 && now & DELETED == 0
}

/// A latched node. Dropping it releases the latch and publishes the changes.
#[derive(Debug)]
pub(super) struct Latched<'g> {
    node: Node<'g>,
    /// The version to leave behind.
    after: u64,
}

impl<'g> Latched<'g> {
    /// Takes the latch if the node is still as it was when `seen` was noted.
    #[inline]
    pub(super) fn at(node: Node<'g>, seen: u64) -> Option<Self> {
        // Not `then_some`: a value that is made and thrown away would release another thread's latch.
        if node.version().try_latch_at(seen) { Some(Self { node, after: seen }) } else { None }
    }

    /// Takes the latch if it is free.
    pub(super) fn attempt(node: Node<'g>) -> Option<Self> {
        let seen = node.version().load();
        if seen & LATCHED != 0 { None } else { Self::at(node, seen) }
    }

    /// Waits for the latch.
    pub(super) fn wait(node: Node<'g>) -> Self {
        let mut backoff = Backoff::new();
        loop {
            if let Some(latched) = Self::attempt(node) {
                return latched;
            }
            backoff.wait();
        }
    }

    /// Takes over a new node that was created latched and dirty.
    pub(super) fn newborn(node: Node<'g>) -> Self {
        let after = node.version().load() & !(LATCHED | DIRTY);
        Self { node, after }
    }

    /// The node.
    pub(super) fn node(&self) -> Node<'g> {
        self.node
    }

    /// Whether the node was unlinked before the latch was won.
    pub(super) fn is_deleted(&self) -> bool {
        self.after & DELETED != 0
    }

    /// Announces a change inside the node. Every store to the node comes after this call.
    #[inline]
    pub(super) fn change_content(&mut self) {
        self.mark_dirty();
        self.after = self.after.wrapping_add(CONTENT);
    }

    /// Announces a change of the node's range or next link.
    pub(super) fn change_structure(&mut self) {
        self.mark_dirty();
        self.after = self.after.wrapping_add(STRUCTURE);
    }

    /// Announces that the node is unlinked.
    pub(super) fn delete(&mut self) {
        self.change_structure();
        self.after |= DELETED;
    }

    #[inline]
    fn mark_dirty(&self) {
        // Relaxed: the node's fields are stored with Release after this, which carries the mark to any thread that sees them.
        self.node.version().0.store(self.after | LATCHED | DIRTY, Ordering::Relaxed);
    }
}

impl Drop for Latched<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the Acquire loads of readers and with the next latch.
        self.node.version().0.store(self.after, Ordering::Release);
    }
}
