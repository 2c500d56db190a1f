//! Behaviour of the memory as a whole: limits, slots, retirement, and churn by several workers.
#![cfg(not(loom))]

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use polychron_base::random::Random;
use polychron_base::sizes::{SHRINK, scaled};
use polychron_memory::{Error, Guard, Memory, OWN_SLOTS, Options, Pressure};

fn tiny() -> Arc<Memory> {
    Memory::new(Options::tiny()).unwrap()
}

/// A block that knows what it must contain.
struct Owned {
    pointer: NonNull<u8>,
    bytes: usize,
    pattern: u64,
}

// SAFETY: the block is owned.
unsafe impl Send for Owned {}

impl Owned {
    fn allocate(guard: &Guard<'_>, bytes: usize, pattern: u64) -> Option<Self> {
        let pointer = guard.allocate(bytes).ok()?;
        let align = if bytes > 0 && bytes.is_multiple_of(64) { 64 } else { 16 };
        assert!(pointer.addr().get().is_multiple_of(align));
        let mut owned = Self { pointer, bytes, pattern };
        for (index, word) in owned.words().enumerate() {
            // SAFETY: `words` stays inside the block, which no other thread has.
            unsafe { word.write(pattern ^ index as u64) };
        }
        Some(owned)
    }

    fn words(&mut self) -> impl Iterator<Item = *mut u64> + use<> {
        let words = self.pointer.cast::<u64>();
        // Large blocks are checked at every page only, and others under slow tools at every line.
        let step = if self.bytes > 8192 { 512 } else { SHRINK.min(8) };
        // SAFETY: the offsets lie within the block.
        (0..self.bytes / 8).step_by(step).map(move |index| unsafe { words.add(index).as_ptr() })
    }

    fn check(&mut self) {
        let pattern = self.pattern;
        for (index, word) in self.words().enumerate() {
            // SAFETY: `words` stays inside the block, which was filled when it was allocated.
            assert_eq!(unsafe { word.read() }, pattern ^ index as u64, "somebody else wrote to the block");
        }
    }

    fn free(mut self, guard: &Guard<'_>) {
        self.check();
        // SAFETY: the block came from `allocate` with this size, and is not used again.
        unsafe { guard.free(self.pointer, self.bytes) };
    }

    fn retire(mut self, guard: &Guard<'_>) {
        self.check();
        // SAFETY: as in `free`.
        unsafe { guard.retire(self.pointer, self.bytes) };
    }
}

fn some_size(random: &mut Random) -> usize {
    match random.below(100) {
        0 => random.range_inclusive(8 << 10, 100 << 10) as usize,
        1..10 => random.range_inclusive(1 << 10, 8 << 10) as usize,
        10..50 => random.below(16) as usize * 64,
        _ => random.below(1024) as usize,
    }
}

/// Allocates and frees at random; some blocks are passed to whichever worker asks next.
fn churn(memory: &Arc<Memory>, exchange: &Mutex<VecDeque<Owned>>, mut random: Random, rounds: usize, most: usize) {
    let mut mine: Vec<Owned> = Vec::new();
    let mut local = memory.register().unwrap();
    for round in 0..rounds {
        if round % 5000 == 4999 {
            local = memory.register().unwrap();
        }
        let guard = local.pin();
        if random.chance(0.55) && mine.len() < most {
            let (bytes, pattern) = (some_size(&mut random), random.next_u64());
            let block = match random.below(8) {
                0 => guard.with_reserve(|guard| Owned::allocate(guard, bytes, pattern)),
                _ => Owned::allocate(&guard, bytes, pattern),
            };
            mine.extend(block);
        } else if !mine.is_empty() {
            let block = mine.swap_remove(random.below(mine.len() as u64) as usize);
            match random.below(4) {
                0 => block.retire(&guard),
                1 => {
                    let mut exchange = exchange.lock().unwrap();
                    exchange.push_back(block);
                    if exchange.len() > 100 {
                        mine.extend(exchange.pop_front());
                    }
                }
                _ => block.free(&guard),
            }
        }
        if random.below(64) == 0 {
            memory.epochs().advance();
        }
    }
    let guard = local.pin();
    mine.into_iter().for_each(|block| block.free(&guard));
}

#[test]
fn no_block_is_handed_out_twice() {
    let rounds = scaled(30_000, 15);
    let memory = Memory::new(Options { limit_bytes: Some(128 << 20), ..Options::tiny() }).unwrap();
    let exchange = Mutex::default();
    for repeat in 0..scaled(4, 1) as u64 {
        std::thread::scope(|scope| {
            for stream in 0..3 {
                let (memory, exchange) = (&memory, &exchange);
                scope.spawn(move || churn(memory, exchange, Random::stream(repeat, stream), rounds, 200));
            }
        });
    }
    let local = memory.register().unwrap();
    exchange.into_inner().unwrap().into_iter().for_each(|block: Owned| block.free(&local.pin()));
    memory.epochs().advance();
    local.collect();
    let stats = memory.statistics();
    assert_eq!((stats.used_bytes, stats.retired_bytes), (0, 0), "{:?}", stats.classes);
    assert!(stats.reserved_bytes < 40 << 20, "several hundred MiB passed through: {stats:?}");
}

#[test]
fn workers_at_the_limit_get_along() {
    let whole = crowd_at_the_limit(0).register().unwrap();
    // Nothing was lost: all of it can be had again as one block.
    let block = (0..64).find_map(|_| Owned::allocate(&whole.pin(), 2 << 20, 1));
    assert!(block.is_some(), "{:?}", whole.memory().statistics());
}

#[test]
fn workers_at_the_limit_draw_on_the_reserve() {
    crowd_at_the_limit(128 << 10);
}

fn crowd_at_the_limit(reserve_bytes: usize) -> Arc<Memory> {
    let rounds = scaled(20_000, 15);
    let options = Options { limit_bytes: Some(2 << 20), reserve_bytes: Some(reserve_bytes), ..Options::tiny() };
    let memory = Memory::new(options).unwrap();
    let exchange = Mutex::default();
    for repeat in 0..4 {
        std::thread::scope(|scope| {
            for stream in 0..3 {
                let (memory, exchange) = (&memory, &exchange);
                scope.spawn(move || churn(memory, exchange, Random::stream(repeat, stream), rounds, 5000));
            }
        });
        assert!(memory.statistics().reserved_bytes <= 2 << 20);
    }
    let local = memory.register().unwrap();
    exchange.into_inner().unwrap().into_iter().for_each(|block: Owned| block.free(&local.pin()));
    memory.epochs().advance();
    local.collect();
    assert_eq!(memory.statistics().used_bytes, 0);
    memory
}

#[test]
fn workers_come_and_go_without_a_trace() {
    let memory = tiny();
    let mut reserved = 0;
    for round in 0..scaled(4000, 25) as u64 {
        let local = memory.register().unwrap();
        let guard = local.pin();
        let blocks: Vec<_> = (0..30).filter_map(|index| Owned::allocate(&guard, index * 40, round)).collect();
        for (index, block) in blocks.into_iter().enumerate() {
            if index % 2 == 0 { block.free(&guard) } else { block.retire(&guard) }
        }
        drop(guard);
        drop(local);
        memory.epochs().advance();
        if round == 20 {
            reserved = memory.statistics().reserved_bytes;
        }
    }
    memory.register().unwrap().collect();
    let stats = memory.statistics();
    assert_eq!((stats.used_bytes, stats.retired_bytes), (0, 0));
    assert_eq!(stats.reserved_bytes, reserved, "the footprint is flat");
}

#[test]
fn own_slots_are_beside_those_of_users() {
    let memory = tiny();
    let own: Vec<_> = (0..OWN_SLOTS).map(|_| memory.register_own().unwrap()).collect();
    let users: Vec<_> = (0..8).map(|_| memory.register().unwrap()).collect();
    assert_eq!(memory.register().unwrap_err(), Error::TooManyWorkers { limit: 8 });
    assert_eq!(memory.register_own().unwrap_err(), Error::TooManyWorkers { limit: OWN_SLOTS });
    let mut ids: Vec<_> = own.iter().chain(&users).map(|local| local.worker_id()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 8 + OWN_SLOTS, "no slot is given twice");
    // Both kinds hold the epochs, and leave them.
    for local in [&own[0], &users[0]] {
        let guard = local.pin();
        memory.epochs().advance();
        assert!(memory.epochs().readonly() < guard.epoch());
    }
    drop(own);
    memory.register_own().unwrap();
}

#[test]
fn slots_run_out_with_a_typed_error_and_are_reused() {
    let memory = tiny();
    let mut locals: Vec<_> = (0..8).map(|_| memory.register().unwrap()).collect();
    assert_eq!(memory.register().unwrap_err(), Error::TooManyWorkers { limit: 8 });
    let id = locals.remove(3).worker_id();
    assert_eq!(memory.register().unwrap().worker_id(), id);
    let shared = Arc::clone(&memory);
    let panicked = std::thread::spawn(move || {
        let local = shared.register().unwrap();
        let guard = local.pin();
        let _block = guard.allocate(10).unwrap();
        panic!("a worker dies while it is pinned");
    });
    assert!(panicked.join().is_err());
    let epoch = memory.epochs().current();
    memory.epochs().advance();
    assert_eq!(memory.epochs().readonly(), epoch, "the dead worker holds nothing back");
    memory.register().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "fills more memory than an interpreter can")]
fn the_limit_is_typed_and_frees_lift_it() {
    let memory = tiny();
    let local = memory.register().unwrap();
    let guard = local.pin();
    // Each size has to make do with what the one before it left.
    for bytes in [100, 1000, 20_000, 1 << 20, 6 << 20, 48] {
        let mut blocks: Vec<_> = std::iter::from_fn(|| Owned::allocate(&guard, bytes, 1)).collect();
        let stats = memory.statistics();
        assert!(stats.reserved_bytes <= stats.limit_bytes);
        assert!(stats.used_bytes >= 12 << 20, "{bytes}: {stats:?}");
        if bytes <= 20_000 {
            assert!(stats.used_bytes > stats.limit_bytes / 10 * 9, "{bytes}: {stats:?}");
            assert_eq!(
                memory.pressure(),
                if stats.used_bytes >= (16 << 20) / 100 * 98 { Pressure::Hard } else { Pressure::Soft }
            );
        }
        assert_eq!(guard.allocate(bytes).unwrap_err().requested, bytes);
        blocks.pop().unwrap().free(&guard);
        blocks.push(Owned::allocate(&guard, bytes, 2).expect("there is room for one"));
        blocks.into_iter().for_each(|block| block.free(&guard));
        assert_eq!(memory.statistics().used_bytes, 0);
        assert_eq!(memory.pressure(), Pressure::Normal);
    }
}

#[test]
fn the_reserve_is_there_again_and_again() {
    const RESERVE: usize = scaled(256 << 10, 8 << 10);
    const CYCLES: u64 = scaled(12, 2) as u64;
    let limit_bytes = Some(64 * RESERVE);
    let memory = Memory::new(Options { limit_bytes, reserve_bytes: Some(RESERVE), ..Options::tiny() }).unwrap();
    let local = memory.register().unwrap();
    let guard = local.pin();
    for cycle in 0..CYCLES {
        let fill = |bytes| std::iter::from_fn(|| Owned::allocate(&guard, bytes, cycle)).collect::<Vec<_>>();
        // The small blocks are used up by others too, those of cycles before included.
        let mut ordinary = fill(1000);
        ordinary.append(&mut fill(32));
        let drawn: Vec<_> =
            std::iter::from_fn(|| guard.with_reserve(|guard| Owned::allocate(guard, 32, cycle))).collect();
        assert!(drawn.len() * 32 > RESERVE / 4 * 3, "{} small blocks in cycle {cycle}", drawn.len());
        assert!(guard.allocate(32).is_err(), "the reserve is for those who ask for it");
        assert!(memory.statistics().reserved_bytes <= memory.statistics().limit_bytes);
        ordinary.into_iter().chain(drawn).for_each(|block| block.free(&guard));
        assert_eq!(memory.statistics().used_bytes, 0);
    }
}

#[test]
fn a_panic_closes_the_reserve() {
    let limit_bytes = Some(scaled(16 << 20, 256 << 10));
    let memory = Memory::new(Options { limit_bytes, reserve_bytes: Some(64 << 10), ..Options::tiny() }).unwrap();
    let local = memory.register().unwrap();
    let guard = local.pin();
    let panics = std::panic::AssertUnwindSafe(|| guard.with_reserve(|_| panic!("on purpose")));
    assert!(std::panic::catch_unwind(panics).is_err());
    let _all: Vec<_> = std::iter::from_fn(|| Owned::allocate(&guard, 1000, 1)).collect();
    let nested = guard.with_reserve(|guard| {
        guard.with_reserve(|_| ());
        guard.allocate(1000)
    });
    assert!(nested.is_ok(), "the inner permission's end left the outer one");
    assert!(guard.allocate(1000).is_err());
}

#[test]
#[cfg_attr(miri, ignore = "fills more memory than an interpreter can")]
fn free_memory_between_used_blocks_serves_other_sizes() {
    let memory = tiny();
    let local = memory.register().unwrap();
    let guard = local.pin();
    let blocks: Vec<_> = std::iter::from_fn(|| Owned::allocate(&guard, 136, 1)).collect();
    let many = blocks.len();
    let mut kept = Vec::new();
    for (index, block) in blocks.into_iter().enumerate() {
        // Runs of about 136 KiB are freed, so that some pages are free and others in part.
        if index / 1000 % 2 == 0 { block.free(&guard) } else { kept.push(block) }
    }
    let mut others: Vec<_> = std::iter::from_fn(|| Owned::allocate(&guard, 3000, 2)).collect();
    assert!(others.len() * 3000 > many * 136 / 6, "{} of {many}", others.len());
    let mut small: Vec<_> = std::iter::from_fn(|| Owned::allocate(&guard, 16, 2)).collect();
    assert!(memory.statistics().used_bytes > memory.statistics().limit_bytes / 100 * 97, "{:?}", memory.statistics());
    kept.iter_mut().chain(&mut others).chain(&mut small).for_each(Owned::check);
    kept.into_iter().chain(others).chain(small).for_each(|block| block.free(&guard));
    assert_eq!(memory.statistics().used_bytes, 0);
}

/// The lists of what waits lie within the limit, too: fewer blocks find room than without them.
#[test]
#[cfg_attr(miri, ignore = "fills more memory than an interpreter can")]
fn what_waits_and_its_list_lie_within_the_limit() {
    const BLOCK: usize = 32;
    let memory = tiny();
    let (holder, local) = (memory.register().unwrap(), memory.register().unwrap());
    let held = holder.pin();
    let mut waiting = 0;
    loop {
        let guard = local.pin();
        let Some(block) = Owned::allocate(&guard, BLOCK, 1) else { break };
        block.retire(&guard);
        waiting += 1;
        if waiting % 1000 == 0 {
            memory.epochs().advance();
        }
    }
    let (limit, noted) = (memory.statistics().limit_bytes, 32);
    assert!(waiting * (BLOCK + noted) <= limit, "{waiting} blocks wait");
    assert!(waiting * (BLOCK + noted) >= limit / 2, "{waiting} blocks wait");
    drop(held);
    memory.epochs().advance();
    local.collect();
    let statistics = memory.statistics();
    assert_eq!((statistics.used_bytes, statistics.retired_bytes), (0, 0));
}

#[test]
#[cfg_attr(miri, ignore = "fills more memory than an interpreter can")]
fn large_allocations_go_back_to_the_system() {
    let memory = tiny();
    let local = memory.register().unwrap();
    let guard = local.pin();
    let first = Owned::allocate(&guard, 10 << 20, 3).unwrap();
    assert_eq!(memory.statistics().large_bytes, 10 << 20);
    assert!(guard.allocate(10 << 20).is_err());
    assert!(guard.allocate(usize::MAX).is_err());
    assert!(guard.allocate(isize::MAX as usize).is_err());
    first.free(&guard);
    assert_eq!(memory.statistics().reserved_bytes, 0);
    let second = Owned::allocate(&guard, (10 << 20) + 1, 4).unwrap();
    second.retire(&guard);
    drop(guard);
    local.collect();
    assert_ne!(memory.statistics().large_bytes, 0);
    memory.epochs().advance();
    local.collect();
    assert_eq!(memory.statistics().large_bytes, 0);
    assert!(memory.statistics().reserved_bytes < 64 << 10, "no more than what the list of what waits lay in");
    let leaked = Owned::allocate(&local.pin(), 5 << 20, 5).unwrap();
    assert_eq!(leaked.bytes, 5 << 20, "unmapped with the memory");
}

#[test]
#[cfg_attr(miri, ignore = "fills more memory than an interpreter can")]
fn garbage_is_freed_before_an_allocation_is_refused() {
    let memory = tiny();
    let (local, other) = (memory.register().unwrap(), memory.register().unwrap());
    {
        let guard = other.pin();
        while let Some(block) = Owned::allocate(&guard, 600, 6) {
            block.retire(&guard);
            if memory.statistics().retired_bytes > 8 << 20 {
                break;
            }
        }
    }
    drop(other);
    for bytes in [500, 6 << 20] {
        let guard = local.pin();
        let blocks: Vec<_> = std::iter::from_fn(|| Owned::allocate(&guard, bytes, 7)).collect();
        assert!(memory.statistics().used_bytes >= 12 << 20, "{:?}", memory.statistics());
        blocks.into_iter().for_each(|block| block.free(&guard));
    }
}

#[test]
fn a_guard_keeps_what_is_retired_under_it() {
    let memory = tiny();
    let (reader, writer) = (memory.register().unwrap(), memory.register().unwrap());
    let mut reading = reader.pin();
    let block = Owned::allocate(&writer.pin(), 100, 8).unwrap();
    let mut copy = Owned { ..block };
    block.retire(&writer.pin());
    for _ in 0..3 {
        memory.epochs().advance();
        writer.collect();
        let _other = Owned::allocate(&writer.pin(), 100, 9).unwrap();
        copy.check();
    }
    assert_eq!(memory.statistics().retired_bytes, 100);
    let nested = reader.pin();
    assert!(reading.refresh() < memory.epochs().current(), "a nested guard keeps the epoch");
    drop(nested);
    assert_eq!(reading.refresh(), memory.epochs().current());
    memory.epochs().advance();
    drop(writer.pin());
    assert_eq!(memory.statistics().retired_bytes, 0);
}

#[test]
fn versions_wait_for_snapshots() {
    let memory = tiny();
    let (reader, writer) = (memory.register().unwrap(), memory.register().unwrap());
    let retire = |superseded_at| {
        let guard = writer.pin();
        let block = Owned::allocate(&guard, 200, 10).unwrap();
        // SAFETY: no other thread ever knew of the block.
        unsafe { guard.retire_versions(block.pointer, 200, superseded_at) };
    };
    for _ in 0..4 {
        memory.epochs().advance();
    }
    let snapshot = reader.begin_snapshot();
    assert_eq!(snapshot.epoch(), 4);
    assert_eq!(reader.begin_snapshot().epoch(), 4, "snapshots of a worker that overlap are one");
    retire(4);
    retire(5);
    for _ in 0..5 {
        memory.epochs().advance();
    }
    Owned::allocate(&writer.pin(), 64, 11).unwrap().retire(&writer.pin());
    writer.collect();
    memory.epochs().advance();
    writer.collect();
    assert_eq!(memory.statistics().retired_bytes, 200, "the snapshot keeps one version and no retired block");
    drop(snapshot);
    memory.epochs().refresh();
    writer.collect();
    assert_eq!(memory.statistics().retired_bytes, 0);
}

#[test]
fn versions_wait_for_the_guards_of_snapshots_too() {
    let memory = tiny();
    let (reader, writer, idle) = (memory.register().unwrap(), memory.register().unwrap(), memory.register().unwrap());
    memory.epochs().advance();
    // A transaction that does nothing holds no version: it never follows a link to one.
    let nothing = idle.pin();
    let guard = writer.pin();
    let epoch = guard.epoch();
    memory.epochs().advance();
    // A later snapshot finds the record before the writer, still in its older epoch, replaces it.
    let snapshot = reader.begin_snapshot();
    let mut reading = reader.pin();
    assert!(reading.epoch() > epoch && snapshot.epoch() == epoch);
    let block = Owned::allocate(&guard, 200, 12).unwrap();
    // SAFETY: no other thread knows of the block.
    unsafe { guard.retire_versions(block.pointer, 200, epoch) };
    drop(guard);
    memory.epochs().advance();
    writer.collect();
    assert_eq!(memory.epochs().collectable(), epoch);
    assert_eq!(memory.statistics().retired_bytes, 200, "the reader may still hold it");
    reading.rest();
    memory.epochs().advance();
    writer.collect();
    assert_eq!(memory.statistics().retired_bytes, 0, "a reader that rests holds nothing");
    assert!(!reading.resume(), "the epoch is another one");
    reading.rest();
    assert!(reading.resume() && memory.epochs().readonly() < nothing.epoch());
}

/// What was once found through an index may be held by any guard, whether or not a snapshot sees it.
#[test]
fn versions_that_were_found_wait_for_all_guards() {
    let memory = tiny();
    let (writer, other) = (memory.register().unwrap(), memory.register().unwrap());
    let held = other.pin();
    let block = Owned::allocate(&writer.pin(), 200, 12).unwrap();
    {
        let guard = writer.pin();
        // SAFETY: no other thread knows of the block.
        unsafe { guard.retire_found_versions(block.pointer, 200, guard.epoch()) };
    }
    for _ in 0..3 {
        memory.epochs().advance();
        writer.collect();
    }
    assert!(memory.epochs().collectable() > held.epoch());
    assert_eq!(memory.statistics().retired_bytes, 200, "the guard may still hold it");
    drop(held);
    for _ in 0..2 {
        memory.epochs().advance();
        writer.collect();
    }
    assert_eq!(memory.statistics().retired_bytes, 0);
}

#[test]
fn a_hold_keeps_versions_for_a_time() {
    let memory = tiny();
    let (reader, writer, pruner) = (memory.register().unwrap(), memory.register().unwrap(), memory.register().unwrap());
    memory.epochs().advance();
    let snapshot = reader.begin_snapshot();
    let guard = writer.pin();
    let block = Owned::allocate(&guard, 300, 2).unwrap();
    // SAFETY: no other thread knows of the block.
    unsafe { guard.retire_versions(block.pointer, 300, guard.epoch()) };
    drop(guard);
    let guard = pruner.pin();
    let hold = guard.hold_versions().unwrap();
    assert_eq!(hold.collectable(), snapshot.epoch());
    assert!(guard.hold_versions().is_none(), "one at a time");
    drop(guard);
    drop(snapshot);
    for _ in 0..3 {
        memory.epochs().advance();
        writer.collect();
    }
    assert_eq!(memory.statistics().retired_bytes, 300);
    drop(hold);
    memory.epochs().refresh();
    writer.collect();
    assert_eq!((memory.statistics().retired_bytes, memory.statistics().used_bytes), (0, 0));
    let snapshot = pruner.begin_snapshot();
    assert!(pruner.pin().hold_versions().is_none(), "a snapshot is in the way");
    drop(snapshot);
}

#[test]
fn steady_retirement_keeps_memory_flat() {
    let memory = tiny();
    let local = memory.register().unwrap();
    let mut most = 0;
    for round in 0..scaled(100_000, 500) as u64 {
        let guard = local.pin();
        Owned::allocate(&guard, 128, round).unwrap().retire(&guard);
        drop(guard);
        if round % 100 == 0 {
            memory.epochs().advance();
        }
        if round % 1000 == 0 {
            most = most.max(memory.statistics().retired_bytes);
        }
    }
    assert!(most <= 128 * 400, "{most} bytes waited");
}

/// A clock that never gets a processor does not let garbage grow: a thread that makes it begins the epochs.
#[test]
#[cfg_attr(miri, ignore = "fills more memory than an interpreter can")]
fn a_late_clock_does_not_let_garbage_grow() {
    let never = std::time::Duration::from_secs(3600);
    let memory = Memory::new(Options { epoch_interval: Some(never), ..Options::tiny() }).unwrap();
    let local = memory.register().unwrap();
    let mut most = 0;
    for round in 0..scaled(40_000, 4000) as u64 {
        let guard = local.pin();
        Owned::allocate(&guard, 4000, round).unwrap().retire(&guard);
        drop(guard);
        most = most.max(memory.statistics().retired_bytes);
    }
    assert!(most <= 512 << 10, "{most} bytes waited");
}

/// Where a protocol moves the clock, it is told, and once for each time.
#[test]
fn a_protocol_is_notified_that_an_epoch_is_overdue() {
    let memory = tiny();
    let local = memory.register().unwrap();
    let retire = |bytes: usize| {
        const BLOCK: usize = 1 << 10;
        for _ in 0..bytes / BLOCK {
            let guard = local.pin();
            Owned::allocate(&guard, BLOCK, 1).unwrap().retire(&guard);
        }
    };
    // Overdue after a 256th of the limit.
    retire(48 << 10);
    assert!(!local.is_epoch_overdue());
    retire(24 << 10);
    assert!(local.is_epoch_overdue() && !local.is_epoch_overdue());
    retire(48 << 10);
    memory.epochs().advance();
    retire(48 << 10);
    assert!(!local.is_epoch_overdue(), "an epoch began in between");
}

#[test]
fn the_ticker_moves_the_epochs_on_and_stops() {
    let options = Options { epoch_interval: Some(std::time::Duration::from_millis(1)), ..Options::tiny() };
    let memory = Memory::new(options).unwrap();
    while memory.epochs().readonly() < 3 {
        std::thread::yield_now();
    }
    memory.stop_ticker();
    let stopped = memory.epochs().current();
    memory.epochs().advance();
    assert_eq!(memory.epochs().current(), stopped + 1);
    memory.start_ticker(std::time::Duration::from_millis(1)).unwrap();
    memory.start_ticker(std::time::Duration::from_millis(2)).unwrap();
    while memory.epochs().current() < stopped + 3 {
        std::thread::yield_now();
    }
}

#[test]
fn options_are_checked() {
    let refused = |options| matches!(Memory::new(options), Err(Error::InvalidOptions { .. }));
    assert!(refused(Options { max_workers: 0, ..Options::tiny() }));
    assert!(refused(Options { soft_percent: 101, ..Options::tiny() }));
    assert!(refused(Options { region_bytes: 5000, ..Options::tiny() }));
    assert!(refused(Options { chunk_bytes: 512 << 10, ..Options::tiny() }));
    assert!(refused(Options { epoch_interval: Some(std::time::Duration::ZERO), ..Options::tiny() }));
    const WORKERS: usize = scaled(1024, 16);
    let memory = Memory::new(Options { max_workers: WORKERS, epoch_interval: None, ..Options::default() }).unwrap();
    let locals: Vec<_> = (0..WORKERS).map(|_| memory.register().unwrap()).collect();
    assert_eq!(locals.len(), WORKERS);
    assert!(memory.statistics().limit_bytes > 0);
}

#[test]
#[cfg_attr(miri, ignore = "fills more memory than an interpreter can")]
fn memory_can_be_touched_ahead() {
    let memory = tiny();
    assert_eq!(memory.prefault(1 << 20), 1 << 20);
    let stats = memory.statistics();
    assert!(stats.mapped_bytes >= 1 << 20);
    assert_eq!(stats.reserved_bytes, 0);
    assert!(memory.prefault(usize::MAX) <= stats.limit_bytes);
}
