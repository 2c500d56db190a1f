//! A worker's side: its pool, its slot in the epoch clock, what it retired.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use polychron_base::id::WorkerId;
use polychron_sync::atomic::Ordering;

use crate::classes::MAX_POOLED;
use crate::epochs::Slot;
use crate::guard::{Guard, Snapshot};
use crate::limbo::{Entry, Limbo, WaitsFor};
use crate::memory::{Memory, Shared};
use crate::pool::{Counters, Pool, count};
use crate::{Finds, Options, OutOfMemory};

/// How many waiting blocks a worker looks at for each block it retires and at each pin: more than one, so that a backlog
/// shrinks while new blocks come in.
const STEP: usize = 4;

/// For how many ordinary refusals one counts of work that may draw on the reserve: until it goes on nothing does.
const REFUSALS_OF_RESERVE: usize = 16;

/// The number of blocks without a worker that are freed in one go.
const ORPHAN_STEP: usize = 256;

mod pinned;
mod waiting;

/// One worker's share of the memory: its pools, its slot in the epoch tables, what it retired. Can be moved to another
/// thread while it is not pinned. On drop its free and its waiting blocks pass to the others.
pub struct Local {
    // A box whose address others know ([`Shared::workers`]), so that moving the handle is cheap and guards are one pointer.
    worker: NonNull<Worker>,
}

pub(crate) struct Worker {
    pub(crate) memory: Arc<Memory>,
    pub(crate) id: WorkerId,
    /// The number of guards.
    pub(crate) pins: Cell<usize>,
    /// Whether one of them is [`Local::hold`]'s.
    held: Cell<bool>,
    /// Its slot.
    slot: NonNull<Slot>,
    /// Whether it shows what it has found to a thread that tells it.
    shows: Cell<bool>,
    /// The addresses that are noted, with their number.
    noted: RefCell<(u64, Arc<Vec<usize>>)>,
    /// The number of snapshots.
    pub(crate) snapshots: Cell<usize>,
    /// The thread on which the worker was pinned last.
    thread: Cell<u64>,
    /// The node to which it is pinned.
    pinned_to: Cell<Option<usize>>,
    /// The epoch of the pin, while there is one.
    pub(crate) epoch: Cell<u64>,
    /// The epoch of the snapshot, while there is one.
    pub(crate) snapshot: Cell<u64>,
    /// The epoch in which the orphans were seen to.
    orphans_seen: Cell<u64>,
    /// The shortage that the worker left its free blocks to others for.
    shortage_seen: Cell<u64>,
    /// Whether it puts free blocks together, some at each pin.
    walks: Cell<bool>,
    /// Whether anything waits in any limbo, and how many bytes were retired since nothing did, less what was freed.
    waiting: Cell<bool>,
    waiting_bytes: Cell<usize>,
    /// More than this is left to others when the worker leaves its epoch.
    most_waiting: usize,
    /// When more was retired in one epoch, the worker does not wait for the clock's thread to begin the next.
    overdue_bytes: usize,
    /// Whether allocations may draw on the reserve.
    pub(crate) may_draw: Cell<bool>,
    /// Bytes retired since the worker saw an epoch begin.
    fresh: Cell<usize>,
    /// Whether an allocation was refused since that was asked last.
    was_refused: Cell<bool>,
    pool: Pool,
    /// Retired blocks that wait for guards alone.
    pub(crate) retired: RefCell<Limbo>,
    /// Retired blocks that wait for walkers and snapshots. The list is separate, so that a long reader does not hold up the others.
    pub(crate) versions: RefCell<Limbo>,
    /// Unlinked versions, which wait for walkers alone.
    pub(crate) pruned: RefCell<Limbo>,
}

// SAFETY: everything inside is owned: the free blocks, the chunk and what waits are reached by no other thread. Guards and
// snapshots borrow the `Local`, which cannot be shared between threads, so a move never separates them.
unsafe impl Send for Local {}

// What a panic leaves behind is whole, as in a box.
impl std::panic::UnwindSafe for Local {}

impl fmt::Debug for Local {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Local").field("worker", self.worker()).finish()
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Worker").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Local {
    pub(crate) fn new(memory: Arc<Memory>, id: WorkerId, counters: Arc<Counters>, node: usize) -> Self {
        let largest_chunk = memory.shared.options.chunk_of(memory.shared.budget.limit());
        let pool = Pool::new(counters, node, largest_chunk);
        let slot = memory.shared.epochs.slot(id.position());
        let most_waiting = memory.shared.most_waiting;
        let overdue_bytes = Options::overdue_bytes(memory.shared.budget.limit());
        let worker = Worker {
            memory,
            id,
            pins: Cell::new(0),
            held: Cell::new(false),
            slot,
            shows: Cell::new(false),
            noted: RefCell::default(),
            snapshots: Cell::new(0),
            thread: Cell::new(0),
            pinned_to: Cell::new(None),
            epoch: Cell::new(0),
            snapshot: Cell::new(0),
            orphans_seen: Cell::new(0),
            shortage_seen: Cell::new(0),
            walks: Cell::new(false),
            waiting: Cell::new(false),
            waiting_bytes: Cell::new(0),
            most_waiting,
            overdue_bytes,
            may_draw: Cell::new(false),
            fresh: Cell::new(0),
            was_refused: Cell::new(false),
            pool,
            retired: RefCell::default(),
            versions: RefCell::default(),
            pruned: RefCell::default(),
        };
        let worker = NonNull::from(Box::leak(Box::new(worker)));
        let local = Self { worker };
        let (shared, slot) = (local.worker().shared(), id.position());
        shared.epochs.hold_kept(slot);
        // Relaxed: under the claim, see `Shared::take_from_idle`.
        shared.workers[slot].store(worker.as_ptr(), Ordering::Relaxed);
        shared.epochs.give_up(slot, false);
        local
    }

    #[inline]
    fn worker(&self) -> &Worker {
        // SAFETY: the box is this handle's, which frees it when it is dropped. Others look at it as `Shared::take_from_idle` does, and
        // change nothing while this one uses what it keeps.
        unsafe { self.worker.as_ref() }
    }

    /// Enters the current epoch: nothing retired from now on is freed before the guard is dropped. Guards may be nested;
    /// the worker stays in the epoch of the first, whose pin alone is an exchange and a barrier behind it.
    #[inline]
    pub fn pin(&self) -> Guard<'_> {
        self.worker().come();
        Guard { worker: self.worker(), resting: false }
    }

    /// Pins the worker until [`Local::release`], so that what is found from one guard to the next stays: for a group of transactions that
    /// borrow it one after the other.
    pub fn hold(&mut self) {
        let worker = self.worker();
        if !worker.held.replace(true) {
            worker.come();
        }
    }

    /// Ends what [`Local::hold`] has begun.
    pub fn release(&mut self) {
        let worker = self.worker();
        if worker.held.replace(false) {
            worker.leave();
        }
    }

    /// Whether [`Local::hold`] keeps the worker pinned.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.worker().held.get()
    }

    /// From now on the worker's guards that stand aside show what they have found. Any thread that tells the worker to leave its epoch then
    /// keeps that from being freed until the last guard is dropped, whatever epochs the worker has been in since.
    ///
    /// # Panics
    /// When the worker is in an epoch.
    pub fn show_finds(&mut self, finds: Arc<dyn Finds>) {
        let worker = self.worker();
        assert_eq!(worker.pins.get(), 0, "what was found before is not shown");
        worker.shows.set(true);
        worker.shared().epochs.show_finds(worker.id.position(), Some(finds));
    }

    /// Whether the worker is inside an epoch already, so that [`Local::pin`] passes no barrier.
    #[inline]
    pub fn is_pinned(&self) -> bool {
        self.worker().pins.get() > 0
    }

    /// [`Epochs::is_another_pinned_here`](crate::Epochs::is_another_pinned_here) of this worker's slot.
    pub fn is_nested(&self) -> bool {
        self.worker().shared().epochs.is_another_pinned_here(self.worker().id.position())
    }

    /// Opens a snapshot at the newest read-only epoch. Snapshots of one `Local` that overlap read at the same epoch, the
    /// first one's.
    ///
    /// The snapshot alone keeps the versions it can see. A long reader renews its guard between operations
    /// ([`Guard::refresh`]), so that it holds up neither the epochs nor the reclamation of anything else.
    #[inline]
    pub fn begin_snapshot(&self) -> Snapshot<'_> {
        self.worker().begin_snapshot()
    }

    /// Whether the worker retired so much since it saw an epoch begin that the next one is overdue: true once, and again
    /// after as much. For a protocol that moves the clock itself; where the memory does ([`crate::Options`]), its workers
    /// begin the epoch when they pin.
    #[inline]
    pub fn is_epoch_overdue(&self) -> bool {
        self.worker().fresh.get() >= self.worker().overdue_bytes && {
            self.worker().fresh.set(0);
            true
        }
    }

    /// Whether an allocation of the worker was refused since this was asked last: any thread that keeps a list of what it will retire looks
    /// through it before the next try.
    #[inline]
    pub fn was_refused(&self) -> bool {
        self.worker().was_refused.get() && self.worker().was_refused.replace(false)
    }

    /// Ends what leaked guards and snapshots ([`std::mem::forget`]) still hold: none can be alive, for each borrows the
    /// `Local`. A worker whose transactions can be leaked calls this before it begins the next.
    pub fn end_leaked(&mut self) {
        let worker = self.worker();
        let (epochs, slot) = (&worker.shared().epochs, worker.id.position());
        if worker.shows.get() && worker.pins.get() > 0 {
            // No thread looks at its finds from here on.
            worker.come_back();
        }
        worker.held.set(false);
        if worker.pins.replace(0) > 0 {
            epochs.unpin(slot);
        }
        if worker.snapshots.replace(0) > 0 {
            epochs.end_snapshot(slot);
        }
        epochs.end_commit(slot);
        worker.may_draw.set(false);
    }

    /// The worker's slot.
    pub fn worker_id(&self) -> WorkerId {
        self.worker().id
    }

    /// The memory the worker belongs to.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.worker().memory
    }

    /// Frees all that the worker retired, and all that workers that left had retired, as far as that is possible now, and leaves its
    /// free blocks to the others. Workers that stop working for a while call it, so that nothing stays with them.
    pub fn collect(&self) {
        let worker = self.worker();
        let (shared, is_pinned) = (worker.shared(), worker.pins.get() > 0);
        if !is_pinned {
            shared.epochs.hold_kept(worker.id.position());
        }
        worker.collect();
        shared.dissolve(&worker.pool);
        shared.coalescer.look(shared, &worker.pool, shared.epochs.current(), true);
        if !is_pinned {
            shared.epochs.give_up(worker.id.position(), false);
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.end_leaked();
        let worker = self.worker();
        let (shared, slot) = (worker.shared(), worker.id.position());
        shared.epochs.hold_kept(slot);
        worker.collect();
        worker.hand_over();
        worker.free_last_pages();
        shared.dissolve(&worker.pool);
        worker.unpin_thread();
        // Relaxed: under the claim, see `Shared::take_from_idle`.
        shared.workers[slot].store(std::ptr::null_mut(), Ordering::Relaxed);
        shared.epochs.give_up(slot, false);
        if worker.shows.get() {
            shared.epochs.show_finds(slot, None);
        }
        shared.epochs.release(slot);
        // SAFETY: it was a box, see `new`, and no thread still finds it.
        drop(unsafe { Box::from_raw(self.worker.as_ptr()) });
    }
}

impl Worker {
    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        &self.memory.shared
    }

    /// A guard comes.
    #[inline]
    pub(crate) fn come(&self) {
        let pins = self.pins.get();
        self.pins.set(pins + 1);
        if pins == 0 {
            self.enter();
        } else {
            self.come_back();
        }
    }

    /// Stands aside in its epoch, under its only guard.
    #[inline]
    pub(crate) fn stand_aside(&self) {
        if self.pins.get() != 1 {
            return;
        }
        debug_assert_eq!(self.snapshots.get(), 0, "who follows versions leaves its epoch");
        if self.waiting_bytes.get() > self.most_waiting {
            self.hand_over();
        }
        self.slot().stand_aside();
    }

    /// Comes back from there, if it is there. Whether it was never away.
    #[inline]
    pub(crate) fn come_back(&self) -> bool {
        self.slot().come_back() || self.come_back_notified()
    }

    #[cold]
    fn come_back_notified(&self) -> bool {
        let stayed = self.shared().epochs.has_stayed(self.id.position());
        if !stayed {
            self.enter();
        }
        stayed
    }

    #[inline]
    fn slot(&self) -> &Slot {
        // SAFETY: the slots stay where they are as long as the memory, which the worker keeps.
        unsafe { self.slot.as_ref() }
    }

    /// A guard goes.
    #[inline]
    pub(crate) fn leave(&self) {
        let pins = self.pins.get() - 1;
        if pins == 0 && self.shows.get() {
            // No thread looks at its finds from here on.
            self.come_back();
        }
        self.pins.set(pins);
        if pins == 0 {
            if self.waiting_bytes.get() > self.most_waiting {
                self.hand_over();
            }
            // From here on others may take what the worker keeps.
            self.shared().epochs.unpin(self.id.position());
        }
    }

    /// Leaves all that waits to any thread that comes by: the worker may do nothing for long.
    #[cold]
    fn hand_over(&self) {
        self.tag(self.shared().epochs.seal(self.id.position()));
        self.leave_tagged();
    }

    /// Leaves all that the worker has to any thread that comes by. Called by another one, which has taken it.
    pub(crate) fn leave_to_all(&self) {
        if self.waiting.get() {
            self.tag(self.shared().epochs.tag_for_others());
            self.leave_tagged();
        }
        self.free_last_pages();
        self.shared().dissolve(&self.pool);
    }

    fn leave_tagged(&self) {
        let shared = self.shared();
        for (limbo, waits_for) in self.limbos() {
            // The page of a list that is empty stays with the worker.
            if !limbo.borrow().is_empty() {
                shared.adopt_orphans(limbo.take(), waits_for);
            }
        }
        self.waiting.set(false);
        self.waiting_bytes.set(0);
    }

    #[inline]
    pub(crate) fn enter(&self) {
        if self.fresh.get() >= self.overdue_bytes {
            self.begin_overdue_epoch();
        }
        let (epochs, here) = (&self.shared().epochs, polychron_sync::this_thread());
        if here != self.thread.get() {
            self.come_to_thread(here);
        }
        let slot = self.id.position();
        // A thread that has a snapshot open follows links between versions.
        let epoch = if self.snapshots.get() > 0 { epochs.pin_walking(slot) } else { epochs.pin(slot) };
        if !epochs.kept_own(slot) {
            epochs.come_for_kept(slot);
        }
        if epoch != self.epoch.get() {
            self.epoch.set(epoch);
            self.fresh.set(0);
            if self.shared().shortage() != self.shortage_seen.get() {
                self.see_to_shortage();
            }
            if self.shared().coalescer.is_due(epoch) {
                self.look_what_is_free(epoch);
            }
        } else if self.walks.get() {
            self.look_what_is_free(epoch);
        }
        if self.waiting.get() {
            self.tag(epoch);
            self.collect_some();
        }
        if epoch != self.orphans_seen.get() {
            self.see_to_orphans(epoch);
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
        self.limbos().into_iter().for_each(|(limbo, _)| limbo.borrow_mut().tag(epoch));
    }

    #[cold]
    fn see_to_orphans(&self, epoch: u64) {
        let more = self.free_orphans(ORPHAN_STEP, false);
        if !more {
            self.orphans_seen.set(epoch);
        }
    }

    /// Some thread was refused memory: the worker leaves its free blocks to all.
    #[cold]
    fn see_to_shortage(&self) {
        self.shortage_seen.set(self.shared().shortage());
        self.shared().dissolve(&self.pool);
    }

    #[cold]
    fn look_what_is_free(&self, epoch: u64) {
        self.walks.set(self.shared().coalescer.look(self.shared(), &self.pool, epoch, false));
    }

    /// The lists of what waits, and for whom.
    #[inline]
    fn limbos(&self) -> [(&RefCell<Limbo>, WaitsFor); 3] {
        [(&self.retired, WaitsFor::Guards), (&self.versions, WaitsFor::Walkers), (&self.pruned, WaitsFor::Walkers)]
    }

    #[inline]
    pub(crate) fn allocate(&self, bytes: usize) -> Result<NonNull<u8>, OutOfMemory> {
        debug_assert!(self.pins.get() > 0, "in no epoch others may take what the worker keeps");
        if bytes <= MAX_POOLED
            && let Some(block) = self.pool.allocate(self.shared(), bytes)
        {
            return Ok(block);
        }
        self.allocate_slowly(bytes)
    }

    /// Large allocations, and whatever can still be done when memory is short.
    #[cold]
    #[inline(never)]
    fn allocate_slowly(&self, bytes: usize) -> Result<NonNull<u8>, OutOfMemory> {
        let shared = self.shared();
        let refused = || shared.refusal(bytes);
        if bytes > MAX_POOLED {
            let size = Shared::large_size(bytes).ok_or_else(refused)?;
            let allocate = || shared.allocate_large(size);
            let block = allocate().or_else(|| self.insist(allocate, || None)).ok_or_else(refused)?;
            count(&self.pool.counters.large_bytes, size as i64);
            return Ok(block);
        }
        let draw = || if self.may_draw.get() { self.pool.draw(shared, bytes) } else { None };
        let allocate = || draw().or_else(|| self.pool.allocate(shared, bytes));
        draw().or_else(|| self.insist(allocate, || self.pool.scrape(shared, bytes))).ok_or_else(refused)
    }

    /// Tries again and again, each time after more was done to make room: what waits is freed, free blocks are put together if many
    /// came since that was done last, larger blocks are cut up, the epoch is moved on so that more can be freed, and free blocks are put
    /// together if that was not done for many refusals. Each step is taken once, so a refusal costs what one of each costs.
    fn insist(
        &self,
        allocate: impl Fn() -> Option<NonNull<u8>>,
        cut_up: impl Fn() -> Option<NonNull<u8>>,
    ) -> Option<NonNull<u8>> {
        let coalesced = |refusals| if self.shared().coalesce(&self.pool, refusals) { allocate() } else { None };
        let collected = || {
            self.collect();
            allocate().or_else(|| coalesced(0)).or_else(&cut_up)
        };
        let advanced = || {
            self.collect_harder();
            allocate().or_else(|| coalesced(0)).or_else(&cut_up)
        };
        let last = || {
            self.shared().begin_shortage();
            self.shared().take_from_idle();
            coalesced(if self.may_draw.get() { REFUSALS_OF_RESERVE } else { 1 }).or_else(&cut_up)
        };
        let block = collected().or_else(advanced).or_else(last);
        self.was_refused.set(self.was_refused.get() || block.is_none());
        block
    }

    fn collect_harder(&self) {
        self.tag(self.shared().epochs.seal(self.id.position()));
        self.shared().epochs.advance();
        self.collect();
    }

    #[inline]
    pub(crate) unsafe fn free(&self, pointer: NonNull<u8>, bytes: usize) {
        if bytes <= MAX_POOLED {
            // SAFETY: the caller promises that pointer and size match an allocation and that no thread uses it.
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
    pub(crate) fn retire(&self, limbo: &RefCell<Limbo>, waits_for: WaitsFor, entry: Entry) {
        debug_assert!(self.pins.get() > 0, "in no epoch others may take what the worker keeps");
        count(&self.pool.counters.retired_bytes, entry.bytes as i64);
        self.fresh.set(self.fresh.get() + entry.bytes);
        self.waiting_bytes.set(self.waiting_bytes.get() + entry.bytes);
        limbo.borrow_mut().push(entry, || self.allocate_page());
        self.waiting.set(true);
        self.free_ready(limbo, waits_for, STEP);
    }

    #[inline]
    pub(crate) fn begin_snapshot(&self) -> Snapshot<'_> {
        let snapshots = self.snapshots.get();
        self.snapshots.set(snapshots + 1);
        if snapshots == 0 {
            let (epochs, slot) = (&self.shared().epochs, self.id.position());
            self.snapshot.set(epochs.begin_snapshot(slot));
            if self.pins.get() > 0 {
                epochs.walk(slot);
            }
        }
        Snapshot { worker: self }
    }
}
