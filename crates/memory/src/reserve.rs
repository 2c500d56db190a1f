//! The reserve: memory put aside for work that makes room, so that it goes on when everything else is used up.
//!
//! At first the reserve is a part of the limit that ordinary allocations leave alone. What is drawn comes from there, and
//! blocks that are freed make up for it before anybody else gets them: a batch that a worker has too much of goes to the
//! reserve while that lacks something, and to the stash otherwise.

use std::ptr::NonNull;

use polychron_sync::SpinLatch;
use polychron_sync::atomic::{AtomicUsize, Ordering};

use crate::arena::Span;
use crate::blocks::FreeList;
use crate::classes::{CLASSES, size_of_class};

/// What is drawn from the limit at once.
pub(crate) const DRAW_BYTES: usize = 4096;

/// Smaller blocks are of no use to those who draw: what takes a deleted row's place has at least a record's header.
pub(crate) const LEAST_BLOCK: usize = 32;

/// What is put aside. See the head of the module.
pub(crate) struct Reserve {
    bytes: usize,
    /// `bytes` less what is held: the part of the limit that ordinary allocations leave alone. Written under the latch.
    lacking: AtomicUsize,
    held: SpinLatch<Held>,
}

/// The reserve's own memory.
struct Held {
    bytes: usize,
    /// What blocks are cut from.
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
        let held = Held { bytes: 0, open: None, blocks };
        Self { bytes, lacking: AtomicUsize::new(bytes), held: SpinLatch::new(held) }
    }

    /// How much of the limit ordinary allocations leave alone.
    #[inline]
    pub(crate) fn lacking(&self) -> usize {
        self.lacking.load(Ordering::Relaxed)
    }

    fn settle(&self, held: &Held) {
        self.lacking.store(self.bytes.saturating_sub(held.bytes), Ordering::Relaxed);
    }

    /// Takes freed blocks of a class in, if the reserve lacks about as much, and answers what it left.
    pub(crate) fn take_in(&self, class: usize, mut list: FreeList) -> FreeList {
        let (bytes, lacking) = (list.count() as usize * size_of_class(class), self.lacking());
        if lacking == 0 || bytes / 2 > lacking || size_of_class(class) < LEAST_BLOCK {
            return list;
        }
        let mut held = self.held.lock();
        while let Some(block) = list.pop() {
            // SAFETY: the block was in a list of the class, which owned it.
            unsafe { held.blocks[class].push(block) };
        }
        held.bytes += bytes;
        self.settle(&held);
        list
    }

    /// Takes all out that is held, in spans: who coalesces makes up for it ([`Reserve::put`]).
    pub(crate) fn take_out(&self) -> Vec<Span> {
        let mut held = self.held.lock();
        let mut spans: Vec<Span> = held.open.take().into_iter().filter(|span| span.bytes > 0).collect();
        for (class, list) in held.blocks.iter_mut().enumerate() {
            let bytes = size_of_class(class);
            spans.extend(std::iter::from_fn(|| list.pop()).map(|base| Span { base, bytes }));
        }
        held.bytes = 0;
        self.settle(&held);
        spans
    }

    /// Gives a free span to the reserve, which is its own from now on.
    pub(crate) fn put(&self, span: Span) {
        let mut held = self.held.lock();
        held.bytes += span.bytes;
        held.keep(span);
        self.settle(&held);
    }

    /// A block of a class. When the reserve holds none that is large enough, `more` may give it a span.
    pub(crate) fn draw(&self, class: usize, more: impl FnOnce() -> Option<Span>) -> Option<NonNull<u8>> {
        if self.bytes == 0 {
            return None;
        }
        let mut held = self.held.lock();
        let block = held.cut(class).or_else(|| {
            if !held.open_larger(class) {
                let span = more()?;
                held.bytes += span.bytes;
                held.open(span);
            }
            held.cut(class)
        });
        self.settle(&held);
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
        let larger = (class..CLASSES).find_map(|larger| {
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
