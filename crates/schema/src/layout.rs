//! The position of each column in a row.
//!
//! ```text
//! 0            null_bytes                            variable_start                      fixed_bytes
//! | NULL bits | gap filled with   | 8-byte columns | (offset, length) of  | 4, 2, 1-byte | bytes of the variable   | zeros |
//! |           | narrow columns    |                | variable columns     | columns      | columns in column order |       |
//! ```
//!
//! The wide numbers come first, close to whatever header a protocol keeps before the row, and long fixed strings last.
//! One function, [`place`], makes this layout for `derive(Row)` at compile time and for [`Layout`] at run time.

use crate::column::{ColumnSet, ColumnSpan, Projection};
use crate::types::ColumnType;

/// A column, as the layout needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnShape {
    /// The column's type.
    pub column_type: ColumnType,
    /// Whether it can be NULL.
    pub nullable: bool,
}

/// The position of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// First byte in the row.
    pub offset: u32,
    /// Bytes in the fixed part.
    pub width: u32,
    /// The longest value in bytes; differs from `width` for variable columns.
    pub max: u32,
    /// Number of the column's bit among the NULL bits, or [`Slot::NOT_NULL`].
    pub null_bit: u16,
    /// Whether the fixed part holds offset and length of the value instead of the value.
    pub variable: bool,
}

impl Slot {
    /// The `null_bit` of a column that is not nullable.
    pub const NOT_NULL: u16 = u16::MAX;

    /// A slot to be overwritten by [`place`].
    pub const EMPTY: Self = Self { offset: 0, width: 0, max: 0, null_bit: Self::NOT_NULL, variable: false };

    /// Whether the column can be NULL.
    #[inline]
    pub const fn is_nullable(self) -> bool {
        self.null_bit != Self::NOT_NULL
    }
}

/// The dimensions of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of NULL bits.
    pub null_bytes: u32,
    /// Bytes of the fixed part, a multiple of 8. The least length of a row.
    pub fixed_bytes: u32,
    /// The offset of the first pair of offset and length.
    pub variable_start: u32,
    /// The number of variable columns.
    pub variable_count: u32,
}

/// `value` rounded up to a multiple of `alignment`, a power of two.
pub(crate) const fn round_up(value: u64, alignment: u64) -> u64 {
    (value + alignment - 1) & !(alignment - 1)
}

const UNPLACED: u32 = u32::MAX;

/// Gives every column its place; `slots` is as long as `columns`.
///
/// Positions saturate: a shape whose `fixed_bytes` exceed [`crate::MAX_ROW_BYTES`] must be refused by the caller.
///
/// # Panics
/// When `slots` is shorter than `columns`.
pub const fn place(columns: &[ColumnShape], slots: &mut [Slot]) -> Shape {
    let null_bytes = assign_null_bits(columns, slots);
    let mut at = fill_gap(columns, slots, null_bytes as u64);
    at = place_aligned(columns, slots, at, 8, false);
    let variable_start = at;
    at = place_aligned(columns, slots, at, 8, true);
    let variable_count = (at - variable_start) / 8;
    at = place_aligned(columns, slots, at, 4, false);
    at = place_aligned(columns, slots, at, 2, false);
    at = place_aligned(columns, slots, at, 1, false);
    Shape {
        null_bytes,
        fixed_bytes: narrow(round_up(at, 8)),
        variable_start: narrow(variable_start),
        variable_count: variable_count as u32,
    }
}

const fn narrow(value: u64) -> u32 {
    if value >= UNPLACED as u64 { UNPLACED - 1 } else { value as u32 }
}

const fn assign_null_bits(columns: &[ColumnShape], slots: &mut [Slot]) -> u32 {
    let mut bits: u16 = 0;
    let mut index = 0;
    while index < columns.len() {
        let column = columns[index];
        slots[index] = Slot {
            offset: UNPLACED,
            width: column.column_type.width(),
            max: column.column_type.max_bytes(),
            null_bit: if column.nullable { bits } else { Slot::NOT_NULL },
            variable: column.column_type.is_variable(),
        };
        if column.nullable {
            bits += 1;
        }
        index += 1;
    }
    (bits as u32).div_ceil(8)
}

/// Puts narrow columns between the NULL bits and the next multiple of 8, as far as they fit.
const fn fill_gap(columns: &[ColumnShape], slots: &mut [Slot], start: u64) -> u64 {
    let end = round_up(start, 8);
    let mut at = start;
    let mut alignment = 1;
    while alignment < 8 {
        let mut index = 0;
        while index < columns.len() {
            let slot = slots[index];
            let here = round_up(at, alignment);
            let fits = here + slot.width as u64 <= end;
            if slot.offset == UNPLACED && columns[index].column_type.alignment() as u64 == alignment && fits {
                slots[index].offset = narrow(here);
                at = here + slot.width as u64;
            }
            index += 1;
        }
        alignment *= 2;
    }
    end
}

const fn place_aligned(columns: &[ColumnShape], slots: &mut [Slot], start: u64, alignment: u32, variable: bool) -> u64 {
    let mut at = start;
    let mut index = 0;
    while index < columns.len() {
        let slot = slots[index];
        let matches = columns[index].column_type.alignment() == alignment && slot.variable == variable;
        if slot.offset == UNPLACED && matches {
            slots[index].offset = narrow(at);
            at += slot.width as u64;
        }
        index += 1;
    }
    at
}

/// The slots and shape of `N` columns, as a constant of a typed row.
#[derive(Clone, Copy, Debug)]
pub struct StaticLayout<const N: usize> {
    /// One slot a column, in declaration order.
    pub slots: [Slot; N],
    /// The row's dimensions.
    pub shape: Shape,
}

impl<const N: usize> StaticLayout<N> {
    /// Places the columns.
    pub const fn new(columns: &[ColumnShape; N]) -> Self {
        let mut slots = [Slot::EMPTY; N];
        let shape = place(columns, &mut slots);
        Self { slots, shape }
    }
}

/// One column of a [`Layout`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutColumn {
    /// The column's name.
    pub name: String,
    /// The column's type.
    pub column_type: ColumnType,
    /// Its position in the row.
    pub slot: Slot,
}

/// The layout of a table's rows at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    table: Box<str>,
    columns: Box<[LayoutColumn]>,
    by_offset: Box<[ColumnWords]>,
    nullable: ColumnSet,
    shape: Shape,
}

/// The words in which a column lies: what a walk over the columns that changed needs of each, eight to two cache lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnWords {
    /// The column's bit.
    pub(crate) column: ColumnSet,
    /// First byte, a multiple of 8.
    pub(crate) start: u32,
    /// Byte behind the last one, a multiple of 8.
    pub(crate) end: u32,
}

impl Layout {
    /// Places the columns, which [`crate::TableDefinition::validate`] has found good.
    pub(crate) fn new(table: &str, columns: impl Iterator<Item = (String, ColumnShape)>) -> Self {
        let (names, shapes): (Vec<_>, Vec<_>) = columns.unzip();
        let mut slots = vec![Slot::EMPTY; shapes.len()];
        let shape = place(&shapes, &mut slots);
        let mut by_offset: Vec<_> = (0..).zip(&slots).collect();
        by_offset.sort_by_key(|(_, slot)| slot.offset);
        let words = |(index, slot): (u16, &Slot)| ColumnWords {
            column: ColumnSet::single(index),
            start: slot.offset & !7,
            end: (slot.offset + slot.width).next_multiple_of(8),
        };
        let nullable = (0..).zip(&slots).filter(|(_, slot)| slot.is_nullable());
        let nullable = nullable.fold(ColumnSet::EMPTY, |set, (index, _)| set.with(index));
        let by_offset = by_offset.into_iter().map(words).collect();
        let columns = names
            .into_iter()
            .zip(shapes)
            .zip(slots)
            .map(|((name, shape), slot)| LayoutColumn { name, column_type: shape.column_type, slot })
            .collect();
        Self { table: table.into(), columns, by_offset, nullable, shape }
    }

    /// The table's name.
    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    /// The columns in declaration order.
    #[inline]
    pub fn columns(&self) -> &[LayoutColumn] {
        &self.columns
    }

    /// The first of a projection's columns of which it leaves bytes out. Where some share a bit of their set, all of them are meant.
    pub fn left_out(&self, projection: &Projection) -> Option<&LayoutColumn> {
        let is_left_out = |&(index, column): &(u16, &LayoutColumn)| {
            let own = Projection::NONE.with(ColumnSpan { index, slot: column.slot });
            projection.columns.contains(index) && (projection.start > own.start || projection.end < own.end)
        };
        (0..).zip(&self.columns).find(is_left_out).map(|(_, column)| column)
    }

    /// The row's dimensions.
    #[inline]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The columns in the order in which they lie.
    #[inline]
    pub(crate) fn by_offset(&self) -> &[ColumnWords] {
        &self.by_offset
    }

    /// The columns that may be NULL.
    #[inline]
    pub(crate) fn nullable(&self) -> ColumnSet {
        self.nullable
    }

    /// Index of the column with that name.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }
}
