//! What the chunks cost on this machine: `cargo run --release -p polychron-memory --example costs`.

use std::hint::black_box;

use polychron_base::clock::{Clock, SystemClock};
use polychron_memory::{Memory, Options};

const ROUNDS: u64 = 4_000_000;

/// Prints the median of seven runs of `work`, in nanoseconds a round.
fn measure(clock: &SystemClock, name: &str, mut work: impl FnMut(u64)) {
    let mut runs: Vec<f64> = (0..7)
        .map(|_| {
            let start = clock.now_ns();
            (0..ROUNDS).for_each(&mut work);
            (clock.now_ns() - start) as f64 / ROUNDS as f64
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    println!("{name:<48} {:6.2} ns", runs[runs.len() / 2]);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = SystemClock::new();
    let memory = Memory::new(Options::default())?;
    let local = memory.register()?;
    measure(&clock, "pin + unpin", |_| {
        black_box(local.pin());
    });
    measure(&clock, "begin + end snapshot", |_| {
        black_box(local.begin_snapshot().epoch());
    });
    let guard = local.pin();
    measure(&clock, "allocate + free, 128 bytes", |_| {
        let block = black_box(guard.allocate(128)).expect("there is room");
        // SAFETY: the block came from `allocate` with this size, and no other thread knows of it.
        unsafe { guard.free(block, 128) };
    });
    let mut held = std::collections::VecDeque::with_capacity(1024);
    measure(&clock, "allocate + free, 112 bytes, 1000 in between", |_| {
        held.push_back(guard.allocate(112).expect("there is room"));
        if held.len() > 1000 {
            let block = held.pop_front().expect("it is not empty");
            // SAFETY: as above.
            unsafe { guard.free(block, 112) };
        }
    });
    drop(guard);
    for (name, interval_ms) in [("10 ms", 10), ("1 ms", 1)] {
        memory.start_ticker(std::time::Duration::from_millis(interval_ms))?;
        measure(&clock, &format!("pin + allocate + retire, 128 bytes, tick {name}"), |_| {
            let guard = local.pin();
            let block = guard.allocate(128).expect("there is room");
            // SAFETY: as above.
            unsafe { guard.retire(block, 128) };
        });
    }
    measure(&clock, "allocate + free, 128 bytes, general heap", |_| {
        black_box(Box::new([0u64; 16]));
    });
    let stats = memory.statistics();
    println!("reserved {} KiB, huge {} KiB", stats.reserved_bytes >> 10, stats.huge_page_bytes >> 10);
    Ok(())
}
