//! Every interleaving, up to one or two preemptions, of two threads on a whole tree: readers, scans and stamps against divisions,
//! new layers, and leaves, roots and layers that are unlinked.

use crate::Lookup;
use crate::model::{NodeSet, beside, handle};
use crate::ordered::OrderedIndex;
use crate::ordered::scan::{Direction, Visitor};
use crate::{Handle, Inserted, Stamp};
use polychron_base::key::Key8;
use polychron_memory::Guard;
use polychron_sync::model::explore;
use std::ops::{Bound, ControlFlow};

fn key(number: u64) -> Key8 {
    Key8::new(number, 8)
}

/// A tree of full leaves with the keys 10, 20, … of which each maps to itself.
fn tree(count: u64, guard: &Guard<'_>) -> OrderedIndex {
    let entries = (1..=count).map(|number| (key(10 * number), handle(10 * number)));
    OrderedIndex::bulk_load(entries, 1.0, guard).expect("the keys ascend")
}

fn insert(index: &OrderedIndex, number: u64, guard: &Guard<'_>) -> bool {
    matches!(index.insert(key(number), handle(number), &mut (), guard), Ok(Inserted::New))
}

fn get(index: &OrderedIndex, number: u64, guard: &Guard<'_>) -> Option<u64> {
    index.get(key(number), guard).handle.map(Handle::get)
}

/// What a scan saw.
#[derive(Default)]
struct Seen(Vec<Stamp>, Vec<u64>);

impl Visitor for Seen {
    fn node(&mut self, stamp: Stamp) {
        self.0.push(stamp);
    }

    fn entry(&mut self, _: &[u8], handle: Handle) -> ControlFlow<()> {
        self.1.push(handle.get());
        ControlFlow::Continue(())
    }
}

fn scan(index: &OrderedIndex, direction: Direction, guard: &Guard<'_>) -> Seen {
    let mut seen = Seen::default();
    index.scan(Bound::Unbounded, Bound::Unbounded, direction, &mut seen, guard);
    if direction == Direction::Backward {
        seen.1.reverse();
    }
    seen
}

/// Keys on either side of a division, of a root or of a leaf below one, are found while it goes on; who missed the new one
/// learns of it.
#[test]
fn a_division_hides_nothing() {
    for keys in [15, 16] {
        explore(1, move || {
            beside(
                |guard| tree(keys, guard),
                |index, guard| assert!(insert(index, 75, guard)),
                |index, guard| {
                    assert_eq!(get(index, 150, guard), Some(150));
                    index.get(key(75), guard)
                },
                |index, guard, absent| {
                    // SAFETY: the guard is alive.
                    assert_eq!(unsafe { absent.stamp.holds() }, absent.handle.is_some());
                    assert_eq!(get(index, 75, guard), Some(75));
                },
            );
        });
    }
}

/// A scan beside a division sees every key that was there, in order, and its stamps hold only if it saw the new one.
#[test]
fn a_scan_beside_a_division_is_whole() {
    for direction in [Direction::Forward, Direction::Backward] {
        explore(1, move || {
            beside(
                |guard| tree(15, guard),
                |index, guard| assert!(insert(index, 75, guard)),
                move |index, guard| scan(index, direction, guard),
                |_, _, seen| {
                    assert!(seen.1.is_sorted_by(|left, right| left < right), "{:?}", seen.1);
                    assert!((1..=15).all(|number| seen.1.contains(&(10 * number))), "{:?}", seen.1);
                    // SAFETY: the guard is alive.
                    assert!(seen.1.contains(&75) || !unsafe { NodeSet(seen.0).holds() });
                },
            );
        });
    }
}

/// Of two that insert one key one wins; two that insert different keys into a full leaf both do.
#[test]
fn insertions_into_a_full_leaf_meet() {
    for (mine, theirs) in [(75, 75), (75, 145), (5, 155)] {
        explore(1, move || {
            beside(
                |guard| tree(15, guard),
                move |index, guard| assert!(insert(index, theirs, guard) || mine == theirs),
                move |index, guard| assert!(insert(index, mine, guard) || mine == theirs),
                |index, guard, ()| {
                    assert_eq!(get(index, mine, guard), Some(mine));
                    assert_eq!(get(index, theirs, guard), Some(theirs));
                    assert_eq!(index.statistics(guard).keys, if mine == theirs { 16 } else { 17 });
                },
            );
        });
    }
}

/// While the last leaf, which has one key, is emptied and unlinked, and the root with it, `own` runs.
fn beside_a_collapse<O: 'static>(own: fn(&OrderedIndex, &Guard<'_>) -> O, after: fn(&OrderedIndex, &Guard<'_>, O)) {
    explore(1, move || {
        beside(|guard| tree(16, guard), |index, guard| assert!(index.remove(key(160), handle(160), guard)), own, after);
    });
}

/// Readers find what is left, and no stamp fails.
#[test]
fn a_collapse_hides_nothing_and_fails_no_stamp() {
    beside_a_collapse(
        |index, guard| {
            assert_eq!(get(index, 10, guard), Some(10));
            index.get(key(165), guard)
        },
        |index, guard, absent: Lookup| {
            // SAFETY: the guard is alive.
            assert!(absent.handle.is_none() && unsafe { absent.stamp.holds() });
            assert_eq!(index.statistics(guard).leaves, 1);
        },
    );
}

/// A stamp of a leaf that is unlinked while a key comes into its range fails; the inserter's own set holds.
#[test]
fn insertions_beside_a_collapse_answer_correctly() {
    beside_a_collapse(
        |index, guard| {
            let stamp = index.get(key(165), guard).stamp;
            let mut set = NodeSet(vec![stamp]);
            assert!(index.insert(key(165), handle(165), &mut set, guard).is_ok());
            // SAFETY: the guard is alive.
            assert!(!unsafe { stamp.holds() });
            (stamp, set)
        },
        |index, guard, (stamp, set)| {
            // SAFETY: the guard is alive.
            assert!(!unsafe { stamp.holds() } && unsafe { set.holds() }, "background work aborts nobody");
            assert_eq!(get(index, 165, guard), Some(165));
        },
    );
}

const DEEP: [&[u8]; 3] = [b"12345678a", b"12345678b", b"12345678"];

fn put_deep(index: &OrderedIndex, at: usize, guard: &Guard<'_>) -> bool {
    matches!(index.insert(DEEP[at], handle(at as u64 + 1), &mut (), guard), Ok(Inserted::New))
}

/// A key whose suffix is pushed down into a new layer is found all the time, and so it is while the layer empties.
#[test]
fn layers_come_and_go_unnoticed() {
    for removes in [false, true] {
        let make = move |guard: &Guard<'_>| {
            let index = OrderedIndex::new(guard).expect("memory is there");
            assert!(put_deep(&index, 0, guard) && put_deep(&index, 2, guard));
            // A layer that holds one key.
            assert!(!removes || (put_deep(&index, 1, guard) && index.remove(DEEP[1], handle(2), guard)));
            index
        };
        explore(1, move || {
            beside(
                make,
                move |index, guard| {
                    assert!(if removes { index.remove(DEEP[0], handle(1), guard) } else { put_deep(index, 1, guard) });
                },
                move |index, guard| {
                    assert_eq!(index.get(DEEP[2], guard).handle, Some(handle(3)));
                    index.get(DEEP[0], guard)
                },
                |index, guard, found| {
                    assert!(found.handle == Some(handle(1)) || (removes && found.handle.is_none()));
                    // SAFETY: the guard is alive.
                    assert!(!removes || unsafe { found.stamp.holds() });
                    assert_eq!(index.statistics(guard).keys, if removes { 1 } else { 3 });
                },
            );
        });
    }
}
