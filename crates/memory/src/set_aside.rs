//! Memory set aside for the reserve: one run of addresses, from which blocks of any size are cut and to which they come back.

use std::collections::{BTreeMap, BTreeSet};

use crate::classes::align_of_size;

/// The free parts of the run, as offsets from its start, which is page-aligned. Adjacent parts are merged.
#[derive(Debug)]
pub(crate) struct SetAside {
    /// The length of each free part, by its offset.
    parts: BTreeMap<usize, usize>,
    /// The same by length, so that the shortest that will do is found without looking at the others.
    by_bytes: BTreeSet<(usize, usize)>,
}

impl SetAside {
    pub(crate) fn new(bytes: usize) -> Self {
        let mut all = Self { parts: BTreeMap::new(), by_bytes: BTreeSet::new() };
        all.insert(0, bytes);
        all
    }

    fn insert(&mut self, start: usize, bytes: usize) {
        if bytes > 0 {
            self.parts.insert(start, bytes);
            self.by_bytes.insert((bytes, start));
        }
    }

    fn remove(&mut self, start: usize, bytes: usize) {
        self.parts.remove(&start);
        self.by_bytes.remove(&(bytes, start));
    }

    /// Cuts a block of `size` bytes, `size` being a class's.
    pub(crate) fn cut(&mut self, size: usize) -> Option<usize> {
        let align = align_of_size(size);
        let skip = |start: usize| start.next_multiple_of(align) - start;
        let at_least = |bytes: usize| self.by_bytes.range((bytes, 0)..).next().copied();
        let fits = |(bytes, start): &(usize, usize)| skip(*start) + size <= *bytes;
        // A part that is longer by what alignment may skip will do in any case.
        let (bytes, start) = at_least(size).filter(fits).or_else(|| at_least(size + align).filter(fits))?;
        self.remove(start, bytes);
        let block = start + skip(start);
        self.insert(start, block - start);
        self.insert(block + size, start + bytes - (block + size));
        Some(block)
    }

    /// Takes a block back.
    pub(crate) fn add(&mut self, mut start: usize, mut bytes: usize) {
        if let Some((&before, &len)) = self.parts.range(..start).next_back()
            && before + len == start
        {
            self.remove(before, len);
            (start, bytes) = (before, len + bytes);
        }
        if let Some(&len) = self.parts.get(&(start + bytes)) {
            self.remove(start + bytes, len);
            bytes += len;
        }
        self.insert(start, bytes);
    }
}

#[cfg(test)]
mod tests {
    use polychron_base::random::Random;
    use polychron_base::sizes::scaled;

    use super::*;
    use crate::classes::{class_of, size_of_class};

    /// Blocks do not overlap, whatever comes and goes, and all that came back is one part again.
    #[test]
    fn what_comes_back_is_whole() {
        const BYTES: usize = 64 << 10;
        let mut random = Random::from_seed(1);
        let mut free = SetAside::new(BYTES);
        let mut blocks: Vec<(usize, usize)> = Vec::new();
        for _ in 0..scaled(5000, 10) {
            if random.chance(0.6) {
                let size = size_of_class(class_of(random.range_inclusive(1, 4000) as usize));
                let Some(start) = free.cut(size) else { continue };
                assert!(start.is_multiple_of(align_of_size(size)) && start + size <= BYTES);
                assert!(blocks.iter().all(|(other, len)| other + len <= start || start + size <= *other));
                blocks.push((start, size));
            } else if !blocks.is_empty() {
                let (start, bytes) = blocks.swap_remove(random.below(blocks.len() as u64) as usize);
                free.add(start, bytes);
            }
        }
        blocks.into_iter().for_each(|(start, bytes)| free.add(start, bytes));
        assert_eq!(free.parts.into_iter().collect::<Vec<_>>(), [(0, BYTES)]);
        assert_eq!(free.by_bytes.into_iter().collect::<Vec<_>>(), [(BYTES, 0)]);
    }
}
