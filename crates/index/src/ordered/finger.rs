//! A finger: the leaf where the last key of several was found, as the place to begin for the next.
//!
//! Keys that are asked for one after the other often lie side by side: the lines of one order, entries that are put in
//! in ascending order. A leaf tells by itself whether it covers a key: its range is from its low to its right
//! neighbour's. So the walk from the root can be left out, and what is found is validated like the end of a walk.

use super::OrderedIndex;
use super::lookup::{Hit, Position, handle_of};
use super::node::{KIND_LAYER, Leaf};
use super::version::{DELETED, DIRTY, LATCHED};
use crate::Handle;
use polychron_base::key::EncodedKey;
use polychron_memory::Guard;
use std::ptr::NonNull;

/// Remembers a leaf of the first layer of one index. Empty by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Finger {
    leaf: Option<NonNull<Leaf>>,
    /// The beginning of the leaf's range.
    low: u64,
    /// How far beyond it a key may lie for the leaf to be worth a look. A guess.
    reach: u64,
}

// SAFETY: the pointer is followed only by methods whose caller promises that the leaf still lives.
unsafe impl Send for Finger {}

/// What a leaf with a single entry is taken to reach.
const SHORTEST_REACH: u64 = 255;

impl Finger {
    /// Remembers the leaf of a place in the first layer.
    #[inline]
    fn set(&mut self, position: &Position<'_>) {
        if position.depth > 0 {
            return;
        }
        let low = position.leaf.low();
        let width = position.leaf.last_slice().wrapping_sub(low);
        *self = Self {
            leaf: Some(NonNull::from(position.leaf)),
            low,
            // As far again as its entries go, for keys that come behind the last.
            reach: width.saturating_mul(2).saturating_add(SHORTEST_REACH),
        };
    }

    /// The place of the key, if the leaf covers it and is not being changed.
    ///
    /// # Safety
    /// As for [`OrderedIndex::get_near`].
    #[inline]
    unsafe fn position<'g, K: EncodedKey>(&self, key: K, _guard: &'g Guard<'_>) -> Option<Position<'g>> {
        let slice = key.slice(0);
        if slice.wrapping_sub(self.low) > self.reach {
            return None;
        }
        // SAFETY: the caller promises that the leaf lives as long as the guard.
        let leaf: &'g Leaf = unsafe { self.leaf?.as_ref() };
        let version = leaf.version().load();
        if version & (DIRTY | DELETED) != 0 || slice < leaf.low() {
            return None;
        }
        let state = leaf.state();
        // Ascending keys come behind the last.
        let found = if slice > leaf.last_slice() { None } else { leaf.find(slice, key.len()) };
        let hit = found.map(|(slot, kind)| Hit { slot, kind, value: leaf.value(slot) });
        match hit {
            Some(Hit { kind: KIND_LAYER, .. }) => return None,
            Some(_) => {}
            // The neighbour's low is read before the leaf's own version is found unchanged, so it was the end of the range.
            None => {
                if leaf.next().is_some_and(|next| next.low() <= slice) {
                    return None;
                }
            }
        }
        let version = version & !LATCHED;
        leaf.version().is(version).then_some(Position { leaf, version, state, depth: 0, hit })
    }
}

impl OrderedIndex {
    /// Finds the handles of keys that lie near each other, each from where the one before was found: mostly its entry is the next one of
    /// the leaf.
    #[inline]
    pub fn find_run<'r, K: EncodedKey>(
        &self,
        run: impl Iterator<Item = (K, &'r mut Option<Handle>)>,
        guard: &Guard<'_>,
    ) {
        let (mut finger, mut behind) = (Finger::default(), None::<(&Leaf, usize)>);
        for (key, handle) in run {
            if let Some((leaf, position)) = behind
                && let Some(value) = leaf.value_at(position, key.slice(0), key.len())
            {
                *handle = Some(handle_of(value));
                behind = Some((leaf, position + 1));
                continue;
            }
            // SAFETY: this index alone sets the finger, under the guard.
            let found = unsafe { self.locate_near(key, &mut finger, guard) };
            *handle = found.handle(key);
            // In a layer below, slices are others' than those that keys begin with.
            let hit = found.hit.filter(|_| found.depth == 0);
            behind = hit.and_then(|hit| Some((found.leaf, found.leaf.position_of(hit.slot)? + 1)));
        }
    }

    /// The leaf that covers the key, tried at the finger first.
    ///
    /// # Safety
    /// As for [`OrderedIndex::get_near`].
    #[inline]
    pub(super) unsafe fn locate_near<'g, K: EncodedKey>(
        &self,
        key: K,
        finger: &mut Finger,
        guard: &'g Guard<'_>,
    ) -> Position<'g> {
        // SAFETY: passed on from the caller.
        if let Some(position) = unsafe { finger.position(key, guard) } {
            return position;
        }
        let position = self.locate(key, guard);
        finger.set(&position);
        position
    }
}
