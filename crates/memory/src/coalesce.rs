//! Coalescing: what is done when memory is refused though much of it is free, in blocks of the wrong size.
//!
//! Blocks never change their class in normal work, which keeps the fast path free of headers and look-ups. When rows of
//! one size were deleted and the limit is reached with rows of another size, all shared free blocks are gathered and
//! counted by pages of 64 KiB; a page that is free as a whole goes back to its arena (and its memory to the system), and
//! the blocks that lie in it are forgotten. Two walks over the free blocks, no memory but a counter a page.

use std::ptr::NonNull;

use polychron_sync::Mutex;

use crate::arena::Span;
use crate::blocks::{FreeList, Gathered};
use crate::classes::{CLASSES, batch_of_class, size_of_class};
use crate::memory::{Shared, lock};
use crate::pool::Pool;
use crate::system;

/// The unit in which memory goes back to the arenas. Regions are multiples of it.
pub(crate) const PAGE: usize = 64 << 10;

/// Less free memory than this part of the limit, on top of what is known to be scattered, is not worth a walk.
const WORTHWHILE: usize = 64;

/// After so many refusals a walk is made all the same: a few small blocks freed in the right places may be enough.
const PATIENCE: u32 = 64;

/// Decides when a walk is worth while.
#[derive(Debug, Default)]
pub(crate) struct Coalescer {
    past: Mutex<Past>,
}

#[derive(Debug, Default)]
struct Past {
    /// Free bytes that the last walk found scattered over pages in use.
    scattered: usize,
    /// Refusals without a walk since.
    refusals: u32,
}

/// A region and how much of each of its pages is free.
struct Census {
    base: NonNull<u8>,
    arena: usize,
    free: Vec<u32>,
    /// The part of `free` that is off the budget already.
    returned: Vec<u32>,
}

impl Coalescer {
    /// Gives pages that are free as a whole back to their arenas, if it seems worth while. Returns whether the caller should
    /// try again: because this call freed something, or because it waited for another that may have.
    pub(crate) fn run(&self, shared: &Shared, pool: &Pool, used_bytes: usize) -> bool {
        let (mut past, waited) = match self.past.try_lock() {
            Ok(past) => (past, false),
            Err(_) => (lock(&self.past), true),
        };
        let free = shared.budget.reserved().saturating_sub(used_bytes);
        past.scattered = past.scattered.min(free);
        past.refusals += 1;
        if free - past.scattered < shared.budget.limit() / WORTHWHILE && past.refusals < PATIENCE {
            return waited;
        }
        pool.dissolve(shared);
        let released = coalesce(shared, pool);
        *past = Past { scattered: free.saturating_sub(released), refusals: 0 };
        released > 0 || waited
    }
}

fn coalesce(shared: &Shared, pool: &Pool) -> usize {
    let gathered: Vec<Gathered> = (0..CLASSES).map(|class| shared.stash.gather(class)).collect();
    let remainders: Vec<Span> = shared.arenas.iter().flat_map(|arena| arena.take_remainders()).collect();
    let returned: Vec<Span> = shared.arenas.iter().flat_map(|arena| arena.take_returned()).collect();
    // The regions are listed after everything was gathered, so the region of every block and span is among them.
    let mut census = take_census(shared);
    for span in &returned {
        count(&mut census, *span, true);
    }
    for span in &remainders {
        count(&mut census, *span, false);
    }
    for (class, blocks) in gathered.iter().enumerate() {
        blocks.for_each(|base| count(&mut census, Span { base, bytes: size_of_class(class) }, false));
    }
    for span in returned {
        let region = region_of(&mut census, span.base);
        pieces(region.base, span, |page, piece| {
            if region.free[page] != PAGE as u32 {
                shared.arenas[region.arena].give_back(piece);
            }
        });
    }
    for span in remainders {
        // SAFETY: the remainders were taken out of their arenas above.
        unsafe { keep_rest(shared, pool, &mut census, span) };
    }
    for (class, blocks) in gathered.into_iter().enumerate() {
        // SAFETY: the blocks were taken out of the stash above, and are of this class.
        unsafe { keep_blocks(shared, pool, &mut census, class, blocks) };
    }
    let mut released = 0;
    for region in &census {
        for (span, reserved) in free_runs(region) {
            released += reserved;
            if reserved > 0 {
                // SAFETY: the span consists of whole pages, of which every byte was gathered above.
                unsafe { system::discard(span.base, span.bytes) };
            }
            shared.arenas[region.arena].give_back(span);
            shared.budget.release(reserved);
        }
    }
    released
}

fn take_census(shared: &Shared) -> Vec<Census> {
    let regions = shared.arenas.iter().enumerate().flat_map(|(arena, of)| {
        let census = move |span: Span| {
            let pages = vec![0; span.bytes / PAGE];
            Census { base: span.base, arena, free: pages.clone(), returned: pages }
        };
        of.regions().into_iter().map(census)
    });
    let mut census: Vec<Census> = regions.collect();
    census.sort_unstable_by_key(|region| region.base.addr());
    census
}

fn count(census: &mut [Census], span: Span, came_back: bool) {
    let Census { base, free, returned, .. } = region_of(census, span.base);
    pieces(*base, span, |page, piece| {
        free[page] += piece.bytes as u32;
        if came_back {
            returned[page] += piece.bytes as u32;
        }
    });
}

fn region_of(census: &mut [Census], pointer: NonNull<u8>) -> &mut Census {
    let behind = census.partition_point(|region| region.base.addr() <= pointer.addr());
    &mut census[behind - 1]
}

/// Cuts a span at the boundaries of its region's pages.
fn pieces(region: NonNull<u8>, span: Span, mut with: impl FnMut(usize, Span)) {
    let start = span.base.addr().get() - region.addr().get();
    let mut done = 0;
    while done < span.bytes {
        let page = (start + done) / PAGE;
        let bytes = (span.bytes - done).min((page + 1) * PAGE - (start + done));
        // SAFETY: `done` is less than the span's size.
        let base = unsafe { span.base.add(done) };
        with(page, Span { base, bytes });
        done += bytes;
    }
}

/// Makes free blocks of those parts of a span that lie in pages which stay.
///
/// # Safety
/// The span is free and the caller's own.
unsafe fn keep_rest(shared: &Shared, pool: &Pool, census: &mut [Census], span: Span) {
    let region = region_of(census, span.base);
    pieces(region.base, span, |page, piece| {
        if region.free[page] != PAGE as u32 {
            // SAFETY: the piece belongs to the span; pages and spans begin and end at multiples of 16.
            unsafe { pool.carve(shared, piece) };
        }
    });
}

/// Puts blocks back into the stash, except for what lies in pages that go.
///
/// # Safety
/// The blocks are of the class, free, and the caller's own.
unsafe fn keep_blocks(shared: &Shared, pool: &Pool, census: &mut [Census], class: usize, blocks: Gathered) {
    let bytes = size_of_class(class);
    let mut list = FreeList::EMPTY;
    blocks.for_each(|base| {
        let span = Span { base, bytes };
        let region = region_of(census, base);
        let mut goes = false;
        pieces(region.base, span, |page, _| goes |= region.free[page] == PAGE as u32);
        if goes {
            // SAFETY: the caller owns the block.
            unsafe { keep_rest(shared, pool, census, span) };
            return;
        }
        // SAFETY: the caller owns the block, which is of the class.
        unsafe { list.push(base) };
        if list.count() == batch_of_class(class) {
            shared.stash.give(class, std::mem::replace(&mut list, FreeList::EMPTY));
        }
    });
    shared.stash.give(class, list);
}

/// The runs of pages that are free as a whole, each with how many of its bytes are still on the budget.
fn free_runs(region: &Census) -> Vec<(Span, usize)> {
    let mut runs: Vec<(Span, usize)> = Vec::new();
    let mut last = usize::MAX;
    for (page, _) in region.free.iter().enumerate().filter(|(_, free)| **free == PAGE as u32) {
        let reserved = PAGE - region.returned[page] as usize;
        match runs.last_mut() {
            Some((run, sum)) if page == last + 1 => {
                run.bytes += PAGE;
                *sum += reserved;
            }
            // SAFETY: the page lies within the region.
            _ => runs.push((Span { base: unsafe { region.base.add(page * PAGE) }, bytes: PAGE }, reserved)),
        }
        last = page;
    }
    runs
}
