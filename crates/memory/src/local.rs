//! A worker's side: its pool, its slot in the epoch clock, what it retired.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use polychron_base::id::WorkerId;

use crate::classes::MAX_POOLED;
use crate::limbo::{Entry, Limbo};
use crate::memory::{Memory, Shared};
use crate::pool::{Counters, Pool, count};
use crate::{Epochs, OutOfMemory};

/// How many waiting blocks a worker looks at for each block it retires and at each pin: more than one, so that a backlog
/// shrinks while new blocks come in.
const STEP: usize = 4;

/// A worker that retired so much in one epoch does not wait for the clock's thread to begin the next. At the default
/// intervals a worker has to retire 1 GB/s, or the thread to wait for a processor, for that to happen, and a tick
/// costs a look at every slot; so the bound is kept in the ordinary case without a shared write, and costs little beyond.
const OVERDUE_BYTES: usize = 2 << 20;

/// How many blocks of workers that left are freed in one go.
const ORPHAN_STEP: usize = 1024;

/// One worker's share of the memory: its pools, its slot in the epoch tables, what it retired. Can be moved to another
/// thread while it is not pinned. On drop its free and its waiting blocks pass to the others.
#[derive(Debug)]
pub struct Local {
    // Behind a box, so that moving the handle is cheap and guards are one pointer.
    worker: Box<Worker>,
}

struct Worker {
    memory: Arc<Memory>,
    id: WorkerId,
    /// How many guards exist.
    pins: Cell<usize>,
    /// How many snapshots exist.
    snapshots: Cell<usize>,
    /// The thread on which the worker was pinned last.
    thread: Cell<u64>,
    /// The epoch of the pin, while there is one.
    epoch: Cell<u64>,
    /// The epoch of the snapshot, while there is one.
    snapshot: Cell<u64>,
    /// The read-only epoch up to which the orphans were seen to.
    orphans_seen: Cell<u64>,
    /// Whether anything waits in either limbo.
    waiting: Cell<bool>,
    /// Whether allocations may draw on the reserve.
    may_draw: Cell<bool>,
    /// Bytes retired since the worker saw an epoch begin.
    fresh: Cell<usize>,
    pool: Pool,
    /// What waits for guards alone.
    retired: RefCell<Limbo>,
    /// What waits for snapshots too. Apart, so that a long reader does not hold up the other list.
    versions: RefCell<Limbo>,
}

// SAFETY: everything inside is owned: the free blocks, the chunk and what waits are reached by nobody else. Guards and
// snapshots borrow the `Local`, which cannot be shared between threads, so a move never separates them.
unsafe impl Send for Local {}

impl fmt::Debug for Worker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Worker").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Local {
    pub(crate) fn new(memory: Arc<Memory>, id: WorkerId, counters: Arc<Counters>, node: usize) -> Self {
        let pool = Pool::new(counters, node, memory.shared.options.chunk_bytes);
        let worker = Worker {
            memory,
            id,
            pins: Cell::new(0),
            snapshots: Cell::new(0),
            thread: Cell::new(0),
            epoch: Cell::new(0),
            snapshot: Cell::new(0),
            orphans_seen: Cell::new(0),
            waiting: Cell::new(false),
            may_draw: Cell::new(false),
            fresh: Cell::new(0),
            pool,
            retired: RefCell::default(),
            versions: RefCell::default(),
        };
        Self { worker: Box::new(worker) }
    }

    /// Enters the current epoch: nothing retired from now on is freed before the guard is dropped. Guards may be nested;
    /// the worker stays in the epoch of the first, whose pin alone is an exchange and a barrier behind it.
    #[inline]
    pub fn pin(&self) -> Guard<'_> {
        let worker = &*self.worker;
        let pins = worker.pins.get();
        worker.pins.set(pins + 1);
        if pins == 0 {
            worker.enter();
        }
        Guard { worker }
    }

    /// Whether the worker is inside an epoch already, so that [`Local::pin`] passes no barrier.
    #[inline]
    pub fn is_pinned(&self) -> bool {
        self.worker.pins.get() > 0
    }

    /// Leaves the epoch and the snapshot of guards that were leaked. None can be used any more: each borrowed this.
    pub fn leave_leaked(&mut self) {
        let worker = &*self.worker;
        if worker.pins.replace(0) > 0 {
            worker.shared().epochs.unpin(worker.id.position());
        }
        if worker.snapshots.replace(0) > 0 {
            worker.shared().epochs.end_snapshot(worker.id.position());
        }
    }

    /// Opens a snapshot at the newest read-only epoch. Snapshots of one `Local` that overlap read at the same epoch, the
    /// first one's.
    ///
    /// The snapshot alone keeps the versions it can see. A long reader renews its guard between operations
    /// ([`Guard::refresh`]), so that it holds up neither the epochs nor the reclamation of anything else.
    #[inline]
    pub fn begin_snapshot(&self) -> Snapshot<'_> {
        self.worker.begin_snapshot()
    }

    /// Whether the worker retired so much since it saw an epoch begin that the next one is overdue: true once, and again
    /// after as much. For a protocol that moves the clock itself; where the memory does ([`crate::Options`]), its workers
    /// begin the epoch when they pin.
    #[inline]
    pub fn is_epoch_overdue(&self) -> bool {
        self.worker.fresh.get() >= OVERDUE_BYTES && {
            self.worker.fresh.set(0);
            true
        }
    }

    /// Ends what leaked guards and snapshots ([`std::mem::forget`]) still hold: none can be alive, for each borrows the
    /// `Local`. A worker whose transactions can be leaked calls this before it begins the next.
    pub fn end_leaked(&mut self) {
        let worker = &*self.worker;
        let (epochs, slot) = (&worker.shared().epochs, worker.id.position());
        if worker.pins.replace(0) > 0 {
            epochs.unpin(slot);
        }
        if worker.snapshots.replace(0) > 0 {
            epochs.end_snapshot(slot);
        }
        worker.may_draw.set(false);
    }

    /// The worker's slot.
    pub fn worker_id(&self) -> WorkerId {
        self.worker.id
    }

    /// The memory the worker belongs to.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.worker.memory
    }

    /// Frees all that the worker retired, and all that workers that left had retired, as far as that is possible now.
    /// Workers that stop working for a while call it, so that their garbage does not stay.
    pub fn collect(&self) {
        self.worker.collect();
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.end_leaked();
        let worker = &*self.worker;
        let shared = worker.shared();
        worker.collect();
        for limbo in [&worker.retired, &worker.versions] {
            let limbo = limbo.take();
            if !limbo.is_empty() {
                shared.adopt_orphans(limbo);
            }
        }
        worker.pool.dissolve(shared);
        shared.epochs.release(worker.id.position());
    }
}

impl Worker {
    #[inline]
    fn shared(&self) -> &Shared {
        &self.memory.shared
    }

    #[inline]
    fn enter(&self) {
        if self.fresh.get() >= OVERDUE_BYTES {
            self.begin_overdue_epoch();
        }
        let (epochs, here) = (&self.shared().epochs, polychron_sync::this_thread());
        if here != self.thread.get() {
            self.thread.set(here);
            epochs.set_thread(self.id.position(), here);
        }
        let epoch = epochs.pin(self.id.position());
        if epoch != self.epoch.get() {
            self.epoch.set(epoch);
            self.fresh.set(0);
        }
        if self.waiting.get() {
            self.tag(epoch);
            self.collect_some();
        }
        let readonly = epochs.readonly();
        if readonly != self.orphans_seen.get() {
            self.see_to_orphans(readonly);
        }
    }

    /// Does what the memory's own clock is late with; where a protocol moves the clock, that looks for itself.
    #[cold]
    fn begin_overdue_epoch(&self) {
        if self.shared().options.epoch_interval.is_some() {
            self.fresh.set(0);
            self.shared().epochs.tick();
        }
    }

    /// Marks what was retired since the last barrier. The caller passed one and read `epoch` behind it.
    #[inline]
    fn tag(&self, epoch: u64) {
        self.retired.borrow_mut().tag(epoch);
        self.versions.borrow_mut().tag(epoch);
    }

    #[cold]
    fn see_to_orphans(&self, readonly: u64) {
        let more = self.shared().free_orphans(ORPHAN_STEP, false, |pointer, bytes| self.free_retired(pointer, bytes));
        if !more {
            self.orphans_seen.set(readonly);
        }
    }

    /// Frees a few blocks whose time has come.
    #[inline]
    fn collect_some(&self) {
        for limbo in [&self.retired, &self.versions] {
            self.free_ready(limbo, STEP);
        }
        self.waiting.set(!self.retired.borrow().is_empty() || !self.versions.borrow().is_empty());
    }

    #[inline]
    fn free_ready(&self, limbo: &RefCell<Limbo>, limit: usize) {
        let horizon = self.shared().epochs.horizon();
        for _ in 0..limit {
            let Some(entry) = limbo.borrow_mut().pop_ready(horizon) else { break };
            self.free_retired(entry.pointer, entry.bytes);
        }
    }

    fn free_retired(&self, pointer: NonNull<u8>, bytes: usize) {
        count(&self.pool.counters.retired_bytes, -(bytes as i64));
        // SAFETY: who retired the block promised pointer and size, and the horizons say that nobody reaches it any more.
        unsafe { self.free(pointer, bytes) };
    }

    fn collect(&self) {
        let shared = self.shared();
        self.tag(shared.epochs.settle(self.id.position()));
        self.free_ready(&self.retired, usize::MAX);
        self.free_ready(&self.versions, usize::MAX);
        self.waiting.set(!self.retired.borrow().is_empty() || !self.versions.borrow().is_empty());
        shared.free_orphans(usize::MAX, true, |pointer, bytes| self.free_retired(pointer, bytes));
    }

    #[inline]
    fn allocate(&self, bytes: usize) -> Result<NonNull<u8>, OutOfMemory> {
        if bytes <= MAX_POOLED
            && let Some(block) = self.pool.allocate(self.shared(), bytes)
        {
            return Ok(block);
        }
        self.allocate_slowly(bytes)
    }

    /// Large allocations, and whatever can still be done when memory is short: free what waits, move the epoch on so that
    /// more can be freed, and cut up larger blocks.
    #[cold]
    #[inline(never)]
    fn allocate_slowly(&self, bytes: usize) -> Result<NonNull<u8>, OutOfMemory> {
        let refused = OutOfMemory { requested: bytes };
        if bytes > MAX_POOLED {
            let size = Shared::large_size(bytes).ok_or(refused)?;
            let block = self.insist(|| self.shared().allocate_large(size)).ok_or(refused)?;
            count(&self.pool.counters.large_bytes, size as i64);
            return Ok(block);
        }
        if self.may_draw.get()
            && let Some(block) = self.pool.draw(self.shared(), bytes)
        {
            return Ok(block);
        }
        let block = self.insist(|| self.pool.allocate(self.shared(), bytes));
        block.or_else(|| self.pool.scrape(self.shared(), bytes)).ok_or(refused)
    }

    /// Tries again and again, each time after more was done to make room.
    fn insist(&self, try_it: impl Fn() -> Option<NonNull<u8>>) -> Option<NonNull<u8>> {
        let collected = || {
            self.collect();
            try_it()
        };
        let advanced = || {
            self.collect_harder();
            try_it()
        };
        let coalesced = || if self.shared().coalesce(&self.pool) { try_it() } else { None };
        try_it().or_else(collected).or_else(advanced).or_else(coalesced)
    }

    fn collect_harder(&self) {
        self.tag(self.shared().epochs.settle(self.id.position()));
        self.shared().epochs.advance();
        self.collect();
    }

    #[inline]
    unsafe fn free(&self, pointer: NonNull<u8>, bytes: usize) {
        if bytes <= MAX_POOLED {
            // SAFETY: the caller promises that pointer and size match an allocation and that nobody uses it.
            unsafe { self.pool.free(self.shared(), pointer, bytes) };
        } else {
            self.free_large(pointer, bytes);
        }
    }

    #[cold]
    fn free_large(&self, pointer: NonNull<u8>, bytes: usize) {
        let size = Shared::large_size(bytes).expect("it was allocated with this size");
        self.shared().free_large(pointer, size);
        count(&self.pool.counters.large_bytes, -(size as i64));
    }

    #[inline]
    fn retire(&self, limbo: &RefCell<Limbo>, entry: Entry) {
        count(&self.pool.counters.retired_bytes, entry.bytes as i64);
        self.fresh.set(self.fresh.get() + entry.bytes);
        limbo.borrow_mut().push(entry);
        self.waiting.set(true);
        self.free_ready(limbo, STEP);
    }

    #[inline]
    fn begin_snapshot(&self) -> Snapshot<'_> {
        let snapshots = self.snapshots.get();
        self.snapshots.set(snapshots + 1);
        if snapshots == 0 {
            self.snapshot.set(self.shared().epochs.begin_snapshot(self.id.position()));
        }
        Snapshot { worker: self }
    }
}

/// Proof that the worker is inside an epoch; gives access to its pools.
#[derive(Debug)]
pub struct Guard<'l> {
    worker: &'l Worker,
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        let pins = self.worker.pins.get() - 1;
        self.worker.pins.set(pins);
        if pins == 0 {
            self.worker.shared().epochs.unpin(self.worker.id.position());
        }
    }
}

impl<'l> Guard<'l> {
    /// The epoch the worker is in. While the guard lives, [`Epochs::readonly`] stays below it, so a transaction may commit
    /// in this epoch or in a later one.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.worker.epoch.get()
    }

    /// Leaves the epoch and enters the current one, for who works long under one guard. Pointers found before must not be
    /// used after it. Under nested guards nothing happens: the outer one still relies on its epoch. Returns the epoch.
    #[inline]
    pub fn refresh(&mut self) -> u64 {
        if self.worker.pins.get() == 1 {
            self.worker.enter();
        }
        self.epoch()
    }

    /// The worker's slot.
    #[inline]
    pub fn worker_id(&self) -> WorkerId {
        self.worker.id
    }

    /// The memory the worker belongs to.
    #[inline]
    pub fn memory(&self) -> &'l Arc<Memory> {
        &self.worker.memory
    }

    /// The epoch clock.
    #[inline]
    pub fn epochs(&self) -> &'l Epochs {
        &self.worker.memory.shared.epochs
    }

    /// Opens a snapshot, as [`Local::begin_snapshot`] does. It may outlive the guard.
    #[inline]
    pub fn begin_snapshot(&self) -> Snapshot<'l> {
        self.worker.begin_snapshot()
    }

    /// Takes `bytes` bytes of uninitialised memory, aligned to 64 when `bytes` is a multiple of 64 and to 16 otherwise.
    ///
    /// # Errors
    /// When the limit is reached, or the system has no more, after everything that can be freed was freed.
    #[inline]
    pub fn allocate(&self, bytes: usize) -> Result<NonNull<u8>, OutOfMemory> {
        #[cfg(feature = "faults")]
        if crate::faults::refused() {
            return Err(OutOfMemory { requested: bytes });
        }
        self.worker.allocate(bytes)
    }

    /// Runs work that makes room in the end, and needs a little memory for it: what is used up for everybody else comes
    /// from the reserve. Allocations of more than 4 MiB do not.
    #[inline]
    pub fn with_reserve<O>(&self, work: impl FnOnce(&Self) -> O) -> O {
        /// Puts the permission back, whatever happens.
        struct Permission<'w>(&'w Cell<bool>, bool);
        impl Drop for Permission<'_> {
            fn drop(&mut self) {
                self.0.set(self.1);
            }
        }
        let _permission = Permission(&self.worker.may_draw, self.worker.may_draw.replace(true));
        work(self)
    }

    /// Gives memory back at once.
    ///
    /// # Safety
    /// `pointer` came from [`Guard::allocate`] of a worker of the same memory with the same `bytes`, and no thread can reach
    /// it any more.
    #[inline]
    pub unsafe fn free(&self, pointer: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller promises the same.
        unsafe { self.worker.free(pointer, bytes) }
    }

    /// Gives memory back once every guard that exists now is dropped or renewed.
    ///
    /// # Safety
    /// `pointer` came from [`Guard::allocate`] of a worker of the same memory with the same `bytes`; it is retired once;
    /// threads that pin from now on cannot reach it.
    #[inline]
    pub unsafe fn retire(&self, pointer: NonNull<u8>, bytes: usize) {
        let entry = Entry { pointer, bytes, superseded_at: 0 };
        self.worker.retire(&self.worker.retired, entry);
    }

    /// Gives the memory of a version back once every guard that exists now is dropped or renewed **and** every snapshot,
    /// present or to come, reads at `superseded_at` or a newer epoch.
    ///
    /// The epochs passed by one worker should not fall: one that is too high holds up those behind it.
    ///
    /// # Safety
    /// `pointer` came from [`Guard::allocate`] of a worker of the same memory with the same `bytes`; it is retired once;
    /// from now on only snapshots older than `superseded_at` reach it, and those only while they are open.
    #[inline]
    pub unsafe fn retire_versions(&self, pointer: NonNull<u8>, bytes: usize, superseded_at: u64) {
        let entry = Entry { pointer, bytes, superseded_at };
        self.worker.retire(&self.worker.versions, entry);
    }

    /// Keeps every version that is not collectable now from being freed until the answer is dropped, so that chains of
    /// versions can be walked and pruned: `None` when the clock is just being moved or the worker has a snapshot open.
    ///
    /// A moment's thing: while it lasts no version is freed that it might keep.
    pub fn hold_versions(&self) -> Option<Hold<'l>> {
        if self.worker.snapshots.get() > 0 {
            return None;
        }
        let epoch = self.worker.shared().epochs.hold(self.worker.id.position())?;
        self.worker.snapshots.set(1);
        self.worker.snapshot.set(epoch);
        Some(Hold { snapshot: Snapshot { worker: self.worker } })
    }
}

/// Keeps the horizon of versions where it is. See [`Guard::hold_versions`].
#[derive(Debug)]
pub struct Hold<'l> {
    snapshot: Snapshot<'l>,
}

impl Hold<'_> {
    /// [`Epochs::collectable`] for as long as this lives: what was superseded later stays.
    #[inline]
    pub fn collectable(&self) -> u64 {
        self.snapshot.epoch()
    }
}

/// An open snapshot: keeps what can be seen at its epoch until it is dropped.
#[derive(Debug)]
pub struct Snapshot<'l> {
    worker: &'l Worker,
}

impl Snapshot<'_> {
    /// The epoch the snapshot reads at: versions written in it or before it are visible.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.worker.snapshot.get()
    }
}

impl Drop for Snapshot<'_> {
    #[inline]
    fn drop(&mut self) {
        let snapshots = self.worker.snapshots.get() - 1;
        self.worker.snapshots.set(snapshots);
        if snapshots == 0 {
            self.worker.shared().epochs.end_snapshot(self.worker.id.position());
        }
    }
}
