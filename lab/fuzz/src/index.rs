//! Both indexes against a `BTreeMap`: every operation answers as the map does, and scans of both directions, lookups in
//! steps and the whole content are what the map has.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use polychron_base::key::{EncodedKey, HashSeed};
use polychron_index::hash::HashIndex;
use polychron_index::ordered::{Direction, OrderedIndex, Step, Visitor};
use polychron_index::{AnyIndex, Handle, Inserted, Stamp};
use polychron_memory::{Guard, Memory, Options};

use crate::input::Input;

type Model = BTreeMap<Vec<u8>, u64>;
type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

pub(crate) fn run_ordered(bytes: &[u8]) {
    run(bytes, make_ordered, |_| false);
}

pub(crate) fn run_hash(bytes: &[u8]) {
    run(bytes, make_hash, |_| false);
}

/// Forgets removals of some keys: wrong on purpose.
pub(crate) fn run_forgetful(bytes: &[u8]) {
    run(bytes, make_ordered, |key| key.len() == 9);
}

fn handle(value: u64) -> Handle {
    Handle::new(value).expect("values begin at one")
}

/// An index of these keys, loaded in bulk.
fn make_ordered(model: &Model, input: &mut Input<'_>, guard: &Guard<'_>) -> AnyIndex {
    let fill = f32::from(input.byte()) / 255.0;
    let pairs = model.iter().map(|(key, value)| (&key[..], handle(*value)));
    AnyIndex::Ordered(OrderedIndex::bulk_load(pairs, fill, guard).expect("the keys ascend"))
}

fn make_hash(model: &Model, input: &mut Input<'_>, guard: &Guard<'_>) -> AnyIndex {
    let pairs = model.iter().map(|(key, value)| (&key[..], handle(*value)));
    AnyIndex::Hash(HashIndex::bulk_load(pairs, input.below(100), HashSeed::FIXED, guard).expect("the keys differ"))
}

fn run(bytes: &[u8], make: fn(&Model, &mut Input<'_>, &Guard<'_>) -> AnyIndex, forgets: fn(&[u8]) -> bool) {
    let mut input = Input::new(bytes);
    let memory = Memory::new(Options { limit_bytes: Some(64 << 20), ..Options::tiny() }).expect("sound options");
    let local = memory.register().expect("a slot is free");
    let mut model: Model = (0..input.byte()).map(|value| (input.key(), u64::from(value) + 1)).collect();
    let index = make(&model, &mut input, &local.pin());
    let mut fresh = 1000;
    while !input.is_empty() {
        let guard = local.pin();
        let (choice, key) = (input.below(8), input.key());
        let present = model.get(&key).copied();
        fresh += 1;
        match choice {
            0..=2 => {
                let inserted = index.insert(&key[..], handle(fresh), &mut (), &guard).expect("memory is there");
                let existing = match inserted {
                    Inserted::New => None,
                    Inserted::Existing(found) => found.handle.map(Handle::get),
                };
                assert_eq!(existing, present, "insertion of {key:?}");
                model.entry(key).or_insert(fresh);
            }
            3 | 4 => {
                assert!(!index.remove(&key[..], handle(fresh), &guard), "removal of {key:?} by another handle");
                let expected = present.unwrap_or(fresh);
                let removed = forgets(&key) || index.remove(&key[..], handle(expected), &guard);
                assert!(removed == present.is_some() || forgets(&key), "removal of {key:?}");
                model.remove(&key);
            }
            5 => {
                let expected = present.unwrap_or(fresh);
                let replaced = index.replace(&key[..], handle(expected), handle(fresh), &guard);
                assert_eq!(replaced, present.is_some(), "replacement of {key:?}");
                model.entry(key).and_modify(|value| *value = fresh);
            }
            6 => check_key(&index, &model, &key, &guard),
            _ => check_range(&index, &model, &mut input, key, &guard),
        }
        memory.epochs().advance();
    }
    let guard = local.pin();
    model.keys().for_each(|key| check_key(&index, &model, key, &guard));
    check_all(&index, &model, &guard);
}

/// The key is found at once and in steps, or by neither.
fn check_key(index: &AnyIndex, model: &Model, key: &[u8], guard: &Guard<'_>) {
    let expected = model.get(key).copied();
    assert_eq!(index.get(key, guard).handle.map(Handle::get), expected, "lookup of {key:?}");
    if let AnyIndex::Ordered(index) = index {
        let mut cursor = index.start(key, guard);
        let staged = loop {
            if let Step::Done(found) = index.advance(&mut cursor, guard) {
                break found.handle.map(Handle::get);
            }
        };
        assert_eq!(staged, expected, "lookup of {key:?} in steps");
    }
}

/// Collects up to a limit of entries.
struct Collect {
    entries: Vec<(Vec<u8>, u64)>,
    limit: usize,
}

impl Visitor for Collect {
    fn node(&mut self, _: Stamp) {}

    fn entry(&mut self, key: &[u8], handle: Handle) -> ControlFlow<()> {
        self.entries.push((key.to_vec(), handle.get()));
        if self.entries.len() < self.limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

fn scan(
    index: &OrderedIndex,
    range: &Range,
    direction: Direction,
    limit: usize,
    guard: &Guard<'_>,
) -> Vec<(Vec<u8>, u64)> {
    let mut seen = Collect { entries: Vec::new(), limit };
    let (lower, upper) = (range.0.as_ref().map(Vec::as_slice), range.1.as_ref().map(Vec::as_slice));
    index.scan(lower, upper, direction, &mut seen, guard);
    seen.entries
}

fn check_range(index: &AnyIndex, model: &Model, input: &mut Input<'_>, key: Vec<u8>, guard: &Guard<'_>) {
    let AnyIndex::Ordered(index) = index else { return check_all(index, model, guard) };
    let mut bound =
        |key: Vec<u8>| [Bound::Included(key.clone()), Bound::Excluded(key), Bound::Unbounded][input.below(3)].clone();
    let range = (bound(key), bound(input_key(model)));
    let (direction, limit) = if input.flag() { (Direction::Forward, 3) } else { (Direction::Backward, usize::MAX) };
    let inside = model.iter().filter(|(key, _)| is_inside(key, &range)).map(|(key, value)| (key.clone(), *value));
    let mut expected: Vec<_> = inside.collect();
    if direction == Direction::Backward {
        expected.reverse();
    }
    expected.truncate(limit);
    assert_eq!(scan(index, &range, direction, limit, guard), expected, "{direction:?} scan of {range:?}");
}

/// A bound that is a key now and then: the middle one of those that are there.
fn input_key(model: &Model) -> Vec<u8> {
    model.keys().nth(model.len() / 2).cloned().unwrap_or_default()
}

fn is_inside(key: &[u8], range: &Range) -> bool {
    let above = match &range.0 {
        Bound::Included(bound) => key >= &bound[..],
        Bound::Excluded(bound) => key > &bound[..],
        Bound::Unbounded => true,
    };
    let below = match &range.1 {
        Bound::Included(bound) => key <= &bound[..],
        Bound::Excluded(bound) => key < &bound[..],
        Bound::Unbounded => true,
    };
    above && below
}

/// The whole content is the map's.
fn check_all(index: &AnyIndex, model: &Model, guard: &Guard<'_>) {
    let mut entries = match index {
        AnyIndex::Ordered(index) => {
            scan(index, &(Bound::Unbounded, Bound::Unbounded), Direction::Forward, usize::MAX, guard)
        }
        AnyIndex::Hash(index) => hashed(index, guard),
    };
    if matches!(index, AnyIndex::Hash(_)) {
        entries.sort();
    }
    let expected: Vec<_> = model.iter().map(|(key, value)| (key.clone(), *value)).collect();
    assert_eq!(entries, expected, "the whole content");
}

fn hashed(index: &HashIndex, guard: &Guard<'_>) -> Vec<(Vec<u8>, u64)> {
    let mut all = Vec::new();
    index.for_each(
        |_, entries| {
            for entry in entries {
                let mut key = vec![0; EncodedKey::len(&entry.key)];
                EncodedKey::write_to(&entry.key, &mut key);
                all.push((key, entry.handle.get()));
            }
        },
        guard,
    );
    all
}
