//! One walk over all free blocks: it gathers them, sorts them by their addresses, and gives each run of neighbours to where it goes. A walk
//! may be made in slices; until it is finished, what it gathered belongs to the walk. What had come back to an arena before stays there until
//! the walk comes to its page, so that workers that need new chunks meanwhile need not take memory that was never touched.
//!
//! A walk that was begun because memory is refused puts short runs together, too: blocks of other sizes are wanted. One in slices leaves
//! them as the blocks they were, for those are the sizes that are in use; it only gives long runs back.

use std::ptr::{self, NonNull};

use super::{Extent, PAGE};
use crate::arena::{Arena, Span};
use crate::blocks::{FreeList, Gathered};
use crate::classes::{CLASSES, batch_of_class, size_of_class};
use crate::memory::Shared;
use crate::reserve::{DRAW_BYTES, LEAST_BLOCK};
use crate::system;

/// The longest run that a slice puts together, where it has the choice: returning its memory to the system takes a part of a millisecond.
const LONGEST_RUN: usize = 8 << 20;

/// A walk, as far as it has come. Owns what it gathered.
pub(super) struct Walk {
    /// Unsorted input: spans with their kinds, and blocks with their classes.
    spans: Vec<(Span, Kind)>,
    gathered: Vec<(usize, Gathered)>,
    census: Vec<Census>,
    /// The region and the page that are next.
    next: (usize, usize),
    /// The run that ends where the next page begins, or before.
    last: Option<Run>,
    /// A longer run is not extended by a whole page.
    longest: usize,
    /// Whether short runs are put together.
    merges: bool,
    lists: Box<[FreeList; CLASSES]>,
    /// The number of sorted blocks.
    pub(super) blocks: usize,
    /// Whether any of them were put together.
    pub(super) joined: bool,
    /// The bytes that became blocks again, and the bytes that returned to their arenas.
    pub(super) carved: usize,
    pub(super) returned: usize,
    /// The extent of the memory when the walk began.
    pub(super) began: Extent,
}

// SAFETY: a walk owns the blocks and spans that it gathered.
unsafe impl Send for Walk {}

impl std::fmt::Debug for Walk {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Walk").field("blocks", &self.blocks).finish_non_exhaustive()
    }
}

impl Walk {
    /// Gathers all that is free and shared.
    pub(super) fn begin(shared: &Shared) -> Self {
        let gathered = (0..CLASSES).map(|class| (class, shared.stash.gather(class))).collect();
        let mut spans: Vec<(Span, Kind)> = Vec::new();
        spans.extend(shared.arenas.iter().flat_map(Arena::take_remainders).map(|span| (span, Kind::REMAINDER)));
        spans.extend(shared.reserve.take_all().into_iter().map(|span| (span, Kind::REMAINDER)));
        Self {
            spans,
            gathered,
            // The regions are listed after everything was gathered, so the region of every block and span is among them.
            census: take_census(shared),
            next: (0, 0),
            last: None,
            longest: LONGEST_RUN,
            merges: false,
            lists: Box::new([FreeList::EMPTY; CLASSES]),
            blocks: 0,
            joined: false,
            carved: 0,
            returned: 0,
            began: Extent { used: shared.used_of_regions(), reserved: shared.budget.reserved() },
        }
    }

    /// Does all that is left, for a worker that is refused memory: it is finished then.
    pub(super) fn finish(&mut self, shared: &Shared) -> bool {
        (self.longest, self.merges) = (usize::MAX, true);
        self.step(shared, usize::MAX)
    }

    /// Goes on for about so many blocks and pages. Whether the walk is finished.
    pub(super) fn step(&mut self, shared: &Shared, most: usize) -> bool {
        let mut done = 0;
        while done < most
            && let Some((span, kind)) = self.spans.pop()
        {
            self.sort(span, kind);
            done += 1 + span.bytes / PAGE;
        }
        while done < most
            && let Some((class, blocks)) = self.gathered.last_mut()
        {
            let bytes = size_of_class(*class);
            match blocks.next() {
                Some(base) => self.sort(Span { base, bytes }, Kind::BLOCK),
                None => drop(self.gathered.pop()),
            }
            done += 1;
        }
        let mut sorted = Vec::new();
        while done < most && self.next.0 < self.census.len() {
            done += 1 + self.visit_page(shared, &mut sorted);
        }
        let is_finished = self.next.0 == self.census.len() && self.spans.is_empty() && self.gathered.is_empty();
        if is_finished {
            self.sink(shared).finish();
        }
        is_finished
    }

    fn sort(&mut self, span: Span, kind: Kind) {
        self.blocks += 1;
        // SAFETY: blocks and spans were taken out of where they lay, so they are the walk's own.
        unsafe { sort_in(&mut self.census, span, kind) };
    }

    fn sink<'s>(&'s mut self, shared: &'s Shared) -> RunSink<'s> {
        RunSink { shared, lists: &mut self.lists, carved: &mut self.carved, returned: &mut self.returned }
    }

    /// Adds what is free in the next page to the last run, or begins others. Answers how many fragments there were.
    fn visit_page(&mut self, shared: &Shared, sorted: &mut Vec<Run>) -> usize {
        let (at, number) = self.next;
        let (base, arena) = (self.census[at].base, self.census[at].arena);
        let begin = base.addr().get() + number * PAGE;
        for span in shared.arenas[arena].take_returned(begin..begin + PAGE) {
            // What of it lies in later pages is sorted before the walk comes there.
            self.sort(span, Kind::RETURNED);
        }
        let region = &self.census[at];
        let (base, is_last) = (region.base, number + 1 >= region.pages.len());
        let page = region.pages.get(number).copied().unwrap_or(Page::EMPTY);
        if let Some(is_returned) = page.whole {
            self.add(shared, Run::new(number * PAGE, PAGE, is_returned));
        }
        let mut next = page.fragments;
        while let Some(fragment) = NonNull::new(next) {
            // SAFETY: `sort_in` wrote the fragment, and no run that it belongs to was handed out.
            let Fragment { next: behind, bytes, kind } = unsafe { fragment.read() };
            next = behind;
            sorted.push(Run::new(fragment.addr().get() - base.addr().get(), bytes as usize, kind.is_returned()));
        }
        sorted.sort_unstable_by_key(|run| run.start);
        let fragments = sorted.len();
        sorted.drain(..).for_each(|run| self.add(shared, run));
        self.next = if is_last { (at + 1, 0) } else { (at, number + 1) };
        if is_last && let Some(run) = self.last.take() {
            self.keep(shared, at, run);
        }
        fragments
    }

    /// Adds free memory behind the last run, all of which lies in the same region: neighbours become one.
    fn add(&mut self, shared: &Shared, run: Run) {
        match &mut self.last {
            Some(last) if last.start + last.bytes == run.start && (last.bytes < self.longest || run.bytes < PAGE) => {
                last.bytes += run.bytes;
                last.returned += run.returned;
                last.fragments += run.fragments;
            }
            _ => {
                if let Some(last) = self.last.replace(run) {
                    self.keep(shared, self.next.0, last);
                }
            }
        }
    }

    fn keep(&mut self, shared: &Shared, region: usize, run: Run) {
        self.joined |= run.fragments > 1;
        let Self { census, lists, carved, returned, merges, .. } = self;
        RunSink { shared, lists, carved, returned }.keep(&census[region], run, *merges);
    }
}

/// A free block, or the part of one that lies in a page, while the blocks are sorted.
#[repr(C)]
struct Fragment {
    next: *mut Self,
    /// Its size, a multiple of 16.
    bytes: u32,
    kind: Kind,
}

/// The least that is free in a fragment.
const FRAGMENT: usize = 16;

const _: () = assert!(size_of::<Fragment>() <= FRAGMENT && PAGE <= u32::MAX as usize);

/// The origin of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind(u32);

impl Kind {
    const BLOCK: Self = Self(0);
    /// Off the budget.
    const RETURNED: Self = Self(1);
    /// The unused remainder of a worker.
    const REMAINDER: Self = Self(2);
    /// Added to the others where the fragment before belongs to the same block or span.
    const CONTINUED: u32 = 4;

    fn is_returned(self) -> bool {
        self.whole() == Self::RETURNED
    }

    fn whole(self) -> Self {
        Self(self.0 & !Self::CONTINUED)
    }
}

/// A page's part of what is free.
#[derive(Clone, Copy)]
struct Page {
    fragments: *mut Fragment,
    /// Whether all of it is free in one fragment, and then whether it is off the budget. Nothing is written to such a page: perhaps
    /// it has no memory just now.
    whole: Option<bool>,
}

/// A region and what is free in each of its pages.
struct Census {
    base: NonNull<u8>,
    arena: usize,
    /// The bytes of it that were handed out.
    used: usize,
    pages: Vec<Page>,
}

impl Census {
    fn span(&self, start: usize, bytes: usize) -> Span {
        let used = Span { base: self.base, bytes: self.used };
        used.split(start).1.split(bytes).0
    }
}

/// Free memory without a gap, at an offset in its region.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: usize,
    bytes: usize,
    /// The part of it that is off the budget.
    returned: usize,
    fragments: usize,
}

impl Page {
    const EMPTY: Self = Self { fragments: ptr::null_mut(), whole: None };
}

impl Run {
    fn new(start: usize, bytes: usize, is_returned: bool) -> Self {
        Self { start, bytes, returned: if is_returned { bytes } else { 0 }, fragments: 1 }
    }
}

fn take_census(shared: &Shared) -> Vec<Census> {
    let regions = shared.arenas.iter().enumerate().flat_map(|(arena, of)| {
        let census = move |span: Span| Census {
            base: span.base,
            arena,
            used: span.bytes,
            pages: vec![Page::EMPTY; span.bytes.div_ceil(PAGE)],
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
unsafe fn sort_in(census: &mut [Census], span: Span, kind: Kind) {
    let behind = census.partition_point(|region| region.base.addr() <= span.base.addr());
    let Census { base, pages, .. } = &mut census[behind - 1];
    let start = span.base.addr().get() - base.addr().get();
    let mut done = 0;
    while done < span.bytes {
        let page = (start + done) / PAGE;
        let bytes = (span.bytes - done).min((page + 1) * PAGE - (start + done));
        let page = &mut pages[page];
        if bytes == PAGE {
            page.whole = Some(kind == Kind::RETURNED);
        } else {
            let continued = if done > 0 { Kind::CONTINUED } else { 0 };
            let head = Fragment { next: page.fragments, bytes: bytes as u32, kind: Kind(kind.0 | continued) };
            // SAFETY: `done` is less than the span's size. The fragment lies in the span, and is a multiple of 16 long, as pages and spans
            // are, and aligned to 16.
            let fragment = unsafe {
                let fragment = span.base.add(done).cast::<Fragment>();
                fragment.write(head);
                fragment.as_ptr()
            };
            page.fragments = fragment;
        }
        done += bytes;
    }
}

/// The destination of the runs.
struct RunSink<'s> {
    shared: &'s Shared,
    lists: &'s mut [FreeList; CLASSES],
    carved: &'s mut usize,
    returned: &'s mut usize,
}

impl RunSink<'_> {
    /// Gives a long run back to its arena, and makes free blocks of a short one: larger ones if it `merges`, or those that they were.
    fn keep(&mut self, region: &Census, run: Run, merges: bool) {
        let span = region.span(run.start, run.bytes);
        let budget = &self.shared.budget;
        // What was never handed out follows on the last run.
        let is_short = run.bytes < PAGE && run.start + run.bytes < region.used;
        if is_short && !merges {
            self.restore(region, run);
            return;
        }
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
        self.shared.arenas[region.arena].return_span(middle);
        budget.release(reserved);
        *self.returned += reserved;
        // What is off the budget is made of whole lines, so these are not.
        self.carve(before);
        self.carve(behind);
    }

    /// Makes of each fragment of a short run what it was.
    fn restore(&mut self, region: &Census, run: Run) {
        let (mut start, end) = (run.start, run.start + run.bytes);
        while start < end {
            // SAFETY: each fragment of a short run was written by `sort_in`, and begins where the one before ends.
            let read = |at: usize| unsafe { region.span(at, FRAGMENT).base.cast::<Fragment>().read() };
            let Fragment { bytes, kind, .. } = read(start);
            let mut bytes = bytes as usize;
            while start + bytes < end
                && let Fragment { bytes: more, kind: Kind(kind), .. } = read(start + bytes)
                && kind & Kind::CONTINUED != 0
            {
                bytes += more as usize;
            }
            let span = region.span(start, bytes);
            start += bytes;
            match kind.whole() {
                Kind::RETURNED => self.shared.arenas[region.arena].return_span(span),
                Kind::REMAINDER if bytes >= DRAW_BYTES => {
                    let rest = self.make_up_for_reserve(span);
                    if rest.bytes > 0 {
                        *self.carved += rest.bytes;
                        self.shared.arenas[region.arena].give_remainder(rest);
                    }
                }
                _ => self.carve(span),
            }
        }
    }

    /// The bytes that the reserve lacks beyond those that the limit leaves.
    fn unbacked(&self) -> usize {
        self.shared.reserve.unbacked(self.shared.budget.left())
    }

    /// Gives the front of a span to the reserve, if that needs it, and answers what is left.
    fn make_up_for_reserve(&mut self, span: Span) -> Span {
        let front = span.bytes.min(self.unbacked().next_multiple_of(LEAST_BLOCK));
        if front < LEAST_BLOCK {
            return span;
        }
        let (front, rest) = span.split(front);
        self.shared.reserve.put(front);
        rest
    }

    fn carve(&mut self, span: Span) {
        *self.carved += span.bytes;
        for (class, block) in span.blocks() {
            let list = &mut self.lists[class];
            // SAFETY: the span is the sink's own, and its blocks do not overlap.
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
                // SAFETY: the rest is the sink's own.
                unsafe { list.push(block) };
                stash.give(class, list);
            }
        }
    }
}

/// Splits a span at its first and last boundary of 64 bytes: the parts before, behind, and between them. `None`: it has no such boundaries.
fn aligned(span: Span) -> Option<(Span, Span, Span)> {
    let address = span.base.addr().get();
    let before = address.next_multiple_of(64) - address;
    let behind = (address + span.bytes) % 64;
    let bytes = span.bytes.checked_sub(before + behind).filter(|bytes| *bytes > 0)?;
    let (before, rest) = span.split(before);
    let (middle, behind) = rest.split(bytes);
    Some((before, middle, behind))
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
        unsafe { system::discard(span.split(before).1.base, bytes) };
    }
}
