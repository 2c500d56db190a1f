//! The keys that a transaction has written, in order, for its scans.

use std::ops::Bound;

use polychron_engine::stores::IndexRef;

use super::{Kind, Target, WriteSet};

impl WriteSet {
    /// The positions of the keys of an index that have a row by this transaction alone, in the order of the keys.
    pub(in crate::cicada) fn own_keys(
        &mut self,
        place: IndexRef,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        positions: &mut Vec<u32>,
    ) {
        positions.clear();
        for position in self.ordered_to..self.writes.len() {
            let write = &self.writes[position];
            if write.target == Target::Key {
                let key = (write.place.table, write.place.index, self.key(write).into());
                self.ordered.insert(key);
                self.count_step();
            }
        }
        self.ordered_to = self.writes.len();
        let from = match lower {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        };
        let is_above = |key: &[u8]| match upper {
            Bound::Included(upper) => key > upper,
            Bound::Excluded(upper) => key >= upper,
            Bound::Unbounded => false,
        };
        for (table, index, key) in self.ordered.range((place.table, place.index, from.into())..) {
            self.count_step();
            if (*table, *index) != (place.table, place.index) || is_above(key) {
                break;
            }
            let is_put = |position: &u32| self.get(*position).kind == Kind::Put;
            if lower != Bound::Excluded(&key[..]) {
                positions.extend(self.latest_of_key(place, &key[..]).filter(is_put));
            }
        }
    }

    #[inline]
    fn count_step(&self) {
        #[cfg(test)]
        self.steps.set(self.steps.get() + 1);
    }
}
