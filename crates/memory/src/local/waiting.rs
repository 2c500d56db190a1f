//! The retired blocks of a worker. They are freed a few at a time, once no reader can reach them.

use std::cell::RefCell;
use std::ptr::NonNull;

use super::{STEP, Worker};
use crate::limbo::{EmptyPage, Entry, Limbo, PAGE_BYTES, WaitsFor};
use crate::pool::count;

impl Worker {
    /// Frees a few blocks whose time has come.
    #[inline]
    pub(super) fn collect_some(&self) {
        for (limbo, waits_for) in self.limbos() {
            self.free_ready(limbo, waits_for, STEP);
        }
        self.look_what_waits();
    }

    #[inline]
    fn look_what_waits(&self) {
        if self.limbos().iter().all(|(limbo, _)| limbo.borrow().is_empty()) {
            self.waiting.set(false);
            self.waiting_bytes.set(0);
        }
    }

    #[inline]
    pub(super) fn free_ready(&self, limbo: &RefCell<Limbo>, waits_for: WaitsFor, limit: usize) {
        let horizon = waits_for.horizon(&self.shared().epochs);
        for _ in 0..limit {
            let Some((entry, page)) = limbo.borrow_mut().pop_ready(horizon) else { break };
            self.waiting_bytes.set(self.waiting_bytes.get().saturating_sub(entry.bytes));
            self.free_retired(entry);
            page.into_iter().for_each(|page| self.free_page(page));
        }
    }

    /// A page for a list of what waits. None is asked for again and again, and nothing that waits is freed for it: the list is in use.
    pub(super) fn allocate_page(&self) -> Option<NonNull<u8>> {
        let shared = self.shared();
        let allocate = || self.pool.allocate(shared, PAGE_BYTES);
        let coalesced = || if shared.coalesce(&self.pool, 0) { allocate() } else { None };
        allocate().or_else(coalesced).or_else(|| self.pool.scrape(shared, PAGE_BYTES))
    }

    #[cold]
    fn free_page(&self, page: EmptyPage) {
        // SAFETY: the page is a block that `allocate_page` gave to a worker of this memory, and the list uses it no more.
        page.release(|block| unsafe { self.pool.free(self.shared(), block, PAGE_BYTES) });
    }

    fn free_retired(&self, entry: Entry) {
        if entry.was_found || self.is_noted(&entry) {
            // A block that is noted comes up again when all that waits now has, a few blocks for each that is retired: the more there are,
            // the seldomer each is looked at.
            let entry = Entry { superseded_at: 0, was_found: false, ..entry };
            self.retired.borrow_mut().push(entry, || self.allocate_page());
            self.waiting_bytes.set(self.waiting_bytes.get() + entry.bytes);
            self.waiting.set(true);
            return;
        }
        let Entry { pointer, bytes, .. } = entry;
        count(&self.pool.counters.retired_bytes, -(bytes as i64));
        // SAFETY: who retired the block promised pointer and size, and the horizons say that no thread still reaches it.
        unsafe { self.free(pointer, bytes) };
    }

    /// Whether a worker that has left its epoch goes on using a block whose time has come by the horizons, which were read before.
    #[inline]
    fn is_noted(&self, entry: &Entry) -> bool {
        let number = self.shared().epochs.noted();
        number & 1 != 0 && self.look_for_note(number, entry)
    }

    #[cold]
    fn look_for_note(&self, number: u64, entry: &Entry) -> bool {
        let mut noted = self.noted.borrow_mut();
        if noted.0 != number {
            *noted = (number, self.shared().epochs.noted_addresses());
        }
        let begin = entry.pointer.addr().get();
        let at = noted.1.partition_point(|address| *address < begin);
        noted.1.get(at).is_some_and(|address| *address < begin + entry.bytes)
    }

    pub(super) fn collect(&self) {
        let shared = self.shared();
        self.tag(shared.epochs.seal(self.id.position()));
        for (limbo, waits_for) in self.limbos() {
            self.free_ready(limbo, waits_for, usize::MAX);
        }
        self.look_what_waits();
        self.free_orphans(usize::MAX, true);
        self.free_last_pages();
    }

    /// Gives back the pages of lists that are empty, which would serve what comes next.
    pub(super) fn free_last_pages(&self) {
        for (limbo, _) in self.limbos() {
            let mut limbo = limbo.borrow_mut();
            let page = if limbo.is_empty() { limbo.take_page() } else { None };
            page.into_iter().for_each(|page| self.free_page(page));
        }
    }

    pub(super) fn free_orphans(&self, limit: usize, wait: bool) -> bool {
        self.shared().free_orphans(limit, wait, |entry| self.free_retired(entry), |page| self.free_page(page))
    }
}
