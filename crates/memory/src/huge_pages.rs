//! Which huge pages of a region are advised to be huge: those of which nothing came back.
//!
//! When a part of a huge page comes back, its memory goes back to the system in small pages. Where the advice stays, the system makes a huge page of what
//! is left sooner or later and takes memory for all of it, so that a database which has shrunk grows again without doing anything. So a
//! page of which something came back is advised to consist of small pages, until all of it is handed out again.

use crate::system::HUGE_PAGE;

/// For each huge page of a region, the bytes that were returned and not handed out again.
#[derive(Debug)]
pub(crate) struct HugePages {
    pages: Vec<Page>,
    /// Whether the advice changes.
    is_advised: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Page {
    returned: usize,
    is_small: bool,
}

impl HugePages {
    pub(crate) fn new(is_advised: bool) -> Self {
        Self { pages: Vec::new(), is_advised }
    }

    /// Notes that memory at an offset in the region came back. Calls `advise` with the offsets of the pages that are to be small from now on.
    pub(crate) fn returned(&mut self, start: usize, bytes: usize, mut advise: impl FnMut(usize)) {
        self.visit(start, bytes, |offset, page, bytes| {
            page.returned += bytes;
            if !page.is_small {
                page.is_small = true;
                advise(offset);
            }
        });
    }

    /// Notes that memory that had come back is somebody's again. Its pages stay small, for it may be a walk's, which returns it.
    pub(crate) fn taken(&mut self, start: usize, bytes: usize) {
        self.visit(start, bytes, |_, page, bytes| page.returned -= bytes);
    }

    /// Notes the same of memory that is handed out for use. Calls `advise` with the offsets of the pages that may be huge again.
    pub(crate) fn handed_out(&mut self, start: usize, bytes: usize, mut advise: impl FnMut(usize)) {
        self.visit(start, bytes, |offset, page, bytes| {
            page.returned -= bytes;
            if page.returned == 0 {
                page.is_small = false;
                advise(offset);
            }
        });
    }

    /// Calls `each` with the offset of each page, the page, and how many of these bytes lie in it.
    fn visit(&mut self, start: usize, bytes: usize, mut each: impl FnMut(usize, &mut Page, usize)) {
        if !self.is_advised {
            return;
        }
        let end = start + bytes;
        if self.pages.len() * HUGE_PAGE < end {
            self.pages.resize(end.div_ceil(HUGE_PAGE), Page::default());
        }
        for number in start / HUGE_PAGE..end.div_ceil(HUGE_PAGE) {
            let offset = number * HUGE_PAGE;
            each(offset, &mut self.pages[number], end.min(offset + HUGE_PAGE) - start.max(offset));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    #[test]
    fn pages_are_small_while_something_of_them_is_returned() {
        let mut pages = HugePages::new(true);
        let mut small = Vec::new();
        pages.returned(HUGE_PAGE - 64 * KIB, HUGE_PAGE + 128 * KIB, |page| small.push(page / HUGE_PAGE));
        assert_eq!(small, [0, 1, 2]);
        pages.returned(HUGE_PAGE - 128 * KIB, 64 * KIB, |page| panic!("{page} is small already"));
        let mut huge = Vec::new();
        pages.handed_out(HUGE_PAGE - 64 * KIB, 32 * KIB, |page| panic!("something of {page} is returned"));
        pages.handed_out(HUGE_PAGE, HUGE_PAGE + 64 * KIB, |page| huge.push(page / HUGE_PAGE));
        assert_eq!(huge, [1, 2]);
        // A walk takes what came back, and returns it with a neighbour.
        pages.taken(HUGE_PAGE - 128 * KIB, 64 * KIB);
        pages.returned(HUGE_PAGE - 192 * KIB, 128 * KIB, |page| panic!("{page} is small already"));
        pages.handed_out(HUGE_PAGE - 192 * KIB, 128 * KIB, |page| panic!("something of {page} is returned"));
        pages.handed_out(HUGE_PAGE - 32 * KIB, 32 * KIB, |page| huge.push(page / HUGE_PAGE));
        assert_eq!(huge, [1, 2, 0]);
    }
}
