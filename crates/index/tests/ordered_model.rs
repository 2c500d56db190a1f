//! The ordered index against a `BTreeMap`, on one thread.

mod ordered_common;

use ordered_common::{Collect, NodeSet, Random, handle, memory};
use polychron_base::key::{EncodedKey, Key8, Key16};
use polychron_base::sizes::scaled;
use polychron_index::ordered::{BulkLoadError, Direction, Finger, OrderedIndex, Step, Visitor};
use polychron_index::{Handle, Inserted, Stamp};
use polychron_memory::Guard;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

type Model = BTreeMap<Vec<u8>, u64>;

fn get<K: EncodedKey>(index: &OrderedIndex, key: K, guard: &Guard<'_>) -> Option<u64> {
    let found = index.get(key, guard);
    let mut cursor = index.start(key, guard);
    let staged = loop {
        if let Step::Done(lookup) = index.advance(&mut cursor, guard) {
            break lookup;
        }
    };
    assert_eq!(found.handle, staged.handle);
    assert_eq!(found.stamp, staged.stamp);
    found.handle.map(u64::from)
}

fn put<K: EncodedKey>(index: &OrderedIndex, key: K, value: u64, guard: &Guard<'_>) -> bool {
    matches!(index.insert(key, handle(value), &mut (), guard), Ok(Inserted::New))
}

/// As [`get`], and the same from where the finger is.
fn get_near<K: EncodedKey>(index: &OrderedIndex, key: K, finger: &mut Finger, guard: &Guard<'_>) -> Option<u64> {
    let found = index.get(key, guard);
    // SAFETY: a test keeps one guard and one finger for an index.
    let near = unsafe { index.get_near(key, finger, guard) };
    assert_eq!((found.handle, found.stamp), (near.handle, near.stamp));
    get(index, key, guard)
}

fn put_near<K: EncodedKey>(index: &OrderedIndex, key: K, value: u64, finger: &mut Finger, guard: &Guard<'_>) -> bool {
    // SAFETY: as above.
    matches!(unsafe { index.insert_near(key, handle(value), finger, &mut (), guard) }, Ok(Inserted::New))
}

fn as_slices(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

fn in_range(lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>, key: &[u8]) -> bool {
    let above = match lower {
        Bound::Included(bound) => key >= bound.as_slice(),
        Bound::Excluded(bound) => key > bound.as_slice(),
        Bound::Unbounded => true,
    };
    let below = match upper {
        Bound::Included(bound) => key <= bound.as_slice(),
        Bound::Excluded(bound) => key < bound.as_slice(),
        Bound::Unbounded => true,
    };
    above && below
}

fn check_scan(
    index: &OrderedIndex,
    model: &Model,
    lower: &Bound<Vec<u8>>,
    upper: &Bound<Vec<u8>>,
    limit: Option<usize>,
    guard: &Guard<'_>,
) {
    for direction in [Direction::Forward, Direction::Backward] {
        let inside = model.iter().filter(|(key, _)| in_range(lower, upper, key));
        let mut expected: Vec<_> = inside.map(|(key, value)| (key.clone(), *value)).collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        expected.truncate(limit.unwrap_or(usize::MAX));
        let mut found = Collect { limit, ..Collect::default() };
        index.scan(as_slices(lower), as_slices(upper), direction, &mut found, guard);
        assert_eq!(found.entries, expected, "{direction:?} from {lower:?} to {upper:?}");
    }
}

fn bound(random: &mut Random, model: &Model) -> Bound<Vec<u8>> {
    let key = if random.below(2) == 0 || model.is_empty() {
        random.key()
    } else {
        model.keys().nth(random.below(model.len())).cloned().unwrap_or_default()
    };
    match random.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(key),
        _ => Bound::Excluded(key),
    }
}

#[test]
fn agrees_with_a_model() {
    let steps = scaled(4000, 80) as u64;
    for seed in 1..=scaled(12, 2) as u64 {
        let (_memory, local) = memory();
        let guard = local.pin();
        let index = OrderedIndex::new(&guard).expect("memory is there");
        let mut random = Random::new(seed);
        let mut model = Model::new();
        let finger = &mut Finger::default();
        for step in 0..steps {
            let key = random.key();
            let growing = (step / (steps / 4)).is_multiple_of(2);
            match random.below(10) {
                0..=4 if growing => {
                    let absent = !model.contains_key(&key);
                    assert_eq!(put_near(&index, &key[..], step + 1, finger, &guard), absent);
                    model.entry(key).or_insert(step + 1);
                }
                0..=6 => {
                    let chosen = model.keys().nth(random.below(model.len().max(1))).cloned().unwrap_or(key);
                    let value = model.get(&chosen).copied();
                    assert!(!index.remove(&chosen[..], handle(u64::MAX), &guard));
                    if let Some(value) = value {
                        assert!(index.remove(&chosen[..], handle(value), &guard));
                        model.remove(&chosen);
                    }
                    assert_eq!(get_near(&index, &chosen[..], finger, &guard), None);
                }
                7 => {
                    if let Some((chosen, value)) = model.iter_mut().nth(random.below(1 + step as usize % 50)) {
                        assert!(index.replace(&chosen[..], handle(*value), handle(step + 100_000), &guard));
                        *value = step + 100_000;
                    }
                }
                8 => {
                    let (lower, upper) = (bound(&mut random, &model), bound(&mut random, &model));
                    let limit = (random.below(2) == 0).then(|| 1 + random.below(20));
                    check_scan(&index, &model, &lower, &upper, limit, &guard);
                }
                _ => assert_eq!(get_near(&index, &key[..], finger, &guard), model.get(&key).copied()),
            }
        }
        check_scan(&index, &model, &Bound::Unbounded, &Bound::Unbounded, None, &guard);
        assert_eq!(index.statistics(&guard).keys, model.len());
        for (key, value) in &model {
            assert_eq!(get_near(&index, &key[..], finger, &guard), Some(*value));
            assert!(index.remove(&key[..], handle(*value), &guard));
        }
        let rest = index.statistics(&guard);
        assert_eq!((rest.keys, rest.layers, rest.leaves, rest.interiors, rest.depth), (0, 1, 1, 0, 1));
        index.retire(&guard);
    }
}

#[test]
fn representations_find_the_same_entries() {
    let count = scaled(3000, 30) as u64;
    let (_memory, local) = memory();
    let guard = local.pin();
    let index = OrderedIndex::new(&guard).expect("memory is there");
    for number in 0..count {
        assert!(put(&index, Key8::new(number, 8), number + 1, &guard));
        assert!(put(&index, Key16::new(u128::from(number), 16), number + 10_000, &guard));
    }
    for number in 0..count {
        assert_eq!(get(&index, &number.to_be_bytes()[..], &guard), Some(number + 1));
        assert_eq!(get(&index, Key16::new(u128::from(number), 8), &guard), Some(number + 1));
        assert_eq!(get(&index, &u128::from(number).to_be_bytes()[..], &guard), Some(number + 10_000));
    }
    assert_eq!(get(&index, Key8::new(0, 7), &guard), None);
    // SAFETY: this is the only guard.
    unsafe { index.destroy(&guard) };
}

#[test]
fn ascending_and_descending_insertions_fill_leaves() {
    let (_memory, local) = memory();
    let guard = local.pin();
    for ascending in [true, false] {
        let index = OrderedIndex::new(&guard).expect("memory is there");
        let count = scaled(20_000, 200) as u64;
        for step in 0..count {
            let number = if ascending { step } else { count - 1 - step };
            assert!(put(&index, Key8::new(number, 8), number + 1, &guard));
        }
        let statistics = index.statistics(&guard);
        assert_eq!(statistics.keys as u64, count);
        assert!(statistics.leaves as u64 <= count / 14, "{statistics:?}");
        index.retire(&guard);
    }
}

/// Several ascending runs inside of the key space, entered in turn: fingers lose their leaf again and again, and the runs
/// leave full leaves behind although keys of other runs lie to the right.
#[test]
fn runs_inside_the_key_space_fill_leaves() {
    let (_memory, local) = memory();
    let guard = local.pin();
    let index = OrderedIndex::new(&guard).expect("memory is there");
    let (runs, length) = (10u64, scaled(3000, 40) as u64);
    let mut fingers = vec![Finger::default(); runs as usize];
    let key = |run: u64, number: u64| Key8::new((run << 40) | (number * 256), 8);
    for number in 0..length {
        for run in 0..runs {
            let finger = &mut fingers[run as usize];
            assert_eq!(get_near(&index, key(run, number), finger, &guard), None);
            assert!(put_near(&index, key(run, number), number + 1, finger, &guard));
            assert!(!put_near(&index, key(run, number), number + 2, finger, &guard));
            assert_eq!(get_near(&index, key(run, number), finger, &guard), Some(number + 1));
        }
    }
    let statistics = index.statistics(&guard);
    assert_eq!(statistics.keys as u64, runs * length);
    assert!(statistics.leaves as u64 <= runs * (length / 14 + 2), "{statistics:?}");
    index.retire(&guard);
}

/// Runs of keys are found as single keys are, whatever lies between them: gaps, other lengths, and layers that have the same slices.
#[test]
fn runs_are_found_as_single_keys_are() {
    let (_memory, local) = memory();
    let guard = local.pin();
    for seed in 0..scaled(40, 4) as u64 {
        let index = OrderedIndex::new(&guard).expect("memory is there");
        let mut random = Random::new(seed);
        let draw = |random: &mut Random| {
            let [first, second] = [(); 2].map(|()| random.below(6) as u128);
            match random.below(4) {
                0 => Key16::new(first << 64 | second, 16),
                1 => Key16::new(first, 7),
                _ => Key16::new(first, 8),
            }
        };
        for number in 0..random.below(60) {
            put(&index, draw(&mut random), number as u64 + 1, &guard);
        }
        for _ in 0..20 {
            let mut run: Vec<Key16> = (0..random.below(20)).map(|_| draw(&mut random)).collect();
            if random.below(2) == 0 {
                run.sort_unstable_by_key(|key| (key.slice(0), key.len(), key.slice(1)));
            }
            let mut found = vec![None; run.len()];
            index.find_run(run.iter().copied().zip(&mut found), &guard);
            let single: Vec<_> = run.iter().map(|key| index.get(*key, &guard).handle).collect();
            assert_eq!(found, single, "of {run:?}");
        }
        index.retire(&guard);
    }
}

#[test]
#[cfg_attr(miri, ignore = "a deep tree takes an interpreter too long")]
fn removal_in_any_order_leaves_one_empty_root() {
    let (_memory, local) = memory();
    let guard = local.pin();
    for order in 0..4u64 {
        let index = OrderedIndex::new(&guard).expect("memory is there");
        let count = 20_011u64;
        for number in 0..count {
            assert!(put(&index, Key8::new(number, 8), number + 1, &guard));
        }
        assert!(index.statistics(&guard).depth > 3);
        for step in 0..count {
            let number = match order {
                0 => step,
                1 => count - 1 - step,
                2 => step * 7919 % count,
                // From the middle to both sides.
                _ => (count / 2 + if step % 2 == 0 { step / 2 } else { count - 1 - step / 2 }) % count,
            };
            assert!(index.remove(Key8::new(number, 8), handle(number + 1), &guard));
            if step % 4000 == 0 {
                let mut all = Collect::default();
                index.scan(Bound::Unbounded, Bound::Unbounded, Direction::Backward, &mut all, &guard);
                assert_eq!(all.entries.len() as u64, count - 1 - step);
                assert!(all.entries.is_sorted_by(|left, right| left.0 > right.0));
            }
        }
        let rest = index.statistics(&guard);
        assert_eq!((rest.keys, rest.layers, rest.leaves, rest.interiors), (0, 1, 1, 0));
        index.retire(&guard);
    }
}

#[test]
fn bulk_load_agrees_with_insertion() {
    for seed in 1..=scaled(30, 2) as u64 {
        let (_memory, local) = memory();
        let guard = local.pin();
        let mut random = Random::new(seed);
        let mut model = Model::new();
        for step in 0..random.below(scaled(1500, 60)) {
            model.insert(random.key(), step as u64 + 1);
        }
        let fill = [0.0, 0.5, 0.7, 0.9, 1.0][random.below(5)];
        let sorted = model.iter().map(|(key, value)| (&key[..], handle(*value)));
        let index = OrderedIndex::bulk_load(sorted, fill, &guard).expect("the keys ascend");
        assert_eq!(index.statistics(&guard).keys, model.len());
        check_scan(&index, &model, &Bound::Unbounded, &Bound::Unbounded, None, &guard);
        for _ in 0..scaled(300, 8) {
            let key = random.key();
            assert_eq!(get(&index, &key[..], &guard), model.get(&key).copied());
            assert_eq!(put(&index, &key[..], 5, &guard), !model.contains_key(&key));
            model.entry(key).or_insert(5);
            let (lower, upper) = (bound(&mut random, &model), bound(&mut random, &model));
            check_scan(&index, &model, &lower, &upper, Some(10), &guard);
        }
        for (key, value) in &model {
            assert!(index.remove(&key[..], handle(*value), &guard));
        }
        assert_eq!(index.statistics(&guard).leaves, 1);
        index.retire(&guard);
    }
}

#[test]
fn bulk_load_refuses_keys_out_of_order() {
    let (_memory, local) = memory();
    let guard = local.pin();
    for (keys, position) in [(&["a", "c", "b"][..], 2), (&["a", "a"], 1), (&["x", "long key one", "z"], 1)] {
        let input = keys.iter().map(|key| (key.as_bytes(), handle(1)));
        let error = OrderedIndex::bulk_load(input, 1.0, &guard).expect_err("the keys do not ascend");
        assert_eq!(error, BulkLoadError::BadKey { position });
    }
    let long = vec![7; 1025];
    let error = OrderedIndex::bulk_load([(&long[..], handle(1))].into_iter(), 1.0, &guard);
    assert_eq!(error.expect_err("the key is too long"), BulkLoadError::BadKey { position: 0 });
}

#[test]
fn stamps_hold_across_removal_and_fail_after_insertion() {
    let count = scaled(1000, 100) as u64;
    let (_memory, local) = memory();
    let guard = local.pin();
    let index = OrderedIndex::new(&guard).expect("memory is there");
    for number in 0..count {
        assert!(put(&index, Key8::new(number * 2, 8), number + 1, &guard));
    }
    let mut seen = Collect::default();
    index.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward, &mut seen, &guard);
    let set = NodeSet(seen.stamps);
    for number in 0..count {
        assert!(index.replace(Key8::new(number * 2, 8), handle(number + 1), handle(number + 2), &guard));
        assert!(index.remove(Key8::new(number * 2, 8), handle(number + 2), &guard));
    }
    assert_eq!(index.statistics(&guard).leaves, 1);
    // SAFETY: the guard is alive.
    assert!(unsafe { set.holds() });
    assert!(put(&index, Key8::new(77, 8), 1, &guard));
    // Every leaf that was seen has handed its range to the one that is left.
    // SAFETY: as above.
    assert!(set.0.iter().all(|stamp| !unsafe { stamp.holds() }));
    index.retire(&guard);
}

/// Scans a range, works on the index, and compares what the node set says with what the model knows.
#[test]
fn node_sets_distinguish_own_insertions() {
    for seed in 1..=scaled(400, 2) as u64 {
        let (_memory, local) = memory();
        let guard = local.pin();
        let index = OrderedIndex::new(&guard).expect("memory is there");
        let mut random = Random::new(seed);
        let mut model = Model::new();
        for step in 0..random.below(120) as u64 {
            let key = random.key();
            put(&index, &key[..], step + 1, &guard);
            model.entry(key).or_insert(step + 1);
        }
        let (lower, upper) = (bound(&mut random, &model), bound(&mut random, &model));
        let direction = if random.below(2) == 0 { Direction::Forward } else { Direction::Backward };
        let mut seen = Collect::default();
        index.scan(as_slices(&lower), as_slices(&upper), direction, &mut seen, &guard);
        let mut set = NodeSet(seen.stamps);
        let absent = random.key();
        set.0.push(index.get(&absent[..], &guard).stamp);
        let absent_found = model.contains_key(&absent);

        for step in 0..150u64 {
            let key = random.key();
            if random.below(3) == 0 && !model.is_empty() {
                let (key, value) = model.iter().nth(random.below(model.len())).expect("there is one");
                let (key, value) = (key.clone(), *value);
                assert!(index.remove(&key[..], handle(value), &guard));
                model.remove(&key);
            } else {
                let inserted = index.insert(&key[..], handle(step + 1000), &mut set, &guard);
                assert!(inserted.is_ok());
                model.entry(key).or_insert(step + 1000);
            }
            // SAFETY: the guard is alive.
            let holds = unsafe { set.holds() };
            assert!(holds, "own insertions and removals leave the set valid (seed {seed}, step {step})");
        }

        let mut key = random.key();
        while model.contains_key(&key) {
            key = random.key();
        }
        let inside = in_range(&lower, &upper, &key) || (key == absent && !absent_found);
        assert!(put(&index, &key[..], 1, &guard));
        // SAFETY: as above.
        assert!(!inside || !unsafe { set.holds() }, "a foreign insertion into the range is seen (seed {seed})");
        index.retire(&guard);
    }
}

/// Changes the index under its own scan: the interleavings that threads rarely hit, repeatably.
struct Meddler<'m> {
    index: &'m OrderedIndex,
    guard: &'m Guard<'m>,
    random: Random,
    spread: fn(u64) -> Vec<u8>,
    numbers: u64,
    seen: Collect,
}

impl Meddler<'_> {
    fn meddle(&mut self) {
        if self.random.below(3) != 0 {
            return;
        }
        // Often close to where the scan is, so that the leaf it stands on, or a neighbour, is divided or goes.
        let first = match self.seen.entries.last() {
            Some((_, number)) if self.random.below(4) != 0 => number.saturating_sub(self.random.below(60) as u64),
            _ => self.random.below(self.numbers as usize) as u64,
        };
        let insert = self.random.below(2) == 0;
        for number in (first..first + 80).filter(|number| number % 40 != 0 && *number < self.numbers) {
            let key = (self.spread)(number);
            if insert {
                put(self.index, &key[..], number + 1, self.guard);
            } else {
                self.index.remove(&key[..], handle(number + 1), self.guard);
            }
        }
    }
}

impl Visitor for Meddler<'_> {
    fn node(&mut self, stamp: Stamp) {
        self.seen.node(stamp);
        self.meddle();
    }

    fn entry(&mut self, key: &[u8], handle: Handle) -> ControlFlow<()> {
        let flow = self.seen.entry(key, handle);
        self.meddle();
        flow
    }
}

#[test]
fn scans_survive_changes_under_them() {
    fn layered(number: u64) -> Vec<u8> {
        let mut key = (number / 30).to_be_bytes().to_vec();
        key.extend(number.to_be_bytes());
        key.truncate(9 + (number % 8) as usize);
        key.extend(number.to_be_bytes());
        key
    }
    let spreads: [fn(u64) -> Vec<u8>; 3] =
        [|number| number.to_be_bytes().to_vec(), layered, |number| vec![0; number as usize]];
    for (shape, spread) in spreads.into_iter().enumerate() {
        let numbers = if shape == 2 { scaled(400, 50) } else { scaled(2000, 120) } as u64;
        for seed in 1..=scaled(40, 2) as u64 {
            let (_memory, local) = memory();
            let guard = local.pin();
            let index = OrderedIndex::new(&guard).expect("memory is there");
            let mut stable: Vec<Vec<u8>> = (0..numbers).filter(|number| number % 40 == 0).map(spread).collect();
            for number in (0..numbers).filter(|number| number % 40 == 0 || seed % 2 == 0) {
                put(&index, &spread(number)[..], number + 1, &guard);
            }
            stable.sort_unstable();
            for direction in [Direction::Forward, Direction::Backward] {
                let random = Random::new(seed);
                let seen = Collect::default();
                let mut meddler = Meddler { index: &index, guard: &guard, random, spread, numbers, seen };
                index.scan(Bound::Unbounded, Bound::Unbounded, direction, &mut meddler, &guard);
                let mut found = meddler.seen.entries;
                if direction == Direction::Backward {
                    found.reverse();
                }
                assert!(found.is_sorted_by(|left, right| left.0 < right.0), "{direction:?} in order");
                let met: Vec<_> = found.into_iter().map(|entry| entry.0).filter(|key| stable.contains(key)).collect();
                assert_eq!(met, stable, "{direction:?} complete (shape {shape}, seed {seed})");
            }
            index.retire(&guard);
        }
    }
}
