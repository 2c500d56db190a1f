//! Insertion: into a free slot, by dividing a leaf (`split.rs`), or by making layers for keys that share a slice.

use super::finger::Finger;
use super::lookup::{Hit, Position, stamp_of, value_of};
use super::node::{Entry, KIND_LAYER, KIND_SUFFIX, LEAF_WIDTH, Leaf, Node, class};
use super::suffix::Suffix;
use super::version::Latched;
use super::{OrderedIndex, tear_down};
use crate::measured::Measured;
use crate::stamp::{Change, Changes};
use crate::{Handle, Inserted, Lookup};
use polychron_base::key::EncodedKey;
use polychron_memory::{Guard, OutOfMemory};
use polychron_sync::Backoff;

impl OrderedIndex {
    /// Inserts a key unless it is present. Every change of a leaf's state is reported to `changes`, which must not
    /// use the index meanwhile: a latch may be held. When memory runs out nothing has changed and nothing was reported.
    ///
    /// # Panics
    /// When the key is longer than [`MAX_KEY_BYTES`](polychron_base::key::MAX_KEY_BYTES).
    pub fn insert<K: EncodedKey>(
        &self,
        key: K,
        handle: Handle,
        changes: &mut impl Changes,
        guard: &Guard<'_>,
    ) -> Result<Inserted, OutOfMemory> {
        // SAFETY: the finger is empty.
        unsafe { self.insert_near(key, handle, &mut Finger::default(), changes, guard) }
    }

    /// As [`OrderedIndex::insert`]; begins at the finger, and leaves it at the key's leaf.
    ///
    /// # Safety
    /// As for [`OrderedIndex::get_near`].
    pub unsafe fn insert_near<K: EncodedKey>(
        &self,
        key: K,
        handle: Handle,
        finger: &mut Finger,
        changes: &mut impl Changes,
        guard: &Guard<'_>,
    ) -> Result<Inserted, OutOfMemory> {
        let key = Measured::inserted(key);
        let mut backoff = Backoff::new();
        loop {
            // SAFETY: passed on from the caller.
            let position = unsafe { self.locate_near(key, finger, guard) };
            if let Some(present) = position.handle(key) {
                return Ok(Inserted::Existing(Lookup { handle: Some(present), stamp: position.stamp() }));
            }
            let Some(latched) = Latched::at(position.leaf.node(), position.version) else {
                backoff.wait();
                continue;
            };
            match position.hit {
                Some(hit) => push_down(position, latched, hit, key, handle, changes, guard)?,
                None if position.leaf.permutation().count() < LEAF_WIDTH => {
                    add(position, latched, key, handle, changes, guard)?;
                }
                None => self.split(position, latched, key, handle, changes, guard)?,
            }
            return Ok(Inserted::New);
        }
    }
}

/// The entry for a key in a leaf where no other key goes on beyond the slice.
pub(super) fn entry_for<K: EncodedKey>(
    key: K,
    depth: usize,
    handle: Handle,
    guard: &Guard<'_>,
) -> Result<Entry, OutOfMemory> {
    let kind = class(key.len() - 8 * depth);
    let value = if kind == KIND_SUFFIX { Suffix::allocate(key, depth + 1, handle, guard)? } else { value_of(handle) };
    Ok(Entry { slice: key.slice(depth), kind, value })
}

/// Gives back an entry's memory when the entry was not used.
///
/// # Safety
/// The entry came from [`entry_for`] and was not published.
pub(super) unsafe fn discard(entry: &Entry, guard: &Guard<'_>) {
    if entry.kind == KIND_SUFFIX {
        // SAFETY: the caller promises that no thread saw the suffix.
        unsafe { Suffix::free(entry.value, guard) }
    }
}

/// Adds the key to a leaf that has a free slot.
#[inline]
fn add<K: EncodedKey>(
    position: Position<'_>,
    mut latched: Latched<'_>,
    key: K,
    handle: Handle,
    changes: &mut impl Changes,
    guard: &Guard<'_>,
) -> Result<(), OutOfMemory> {
    let entry = entry_for(key, position.depth, handle, guard)?;
    let rank = position.leaf.rank(entry.slice, key.len() - 8 * position.depth);
    latched.change_content();
    position.leaf.insert_entry(rank, entry);
    let state = position.leaf.count_insertion();
    drop(latched);
    changes.change(Change::Moved { before: position.stamp(), after: stamp_of(position.leaf, state) });
    Ok(())
}

/// Makes a layer for the key and the one whose suffix is in its way, or several layers when they agree for longer.
fn push_down<K: EncodedKey>(
    position: Position<'_>,
    mut latched: Latched<'_>,
    hit: Hit,
    key: K,
    handle: Handle,
    changes: &mut impl Changes,
    guard: &Guard<'_>,
) -> Result<(), OutOfMemory> {
    debug_assert_eq!(hit.kind, KIND_SUFFIX);
    // SAFETY: the leaf is latched at the validated version, so the suffix is in place; the guard keeps it afterwards.
    let resident = unsafe { Suffix::from_value(hit.value) };
    let top = build_chain(position.depth + 1, key, handle, resident, guard)?;
    top.node().set_parent(Some(position.leaf.node()));
    for leaf in chain(top) {
        // No thread sees the chain yet, so its leaves are as they were created.
        changes.change(Change::Added { of: position.stamp(), new: stamp_of(leaf, leaf.state()) });
    }
    latched.change_content();
    position.leaf.replace_entry(hit.slot, KIND_LAYER, top.node().as_raw());
    let state = position.leaf.count_insertion();
    drop(latched);
    // SAFETY: the suffix was replaced by its copy in the chain, so no new guard finds it.
    unsafe { Suffix::retire(hit.value, guard) };
    changes.change(Change::Moved { before: position.stamp(), after: stamp_of(position.leaf, state) });
    Ok(())
}

/// Builds layers that hold the key and what the resident suffix stands for; returns the root of the first. Each but the
/// last is one leaf with one entry, the next layer.
fn build_chain<'g, K: EncodedKey>(
    depth: usize,
    key: K,
    handle: Handle,
    resident: Suffix<'_>,
    guard: &'g Guard<'_>,
) -> Result<&'g Leaf, OutOfMemory> {
    let goes_on = |level: usize| {
        key.slice(depth + level) == EncodedKey::slice(&resident, level)
            && key.len() > 8 * (depth + level + 1)
            && resident.len() > 8 * (level + 1)
    };
    let levels = (0..).take_while(|level| goes_on(*level)).count();
    let mut top = build_last(depth, levels, key, handle, resident, guard)?;
    for level in (0..levels).rev() {
        let entry = Entry { slice: key.slice(depth + level), kind: KIND_LAYER, value: top.node().as_raw() };
        match Leaf::allocate(0, &[entry], guard) {
            Ok(leaf) => {
                top.node().set_parent(Some(leaf.node()));
                drop(Latched::newborn(leaf.node()));
                top = leaf;
            }
            Err(error) => {
                // SAFETY: the chain was not published.
                unsafe { tear_down(top.node(), &mut |part| part.free(guard)) };
                return Err(error);
            }
        }
    }
    Ok(top)
}

/// Builds the leaf in which the key and the resident part.
fn build_last<'g, K: EncodedKey>(
    depth: usize,
    levels: usize,
    key: K,
    handle: Handle,
    resident: Suffix<'_>,
    guard: &'g Guard<'_>,
) -> Result<&'g Leaf, OutOfMemory> {
    let first = entry_for(resident, levels, resident.handle(), guard)?;
    let built = entry_for(key, depth + levels, handle, guard).and_then(|second| {
        let ordered = (first.slice, first.kind) < (second.slice, second.kind);
        let entries = if ordered { [first, second] } else { [second, first] };
        // SAFETY: nothing of the leaf was published.
        Leaf::allocate(0, &entries, guard).inspect_err(|_| unsafe { discard(&second, guard) })
    });
    // SAFETY: as above.
    let leaf = built.inspect_err(|_| unsafe { discard(&first, guard) })?;
    drop(Latched::newborn(leaf.node()));
    Ok(leaf)
}

/// The leaves of a chain that is not published yet.
fn chain(top: &Leaf) -> impl Iterator<Item = &Leaf> {
    std::iter::successors(Some(top), |leaf| {
        let below = leaf.entries().iter().find(|entry| entry.kind == KIND_LAYER)?.value;
        // SAFETY: the chain was just built of leaves.
        unsafe { Node::from_raw(below).map(|node| node.as_leaf()) }
    })
}
