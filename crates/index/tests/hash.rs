//! The hash index on one thread: against a model, and what stamps promise.

use std::collections::HashMap;

use polychron_base::key::{EncodedKey, HashSeed, Key8, Key16};
use polychron_base::sizes::scaled;
use polychron_index::hash::{BulkLoadError, HashIndex};
use polychron_index::{Change, Changes, Handle, Inserted, Stamp};
use polychron_memory::{Guard, Local, Memory, Options};

fn local() -> Local {
    Memory::new(Options { limit_bytes: Some(256 << 20), ..Options::tiny() }).unwrap().register().unwrap()
}

fn handle(value: u64) -> Handle {
    Handle::new(value).unwrap()
}

/// A small generator of its own: the tests' only source of randomness.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A long key whose hash is the same for all: every chain and every comparison is exercised.
#[derive(Clone, Copy)]
struct Colliding<'k>(&'k [u8]);

impl EncodedKey for Colliding<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn slice(&self, index: usize) -> u64 {
        EncodedKey::slice(&self.0, index)
    }

    fn hash(&self, _: HashSeed) -> u64 {
        0x8765_4321_0000_0000
    }
}

/// Node sets of a transaction, as protocols keep them.
#[derive(Default)]
struct NodeSet(Vec<Stamp>);

impl Changes for NodeSet {
    fn change(&mut self, change: Change) {
        match change {
            Change::Added { of, new } => {
                if self.0.contains(&of) {
                    self.0.push(new);
                }
            }
            Change::Moved { before, after } => {
                for stamp in self.0.iter_mut().filter(|stamp| **stamp == before) {
                    *stamp = after;
                }
            }
        }
    }
}

impl NodeSet {
    fn holds(&self) -> bool {
        // SAFETY: the tests keep one guard from the first stamp to the last question.
        self.0.iter().all(|stamp| unsafe { stamp.holds() })
    }
}

fn random_key(random: &mut Random) -> Vec<u8> {
    let len = random.below(20) as usize;
    // Zero bytes are likely, so that padding and length matter.
    (0..len).map(|_| random.below(3) as u8).collect()
}

fn assert_same(index: &HashIndex, model: &HashMap<Vec<u8>, Handle>, guard: &Guard<'_>) {
    let statistics = index.statistics(guard);
    assert_eq!(statistics.keys, model.len());
    let mut seen = 0;
    index.for_each(
        |_, entries| {
            for entry in entries {
                let mut bytes = vec![0; entry.key.len()];
                entry.key.write_to(&mut bytes);
                assert_eq!(model.get(&bytes), Some(&entry.handle));
                seen += 1;
            }
        },
        guard,
    );
    assert_eq!(seen, model.len());
}

#[test]
fn agrees_with_a_model_over_mixed_lengths() {
    let local = local();
    for seed in 0..scaled(8, 2) as u64 {
        let guard = local.pin();
        let mut random = Random(seed);
        let mut index =
            HashIndex::new(if seed % 2 == 0 { 0 } else { scaled(2000, 50) }, HashSeed::FIXED, &guard).unwrap();
        let mut model = HashMap::new();
        for step in 1..scaled(20_000, 60) as u64 {
            let bytes = random_key(&mut random);
            let (key, new) = (bytes.as_slice(), handle(step));
            match random.below(4) {
                0 | 1 => match index.insert(key, new, &mut (), &guard).unwrap() {
                    Inserted::New => assert_eq!(model.insert(bytes.clone(), new), None),
                    Inserted::Existing(lookup) => assert_eq!(model.get(key), lookup.handle.as_ref()),
                },
                2 => {
                    let expected = model.get(key).copied().filter(|_| random.below(4) > 0).unwrap_or(handle(u64::MAX));
                    let removed = index.remove(key, expected, &guard);
                    assert_eq!(removed, model.get(key) == Some(&expected));
                    if removed {
                        model.remove(key);
                    }
                }
                _ => {
                    let expected = model.get(key).copied().unwrap_or(new);
                    let replaced = index.replace(key, expected, new, &guard);
                    assert_eq!(replaced, model.contains_key(key));
                    if replaced {
                        model.insert(bytes.clone(), new);
                    }
                }
            }
            assert_eq!(index.get(key, &guard).handle.as_ref(), model.get(key));
        }
        assert_same(&index, &model, &guard);
        for (bytes, handle) in &model {
            assert!(index.remove(bytes.as_slice(), *handle, &guard));
        }
        let statistics = index.statistics(&guard);
        assert_eq!((statistics.keys, statistics.overflow_buckets, statistics.longest_chain), (0, 0, 1));
        // SAFETY: this thread alone has the index.
        unsafe { index.destroy(&guard) };
    }
}

#[test]
fn representations_of_one_key_are_one_key() {
    let local = local();
    let guard = local.pin();
    let mut index = HashIndex::new(10, HashSeed::FIXED, &guard).unwrap();
    assert!(matches!(index.insert(Key8::new(0x0102, 2), handle(1), &mut (), &guard), Ok(Inserted::New)));
    assert_eq!(index.get(&[1_u8, 2][..], &guard).handle, Some(handle(1)));
    assert_eq!(index.get(Key16::new(0x0102, 2), &guard).handle, Some(handle(1)));
    assert_eq!(index.get(&[1_u8, 2, 0][..], &guard).handle, None);
    let wide = Key16::new(77, 16);
    assert!(matches!(index.insert(wide, handle(u64::MAX), &mut (), &guard), Ok(Inserted::New)));
    assert_eq!(index.get(&77_u128.to_be_bytes()[..], &guard).handle, Some(handle(u64::MAX)));
    // SAFETY: this thread alone has the index.
    unsafe { index.destroy(&guard) };
}

#[test]
fn long_keys_with_equal_hashes_are_distinguished() {
    let local = local();
    let guard = local.pin();
    let mut index = HashIndex::new(0, HashSeed::FIXED, &guard).unwrap();
    let count = scaled(200, 20);
    let keys: Vec<Vec<u8>> = (0..count as u64).map(|n| [&[9; 30][..], &n.to_be_bytes()].concat()).collect();
    for (n, key) in keys.iter().enumerate() {
        assert!(matches!(index.insert(Colliding(key), handle(n as u64 + 1), &mut (), &guard), Ok(Inserted::New)));
    }
    // Growth does not help here; it must not hurt either.
    while index.advance_growth(&guard) {}
    assert!(index.statistics(&guard).longest_chain > 3 * count / 10);
    for (n, key) in keys.iter().enumerate().rev() {
        let value = handle(n as u64 + 1);
        assert_eq!(index.get(Colliding(key), &guard).handle, Some(value));
        assert!(!index.remove(Colliding(&key[1..]), value, &guard));
        assert!(index.replace(Colliding(key), value, handle(1000), &guard));
        assert!(index.remove(Colliding(key), handle(1000), &guard));
        assert_eq!(index.get(Colliding(key), &guard).handle, None);
    }
    assert_eq!(index.statistics(&guard).overflow_buckets, 0);
    // SAFETY: this thread alone has the index.
    unsafe { index.destroy(&guard) };
}

#[test]
#[cfg_attr(miri, ignore = "a large table takes an interpreter too long")]
fn expected_keys_fit_without_growth() {
    let local = local();
    let guard = local.pin();
    let pairs = |seed| {
        let mut random = Random(seed);
        (0..50_000_u64).map(move |n| (Key8::new(n << 20 | random.below(1 << 20), 8), handle(n + 1)))
    };
    let mut index = HashIndex::bulk_load(pairs(1), 50_000, HashSeed::FIXED, &guard).unwrap();
    let statistics = index.statistics(&guard);
    assert_eq!((statistics.keys, statistics.buckets), (50_000, 40_000));
    for (key, handle) in pairs(1) {
        index.prefetch(key, &guard);
        assert_eq!(index.get(key, &guard).handle, Some(handle));
    }
    // SAFETY: this thread alone has the index.
    unsafe { index.destroy(&guard) };
}

#[test]
fn bulk_load_refuses_duplicates_and_too_large_tables() {
    let local = local();
    let guard = local.pin();
    let keys = (0..100).chain([40]).map(|n| (Key8::new(n, 8), handle(n + 1)));
    assert_eq!(
        HashIndex::bulk_load(keys, 100, HashSeed::FIXED, &guard).err(),
        Some(BulkLoadError::Duplicate { position: 100 })
    );
    assert!(HashIndex::new(usize::MAX, HashSeed::FIXED, &guard).is_err());
    assert!(HashIndex::new(usize::MAX / 128, HashSeed::FIXED, &guard).is_err());
}

#[test]
fn stamps_hold_until_a_key_is_inserted() {
    let local = local();
    let guard = local.pin();
    let mut index = HashIndex::new(0, HashSeed::FIXED, &guard).unwrap();
    let key = |n: u64| Key8::new(n, 8);
    let absent = index.get(key(1), &guard);
    assert_eq!(absent.handle, None);
    index.insert(key(1), handle(1), &mut (), &guard).unwrap();
    let present = index.get(key(1), &guard);
    let Inserted::Existing(again) = index.insert(key(1), handle(2), &mut (), &guard).unwrap() else {
        panic!("the key is present");
    };
    assert_eq!((again.handle, again.stamp), (present.handle, present.stamp));
    assert!(index.replace(key(1), handle(1), handle(3), &guard));
    assert!(index.remove(key(1), handle(3), &guard));
    // SAFETY: the guard is alive.
    unsafe {
        assert!(!absent.stamp.holds());
        assert!(present.stamp.holds());
        index.insert(key(1), handle(1), &mut (), &guard).unwrap();
        assert!(!present.stamp.holds());
        index.destroy(&guard);
    }
}

/// Stamps of absent keys are taken before several growths; afterwards exactly those fail into whose part of the old
/// bucket a key was inserted.
#[test]
#[cfg_attr(miri, ignore = "several growths take an interpreter too long; the unit tests have one")]
fn stamps_hold_across_growth() {
    let local = local();
    let guard = local.pin();
    let mut index = HashIndex::new(0, HashSeed::FIXED, &guard).unwrap();
    let key = |n: u64| Key8::new(n.wrapping_mul(0x9E37_79B9_7F4A_7C15), 8);
    let mut seen: HashMap<u64, Stamp> = HashMap::new();
    let mut grown = 0;
    for n in 0..3000 {
        let growing = index.advance_growth(&guard);
        if growing {
            // No insertion happens here, so whatever moves, stamps of this time hold.
            let stamps: Vec<_> = (0..100).map(|n| index.get(key(1_000_000 + n), &guard).stamp).collect();
            while index.advance_growth(&guard) {}
            // SAFETY: the guard is alive.
            assert!(stamps.iter().all(|stamp| unsafe { stamp.holds() }));
            for stamp in stamps {
                seen.insert(grown, stamp);
            }
            grown += 1;
        }
        let stamp = index.get(key(n), &guard).stamp;
        index.insert(key(n), handle(n + 1), &mut (), &guard).unwrap();
        // SAFETY: the guard is alive.
        assert!(!unsafe { stamp.holds() });
    }
    assert!(grown > 4);
    // SAFETY: the guard is alive; 64 times as many keys came since, so every old bucket had an insertion.
    assert!(!unsafe { seen[&0].holds() });
    // SAFETY: this thread alone has the index.
    unsafe { index.destroy(&guard) };
}

/// A transaction that inserts what it found absent keeps a valid node set, whatever growth does between its lookups and
/// its insertions, and sees every foreign insertion.
#[test]
fn own_insertions_keep_the_node_set_valid_through_growth() {
    let local = local();
    let guard = local.pin();
    let mut index = HashIndex::new(0, HashSeed::FIXED, &guard).unwrap();
    let mut random = Random(5);
    let mut key = || Key8::new(random.below(1 << 31) << 31 ^ random.below(1 << 31), 8);
    let mut divided = 0;
    for round in 0..scaled(500, 30) {
        let keys: Vec<_> = (0..10).map(|_| key()).collect();
        let mut own = NodeSet(keys.iter().map(|key| index.get(*key, &guard).stamp).collect());
        for _ in 0..round % 40 {
            index.advance_growth(&guard);
        }
        for key in &keys {
            index.insert(*key, handle(1), &mut own, &guard).unwrap();
            assert!(own.holds());
        }
        divided += usize::from(own.0.len() > keys.len());
        let foreign = keys[round % 10];
        assert!(index.remove(foreign, handle(1), &guard));
        assert!(own.holds());
        index.insert(foreign, handle(1), &mut (), &guard).unwrap();
        assert!(!own.holds());
    }
    assert!(divided > 0);
    // SAFETY: this thread alone has the index.
    unsafe { index.destroy(&guard) };
}
