//! The hash index under threads: growth stops no thread, no key is lost or doubled, no phantom passes.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use polychron_base::key::{EncodedKey, HashSeed, Key8, Key16};
use polychron_base::sizes::{SHRINK, scaled, slowed};
use polychron_index::hash::HashIndex;
use polychron_index::{Change, Changes, Handle, Inserted, Stamp};
use polychron_memory::{Guard, Memory, Options};
use polychron_sync::atomic::{AtomicU64, Ordering};

/// An interpreter meets several growths with few keys, and takes minutes for as many as others do.
const KEYS: u64 = if SHRINK < 200 { scaled(200_000, 40) as u64 } else { 200 };
const ROUNDS: usize = scaled(5_000, 20);

fn memory() -> Arc<Memory> {
    let epoch_interval = Some(slowed(Duration::from_millis(10)));
    Memory::new(Options { epoch_interval, max_workers: 8, ..Options::default() }).unwrap()
}

fn handle(value: u64) -> Handle {
    Handle::new(value).unwrap()
}

/// Keys of all kinds: 8 bytes, 3 bytes, and 16 bytes.
fn with_key<R>(n: u64, operation: impl Fn(&dyn Fn(&HashIndex, &Guard<'_>, Call) -> bool) -> R) -> R {
    fn call<K: EncodedKey>(key: K, index: &HashIndex, guard: &Guard<'_>, call: Call) -> bool {
        match call {
            Call::Insert(handle) => {
                matches!(index.insert(key, handle, &mut (), guard).expect("memory"), Inserted::New)
            }
            Call::Remove(handle) => index.remove(key, handle, guard),
            Call::Replace(old, new) => index.replace(key, old, new, guard),
            Call::IsOneOf(one, other) => {
                let found = index.get(key, guard).handle;
                found == Some(one) || found == Some(other)
            }
            Call::IsAbsent => index.get(key, guard).handle.is_none(),
        }
    }
    match n % 3 {
        0 => operation(&|index, guard, what| call(Key8::new(n, 8), index, guard, what)),
        1 => operation(&|index, guard, what| call(Key8::new(n, 3), index, guard, what)),
        _ => operation(&|index, guard, what| call(Key16::new(u128::from(n) << 40, 16), index, guard, what)),
    }
}

#[derive(Clone, Copy)]
enum Call {
    Insert(Handle),
    Remove(Handle),
    Replace(Handle, Handle),
    IsOneOf(Handle, Handle),
    IsAbsent,
}

/// Two threads insert and replace from nothing, so that the index doubles many times; two threads watch that what was
/// inserted is found and what was not is absent; then the writers remove half of it.
#[test]
fn readers_and_writers_pass_through_growth() {
    let memory = memory();
    let local = memory.register().unwrap();
    let mut index = HashIndex::new(0, HashSeed::FIXED, &local.pin()).unwrap();
    let progress = [AtomicU64::new(0), AtomicU64::new(0)];
    let new = |n| handle(n + 1);
    let newer = |n| handle(n + 1 + KEYS);
    thread::scope(|scope| {
        for writer in 0..2_u64 {
            let (index, memory, progress) = (&index, &memory, &progress);
            scope.spawn(move || {
                let local = memory.register().unwrap();
                for n in (writer..KEYS).step_by(2) {
                    let guard = local.pin();
                    assert!(with_key(n, |on| on(index, &guard, Call::Insert(new(n)))));
                    assert!(!with_key(n, |on| on(index, &guard, Call::Insert(newer(n)))));
                    // Release pairs with the acquire of the watching threads.
                    progress[writer as usize].store(n + 1, Ordering::Release);
                    assert!(with_key(n, |on| on(index, &guard, Call::Replace(new(n), newer(n)))));
                }
            });
            scope.spawn(move || {
                let local = memory.register().unwrap();
                loop {
                    let guard = local.pin();
                    let inserted = progress[writer as usize].load(Ordering::Acquire);
                    // A stride that visits all places in the end, and absent keys beyond the last one.
                    for n in (writer..inserted).step_by(74) {
                        assert!(with_key(n, |on| on(index, &guard, Call::IsOneOf(new(n), newer(n)))));
                        assert!(with_key(n + 3 * KEYS, |on| on(index, &guard, Call::IsAbsent)));
                    }
                    if inserted + 2 > KEYS {
                        break;
                    }
                }
            });
        }
    });
    let guard = local.pin();
    assert_eq!(index.statistics(&guard).keys as u64, KEYS);
    thread::scope(|scope| {
        for writer in 0..2_u64 {
            let (index, memory) = (&index, &memory);
            scope.spawn(move || {
                let local = memory.register().unwrap();
                let guard = local.pin();
                for n in (0..KEYS).filter(|n| n / 2 % 2 == writer && n % 2 == 0) {
                    assert!(with_key(n, |on| on(index, &guard, Call::Remove(newer(n)))));
                    assert!(with_key(n, |on| on(index, &guard, Call::IsAbsent)));
                    assert!(with_key(n + 1, |on| on(index, &guard, Call::IsOneOf(newer(n + 1), newer(n + 1)))));
                }
            });
        }
    });
    assert_eq!(index.statistics(&guard).keys as u64, KEYS / 2);
    // SAFETY: the other threads have ended.
    unsafe { index.destroy(&guard) };
}

/// Of threads that insert the same keys, one succeeds for each key.
#[test]
fn one_of_many_inserts_succeeds() {
    let memory = memory();
    let local = memory.register().unwrap();
    let mut index = HashIndex::new(0, HashSeed::FIXED, &local.pin()).unwrap();
    let successes = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 1..=3_u64 {
            let (index, memory, successes) = (&index, &memory, &successes);
            scope.spawn(move || {
                let local = memory.register().unwrap();
                for n in 0..KEYS / 4 {
                    let guard = local.pin();
                    let won = with_key(n, |on| on(index, &guard, Call::Insert(handle(thread))));
                    successes.fetch_add(u64::from(won), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(successes.load(Ordering::Relaxed), KEYS / 4);
    let guard = local.pin();
    assert_eq!(index.statistics(&guard).keys as u64, KEYS / 4);
    // SAFETY: the other threads have ended.
    unsafe { index.destroy(&guard) };
}

/// The node set of one lookup and what became of it.
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

/// Two threads each look for the other's key, find it absent, insert their own, and validate: never may both commit. The
/// index grows meanwhile.
#[test]
fn of_two_crossing_insertions_one_is_seen() {
    let memory = memory();
    let local = memory.register().unwrap();
    let mut index = HashIndex::new(0, HashSeed::FIXED, &local.pin()).unwrap();
    let barrier = Barrier::new(2);
    let committed: Vec<[AtomicU64; 2]> = (0..ROUNDS).map(|_| [AtomicU64::new(0), AtomicU64::new(0)]).collect();
    thread::scope(|scope| {
        for me in 0..2_usize {
            let (index, memory, barrier, committed) = (&index, &memory, &barrier, &committed);
            scope.spawn(move || {
                let local = memory.register().unwrap();
                let key = |round: usize, of: usize| Key8::new((2 * round + of) as u64 * 0x9E37_79B9, 8);
                for (round, outcome) in committed.iter().enumerate() {
                    barrier.wait();
                    let guard = local.pin();
                    let seen = index.get(key(round, 1 - me), &guard);
                    let mut own = NodeSet(vec![seen.stamp]);
                    index.insert(key(round, me), handle(1), &mut own, &guard).unwrap();
                    // SAFETY: the guard is alive.
                    let valid = own.0.iter().all(|stamp| unsafe { stamp.holds() });
                    outcome[me].store(u64::from(seen.handle.is_none() && valid), Ordering::Relaxed);
                }
            });
        }
    });
    for outcome in &committed {
        assert!(outcome.iter().map(|one| one.load(Ordering::Relaxed)).sum::<u64>() < 2);
    }
    // SAFETY: the other threads have ended.
    unsafe { index.destroy(&local.pin()) };
}

/// Scans during growth show every key that was there before and is not removed, exactly once.
#[test]
fn scans_during_growth_show_each_key_once() {
    let memory = memory();
    let local = memory.register().unwrap();
    let mut index = HashIndex::new(0, HashSeed::FIXED, &local.pin()).unwrap();
    let old = KEYS / 100;
    for n in 0..old {
        assert!(with_key(n, |on| on(&index, &local.pin(), Call::Insert(handle(n + 1)))));
    }
    thread::scope(|scope| {
        let (index, memory) = (&index, &memory);
        let writer = scope.spawn(move || {
            let local = memory.register().unwrap();
            for n in old..KEYS {
                assert!(with_key(n, |on| on(index, &local.pin(), Call::Insert(handle(n + 1)))));
            }
        });
        loop {
            let last = writer.is_finished();
            let guard = local.pin();
            let mut seen = Vec::new();
            index.for_each(|_, entries| seen.extend(entries.iter().map(|entry| entry.handle.get())), &guard);
            seen.sort_unstable();
            assert!(seen.windows(2).all(|pair| pair[0] < pair[1]));
            assert!(seen.len() as u64 >= old && seen[..old as usize].iter().copied().eq(1..=old));
            if last {
                assert_eq!(seen.len() as u64, KEYS);
                break;
            }
        }
    });
    // SAFETY: the other thread has ended.
    unsafe { index.destroy(&local.pin()) };
}
