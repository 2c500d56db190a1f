//! Measures the bare ordered index on one core: insertions, lookups one at a time and staged, scans.
//!
//! `cargo run --release -p polychron-index --example ordered_lookups -- [keys]`

use polychron_base::key::Key8;
use polychron_index::Handle;
use polychron_index::Stamp;
use polychron_index::ordered::{Cursor, Direction, OrderedIndex, Step, Visitor};
use polychron_memory::{Guard, Memory, Options};
use std::hint::black_box;
use std::ops::{Bound, ControlFlow};
use std::time::Instant;

const LOOKUPS: u64 = 4_000_000;
const SCANS: u64 = 200_000;

/// A permutation of all 64-bit numbers, so that keys are random and distinct.
fn scramble(number: u64) -> u64 {
    let mut value = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

fn handle(number: u64) -> Handle {
    Handle::new(number + 1).expect("not zero")
}

fn rate(what: &str, count: u64, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    println!("{what:32} {:8.3} M/s", count as f64 / start.elapsed().as_secs_f64() / 1e6);
}

struct Hundred(usize, u64);

impl Visitor for Hundred {
    fn node(&mut self, stamp: Stamp) {
        black_box(stamp);
    }

    fn entry(&mut self, key: &[u8], handle: Handle) -> ControlFlow<()> {
        self.1 ^= u64::from(handle) ^ key.len() as u64;
        self.0 += 1;
        if self.0 == 100 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn staged<const WIDTH: usize>(index: &OrderedIndex, keys: u64, guard: &Guard<'_>) {
    let mut next = 0;
    let mut key = || {
        next += 1;
        Key8::new(scramble(scramble(next) % keys), 8)
    };
    let mut cursors: [Cursor<'_, Key8>; WIDTH] = std::array::from_fn(|_| index.start(key(), guard));
    let mut done = 0;
    while done < LOOKUPS {
        for cursor in &mut cursors {
            if let Step::Done(found) = index.advance(cursor, guard) {
                assert!(found.handle.is_some());
                done += 1;
                *cursor = index.start(key(), guard);
            }
        }
    }
}

fn measure(index: &OrderedIndex, keys: u64, guard: &Guard<'_>) {
    rate("lookups one at a time", LOOKUPS / 2, || {
        for number in 0..LOOKUPS / 2 {
            let key = Key8::new(scramble(scramble(number + 1) % keys), 8);
            assert!(index.get(key, guard).handle.is_some());
        }
    });
    rate("lookups staged, 8 cursors", LOOKUPS, || staged::<8>(index, keys, guard));
    rate("lookups staged, 16 cursors", LOOKUPS, || staged::<16>(index, keys, guard));
    rate("lookups staged, 32 cursors", LOOKUPS, || staged::<32>(index, keys, guard));
    for direction in [Direction::Forward, Direction::Backward] {
        rate(&format!("scans of 100, {direction:?}"), SCANS, || {
            for number in 0..SCANS {
                let from = scramble(number + 5).to_be_bytes();
                let (lower, upper) = match direction {
                    Direction::Forward => (Bound::Included(&from[..]), Bound::Unbounded),
                    Direction::Backward => (Bound::Unbounded, Bound::Included(&from[..])),
                };
                let mut visitor = Hundred(0, 0);
                index.scan(lower, upper, direction, &mut visitor, guard);
                black_box(visitor.1);
            }
        });
    }
}

fn main() {
    let keys: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10_000_000);
    let memory = Memory::new(Options::default()).expect("memory");
    let local = memory.register().expect("a slot");
    let guard = local.pin();

    let sequential = OrderedIndex::new(&guard).expect("memory");
    rate("insertions, ascending", keys, || {
        for number in 0..keys {
            sequential.insert(Key8::new(number, 8), handle(number), &mut (), &guard).expect("memory");
        }
    });
    println!("{:?}", sequential.statistics(&guard));
    // SAFETY: this is the only guard.
    unsafe { sequential.destroy(&guard) };

    let random = OrderedIndex::new(&guard).expect("memory");
    rate("insertions, random", keys, || {
        for number in 0..keys {
            random.insert(Key8::new(scramble(number), 8), handle(number), &mut (), &guard).expect("memory");
        }
    });
    println!("{:?}", random.statistics(&guard));
    measure(&random, keys, &guard);
    // SAFETY: this is the only guard.
    unsafe { random.destroy(&guard) };

    let mut sorted: Vec<u64> = (0..keys).map(scramble).collect();
    sorted.sort_unstable();
    let mut loaded = None;
    rate("bulk load, full", keys, || {
        let input = sorted.iter().map(|key| (Key8::new(*key, 8), handle(*key >> 1)));
        loaded = OrderedIndex::bulk_load(input, 1.0, &guard).ok();
    });
    let loaded = loaded.expect("sorted keys load");
    println!("{:?}", loaded.statistics(&guard));
    measure(&loaded, keys, &guard);
    // SAFETY: this is the only guard.
    unsafe { loaded.destroy(&guard) };
}
