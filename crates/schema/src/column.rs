//! Columns as constants: where they lie, how their values are read, and which of them someone wants.

use std::marker::PhantomData;

use crate::buffer::{RowBuffer, RowRef};
use crate::error::SchemaError;
use crate::layout::Slot;
use crate::mutate::RowMut;
use crate::types::ColumnType;

/// A Rust type that a column can have.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no column type",
    label = "not a column type",
    note = "a column is a bool, an integer of 8 to 128 bits, an f32 or f64, a char, a Decimal or Decimal128, a Date or \
            Timestamp, a [u8; N], FixedBytes or FixedString, a String or Vec<u8>, a type with `#[derive(Column)]`, or \
            an Option of one of these",
    note = "an enum without fields and a struct around one column type become one with `#[derive(Column)]`"
)]
pub trait ColumnValue: Sized + 'static {
    /// How a value is read from a row: the value itself, or a reference into the row.
    type Ref<'a>: Copy;

    /// The type without NULL: what is in an `Option`, and of every other type itself.
    type Plain: ColumnValue;

    /// The result of a setter: nothing for fixed width, a result for variable width.
    type Written;

    /// The column's type.
    const TYPE: ColumnType;

    /// Whether NULL is a value.
    const NULLABLE: bool = false;

    /// Reads the value.
    fn read<'a>(row: RowRef<'a>, slot: Slot) -> Self::Ref<'a>;

    /// Writes the value into a row that is being built.
    fn build(out: &mut RowBuffer, slot: Slot, value: Self::Ref<'_>);

    /// Changes the value in a finished row.
    fn change(row: &mut RowMut<'_>, name: &'static str, slot: Slot, value: Self::Ref<'_>) -> Self::Written;

    /// Bytes of a value of variable length, to be checked against the column's maximum.
    fn variable_len(value: Self::Ref<'_>) -> usize {
        let _ = value;
        0
    }

    /// The value as it would be read.
    fn borrow(&self) -> Self::Ref<'_>;

    /// The value as a struct holds it.
    fn own(value: Self::Ref<'_>) -> Self;
}

/// The value a NULL column's place holds, so that equal rows have equal bytes.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`Option<{Self}>` is no column type",
    label = "a column is NULL or a value: an Option cannot stand around this",
    note = "around an Option there is no other: write `Option<T>` in place of `Option<Option<T>>`",
    note = "an enum without fields and a struct around one column type become a column type with `#[derive(Column)]`"
)]
pub trait Blank: ColumnValue {
    fn write_null(out: &mut RowBuffer, slot: Slot);
    fn change_to_null(row: &mut RowMut<'_>, name: &'static str, slot: Slot) -> Self::Written;
}

/// A column of the typed row `R` whose values have the type `T`; a constant that `derive(Row)` makes.
///
/// ```
/// use polychron_schema::{Row, RowBuffer};
/// #[derive(Row)]
/// struct Account { #[key] id: u64, balance: i64 }
///
/// let mut buffer = RowBuffer::new();
/// Account { id: 1, balance: 50 }.encode(&mut buffer).unwrap();
/// assert_eq!(Account::BALANCE.get(buffer.as_row()), 50);
/// assert_eq!((Account::BALANCE.name, Account::BALANCE.index, Account::BALANCE.slot.offset), ("balance", 1, 8));
/// ```
pub struct Column<R, T> {
    /// The column's name.
    pub name: &'static str,
    /// Its position in declaration order.
    pub index: u16,
    /// Its position in the row.
    pub slot: Slot,
    /// The name behind that of the table, for errors.
    path: &'static str,
    marker: PhantomData<fn() -> (R, T)>,
}

impl<R, T> Clone for Column<R, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, T> Copy for Column<R, T> {}

impl<R, T: ColumnValue> Column<R, T> {
    /// For `derive(Row)`: a column in its place.
    #[doc(hidden)]
    pub const fn new(name: &'static str, path: &'static str, index: u16, slot: Slot) -> Self {
        Self { name, index, slot, path, marker: PhantomData }
    }

    /// Reads the column.
    #[inline(always)]
    pub fn get<'a>(self, row: RowRef<'a>) -> T::Ref<'a> {
        T::read(row, self.slot)
    }

    /// Changes the column. Key columns of a stored row must not change; the generated setters leave them out.
    ///
    /// A variable column refuses a value that is longer than its maximum, or that makes the row too long.
    #[inline(always)]
    pub fn set(self, row: &mut RowMut<'_>, value: T::Ref<'_>) -> T::Written {
        row.mark(self.index, self.slot);
        T::change(row, self.path, self.slot, value)
    }

    /// Writes the column of a row that is being built.
    #[doc(hidden)]
    #[inline(always)]
    pub fn build(self, out: &mut RowBuffer, value: &T) -> Result<(), SchemaError> {
        let value = value.borrow();
        if T::TYPE.is_variable() {
            check_max(self.path, self.slot, T::variable_len(value))?;
        }
        T::build(out, self.slot, value);
        Ok(())
    }

    /// The column without its types.
    #[inline]
    pub const fn span(self) -> ColumnSpan {
        ColumnSpan { index: self.index, slot: self.slot }
    }

    /// The projection that covers this column.
    #[inline]
    pub const fn projection(self) -> Projection {
        Projection::of(&[self.span()])
    }
}

/// Refuses a value that is longer than its column allows.
#[inline]
pub(crate) fn check_max(name: &str, slot: Slot, bytes: usize) -> Result<(), SchemaError> {
    if bytes > slot.max as usize { Err(too_long(name, slot, bytes)) } else { Ok(()) }
}

#[cold]
fn too_long(name: &str, slot: Slot, bytes: usize) -> SchemaError {
    SchemaError::TooLong { column: name.to_owned(), bytes, max: slot.max as usize }
}

/// A column without its types: position and place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnSpan {
    /// The column's position in declaration order.
    pub index: u16,
    /// Its position in the row.
    pub slot: Slot,
}

/// A set of columns in one word.
///
/// Columns from the 64th on share the last bit, so that for wide tables the answers err on the safe side: a set may
/// seem to contain such a column when it contains another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ColumnSet(u64);

impl ColumnSet {
    /// Columns before this one have a bit of their own.
    pub(crate) const OWN_BITS: u16 = 63;

    /// No column.
    pub const EMPTY: Self = Self(0);

    /// All columns.
    pub const ALL: Self = Self(u64::MAX);

    /// The set of one column.
    #[inline(always)]
    pub const fn single(index: u16) -> Self {
        Self(1 << if index < Self::OWN_BITS { index } else { Self::OWN_BITS })
    }

    /// The set with one more column.
    #[inline(always)]
    pub const fn with(self, index: u16) -> Self {
        self.union(Self::single(index))
    }

    /// Columns in either set.
    #[inline(always)]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the column is in the set.
    #[inline(always)]
    pub const fn contains(self, index: u16) -> bool {
        self.intersects(Self::single(index))
    }

    /// Columns in both sets.
    #[inline]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The columns of this set that are not in the other one.
    #[inline]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether the sets have a column in common.
    #[inline(always)]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// How many columns there are at most: a bit that several share counts for all of them.
    #[inline]
    pub(crate) const fn count(self) -> u32 {
        if self.contains(Self::OWN_BITS) { u32::MAX } else { self.0.count_ones() }
    }

    /// Whether the set has no columns.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The set as bits.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The set of some bits, which were those of a set.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// The wanted part of a row: columns, and the whole words in which they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Projection {
    /// The columns.
    pub columns: ColumnSet,
    /// First byte, a multiple of 8.
    pub start: u32,
    /// Byte behind the last one, a multiple of 8, or `u32::MAX` for all to the row's end.
    pub end: u32,
}

impl Projection {
    /// The whole row.
    pub const ALL: Self = Self { columns: ColumnSet::ALL, start: 0, end: u32::MAX };

    /// Nothing.
    pub const NONE: Self = Self { columns: ColumnSet::EMPTY, start: 0, end: 0 };

    /// The bytes of some columns with what lies between them; from the NULL bits on when one is nullable, and all of the row as soon as one is
    /// variable or shares its bit with others: what the set seems to contain is there.
    pub const fn of(columns: &[ColumnSpan]) -> Self {
        let mut result = Self::NONE;
        let mut index = 0;
        while index < columns.len() {
            result = result.with(columns[index]);
            index += 1;
        }
        result
    }

    /// The projection with one more column.
    #[inline(always)]
    pub const fn with(self, column: ColumnSpan) -> Self {
        let Slot { offset, width, variable, .. } = column.slot;
        let (start, end) = if variable || column.index >= ColumnSet::OWN_BITS {
            (0, u32::MAX)
        } else {
            (if column.slot.is_nullable() { 0 } else { offset & !7 }, (offset + width).next_multiple_of(8))
        };
        let first = self.end == 0;
        Self {
            columns: self.columns.with(column.index),
            start: if first || start < self.start { start } else { self.start },
            end: if end > self.end { end } else { self.end },
        }
    }

    /// The bytes wanted of a row of that length.
    #[inline(always)]
    pub const fn range(self, row_len: usize) -> std::ops::Range<usize> {
        let end = if (self.end as usize) < row_len { self.end as usize } else { row_len };
        let start = if (self.start as usize) < end { self.start as usize } else { end };
        start..end
    }
}

/// One column or a tuple of up to eight, to be read together.
///
/// ```
/// use polychron_schema::{Columns, Row, RowBuffer};
/// #[derive(Row)]
/// struct Account { #[key] id: u64, balance: i64, note: String }
///
/// let mut buffer = RowBuffer::new();
/// Account { id: 1, balance: 50, note: "rich".into() }.encode(&mut buffer).unwrap();
/// let wanted = (Account::BALANCE, Account::NOTE);
/// assert_eq!(wanted.read(buffer.as_row()), (50, "rich"));
/// ```
pub trait Columns<R>: Copy {
    /// The values read.
    type Values<'a>;

    /// The projection that covers the columns; a constant once inlined.
    fn projection(self) -> Projection;

    /// Reads the values.
    fn read<'a>(self, row: RowRef<'a>) -> Self::Values<'a>;
}

impl<R, T: ColumnValue> Columns<R> for Column<R, T> {
    type Values<'a> = T::Ref<'a>;

    #[inline(always)]
    fn projection(self) -> Projection {
        Column::projection(self)
    }

    #[inline(always)]
    fn read<'a>(self, row: RowRef<'a>) -> T::Ref<'a> {
        self.get(row)
    }
}

macro_rules! tuple_columns {
    ($($type:ident $position:tt),+) => {
        impl<R, $($type: ColumnValue),+> Columns<R> for ($(Column<R, $type>,)+) {
            type Values<'a> = ($($type::Ref<'a>,)+);

            #[inline(always)]
            fn projection(self) -> Projection {
                Projection::NONE$(.with(self.$position.span()))+
            }

            #[inline(always)]
            fn read<'a>(self, row: RowRef<'a>) -> Self::Values<'a> {
                ($(self.$position.get(row),)+)
            }
        }
    };
}

tuple_columns!(A 0);
tuple_columns!(A 0, B 1);
tuple_columns!(A 0, B 1, C 2);
tuple_columns!(A 0, B 1, C 2, D 3);
tuple_columns!(A 0, B 1, C 2, D 3, E 4);
tuple_columns!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple_columns!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple_columns!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
