//! The ordered index when memory runs out, and what it gives back.

mod ordered_common;

use ordered_common::{Collect, Random, handle};
use polychron_base::sizes::scaled;
use polychron_index::Inserted;
use polychron_index::ordered::{BulkLoadError, Direction, OrderedIndex};
use polychron_memory::{Local, Memory, Options};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Memory that is soon full.
const LITTLE: usize = scaled(1 << 20, 64 << 10);

fn tiny(limit_bytes: usize) -> (Arc<Memory>, Local) {
    let options = Options { limit_bytes: Some(limit_bytes), ..Options::tiny() };
    let memory = Memory::new(options).expect("the options are sound");
    let local = memory.register().expect("a worker slot is free");
    (memory, local)
}

/// Lets the epochs pass that retired memory waits for.
fn quiesce(memory: &Memory, local: &Local) {
    for _ in 0..4 {
        memory.epochs().advance();
        drop(local.pin());
        local.collect();
    }
}

fn contents(index: &OrderedIndex, local: &Local) -> BTreeMap<Vec<u8>, u64> {
    let mut all = Collect::default();
    index.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward, &mut all, &local.pin());
    all.entries.into_iter().collect()
}

#[test]
fn an_insertion_that_finds_no_memory_changes_nothing() {
    let (memory, local) = tiny(LITTLE);
    let index = OrderedIndex::new(&local.pin()).expect("memory is there");
    let mut model = BTreeMap::new();
    let mut refusals = 0;
    let seeds = scaled(40, 1) as u64;
    for seed in 1..=seeds {
        let mut random = Random::new(seed);
        loop {
            let mut key = random.key();
            if random.below(2) == 0 {
                key.splice(0..0, random.next().to_be_bytes());
                key.truncate(1024);
            }
            let guard = local.pin();
            let mut changes = 0;
            struct Count<'c>(&'c mut usize);
            impl polychron_index::Changes for Count<'_> {
                fn change(&mut self, _: polychron_index::Change) {
                    *self.0 += 1;
                }
            }
            match index.insert(&key[..], handle(seed), &mut Count(&mut changes), &guard) {
                Ok(Inserted::New) => assert_eq!(model.insert(key, seed), None),
                Ok(Inserted::Existing(found)) => assert_eq!(found.handle.map(u64::from), model.get(&key).copied()),
                Err(_) => {
                    assert_eq!(changes, 0);
                    assert_eq!(index.get(&key[..], &guard).handle, None);
                    refusals += 1;
                    break;
                }
            }
        }
        assert_eq!(contents(&index, &local), model);
        let part = 1 + model.len() / 10;
        for _ in 0..part {
            let (key, value) = model.pop_first().expect("there are keys");
            assert!(index.remove(&key[..], handle(value), &local.pin()));
        }
        quiesce(&memory, &local);
    }
    assert_eq!(refusals, seeds);
    for (key, value) in &model {
        assert!(index.remove(&key[..], handle(*value), &local.pin()));
    }
    quiesce(&memory, &local);
    let rest = index.statistics(&local.pin());
    assert_eq!((rest.keys, rest.leaves, rest.interiors), (0, 1, 0));
    assert_eq!(memory.statistics().used_bytes, rest.bytes);
    index.retire(&local.pin());
    quiesce(&memory, &local);
    assert_eq!(memory.statistics().used_bytes, 0);
}

#[test]
fn bulk_load_that_fails_gives_everything_back() {
    let (memory, local) = tiny(LITTLE);
    let mut random = Random::new(3);
    let count = scaled(20_000, 1500) as u64;
    let mut keys: Vec<_> = (0..count).map(|_| random.key()).collect();
    keys.extend((0..count).map(|number| number.to_be_bytes().repeat(3)));
    keys.sort_unstable();
    keys.dedup();
    let guard = local.pin();
    let input = keys.iter().map(|key| (&key[..], handle(1)));
    let error = OrderedIndex::bulk_load(input, 0.8, &guard).expect_err("the memory is not enough");
    assert!(matches!(error, BulkLoadError::OutOfMemory(_)));
    assert_eq!(memory.statistics().used_bytes, 0);
    let fitting = scaled(1200, 120);
    for wrong in [1, 5, fitting / 12, fitting / 12 * 10] {
        let mut part = keys[..fitting].to_vec();
        part.swap(wrong, wrong - 1);
        let input = part.iter().map(|key| (&key[..], handle(1)));
        let error = OrderedIndex::bulk_load(input, 0.8, &guard).expect_err("two keys are swapped");
        assert!(matches!(error, BulkLoadError::BadKey { .. }));
        assert_eq!(memory.statistics().used_bytes, 0);
    }
}

#[test]
fn destroying_gives_everything_back_at_once() {
    let (memory, local) = tiny(8 << 20);
    let guard = local.pin();
    let index = OrderedIndex::new(&guard).expect("memory is there");
    let mut random = Random::new(9);
    for number in 1..scaled(4000, 400) as u64 {
        index.insert(&random.key()[..], handle(number), &mut (), &guard).expect("memory is there");
    }
    let before = index.statistics(&guard);
    assert!(before.layers > 10 && before.interiors > 0, "{before:?}");
    // SAFETY: this is the only guard.
    unsafe { index.destroy(&guard) };
    // What the insertions replaced was retired and waits for the guard.
    drop(guard);
    quiesce(&memory, &local);
    assert_eq!(memory.statistics().used_bytes, 0);
}
