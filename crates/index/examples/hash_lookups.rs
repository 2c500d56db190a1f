//! Lookups a second in a hash index of 8-byte keys, beside a bare array of buckets without concurrency control.
//!
//! `cargo run --release -p polychron-index --example hash_lookups [millions of keys]`

use std::hint::black_box;
use std::time::Instant;

use polychron_base::key::{EncodedKey, HashSeed, Key8};
use polychron_index::Handle;
use polychron_index::hash::HashIndex;
use polychron_memory::{Guard, Memory, Options};

const LOOKUPS: usize = 4_000_000;
const ROUNDS: usize = 5;
const AHEAD: usize = 16;

/// The bare loop: buckets of a cache line with three keys and three values, filled once, in the same kind of memory.
struct Bare<'g>(&'g mut [Line]);

#[repr(C, align(64))]
struct Line {
    keys: [u64; 3],
    values: [u64; 3],
}

impl<'g> Bare<'g> {
    fn index_of(&self, key: Key8) -> usize {
        ((u128::from(key.hash(HashSeed::FIXED)) * self.0.len() as u128) >> 64) as usize
    }

    fn load(keys: usize, guard: &'g Guard<'_>) -> Self {
        let lines = keys - keys / 5;
        let place = guard.allocate(lines * size_of::<Line>()).expect("memory for the bare array").cast::<Line>();
        // SAFETY: the allocation is large enough and aligned to 64 as its size is; zeros are valid lines. It is never freed.
        let bare = unsafe {
            place.write_bytes(0, lines);
            std::slice::from_raw_parts_mut(place.as_ptr(), lines)
        };
        let bare = Self(bare);
        for n in 1..=keys as u64 {
            let mut index = bare.index_of(key(n));
            let slot = loop {
                match bare.0[index].values.iter().position(|value| *value == 0) {
                    Some(slot) => break slot,
                    None => index = (index + 1) % bare.0.len(),
                }
            };
            bare.0[index].keys[slot] = key(n).slice(0);
            bare.0[index].values[slot] = n;
        }
        bare
    }

    fn get(&self, key: Key8) -> u64 {
        let mut index = self.index_of(key);
        loop {
            let line = &self.0[index];
            for slot in 0..3 {
                if line.keys[slot] == key.slice(0) {
                    return line.values[slot];
                }
            }
            index = (index + 1) % self.0.len();
        }
    }

    fn prefetch(&self, key: Key8) {
        prefetch(&raw const self.0[self.index_of(key)]);
    }
}

#[cfg(target_arch = "x86_64")]
fn prefetch(line: *const Line) {
    // SAFETY: a prefetch reads nothing.
    unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast()) };
}

#[cfg(not(target_arch = "x86_64"))]
fn prefetch(_: *const Line) {}

/// Keys are scattered, so that buckets fill unevenly, as with keys that have no order.
fn key(n: u64) -> Key8 {
    let n = (n ^ (n << 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    Key8::new((n ^ (n >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93), 8)
}

fn draws(limit: u64, seed: u64) -> impl Iterator<Item = u64> {
    let mut state = 88_172_645_463_325_252 ^ seed;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        1 + ((u128::from(state) * u128::from(limit)) >> 64) as u64
    })
    .take(LOOKUPS)
}

/// Millions of lookups a second: each waiting for the one before, overlapped by the processor, and prefetched ahead.
fn measure(limit: u64, seed: u64, get: impl Fn(Key8) -> u64, prefetch: impl Fn(Key8)) -> [f64; 3] {
    let rate = |start: Instant| LOOKUPS as f64 / start.elapsed().as_secs_f64() / 1e6;
    let start = Instant::now();
    let mut last = 0;
    for n in draws(limit, seed) {
        // The value found decides, in the processor's eyes, what is looked up next.
        last = get(key(n ^ (black_box(last) >> 63)));
    }
    let one_by_one = rate(start);
    let start = Instant::now();
    let mut sum = last;
    for n in draws(limit, seed + 1) {
        sum = sum.wrapping_add(get(key(n)));
    }
    let overlapped = rate(start);
    let start = Instant::now();
    let mut ring = [key(1); AHEAD];
    for (position, n) in draws(limit, seed + 2).enumerate() {
        let place = &mut ring[position % AHEAD];
        sum = sum.wrapping_add(get(*place));
        *place = key(n);
        prefetch(*place);
    }
    black_box(sum);
    [one_by_one, overlapped, rate(start)]
}

fn median(rounds: &[[f64; 3]], column: usize) -> f64 {
    let mut values: Vec<f64> = rounds.iter().map(|round| round[column]).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn load(keys: usize, expected: usize, guard: &Guard<'_>) -> HashIndex {
    let pairs = (1..=keys as u64).map(|n| (key(n), Handle::new(n).expect("not zero")));
    HashIndex::bulk_load(pairs, expected, HashSeed::FIXED, guard).expect("memory for the index")
}

fn main() {
    let millions = std::env::args().nth(1).map_or(10, |text| text.parse().expect("millions of keys"));
    let keys = millions * 1_000_000;
    let local = Memory::new(Options::default()).and_then(|memory| memory.register()).expect("a worker");
    let guard = local.pin();

    let start = Instant::now();
    let mut grown = load(keys, 0, &guard);
    println!("{millions} M keys loaded from nothing in {:.2} s, with growth", start.elapsed().as_secs_f64());
    println!("grown   {:?}", grown.statistics(&guard));
    // SAFETY: no other thread has the index.
    unsafe { grown.destroy(&guard) };
    let start = Instant::now();
    let mut index = load(keys, keys, &guard);
    println!("{millions} M keys loaded at their size in {:.2} s", start.elapsed().as_secs_f64());
    let statistics = index.statistics(&guard);
    println!("sized   {statistics:?}: {:.1} bytes a key", statistics.bytes as f64 / keys as f64);

    let bare = Bare::load(keys, &guard);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS as u64 {
        let get = |key| index.get(key, &guard).handle.map_or(0, Handle::get);
        ours.push(measure(keys as u64, 7 * round + 1, get, |key| _ = index.prefetch(key, &guard)));
        theirs.push(measure(keys as u64, 7 * round + 1, |key| bare.get(key), |key| bare.prefetch(key)));
    }
    println!("million lookups a second, medians of {ROUNDS} alternating rounds");
    for (column, name) in ["one by one", "overlapped", "prefetched"].iter().enumerate() {
        let (index, bare) = (median(&ours, column), median(&theirs, column));
        println!("{name}   index {index:6.1}   bare {bare:6.1}   ratio {:.2}", index / bare);
    }
    // SAFETY: no other thread has the index.
    unsafe { index.destroy(&guard) };
}
