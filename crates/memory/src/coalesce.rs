//! Coalescing: what is done when memory is refused though much of it is free, in blocks of the wrong size.
//!
//! Blocks never change their class in normal work, which keeps the fast path free of headers and lookups. When rows of
//! one size were deleted and the limit is reached with rows of another size, all shared free blocks are gathered, sorted by
//! their addresses and put together with their neighbours. What is as long as a page of 64 KiB goes back to its arena (and its
//! memory to the system); the rest becomes free blocks that are as large as they can be.
//!
//! Each block is looked at twice: when it is put into the list of its page, which runs through the blocks themselves, and
//! when the pages are gone through in order. That takes no memory but a few words a page.

use std::ptr::{self, NonNull};

use polychron_sync::Mutex;
use polychron_sync::atomic::{AtomicUsize, Ordering};

use crate::arena::Span;
use crate::blocks::{FreeList, Gathered};
use crate::classes::{CLASSES, batch_of_class, size_of_class};
use crate::memory::{Shared, lock};
use crate::pool::Pool;
use crate::reserve::{DRAW_BYTES, LEAST_BLOCK};
use crate::system;

/// The unit in which blocks are sorted, and what a span has at least that goes back to its arena. Regions are multiples of it.
pub(crate) const PAGE: usize = 64 << 10;

/// Less free memory than this part of the limit, on top of what is known to be scattered, is not worth a walk by itself.
const WORTHWHILE: usize = 64;

/// How many blocks a walk may look at for each refusal: about what a transaction that is refused costs by itself.
const BLOCKS_A_REFUSAL: usize = 1024;

/// Decides when a walk is worth while.
#[derive(Debug, Default)]
pub(crate) struct Coalescer {
    past: Mutex<Past>,
    /// Bytes that workers left to all since the last walk: it did not see them, free though they were.
    left_to_all: AtomicUsize,
}

#[derive(Debug, Default)]
struct Past {
    /// Free bytes that the last walk found scattered between blocks in use.
    scattered: usize,
    /// How many blocks it looked at.
    blocks: usize,
    /// Refusals without a walk since.
    refusals: usize,
    /// Blocks that all walks looked at.
    looked_at: usize,
}

/// What a walk did.
struct Walk {
    /// How many blocks it looked at.
    blocks: usize,
    /// Whether any of them were put together.
    joined: bool,
}

/// A free block, or the part of one that lies in a page, while the blocks are sorted.
#[repr(C)]
struct Piece {
    next: *mut Self,
    /// Its size, a multiple of 16, plus one if it is off the budget.
    bytes: usize,
}

/// A page's part of what is free.
#[derive(Clone)]
struct Page {
    pieces: *mut Piece,
    /// Whether all of it is free in one piece, and then whether it is off the budget. Nothing is written to such a page: perhaps
    /// it has no memory just now.
    whole: Option<bool>,
}

/// A region and what is free in each of its pages.
struct Census {
    base: NonNull<u8>,
    arena: usize,
    /// How much of it was handed out.
    used: usize,
    pages: Vec<Page>,
}

/// Free memory without a gap, at an offset in its region.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: usize,
    bytes: usize,
    /// The part of it that is off the budget.
    returned: usize,
    pieces: usize,
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
        let free = shared.budget.reserved().saturating_sub(used_bytes);
        past.scattered = past.scattered.min(free).saturating_sub(self.left_to_all.swap(0, Ordering::Relaxed));
        past.refusals += refusals;
        let is_paid = refusals > 0 && past.refusals.saturating_mul(BLOCKS_A_REFUSAL) >= past.blocks;
        if !is_paid && free - past.scattered < shared.budget.limit() / WORTHWHILE {
            return waited;
        }
        pool.dissolve(shared);
        let walk = coalesce(shared);
        let free = shared.budget.reserved().saturating_sub(used_bytes);
        *past = Past { scattered: free, blocks: walk.blocks, refusals: 0, looked_at: past.looked_at + walk.blocks };
        walk.joined || waited
    }
}

fn coalesce(shared: &Shared) -> Walk {
    let gathered: Vec<Gathered> = (0..CLASSES).map(|class| shared.stash.gather(class)).collect();
    let mut spans: Vec<Span> = shared.arenas.iter().flat_map(|arena| arena.take_remainders()).collect();
    spans.extend(shared.reserve.take_out());
    let returned: Vec<Span> = shared.arenas.iter().flat_map(|arena| arena.take_returned()).collect();
    // The regions are listed after everything was gathered, so the region of every block and span is among them.
    let mut census = take_census(shared);
    let mut walk = Walk { blocks: 0, joined: false };
    let mut sort = |span, is_returned| {
        walk.blocks += 1;
        // SAFETY: blocks and spans were taken out of where they lay, above, so they are this function's own.
        unsafe { sort_in(&mut census, span, is_returned) };
    };
    returned.into_iter().for_each(|span| sort(span, true));
    spans.into_iter().for_each(|span| sort(span, false));
    for (class, blocks) in gathered.iter().enumerate() {
        blocks.for_each(|base| sort(Span { base, bytes: size_of_class(class) }, false));
    }
    let mut keeper = Keeper { shared, lists: Box::new([FreeList::EMPTY; CLASSES]) };
    for region in &census {
        for_each_run(region, |run| {
            walk.joined |= run.pieces > 1;
            keeper.keep(region, run);
        });
    }
    keeper.finish();
    walk
}

fn take_census(shared: &Shared) -> Vec<Census> {
    let regions = shared.arenas.iter().enumerate().flat_map(|(arena, of)| {
        let census = move |span: Span| {
            let page = Page { pieces: ptr::null_mut(), whole: None };
            Census { base: span.base, arena, used: span.bytes, pages: vec![page; span.bytes.div_ceil(PAGE)] }
        };
        of.regions().into_iter().map(census)
    });
    let mut census: Vec<Census> = regions.collect();
    census.sort_unstable_by_key(|region| region.base.addr());
    census
}

/// Puts what is free into the lists of its pages.
///
/// # Safety
/// The span is free and the caller's own; it is aligned to 16 and a multiple of 16 long.
unsafe fn sort_in(census: &mut [Census], span: Span, is_returned: bool) {
    let behind = census.partition_point(|region| region.base.addr() <= span.base.addr());
    let Census { base, pages, .. } = &mut census[behind - 1];
    let start = span.base.addr().get() - base.addr().get();
    let mut done = 0;
    while done < span.bytes {
        let page = (start + done) / PAGE;
        let bytes = (span.bytes - done).min((page + 1) * PAGE - (start + done));
        let page = &mut pages[page];
        if bytes == PAGE {
            page.whole = Some(is_returned);
        } else {
            // SAFETY: `done` is less than the span's size.
            let piece = unsafe { span.base.add(done) }.as_ptr().cast::<Piece>();
            // SAFETY: the piece lies in the span, and is a multiple of 16 long, as pages and spans are, and aligned to 16.
            unsafe { piece.write(Piece { next: page.pieces, bytes: bytes + usize::from(is_returned) }) };
            page.pieces = piece;
        }
        done += bytes;
    }
}

/// Hands out what is free in a region, neighbours as one. What was handed out may be written to.
fn for_each_run(region: &Census, mut with: impl FnMut(Run)) {
    let mut last: Option<Run> = None;
    let mut add = |run: Run| match &mut last {
        Some(last) if last.start + last.bytes == run.start => {
            last.bytes += run.bytes;
            last.returned += run.returned;
            last.pieces += run.pieces;
        }
        _ => last.replace(run).into_iter().for_each(&mut with),
    };
    let run =
        |start, bytes, is_returned| Run { start, bytes, returned: if is_returned { bytes } else { 0 }, pieces: 1 };
    let mut sorted: Vec<(usize, usize)> = Vec::new();
    for (number, page) in region.pages.iter().enumerate() {
        if let Some(is_returned) = page.whole {
            add(run(number * PAGE, PAGE, is_returned));
        }
        let mut next = page.pieces;
        while let Some(piece) = NonNull::new(next) {
            // SAFETY: `sort_in` wrote the piece, and no run that it belongs to was handed out.
            let Piece { next: behind, bytes } = unsafe { piece.read() };
            next = behind;
            sorted.push((piece.addr().get() - region.base.addr().get(), bytes));
        }
        sorted.sort_unstable();
        for (start, bytes) in sorted.drain(..) {
            add(run(start, bytes & !1, bytes & 1 == 1));
        }
    }
    last.into_iter().for_each(with);
}

/// Where the runs go.
struct Keeper<'s> {
    shared: &'s Shared,
    lists: Box<[FreeList; CLASSES]>,
}

impl Keeper<'_> {
    /// Gives a long run back to its arena, and makes free blocks of a short one.
    fn keep(&mut self, region: &Census, run: Run) {
        // SAFETY: the run lies within the region, whose pointer is good for all of it.
        let span = Span { base: unsafe { region.base.add(run.start) }, bytes: run.bytes };
        let budget = &self.shared.budget;
        // What was never handed out follows on the last run.
        let is_short = run.bytes < PAGE && run.start + run.bytes < region.used;
        if is_short && (run.returned == 0 || budget.reserve(run.returned, self.shared.reserve.lacking())) {
            // The reserve has what can be cut into blocks of any size, as far as there is such.
            let rest = if span.bytes < DRAW_BYTES { span } else { self.make_up_for_reserve(span) };
            self.carve(rest);
            return;
        }
        let Some((before, middle, behind)) = aligned(span) else { return self.carve(span) };
        let reserved = run.bytes - run.returned - before.bytes - behind.bytes;
        if reserved > 0 && !is_short {
            // SAFETY: the span is this run's, of which every byte is free.
            unsafe { discard(middle) };
        }
        self.shared.arenas[region.arena].give_back(middle);
        budget.release(reserved);
        // What is off the budget is made of whole lines, so these are not.
        self.carve(before);
        self.carve(behind);
    }

    /// What the reserve lacks and the limit does not have for it.
    fn unbacked(&self) -> usize {
        self.shared.reserve.unbacked(self.shared.budget.left())
    }

    /// Gives the front of a span to the reserve, if that needs it, and answers what is left.
    fn make_up_for_reserve(&mut self, span: Span) -> Span {
        let Span { base, bytes } = span;
        let front = bytes.min(self.unbacked().next_multiple_of(LEAST_BLOCK));
        if front < LEAST_BLOCK {
            return span;
        }
        self.shared.reserve.put(Span { base, bytes: front });
        // SAFETY: the front is no longer than the span.
        Span { base: unsafe { base.add(front) }, bytes: bytes - front }
    }

    fn carve(&mut self, span: Span) {
        for (class, block) in span.blocks() {
            let list = &mut self.lists[class];
            // SAFETY: the span is the keeper's own, and its blocks do not overlap.
            unsafe { list.push(block) };
            if list.count() == batch_of_class(class) {
                self.shared.stash.give(class, std::mem::replace(list, FreeList::EMPTY));
            }
        }
    }

    /// Leaves what is left in the lists to all, and makes up for what the reserve still lacks: with the largest blocks, where the budget
    /// does not leave as much.
    fn finish(mut self) {
        let stash = &self.shared.stash;
        for (class, list) in self.lists.iter_mut().enumerate().filter(|(_, list)| list.count() > 0) {
            stash.give(class, std::mem::replace(list, FreeList::EMPTY));
        }
        let (mut class, least) = (CLASSES - 1, self.shared.reserve.least_missing());
        while self.unbacked() > 0 && size_of_class(class) >= least {
            let mut list = stash.take(class);
            let Some(base) = list.pop() else {
                class -= 1;
                continue;
            };
            stash.give(class, list);
            let rest = self.make_up_for_reserve(Span { base, bytes: size_of_class(class) });
            for (class, block) in rest.blocks() {
                let mut list = FreeList::EMPTY;
                // SAFETY: the rest is the keeper's own.
                unsafe { list.push(block) };
                stash.give(class, list);
            }
        }
    }
}

/// What lies before the first and behind the last boundary of 64 bytes of a span that has them, and what lies between.
fn aligned(span: Span) -> Option<(Span, Span, Span)> {
    let address = span.base.addr().get();
    let before = address.next_multiple_of(64) - address;
    let behind = (address + span.bytes) % 64;
    let bytes = span.bytes.checked_sub(before + behind).filter(|bytes| *bytes > 0)?;
    // SAFETY: both lie within the span.
    let (base, end) = unsafe { (span.base.add(before), span.base.add(before + bytes)) };
    Some((Span { base: span.base, bytes: before }, Span { base, bytes }, Span { base: end, bytes: behind }))
}

/// Gives the memory of a span's whole pages, as the system has them, back to it.
///
/// # Safety
/// The span is free and the caller's own.
unsafe fn discard(span: Span) {
    let address = span.base.addr().get();
    let before = address.next_multiple_of(system::PAGE) - address;
    let bytes = span.bytes.saturating_sub(before) / system::PAGE * system::PAGE;
    if bytes > 0 {
        // SAFETY: the range lies within the span, on page boundaries.
        unsafe { system::discard(span.base.add(before), bytes) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::memory::lock;
    use crate::{Memory, Options};

    /// However often memory is refused, walks look at no more blocks than refusals have paid for.
    #[test]
    #[cfg_attr(miri, ignore = "fills more memory than an interpreter can")]
    fn walks_are_paid_for() {
        let memory = Memory::new(Options { limit_bytes: Some(4 << 20), ..Options::tiny() }).unwrap();
        let local = memory.register().unwrap();
        let guard = local.pin();
        let blocks: Vec<_> = std::iter::from_fn(|| guard.allocate(32).ok()).collect();
        let scattered = blocks.iter().step_by(2);
        // SAFETY: the blocks were allocated with this size, and nobody uses them.
        scattered.for_each(|block| unsafe { guard.free(*block, 32) });
        let looked_at = || lock(&memory.shared.coalescer.past).looked_at;
        assert!(guard.allocate(4000).is_err());
        let (first, refusals) = (looked_at(), 500);
        assert!(first * 3 > blocks.len(), "{first} of {} blocks were looked at", blocks.len());
        (0..refusals).for_each(|_| assert!(guard.allocate(4000).is_err()));
        let later = looked_at() - first;
        assert!(later <= refusals * super::BLOCKS_A_REFUSAL + first, "{later} blocks were looked at");
        assert!(later > 0, "after many refusals it is tried again");
    }
}
