//! Ranges along two indexes whose entries move from the first one to the second one, and never back.

use std::cmp::Ordering;
use std::ops::Bound;

use polychron_index::{AnyIndex, Handle};
use polychron_memory::Guard;

use super::Batch;
use crate::mutations::pass;
use crate::{Direction, Scan};

crate::named! {
    /// Points at which tests step in.
    pub enum Point {
        /// The first index has been asked for a part of a range, and the second one has not.
        BetweenIndexes,
    }
}

/// Handles of a range along two indexes, in the order of the keys, some at a time.
///
/// Of each part of the range the first index is asked first, so what has left it is found in the second one. An entry that moves meanwhile is
/// visited once. Where a key has an entry in each, both are visited, unless the caller finds what it looks for in the first one
/// ([`skip_twin`](Both::skip_twin)).
#[derive(Debug, Default)]
pub struct Both {
    first: Batch,
    second: Batch,
    /// The next of each.
    next: (usize, usize),
    /// The source of the latest handle: whether it is the second index, and the position there.
    latest: Option<(bool, usize)>,
    /// Whether the second index has another entry under the key of the handle that came last.
    has_twin: bool,
    /// The key at which the part ends, if there may be more behind it.
    end: Vec<u8>,
    has_end: bool,
}

/// Which of two keys is visited first.
fn compare(direction: Direction, one: &[u8], other: &[u8]) -> Ordering {
    match direction {
        Direction::Forward => one.cmp(other),
        Direction::Backward => other.cmp(one),
    }
}

impl Both {
    /// Begins behind a key, or with the first one of the range.
    #[inline]
    pub fn begin(&mut self, behind: Option<&[u8]>) {
        self.has_end = behind.is_some();
        if let Some(key) = behind {
            self.end.clear();
            self.end.extend_from_slice(key);
        }
    }

    /// Collects the next part of the range. `false`: there are no more behind it.
    pub fn fill(&mut self, (first, second): (&AnyIndex, &AnyIndex), scan: &Scan<'_>, guard: &Guard<'_>) -> bool {
        let (mut lower, mut upper) = (scan.lower, scan.upper);
        match scan.direction {
            _ if !self.has_end => {}
            Direction::Forward => lower = Bound::Excluded(&self.end[..]),
            Direction::Backward => upper = Bound::Excluded(&self.end[..]),
        }
        let rest = Scan { lower, upper, ..*scan };
        let fill = |batch: &mut Batch, index| {
            batch.begin(usize::MAX, true);
            batch.fill(index, &rest, guard);
        };
        fill(&mut self.first, first);
        pass(Point::BetweenIndexes);
        fill(&mut self.second, second);
        // What one of them has behind the end of the other one is collected again.
        let ends = [self.first.last_key(), self.second.last_key()];
        let end = ends.into_iter().flatten().min_by(|one, other| compare(scan.direction, one, other));
        self.has_end = end.is_some();
        if let Some(end) = end {
            self.end.clear();
            self.end.extend_from_slice(end);
        }
        (self.next, self.latest, self.has_twin) = ((0, 0), None, false);
        self.has_end
    }

    /// The key of the handle that [`Both::next`] answered with last, in this part.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.latest.map(|(is_second, position)| if is_second { &self.second } else { &self.first }.key(position))
    }

    /// The next handle of the part.
    pub fn next(&mut self, direction: Direction) -> Option<Handle> {
        let Self { first, second, next, .. } = self;
        let order = match (next.0 < first.len(), next.1 < second.len()) {
            (false, false) => return None,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (true, true) => compare(direction, first.key(next.0), second.key(next.1)),
        };
        let is_second = order == Ordering::Greater;
        let (batch, position) = if is_second { (second, &mut next.1) } else { (first, &mut next.0) };
        let (key, handle) = (batch.key(*position), batch.get(*position));
        if self.has_end && compare(direction, key, &self.end) == Ordering::Greater {
            return None;
        }
        self.latest = Some((is_second, *position));
        *position += 1;
        self.has_twin = order == Ordering::Equal;
        if self.has_twin && self.second.get(self.next.1) == handle {
            // It has moved between the two looks.
            self.skip_twin();
        }
        handle
    }

    /// Passes by the entry that the second index has under the key of the handle that came last.
    pub fn skip_twin(&mut self) {
        self.next.1 += usize::from(std::mem::take(&mut self.has_twin));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::collections::BTreeSet;

    use polychron_base::TableId;
    use polychron_base::random::Random;
    use polychron_base::sizes::scaled;
    use polychron_index::ordered::OrderedIndex;
    use polychron_memory::{Memory, Options};

    use super::*;

    /// Whatever lies where, each entry of a range comes once, or one of each key, in the order of the keys.
    #[test]
    fn each_entry_comes_once_in_order() {
        let memory = Memory::new(Options::tiny()).unwrap();
        let local = memory.register().unwrap();
        let guard = local.pin();
        let mut random = Random::stream(5, 0);
        let mut both = Both::default();
        for round in 0..scaled(60, 6) as u64 {
            let make = || AnyIndex::Ordered(OrderedIndex::new(&guard).unwrap());
            let (first, second, mut all) = (make(), make(), BTreeSet::new());
            for number in 0..random.below(400) {
                let (key, of) = (random.below(1000), random.below(8));
                // Some keys have an entry in each, and some the same one.
                let handle = |index: u64| Handle::new(1 + 2 * number + index).unwrap();
                let index_refs = match of {
                    0 => vec![(&first, handle(0)), (&second, handle(1))],
                    1 => vec![(&first, handle(0)), (&second, handle(0))],
                    2..5 => vec![(&first, handle(0))],
                    _ => vec![(&second, handle(0))],
                };
                for (index, handle) in index_refs {
                    if matches!(
                        index.insert(&key.to_be_bytes()[..], handle, &mut (), &guard),
                        Ok(polychron_index::Inserted::New)
                    ) {
                        all.insert((key, handle));
                    }
                }
            }
            for direction in [Direction::Forward, Direction::Backward] {
                let (low, high) = (random.below(500).to_be_bytes(), (500 + random.below(500)).to_be_bytes());
                let (lower, upper) = match round % 2 {
                    0 => (Bound::Unbounded, Bound::Unbounded),
                    _ => (Bound::Included(&low[..]), Bound::Excluded(&high[..])),
                };
                let scan = Scan { lower, upper, direction, ..Scan::all(TableId::new(0, 0)) };
                let is_inside = |key: u64| round % 2 == 0 || (low..high).contains(&key.to_be_bytes());
                let mut found = Vec::new();
                both.begin(None);
                loop {
                    let more = both.fill((&first, &second), &scan, &guard);
                    while let Some(handle) = both.next(direction) {
                        found.push(handle);
                        if round % 3 == 0 {
                            both.skip_twin();
                        }
                    }
                    if !more {
                        break;
                    }
                }
                let key_of = |handle: &Handle| all.iter().find(|entry| entry.1 == *handle).unwrap().0;
                let keys: Vec<_> = found.iter().map(key_of).collect();
                match direction {
                    Direction::Forward => assert!(keys.is_sorted()),
                    Direction::Backward => assert!(keys.iter().rev().is_sorted()),
                }
                let inside: Vec<u64> = all.iter().map(|entry| entry.0).filter(|&key| is_inside(key)).collect();
                let expected = match round % 3 {
                    0 => inside.iter().collect::<BTreeSet<_>>().len(),
                    _ => inside.len(),
                };
                assert_eq!(found.len(), expected);
                found.sort();
                found.dedup();
                assert_eq!(found.len(), expected, "an entry came twice");
            }
        }
    }
}
