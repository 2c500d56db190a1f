//! Where rows lie: pages of slots, each slot the same few words, and the rule for touching them.
//!
//! ```text
//!  slot   state │ version │ out-of-line part or restored │ word 0 │ word 1 │ …
//!  state  count of changes │ displaced │ all-visible │ versioned │ closed │ absent │ latched
//! ```
//!
//! A page has its slots one behind the other ([`Backend::Rows`]), or the same word of all its slots ([`Backend::Columns`]): two strides are
//! all that tells the backends apart. Beside the pages stand the [`Positions`] of their slots. The words are the fixed part of a row; what
//! is behind it, if anything, is the *out-of-line part*, an allocation of its own that never changes. Where nothing is ever behind it, the
//! slot has room for a [`Restored`] instead.
//!
//! Words are read and written as atomics. A thread that writes a slot holds its latch, for a few instructions; a thread that reads looks at
//! the state before and after, and reads again when it has changed (`docs/protocols/hyper.md`, H1).

mod allocator;
mod latched;

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::OnceLock;

use polychron_engine::contested::RowAddress;
use polychron_index::Handle;
use polychron_memory::{Guard, OutOfMemory};
use polychron_sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use polychron_sync::{Backoff, MODELLED, Mutex, load_words};

use super::options::{Backend, Options};
use super::out_of_line::{OutOfLine, OutOfLineAddress};
use super::positions::{self, Positions};
use super::restored::Restored;
use super::undo::Undo;

use allocator::SlotAllocator;
pub(super) use latched::{Fresh, Latched};

const STATE: usize = 0;
const VERSION: usize = 1;
const OUT_OF_LINE: usize = 2;
/// In place of the out-of-line part.
const RESTORED: usize = OUT_OF_LINE;
/// Words before the row's.
pub(super) const HEADER: usize = 3;

polychron_base::bits! { u64:
    LATCHED,
    ABSENT,
    CLOSED,
    VERSIONED,
    /// The newest before-image was committed no later than any transaction began that may write.
    ALL_VISIBLE,
    /// Its key has left the index for the one beside.
    DISPLACED,
    /// From here on changes are counted.
    CHANGE,
}
/// What a plain slot is not.
const SPECIAL: u64 = ABSENT | CLOSED | VERSIONED;

/// Slots of a page at most, unless the synopses want more: few under a model checker, for which each word is an object.
const MOST_SLOTS: usize = if MODELLED { 4 } else { 1024 };
/// Bytes of a page at most, unless one slot needs more.
const MOST_BYTES: usize = 256 << 10;
/// Lines of a slot that are fetched ahead: those that point accesses mostly want of a long row.
const MOST_LINES: usize = 6;
/// How many slots behind one that is allocated another one is fetched, which will be allocated soon.
const FETCHED_AHEAD: usize = 4;
/// Pages that the first segment of the directory leads to; each further segment leads to twice as many.
const FIRST: usize = 16;
const SEGMENTS: usize = 28;

pub(super) type Word = AtomicU64;

/// A part of the directory.
struct Segment {
    pages: Box<[AtomicPtr<Word>]>,
    /// Page by page.
    positions: Box<[Positions]>,
}

/// The rows of one index's records.
pub(super) struct Rows {
    /// Words of a row's fixed part.
    words: usize,
    /// Whether there may be something behind it.
    has_out_of_line: bool,
    /// Slots of a page, as a power of two.
    slots: u32,
    /// Slots for which one interval stands, as a power of two; none where there are no synopses.
    group: Option<u32>,
    slot_stride: usize,
    word_stride: usize,
    directory: [OnceLock<Segment>; SEGMENTS],
    allocator: Mutex<SlotAllocator>,
}

impl fmt::Debug for Rows {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Rows").field("words", &self.words).field("slots", &self.slots()).finish_non_exhaustive()
    }
}

impl Rows {
    /// No rows yet, of so many words each, with out-of-line parts or without.
    pub(super) fn new(words: usize, has_out_of_line: bool, options: &Options) -> Self {
        let group = options.synopsis.map(|group| group as usize);
        debug_assert!(group.is_none_or(|group| group.is_power_of_two() && group <= positions::MOST));
        let larger = if MODELLED { 1 } else { group.unwrap_or(0).div_ceil(MOST_SLOTS).max(1) };
        let mut slots = MOST_SLOTS * larger;
        while slots > 1 && (words + HEADER) * slots * 8 > MOST_BYTES * larger {
            slots /= 2;
        }
        let (slot_stride, word_stride) = match options.backend {
            Backend::Rows => (words + HEADER, 1),
            Backend::Columns => (1, slots),
        };
        let group = group.map(|group| group.min(slots).ilog2());
        let directory = std::array::from_fn(|_| OnceLock::new());
        Self {
            words,
            has_out_of_line,
            slots: slots.ilog2(),
            group,
            slot_stride,
            word_stride,
            directory,
            allocator: Mutex::default(),
        }
    }

    /// Slots of a page.
    #[inline]
    pub(super) fn slots(&self) -> usize {
        1 << self.slots
    }

    /// Words of a row's fixed part.
    #[inline]
    pub(super) fn words(&self) -> usize {
        self.words
    }

    /// Whether there may be something behind it.
    #[inline]
    pub(super) fn has_out_of_line(&self) -> bool {
        self.has_out_of_line
    }

    fn page_bytes(&self) -> usize {
        (self.words + HEADER) * self.slots() * size_of::<Word>()
    }

    #[inline]
    fn segment_of(page: usize) -> (usize, usize) {
        let segment = (page + FIRST).ilog2() as usize - FIRST.ilog2() as usize;
        (segment, page + FIRST - (FIRST << segment))
    }

    /// The record of an id, which came from [`Rows::allocate`] of these rows, and serves its key as long as the caller's guard lasts. A
    /// thread that has a record has had a guard since before, which keeps its page.
    ///
    /// # Panics
    /// When no page has such a slot.
    #[inline]
    pub(super) fn record(&self, id: u64) -> Record<'_> {
        self.find(id).expect("an id has a page")
    }

    /// The record of an id, which may serve any key, or none when its page has left. Under a guard, as [`Rows::record`].
    #[inline]
    pub(super) fn find(&self, id: u64) -> Option<Record<'_>> {
        Some(self.page(self.page_of(id))?.record(id))
    }

    /// The first slot behind a slot's page.
    #[inline]
    pub(super) fn page_end(&self, id: u64) -> u64 {
        (self.page_of(id) as u64 + 1) << self.slots
    }

    /// The page of a slot.
    #[inline]
    pub(super) fn page_of(&self, id: u64) -> usize {
        (id >> self.slots) as usize
    }

    /// Slots for which one interval stands, as a power of two.
    #[inline]
    pub(super) fn group(&self) -> Option<u32> {
        self.group
    }

    /// How far apart the columns of a page are, where columns are adjacent words.
    #[inline]
    pub(super) fn adjacent_words(&self) -> Option<usize> {
        (self.slot_stride == 1).then_some(self.word_stride)
    }

    /// A page, if it is there. Under a guard, as [`Rows::record`].
    #[inline]
    pub(super) fn page(&self, page: usize) -> Option<Page<'_>> {
        // Acquire: pairs with the release in `add_page`, so that the page's words are made.
        let first = NonNull::new(self.place_of(page)?.load(Ordering::Acquire))?;
        Some(Page { first, rows: self })
    }

    /// What the directory says of a page.
    #[inline]
    fn place_of(&self, page: usize) -> Option<&AtomicPtr<Word>> {
        let (segment, at) = Self::segment_of(page);
        Some(&self.directory[segment].get()?.pages[at])
    }

    /// The intervals of a page's slots; none where there are no synopses.
    #[inline]
    pub(super) fn positions(&self, page: usize) -> &[Positions] {
        let Some(group) = self.group else { return &[] };
        let (segment, at) = Self::segment_of(page);
        let groups = self.slots() >> group;
        self.directory[segment].get().map_or(&[], |segment| &segment.positions[at * groups..][..groups])
    }

    /// The record behind a handle of an index, which came from [`Record::handle`] of these rows.
    ///
    /// # Panics
    /// As [`Rows::record`].
    #[inline]
    pub(super) fn behind(&self, handle: Handle) -> Record<'_> {
        self.record(handle.get() - 1)
    }

    /// Under the lock of the places.
    #[cold]
    fn add_page(&self, page: usize, guard: &Guard<'_>) -> Result<(), OutOfMemory> {
        let (segment, at) = Self::segment_of(page);
        let refused = || guard.refusal(self.page_bytes());
        let directory = self.directory.get(segment).ok_or_else(refused)?.get_or_init(|| self.segment(FIRST << segment));
        let words = guard.allocate(self.page_bytes())?.cast::<Word>();
        // SAFETY: the page has so many words, and is ours alone.
        unsafe {
            (0..(self.words + HEADER) * self.slots()).for_each(|word| words.add(word).write(AtomicU64::new(0)));
            (0..self.slots()).for_each(|slot| words.add(slot * self.slot_stride).write(AtomicU64::new(ABSENT)));
        }
        // Release: pairs with the acquire in `record`.
        directory.pages[at].store(words.as_ptr(), Ordering::Release);
        Ok(())
    }

    /// A segment of the directory for so many pages.
    fn segment(&self, pages: usize) -> Segment {
        let groups = self.group.map_or(0, |group| (self.slots() >> group) * pages);
        let slots = 1 << self.group.unwrap_or(0);
        Segment {
            pages: (0..pages).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect(),
            positions: (0..groups).map(|_| Positions::new(slots)).collect(),
        }
    }

    /// Visits every slot that was ever used, of pages that are there.
    pub(super) fn for_each(&self, mut visit: impl FnMut(Record<'_>)) {
        let (mut id, len) = (0, self.len());
        while id < len {
            match self.find(id) {
                Some(record) => visit(record),
                None => id = self.page_end(id) - 1,
            }
            id += 1;
        }
    }

    /// Retires all pages, and the out-of-line parts of the rows in them.
    ///
    /// # Safety
    /// A thread that pins from now on finds none of the records; called once, and nothing else afterwards.
    pub(super) unsafe fn retire(&self, guard: &Guard<'_>) {
        if self.has_out_of_line {
            self.for_each(|record| {
                if let Some(out_of_line) = record.out_of_line(Ordering::Relaxed) {
                    // SAFETY: the out-of-line part is the slot's own, and no thread finds the slot from now on.
                    unsafe { out_of_line.retire(guard) };
                }
            });
        }
        let pages = self.directory.iter().filter_map(OnceLock::get).flat_map(|segment| &segment.pages);
        pages.for_each(|page| _ = self.retire_page(page, guard));
    }

    /// Takes a page out of its place in the directory, and retires it. Whether there was one.
    fn retire_page(&self, link: &AtomicPtr<Word>, guard: &Guard<'_>) -> bool {
        // Relaxed: a thread that pins behind the barrier that follows the retirement sees this.
        let page = NonNull::new(link.swap(std::ptr::null_mut(), Ordering::Relaxed));
        // SAFETY: a thread that pins from now on does not find the page, and no other thread has taken it out. It was allocated with this
        // size.
        page.into_iter().for_each(|page| unsafe { guard.retire(page.cast(), self.page_bytes()) });
        page.is_some()
    }
}

/// A page of rows: it stays, with the same slots, as long as the guard under which it was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page<'t> {
    first: NonNull<Word>,
    rows: &'t Rows,
}

impl<'t> Page<'t> {
    /// The record that has an id's slot.
    #[inline]
    pub(super) fn record(self, id: u64) -> Record<'t> {
        let slot = id as usize & (self.rows.slots() - 1);
        // SAFETY: the page has that many slots.
        let first = unsafe { self.first.add(slot * self.rows.slot_stride) };
        Record { first, id, rows: self.rows }
    }

    /// A word of some of its rows, where they lie so that the words are adjacent.
    #[inline]
    pub(super) fn column(self, word: usize, slots: Range<usize>) -> Option<&'t [Word]> {
        assert!(word < self.rows.words && slots.end <= self.rows.slots(), "a page has so many words and slots");
        let column = (HEADER + word) * self.rows.adjacent_words()?;
        // SAFETY: the page has that word of all its slots, and stays as long as the guard under which it was found.
        Some(unsafe { std::slice::from_raw_parts(self.first.add(column + slots.start).as_ptr(), slots.len()) })
    }
}

/// A slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'t> {
    first: NonNull<Word>,
    id: u64,
    rows: &'t Rows,
}

/// What stood in a slot at one timestamp.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadInPlace<'g> {
    /// Whether there is a row.
    pub(super) present: bool,
    /// Whether the slot no longer serves a key.
    pub(super) closed: bool,
    /// The newest before-image.
    pub(super) version: Option<Undo<'g>>,
    /// Whether only snapshots may have to undo it: every transaction that may write began after its commit.
    pub(super) all_visible: bool,
    /// What is behind the fixed part.
    pub(super) out_of_line: Option<OutOfLine<'g>>,
}

impl From<Record<'_>> for RowAddress {
    #[inline]
    fn from(record: Record<'_>) -> Self {
        Self(record.first.as_ptr().addr())
    }
}

impl<'t> Record<'t> {
    /// Its number among its index's records.
    #[inline]
    pub(super) fn id(self) -> u64 {
        self.id
    }

    /// What the index holds for it.
    #[inline]
    pub(super) fn handle(self) -> Handle {
        Handle::MIN.saturating_add(self.id)
    }

    /// The rows that it is among.
    #[inline]
    pub(super) fn rows(self) -> &'t Rows {
        self.rows
    }

    /// A word before the row's.
    #[inline]
    fn word<const WORD: usize>(self) -> &'t Word {
        const { assert!(WORD < HEADER) };
        // SAFETY: the slot has so many words, and its page stays as long as the guard under which it was found.
        unsafe { self.first.add(WORD * self.rows.word_stride).as_ref() }
    }

    /// A word of the row.
    #[inline]
    fn of_row(self, word: usize) -> &'t Word {
        assert!(word < self.rows.words, "a row has so many words");
        // SAFETY: as above.
        unsafe { self.first.add((HEADER + word) * self.rows.word_stride).as_ref() }
    }

    #[inline]
    fn out_of_line(self, order: Ordering) -> Option<OutOfLineAddress> {
        if self.rows.has_out_of_line { OutOfLineAddress::at(self.word::<OUT_OF_LINE>().load(order)) } else { None }
    }

    /// The row's words when they lie one behind the other.
    #[inline]
    fn adjacent(self, range: Range<usize>) -> &'t [Word] {
        assert!(self.rows.word_stride == 1 && range.end <= self.rows.words, "a row has so many words");
        // SAFETY: as in `word`.
        unsafe { std::slice::from_raw_parts(self.first.add(HEADER + range.start).as_ptr(), range.len()) }
    }

    /// Starts bringing the slot into the cache: where its words lie one behind the other, with the first lines of the row.
    #[inline]
    pub(super) fn prefetch(self) {
        let start: *const u8 = self.first.as_ptr().cast_const().cast();
        let bytes = if self.rows.word_stride == 1 { self.rows.slot_stride * size_of::<Word>() } else { 1 };
        for line in 0..bytes.div_ceil(64).min(MOST_LINES) {
            polychron_sync::prefetch_read(start.wrapping_add(64 * line));
        }
    }

    /// Copies words of the row out, with the rest of what stands there at the same timestamp.
    #[inline(always)]
    pub(super) fn read<'g>(self, range: Range<usize>, out: &mut [u64], guard: &'g Guard<'_>) -> ReadInPlace<'g> {
        let mut backoff = Backoff::new();
        loop {
            // Acquire: pairs with the release in `unlatch`.
            let before = self.word::<STATE>().load(Ordering::Acquire);
            if before & LATCHED == 0 {
                // Acquire, like the words': pairs with the releases of `Latched`, so that a later value makes the second look see it.
                let is_versioned = before & VERSIONED != 0;
                let version = if is_versioned { self.word::<VERSION>().load(Ordering::Acquire) } else { 0 };
                let out_of_line = self.out_of_line(Ordering::Acquire);
                if self.rows.word_stride == 1 {
                    load_words(self.adjacent(range.clone()), &mut out[range.clone()]);
                } else {
                    for word in range.clone() {
                        // As above.
                        out[word] = self.of_row(word).load(Ordering::Acquire);
                    }
                }
                if self.word::<STATE>().load(Ordering::Relaxed) == before {
                    return ReadInPlace {
                        present: before & ABSENT == 0,
                        closed: before & CLOSED != 0,
                        // SAFETY: the slot had the before-image just now; what leaves it from now on stays until the guard ends.
                        version: unsafe { Undo::at(version, guard) },
                        all_visible: before & ALL_VISIBLE != 0,
                        // SAFETY: as above.
                        out_of_line: out_of_line.map(|out_of_line| unsafe { out_of_line.under() }),
                    };
                }
            }
            backoff.wait();
        }
    }

    /// Takes the latch.
    #[inline]
    pub(super) fn latch(self) -> Latched<'t> {
        let state = self.word::<STATE>().load(Ordering::Relaxed);
        let state = if state & LATCHED == 0 && self.try_latch(state) { state } else { self.await_latch() };
        if state & SPECIAL == 0 {
            self.cover();
        }
        Latched { record: self, state }
    }

    #[inline]
    fn try_latch(self, state: u64) -> bool {
        // Acquire: pairs with the release of the one before. The stores that follow are releases, so none is seen before it.
        self.word::<STATE>().compare_exchange(state, state | LATCHED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn await_latch(self) -> u64 {
        let mut backoff = Backoff::new();
        loop {
            let state = self.word::<STATE>().load(Ordering::Relaxed);
            if state & LATCHED == 0 && self.try_latch(state) {
                return state;
            }
            backoff.wait();
        }
    }

    /// A word of the row, by a relaxed load: a thread that asks finds out whether the row stood still.
    #[inline]
    pub(super) fn row_word(self, word: usize) -> u64 {
        self.of_row(word).load(Ordering::Relaxed)
    }

    /// Widens the interval of the slot's group over it.
    fn cover(self) {
        if let Some(group) = self.rows.group {
            let slot = self.id as usize & (self.rows.slots() - 1);
            let positions = self.rows.positions(self.rows.page_of(self.id));
            positions[slot >> group].cover(slot & ((1 << group) - 1));
        }
    }

    /// Whether the slot shows one row to all, and no thread is about to write it.
    #[inline]
    pub(super) fn is_plain(self) -> bool {
        Self::is_plain_state(self.state())
    }

    /// Starts bringing the state and the version into the cache.
    #[inline]
    pub(super) fn prefetch_version(self) {
        self.prefetch();
        polychron_sync::prefetch_read(self.word::<VERSION>());
    }

    /// The newest before-image, which the guard keeps.
    #[inline]
    pub(super) fn version<'g>(self, guard: &'g Guard<'_>) -> Option<Undo<'g>> {
        // Acquire: pairs with the release in `set_version`, so that the before-image is made.
        self.version_of(Ordering::Acquire, guard)
    }

    #[inline]
    fn version_of<'g>(self, order: Ordering, guard: &'g Guard<'_>) -> Option<Undo<'g>> {
        // SAFETY: the slot has the before-image just now; what leaves it from now on stays until the guard ends.
        unsafe { Undo::at(self.word::<VERSION>().load(order), guard) }
    }

    /// The state of the slot, which differs whenever something in it does.
    #[inline]
    pub(super) fn state(self) -> u64 {
        // Acquire: pairs with the release in `unlatch`.
        self.word::<STATE>().load(Ordering::Acquire)
    }

    /// Whether the slot serves a key, whose present and future lie here: it is not closed, and not displaced.
    #[inline]
    pub(super) fn is_in_index(self) -> bool {
        self.state() & (CLOSED | DISPLACED) == 0
    }

    /// Whether there is a row.
    #[inline]
    pub(super) fn is_present(self) -> bool {
        self.state() & ABSENT == 0
    }

    /// Whether the slot has a before-image.
    #[inline]
    pub(super) fn is_versioned(self) -> bool {
        self.state() & VERSIONED != 0
    }

    /// See [`Record::is_plain`].
    #[inline]
    pub(super) fn is_plain_state(state: u64) -> bool {
        state & (SPECIAL | LATCHED) == 0
    }

    /// Whether the state is what it was; the caller has put an acquiring fence between its reads and this.
    #[inline]
    pub(super) fn state_is(self, state: u64) -> bool {
        self.word::<STATE>().load(Ordering::Relaxed) == state
    }

    /// Makes a slot that was given back new, and keeps its latch.
    fn reopen(self) -> Latched<'t> {
        let mut latched = self.latch();
        latched.set_version(None);
        latched.set_out_of_line(None);
        latched.set_restored(Restored::default());
        latched.serve_anew();
        latched.set_present(false);
        latched
    }
}
