//! Where the heads of a table's records lie: an expandable array of pages (§3.2), and the slots that are free.
//!
//! Pages never move, so an index holds the address of a head and no number that would have to be looked up in a directory first.
//! The first pages are small, so that a small table needs little; from 8192 records on a page holds as many and has up to 2 MiB.
//!
//! A page whose slots are all free is given back when memory is short or the client does nothing ([`RecordArray::free_pages`]),
//! and with the table. Slots are free when no guard is left that could hold their records, but garbage may still name them: pages stay
//! while any garbage waits. A page waits for the guards once more, for the sake of those that looked at it ahead. Who goes along
//! pages beyond one guard keeps all of them ([`Runs`]).

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::PoisonError;

use polychron_memory::{Guard, OutOfMemory};
use polychron_sync::atomic::{AtomicUsize, Ordering};
use polychron_sync::{Mutex, SpinLatch};

use super::record::{HEAD_BYTES, LONGEST_INLINE_BYTES, Record, RecordAddress};

const FIRST_PAGE: usize = 64;
const LEAST_PAGE: usize = STEP;
const LARGEST_PAGE: usize = 8192;
const LARGEST_PAGE_BYTES: usize = 2 << 20;
/// Lists of free slots, so that workers seldom meet.
const STRIPES: usize = 8;
/// New slots taken at a time.
const STEP: usize = 16;

#[derive(Debug)]
struct Page {
    memory: NonNull<u8>,
    /// Records that there is room for, and those that were made.
    capacity: usize,
    made: usize,
}

// SAFETY: the page is owned by the array; what lies in it is shared through `Record`.
unsafe impl Send for Page {}

/// Slots of heads that lie one behind the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    memory: NonNull<u8>,
    heads: usize,
    head_bytes: usize,
    pages: PhantomData<&'a ()>,
}

impl<'a> Run<'a> {
    /// How many there are.
    #[inline]
    pub(super) fn len(self) -> usize {
        self.heads
    }

    /// Cache lines of a head.
    #[inline]
    pub(super) fn lines(self) -> usize {
        self.head_bytes / 64
    }

    /// One of them.
    #[inline]
    pub(super) fn get(self, position: usize) -> Option<Record<'a>> {
        // SAFETY: a head was made there, and the page stays while the runs are borrowed, or the guard stands under which they were listed.
        (position < self.heads)
            .then(|| unsafe { RecordAddress::at(self.memory.add(position * self.head_bytes)).under(&()) })
    }
}

/// Some of the slots of several arrays: those behind as many that are skipped.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) skipped: usize,
    pub(super) left: usize,
}

impl Window {
    /// Which of the next `count` slots are in it.
    pub(super) fn of(&mut self, count: usize) -> Range<usize> {
        let start = self.skipped.min(count);
        let end = count.min(start + self.left);
        self.skipped -= start;
        self.left -= end - start;
        start..end
    }
}

/// All runs of an array, whose pages stay while this lives.
#[derive(Debug)]
pub(super) struct Runs<'a> {
    array: &'a RecordArray,
    /// The pages, and how many heads were made in each.
    list: Vec<(NonNull<u8>, usize)>,
}

impl Runs<'_> {
    /// One after the other.
    pub(super) fn iter(&self) -> impl Iterator<Item = Run<'_>> {
        let head_bytes = self.array.head_bytes;
        self.list.iter().map(move |&(memory, heads)| Run { memory, heads, head_bytes, pages: PhantomData })
    }
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        // Release: pairs with the acquire load of who gives pages back, after all that was read in them.
        self.array.listed.fetch_sub(1, Ordering::Release);
    }
}

/// The records of one index.
#[derive(Debug)]
pub(super) struct RecordArray {
    head_bytes: usize,
    pages: Mutex<Vec<Page>>,
    free: [SpinLatch<Vec<RecordAddress>>; STRIPES],
    /// How many have the pages listed just now. Raised under the pages' lock.
    listed: AtomicUsize,
    /// Free slots that were counted by pages last, in vain. Written under the pages' lock.
    scattered: AtomicUsize,
}

impl RecordArray {
    /// An array of records whose heads have room for a row of `row_bytes`; rows longer than heads can hold lie elsewhere, and
    /// only deletions in the head.
    pub(super) fn new(row_bytes: usize) -> Self {
        Self::with_room(if row_bytes > LONGEST_INLINE_BYTES { 0 } else { row_bytes })
    }

    /// An array of records whose heads have room for `inlined` bytes.
    pub(super) fn with_room(inlined: usize) -> Self {
        let head_bytes = (HEAD_BYTES + inlined).next_multiple_of(64);
        Self {
            head_bytes,
            pages: Mutex::default(),
            free: std::array::from_fn(|_| SpinLatch::default()),
            listed: AtomicUsize::new(0),
            scattered: AtomicUsize::new(0),
        }
    }

    /// Words of a row that fit in a head.
    #[inline]
    pub(super) fn inline_words(&self) -> usize {
        (self.head_bytes - HEAD_BYTES) / 8
    }

    /// Cache lines of a head.
    #[inline]
    pub(super) fn lines(&self) -> usize {
        self.head_bytes / 64
    }

    /// A slot for a new record, which is open and has no version.
    pub(super) fn take<'g>(&self, worker: usize, guard: &'g Guard<'_>) -> Result<Record<'g>, OutOfMemory> {
        let free = self.free[worker % STRIPES].lock().pop();
        let taken = free.map_or_else(|| self.take_slowly(worker, guard), Ok)?;
        // SAFETY: a head was made there, and its page is retired when all its slots are free, and later than now.
        Ok(unsafe { taken.under(guard) })
    }

    #[cold]
    fn take_slowly(&self, worker: usize, guard: &Guard<'_>) -> Result<RecordAddress, OutOfMemory> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.last().is_none_or(|page| page.made == page.capacity) {
            if let Some(record) = self.free.iter().find_map(|stripe| stripe.lock().pop()) {
                return Ok(record);
            }
            let so_far: usize = pages.iter().map(|page| page.capacity).sum();
            let mut capacity = so_far.clamp(FIRST_PAGE, LARGEST_PAGE.min(LARGEST_PAGE_BYTES / self.head_bytes));
            // Near the limit a smaller page may still find room.
            let memory = loop {
                match guard.allocate(capacity * self.head_bytes) {
                    Ok(memory) => break memory,
                    Err(_) if capacity > LEAST_PAGE => capacity = (capacity / 2).max(LEAST_PAGE),
                    Err(refused) => return Err(refused),
                }
            };
            pages.push(Page { memory, capacity, made: 0 });
        }
        let page = pages.last_mut().expect("there is a page with room");
        let step = STEP.min(page.capacity - page.made);
        let mut fresh = (page.made..page.made + step).map(|position| {
            // SAFETY: the page has room for its capacity of heads, and this one was not made before.
            unsafe { Record::create(page.memory.add(position * self.head_bytes)) }.address()
        });
        let record = fresh.next().expect("a page with room gives a slot");
        self.free[worker % STRIPES].lock().extend(fresh.rev());
        page.made += step;
        Ok(record)
    }

    /// Gives a slot back.
    ///
    /// # Safety
    /// The record is one of this array, and nobody can find or hold it or a version of it.
    pub(super) unsafe fn give(&self, record: Record<'_>, worker: usize) {
        // SAFETY: as promised.
        unsafe { record.reset() };
        self.free[worker % STRIPES].lock().push(record.address());
    }

    /// How many pages there are.
    #[cfg(test)]
    pub(super) fn pages(&self) -> usize {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Gives pages back of which all slots are free, if about an eighth of all slots became free since that was tried last.
    /// `is_named`: whether garbage may name free slots. A slot is free when all who could make garbage of its record have put it where it
    /// waits, so what is asked when the slots were taken holds of all garbage of theirs.
    pub(super) fn free_pages(&self, is_named: &dyn Fn() -> bool, guard: &Guard<'_>) {
        let free: usize = self.free.iter().map(|stripe| stripe.lock().len()).sum();
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let made: usize = pages.iter().map(|page| page.made).sum();
        let scattered = self.scattered.load(Ordering::Relaxed).min(free);
        // Acquire: pairs with the release of who had the pages listed.
        let is_listed = self.listed.load(Ordering::Acquire) > 0;
        if free == 0 || is_listed || (free < made && free - scattered < made.div_ceil(8)) {
            return;
        }
        // Who needs a slot meanwhile waits for the lock.
        let mut slots: Vec<RecordAddress> =
            self.free.iter().flat_map(|stripe| std::mem::take(&mut *stripe.lock())).collect();
        if is_named() {
            self.free[0].lock().append(&mut slots);
            return;
        }
        pages.sort_unstable_by_key(|page| page.memory);
        let page_of = |pages: &[Page], record: &RecordAddress| {
            let behind = pages.partition_point(|page| page.memory.addr().get() as u64 <= record.number());
            behind - 1
        };
        let mut counts = vec![0; pages.len()];
        slots.iter().for_each(|record| counts[page_of(&pages, record)] += 1);
        let goes: Vec<bool> = pages.iter().zip(counts).map(|(page, free)| free == page.made).collect();
        slots.retain(|record| !goes[page_of(&pages, record)]);
        self.scattered.store(slots.len(), Ordering::Relaxed);
        let share = slots.len().div_ceil(STRIPES).max(1);
        slots.chunks(share).zip(&self.free).for_each(|(slots, stripe)| stripe.lock().extend(slots));
        let mut goes = goes.into_iter();
        pages.retain(|page| {
            let goes = goes.next() == Some(true);
            if goes {
                // SAFETY: the page was allocated with this size; no slot of it is in use or can be taken, and nobody goes along it.
                unsafe { guard.retire(page.memory, page.capacity * self.head_bytes) };
            }
            !goes
        });
        // The last page alone has slots that were not made.
        pages.sort_unstable_by_key(|page| page.made < page.capacity);
    }

    /// All slots that were made so far, free ones too, page by page. The pages stay as long as somebody has them listed.
    pub(super) fn runs(&self) -> Runs<'_> {
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: who gives pages back has the lock.
        self.listed.fetch_add(1, Ordering::Relaxed);
        Runs { array: self, list: pages.iter().map(|page| (page.memory, page.made)).collect() }
    }

    /// Visits the slots in a window, free ones too.
    pub(super) fn for_some<'g>(&self, window: &mut Window, guard: &'g Guard<'_>, mut visit: impl FnMut(Record<'g>)) {
        for run in self.runs_under(guard) {
            window.of(run.len()).filter_map(|at| run.get(at)).for_each(&mut visit);
        }
    }

    /// Visits all slots, free ones too.
    pub(super) fn for_each<'g>(&self, guard: &'g Guard<'_>, visit: impl FnMut(Record<'g>)) {
        let records =
            self.runs_under(guard).into_iter().flat_map(|run| (0..run.len()).filter_map(move |at| run.get(at)));
        records.for_each(visit);
    }

    /// All slots that were made so far. Pages that are listed under a guard are retired later, and stay until it is dropped.
    fn runs_under<'g>(&self, _guard: &'g Guard<'_>) -> Vec<Run<'g>> {
        let runs = self.runs();
        let run = |&(memory, heads)| Run { memory, heads, head_bytes: self.head_bytes, pages: PhantomData };
        runs.list.iter().map(run).collect()
    }

    /// Gives all memory back.
    ///
    /// # Safety
    /// Nobody uses a record of the array, now or later.
    pub(super) unsafe fn destroy(&self, guard: &Guard<'_>) {
        // SAFETY: as promised.
        self.for_each(guard, |record| unsafe { record.free_versions(guard) });
        for page in self.pages.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // SAFETY: the page was allocated with this size, and nobody uses what lies in it.
            unsafe { guard.free(page.memory, page.capacity * self.head_bytes) };
        }
    }
}
