//! The reserve: memory put aside for work that makes room, so that it goes on when everything else is used up.
//!
//! The reserve is a run of addresses of its own, set aside from the limit. What is drawn on it comes back to it, so that when all has
//! come back it is whole again, and any size can be drawn, whatever the free blocks of the rest look like.
//!
//! Drawn blocks may stay in use for long, because work that was to make room need not do so. Blocks of the same size replace them: while the limit
//! does not leave the bytes that the reserve lacks, freed blocks go to the reserve first. Smaller blocks would fill it with memory that no thread can
//! use. Such blocks are drawn first.

use std::ptr::NonNull;
use std::sync::OnceLock;

use polychron_sync::SpinLatch;
use polychron_sync::atomic::{AtomicUsize, Ordering};

use crate::arena::Span;
use crate::blocks::FreeList;
use crate::classes::{CLASSES, fits_in, size_of_class};
use crate::set_aside::SetAside;
use crate::system::{Mapping, PAGE};

/// The bytes that are drawn from the limit at once.
pub(crate) const DRAW_BYTES: usize = 4096;

/// Smaller blocks are of no use to those who draw: what takes a deleted row's place has at least a record's header.
pub(crate) const LEAST_BLOCK: usize = 32;

/// The memory that is set aside. See the head of the module.
pub(crate) struct Reserve {
    /// The bytes that are set aside.
    bytes: usize,
    /// Their mapping, once some thread drew on it; none if the system refused it.
    memory: OnceLock<Option<Mapping>>,
    /// The bytes of it that are in use. Written under the latch, like the next.
    drawn: AtomicUsize,
    /// The part of that which no blocks that are held make up for: ordinary allocations leave as much of the limit alone.
    lacking: AtomicUsize,
    /// For each class, the drawn blocks that were neither returned nor replaced. Written under the latch.
    missing: Box<[AtomicUsize]>,
    held: SpinLatch<Held>,
}

/// The reserve's free memory.
struct Held {
    /// The free parts of the memory that is set aside, and the bytes in use.
    set_aside: SetAside,
    drawn: usize,
    /// The bytes that are held besides.
    bytes: usize,
    /// The span from which blocks are cut.
    open: Option<Span>,
    blocks: Box<[FreeList]>,
}

// SAFETY: the reserve owns its span and its blocks.
unsafe impl Send for Held {}

impl std::fmt::Debug for Reserve {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reserve").field("lacking", &self.lacking()).finish_non_exhaustive()
    }
}

impl Reserve {
    pub(crate) fn new(bytes: usize) -> Self {
        let blocks = (0..CLASSES).map(|_| FreeList::EMPTY).collect();
        let held = Held { set_aside: SetAside::new(bytes), drawn: 0, bytes: 0, open: None, blocks };
        let (drawn, lacking) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let missing = (0..CLASSES).map(|_| AtomicUsize::new(0)).collect();
        Self { bytes, memory: OnceLock::new(), drawn, lacking, missing, held: SpinLatch::new(held) }
    }

    /// The bytes of the limit that ordinary allocations do not use, besides those set aside.
    #[inline]
    pub(crate) fn lacking(&self) -> usize {
        self.lacking.load(Ordering::Relaxed)
    }

    /// The bytes set aside that are in use.
    pub(crate) fn drawn(&self) -> usize {
        self.drawn.load(Ordering::Relaxed)
    }

    /// The bytes that are mapped for it.
    pub(crate) fn mapped_bytes(&self) -> usize {
        self.memory.get().and_then(Option::as_ref).map_or(0, Mapping::bytes)
    }

    /// The bytes that the reserve lacks beyond the `left` bytes of the limit.
    pub(crate) fn unbacked(&self, left: usize) -> usize {
        self.lacking().saturating_sub(left)
    }

    fn publish(&self, held: &Held) {
        self.drawn.store(held.drawn, Ordering::Relaxed);
        self.lacking.store(held.drawn.saturating_sub(held.bytes), Ordering::Relaxed);
    }

    /// The size of the smallest block that would make up for one that was drawn.
    pub(crate) fn least_missing(&self) -> usize {
        let class = self.missing.iter().position(|missing| missing.load(Ordering::Relaxed) > 0);
        class.map_or(LEAST_BLOCK, size_of_class).max(LEAST_BLOCK)
    }

    /// Notes that a block of a class was drawn, or that one came. The caller has the latch.
    fn note_missing(&self, class: usize, more: bool) {
        let missing = self.missing[class].load(Ordering::Relaxed);
        self.missing[class].store(if more { missing + 1 } else { missing.saturating_sub(1) }, Ordering::Relaxed);
    }

    /// Takes a freed block of a class in, if it makes up for one that was drawn and the limit, which leaves `left` bytes, does not.
    ///
    /// # Safety
    /// The block has the size and alignment of the class, and no thread uses it. If it is taken, the reserve owns it.
    pub(crate) unsafe fn take_in(&self, class: usize, block: NonNull<u8>, left: usize) -> bool {
        if self.unbacked(left) == 0 || self.missing[class].load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut held = self.held.lock();
        // SAFETY: the caller gives the block away.
        unsafe { held.blocks[class].push(block) };
        held.bytes += size_of_class(class);
        self.note_missing(class, false);
        self.publish(&held);
        true
    }

    /// Whether some thread ever drew on what is set aside.
    #[inline]
    pub(crate) fn was_drawn_on(&self) -> bool {
        self.memory.get().is_some()
    }

    /// Whether a block came from what is set aside: then it goes back there.
    pub(crate) fn owns(&self, block: NonNull<u8>) -> bool {
        let offset = |base: NonNull<u8>| block.addr().get().wrapping_sub(base.addr().get());
        matches!(self.memory.get(), Some(Some(memory)) if offset(memory.base()) < self.bytes)
    }

    /// Takes a block of a class back that it owns and no thread still uses.
    pub(crate) fn take_back(&self, class: usize, block: NonNull<u8>) {
        let memory = self.memory.get().and_then(Option::as_ref).expect("the block lies in it");
        let mut held = self.held.lock();
        held.set_aside.add(block.addr().get() - memory.base().addr().get(), size_of_class(class));
        held.drawn -= size_of_class(class);
        self.note_missing(class, false);
        self.publish(&held);
    }

    /// Takes all out that is held, in spans: a thread that coalesces makes up for it ([`Reserve::put`]).
    pub(crate) fn take_all(&self) -> Vec<Span> {
        let mut held = self.held.lock();
        let mut spans: Vec<Span> = held.open.take().into_iter().filter(|span| span.bytes > 0).collect();
        for (class, list) in held.blocks.iter_mut().enumerate() {
            let bytes = size_of_class(class);
            spans.extend(std::iter::from_fn(|| list.pop()).map(|base| Span { base, bytes }));
        }
        held.bytes = 0;
        self.publish(&held);
        spans
    }

    /// Gives a free span to the reserve, which is its own from now on.
    pub(crate) fn put(&self, span: Span) {
        let mut held = self.held.lock();
        held.bytes += span.bytes;
        held.keep(span);
        self.publish(&held);
    }

    /// A block of a class. When the reserve has none that is large enough, `more` may give it a span.
    pub(crate) fn draw(&self, class: usize, more: impl FnOnce() -> Option<Span>) -> Option<NonNull<u8>> {
        if self.bytes == 0 {
            return None;
        }
        let memory = self.memory.get_or_init(|| Mapping::new(self.bytes.next_multiple_of(PAGE), false)).as_ref();
        let mut held = self.held.lock();
        let block = held.cut(class).or_else(|| {
            if held.open_larger(class) {
                return held.cut(class);
            }
            if let Some(memory) = memory
                && let Some(start) = held.set_aside.cut(size_of_class(class))
            {
                held.drawn += size_of_class(class);
                // SAFETY: the block lies in the mapping.
                return Some(unsafe { memory.base().add(start) });
            }
            let span = more()?;
            held.bytes += span.bytes;
            held.open(span);
            held.cut(class)
        });
        if block.is_some() {
            self.note_missing(class, true);
        }
        self.publish(&held);
        block
    }
}

impl Held {
    /// Cuts a block from the open span.
    fn cut(&mut self, class: usize) -> Option<NonNull<u8>> {
        let size = size_of_class(class);
        let (before, block, behind) = self.open?.cut(size)?;
        self.open = Some(behind);
        self.keep(before);
        self.bytes -= size;
        Some(block)
    }

    /// Cuts from the smallest held block that is large enough from now on.
    fn open_larger(&mut self, class: usize) -> bool {
        let larger = (class..CLASSES).filter(|larger| fits_in(class, *larger)).find_map(|larger| {
            let base = self.blocks[larger].pop()?;
            Some(Span { base, bytes: size_of_class(larger) })
        });
        larger.map(|span| self.open(span)).is_some()
    }

    /// Cuts from another span from now on; what is left of the last one becomes blocks.
    fn open(&mut self, span: Span) {
        if let Some(rest) = self.open.replace(span) {
            self.keep(rest);
        }
    }

    fn keep(&mut self, span: Span) {
        for (class, block) in span.blocks() {
            // SAFETY: the blocks of a span do not overlap, and the span is the reserve's own.
            unsafe { self.blocks[class].push(block) };
        }
    }
}
