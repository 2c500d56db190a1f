//! White-box tests: what cannot be seen or forced from outside.

use std::cell::Cell;

use polychron_base::key::{HashSeed, Key8};
use polychron_base::sizes::scaled;
use polychron_memory::{Guard, Local, Memory, Options};
use polychron_sync::atomic::Ordering;

use super::HashIndex;
use crate::{Change, Changes, Handle, Stamp};

thread_local! {
    /// Makes the allocation of tables fail on this thread.
    pub(super) static REFUSE_TABLES: Cell<bool> = const { Cell::new(false) };
}

fn local() -> Local {
    Memory::new(Options { limit_bytes: Some(256 << 20), ..Options::tiny() }).unwrap().register().unwrap()
}

fn handle(value: u64) -> Handle {
    Handle::new(value).unwrap()
}

fn key(n: u64) -> Key8 {
    Key8::new(n.wrapping_mul(0xD134_2543_DE82_EF95), 8)
}

/// A node set of one stamp and what is added to it.
struct Own(Vec<Stamp>);

impl Changes for Own {
    fn change(&mut self, change: Change) {
        match change {
            Change::Added { of, new } if self.0.contains(&of) => self.0.push(new),
            Change::Added { .. } => {}
            Change::Moved { before, after } => {
                for stamp in self.0.iter_mut().filter(|stamp| **stamp == before) {
                    *stamp = after;
                }
            }
        }
    }
}

impl Own {
    fn holds(&self) -> bool {
        // SAFETY: the tests keep their guard.
        self.0.iter().all(|stamp| unsafe { stamp.holds() })
    }
}

fn insert(index: &HashIndex, n: u64, guard: &Guard<'_>) {
    index.insert(key(n), handle(n + 1), &mut (), guard).unwrap();
}

/// Inserts until a growth has begun.
fn begin_growth(index: &HashIndex, guard: &Guard<'_>) -> u64 {
    let mut next = 0;
    while index.table(guard).next().is_none() {
        insert(index, next, guard);
        next += 1;
    }
    next
}

#[test]
fn refused_growth_only_makes_chains_longer() {
    let local = local();
    let guard = local.pin();
    let mut index = HashIndex::new(0, HashSeed::FIXED, &guard).unwrap();
    REFUSE_TABLES.set(true);
    let (few, many) = (scaled(500, 100) as u64, scaled(2000, 500) as u64);
    for n in 0..few {
        insert(&index, n, &guard);
    }
    assert_eq!(index.statistics(&guard).buckets, super::MIN_BUCKETS);
    assert!((0..few).all(|n| index.get(key(n), &guard).handle == Some(handle(n + 1))));
    REFUSE_TABLES.set(false);
    for n in few..many {
        insert(&index, n, &guard);
    }
    while index.advance_growth(&guard) {}
    assert!(index.statistics(&guard).buckets > 64);
    assert!((0..many).all(|n| index.get(key(n), &guard).handle == Some(handle(n + 1))));
    // SAFETY: this thread alone has the index.
    unsafe { index.destroy(&guard) };
}

#[test]
fn overflow_buckets_are_counted_exactly_through_growth_and_removal() {
    let local = local();
    let guard = local.pin();
    let mut index = HashIndex::new(0, HashSeed::FIXED, &guard).unwrap();
    for n in 0..scaled(5000, 120) as u64 {
        insert(&index, n, &guard);
        if n % 3 == 0 {
            assert!(index.remove(key(n / 2), handle(n / 2 + 1), &guard) || n / 2 < n);
        }
    }
    while index.advance_growth(&guard) {}
    let counted = index.table(&guard).header().growth.overflow.load(Ordering::Relaxed);
    assert_eq!(usize::try_from(counted), Ok(index.statistics(&guard).overflow_buckets));
    // SAFETY: this thread alone has the index.
    unsafe { index.destroy(&guard) };
}

#[test]
fn an_unfinished_growth_is_readable_and_can_be_destroyed() {
    let local = local();
    let guard = local.pin();
    let mut index = HashIndex::new(200, HashSeed::FIXED, &guard).unwrap();
    let keys = begin_growth(&index, &guard);
    assert!(index.advance_growth(&guard));
    let statistics = index.statistics(&guard);
    assert_eq!((statistics.keys as u64, statistics.buckets), (keys, 160 + super::MOVES_PER_INSERT));
    assert!((0..keys).all(|n| index.get(key(n), &guard).handle == Some(handle(n + 1))));
    // SAFETY: this thread alone has the index.
    unsafe { index.destroy(&guard) };
}

/// For every key, a stamp is taken on its bucket, the bucket is moved, and then the key is inserted by the stamp's
/// holder: the holder's node set holds, until another thread inserts into either half.
#[test]
fn an_own_insertion_divides_a_stamp_of_a_moved_bucket() {
    let local = local();
    for foreign_half in [false, true] {
        let guard = local.pin();
        let mut index = HashIndex::new(400, HashSeed::FIXED, &guard).unwrap();
        begin_growth(&index, &guard);
        let table = index.table(&guard);
        // Keys of the first bucket to be moved, by half.
        let moved_next = table.header().growth.cursor.load(Ordering::Relaxed);
        let next = table.next().unwrap();
        let half = |n: u64| next.index_of(polychron_base::key::EncodedKey::hash(&key(n), HashSeed::FIXED));
        let find = |half_index| (1_000_000..).filter(move |n| half(*n) == half_index);
        let (mut low, mut high) = (find(2 * moved_next), find(2 * moved_next + 1));
        let (own_key, low_key, high_key) = (low.next().unwrap(), low.next().unwrap(), high.next().unwrap());

        let mut own = Own(vec![index.get(key(own_key), &guard).stamp]);
        assert!(index.advance_growth(&guard));
        assert!(own.holds());
        index.insert(key(own_key), handle(1), &mut own, &guard).unwrap();
        assert_eq!(own.0.len(), 2);
        assert!(own.holds());
        insert(&index, if foreign_half { high_key } else { low_key }, &guard);
        assert!(!own.holds());
        // SAFETY: this thread alone has the index.
        unsafe { index.destroy(&guard) };
    }
}
