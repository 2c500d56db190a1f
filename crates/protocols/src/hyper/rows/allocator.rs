//! Which slots are free, and which pages are there.
//!
//! A page whose slots are all free goes back to memory, where it serves anything ([`Rows::release_pages`]); its numbers stay with the rows
//! and are reused in another page. `docs/protocols/hyper.md`, P1 to P4, says why no thread misses it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::sync::PoisonError;

use polychron_memory::{Epochs, Guard, OutOfMemory};
use polychron_sync::atomic::{Ordering, fence};

use super::{Fresh, Record, Rows};

/// Empty pages that stay while no thread asks for memory, and the part of all pages that others must be: a table that is filled and emptied
/// again and again keeps what it needs.
const KEPT_EMPTY: usize = 16;

/// Which slots are free.
#[derive(Default)]
pub(super) struct SlotAllocator {
    /// Slots of the page that was opened last, of which none was used since.
    fresh: Range<u64>,
    /// Whether they were used in a page of the same number, which has left.
    is_again: bool,
    /// Slots from here on were never used.
    next: u64,
    /// Slots that were given back, with the epoch whose guards may still find them.
    waiting: VecDeque<(u64, u64)>,
    /// By their numbers, also those that have left.
    pages: Vec<PageUse>,
    /// Numbers of pages that have left.
    gone: BinaryHeap<Reverse<usize>>,
    /// Pages that are there, and have no slot in use.
    empty: usize,
    /// As of which `readonly` pages were released last.
    released_at: u64,
}

/// How a page is used.
#[derive(Debug, Default)]
struct PageUse {
    is_gone: bool,
    /// Its slots that are neither fresh nor waiting.
    used: u32,
    /// The epoch whose guards may still find any of those that were given back.
    freed_at: u64,
}

impl PageUse {
    /// Whether no thread can still find one of its slots, except by its number.
    fn is_free(&self, readonly: u64) -> bool {
        !self.is_gone && self.used == 0 && self.freed_at <= readonly
    }
}

impl SlotAllocator {
    /// A slot of a page is used from now on.
    #[inline]
    fn take(&mut self, page: usize) {
        let page = &mut self.pages[page];
        self.empty -= usize::from(page.used == 0);
        page.used += 1;
    }

    /// A slot of a page waits from now on, for guards of an epoch to end.
    #[inline]
    fn put(&mut self, page: usize, epoch: u64) {
        let page = &mut self.pages[page];
        page.used -= 1;
        page.freed_at = page.freed_at.max(epoch);
        self.empty += usize::from(page.used == 0);
    }

    /// Whether so many pages are empty that some should leave.
    #[inline]
    fn has_many_empty(&self) -> bool {
        self.empty > KEPT_EMPTY && 2 * self.empty > self.pages.len() - self.gone.len()
    }

    /// Takes out the pages that no thread can find: their numbers are added to a list.
    fn take_free(&mut self, readonly: u64, page_of: impl Fn(u64) -> usize, free: &mut Vec<usize>) {
        let pages = &mut self.pages;
        free.extend((0..pages.len()).filter(|page| pages[*page].is_free(readonly)));
        if free.is_empty() {
            return;
        }
        self.waiting.retain(|(_, id)| !pages[page_of(*id)].is_free(readonly));
        if self.waiting.capacity() > 4 * self.waiting.len() {
            self.waiting.shrink_to(2 * self.waiting.len());
        }
        if self.fresh.start < self.fresh.end && pages[page_of(self.fresh.start)].is_free(readonly) {
            self.fresh = 0..0;
        }
        free.iter().for_each(|page| pages[*page] = PageUse { is_gone: true, ..PageUse::default() });
        self.gone.extend(free.iter().copied().map(Reverse));
        self.empty -= free.len();
    }
}

impl Rows {
    /// A slot that no other thread has: absent, without versions.
    #[inline]
    pub(in crate::hyper) fn allocate(&self, epochs: &Epochs, guard: &Guard<'_>) -> Result<Fresh<'_>, OutOfMemory> {
        let mut allocator = self.allocator.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = allocator.waiting.pop_front_if(|(epoch, _)| *epoch <= epochs.readonly());
        if let Some((_, id)) = ready {
            allocator.take(self.page_of(id));
            drop(allocator);
            return Ok(Fresh { record: self.record(id), is_reused: true });
        }
        if allocator.fresh.is_empty() {
            self.open_page(&mut allocator, guard)?;
        }
        let (id, is_reused) = (allocator.fresh.start, allocator.is_again);
        allocator.fresh.start += 1;
        allocator.next = allocator.next.max(id + 1);
        allocator.take(self.page_of(id));
        drop(allocator);
        let record = self.record(id);
        // Rows often come several at a time. Behind the page's end nothing is read: it is a hint.
        polychron_sync::prefetch_read(record.first.as_ptr().wrapping_add(super::FETCHED_AHEAD * self.slot_stride));
        Ok(Fresh { record, is_reused })
    }

    /// Makes a page whose slots are fresh, of a number that has left if there is one.
    #[cold]
    fn open_page(&self, allocator: &mut SlotAllocator, guard: &Guard<'_>) -> Result<(), OutOfMemory> {
        let (page, is_again) = match allocator.gone.peek() {
            Some(Reverse(page)) => (*page, true),
            None => (allocator.pages.len(), false),
        };
        self.add_page(page, guard)?;
        if is_again {
            allocator.gone.pop();
            allocator.pages[page] = PageUse::default();
        } else {
            allocator.pages.push(PageUse::default());
        }
        allocator.empty += 1;
        allocator.is_again = is_again;
        allocator.fresh = (page as u64) << self.slots..(page as u64 + 1) << self.slots;
        Ok(())
    }

    /// Gives a slot back that is closed and has left its index: it is reused when no guard of the present is left. Whether so many pages are
    /// empty that the caller should have some [released](Rows::release_pages).
    pub(in crate::hyper) fn free(&self, record: Record<'_>, epochs: &Epochs) -> bool {
        // Barrier: pairs with the one in a worker's pin. A thread that pins behind it does not find the record in the index.
        fence(Ordering::SeqCst);
        let mut allocator = self.allocator.lock().unwrap_or_else(PoisonError::into_inner);
        let epoch = epochs.current();
        allocator.waiting.push_back((epoch, record.id));
        allocator.put(self.page_of(record.id), epoch);
        allocator.has_many_empty() && allocator.released_at < epochs.readonly()
    }

    /// Gives a slot back that no other thread has seen.
    pub(in crate::hyper) fn give_back_unseen(&self, record: Record<'_>) {
        let mut allocator = self.allocator.lock().unwrap_or_else(PoisonError::into_inner);
        allocator.waiting.push_front((0, record.id));
        allocator.put(self.page_of(record.id), 0);
    }

    /// Gives pages to memory in which no slot is used, nor found by any guard that is left. Whether there were any.
    #[cold]
    pub(in crate::hyper) fn release_pages(&self, epochs: &Epochs, guard: &Guard<'_>) -> bool {
        let (mut free, readonly) = (Vec::new(), epochs.readonly());
        let mut allocator = self.allocator.lock().unwrap_or_else(PoisonError::into_inner);
        allocator.released_at = readonly;
        if allocator.empty > 0 {
            allocator.take_free(readonly, |id| self.page_of(id), &mut free);
        }
        // Under the lock: from now on the numbers serve in other pages.
        let pages = free.into_iter().filter_map(|page| self.place_of(page));
        pages.filter(|page| self.retire_page(page, guard)).count() > 0
    }

    /// A number behind all slots that were ever used.
    pub(in crate::hyper) fn len(&self) -> u64 {
        self.allocator.lock().unwrap_or_else(PoisonError::into_inner).next
    }

    /// How many pages are there.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(in crate::hyper) fn pages(&self) -> usize {
        let allocator = self.allocator.lock().unwrap_or_else(PoisonError::into_inner);
        allocator.pages.len() - allocator.gone.len()
    }
}
