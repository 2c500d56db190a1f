//! Keys that claim another length at each look are inserted with the first one.

use std::cell::Cell;

use polychron_base::key::{EncodedKey, HashSeed, MAX_KEY_BYTES};
use polychron_base::random::Random;
use polychron_base::sizes::scaled;
use polychron_index::hash::HashIndex;
use polychron_index::ordered::OrderedIndex;
use polychron_index::{AnyIndex, Handle, Inserted};
use polychron_memory::{Memory, Options};

thread_local! {
    /// The lengths that are claimed next; then none is.
    static CLAIMED: Cell<[usize; 2]> = const { Cell::new([0; 2]) };
    static LOOKS: Cell<usize> = const { Cell::new(0) };
}

/// A key of sevens.
#[derive(Clone, Copy)]
struct Fickle;

impl Fickle {
    fn claim(first: usize, later: usize) -> Self {
        CLAIMED.set([first, later]);
        LOOKS.set(0);
        Self
    }
}

impl EncodedKey for Fickle {
    fn len(&self) -> usize {
        LOOKS.set(LOOKS.get() + 1);
        CLAIMED.get()[usize::from(LOOKS.get() > 1)]
    }

    fn slice(&self, index: usize) -> u64 {
        let bytes = [7; MAX_KEY_BYTES];
        EncodedKey::slice(&&bytes[..CLAIMED.get()[0]], index)
    }

    fn hash(&self, seed: HashSeed) -> u64 {
        EncodedKey::hash(&&[7; MAX_KEY_BYTES][..CLAIMED.get()[0]], seed)
    }
}

fn insert_all(index: &AnyIndex, guard: &polychron_memory::Guard<'_>) {
    let lengths = [0, 1, 7, 8, 9, 16, 17, 24, 100, MAX_KEY_BYTES - 1, MAX_KEY_BYTES];
    let later = [0, 3, 8, 20, MAX_KEY_BYTES, 1 << 20, usize::MAX - 7, usize::MAX];
    let mut random = Random::from_seed(5);
    let mut model = std::collections::BTreeMap::new();
    for number in 1..scaled(2000, 100) as u64 {
        let first = lengths[random.below(lengths.len() as u64) as usize];
        let later = later[random.below(later.len() as u64) as usize];
        let handle = Handle::new(number * 8).expect("it is not 0");
        let inserted = index.insert(Fickle::claim(first, later), handle, &mut (), guard).expect("there is memory");
        let known = *model.entry(first).or_insert(handle);
        match inserted {
            Inserted::New => assert_eq!(known, handle, "length {first}"),
            Inserted::Existing(found) => assert_eq!(found.handle, Some(known), "length {first}"),
        }
    }
    for (length, handle) in model {
        assert_eq!(index.find(&[7; MAX_KEY_BYTES][..length], guard), Some(handle), "length {length}");
    }
}

#[test]
fn keys_have_the_length_that_they_claimed_first() {
    let memory = Memory::new(Options::tiny()).unwrap();
    let local = memory.register().unwrap();
    let guard = local.pin();
    let ordered = OrderedIndex::new(&guard).unwrap();
    insert_all(&AnyIndex::Ordered(ordered), &guard);
    let hash = HashIndex::new(8, HashSeed::FIXED, &guard).unwrap();
    insert_all(&AnyIndex::Hash(hash), &guard);
}

#[test]
fn keys_that_are_too_long_are_not_inserted() {
    let memory = Memory::new(Options::tiny()).unwrap();
    let local = memory.register().unwrap();
    let guard = local.pin();
    let pairs = [(Fickle::claim(usize::MAX, 8), Handle::new(8).expect("it is not 0"))];
    assert!(OrderedIndex::bulk_load(pairs.into_iter(), 1.0, &guard).is_err());
    let index = OrderedIndex::new(&guard).unwrap();
    let inserted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        index.insert(Fickle::claim(usize::MAX, 8), Handle::new(8).expect("it is not 0"), &mut (), &guard).is_ok()
    }));
    assert!(inserted.is_err());
    assert_eq!(index.get(&b"other"[..], &guard).handle, None);
}
