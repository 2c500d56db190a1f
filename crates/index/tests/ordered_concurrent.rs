//! The ordered index under several threads.

mod ordered_common;

use ordered_common::{Collect, NodeSet, Random, handle};
use polychron_base::key::Key8;
use polychron_base::sizes::{SHRINK, scaled, slowed};
use polychron_index::Inserted;
use polychron_index::ordered::{Direction, Finger, OrderedIndex, Step};
use polychron_memory::{Guard, Local, Memory, Options};
use polychron_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::ops::Bound;
use std::sync::{Arc, Barrier};
use std::time::Duration;

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

/// Epochs fly, so that what is retired too early is reused under some thread's feet.
fn options() -> Options {
    Options {
        limit_bytes: Some(1 << 30),
        huge_pages: false,
        epoch_interval: Some(slowed(Duration::from_micros(100))),
        ..Options::default()
    }
}

/// Runs every closure on a thread of its own with a guard factory; the last ones watch until the first `workers` are done.
struct Bench {
    memory: Arc<Memory>,
    index: OrderedIndex,
    running: AtomicU64,
}

impl Bench {
    fn new() -> Self {
        let memory = Memory::new(options()).expect("the options are sound");
        let local = memory.register().expect("a worker slot is free");
        let index = OrderedIndex::new(&local.pin()).expect("memory is there");
        Self { memory, index, running: AtomicU64::new(0) }
    }

    /// Each worker runs once; each watcher is repeated, with a new guard each time, until all workers are done.
    fn run(&self, workers: &[&(dyn Fn(&Local) + Sync)], watchers: &[&(dyn Fn(&Guard<'_>) + Sync)]) {
        self.running.store(workers.len() as u64, Ordering::SeqCst);
        std::thread::scope(|scope| {
            for worker in workers {
                scope.spawn(|| {
                    let _done = Done(&self.running);
                    let local = self.memory.register().expect("a worker slot is free");
                    worker(&local);
                });
            }
            for watcher in watchers {
                scope.spawn(|| {
                    let local = self.memory.register().expect("a worker slot is free");
                    loop {
                        let last = self.running.load(Ordering::SeqCst) == 0;
                        watcher(&local.pin());
                        if last {
                            return;
                        }
                    }
                });
            }
        });
    }

    fn end(self) {
        let local = self.memory.register().expect("a worker slot is free");
        self.index.retire(&local.pin());
        for _ in 0..4 {
            self.memory.epochs().advance();
            drop(local.pin());
            local.collect();
        }
        assert_eq!(self.memory.statistics().used_bytes, 0, "everything was given back");
    }
}

struct Done<'b>(&'b AtomicU64);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn put(index: &OrderedIndex, key: &[u8], value: u64, guard: &Guard<'_>) -> bool {
    matches!(index.insert(key, handle(value), &mut (), guard).expect("memory is there"), Inserted::New)
}

/// Keys that are there all the time have even numbers, the others come and go. `spread` makes keys of a number.
fn come_and_go(spread: fn(u64) -> Vec<u8>, numbers: u64, rounds: usize) {
    // Those that watch look at all keys, and take most of an interpreter's time.
    let (numbers, rounds) = if SHRINK < 200 { (numbers, scaled(rounds, 20) as u64) } else { (numbers.min(210), 8) };
    let bench = Bench::new();
    let index = &bench.index;
    let stable: Vec<Vec<u8>> = {
        let local = bench.memory.register().expect("a worker slot is free");
        let guard = local.pin();
        let mut stable: Vec<_> = (0..numbers).filter(|number| number % 7 == 0).map(spread).collect();
        stable.iter().for_each(|key| assert!(put(index, key, 1, &guard)));
        stable.sort_unstable();
        stable
    };
    let worker = |seed: u64, local: &Local| {
        let mut random = Random::new(seed);
        for round in 0..rounds {
            // A run of neighbours comes or goes, so that whole leaves and layers fill and empty. Both workers take the
            // same runs; what one has not inserted it may still remove.
            let first = random.below(numbers as usize) as u64;
            let insert = random.below(2) == 0;
            let guard = &local.pin();
            let mut finger = Finger::default();
            for number in (first..(first + 40).min(numbers)).filter(|number| number % 7 != 0) {
                let key = spread(number);
                if insert {
                    // SAFETY: the finger was set under this guard by this index.
                    let put =
                        unsafe { index.insert_near(&key[..], handle(2 + seed + round), &mut finger, &mut (), guard) };
                    put.expect("memory is there");
                } else if let Some(present) = index.get(&key[..], guard).handle {
                    index.remove(&key[..], present, guard);
                }
            }
        }
    };
    let find = |guard: &Guard<'_>| {
        let mut finger = Finger::default();
        for key in &stable {
            assert_eq!(index.get(&key[..], guard).handle, Some(handle(1)), "{key:?}");
            // SAFETY: as above.
            let near = unsafe { index.get_near(&key[..], &mut finger, guard) };
            assert_eq!(near.handle, Some(handle(1)), "{key:?}");
        }
        let mut cursors: Vec<_> = stable.iter().map(|key| index.start(&key[..], guard)).collect();
        while !cursors.is_empty() {
            cursors.retain_mut(|cursor| match index.advance(cursor, guard) {
                Step::Pending => true,
                Step::Done(found) => {
                    assert_eq!(found.handle, Some(handle(1)));
                    false
                }
            });
        }
    };
    let scan = |guard: &Guard<'_>| {
        for direction in [Direction::Forward, Direction::Backward] {
            let mut found = Collect::default();
            index.scan(ALL.0, ALL.1, direction, &mut found, guard);
            if direction == Direction::Backward {
                found.entries.reverse();
            }
            assert!(found.entries.is_sorted_by(|left, right| left.0 < right.0), "{direction:?} scan in order");
            let seen: Vec<_> = found.entries.into_iter().filter(|entry| entry.1 == 1).map(|entry| entry.0).collect();
            assert_eq!(seen, stable, "{direction:?} scan is complete");
        }
    };
    bench.run(&[&|local| worker(11, local), &|local| worker(12, local)], &[&find, &scan]);

    remove_all(&bench);
    bench.end();
}

/// Removes what is there and checks that one empty root is left.
fn remove_all(bench: &Bench) {
    let index = &bench.index;
    let local = bench.memory.register().expect("a worker slot is free");
    let guard = local.pin();
    let mut rest = Collect::default();
    index.scan(ALL.0, ALL.1, Direction::Forward, &mut rest, &guard);
    assert_eq!(index.statistics(&guard).keys, rest.entries.len());
    for (key, value) in rest.entries {
        assert!(index.remove(&key[..], handle(value), &guard));
    }
    let statistics = index.statistics(&guard);
    assert_eq!((statistics.keys, statistics.layers, statistics.leaves, statistics.interiors), (0, 1, 1, 0));
}

#[test]
fn short_keys_come_and_go() {
    come_and_go(|number| number.to_be_bytes().to_vec(), 1400, 6000);
}

#[test]
fn a_few_keys_come_and_go() {
    come_and_go(|number| number.to_be_bytes().to_vec(), 49, 20_000);
}

#[test]
fn layers_come_and_go() {
    // Three slices with runs of equal first and second ones.
    fn spread(number: u64) -> Vec<u8> {
        let mut key = (number / 60).to_be_bytes().to_vec();
        key.extend((number / 4).to_be_bytes());
        key.extend(vec![number as u8; 1 + number as usize % 10]);
        key
    }
    come_and_go(spread, 1400, 6000);
}

#[test]
fn prefixes_come_and_go() {
    // Every key is a prefix of those after it: a chain of layers.
    come_and_go(|number| vec![0; number as usize], 200, 6000);
}

/// Removal in the background takes leaves, interior nodes and layers out, and no stamp fails by it.
#[test]
fn background_removal_fails_no_stamp() {
    fn key(number: u64) -> Vec<u8> {
        let mut key = (number / 50).to_be_bytes().to_vec();
        key.extend(number.to_be_bytes());
        key
    }
    let bench = Bench::new();
    let index = &bench.index;
    let keys = 2 * scaled(1500, 60) as u64;
    for round in 0..if SHRINK > 1 { 2 } else { 12 } {
        let local = bench.memory.register().expect("a worker slot is free");
        let guard = local.pin();
        (0..keys).for_each(|number| assert!(put(index, &key(number), 1, &guard)));
        let remove = |part: u64, local: &Local| {
            let guard = &local.pin();
            for step in 0..keys / 2 {
                let number = if round % 2 == 0 { 2 * step + part } else { 2 * (step * 7 % (keys / 2)) + part };
                assert!(index.remove(&key(number)[..], handle(1), guard));
            }
        };
        let watch = |guard: &Guard<'_>| {
            let mut sets = NodeSet::default();
            for direction in [Direction::Forward, Direction::Backward] {
                let mut seen = Collect::default();
                index.scan(ALL.0, ALL.1, direction, &mut seen, guard);
                sets.0.extend(seen.stamps);
            }
            sets.0.push(index.get(&key(1234)[..], guard).stamp);
            for _ in 0..20 {
                // SAFETY: the guard is alive.
                assert!(unsafe { sets.holds() });
            }
        };
        bench.run(&[&|local| remove(0, local), &|local| remove(1, local)], &[&watch]);
        assert_eq!(index.statistics(&guard).leaves, 1);
    }
    bench.end();
}

/// As long as the stamps of a scan hold, no key has come into the range, whatever else happened.
#[test]
fn stamps_that_hold_mean_that_nothing_came() {
    fn key(number: u64) -> Vec<u8> {
        let mut key = (number / 16).to_be_bytes().to_vec();
        key.extend(vec![7; number as usize % 16]);
        key
    }
    let bench = Bench::new();
    let index = &bench.index;
    let held = AtomicU64::new(0);
    let work = |seed: u64, local: &Local| {
        let mut random = Random::new(seed);
        for _ in 0..scaled(10_000, 20) {
            let guard = &local.pin();
            let first = random.below(400) as u64;
            let insert = random.below(3) == 0;
            for number in first..first + random.below(30) as u64 {
                if insert {
                    put(index, &key(number), 1 + random.next() % 1000, guard);
                } else if let Some(present) = index.get(&key(number)[..], guard).handle {
                    index.remove(&key(number)[..], present, guard);
                }
            }
        }
    };
    let watch = |seed: u64, guard: &Guard<'_>| {
        let mut random = Random::new(seed + held.load(Ordering::Relaxed));
        let (low, high) = (key(random.below(200) as u64), key(200 + random.below(200) as u64));
        let bounds = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
        let direction = if random.below(2) == 0 { Direction::Forward } else { Direction::Backward };
        let mut first = Collect::default();
        index.scan(bounds.0, bounds.1, direction, &mut first, guard);
        let mut second = Collect::default();
        index.scan(bounds.0, bounds.1, direction, &mut second, guard);
        let set = NodeSet(first.stamps);
        // SAFETY: the guard is alive.
        if unsafe { set.holds() } {
            held.fetch_add(1, Ordering::Relaxed);
            let known: std::collections::BTreeSet<_> = first.entries.iter().map(|entry| &entry.0).collect();
            assert!(second.entries.iter().all(|entry| known.contains(&entry.0)));
        }
    };
    bench.run(
        &[&|local| work(5, local), &|local| work(6, local)],
        &[&|guard| watch(1, guard), &|guard| watch(2, guard)],
    );
    bench.end();
}

/// Of two transactions that each insert what the other found absent, at least one sees the other.
#[test]
fn crossed_insertions_are_seen() {
    let rounds = scaled(10_000, 10);
    let spaced = scaled(2000, 40) as u64;
    let bench = Bench::new();
    let index = &bench.index;
    {
        let local = bench.memory.register().expect("a worker slot is free");
        let guard = local.pin();
        (0..spaced).for_each(|number| assert!(put(index, &(number * 1000).to_be_bytes(), 1, &guard)));
    }
    let barrier = Barrier::new(2);
    let saw_other = [const { AtomicBool::new(false) }; 2];
    let transact = |own: usize, local: &Local| {
        let mut random = Random::new(99);
        for _ in 0..rounds {
            // Both draw the same two keys; sometimes they lie in one leaf.
            let base = random.next() % 2_000_000;
            let distance = if random.below(2) == 0 { 1 } else { 100_000 };
            let keys = [Key8::new(base * 2 + 1, 8), Key8::new((base + distance) * 2 + 1, 8)];
            let guard = &local.pin();
            let other = index.get(keys[1 - own], guard);
            let mut set = NodeSet(vec![other.stamp]);
            barrier.wait();
            let inserted = index.insert(keys[own], handle(7), &mut set, guard).expect("memory is there");
            // SAFETY: the guard is alive.
            let holds = unsafe { set.holds() };
            let fresh = matches!(inserted, Inserted::New) && other.handle.is_none();
            saw_other[own].store(!holds || !fresh, Ordering::SeqCst);
            barrier.wait();
            assert!(saw_other[0].load(Ordering::SeqCst) || saw_other[1].load(Ordering::SeqCst));
            barrier.wait();
        }
    };
    bench.run(&[&|local| transact(0, local), &|local| transact(1, local)], &[]);
    bench.end();
}

/// Of all threads that insert the same key exactly one succeeds, and nothing is lost.
#[test]
fn insertions_of_the_same_keys_have_one_winner() {
    let bench = Bench::new();
    let index = &bench.index;
    let wins = AtomicU64::new(0);
    let keys = scaled(8000, 30);
    let insert = |seed: u64, local: &Local| {
        let mut random = Random::new(seed);
        let mut order: Vec<u64> = (0..keys as u64).collect();
        if seed.is_multiple_of(2) {
            (0..order.len()).for_each(|at| order.swap(at, random.below(keys)));
        }
        let guard = &local.pin();
        for number in &order {
            if put(index, &(number / 3).to_be_bytes().repeat(1 + (number % 3) as usize), seed, guard) {
                wins.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    bench.run(&[&|local| insert(1, local), &|local| insert(2, local), &|local| insert(3, local)], &[]);
    assert_eq!(wins.load(Ordering::SeqCst), keys as u64);
    let local = bench.memory.register().expect("a worker slot is free");
    assert_eq!(index.statistics(&local.pin()).keys, keys);
    remove_all(&bench);
    bench.end();
}
