//! A worker's pool: free lists by size class and a chunk to cut new blocks from. No atomics but the worker's own counters.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;

use polychron_sync::atomic::{AtomicI64, Ordering};

use crate::arena::{Arena, Span};
use crate::blocks::FreeList;
use crate::classes::{CLASSES, LOCAL_CLASSES, batch_of_class, class_of, fits_in, size_of_class};
use crate::coalesce::PAGE;
use crate::memory::Shared;
use crate::options::{FIRST_CHUNK, LEAST_CHUNK};
use crate::reserve::DRAW_BYTES;

/// A worker's chunk is about this part of what is reserved already, or less.
const SHARE_OF_RESERVED: usize = 16;

/// Less than this of a leaving worker's chunk is not worth a place in the list of remainders.
const LEAST_REMAINDER: usize = 1024;

/// The counters of a worker. Only the slot's owner writes them, so plain loads and stores suffice; statistics read them. The numbers
/// of one slot may be negative when its worker freed what others allocated: only sums over all slots mean something.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) blocks: [AtomicI64; CLASSES],
    pub(crate) large_bytes: AtomicI64,
    pub(crate) retired_bytes: AtomicI64,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            blocks: std::array::from_fn(|_| AtomicI64::new(0)),
            large_bytes: AtomicI64::new(0),
            retired_bytes: AtomicI64::new(0),
        }
    }
}

/// Adds to a counter that only this thread writes.
#[inline]
pub(crate) fn count(counter: &AtomicI64, by: i64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

/// The free blocks of one class that a worker keeps: never more than two batches.
struct Lists {
    /// The list from which blocks are taken and to which they return; less than a batch.
    active: Cell<FreeList>,
    /// Empty or a full batch. A worker that allocates and frees around a batch's boundary moves between the two lists
    /// without going to the stash.
    spare: Cell<FreeList>,
}

pub(crate) struct Pool {
    lists: [Lists; LOCAL_CLASSES],
    chunk: Cell<Option<Span>>,
    next_chunk_bytes: Cell<usize>,
    largest_chunk: usize,
    pub(crate) counters: Arc<Counters>,
    node: Cell<usize>,
}

impl Pool {
    pub(crate) fn new(counters: Arc<Counters>, node: usize, largest_chunk: usize) -> Self {
        let lists = || Lists { active: Cell::new(FreeList::EMPTY), spare: Cell::new(FreeList::EMPTY) };
        Self {
            lists: std::array::from_fn(|_| lists()),
            chunk: Cell::new(None),
            next_chunk_bytes: Cell::new(FIRST_CHUNK.min(largest_chunk)),
            largest_chunk,
            counters,
            node: Cell::new(node),
        }
    }

    fn arena<'s>(&self, shared: &'s Shared) -> &'s Arena {
        &shared.arenas[self.node.get()]
    }

    /// The node whose memory it takes.
    pub(crate) fn node(&self) -> usize {
        self.node.get()
    }

    /// Takes memory of another node from now on. It has nothing free.
    pub(crate) fn set_node(&self, node: usize) {
        self.node.set(node);
    }

    /// A block for `bytes` bytes, at most [`crate::classes::MAX_POOLED`], or none when the memory is used up.
    #[inline]
    pub(crate) fn allocate(&self, shared: &Shared, bytes: usize) -> Option<NonNull<u8>> {
        let class = class_of(bytes);
        let block = match self.lists.get(class).and_then(|lists| pop(&lists.active, bytes)) {
            Some(block) => block,
            None => self.allocate_slowly(shared, class)?,
        };
        count(&self.counters.blocks[class], 1);
        Some(block)
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// The block came from a pool of the same memory for the same `bytes`, and no thread still uses it.
    #[inline]
    pub(crate) unsafe fn free(&self, shared: &Shared, block: NonNull<u8>, bytes: usize) {
        let class = class_of(bytes);
        count(&self.counters.blocks[class], -1);
        // SAFETY: the caller gives the block away, and it was made for this class.
        unsafe {
            if shared.reserve.was_drawn_on() {
                self.free_beside_reserve(shared, class, block);
            } else {
                self.keep(shared, class, block);
            }
        }
    }

    /// Takes a block back once some thread drew on the reserve: what came from there goes back there, and what makes up for it comes next.
    ///
    /// # Safety
    /// As for [`Pool::keep`].
    #[cold]
    unsafe fn free_beside_reserve(&self, shared: &Shared, class: usize, block: NonNull<u8>) {
        if shared.reserve.owns(block) {
            shared.reserve.take_back(class, block);
            return;
        }
        // SAFETY: the caller gives the block away, to one or the other.
        unsafe {
            if !shared.reserve.take_in(class, block, shared.budget.left()) {
                self.keep(shared, class, block);
            }
        }
    }

    /// Puts a block of a class into the free lists.
    ///
    /// # Safety
    /// The block has the size and alignment of the class, and no thread uses it.
    #[inline]
    unsafe fn keep(&self, shared: &Shared, class: usize, block: NonNull<u8>) {
        let Some(lists) = self.lists.get(class) else {
            let mut list = FreeList::EMPTY;
            // SAFETY: the caller gives the block away.
            unsafe { list.push(block) };
            shared.stash.give(class, list);
            return;
        };
        let mut active = lists.active.get();
        // SAFETY: the caller gives the block away.
        unsafe { active.push(block) };
        lists.active.set(active);
        if active.count() >= batch_of_class(class) {
            rotate(shared, class, lists);
        }
    }

    #[cold]
    #[inline(never)]
    fn allocate_slowly(&self, shared: &Shared, class: usize) -> Option<NonNull<u8>> {
        if let Some(block) = self.recycle(shared, class) {
            return Some(block);
        }
        let size = size_of_class(class);
        if let Some(block) = self.cut(shared, size) {
            return Some(block);
        }
        // A block that is large beside the chunks gets a span of its own; chunks are for what they hold many of.
        if size <= self.next_chunk_bytes.get() / 8 {
            self.refill(shared, size)?;
            return self.cut(shared, size);
        }
        let bytes = size.next_multiple_of(64);
        let (block, rest) = self.reserve_span(shared, bytes, bytes)?.split(size);
        // SAFETY: the rest behind the block is empty, or shorter than 64 bytes and no thread's.
        unsafe { self.carve(shared, rest) };
        Some(block.base)
    }

    /// A free block of the class, the worker's own or from the stash.
    fn recycle(&self, shared: &Shared, class: usize) -> Option<NonNull<u8>> {
        let Some(lists) = self.lists.get(class) else {
            let mut list = shared.stash.take(class);
            let block = list.pop();
            shared.stash.give(class, list);
            return block;
        };
        if let Some(block) = pop(&lists.active, 0) {
            return Some(block);
        }
        let mut list = lists.spare.replace(FreeList::EMPTY);
        if list.count() == 0 {
            list = shared.stash.take(class);
        }
        let block = list.pop();
        lists.active.set(list);
        block
    }

    /// Cuts a block from the chunk.
    #[inline]
    fn cut(&self, shared: &Shared, size: usize) -> Option<NonNull<u8>> {
        let (before, block, behind) = self.chunk.get()?.cut(size)?;
        self.chunk.set(Some(behind));
        if before.bytes > 0 {
            // SAFETY: the skipped bytes belong to the chunk and are not part of the block.
            unsafe { self.carve(shared, before) };
        }
        Some(block)
    }

    /// Gets a new chunk with room for a block of `size` bytes; smaller and smaller ones near the limit.
    fn refill(&self, shared: &Shared, size: usize) -> Option<()> {
        if let Some(span) = self.arena(shared).take_remainder(size + 64) {
            // SAFETY: the span is the worker's from now on.
            unsafe { self.adopt(shared, span) };
            return Some(());
        }
        // A small database grows in small steps.
        let share = (shared.budget.reserved() / SHARE_OF_RESERVED).max(8 * size).next_power_of_two();
        let wanted = self.next_chunk_bytes.get();
        let most = wanted.min(share.max(FIRST_CHUNK));
        let mut bytes = most;
        let span = loop {
            // A multiple of 64 with room for the block wherever the span begins.
            let least = (size + 64).next_multiple_of(64).max(PAGE);
            if let Some(span) = self.reserve_span(shared, bytes, least.min(bytes)) {
                break span;
            }
            bytes /= 2;
            if bytes < size.next_multiple_of(64) || bytes < LEAST_CHUNK {
                return None;
            }
        };
        let next = 2 * if bytes < most { bytes } else { wanted };
        self.next_chunk_bytes.set(next.min(self.largest_chunk));
        // SAFETY: as above.
        unsafe { self.adopt(shared, span) };
        Some(())
    }

    /// A span of `bytes` bytes, or one of at least `least` that came back.
    fn reserve_span(&self, shared: &Shared, bytes: usize, least: usize) -> Option<Span> {
        self.reserve_span_beside(shared, bytes, least, shared.reserve.lacking())
    }

    /// A span, as long as the limit leaves `aside` bytes beside it.
    fn reserve_span_beside(&self, shared: &Shared, bytes: usize, least: usize, aside: usize) -> Option<Span> {
        if !shared.budget.reserve(bytes, aside) {
            return None;
        }
        let span = self.arena(shared).take(bytes, least);
        let unused = bytes - span.map_or(0, |span| span.bytes);
        if unused > 0 {
            shared.budget.release(unused);
        }
        span
    }

    /// Makes a span the chunk; what is left of the old one becomes free blocks.
    ///
    /// # Safety
    /// The span is aligned to 16, a multiple of 16 long, and no other thread uses it.
    unsafe fn adopt(&self, shared: &Shared, span: Span) {
        if let Some(rest) = self.chunk.replace(Some(span)) {
            // SAFETY: the old chunk is the worker's own, and is no longer the chunk.
            unsafe { self.carve(shared, rest) };
        }
    }

    /// Cuts a span up into free blocks, as large as they can be.
    ///
    /// # Safety
    /// As for [`Pool::adopt`].
    pub(crate) unsafe fn carve(&self, shared: &Shared, span: Span) {
        for (class, block) in span.blocks() {
            // SAFETY: the caller gives the span away, and its blocks do not overlap.
            unsafe { self.keep(shared, class, block) };
        }
    }

    /// At the limit: a free block, a remainder, or a larger free block cut up. Coalescing puts it together again.
    pub(crate) fn scrape(&self, shared: &Shared, bytes: usize) -> Option<NonNull<u8>> {
        let class = class_of(bytes);
        let size = size_of_class(class);
        let block = self.recycle(shared, class).or_else(|| self.cut(shared, size)).or_else(|| {
            let remainder = shared.arenas.iter().find_map(|arena| arena.take_remainder(size + 64));
            let span = remainder.or_else(|| {
                (class + 1..CLASSES).filter(|larger| fits_in(class, *larger)).find_map(|class| {
                    let base = self.recycle(shared, class)?;
                    Some(Span { base, bytes: size_of_class(class) })
                })
            })?;
            // SAFETY: both kinds of span were free and are the worker's from now on; all sizes are multiples of 16.
            unsafe { self.adopt(shared, span) };
            self.cut(shared, size)
        })?;
        count(&self.counters.blocks[class], 1);
        Some(block)
    }

    /// A block from the reserve, for at most [`crate::classes::MAX_POOLED`] bytes.
    pub(crate) fn draw(&self, shared: &Shared, bytes: usize) -> Option<NonNull<u8>> {
        let class = class_of(bytes);
        let least = size_of_class(class).next_multiple_of(64);
        let span = |bytes| self.reserve_span_beside(shared, bytes, bytes, 0);
        let block = shared.reserve.draw(class, || span(least.max(DRAW_BYTES)).or_else(|| span(least)))?;
        count(&self.counters.blocks[class], 1);
        Some(block)
    }

    /// Leaves everything free to the others. Answers how many bytes that is.
    pub(crate) fn dissolve(&self, shared: &Shared) -> usize {
        let chunk = self.chunk.replace(None);
        let mut bytes = chunk.map_or(0, |span| span.bytes);
        match chunk {
            Some(span) if span.bytes >= LEAST_REMAINDER => self.arena(shared).give_remainder(span),
            // SAFETY: the chunk is the worker's own, and is no longer the chunk.
            Some(span) => unsafe { self.carve(shared, span) },
            None => {}
        }
        for (class, lists) in self.lists.iter().enumerate() {
            for list in [&lists.spare, &lists.active] {
                let list = list.replace(FreeList::EMPTY);
                bytes += list.count() as usize * size_of_class(class);
                if list.count() > 0 {
                    shared.stash.give(class, list);
                }
            }
        }
        bytes
    }
}

/// Takes a block, and starts bringing the next one into the cache: it has waited since it was retired, and a store to it
/// would hold up the next barrier.
#[inline]
fn pop(cell: &Cell<FreeList>, bytes: usize) -> Option<NonNull<u8>> {
    let mut list = cell.get();
    let block = list.pop();
    for line in 0..bytes.div_ceil(64).min(4) {
        polychron_sync::prefetch_read(list.head().wrapping_add(64 * line));
    }
    cell.set(list);
    block
}

/// Makes a full active list the spare one; a spare one that is full already goes to the stash.
#[cold]
fn rotate(shared: &Shared, class: usize, lists: &Lists) {
    let full = lists.active.replace(FreeList::EMPTY);
    let spare = lists.spare.replace(full);
    if spare.count() > 0 {
        shared.stash.give(class, spare);
    }
}
