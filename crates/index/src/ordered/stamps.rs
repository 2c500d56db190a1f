//! Asking a leaf whether a stamp still holds.

use super::node::{Leaf, Node};
use super::version::{DELETED, LATCHED};
use polychron_sync::Backoff;
use std::ptr::NonNull;

/// The leaf a stamp names.
///
/// # Safety
/// The stamp came from this index, and the guard under which it was taken lives for `'g`.
unsafe fn leaf_of<'g>(node: NonNull<()>) -> &'g Leaf {
    // SAFETY: stamps are made of whole leaves only; a leaf that was unlinked is retired and stays readable.
    unsafe { Node::new(node.cast()).as_leaf() }
}

/// Whether no key was inserted into the range that the leaf covered when it had insertion state `state`.
///
/// The version word is read before the state. An insertion latches with a sequentially consistent compare-and-swap of the
/// version word before it changes the state, and releases the latch after; so a load of the version word that comes after
/// the latch in the total order finds the latch (and waits) or the release (and then sees the changed state).
///
/// # Safety
/// The guard under which the stamp was taken is still alive.
#[inline]
pub(crate) unsafe fn stamp_holds(node: NonNull<()>, state: u64) -> bool {
    // SAFETY: the caller keeps the guard.
    let mut leaf = unsafe { leaf_of(node) };
    let mut state = state;
    let mut backoff = Backoff::new();
    loop {
        let version = leaf.version().load_sequential();
        if version & LATCHED != 0 {
            backoff.wait();
            continue;
        }
        if leaf.state_sequential() != state {
            return false;
        }
        if version & DELETED == 0 {
            return true;
        }
        let Some((heir, heir_state)) = leaf.forward() else { return false };
        leaf = heir;
        state = heir_state;
    }
}

/// As [`stamp_holds`], of the leaf alone: `false` if it was unlinked.
///
/// # Safety
/// The leaf was not freed since the stamp was taken.
pub(crate) unsafe fn stamp_holds_alone(node: NonNull<()>, state: u64) -> bool {
    // SAFETY: the caller keeps the leaf.
    let leaf = unsafe { leaf_of(node) };
    let mut backoff = Backoff::new();
    loop {
        let version = leaf.version().load_sequential();
        if version & LATCHED == 0 {
            return version & DELETED == 0 && leaf.state_sequential() == state;
        }
        backoff.wait();
    }
}

/// Follows the forwards of leaves that were unlinked: the stamp that says the same and that an insertion into the range
/// would report as its `before`.
///
/// # Safety
/// The guard under which the stamp was taken is still alive.
pub(crate) unsafe fn resolved(node: NonNull<()>, state: u64) -> (NonNull<()>, u64) {
    // SAFETY: the caller keeps the guard.
    let mut leaf = unsafe { leaf_of(node) };
    let mut state = state;
    while leaf.version().stable() & DELETED != 0 && leaf.state() == state {
        let Some((heir, heir_state)) = leaf.forward() else { break };
        leaf = heir;
        state = heir_state;
    }
    (leaf.node().pointer().cast(), state)
}
