//! Groups of neighbouring keys, by which it is known where something has changed, and where nothing has.
//!
//! Keys are of one group if they differ in some last bits alone. A group is known by a hash: two that have the same one count as one, which makes nothing
//! wrong, since all that depends on it is what is written again.

use std::sync::PoisonError;

use polychron_base::key::HashSeed;
use polychron_sync::Mutex;

use super::keys::Entry;
use super::merge::{Newest, side_by_side};
use super::part::Part;
use super::scatter::hash_of;

/// Which keys are of one group.
#[derive(Clone, Copy, Debug)]
pub struct Grouping {
    seed: HashSeed,
    bits: u32,
}

impl Grouping {
    /// Those that differ in so many last bits alone.
    pub(crate) fn new(bits: u32) -> Self {
        Self { seed: HashSeed::random(), bits }
    }

    /// What the keys of a group have in common: the bytes in front, and the first bits of the one behind.
    #[inline]
    fn common(self, key: &[u8]) -> (&[u8], u8) {
        let front = key.len().saturating_sub(self.bits as usize / 8);
        match key[..front].split_last() {
            Some((last, front)) => (front, last & (u8::MAX << (self.bits % 8))),
            None => (&[], 0),
        }
    }

    fn hash(self, (front, last): (&[u8], u8)) -> u64 {
        hash_of(self.seed, front).rotate_left(8).wrapping_add(u64::from(last).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }
}

/// Tells the groups of keys that come one after the other, most of them with others of their group.
#[derive(Debug)]
pub(crate) struct Neighbours {
    grouping: Grouping,
    /// What the last key's group has in common, if there was one.
    front: Vec<u8>,
    last: Option<u8>,
}

impl Neighbours {
    pub(crate) fn new(grouping: Grouping) -> Self {
        Self { grouping, front: Vec::new(), last: None }
    }

    /// The group of a key, unless it is that of the key before.
    #[inline]
    pub(crate) fn next(&mut self, key: &[u8]) -> Option<u64> {
        let (front, last) = self.grouping.common(key);
        if self.last == Some(last) && self.front == front {
            return None;
        }
        self.front.clear();
        self.front.extend_from_slice(front);
        self.last = Some(last);
        Some(self.grouping.hash((front, last)))
    }

    /// What comes next is the first key.
    pub(crate) fn forget(&mut self) {
        self.last = None;
    }
}

/// The groups of keys of which something was gathered.
#[derive(Debug)]
pub(crate) struct Touched {
    grouping: Grouping,
    /// Of each table, by its position, in order.
    tables: Vec<(u32, Vec<u64>)>,
}

impl Touched {
    pub(super) fn neighbours(&self) -> Neighbours {
        Neighbours::new(self.grouping)
    }

    /// Those of a table.
    pub(crate) fn of_table(&self, position: u32) -> &[u64] {
        let at = self.tables.binary_search_by_key(&position, |(table, _)| *table);
        at.map_or(&[], |at| &self.tables[at].1)
    }
}

impl Newest {
    /// The groups of all keys, once what came of them was taken in.
    pub(crate) fn groups(&self, threads: usize, grouping: Grouping) -> Touched {
        let all = self.tables.all();
        let tables: Vec<_> = all.iter().map(|_| Mutex::new(Vec::new())).collect();
        let done: Result<(), std::convert::Infallible> = side_by_side(threads, self.parts.len(), |part| {
            let part = &self.parts[part];
            for (number, table) in tables.iter().enumerate() {
                let groups = groups_of(part, part.entries(number), grouping);
                table.lock().unwrap_or_else(PoisonError::into_inner).extend(groups);
            }
            Ok(())
        });
        let Ok(()) = done;
        let in_order = tables.into_iter().zip(all).map(|(groups, table)| {
            let mut groups = groups.into_inner().unwrap_or_else(PoisonError::into_inner);
            groups.sort_unstable();
            groups.dedup();
            (table.position, groups)
        });
        Touched { grouping, tables: in_order.collect() }
    }
}

fn groups_of(part: &Part, entries: &[Entry], grouping: Grouping) -> Vec<u64> {
    let mut neighbours = Neighbours::new(grouping);
    let mut groups: Vec<u64> = entries.iter().filter_map(|entry| neighbours.next(part.key(entry))).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_differ_in_last_bits_are_of_one_group() {
        for (bits, same, other) in [(12, 0x1000_u32, 0x2000_u32), (8, 0x1000, 0x1100), (1, 0x1000, 0x1002), (0, 7, 6)] {
            let grouping = Grouping::new(bits);
            let group = |key: u32| grouping.hash(grouping.common(&key.to_be_bytes()));
            let last = same + (1 << bits) - 1;
            assert_eq!(group(same), group(last), "{bits}");
            assert!(group(same) != group(other) && group(last) != group(last + 1), "{bits}");
        }
        // Short keys have none in common.
        let grouping = Grouping::new(12);
        assert_eq!(grouping.common(b""), grouping.common(b"a"));
        assert_eq!(grouping.common(b"\x12\x34\x56"), (&b"\x12"[..], 0x30));
    }

    #[test]
    fn neighbours_are_told_once() {
        let mut neighbours = Neighbours::new(Grouping::new(8));
        let mut told = |key: u16| neighbours.next(&key.to_be_bytes()).is_some();
        assert_eq!([0x100, 0x1FF, 0x200, 0x201, 0x100].map(&mut told), [true, false, true, false, true]);
        neighbours.forget();
        assert!(neighbours.next(&0x100_u16.to_be_bytes()).is_some());
    }
}
