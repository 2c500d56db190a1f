//! Every interleaving, up to a few preemptions, of two threads on the buckets: readers against insertions, removals and
//! replacements, insertions against each other, and growth against all of them.

use super::HashIndex;
use super::table::Table;
use crate::model::{NodeSet, beside, handle};
use crate::{Handle, Inserted, Lookup};
use polychron_base::key::{EncodedKey, HashSeed, Key8, Key16};
use polychron_memory::Guard;
use polychron_sync::atomic::{AtomicPtr, Ordering};
use polychron_sync::model::explore;

/// A short key; all of them lie in one bucket as long as there is one.
fn key(number: u64) -> Key8 {
    Key8::new(number, 8)
}

/// A key that lies behind a pointer.
fn long(number: u64) -> Key16 {
    Key16::new(u128::from(number) << 64, 16)
}

fn put<K: EncodedKey>(index: &HashIndex, key: K, value: u64, guard: &Guard<'_>) -> bool {
    matches!(index.insert(key, handle(value), &mut (), guard), Ok(Inserted::New))
}

fn get<K: EncodedKey>(index: &HashIndex, key: K, guard: &Guard<'_>) -> Option<u64> {
    index.get(key, guard).handle.map(Handle::get)
}

/// An index of one bucket, so that everything meets; `growing`: of which a table of two was added.
fn one_bucket(growing: bool, guard: &Guard<'_>) -> HashIndex {
    let table = Table::allocate_empty(1, guard).expect("memory is there");
    if growing {
        table.header().growth.claimed.store(true, Ordering::Relaxed);
        table.set_next(Table::allocate_after(table, guard).expect("memory is there"));
    }
    HashIndex { current: AtomicPtr::new(table.raw().as_ptr()), seed: HashSeed::FIXED }
}

/// An index of one bucket that holds the short keys 1 to `keys`, each under its own number.
fn filled(keys: u64, guard: &Guard<'_>) -> HashIndex {
    let index = one_bucket(false, guard);
    assert!((1..=keys).all(|number| put(&index, key(number), number, guard)));
    index
}

/// As [`filled`], and growth has begun: the next insertion, or `advance_growth`, moves the bucket.
fn filled_and_growing(keys: u64, guard: &Guard<'_>) -> HashIndex {
    let index = filled(keys, guard);
    let table = index.table(guard);
    table.header().growth.claimed.store(true, Ordering::Relaxed);
    table.set_next(Table::allocate_after(table, guard).expect("memory is there"));
    index
}

/// A slot that another key moves into shows no thread that key's handle.
#[test]
fn a_reused_slot_is_recognized() {
    explore(2, || {
        beside(
            |guard| filled(1, guard),
            |index, guard| assert!(index.remove(key(1), handle(1), guard) && put(index, key(2), 2, guard)),
            |index, guard| {
                assert!(matches!(get(index, key(1), guard), None | Some(1)));
                assert!(matches!(get(index, key(2), guard), None | Some(2)));
            },
            |index, guard, ()| assert_eq!(get(index, key(2), guard), Some(2)),
        );
    });
}

/// The same for keys behind pointers, in the head and in an overflow bucket.
#[test]
fn a_reused_slot_of_a_long_key_is_recognized() {
    for before in [0, 3] {
        explore(1, move || {
            beside(
                move |guard| {
                    let index = filled(before, guard);
                    assert!(put(&index, long(1), 11, guard));
                    index
                },
                |index, guard| assert!(index.remove(long(1), handle(11), guard) && put(index, long(2), 12, guard)),
                |index, guard| {
                    assert!(matches!(get(index, long(1), guard), None | Some(11)));
                    assert!(matches!(get(index, long(2), guard), None | Some(12)));
                },
                |index, guard, ()| assert_eq!(get(index, long(2), guard), Some(12)),
            );
        });
    }
}

/// A key stays findable while its neighbours come, its handle is replaced, and an overflow bucket comes and goes.
#[test]
fn neighbours_hide_nothing() {
    explore(1, || {
        beside(
            |guard| filled(3, guard),
            |index, guard| {
                assert!(put(index, key(4), 4, guard) && index.replace(key(3), handle(3), handle(30), guard));
            },
            |index, guard| {
                assert!(matches!(get(index, key(3), guard), Some(3 | 30)));
                index.get(key(4), guard)
            },
            |_, _, absent: Lookup| {
                // SAFETY: the guard is alive.
                assert_eq!(unsafe { absent.stamp.holds() }, absent.handle.is_some());
            },
        );
    });
    explore(1, || {
        beside(
            |guard| filled(4, guard),
            |index, guard| assert!(index.remove(key(4), handle(4), guard)),
            |index, guard| {
                assert_eq!(get(index, key(3), guard), Some(3));
                index.get(key(9), guard).stamp
            },
            // SAFETY: the guard is alive.
            |_, _, absent| assert!(unsafe { absent.holds() }, "removal fails no stamp"),
        );
    });
}

/// Of two that insert one key one wins; of two that insert two keys both do, and the one's node set sees the other.
#[test]
fn insertions_meet() {
    explore(2, || {
        beside(
            |guard| filled(2, guard),
            |index, guard| {
                put(index, key(7), 70, guard);
            },
            |index, guard| put(index, key(7), 7, guard),
            |index, guard, won| assert_eq!(get(index, key(7), guard), Some(if won { 7 } else { 70 })),
        );
    });
    explore(2, || {
        beside(
            |guard| filled(2, guard),
            |index, guard| assert!(put(index, key(8), 8, guard)),
            |index, guard| {
                let absent = index.get(key(8), guard);
                let mut set = NodeSet(vec![absent.stamp]);
                assert!(matches!(index.insert(key(7), handle(7), &mut set, guard), Ok(Inserted::New)));
                (absent.handle, set)
            },
            |index, guard, (seen, set)| {
                // SAFETY: the guard is alive.
                assert_eq!(unsafe { set.holds() }, seen.is_some());
                assert_eq!((get(index, key(7), guard), get(index, key(8), guard)), (Some(7), Some(8)));
            },
        );
    });
}

/// Growth hides no key and fails no stamp.
#[test]
fn growth_is_not_noticed() {
    for keys in [2, 4] {
        explore(1, move || {
            beside(
                move |guard| filled_and_growing(keys, guard),
                |index, guard| assert!(!index.advance_growth(guard)),
                |index, guard| {
                    assert_eq!((get(index, key(1), guard), get(index, key(2), guard)), (Some(1), Some(2)));
                    index.get(key(9), guard).stamp
                },
                |index, guard, absent| {
                    // SAFETY: the guard is alive.
                    assert!(unsafe { absent.holds() });
                    assert_eq!(index.statistics(guard).buckets, 2);
                },
            );
        });
    }
}

/// An insertion beside growth fails the stamps of others and keeps the inserter's own.
#[test]
fn insertions_beside_growth_answer_correctly() {
    explore(1, || {
        beside(
            |guard| filled_and_growing(2, guard),
            |index, guard| {
                index.advance_growth(guard);
            },
            |index, guard| {
                let stamp = index.get(key(7), guard).stamp;
                let mut own = NodeSet(vec![stamp]);
                assert!(matches!(index.insert(key(7), handle(7), &mut own, guard), Ok(Inserted::New)));
                (stamp, own)
            },
            |index, guard, (stamp, own)| {
                // SAFETY: the guard is alive.
                assert!(unsafe { own.holds() } && !unsafe { stamp.holds() });
                assert_eq!(get(index, key(7), guard), Some(7));
            },
        );
    });
}
