//! Where the heads of a table's records lie: an expandable array of pages (§3.2), and the slots that are free.
//!
//! Pages never move, so an index holds the address of a head and no number that would have to be looked up in a directory first.
//! The first pages are small, so that a small table needs little; from 8192 records on a page holds as many and has up to 2 MiB.
//!
//! A page whose slots are all free is given back when memory is short or the client does nothing ([`RecordArray::free_pages`]),
//! and with the table. Slots are free when no guard is left that could hold their records, but garbage may still name them: pages stay
//! while any garbage waits. A page waits for the guards once more, for the sake of those that looked at it ahead. A thread that goes along
//! pages beyond one guard keeps all of them ([`Runs`]).

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::PoisonError;

use polychron_memory::{Guard, OutOfMemory};
use polychron_sync::atomic::{AtomicUsize, Ordering};
use polychron_sync::{Mutex, SpinLatch};

use super::bins::Bins;
use super::record::{HEAD_BYTES, Head, LONGEST_INLINE_BYTES, NewVersion, Record, RecordAddress};
use super::timestamp::Timestamp;

const FIRST_PAGE: usize = 64;
const LEAST_PAGE: usize = STEP;
const LARGEST_PAGE: usize = 8192;
const LARGEST_PAGE_BYTES: usize = 2 << 20;
/// Lists of free slots, so that workers seldom meet.
const STRIPES: usize = 8;
/// New slots taken at a time.
const STEP: usize = 16;

/// Words of a row that fit in a head of so many bytes.
#[inline]
fn words_in(head_bytes: usize) -> usize {
    (head_bytes - HEAD_BYTES) / 8
}

/// Memory for heads that lie one behind the other. Not given back when it is dropped.
#[derive(Debug)]
pub(super) struct Page {
    first: RecordAddress,
    head_bytes: usize,
    /// Records that there is room for, and those that were made.
    capacity: usize,
    made: usize,
}

impl Page {
    /// Room for so many heads of so many bytes each.
    pub(super) fn allocate(capacity: usize, head_bytes: usize, guard: &Guard<'_>) -> Result<Self, OutOfMemory> {
        assert!(head_bytes >= HEAD_BYTES && head_bytes.is_multiple_of(64), "heads are whole lines");
        let first = RecordAddress::at(guard.allocate(capacity * head_bytes)?);
        Ok(Self { first, head_bytes, capacity, made: 0 })
    }

    /// Makes the next record.
    pub(super) fn make(&mut self) -> Option<NewRecord<'_>> {
        if self.made == self.capacity {
            return None;
        }
        // SAFETY: the page has room for its capacity of heads, and this one was not made before.
        unsafe { self.first.start().add(self.made * self.head_bytes).cast().write(Head::new(self.head_bytes)) };
        self.made += 1;
        let record = self.get(self.made - 1)?;
        Some(NewRecord { record, array: None })
    }

    /// The heads that were made.
    #[inline]
    fn run(&self) -> Run<'_> {
        Run { first: self.first, heads: self.made, head_bytes: self.head_bytes, pages: PhantomData }
    }

    /// One of the records.
    #[inline]
    pub(super) fn get(&self, position: usize) -> Option<Record<'_>> {
        self.run().get(position)
    }

    /// Frees it, and the versions of its records.
    pub(super) fn free(self, guard: &Guard<'_>) {
        // SAFETY: the page was allocated with this size. All that was found in it was borrowed from it, or is found through its table, whose last user
        // frees it.
        unsafe {
            self.run().records().for_each(|record| record.clear(guard, true));
            guard.free(self.first.start(), self.capacity * self.head_bytes);
        }
    }
}

/// A record that no other thread knows, with no version yet.
#[derive(Debug)]
pub(super) struct NewRecord<'g> {
    record: Record<'g>,
    array: Option<&'g RecordArray>,
}

impl<'g> NewRecord<'g> {
    /// Where it lies.
    pub(super) fn address(&self) -> RecordAddress {
        self.record.address()
    }

    /// Writes a version for it.
    pub(super) fn version<'r>(
        &'r self,
        timestamp: Timestamp,
        row: &[u64],
        inlines: bool,
        guard: &'r Guard<'_>,
    ) -> Result<NewVersion<'r>, OutOfMemory> {
        self.record.new_version(timestamp, row, inlines, guard)
    }

    /// The record, which others may come to know now.
    pub(super) fn publish(self) -> Record<'g> {
        self.record
    }

    /// The same for the sets of a transaction.
    pub(super) fn keep(self) -> TakenRecord {
        TakenRecord { record: self.record.address(), array: self.array.map_or(0, RecordArray::number) }
    }

    /// Gives it back, with what was installed in it.
    pub(super) fn give_back(self, worker: usize, guard: &Guard<'_>) {
        if let Some(array) = self.array {
            // SAFETY: no other thread has come to know the record.
            unsafe { array.give(self.record, worker, guard) };
        }
    }
}

/// A record that a transaction has taken, and that no other thread knows before the transaction commits. There is one for each.
#[derive(Debug)]
pub(super) struct TakenRecord {
    record: RecordAddress,
    /// Which array it was taken from.
    array: usize,
}

impl TakenRecord {
    /// The record.
    pub(super) fn under<'g>(&self, guard: &'g Guard<'_>) -> Record<'g> {
        // SAFETY: it is not given back as long as this is there, and its page stays while a slot is in use. A transaction keeps its list of tables.
        unsafe { self.record.under(guard) }
    }
}

/// Slots of heads that lie one behind the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    first: RecordAddress,
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
        if position >= self.heads {
            return None;
        }
        // SAFETY: a head was made there. The page stays while it or its runs are borrowed, or the guard is held under which they were listed.
        Some(unsafe { RecordAddress::at(self.first.start().add(position * self.head_bytes)).under(&()) })
    }

    fn records(self) -> impl Iterator<Item = Record<'a>> {
        (0..self.heads).filter_map(move |position| self.get(position))
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
    list: Vec<(RecordAddress, usize)>,
}

impl Runs<'_> {
    /// One after the other.
    pub(super) fn iter(&self) -> impl Iterator<Item = Run<'_>> {
        let head_bytes = self.array.head_bytes;
        self.list.iter().map(move |&(first, heads)| Run { first, heads, head_bytes, pages: PhantomData })
    }
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        // Release: pairs with the acquire load of a thread that gives pages back, after all that was read in them.
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
        words_in(self.head_bytes)
    }

    /// Cache lines of a head.
    #[inline]
    pub(super) fn lines(&self) -> usize {
        self.head_bytes / 64
    }

    /// A new record.
    pub(super) fn take<'g>(&'g self, worker: usize, guard: &'g Guard<'_>) -> Result<NewRecord<'g>, OutOfMemory> {
        let free = self.free[worker % STRIPES].lock().pop();
        let taken = free.map_or_else(|| self.take_slowly(worker, guard), Ok)?;
        // SAFETY: a head was made there, and its page is retired when all its slots are free, and later than now.
        let record = unsafe { taken.under(guard) };
        Ok(NewRecord { record, array: Some(self) })
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
            let page = loop {
                match Page::allocate(capacity, self.head_bytes, guard) {
                    Ok(page) => break page,
                    Err(_) if capacity > LEAST_PAGE => capacity = (capacity / 2).max(LEAST_PAGE),
                    Err(refused) => return Err(refused),
                }
            };
            pages.push(page);
        }
        let page = pages.last_mut().expect("there is a page with room");
        let mut made = || page.make().map(|new| new.address());
        let record = made().expect("a page with room gives a slot");
        let mut free = self.free[worker % STRIPES].lock();
        let others = free.len();
        free.extend((1..STEP).map_while(|_| made()));
        // They are taken from the end: the first one that was made comes next.
        free[others..].reverse();
        Ok(record)
    }

    /// What tells the array from others while it is there.
    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Gives a record back that a transaction has taken from here and has not written.
    pub(super) fn give_unwritten(&self, taken: TakenRecord, worker: usize, guard: &Guard<'_>) {
        let record = taken.under(guard);
        assert!(taken.array == self.number() && record.is_empty(), "it was taken from here, and not written");
        // SAFETY: what names a record that was not written was not committed, so only its transaction knows it.
        unsafe { self.give(record, worker, guard) };
    }

    /// Gives a slot back.
    ///
    /// # Safety
    /// The record is one of this array. No transaction can find or hold it or a version of it, and no guard is left under which it was found.
    pub(super) unsafe fn give(&self, record: Record<'_>, worker: usize, guard: &Guard<'_>) {
        // SAFETY: as promised.
        unsafe { record.clear(guard, false) };
        self.free[worker % STRIPES].lock().push(record.address());
    }

    /// How many pages there are.
    #[cfg(test)]
    pub(super) fn pages(&self) -> usize {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Gives pages back of which all slots are free, if about an eighth of all slots became free since that was tried last.
    /// Garbage in the bins may name free slots. A slot is free when all who could make garbage of its record have put it where it
    /// waits, so what is asked when the slots were taken holds of all garbage of theirs.
    pub(super) fn free_pages(&self, bins: &Bins, guard: &Guard<'_>) {
        let free: usize = self.free.iter().map(|stripe| stripe.lock().len()).sum();
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let made: usize = pages.iter().map(|page| page.made).sum();
        let scattered = self.scattered.load(Ordering::Relaxed).min(free);
        // Acquire: pairs with the release of the thread that had the pages listed.
        let is_listed = self.listed.load(Ordering::Acquire) > 0;
        if free == 0 || is_listed || (free < made && free - scattered < made.div_ceil(8)) {
            return;
        }
        // A worker that needs a slot meanwhile waits for the lock.
        let mut slots: Vec<RecordAddress> =
            self.free.iter().flat_map(|stripe| std::mem::take(&mut *stripe.lock())).collect();
        if !bins.are_empty() {
            self.free[0].lock().append(&mut slots);
            return;
        }
        pages.sort_unstable_by_key(|page| page.first.number());
        let page_of = |pages: &[Page], record: &RecordAddress| {
            let behind = pages.partition_point(|page| page.first.number() <= record.number());
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
                unsafe { guard.retire(page.first.start(), page.capacity * page.head_bytes) };
            }
            !goes
        });
        // The last page alone has slots that were not made.
        if let Some(at) = pages.iter().position(|page| page.made < page.capacity) {
            let last = pages.len() - 1;
            pages.swap(at, last);
        }
    }

    /// All slots that were made so far, free ones too, page by page. The pages stay as long as somebody has them listed.
    pub(super) fn runs(&self) -> Runs<'_> {
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: a thread that gives pages back has the lock.
        self.listed.fetch_add(1, Ordering::Relaxed);
        Runs { array: self, list: pages.iter().map(|page| (page.first, page.made)).collect() }
    }

    /// Visits the slots in a window, free ones too.
    pub(super) fn for_some<'g>(&'g self, window: &mut Window, guard: &'g Guard<'_>, mut visit: impl FnMut(Record<'g>)) {
        for run in self.runs_under(guard) {
            window.of(run.len()).filter_map(|at| run.get(at)).for_each(&mut visit);
        }
    }

    /// Visits all slots, free ones too.
    pub(super) fn for_each<'g>(&'g self, guard: &'g Guard<'_>, visit: impl FnMut(Record<'g>)) {
        self.runs_under(guard).into_iter().flat_map(Run::records).for_each(visit);
    }

    /// All slots that were made so far. Pages that are listed under a guard are retired later, and stay until it is dropped.
    fn runs_under<'g>(&'g self, _guard: &'g Guard<'_>) -> Vec<Run<'g>> {
        let runs = self.runs();
        let run = |&(first, heads)| Run { first, heads, head_bytes: self.head_bytes, pages: PhantomData };
        runs.list.iter().map(run).collect()
    }

    /// Frees all memory: the array's last user does.
    pub(super) fn free_all(&mut self, guard: &Guard<'_>) {
        let pages = std::mem::take(&mut *self.pages.lock().unwrap_or_else(PoisonError::into_inner));
        self.free.iter().for_each(|stripe| stripe.lock().clear());
        pages.into_iter().for_each(|page| page.free(guard));
    }
}
