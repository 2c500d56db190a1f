//! At the limit: what makes room goes on, whatever was allocated and freed before.
#![cfg(not(loom))]

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

use polychron_base::random::Random;
use polychron_memory::{Guard, Local, Memory, Options};

/// A block and its size.
type Block = (NonNull<u8>, usize);

/// The sizes of rows.
#[derive(Clone, Copy, Debug)]
enum Sizes {
    All,
    Short,
    Two(usize, usize),
}

impl Sizes {
    fn draw(random: &mut Random) -> Self {
        match random.below(3) {
            0 => Self::All,
            1 => Self::Short,
            _ => Self::Two(some_size(random, 12), some_size(random, 12)),
        }
    }

    fn next(self, random: &mut Random) -> usize {
        match self {
            Self::All => some_size(random, 13),
            Self::Short => random.range_inclusive(32, 300) as usize,
            Self::Two(one, other) => {
                if random.chance(0.5) {
                    one
                } else {
                    other
                }
            }
        }
    }
}

/// A size from 32 on and below twice `1 << most`, small ones as often as large ones.
fn some_size(random: &mut Random, most: u64) -> usize {
    let least = 1 << random.range_inclusive(5, most);
    (least + random.below(least)) as usize
}

fn allocate(guard: &Guard<'_>, bytes: usize) -> Option<Block> {
    guard.allocate(bytes).ok().map(|block| (block, bytes))
}

fn retire(guard: &Guard<'_>, (block, bytes): Block) {
    // SAFETY: the block came from `allocate` with this size, and no thread uses it.
    unsafe { guard.retire(block, bytes) };
}

/// What takes a deleted row's place for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StandIn {
    /// A few words.
    Short,
    /// As much as the row, up to a bound.
    Row,
    /// Of any size.
    Any,
    /// As much as the row, and it stays: the row was not deleted but changed.
    Stays,
}

impl StandIn {
    fn bytes(self, row: usize, most: usize, random: &mut Random) -> usize {
        match self {
            Self::Short => 32,
            Self::Row | Self::Stays => row.min(most),
            Self::Any => (random.range_inclusive(32, 1500) as usize).min(most),
        }
    }
}

/// A memory at its limit, with two workers.
struct Full {
    memory: Arc<Memory>,
    workers: [Local; 2],
    rows: Vec<Block>,
    /// What stands in for deleted rows, the oldest first, and how many bytes that is.
    stand_ins: VecDeque<Block>,
    standing: usize,
    reserve: usize,
}

impl Full {
    fn new(limit: usize, sizes: Sizes, random: &mut Random) -> Self {
        let options = Options { limit_bytes: Some(limit), reserve_bytes: None, max_workers: 4, ..Options::tiny() };
        let memory = Memory::new(options).unwrap();
        let workers = [memory.register().unwrap(), memory.register().unwrap()];
        let reserve = (limit / 64).max(4096);
        let mut full = Self { memory, workers, rows: Vec::new(), stand_ins: VecDeque::new(), standing: 0, reserve };
        while full.insert(0, sizes.next(random)) {}
        full
    }

    fn insert(&mut self, worker: usize, bytes: usize) -> bool {
        let block = allocate(&self.workers[worker].pin(), bytes);
        self.rows.extend(block);
        block.is_some()
    }

    /// Puts a smaller block in a row's place. Whether that was not refused.
    fn stand_in(&mut self, worker: usize, row: Block, bytes: usize, stays: bool) -> bool {
        let guard = self.workers[worker].pin();
        let Some(block) = guard.with_reserve(|guard| allocate(guard, bytes)) else { return false };
        retire(&guard, row);
        if stays {
            self.rows.push(block);
        } else {
            self.stand_ins.push_back(block);
            self.standing += bytes;
        }
        true
    }

    /// Deletes a row. Until `bytes` more are a quarter of the reserve, older deletions come to their ends before.
    fn delete(&mut self, worker: usize, bytes: usize, row: Block, stays: bool) -> bool {
        while self.standing + bytes > self.reserve / 4
            && let Some(oldest) = self.stand_ins.pop_front()
        {
            self.standing -= oldest.1;
            retire(&self.workers[worker].pin(), oldest);
        }
        // What came to its end is free in the next epoch but one.
        self.stand_in(worker, row, bytes, stays) || {
            (0..2).for_each(|_| assert!(self.memory.epochs().advance()));
            self.workers.iter().for_each(|worker| drop(worker.pin()));
            self.stand_in(worker, row, bytes, stays)
        }
    }
}

/// Inserts, deletes and changes rows at the limit. What is refused of the latter, with the round.
fn at_the_limit(seed: u64, stand_in: StandIn) -> Vec<String> {
    let mut random = Random::stream(seed, stand_in as u64);
    let (limit, mut sizes) = (1 << random.range_inclusive(19, 21), Sizes::draw(&mut random));
    if stand_in == StandIn::Stays {
        // Where changes use up what is put aside, what makes up for it has their size.
        let size = some_size(&mut random, 9);
        sizes = Sizes::Two(size, size);
    }
    let mut full = Full::new(limit, sizes, &mut random);
    let mut refused = Vec::new();
    for round in 0..600 {
        let worker = random.below(2) as usize;
        match random.below(8) {
            0..3 if !full.rows.is_empty() => {
                let row = full.rows.swap_remove(random.below(full.rows.len() as u64) as usize);
                let bytes = stand_in.bytes(row.1, full.reserve / 4, &mut random);
                if !full.delete(worker, bytes, row, stand_in == StandIn::Stays) {
                    refused.push(format!("seed {seed}, {sizes:?}, {stand_in:?}: {bytes} bytes in round {round}"));
                }
            }
            0..6 => {
                full.insert(worker, sizes.next(&mut random));
                full.insert(worker, sizes.next(&mut random));
            }
            6 => assert!(full.memory.epochs().advance()),
            _ => full.workers[worker].collect(),
        }
    }
    assert!(full.memory.statistics().reserved_bytes <= limit);
    refused
}

/// Whatever the sizes of rows, and of what takes their places, rows are inserted until that is refused and can still be deleted.
#[test]
#[cfg_attr(miri, ignore = "fills more memory than an interpreter can")]
fn what_makes_room_is_not_refused() {
    for stand_in in [StandIn::Short, StandIn::Row, StandIn::Any, StandIn::Stays] {
        let refused: Vec<_> = (0..20).flat_map(|seed| at_the_limit(seed, stand_in)).collect();
        assert!(refused.is_empty(), "{} refusals, the first: {:?}", refused.len(), refused[0]);
    }
}

/// What a worker keeps to itself that does nothing: free blocks of many sizes, the rest of its chunk, and what waits.
#[test]
#[cfg_attr(miri, ignore = "fills more memory than an interpreter can")]
fn what_idle_workers_keep_is_there_for_others() {
    let memory = Memory::new(Options { limit_bytes: Some(1 << 20), ..Options::tiny() }).unwrap();
    let (idle, busy) = (memory.register().unwrap(), memory.register().unwrap());
    for waits in [false, true] {
        let guard = idle.pin();
        let blocks: Vec<Block> = (0..2000).map_while(|at| allocate(&guard, 32 + 16 * (at % 200))).collect();
        for (at, (block, bytes)) in blocks.into_iter().enumerate() {
            if waits && at % 8 == 0 {
                retire(&guard, (block, bytes));
            } else {
                // SAFETY: the block came from `allocate` with this size, and no thread uses it.
                unsafe { guard.free(block, bytes) };
            }
        }
        drop(guard);
        // What waits is free two epochs after it was taken.
        let fill = || -> Vec<Block> { (0..).map_while(|_| allocate(&busy.pin(), 16_000)).collect() };
        let mut all = fill();
        (0..2).for_each(|_| assert!(memory.epochs().advance()));
        all.extend(fill());
        assert!(all.len() >= 50, "{} blocks of 16000 bytes", all.len());
        let guard = busy.pin();
        // SAFETY: as above.
        all.into_iter().for_each(|(block, bytes)| unsafe { guard.free(block, bytes) });
    }
    assert_eq!(memory.statistics().used_bytes, 0);
}

/// Short-lived blocks do not separate those that stay from each other: longer ones find room until most of the limit is in use.
#[test]
#[cfg_attr(miri, ignore = "fills more memory than an interpreter can")]
fn short_blocks_do_not_scatter_what_is_free() {
    let never = Some(std::time::Duration::from_secs(3600));
    for limit in [1 << 20, 4 << 20, 64 << 20] {
        let options = Options { limit_bytes: Some(limit), epoch_interval: never, ..Options::default() };
        let memory = Memory::new(options).unwrap();
        let local = memory.register().unwrap();
        let mut last_refused = None;
        for round in 0.. {
            let guard = local.pin();
            let bytes = if round % 256 == 0 { limit / 128 } else { 40 + round % 80 };
            match allocate(&guard, bytes).and_then(|_| allocate(&guard, 256)) {
                Some(undo) => retire(&guard, undo),
                None if last_refused.is_some_and(|last| round - last < 512) => break,
                None => {
                    // Another transaction may run when what was retired is free.
                    last_refused = Some(round);
                    drop(guard);
                    for _ in 0..3 {
                        memory.epochs().advance();
                        local.collect();
                    }
                }
            }
        }
        let memory = memory.statistics();
        let used = memory.used_bytes - memory.retired_bytes;
        assert!(used * 100 >= limit * 85, "{used} bytes of {limit} are in use");
    }
}

/// When all is deleted that had come and gone at the limit, and the workers have nothing to do for a while, memory is as good as new.
#[test]
#[cfg_attr(miri, ignore = "fills more memory than an interpreter can")]
fn what_has_come_and_gone_leaves_no_trace() {
    const SIZES: [u64; 5] = [16, 30, 300, 3000, 30_000];
    let size = |random: &mut Random| (SIZES[random.below(5) as usize] + random.below(20)) as usize;
    for seed in 0..4 {
        let memory = Memory::new(Options { limit_bytes: Some(4 << 20), ..Options::tiny() }).unwrap();
        let local = memory.register().unwrap();
        let fill = |blocks: &mut Vec<Block>| {
            let (mut random, guard) = (Random::stream(7, 7), local.pin());
            blocks.extend((0..).map_while(|_| allocate(&guard, size(&mut random))));
            blocks.iter().map(|(_, bytes)| bytes).sum::<usize>()
        };
        // SAFETY: the block came from `allocate` with this size, and no thread uses it.
        let free = |(block, bytes): Block| unsafe { local.pin().free(block, bytes) };
        let mut blocks = Vec::new();
        let new = fill(&mut blocks);
        let mut random = Random::stream(seed, 8);
        for _ in 0..40_000 {
            let more = random.chance(0.7).then(|| allocate(&local.pin(), size(&mut random))).flatten();
            if more.is_none() && !blocks.is_empty() {
                free(blocks.swap_remove(random.below(blocks.len() as u64) as usize));
            }
            blocks.extend(more);
        }
        blocks.drain(..).for_each(free);
        for _ in 0..16 {
            assert!(memory.epochs().advance());
            local.collect();
        }
        let again = fill(&mut blocks);
        assert!(again * 10 >= new * 9, "seed {seed}: {again} bytes find room, and {new} do in a new memory");
    }
}

/// Workers whose memory grows and shrinks, with walks underway most of the time, do not get the same block twice.
#[test]
#[cfg_attr(miri, ignore = "fills more memory than an interpreter can")]
fn walks_and_workers_get_along() {
    let memory = Memory::new(Options { limit_bytes: Some(4 << 20), ..Options::tiny() }).unwrap();
    let work = |worker: u64| {
        let (local, mut random) = (memory.register().unwrap(), Random::stream(1, worker));
        for round in 0..200 {
            let mut blocks = Vec::new();
            let most = if round % 4 == 0 { 4 << 20 } else { 100 << 10 };
            let mut bytes = 0;
            while bytes < most
                && let Some(block) = allocate(&local.pin(), some_size(&mut random, 13))
            {
                let mark = (worker << 32 | blocks.len() as u64).to_ne_bytes();
                // SAFETY: the block has more than eight bytes, and is this worker's.
                unsafe { block.0.cast().write(mark) };
                bytes += block.1;
                blocks.push(block);
            }
            for (number, (block, bytes)) in blocks.into_iter().enumerate() {
                // SAFETY: as above; it was allocated with this size, and no thread uses it.
                unsafe {
                    assert_eq!(block.cast::<[u8; 8]>().read(), (worker << 32 | number as u64).to_ne_bytes());
                    local.pin().free(block, bytes);
                }
            }
            for _ in 0..64 {
                memory.epochs().advance();
                drop(local.pin());
            }
        }
    };
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let work = &work;
            scope.spawn(move || work(worker));
        }
    });
    assert_eq!(memory.statistics().used_bytes, 0);
}
