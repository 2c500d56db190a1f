//! Column batches of a whole table, in the order in which the rows lie (§2.6 of the paper). Slot ranges of plain slots are lent where the
//! backend has columns, and copied where it has rows, without a look at any slot; whatever else there is in between is rebuilt, slot by
//! slot.

use std::ops::{Bound, ControlFlow, Range};

use polychron_base::clock::Clock as _;
use polychron_base::{Error, IndexId};
use polychron_engine::batch::{Bits, ColumnBatch, ColumnVector, NumericColumn, ROWS, clear_behind};
use polychron_engine::mutations::left_out;
use polychron_engine::scan::Comparison;
use polychron_engine::{Restriction, Scan};
use polychron_schema::{ColumnSet, Layout, Value};
use polychron_sync::atomic::{AtomicU64, Ordering, fence};
use polychron_sync::{MODELLED, vectors};

use super::ahead;
use super::counts::{Counts, add};
use super::rows::{Record, Word};
use super::slot_ranges::{Looked, Run, SlotRange, Unit};
use super::steps::Step;
use super::table::HyperTable;
use super::transaction::HyperTransaction;
use super::view::view;

/// Shorter slot ranges are copied to the rows around them: a batch of their own would cost more.
const LEAST_LENT: usize = if MODELLED { 1 } else { 32 };

/// A wanted or restricted column: its place, and which of the wanted words hold its numbers and its NULL bit.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    numbers: NumericColumn,
    word: usize,
    null: Option<(usize, u32)>,
}

/// A restriction, as what the ordered numbers of a column must lie between, or must not.
#[derive(Clone, Copy, Debug)]
struct Condition {
    column: usize,
    least: i64,
    most: i64,
    is_negated: bool,
}

/// What a scan wants of each row.
#[derive(Debug, Default)]
struct Question {
    /// Numbers of words, each once.
    words: Vec<usize>,
    /// The columns that are handed over, and then those that only conditions look at.
    columns: Vec<Wanted>,
    handed_over: usize,
    conditions: Vec<Condition>,
}

/// Memory that scans use one after the other.
#[derive(Debug, Default)]
pub(super) struct ColumnBuffers {
    question: Question,
    /// Rows that are not lent, for each wanted word; and how many they are. A thread that counts wants no word.
    rows: Vec<Vec<Word>>,
    gathered: usize,
    /// The words of one row, of which those in the bounding range are looked at.
    row: Vec<u64>,
    bounds: Range<usize>,
    sheet: Sheet,
    looked: Looked,
    /// When the part of the scan began that is being timed, if parts are.
    lapped_at: u64,
}

/// What a batch is made of beside its words.
#[derive(Debug, Default)]
struct Sheet {
    nulls: Vec<Bits>,
    selected: Bits,
    vectors: Vec<ColumnVector<'static>>,
}

/// Whether a scan goes along the slots: it wants the whole table, and looks at numbers only.
pub(super) fn comes_in_slot_ranges(scan: &Scan<'_>, layout: &Layout, columns: &[usize]) -> bool {
    let numeric = |column: usize| layout.columns().get(column).and_then(|column| NumericColumn::new(column).ok());
    scan.index == IndexId::PRIMARY
        && (scan.lower, scan.upper, scan.limit) == (Bound::Unbounded, Bound::Unbounded, usize::MAX)
        && columns.iter().all(|&column| numeric(column).is_some())
        && scan.restrictions.iter().all(|restriction| {
            numeric(restriction.column)
                .is_some_and(|numbers| restriction.value.is_null() || numbers.number(&restriction.value).is_some())
        })
}

impl Condition {
    /// Of a restriction of the column at that position of the question.
    fn new(column: usize, numbers: &NumericColumn, Restriction { comparison, value, .. }: &Restriction) -> Self {
        let never = Self { column, least: 1, most: 0, is_negated: false };
        let (all, number) = (i128::from(i64::MIN)..=i128::from(i64::MAX), numbers.number(value));
        let Some(number) = number.filter(|_| *value != Value::Null) else { return never };
        let (least, most) = match comparison {
            Comparison::Equal | Comparison::NotEqual => (number, number),
            Comparison::Less => (*all.start(), number - 1),
            Comparison::AtMost => (*all.start(), number),
            Comparison::Greater => (number + 1, *all.end()),
            Comparison::AtLeast => (number, *all.end()),
        };
        let is_negated = *comparison == Comparison::NotEqual;
        let (least, most) = (least.max(*all.start()), most.min(*all.end()));
        match (i64::try_from(least), i64::try_from(most)) {
            (Ok(least), Ok(most)) if least <= most => Self { column, least, most, is_negated },
            _ => Self { is_negated, ..never },
        }
    }
}

impl Question {
    fn ask(&mut self, layout: &Layout, scan: &Scan<'_>, columns: &[usize]) {
        self.words.clear();
        self.columns.clear();
        self.conditions.clear();
        for &column in columns {
            self.want(layout, column);
        }
        self.handed_over = columns.len();
        for restriction in scan.restrictions {
            if let Some(position) = self.want(layout, restriction.column) {
                let condition = Condition::new(position, &self.columns[position].numbers, restriction);
                self.conditions.push(condition);
            }
        }
    }

    /// Adds a column; answers its position.
    fn want(&mut self, layout: &Layout, column: usize) -> Option<usize> {
        let numbers = NumericColumn::new(&layout.columns()[column]).ok()?;
        let word = self.want_word(numbers.word);
        let null = numbers.null.map(|(word, bit)| (self.want_word(word), bit));
        self.columns.push(Wanted { numbers, word, null });
        Some(self.columns.len() - 1)
    }

    fn want_word(&mut self, word: usize) -> usize {
        let known = self.words.iter().position(|known| *known == word);
        known.unwrap_or_else(|| {
            self.words.push(word);
            self.words.len() - 1
        })
    }

    /// The words of a row from the first wanted one to the last.
    fn find_bounds(&self) -> Range<usize> {
        let ends = |words: &[usize]| Some(*words.iter().min()?..words.iter().max()? + 1);
        ends(&self.words).unwrap_or(0..0)
    }
}

impl Sheet {
    /// Has some thread look at rows whose wanted words these are. `None`: none of them belongs to the answer.
    #[inline]
    fn show<'b, O>(
        &mut self,
        question: &Question,
        rows: usize,
        words: impl Fn(usize) -> &'b [Word],
        look: &mut impl FnMut(&ColumnBatch<'_>) -> O,
    ) -> Option<O> {
        self.nulls.resize(question.columns.len(), [0; ROWS / 64]);
        for (column, nulls) in question.columns.iter().zip(&mut self.nulls) {
            if let Some((word, bit)) = column.null {
                vectors::bits_of(words(word), bit, nulls);
            }
        }
        if !question.conditions.is_empty() && !self.select(question, rows, &words) {
            return None;
        }
        let mut columns = recycle(std::mem::take(&mut self.vectors));
        for (wanted, nulls) in question.columns[..question.handed_over].iter().zip(&self.nulls) {
            columns.push(ColumnVector::new(words(wanted.word), wanted.numbers, wanted.null.map(|_| nulls)));
        }
        let selected = (!question.conditions.is_empty()).then_some(&self.selected);
        let made = look(&ColumnBatch { rows, selected, columns: &columns });
        self.vectors = recycle(columns);
        Some(made)
    }

    /// Marks the rows that satisfy all conditions; whether there are any.
    fn select<'b>(&mut self, question: &Question, rows: usize, words: &impl Fn(usize) -> &'b [Word]) -> bool {
        self.selected = [u64::MAX; ROWS / 64];
        clear_behind(&mut self.selected, rows);
        for condition in &question.conditions {
            let column = &question.columns[condition.column];
            let mut inside = [0; ROWS / 64];
            vectors::within(words(column.word), column.numbers.form, condition.least, condition.most, &mut inside);
            let turned = if condition.is_negated { u64::MAX } else { 0 };
            let nulls = column.null.map(|_| &self.nulls[condition.column]);
            for (number, (selected, inside)) in self.selected.iter_mut().zip(inside).enumerate() {
                *selected &= (inside ^ turned) & !nulls.map_or(0, |nulls| nulls[number]);
            }
        }
        self.selected.iter().any(|word| *word != 0)
    }
}

/// The memory of a list for another one.
fn recycle<'b>(mut columns: Vec<ColumnVector<'_>>) -> Vec<ColumnVector<'b>> {
    columns.clear();
    columns.into_iter().map(|_| unreachable!("it is empty")).collect()
}

/// A thread that looks at batches, and gets what was made of them.
struct Visitor<'v, F, K> {
    look: &'v mut F,
    keep: &'v mut K,
}

impl<F, K> Visitor<'_, F, K> {
    /// Hands over the rows that were gathered, if there are any.
    fn flush<O>(&mut self, buffers: &mut ColumnBuffers) -> ControlFlow<()>
    where
        F: FnMut(&ColumnBatch<'_>) -> O,
        K: FnMut(O) -> ControlFlow<()>,
    {
        let ColumnBuffers { question, rows, gathered, sheet, .. } = buffers;
        let count = std::mem::take(gathered);
        if count == 0 {
            return ControlFlow::Continue(());
        }
        let made = sheet.show(question, count, |word| &rows[word], self.look);
        rows.iter_mut().for_each(Vec::clear);
        made.map_or(ControlFlow::Continue(()), |made| (self.keep)(made))
    }
}

impl ColumnBuffers {
    /// Copies plain rows behind those that were gathered, and keeps them if they stood still.
    #[inline]
    fn copy(&mut self, unit: Unit<'_>, range: Range<usize>, stood_still: impl FnOnce() -> bool) -> bool {
        for (&word, rows) in self.question.words.iter().zip(&mut self.rows) {
            unit.gather(word, range.clone(), rows);
        }
        let stood_still = stood_still();
        if stood_still {
            self.gathered += range.len();
        } else {
            self.rows.iter_mut().for_each(|rows| rows.truncate(self.gathered));
        }
        stood_still
    }

    /// Begins a scan.
    fn begin(&mut self, layout: &Layout, words: usize, scan: &Scan<'_>, columns: &[usize]) {
        self.question.ask(layout, scan, columns);
        self.rows.resize_with(self.question.words.len(), || Vec::with_capacity(ROWS));
        self.rows.iter_mut().for_each(Vec::clear);
        self.gathered = 0;
        // A before-image is undone as a whole.
        self.row.resize(words, 0);
        self.bounds = self.question.find_bounds();
    }
}

impl<'w> HyperTransaction<'w> {
    /// See [`polychron_engine::Transaction::scan_columns`], of a scan that comes in slot ranges.
    pub(super) fn visit_slot_ranges<O>(
        &mut self,
        table: &'w HyperTable,
        scan: &Scan<'_>,
        columns: &[usize],
        look: &mut impl FnMut(&ColumnBatch<'_>) -> O,
        keep: &mut impl FnMut(O) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        if self.logs() && !left_out(Step::LogRanges) {
            let read = columns.iter().fold(ColumnSet::EMPTY, |set, column| set.with(*column as u16));
            let bounds = (scan.lower, scan.upper);
            self.state.log.path(table.id, scan.index, bounds, scan.restrictions, read, None);
        }
        let mut buffers = std::mem::take(&mut self.state.buffers.columns);
        buffers.begin(&table.layout, table.primary.rows.words(), scan, columns);
        let outcome = self.visit_units(table, &mut buffers, Visitor { look, keep });
        self.state.buffers.columns = buffers;
        outcome
    }

    fn visit_units<O, F, K>(
        &mut self,
        table: &'w HyperTable,
        buffers: &mut ColumnBuffers,
        mut visitor: Visitor<'_, F, K>,
    ) -> Result<(), Error>
    where
        F: FnMut(&ColumnBatch<'_>) -> O,
        K: FnMut(O) -> ControlFlow<()>,
    {
        let rows = &table.primary.rows;
        let (mut first, end) = (0, rows.len());
        buffers.lapped_at = if self.shared.options.timed_scans { self.shared.time.now_ns() } else { 0 };
        for number in 0_usize.. {
            if first >= end {
                break;
            }
            self.step()?;
            if number.is_multiple_of(ahead::UNITS) {
                ahead::fetch(rows, first, end, &self.guard, |stamp| stamp <= self.start || stamp == self.id);
                self.lap(buffers, |counts| &counts.version_ns);
            }
            let Some(unit) = rows.unit(first, end) else {
                first = rows.page_end(first);
                continue;
            };
            first = unit.end();
            if first < end
                && let Some(next) = rows.unit(first, end)
            {
                buffers.question.words.iter().for_each(|word| next.prefetch(*word));
            }
            if self.visit_unit(unit, buffers, &mut visitor).is_break() {
                return Ok(());
            }
        }
        // The visit is over either way.
        let _ = visitor.flush(buffers);
        self.lap(buffers, |counts| &counts.scan_ns);
        Ok(())
    }

    #[inline]
    fn visit_unit<O, F, K>(
        &mut self,
        unit: Unit<'w>,
        buffers: &mut ColumnBuffers,
        visitor: &mut Visitor<'_, F, K>,
    ) -> ControlFlow<()>
    where
        F: FnMut(&ColumnBatch<'_>) -> O,
        K: FnMut(O) -> ControlFlow<()>,
    {
        let len = (unit.end() - unit.first()) as usize;
        unit.look(&mut buffers.looked);
        let (mut at, mut has_special) = (0, false);
        while at < len {
            let (range, is_plain) = match unit.slot_range(&buffers.looked, at) {
                SlotRange::Plain(range) => (range, true),
                SlotRange::Special(range) => (range, false),
            };
            at = range.end;
            has_special |= !is_plain;
            self.lap(buffers, |counts| if is_plain { &counts.find_versioned_ns } else { &counts.find_plain_ns });
            if is_plain {
                let is_shown = self.show_plain(unit, &range, buffers, visitor)?;
                self.lap(buffers, |counts| &counts.scan_ns);
                if is_shown {
                    continue;
                }
            }
            self.show_special(unit, range, buffers, visitor)?;
        }
        if has_special {
            unit.correct(&buffers.looked);
            self.lap(buffers, |counts| &counts.find_plain_ns);
        }
        ControlFlow::Continue(())
    }

    /// Rebuilds the rows of a slot range that are versioned, and copies the others, run by run.
    fn show_special<O, F, K>(
        &mut self,
        unit: Unit<'w>,
        range: Range<usize>,
        buffers: &mut ColumnBuffers,
        visitor: &mut Visitor<'_, F, K>,
    ) -> ControlFlow<()>
    where
        F: FnMut(&ColumnBatch<'_>) -> O,
        K: FnMut(O) -> ControlFlow<()>,
    {
        let (mut run, mut at, mut copied) = (Run::default(), range.start, 0);
        while at < range.end {
            if buffers.gathered == ROWS {
                visitor.flush(buffers)?;
            }
            let len = unit.run(at, (range.end - at).min(ROWS - buffers.gathered), &mut run);
            self.lap(buffers, |counts| &counts.find_versioned_ns);
            if len > 0 && buffers.copy(unit, at..at + len, || unit.run_stood_still(at, len, &run)) {
                copied += len;
                at += len;
                self.lap(buffers, |counts| &counts.scan_ns);
            } else {
                copied += usize::from(self.rebuild(unit.record(at), buffers));
                at += 1;
                self.lap(buffers, |counts| &counts.version_ns);
            }
        }
        let counts = &self.shared.counts[self.state.base.slot];
        add(&counts.gathered, copied as u64);
        add(&counts.rebuilt, (range.len() - copied) as u64);
        ControlFlow::Continue(())
    }

    /// What has passed since the last lap went to one part of the scan (Figure 9 of the paper), if that is asked for.
    #[inline]
    fn lap(&self, buffers: &mut ColumnBuffers, part: impl FnOnce(&Counts) -> &AtomicU64) {
        if self.shared.options.timed_scans {
            let now = self.shared.time.now_ns();
            add(part(&self.shared.counts[self.state.base.slot]), now.saturating_sub(buffers.lapped_at));
            buffers.lapped_at = now;
        }
    }

    /// Lends or copies a slot range of plain slots; `false` where they did not stand still.
    #[inline]
    fn show_plain<O, F, K>(
        &mut self,
        unit: Unit<'w>,
        range: &Range<usize>,
        buffers: &mut ColumnBuffers,
        visitor: &mut Visitor<'_, F, K>,
    ) -> ControlFlow<(), bool>
    where
        F: FnMut(&ColumnBatch<'_>) -> O,
        K: FnMut(O) -> ControlFlow<()>,
    {
        let counts = &self.shared.counts[self.state.base.slot];
        let ColumnBuffers { question, sheet, looked, .. } = &mut *buffers;
        // Where all words lie adjacent, or none is wanted, nothing is copied.
        let is_lent = question.words.first().is_none_or(|&word| unit.lend(word, range.clone()).is_some());
        if range.len() >= LEAST_LENT && is_lent {
            let words = |word: usize| unit.lend(question.words[word], range.clone()).unwrap_or_default();
            let made = sheet.show(question, range.len(), words, visitor.look);
            if !unit.stood_still(looked, range) {
                add(&counts.moved, 1);
                return ControlFlow::Continue(false);
            }
            add(&counts.lent, range.len() as u64);
            if let Some(made) = made {
                (visitor.keep)(made)?;
            }
            return ControlFlow::Continue(true);
        }
        if buffers.gathered + range.len() > ROWS {
            visitor.flush(buffers)?;
        }
        let looked = std::mem::take(&mut buffers.looked);
        let stood_still = buffers.copy(unit, range.clone(), || unit.stood_still(&looked, range));
        buffers.looked = looked;
        add(
            if stood_still { &counts.gathered } else { &counts.moved },
            if stood_still { range.len() as u64 } else { 1 },
        );
        ControlFlow::Continue(stood_still)
    }

    /// Puts what a slot shows behind the rows that were gathered; whether that was what stands in it.
    #[inline]
    fn rebuild(&mut self, record: Record<'w>, buffers: &mut ColumnBuffers) -> bool {
        let ColumnBuffers { question, rows, gathered, row, bounds, .. } = buffers;
        let state = record.state();
        if Record::is_plain_state(state) {
            for (&word, rows) in question.words.iter().zip(rows.iter_mut()) {
                rows.push(Word::new(record.row_word(word)));
            }
            // Acquire: as in `Unit::run_stood_still`.
            fence(Ordering::Acquire);
            if record.state_is(state) {
                *gathered += 1;
                return true;
            }
            rows.iter_mut().for_each(|rows| _ = rows.pop());
        }
        if view(record, bounds.clone(), row, (self.start, self.id), &self.guard).present {
            for (&word, rows) in question.words.iter().zip(rows) {
                rows.push(Word::new(row[word]));
            }
            *gathered += 1;
        }
        false
    }
}
