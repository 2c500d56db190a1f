//! Changing a row's columns while remembering which.

use std::ops::Range;

use crate::buffer::{RowBuffer, RowBytes, RowRef, variable_slots};
use crate::column::{ColumnSet, ColumnSpan, Projection, check_max};
use crate::error::SchemaError;
use crate::layout::{ColumnWords, Layout, Shape, Slot};

/// Changes that span no more than this are one run.
const NARROW_BYTES: u32 = 64;

/// Which columns of a row were changed, and the words in which they lie.
///
/// A change of a variable column may move everything behind the fixed part, so it counts as a change of all bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changes {
    bounding_range: Projection,
}

impl Default for Changes {
    fn default() -> Self {
        Self::NONE
    }
}

impl Changes {
    /// No change.
    pub const NONE: Self = Self { bounding_range: Projection::NONE };

    /// Everything changed, as by writing a whole row.
    pub const ALL: Self = Self { bounding_range: Projection::ALL };

    /// Whether nothing changed.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.bounding_range.columns.is_empty()
    }

    /// The changed columns.
    #[inline]
    pub const fn columns(self) -> ColumnSet {
        self.bounding_range.columns
    }

    /// The changed columns with the words from the first to the last of them.
    #[inline]
    pub const fn bounding_range(self) -> Projection {
        self.bounding_range
    }

    /// Whether the length may differ and everything must be written.
    #[inline]
    pub const fn whole_row(self) -> bool {
        self.bounding_range.end == u32::MAX
    }

    /// Adds a column.
    #[inline(always)]
    pub const fn mark(&mut self, column: ColumnSpan) {
        self.bounding_range = self.bounding_range.with(column);
    }

    /// Adds the changes of `later`.
    #[inline]
    pub fn merge(&mut self, later: Self) {
        if self.is_empty() || later.is_empty() {
            if self.is_empty() {
                *self = later;
            }
            return;
        }
        self.bounding_range = Projection {
            columns: self.bounding_range.columns.union(later.bounding_range.columns),
            start: self.bounding_range.start.min(later.bounding_range.start),
            end: self.bounding_range.end.max(later.bounding_range.end),
        };
    }

    /// The changed bytes as few ranges of whole words, in ascending order: what an update in place copies into a row of
    /// `row_len` bytes. Ranges that touch are joined, and so are those of all changes that lie within one cache line's length of each
    /// other: what is between them costs less than to leave it out.
    #[inline]
    pub fn runs(self, layout: &Layout, row_len: usize) -> ChangedRuns<'_> {
        let Projection { columns: changed, start, end } = self.bounding_range;
        let is_narrow = end.saturating_sub(start) <= NARROW_BYTES;
        let (left, pending) = if is_narrow || self.whole_row() {
            let end = (end as usize).min(row_len);
            (0, Some((start as usize).min(end)..end).filter(|run| !run.is_empty()))
        } else {
            (changed.count(), self.null_words(layout, row_len))
        };
        ChangedRuns { columns: layout.by_offset().iter(), changed, row_len, left, pending }
    }

    /// The words of the NULL bits when a nullable column changed.
    #[inline]
    fn null_words(self, layout: &Layout, row_len: usize) -> Option<Range<usize>> {
        let any = self.bounding_range.start == 0 && self.bounding_range.columns.intersects(layout.nullable());
        any.then(|| 0..(layout.shape().null_bytes as usize).next_multiple_of(8).min(row_len))
    }
}

/// Iterator of [`Changes::runs`].
#[derive(Clone, Debug)]
pub struct ChangedRuns<'l> {
    columns: std::slice::Iter<'l, ColumnWords>,
    changed: ColumnSet,
    row_len: usize,
    /// An upper bound of the number of changed columns that were not visited yet.
    left: u32,
    pending: Option<Range<usize>>,
}

impl Iterator for ChangedRuns<'_> {
    type Item = Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        while self.left > 0
            && let Some(column) = self.columns.next()
        {
            if !self.changed.intersects(column.column) {
                continue;
            }
            self.left -= 1;
            let end = (column.end as usize).min(self.row_len);
            let start = (column.start as usize).min(end);
            match &mut self.pending {
                Some(pending) if start <= pending.end => pending.end = pending.end.max(end),
                pending => {
                    if let Some(run) = pending.replace(start..end) {
                        return Some(run);
                    }
                }
            }
        }
        self.pending.take()
    }
}

/// A row that is being changed.
#[derive(Debug)]
pub struct RowMut<'a> {
    place: Place<'a>,
    changes: &'a mut Changes,
    shape: Shape,
}

/// The memory of the row.
#[derive(Debug)]
enum Place<'a> {
    /// A buffer that can grow.
    Buffer(&'a mut RowBuffer),
    /// Memory in which it keeps its length.
    Words(&'a mut [u64]),
}

impl<'a> RowMut<'a> {
    /// Changes the row in `buffer`, and notes in `changes` what was changed.
    ///
    /// A row shorter than its fixed part, which no encoder makes, is first filled up with zeros.
    #[inline]
    pub fn new(buffer: &'a mut RowBuffer, changes: &'a mut Changes, shape: Shape) -> Self {
        if buffer.len() < shape.fixed_bytes as usize {
            lengthen(buffer, shape);
        }
        Self { place: Place::Buffer(buffer), changes, shape }
    }

    /// Changes a row without variable columns where it lies, and notes in `changes` what was changed. `None`: it has such columns,
    /// or is shorter than its fixed part.
    #[inline]
    pub fn in_place(words: &'a mut [u64], changes: &'a mut Changes, shape: Shape) -> Option<Self> {
        let keeps_its_length = shape.variable_count == 0 && size_of_val(words) >= shape.fixed_bytes as usize;
        keeps_its_length.then_some(Self { place: Place::Words(words), changes, shape })
    }

    /// The same row for a shorter time.
    #[inline(always)]
    pub fn reborrow(&mut self) -> RowMut<'_> {
        let place = match &mut self.place {
            Place::Buffer(buffer) => Place::Buffer(buffer),
            Place::Words(words) => Place::Words(words),
        };
        RowMut { place, changes: self.changes, shape: self.shape }
    }

    #[inline(always)]
    fn bytes(&mut self) -> RowBytes<'_> {
        match &mut self.place {
            Place::Buffer(buffer) => buffer.bytes_mut(),
            Place::Words(words) => RowBytes::of(words),
        }
    }

    /// The bytes of a column of fixed width, to be changed in place; none when the row ends before. The column counts as
    /// changed, and a NULL becomes a value.
    #[inline]
    pub fn fixed_mut(&mut self, column: ColumnSpan) -> &mut [u8] {
        self.changes.mark(column);
        let mut bytes = self.bytes();
        bytes.set_null(column.slot, false);
        bytes.fixed_mut(column.slot)
    }

    /// Makes a column NULL that can be.
    #[inline]
    pub fn set_null(&mut self, column: ColumnSpan) {
        debug_assert!(column.slot.is_nullable());
        self.changes.mark(column);
        if column.slot.variable {
            let shortened = self.replace("", column.slot, None);
            debug_assert!(shortened.is_ok(), "{shortened:?}");
        } else {
            self.store_zeros(column.slot);
        }
    }

    /// Makes bytes the value of a column of variable length.
    ///
    /// # Errors
    /// [`SchemaError::TooLong`], [`SchemaError::RowTooLong`]; the row is as it was.
    pub fn set_bytes(&mut self, column: ColumnSpan, value: &[u8]) -> Result<(), SchemaError> {
        self.changes.mark(column);
        self.replace("", column.slot, Some(value))
    }

    /// The bytes of the row if columns of variable length had values of other lengths. At most [`crate::MAX_ROW_BYTES`] can be.
    pub fn length_with(&self, lengths: impl IntoIterator<Item = (ColumnSpan, usize)>) -> usize {
        length_with(self.as_row(), self.shape, lengths)
    }

    /// The row as it is now.
    #[inline]
    pub fn as_row(&self) -> RowRef<'_> {
        match &self.place {
            Place::Buffer(buffer) => buffer.as_row(),
            Place::Words(words) => RowRef::from_words(words),
        }
    }

    /// Puts the row back as it was `before`, when `changes` was what had been changed of it.
    pub fn restore(&mut self, before: RowRef<'_>, changes: Changes) {
        match &mut self.place {
            Place::Buffer(buffer) => buffer.copy_from(before.as_bytes()),
            Place::Words(words) => words.copy_from_slice(&before.as_words()[..words.len()]),
        }
        *self.changes = changes;
    }

    /// The changes so far.
    #[inline]
    pub fn changes(&self) -> Changes {
        *self.changes
    }

    /// The row's dimensions.
    #[inline]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Notes that a column is changed.
    #[inline(always)]
    pub fn mark(&mut self, index: u16, slot: Slot) {
        self.changes.mark(ColumnSpan { index, slot });
    }

    /// Writes a fixed-width column, which is then not NULL.
    #[inline(always)]
    pub(crate) fn store(&mut self, slot: Slot, value: &[u8]) {
        let mut bytes = self.bytes();
        bytes.store(slot.offset, value);
        bytes.set_null(slot, false);
    }

    /// Makes a fixed-width column NULL.
    #[inline]
    pub(crate) fn store_zeros(&mut self, slot: Slot) {
        let mut bytes = self.bytes();
        bytes.set_null(slot, true);
        bytes.fixed_mut(slot).fill(0);
    }

    /// Replaces the value of a variable column; none is NULL.
    pub(crate) fn replace(&mut self, name: &str, slot: Slot, value: Option<&[u8]>) -> Result<(), SchemaError> {
        let bytes = value.unwrap_or_default();
        check_max(name, slot, bytes.len())?;
        let Place::Buffer(buffer) = &mut self.place else { unreachable!("a row of one length has no variable column") };
        buffer.replace(self.shape, slot, bytes)?;
        buffer.set_null(slot, value.is_none());
        Ok(())
    }
}

/// As [`RowMut::length_with`], of a row that is not changed where it lies.
pub fn length_with(row: RowRef<'_>, shape: Shape, lengths: impl IntoIterator<Item = (ColumnSpan, usize)>) -> usize {
    let variable: usize = variable_slots(shape).map(|slot| row.variable(slot).len()).sum();
    let length = lengths.into_iter().fold(shape.fixed_bytes as usize + variable, |length, (column, bytes)| {
        (length + bytes).saturating_sub(row.variable(column.slot).len())
    });
    length.next_multiple_of(8)
}

#[cold]
fn lengthen(buffer: &mut RowBuffer, shape: Shape) {
    let old = buffer.len() / 8;
    buffer.overwrite_words(shape.fixed_bytes as usize / 8)[old..].fill(0);
}
