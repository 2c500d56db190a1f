//! Coalescing: what is done when memory is refused though much of it is free, in blocks of the wrong size.
//!
//! Blocks never change their class in normal work, which keeps the fast path free of headers and lookups. When rows of
//! one size were deleted and the limit is reached with rows of another size, all shared free blocks are gathered, sorted by
//! their addresses and put together with their neighbours. What is as long as a page of 64 KiB goes back to its arena (and its
//! memory to the system); the rest becomes free blocks that are as large as they can be.
//!
//! Each block is looked at twice: when it is put into the list of its page, which runs through the blocks themselves, and
//! when the pages are gone through in order. That takes no memory but a few words a page.
//!
//! Long runs are returned in slices, too, by workers that see an epoch begin, when more than half of what is reserved was free for long: so
//! a database that has shrunk returns its memory. Short runs then stay the blocks that they were.

mod walk;

use polychron_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use polychron_sync::{MODELLED, Mutex};

use crate::memory::{Shared, lock};
use crate::pool::Pool;
use walk::Walk;

/// The unit in which blocks are sorted, and what a span has at least that goes back to its arena. Regions are multiples of it.
pub(crate) const PAGE: usize = 64 << 10;

/// Less free memory than this part of the limit, on top of what is known to be scattered, is not worth a walk by itself.
const WORTHWHILE: usize = 64;

/// The number of blocks that a walk may look at for each refusal: about the cost of the refused transaction itself.
const BLOCKS_A_REFUSAL: usize = 1024;

/// In every so many epochs some worker looks whether much is free.
const LOOK_EPOCHS: u64 = if MODELLED { u64::MAX } else { 16 };

/// Less free memory than so many of the fragments that workers take is not much.
const FEW_CHUNKS: usize = 4;

/// After so many looks that all found much free a walk begins.
const LOOKS: u32 = 8;

/// The number of blocks that a worker sorts at one pin, and before it becomes idle.
const SLICE: usize = 512;
const IDLE_SLICE: usize = 16 << 10;

/// Decides when a walk is worth while.
#[derive(Debug, Default)]
pub(crate) struct Coalescer {
    past: Mutex<Past>,
    /// The epoch of the last look.
    looked_in: AtomicU64,
    /// Whether a walk was begun in slices and is not finished.
    is_underway: AtomicBool,
    /// Bytes that workers left to all since the last walk: it did not see them, free though they were.
    left_to_all: AtomicUsize,
}

#[derive(Debug, Default)]
struct Past {
    /// Free bytes that the last walk found scattered between blocks in use.
    scattered: usize,
    /// The number of blocks that it has looked at.
    blocks: usize,
    /// Refusals without a walk since.
    refusals: usize,
    /// Blocks that all walks looked at.
    looked_at: usize,
    /// The number of consecutive looks that found much free memory.
    looks: u32,
    /// The bytes in use and reserved at the beginning of the last walk in slices that returned little.
    in_vain: Option<Extent>,
    /// The walk that is underway.
    walk: Option<Walk>,
}

/// Bytes in use and bytes reserved.
#[derive(Clone, Copy, Debug)]
struct Extent {
    used: usize,
    reserved: usize,
}

impl Extent {
    /// Whether a walk that was in vain then may return more now: half of what had kept free blocks apart is gone, or as much came that it
    /// has not seen.
    fn has_changed(self, now: Self) -> bool {
        now.used <= self.used / 2 || now.reserved >= self.reserved.saturating_mul(2)
    }
}

impl Coalescer {
    /// Counts free bytes that a worker had and left to all.
    pub(crate) fn note(&self, bytes: usize) {
        self.left_to_all.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Puts free blocks together, if enough came since that was done last, or if refusals have paid for it: `refusals` more than before.
    /// Returns whether the caller should try again: because this call put some together, or because it waited for another that may have.
    pub(crate) fn run(&self, shared: &Shared, pool: &Pool, used_bytes: usize, refusals: usize) -> bool {
        let (mut past, waited) = match self.past.try_lock() {
            Ok(past) => (past, false),
            Err(_) => (lock(&self.past), true),
        };
        if past.walk.is_some() {
            // What it gathered is missed.
            self.go_on(shared, &mut past, usize::MAX);
            return true;
        }
        let free = shared.budget.reserved().saturating_sub(used_bytes);
        past.renew_scattered(free, &self.left_to_all);
        past.refusals += refusals;
        let is_paid = refusals > 0 && past.refusals.saturating_mul(BLOCKS_A_REFUSAL) >= past.blocks;
        if !is_paid && free - past.scattered < shared.budget.limit() / WORTHWHILE {
            return waited;
        }
        pool.dissolve(shared);
        let mut walk = Walk::begin(shared);
        walk.finish(shared);
        past.note(&walk);
        past.looked_at += walk.blocks;
        past.scattered = shared.budget.reserved().saturating_sub(used_bytes);
        walk.joined || waited
    }

    /// Whether it is time for [`Coalescer::look`] in an epoch. Two loads of what seldom changes.
    #[inline]
    pub(crate) fn is_due(&self, epoch: u64) -> bool {
        self.is_underway.load(Ordering::Relaxed)
            || epoch.saturating_sub(self.looked_in.load(Ordering::Relaxed)) >= LOOK_EPOCHS
    }

    /// Looks whether more than half of what is reserved has been free for long, and goes on with the walk that this had begun. A worker that
    /// `is_idle` does more at once. Whether it has something to go on with at its next pin: what a walk has gathered is missed. The caller
    /// has its pool to itself.
    pub(crate) fn look(&self, shared: &Shared, pool: &Pool, epoch: u64, is_idle: bool) -> bool {
        if MODELLED {
            return false;
        }
        // Another worker looks, or a refused one walks.
        let Ok(mut past) = self.past.try_lock() else { return false };
        let is_first = self.looked_in.swap(epoch, Ordering::Relaxed) != epoch;
        if past.walk.is_none() {
            if !is_first || !past.is_much_free(shared, &self.left_to_all) {
                return false;
            }
            past.looks += 1;
            if past.looks < LOOKS {
                if past.looks + 1 == LOOKS {
                    // Other workers leave what they keep to the walk.
                    shared.begin_shortage();
                    shared.take_from_idle();
                }
                return false;
            }
            pool.dissolve(shared);
            past.walk = Some(Walk::begin(shared));
            self.is_underway.store(true, Ordering::Relaxed);
        }
        self.go_on(shared, &mut past, if is_idle { IDLE_SLICE } else { SLICE });
        past.walk.is_some()
    }

    /// Goes on with the walk that is underway, for about so many blocks.
    fn go_on(&self, shared: &Shared, past: &mut Past, most: usize) {
        let Some(mut walk) = past.walk.take() else { return };
        let before = walk.blocks;
        let is_finished = if most == usize::MAX { walk.finish(shared) } else { walk.step(shared, most) };
        past.looked_at += walk.blocks - before;
        if is_finished {
            self.is_underway.store(false, Ordering::Relaxed);
            past.note(&walk);
            past.scattered = walk.carved;
            past.in_vain = (walk.returned < walk.carved).then_some(walk.began);
        } else {
            past.walk = Some(walk);
        }
    }
}

impl Past {
    /// Of what is free, what is known to be scattered.
    fn renew_scattered(&mut self, free: usize, left_to_all: &AtomicUsize) {
        self.scattered = self.scattered.min(free).saturating_sub(left_to_all.swap(0, Ordering::Relaxed));
    }

    /// Notes that a walk is finished.
    fn note(&mut self, walk: &Walk) {
        (self.blocks, self.refusals, self.looks) = (walk.blocks, 0, 0);
    }

    /// Whether a walk in slices would pay: more than half of what is reserved is free, more than a few of a worker's fragments; and since
    /// the last walk an eighth of that was freed, or more than is in use still: then half of what had kept free blocks apart is gone.
    fn is_much_free(&mut self, shared: &Shared, left_to_all: &AtomicUsize) -> bool {
        let (reserved, limit) = (shared.budget.reserved(), shared.budget.limit());
        let few = FEW_CHUNKS * shared.options.chunk_of(limit);
        if reserved <= few {
            self.looks = 0;
            return false;
        }
        let used = shared.used_of_regions();
        let free = reserved.saturating_sub(used);
        self.renew_scattered(free, left_to_all);
        let is_worthwhile = self.in_vain.is_none_or(|then| then.has_changed(Extent { used, reserved }));
        let is_much = is_worthwhile && free > used && free > few && free - self.scattered > used.min(free / 8);
        if !is_much {
            self.looks = 0;
        }
        is_much
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::ptr::NonNull;

    use polychron_base::random::Random;

    use crate::memory::lock;
    use crate::{Guard, Local, Memory, Options};

    /// Frees blocks of a size that no thread uses.
    fn free(guard: &Guard<'_>, blocks: impl Iterator<Item = NonNull<u8>>, bytes: usize) {
        // SAFETY: the blocks were allocated with this size, and no thread uses them.
        blocks.for_each(|block| unsafe { guard.free(block, bytes) });
    }

    /// Replaces drawn blocks by blocks of `bytes` bytes, ten at each pin.
    fn replace(local: &Local, live: &mut [(NonNull<u8>, usize)], random: &mut Random, changes: usize, bytes: usize) {
        for _ in 0..changes / 10 {
            let guard = local.pin();
            for _ in 0..10 {
                let block = &mut live[random.below(live.len() as u64) as usize];
                let (old, size) = std::mem::replace(block, (guard.allocate(bytes).unwrap(), bytes));
                // SAFETY: the block was allocated with this size, and no thread still finds it.
                unsafe { guard.retire(old, size) };
            }
        }
    }

    /// However often memory is refused, walks look at no more blocks than refusals have paid for.
    #[test]
    #[cfg_attr(miri, ignore = "fills more memory than an interpreter can")]
    fn walks_are_paid_for() {
        let memory = Memory::new(Options { limit_bytes: Some(4 << 20), ..Options::tiny() }).unwrap();
        let local = memory.register().unwrap();
        let guard = local.pin();
        let blocks: Vec<_> = std::iter::from_fn(|| guard.allocate(32).ok()).collect();
        free(&guard, blocks.iter().copied().step_by(2), 32);
        let looked_at = || lock(&memory.shared.coalescer.past).looked_at;
        assert!(guard.allocate(4000).is_err());
        let (first, refusals) = (looked_at(), 500);
        assert!(first * 3 > blocks.len(), "{first} of {} blocks were looked at", blocks.len());
        (0..refusals).for_each(|_| assert!(guard.allocate(4000).is_err()));
        let later = looked_at() - first;
        assert!(later <= refusals * super::BLOCKS_A_REFUSAL + first, "{later} blocks were looked at");
        assert!(later > 0, "after many refusals it is tried again");
    }

    /// Frees all but every 8192nd of the blocks of 100 bytes in so many bytes.
    fn shrunk(guard: &Guard<'_>, bytes: usize) {
        let blocks: Vec<_> = (0..bytes / 112).map(|_| guard.allocate(100).unwrap()).collect();
        let freed = blocks.into_iter().enumerate().filter(|(at, _)| at % 8192 != 0);
        free(guard, freed.map(|(_, block)| block), 100);
    }

    /// What was free for long goes back though nothing is refused, and no worker sorts many blocks at a time.
    #[test]
    #[cfg_attr(miri, ignore = "fills more memory than an interpreter can")]
    fn memory_that_is_free_for_long_goes_back() {
        const LIMIT: usize = 64 << 20;
        let memory = Memory::new(Options { limit_bytes: Some(LIMIT), ..Options::tiny() }).unwrap();
        let (local, idle) = (memory.register().unwrap(), memory.register().unwrap());
        shrunk(&local.pin(), LIMIT / 4);
        shrunk(&idle.pin(), LIMIT / 4);
        let looked_at = || lock(&memory.shared.coalescer.past).looked_at;
        let before = memory.statistics().reserved_bytes;
        for epoch in 0..u64::from(super::LOOKS) * super::LOOK_EPOCHS - super::LOOK_EPOCHS {
            assert!(memory.epochs().advance());
            drop(local.pin());
            assert_eq!(looked_at(), 0, "in epoch {epoch}");
        }
        for _ in 0..LIMIT / 200 / super::SLICE {
            let so_far = looked_at();
            assert!(memory.epochs().advance());
            drop(local.pin());
            assert!(looked_at() - so_far <= super::SLICE + 1);
        }
        let after = memory.statistics();
        assert!(after.reserved_bytes < before / 4, "{} of {before} bytes are still reserved", after.reserved_bytes);
        assert!(lock(&memory.shared.coalescer.past).walk.is_none());
        // What is left is scattered, and is not gone through again.
        let so_far = looked_at();
        for _ in 0..4 * u64::from(super::LOOKS) * super::LOOK_EPOCHS {
            assert!(memory.epochs().advance());
            drop(local.pin());
        }
        assert_eq!(looked_at(), so_far);
    }

    /// A worker that is refused memory finishes a walk that is underway.
    #[test]
    #[cfg_attr(miri, ignore = "fills more memory than an interpreter can")]
    fn what_a_walk_has_gathered_is_not_missed() {
        const LIMIT: usize = 16 << 20;
        let memory = Memory::new(Options { limit_bytes: Some(LIMIT), ..Options::tiny() }).unwrap();
        let local = memory.register().unwrap();
        shrunk(&local.pin(), LIMIT / 8 * 7);
        while lock(&memory.shared.coalescer.past).walk.is_none() {
            assert!(memory.epochs().advance());
            drop(local.pin());
        }
        let guard = local.pin();
        let blocks = (0..).map_while(|_| guard.allocate(3000).ok()).count();
        assert!(blocks * 3072 >= LIMIT / 10 * 9, "{blocks} blocks of 3000 bytes");
    }

    /// Where as much comes as goes, and a lot is retired now and then, walks do not make a database larger.
    #[test]
    #[cfg_attr(miri, ignore = "fills more memory than an interpreter can")]
    fn walks_scatter_nothing() {
        const LIVE: usize = 20_000;
        const BYTES: usize = 100;
        let memory = Memory::new(Options {
            limit_bytes: Some(1 << 30),
            region_bytes: 64 << 20,
            chunk_bytes: 256 << 10,
            ..Options::tiny()
        })
        .unwrap();
        let local = memory.register().unwrap();
        let mut random = Random::from_seed(1);
        let guard = local.pin();
        let mut live: Vec<_> = (0..LIVE).map(|_| (guard.allocate(BYTES).unwrap(), BYTES)).collect();
        drop(guard);
        let mut largest = Vec::new();
        for _ in 0..32 {
            for epoch in 0..64 {
                replace(&local, &mut live, &mut random, if epoch == 0 { 100_000 } else { 2000 }, BYTES);
                assert!(memory.epochs().advance());
            }
            largest.push(memory.statistics().reserved_bytes);
        }
        assert!(lock(&memory.shared.coalescer.past).looked_at > 0, "much was free for long");
        assert!(largest.iter().all(|bytes| bytes * 4 <= largest[0] * 5), "{largest:?} bytes were reserved");
    }

    /// What comes in other sizes than what went takes the room that went back, also in shorter fragments, so that a database does not spread
    /// over ever more pages.
    #[test]
    #[cfg_attr(miri, ignore = "fills more memory than an interpreter can")]
    fn room_that_came_back_is_used_first() {
        const LIVE: usize = 20_000;
        let memory = Memory::new(Options {
            limit_bytes: Some(1 << 30),
            region_bytes: 256 << 20,
            chunk_bytes: 2 << 20,
            ..Options::tiny()
        })
        .unwrap();
        let local = memory.register().unwrap();
        let mut random = Random::from_seed(1);
        let mut live: Vec<(_, usize)> = (0..LIVE).map(|_| (local.pin().allocate(100).unwrap(), 100)).collect();
        let (mut reserved, mut touched) = (Vec::new(), Vec::new());
        for round in 0..64 {
            let bytes = 40 + 60 * (round * 5 % 11);
            for epoch in 0..64 {
                replace(&local, &mut live, &mut random, if epoch == 0 { 40_000 } else { 500 }, bytes);
                assert!(memory.epochs().advance());
            }
            reserved.push(memory.statistics().reserved_bytes);
            let regions = memory.shared.arenas.iter().flat_map(|arena| arena.regions());
            touched.push(regions.map(|span| span.bytes).sum::<usize>());
        }
        assert!(lock(&memory.shared.coalescer.past).looked_at > 0, "much was free for long");
        let most = reserved.iter().max().unwrap();
        assert!(touched[63] * 8 <= most * 9, "{touched:?} bytes were touched, {reserved:?} reserved");
    }
}
