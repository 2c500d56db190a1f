//! Limbo: what is retired and not yet freed, oldest first.
//!
//! Entries wait in a list of pages. Those retired since the worker's last barrier have no tag; [`Limbo::tag`] gives all of them
//! one mark. Marks of the same epoch merge, so there is about one an epoch, and in steady state nothing is allocated.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use crate::Epochs;
use crate::epochs::Horizon;

/// The readers for which the blocks of a list wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitsFor {
    /// All guards.
    Guards,
    /// Guards of workers that follow links between versions, and snapshots.
    Walkers,
}

impl WaitsFor {
    #[inline]
    pub(crate) fn horizon(self, epochs: &Epochs) -> Horizon {
        match self {
            Self::Guards => epochs.horizon(),
            Self::Walkers => epochs.version_horizon(),
        }
    }
}

/// A block that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) pointer: NonNull<u8>,
    pub(crate) bytes: usize,
    /// The epoch whose snapshots and all newer ones do without the block; 0 when no snapshot ever needed it.
    pub(crate) superseded_at: u64,
    /// Whether the block was once found without a snapshot: it waits for all guards when it has waited for these.
    pub(crate) was_found: bool,
}

/// All entries before position `end` were unlinked before some time in epoch `tag`.
#[derive(Clone, Copy, Debug)]
struct Mark {
    tag: u64,
    end: u64,
}

/// Entries lie in pages of so many bytes, blocks of the memory like others, so that the limit holds for them, too.
pub(crate) const PAGE_BYTES: usize = 1024;
const PER_PAGE: usize = (PAGE_BYTES - size_of::<Header>()) / size_of::<Entry>();

struct Header {
    next: Option<NonNull<Page>>,
    /// Whether the page lies on the heap, because the memory was used up.
    is_on_heap: bool,
}

struct Page {
    header: Header,
    entries: [MaybeUninit<Entry>; PER_PAGE],
}

const _: () = assert!(size_of::<Page>() <= PAGE_BYTES && align_of::<Page>() <= 16);

/// A page that is no longer used.
#[must_use = "its memory is to be given back"]
pub(crate) struct EmptyPage(NonNull<Page>);

impl EmptyPage {
    /// Gives its memory back: a block of [`PAGE_BYTES`] to `free`.
    pub(crate) fn release(self, free: impl FnOnce(NonNull<u8>)) {
        // SAFETY: no other thread has the page, and its header was written when it came to be.
        if unsafe { self.0.as_ref() }.header.is_on_heap {
            // SAFETY: it was a box, see `Limbo::add_page`.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        } else {
            free(self.0.cast());
        }
    }
}

/// A first-in-first-out list of what waits. See the head of the module.
#[derive(Debug, Default)]
pub(crate) struct Limbo {
    /// The first and the last page.
    pages: Option<(NonNull<Page>, NonNull<Page>)>,
    /// The position of the first entry in the first page, and of the next entry in the last page.
    begin: usize,
    end: usize,
    len: usize,
    marks: VecDeque<Mark>,
    /// Position of the first entry, counted from the first that ever was.
    first: u64,
    /// Position behind the last tagged entry.
    tagged: u64,
}

// SAFETY: the blocks that wait, and the pages, are owned by the limbo; no other thread frees them or writes to them.
unsafe impl Send for Limbo {}

impl Limbo {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Puts an entry at the end. Where that needs a page, `page` is asked for a block of [`PAGE_BYTES`].
    #[inline]
    pub(crate) fn push(&mut self, entry: Entry, page: impl FnOnce() -> Option<NonNull<u8>>) {
        let last = match self.pages {
            Some((_, last)) if self.end < PER_PAGE => last,
            _ => self.add_page(page()),
        };
        // SAFETY: the page is the limbo's own, and the position lies inside of it.
        unsafe { (&raw mut (*last.as_ptr()).entries[self.end]).write(MaybeUninit::new(entry)) };
        self.end += 1;
        self.len += 1;
    }

    #[cold]
    fn add_page(&mut self, block: Option<NonNull<u8>>) -> NonNull<Page> {
        let header = Header { next: None, is_on_heap: block.is_none() };
        let page = match block {
            Some(block) => block.cast::<Page>(),
            None => NonNull::from(Box::leak(Box::new(Page {
                header: Header { next: None, is_on_heap: true },
                entries: [const { MaybeUninit::uninit() }; PER_PAGE],
            }))),
        };
        // SAFETY: the block is as large and aligned as a page, and given to the limbo.
        unsafe { (&raw mut (*page.as_ptr()).header).write(header) };
        let first = match self.pages {
            // SAFETY: the last page is the limbo's own.
            Some((first, last)) => unsafe {
                (*last.as_ptr()).header.next = Some(page);
                first
            },
            None => page,
        };
        self.pages = Some((first, page));
        self.end = 0;
        page
    }

    /// Tags what has no tag yet. The caller passed a barrier after the last push and read `epoch` after the barrier.
    #[inline]
    pub(crate) fn tag(&mut self, epoch: u64) {
        let end = self.first + self.len as u64;
        if end == self.tagged {
            return;
        }
        self.tagged = end;
        match self.marks.back_mut() {
            Some(mark) if mark.tag == epoch => mark.end = end,
            _ => self.marks.push_back(Mark { tag: epoch, end }),
        }
    }

    /// Takes the oldest entry out if it can be freed, and with it the page in which it was the last one.
    #[inline]
    pub(crate) fn pop_ready(&mut self, horizon: Horizon) -> Option<(Entry, Option<EmptyPage>)> {
        let mark = self.marks.front()?;
        let (page, last) = self.pages?;
        // SAFETY: what has a mark was pushed and is there, so the first page holds it, at `begin`.
        let entry = unsafe { (&raw const (*page.as_ptr()).entries[self.begin]).read().assume_init() };
        if mark.tag > horizon.guards || entry.superseded_at > horizon.collectable {
            return None;
        }
        self.first += 1;
        if self.first == mark.end {
            self.marks.pop_front();
        }
        self.begin += 1;
        self.len -= 1;
        if self.len == 0 {
            // The page serves what comes next.
            (self.begin, self.end) = (0, 0);
            return Some((entry, None));
        }
        if self.begin < PER_PAGE {
            return Some((entry, None));
        }
        // SAFETY: the page is the limbo's own, and there are entries behind it.
        let next = unsafe { page.as_ref() }.header.next.expect("a page follows, for there are entries");
        self.pages = Some((next, last));
        self.begin = 0;
        Some((entry, Some(EmptyPage(page))))
    }

    /// The page of a limbo that is empty.
    pub(crate) fn take_page(&mut self) -> Option<EmptyPage> {
        debug_assert!(self.is_empty());
        self.pages.take().map(|(page, _)| EmptyPage(page))
    }
}

impl Drop for Limbo {
    /// Pages of the memory go with the memory, those on the heap now.
    fn drop(&mut self) {
        let mut next = self.pages.take().map(|(first, _)| first);
        while let Some(page) = next {
            // SAFETY: the pages are the limbo's own, each is looked at once, and the memory is still there.
            next = unsafe { page.as_ref() }.header.next;
            EmptyPage(page).release(|_| ());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(bytes: usize, superseded_at: u64) -> Entry {
        Entry { pointer: NonNull::dangling(), bytes, superseded_at, was_found: false }
    }

    fn horizon(guards: u64, collectable: u64) -> Horizon {
        Horizon { guards, collectable }
    }

    #[test]
    fn entries_wait_for_their_tag() {
        let mut limbo = Limbo::default();
        limbo.push(entry(1, 0), || None);
        assert!(limbo.pop_ready(horizon(100, 100)).is_none(), "without a tag nothing leaves");
        limbo.tag(5);
        limbo.push(entry(2, 0), || None);
        assert!(limbo.pop_ready(horizon(4, 4)).is_none());
        assert_eq!(limbo.pop_ready(horizon(5, 0)).unwrap().0.bytes, 1);
        assert!(limbo.pop_ready(horizon(5, 5)).is_none());
        limbo.tag(6);
        limbo.push(entry(3, 0), || None);
        limbo.tag(6);
        assert_eq!(limbo.marks.len(), 1, "marks of an epoch merge");
        assert_eq!(limbo.pop_ready(horizon(6, 0)).unwrap().0.bytes, 2);
        assert_eq!(limbo.pop_ready(horizon(6, 0)).unwrap().0.bytes, 3);
        assert!(limbo.is_empty() && limbo.marks.is_empty());
        limbo.tag(7);
        assert!(limbo.marks.is_empty());
    }

    #[test]
    fn versions_wait_for_snapshots_too() {
        let mut limbo = Limbo::default();
        limbo.push(entry(1, 3), || None);
        limbo.tag(3);
        assert!(limbo.pop_ready(horizon(9, 2)).is_none());
        assert_eq!(limbo.pop_ready(horizon(9, 3)).unwrap().0.bytes, 1);
    }

    /// Whatever comes and goes, entries leave in their order, and pages with them.
    #[test]
    fn pages_go_with_their_entries() {
        let mut limbo = Limbo::default();
        let (mut pushed, mut popped, mut pages) = (0, 0, 0);
        for (more, fewer) in
            [(1, 1), (PER_PAGE, PER_PAGE - 1), (3 * PER_PAGE, PER_PAGE), (0, 2 * PER_PAGE), (5, 6), (1, 1)]
        {
            for _ in 0..more {
                limbo.push(entry(pushed, 0), || None);
                pushed += 1;
            }
            limbo.tag(1);
            for _ in 0..fewer {
                let (entry, page) = limbo.pop_ready(horizon(1, 0)).unwrap();
                assert_eq!(entry.bytes, popped);
                popped += 1;
                page.into_iter().for_each(|page| {
                    pages += 1;
                    page.release(|_| unreachable!("all pages are on the heap"));
                });
            }
            assert_eq!(limbo.len(), pushed - popped);
        }
        assert!(limbo.is_empty() && pages >= 4);
        limbo.take_page().unwrap().release(|_| unreachable!("it is on the heap"));
        assert!(limbo.pages.is_none());
    }
}
