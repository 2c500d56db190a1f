//! Going along the slots of a table: units of a page, and in each the slot ranges of plain slots, which may be read without a look at any of
//! them, between those that are versioned or have no row.

use std::ops::Range;

use polychron_engine::batch::ROWS;
use polychron_engine::mutations::{left_out, pass};
use polychron_sync::atomic::{Ordering, fence};

use super::positions::{Interval, Positions};
use super::rows::{Page, Record, Rows, Word};
use super::steps::{Point, Step};

/// Intervals of a unit at most: those of the smallest synopses.
const MOST_INTERVALS: usize = ROWS / 16;

/// Words of a cache line, and how many lines of the next unit are fetched: the processor guesses the others, and more of them cost more
/// than they bring.
const WORDS_OF_LINE: usize = 8;
const LINES_AHEAD: usize = 8;

/// Slots of a run at most.
const RUN: usize = 64;

/// Some slots of a page, at most [`ROWS`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit<'t> {
    rows: &'t Rows,
    page: Page<'t>,
    /// The number of the first slot.
    first: u64,
    /// How many there are.
    len: usize,
    /// The intervals of the page.
    positions: &'t [Positions],
}

/// What the intervals of a unit were at one timestamp.
#[derive(Clone, Debug)]
pub(super) struct Looked {
    intervals: [Interval; MOST_INTERVALS],
}

impl Default for Looked {
    fn default() -> Self {
        Self { intervals: [Interval::default(); MOST_INTERVALS] }
    }
}

/// Slots of a unit, one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SlotRange {
    /// All are plain.
    Plain(Range<usize>),
    /// Some may be versioned, or have no row.
    Special(Range<usize>),
}

/// The states of slots one behind the other.
#[derive(Debug)]
pub(super) struct Run([u64; RUN]);

impl Default for Run {
    fn default() -> Self {
        Self([0; RUN])
    }
}

impl Rows {
    /// The unit that begins at a slot which was used, up to the slot `end`, if its page is there. Under a guard, as [`Rows::record`].
    pub(super) fn unit(&self, first: u64, end: u64) -> Option<Unit<'_>> {
        let slot = first as usize & (self.slots() - 1);
        let len = (end - first).min(ROWS as u64).min((self.slots() - slot) as u64) as usize;
        let page = self.page_of(first);
        let (page, positions) = (self.page(page)?, self.positions(page));
        Some(Unit { rows: self, page, first, len, positions })
    }
}

impl<'t> Unit<'t> {
    /// The number of its first slot.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The number behind its last one.
    pub(super) fn end(&self) -> u64 {
        self.first + self.len as u64
    }

    /// The slot in the page at which it begins.
    #[inline]
    fn start(&self) -> usize {
        self.first as usize & (self.rows.slots() - 1)
    }

    /// The record at a position.
    #[inline]
    pub(super) fn record(&self, position: usize) -> Record<'t> {
        debug_assert!(position < self.len);
        self.page.record(self.first + position as u64)
    }

    /// A word of rows that lie so that the words are adjacent.
    #[inline]
    pub(super) fn lend(&self, word: usize, range: Range<usize>) -> Option<&'t [Word]> {
        debug_assert!(range.end <= self.len);
        self.page.column(word, self.start() + range.start..self.start() + range.end)
    }

    /// Copies a word of each row behind what is there.
    #[inline]
    pub(super) fn gather(&self, word: usize, range: Range<usize>, out: &mut Vec<Word>) {
        // Relaxed: whether the rows stood still is found out by `stood_still`, behind a fence.
        match self.lend(word, range.clone()) {
            Some(words) => out.extend(words.iter().map(|word| Word::new(word.load(Ordering::Relaxed)))),
            None => out.extend(range.map(|position| Word::new(self.record(position).row_word(word)))),
        }
    }

    /// Brings the beginning of a word's column near: pages lie anywhere, and the processor does not guess where.
    #[inline]
    pub(super) fn prefetch(&self, word: usize) {
        for line in self.lend(word, 0..self.len).unwrap_or_default().chunks(WORDS_OF_LINE).take(LINES_AHEAD) {
            polychron_sync::prefetch_read(line.as_ptr());
        }
    }

    /// The group of a position, and the position in that.
    #[inline]
    fn group(&self, position: usize) -> Option<(usize, usize)> {
        let group = self.rows.group()?;
        let slot = self.start() + position;
        Some((slot >> group, slot & ((1 << group) - 1)))
    }

    /// The intervals as they are. Acquire: what stands in plain slots is seen from here on.
    #[inline]
    pub(super) fn look(&self, looked: &mut Looked) {
        if let (Some((first, _)), Some((last, _))) = (self.group(0), self.group(self.len - 1)) {
            for (seen, positions) in looked.intervals.iter_mut().zip(&self.positions[first..=last]) {
                *seen = positions.load();
            }
        }
        pass(Point::Lending);
    }

    /// Visits the first and the last record of each interval that is not empty: where there are few, these are the versioned ones.
    #[inline]
    pub(super) fn for_each_end(&self, mut visit: impl FnMut(Record<'t>)) {
        let (Some((first, _)), Some((last, _)), Some(size)) =
            (self.group(0), self.group(self.len - 1), self.rows.group())
        else {
            return;
        };
        for group in first..=last {
            let range = self.slots_at(group, size, self.positions[group].load().range());
            if !range.is_empty() {
                visit(self.record(range.start));
            }
            if range.len() > 1 {
                visit(self.record(range.end - 1));
            }
        }
    }

    /// Positions of a group, as positions of the unit: a unit may begin inside of a group, and end in one.
    #[inline]
    fn slots_at(&self, group: usize, size: u32, range: Range<usize>) -> Range<usize> {
        let bound = |position: usize| ((group << size) + position).saturating_sub(self.start()).min(self.len);
        bound(range.start)..bound(range.end)
    }

    /// The slots in a group's interval, as positions of the unit.
    #[inline]
    fn special(&self, looked: &Looked, group: usize, size: u32) -> Range<usize> {
        let (first, _) = self.group(0).unwrap_or_default();
        self.slots_at(group, size, looked.intervals[group - first].range())
    }

    /// The slot range from a position on.
    #[inline]
    pub(super) fn slot_range(&self, looked: &Looked, from: usize) -> SlotRange {
        let (Some((group, _)), Some(size)) = (self.group(from), self.rows.group()) else {
            return SlotRange::Special(from..self.len);
        };
        let here = self.special(looked, group, size);
        if here.contains(&from) {
            return SlotRange::Special(from..here.end);
        }
        if from < here.start && !here.is_empty() {
            return SlotRange::Plain(from..here.start);
        }
        let (last, _) = self.group(self.len - 1).unwrap_or_default();
        let ahead = (group + 1..=last).map(|group| self.special(looked, group, size)).find(|range| !range.is_empty());
        SlotRange::Plain(from..ahead.map_or(self.len, |range| range.start))
    }

    /// Whether plain slots have stood still since the look. What was read of them counts only then.
    #[inline]
    pub(super) fn stood_still(&self, looked: &Looked, range: &Range<usize>) -> bool {
        if left_out(Step::LookAgain) {
            return true;
        }
        // Acquire: a thread that has read a word that was written since sees that the interval was widened before.
        fence(Ordering::Acquire);
        let Some(group) = self.rows.group() else { return false };
        let [base, first, last] = [0, range.start, range.end - 1].map(|position| (self.start() + position) >> group);
        (first..=last).all(|group| self.positions[group].is(looked.intervals[group - base]))
    }

    /// How many slots from a position on are plain, at most so many and no more than a run has, and what their states are. This is how the
    /// next versioned slot is found inside of an interval; without synopses slots are looked at one by one.
    #[inline]
    pub(super) fn run(&self, from: usize, most: usize, states: &mut Run) -> usize {
        let most = if self.rows.group().is_some() { most.min(RUN) } else { 0 };
        for (position, state) in states.0[..most].iter_mut().enumerate() {
            *state = self.record(from + position).state();
            if !Record::is_plain_state(*state) {
                return position;
            }
        }
        most
    }

    /// Whether the slots of a run have stood still since.
    #[inline]
    pub(super) fn run_stood_still(&self, from: usize, len: usize, states: &Run) -> bool {
        // Acquire: a thread that has read a word that was written since sees the latch behind it.
        fence(Ordering::Acquire);
        states.0[..len].iter().enumerate().all(|(position, state)| self.record(from + position).state_is(*state))
    }

    /// Corrects the intervals that hold plain slots at their ends.
    pub(super) fn correct(&self, looked: &Looked) {
        let (Some((first, _)), Some((last, _)), Some(size)) =
            (self.group(0), self.group(self.len - 1), self.rows.group())
        else {
            return;
        };
        for group in first..=last {
            let seen = looked.intervals[group - first];
            let range = seen.range();
            // Slots of the page that were never used are no rows, whose records may be looked at like others.
            let page_first = self.first - self.start() as u64;
            let record = |position: usize| self.page.record(page_first + ((group << size) + position) as u64);
            if range.is_empty() || !record(range.start).is_plain() && !record(range.end - 1).is_plain() {
                continue;
            }
            self.positions[group].narrow(seen, |mut range| {
                let is_special = |position: &usize| !record(*position).is_plain();
                match range.find(is_special) {
                    None => 0..0,
                    Some(first) => first..range.rfind(is_special).map_or(first, |last| last) + 1,
                }
            });
        }
    }
}
