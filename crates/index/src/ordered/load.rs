//! Building an index from keys in order, leaf by leaf.

use super::insert::{discard, entry_for};
use super::interior::{INTERIOR_WIDTH, Interior};
use super::node::{Entries, Entry, KIND_LAYER, LEAF_WIDTH, Leaf, Node};
use super::version::Latched;
use super::{OrderedIndex, tear_down};
use crate::Handle;
use crate::measured::Measured;
use polychron_base::key::EncodedKey;
use polychron_memory::{Guard, OutOfMemory};

/// Why an index could not be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BulkLoadError {
    /// A key is not greater than the one before it, or is too long.
    #[error("the key at position {position} is not greater than the one before it, or is too long")]
    BadKey {
        /// The number of keys before it.
        position: usize,
    },
    /// There is not enough memory.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// The input, with a look at the key after the current one.
struct Input<I, K> {
    rest: I,
    current: Option<(Measured<K>, Handle)>,
    following: Option<(Measured<K>, Handle)>,
    /// The number of keys before the following one.
    position: usize,
}

impl<K: EncodedKey, I: Iterator<Item = (K, Handle)>> Input<I, K> {
    fn new(rest: I) -> Result<Self, BulkLoadError> {
        let mut input = Self { rest, current: None, following: None, position: 0 };
        input.following = input.next()?;
        input.advance()?;
        Ok(input)
    }

    /// The next key, which is short enough.
    fn next(&mut self) -> Result<Option<(Measured<K>, Handle)>, BulkLoadError> {
        let Some((key, handle)) = self.rest.next() else { return Ok(None) };
        let key = Measured::new(key).ok_or(BulkLoadError::BadKey { position: self.position })?;
        Ok(Some((key, handle)))
    }

    /// Makes the following key the current one.
    fn advance(&mut self) -> Result<(), BulkLoadError> {
        self.current = self.following.take();
        self.position += 1;
        self.following = if self.current.is_some() { self.next()? } else { None };
        if let (Some((current, _)), Some((following, _))) = (self.current, self.following)
            && !is_less(current, following)
        {
            return Err(BulkLoadError::BadKey { position: self.position });
        }
        Ok(())
    }

    /// Whether the following key goes on beyond the same slices, to slice `depth`, as the current one.
    fn shares(&self, depth: usize) -> bool {
        let (Some((current, _)), Some((following, _))) = (self.current, self.following) else { return false };
        current.len() > 8 * (depth + 1)
            && following.len() > 8 * (depth + 1)
            && (0..=depth).rev().all(|index| current.slice(index) == following.slice(index))
    }
}

fn is_less<K: EncodedKey>(left: K, right: K) -> bool {
    let slices = left.len().max(right.len()).div_ceil(8);
    for index in 0..slices {
        if left.slice(index) != right.slice(index) {
            return left.slice(index) < right.slice(index);
        }
    }
    left.len() < right.len()
}

/// Finished nodes of one level, with the lowest slice of each.
type Level<'g> = Vec<(u64, Node<'g>)>;

/// A layer being built. What it holds is freed when it is dropped unfinished.
struct Layer<'g, 'l> {
    guard: &'g Guard<'l>,
    fill: usize,
    level: Level<'g>,
    last: Option<&'g Leaf>,
    pending: Entries,
}

impl<'g, 'l> Layer<'g, 'l> {
    fn new(fill: usize, guard: &'g Guard<'l>) -> Self {
        Self { guard, fill, level: Vec::new(), last: None, pending: Entries::new() }
    }

    fn push(&mut self, entry: Entry) -> Result<(), OutOfMemory> {
        let count = self.pending.len();
        let opens_group = self.pending.last().is_none_or(|last| last.slice != entry.slice);
        if opens_group && count >= self.fill {
            self.flush(count)?;
        } else if count == LEAF_WIDTH {
            // Keys with one slice stay together: the group moves to the next leaf.
            let group = self.pending.iter().take_while(|kept| kept.slice != entry.slice).count();
            self.flush(group)?;
        }
        self.pending.push(entry);
        Ok(())
    }

    /// Makes a leaf of the first `count` pending entries.
    fn flush(&mut self, count: usize) -> Result<(), OutOfMemory> {
        let low = if self.level.is_empty() { 0 } else { self.pending[0].slice };
        let leaf = Leaf::allocate(low, &self.pending[..count], self.guard)?;
        let mut rest = Entries::new();
        self.pending[count..].iter().for_each(|entry| rest.push(*entry));
        self.pending = rest;
        for entry in leaf.entries().iter().filter(|entry| entry.kind == KIND_LAYER) {
            // SAFETY: the entry names the root of a layer built just now.
            if let Some(root) = unsafe { Node::from_raw(entry.value) } {
                root.set_parent(Some(leaf.node()));
            }
        }
        leaf.set_prev(self.last);
        if let Some(last) = self.last {
            last.set_next(Some(leaf));
        }
        self.last = Some(leaf);
        self.level.push((low, leaf.node()));
        Ok(())
    }

    /// Builds the levels above the leaves; returns the root.
    fn finish(mut self) -> Result<Node<'g>, OutOfMemory> {
        if !self.pending.is_empty() || self.level.is_empty() {
            self.flush(self.pending.len())?;
        }
        for (_, leaf) in &self.level {
            drop(Latched::newborn(*leaf));
        }
        let children = (self.fill * (INTERIOR_WIDTH + 1) / LEAF_WIDTH).clamp(2, INTERIOR_WIDTH + 1);
        while self.level.len() > 1 {
            let parts = self.level.len().div_ceil(children);
            let mut above = Level::with_capacity(parts);
            for part in 0..parts {
                let first = part * self.level.len() / parts;
                let after = (part + 1) * self.level.len() / parts;
                match build_interior(&self.level[first..after], self.guard) {
                    Ok(node) => above.push((self.level[first].0, node)),
                    Err(error) => {
                        self.level.drain(..first);
                        self.level.extend(above);
                        return Err(error);
                    }
                }
            }
            self.level = above;
        }
        Ok(self.level.pop().expect("a layer has at least one leaf").1)
    }
}

fn build_interior<'g>(children: &[(u64, Node<'g>)], guard: &'g Guard<'_>) -> Result<Node<'g>, OutOfMemory> {
    let interior = Interior::allocate(guard)?;
    let slices: Vec<u64> = children[1..].iter().map(|(low, _)| *low).collect();
    let pointers: Vec<_> = children.iter().map(|(_, child)| child.as_raw()).collect();
    // SAFETY: the children were built just now.
    unsafe { interior.fill(&slices, &pointers) };
    drop(Latched::newborn(interior.node()));
    Ok(interior.node())
}

impl Drop for Layer<'_, '_> {
    fn drop(&mut self) {
        for entry in self.pending.iter() {
            // SAFETY: nothing of a layer that is being built was published.
            unsafe { free_entry(entry, self.guard) };
        }
        for (_, node) in self.level.drain(..) {
            // SAFETY: as above.
            unsafe { tear_down(node, &mut |part| part.free(self.guard)) };
        }
    }
}

/// # Safety
/// The entry was not published.
unsafe fn free_entry(entry: &Entry, guard: &Guard<'_>) {
    if entry.kind == KIND_LAYER {
        // SAFETY: as promised by the caller.
        if let Some(root) = unsafe { Node::from_raw(entry.value) } {
            // SAFETY: as above.
            unsafe { tear_down(root, &mut |part| part.free(guard)) };
        }
    } else {
        // SAFETY: as above.
        unsafe { discard(entry, guard) };
    }
}

/// Builds the layer in which the current key goes on at slice `depth`.
fn build_layer<'g, K: EncodedKey, I: Iterator<Item = (K, Handle)>>(
    input: &mut Input<I, K>,
    depth: usize,
    fill: usize,
    guard: &'g Guard<'_>,
) -> Result<Node<'g>, BulkLoadError> {
    let mut layer = Layer::new(fill, guard);
    while let Some((key, handle)) = input.current {
        // The key after this one belongs here when it shares the slices above; asked before the current one moves on.
        let mut stays = depth == 0 || input.shares(depth - 1);
        let entry = if input.shares(depth) {
            let root = build_layer(input, depth + 1, fill, guard)?;
            // The layer below stopped at the last key it could take.
            stays = depth == 0 || input.shares(depth - 1);
            Entry { slice: key.slice(depth), kind: KIND_LAYER, value: root.as_raw() }
        } else {
            entry_for(key, depth, handle, guard)?
        };
        // SAFETY: the entry was not published.
        layer.push(entry).inspect_err(|_| unsafe { free_entry(&entry, guard) })?;
        if !stays {
            break;
        }
        input.advance()?;
    }
    Ok(layer.finish()?)
}

impl OrderedIndex {
    /// Builds an index from strictly ascending keys. `fill` is the part of each node that is filled, more than 0 and at
    /// most 1: 1 for keys that stay, less where insertions in between are expected.
    pub fn bulk_load<K: EncodedKey>(
        sorted: impl Iterator<Item = (K, Handle)>,
        fill: f32,
        guard: &Guard<'_>,
    ) -> Result<Self, BulkLoadError> {
        let fill = ((LEAF_WIDTH as f32 * fill) as usize).clamp(1, LEAF_WIDTH);
        let mut input = Input::new(sorted)?;
        Ok(Self::with_root(build_layer(&mut input, 0, fill, guard)?))
    }
}
