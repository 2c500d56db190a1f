//! The order of a leaf's entries in one word, so that an insertion moves no entry.
//!
//! The low 60 bits are 15 nibbles: first the slots of the entries in key order, then the free slots. The highest nibble
//! counts the entries.

use super::node::LEAF_WIDTH;

const COUNT_SHIFT: u32 = 60;
const IDENTITY: u64 = 0x0EDC_BA98_7654_3210;

const _: () = assert!(LEAF_WIDTH == 15, "the permutation has fifteen nibbles and a count");

/// A permutation of a leaf's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Permutation(pub(super) u64);

/// The bits of the first `positions` nibbles.
const fn below(positions: usize) -> u64 {
    (1 << (4 * positions)) - 1
}

impl Permutation {
    /// The slots `0..count` in their order.
    pub(super) const fn identity(count: usize) -> Self {
        Self(IDENTITY | (count as u64) << COUNT_SHIFT)
    }

    #[inline]
    pub(super) const fn count(self) -> usize {
        (self.0 >> COUNT_SHIFT) as usize
    }

    #[inline]
    pub(super) const fn slot(self, position: usize) -> usize {
        (self.0 >> (4 * position)) as usize & 15
    }

    /// Puts the first free slot at `position`; returns it and the new permutation.
    pub(super) fn insert(self, position: usize) -> (Self, usize) {
        let count = self.count();
        debug_assert!(position <= count && count < LEAF_WIDTH);
        let slot = self.slot(count);
        if position == count {
            // It is in its place.
            return (Self(self.0 + (1 << COUNT_SHIFT)), slot);
        }
        let kept = self.0 & (below(position) | !below(count + 1));
        let moved = (self.0 & below(count) & !below(position)) << 4;
        (Self((kept | moved | (slot as u64) << (4 * position)) + (1 << COUNT_SHIFT)), slot)
    }

    /// Frees the slot at `position`.
    pub(super) fn remove(self, position: usize) -> Self {
        let count = self.count();
        debug_assert!(position < count);
        let slot = self.slot(position) as u64;
        let kept = self.0 & (below(position) | !below(count));
        let moved = (self.0 & below(count) & !below(position + 1)) >> 4;
        Self((kept | moved | slot << (4 * (count - 1))) - (1 << COUNT_SHIFT))
    }

    /// Keeps the first `count` entries; the other slots become free.
    pub(super) fn truncate(self, count: usize) -> Self {
        debug_assert!(count <= self.count());
        Self(self.0 & below(LEAF_WIDTH) | (count as u64) << COUNT_SHIFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_vector() {
        let mut permutation = Permutation::identity(0);
        let mut model: Vec<usize> = Vec::new();
        let mut state = 7u64;
        for _ in 0..polychron_base::sizes::scaled(10_000, 200) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let choice = (state >> 33) as usize;
            if choice.is_multiple_of(2) && model.len() < LEAF_WIDTH {
                let position = choice / 2 % (model.len() + 1);
                let (next, slot) = permutation.insert(position);
                assert!(!model.contains(&slot));
                model.insert(position, slot);
                permutation = next;
            } else if !model.is_empty() {
                let position = choice / 2 % model.len();
                model.remove(position);
                permutation = permutation.remove(position);
            }
            let slots: Vec<usize> = (0..permutation.count()).map(|position| permutation.slot(position)).collect();
            assert_eq!(slots, model);
            let mut all: Vec<usize> = (0..LEAF_WIDTH).map(|position| permutation.slot(position)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..LEAF_WIDTH).collect::<Vec<_>>());
        }
    }
}
