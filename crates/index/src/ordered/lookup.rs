//! Finding a key: at once, or one node at a time with prefetches, so that several lookups overlap.
//!
//! Both are the same walk. A step notes the version of the node it stands on, validates that the node above (whose child
//! pointer led here) has not changed meanwhile, searches the node, and validates the node before the pointer it found is
//! followed. When a validation fails the step is repeated, or the walk starts over.

use super::OrderedIndex;
use super::finger::Finger;
use super::node::{Header, KIND_LAYER, KIND_SUFFIX, Leaf, Node, Value, prefetch_node};
use super::suffix::Suffix;
use super::version::{DELETED, INTERIOR, same_structure};
use crate::stamp::{Kind, Stamp};
use crate::{Handle, Lookup};
use polychron_base::key::EncodedKey;
use polychron_memory::Guard;
use polychron_sync::prefetch_read;
use std::num::NonZeroU64;
use std::ptr;

/// The entry a key leads to in its leaf: the key itself, or the one suffix under the same slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hit {
    pub(super) slot: usize,
    pub(super) kind: usize,
    pub(super) value: Value,
}

/// The leaf that covers a key, as it was at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position<'g> {
    pub(super) leaf: &'g Leaf,
    pub(super) version: u64,
    pub(super) state: u64,
    /// Layers above the leaf's.
    pub(super) depth: usize,
    pub(super) hit: Option<Hit>,
}

impl Position<'_> {
    #[inline]
    pub(super) fn stamp(&self) -> Stamp {
        stamp_of(self.leaf, self.state)
    }

    /// The key's handle if the hit is the key itself.
    #[inline]
    pub(super) fn handle<K: EncodedKey>(&self, key: K) -> Option<Handle> {
        let hit = self.hit?;
        if hit.kind != KIND_SUFFIX {
            return Some(handle_of(hit.value));
        }
        // SAFETY: the place was validated, and lives no longer than the guard.
        let suffix = unsafe { Suffix::from_value(hit.value) };
        suffix.equals(key, self.depth + 1).then(|| suffix.handle())
    }

    #[inline]
    fn lookup<K: EncodedKey>(&self, key: K) -> Lookup {
        Lookup { handle: self.handle(key), stamp: self.stamp() }
    }
}

#[inline]
pub(super) fn stamp_of(leaf: &Leaf, state: u64) -> Stamp {
    Stamp { node: leaf.node().pointer().cast(), state, kind: Kind::Ordered }
}

/// The handle in a value slot of an inline entry.
#[inline]
pub(super) fn handle_of(value: Value) -> Handle {
    NonZeroU64::new(value.addr() as u64).expect("handles are not zero")
}

/// The value slot for a handle.
#[inline]
pub(super) fn value_of(handle: Handle) -> Value {
    ptr::without_provenance_mut(handle.get() as usize)
}

/// The position of a walk.
#[derive(Clone, Copy, Debug)]
struct Walk<'g> {
    /// The node to look at next; none before the first step.
    node: Option<Node<'g>>,
    /// The node whose pointer led here, and its version; none at the root.
    above: Option<(Node<'g>, u64)>,
    depth: usize,
    slice: u64,
}

/// The result of a step of a walk.
enum Progress<'g> {
    /// The walk stands on another node now.
    Moved,
    /// The walk must start over.
    Lost,
    Arrived(Position<'g>),
}

impl<'g> Walk<'g> {
    #[inline]
    fn new<K: EncodedKey>(key: K) -> Self {
        Self { node: None, above: None, depth: 0, slice: key.slice(0) }
    }

    /// Goes one node further.
    #[inline]
    fn step<K: EncodedKey>(&mut self, key: K, node: Node<'g>, index: &OrderedIndex) -> Progress<'g> {
        let mut version = node.version().stable();
        let connected = match self.above {
            Some((above, seen)) => above.version().is(seen),
            None => index.is_root(node),
        };
        if !connected || version & DELETED != 0 {
            return Progress::Lost;
        }
        loop {
            let found = if version & INTERIOR != 0 {
                // SAFETY: the bit says so.
                let child = unsafe { node.as_interior() }.child_for(self.slice);
                Ok((child, self.depth))
            } else {
                // SAFETY: the bit says so.
                let leaf = unsafe { node.as_leaf() };
                let remaining = key.len() - 8 * self.depth;
                let state = leaf.state();
                let hit =
                    leaf.find(self.slice, remaining).map(|(slot, kind)| Hit { slot, kind, value: leaf.value(slot) });
                match hit {
                    Some(Hit { kind: KIND_LAYER, value, .. }) => Ok((value, self.depth + 1)),
                    hit => Err(Position { leaf, version, state, depth: self.depth, hit }),
                }
            };
            if node.version().is(version) {
                return match found {
                    Ok((child, depth)) => self.descend(key, node, version, child, depth),
                    Err(position) => Progress::Arrived(position),
                };
            }
            let now = node.version().stable();
            if !same_structure(now, version) {
                return Progress::Lost;
            }
            version = now;
        }
    }

    #[inline]
    fn descend<K: EncodedKey>(
        &mut self,
        key: K,
        node: Node<'g>,
        version: u64,
        child: *mut Header,
        depth: usize,
    ) -> Progress<'g> {
        prefetch_node(child);
        // SAFETY: the pointer was in the node when the version was validated, so it was not retired before the guard began.
        let Some(child) = (unsafe { Node::from_raw(child) }) else { return Progress::Lost };
        self.above = Some((node, version));
        self.node = Some(child);
        if depth != self.depth {
            self.depth = depth;
            self.slice = key.slice(depth);
        }
        Progress::Moved
    }
}

/// A lookup under way.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'g, K> {
    key: K,
    walk: Walk<'g>,
    /// Set when all that is left is to compare the suffix, which is being fetched.
    arrived: Option<Position<'g>>,
}

/// The result of advancing a lookup.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Not there yet.
    Pending,
    /// The result. Advancing again starts over.
    Done(Lookup),
}

impl OrderedIndex {
    /// The leaf that covers the key.
    #[inline]
    pub(super) fn locate<'g, K: EncodedKey>(&self, key: K, guard: &'g Guard<'_>) -> Position<'g> {
        let mut walk = Walk::new(key);
        loop {
            let node = walk.node.unwrap_or_else(|| self.root(guard));
            match walk.step(key, node, self) {
                Progress::Moved => {}
                Progress::Lost => walk = Walk::new(key),
                Progress::Arrived(position) => return position,
            }
        }
    }

    /// Finds a key. The stamp is that of the leaf that covers the key, present or absent.
    #[inline]
    pub fn get<K: EncodedKey>(&self, key: K, guard: &Guard<'_>) -> Lookup {
        self.locate(key, guard).lookup(key)
    }

    /// As [`OrderedIndex::get`]; begins at the finger, and leaves it at the key's leaf.
    ///
    /// # Safety
    /// The finger is empty, or only this index has set it, under a guard that has been alive ever since.
    #[inline]
    pub unsafe fn get_near<K: EncodedKey>(&self, key: K, finger: &mut Finger, guard: &Guard<'_>) -> Lookup {
        // SAFETY: passed on from the caller.
        unsafe { self.locate_near(key, finger, guard) }.lookup(key)
    }

    /// Begins a lookup that is carried on with [`OrderedIndex::advance`], and prefetches the root. The cursor ends with
    /// the guard.
    #[inline]
    pub fn start<'g, K: EncodedKey>(&'g self, key: K, guard: &'g Guard<'_>) -> Cursor<'g, K> {
        prefetch_node(self.root(guard).as_raw());
        Cursor { key, walk: Walk::new(key), arrived: None }
    }

    /// Takes a lookup one node further and prefetches the node after it. Interleave some 16 to 32 cursors, so that the
    /// memory works for all of them at once.
    #[inline]
    pub fn advance<'g, K: EncodedKey>(&'g self, cursor: &mut Cursor<'g, K>, guard: &'g Guard<'_>) -> Step {
        let key = cursor.key;
        if let Some(position) = cursor.arrived.take() {
            cursor.walk = Walk::new(key);
            return Step::Done(position.lookup(key));
        }
        let node = cursor.walk.node.unwrap_or_else(|| self.root(guard));
        match cursor.walk.step(key, node, self) {
            Progress::Moved => Step::Pending,
            Progress::Lost => {
                cursor.walk = Walk::new(key);
                Step::Pending
            }
            Progress::Arrived(position) => match position.hit {
                Some(Hit { kind: KIND_SUFFIX, value, .. }) => {
                    prefetch_read(value.cast::<u8>());
                    cursor.arrived = Some(position);
                    Step::Pending
                }
                _ => {
                    cursor.walk = Walk::new(key);
                    Step::Done(position.lookup(key))
                }
            },
        }
    }
}
