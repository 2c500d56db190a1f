//! Arenas: regions of address space, one arena to a memory node, from which spans are handed out. Spans come back when the
//! limit is reached and free blocks are coalesced.
//!
//! Only what is handed out counts as reserved: an untouched page of a region costs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::PoisonError;

use polychron_sync::atomic::{AtomicUsize, Ordering};
use polychron_sync::{Mutex, MutexGuard};

use crate::classes::{FINE_MAX, MAX_LOCAL, align_of_size, class_within, size_of_class};
use crate::coalesce;
use crate::huge_pages::HugePages;
use crate::system::{HUGE_PAGE, Mapping, PAGE};

/// Of so much memory huge pages are advised one by one: the system keeps a list of the addresses at which advice changes, and bounds its length.
const MOST_ADVISED: usize = 32 << 30;

/// A chunk of a region. The thread that has it owns its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) base: NonNull<u8>,
    pub(crate) bytes: usize,
}

// SAFETY: a span owns its memory.
unsafe impl Send for Span {}

impl Span {
    /// The first `at` bytes, and the others.
    ///
    /// # Panics
    /// When there are fewer.
    #[inline]
    pub(crate) fn split(self, at: usize) -> (Self, Self) {
        let rest = self.bytes.checked_sub(at).expect("a span is split within its length");
        let behind = self.base.map_addr(|address| address.checked_add(at).expect("a span lies in the address space"));
        (Self { base: self.base, bytes: at }, Self { base: behind, bytes: rest })
    }

    /// Cuts a block of `size` bytes off, `size` being a class's: what lies before the block, the block, what lies behind.
    #[inline]
    pub(crate) fn cut(self, size: usize) -> Option<(Self, NonNull<u8>, Self)> {
        // As alignments are powers of two.
        let skip = self.base.addr().get().wrapping_neg() & (align_of_size(size) - 1);
        self.bytes.checked_sub(skip + size)?;
        let (before, block) = self.split(skip);
        let (block, behind) = block.split(size);
        Some((before, block.base, behind))
    }

    /// The blocks that a span falls into, with their classes, as large as they can be. The span is aligned to 16 and a
    /// multiple of 16 long.
    pub(crate) fn blocks(self) -> impl Iterator<Item = (usize, NonNull<u8>)> {
        let mut left = self;
        std::iter::from_fn(move || {
            let Self { base, bytes } = left;
            let address = base.addr().get();
            let skip = address.next_multiple_of(64) - address;
            // One block, where there is a class of just that size that needs no more alignment. If not, up to the next boundary
            // one of less than 64.
            let exact = bytes <= FINE_MAX && !bytes.is_multiple_of(64);
            let fit = if skip > 0 && !exact { skip.min(bytes) } else { bytes.min(MAX_LOCAL) };
            let class = class_within(fit)?;
            left = left.split(size_of_class(class)).1;
            Some((class, base))
        })
    }
}

/// The bytes that the limit leaves.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    /// The bytes of it that the reserve has.
    set_aside: usize,
    reserved: AtomicUsize,
}

impl Budget {
    pub(crate) fn new(limit: usize, set_aside: usize) -> Self {
        Self { limit, set_aside, reserved: AtomicUsize::new(0) }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// The bytes of the limit that are not handed out.
    pub(crate) fn left(&self) -> usize {
        (self.limit - self.set_aside).saturating_sub(self.reserved())
    }

    /// Takes `bytes` off the budget, or nothing when less than `bytes` and `aside` together are left.
    pub(crate) fn reserve(&self, bytes: usize, aside: usize) -> bool {
        let more = |reserved: usize| {
            let sum = reserved.checked_add(bytes)?;
            (sum.checked_add(aside)? <= self.limit - self.set_aside).then_some(sum)
        };
        self.reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    pub(crate) fn release(&self, bytes: usize) {
        self.reserved.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Spans by size, so that the smallest that is large enough is found without looking at the others, and by address.
#[derive(Debug, Default)]
struct Spans {
    by_size: BTreeSet<(usize, usize)>,
    by_address: BTreeMap<usize, Span>,
}

impl Spans {
    fn give(&mut self, span: Span) {
        let address = span.base.addr().get();
        self.by_size.insert((span.bytes, address));
        self.by_address.insert(address, span);
    }

    /// The smallest span of at least `bytes` bytes.
    fn take(&mut self, bytes: usize) -> Option<Span> {
        let &(_, address) = self.by_size.range((bytes, 0)..).next()?;
        self.take_at(address)
    }

    /// The largest span, if it has at least `bytes` bytes.
    fn take_largest(&mut self, bytes: usize) -> Option<Span> {
        let &(most, address) = self.by_size.last()?;
        if most < bytes { None } else { self.take_at(address) }
    }

    /// The spans that begin at these addresses.
    fn take_within(&mut self, addresses: Range<usize>) -> Vec<Span> {
        let within: Vec<usize> = self.by_address.range(addresses).map(|(&address, _)| address).collect();
        within.into_iter().filter_map(|address| self.take_at(address)).collect()
    }

    fn take_at(&mut self, address: usize) -> Option<Span> {
        let span = self.by_address.remove(&address)?;
        self.by_size.remove(&(span.bytes, address));
        Some(span)
    }

    fn take_all(&mut self) -> Vec<Span> {
        self.by_size.clear();
        std::mem::take(&mut self.by_address).into_values().collect()
    }
}

/// The regions of one node. The memory is first touched by workers of the node, so the system places it there.
#[derive(Debug)]
pub(crate) struct Arena {
    region_bytes: usize,
    huge_pages: bool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    regions: Vec<Region>,
    /// The regions' numbers by their addresses.
    numbers: BTreeMap<usize, usize>,
    /// Returned spans, which no longer count against the budget.
    free: Spans,
    /// Unused remainders of workers that have left.
    remainders: Spans,
}

#[derive(Debug)]
struct Region {
    mapping: Mapping,
    used: usize,
    huge_pages: HugePages,
}

impl Inner {
    /// The region of a span, and the span's offset in it.
    fn region_of(&mut self, span: &Span) -> (&mut Region, usize) {
        let address = span.base.addr().get();
        let (begin, &number) = self.numbers.range(..=address).next_back().expect("a span lies in a region");
        (&mut self.regions[number], address - begin)
    }
}

impl Region {
    /// The span that was not handed out yet.
    fn rest(&self) -> Span {
        Span { base: self.mapping.base(), bytes: self.mapping.bytes() }.split(self.used).1
    }
}

impl Arena {
    pub(crate) fn new(region_bytes: usize, huge_pages: bool) -> Self {
        Self { region_bytes, huge_pages, inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // The lists are whole after every statement, so a panic elsewhere while they were locked does no harm.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A span of `bytes` bytes, or of fewer but at least `least` where only such spans came back. Both numbers are multiples of 64, and the span is
    /// aligned to 64. The caller has taken `bytes` off the budget.
    ///
    /// Memory that came back is preferred to memory that was never touched, even in shorter spans: otherwise a database whose blocks come and go
    /// spreads over ever more pages, and the system fills huge pages up again that are in use in part.
    pub(crate) fn take(&self, bytes: usize, least: usize) -> Option<Span> {
        debug_assert!(0 < least && least <= bytes && bytes.is_multiple_of(64) && least.is_multiple_of(64));
        let mut inner = self.inner();
        if let Some(returned) = inner.free.take(bytes).or_else(|| inner.free.take_largest(least)) {
            let (span, rest) = returned.split(bytes.min(returned.bytes));
            if rest.bytes > 0 {
                inner.free.give(rest);
            }
            let (Region { mapping, huge_pages, .. }, start) = inner.region_of(&span);
            huge_pages.handed_out(start, span.bytes, |page| mapping.advise(page, true));
            return Some(span);
        }
        let index = match inner.regions.iter().rposition(|region| region.mapping.bytes() - region.used >= bytes) {
            Some(index) => index,
            None => self.map_region(&mut inner, bytes)?,
        };
        let region = &mut inner.regions[index];
        let (span, _) = region.rest().split(bytes);
        region.used += bytes;
        Some(span)
    }

    fn map_region(&self, inner: &mut Inner, bytes: usize) -> Option<usize> {
        let bytes = bytes.max(self.region_bytes).next_multiple_of(coalesce::PAGE);
        let mapping = Mapping::new(bytes, self.huge_pages)?;
        let number = inner.regions.len();
        inner.numbers.insert(mapping.base().addr().get(), number);
        let before: usize = inner.regions.iter().map(|region| region.mapping.bytes()).sum();
        let huge_pages = HugePages::new(before + bytes <= MOST_ADVISED);
        inner.regions.push(Region { mapping, used: 0, huge_pages });
        Some(number)
    }

    /// Keeps what a leaving worker had not used up.
    pub(crate) fn give_remainder(&self, span: Span) {
        self.inner().remainders.give(span);
    }

    /// A remainder of at least `bytes` bytes.
    pub(crate) fn take_remainder(&self, bytes: usize) -> Option<Span> {
        self.inner().remainders.take(bytes)
    }

    /// All remainders.
    pub(crate) fn take_remainders(&self) -> Vec<Span> {
        self.inner().remainders.take_all()
    }

    /// All regions, as far as they were handed out.
    pub(crate) fn regions(&self) -> Vec<Span> {
        let span = |region: &Region| Span { base: region.mapping.base(), bytes: region.used };
        self.inner().regions.iter().map(span).collect()
    }

    /// Takes a chunk of a region back, aligned to 64 and a multiple of 64 long. It is off the budget, or the caller takes it off next.
    pub(crate) fn return_span(&self, span: Span) {
        let mut inner = self.inner();
        inner.free.give(span);
        let (Region { mapping, huge_pages, .. }, start) = inner.region_of(&span);
        huge_pages.returned(start, span.bytes, |page| mapping.advise(page, false));
    }

    /// Takes the returned spans that begin at these addresses. They do not count against the budget.
    pub(crate) fn take_returned(&self, addresses: Range<usize>) -> Vec<Span> {
        let mut inner = self.inner();
        let taken = inner.free.take_within(addresses);
        for span in &taken {
            let (region, start) = inner.region_of(span);
            region.huge_pages.taken(start, span.bytes);
        }
        taken
    }

    /// Mapped bytes, and those of them for which the system took the advice to use huge pages.
    pub(crate) fn mapped_bytes(&self) -> (usize, usize) {
        let inner = self.inner();
        let sum = |huge_only: bool| {
            let regions = inner.regions.iter().filter(|region| !huge_only || region.mapping.huge);
            regions.map(|region| region.mapping.bytes()).sum()
        };
        (sum(false), sum(true))
    }

    /// Touches every page of the next `bytes` bytes that will be handed out, on `threads` threads, so that the work to
    /// come meets no page faults. Returns how many bytes were touched; fewer when the system has no more.
    pub(crate) fn prefault(&self, bytes: usize, threads: usize) -> usize {
        let mut inner = self.inner();
        let free =
            |inner: &Inner| inner.regions.iter().map(|region| region.mapping.bytes() - region.used).sum::<usize>();
        while free(&inner) < bytes {
            if self.map_region(&mut inner, 0).is_none() {
                break;
            }
        }
        let mut left = bytes;
        // `take` looks at the newest region first.
        for region in inner.regions.iter().rev() {
            let size = left.min(region.mapping.bytes() - region.used);
            touch(region.rest().split(size).0, threads);
            left -= size;
        }
        bytes - left
    }
}

/// Writes a byte to every page of a span no other thread knows of.
fn touch(span: Span, threads: usize) {
    let share = span.bytes.div_ceil(threads.max(1)).next_multiple_of(HUGE_PAGE);
    std::thread::scope(|scope| {
        for start in (0..span.bytes).step_by(share) {
            let (part, _) = span.split(start).1.split(share.min(span.bytes - start));
            scope.spawn(move || {
                let part = part;
                for offset in (0..part.bytes).step_by(PAGE) {
                    // SAFETY: `offset` lies within the part, which only this thread writes to.
                    unsafe { part.base.add(offset).write_volatile(0) };
                }
            });
        }
    });
}
