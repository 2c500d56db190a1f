//! The memory of one database: what its workers share.

use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use polychron_base::id::WorkerId;
use polychron_sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use polychron_sync::{MODELLED, Mutex, MutexGuard};

use crate::arena::{Arena, Budget};
use crate::blocks::Stash;
use crate::classes::{CLASSES, size_of_class};
use crate::coalesce::Coalescer;
use crate::limbo::{EmptyPage, Entry, Limbo, WaitsFor};
use crate::local::{Local, Worker};
use crate::pool::{Counters, Pool};
use crate::reserve::Reserve;
use crate::system::{self, HUGE_PAGE, Mapping, PAGE};
use crate::ticker::Ticker;
use crate::topology::Topology;
use crate::{Epochs, Error, Options, OutOfMemory};

/// Slots for a database's own work: one for a thread that keeps its tables, one for a thread that fills a new index. They come before the
/// users' slots, so that the leader of a tick, which reads all slots up to the last one ever claimed, still reads few.
pub const OWN_SLOTS: usize = 2;

/// The memory of one database, shared by all its workers.
///
/// Everything allocated from it is freed to the system when the last `Arc` of it and the last [`Local`] are gone.
#[derive(Debug)]
pub struct Memory {
    pub(crate) shared: Shared,
    ticker: Mutex<Option<Ticker>>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) epochs: Arc<Epochs>,
    pub(crate) budget: Budget,
    /// Retired blocks of workers that have left or had too many. The field precedes the arenas, in which the lists lie.
    orphans: Mutex<Vec<(Limbo, WaitsFor)>>,
    pub(crate) arenas: Box<[Arena]>,
    pub(crate) stash: Stash,
    pub(crate) reserve: Reserve,
    pub(crate) coalescer: Coalescer,
    pub(crate) topology: Topology,
    /// The pinned workers of each node.
    pub(crate) pinned: Box<[AtomicUsize]>,
    counters: Box<[OnceLock<Arc<Counters>>]>,
    /// The workers, by their slots; null where there is none. A thread that looks at one has taken what it keeps ([`Epochs::take_kept`]).
    pub(crate) workers: Box<[AtomicPtr<Worker>]>,
    /// Mappings of their own, by address.
    large: Mutex<BTreeMap<usize, Mapping>>,
    /// The garbage that a worker may keep when it leaves an epoch, in bytes: it may not come back soon.
    pub(crate) most_waiting: usize,
    orphan_count: AtomicUsize,
    /// The epoch in which an allocation was about to be refused: workers that see another one than before leave their free blocks to
    /// all. Written at the limit alone.
    shortage: AtomicU64,
}

/// The use of memory, relative to the marks of [`Options`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// Below the soft mark.
    Normal,
    /// At the soft mark or above: time to delete, to shed work, or to warn some thread.
    Soft,
    /// Within 2 % of the hard mark: allocations are refused or soon will be.
    Hard,
}

/// The report of [`Memory::statistics`]. The metrics are read one after the other while workers go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryStatistics {
    /// The hard mark.
    pub limit_bytes: usize,
    /// Bytes taken off the limit: spans handed out to workers, in use or free for reuse, what is drawn on the reserve, and large
    /// allocations.
    pub reserved_bytes: usize,
    /// Address space mapped, touched or not.
    pub mapped_bytes: usize,
    /// The part of `mapped_bytes` for which the system took the advice to use huge pages.
    pub huge_page_bytes: usize,
    /// Bytes allocated and not freed, rounded up to their classes; retired bytes are still among them.
    pub used_bytes: usize,
    /// Bytes retired and not freed yet, as they were asked for.
    pub retired_bytes: usize,
    /// The part of `used_bytes` that was mapped one allocation at a time.
    pub large_bytes: usize,
    /// Blocks in use for every class that has any.
    pub classes: Vec<ClassStatistics>,
    /// The machine's memory nodes, of which there is at least one.
    pub nodes: Vec<NodeStatistics>,
}

/// The use of one memory node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeStatistics {
    /// Workers that are pinned to a processor of the node ([`Options::pin_workers`]).
    pub pinned_workers: usize,
    /// Address space mapped for the node's workers, without allocations that are mapped one at a time.
    pub mapped_bytes: usize,
}

/// The use of one size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassStatistics {
    /// The size of the class's blocks.
    pub block_bytes: usize,
    /// The number of blocks in use.
    pub used_blocks: usize,
}

impl Memory {
    /// Sets memory up. Nothing is mapped before it is needed.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`] when the options contradict themselves; [`Error::Ticker`] when the thread that drives
    /// the epochs cannot be started.
    pub fn new(options: Options) -> Result<Arc<Self>, Error> {
        Self::on(options, Topology::of_machine())
    }

    /// The same on a machine with these processors.
    pub(crate) fn on(options: Options, topology: Topology) -> Result<Arc<Self>, Error> {
        options.check()?;
        let arena = |_| Arena::new(options.region_bytes, options.huge_pages);
        let limit = options.limit_bytes.or_else(system::granted_bytes).unwrap_or(usize::MAX);
        let interval = options.epoch_interval;
        let set_aside = options.reserve_of(limit)?;
        let shared = Shared {
            epochs: Arc::new(Epochs::new(OWN_SLOTS + options.max_workers)),
            budget: Budget::new(limit, set_aside),
            arenas: (0..topology.nodes()).map(arena).collect(),
            pinned: (0..topology.nodes()).map(|_| AtomicUsize::new(0)).collect(),
            topology,
            stash: Stash::new(),
            reserve: Reserve::new(set_aside),
            coalescer: Coalescer::default(),
            counters: (0..OWN_SLOTS + options.max_workers).map(|_| OnceLock::new()).collect(),
            workers: (0..OWN_SLOTS + options.max_workers).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect(),
            large: Mutex::default(),
            orphans: Mutex::default(),
            orphan_count: AtomicUsize::new(0),
            shortage: AtomicU64::new(0),
            most_waiting: options.most_waiting(limit),
            options,
        };
        let memory = Arc::new(Self { shared, ticker: Mutex::default() });
        if let Some(interval) = interval {
            memory.start_ticker(interval)?;
        }
        Ok(memory)
    }

    /// Claims a worker slot. Its memory comes from the node that the calling thread runs on, or the worker is pinned to ([`Options::pin_workers`]).
    ///
    /// # Errors
    /// [`Error::TooManyWorkers`] when [`Options::max_workers`] slots are claimed.
    pub fn register(self: &Arc<Self>) -> Result<Local, Error> {
        self.register_in(OWN_SLOTS..self.slots())
    }

    /// Claims one of the [`OWN_SLOTS`] that a database has for work of its own, beside its users' workers.
    ///
    /// # Errors
    /// [`Error::TooManyWorkers`] when they are claimed.
    pub fn register_own(self: &Arc<Self>) -> Result<Local, Error> {
        self.register_in(0..OWN_SLOTS)
    }

    /// The number of slots, including the [`OWN_SLOTS`].
    pub fn slots(&self) -> usize {
        OWN_SLOTS + self.shared.options.max_workers
    }

    fn register_in(self: &Arc<Self>, slots: Range<usize>) -> Result<Local, Error> {
        let limit = slots.len();
        let slot = self.shared.epochs.claim(slots).ok_or(Error::TooManyWorkers { limit })?;
        let counters = Arc::clone(self.shared.counters[slot].get_or_init(|| Arc::new(Counters::new())));
        let node = self.shared.topology.current_node();
        Ok(Local::new(Arc::clone(self), WorkerId(slot as u32), counters, node))
    }

    /// The epoch clock.
    pub fn epochs(&self) -> &Epochs {
        &self.shared.epochs
    }

    /// Starts a thread that moves the epochs on every `interval`, in place of the one that runs, if any.
    ///
    /// # Errors
    /// [`Error::Ticker`] when the system does not give a thread.
    pub fn start_ticker(&self, interval: Duration) -> Result<(), Error> {
        if MODELLED {
            return Ok(());
        }
        let ticker = Ticker::start(Arc::clone(&self.shared.epochs), interval)?;
        // The old one is stopped outside the lock.
        let old = lock(&self.ticker).replace(ticker);
        drop(old);
        Ok(())
    }

    /// Stops the thread that moves the epochs on, if one runs.
    pub fn stop_ticker(&self) {
        let old = lock(&self.ticker).take();
        drop(old);
    }

    /// Touches the next `bytes` bytes that workers of this node will take, on as many threads as there are processors, so
    /// that a benchmark meets no page faults. Returns how many bytes were touched.
    pub fn prefault(&self, bytes: usize) -> usize {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let left = self.shared.budget.left();
        self.shared.arenas[self.shared.topology.current_node()].prefault(bytes.min(left), threads)
    }

    /// The garbage that a worker may keep when it ends a transaction, in bytes; any thread may free the rest.
    #[inline]
    pub fn most_waiting(&self) -> usize {
        self.shared.most_waiting
    }

    /// The error for an allocation of so many bytes that is refused now.
    #[cold]
    pub fn refusal(&self, requested: usize) -> OutOfMemory {
        self.shared.refusal(requested)
    }

    /// Compares the use of memory with the marks. This is cheap below the soft mark; above it, it sums up the counters of the
    /// workers.
    pub fn pressure(&self) -> Pressure {
        let limit = self.shared.budget.limit();
        let percent = |percent: u8| (limit as u128 * u128::from(percent) / 100) as usize;
        let soft = percent(self.shared.options.soft_percent);
        if self.shared.budget.reserved() < soft {
            return Pressure::Normal;
        }
        match self.shared.used_bytes() {
            used if used >= percent(98) => Pressure::Hard,
            used if used >= soft => Pressure::Soft,
            _ => Pressure::Normal,
        }
    }

    /// The soft mark, in percent of the limit.
    pub fn soft_percent(&self) -> u8 {
        self.shared.options.soft_percent
    }

    /// The use of memory.
    pub fn statistics(&self) -> MemoryStatistics {
        let counters = || self.shared.counters.iter().filter_map(OnceLock::get);
        let whole = |sum: i64| usize::try_from(sum).unwrap_or(0);
        let blocks = |class: usize| whole(counters().map(|of| of.blocks[class].load(Ordering::Relaxed)).sum());
        let classes: Vec<ClassStatistics> = (0..CLASSES)
            .map(|class| ClassStatistics { block_bytes: size_of_class(class), used_blocks: blocks(class) })
            .filter(|class| class.used_blocks > 0)
            .collect();
        let large_bytes = whole(counters().map(|of| of.large_bytes.load(Ordering::Relaxed)).sum());
        let mapped: Vec<_> = self.shared.arenas.iter().map(Arena::mapped_bytes).collect();
        let node = |(&(mapped_bytes, _), pinned): (&(usize, usize), &AtomicUsize)| NodeStatistics {
            pinned_workers: pinned.load(Ordering::Relaxed),
            mapped_bytes,
        };
        let nodes = mapped.iter().zip(&self.shared.pinned).map(node).collect();
        let large = lock(&self.shared.large);
        let large_huge: usize = large.values().filter(|mapping| mapping.huge).map(Mapping::bytes).sum();
        MemoryStatistics {
            limit_bytes: self.shared.budget.limit(),
            reserved_bytes: self.shared.taken_bytes(),
            mapped_bytes: mapped.iter().map(|(mapped, _)| mapped).sum::<usize>()
                + large_bytes
                + self.shared.reserve.mapped_bytes(),
            huge_page_bytes: mapped.iter().map(|(_, huge)| huge).sum::<usize>() + large_huge,
            used_bytes: classes.iter().map(|class| class.block_bytes * class.used_blocks).sum::<usize>() + large_bytes,
            retired_bytes: whole(counters().map(|of| of.retired_bytes.load(Ordering::Relaxed)).sum()),
            large_bytes,
            classes,
            nodes,
        }
    }
}

impl Shared {
    /// The bytes that count against the limit.
    fn taken_bytes(&self) -> usize {
        self.budget.reserved() + self.reserve.drawn()
    }

    #[cold]
    pub(crate) fn refusal(&self, requested: usize) -> OutOfMemory {
        OutOfMemory { requested, used: self.taken_bytes(), limit: self.budget.limit() }
    }

    /// Puts free blocks together so that they can serve other sizes. Returns whether to try an allocation again.
    pub(crate) fn coalesce(&self, pool: &Pool, refusals: usize) -> bool {
        self.coalescer.run(self, pool, self.used_of_regions(), refusals)
    }

    /// Leaves what a worker has free to all.
    pub(crate) fn dissolve(&self, pool: &Pool) {
        self.coalescer.note(pool.dissolve(self));
    }

    /// Leaves to all what workers keep that are in no epoch: they may do nothing for long. Workers that kept nothing since are passed over.
    pub(crate) fn take_from_idle(&self) {
        /// Gives the claim up, even if the work ends in a panic.
        struct Claim<'e>(&'e Epochs, usize);
        impl Drop for Claim<'_> {
            fn drop(&mut self) {
                self.0.give_up(self.1, true);
            }
        }
        for slot in (0..self.epochs.used_slots()).filter(|slot| self.epochs.take_kept(*slot)) {
            let _claim = Claim(&self.epochs, slot);
            // Relaxed: it was written under what `take_kept` claims.
            let worker = NonNull::new(self.workers[slot].load(Ordering::Relaxed));
            // SAFETY: a worker takes its pointer away before it ends, under the claim that this thread has; and as long as this thread
            // has it, the worker itself is in no epoch and does nothing with what it keeps.
            worker.into_iter().for_each(|worker| unsafe { worker.as_ref() }.leave_to_all());
        }
    }

    /// Asks the other workers for their free blocks.
    pub(crate) fn begin_shortage(&self) {
        self.shortage.store(self.epochs.current(), Ordering::Relaxed);
    }

    /// The epoch of the last shortage.
    #[inline]
    pub(crate) fn shortage(&self) -> u64 {
        self.shortage.load(Ordering::Relaxed)
    }

    /// The bytes in use of regions and large mappings. Bytes drawn on the reserve were never handed out of those.
    pub(crate) fn used_of_regions(&self) -> usize {
        self.used_bytes().saturating_sub(self.reserve.drawn())
    }

    fn used_bytes(&self) -> usize {
        let counters = || self.counters.iter().filter_map(OnceLock::get);
        let blocks = |of: &Counters| -> i64 {
            let bytes =
                |(class, count): (usize, &AtomicI64)| count.load(Ordering::Relaxed) * size_of_class(class) as i64;
            of.blocks.iter().enumerate().map(bytes).sum()
        };
        let sum: i64 = counters().map(|of| blocks(of) + of.large_bytes.load(Ordering::Relaxed)).sum();
        usize::try_from(sum).unwrap_or(0)
    }

    /// The bytes of the limit that a large allocation takes.
    pub(crate) fn large_size(bytes: usize) -> Option<usize> {
        bytes.checked_next_multiple_of(PAGE).filter(|bytes| *bytes <= isize::MAX as usize - HUGE_PAGE)
    }

    /// Maps memory for one allocation.
    pub(crate) fn allocate_large(&self, size: usize) -> Option<NonNull<u8>> {
        if !self.budget.reserve(size, self.reserve.lacking()) {
            return None;
        }
        let Some(mapping) = Mapping::new(size, self.options.huge_pages) else {
            self.budget.release(size);
            return None;
        };
        let base = mapping.base();
        lock(&self.large).insert(base.addr().get(), mapping);
        Some(base)
    }

    /// Unmaps what [`Shared::allocate_large`] mapped.
    pub(crate) fn free_large(&self, pointer: NonNull<u8>, size: usize) {
        let mapping = lock(&self.large).remove(&pointer.addr().get()).expect("the allocation is a large one");
        assert_eq!(mapping.bytes(), size, "an allocation is freed with the size it was made with");
        drop(mapping);
        self.budget.release(size);
    }

    /// Keeps what a leaving worker had retired until others free it.
    pub(crate) fn adopt_orphans(&self, limbo: Limbo, waits_for: WaitsFor) {
        let mut orphans = lock(&self.orphans);
        self.orphan_count.fetch_add(limbo.len(), Ordering::Relaxed);
        orphans.push((limbo, waits_for));
    }

    /// Frees up to `limit` orphans. Returns whether there may be more to free now. When `wait` is not set and another
    /// worker is at it, leaves the work to that one.
    pub(crate) fn free_orphans(
        &self,
        limit: usize,
        wait: bool,
        mut free: impl FnMut(Entry),
        mut free_page: impl FnMut(EmptyPage),
    ) -> bool {
        if self.orphan_count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut orphans = match self.orphans.try_lock() {
            Ok(orphans) => orphans,
            Err(TryLockError::WouldBlock) if !wait => return false,
            Err(_) => lock(&self.orphans),
        };
        let mut left = limit;
        orphans.retain_mut(|(limbo, waits_for)| {
            let horizon = waits_for.horizon(&self.epochs);
            while left > 0
                && let Some((entry, page)) = limbo.pop_ready(horizon)
            {
                left -= 1;
                self.orphan_count.fetch_sub(1, Ordering::Relaxed);
                free(entry);
                page.into_iter().for_each(&mut free_page);
            }
            if limbo.is_empty() {
                limbo.take_page().into_iter().for_each(&mut free_page);
            }
            !limbo.is_empty()
        });
        left == 0
    }
}

/// Locks a mutex whose contents are whole after every statement, even if a thread panicked while holding it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
